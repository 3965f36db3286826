// The user's epoll watches are used up, but for some (--count): what the daemon wants to watch then, it cannot. Takes
// as much of the kernel's memory as that many watches do, and the same user's other programs go without them: not for
// every day.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>

#include "system/hostile/hostile.hpp"

namespace rnic::hostile {

int watches(const Options& options) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  // Each of these is watched by each of those.
  std::vector<bare::Descriptor> watched;
  for (int i = 0; i < 4000; ++i) watched.emplace_back(eventfd(0, EFD_CLOEXEC));
  std::vector<bare::Descriptor> watchers;
  std::uint64_t made = 0;
  int last = -1, last_fd = -1;
  for (bool room = true; room;) {
    watchers.emplace_back(epoll_create1(EPOLL_CLOEXEC));
    if (!watchers.back()) bare::fail("epoll_create1", errno);
    for (const bare::Descriptor& each : watched) {
      epoll_event event{};
      if (epoll_ctl(watchers.back().get(), EPOLL_CTL_ADD, each.get(), &event) != 0) {
        if (errno != ENOSPC) bare::fail("epoll_ctl", errno);
        room = false;
        break;
      }
      last = watchers.back().get();
      last_fd = each.get();
      ++made;
    }
  }
  attacking();
  const Seconds start = now();
  // From none left over to so many that a context is opened well.
  std::uint32_t left = 0;
  for (; left < 16 && now() - start < options.seconds; ++left) {
    if (left == 1) epoll_ctl(last, EPOLL_CTL_DEL, last_fd, nullptr);
    if (left > 1) epoll_ctl(watchers.front().get(), EPOLL_CTL_DEL, watched[left].get(), nullptr);
    bare::Connection connection(options.socket);
    if (!connection.connected() || !connection.hello(RNIC_CLIENT_VERBS).good()) continue;
    const bare::Answer devices = connection.ask(RNIC_LIST_DEVICES);
    if (!devices.good()) continue;
    rnic_open_context request{};
    std::memcpy(request.device, devices.body.data() + sizeof(rnic_list_devices_reply), sizeof request.device);
    if (connection.ask(RNIC_OPEN_CONTEXT, request).good()) break;
  }
  say(std::to_string(made) + " watches; a context was opened with " + std::to_string(left) + " left over");
  return 0;
}

}  // namespace rnic::hostile
