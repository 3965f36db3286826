// Queue pairs of type UD as an application has them, with the real provider, daemon and data plane.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "unit/provider/wired.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

constexpr const char* kRoceDevices =
    "sched_fifo = false\n"
    "[[device]]\nport = \"pair:u\"\naddress = [\"10.9.0.1/24\", \"fd09::1/64\"]\nmtu = 1500\nface = \"roce\"\n"
    "[[device]]\nport = \"pair:u\"\naddress = [\"10.9.0.2/24\", \"fd09::2/64\"]\nmtu = 1500\nface = \"roce\"\n";

constexpr std::uint32_t kKey = 0x11111111;
constexpr std::uint8_t kV4 = 1, kV6 = 2;  // the indexes of the addresses' GIDs
constexpr std::size_t kGrh = 40;
const std::array<std::uint8_t, 16> kGroup4{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 7, 7, 7};

ibv_qp_init_attr wishes(ibv_cq* cq, ibv_srq* srq, std::uint32_t depth) {
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.srq = srq;
  init.qp_type = IBV_QPT_UD;
  init.cap = {depth, depth, 4, 4, 64};
  return init;
}

int modify(ibv_qp* qp, ibv_qp_state state, int mask, std::uint32_t q_key = kKey) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  attributes.port_num = 1;
  attributes.qkey = q_key;
  attributes.sq_psn = 7;
  return provider::modify_qp(qp, &attributes, IBV_QP_STATE | mask);
}

int to_init(ibv_qp* qp, std::uint32_t q_key = kKey) {
  return modify(qp, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, q_key);
}

void to_rts(ibv_qp* qp, std::uint32_t q_key = kKey) {
  REQUIRE(to_init(qp, q_key) == 0);
  REQUIRE(modify(qp, IBV_QPS_RTR, 0) == 0);
  REQUIRE(modify(qp, IBV_QPS_RTS, IBV_QP_SQ_PSN) == 0);
}

struct End {
  static constexpr std::size_t kBytes = 65536;

  End(Application& its, std::uint32_t depth = 64, ibv_srq* srq = nullptr, std::uint32_t q_key = kKey) : app(its) {
    cq = app.make_cq(1024);
    ibv_qp_init_attr init = wishes(cq, srq, depth);
    qp = provider::create_qp(app.pd, &init);
    REQUIRE(qp != nullptr);
    mr = app.make_mr(memory.data(), kBytes, IBV_ACCESS_LOCAL_WRITE);
    to_rts(qp, q_key);
  }
  ibv_sge sge(std::size_t offset, std::uint32_t length) { return sge_of(mr, memory.data() + offset, length); }
  ibv_ah* handle(const std::array<std::uint8_t, 16>& gid, std::uint8_t index) {
    ibv_ah_attr attributes{};
    attributes.is_global = 1;
    attributes.port_num = 1;
    attributes.grh.sgid_index = index;
    attributes.grh.hop_limit = 64;
    std::memcpy(&attributes.grh.dgid, gid.data(), gid.size());
    ibv_ah* ah = provider::create_ah(app.pd, &attributes);
    REQUIRE(ah != nullptr);
    handles.push_back(ah);
    return ah;
  }
  ibv_ah* handle(const End& to, std::uint8_t index) {
    const rnic_address& address = to.app.context->device.addresses[index - 1u];
    std::array<std::uint8_t, 16> gid{};
    if (address.family == AF_INET) {
      gid[10] = gid[11] = 0xff;
      std::copy_n(address.octets, 4, gid.begin() + 12);
    } else {
      std::copy_n(address.octets, 16, gid.begin());
    }
    return handle(gid, index);
  }
  int send(ibv_ah* ah, std::uint32_t number, std::uint32_t length, std::uint64_t wr_id = 1,
           unsigned flags = IBV_SEND_SIGNALED, std::uint32_t q_key = kKey, const std::uint32_t* immediate = nullptr) {
    ibv_sge one = sge(0, length);
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = &one;
    wr.num_sge = 1;
    wr.opcode = immediate != nullptr ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
    if (immediate != nullptr) wr.imm_data = *immediate;
    wr.send_flags = flags;
    wr.wr.ud = {ah, number, q_key};
    ibv_send_wr* bad = nullptr;
    return provider::post_send(qp, &wr, &bad);
  }
  int receive(std::uint64_t wr_id, std::size_t offset = 8192, std::uint32_t length = 4096 + kGrh) {
    return post_receive(qp, wr_id, {sge(offset, length)});
  }
  bool nothing() {
    ibv_wc wc{};
    usleep(20'000);
    return provider::poll_cq(cq, 1, &wc) == 0;
  }

  Application& app;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  std::vector<char> memory = std::vector<char>(kBytes);
  ibv_mr* mr = nullptr;
  std::vector<ibv_ah*> handles;
};

struct Two : Wired {
  Two() : Wired(kRoceDevices), one(a), other(b) {
    for (std::size_t i = 0; i < End::kBytes; ++i) one.memory[i] = static_cast<char>(i * 7);
    other.memory.assign(End::kBytes, '\x55');
  }
  ~Two() {
    for (End* end : {&one, &other})
      for (ibv_ah* ah : end->handles) provider::destroy_ah(ah);
    end();
  }
  core::DatagramCounters counters(std::size_t device) {
    core::DatagramCounters counted;
    at_daemon([&](control::Machine& machine, control::Server&) {
      control::ServedDevice& served = *machine.devices[device];
      served.first().worker->call([&](Instant) { counted = served.first().device->datagrams().counters(); });
    });
    return counted;
  }
  End one, other;
};

}  // namespace

TEST_CASE("a datagram arrives behind its header, over both versions of IP", "[wired][ud]") {
  Two w;
  for (const std::uint8_t index : {kV4, kV6}) {
    REQUIRE(w.other.receive(9) == 0);
    REQUIRE(w.one.send(w.one.handle(w.other, index), w.other.qp->qp_num, 1000, 4) == 0);
    expect(w.one.cq, 4);
    const ibv_wc wc = poll(w.other.cq, 1)[0];
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.wr_id == 9);
    CHECK(wc.opcode == IBV_WC_RECV);
    CHECK(wc.byte_len == 1000 + kGrh);
    CHECK(wc.src_qp == w.one.qp->qp_num);
    CHECK(wc.qp_num == w.other.qp->qp_num);
    CHECK(wc.wc_flags == IBV_WC_GRH);
    CHECK(wc.sl == (index == kV4 ? 0xA : 0x9));
    const char* grh = w.other.memory.data() + 8192;
    CHECK(std::equal(w.one.memory.begin(), w.one.memory.begin() + 1000, grh + kGrh));
    CHECK(grh[kGrh + 1000] == '\x55');
    const auto octet = [&](std::size_t i) { return static_cast<std::uint8_t>(grh[i]); };
    if (index == kV4) {
      CHECK(std::all_of(grh, grh + 20, [](char c) { return c == 0; }));
      CHECK(octet(20) == 0x45);
      const std::uint8_t both[8] = {10, 9, 0, 1, 10, 9, 0, 2};
      CHECK(std::memcmp(grh + 32, both, 8) == 0);
    } else {
      CHECK(octet(0) >> 4 == 6);
      CHECK(octet(8) == 0xfd);
      CHECK(octet(23) == 1);
      CHECK(octet(39) == 2);
    }
  }
}

TEST_CASE("an immediate, inline data, and a solicited datagram", "[wired][ud]") {
  Two w;
  const std::uint32_t immediate = htobe32(0x01020304);
  ibv_ah* const ah = w.one.handle(w.other, kV4);
  REQUIRE(w.other.receive(1) == 0);
  REQUIRE(w.one.send(ah, w.other.qp->qp_num, 16, 2, IBV_SEND_SIGNALED | IBV_SEND_INLINE | IBV_SEND_SOLICITED, kKey,
                     &immediate) == 0);
  const ibv_wc wc = poll(w.other.cq, 1)[0];
  CHECK(wc.wc_flags == (IBV_WC_GRH | IBV_WC_WITH_IMM));
  CHECK(wc.imm_data == immediate);
  CHECK(std::equal(w.one.memory.begin(), w.one.memory.begin() + 16, w.other.memory.begin() + 8192 + kGrh));
}

TEST_CASE("the answer goes to whom the header names", "[wired][ud]") {
  Two w;
  REQUIRE(w.other.receive(1) == 0);
  REQUIRE(w.one.receive(2) == 0);
  REQUIRE(w.one.send(w.one.handle(w.other, kV4), w.other.qp->qp_num, 8) == 0);
  const ibv_wc wc = poll(w.other.cq, 1)[0];
  std::array<std::uint8_t, 16> gid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  std::memcpy(gid.data() + 12, w.other.memory.data() + 8192 + 32, 4);
  REQUIRE(w.other.send(w.other.handle(gid, kV4), wc.src_qp, 8) == 0);
  expect(w.one.cq, 1);  // its own Send
  expect(w.one.cq, 2);
}

TEST_CASE("an address handle to one's own GID goes round in the device", "[wired][ud]") {
  Two w;
  End second(w.a);
  REQUIRE(second.receive(3) == 0);
  REQUIRE(w.one.send(w.one.handle(w.one, kV4), second.qp->qp_num, 100) == 0);
  CHECK(poll(second.cq, 1)[0].src_qp == w.one.qp->qp_num);
  // To itself.
  REQUIRE(w.one.receive(4) == 0);
  REQUIRE(w.one.send(w.one.handle(w.one, kV6), w.one.qp->qp_num, 100, 5, 0) == 0);
  expect(w.one.cq, 1);
  expect(w.one.cq, 4);
  w.a.end();
}

TEST_CASE("another Q_Key, no receive, no queue pair: lost and counted, and the Send is complete", "[wired][ud]") {
  Two w;
  ibv_ah* const ah = w.one.handle(w.other, kV4);
  REQUIRE(w.one.send(ah, w.other.qp->qp_num, 8, 1) == 0);
  REQUIRE(comes_true([&] { return w.counters(1).no_receive == 1; }));
  REQUIRE(w.other.receive(9) == 0);
  REQUIRE(w.one.send(ah, w.other.qp->qp_num, 8, 2, IBV_SEND_SIGNALED, kKey + 1) == 0);
  REQUIRE(w.one.send(ah, w.other.qp->qp_num == 2 ? 3 : 2, 8, 3) == 0);
  for (std::uint64_t id = 1; id <= 3; ++id) expect(w.one.cq, id);
  REQUIRE(comes_true([&] { return w.counters(1).refused == 1 && w.counters(1).unknown == 1; }));
  CHECK(w.other.nothing());
  // With the queue pair's own, that of the sender.
  REQUIRE(w.one.send(ah, w.other.qp->qp_num, 8, 4, 0, 0x80000000) == 0);
  expect(w.other.cq, 9);
}

TEST_CASE("a message of active_mtu goes, and one that is longer is refused at once", "[wired][ud]") {
  Two w;
  ibv_port_attr port{};
  REQUIRE(provider::query_port(&w.a.context->verbs.context, 1, &port) == 0);
  REQUIRE(port.active_mtu == IBV_MTU_1024);
  ibv_ah* const ah = w.one.handle(w.other, kV6);
  REQUIRE(w.other.receive(1) == 0);
  REQUIRE(w.one.send(ah, w.other.qp->qp_num, 1024, 1) == 0);
  CHECK(poll(w.other.cq, 1)[0].byte_len == 1024 + kGrh);
  CHECK(w.one.send(ah, w.other.qp->qp_num, 1025, 2) == EMSGSIZE);
  expect(w.one.cq, 1);
  CHECK(w.one.nothing());
}

TEST_CASE("a receive that is too small stays for a datagram that fits", "[wired][ud]") {
  Two w;
  ibv_ah* const ah = w.one.handle(w.other, kV4);
  REQUIRE(w.other.receive(1, 8192, kGrh + 99) == 0);
  REQUIRE(w.one.send(ah, w.other.qp->qp_num, 100, 1, 0) == 0);
  REQUIRE(comes_true([&] { return w.counters(1).no_receive == 1; }));
  REQUIRE(w.one.send(ah, w.other.qp->qp_num, 99, 2, 0) == 0);
  const ibv_wc wc = poll(w.other.cq, 1)[0];
  CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(wc.byte_len == 99 + kGrh);
}

TEST_CASE("receives of a shared receive queue are for datagrams of all its queue pairs", "[wired][ud]") {
  Two w;
  ibv_srq* const srq = w.b.make_srq(8);
  End first(w.b, 8, srq), second(w.b, 8, srq);
  for (std::uint64_t id = 1; id <= 2; ++id) REQUIRE(post_receive(srq, id, {first.sge(4096 * id, 2048)}) == 0);
  ibv_ah* const ah = w.one.handle(w.other, kV4);
  REQUIRE(w.one.send(ah, second.qp->qp_num, 64, 1, 0) == 0);
  expect(second.cq, 1);
  REQUIRE(w.one.send(ah, first.qp->qp_num, 64, 1, 0) == 0);
  expect(first.cq, 2);
  w.b.end();
}

TEST_CASE("a datagram to a group is for all who are attached, on every device of the wire", "[wired][ud]") {
  Two w;
  End second(w.a);
  ibv_gid gid;
  std::memcpy(gid.raw, kGroup4.data(), sizeof gid.raw);
  for (End* each : {&w.other, &second}) REQUIRE(provider::attach_mcast(each->qp, &gid, 0) == 0);
  for (End* each : {&w.one, &w.other, &second}) REQUIRE(each->receive(5) == 0);
  ibv_ah* const ah = w.one.handle(kGroup4, kV4);
  REQUIRE(w.one.send(ah, 0xFFFFFF, 200, 1) == 0);
  expect(w.other.cq, 5);
  expect(second.cq, 5);
  expect(w.one.cq, 1);
  CHECK(w.one.nothing());
  REQUIRE(provider::detach_mcast(w.other.qp, &gid, 0) == 0);
  CHECK(provider::detach_mcast(w.other.qp, &gid, 0) == EINVAL);
  REQUIRE(w.other.receive(6) == 0);
  REQUIRE(w.one.send(ah, 0xFFFFFF, 200, 2) == 0);
  expect(w.one.cq, 2);
  CHECK(w.other.nothing());
  // What is no group, and who has none.
  ibv_gid one{};
  one.raw[15] = 1;
  CHECK(provider::attach_mcast(w.other.qp, &one, 0) == EINVAL);
  CHECK(provider::attach_mcast(w.b.make_qp(w.other.cq, w.other.cq, 4), &gid, 0) == EINVAL);
  w.a.end();
}

TEST_CASE("V-WR-08: the states of a queue pair of type UD, and what each wants and takes, are InfiniBand's",
          "[wired][ud][V-WR-08][V-IS-39]") {
  Two w;
  ibv_cq* const cq = w.a.make_cq(16);
  ibv_qp_init_attr init = wishes(cq, nullptr, 4);
  ibv_qp* const qp = provider::create_qp(w.a.pd, &init);
  REQUIRE(qp != nullptr);
  CHECK(state_of(qp) == IBV_QPS_RESET);
  CHECK(post_receive(qp, 1) == EINVAL);
  CHECK(modify(qp, IBV_QPS_RTR, 0) == EINVAL);
  CHECK(modify(qp, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT) == EINVAL);
  CHECK(modify(qp, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY | IBV_QP_ACCESS_FLAGS) == EINVAL);
  REQUIRE(to_init(qp) == 0);
  CHECK(state_of(qp) == IBV_QPS_INIT);
  CHECK(modify(qp, IBV_QPS_RTS, IBV_QP_SQ_PSN) == EINVAL);
  CHECK(modify(qp, IBV_QPS_RTR, IBV_QP_AV) == EINVAL);
  REQUIRE(modify(qp, IBV_QPS_RTR, 0) == 0);
  CHECK(state_of(qp) == IBV_QPS_RTR);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  wr.wr.ud.ah = w.one.handle(w.other, kV4);
  ibv_send_wr* bad = nullptr;
  CHECK(provider::post_send(qp, &wr, &bad) == EINVAL);
  CHECK(modify(qp, IBV_QPS_RTS, 0) == EINVAL);
  REQUIRE(modify(qp, IBV_QPS_RTS, IBV_QP_SQ_PSN) == 0);
  CHECK(state_of(qp) == IBV_QPS_RTS);
  CHECK(modify(qp, IBV_QPS_SQD, 0) == EINVAL);
  // Of what state it is in now, whoever says it has to be right.
  ibv_qp_attr believed{};
  believed.qp_state = IBV_QPS_RTS;
  believed.cur_qp_state = IBV_QPS_SQE;
  CHECK(provider::modify_qp(qp, &believed, IBV_QP_STATE | IBV_QP_CUR_STATE) == EINVAL);
  believed.cur_qp_state = IBV_QPS_RTS;
  CHECK(provider::modify_qp(qp, &believed, IBV_QP_STATE | IBV_QP_CUR_STATE) == 0);
  REQUIRE(modify(qp, IBV_QPS_RTS, IBV_QP_QKEY, 5) == 0);
  CHECK(attributes_of(qp).qkey == 5);
  CHECK(attributes_of(qp).sq_psn == 7);
  REQUIRE(post_receive(qp, 4) == 0);
  REQUIRE(modify(qp, IBV_QPS_ERR, 0) == 0);
  expect(cq, 4, IBV_WC_WR_FLUSH_ERR);
  CHECK(state_of(qp) == IBV_QPS_ERR);
  REQUIRE(modify(qp, IBV_QPS_RESET, 0) == 0);
  CHECK(state_of(qp) == IBV_QPS_RESET);
  // And it works again, from RTS too.
  to_rts(qp);
  REQUIRE(modify(qp, IBV_QPS_RESET, 0) == 0);
  to_rts(qp);
  CHECK(provider::destroy_qp(qp) == 0);
}

TEST_CASE("a Send that is wrong puts the queue pair into SQE, from which it comes back", "[wired][ud]") {
  Two w;
  ibv_ah* const ah = w.one.handle(w.other, kV4);
  ibv_sge wrong = w.one.sge(0, 2000);
  wrong.length = 600;
  wrong.lkey += 0x100;
  ibv_send_wr wr{};
  wr.wr_id = 1;
  wr.sg_list = &wrong;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.wr.ud = {ah, w.other.qp->qp_num, kKey};
  ibv_send_wr* bad = nullptr;
  REQUIRE(provider::post_send(w.one.qp, &wr, &bad) == 0);
  expect(w.one.cq, 1, IBV_WC_LOC_PROT_ERR);
  CHECK(state_of(w.one.qp) == IBV_QPS_SQE);
  REQUIRE(w.one.send(ah, w.other.qp->qp_num, 8, 2) == 0);
  expect(w.one.cq, 2, IBV_WC_WR_FLUSH_ERR);
  REQUIRE(modify(w.one.qp, IBV_QPS_RTS, 0) == 0);
  REQUIRE(w.other.receive(3) == 0);
  REQUIRE(w.one.send(ah, w.other.qp->qp_num, 8, 4) == 0);
  expect(w.one.cq, 4);
  expect(w.other.cq, 3);
}

TEST_CASE("an address handle has a GRH, with an index where a GID is and with somebody's GID", "[wired][ud]") {
  Two w;
  ibv_ah_attr good{};
  good.port_num = 1;
  good.is_global = 1;
  good.grh.dgid.raw[15] = 1;
  const auto refused = [&](auto change) {
    ibv_ah_attr attributes = good;
    change(attributes);
    errno = 0;
    ibv_ah* const ah = provider::create_ah(w.a.pd, &attributes);
    if (ah != nullptr) w.one.handles.push_back(ah);
    return ah == nullptr && errno == EINVAL;
  };
  CHECK(refused([](ibv_ah_attr& to) { to.is_global = 0; }));
  CHECK(refused([](ibv_ah_attr& to) { to.port_num = 2; }));
  CHECK(refused([](ibv_ah_attr& to) { to.grh.dgid = {}; }));
  // Two addresses, the first of them at 0 and at 1, and one of the link; then empty places, and none.
  for (const std::uint8_t index : std::array<std::uint8_t, 3>{0, 1, 2})
    CHECK(!refused([&](ibv_ah_attr& to) { to.grh.sgid_index = index; }));
  for (const std::uint8_t index : std::array<std::uint8_t, 4>{4, 8, 9, 200})
    CHECK(refused([&](ibv_ah_attr& to) { to.grh.sgid_index = index; }));
}

TEST_CASE("a context has as many address handles as its device says, and no more", "[wired][ud]") {
  Two w;
  ibv_device_attr_ex device{};
  REQUIRE(provider::query_device_ex(&w.a.context->verbs.context, nullptr, &device, sizeof device) == 0);
  w.a.context->address_handles = static_cast<std::uint32_t>(device.orig_attr.max_ah) - 1;  // the others
  ibv_ah* const last = w.one.handle(w.other, kV4);
  ibv_ah_attr good{};
  good.port_num = good.is_global = 1;
  good.grh.dgid.raw[15] = 1;
  errno = 0;
  CHECK(provider::create_ah(w.a.pd, &good) == nullptr);
  CHECK(errno == ENOMEM);
  w.other.handle(w.one, kV4);  // another context's
  w.one.handles.clear();
  CHECK(provider::destroy_ah(last) == 0);
  w.one.handle(w.other, kV4);
}

TEST_CASE("V-PD-04: a domain is busy as long as an address handle is in it", "[wired][ud][V-PD-04]") {
  Two w;
  ibv_pd* const own = w.a.pd;
  ibv_pd* const pd = provider::alloc_pd(&w.a.context->verbs.context);
  ibv_parent_domain_init_attr init{};
  init.pd = pd;
  ibv_pd* const parent = provider::alloc_parent_domain(&w.a.context->verbs.context, &init);
  REQUIRE((pd != nullptr && parent != nullptr));
  for (ibv_pd* const domain : {parent, pd}) {
    w.a.pd = domain;
    ibv_ah* const ah = w.one.handle(w.other, kV4);
    w.one.handles.clear();
    REQUIRE(provider::dealloc_pd(domain) == EBUSY);
    CHECK(provider::destroy_ah(ah) == 0);
    CHECK(provider::dealloc_pd(domain) == 0);
  }
  w.a.pd = own;
}

TEST_CASE("what is no Send is refused", "[wired][ud]") {
  Two w;
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE;
  ibv_send_wr* bad = nullptr;
  CHECK(provider::post_send(w.one.qp, &wr, &bad) == EOPNOTSUPP);
  wr.opcode = IBV_WR_SEND;
  CHECK(provider::post_send(w.one.qp, &wr, &bad) == EINVAL);  // no address
}

TEST_CASE("a Send from a place of the table whose GID has gone ends with an error", "[wired][ud]") {
  Two w;
  ibv_ah* const ah = w.one.handle(w.other, kV4);
  provider::of(ah).address.gid_index = 7;  // what an application writes there, too
  REQUIRE(w.one.send(ah, w.other.qp->qp_num, 8, 1) == 0);
  expect(w.one.cq, 1, IBV_WC_LOC_QP_OP_ERR);
}

TEST_CASE("ibv_wr_set_ud_addr says where a datagram goes, before its data or after it", "[wired][ud]") {
  Two w;
  ibv_qp_init_attr_ex init{};
  const ibv_qp_init_attr plain = wishes(w.one.cq, nullptr, 8);
  init.send_cq = init.recv_cq = w.one.cq;
  init.qp_type = IBV_QPT_UD;
  init.cap = plain.cap;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = w.a.pd;
  init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
  CHECK(provider::create_qp_ex(&w.a.context->verbs.context, &init) == nullptr);
  init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  ibv_qp* const qp = provider::create_qp_ex(&w.a.context->verbs.context, &init);
  REQUIRE(qp != nullptr);
  to_rts(qp);
  ibv_qp_ex* const ex = ibv_qp_to_qp_ex(qp);
  ibv_ah* const ah = w.one.handle(w.other, kV4);
  for (std::uint64_t id = 1; id <= 2; ++id) REQUIRE(w.other.receive(id, 8192 * id) == 0);
  const ibv_sge data = w.one.sge(0, 32);
  ibv_wr_start(ex);
  ex->wr_flags = IBV_SEND_SIGNALED;
  ex->wr_id = 1;
  ibv_wr_send(ex);
  ibv_wr_set_ud_addr(ex, ah, w.other.qp->qp_num, kKey);
  ibv_wr_set_sge(ex, data.lkey, data.addr, data.length);
  ex->wr_id = 2;
  ibv_wr_send_imm(ex, 5);
  ibv_wr_set_sge(ex, data.lkey, data.addr, 16);
  ibv_wr_set_ud_addr(ex, ah, w.other.qp->qp_num, kKey);
  REQUIRE(ibv_wr_complete(ex) == 0);
  expect(w.one.cq, 1);
  expect(w.one.cq, 2);
  const auto received = poll(w.other.cq, 2);
  CHECK(received[0].byte_len == 32 + kGrh);
  CHECK(received[1].byte_len == 16 + kGrh);
  CHECK(received[1].imm_data == 5);
  // Without an address nothing goes.
  ibv_wr_start(ex);
  ibv_wr_send(ex);
  ibv_wr_set_sge(ex, data.lkey, data.addr, data.length);
  CHECK(ibv_wr_complete(ex) == EINVAL);
}

TEST_CASE("an address handle of another context takes no datagram anywhere", "[wired][ud]") {
  Two w;
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = w.one.cq;
  init.qp_type = IBV_QPT_UD;
  init.cap = {8, 8, 4, 4, 64};
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = w.a.pd;
  init.send_ops_flags = IBV_QP_EX_WITH_SEND;
  ibv_qp* const built = provider::create_qp_ex(&w.a.context->verbs.context, &init);
  REQUIRE(built != nullptr);
  to_rts(built);
  ibv_qp_ex* const ex = ibv_qp_to_qp_ex(built);
  const auto refusal = [&](ibv_ah* ah) {
    ibv_wr_start(ex);
    ex->wr_id = 5;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(ex);
    ibv_wr_set_ud_addr(ex, ah, w.other.qp->qp_num, kKey);
    ibv_wr_set_inline_data(ex, w.one.memory.data(), 8);
    return ibv_wr_complete(ex);
  };
  REQUIRE(w.other.receive(9) == 0);
  // Of the device that it would go to: there its GID's index means another address.
  ibv_ah* const foreign = w.other.handle(w.other, kV4);
  CHECK(w.one.send(foreign, w.other.qp->qp_num, 8) == EINVAL);
  CHECK(refusal(foreign) == EINVAL);
  CHECK(w.other.nothing());
  CHECK(w.one.nothing());
  ibv_ah* const own = w.one.handle(w.other, kV4);
  CHECK(refusal(own) == 0);
  expect(w.one.cq, 5);
  expect(w.other.cq, 9);
}

TEST_CASE("an extended CQ tells of datagrams what the other one does", "[wired][ud]") {
  Two w;
  ibv_cq_init_attr_ex init{};
  init.cqe = 16;
  init.wc_flags = IBV_WC_STANDARD_FLAGS;
  ibv_cq_ex* const cq = provider::create_cq_ex(&w.b.context->verbs.context, &init);
  REQUIRE(cq != nullptr);
  ibv_qp_init_attr wanted = wishes(ibv_cq_ex_to_cq(cq), nullptr, 8);
  ibv_qp* const qp = provider::create_qp(w.b.pd, &wanted);
  REQUIRE(qp != nullptr);
  to_rts(qp);
  REQUIRE(post_receive(qp, 3, {w.other.sge(0, 2048)}) == 0);
  REQUIRE(w.one.send(w.one.handle(w.other, kV4), qp->qp_num, 8, 1) == 0);
  ibv_poll_cq_attr none{};
  REQUIRE(comes_true([&] { return ibv_start_poll(cq, &none) == 0; }));
  CHECK(cq->wr_id == 3);
  CHECK(ibv_wc_read_src_qp(cq) == w.one.qp->qp_num);
  CHECK(ibv_wc_read_wc_flags(cq) == IBV_WC_GRH);
  CHECK(ibv_wc_read_sl(cq) == 0xA);
  CHECK(ibv_wc_read_byte_len(cq) == 8 + kGrh);
  ibv_end_poll(cq);
}

TEST_CASE("queue pairs come and go while datagrams are on their way to them", "[wired][ud]") {
  Two w;
  ibv_ah* const ah = w.one.handle(w.other, kV4);
  for (int round = 0; round < 20; ++round) {
    End gone(w.b, 32);
    for (std::uint64_t id = 0; id < 32; ++id) REQUIRE(gone.receive(id, 0, 2048) == 0);
    for (std::uint64_t id = 0; id < 32; ++id) REQUIRE(w.one.send(ah, gone.qp->qp_num, 1000, id) == 0);
    if (round % 2 == 0) (void)poll(gone.cq, 1);
    REQUIRE(provider::destroy_qp(gone.qp) == 0);
    REQUIRE(provider::dereg_mr(gone.mr) == 0);
    for (std::uint64_t id = 0; id < 32; ++id) expect(w.one.cq, id);
  }
  // Those that are there are served as before.
  REQUIRE(w.other.receive(1) == 0);
  REQUIRE(w.one.send(ah, w.other.qp->qp_num, 8, 1) == 0);
  expect(w.other.cq, 1);
}

TEST_CASE("as many as there are receives for arrive, however many are sent", "[wired][ud]") {
  Two w;
  ibv_ah* const ah = w.one.handle(w.other, kV4);
  std::size_t arrived = 0, sent = 0;
  std::uint64_t posted = 0;
  std::vector<ibv_wc> some(64);
  for (; posted < 64; ++posted) REQUIRE(w.other.receive(posted) == 0);
  while (sent < 5000) {
    while (w.one.send(ah, w.other.qp->qp_num, 512, sent) == 0) ++sent;
    (void)provider::poll_cq(w.one.cq, 64, some.data());
    const int got = provider::poll_cq(w.other.cq, 64, some.data());
    for (int i = 0; i < got; ++i) {
      REQUIRE(some[static_cast<std::size_t>(i)].status == IBV_WC_SUCCESS);
      REQUIRE(w.other.receive(posted++) == 0);
    }
    arrived += static_cast<std::size_t>(got);
  }
  CHECK(arrived > 64);
  CHECK(arrived + w.counters(1).no_receive <= sent);
}

TEST_CASE("an iWARP device has no queue pairs of type UD", "[wired][ud]") {
  Wired w;
  ibv_qp_init_attr init = wishes(w.a.make_cq(4), nullptr, 4);
  CHECK(provider::create_qp(w.a.pd, &init) == nullptr);
  CHECK(errno == EOPNOTSUPP);
  // Nor does its daemon make one.
  rnic_create_qp request{};
  request.pd = w.a.pd->handle;
  request.send_cq = request.recv_cq = init.send_cq->handle;
  request.type = RNIC_QP_UD;
  rnic_create_qp_reply reply{};
  CHECK(w.a.context->control.call(RNIC_CREATE_QP, request, reply) == EOPNOTSUPP);
}

TEST_CASE("what direct verbs add to a queue pair is not of type UD: it is refused, not passed over", "[wired][ud]") {
  Two w;
  rnic_create_qp request{};
  request.pd = w.a.pd->handle;
  request.send_cq = request.recv_cq = w.a.make_cq(4)->handle;
  request.send_wr_min = request.recv_wr_min = 1;
  request.send_sge_max = request.recv_sge_max = 1;
  request.type = RNIC_QP_UD;
  rnic_create_qp_reply reply{};
  for (const std::uint32_t flag : {RNIC_QP_PRIVILEGED, RNIC_QP_NO_BIND}) {
    request.flags = flag;
    CHECK(w.a.context->control.call(RNIC_CREATE_QP, request, reply) == EOPNOTSUPP);
  }
}
