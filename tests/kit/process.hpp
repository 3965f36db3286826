// Processes of their own: a child that does what it is given and waits for its end, and an application whose memory
// is looked at, and moved into, from here.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "control/descriptor.hpp"
#include "kit/catch.hpp"
#include "shm/copy.hpp"
#include "tpt/mover.hpp"

namespace rnic::test {

class Child {
 public:
  explicit Child(const std::function<void()>& does = [] {}) {
    pid_ = fork();
    if (pid_ == 0) {
      does();
      for (;;) pause();
    }
    pidfd_ = control::Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }
  void end() {
    if (ended_) return;
    kill(pid_, SIGKILL);
    await_end();
  }
  // How it ended, by itself or not.
  int await_end() {
    int status = 0;
    waitpid(pid_, &status, 0);
    ended_ = true;
    return status;
  }

 private:
  pid_t pid_ = -1;
  bool ended_ = false;
  control::Descriptor pidfd_;
};

// Its memory is there before it, so that it has a private copy at the same address: what is seen of it here is only
// what remote copies bring.
class ForkedApplication {
 public:
  static constexpr std::size_t kSize = 768 * 1024;

  explicit ForkedApplication(SpaceId space = {1}, const std::function<std::byte(std::size_t)>& octet = one)
      : space_(space), memory_(octet) {
    mem_ = control::Descriptor(open(("/proc/" + std::to_string(pid()) + "/mem").c_str(), O_RDWR | O_CLOEXEC));
  }

  pid_t pid() const { return child_.pid(); }
  SpaceId space() const { return space_; }
  shm::SpaceReach by_thread() const { return {pid(), -1}; }
  shm::SpaceReach by_descriptor() const { return {0, mem_.get()}; }
  shm::SpaceReach with_pidfd() const { return {pid(), -1, child_.pidfd()}; }
  tpt::Access at(std::size_t offset, std::uint32_t length) const {
    return {space_, address(offset), nullptr, length, Stag{}};
  }

  std::vector<std::byte> look(std::size_t offset, std::size_t length) const {
    std::vector<std::byte> out(length);
    REQUIRE(pread(mem_.get(), out.data(), length, static_cast<off_t>(address(offset))) == static_cast<ssize_t>(length));
    return out;
  }
  std::byte octet(std::size_t offset) const { return look(offset, 1)[0]; }
  std::uint64_t word(std::size_t offset) const {
    std::uint64_t value = 0;
    std::memcpy(&value, look(offset, sizeof value).data(), sizeof value);
    return value;
  }

  void end() { child_.end(); }
  int await_end() { return child_.await_end(); }

 private:
  struct Memory {
    explicit Memory(const std::function<std::byte(std::size_t)>& octet)
        : octets(static_cast<std::byte*>(
              mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
      for (std::size_t i = 0; i < kSize; ++i) octets[i] = octet(i);
    }
    ~Memory() { munmap(octets, kSize); }
    std::byte* octets;
  };
  static std::byte one(std::size_t) { return std::byte{1}; }
  std::uint64_t address(std::size_t offset) const { return reinterpret_cast<std::uint64_t>(memory_.octets) + offset; }

  SpaceId space_;
  Memory memory_;
  Child child_;
  control::Descriptor mem_;
};

}  // namespace rnic::test
