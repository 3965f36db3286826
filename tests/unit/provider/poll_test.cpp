// Polling, arming, and what happens to completions when their QP or their CQ's size goes.
#include "kit/catch.hpp"

#include <sys/eventfd.h>

#include <functional>
#include <thread>
#include <utility>

#include "unit/provider/daemon.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {
// What happens while the core is somebody else's, the next time that the poller gives it up.
std::function<void()> g_while_away;
}  // namespace

// Instead of the C library's.
extern "C" int sched_yield() noexcept {
  if (const auto meanwhile = std::exchange(g_while_away, nullptr)) meanwhile();
  return 0;
}

TEST_CASE("V-POLL-01: an empty queue gives nothing, a full one its entries in order", "[provider][V-POLL-01]") {
  OneQp t(8);
  ibv_wc wcs[8];
  CHECK(provider::poll_cq(t.send_cq, 8, wcs) == 0);
  for (std::uint32_t i = 0; i < 3; ++i) {
    REQUIRE(t.post_write(100 + i) == 0);
    t.complete_send(i);
  }
  REQUIRE(provider::poll_cq(t.send_cq, 2, wcs) == 2);
  CHECK(wcs[0].wr_id == 100);
  CHECK(wcs[1].wr_id == 101);
  REQUIRE(provider::poll_cq(t.send_cq, 8, wcs) == 1);
  CHECK(wcs[0].wr_id == 102);
}

TEST_CASE("V-POLL-09: an error's completion has the QP's number and our status", "[provider][V-POLL-09]") {
  OneQp t(8);
  REQUIRE(t.post_write(9) == 0);
  t.complete_send(0, RNIC_OP_WRITE, RNIC_WC_BASE_BOUNDS);
  ibv_wc wc{};
  REQUIRE(provider::poll_cq(t.send_cq, 1, &wc) == 1);
  CHECK(wc.wr_id == 9);
  CHECK(wc.status == IBV_WC_LOC_PROT_ERR);
  CHECK(wc.vendor_err == RNIC_WC_BASE_BOUNDS);
  CHECK(wc.qp_num == t.qp->qp_num);
}

TEST_CASE("V-POLL-07: a receive tells its length and the STag that was invalidated", "[provider][V-POLL-07]") {
  OneQp t(8);
  REQUIRE(t.post_receive(5) == 0);
  rnic_cqe cqe = t.received(0, 33);
  cqe.flags = RNIC_CQE_INVALIDATED;
  cqe.word = 0x1234;
  t.daemon.push(t.receive_cq, cqe);
  ibv_wc wc{};
  REQUIRE(provider::poll_cq(t.receive_cq, 1, &wc) == 1);
  CHECK(wc.opcode == IBV_WC_RECV);
  CHECK(wc.byte_len == 33);
  CHECK(wc.wc_flags == IBV_WC_WITH_INV);
  CHECK(wc.invalidated_rkey == 0x1234);
}

TEST_CASE("W-EXT-13: a receive tells the Immediate, and that there is one", "[provider][W-EXT-13]") {
  OneQp t(4);
  REQUIRE(t.post_receive(9) == 0);
  rnic_cqe cqe = t.received(0, 0);
  cqe.opcode = RNIC_OP_RECEIVE_WRITE_IMMEDIATE;
  cqe.flags |= RNIC_CQE_IMMEDIATE;
  cqe.word = 0x11223344;
  t.daemon.push(t.receive_cq, cqe);
  ibv_wc wc{};
  REQUIRE(provider::poll_cq(t.receive_cq, 1, &wc) == 1);
  CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
  CHECK(wc.wc_flags == IBV_WC_WITH_IMM);
  CHECK(wc.imm_data == 0x11223344);
  CHECK(wc.byte_len == 0);
}

TEST_CASE("V-POLL-02: an entry that names no outstanding WR is passed over", "[provider][V-POLL-02]") {
  OneQp t(4);
  REQUIRE(t.post_write(1) == 0);
  t.complete_send(0);
  t.complete_send(0);  // a second time
  t.complete_send(7);  // never posted
  ibv_wc wcs[4];
  CHECK(provider::poll_cq(t.send_cq, 4, wcs) == 1);
  CHECK(provider::poll_cq(t.send_cq, 4, wcs) == 0);
}

TEST_CASE("the phase tells old entries from new, round after round", "[provider][V-POLL-01]") {
  OneQp t(16);
  ibv_wc wc{};
  for (std::uint32_t i = 0; i < 200; ++i) {
    REQUIRE(t.post_write(i) == 0);
    t.complete_send(i);
    REQUIRE(provider::poll_cq(t.send_cq, 1, &wc) == 1);
    REQUIRE(t.app.control_of(t.send_cq).consumed == i + 1);
    REQUIRE(provider::poll_cq(t.send_cq, 1, &wc) == 0);
  }
}

// ---- Arming --------------------------------------------------------------------------------------

namespace {

std::uint32_t arm_word(OneQp& t) { return t.app.control_of(t.send_cq).arm; }

}  // namespace

TEST_CASE("V-NTF-01: each arming has a new sequence and the kind asked for", "[provider][V-NTF-01]") {
  OneQp t;
  REQUIRE(provider::req_notify_cq(t.send_cq, 1) == 0);
  const std::uint32_t first = arm_word(t);
  CHECK((first & 3) == RNIC_ARM_SOLICITED);
  REQUIRE(provider::req_notify_cq(t.send_cq, 0) == 0);
  const std::uint32_t second = arm_word(t);
  CHECK((second & 3) == RNIC_ARM_NEXT);
  CHECK(second >> 2 != first >> 2);
  CHECK(first >> 2 != 0);
}

TEST_CASE("V-NTF-06: an arming for any completion is not weakened before it has fired", "[provider][V-NTF-06]") {
  OneQp t;
  REQUIRE(provider::req_notify_cq(t.send_cq, 0) == 0);
  REQUIRE(provider::req_notify_cq(t.send_cq, 1) == 0);
  CHECK((arm_word(t) & 3) == RNIC_ARM_NEXT);
  REQUIRE(provider::req_notify_cq(t.send_cq, 1) == 0);
  CHECK((arm_word(t) & 3) == RNIC_ARM_NEXT);
}

TEST_CASE("V-NTF-06: after it has fired, a solicited arming is just that", "[provider][V-NTF-06]") {
  OneQp t;
  REQUIRE(provider::req_notify_cq(t.send_cq, 0) == 0);
  rnic_cq_control& control = t.app.control_of(t.send_cq);
  control.fired = control.arm >> 2;
  REQUIRE(provider::req_notify_cq(t.send_cq, 1) == 0);
  CHECK((arm_word(t) & 3) == RNIC_ARM_SOLICITED);
}

namespace {

// A queue as the data plane has it. An arming that fires is an octet on a channel.
struct Producer {
  explicit Producer(OneQp& t) : qp(t), queue(*t.daemon.server_side(t.receive_cq).queue) {}
  ~Producer() { close(channel); }
  void push(std::uint32_t slot, std::uint8_t flags = 0, std::uint8_t status = RNIC_WC_SUCCESS) {
    rnic_cqe cqe = qp.received(slot, 0);
    cqe.flags = flags;
    cqe.status = status;
    if (!queue.push(cqe)) std::abort();
    std::atomic_thread_fence(std::memory_order_seq_cst);  // as Worker::notify() has it
    const std::uint64_t one = 1;
    if (queue.take_notification() && write(channel, &one, sizeof one) != sizeof one) std::abort();
  }
  bool fired() {
    std::uint64_t count = 0;
    return read(channel, &count, sizeof count) == sizeof count;
  }

  OneQp& qp;
  shm::CompletionQueue& queue;
  int channel = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
};

}  // namespace

TEST_CASE("V-NTF-03: an arming fires on what comes after it, and one for all is not weakened by one for solicited",
          "[provider][V-NTF-03][V-NTF-04][V-NTF-06]") {
  OneQp t(8);
  Producer producer(t);
  for (std::uint64_t i = 0; i < 8; ++i) REQUIRE(t.post_receive(i) == 0);
  SECTION("what is there already is no event") {
    producer.push(0);
    REQUIRE(provider::req_notify_cq(t.receive_cq, 0) == 0);
    CHECK_FALSE(producer.fired());
    producer.push(1);
    CHECK(producer.fired());
    producer.push(2);
    CHECK_FALSE(producer.fired());
  }
  SECTION("next, then solicited: an unsolicited one fires") {
    REQUIRE(provider::req_notify_cq(t.receive_cq, 0) == 0);
    REQUIRE(provider::req_notify_cq(t.receive_cq, 1) == 0);
    producer.push(0);
    CHECK(producer.fired());
  }
  SECTION("solicited: an unsolicited one does not, a flush does") {
    REQUIRE(provider::req_notify_cq(t.receive_cq, 1) == 0);
    producer.push(0);
    CHECK_FALSE(producer.fired());
    producer.push(1, 0, RNIC_WC_FLUSHED);
    CHECK(producer.fired());
  }
  SECTION("solicited: a solicited one does") {
    REQUIRE(provider::req_notify_cq(t.receive_cq, 1) == 0);
    producer.push(0, RNIC_CQE_SOLICITED);
    CHECK(producer.fired());
  }
}

namespace {

// An application that polls, arms, polls and sleeps, and a data plane that goes on whenever it has a receive.
void race(std::uint32_t rounds) {
  constexpr std::uint32_t kDepth = 8;  // the CQ holds 16
  OneQp t(kDepth);
  Producer producer(t);
  std::atomic<std::uint32_t> posted = 0;
  std::thread data_plane([&] {
    for (std::uint32_t i = 0; i < rounds; ++i) {
      for (std::uint32_t there; (there = posted.load()) == i;) posted.wait(there);
      producer.push(i);
    }
  });
  std::uint32_t polled = 0, sleeps = 0;
  bool missed = false;
  const auto post_and_poll = [&] {
    const std::uint32_t before = polled;
    for (std::uint32_t i = posted; i < rounds && i - polled < kDepth; ++i) {
      if (t.post_receive(i) != 0) std::abort();
      posted = i + 1;
      posted.notify_one();
    }
    for (ibv_wc wc{}; provider::poll_cq(t.receive_cq, 1, &wc) == 1; ++polled)
      if (wc.wr_id != polled) std::abort();
    return polled != before;
  };
  while (polled < rounds && !missed) {
    if (post_and_poll()) continue;
    if (provider::req_notify_cq(t.receive_cq, 0) != 0) std::abort();
    if (post_and_poll()) continue;
    ++sleeps;
    missed = !readable(producer.channel, 20'000);
    producer.fired();
  }
  // Whatever became of it, the other thread is to end.
  while (polled < rounds) post_and_poll();
  data_plane.join();
  CHECK_FALSE(missed);
  CHECK(sleeps > 0);
}

}  // namespace

TEST_CASE("V-NTF-07: who polls until nothing is there, arms and polls again misses no completion",
          "[provider][V-NTF-07]") {
  race(20'000);
}
TEST_CASE("V-NTF-07: ten million times", "[.whole][V-NTF-07]") { race(10'000'000); }

// ---- Destruction and resizing --------------------------------------------------------------------

TEST_CASE("V-QP-19: a destroyed QP's completions are gone, its neighbour's are not", "[provider][V-QP-19][V-QP-18]") {
  TestDaemon daemon;
  Application app(daemon);
  ibv_cq* cq = app.make_cq(16);
  ibv_qp* qps[2] = {app.make_qp(cq, cq, 8), app.make_qp(cq, cq, 8)};
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  for (std::uint32_t i = 0; i < 6; ++i) {
    wr.wr_id = i;
    REQUIRE(provider::post_send(qps[i % 2], &wr, &bad) == 0);
    rnic_cqe cqe{};
    cqe.qp_number = qps[i % 2]->qp_num;
    cqe.slot = i / 2;
    cqe.flags = RNIC_CQE_SEND_QUEUE;
    daemon.push(cq, cqe);
  }
  const std::uint32_t left = qps[1]->qp_num;
  REQUIRE(provider::destroy_qp(qps[0]) == 0);
  ibv_wc wcs[8];
  REQUIRE(provider::poll_cq(cq, 8, wcs) == 3);
  for (std::uint64_t i = 0; i < 3; ++i) {
    CHECK(wcs[i].qp_num == left);
    CHECK(wcs[i].wr_id == 2 * i + 1);
  }
  CHECK(provider::poll_cq(cq, 8, wcs) == 0);
}

TEST_CASE("V-QP-19: removed completions of a shared queue give their slots back", "[provider][V-QP-19]") {
  TestDaemon daemon;
  Application app(daemon);
  ibv_cq* cq = app.make_cq(16);
  ibv_srq* srq = app.make_srq(2);
  ibv_qp* qp = app.make_qp(cq, cq, 4, srq);
  ibv_recv_wr wr{};
  ibv_recv_wr* bad = nullptr;
  REQUIRE(provider::post_srq_recv(srq, &wr, &bad) == 0);
  REQUIRE(provider::post_srq_recv(srq, &wr, &bad) == 0);
  rnic_cqe cqe{};
  cqe.qp_number = qp->qp_num;
  cqe.slot = app.view(srq).id(0);
  cqe.opcode = RNIC_OP_RECEIVE;
  cqe.flags = RNIC_CQE_SHARED;
  daemon.push(cq, cqe);
  REQUIRE(provider::destroy_qp(qp) == 0);
  CHECK(provider::post_srq_recv(srq, &wr, &bad) == 0);
  CHECK(provider::post_srq_recv(srq, &wr, &bad) == ENOMEM);
}

TEST_CASE("V-CQ-09: a CQ that a queue reports to cannot be destroyed", "[provider][V-CQ-09]") {
  OneQp t;
  CHECK(provider::destroy_cq(t.send_cq) == EBUSY);
  REQUIRE(provider::destroy_qp(t.qp) == 0);
  CHECK(provider::destroy_cq(t.send_cq) == 0);
}

TEST_CASE("V-CQ-07: a resize loses and repeats nothing, and keeps the arming", "[provider][V-CQ-07]") {
  OneQp t(16);
  for (std::uint32_t i = 0; i < 6; ++i) {
    REQUIRE(t.post_write(i) == 0);
    t.complete_send(i);
  }
  ibv_wc wcs[16];
  REQUIRE(provider::poll_cq(t.send_cq, 2, wcs) == 2);
  REQUIRE(provider::req_notify_cq(t.send_cq, 0) == 0);
  const std::uint32_t armed = arm_word(t);
  REQUIRE(provider::resize_cq(t.send_cq, 64) == 0);
  CHECK(t.send_cq->cqe == 64);
  CHECK(arm_word(t) == armed);
  REQUIRE(t.post_write(6) == 0);
  t.complete_send(6);
  REQUIRE(provider::poll_cq(t.send_cq, 16, wcs) == 5);
  for (std::uint64_t i = 0; i < 5; ++i) CHECK(wcs[i].wr_id == i + 2);
}

TEST_CASE("destroying a CQ takes its unread events out of the channel, and no others", "[provider][V-CQ-10]") {
  TestDaemon daemon;
  Application app(daemon);
  ibv_comp_channel channel = daemon.make_channel();
  channel.context = &app.context->verbs.context;
  ibv_cq* doomed = app.make_cq(4, &channel);
  ibv_cq* other = app.make_cq(4, &channel);
  daemon.fire(doomed);
  daemon.fire(other);
  daemon.fire(doomed);
  REQUIRE(provider::destroy_cq(doomed) == 0);
  CHECK(take_event(channel) == other);
  CHECK_FALSE(readable(channel.fd, 0));
}

TEST_CASE("destroying a CQ waits until the events it gave are acknowledged", "[provider][V-CQ-10]") {
  TestDaemon daemon;
  Application app(daemon);
  ibv_comp_channel channel = daemon.make_channel();
  ibv_cq* cq = app.make_cq(4, &channel);
  daemon.fire(cq);
  REQUIRE(readable(channel.fd, 5000));
  CHECK(take_event(channel) == cq);
  provider::cq_event(cq);  // as ibv_get_cq_event does
  std::atomic<bool> acknowledged{false};
  std::thread late([&] {
    usleep(20000);
    pthread_mutex_lock(&cq->mutex);
    ++cq->comp_events_completed;
    acknowledged = true;
    pthread_cond_signal(&cq->cond);
    pthread_mutex_unlock(&cq->mutex);
  });
  CHECK(provider::destroy_cq(cq) == 0);
  CHECK(acknowledged);
  late.join();
}

TEST_CASE("a poller that finds nothing gives its core up, the more seldom the less it helps", "[provider][courtesy]") {
  provider::Courtesy courtesy{};
  CHECK(courtesy.after_poll(0));  // not known yet: it asks at once
  courtesy.learn(provider::Courtesy::kAloneNs);
  CHECK(courtesy.spacing == provider::Courtesy::kEmptyPollsMin);
  courtesy.learn(provider::Courtesy::kAloneNs);
  CHECK(courtesy.spacing == 2 * provider::Courtesy::kEmptyPollsMin);
  courtesy.learn(provider::Courtesy::kGreedyNs);
  CHECK(courtesy.spacing == 4 * provider::Courtesy::kEmptyPollsMin);
  for (int i = 0; i < 32; ++i) courtesy.learn(provider::Courtesy::kGreedyNs);
  CHECK(courtesy.spacing == provider::Courtesy::kEmptyPollsMax);
  courtesy.learn(provider::Courtesy::kAloneNs + 1);  // another poller
  CHECK(courtesy.spacing == provider::Courtesy::kEmptyPollsMin);
}

TEST_CASE("what came while the poller had given its core up is not called nothing", "[provider][courtesy]") {
  OneQp t(8);
  REQUIRE(t.post_receive(5) == 0);
  bool away = false;
  g_while_away = [&] {
    away = true;
    t.daemon.push(t.receive_cq, t.received(0, 33));
  };
  ibv_wc wc{};
  int found = 0, polls = 0;
  while (!away && ++polls < 100'000) found = provider::poll_cq(t.receive_cq, 1, &wc);
  REQUIRE(away);
  CHECK(found == 1);
  CHECK(wc.byte_len == 33);
  CHECK(provider::poll_cq(t.receive_cq, 1, &wc) == 0);
}

TEST_CASE("only empty polls in a row are counted", "[provider][courtesy]") {
  provider::Courtesy courtesy{};
  courtesy.learn(0);
  for (std::uint32_t i = 1; i < provider::Courtesy::kEmptyPollsMin; ++i) CHECK_FALSE(courtesy.after_poll(0));
  CHECK_FALSE(courtesy.after_poll(1));
  for (std::uint32_t i = 1; i < provider::Courtesy::kEmptyPollsMin; ++i) CHECK_FALSE(courtesy.after_poll(0));
  CHECK(courtesy.after_poll(0));
}
