// How a connection came to its end, as an application sees it: events of the connection manager, of
// the device, and completions. Printed line by line, for whoever started the program to judge.
#pragma once

#include <fcntl.h>
#include <poll.h>

#include <chrono>

#include "rdma_app.hpp"

namespace app {

// Until the connection manager has told of the end, at most 30 s, and `flushes` receives have
// completed, at most 3 s more: there are devices that flush none. False: the end never came.
inline bool tell_ending(Endpoint& end, int flushes) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point limit = Clock::now() + std::chrono::seconds(30);
  fcntl(end.id->verbs->async_fd, F_SETFL, O_NONBLOCK);
  bool disconnected = false;
  while ((!disconnected || flushes > 0) && Clock::now() < limit) {
    pollfd ready[2]{{end.channel->fd, POLLIN, 0}, {end.id->verbs->async_fd, POLLIN, 0}};
    poll(ready, 2, 20);
    if (ready[0].revents != 0) {
      rdma_cm_event* event = nullptr;
      if (rdma_get_cm_event(end.channel, &event) != 0) fail("rdma_get_cm_event");
      std::printf("cm: %s\n", rdma_event_str(event->event));
      if (event->event == RDMA_CM_EVENT_DISCONNECTED) {
        disconnected = true;
        limit = Clock::now() + std::chrono::seconds(3);
      }
      rdma_ack_cm_event(event);
    }
    ibv_wc wc{};
    while (ibv_poll_cq(end.recv_cq, 1, &wc) == 1) {
      std::printf("receive: %s\n", ibv_wc_status_str(wc.status));
      --flushes;
    }
  }
  // An event of the device may be a moment behind the connection manager's.
  for (int i = 0; i < 10; ++i) {
    ibv_async_event event{};
    while (ibv_get_async_event(end.id->verbs, &event) == 0) {
      std::printf("device: %s\n", ibv_event_type_str(event.event_type));
      ibv_ack_async_event(&event);
    }
    poll(nullptr, 0, 20);
  }
  ibv_wc wc{};
  while (ibv_poll_cq(end.send_cq, 1, &wc) == 1) std::printf("late work: %s\n", ibv_wc_status_str(wc.status));
  return disconnected;
}

}  // namespace app
