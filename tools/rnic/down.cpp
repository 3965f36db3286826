// rnic down: ends a daemon, and waits until it is gone.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "client.hpp"
#include "commands.hpp"

namespace rnic::tool {

int down(const std::string& name) {
  Client daemon;
  if (!daemon.connect(name)) {
    std::fprintf(stderr, "rnic down: %s\n", daemon.why().c_str());
    return 1;
  }
  const auto pid = static_cast<pid_t>(daemon.daemon_pid());
  const int status = daemon.ask(RNIC_STOP, nullptr, 0, nullptr, 0);
  if (status > 0) {
    std::fprintf(stderr, "rnic down: the daemon refuses: %s\n", std::strerror(status));
    return 1;
  }
  for (int tries = 0; tries < 500; ++tries) {
    if (kill(pid, 0) != 0) return 0;
    usleep(10'000);
  }
  std::fprintf(stderr, "rnic down: the daemon (pid %d) was told to end but is still there after 5 s\n", pid);
  return 1;
}

}  // namespace rnic::tool
