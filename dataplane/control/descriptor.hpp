// A file descriptor that is closed when its owner goes; by the closer, where an application sent it.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <utility>

namespace rnic::control {

// Lets go of what a process sent (control/closer.hpp).
class Disposal {
 public:
  virtual void dispose(int fd, pid_t sender) = 0;

 protected:
  ~Disposal() = default;
};

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(int fd, Disposal& closer, pid_t sender) : fd_(fd), closer_(&closer), sender_(sender) {}
  Descriptor(Descriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), closer_(other.closer_), sender_(other.sender_) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
      closer_ = other.closer_;
      sender_ = other.sender_;
    }
    return *this;
  }
  ~Descriptor() { reset(); }

  explicit operator bool() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  void reset() {
    if (fd_ >= 0 && closer_ != nullptr) closer_->dispose(fd_, sender_);
    if (fd_ >= 0 && closer_ == nullptr) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
  Disposal* closer_ = nullptr;
  pid_t sender_ = 0;
};

}  // namespace rnic::control
