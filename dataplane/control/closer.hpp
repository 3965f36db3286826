// Closes what applications sent, and their connections, on threads that do nothing else. Such a close
// may last as long as its maker likes: a socket's lingers, a file's server is asked first, and what
// lies unread in a connection has descriptors of its own. Control waits for none of it.
//
// One at a time of each process; those of others overtake. A process of which too many wait is not
// listened to until some are closed (receive_request), so that what piles up is bounded.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "control/descriptor.hpp"

namespace rnic::control {

class Closer final : public Disposal {
 public:
  static constexpr std::size_t kShare = 64;    // of one process: open still, and to be closed
  static constexpr unsigned kThreadsMax = 16;  // as many processes may hold one each

  Closer();
  ~Closer();  // waits for none of it: what hangs goes with the daemon's end

  // `ticket`, where it is not 0, is among the done ones once that is closed.
  void close(int fd, pid_t owner, std::uint64_t ticket = 0);
  void dispose(int fd, pid_t sender) override { close(fd, sender); }
  std::size_t waiting(pid_t owner) const;  // and being closed
  std::size_t waiting() const;

  // Readable, until take_done(), once a ticket is done, or what somebody wanted to hear has come.
  int event_fd() const { return event_fd_; }
  // That fewer than kShare of a process wait: the next close after which that may be so.
  void want_news(pid_t owner);
  std::vector<std::uint64_t> take_done();

  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;

 private:
  struct State;
  static void need_thread(const std::shared_ptr<State>& state);
  static void work(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
  int event_fd_ = -1;
};

}  // namespace rnic::control
