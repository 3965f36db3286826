/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// The provider's end of the rings of abi/rnic_shm.h: locks, doorbells, and the credit of queues.
//
// Everything here lives in zeroed memory and has no constructor. Which index is private and which
// is shared is the point: what says that a slot is free is never in shared memory (V-WR-05).
#pragma once

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "rnic_shm.h"

namespace rnic::provider {

template <typename T>
inline T load(const T& word, std::memory_order order) {
  return std::atomic_ref<T>(const_cast<T&>(word)).load(order);
}

template <typename T>
inline void store(T& word, T value, std::memory_order order) {
  std::atomic_ref<T>(word).store(value, order);
}

inline void spin_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// Held for tens of nanoseconds. On a machine with fewer cores than threads the holder may be off
// its core, so a waiter soon gives its own up.
struct Spinlock {
  std::uint32_t word;

  bool try_lock() { return std::atomic_ref(word).exchange(1, std::memory_order_acquire) == 0; }
  void lock() {
    const std::atomic_ref ref(word);
    while (!try_lock()) {
      for (int i = 0; i < 64 && ref.load(std::memory_order_relaxed) != 0; ++i) spin_pause();
      if (ref.load(std::memory_order_relaxed) != 0) sched_yield();
    }
  }
  void unlock() { store(word, 0U, std::memory_order_release); }
};

class SpinGuard {
 public:
  explicit SpinGuard(Spinlock& lock) : lock_(lock) { lock_.lock(); }
  ~SpinGuard() { lock_.unlock(); }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

 private:
  Spinlock& lock_;
};

struct Doorbells {
  const rnic_status_page* status;
  rnic_doorbells* workers;
  std::uint32_t worker_count;
  int eventfds[RNIC_WORKERS_MAX];
};

template <typename T>
inline void set_once(T& word, T bits) {
  const std::atomic_ref ref(word);
  if ((ref.load(std::memory_order_relaxed) & bits) == 0) ref.fetch_or(bits);
}

// Says that a queue has new entries; its `produced` has been stored, and a fence put behind that. It orders the store
// before the looks at bits already set: a worker that clears a bit we saw set reads `produced`
// after, and finds it. The load of `asleep` pairs with the worker's fence between storing it and
// looking at the doorbells once more.
inline void ring_doorbell(const Doorbells& doorbells, std::uint32_t worker, std::uint32_t index) {
  if (worker >= doorbells.worker_count) worker = 0;
  rnic_doorbells& area = doorbells.workers[worker];
  const std::uint32_t word = index / 64;
  set_once(area.words[word], std::uint64_t{1} << (index % 64));
  set_once(area.summary[word / 64], std::uint64_t{1} << (word % 64));
  set_once(area.any, 1U);
  if (load(doorbells.status->worker[worker].asleep, std::memory_order_seq_cst) != 0) {
    store(area.rung_from, static_cast<std::uint32_t>(sched_getcpu() + 1), std::memory_order_relaxed);
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(doorbells.eventfds[worker], &one, sizeof one);
  }
}

// A send, receive or shared receive queue. `head` counts what was posted (by posters, under
// `lock`), `tail` what polling has freed (by pollers of the one CQ, under its lock).
struct WorkQueue {
  Spinlock lock;
  std::uint32_t size;  // a power of two, or 0
  std::uint32_t stride;
  std::uint32_t sge_max;
  std::uint32_t doorbell;
  std::uint32_t head;
  std::uint32_t tail_seen;  // by posters: spares them the line that pollers write
  rnic_ring_control* control;
  std::byte* slots;
  alignas(RNIC_CACHE_LINE) std::uint32_t tail;

  std::byte* slot(std::uint32_t index) const { return slots + std::size_t{index & (size - 1)} * stride; }

  // V-WR-07: no free slot, no post. Pairs with the release in free_through().
  bool full() { return full_at(head); }
  // Has the entry of this index, which is head or follows it, no free slot?
  bool full_at(std::uint32_t index) {
    if (index - tail_seen < size) return false;
    tail_seen = load(tail, std::memory_order_acquire);
    return index - tail_seen >= size;
  }

  // Was this index posted, and is it not free yet?
  bool outstanding(std::uint32_t index) const {
    const std::uint32_t from = load(tail, std::memory_order_relaxed);
    return index - from < load(head, std::memory_order_acquire) - from;
  }

  // V-WR-05, V-WR-06: a polled completion frees its slot and all before it.
  void free_through(std::uint32_t index) { store(tail, index + 1, std::memory_order_release); }

  // Shows all entries up to `new_head` to the data plane.
  void publish(std::uint32_t new_head, const Doorbells& doorbells) {
    store(head, new_head, std::memory_order_release);
    store(control->produced, new_head, std::memory_order_release);
    // Pairs with the worker's, between its store to `watched` and its last look at `produced`.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (load(control->watched, std::memory_order_relaxed) != 0) return;
    ring_doorbell(doorbells, load(control->worker, std::memory_order_relaxed), doorbell);
  }
};

}  // namespace rnic::provider
