// One system call that copies between here and an application, and who goes on if it does not return.
//
// The kernel waits as long as a page of the application's does not come (userfaultfd, FUSE, swap, a
// fork that holds its memory map), and nothing but the application's end frees the thread; not even that
// where the page is a file's whose server is silent (FUSE, NFS). So a call has all that it touches in an
// object of its own, CopyCall; and CopyWatch says which call the thread is in. Whoever finds it there for too long
// takes everything else over: the thread, once back, sees that, and leaves its result in the CopyCall and nothing
// anywhere else.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "base/bytes.hpp"

namespace rnic::shm {

enum class Way : std::uint8_t { gather, place };

// How an address space is reached. The descriptors stay the caller's.
struct SpaceReach {
  pid_t helper_tid = 0;      // 0: not by thread id
  int mem_fd = -1;           // -1: not by descriptor
  int process = -1;          // a pidfd, by which it can be ended; or none
  std::uint32_t user = ~0U;  // the application's uid; that one is nobody's
};

struct CopyCall {
  static constexpr std::size_t kVectorMax = 1024;  // IOV_MAX
  static constexpr std::size_t kStagingBytes = 256 * 1024;

  Way way = Way::gather;
  bool by_thread = false;
  SpaceReach reach;
  // By thread id; by descriptor it is one of each.
  std::array<iovec, kVectorMax> local, remote;
  std::size_t locals = 0, remotes = 0;
  // Of which items.
  std::size_t first = 0, count = 0;
  bool staged = false;
  std::unique_ptr<std::byte[]> staging;  // taken when it is needed for the first time

  ssize_t moved = -1;
  int error = 0;
  // Of one that was taken over: it is back, and nobody touches this any more but its owner.
  std::atomic<bool> returned{false};
};

// The system call itself; tests put one of their own in its place, that can be held.
class Copier {
 public:
  virtual ~Copier() = default;
  // Sets `moved`, and `error`: 0 where the call did not fail.
  virtual void copy(CopyCall& call);
  static Copier& kernel();
};

class CopyWatch {
 public:
  using Number = std::uint64_t;
  static constexpr Number kNone = 0;

  // ---- whoever copies ----
  Number begin() {
    const Number number = ++last_;
    current_.store(number, std::memory_order_release);
    return number;
  }
  // False: somebody has taken over, and all that we had is theirs.
  bool end(Number number) {
    return current_.compare_exchange_strong(number, kNone, std::memory_order_acq_rel, std::memory_order_relaxed);
  }

  // ---- whoever watches ----
  Number current() const { return current_.load(std::memory_order_relaxed); }
  // True: the thread that is in this call is out of it, and the caller in its place.
  bool take_over(Number number) {
    return number != kNone &&
           current_.compare_exchange_strong(number, kNone, std::memory_order_acq_rel, std::memory_order_relaxed);
  }

 private:
  std::atomic<Number> current_{kNone};
  Number last_ = kNone;
};

}  // namespace rnic::shm
