// Two queue pairs that are told each other's numbers by ibv_modify_qp, on a daemon whose data plane runs.
#pragma once

#include <cstring>

#include "unit/provider/wired.hpp"

namespace rnic::test::oob {

inline constexpr const char* kOobDevices =
    "sched_fifo = false\n"
    "[[device]]\nport = \"pair:o\"\naddress = \"127.0.9.1/24\"\nmtu = 1500\noob_connect = true\n"
    "[[device]]\nport = \"pair:o\"\naddress = \"127.0.9.2/24\"\nmtu = 1500\noob_connect = true\n";

inline constexpr int kRemote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
inline constexpr int kRtrMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
inline constexpr int kRtsMask =
    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
inline constexpr int kInitMask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

inline ibv_gid gid_of(std::uint8_t last) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xFF;
  const std::uint8_t address[] = {127, 0, 9, last};
  std::memcpy(gid.raw + 12, address, sizeof address);
  return gid;
}

// One queue pair of an application and what it is told.
struct End {
  Application& app;
  std::uint8_t host;  // the last number of its address
  ibv_cq* cq;
  ibv_qp* qp;
  std::uint32_t psn;
  std::vector<char> memory = std::vector<char>(4096);
  ibv_mr* mr;

  End(Application& application, std::uint8_t last, std::uint32_t from)
      : app(application), host(last), cq(app.make_cq(1024)), qp(app.make_qp(cq, cq, 64, nullptr)), psn(from) {
    mr = app.make_mr(memory.data(), memory.size(), kRemote);
    REQUIRE(qp != nullptr);
    REQUIRE(mr != nullptr);
  }
  ~End() { provider::dereg_mr(mr); }  // nobody writes to its memory from then on (V-MR-20)
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  ibv_qp_attr init() const {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    attributes.qp_access_flags = kRemote;
    return attributes;
  }
  ibv_qp_attr rtr(const End& peer) const {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = IBV_MTU_1024;
    attributes.dest_qp_num = peer.qp->qp_num;
    attributes.rq_psn = peer.psn;
    attributes.max_dest_rd_atomic = 3;
    attributes.min_rnr_timer = 12;
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.port_num = 1;
    attributes.ah_attr.sl = 2;
    attributes.ah_attr.grh.dgid = gid_of(peer.host);
    attributes.ah_attr.grh.sgid_index = 1;
    attributes.ah_attr.grh.hop_limit = 9;
    return attributes;
  }
  ibv_qp_attr rts() const {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.sq_psn = psn;
    attributes.timeout = 14;
    attributes.retry_cnt = 7;
    attributes.rnr_retry = 6;
    attributes.max_rd_atomic = 2;
    return attributes;
  }
  int modify(ibv_qp_attr attributes, int mask) {
    const int error = provider::modify_qp(qp, &attributes, mask);
    if (error == 0) qp->state = attributes.qp_state;  // as libibverbs does
    return error;
  }
  int to_init() { return modify(init(), kInitMask); }
  int to_rtr(const End& peer) { return modify(rtr(peer), kRtrMask); }
  int to_rts() { return modify(rts(), kRtsMask); }
  void ready(const End& peer) {
    REQUIRE(to_init() == 0);
    REQUIRE(to_rtr(peer) == 0);
    REQUIRE(to_rts() == 0);
  }
  int reset() {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RESET;
    return modify(attributes, IBV_QP_STATE);
  }
  int fail() {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    return modify(attributes, IBV_QP_STATE);
  }
  int send(std::uint64_t id) { return post(qp, {id}, {sge_of(mr, memory.data(), 64)}); }
  int receive(std::uint64_t id) { return post_receive(qp, id, {sge_of(mr, memory.data() + 1024, 64)}); }
  ibv_qp_attr asked() {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr made{};
    REQUIRE(provider::query_qp(qp, &attributes, ~0, &made) == 0);
    return attributes;
  }
  void drain() {
    ibv_wc wc{};
    while (provider::poll_cq(cq, 1, &wc) == 1) {
    }
  }
};

// The octets arrive, from the first End to the second.
inline void passes(End& from, End& to, std::uint64_t id) {
  std::memset(from.memory.data(), static_cast<int>('A' + id % 26), 64);
  std::memset(to.memory.data() + 1024, 0, 64);
  REQUIRE(to.receive(id) == 0);
  REQUIRE(from.send(id + 1) == 0);
  expect(from.cq, id + 1);
  expect(to.cq, id);
  CHECK(std::memcmp(from.memory.data(), to.memory.data() + 1024, 64) == 0);
}

struct TwoEnds : Wired {
  End x{a, 1, 0xABCDEF}, y{b, 2, 0x123456};
  explicit TwoEnds(const char* devices = kOobDevices) : Wired(devices) {}
};

}  // namespace rnic::test::oob
