// An application's connection-management side: a channel of rdma_cm, through the socket.
#pragma once

#include <poll.h>

#include "kit/server_world.hpp"

namespace rnic::test {

class CmApp : public Client {
 public:
  explicit CmApp(Daemon& daemon, const std::string& device = "", std::uint32_t uid = getuid(), std::uint8_t process = 1)
      : Client(daemon, RNIC_CLIENT_CM, device, uid, process) {
    Answer opened = ask(RNIC_CM_OPEN);
    reply = opened.as<rnic_cm_open_reply>();
    REQUIRE(opened.fds.size() == 2);
    events = std::move(opened.fds[0]);
    lifeline = std::move(opened.fds[1]);
    fcntl(events.get(), F_SETFL, O_NONBLOCK);
  }
  std::uint32_t id(std::uint64_t user_pointer = 1) {
    rnic_cm_create_id body{};
    body.channel = reply.channel;
    body.port_space = 0x0106;
    body.uid = user_pointer;
    return ask(RNIC_CM_CREATE_ID, body).as<rnic_handle_reply>().handle;
  }
  Answer bind(std::uint32_t id, const rnic_address& address) {
    rnic_cm_bind body{};
    body.id = id;
    body.address = address;
    return ask(RNIC_CM_BIND, body);
  }
  // Waits for an event as an application does: a count first.
  rnic_cm_get_event_reply event() {
    for (int i = 0; i < 2000; ++i) {
      daemon_.settle();
      char one = 0;
      if (read(events.get(), &one, sizeof one) == sizeof one) {
        return by_handle(RNIC_CM_GET_EVENT, reply.channel).as<rnic_cm_get_event_reply>();
      }
      pollfd wait{daemon_.machine.workers[0]->event_fd(), POLLIN, 0};
      poll(&wait, 1, 1);
    }
    FAIL("no event came");
    return {};
  }

  rnic_cm_open_reply reply{};
  control::Descriptor events, lifeline;
};

}  // namespace rnic::test
