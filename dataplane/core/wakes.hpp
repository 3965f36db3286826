// How one worker wakes another. By descriptors that are the daemon's alone: what applications wake workers by is one
// open file for both sides, and a write to it waits once they have filled it and taken its flag away.
#pragma once

#include <vector>

namespace rnic::core {

class Wakes {
 public:
  explicit Wakes(unsigned workers);
  ~Wakes();
  // Readable since that worker was woken. Watched edge-triggered, and not read.
  int fd(unsigned worker) const { return fds_[worker]; }
  // Any thread; it never waits.
  void wake(unsigned worker) const;

  Wakes(const Wakes&) = delete;
  Wakes& operator=(const Wakes&) = delete;

 private:
  std::vector<int> fds_;
};

}  // namespace rnic::core
