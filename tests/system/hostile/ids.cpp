// A process ends that has very many resolved ids on one channel.
#include <signal.h>
#include <unistd.h>

#include "system/hostile/victim.hpp"

namespace rnic::hostile {

int ids(const Options& options) {
  const std::uint32_t most = options.count != 0 ? options.count : 6000;
  const Victim many([&](Victim::Line line) {
    const bare::Application app(options.socket);
    bare::Channel channel(options.socket);
    const rnic_address to = bare::address_of(app.device(), 7);
    std::uint32_t made = 0;
    for (; made < most; ++made) {
      const bare::Answer id =
          channel.control.ask(RNIC_CM_CREATE_ID, rnic_cm_create_id{channel.number, 0x0106, 2, 0, 0});
      if (!id.good()) break;
      if (!channel.resolve_address(id.as<rnic_handle_reply>().handle, to).good()) break;
    }
    line.tell(made);
    pause();
  });
  const std::uint64_t made = many.hear();
  attacking();
  usleep(200'000);
  many.kill();
  const Seconds start = now();
  while (now() - start < options.seconds / 2) usleep(10'000);
  say("a process with " + std::to_string(made) + " ids was killed");
  return 0;
}

}  // namespace rnic::hostile
