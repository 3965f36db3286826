// The helper of a context: a thread of the application that never calls exec, by whose number its memory is reached.
// Its end is the end of the address space that it was of: of the process, or of what the process was before an exec,
// also where a forked child still holds the connection. So its end ends the context.
//
// A number is used again. It is followed from here to the thread once, by way of a directory in /proc of the very
// process, and the thread is held by a pidfd from then on (PIDFD_THREAD, Linux 6.9). Where the kernel has none, or
// RNIC_NO_THREAD_PIDFD is set, it is looked for ten times a second.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.hpp"
#include "control/descriptor.hpp"
#include "control/loop.hpp"

namespace rnic::control {

// A pidfd of who connected this socket: by the kernel's word, or, before Linux 6.5, by his number. None: he is gone,
// with ESRCH, or may not be watched.
Descriptor process_behind(int socket, pid_t pid);

class Helper {
 public:
  // `process`: a pidfd, and its number. Null where that process has no such thread, or it is its first: that number
  // outlives an exec. `on_end` is called by the loop, and may destroy this. An errno where there is no room to watch
  // it.
  static Result<std::unique_ptr<Helper>, int> find(Loop& loop, int process, pid_t pid, std::uint32_t tid,
                                                   std::function<void()> on_end);
  ~Helper();

  // By what number copies may go. 0: none, as we may reach what the application may not: whoever has the number when
  // this thread has ended.
  pid_t for_copies() const { return for_copies_; }

  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;

 private:
  explicit Helper(Loop& loop) : loop_(loop) {}

  Loop& loop_;
  Descriptor directory_;  // /proc/PID/task/TID
  Descriptor thread_;     // a pidfd, or a timer
  Loop::Watch watch_ = Loop::kNone;
  pid_t for_copies_ = 0;
};

}  // namespace rnic::control
