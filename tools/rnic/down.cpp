// rnic down: ends a daemon, and waits until it is gone.
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "client.hpp"
#include "commands.hpp"
#include "control/run_directory.hpp"

namespace rnic::tool {
namespace {

constexpr int kPatienceMs = 5000;        // till a word is said
constexpr int kLastPatienceMs = 55'000;  // from then on: it may have thousands of connections to end, and no core
constexpr int kLookMs = 10;

// The daemon's process, readable when it has ended, though whoever started it may not have been told yet; -1
// where it is in no pid namespace of ours, or the kernel is too old.
int process_of(const Client& daemon) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(daemon.descriptor(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0) return -1;
  return static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0));
}

// It holds the lock of its pid file to its end, and takes the file away right before.
bool name_is_free(const std::string& pid_file) {
  const int file = open(pid_file.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return true;
  const bool free = flock(file, LOCK_SH | LOCK_NB) == 0;
  close(file);
  return free;
}

bool wait_for_end(int process, const std::string& pid_file, int patience_ms) {
  if (process >= 0) {
    pollfd entry{process, POLLIN, 0};
    return poll(&entry, 1, patience_ms) > 0;
  }
  for (int waited = 0; waited < patience_ms; waited += kLookMs) {
    if (name_is_free(pid_file)) return true;
    usleep(kLookMs * 1000);
  }
  return false;
}

}  // namespace

int down(const std::string& name) {
  Client daemon;
  if (!daemon.connect(name)) {
    std::fprintf(stderr, "rnic down: %s\n", daemon.why().c_str());
    return 1;
  }
  const std::string pid_file = control::pid_file(control::run_directory(name));
  const int process = process_of(daemon);
  const int status = daemon.ask(RNIC_STOP, nullptr, 0, nullptr, 0);
  if (status > 0) {
    std::fprintf(stderr, "rnic down: the daemon refuses: %s\n", std::strerror(status));
    return 1;
  }
  if (wait_for_end(process, pid_file, kPatienceMs)) return 0;
  std::fprintf(stderr, "rnic down: the daemon (pid %u) is ending; waiting up to %d s more\n", daemon.daemon_pid(),
               kLastPatienceMs / 1000);
  if (wait_for_end(process, pid_file, kLastPatienceMs)) return 0;
  std::fprintf(stderr, "rnic down: the daemon (pid %u) was told to end but is still there after %d s\n",
               daemon.daemon_pid(), (kPatienceMs + kLastPatienceMs) / 1000);
  return 1;
}

}  // namespace rnic::tool
