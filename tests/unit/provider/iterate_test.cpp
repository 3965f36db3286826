// Extended CQs: what the steps of an iteration give, and what may be done meanwhile (ibv_create_cq_ex(3)).
#include <time.h>

#include <atomic>
#include <thread>

#include "kit/catch.hpp"

#include "unit/provider/daemon.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

ibv_cq_ex* make_cq_ex(Application& app, std::uint32_t entries, std::uint64_t wc_flags = IBV_WC_STANDARD_FLAGS,
                      std::uint32_t flags = 0) {
  ibv_cq_init_attr_ex init{};
  init.cqe = entries;
  init.wc_flags = wc_flags;
  init.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  init.flags = flags;
  return provider::create_cq_ex(&app.context->verbs.context, &init);
}

// What becomes of a receive.
struct Made {
  std::uint32_t length = 0, word = 0;
  std::uint8_t opcode = RNIC_OP_RECEIVE, status = RNIC_WC_SUCCESS, flags = 0;
  std::uint32_t detail = 0;
  std::uint64_t time = 0;
};

// A queue pair that reports to an extended CQ.
struct Iterated {
  explicit Iterated(std::uint32_t entries = 16, std::uint64_t wc_flags = IBV_WC_STANDARD_FLAGS, std::uint32_t flags = 0)
      : app(daemon), ex(make_cq_ex(app, entries, wc_flags, flags)), cq(ibv_cq_ex_to_cq(ex)) {
    qp = app.make_qp(cq, cq, 64);
    REQUIRE(qp != nullptr);
  }
  // A receive of this wr_id completes so.
  void receive(std::uint64_t wr_id, const Made& made = {}) {
    ibv_recv_wr wr{};
    wr.wr_id = wr_id;
    ibv_recv_wr* bad = nullptr;
    REQUIRE(provider::post_recv(qp, &wr, &bad) == 0);
    rnic_cqe cqe{};
    cqe.qp_number = qp->qp_num;
    cqe.slot = next_++;
    cqe.length = made.length;
    cqe.word = made.word;
    cqe.opcode = made.opcode;
    cqe.status = made.status;
    cqe.flags = made.flags;
    cqe.detail = made.detail;
    cqe.time = made.time;
    daemon.push(cq, cqe);
  }
  int start() {
    ibv_poll_cq_attr none{};
    return ibv_start_poll(ex, &none);
  }

  TestDaemon daemon;
  Application app;
  ibv_cq_ex* ex = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;

 private:
  std::uint32_t next_ = 0;
};

}  // namespace

TEST_CASE("V-VB-28: an iteration steps through the completions, in order and once", "[provider][iterate][V-VB-28]") {
  Iterated t;
  CHECK(t.start() == ENOENT);
  for (std::uint64_t i = 1; i <= 3; ++i)
    t.receive(i, {.status = i == 2 ? std::uint8_t{RNIC_WC_FLUSHED} : std::uint8_t{0}});
  REQUIRE(t.start() == 0);
  CHECK((t.ex->wr_id == 1 && t.ex->status == IBV_WC_SUCCESS));
  REQUIRE(ibv_next_poll(t.ex) == 0);
  CHECK((t.ex->wr_id == 2 && t.ex->status == IBV_WC_WR_FLUSH_ERR));
  REQUIRE(ibv_next_poll(t.ex) == 0);
  CHECK((t.ex->wr_id == 3 && t.ex->status == IBV_WC_SUCCESS));
  CHECK(ibv_next_poll(t.ex) == ENOENT);
  t.receive(4);
  CHECK(ibv_next_poll(t.ex) == 0);  // the batch is not over before its end
  CHECK(t.ex->wr_id == 4);
  ibv_end_poll(t.ex);
  CHECK(t.start() == ENOENT);
  ibv_end_poll(t.ex);  // of none: as some do
  t.receive(5);
  REQUIRE(t.start() == 0);
  CHECK(t.ex->wr_id == 5);
  ibv_end_poll(t.ex);
}

TEST_CASE("V-POLL-07: each field is what ibv_poll_cq says of the same completion",
          "[provider][iterate][V-POLL-07][V-POLL-09]") {
  Iterated t;
  const Made made[] = {
      {.length = 1234, .opcode = RNIC_OP_RECEIVE},
      {.length = 5, .word = 0xABC, .opcode = RNIC_OP_RECEIVE, .flags = RNIC_CQE_INVALIDATED},
      {.length = 6, .word = 0x11223344, .opcode = RNIC_OP_RECEIVE_WRITE_IMMEDIATE, .flags = RNIC_CQE_IMMEDIATE},
      {.opcode = RNIC_OP_RECEIVE, .status = RNIC_WC_REMOTE_TERMINATION, .detail = 0x0100},
  };
  for (const Made& each : made) {
    ibv_wc wc{};
    t.receive(7, each);
    REQUIRE(provider::poll_cq(t.cq, 1, &wc) == 1);
    t.receive(7, each);
    REQUIRE(t.start() == 0);
    CHECK(t.ex->wr_id == wc.wr_id);
    CHECK(t.ex->status == wc.status);
    CHECK(ibv_wc_read_opcode(t.ex) == wc.opcode);
    CHECK(ibv_wc_read_vendor_err(t.ex) == wc.vendor_err);
    CHECK(ibv_wc_read_byte_len(t.ex) == wc.byte_len);
    CHECK(ibv_wc_read_imm_data(t.ex) == wc.imm_data);
    CHECK(ibv_wc_read_invalidated_rkey(t.ex) == wc.invalidated_rkey);
    CHECK(ibv_wc_read_qp_num(t.ex) == t.qp->qp_num);
    CHECK(ibv_wc_read_wc_flags(t.ex) == wc.wc_flags);
    CHECK(ibv_wc_read_src_qp(t.ex) == 0);
    CHECK(ibv_wc_read_slid(t.ex) == 0);
    CHECK(ibv_wc_read_sl(t.ex) == 0);
    CHECK(ibv_wc_read_dlid_path_bits(t.ex) == 0);
    ibv_end_poll(t.ex);
  }
}

TEST_CASE("V-POLL-03: a step frees its entry at once, and what it read stays", "[provider][iterate][V-POLL-03]") {
  Iterated t(4);
  for (std::uint64_t i = 0; i < 4; ++i) t.receive(i, {.length = static_cast<std::uint32_t>(100 + i)});
  REQUIRE(t.start() == 0);
  t.receive(4, {.length = 104});  // where the first was
  CHECK(t.ex->wr_id == 0);
  CHECK(ibv_wc_read_byte_len(t.ex) == 100);
  for (std::uint32_t i = 1; i < 5; ++i) {
    REQUIRE(ibv_next_poll(t.ex) == 0);
    CHECK(t.ex->wr_id == i);
    CHECK(ibv_wc_read_byte_len(t.ex) == 100 + i);
  }
  ibv_end_poll(t.ex);
}

TEST_CASE("V-POLL-02: ibv_poll_cq takes its share of an extended CQ, meanwhile as well",
          "[provider][iterate][V-POLL-02]") {
  Iterated t;
  for (std::uint64_t i = 0; i < 4; ++i) t.receive(i);
  ibv_wc wc{};
  REQUIRE(provider::poll_cq(t.cq, 1, &wc) == 1);
  CHECK(wc.wr_id == 0);
  REQUIRE(t.start() == 0);
  REQUIRE(provider::poll_cq(t.cq, 1, &wc) == 1);
  CHECK(wc.wr_id == 2);
  CHECK(t.ex->wr_id == 1);
  REQUIRE(ibv_next_poll(t.ex) == 0);
  CHECK(t.ex->wr_id == 3);
  ibv_end_poll(t.ex);
}

TEST_CASE("in the midst of an iteration a queue is armed, resized, and loses a queue pair", "[provider][iterate]") {
  Iterated t(8);
  for (std::uint64_t i = 0; i < 4; ++i) t.receive(i);
  REQUIRE(t.start() == 0);
  CHECK(provider::req_notify_cq(t.cq, 0) == 0);
  CHECK((t.app.control_of(t.cq).arm & 3) == RNIC_ARM_NEXT);
  CHECK(provider::resize_cq(t.cq, 16) == 0);
  CHECK(t.ex->wr_id == 0);
  REQUIRE(ibv_next_poll(t.ex) == 0);
  CHECK(t.ex->wr_id == 1);
  CHECK(provider::destroy_qp(t.qp) == 0);
  CHECK(ibv_wc_read_qp_num(t.ex) != 0);
  CHECK(ibv_next_poll(t.ex) == ENOENT);  // V-QP-19
  ibv_end_poll(t.ex);
  CHECK(provider::destroy_cq(t.cq) == 0);
}

TEST_CASE("who iterates is alone; but not on a queue for one thread", "[provider][iterate]") {
  const bool single = GENERATE(false, true);
  Iterated t(16, IBV_WC_STANDARD_FLAGS, single ? unsigned{IBV_CREATE_CQ_ATTR_SINGLE_THREADED} : 0U);
  for (std::uint64_t i = 0; i < 3; ++i) t.receive(i);
  REQUIRE(t.start() == 0);
  std::atomic<bool> in = false;
  std::thread other([&] {
    CHECK(t.start() == 0);
    in = true;
    ibv_end_poll(t.ex);
  });
  if (single) {
    other.join();  // and waits for nobody
    CHECK(in);
    ibv_end_poll(t.ex);
    return;
  }
  usleep(20'000);
  CHECK_FALSE(in);
  CHECK(t.ex->wr_id == 0);
  REQUIRE(ibv_next_poll(t.ex) == 0);
  CHECK(t.ex->wr_id == 1);
  ibv_end_poll(t.ex);
  other.join();
  CHECK(in);
  CHECK(t.ex->wr_id == 2);
}

TEST_CASE("an end after a start that found nothing ends nobody else's iteration", "[provider][iterate]") {
  Iterated t;
  std::atomic<bool> in = false;
  CHECK(t.start() == ENOENT);
  ibv_end_poll(t.ex);  // of nothing
  t.receive(0);
  REQUIRE(t.start() == 0);
  std::thread([&] { ibv_end_poll(t.ex); }).join();
  t.receive(1);
  std::thread third([&] {
    CHECK(t.start() == 0);
    in = true;
    ibv_end_poll(t.ex);
  });
  usleep(20'000);
  CHECK_FALSE(in);
  CHECK(t.ex->wr_id == 0);
  ibv_end_poll(t.ex);
  third.join();
  CHECK(in);
}

TEST_CASE("threads that iterate together take every completion once", "[provider][iterate]") {
  constexpr std::uint32_t kCount = 60;
  Iterated t(64);
  std::atomic<std::uint64_t> sum = 0;
  std::atomic<std::uint32_t> taken = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      ibv_poll_cq_attr none{};
      while (taken < kCount) {
        if (ibv_start_poll(t.ex, &none) != 0) continue;
        do {
          sum += t.ex->wr_id;
          ++taken;
        } while (ibv_next_poll(t.ex) == 0);
        ibv_end_poll(t.ex);
      }
    });
  }
  for (std::uint64_t i = 1; i <= kCount; ++i) t.receive(i);
  for (std::thread& thread : threads) thread.join();
  CHECK(taken == kCount);
  CHECK(sum == std::uint64_t{kCount} * (kCount + 1) / 2);
}

TEST_CASE("what cannot be asked of a start is refused, and it is none", "[provider][iterate]") {
  Iterated t;
  t.receive(1);
  ibv_poll_cq_attr attributes{};
  attributes.comp_mask = 1;
  CHECK(ibv_start_poll(t.ex, &attributes) == EINVAL);
  REQUIRE(t.start() == 0);
  CHECK(t.ex->wr_id == 1);
  ibv_end_poll(t.ex);
}

TEST_CASE("a completion's time is the one that it came with, by the device's clock and by the wall's",
          "[provider][iterate]") {
  Iterated t(16, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK | IBV_VALUES_MASK_RESERVED;
  REQUIRE(provider::query_rt_values(&t.app.context->verbs.context, &values) == 0);
  CHECK(values.comp_mask == IBV_VALUES_MASK_RAW_CLOCK);
  const auto raw = static_cast<std::uint64_t>(values.raw_clock.tv_sec * 1'000'000'000 + values.raw_clock.tv_nsec);
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  const auto wall_ns =
      static_cast<std::uint64_t>(wall.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(wall.tv_nsec);

  constexpr std::uint64_t kHour = 3600 * std::uint64_t{1'000'000'000};
  t.receive(1, {.time = raw - kHour});
  REQUIRE(t.start() == 0);
  CHECK(ibv_wc_read_completion_ts(t.ex) == raw - kHour);
  const std::uint64_t told = ibv_wc_read_completion_wallclock_ns(t.ex);
  ibv_end_poll(t.ex);
  CHECK(told > wall_ns - kHour - 1'000'000'000);
  CHECK(told < wall_ns - kHour + 1'000'000'000);

  values.comp_mask = 0;
  values.raw_clock = {};
  REQUIRE(provider::query_rt_values(&t.app.context->verbs.context, &values) == 0);
  CHECK((values.comp_mask == 0 && values.raw_clock.tv_nsec == 0));
}

TEST_CASE("after the daemon's death an iteration finds the flushes", "[provider][iterate]") {
  Iterated t(16, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
  t.receive(1, {.time = 5});
  ibv_recv_wr wr{};
  wr.wr_id = 2;
  ibv_recv_wr* bad = nullptr;
  REQUIRE(provider::post_recv(t.qp, &wr, &bad) == 0);
  const std::uint64_t before = provider::raw_clock();
  t.daemon.die();
  for (int i = 0; i < 5000 && t.app.context->dead == 0; ++i) usleep(1000);
  REQUIRE(t.start() == 0);
  CHECK((t.ex->wr_id == 1 && t.ex->status == IBV_WC_SUCCESS));
  CHECK(ibv_wc_read_completion_ts(t.ex) == 5);
  REQUIRE(ibv_next_poll(t.ex) == 0);
  CHECK((t.ex->wr_id == 2 && t.ex->status == IBV_WC_WR_FLUSH_ERR));
  CHECK(ibv_wc_read_completion_ts(t.ex) >= before);
  CHECK(ibv_next_poll(t.ex) == ENOENT);
  ibv_end_poll(t.ex);
}

TEST_CASE("V-VBX-01: an extended CQ is made of what it is asked for, or refused",
          "[provider][iterate][V-VBX-01][V-CQ-02][V-CQ-03]") {
  TestDaemon daemon;
  Application app(daemon);
  ibv_context* context = &app.context->verbs.context;
  const auto refusal = [&](ibv_cq_init_attr_ex init) {
    errno = 0;
    return provider::create_cq_ex(context, &init) == nullptr ? errno : 0;
  };
  ibv_cq_init_attr_ex good{};
  good.cqe = 10;
  CHECK(refusal(good) == 0);
  ibv_cq_init_attr_ex init = good;
  init.wc_flags = std::uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  CHECK(refusal(init) == 0);
  for (const std::uint64_t field : {IBV_WC_EX_WITH_CVLAN, IBV_WC_EX_WITH_FLOW_TAG, IBV_WC_EX_WITH_TM_INFO}) {
    init.wc_flags = std::uint64_t{IBV_WC_STANDARD_FLAGS} | field;
    CHECK(refusal(init) == EOPNOTSUPP);
  }
  init = good;
  init.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  CHECK(refusal(init) == 0);  // not said to be there
  init.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  CHECK(refusal(init) == EOPNOTSUPP);
  init.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
  CHECK(refusal(init) == 0);
  init.comp_mask = 1U << 9;
  CHECK(refusal(init) == EINVAL);
  init = good;
  init.cqe = 0;
  CHECK(refusal(init) == EINVAL);
  init.cqe = app.context->attributes.max_cqe + 1;
  CHECK(refusal(init) == EINVAL);
  init.cqe = 1U << 31;
  CHECK(refusal(init) == EINVAL);
  init = good;
  init.comp_vector = app.context->attributes.completion_vectors;
  CHECK(refusal(init) == EINVAL);

  // Of PDs it may be told a parent domain, and no other.
  init = good;
  init.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  CHECK(refusal(init) == EINVAL);
  init.parent_domain = app.pd;
  CHECK(refusal(init) == EINVAL);
  ibv_parent_domain_init_attr domain{};
  domain.pd = app.pd;
  init.parent_domain = provider::alloc_parent_domain(context, &domain);
  CHECK(refusal(init) == 0);
}

TEST_CASE("V-NTF-02: an extended CQ tells its channel", "[provider][iterate]") {
  TestDaemon daemon;
  Application app(daemon);
  ibv_comp_channel channel = daemon.make_channel();
  ibv_cq_init_attr_ex init{};
  init.cqe = 10;
  init.channel = &channel;
  ibv_cq_ex* ex = provider::create_cq_ex(&app.context->verbs.context, &init);
  REQUIRE(ex != nullptr);
  daemon.fire(ibv_cq_ex_to_cq(ex));
  REQUIRE(readable(channel.fd, 5000));
  CHECK(take_event(channel) == ex);
}
