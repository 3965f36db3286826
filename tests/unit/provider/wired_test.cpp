// What an application sees of two queue pairs that are connected: the real provider, daemon and data plane between
// them.
#include "unit/provider/wired.hpp"

#include <atomic>
#include <cstring>
#include <thread>

using namespace rnic;
using namespace rnic::test;

namespace {

// A poll by a thread that does nothing else.
ibv_wc polled_elsewhere(ibv_cq* cq) {
  ibv_wc wc{};
  int found = 0;
  std::thread([&] { found = provider::poll_cq(cq, 1, &wc); }).join();
  REQUIRE(found == 1);
  return wc;
}

// Full of work that has been done: takes nothing before a poll, and one for each.
template <typename Post>
void takes_one_for_each_poll(ibv_cq* cq, std::uint32_t depth, const Post& post) {
  CHECK(post(depth) == ENOMEM);
  for (std::uint64_t i = 0; i < depth; ++i) {
    CHECK(polled_elsewhere(cq).wr_id == i);
    CHECK(post(depth + i) == 0);
    CHECK(post(99) == ENOMEM);
  }
}

ibv_srq* small_srq(Application& app) { return app.make_srq(4); }

}  // namespace

TEST_CASE("V-WR-05: work that is done keeps its slots until it is polled, by whatever thread",
          "[wired][V-WR-05][V-WR-07][V-SRQ-07]") {
  SECTION("of a send queue") {
    WiredPair t(4);
    const auto write = [&](std::uint64_t id) {
      return post(t.end_a.qp, {id, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, t.end_b.remote(id % 4)}, {t.end_a.sge(0, 1)});
    };
    t.end_a.memory[0] = 'w';
    for (std::uint64_t i = 0; i < 4; ++i) REQUIRE(write(i) == 0);
    volatile const char& last = t.end_b.memory[3];
    REQUIRE(comes_true([&] { return last == 'w'; }));
    takes_one_for_each_poll(t.end_a.send_cq, 4, write);
  }
  SECTION("of a receive queue, and of a shared one") {
    const bool shared = GENERATE(false, true);
    WiredPair t(4, shared ? small_srq : nullptr);
    const auto take = [&](std::uint64_t id) { return shared ? post_receive(t.srq, id) : post_receive(t.end_b.qp, id); };
    for (std::uint64_t i = 0; i < 4; ++i) REQUIRE(take(i) == 0);
    for (std::uint64_t i = 0; i < 4; ++i) {
      REQUIRE(post(t.end_a.qp, {i}) == 0);
      expect(t.end_a.send_cq, i);
    }
    // Behind the Sends: when it is answered they are delivered.
    REQUIRE(post(t.end_a.qp, {9, IBV_WR_RDMA_READ}, {}) == 0);
    expect(t.end_a.send_cq, 9);
    takes_one_for_each_poll(t.end_b.receive_cq, 4, take);
  }
}

namespace {

// Writes without end into all of b's memory, until one fails.
class Stream {
 public:
  explicit Stream(WiredPair& pair) : pair_(pair), thread_([this] { run(); }) {}
  ~Stream() {
    stop_ = true;
    thread_.join();
  }
  bool ended() const { return ended_; }

 private:
  void run() {
    ibv_wc wc{};
    for (std::uint64_t count = 1; !stop_ && !ended_; ++count) {
      std::memset(pair_.end_a.memory.data(), static_cast<char>(count), WiredPair::kBytes);
      post(pair_.end_a.qp, {count, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, pair_.end_b.remote()},
           {pair_.end_a.sge(0, WiredPair::kBytes)});
      while (provider::poll_cq(pair_.end_a.send_cq, 1, &wc) == 1)
        if (wc.status != IBV_WC_SUCCESS) ended_ = true;
    }
  }
  WiredPair& pair_;
  std::atomic<bool> stop_ = false, ended_ = false;
  std::thread thread_;
};

// 0: done, and said to be.
int invalidate_by_work(WiredPair::End& end) {
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_LOCAL_INV;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.invalidate_rkey = end.mr->rkey;
  ibv_send_wr* bad = nullptr;
  if (const int error = provider::post_send(end.qp, &wr, &bad); error != 0) return error;
  ibv_wc wc{};
  const bool told = comes_true([&] { return provider::poll_cq(end.send_cq, 1, &wc) == 1; });
  return told && wc.status == IBV_WC_SUCCESS ? 0 : EIO;
}

}  // namespace

TEST_CASE("V-MR-20: once a region is deregistered or invalidated nothing more is written to it, whatever is on its way",
          "[wired][V-MR-20][V-INV-10][V-SEC-07][V-AE-16]") {
  WiredPair t;
  for (int round = 0; round < 6; ++round) {
    std::fill(t.end_b.memory.begin(), t.end_b.memory.end(), '\0');
    const bool by_work = round % 2 != 0;
    std::vector<char> then;
    {
      const Stream stream(t);
      volatile const char& last = t.end_b.memory[WiredPair::kBytes - 1];
      CHECK(comes_true([&] { return last > 2; }));
      const int error = by_work ? invalidate_by_work(t.end_b) : provider::dereg_mr(t.end_b.mr);
      then = t.end_b.memory;
      CHECK(error == 0);
      CHECK(comes_true([&] { return stream.ended(); }));
      usleep(20'000);
    }
    CHECK(then == t.end_b.memory);
    const auto told = next_async(t.b, 10'000);
    REQUIRE(told);
    CHECK(told->object == reinterpret_cast<std::uintptr_t>(t.end_b.qp));
    CHECK(told->type == IBV_EVENT_QP_ACCESS_ERR);
    if (by_work) REQUIRE(provider::dereg_mr(t.end_b.mr) == 0);
    t.end_b.mr = t.b.make_mr(t.end_b.memory.data(), WiredPair::kBytes, WiredPair::kRemote);
    REQUIRE(t.end_b.mr != nullptr);
    t.join_again();
    while (next_async(t.a, 0) || next_async(t.b, 0)) {
    }
  }
}

TEST_CASE("V-ACC-07: accesses of no octets succeed under any STag, and a Read of none is a fence",
          "[wired][V-ACC-07][V-SGL-03][V-RD-07]") {
  WiredPair t;
  constexpr std::uint32_t kGarbage = 0xdeadbe00;
  const bool from_called = GENERATE(false, true);
  auto &from = from_called ? t.end_b : t.end_a, &to = from_called ? t.end_a : t.end_b;
  if (from_called) {  // who was called speaks second
    REQUIRE(post_receive(t.end_b.qp, 1) == 0);
    REQUIRE(post(t.end_a.qp, {1}) == 0);
    expect(t.end_b.receive_cq, 1);
    expect(t.end_a.send_cq, 1);
  }
  const ibv_sge nothing{8, 0, kGarbage};
  const Remote nowhere{0x7000, kGarbage};
  std::memset(from.memory.data(), 'z', WiredPair::kBytes);
  REQUIRE(post_receive(to.qp, 7, {nothing}) == 0);
  REQUIRE(post(from.qp, {10, IBV_WR_RDMA_WRITE, 0, to.remote()}, {from.sge(0, WiredPair::kBytes)}) == 0);
  REQUIRE(post(from.qp, {11, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, nowhere}, {nothing}) == 0);
  REQUIRE(post(from.qp, {12}, {nothing}) == 0);
  REQUIRE(post(from.qp, {13, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, nowhere}, {nothing}) == 0);
  expect(from.send_cq, 11);
  expect(from.send_cq, 12);
  expect(from.send_cq, 13);
  CHECK(to.memory == from.memory);
  ibv_wc wc{};
  REQUIRE(provider::poll_cq(to.receive_cq, 1, &wc) == 1);
  CHECK(wc.wr_id == 7);
  CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(wc.byte_len == 0);
}

TEST_CASE("V-WR-14: of a hundred unsignaled Sends the bad one and those behind it are told, and no other",
          "[wired][V-WR-14][V-ERRST-03][V-ERRST-04][V-WR-15]") {
  WiredPair t(128);
  for (std::uint64_t i = 0; i < 100; ++i) REQUIRE(post_receive(t.end_b.qp, i, {t.end_b.sge(0, 8)}) == 0);
  for (std::uint64_t i = 0; i < 49; ++i) REQUIRE(post(t.end_a.qp, {i, IBV_WR_SEND, 0}, {t.end_a.sge(0, 8)}) == 0);
  for (const ibv_wc& wc : poll(t.end_b.receive_cq, 49)) CHECK(wc.status == IBV_WC_SUCCESS);
  ibv_sge bad = t.end_a.sge(WiredPair::kBytes - 4, 8);  // four octets too many
  REQUIRE(post(t.end_a.qp, {1000, IBV_WR_SEND, 0}, {bad}) == 0);
  for (std::uint64_t i = 1001; i <= 1050; ++i) {
    const int error = post(t.end_a.qp, {i, IBV_WR_SEND, 0}, {t.end_a.sge(0, 8)});
    REQUIRE(error == 0);
  }
  const std::vector<ibv_wc> told = poll(t.end_a.send_cq, 51);
  CHECK(told[0].wr_id == 1000);
  CHECK(told[0].status == IBV_WC_LOC_PROT_ERR);
  for (std::size_t i = 1; i < told.size(); ++i) {
    CHECK(told[i].wr_id == 1000 + i);
    CHECK(told[i].status == IBV_WC_WR_FLUSH_ERR);
  }
  // At the other end what was not used, and nothing else at either.
  for (const ibv_wc& wc : poll(t.end_b.receive_cq, 51)) CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
  ibv_wc wc{};
  CHECK(provider::poll_cq(t.end_a.send_cq, 1, &wc) == 0);
  CHECK(provider::poll_cq(t.end_b.receive_cq, 1, &wc) == 0);
}

TEST_CASE("V-CLS-07: the same queue pairs are closed and connected again and again",
          "[wired][V-CLS-07][V-CONN-02][V-TDN-01]") {
  WiredPair t;
  for (std::uint64_t round = 0; round < 20; ++round) {
    for (auto* end : {&t.end_a, &t.end_b}) {
      REQUIRE(post_receive(end->qp, 1, {end->sge(0, 64)}) == 0);
      REQUIRE(post_receive(end->qp, 2, {end->sge(0, 64)}) == 0);
    }
    for (auto* end : {&t.end_a, &t.end_b}) {
      auto& other = end == &t.end_a ? t.end_b : t.end_a;
      REQUIRE(post(end->qp, {5}, {end->sge(64, 32)}) == 0);
      expect(end->send_cq, 5);
      expect(other.receive_cq, 1);
    }
    auto& closer = round % 2 == 0 ? t.end_a : t.end_b;
    REQUIRE(to_state(closer.qp, IBV_QPS_SQD) == 0);
    for (auto* end : {&t.end_a, &t.end_b}) {
      expect(end->receive_cq, 2, IBV_WC_WR_FLUSH_ERR);
      REQUIRE(comes_true([&] { return state_of(end->qp) == IBV_QPS_RESET; }));
    }
    CHECK_FALSE(next_async(t.a, 0));
    CHECK_FALSE(next_async(t.b, 0));
    t.forget(t.ids);
    t.ids = t.join(t.end_a.qp, t.end_b.qp);
  }
}

TEST_CASE("V-ACC-05: a region at an odd place ends to the octet at both ends, and no offset goes round",
          "[wired][V-ACC-05][V-ACC-06][V-SEC-04][V-AE-17][V-PBL-06]") {
  WiredPair t;
  constexpr std::size_t kAt = 4097, kSize = 61;
  ibv_mr* odd = t.b.make_mr(t.end_b.memory.data() + kAt, kSize, WiredPair::kRemote);
  REQUIRE(odd != nullptr);
  const std::uint64_t base = t.end_b.remote(kAt).address;
  std::memset(t.end_a.memory.data(), 'x', 128);
  const auto write = [&](std::uint64_t to, std::uint32_t length) {
    REQUIRE(post(t.end_a.qp, {1, IBV_WR_RDMA_WRITE, 0, {to, odd->rkey}}, {t.end_a.sge(0, length)}) == 0);
    // The Read is answered when the Write has been placed, or flushed when it has been refused.
    REQUIRE(post(t.end_a.qp, {2, IBV_WR_RDMA_READ}, {}) == 0);
    const ibv_wc wc = poll(t.end_a.send_cq, 1)[0];
    CHECK(wc.wr_id == 2);
    return wc.status == IBV_WC_SUCCESS;
  };
  CHECK(write(base, 1));
  CHECK(write(base + kSize - 1, 1));
  CHECK(t.end_b.memory[kAt] == 'x');
  CHECK(t.end_b.memory[kAt + 1] == 0);
  CHECK(t.end_b.memory[kAt + kSize - 1] == 'x');
  CHECK(write(base, kSize));
  const std::vector<char> before = t.end_b.memory;
  const std::pair<std::uint64_t, std::uint32_t> outside[] = {
      {base - 1, 1}, {base - 1, 2}, {base + kSize, 1}, {base + kSize - 1, 2}, {base, kSize + 1}, {~0ull, 2}};
  std::memset(t.end_a.memory.data(), 'y', 128);
  for (const auto& [to, length] : outside) {
    CHECK_FALSE(write(to, length));
    const auto told = next_async(t.b, 10'000);
    REQUIRE(told);
    CHECK(told->type == IBV_EVENT_QP_ACCESS_ERR);
    CHECK(t.end_b.memory == before);
    t.join_again();
    while (next_async(t.a, 0) || next_async(t.b, 0)) {
    }
  }
  CHECK(write(base + 1, kSize - 1));
}

// ---- shared receive queues ----

namespace {

// Two queue pairs of b, of another domain than the shared queue's, each with a peer at a.
struct SharedReceives : Wired {
  SharedReceives() {
    cq_a = a.make_cq(256);
    cq_b = b.make_cq(256);
    srq = b.make_srq(32);
    mr = b.make_mr(memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
    ibv_pd* const pd_of_srq = b.pd;
    b.pd = provider::alloc_pd(&b.context->verbs.context);
    REQUIRE(b.pd != nullptr);
    for (int i = 0; i < 2; ++i) {
      callers[i] = a.make_qp(cq_a, cq_a, 32);
      called[i] = b.make_qp(cq_b, cq_b, 32, srq);
      ids[i] = join(callers[i], called[i]);
    }
    b.pd = pd_of_srq;
  }
  ~SharedReceives() { end(); }
  void post_receives(std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t i = first; i < first + count; ++i)
      REQUIRE(post_receive(srq, i, {sge_of(mr, memory.data() + 8 * i, 8)}) == 0);
  }
  // A Send is completed at both ends.
  void send(int by, std::uint64_t expected) {
    REQUIRE(post(callers[by], {70, IBV_WR_SEND}) == 0);
    expect(cq_a, 70);
    const ibv_wc wc = poll(cq_b, 1)[0];
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.wr_id == expected);
    CHECK(wc.qp_num == called[by]->qp_num);
  }
  int arm(std::uint32_t limit) {
    ibv_srq_attr attributes{};
    attributes.srq_limit = limit;
    return provider::modify_srq(srq, &attributes, IBV_SRQ_LIMIT);
  }

  std::vector<char> memory = std::vector<char>(1024);
  ibv_cq *cq_a = nullptr, *cq_b = nullptr;
  ibv_srq* srq = nullptr;
  ibv_mr* mr = nullptr;
  ibv_qp* callers[2] = {};
  ibv_qp* called[2] = {};
  Ids ids[2];
};

}  // namespace

TEST_CASE("V-SRQ-19: when one queue pair of a shared queue fails the others use all that it has not used",
          "[wired][V-SRQ-19][V-SRQ-15][V-LIM-08]") {
  SharedReceives t;
  t.post_receives(0, 10);
  t.send(0, 0);
  t.send(1, 1);
  t.send(0, 2);
  REQUIRE(to_state(t.called[0], IBV_QPS_ERR) == 0);
  const auto told = next_async(t.b, 10'000);
  REQUIRE(told);
  CHECK(told->type == IBV_EVENT_QP_LAST_WQE_REACHED);
  ibv_wc wc{};
  CHECK(provider::poll_cq(t.cq_b, 1, &wc) == 0);
  for (std::uint64_t i = 3; i < 10; ++i) t.send(1, i);
  CHECK(state_of(t.called[1]) == IBV_QPS_RTS);
}

TEST_CASE("V-LIM-02: the limit of a shared queue is told once for each arming",
          "[wired][V-LIM-02][V-LIM-03][V-AE-39]") {
  SharedReceives t;
  t.post_receives(0, 8);
  REQUIRE(t.arm(6) == 0);
  const auto is_told = [&] {
    const auto told = next_async(t.b, 5'000);
    return told && told->type == IBV_EVENT_SRQ_LIMIT_REACHED && told->object == reinterpret_cast<std::uintptr_t>(t.srq);
  };
  t.send(0, 0);
  t.send(1, 1);
  CHECK_FALSE(next_async(t.b, 50));  // six are left: not below
  t.send(0, 2);
  CHECK(is_told());
  t.send(1, 3);
  t.send(0, 4);
  CHECK_FALSE(next_async(t.b, 50));
  ibv_srq_attr attributes{};
  REQUIRE(provider::query_srq(t.srq, &attributes) == 0);
  CHECK(attributes.srq_limit == 0);
  REQUIRE(t.arm(3) == 0);
  t.send(1, 5);
  CHECK(is_told());
  t.send(0, 6);
  CHECK_FALSE(next_async(t.b, 50));
}

// ---- Completions that say when they were made ------------------------------------------------------

TEST_CASE("a completion's time is when it was made, where that was asked for, and else it has none", "[wired]") {
  const bool timed = GENERATE(true, false);
  Wired t;
  ibv_cq_init_attr_ex init{};
  init.cqe = 16;
  init.wc_flags = timed ? IBV_WC_EX_WITH_COMPLETION_TIMESTAMP : 0;
  ibv_cq_ex* ex = provider::create_cq_ex(&t.a.context->verbs.context, &init);
  REQUIRE(ex != nullptr);
  ibv_cq* cq = ibv_cq_ex_to_cq(ex);
  ibv_cq* other = t.b.make_cq(16);
  ibv_qp* caller = t.a.make_qp(cq, cq, 16);
  ibv_qp* called = t.b.make_qp(other, other, 16);
  t.join(caller, called);
  for (std::uint64_t i = 0; i < 5; ++i) {
    REQUIRE(post_receive(called, i) == 0);
    const std::uint64_t before = provider::raw_clock();
    REQUIRE(post(caller, {i}) == 0);
    ibv_wc wc{};
    std::uint64_t made = 0;
    REQUIRE(comes_true([&] { return provider::poll_one(provider::of(cq), wc, made); }));
    CHECK(wc.wr_id == i);
    if (timed) {
      CHECK(made >= before);
      CHECK(made <= provider::raw_clock());
    } else {
      CHECK(made == 0);
    }
  }
  CHECK(provider::resize_cq(cq, 64) == 0);  // which changes nothing of that
  REQUIRE(post_receive(called, 5) == 0);
  REQUIRE(post(caller, {5}) == 0);
  ibv_wc wc{};
  std::uint64_t made = 0;
  REQUIRE(comes_true([&] { return provider::poll_one(provider::of(cq), wc, made); }));
  CHECK((made != 0) == timed);
}
