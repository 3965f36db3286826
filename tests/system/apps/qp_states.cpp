// What a queue pair says of its state, from its making to a second connection.
//
//   qp_states server ADDRESS PORT     takes two connections, a message on each
//   qp_states client ADDRESS PORT     makes both with one queue pair, and no Modify of its own; prints
//                                     its states, a line each
#include <poll.h>

#include <string_view>

#include "rdma_app.hpp"

namespace {

constexpr std::uint32_t kOctets = 64;

const char* name(ibv_qp_state state) {
  constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return state < std::size(kNames) ? kNames[state] : "?";
}

ibv_qp_state state_of(ibv_qp* qp) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  if ((errno = ibv_query_qp(qp, &attributes, IBV_QP_STATE, &init)) != 0) app::fail("ibv_query_qp");
  return attributes.qp_state;
}

void say(const char* when, ibv_qp* qp) { std::printf("%s: %s\n", when, name(state_of(qp))); }

// One that nobody has touched.
void show_new(const app::Endpoint& end) {
  ibv_qp_init_attr init{};
  init.send_cq = end.send_cq;
  init.recv_cq = end.recv_cq;
  init.cap = {4, 4, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  ibv_qp* qp = ibv_create_qp(end.pd, &init);
  if (qp == nullptr) app::fail("ibv_create_qp");
  say("new", qp);
  if (ibv_destroy_qp(qp) != 0) app::fail("ibv_destroy_qp");
}

void send_one(app::Endpoint& end, ibv_qp* qp) {
  ibv_sge sge{reinterpret_cast<std::uint64_t>(end.memory), kOctets, end.mr->lkey};
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  if ((errno = ibv_post_send(qp, &wr, &bad)) != 0) app::fail("ibv_post_send");
  if (app::Endpoint::poll(end.send_cq).status != IBV_WC_SUCCESS) app::fail("the message was not sent");
}

// DISCONNECTED comes with the beginning of a close.
void await_close(ibv_qp* qp) {
  for (int i = 0; i < 1000 && state_of(qp) == IBV_QPS_SQD; ++i) poll(nullptr, 0, 10);
}

int ask(char** words) {
  app::Endpoint end = app::resolve(words[2], words[3]);
  end.make_queues(4);
  end.make_memory(kOctets, IBV_ACCESS_LOCAL_WRITE);
  show_new(end);
  ibv_qp* const qp = end.id->qp;
  say("of librdmacm", qp);
  app::connect(end);
  say("connected", qp);
  send_one(end, qp);
  if (rdma_disconnect(end.id) != 0) app::fail("rdma_disconnect");
  rdma_ack_cm_event(app::expect(end.channel, RDMA_CM_EVENT_DISCONNECTED));
  await_close(qp);
  say("closed", qp);

  // The same queue pair, by its number, for another id.
  app::Endpoint again = app::resolve(words[2], words[3]);
  rdma_conn_param parameters{};
  parameters.qp_num = qp->qp_num;
  parameters.responder_resources = parameters.initiator_depth = 1;
  if (rdma_connect(again.id, &parameters) != 0) app::fail("rdma_connect");
  rdma_ack_cm_event(app::expect(again.channel, RDMA_CM_EVENT_ESTABLISHED));
  say("connected again", qp);
  send_one(end, qp);
  if (rdma_disconnect(again.id) != 0) app::fail("rdma_disconnect");
  rdma_ack_cm_event(app::expect(again.channel, RDMA_CM_EVENT_DISCONNECTED));
  await_close(qp);
  say("closed again", qp);
  return 0;
}

int serve(char** words) {
  const rdma_cm_id* listener = app::listen(words[2], words[3]);
  for (int round = 0; round < 2; ++round) {
    app::Endpoint end = app::next_request(listener);
    end.make_queues(4);
    end.make_memory(kOctets, IBV_ACCESS_LOCAL_WRITE);
    end.post_receive(0, kOctets, 1);  // V-IDLE-01
    app::accept(end, {});
    if (app::Endpoint::poll(end.recv_cq).status != IBV_WC_SUCCESS) app::fail("no message came");
    rdma_ack_cm_event(app::expect(end.channel, RDMA_CM_EVENT_DISCONNECTED));
    rdma_disconnect(end.id);
    await_close(end.id->qp);
    rdma_destroy_qp(end.id);
    rdma_destroy_id(end.id);
  }
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) {
    std::fprintf(stderr, "usage: qp_states server|client ADDRESS PORT\n");
    return 2;
  }
  return std::string_view(words[1]) == "server" ? serve(words) : ask(words);
}
