// A descriptor that never becomes readable: what a port that needs no wake-up gives to those who
// ask what to wait for (-1 would mean: look again by yourself, from time to time).
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

namespace rnic::port {

class SilentDescriptor {
 public:
  SilentDescriptor() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~SilentDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  SilentDescriptor(const SilentDescriptor&) = delete;
  SilentDescriptor& operator=(const SilentDescriptor&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace rnic::port
