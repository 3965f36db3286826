#include "core/wakes.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "base/assert.hpp"

namespace rnic::core {

Wakes::Wakes(unsigned workers) {
  for (unsigned i = 0; i < workers; ++i) {
    fds_.push_back(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    RNIC_ASSERT(fds_.back() >= 0);
  }
}

Wakes::~Wakes() {
  for (const int fd : fds_) close(fd);
}

void Wakes::wake(unsigned worker) const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(fds_[worker], &one, sizeof one);
}

}  // namespace rnic::core
