// Closes what applications sent, and their connections, on threads that do nothing else. Such a close
// may last as long as its maker likes: a socket's lingers, a file's server is asked first, and what
// lies unread in a connection has descriptors of its own. Control waits for none of it.
//
// One at a time of each process; those of others overtake. A process of which too many wait is not
// listened to any more (receive_request), so that what piles up is bounded.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>

namespace rnic::control {

class Closer {
 public:
  static constexpr std::size_t kShare = 64;     // of one process: open still, and to be closed
  static constexpr unsigned kThreadsMax = 16;   // as many processes may hold one each

  Closer();
  ~Closer();  // waits for none of it: what hangs goes with the daemon's end

  void close(int fd, pid_t owner);
  std::size_t waiting(pid_t owner) const;  // and being closed
  std::size_t waiting() const;

  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;

 private:
  struct State;
  static void work(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace rnic::control
