// Tells devices on interfaces of the kernel's when somebody changes an interface's MTU. On the control
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "control/descriptor.hpp"
#include "control/loop.hpp"
#include "control/machine.hpp"

namespace rnic::control {

class LinkWatch {
 public:
  // `machine`'s devices are built, their workers run. Where the kernel tells nothing, nothing is told.
  LinkWatch(Machine& machine, Loop& loop, std::function<void(const std::string& line)> log);
  ~LinkWatch();
  LinkWatch(const LinkWatch&) = delete;
  LinkWatch& operator=(const LinkWatch&) = delete;

 private:
  void look();

  Machine& machine_;
  Loop& loop_;
  std::function<void(const std::string&)> log_;
  Descriptor news_;
  Loop::Watch watch_ = Loop::kNone;
  std::vector<std::uint32_t> mtus_;  // of each device, as it was last told
};

}  // namespace rnic::control
