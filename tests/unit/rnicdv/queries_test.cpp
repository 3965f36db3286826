// What the direct verbs say of devices, queues, queue pairs, regions and windows, and that it is so.
#include <algorithm>

#include "control/limits.hpp"
#include "unit/provider/windows.hpp"
#include "unit/rnicdv/world.hpp"

using namespace rnic;
using namespace rnic::test;

TEST_CASE("V-QRN-06: what rnicdv_query_device says of reads and writes is so",
          "[wired][rnicdv][V-QRN-06][V-QRN-11][V-QRN-14][V-QRN-17][V-QRN-18][V-IRD-01][V-VB-02]") {
  Wired t;
  rnicdv_device_attr device{};
  REQUIRE(rnicdv_query_device(context_of(t.a), &device) == 0);
  ibv_cq* cq = t.a.make_cq(16);
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RC;
  init.send_cq = init.recv_cq = cq;
  REQUIRE(device.max_write_sge >= 1);
  init.cap = {4, 4, device.max_write_sge, 1, 0};
  ibv_qp* qp = provider::create_qp(t.a.pd, &init);
  REQUIRE(qp != nullptr);
  CHECK(direct_of(qp).max_write_sge == device.max_write_sge);
  std::vector<ibv_sge> sges(device.max_write_sge);
  Work write{.opcode = IBV_WR_RDMA_WRITE};
  CHECK(post(qp, write, sges) == 0);
  sges.emplace_back();
  CHECK(post(qp, write, sges) == EINVAL);

  std::uint32_t pages = device.max_page_list;
  REQUIRE(pages >= 1);
  CHECK(rnicdv_alloc_stag(t.a.pd, &pages, 0) != nullptr);
  pages = device.max_page_list + 1;
  CHECK(refusal([&] { return rnicdv_alloc_stag(t.a.pd, &pages, 0); }) == EINVAL);

  // Nothing is pooled: each of many queue pairs has as much as one may have.
  CHECK(device.max_device_read_in == 0);
  CHECK(device.max_device_read_out == 0);
  init.cap = {1, 1, 1, 1, 0};
  for (int i = 0; i < 100; ++i) {
    ibv_qp* each = provider::create_qp(t.a.pd, &init);
    REQUIRE(modify(each, RNICDV_QP_ORD | RNICDV_QP_IRD, mod_of(0, 0, control::kReadDepthMax, control::kReadDepthMax)) ==
            0);
    CHECK(direct_of(each).ord == control::kReadDepthMax);
    CHECK(direct_of(each).ird == control::kReadDepthMax);
  }

  // After its creation, up and down.
  CHECK(device.can_modify_ird == 1);
  CHECK(device.can_raise_ord == 1);
  for (const std::uint32_t depth : {3u, 70u, 1u}) {
    REQUIRE(modify(qp, RNICDV_QP_ORD | RNICDV_QP_IRD, mod_of(0, 0, depth, depth + 1)) == 0);
    CHECK(direct_of(qp).ord == depth);
    CHECK(direct_of(qp).ird == depth + 1);
  }
}

TEST_CASE("V-QRN-25: an overflow is detected, as a device says of itself", "[wired][rnicdv][V-QRN-25]") {
  WiredPair t;
  rnicdv_device_attr device{};
  REQUIRE(rnicdv_query_device(context_of(t.a), &device) == 0);
  CHECK(device.detects_cq_overflow == 1);
  ibv_cq *small = t.a.make_cq(2), *far = t.b.make_cq(64);
  ibv_qp *qp = t.a.make_qp(small, t.a.make_cq(16), 16), *peer = t.b.make_qp(far, far, 16);
  t.join(qp, peer);
  for (std::uint64_t i = 0; i < 4; ++i)
    REQUIRE(post(qp, {i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, t.end_b.remote()}, {t.end_a.sge(0, 8)}) == 0);
  bool told = false;
  while (const auto event = next_async(t.a, 30'000)) {
    told = event->type == IBV_EVENT_CQ_ERR && event->object == reinterpret_cast<std::uintptr_t>(small);
    if (told) break;
  }
  CHECK(told);
}

TEST_CASE("V-QRN-27: the receives of a shared queue go to messages as these arrive", "[wired][rnicdv][V-QRN-27]") {
  WiredPair t(64, [](Application& app) { return app.make_srq(64); });
  rnicdv_device_attr device{};
  REQUIRE(rnicdv_query_device(context_of(t.b), &device) == 0);
  CHECK(device.srq_dequeue == RNICDV_SRQ_ARRIVAL);
  ibv_cq* cq = t.a.make_cq(64);
  ibv_qp *second = t.a.make_qp(cq, cq, 16), *its_peer = t.b.make_qp(t.end_b.send_cq, t.end_b.receive_cq, 16, t.srq);
  t.join(second, its_peer);
  for (std::uint64_t i = 1; i <= 6; ++i) REQUIRE(post_receive(t.srq, i) == 0);
  std::uint64_t next = 1;
  for (ibv_qp* sender : {second, t.end_a.qp, t.end_a.qp, second, second, t.end_a.qp}) {
    REQUIRE(post(sender, {}) == 0);
    const ibv_wc wc = poll(t.end_b.receive_cq, 1)[0];
    CHECK(wc.wr_id == next++);
    CHECK(wc.qp_num == (sender == second ? its_peer : t.end_b.qp)->qp_num);
  }
}

TEST_CASE("V-RNIC-04: memory is described by pages, and there is no Block mode",
          "[wired][rnicdv][V-RNIC-04][V-RNIC-05][V-RNIC-06][V-IS-04][V-QRN-21][V-QRN-22][V-PBL-02]") {
  Wired t;
  rnicdv_device_attr device{};
  REQUIRE(rnicdv_query_device(context_of(t.a), &device) == 0);
  CHECK(device.buffer_mode == RNICDV_PAGE_MODE);
  CHECK((device.page_sizes & 4096) != 0);
  CHECK(device.min_block == 0);
  CHECK(device.max_block == 0);
  // It is refused before the device is looked at: there is none here.
  CHECK(refusal([] { return rnicdv_open_device(nullptr, RNICDV_BLOCK_MODE); }) == EOPNOTSUPP);
  // And so is a list of blocks, whatever is in it.
  alignas(4096) static char memory[8192];
  const std::uint64_t at = reinterpret_cast<std::uintptr_t>(memory);
  rnicdv_page_list list{};
  list.mode = RNICDV_BLOCK_MODE;
  list.count = 1;
  list.pages = &at;
  list.page_size = 4096;
  list.length = 4096;
  const rnicdv_mr_init rights{.iova = at, .access = RNICDV_LOCAL_READ, .key = 0};
  rnicdv_list_error error{};
  CHECK(refusal([&] { return rnicdv_reg_page_list(t.a.pd, &list, &rights, &error); }) == EINVAL);
  CHECK(error == RNICDV_LIST_MODE);
}

TEST_CASE("V-QQP-08: rnicdv_query_qp tells what a queue pair was made with",
          "[wired][rnicdv][V-QQP-04][V-QQP-08][V-QQP-09][V-QP-05][V-QP-12]") {
  Wired t;
  ibv_cq* cq = t.a.make_cq(16);
  auto init = init_of(t.a, cq, cq);
  const rnicdv_qp_attr plain = direct_of(t.a.make_qp(cq, cq, 4));
  CHECK(plain.privileged == 0);
  CHECK(plain.bind_enabled == 1);
  CHECK(plain.state == RNICDV_QPS_IDLE);

  const rnicdv_qp_init_attr both{.flags = RNICDV_QP_PRIVILEGED | RNICDV_QP_NO_BIND, .rq_limit = 0};
  ibv_qp* qp = rnicdv_create_qp(context_of(t.a), &init, &both);
  REQUIRE(qp != nullptr);
  CHECK(direct_of(qp).privileged == 1);
  CHECK(direct_of(qp).bind_enabled == 0);
  // The others are set as ever, and Binds stay as they were made.
  REQUIRE(to_state(qp, IBV_QPS_INIT, IBV_QP_ACCESS_FLAGS, IBV_ACCESS_REMOTE_READ) == 0);
  CHECK(direct_of(qp).read_enabled == 1);
  CHECK(direct_of(qp).write_enabled == 0);
  CHECK(direct_of(qp).bind_enabled == 0);
  REQUIRE(to_state(qp, IBV_QPS_INIT, IBV_QP_ACCESS_FLAGS, IBV_ACCESS_REMOTE_WRITE) == 0);
  CHECK(direct_of(qp).read_enabled == 0);
  CHECK(direct_of(qp).write_enabled == 1);

  const rnicdv_qp_init_attr unknown{.flags = 0x80, .rq_limit = 0};
  CHECK(refusal([&] { return rnicdv_create_qp(context_of(t.a), &init, &unknown); }) == EINVAL);
}

TEST_CASE("V-QP-12: on a queue pair that was made without them Binds fail", "[wired][rnicdv][V-QP-12]") {
  WiredPair t;
  ibv_cq *cq = t.a.make_cq(16), *far = t.b.make_cq(16);
  auto init = init_of(t.a, cq, cq);
  const rnicdv_qp_init_attr no_bind{.flags = RNICDV_QP_NO_BIND, .rq_limit = 0};
  ibv_qp* qp = rnicdv_create_qp(context_of(t.a), &init, &no_bind);
  ibv_qp* peer = t.b.make_qp(far, far, 16);
  t.join(qp, peer);
  std::vector<char> memory(4096);
  ibv_mr* mr = t.a.make_mr(memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  ibv_mw* mw = provider::alloc_mw(t.a.pd, IBV_MW_TYPE_2);
  mw->context = context_of(t.a);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.bind_mw = {
      mw, ibv_inc_rkey(mw->rkey), {mr, reinterpret_cast<std::uintptr_t>(memory.data()), 64, IBV_ACCESS_REMOTE_READ}};
  ibv_send_wr* bad = nullptr;
  REQUIRE(provider::post_send(qp, &wr, &bad) == 0);
  CHECK(poll(cq, 1)[0].status == IBV_WC_MW_BIND_ERR);
  t.end();
}

TEST_CASE("V-QQP-13: a queue pair has a stream in RTS, by which it is told from others", "[wired][rnicdv][V-QQP-13]") {
  WiredPair t;
  ibv_cq *cq = t.a.make_cq(16), *far = t.b.make_cq(16);
  ibv_qp *second = t.a.make_qp(cq, cq, 16), *its_peer = t.b.make_qp(far, far, 16);
  CHECK(direct_of(second).stream == 0);
  t.join(second, its_peer);
  const std::uint64_t stream = direct_of(t.end_a.qp).stream;
  CHECK(stream != 0);
  CHECK(direct_of(second).stream != 0);
  CHECK(direct_of(second).stream != stream);
  CHECK(direct_of(t.end_a.qp).stream == stream);
  REQUIRE(to_state(t.end_a.qp, IBV_QPS_ERR) == 0);
  CHECK(direct_of(t.end_a.qp).stream == 0);
}

TEST_CASE("V-QQP-10: the Terminate that was sent or came can be read, and whose it was",
          "[wired][rnicdv][V-QQP-10][V-QQP-11]") {
  WiredPair t;
  CHECK(direct_of(t.end_a.qp).terminate_origin == 0);
  CHECK(direct_of(t.end_a.qp).terminate_length == 0);
  // b's side refuses a Write to an STag that there is not.
  REQUIRE(post(t.end_a.qp, {1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, {0, t.end_b.mr->rkey ^ 1}}, {t.end_a.sge(0, 8)}) ==
          0);
  REQUIRE(comes_true([&] { return state_of(t.end_a.qp) == IBV_QPS_ERR && state_of(t.end_b.qp) == IBV_QPS_ERR; }));
  const rnicdv_qp_attr heard = direct_of(t.end_a.qp), said = direct_of(t.end_b.qp);
  CHECK(said.terminate_origin == 1);
  CHECK(heard.terminate_origin == 2);
  // DDP, tagged buffer, invalid STag.
  REQUIRE(said.terminate_length >= 4);
  CHECK(said.terminate[0] == 0x11);
  CHECK(said.terminate[1] == 0x00);
  REQUIRE(heard.terminate_length == said.terminate_length);
  CHECK(std::equal(said.terminate, said.terminate + said.terminate_length, heard.terminate));
  // Of the stream that is over: in Idle there is none.
  REQUIRE(to_state(t.end_b.qp, IBV_QPS_RESET) == 0);
  CHECK(direct_of(t.end_b.qp).terminate_origin == 0);
}

TEST_CASE("V-MRA-03: rnicdv_query_mr tells what a region is", "[wired][rnicdv][V-MRA-03][V-MRA-04][V-VB-20]") {
  Windowed t;
  const std::uint64_t at = reinterpret_cast<std::uintptr_t>(t.end_a.memory.data());
  const rnicdv_mr_init init{.iova = at + 8,
                            .access = RNICDV_LOCAL_READ | RNICDV_LOCAL_WRITE | RNICDV_REMOTE_WRITE | RNICDV_MW_BIND,
                            .key = 0xA7};
  ibv_mr* mr = rnicdv_reg_mr(t.a.pd, t.end_a.memory.data() + 8, 10'000, &init);
  REQUIRE(mr != nullptr);
  CHECK(mr->lkey == mr->rkey);
  CHECK((mr->rkey & 0xFF) == 0xA7);
  const rnicdv_mr_attr is = direct_of(t.a, mr->rkey);
  CHECK(is.stag == mr->rkey);
  CHECK(is.pd_handle == t.a.pd->handle);
  CHECK(is.access == init.access);
  CHECK(is.remote_access == 1);
  CHECK(is.valid == 1);
  CHECK(is.shared == 0);
  CHECK(is.max_page_list >= 3);
  CHECK(is.windows == 0);
  CHECK(is.iova == at + 8);
  CHECK(is.length == 10'000);
  // The index counts, and no key.
  CHECK(direct_of(t.a, mr->rkey ^ 0x55).stag == mr->rkey);
  t.end();
}

TEST_CASE("V-MRA-04: rnicdv_query_mr and rnicdv_query_mw know the STags of their kind, and of their context",
          "[wired][rnicdv][V-MRA-04][V-MWA-02][V-VB-20][V-VB-25][V-STAG-11][V-RNIC-01]") {
  WiredPair t;
  ibv_mw* mw = provider::alloc_mw(t.a.pd, IBV_MW_TYPE_2);
  rnicdv_mr_attr mr{};
  rnicdv_mw_attr window{};
  ibv_context* const a = context_of(t.a);
  CHECK(rnicdv_query_mr(a, t.end_a.mr->rkey, &mr) == 0);
  CHECK(rnicdv_query_mw(a, mw->rkey, &window) == 0);
  CHECK(rnicdv_query_mr(a, mw->rkey, &mr) == EINVAL);
  CHECK(rnicdv_query_mw(a, t.end_a.mr->rkey, &window) == EINVAL);
  for (const std::uint32_t stag : {0u, 0x1234u, 0xFFFFFFFFu, t.end_a.mr->rkey ^ 0x80000000}) {
    CHECK(rnicdv_query_mr(a, stag, &mr) == EINVAL);
    CHECK(rnicdv_query_mw(a, stag, &window) == EINVAL);
  }
  // Another application's of the same device.
  CHECK(rnicdv_query_mr(context_of(t.b), t.end_a.mr->rkey, &mr) == EINVAL);
  const std::uint32_t was = t.end_a.mr->rkey;
  REQUIRE(provider::dereg_mr(t.end_a.mr) == 0);
  CHECK(rnicdv_query_mr(a, was, &mr) == EINVAL);
}

TEST_CASE("V-MRA-03: a region that is invalidated is said to be, and has its windows counted",
          "[wired][rnicdv][V-MRA-03][V-MWA-01][V-VB-25][V-STATE-03]") {
  WiredPair t;
  std::vector<char> memory(8192);
  ibv_mr* mr = t.a.make_mr(memory.data(), memory.size(), WiredPair::kRemote | IBV_ACCESS_MW_BIND);
  ibv_mw* mw = provider::alloc_mw(t.a.pd, IBV_MW_TYPE_2);
  mw->context = context_of(t.a);
  rnicdv_mw_attr window{};
  REQUIRE(rnicdv_query_mw(context_of(t.a), mw->rkey, &window) == 0);
  CHECK(window.valid == 0);
  CHECK(window.stag == (mw->rkey & ~0xFFu));
  CHECK(window.pd_handle == t.a.pd->handle);
  CHECK(window.access == 0);
  CHECK(window.qp_num == 0);

  const std::uint64_t at = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::uint32_t rkey = ibv_inc_rkey(mw->rkey);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.bind_mw = {mw, rkey, {mr, at + 16, 64, IBV_ACCESS_REMOTE_WRITE}};
  ibv_send_wr* bad = nullptr;
  REQUIRE(provider::post_send(t.end_a.qp, &wr, &bad) == 0);
  expect(t.end_a.send_cq, 0);
  REQUIRE(rnicdv_query_mw(context_of(t.a), rkey, &window) == 0);
  CHECK(window.valid == 1);
  CHECK(window.stag == rkey);
  CHECK(window.access == RNICDV_REMOTE_WRITE);
  CHECK(window.qp_num == t.end_a.qp->qp_num);
  CHECK(window.iova == at + 16);
  CHECK(window.length == 64);
  CHECK(direct_of(t.a, mr->rkey).windows == 1);

  // Both away, one after the other: the region keeps what it was allocated with.
  const std::uint32_t room = direct_of(t.a, mr->rkey).max_page_list;
  for (const std::uint32_t stag : {rkey, mr->rkey}) {
    ibv_send_wr away{};
    away.opcode = IBV_WR_LOCAL_INV;
    away.send_flags = IBV_SEND_SIGNALED;
    away.invalidate_rkey = stag;
    REQUIRE(provider::post_send(t.end_a.qp, &away, &bad) == 0);
    expect(t.end_a.send_cq, 0);
  }
  const rnicdv_mr_attr gone = direct_of(t.a, mr->rkey);
  CHECK(gone.valid == 0);
  CHECK(gone.windows == 0);
  CHECK(gone.stag == (mr->rkey & ~0xFFu));
  CHECK(gone.pd_handle == t.a.pd->handle);
  CHECK(gone.max_page_list == room);
  CHECK(gone.remote_access == 1);
  t.end();
}

TEST_CASE("V-CQA-03: queues tell what they were made with, a limit as it was given",
          "[wired][rnicdv][V-CQA-03][V-VB-07][V-SRA-01][V-SRA-02][V-VB-10][V-VB-11][V-LIM-01][V-LIM-04]") {
  WiredPair t;
  ibv_comp_channel channel = t.make_channel();
  ibv_cq* cq = t.a.make_cq(100, &channel);
  rnicdv_cq_attr attr{};
  REQUIRE(rnicdv_query_cq(cq, &attr) == 0);
  CHECK(attr.entries >= 100);
  CHECK(attr.entries == static_cast<std::uint32_t>(cq->cqe));
  CHECK(attr.channel == &channel);
  CHECK(attr.comp_vector == 0);

  ibv_srq_init_attr init{};
  init.attr = {20, 3, 2};
  ibv_srq* srq = rnicdv_create_srq(t.b.pd, &init);
  REQUIRE(srq != nullptr);
  CHECK(srq->context == context_of(t.b));
  CHECK(srq->pd == t.b.pd);
  rnicdv_srq_attr is{};
  REQUIRE(rnicdv_query_srq(srq, &is) == 0);
  CHECK(is.max_wr == init.attr.max_wr);
  CHECK(is.max_wr >= 20);
  CHECK(is.max_sge >= 3);
  CHECK(is.pd_handle == t.b.pd->handle);
  CHECK(is.limit == 2);
  CHECK(is.armed == 1);
  // It fires as soon as fewer are left: the limit is known all the same, and armed no more.
  ibv_cq *near = t.a.make_cq(16), *far = t.b.make_cq(16);
  ibv_qp *sender = t.a.make_qp(near, near, 4), *receiver = t.b.make_qp(far, far, 4, srq);
  t.join(sender, receiver);
  for (std::uint64_t i = 0; i < 2; ++i) REQUIRE(post_receive(srq, i) == 0);
  REQUIRE(post(sender, {}) == 0);
  (void)poll(far, 1);
  const auto told = next_async(t.b, 30'000);
  REQUIRE(told);
  CHECK(told->type == IBV_EVENT_SRQ_LIMIT_REACHED);
  REQUIRE(rnicdv_query_srq(srq, &is) == 0);
  CHECK(is.limit == 2);
  CHECK(is.armed == 0);

  init.attr = {16, 1, 17};
  CHECK(refusal([&] { return rnicdv_create_srq(t.b.pd, &init); }) == EINVAL);
}
