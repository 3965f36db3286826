// What the query verbs say of a device and its queue pairs, and that it is so.
#include "unit/provider/wired.hpp"

#include <unistd.h>

#include <cstring>

#include "control/limits.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

ibv_device_attr device_of(const Application& app) {
  ibv_device_attr_ex attributes{};
  REQUIRE(provider::query_device_ex(&app.context->verbs.context, nullptr, &attributes, sizeof attributes) == 0);
  return attributes.orig_attr;
}

}  // namespace

TEST_CASE("V-VB-02: what a device says of itself is so",
          "[wired][V-VB-02][V-RNIC-07][V-QRN-01][V-QRN-02][V-QRN-05][V-QRN-07][V-QRN-09][V-QRN-10][V-QRN-12]"
          "[V-QRN-13][V-QRN-15][V-QRN-16][V-QRN-23][V-QRN-24][V-QRN-26]") {
  Wired t;
  const ibv_device_attr device = device_of(t.a);
  ibv_context* const context = &t.a.context->verbs.context;
  CHECK(device.vendor_id == control::kVendorId);
  CHECK(device.vendor_part_id == control::kVendorPart);
  CHECK(std::strlen(device.fw_ver) > 0);
  CHECK(device.node_guid != 0);
  CHECK(device.node_guid != device_of(t.b).node_guid);
  CHECK(device.phys_port_cnt == 1);
  // How many there are of each kind: as many as one process is let have (unit/control/limits_test.cpp).
  CHECK(device.max_qp == static_cast<int>(control::kQpsMax));
  CHECK(device.max_cq == static_cast<int>(control::kCqsMax));
  CHECK(device.max_mr == static_cast<int>(control::kRegionsMax));
  CHECK(device.max_pd == static_cast<int>(control::kPdsMax));
  CHECK(device.max_srq == static_cast<int>(control::kSrqsMax));
  // Of SGEs all are used; one more is refused.
  ibv_cq* cq = t.a.make_cq(16);
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RC;
  init.send_cq = init.recv_cq = cq;
  const auto sges = static_cast<std::uint32_t>(device.max_sge);
  CHECK(sges >= 4);
  init.cap = {1, 1, sges, sges, 0};
  CHECK(provider::create_qp(t.a.pd, &init) != nullptr);
  init.cap = {1, 1, sges + 1, 1, 0};
  CHECK(provider::create_qp(t.a.pd, &init) == nullptr);
  init.cap = {1, 1, 1, sges + 1, 0};
  CHECK(provider::create_qp(t.a.pd, &init) == nullptr);
  ibv_srq_init_attr srq{};
  srq.attr = {1, static_cast<std::uint32_t>(device.max_srq_sge), 0};
  CHECK(provider::create_srq(t.a.pd, &srq) != nullptr);
  srq.attr.max_sge = static_cast<std::uint32_t>(device.max_srq_sge) + 1;
  CHECK(provider::create_srq(t.a.pd, &srq) == nullptr);
  // Reads in and out of one queue pair, and of all: nothing is pooled.
  ibv_qp* qp = t.a.make_qp(cq, cq, 1);
  const auto depths = [&](int out, int in) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.max_rd_atomic = static_cast<std::uint8_t>(out);
    attributes.max_dest_rd_atomic = static_cast<std::uint8_t>(in);
    return provider::modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC);
  };
  CHECK(device.max_qp_rd_atom >= 1);
  CHECK(device.max_qp_init_rd_atom >= 1);
  CHECK(depths(device.max_qp_init_rd_atom, device.max_qp_rd_atom) == 0);
  CHECK(depths(device.max_qp_init_rd_atom + 1, device.max_qp_rd_atom) == EINVAL);
  CHECK(depths(device.max_qp_init_rd_atom, device.max_qp_rd_atom + 1) == EINVAL);
  CHECK(device.max_res_rd_atom == device.max_qp * device.max_qp_rd_atom);
  // Completion vectors.
  REQUIRE(context->num_comp_vectors >= 1);
  CHECK(provider::create_cq(context, 4, nullptr, context->num_comp_vectors - 1) != nullptr);
  CHECK(provider::create_cq(context, 4, nullptr, context->num_comp_vectors) == nullptr);
  // Every size of a page that there is.
  for (const std::uint64_t page :
       {std::uint64_t(sysconf(_SC_PAGESIZE)), std::uint64_t{2} << 20, std::uint64_t{1} << 30})
    CHECK((device.page_size_cap & page) != 0);
}

TEST_CASE("V-IRD-02: of many queue pairs each has IRD and ORD of its own, whatever the others have",
          "[wired][V-IRD-02]") {
  Wired t;
  const ibv_device_attr device = device_of(t.a);
  ibv_cq* const cq = t.a.make_cq(16);
  // What others have does not come out of a pool: all that there is for each of a thousand, and of these still for the
  // first (tests/system/soak makes as many as there can be).
  std::vector<ibv_qp*> all;
  const auto depths_of = [&](ibv_qp* qp) {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr init{};
    REQUIRE(provider::query_qp(qp, &attributes, IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC, &init) == 0);
    return std::pair<int, int>(attributes.max_rd_atomic, attributes.max_dest_rd_atomic);
  };
  for (int i = 0; i < 1000; ++i) {
    ibv_qp* const qp = t.a.make_qp(cq, cq, 1);
    REQUIRE(qp != nullptr);
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.max_rd_atomic = static_cast<std::uint8_t>(device.max_qp_init_rd_atom);
    attributes.max_dest_rd_atomic = static_cast<std::uint8_t>(device.max_qp_rd_atom);
    REQUIRE(provider::modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC) ==
            0);
    all.push_back(qp);
  }
  for (ibv_qp* qp : all) CHECK(depths_of(qp) == std::pair<int, int>(device.max_qp_init_rd_atom, device.max_qp_rd_atom));
}

TEST_CASE("V-IRD-02: Reads are under way both ways on every one of many connections at once",
          "[wired][V-IRD-02][V-IRD-11]") {
  constexpr std::size_t kPairs = 100, kEach = 64;
  Wired t;
  std::vector<char> memory(2 * kPairs * kEach, 'm'), sinks(2 * kPairs * kEach);
  ibv_cq *const cq_a = t.a.make_cq(128), *const cq_b = t.b.make_cq(128);
  constexpr int kRead = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<char>(i * 7 + i / 251);
  const ibv_mr *const source_a = t.a.make_mr(memory.data(), memory.size(), kRead), *const source_b = t.b.make_mr(
                                                                                       memory.data(), memory.size(),
                                                                                       kRead);
  const ibv_mr *const sink_a = t.a.make_mr(sinks.data(), sinks.size(), IBV_ACCESS_LOCAL_WRITE),
                      *const sink_b = t.b.make_mr(sinks.data(), sinks.size(), IBV_ACCESS_LOCAL_WRITE);
  std::vector<ibv_qp*> own, far;
  for (std::size_t i = 0; i < kPairs; ++i) {
    own.push_back(t.a.make_qp(cq_a, cq_a, 4));
    far.push_back(t.b.make_qp(cq_b, cq_b, 4));
    t.join(own.back(), far.back());
  }
  const auto read = [&](ibv_qp* qp, std::size_t place, const ibv_mr* sink, const ibv_mr* source) {
    const std::size_t at = place * kEach;
    REQUIRE(post(qp,
                 {place,
                  IBV_WR_RDMA_READ,
                  IBV_SEND_SIGNALED,
                  {reinterpret_cast<std::uintptr_t>(memory.data()) + at, source->rkey}},
                 {sge_of(sink, sinks.data() + at, kEach)}) == 0);
  };
  for (std::size_t i = 0; i < kPairs; ++i) {
    read(own[i], i, sink_a, source_b);
    read(far[i], kPairs + i, sink_b, source_a);
  }
  for (ibv_cq* cq : {cq_a, cq_b})
    for (const ibv_wc& wc : poll(cq, kPairs)) CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK((sinks == memory));
  t.end();
}

TEST_CASE("V-QP-09: a queue pair tells what it was made with, and where it is",
          "[wired][V-QP-09][V-VB-14][V-VB-15][V-VBX-01][V-QP-02][V-QP-13][V-QQP-01][V-QQP-02][V-QQP-03][V-QQP-04]"
          "[V-QQP-05][V-QQP-06][V-QQP-07][V-QQP-09]") {
  Wired t;
  ibv_cq *send_cq = t.a.make_cq(16), *receive_cq = t.a.make_cq(16);
  const bool shared = GENERATE(false, true);
  int mine = 0;
  ibv_qp_init_attr init{};
  init.qp_context = &mine;
  init.qp_type = IBV_QPT_RC;
  init.send_cq = send_cq;
  init.recv_cq = receive_cq;
  init.srq = shared ? t.a.make_srq(8) : nullptr;
  init.sq_sig_all = 1;
  init.cap = {5, 100, 3, 7, 100};
  const ibv_qp_cap asked = init.cap;
  ibv_qp* qp = provider::create_qp(t.a.pd, &init);
  REQUIRE(qp != nullptr);
  CHECK(init.cap.max_send_wr >= asked.max_send_wr);
  CHECK(init.cap.max_send_sge >= asked.max_send_sge);
  CHECK(init.cap.max_inline_data >= asked.max_inline_data);
  CHECK(qp->pd == t.a.pd);
  ibv_qp_attr attributes{};
  ibv_qp_init_attr told{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  attributes.max_rd_atomic = 9;
  attributes.max_dest_rd_atomic = 11;
  REQUIRE(provider::modify_qp(
              qp, &attributes,
              IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC) == 0);
  REQUIRE(provider::query_qp(qp, &attributes, IBV_QP_STATE, &told) == 0);
  CHECK(told.send_cq == send_cq);
  CHECK(told.recv_cq == receive_cq);
  CHECK(told.srq == init.srq);
  CHECK(told.qp_context == &mine);
  CHECK(told.sq_sig_all == 1);
  CHECK(told.qp_type == IBV_QPT_RC);
  CHECK(attributes.qp_state == IBV_QPS_INIT);
  CHECK(attributes.cur_qp_state == IBV_QPS_INIT);
  CHECK(attributes.qp_access_flags == IBV_ACCESS_REMOTE_WRITE);
  CHECK(attributes.max_rd_atomic == 9);
  CHECK(attributes.max_dest_rd_atomic == 11);
  CHECK(attributes.cap.max_send_wr == init.cap.max_send_wr);
  CHECK(attributes.cap.max_send_sge == init.cap.max_send_sge);
  CHECK(attributes.cap.max_inline_data == init.cap.max_inline_data);
  CHECK(std::memcmp(&attributes.cap, &told.cap, sizeof told.cap) == 0);
  if (!shared) {
    CHECK(attributes.cap.max_recv_wr == init.cap.max_recv_wr);
    CHECK(attributes.cap.max_recv_wr >= asked.max_recv_wr);
    CHECK(attributes.cap.max_recv_sge >= asked.max_recv_sge);
  } else {
    CHECK(attributes.cap.max_recv_wr == 0);
  }
  REQUIRE(to_state(qp, IBV_QPS_ERR) == 0);
  CHECK(state_of(qp) == IBV_QPS_ERR);
}

TEST_CASE("V-IRD-09: ORD is lowered while Reads are outstanding: they are done, and others do not feel it",
          "[wired][V-IRD-09][V-MOD-02][V-RTS-04]") {
  WiredPair t;
  ibv_qp* other = t.a.make_qp(t.end_a.receive_cq, t.end_a.receive_cq, 64);
  ibv_cq* far_cq = t.b.make_cq(64);
  ibv_qp* far = t.b.make_qp(far_cq, far_cq, 64);
  t.join(other, far);
  for (std::uint64_t i = 0; i < 40; ++i) {
    const Work read{i, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, t.end_b.remote(256 * i)};
    REQUIRE(post(t.end_a.qp, read, {t.end_a.sge(256 * i, 256)}) == 0);
    REQUIRE(post(other, read, {t.end_a.sge(256 * i, 256)}) == 0);
    if (i == 20) {
      ibv_qp_attr attributes{};
      attributes.qp_state = IBV_QPS_RTS;
      attributes.max_rd_atomic = 1;
      REQUIRE(provider::modify_qp(t.end_a.qp, &attributes, IBV_QP_STATE | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
    }
  }
  for (std::uint64_t i = 0; i < 40; ++i) {
    expect(t.end_a.send_cq, i);
    expect(t.end_a.receive_cq, i);
  }
  CHECK(attributes_of(t.end_a.qp).max_rd_atomic == 1);
  CHECK(attributes_of(other).max_rd_atomic == 4);
}

namespace {

// The errno of a call that makes nothing; 0: it made something.
template <typename Make>
int refusal(const Make& make) {
  errno = 0;
  return make() == nullptr ? errno : 0;
}

}  // namespace

TEST_CASE("V-IS-09: one more than a device says that there may be is refused at once, and as many are had",
          "[wired][V-IS-09][V-IS-14][V-IS-15][V-IS-16][V-RNIC-08][V-VB-10][V-VB-14][V-IMM-01]") {
  Wired t;
  const ibv_device_attr device = device_of(t.a);
  ibv_context* const context = &t.a.context->verbs.context;
  const auto cq = [&](int entries, int vector) {
    return refusal([&] { return provider::create_cq(context, entries, nullptr, vector); });
  };
  CHECK(cq(device.max_cqe, 0) == 0);
  CHECK(cq(device.max_cqe + 1, 0) == EINVAL);
  CHECK(cq(0, 0) == EINVAL);
  CHECK(cq(1, context->num_comp_vectors) == EINVAL);
  ibv_cq* const small = t.a.make_cq(16);
  const auto wrs = static_cast<std::uint32_t>(device.max_qp_wr), sges = static_cast<std::uint32_t>(device.max_sge);
  const auto qp = [&](std::uint32_t send, std::uint32_t receive, std::uint32_t gather, std::uint32_t scatter) {
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_RC;
    init.send_cq = init.recv_cq = small;
    init.cap = {send, receive, gather, scatter, 0};
    return refusal([&] { return provider::create_qp(t.a.pd, &init); });
  };
  CHECK(qp(wrs, wrs, 1, 1) == 0);
  CHECK(qp(wrs + 1, 1, 1, 1) == EINVAL);
  CHECK(qp(1, wrs + 1, 1, 1) == EINVAL);
  CHECK(qp(1, 1, sges, sges) == 0);
  CHECK(qp(1, 1, sges + 1, 1) == EINVAL);
  CHECK(qp(1, 1, 1, sges + 1) == EINVAL);
  const auto srq = [&](std::uint32_t receives, std::uint32_t scatter) {
    ibv_srq_init_attr init{};
    init.attr = {receives, scatter, 0};
    return refusal([&] { return provider::create_srq(t.a.pd, &init); });
  };
  const auto srq_wrs = static_cast<std::uint32_t>(device.max_srq_wr);
  CHECK(srq(srq_wrs, 1) == 0);
  CHECK(srq(srq_wrs + 1, 1) == EINVAL);
  CHECK(srq(1, static_cast<std::uint32_t>(device.max_srq_sge) + 1) == EINVAL);
}

TEST_CASE("V-IS-12: what a queue pair uses cannot be destroyed, and works on; when that has gone it can",
          "[wired][V-IS-12][V-IS-19][V-IS-08][V-CQ-09][V-SRQ-21][V-PD-04][V-VB-05][V-VB-09][V-VB-13]") {
  WiredPair t(8, [](Application& app) { return app.make_srq(8); });
  CHECK(provider::destroy_srq(t.srq) == EBUSY);
  CHECK(provider::destroy_cq(t.end_b.send_cq) == EBUSY);
  CHECK(provider::destroy_cq(t.end_b.receive_cq) == EBUSY);
  REQUIRE(post_receive(t.srq, 1, {t.end_b.sge(0, 8)}) == 0);
  REQUIRE(post(t.end_a.qp, {2}, {t.end_a.sge(0, 8)}) == 0);
  expect(t.end_b.receive_cq, 1);
  CHECK(provider::dealloc_pd(t.b.pd) == EBUSY);
  REQUIRE(provider::destroy_qp(t.end_b.qp) == 0);
  CHECK(provider::destroy_srq(t.srq) == 0);
  CHECK(provider::destroy_cq(t.end_b.send_cq) == 0);
  CHECK(provider::destroy_cq(t.end_b.receive_cq) == 0);
  CHECK(provider::dealloc_pd(t.b.pd) == EBUSY);
  CHECK(provider::dereg_mr(t.end_b.mr) == 0);
  CHECK(provider::dealloc_pd(t.b.pd) == 0);
}
