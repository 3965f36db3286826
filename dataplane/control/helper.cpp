#include "control/helper.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "control/credentials.hpp"

namespace rnic::control {
namespace {

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
constexpr unsigned kPidfdThread = O_EXCL;  // PIDFD_THREAD
constexpr long kLookEveryNs = 100'000'000;

bool ended(int pidfd) {
  pollfd one{pidfd, POLLIN, 0};
  return poll(&one, 1, 0) != 0;
}

Descriptor open_directory(int at, const std::string& path) {
  return Descriptor(openat(at, path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
}

// The directory is the thread's that it was opened of, whoever has the number by now.
bool is_there(int thread_directory) { return faccessat(thread_directory, "status", F_OK, 0) == 0; }

Descriptor thread_pidfd(std::uint32_t tid) {
  if (std::getenv("RNIC_NO_THREAD_PIDFD") != nullptr) return {};
  return Descriptor(static_cast<int>(syscall(SYS_pidfd_open, tid, kPidfdThread)));
}

Descriptor timer() {
  Descriptor made(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  const itimerspec every{{0, kLookEveryNs}, {0, kLookEveryNs}};
  if (made) timerfd_settime(made.get(), 0, &every, nullptr);
  return made;
}

}  // namespace

Descriptor process_behind(int socket, pid_t pid) {
  int process = -1;
  socklen_t size = sizeof process;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &process, &size) == 0) return Descriptor(process);
  if (errno != ENOPROTOOPT) {
    // Linux before 6.16 says so of a process that is gone.
    if (errno == EINVAL || errno == ENODATA) errno = ESRCH;
    return {};
  }
  return Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

Result<std::unique_ptr<Helper>, int> Helper::find(Loop& loop, int process, pid_t pid, std::uint32_t tid,
                                                  std::function<void()> on_end) {
  std::unique_ptr<Helper> none;
  if (process < 0 || pid <= 0 || tid == 0 || tid == static_cast<std::uint32_t>(pid)) return none;
  const Descriptor of_process = open_directory(AT_FDCWD, "/proc/" + std::to_string(pid));
  // Of the process that is meant: it has its number still.
  if (!of_process || ended(process)) return none;
  std::unique_ptr<Helper> made(new Helper(loop));
  // The thread first, then whether it is one of the process: the number is not free between the two.
  made->thread_ = thread_pidfd(tid);
  const bool held = static_cast<bool>(made->thread_);
  made->directory_ = open_directory(of_process.get(), "task/" + std::to_string(tid));
  if (!made->directory_ || (held && ended(made->thread_.get()))) return none;
  const auto theirs = credentials_of(made->directory_.get());
  const auto ours = own_credentials();
  if (theirs && ours && reaches_no_more(*ours, *theirs)) made->for_copies_ = static_cast<pid_t>(tid);

  if (!held) made->thread_ = timer();
  const auto look = [helper = made.get(), held, on_end = std::move(on_end)](std::uint32_t) {
    std::uint64_t times = 0;
    if (!held && (read(helper->thread_.get(), &times, sizeof times) <= 0 || is_there(helper->directory_.get()))) return;
    on_end();
  };
  made->watch_ = loop.add(made->thread_.get(), EPOLLIN, look);
  if (made->watch_ == Loop::kNone) return Failure{errno};
  return made;
}

Helper::~Helper() { loop_.remove(watch_); }

}  // namespace rnic::control
