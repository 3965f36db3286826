// The threads of a worker. One of them is the worker; the others wait until it is stuck in a copy that
// waits for a page of an application's (shm/copy.hpp). A watcher, which does nothing else, finds that
// out and has one of them go on in its place. A thread that is back waits like the others.
//
// A copy is known by its number alone, so that to be watched costs the worker two stores. It is taken
// over after kLooksMax looks, kLook apart: a bystander waits for less than 20 ms.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/time.hpp"
#include "shm/copy.hpp"

namespace rnic::core {

class Crew {
 public:
  static constexpr Duration kLook = milliseconds(4);
  static constexpr unsigned kLooksMax = 3;
  // So many looks at a worker that sleeps, and the watcher sleeps too.
  static constexpr unsigned kQuietLooksMax = 25;
  // In copies that wait, at most; fewer of one user's (shm/mover.hpp). With one more the application is ended at once.
  static constexpr unsigned kStuckMax = 64;

  struct Duties {
    std::function<void()> on_thread;       // on each new thread that works, first
    std::function<void()> on_watcher;      // and on the one that watches
    std::function<bool()> work;            // as the worker. False: it was replaced
    std::function<void()> on_taken_over;   // by the watcher, in the worker's place: before another goes on
    std::function<void()> on_nobody_left;  // the same; all are stuck, and one must come back
    std::function<bool()> is_asleep;       // the worker sleeps, and will call wake_watcher() before it copies
  };

  Crew(shm::CopyWatch& watch, Duties duties) : watch_(watch), duties_(std::move(duties)) {}
  ~Crew() { join(); }

  void start();
  // When work() has returned true, or is about to. False: after `patience` a thread is still stuck.
  bool end(Duration patience);
  void join();

  // The worker, awake, before it copies: is_asleep() says false since, and a fence is between.
  void wake_watcher() {
    if (watcher_sleeps_.load(std::memory_order_relaxed)) [[unlikely]]
      rouse_watcher();
  }

 private:
  void work();
  void watch();
  void take_over();
  bool rest(std::unique_lock<std::mutex>& lock, Duration span);
  void rouse_watcher();
  void add_thread();

  shm::CopyWatch& watch_;
  Duties duties_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool vacant_ = false;  // nobody is the worker: the next that is free shall
  bool ends_ = false;
  unsigned free_ = 0;     // threads that wait
  unsigned running_ = 0;  // threads that have not ended, the watcher too
  std::atomic<bool> watcher_sleeps_{false};
  std::vector<std::thread> threads_;
};

}  // namespace rnic::core
