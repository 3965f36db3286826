// A server that closes its listener when its first caller is connected, and listens again for the others, as perftest's
// with -R: those who call in between are not refused, whichever of the device's workers has them.
//
//   listens_again server ADDRESS PORT
//   listens_again client ADDRESS PORT
//
// Both end with 0 if all got in.
#include <unistd.h>

#include <string_view>

#include "rdma_app.hpp"

namespace {

constexpr unsigned kCallers = 8;
// From the end of the first listener, of which its caller hears. By itself no closed listener is waited for longer than
// 250 ms.
constexpr useconds_t kCallsAfter = 350'000, kListensAfter = 700'000;

void take(rdma_cm_id* caller) {
  app::Endpoint end;
  end.id = caller;
  end.make_queues(4);
  rdma_conn_param parameters{};
  parameters.responder_resources = parameters.initiator_depth = 1;
  if (rdma_accept(caller, &parameters) != 0) app::fail("rdma_accept");
}

int serve(char** words) {
  rdma_cm_id* listener = app::listen(words[2], words[3]);
  app::Endpoint first = app::next_request(listener);
  first.make_queues(4);
  first.make_memory(8, IBV_ACCESS_LOCAL_WRITE);
  app::accept(first, {});
  rdma_destroy_id(listener);
  if (first.post(IBV_WR_SEND, 0, 8, nullptr, 1) != 0) app::fail("a Send");
  usleep(kListensAfter);
  listener = app::listen(words[2], words[3], kCallers);
  for (unsigned established = 0; established < kCallers;) {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(listener->channel, &event) != 0) app::fail("rdma_get_cm_event");
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) take(event->id);
    if (event->event == RDMA_CM_EVENT_ESTABLISHED) ++established;
    rdma_ack_cm_event(event);
  }
  rdma_ack_cm_event(app::expect(first.channel, RDMA_CM_EVENT_DISCONNECTED));
  return 0;
}

int call(char** words) {
  app::Endpoint first = app::resolve(words[2], words[3]);
  first.make_queues(4);
  first.make_memory(8, IBV_ACCESS_LOCAL_WRITE);
  first.post_receive(0, 8, 1);
  app::connect(first);
  if (app::Endpoint::poll(first.recv_cq).status != IBV_WC_SUCCESS) app::fail("a receive");
  usleep(kCallsAfter);
  std::vector<app::Endpoint> others;
  for (unsigned i = 0; i < kCallers; ++i) {
    app::Endpoint& other = others.emplace_back(app::resolve(words[2], words[3]));
    other.make_queues(4);
    rdma_conn_param parameters{};
    parameters.responder_resources = parameters.initiator_depth = 1;
    if (rdma_connect(other.id, &parameters) != 0) app::fail("rdma_connect");
  }
  for (app::Endpoint& other : others) rdma_ack_cm_event(app::expect(other.channel, RDMA_CM_EVENT_ESTABLISHED));
  for (app::Endpoint& other : others) rdma_disconnect(other.id);
  rdma_disconnect(first.id);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) {
    std::fprintf(stderr, "usage: listens_again server|client ADDRESS PORT\n");
    return 2;
  }
  return std::string_view(words[1]) == "server" ? serve(words) : call(words);
}
