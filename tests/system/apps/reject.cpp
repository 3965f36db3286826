// A connection request that is refused, with private data in both directions.
//
//   reject server ADDRESS PORT
//   reject client ADDRESS PORT
//
// Both end with 0 if they were told what the other said.
#include <string_view>

#include "rdma_app.hpp"

namespace {

// Of a length that neither side rounds.
constexpr char kQuestion[] = "May I come in? I have 57 octets of private data with me.";
constexpr char kAnswer[] = "No.";

bool says(const rdma_conn_param& told, std::string_view expected) {
  const bool same =
      told.private_data_len == expected.size() && std::memcmp(told.private_data, expected.data(), expected.size()) == 0;
  std::printf("%u octets of private data, %s\n", told.private_data_len, same ? "as sent" : "OTHER than sent");
  return same;
}

int refuse(char** words) {
  rdma_cm_id* listener = app::listen(words[2], words[3]);
  rdma_cm_event* event = app::expect(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  rdma_cm_id* request = event->id;
  const bool right = says(event->param.conn, {kQuestion, sizeof kQuestion});
  rdma_ack_cm_event(event);
  if (rdma_reject(request, kAnswer, sizeof kAnswer) != 0) app::fail("rdma_reject");
  rdma_destroy_id(request);
  rdma_destroy_id(listener);
  return right ? 0 : 1;
}

int ask(char** words) {
  app::Endpoint end = app::resolve(words[2], words[3]);
  end.make_queues(4);
  rdma_conn_param parameters{};
  parameters.private_data = kQuestion;
  parameters.private_data_len = sizeof kQuestion;
  parameters.responder_resources = parameters.initiator_depth = 4;
  if (rdma_connect(end.id, &parameters) != 0) app::fail("rdma_connect");
  rdma_cm_event* event = app::expect(end.channel, RDMA_CM_EVENT_REJECTED);
  std::printf("rejected, status %d\n", event->status);
  const bool right = says(event->param.conn, {kAnswer, sizeof kAnswer}) && event->status != 0;
  rdma_ack_cm_event(event);
  return right ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) {
    std::fprintf(stderr, "usage: reject server|client ADDRESS PORT\n");
    return 2;
  }
  return std::string_view(words[1]) == "server" ? refuse(words) : ask(words);
}
