// The memory that one context shares with the data plane: the status page, the doorbells, the
// arenas that queues are carved from, and the eventfds that wake workers (abi/rnic_shm.h).
//
// memfds, sealed before they are passed: they cannot shrink, grow or be resealed, and the status
// page cannot be mapped writable by anybody after us. What is carved where is kept here, in private
// memory.
//
// Made and changed by control; workers read the doorbells and write the status page.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "rnic_shm.h"

namespace rnic::shm {

class ContextMemory {
 public:
  // The error is an errno.
  static Result<std::unique_ptr<ContextMemory>, int> create(unsigned worker_count, std::uint32_t generation);
  ~ContextMemory();

  int status_fd() const { return status_fd_; }
  int doorbells_fd() const { return doorbells_fd_; }
  int wake_fd(unsigned worker) const { return wake_fds_[worker]; }
  unsigned worker_count() const { return worker_count_; }

  // Part of an arena, given back when it ends: before its ContextMemory.
  class [[nodiscard]] Piece {
   public:
    Piece() = default;
    Piece(Piece&& other) noexcept { *this = std::move(other); }
    Piece& operator=(Piece&& other) noexcept;
    ~Piece() {
      if (memory_ != nullptr) memory_->release(*this);
    }
    std::uint32_t arena() const { return arena_; }
    std::uint64_t offset() const { return offset_; }
    std::uint64_t length() const { return length_; }
    MutableBytes bytes() const { return {base_, length_}; }

   private:
    friend class ContextMemory;
    ContextMemory* memory_ = nullptr;
    std::byte* base_ = nullptr;
    std::uint32_t arena_ = 0;
    std::uint64_t offset_ = 0;
    std::uint64_t length_ = 0;
  };
  // Zeroed, aligned to a page's 64th; at most kQuotaBytes in all (ENOMEM).
  Result<Piece, int> allocate(std::uint64_t bytes);
  bool needs_arena(std::uint64_t bytes);  // and so a descriptor more
  // By their numbers, which count from 0.
  std::size_t arena_count() const { return arenas_.size(); }
  int arena_fd(std::uint32_t arena) const { return arenas_[arena].fd; }
  std::uint64_t arena_size(std::uint32_t arena) const { return arenas_[arena].size; }

  rnic_doorbells& doorbells(unsigned worker) { return doorbells_[worker]; }
  // Store only; the caller passes the fence.
  void set_asleep(unsigned worker, bool asleep) {
    std::atomic_ref(status_->worker[worker].asleep).store(asleep ? 1u : 0u, std::memory_order_relaxed);
  }
  // As the application rings: for one of its queues that another worker has heard of. Whether the worker is to be
  // woken: not by the descriptor that the application has for that.
  bool ring(unsigned worker, std::uint32_t doorbell);
  void mark_dead() { std::atomic_ref(status_->dead).store(1u, std::memory_order_release); }

  static constexpr std::uint64_t kQuotaBytes = std::uint64_t{4} << 30;

  ContextMemory(const ContextMemory&) = delete;
  ContextMemory& operator=(const ContextMemory&) = delete;

 private:
  ContextMemory() = default;
  struct Spot {
    std::uint32_t arena;
    std::uint64_t offset;
  };
  using FreeSpots = std::map<std::uint64_t, std::vector<Spot>>;  // by size; each has some
  FreeSpots::iterator free_for(std::uint64_t size);
  void release(const Piece& piece);
  void clear(const Spot& spot, std::uint64_t size);
  struct Arena {
    int fd = -1;
    std::byte* base = nullptr;
    std::uint64_t size = 0;
    std::uint64_t used = 0;
  };
  unsigned worker_count_ = 0;
  int status_fd_ = -1;
  int doorbells_fd_ = -1;
  std::array<int, RNIC_WORKERS_MAX> wake_fds_{};
  rnic_status_page* status_ = nullptr;
  rnic_doorbells* doorbells_ = nullptr;
  std::vector<Arena> arenas_;
  std::uint64_t allocated_bytes_ = 0;
  FreeSpots free_;
};

inline ContextMemory::Piece& ContextMemory::Piece::operator=(Piece&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(base_, other.base_);
  std::swap(arena_, other.arena_);
  std::swap(offset_, other.offset_);
  std::swap(length_, other.length_);
  return *this;
}

}  // namespace rnic::shm
