#include "core/crew.hpp"

#include <pthread.h>

#include <chrono>
#include <system_error>

namespace rnic::core {

void Crew::start() {
  const std::lock_guard lock(mutex_);
  vacant_ = true;
  add_thread();
  add_thread();
  ++running_;
  threads_.emplace_back([this] { watch(); });
}

// mutex_ is held.
void Crew::add_thread() {
  threads_.emplace_back([this] { work(); });
  ++running_;
}

void Crew::join() {
  (void)end(Duration{0});
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

bool Crew::end(Duration patience) {
  std::unique_lock lock(mutex_);
  ends_ = true;
  changed_.notify_all();
  if (watcher_sleeps_.exchange(false)) watcher_sleeps_.notify_all();
  return changed_.wait_for(lock, std::chrono::nanoseconds(patience.ns), [this] { return running_ == 0; });
}

void Crew::work() {
  duties_.on_thread();
  std::unique_lock lock(mutex_);
  for (;;) {
    ++free_;
    changed_.wait(lock, [this] { return vacant_ || ends_; });
    --free_;
    if (!vacant_) break;
    vacant_ = false;
    lock.unlock();
    const bool over = duties_.work();
    lock.lock();
    if (over) break;
  }
  --running_;
  changed_.notify_all();
}

bool Crew::rest(std::unique_lock<std::mutex>& lock, Duration span) {
  changed_.wait_for(lock, std::chrono::nanoseconds(span.ns), [this] { return ends_; });
  return !ends_;
}

void Crew::rouse_watcher() {
  if (watcher_sleeps_.exchange(false)) watcher_sleeps_.notify_all();
}

void Crew::watch() {
  duties_.on_watcher();
  shm::CopyWatch::Number seen = shm::CopyWatch::kNone;
  unsigned looks = 0;
  unsigned quiet = 0;
  std::unique_lock lock(mutex_);
  while (rest(lock, kLook)) {
    lock.unlock();
    const shm::CopyWatch::Number now = watch_.current();
    looks = now != shm::CopyWatch::kNone && now == seen ? looks + 1 : 1;
    seen = now;
    if (now != shm::CopyWatch::kNone && looks >= kLooksMax && watch_.take_over(now)) take_over();
    quiet = duties_.is_asleep() ? quiet + 1 : 0;
    if (quiet >= kQuietLooksMax) {
      watcher_sleeps_.store(true, std::memory_order_relaxed);
      // Pairs with the worker's, between its waking and its next copy: one of the two is seen.
      std::atomic_thread_fence(std::memory_order_seq_cst);
      if (duties_.is_asleep()) {
        watcher_sleeps_.wait(true);
      } else {
        watcher_sleeps_.store(false, std::memory_order_relaxed);
      }
      quiet = 0;
    }
    lock.lock();
    if (ends_) break;
  }
  --running_;
  changed_.notify_all();
}

// All that is the worker's is ours here, and nobody's but ours.
void Crew::take_over() {
  duties_.on_taken_over();
  std::unique_lock lock(mutex_);
  if (free_ == 0) {
    // Its number among them, the watcher's taken off.
    bool full = running_ - 1 > kStuckMax;
    if (!full) {
      try {
        add_thread();
      } catch (const std::system_error&) {
        full = true;
      }
    }
    if (full) {
      lock.unlock();
      duties_.on_nobody_left();
      lock.lock();
    }
  }
  vacant_ = true;
  changed_.notify_all();
}

}  // namespace rnic::core
