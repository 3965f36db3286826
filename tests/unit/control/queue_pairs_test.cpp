// Queue pairs and shared receive queues: what can be made, what cannot, and what is changed.
#include <set>
#include <vector>

#include "kit/server_world.hpp"

using namespace rnic;
using namespace rnic::test;

TEST_CASE("V-RD-03: read_sink of a device is its queue pairs'", "[control][V-RD-03]") {
  Daemon daemon(
      "sched_fifo = false\n"
      "[[device]]\nport = \"pair:t\"\naddress = \"127.0.9.1/24\"\nread_sink = \"strict\"\n"
      "[[device]]\nport = \"pair:t\"\naddress = \"127.0.9.2/24\"\n");
  for (const bool strict : {true, false}) {
    App app(daemon, strict ? "rnic0" : "rnic1");
    const auto number = app.qp(app.pd(), app.cq());
    CHECK(daemon.machine.qps.at(number)->qp->config().strict_read_sink == strict);
  }
}

TEST_CASE("transmit memory is a queue pair's, once, and a process has a share of it", "[control][objects]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd(), cq = app.cq();
  const auto give = [&](std::uint32_t qp, std::uint64_t length) {
    return app.ask(RNIC_TRANSMIT_MEMORY, rnic_transmit_memory{qp, 0, length});
  };
  const auto first = app.qp(pd, cq);
  CHECK(give(first + 1000, 1 << 20).status == EINVAL);
  for (const std::uint64_t bad : {std::uint64_t{0}, std::uint64_t{3} << 20, std::uint64_t{16} << 20, UINT64_MAX})
    CHECK(give(first, bad).status == EINVAL);
  const auto area = give(first, 1 << 20).as<rnic_area>();
  CHECK(area.length >= 1 << 20);
  CHECK(give(first, 1 << 20).status == EINVAL);
  CHECK(daemon.machine.transmit_memory.used() == 1 << 20);
  app.by_handle(RNIC_DESTROY_QP, first);
  CHECK(daemon.machine.transmit_memory.used() == 0);
  // 64 MiB, and what does not fit is refused without harm.
  std::vector<std::uint32_t> all;
  for (int i = 0; i < 8; ++i) {
    all.push_back(app.qp(pd, cq));
    CHECK(give(all.back(), RNIC_TRANSMIT_MEMORY_MAX).status == 0);
  }
  all.push_back(app.qp(pd, cq));
  CHECK(give(all.back(), 1).status == ENOMEM);
  app.by_handle(RNIC_DESTROY_QP, all.front());
  CHECK(give(all.back(), RNIC_TRANSMIT_MEMORY_MAX).status == 0);
}

// ---- shared receive queues --------------------------------------------------------------------

TEST_CASE("V-SRQ-02: an SRQ has at least what was asked for",
          "[control][objects][V-SRQ-02][V-IS-15][V-IS-16][V-VB-10]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd();
  const auto made = app.try_srq(pd, 100, 0, 3).as<rnic_create_srq_reply>();
  CHECK(made.entries == 128);
  CHECK(made.sge_max == 3);
  CHECK(made.stride % 64 == 0);
  CHECK(made.stride >= sizeof(rnic_rqe) + 3 * sizeof(rnic_sge));
  CHECK(app.try_srq(pd, control::kSrqWorkRequestsMax).status == 0);
  CHECK(app.try_srq(pd, control::kSrqWorkRequestsMax + 1).status == EINVAL);
  CHECK(app.try_srq(pd, 1, 0, control::kSgesMax).status == 0);
  CHECK(app.try_srq(pd, 1, 0, control::kSgesMax + 1).status == EINVAL);
  CHECK(app.try_srq(pd + 1, 1).status == EINVAL);
}

TEST_CASE("V-LIM-04: a limit above the SRQ's size is refused", "[control][objects][V-LIM-04][V-IS-17][V-VB-10]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd();
  CHECK(app.try_srq(pd, 8, 9).status == EINVAL);
  const auto srq = app.try_srq(pd, 8, 8).as<rnic_create_srq_reply>().srq;
  CHECK(app.by_handle(RNIC_QUERY_SRQ, srq).as<rnic_query_srq_reply>().limit == 8);
  CHECK(app.ask(RNIC_MODIFY_SRQ, rnic_modify_srq{srq, RNIC_SRQ_LIMIT, 9, 0, 0, 0}).status == EINVAL);
  CHECK(app.by_handle(RNIC_QUERY_SRQ, srq).as<rnic_query_srq_reply>().limit == 8);
  CHECK(app.ask(RNIC_MODIFY_SRQ, rnic_modify_srq{srq, RNIC_SRQ_LIMIT, 0, 0, 0, 0}).status == 0);
  CHECK(app.by_handle(RNIC_QUERY_SRQ, srq).as<rnic_query_srq_reply>().limit == 0);
}

TEST_CASE("V-SRZ-02: an SRQ is resized, but not below what is posted, in use, or its limit",
          "[control][objects][V-SRZ-01][V-SRZ-02][V-LIM-04][V-IMM-01]") {
  Daemon daemon;
  App app(daemon);
  const auto made = app.try_srq(app.pd(), 8).as<rnic_create_srq_reply>();
  const auto ask = [&](std::uint32_t set, std::uint32_t limit, std::uint32_t wr_min, std::uint32_t in_use = 0) {
    return app.ask(RNIC_MODIFY_SRQ, rnic_modify_srq{made.srq, set, limit, wr_min, in_use, 0});
  };
  const auto query = [&] { return app.by_handle(RNIC_QUERY_SRQ, made.srq).as<rnic_query_srq_reply>(); };
  constexpr std::uint32_t kBoth = RNIC_SRQ_LIMIT | RNIC_SRQ_ENTRIES;
  for (int i = 0; i < 2; ++i) {
    CHECK(ask(RNIC_SRQ_ENTRIES, 0, 0).status == EINVAL);
    CHECK(ask(RNIC_SRQ_ENTRIES, 0, control::kSrqWorkRequestsMax + 1).status == EINVAL);
    CHECK(ask(RNIC_SRQ_ENTRIES, 0, 4, 5).status == EINVAL);
    CHECK(ask(kBoth, 5, 4).status == EINVAL);
    CHECK(ask(0x4, 0, 0).status == EINVAL);
    CHECK(query().entries == 8);
    CHECK(query().limit == 0);
  }
  const auto larger = ask(kBoth, 9, 9).as<rnic_modify_srq_reply>();  // a limit that only the new size has room for
  CHECK(larger.entries == 16);
  CHECK(larger.area.length >= sizeof(rnic_ring_control) + 16 * made.stride);
  CHECK((larger.area.arena != made.area.arena || larger.area.offset != made.area.offset));
  CHECK((query().entries == 16 && query().limit == 9));
  CHECK(ask(RNIC_SRQ_ENTRIES, 0, 8).status == EINVAL);  // V-LIM-04
  CHECK((query().entries == 16 && query().limit == 9));
  CHECK(ask(kBoth, 4, 4, 4).as<rnic_modify_srq_reply>().entries == 4);
  CHECK((query().entries == 4 && query().limit == 4));
}

TEST_CASE("V-SRQ-21: an SRQ with a QP cannot be destroyed", "[control][objects][V-SRQ-21][V-IS-19][V-VB-13]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd(), cq = app.cq();
  const auto srq = app.try_srq(pd, 8).as<rnic_create_srq_reply>().srq;
  const auto number = app.qp(pd, cq, srq);
  CHECK(app.by_handle(RNIC_DESTROY_SRQ, srq).status == EBUSY);
  REQUIRE(app.by_handle(RNIC_DESTROY_QP, number).status == 0);
  CHECK(app.by_handle(RNIC_DESTROY_SRQ, srq).status == 0);
  CHECK(app.by_handle(RNIC_DESTROY_SRQ, srq).status == EINVAL);
}

// ---- queue pairs ------------------------------------------------------------------------------

TEST_CASE("V-QP-02: queues are at least as deep as asked for, each by itself", "[control][objects][V-QP-02][V-QP-13]") {
  Daemon daemon;
  App app(daemon);
  auto body = app.qp_request(app.pd(), app.cq());
  body.send_wr_min = 100;
  body.recv_wr_min = 5;
  body.send_sge_max = 16;
  body.recv_sge_max = 3;
  body.inline_max = 512;
  const auto made = app.ask(RNIC_CREATE_QP, body).as<rnic_create_qp_reply>();
  CHECK(made.send_entries == 128);
  CHECK(made.recv_entries == 8);
  CHECK(made.send_sge_max >= 16);
  CHECK(made.recv_sge_max >= 3);
  CHECK(made.inline_max >= 512);
  CHECK(made.send_stride >= sizeof(rnic_sqe) + 512);
  CHECK(made.recv_stride >= sizeof(rnic_rqe) + 3 * sizeof(rnic_sge));
  CHECK(made.send_doorbell != made.recv_doorbell);
}

TEST_CASE("V-RNIC-08: nothing above what Query RNIC reports can be had",
          "[control][objects][V-RNIC-08][V-QRN-03][V-QRN-05][V-IS-15][V-IS-16][V-VB-14]") {
  Daemon daemon;
  App app(daemon);
  const auto told = app.opened.as<rnic_open_context_reply>().attributes;
  const auto pd = app.pd(), cq = app.cq();
  const auto with = [&](std::uint32_t rnic_create_qp::*field, std::uint32_t value) {
    auto body = app.qp_request(pd, cq);
    body.*field = value;
    return app.ask(RNIC_CREATE_QP, body).status;
  };
  CHECK(with(&rnic_create_qp::send_wr_min, told.max_qp_wr) == 0);
  CHECK(with(&rnic_create_qp::send_wr_min, told.max_qp_wr + 1) == EINVAL);
  CHECK(with(&rnic_create_qp::recv_wr_min, told.max_qp_wr) == 0);
  CHECK(with(&rnic_create_qp::recv_wr_min, told.max_qp_wr + 1) == EINVAL);
  CHECK(with(&rnic_create_qp::send_sge_max, told.max_sge) == 0);
  CHECK(with(&rnic_create_qp::send_sge_max, told.max_sge + 1) == EINVAL);
  CHECK(with(&rnic_create_qp::recv_sge_max, told.max_sge) == 0);
  CHECK(with(&rnic_create_qp::recv_sge_max, told.max_sge + 1) == EINVAL);
  CHECK(with(&rnic_create_qp::inline_max, told.max_inline) == 0);
  CHECK(with(&rnic_create_qp::inline_max, told.max_inline + 1) == EINVAL);
}

TEST_CASE("V-QP-01: a QP needs a PD, CQs and an SRQ that exist",
          "[control][objects][V-QP-01][V-IS-07][V-IS-11][V-IS-18][V-VB-14]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd(), cq = app.cq();
  const auto with = [&](std::uint32_t rnic_create_qp::*field) {
    auto body = app.qp_request(pd, cq);
    body.*field = 9999;
    return app.ask(RNIC_CREATE_QP, body).status;
  };
  CHECK(with(&rnic_create_qp::pd) == EINVAL);
  CHECK(with(&rnic_create_qp::send_cq) == EINVAL);
  CHECK(with(&rnic_create_qp::recv_cq) == EINVAL);
  CHECK(with(&rnic_create_qp::srq) == EINVAL);
  CHECK(app.by_handle(RNIC_DESTROY_CQ, cq).status == 0);
}

TEST_CASE("V-QP-11: with an SRQ there is no receive queue, and no depth of one is looked at",
          "[control][objects][V-QP-11]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd(), cq = app.cq();
  const auto srq = app.try_srq(pd, 8).as<rnic_create_srq_reply>().srq;
  auto body = app.qp_request(pd, cq, srq);
  body.recv_wr_min = ~0u;
  body.recv_sge_max = ~0u;
  const auto made = app.ask(RNIC_CREATE_QP, body).as<rnic_create_qp_reply>();
  CHECK(made.recv_entries == 0);
  CHECK(made.recv_area.length == 0);
}

TEST_CASE("V-QP-06: QP numbers are unique on the daemon, not 0, and of 24 bits", "[control][objects][V-QP-06]") {
  Daemon daemon;
  App one(daemon), other(daemon, "rnic1");
  std::set<std::uint32_t> numbers;
  for (App* app : {&one, &other}) {
    const auto pd = app->pd(), cq = app->cq();
    for (int i = 0; i < 20; ++i) numbers.insert(app->qp(pd, cq));
  }
  CHECK(numbers.size() == 40);
  CHECK(*numbers.begin() > 1);
  CHECK(*numbers.rbegin() <= 0xFFFFFF);
}

TEST_CASE("V-QP-08: a new QP is in Idle, without a stream", "[control][objects][V-QP-08][V-QP-07]") {
  Daemon daemon;
  App app(daemon);
  const auto number = app.qp(app.pd(), app.cq());
  const auto q = app.by_handle(RNIC_QUERY_QP, number).as<rnic_query_qp_reply>();
  CHECK(q.state == RNIC_QP_IDLE);
  CHECK(q.remote.family == 0);
  CHECK(q.terminate_length == 0);
}

TEST_CASE("V-MOD-01: attributes change in Idle, not on the way to another state",
          "[control][objects][V-MOD-01][V-IMM-01]") {
  Daemon daemon;
  App app(daemon);
  const auto number = app.qp(app.pd(), app.cq());
  rnic_modify_qp body{};
  body.qp_number = number;
  body.mask = RNIC_MODIFY_STATE | RNIC_MODIFY_ACCESS | RNIC_MODIFY_ORD | RNIC_MODIFY_IRD;
  body.state = RNIC_QP_IDLE;
  body.access = RNIC_ACCESS_REMOTE_READ;
  body.ord = 3;
  body.ird = 4;
  REQUIRE(app.ask(RNIC_MODIFY_QP, body).status == 0);
  auto q = app.by_handle(RNIC_QUERY_QP, number).as<rnic_query_qp_reply>();
  CHECK(q.access == RNIC_ACCESS_REMOTE_READ);
  CHECK(q.ord == 3);
  CHECK(q.ird == 4);

  body.state = RNIC_QP_ERROR;
  body.ord = 9;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == EINVAL);
  q = app.by_handle(RNIC_QUERY_QP, number).as<rnic_query_qp_reply>();
  CHECK(q.state == RNIC_QP_IDLE);
  CHECK(q.ord == 3);

  body.mask = RNIC_MODIFY_STATE;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == 0);
  CHECK(app.by_handle(RNIC_QUERY_QP, number).as<rnic_query_qp_reply>().state == RNIC_QP_ERROR);
  body.state = RNIC_QP_IDLE;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == 0);
}

TEST_CASE("V-IDLE-04: what an application calls Idle is kept until the QP is there again",
          "[control][objects][V-IDLE-04]") {
  Daemon daemon;
  App app(daemon);
  const auto number = app.qp(app.pd(), app.cq());
  const auto called = [&] { return app.by_handle(RNIC_QUERY_QP, number).as<rnic_query_qp_reply>().idle_name; };
  CHECK(called() == RNIC_IDLE_INIT);
  rnic_modify_qp body{};
  body.qp_number = number;
  body.mask = RNIC_MODIFY_STATE;
  for (const std::uint32_t name : {RNIC_IDLE_RTR, RNIC_IDLE_RESET, RNIC_IDLE_INIT}) {
    body.idle_name = name;
    REQUIRE(app.ask(RNIC_MODIFY_QP, body).status == 0);
    CHECK(called() == name);
  }
  body.idle_name = RNIC_IDLE_RTR + 1;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == EINVAL);
  // V-IMM-01: nor has a Modify that failed, or one of attributes alone, another name for it.
  body.idle_name = RNIC_IDLE_RTR;
  body.mask = RNIC_MODIFY_STATE | RNIC_MODIFY_ORD | RNIC_MODIFY_IRD;
  body.state = RNIC_QP_ERROR;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == EINVAL);
  body.mask = RNIC_MODIFY_ORD;
  body.state = RNIC_QP_IDLE;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == 0);
  CHECK(called() == RNIC_IDLE_INIT);
  body.mask = RNIC_MODIFY_STATE;
  body.state = RNIC_QP_ERROR;
  REQUIRE(app.ask(RNIC_MODIFY_QP, body).status == 0);
  body.state = RNIC_QP_IDLE;
  body.idle_name = RNIC_IDLE_RESET;
  REQUIRE(app.ask(RNIC_MODIFY_QP, body).status == 0);
  CHECK(called() == RNIC_IDLE_RESET);
}

TEST_CASE("V-IS-20: depths above the device's are refused", "[control][objects][V-IS-20][V-IS-21][V-IRD-05]") {
  Daemon daemon;
  App app(daemon);
  const auto number = app.qp(app.pd(), app.cq());
  rnic_modify_qp body{};
  body.qp_number = number;
  body.mask = RNIC_MODIFY_ORD;
  body.ord = control::kReadDepthMax;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == 0);
  body.ord = control::kReadDepthMax + 1;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == EINVAL);
  body.mask = RNIC_MODIFY_IRD;
  body.ird = control::kReadDepthMax;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == 0);
  body.ird = control::kReadDepthMax + 1;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == EINVAL);
}

TEST_CASE("V-IS-20: a depth that is not asked for is not looked at", "[control][objects][V-IS-20][V-IS-21]") {
  Daemon daemon;
  App app(daemon);
  const auto number = app.qp(app.pd(), app.cq());
  rnic_modify_qp body{};
  body.qp_number = number;
  body.mask = RNIC_MODIFY_ORD;
  body.ord = 2;
  body.ird = control::kReadDepthMax + 1;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == 0);
  body.mask = RNIC_MODIFY_IRD;
  body.ord = control::kReadDepthMax + 1;
  body.ird = 3;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == 0);
  const auto q = app.by_handle(RNIC_QUERY_QP, number).as<rnic_query_qp_reply>();
  CHECK(q.ord == 2);
  CHECK(q.ird == 3);
}

TEST_CASE("a QP goes to RTS by a connection alone, and to Closing and Terminate only from there",
          "[control][objects][V-IDLE-03]") {
  Daemon daemon;
  App app(daemon);
  const auto number = app.qp(app.pd(), app.cq());
  rnic_modify_qp body{};
  body.qp_number = number;
  body.mask = RNIC_MODIFY_STATE;
  for (const std::uint32_t state : {RNIC_QP_RTS, RNIC_QP_CLOSING, RNIC_QP_TERMINATE}) {
    body.state = state;
    CHECK(app.ask(RNIC_MODIFY_QP, body).status == EINVAL);
  }
  body.state = RNIC_QP_ERROR + 1;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == EINVAL);
  body.mask = 0x10;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == EINVAL);
  CHECK(app.by_handle(RNIC_QUERY_QP, number).as<rnic_query_qp_reply>().state == RNIC_QP_IDLE);
}
