// A copier whose calls can be held, as a page that does not come holds them.
#pragma once

#include <condition_variable>
#include <mutex>
#include <set>

#include "shm/copy.hpp"

namespace rnic::test {

class HeldCopier final : public shm::Copier {
 public:
  // Calls to this process's memory (its helper's id) wait, until let_go().
  void hold(pid_t helper) {
    const std::lock_guard lock(mutex_);
    held_.insert(helper);
  }
  void let_go(pid_t helper) {
    const std::lock_guard lock(mutex_);
    held_.erase(helper);
    changed_.notify_all();
  }
  // Until a call is held. Which way it copies.
  shm::Way await_held() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_ != 0; });
    return way_;
  }
  // Until none is.
  void await_nobody() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_ == 0; });
  }

  void copy(shm::CopyCall& call) override {
    {
      std::unique_lock lock(mutex_);
      if (held_.contains(call.reach.helper_tid)) {
        way_ = call.way;
        ++waiting_;
        changed_.notify_all();
        changed_.wait(lock, [&] { return !held_.contains(call.reach.helper_tid); });
        --waiting_;
        changed_.notify_all();
      }
    }
    Copier::copy(call);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<pid_t> held_;
  unsigned waiting_ = 0;
  shm::Way way_ = shm::Way::gather;
};

}  // namespace rnic::test
