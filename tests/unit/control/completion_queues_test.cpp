// Completion queues: made, resized, and while they are in use.
#include "kit/server_world.hpp"

using namespace rnic;
using namespace rnic::test;

TEST_CASE("V-CQ-01: a CQ has at least the entries asked for, and tells how many",
          "[control][objects][V-CQ-01][V-CQ-02][V-IS-09]") {
  Daemon daemon;
  App app(daemon);
  CHECK(app.try_cq(1).as<rnic_create_cq_reply>().entries == 1);
  CHECK(app.try_cq(100).as<rnic_create_cq_reply>().entries == 128);
  CHECK(app.try_cq(control::kCqesMax).as<rnic_create_cq_reply>().entries == control::kCqesMax);
  CHECK(app.try_cq(control::kCqesMax + 1).status == EINVAL);
  CHECK(app.try_cq(0).status == EINVAL);
}

TEST_CASE("V-CQ-03: an unknown channel or vector is refused", "[control][objects][V-CQ-03][V-IS-14]") {
  Daemon daemon;
  App app(daemon);
  CHECK(app.try_cq(1, 0x1234567).status == EINVAL);
  rnic_create_cq body{};
  body.entries_min = 1;
  body.vector = control::kCompletionVectors;
  CHECK(app.ask(RNIC_CREATE_CQ, body).status == EINVAL);
}

TEST_CASE("V-VBX-01: a wish of a CQ that the daemon does not know is refused", "[control][objects][V-VBX-01]") {
  Daemon daemon;
  App app(daemon);
  rnic_create_cq body{};
  body.entries_min = 1;
  body.flags = RNIC_CQ_TIMES;
  CHECK(app.ask(RNIC_CREATE_CQ, body).status == 0);
  body.flags |= 0x2;
  CHECK(app.ask(RNIC_CREATE_CQ, body).status == EINVAL);
}

TEST_CASE("V-CQ-09: a CQ in use cannot be destroyed", "[control][objects][V-CQ-09][V-IS-12][V-VB-09]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd(), cq = app.cq();
  const auto number = app.qp(pd, cq);
  CHECK(app.by_handle(RNIC_DESTROY_CQ, cq).status == EBUSY);
  REQUIRE(app.by_handle(RNIC_DESTROY_QP, number).status == 0);
  CHECK(app.by_handle(RNIC_DESTROY_CQ, cq).status == 0);
  CHECK(app.by_handle(RNIC_DESTROY_CQ, cq).status == EINVAL);
}

TEST_CASE("V-CQ-08: a CQ is resized, but not below what is in it", "[control][objects][V-CQ-08][V-CQ-07][V-IS-10]") {
  Daemon daemon;
  App app(daemon);
  const auto cq = app.cq(4);
  control::Cq* object = daemon.machine.cqs_by_cookie.begin()->second;
  for (int i = 0; i < 3; ++i) REQUIRE(object->queue->push(rnic_cqe{}));
  rnic_resize_cq body{cq, 2};
  CHECK(app.ask(RNIC_RESIZE_CQ, body).status == EINVAL);
  CHECK(object->queue->unpolled() == 3);
  body.entries_min = 100;
  CHECK(app.ask(RNIC_RESIZE_CQ, body).as<rnic_resize_cq_reply>().entries == 128);
  CHECK(object->queue->unpolled() == 3);
  body.entries_min = control::kCqesMax + 1;
  CHECK(app.ask(RNIC_RESIZE_CQ, body).status == EINVAL);
}
