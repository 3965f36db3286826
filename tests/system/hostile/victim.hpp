// Another process of the same user, which has something of its own.
#pragma once

#include <functional>

#include "system/hostile/hostile.hpp"

namespace rnic::hostile {

class Victim {
 public:
  // Runs `life` in a child: it gets words by `hear` and says them by `tell`, and ends when there are no more.
  struct Line {
    int in, out;
    void tell(std::uint64_t word) const;
    bool hear(std::uint64_t& word) const;
  };
  explicit Victim(const std::function<void(Line)>& life);
  ~Victim();

  std::uint64_t hear() const;
  void tell(std::uint64_t word) const { line_.tell(word); }
  void kill() const;  // by SIGKILL

 private:
  Line line_{};
  int pid_ = -1;
};

}  // namespace rnic::hostile
