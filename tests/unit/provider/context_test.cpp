// A context's beginning: whom it is opened with.
#include "kit/catch.hpp"

#include <unistd.h>

#include "kit/alarms.hpp"
#include "unit/provider/daemon.hpp"

using namespace rnic;
using namespace rnic::test;

TEST_CASE("V-SEC-10: no context is opened with a stranger's daemon", "[provider][context][V-SEC-10]") {
  if (geteuid() != 0) {  // nobody else is here to answer
    TestDaemon daemon;
    CHECK(Application(daemon).error == 0);
    return;
  }
  TestDaemon daemon;
  REQUIRE(seteuid(61001) == 0);
  daemon.client = daemon.introduce();  // the other end of which is that user's
  REQUIRE(seteuid(0) == 0);
  Application app(daemon);
  CHECK(app.error == EPERM);
  CHECK(daemon.helper_tid() == 0);  // what it hears of first
}

TEST_CASE("V-SEC-25: a context is ended at the daemon before the helper ends, by which its memory is reached",
          "[provider][context][V-SEC-25]") {
  TestDaemon daemon;
  std::atomic<bool> helper_was_there = false;
  {
    const Application app(daemon);
    REQUIRE(app.error == 0);
    REQUIRE(daemon.helper_tid() != 0);
    const std::string helper = "/proc/self/task/" + std::to_string(daemon.helper_tid());
    daemon.relay().when_server_ends([&, helper] { helper_was_there = access(helper.c_str(), F_OK) == 0; });
  }
  CHECK(helper_was_there);
  CHECK(access(("/proc/self/task/" + std::to_string(daemon.helper_tid())).c_str(), F_OK) != 0);
}

TEST_CASE("an answer to another question is the daemon's end to a context", "[provider][context]") {
  for (const auto harm : {harm::wrong_id, harm::wrong_type, harm::cut_in_half, harm::close}) {
    TestDaemon daemon;
    Application app(daemon);
    daemon.relay().harm(RNIC_CREATE_CQ, harm);
    CHECK(app.make_cq(4) == nullptr);
    CHECK(errno == EIO);
    CHECK(app.make_cq(4) == nullptr);
    CHECK(errno == EIO);
    CHECK(daemon.relay().count(RNIC_CREATE_CQ) == 1);  // nobody is asked any more
    CHECK(readable(app.context->async_fd, 5000));      // DEVICE_FATAL
  }
}

TEST_CASE("an answer that is too short, or comes without its memory, is an error of what was asked",
          "[provider][context]") {
  TestDaemon daemon;
  Application app(daemon);
  daemon.relay().harm(RNIC_CREATE_CQ, harm::take_descriptors);
  daemon.relay().harm(RNIC_MAP_ARENA, harm::take_descriptors);  // by which it asks for the memory at once
  CHECK(app.make_cq(4) == nullptr);
  CHECK(errno == EMFILE);
  CHECK(app.make_cq(4) != nullptr);
  daemon.relay().harm(RNIC_CREATE_CQ, harm::cut_short);
  CHECK(app.make_cq(4) == nullptr);
  CHECK(errno == EPROTO);
}

TEST_CASE("a process that may have no more descriptors is told so when it opens a device", "[provider][context]") {
  TestDaemon daemon;
  for (const std::size_t came : {0, 1, 3, 4}) {
    daemon.relay().harm(RNIC_OPEN_CONTEXT, [came](const Asked&, Passing& reply) { reply.fds.resize(came); });
    daemon.client = daemon.introduce();
    Application app(daemon);
    CHECK(app.error == EMFILE);
  }
}

TEST_CASE("a signal does not keep a context from its answer", "[provider][context]") {
  TestDaemon daemon;
  Application app(daemon);
  daemon.relay().harm(RNIC_CREATE_CQ, harm::delay(60));
  const Alarms alarms;
  CHECK(app.make_cq(4) != nullptr);
}

TEST_CASE("V-QP-01: what a queue pair is made of is of its own context, whatever number it has",
          "[provider][context][V-QP-01][V-IS-11][V-IS-18]") {
  OneQp t;
  Application other(t.daemon.introduce(), "rnic0");
  REQUIRE(other.error == 0);
  ibv_cq* const own = t.send_cq;
  ibv_cq* const foreign = other.make_cq(8);
  ibv_srq* const own_srq = t.app.make_srq(8);
  ibv_srq* const foreign_srq = other.make_srq(8);
  REQUIRE((foreign != nullptr && own_srq != nullptr && foreign_srq != nullptr));
  const std::uint32_t handle = foreign->handle, srq_handle = provider::of(foreign_srq).handle;
  // No number tells them apart.
  foreign->handle = own->handle;
  provider::of(foreign_srq).handle = provider::of(own_srq).handle;
  const auto refusal = [&](ibv_cq* send, ibv_cq* receive, ibv_srq* srq) {
    errno = 0;
    ibv_qp* const plain = t.app.make_qp(send, receive, 4, srq);
    const int error = plain == nullptr ? errno : 0;
    ibv_qp_init_attr_ex init{};
    init.send_cq = send;
    init.recv_cq = receive;
    init.srq = srq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {4, 4, 1, 1, 0};
    init.comp_mask = IBV_QP_INIT_ATTR_PD;
    init.pd = t.app.pd;
    errno = 0;
    ibv_qp* const extended = provider::create_qp_ex(&t.app.context->verbs.context, &init);
    CHECK((extended == nullptr ? errno : 0) == error);
    for (ibv_qp* qp : {plain, extended})
      if (qp != nullptr) CHECK(provider::destroy_qp(qp) == 0);
    return error;
  };
  CHECK(refusal(foreign, own, nullptr) == EINVAL);
  CHECK(refusal(own, foreign, nullptr) == EINVAL);
  CHECK(refusal(own, own, foreign_srq) == EINVAL);
  CHECK(refusal(nullptr, own, nullptr) == EINVAL);
  CHECK(refusal(own, own, own_srq) == 0);
  foreign->handle = handle;
  provider::of(foreign_srq).handle = srq_handle;
  CHECK(provider::destroy_srq(foreign_srq) == 0);
  CHECK(provider::destroy_cq(foreign) == 0);
}
