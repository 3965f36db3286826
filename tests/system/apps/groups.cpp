// Groups as rdma_cm has them: who joins to send only sends, and is sent nothing; a member is; who has left is not.
//
//   groups ADDRESS GROUP
//
// Ends with 0 if it was so. kCount messages of kBytes octets go to the group before it is a member, for others.
#include "rdma_app.hpp"

namespace {

constexpr int kCount = 10;
constexpr std::uint32_t kBytes = 100, kGrh = 40;

struct Member {
  app::Endpoint end;
  rdma_ud_param way{};
  ibv_ah* ah = nullptr;

  explicit Member(const char* address) {
    end.channel = rdma_create_event_channel();
    if (end.channel == nullptr || rdma_create_id(end.channel, &end.id, nullptr, RDMA_PS_UDP) != 0) app::fail("id");
    sockaddr_storage at = app::address_of(address, "0");
    if (rdma_bind_addr(end.id, reinterpret_cast<sockaddr*>(&at)) != 0) app::fail("rdma_bind_addr");
    end.pd = ibv_alloc_pd(end.id->verbs);
    end.send_cq = ibv_create_cq(end.id->verbs, 4, nullptr, nullptr, 0);
    end.recv_cq = ibv_create_cq(end.id->verbs, 4, nullptr, nullptr, 0);
    if (end.pd == nullptr || end.send_cq == nullptr || end.recv_cq == nullptr) app::fail("queues");
    ibv_qp_init_attr attributes{};
    attributes.send_cq = end.send_cq;
    attributes.recv_cq = end.recv_cq;
    attributes.cap = {4, 4, 1, 1, 0};
    attributes.qp_type = IBV_QPT_UD;
    if (rdma_create_qp(end.id, end.pd, &attributes) != 0) app::fail("rdma_create_qp");
    end.make_memory(2 * (kGrh + kBytes), IBV_ACCESS_LOCAL_WRITE);
    end.post_receive(0, kGrh + kBytes, 1);
    end.post_receive(0, kGrh + kBytes, 2);
  }
  void join(sockaddr_storage group, rdma_cm_mc_join_flags how) {
    rdma_cm_join_mc_attr_ex wanted{};
    wanted.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    wanted.join_flags = how;
    wanted.addr = reinterpret_cast<sockaddr*>(&group);
    if (rdma_join_multicast_ex(end.id, &wanted, this) != 0) app::fail("rdma_join_multicast_ex");
    rdma_cm_event* event = app::expect(end.channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    if (event->param.ud.private_data != this || event->param.ud.qp_num != 0xFFFFFF) app::fail("another's event");
    way = event->param.ud;
    rdma_ack_cm_event(event);
    if (ah == nullptr) ah = ibv_create_ah(end.pd, &way.ah_attr);
    if (ah == nullptr) app::fail("ibv_create_ah");
  }
  void leave(sockaddr_storage group) {
    if (rdma_leave_multicast(end.id, reinterpret_cast<sockaddr*>(&group)) != 0) app::fail("rdma_leave_multicast");
  }
  static ibv_wc completion(ibv_cq* cq) {
    const ibv_wc wc = app::Endpoint::poll(cq);
    if (wc.status != IBV_WC_SUCCESS) app::fail(ibv_wc_status_str(wc.status));
    return wc;
  }
  void send(std::uint32_t immediate) {
    ibv_sge sge{reinterpret_cast<std::uint64_t>(end.memory) + kGrh + kBytes, kBytes, end.mr->lkey};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.imm_data = immediate;
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = way.qp_num;
    wr.wr.ud.remote_qkey = way.qkey;
    if ((errno = ibv_post_send(end.id->qp, &wr, &bad)) != 0) app::fail("ibv_post_send");
    (void)completion(end.send_cq);
  }
};

}  // namespace

int main(int count, char** words) {
  if (count != 3) {
    std::fprintf(stderr, "usage: groups ADDRESS GROUP\n");
    return 2;
  }
  const sockaddr_storage group = app::address_of(words[2], "0");
  Member one(words[1]);
  one.join(group, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER);
  for (int i = 0; i < kCount; ++i) one.send(1);
  one.leave(group);

  // What is its own comes in order: had anything come before, it would be the first.
  one.join(group, RDMA_MC_JOIN_FLAG_FULLMEMBER);
  one.send(2);
  const ibv_wc first = Member::completion(one.end.recv_cq);
  if (first.imm_data != 2 || first.src_qp != one.end.id->qp->qp_num || first.byte_len != kGrh + kBytes)
    app::fail("another message");
  one.leave(group);
  one.send(3);
  one.join(group, RDMA_MC_JOIN_FLAG_FULLMEMBER);
  one.send(4);
  if (Member::completion(one.end.recv_cq).imm_data != 4) app::fail("a message after leaving");

  // Of the other version of IP there is no way.
  sockaddr_storage other = app::address_of(group.ss_family == AF_INET ? "ff05::7" : "239.0.0.7", "0");
  if (rdma_join_multicast(one.end.id, reinterpret_cast<sockaddr*>(&other), nullptr) != 0)
    app::fail("rdma_join_multicast");
  rdma_ack_cm_event(app::expect(one.end.channel, RDMA_CM_EVENT_MULTICAST_ERROR));
  // What it is still in goes with it.
  rdma_destroy_qp(one.end.id);
  if (rdma_destroy_id(one.end.id) != 0) app::fail("rdma_destroy_id");
  return 0;
}
