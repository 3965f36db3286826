// Completion queues, shared receive queues and their limits under real traffic: provider, daemon and data plane.
#include "unit/provider/wired.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "control/limits.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

// The completion events that a channel gives until nothing comes any more: of which queue each is.
std::vector<const void*> events_of(const ibv_comp_channel& channel, int limit_ms = 50) {
  std::vector<const void*> all;
  while (readable(channel.fd, all.empty() ? 5'000 : limit_ms)) all.push_back(take_event(channel));
  return all;
}

bool silent(const ibv_comp_channel& channel) { return !readable(channel.fd, 50); }

struct Sender {
  ibv_qp* qp;
  ibv_cq* cq;
  std::uint64_t next = 0;

  // A Send that takes a receive of the other end, and is done.
  void send(unsigned flags = 0) {
    REQUIRE(post(qp, {++next, IBV_WR_SEND, IBV_SEND_SIGNALED | flags}) == 0);
    expect(cq, next);
  }
};

}  // namespace

// ---- completion queues ---------------------------------------------------------------------------

TEST_CASE("V-CQA-02: one completion queue serves any work queues, and each of these that one alone",
          "[wired][V-CQA-02][V-QP-03][V-QQP-01][V-QQP-07][V-POLL-07]") {
  Wired t;
  // Of a's: both queues of the first and the send queue of the second; of the second the other has its own.
  ibv_cq* one = t.a.make_cq(64);
  ibv_cq* other = t.a.make_cq(64);
  ibv_cq* peers = t.b.make_cq(64);
  ibv_qp* qps[] = {t.a.make_qp(one, one, 8), t.a.make_qp(one, other, 8)};
  ibv_qp* far[] = {t.b.make_qp(peers, peers, 8), t.b.make_qp(peers, peers, 8)};
  for (int i = 0; i < 2; ++i) {
    t.join(qps[i], far[i]);
    ibv_qp_attr attributes{};
    ibv_qp_init_attr init{};
    REQUIRE(provider::query_qp(qps[i], &attributes, IBV_QP_STATE, &init) == 0);
    CHECK(init.send_cq == one);
    CHECK(init.recv_cq == (i == 0 ? one : other));
    for (std::uint64_t id = 0; id < 2; ++id) {
      REQUIRE(post_receive(qps[i], 100 + id) == 0);
      REQUIRE(post_receive(far[i], id) == 0);
      REQUIRE(post(qps[i], {id}) == 0);
      expect(peers, id);
      REQUIRE(post(far[i], {id}) == 0);
      expect(peers, id);
    }
  }
  std::size_t sends[2] = {}, receives[2] = {};
  for (const ibv_wc& wc : poll(one, 6)) {
    const std::size_t which = wc.qp_num == qps[1]->qp_num ? 1 : 0;
    CHECK(wc.qp_num == qps[which]->qp_num);
    ++(wc.opcode == IBV_WC_RECV ? receives : sends)[which];
  }
  CHECK((sends[0] == 2 && sends[1] == 2 && receives[0] == 2 && receives[1] == 0));
  for (const ibv_wc& wc : poll(other, 2)) {
    CHECK(wc.qp_num == qps[1]->qp_num);
    CHECK(wc.opcode == IBV_WC_RECV);
  }
}

TEST_CASE("V-CQ-04: a completion queue smaller than the work it serves does, as long as it is polled",
          "[wired][V-CQ-04][V-POLL-03][V-WR-15]") {
  WiredPair t(64);
  ibv_cq* small = t.a.make_cq(4);
  REQUIRE(small->cqe == 4);
  ibv_qp* qp = t.a.make_qp(small, small, 64);
  ibv_qp* far = t.b.make_qp(t.end_b.send_cq, t.end_b.receive_cq, 64);
  REQUIRE(qp != nullptr);
  t.join(qp, far);
  for (std::uint64_t i = 0; i < 64; ++i) {
    REQUIRE(post_receive(qp, i) == 0);
    REQUIRE(post_receive(far, i) == 0);
    REQUIRE(post(qp, {i, IBV_WR_SEND, i % 32 == 31 ? unsigned{IBV_SEND_SIGNALED} : 0u}) == 0);
  }
  for (const std::uint64_t id : {31, 63}) expect(small, id);
  CHECK(state_of(qp) == IBV_QPS_RTS);
  CHECK_FALSE(next_async(t.a, 0));
}

TEST_CASE("V-CQ-06: a completion queue that overflows harms those who report to it, and nobody else",
          "[wired][V-CQ-05][V-CQ-06][V-AE-33][V-AE-34][V-AE-37][V-ERR-03][V-ERR-04][V-SEC-14][V-EH-39]") {
  WiredPair t(64);
  const bool of_receives = GENERATE(false, true);
  ibv_cq* small = t.a.make_cq(4);
  ibv_qp* qp = of_receives ? t.a.make_qp(t.end_a.send_cq, small, 64) : t.a.make_qp(small, t.end_a.receive_cq, 64);
  ibv_qp* far = t.b.make_qp(t.end_b.send_cq, t.end_b.receive_cq, 64);
  t.join(qp, far);
  for (std::uint64_t i = 0; i < 5; ++i) {
    if (of_receives) {
      REQUIRE(post_receive(qp, i) == 0);
    } else {
      REQUIRE(post_receive(far, i) == 0);
      REQUIRE(post(qp, {i}) == 0);
    }
  }
  if (of_receives) {  // who was called speaks second
    REQUIRE(post(qp, {9, IBV_WR_RDMA_WRITE}) == 0);
    expect(t.end_a.send_cq, 9);
    for (std::uint64_t i = 0; i < 5; ++i) REQUIRE(post(far, {i, IBV_WR_SEND, 0}) == 0);
  }
  REQUIRE(comes_true([&] { return state_of(qp) == IBV_QPS_ERR; }));
  bool of_queue = false, of_pair = false;
  while (const auto told = next_async(t.a, 200)) {
    of_queue |= told->type == IBV_EVENT_CQ_ERR && told->object == reinterpret_cast<std::uintptr_t>(small);
    of_pair |= told->type == IBV_EVENT_QP_FATAL && told->object == reinterpret_cast<std::uintptr_t>(qp);
    CHECK(told->object != reinterpret_cast<std::uintptr_t>(t.end_a.qp));
  }
  CHECK(of_queue);
  CHECK(of_pair);
  // The others of the same application go on.
  CHECK(state_of(t.end_a.qp) == IBV_QPS_RTS);
  REQUIRE(post_receive(t.end_b.qp, 5) == 0);
  REQUIRE(post(t.end_a.qp, {6, IBV_WR_RDMA_WRITE, 0, t.end_b.remote()}, {t.end_a.sge(0, 64)}) == 0);
  REQUIRE(post(t.end_a.qp, {7}) == 0);
  ibv_wc wc{};
  REQUIRE(comes_true([&] { return provider::poll_cq(t.end_a.send_cq, 1, &wc) == 1 && wc.wr_id == 7; }));
  CHECK(wc.status == IBV_WC_SUCCESS);
}

TEST_CASE("V-CQ-07: a completion queue is resized up and down under traffic: none is lost, repeated or out of order",
          "[wired][V-CQ-07][V-CQ-12][V-CQ-11][V-VB-08]") {
  WiredPair t(64);
  constexpr std::uint64_t kSends = 3000;
  std::atomic<bool> done = false;
  std::atomic<int> failures = 0, resizes = 0;
  std::thread resizer([&] {
    for (int i = 0; !done; ++i) {
      for (ibv_cq* cq : {t.end_a.send_cq, t.end_b.receive_cq})
        if (provider::resize_cq(cq, i % 2 == 0 ? 256 : 2048) != 0) ++failures;
      ++resizes;
      usleep(200);
    }
  });
  std::uint64_t posted = 0, sent = 0, came = 0;
  bool right = true;
  const bool all = comes_true([&] {
    while (posted < kSends && posted - sent < 64 && posted - came < 64) {
      right &= post_receive(t.end_b.qp, posted) == 0 && post(t.end_a.qp, {posted}) == 0;
      ++posted;
    }
    ibv_wc wc{};
    while (provider::poll_cq(t.end_a.send_cq, 1, &wc) == 1) right &= wc.wr_id == sent++ && wc.status == IBV_WC_SUCCESS;
    while (provider::poll_cq(t.end_b.receive_cq, 1, &wc) == 1)
      right &= wc.wr_id == came++ && wc.status == IBV_WC_SUCCESS;
    return sent == kSends && came == kSends;
  });
  done = true;
  resizer.join();
  CHECK(all);
  CHECK(right);
  CHECK(failures == 0);
  CHECK(resizes > 2);
  CHECK_FALSE(next_async(t.a, 0));
  CHECK_FALSE(next_async(t.b, 0));
}

TEST_CASE("V-CQ-08: a completion queue is not made smaller than what is in it",
          "[wired][V-CQ-08][V-CQ-12][V-IS-10][V-VB-08][V-IMM-01]") {
  WiredPair t(64);
  for (std::uint64_t i = 0; i < 20; ++i) REQUIRE(post(t.end_a.qp, {i, IBV_WR_RDMA_WRITE}) == 0);
  REQUIRE(post(t.end_a.qp, {20, IBV_WR_RDMA_READ, 0}) == 0);
  REQUIRE(post(t.end_a.qp, {21, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | IBV_SEND_FENCE}) == 0);
  REQUIRE(comes_true([&] { return (provider::of(t.end_a.send_cq).entries[20].phase) != 0; }));
  const int size = t.end_a.send_cq->cqe;
  CHECK(provider::resize_cq(t.end_a.send_cq, 16) == EINVAL);
  CHECK(provider::resize_cq(t.end_a.send_cq, 0) == EINVAL);
  CHECK(provider::resize_cq(t.end_a.send_cq, static_cast<int>(control::kCqesMax) + 1) == EINVAL);
  CHECK(t.end_a.send_cq->cqe == size);
  REQUIRE(provider::resize_cq(t.end_a.send_cq, 32) == 0);
  CHECK(t.end_a.send_cq->cqe == 32);
  for (std::uint64_t i = 0; i < 20; ++i) expect(t.end_a.send_cq, i);
  expect(t.end_a.send_cq, 21);
  CHECK_FALSE(next_async(t.a, 0));
}

TEST_CASE("V-CQ-07: a completion queue of a million is resized with work outstanding and a queue's depth unpolled",
          "[wired][V-CQ-07][V-CQ-08][V-CQ-12][V-VB-08]") {
  Wired t;
  constexpr std::uint32_t kDepth = control::kWorkRequestsMax;
  constexpr int kMost = control::kCqesMax;
  ibv_cq* cq = t.a.make_cq(4);
  ibv_cq* far_cq = t.b.make_cq(kMost);
  ibv_qp* qp = t.a.make_qp(cq, cq, kDepth);
  ibv_qp* far = t.b.make_qp(far_cq, far_cq, kDepth);
  t.join(qp, far);
  REQUIRE(provider::resize_cq(cq, kMost) == 0);
  CHECK(cq->cqe == kMost);
  for (std::uint64_t i = 0; i < kDepth; ++i) {
    if (post_receive(far, i) != 0 || post(qp, {i}) != 0) FAIL("refused at " << i);
    if (i != kDepth / 2) continue;
    REQUIRE(provider::resize_cq(far_cq, kDepth) == 0);  // with the half of them under way
    REQUIRE(provider::resize_cq(far_cq, kMost) == 0);
  }
  for (ibv_cq* each : {cq, far_cq}) {
    const auto& last = provider::of(each).entries[kDepth - 1].phase;
    REQUIRE(comes_true([&] { return std::atomic_ref(const_cast<std::uint32_t&>(last)).load() != 0; }));
    CHECK(provider::resize_cq(each, kDepth / 2) == EINVAL);
    CHECK(each->cqe == kMost);
    REQUIRE(provider::resize_cq(each, kDepth) == 0);  // it is full
    REQUIRE(provider::resize_cq(each, kMost) == 0);
    std::uint64_t next = 0;
    for (const ibv_wc& wc : poll(each, kDepth))
      if (wc.wr_id != next++ || wc.status != IBV_WC_SUCCESS) FAIL("wrong at " << next - 1);
  }
  CHECK_FALSE(next_async(t.a, 0));
  CHECK_FALSE(next_async(t.b, 0));
}

TEST_CASE("V-QRN-03: a queue has all the depth that is reported, and a completion queue its entries",
          "[wired][V-QRN-03][V-QRN-08][V-WR-07][V-IS-37][V-VB-06]") {
  Wired t;
  constexpr std::uint32_t kDepth = control::kWorkRequestsMax;
  ibv_cq* cq = t.a.make_cq(control::kCqesMax);
  REQUIRE(cq != nullptr);
  CHECK(cq->cqe == static_cast<int>(control::kCqesMax));
  CHECK(t.a.make_cq(control::kCqesMax + 1) == nullptr);
  CHECK(errno == EINVAL);
  ibv_cq* far_cq = t.b.make_cq(kDepth);
  ibv_qp* qp = t.a.make_qp(cq, cq, kDepth);
  ibv_qp* far = t.b.make_qp(far_cq, far_cq, kDepth);
  REQUIRE(qp != nullptr);
  REQUIRE(far != nullptr);
  CHECK(t.a.make_qp(cq, cq, kDepth + 1) == nullptr);
  CHECK(errno == EINVAL);
  for (std::uint64_t i = 0; i < kDepth; ++i) {
    if (post(qp, {i}) != 0 || post_receive(far, i) != 0) FAIL("refused at " << i);
  }
  CHECK(post(qp, {0}) == ENOMEM);
  CHECK(post_receive(far, 0) == ENOMEM);
  t.join(qp, far);
  for (ibv_cq* each : {cq, far_cq}) {
    std::uint64_t next = 0;
    for (const ibv_wc& wc : poll(each, kDepth))
      if (wc.wr_id != next++ || wc.status != IBV_WC_SUCCESS) FAIL("wrong at " << next - 1);
  }
}

// ---- events --------------------------------------------------------------------------------------

TEST_CASE("V-NTF-02: there is one event for each arming, and the completions stay where they are",
          "[wired][V-NTF-01][V-NTF-02][V-NTF-03][V-NTF-05][V-NTF-08][V-NTF-09][V-CQA-01][V-CQA-03][V-VB-07]"
          "[V-VB-29][V-VB-30][V-IS-13][V-POLL-01][V-VB-28]") {
  WiredPair t;
  ibv_comp_channel channel = t.make_channel(), other_channel = t.make_channel();
  ibv_cq* cq = provider::create_cq(&t.b.context->verbs.context, 64, &channel, 0);
  ibv_cq* send_cq = t.b.make_cq(64, &other_channel);
  REQUIRE(cq != nullptr);
  CHECK(cq->channel == &channel);
  CHECK(cq->cqe == 64);
  ibv_qp* called = t.b.make_qp(send_cq, cq, 64);
  ibv_qp* caller = t.a.make_qp(t.end_a.send_cq, t.end_a.receive_cq, 64);
  t.join(caller, called);
  for (std::uint64_t i = 0; i < 64; ++i) REQUIRE(post_receive(called, i) == 0);
  Sender sender{caller, t.end_a.send_cq};
  ibv_wc wc{};
  CHECK(provider::poll_cq(cq, 1, &wc) == 0);  // V-IS-13

  sender.send();  // not armed
  CHECK(silent(channel));
  REQUIRE(provider::req_notify_cq(cq, 0) == 0);  // what is there is no event
  CHECK(silent(channel));
  for (int i = 0; i < 5; ++i) sender.send();
  CHECK(events_of(channel) == std::vector<const void*>{cq});
  for (int i = 0; i < 3; ++i) REQUIRE(provider::req_notify_cq(cq, 0) == 0);
  for (int i = 0; i < 5; ++i) sender.send();
  CHECK(events_of(channel) == std::vector<const void*>{cq});
  for (int i = 0; i < 4; ++i) {
    REQUIRE(provider::req_notify_cq(cq, 0) == 0);
    sender.send();
    CHECK(events_of(channel) == std::vector<const void*>{cq});
  }
  CHECK(silent(other_channel));
  for (std::uint64_t i = 0; i < 15; ++i) expect(cq, i);
  CHECK(provider::poll_cq(cq, 1, &wc) == 0);
}

TEST_CASE("V-NTF-04: who waits for solicited completions hears of those, and of errors, and of no other",
          "[wired][V-NTF-04][V-NTF-06][V-SR-09][V-CS-02]") {
  WiredPair t;
  ibv_comp_channel channel = t.make_channel();
  ibv_cq* cq = t.b.make_cq(64, &channel);
  ibv_qp* called = t.b.make_qp(t.end_b.send_cq, cq, 64);
  ibv_qp* caller = t.a.make_qp(t.end_a.send_cq, t.end_a.receive_cq, 64);
  t.join(caller, called);
  for (std::uint64_t i = 0; i < 16; ++i) REQUIRE(post_receive(called, i) == 0);
  Sender sender{caller, t.end_a.send_cq};
  REQUIRE(provider::req_notify_cq(cq, 1) == 0);
  for (int i = 0; i < 3; ++i) sender.send();
  CHECK(silent(channel));
  sender.send(IBV_SEND_SOLICITED);
  sender.send(IBV_SEND_SOLICITED);
  CHECK(events_of(channel).size() == 1);
  // One for any completion is not weakened by one for solicited.
  REQUIRE(provider::req_notify_cq(cq, 0) == 0);
  REQUIRE(provider::req_notify_cq(cq, 1) == 0);
  sender.send();
  CHECK(events_of(channel).size() == 1);
  REQUIRE(provider::req_notify_cq(cq, 1) == 0);
  sender.send();
  CHECK(silent(channel));
  REQUIRE(to_state(called, IBV_QPS_ERR) == 0);
  CHECK(events_of(channel).size() == 1);
}

// ---- shared receive queues -----------------------------------------------------------------------

namespace {

// Two queue pairs of b that share their receives and report to queues of their own, each with a peer at a.
struct Sharing : Wired {
  explicit Sharing(std::uint32_t depth = 8, bool own_domain = false) {
    srq = b.make_srq(depth);
    domain = b.pd;
    mr = b.make_mr(memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (own_domain) b.pd = provider::alloc_pd(&b.context->verbs.context);
    for (int i = 0; i < 2; ++i) {
      near_cq[i] = a.make_cq(256);
      cq[i] = b.make_cq(256);
      callers[i] = a.make_qp(near_cq[i], near_cq[i], 64);
      called[i] = b.make_qp(cq[i], cq[i], 64, srq);
      join(callers[i], called[i]);
    }
  }
  ~Sharing() { end(); }
  int take(std::uint64_t id, std::uint32_t lkey = 0) {
    ibv_sge sge = sge_of(mr, memory.data() + 16 * (id % 64), 16);
    if (lkey != 0) sge.lkey = lkey;
    return post_receive(srq, id, {sge});
  }
  // A Send of one octet, which is done.
  void send(int by, char octet) {
    const ibv_sge sge{reinterpret_cast<std::uintptr_t>(&octet), 1, 0};
    REQUIRE(post(callers[by], {70, IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_INLINE}, {sge}) == 0);
    expect(near_cq[by], 70);
  }
  // What it took next.
  void took(int which, std::uint64_t id, char octet) {
    const ibv_wc wc = poll(cq[which], 1)[0];
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.wr_id == id);
    CHECK(wc.qp_num == called[which]->qp_num);
    CHECK(wc.byte_len == 1);
    CHECK(memory[16 * (id % 64)] == octet);
  }
  bool nothing(int which) {
    ibv_wc wc{};
    return provider::poll_cq(cq[which], 1, &wc) == 0;
  }

  std::vector<char> memory = std::vector<char>(1024);
  ibv_srq* srq = nullptr;
  ibv_pd* domain = nullptr;
  ibv_mr* mr = nullptr;
  ibv_cq* near_cq[2] = {};
  ibv_cq* cq[2] = {};
  ibv_qp* callers[2] = {};
  ibv_qp* called[2] = {};
};

}  // namespace

TEST_CASE("V-SRQ-12: any queue pair may take all of a shared queue, one receive for each message, in its order",
          "[wired][V-SRQ-12][V-SRQ-13][V-SRQ-11][V-SRQ-03][V-POLL-10][V-QQP-02][V-SRQ-01][V-SRQ-07]") {
  Sharing t(8);
  for (int round = 0; round < 2; ++round) {
    for (std::uint64_t i = 0; i < 8; ++i) REQUIRE(t.take(i) == 0);
    CHECK(t.take(8) == ENOMEM);
    for (std::uint64_t i = 0; i < 8; ++i) t.send(round, static_cast<char>('a' + i));
    for (std::uint64_t i = 0; i < 8; ++i) t.took(round, i, static_cast<char>('a' + i));
    CHECK(t.nothing(0));
    CHECK(t.nothing(1));
  }
  // In turns: each message takes the next.
  for (std::uint64_t i = 0; i < 8; ++i) REQUIRE(t.take(10 + i) == 0);
  for (std::uint64_t i = 0; i < 8; ++i) {
    const int by = i % 3 == 0 ? 1 : 0;
    t.send(by, static_cast<char>('A' + i));
    t.took(by, 10 + i, static_cast<char>('A' + i));
  }
  for (int i = 0; i < 2; ++i) {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr init{};
    REQUIRE(provider::query_qp(t.called[i], &attributes, IBV_QP_STATE, &init) == 0);
    CHECK(init.srq == t.srq);
  }
}

TEST_CASE("V-SRQ-14: where a shared queue is empty messages wait, of each queue pair in order, and others go on",
          "[wired][V-SRQ-14][V-SRQ-11][V-SR-05][V-SR-12]") {
  Sharing t(8);
  ibv_qp* caller = t.a.make_qp(t.near_cq[0], t.near_cq[0], 8);
  ibv_cq* cq = t.b.make_cq(8);
  ibv_qp* called = t.b.make_qp(cq, cq, 8);
  t.join(caller, called);
  // The Sends are done where they were posted, whatever the peer has of them (V-SR-12).
  for (int i = 0; i < 3; ++i) t.send(0, static_cast<char>('a' + i));
  CHECK(t.nothing(0));
  REQUIRE(post_receive(called, 5) == 0);
  REQUIRE(post(caller, {6}) == 0);
  expect(t.near_cq[0], 6);
  expect(cq, 5);
  for (std::uint64_t i = 0; i < 4; ++i) REQUIRE(t.take(i) == 0);
  for (std::uint64_t i = 0; i < 3; ++i) t.took(0, i, static_cast<char>('a' + i));
  t.send(1, 'z');
  t.took(1, 3, 'z');
  for (int i = 0; i < 2; ++i) CHECK(state_of(t.called[i]) == IBV_QPS_RTS);
}

TEST_CASE("V-SRQ-18: a bad receive of a shared queue fails the queue pair that took it, and no other",
          "[wired][V-SRQ-18][V-SRQ-16][V-SRQ-19][V-STAG-08]") {
  Sharing t(8);
  constexpr std::uint32_t kNobodys = 0xdeadbe00;
  const bool zero = GENERATE(false, true);
  REQUIRE(t.take(0) == 0);
  if (zero) {
    REQUIRE(post_receive(t.srq, 1, {ibv_sge{reinterpret_cast<std::uintptr_t>(t.memory.data()), 16, 0}}) == 0);
  } else {
    REQUIRE(t.take(1, kNobodys) == 0);
  }
  REQUIRE(t.take(2) == 0);
  t.send(0, 'a');
  t.took(0, 0, 'a');
  t.send(1, 'b');
  const ibv_wc wc = poll(t.cq[1], 1)[0];
  CHECK(wc.wr_id == 1);
  CHECK(wc.status == IBV_WC_LOC_PROT_ERR);
  CHECK(wc.qp_num == t.called[1]->qp_num);
  REQUIRE(comes_true([&] { return state_of(t.called[1]) == IBV_QPS_ERR; }));
  CHECK(state_of(t.called[0]) == IBV_QPS_RTS);
  t.send(0, 'c');
  t.took(0, 2, 'c');
  CHECK(t.nothing(1));
}

TEST_CASE("V-SRQ-17: a peer invalidates by the queue pair's domain, not by the shared queue's",
          "[wired][V-SRQ-17][V-SRQ-15][V-CS-11]") {
  Sharing t(8, true);
  REQUIRE(t.take(0) == 0);
  REQUIRE(t.take(1) == 0);
  t.send(0, 'a');
  t.took(0, 0, 'a');  // into the shared queue's domain
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND_WITH_INV;
  wr.invalidate_rkey = t.mr->rkey;
  ibv_send_wr* bad = nullptr;
  REQUIRE(provider::post_send(t.callers[0], &wr, &bad) == 0);
  const ibv_wc wc = poll(t.cq[0], 1)[0];
  CHECK(wc.wr_id == 1);
  CHECK(wc.status == IBV_WC_LOC_ACCESS_ERR);
  CHECK(wc.vendor_err == RNIC_WC_INVALIDATE_PD_ACCESS);
  // The region is as it was.
  REQUIRE(t.take(2) == 0);
  t.send(1, 'b');
  t.took(1, 2, 'b');
}

TEST_CASE("V-SRQ-05: the send queue of one whose receives are shared is like any other",
          "[wired][V-SRQ-05][V-ERRST-03][V-WR-05]") {
  Sharing t(8);
  std::vector<char> near(64, 'n');
  ibv_mr* reachable =
      t.a.make_mr(near.data(), near.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  REQUIRE(t.take(0) == 0);
  t.send(0, 'a');
  t.took(0, 0, 'a');
  const Remote remote{reinterpret_cast<std::uintptr_t>(near.data()), reachable->rkey};
  REQUIRE(post_receive(t.callers[0], 3) == 0);
  std::strcpy(t.memory.data() + 512, "written");
  REQUIRE(post(t.called[0], {1, IBV_WR_RDMA_WRITE, 0, remote}, {sge_of(t.mr, t.memory.data() + 512, 8)}) == 0);
  REQUIRE(post(t.called[0], {2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, remote},
               {sge_of(t.mr, t.memory.data() + 600, 8)}) == 0);
  REQUIRE(post(t.called[0], {4}) == 0);
  expect(t.cq[0], 2);
  expect(t.cq[0], 4);
  expect(t.near_cq[0], 3);
  CHECK(std::strcmp(near.data(), "written") == 0);
  CHECK(std::strcmp(t.memory.data() + 600, "written") == 0);
  // As many as its depth, and no more; what is not done is flushed.
  for (std::uint64_t i = 0; i < 64; ++i) REQUIRE(post(t.called[0], {i, IBV_WR_SEND, 0}) == 0);
  CHECK(post(t.called[0], {64}) == ENOMEM);
  ibv_sge bad = sge_of(t.mr, t.memory.data(), 8);
  bad.lkey ^= 1;
  REQUIRE(post(t.called[1], {7}, {bad}) == 0);
  REQUIRE(post(t.called[1], {8}) == 0);
  expect(t.cq[1], 7, IBV_WC_LOC_PROT_ERR);
  expect(t.cq[1], 8, IBV_WC_WR_FLUSH_ERR);
}

TEST_CASE("V-SRZ-01: a shared queue is resized up and down under traffic, while others post and poll",
          "[wired][V-SRZ-01][V-SRZ-02][V-SRQ-11][V-SRQ-12][V-VB-12][V-QRN-20]") {
  Sharing t(64);
  ibv_device_attr_ex device{};
  REQUIRE(provider::query_device_ex(&t.b.context->verbs.context, nullptr, &device, sizeof device) == 0);
  CHECK((device.orig_attr.device_cap_flags & IBV_DEVICE_SRQ_RESIZE) != 0);
  constexpr std::uint64_t kSends = 3000;  // of each queue pair
  std::atomic<bool> done = false;
  std::atomic<int> failures = 0, resizes = 0;
  std::thread resizer([&] {
    for (std::uint32_t i = 0; !done; ++i) {
      ibv_srq_attr attributes{};
      attributes.max_wr = std::array{64u, 4096u, 128u, control::kSrqWorkRequestsMax}[i % 4];
      if (provider::modify_srq(t.srq, &attributes, IBV_SRQ_MAX_WR) != 0) ++failures;
      ++resizes;
      usleep(200);
    }
  });
  std::vector<char> octets(2 * kSends);
  const ibv_mr* mr = t.b.make_mr(octets.data(), octets.size(), IBV_ACCESS_LOCAL_WRITE);
  std::atomic<std::uint64_t> received = 0, posted = 0;
  std::thread poster([&] {  // no more than 64 at a time: what the smallest size has room for
    while (!done) {
      if (posted - received >= 64 || posted == 2 * kSends)
        sched_yield();
      else if (post_receive(t.srq, posted, {sge_of(mr, &octets[posted], 1)}) == 0)
        ++posted;
      else
        ++failures;
    }
  });
  std::uint64_t sent[2] = {}, told[2] = {}, came[2] = {};
  std::vector<bool> ids(2 * kSends);
  bool right = true;
  const bool all = comes_true([&] {
    ibv_wc wc{};
    for (int i = 0; i < 2; ++i) {
      while (sent[i] < kSends && sent[i] - told[i] < 16) {
        // Its number of the queue pair's messages: they come in order, whatever receives they take.
        const auto number = static_cast<char>(sent[i] % 100);
        const ibv_sge sge{reinterpret_cast<std::uintptr_t>(&number), 1, 0};
        right &= post(t.callers[i], {sent[i], IBV_WR_SEND, IBV_SEND_SIGNALED | IBV_SEND_INLINE}, {sge}) == 0;
        ++sent[i];
      }
      while (provider::poll_cq(t.near_cq[i], 1, &wc) == 1)
        right &= wc.wr_id == told[i]++ && wc.status == IBV_WC_SUCCESS;
      while (provider::poll_cq(t.cq[i], 1, &wc) == 1) {
        right &= wc.status == IBV_WC_SUCCESS && wc.wr_id < 2 * kSends && !ids[wc.wr_id];
        if (!right) return true;
        ids[wc.wr_id] = true;
        right &= octets[wc.wr_id] == static_cast<char>(came[i]++ % 100);
        ++received;
      }
    }
    return received == 2 * kSends;
  });
  done = true;
  resizer.join();
  poster.join();
  CHECK(all);
  CHECK(right);
  CHECK(failures == 0);
  CHECK(resizes > 4);
  CHECK_FALSE(next_async(t.a, 0));
  CHECK_FALSE(next_async(t.b, 0));
}

TEST_CASE("V-SRA-01: a shared queue tells its depth, its SGEs and its limit, which is 0 once it has been told",
          "[wired][V-SRA-01][V-SRA-02][V-VB-11][V-VB-12][V-LIM-07][V-QRN-04][V-IS-03][V-IS-17]") {
  Sharing t(8);
  const auto query = [&] {
    ibv_srq_attr attributes{};
    REQUIRE(provider::query_srq(t.srq, &attributes) == 0);
    return attributes;
  };
  const auto arm = [&](std::uint32_t limit, int mask = IBV_SRQ_LIMIT) {
    ibv_srq_attr attributes{};
    attributes.srq_limit = limit;
    return provider::modify_srq(t.srq, &attributes, mask);
  };
  CHECK(query().max_wr == 8);
  CHECK(query().max_sge == 4);
  CHECK(query().srq_limit == 0);
  CHECK(t.srq->pd == t.domain);
  for (std::uint64_t i = 0; i < 6; ++i) REQUIRE(t.take(i) == 0);
  CHECK(arm(9) == EINVAL);
  CHECK(arm(3, IBV_SRQ_LIMIT | 0x80) == EINVAL);
  CHECK(query().srq_limit == 0);
  REQUIRE(arm(5) == 0);
  CHECK(query().srq_limit == 5);
  t.send(0, 'a');
  CHECK_FALSE(next_async(t.b, 20));
  t.send(0, 'b');
  const auto told = next_async(t.b, 10'000);
  REQUIRE(told);
  CHECK(told->type == IBV_EVENT_SRQ_LIMIT_REACHED);
  CHECK(told->object == reinterpret_cast<std::uintptr_t>(t.srq));
  CHECK(query().srq_limit == 0);
  // V-LIM-07: nothing but the event came of it, and all goes on.
  for (std::uint64_t i = 0; i < 2; ++i) t.took(0, i, static_cast<char>('a' + i));
  CHECK(t.nothing(0));
  CHECK(t.nothing(1));
  t.send(1, 'c');
  t.took(1, 2, 'c');
  CHECK(query().max_wr == 8);
  ibv_srq_init_attr init{};
  init.attr = {control::kSrqWorkRequestsMax, 1, 0};
  ibv_srq* largest = provider::create_srq(t.domain, &init);
  REQUIRE(largest != nullptr);
  CHECK(init.attr.max_wr == control::kSrqWorkRequestsMax);
  CHECK(provider::query_srq(largest, &init.attr) == 0);
  CHECK(init.attr.max_wr == control::kSrqWorkRequestsMax);
  init.attr = {control::kSrqWorkRequestsMax + 1, 1, 0};
  CHECK(provider::create_srq(t.domain, &init) == nullptr);
  CHECK(errno == EINVAL);
}
