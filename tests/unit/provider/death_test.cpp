// The daemon dies, or ends our context: nobody hangs, and everything is told (architecture: failure).
// And a forked child, which is not the one the daemon knows.
#include "kit/catch.hpp"

#include <sys/wait.h>

#include "unit/provider/daemon.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

// Polls until the death has been noticed, however late the watcher runs.
int poll_patiently(ibv_cq* cq, int count, ibv_wc* wcs) {
  for (int i = 0; i < 5000; ++i) {
    const int found = provider::poll_cq(cq, count, wcs);
    if (found != 0) return found;
    usleep(1000);
  }
  return 0;
}

struct AsyncMessage {
  std::uint64_t element;
  std::uint32_t type;
  std::uint32_t reserved;
};

}  // namespace

TEST_CASE("V-ERRST-03: all outstanding work is flushed in post order, signaled or not", "[provider][V-ERRST-03]") {
  OneQp t(8);
  REQUIRE(t.post_write(1) == 0);
  REQUIRE(t.post_write(2, 0) == 0);
  REQUIRE(t.post_write(3, 0) == 0);
  REQUIRE(t.post_receive(11) == 0);
  REQUIRE(t.post_receive(12) == 0);
  t.complete_send(0);  // made before the end, polled after it
  t.daemon.die();
  ibv_wc wcs[8];
  int sends = 0;
  while (sends < 3) {
    const int found = poll_patiently(t.send_cq, 8 - sends, wcs + sends);
    REQUIRE(found > 0);
    sends += found;
  }
  REQUIRE(sends == 3);
  CHECK(wcs[0].status == IBV_WC_SUCCESS);
  for (int i = 1; i < 3; ++i) {
    CHECK(wcs[i].status == IBV_WC_WR_FLUSH_ERR);
    CHECK(wcs[i].wr_id == static_cast<std::uint64_t>(i) + 1);
    CHECK(wcs[i].opcode == IBV_WC_RDMA_WRITE);
    CHECK(wcs[i].vendor_err == RNIC_WC_FLUSHED);
  }
  REQUIRE(poll_patiently(t.receive_cq, 8, wcs) == 2);
  CHECK(wcs[0].wr_id == 11);
  CHECK(wcs[1].wr_id == 12);
  CHECK(wcs[0].opcode == IBV_WC_RECV);
  CHECK(provider::poll_cq(t.receive_cq, 8, wcs) == 0);
}

TEST_CASE("a context that the status page calls dead is flushed as well", "[provider][death]") {
  OneQp t(8);
  REQUIRE(t.post_write(1) == 0);
  ibv_wc wc{};
  CHECK(provider::poll_cq(t.send_cq, 1, &wc) == 0);
  t.daemon.page().dead = 1;
  REQUIRE(provider::poll_cq(t.send_cq, 1, &wc) == 1);
  CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
  CHECK(t.post_write(2) == EIO);
}

TEST_CASE("the daemon's death wakes who waits for a completion event", "[provider][death]") {
  TestDaemon daemon;
  Application app(daemon);
  ibv_comp_channel channel = daemon.make_channel();
  ibv_cq* armed = app.make_cq(4, &channel);
  ibv_cq* unarmed = app.make_cq(4, &channel);
  REQUIRE(provider::req_notify_cq(armed, 0) == 0);
  daemon.die();
  REQUIRE(readable(channel.fd, 5000));
  CHECK(take_event(channel) == armed);
  CHECK(unarmed != armed);
  CHECK_FALSE(readable(channel.fd, 50));
}

// The data plane notes what it fires, another thread of the daemon sends it, and it may be killed between the two.
TEST_CASE("a completion event that was noted but not sent before the daemon's death is not lost", "[provider][death]") {
  TestDaemon daemon;
  Application app(daemon);
  ibv_comp_channel channel = daemon.make_channel();
  ibv_cq* cq = app.make_cq(4, &channel);
  REQUIRE(provider::req_notify_cq(cq, 0) == 0);
  rnic_cq_control& control = app.control_of(cq);
  control.fired = control.arm >> 2;
  daemon.die();
  REQUIRE(readable(channel.fd, 5000));
  CHECK(take_event(channel) == cq);
  CHECK_FALSE(readable(channel.fd, 50));
}

TEST_CASE("an arming after the death fires at once where flushes wait to be polled", "[provider][death]") {
  TestDaemon daemon;
  Application app(daemon);
  ibv_comp_channel channel = daemon.make_channel();
  ibv_cq* cq = app.make_cq(4, &channel);
  ibv_qp* qp = app.make_qp(cq, cq, 4);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  REQUIRE(provider::post_send(qp, &wr, &bad) == 0);
  daemon.page().dead = 1;
  REQUIRE(provider::req_notify_cq(cq, 1) == 0);
  CHECK(readable(channel.fd, 0));
}

TEST_CASE("the daemon's death is a fatal event of the device, and of each QP", "[provider][death][V-AE-42]") {
  OneQp t;
  t.daemon.die();
  REQUIRE(readable(t.app.context->async_fd, 5000));
  AsyncMessage message{};
  REQUIRE(read(t.app.context->async_fd, &message, sizeof message) == sizeof message);
  CHECK(message.type == IBV_EVENT_DEVICE_FATAL);
  REQUIRE(readable(t.app.context->async_fd, 5000));
  REQUIRE(read(t.app.context->async_fd, &message, sizeof message) == sizeof message);
  CHECK(message.type == IBV_EVENT_QP_FATAL);
  CHECK(message.element == reinterpret_cast<std::uintptr_t>(t.qp));
}

TEST_CASE("V-LIM-08: after the death one with a shared receive queue says that it takes no more, unless it has said so",
          "[provider][death][V-LIM-08]") {
  TestDaemon daemon;
  Application app(daemon);
  ibv_cq* cq = app.make_cq(4);
  ibv_qp* qp = app.make_qp(cq, cq, 4, app.make_srq(4));
  const bool has_said_so = GENERATE(true, false);
  if (has_said_so) {
    ibv_async_event event{};
    event.event_type = IBV_EVENT_QP_LAST_WQE_REACHED;
    event.element.qp = qp;
    provider::async_event(&app.context->verbs.context, &event);
  }
  daemon.die();
  std::vector<int> told;
  while (told.size() < (has_said_so ? 2u : 3u)) {
    REQUIRE(readable(app.context->async_fd, 5000));
    AsyncMessage message{};
    REQUIRE(read(app.context->async_fd, &message, sizeof message) == sizeof message);
    told.push_back(static_cast<int>(message.type));
  }
  CHECK_FALSE(readable(app.context->async_fd, 50));
  std::vector<int> due{IBV_EVENT_DEVICE_FATAL, IBV_EVENT_QP_FATAL};
  if (!has_said_so) due.push_back(IBV_EVENT_QP_LAST_WQE_REACHED);
  CHECK(told == due);
}

TEST_CASE("without a daemon requests fail, and destructions succeed", "[provider][death]") {
  OneQp t;
  t.daemon.die();
  CHECK(t.app.make_cq(4) == nullptr);
  CHECK(errno == EIO);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  CHECK(provider::modify_qp(t.qp, &attributes, IBV_QP_STATE) == EIO);
  attributes.qp_state = IBV_QPS_ERR;
  CHECK(provider::modify_qp(t.qp, &attributes, IBV_QP_STATE) == 0);
  CHECK(provider::destroy_qp(t.qp) == 0);
  CHECK(provider::destroy_cq(t.send_cq) == 0);
  CHECK(provider::destroy_cq(t.receive_cq) == 0);
  CHECK(provider::dereg_mr(t.mr) == 0);
  CHECK(provider::dealloc_pd(t.app.pd) == 0);
}

TEST_CASE("V-RNIC-10: when the daemon has ended every verb of its is an error; what needs none of its does as before",
          "[provider][death][V-RNIC-10][V-IS-06][V-VBX-02]") {
  OneQp t;
  ibv_srq* srq = t.app.make_srq(4);
  ibv_context* context = &t.app.context->verbs.context;
  for (std::uint64_t i = 0; i < 2; ++i) REQUIRE(t.post_write(i) == 0);
  REQUIRE(t.post_receive(7) == 0);
  t.complete_send(0);
  t.daemon.die();
  REQUIRE(readable(t.app.context->async_fd, 5000));
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  attributes.qp_state = IBV_QPS_INIT;
  ibv_srq_attr limit{};
  const auto refused = [](const void* object) { return object == nullptr && errno == EIO; };
  CHECK(refused(provider::alloc_pd(context)));
  CHECK(refused(t.app.make_cq(4)));
  CHECK(refused(t.app.make_qp(t.send_cq, t.receive_cq, 4)));
  CHECK(refused(t.app.make_mr(t.buffer, 64, 0)));
  ibv_srq_init_attr of_srq{};
  of_srq.attr = {4, 1, 0};
  CHECK(refused(provider::create_srq(t.app.pd, &of_srq)));
  CHECK(provider::resize_cq(t.send_cq, 64) == EIO);
  CHECK(provider::modify_qp(t.qp, &attributes, IBV_QP_STATE) == EIO);
  CHECK(provider::query_qp(t.qp, &attributes, IBV_QP_STATE, &init) == EIO);
  CHECK(provider::modify_srq(srq, &limit, IBV_SRQ_LIMIT) == EIO);
  CHECK(provider::query_srq(srq, &limit) == EIO);
  // V-VBX-02: posting, polling and arming ask nobody.
  CHECK(t.post_write(2) == EIO);
  CHECK(provider::req_notify_cq(t.send_cq, 0) == 0);
  ibv_wc wc{};
  REQUIRE(provider::poll_cq(t.send_cq, 1, &wc) == 1);
  CHECK(wc.status == IBV_WC_SUCCESS);
  REQUIRE(provider::poll_cq(t.send_cq, 1, &wc) == 1);
  CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
  REQUIRE(provider::poll_cq(t.receive_cq, 1, &wc) == 1);
  CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
}

TEST_CASE("destroying a QP takes its unread events out of the async socket", "[provider][death]") {
  OneQp t;
  t.daemon.die();
  const int fd = t.app.context->async_fd;
  for (int i = 0; i < 5000; ++i) {
    AsyncMessage two[2];
    const ssize_t size = recv(fd, two, sizeof two, MSG_PEEK | MSG_DONTWAIT);
    if (size > 0) break;
    usleep(1000);
  }
  usleep(20000);  // the second message follows the first
  REQUIRE(provider::destroy_qp(t.qp) == 0);
  AsyncMessage message{};
  while (recv(fd, &message, sizeof message, MSG_DONTWAIT) > 0) {
    CHECK(message.type == IBV_EVENT_DEVICE_FATAL);
  }
}

TEST_CASE("the helper thread is one of ours, and its id is told", "[provider][context]") {
  TestDaemon daemon;
  Application app(daemon);
  REQUIRE(app.error == 0);
  CHECK(daemon.helper_tid() != 0);
  CHECK(daemon.helper_tid() != static_cast<std::uint32_t>(getpid()));
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/task/%u/comm", daemon.helper_tid());
  CHECK(access(path, R_OK) == 0);
}

TEST_CASE("a daemon with another queue layout is refused", "[provider][context]") {
  TestDaemon daemon;
  daemon.say_version(RNIC_ABI_VERSION + 1);
  Application app(daemon);
  CHECK(app.error == EPROTO);
}

TEST_CASE("in a forked child requests and posts are refused, and nothing is copied", "[provider][fork]") {
  OneQp t(8);
  const pid_t child = fork();
  if (child == 0) {
    int failures = 0;
    failures += t.app.make_cq(4) != nullptr || errno != EPERM ? 1 : 0;
    failures += provider::reg_mr(t.app.pd, t.buffer, 64, 0, 0) != nullptr || errno != EPERM ? 2 : 0;
    ibv_sge one = t.sge(8);
    ibv_send_wr wr = t.write_of(one, 1);
    ibv_send_wr* bad = nullptr;
    failures += provider::post_send(t.qp, &wr, &bad) != EPERM ? 4 : 0;
    failures += (t.app.view(t.qp).send.sqe(0).flags & RNIC_SQE_COPIED) != 0 ? 8 : 0;
    _exit(failures);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  // The parent's socket has seen nothing of it.
  CHECK(t.app.make_cq(4) != nullptr);
}
