// The descriptor that tells of a channel's events is shared with the daemon: the attacker fills it, so that whoever
// writes to it with patience waits, and takes back every flag that would spare him.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "system/hostile/hostile.hpp"

namespace rnic::hostile {

int block_eventfd(const Options& options) {
  bare::Application app(options.socket);
  bare::Channel channel(options.socket);
  struct stat what {};
  fstat(channel.events.get(), &what);
  const bool socket = S_ISSOCK(what.st_mode);
  if (!socket) {
    fcntl(channel.events.get(), F_SETFL, 0);
    const std::uint64_t full = ~std::uint64_t{1};
    if (write(channel.events.get(), &full, sizeof full) != sizeof full) bare::fail("filling the eventfd", errno);
  }
  attacking();
  const Seconds start = now();
  // Nobody reads: of a socket, more events than it can hold.
  const std::uint32_t ids = options.count != 0 ? options.count : socket ? 2000 : 1;
  std::uint32_t said = 0;
  for (; said < ids && now() - start < options.seconds; ++said) {
    const std::uint32_t id = channel.create_id();
    channel.control.say(RNIC_CM_RESOLVE_ADDRESS,
                        rnic_cm_resolve_address{id, 1000, {}, bare::address_of(app.device(), 7)});
    if (!socket) break;
    channel.control.hear();
  }
  while (now() - start < options.seconds) usleep(10'000);
  say(std::to_string(said) + " events into " + (socket ? "a socket that nobody reads" : "a full eventfd"));
  return 0;
}

}  // namespace rnic::hostile
