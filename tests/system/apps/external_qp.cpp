// A queue pair that librdmacm knows nothing of, as InfiniBand has it (not over iWARP): the application modifies it by
// what rdma_init_qp_attr says, answers CONNECT_RESPONSE by rdma_establish, and sends a word. Both name options of
// enhanced connection establishment (ECE), which are told to the other; a first call is rejected for them.
//
//   external_qp server ADDRESS PORT
//   external_qp client ADDRESS PORT
//
// Both end with 0 if the events came as over InfiniBand, TIMEWAIT_EXIT the last.
#include <string_view>

#include "rdma_app.hpp"

namespace {

constexpr char kQuestion[] = "May I?";
constexpr char kAnswer[] = "You may.";
constexpr char kWord[] = "word";
// librdmacm answers with the vendor ID that it was asked with.
constexpr ibv_ece kUnwanted{0x654321, 1, 0}, kOfClient{0x123456, 0xFEDCBA98, 0}, kOfServer{0x123456, 0x89ABCDEF, 0};
constexpr int kRejectedForEce = 35;  // enum ib_cm_rej_reason's IB_CM_REJ_VENDOR_OPTION_NOT_SUPPORTED

struct External {
  app::Endpoint end;
  ibv_qp* qp = nullptr;

  explicit External(const app::Endpoint& resolved) : end(resolved) {
    end.pd = ibv_alloc_pd(end.id->verbs);
    end.send_cq = ibv_create_cq(end.id->verbs, 4, nullptr, nullptr, 0);
    if (end.pd == nullptr || end.send_cq == nullptr) app::fail("queues");
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = end.send_cq;
    attributes.cap = {2, 2, 1, 1, 0};
    attributes.qp_type = IBV_QPT_RC;
    qp = ibv_create_qp(end.pd, &attributes);
    if (qp == nullptr) app::fail("ibv_create_qp");
    end.make_memory(sizeof kWord, IBV_ACCESS_LOCAL_WRITE);
  }
  void modify(ibv_qp_state state) const {
    ibv_qp_attr attributes{};
    attributes.qp_state = state;
    int mask = 0;
    if (rdma_init_qp_attr(end.id, &attributes, &mask) != 0) app::fail("rdma_init_qp_attr");
    if ((errno = ibv_modify_qp(qp, &attributes, mask)) != 0) app::fail("ibv_modify_qp");
  }
  ibv_sge sge() const { return {reinterpret_cast<std::uint64_t>(end.memory), sizeof kWord, end.mr->lkey}; }
  rdma_conn_param parameters(const void* private_data, std::size_t size) const {
    rdma_conn_param wishes{};
    wishes.qp_num = qp->qp_num;
    wishes.private_data = private_data;
    wishes.private_data_len = static_cast<std::uint8_t>(size);
    wishes.responder_resources = wishes.initiator_depth = 1;
    wishes.retry_count = wishes.rnr_retry_count = 7;
    return wishes;
  }
  bool completes() const {
    ibv_wc wc{};
    int polled = 0;
    while ((polled = ibv_poll_cq(end.send_cq, 1, &wc)) == 0) {
    }
    return polled == 1 && wc.status == IBV_WC_SUCCESS;
  }
};

void name_ece(rdma_cm_id* id, ibv_ece ece) {
  if (rdma_set_local_ece(id, &ece) != 0) app::fail("rdma_set_local_ece");
}

bool has_ece(rdma_cm_id* id, const ibv_ece& expected) {
  ibv_ece told{};
  if (rdma_get_remote_ece(id, &told) != 0) app::fail("rdma_get_remote_ece");
  return told.vendor_id == expected.vendor_id && told.options == expected.options;
}

// Filled up with zeros to the length that InfiniBand's message has.
bool says(const rdma_conn_param& told, std::string_view expected, std::size_t filled_up) {
  return told.private_data_len == filled_up &&
         std::string_view(static_cast<const char*>(told.private_data)) == expected;
}

int serve(char** words) {
  rdma_cm_id* listener = app::listen(words[2], words[3]);
  rdma_cm_event* event = app::expect(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  rdma_cm_id* unwanted = event->id;
  const bool first = has_ece(unwanted, kUnwanted);
  rdma_ack_cm_event(event);
  if (rdma_reject_ece(unwanted, nullptr, 0) != 0) app::fail("rdma_reject_ece");
  rdma_destroy_id(unwanted);
  event = app::expect(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  app::Endpoint asked;
  asked.id = event->id;
  bool right = first && says(event->param.conn, kQuestion, 56) && has_ece(asked.id, kOfClient);
  rdma_ack_cm_event(event);
  name_ece(asked.id, kOfServer);
  External here(asked);
  here.modify(IBV_QPS_INIT);
  ibv_sge sge = here.sge();
  ibv_recv_wr receive{}, *bad = nullptr;
  receive.sg_list = &sge;
  receive.num_sge = 1;
  if ((errno = ibv_post_recv(here.qp, &receive, &bad)) != 0) app::fail("ibv_post_recv");
  here.modify(IBV_QPS_RTR);
  here.modify(IBV_QPS_RTS);
  rdma_conn_param wishes = here.parameters(kAnswer, sizeof kAnswer);
  if (rdma_accept(asked.id, &wishes) != 0) app::fail("rdma_accept");
  rdma_ack_cm_event(app::expect(listener->channel, RDMA_CM_EVENT_ESTABLISHED));
  right = here.completes() && std::string_view(reinterpret_cast<const char*>(here.end.memory)) == kWord && right;
  rdma_ack_cm_event(app::expect(listener->channel, RDMA_CM_EVENT_DISCONNECTED));
  if (rdma_disconnect(asked.id) != 0) app::fail("rdma_disconnect");
  rdma_ack_cm_event(app::expect(listener->channel, RDMA_CM_EVENT_TIMEWAIT_EXIT));
  return right ? 0 : 1;
}

void be_rejected(char** words) {
  const External here(app::resolve(words[2], words[3]));
  name_ece(here.end.id, kUnwanted);
  rdma_conn_param wishes = here.parameters(kQuestion, sizeof kQuestion);
  if (rdma_connect(here.end.id, &wishes) != 0) app::fail("rdma_connect");
  rdma_cm_event* event = app::expect(here.end.channel, RDMA_CM_EVENT_REJECTED);
  if (event->status != kRejectedForEce) app::fail("rejected by " + std::to_string(event->status));
  rdma_ack_cm_event(event);
}

int call(char** words) {
  be_rejected(words);
  External here(app::resolve(words[2], words[3]));
  rdma_cm_id* id = here.end.id;
  bool right = id->route.num_paths == 1;
  name_ece(id, kOfClient);
  rdma_conn_param wishes = here.parameters(kQuestion, sizeof kQuestion);
  if (rdma_connect(id, &wishes) != 0) app::fail("rdma_connect");
  rdma_cm_event* event = app::expect(here.end.channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
  right = says(event->param.conn, kAnswer, 196) && has_ece(id, kOfServer) && right;
  rdma_ack_cm_event(event);
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) here.modify(state);
  if (rdma_establish(id) != 0) app::fail("rdma_establish");
  std::memcpy(here.end.memory, kWord, sizeof kWord);
  ibv_sge sge = here.sge();
  ibv_send_wr send{}, *bad = nullptr;
  send.sg_list = &sge;
  send.num_sge = 1;
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_SIGNALED;
  if ((errno = ibv_post_send(here.qp, &send, &bad)) != 0) app::fail("ibv_post_send");
  right = here.completes() && right;
  if (rdma_disconnect(id) != 0) app::fail("rdma_disconnect");
  rdma_ack_cm_event(app::expect(here.end.channel, RDMA_CM_EVENT_DISCONNECTED));
  rdma_ack_cm_event(app::expect(here.end.channel, RDMA_CM_EVENT_TIMEWAIT_EXIT));
  return right ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) {
    std::fprintf(stderr, "usage: external_qp server|client ADDRESS PORT\n");
    return 2;
  }
  return std::string_view(words[1]) == "server" ? serve(words) : call(words);
}
