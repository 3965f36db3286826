// ibv_wr_*: what the builders write, when it is seen, and what becomes of errors (ibv_wr_post(3)).
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <functional>
#include <thread>

#include "kit/catch.hpp"

#include "unit/provider/daemon.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

constexpr std::uint64_t kOperations = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                      IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ |
                                      IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
                                      IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_BIND_MW;

// A queue pair with builders beside the one without.
struct Built : OneQp {
  explicit Built(std::uint32_t depth = 8, int signal_all = 0) : OneQp(depth, signal_all) {
    app.context->attributes.atomics = 1;
    app.context->attributes.capabilities |= RNIC_CAP_IMMEDIATE;
    ibv_qp_init_attr_ex init = attributes(depth, signal_all);
    ibv_qp* made = provider::create_qp_ex(&app.context->verbs.context, &init);
    REQUIRE(made != nullptr);
    ex = ibv_qp_to_qp_ex(made);
    REQUIRE(ex != nullptr);
    ex->wr_id = 0;
    ex->wr_flags = 0;
  }
  ibv_qp_init_attr_ex attributes(std::uint32_t depth = 8, int signal_all = 0) {
    ibv_qp_init_attr_ex init{};
    init.send_cq = send_cq;
    init.recv_cq = receive_cq;
    init.qp_type = IBV_QPT_RC;
    init.sq_sig_all = signal_all;
    init.cap = {depth, depth, 4, 4, 64};
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.pd = app.pd;
    init.send_ops_flags = kOperations;
    return init;
  }
  // Of the errno that making it fails with.
  int refusal(ibv_qp_init_attr_ex init) {
    errno = 0;
    return provider::create_qp_ex(&app.context->verbs.context, &init) == nullptr ? errno : 0;
  }
  QueueView queue() { return app.view(&ex->qp_base).send; }
  const provider::SendQueue& own() { return provider::of(ex).send; }

  void begin_write(std::uint64_t wr_id, unsigned flags = IBV_SEND_SIGNALED) {
    ex->wr_id = wr_id;
    ex->wr_flags = flags;
    ibv_wr_rdma_write(ex, 0x77, 0x1000);
  }
  void set(const ibv_sge& sge) { ibv_wr_set_sge(ex, sge.lkey, sge.addr, sge.length); }
  int write_batch(std::uint32_t count, std::uint64_t first_id = 0) {
    ibv_wr_start(ex);
    for (std::uint32_t i = 0; i < count; ++i) {
      begin_write(first_id + i);
      set(sge(8));
    }
    return ibv_wr_complete(ex);
  }
  void complete_built(std::uint32_t slot) {
    rnic_cqe cqe{};
    cqe.qp_number = ex->qp_base.qp_num;
    cqe.slot = slot;
    cqe.opcode = RNIC_OP_WRITE;
    cqe.flags = RNIC_CQE_SEND_QUEUE;
    daemon.push(send_cq, cqe);
  }

  ibv_qp_ex* ex = nullptr;
};

// One work request in both forms.
struct Form {
  const char* name;
  std::function<void(ibv_send_wr&)> listed;
  std::function<void(ibv_qp_ex*)> built;
};

const Form kForms[] = {
    {"send", [](ibv_send_wr& wr) { wr.opcode = IBV_WR_SEND; }, [](ibv_qp_ex* ex) { ibv_wr_send(ex); }},
    {"send and invalidate",
     [](ibv_send_wr& wr) {
       wr.opcode = IBV_WR_SEND_WITH_INV;
       wr.invalidate_rkey = 0xABC;
     },
     [](ibv_qp_ex* ex) { ibv_wr_send_inv(ex, 0xABC); }},
    {"write",
     [](ibv_send_wr& wr) {
       wr.opcode = IBV_WR_RDMA_WRITE;
       wr.wr.rdma = {0x123456789A, 0x77};
     },
     [](ibv_qp_ex* ex) { ibv_wr_rdma_write(ex, 0x77, 0x123456789A); }},
    {"write with immediate",
     [](ibv_send_wr& wr) {
       wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
       wr.wr.rdma = {0x123456789A, 0x77};
       wr.imm_data = 0x11223344;
     },
     [](ibv_qp_ex* ex) { ibv_wr_rdma_write_imm(ex, 0x77, 0x123456789A, 0x11223344); }},
    {"read",
     [](ibv_send_wr& wr) {
       wr.opcode = IBV_WR_RDMA_READ;
       wr.wr.rdma = {0x123456789A, 0x77};
     },
     [](ibv_qp_ex* ex) { ibv_wr_rdma_read(ex, 0x77, 0x123456789A); }},
    {"compare and swap",
     [](ibv_send_wr& wr) {
       wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
       wr.wr.atomic = {0x123456789A, 0xA0A1A2A3A4, 0xB0B1B2B3B4, 0x77};
     },
     [](ibv_qp_ex* ex) { ibv_wr_atomic_cmp_swp(ex, 0x77, 0x123456789A, 0xA0A1A2A3A4, 0xB0B1B2B3B4); }},
    {"fetch and add",
     [](ibv_send_wr& wr) {
       wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
       wr.wr.atomic = {0x123456789A, 0xA0A1A2A3A4, 0, 0x77};
     },
     [](ibv_qp_ex* ex) { ibv_wr_atomic_fetch_add(ex, 0x77, 0x123456789A, 0xA0A1A2A3A4); }},
    {"local invalidate",
     [](ibv_send_wr& wr) {
       wr.opcode = IBV_WR_LOCAL_INV;
       wr.invalidate_rkey = 0xABC;
     },
     [](ibv_qp_ex* ex) { ibv_wr_local_inv(ex, 0xABC); }},
};

// What of a slot means something: all that was ever written to it, as slots begin as zeroes.
std::string bytes_of(const QueueView& queue, std::uint32_t index) { return {queue.slot(index), queue.stride}; }

}  // namespace

TEST_CASE("V-VB-26: a builder writes what ibv_post_send writes of the same work request",
          "[provider][build][V-VB-26][V-WR-09][V-WR-10]") {
  Built t(32);
  std::memcpy(t.buffer, "what is gathered at post", 24);
  std::uint32_t index = 0;
  for (const unsigned flags :
       {0U, unsigned{IBV_SEND_SIGNALED}, unsigned{IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_FENCE}}) {
    for (const Form& form : kForms) {
      CAPTURE(form.name, flags);
      ibv_sge one = t.sge(8);
      ibv_send_wr wr{};
      wr.wr_id = 100 + index;
      wr.sg_list = &one;
      wr.num_sge = 1;
      wr.send_flags = flags;
      form.listed(wr);
      REQUIRE(t.post(wr) == 0);

      ibv_wr_start(t.ex);
      t.ex->wr_id = wr.wr_id;
      t.ex->wr_flags = flags;
      form.built(t.ex);
      if (wr.opcode != IBV_WR_LOCAL_INV) t.set(one);
      REQUIRE(ibv_wr_complete(t.ex) == 0);
      CHECK(bytes_of(t.queue(), index) == bytes_of(t.app.view(t.qp).send, index));
      CHECK(t.own().work[index].wr_id == wr.wr_id);
      ++index;
    }
  }
}

TEST_CASE("W-EXT-02: a builder of an atomic operation with masks writes what one without does, its name, and the masks",
          "[provider][build][W-EXT-02][V-VB-26]") {
  Built t(8);
  const ibv_sge one = t.sge(8);
  std::uint32_t index = 0;
  // An entry of each, the first with masks.
  const auto compare = [&](const std::function<void()>& masked, const std::function<void()>& plain, std::uint8_t opcode,
                           std::uint8_t told, const rnic_atomic_masks& expected) {
    ibv_wr_start(t.ex);
    t.ex->wr_id = 7;
    t.ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
    masked();
    t.set(one);
    plain();
    t.set(one);
    REQUIRE(ibv_wr_complete(t.ex) == 0);
    const rnic_sqe &with = t.queue().sqe(index), &without = t.queue().sqe(index + 1);
    CHECK(with.opcode == opcode);
    CHECK(without.opcode == told);
    rnic_sqe same = with;
    same.opcode = without.opcode;
    CHECK(std::memcmp(&same, &without, sizeof same) == 0);
    const char* const behind = t.queue().slot(index) + sizeof(rnic_sqe);
    CHECK(std::memcmp(behind, &one, sizeof one) == 0);
    CHECK(std::memcmp(behind + sizeof(rnic_sge), &expected, sizeof expected) == 0);
    for (std::uint32_t i = index; i < index + 2; ++i) CHECK(t.own().work[i].opcode == told);
    index += 2;
  };
  compare([&] { provider::begin_masked_fetch_add(t.ex, 0x77, 0x123456789A, 5, 0x8000); },
          [&] { ibv_wr_atomic_fetch_add(t.ex, 0x77, 0x123456789A, 5); }, RNIC_OP_MASKED_FETCH_ADD, RNIC_OP_FETCH_ADD,
          {.swap = 0, .data = 0x8000, .compare = 0});
  compare([&] { provider::begin_masked_cmp_swp(t.ex, 0x77, 0x123456789A, 5, 0xF0, 6, 0xFF); },
          [&] { ibv_wr_atomic_cmp_swp(t.ex, 0x77, 0x123456789A, 5, 6); }, RNIC_OP_MASKED_COMPARE_SWAP,
          RNIC_OP_COMPARE_SWAP, {.swap = 6, .data = 0xFF, .compare = 0xF0});
}

TEST_CASE("V-VB-26: a builder writes a Bind as ibv_post_send does, or nothing",
          "[provider][build][V-VB-26][V-MWR-01]") {
  Built t(8);
  ibv_mw* window = provider::alloc_mw(t.app.pd, IBV_MW_TYPE_2);
  REQUIRE(window != nullptr);
  const std::uint32_t rkey = ibv_inc_rkey(window->rkey);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.bind_mw.mw = window;
  wr.bind_mw.rkey = rkey;
  wr.bind_mw.bind_info = {t.mr, 0x123456789A, 0xB0B1B2B3B4, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED};
  REQUIRE(t.post(wr) == 0);
  const auto build = [&](std::uint32_t as) {
    ibv_wr_start(t.ex);
    t.ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_bind_mw(t.ex, window, as, &wr.bind_mw.bind_info);
    return ibv_wr_complete(t.ex);
  };
  CHECK(build(rkey + 0x100) == EINVAL);
  CHECK(t.queue().produced() == 0);
  REQUIRE(build(rkey) == 0);
  CHECK(bytes_of(t.queue(), 0) == bytes_of(t.app.view(t.qp).send, 0));
  const rnic_sqe& sqe = t.queue().sqe(0);
  CHECK(sqe.opcode == RNIC_OP_BIND);
  CHECK(sqe.rkey == rkey);
  CHECK(sqe.invalidate == t.mr->lkey);
  CHECK(sqe.remote_address == 0x123456789A);
  CHECK(sqe.argument == 0xB0B1B2B3B4);
}

TEST_CASE("a list of SGEs, and inline data in one piece and in many, are as ibv_post_send has them",
          "[provider][build][V-WR-16]") {
  Built t(8);
  for (std::uint32_t i = 0; i < 256; ++i) t.buffer[i] = static_cast<char>(i);
  ibv_sge three[] = {t.sge(20, 100), t.sge(0, 0), t.sge(30, 200)};
  ibv_send_wr wr = t.write_of(three[0], 1);
  wr.num_sge = 3;
  REQUIRE(t.post(wr) == 0);
  wr.send_flags |= IBV_SEND_INLINE;
  REQUIRE(t.post(wr) == 0);
  wr.num_sge = 1;
  REQUIRE(t.post(wr) == 0);

  ibv_data_buf pieces[50];  // more than there are SGEs: every octet one
  for (std::uint32_t i = 0; i < 50; ++i) pieces[i] = {t.buffer + (i < 20 ? 100 + i : 180 + i), 1};
  ibv_wr_start(t.ex);
  t.begin_write(1);
  ibv_wr_set_sge_list(t.ex, 3, three);
  t.begin_write(2);
  ibv_wr_set_inline_data_list(t.ex, 50, pieces);
  t.begin_write(3);
  ibv_wr_set_inline_data(t.ex, t.buffer + 100, 20);
  REQUIRE(ibv_wr_complete(t.ex) == 0);
  for (std::uint32_t i = 0; i < 3; ++i) CHECK(bytes_of(t.queue(), i) == bytes_of(t.app.view(t.qp).send, i));
}

TEST_CASE("V-WR-16: inline data may have as many octets as the queue pair says, and not one more",
          "[provider][build][V-WR-16]") {
  Built t(8);
  const std::size_t most = t.own().inline_max;
  std::vector<char> data(most + 1, 'x');
  const auto build = [&](bool in_pieces, std::size_t size) {
    ibv_wr_start(t.ex);
    t.begin_write(1);
    ibv_data_buf pieces[] = {{data.data(), size - 1}, {data.data(), 0}, {data.data(), 1}};
    if (in_pieces)
      ibv_wr_set_inline_data_list(t.ex, 3, pieces);
    else
      ibv_wr_set_inline_data(t.ex, data.data(), size);
    return ibv_wr_complete(t.ex);
  };
  for (const bool in_pieces : {false, true}) {
    CHECK(build(in_pieces, most) == 0);
    CHECK(build(in_pieces, most + 1) == EINVAL);
    CHECK(build(in_pieces, (std::size_t{1} << 32) + 1) == EINVAL);  // and not looked at
  }
  CHECK(t.queue().produced() == 2);
}

TEST_CASE("V-WR-16: the flag of ibv_post_send makes nothing inline here", "[provider][build]") {
  Built t(8);
  ibv_wr_start(t.ex);
  t.begin_write(1, IBV_SEND_INLINE);
  t.set(t.sge(8));
  REQUIRE(ibv_wr_complete(t.ex) == 0);
  CHECK((t.queue().sqe(0).flags & RNIC_SQE_INLINE) == 0);
  CHECK(t.queue().sqe(0).sge_count == 1);
}

TEST_CASE("V-WR-02: a batch is queued in order, at its end and all at once, with one doorbell",
          "[provider][build][V-WR-02]") {
  Built t(8);
  rnic_doorbells& bells = t.daemon.doorbells();
  t.daemon.page().worker[0].asleep = 1;
  ibv_wr_start(t.ex);
  for (std::uint64_t i = 0; i < 3; ++i) {
    t.begin_write(i);
    t.set(t.sge(8, static_cast<std::uint32_t>(8 * i)));
  }
  CHECK(t.queue().produced() == 0);
  CHECK(t.own().head == 0);  // nor is there anything to be flushed, should the daemon end
  CHECK(bells.any == 0);
  CHECK_FALSE(readable(t.daemon.worker_eventfd, 0));
  CHECK(ibv_wr_complete(t.ex) == 0);
  CHECK(t.queue().produced() == 3);
  CHECK(bells.any == 1);
  std::uint64_t wakes = 0;
  REQUIRE(read(t.daemon.worker_eventfd, &wakes, sizeof wakes) == sizeof wakes);
  CHECK(wakes == 1);
  for (std::uint32_t i = 0; i < 3; ++i) {
    const auto* sge = reinterpret_cast<const rnic_sge*>(&t.queue().sqe(i) + 1);
    CHECK(sge->address == reinterpret_cast<std::uintptr_t>(t.buffer) + 8 * i);
    t.complete_built(i);
    ibv_wc wc{};
    REQUIRE(provider::poll_cq(t.send_cq, 1, &wc) == 1);
    CHECK(wc.wr_id == i);
  }
}

TEST_CASE("an aborted batch leaves nothing behind", "[provider][build]") {
  Built t(4);
  REQUIRE(t.write_batch(1, 7) == 0);
  ibv_wr_start(t.ex);
  t.begin_write(1);
  t.set(t.sge(8));
  t.begin_write(2);  // without its data
  ibv_wr_abort(t.ex);
  CHECK(t.queue().produced() == 1);
  CHECK(t.write_batch(4) == ENOMEM);  // one is still there
  CHECK(t.write_batch(3, 10) == 0);   // all slots but that one are free
  CHECK(t.own().work[1].wr_id == 10);
  CHECK(t.write_batch(1) == ENOMEM);
}

TEST_CASE("an empty batch is none", "[provider][build]") {
  Built t(4);
  ibv_wr_start(t.ex);
  CHECK(ibv_wr_complete(t.ex) == 0);
  CHECK(t.queue().produced() == 0);
  CHECK(t.daemon.doorbells().any == 0);
}

TEST_CASE("V-WR-07: a batch that does not fit is refused whole", "[provider][build][V-WR-07]") {
  Built t(4);
  CHECK(t.write_batch(5) == ENOMEM);
  CHECK(t.queue().produced() == 0);
  CHECK(t.write_batch(4) == 0);
  CHECK(t.write_batch(1) == ENOMEM);
  t.complete_built(1);
  ibv_wc wc{};
  REQUIRE(provider::poll_cq(t.send_cq, 1, &wc) == 1);
  CHECK(t.write_batch(3) == ENOMEM);
  CHECK(t.write_batch(2) == 0);
}

TEST_CASE("V-WR-11: the first error of a batch is told at its end, and nothing of it is posted",
          "[provider][build][V-WR-11][V-IS-38]") {
  Built t(8);
  const ibv_sge many[5] = {t.sge(1), t.sge(1), t.sge(1), t.sge(1), t.sge(1)};
  REQUIRE(t.own().sge_max < 5);
  struct Case {
    const char* name;
    int error;
    std::function<void()> build;
  };
  const Case cases[] = {
      {"too many SGEs", EINVAL, [&] { ibv_wr_set_sge_list(t.ex, 5, many); }},
      {"more SGEs than an int counts", EINVAL, [&] { ibv_wr_set_sge_list(t.ex, std::size_t{1} << 32, many); }},
      {"data twice", EINVAL,
       [&] {
         t.set(many[0]);
         t.set(many[0]);
       }},
      {"a Read of two SGEs", EINVAL,
       [&] {
         ibv_wr_rdma_read(t.ex, 1, 2);
         ibv_wr_set_sge_list(t.ex, 2, many);
       }},
      {"an atomic without a place", EINVAL, [&] { ibv_wr_atomic_fetch_add(t.ex, 1, 2, 3); }},
      {"a Send with Immediate", EOPNOTSUPP, [&] { ibv_wr_send_imm(t.ex, 1); }},
      {"segmentation", EOPNOTSUPP, [&] { ibv_wr_send_tso(t.ex, nullptr, 0, 0); }},
      {"an atomic Write", EOPNOTSUPP, [&] { t.ex->wr_atomic_write(t.ex, 1, 2, nullptr); }},
      {"a UD address", EINVAL, [&] { ibv_wr_set_ud_addr(t.ex, nullptr, 1, 2); }},
      {"an XRC SRQ", EINVAL, [&] { ibv_wr_set_xrc_srqn(t.ex, 1); }},
  };
  for (const Case& each : cases) {
    CAPTURE(each.name);
    ibv_wr_start(t.ex);
    t.begin_write(1);
    t.set(t.sge(8));
    t.begin_write(2);
    each.build();
    t.begin_write(3);
    ibv_wr_set_sge_list(t.ex, 5, many);  // a second error, of another kind where the first is no EINVAL
    CHECK(ibv_wr_complete(t.ex) == each.error);
    CHECK(t.queue().produced() == 0);
  }
  ibv_wr_start(t.ex);
  t.set(t.sge(8));  // of nothing
  CHECK(ibv_wr_complete(t.ex) == EINVAL);
  CHECK(t.write_batch(8) == 0);  // no slot was lost
}

TEST_CASE("work without data is written without", "[provider][build]") {
  Built t(8);
  ibv_wr_start(t.ex);
  t.begin_write(1);
  ibv_wr_local_inv(t.ex, 0xABC);
  ibv_wr_send(t.ex);
  REQUIRE(ibv_wr_complete(t.ex) == 0);
  CHECK(t.queue().produced() == 3);
  const std::uint8_t opcodes[] = {RNIC_OP_WRITE, RNIC_OP_LOCAL_INVALIDATE, RNIC_OP_SEND};
  for (std::uint32_t i = 0; i < 3; ++i) {
    CHECK(t.queue().sqe(i).opcode == opcodes[i]);
    CHECK(t.queue().sqe(i).sge_count == 0);
  }
}

TEST_CASE("gather at post: not behind a Read of the same batch, and again when that was aborted",
          "[provider][build][gather]") {
  Built t(8);
  const auto read_and_write = [&] {
    ibv_wr_start(t.ex);
    ibv_wr_rdma_read(t.ex, 1, 2);
    t.set(t.sge(8));
    t.begin_write(2);
    t.set(t.sge(8));
  };
  const auto copied = [&](std::uint32_t index) { return (t.queue().sqe(index).flags & RNIC_SQE_COPIED) != 0; };
  read_and_write();
  CHECK_FALSE(copied(1));
  ibv_wr_abort(t.ex);
  REQUIRE(t.write_batch(2) == 0);
  CHECK(copied(0));
  CHECK(copied(1));
  read_and_write();
  ibv_wr_set_sge_list(t.ex, 2, nullptr);  // fails
  REQUIRE(ibv_wr_complete(t.ex) == EINVAL);
  REQUIRE(t.write_batch(1) == 0);
  CHECK(copied(2));
  read_and_write();
  REQUIRE(ibv_wr_complete(t.ex) == 0);
  REQUIRE(t.write_batch(1) == 0);
  CHECK_FALSE(copied(4));
  CHECK_FALSE(copied(5));  // it is outstanding
}

TEST_CASE("V-WR-17: with sq_sig_all every entry that is built is signaled", "[provider][build][V-WR-17]") {
  Built t(4, 1);
  ibv_wr_start(t.ex);
  t.begin_write(1, 0);
  REQUIRE(ibv_wr_complete(t.ex) == 0);
  CHECK((t.queue().sqe(0).flags & RNIC_SQE_SIGNALED) != 0);
}

TEST_CASE("batches of several threads do not mix, with lists of ibv_post_send among them", "[provider][build]") {
  constexpr std::uint32_t kThreads = 4, kRounds = 200, kEach = 3;
  Built t(4096);
  std::vector<std::thread> threads;
  std::atomic<int> failed = 0;
  for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      ibv_sge one = t.sge(8);
      for (std::uint32_t round = 0; round < kRounds; ++round) {
        const std::uint64_t id = (thread * kRounds + round) * 10;
        if (thread % 2 == 0) {
          ibv_wr_start(t.ex);
          for (std::uint32_t i = 0; i < kEach; ++i) {
            t.ex->wr_id = id + i;
            ibv_wr_rdma_write(t.ex, 0x77, 0x1000);
            ibv_wr_set_sge(t.ex, one.lkey, one.addr, one.length);
          }
          if (ibv_wr_complete(t.ex) != 0) ++failed;
        } else {
          ibv_send_wr list[kEach];
          for (std::uint32_t i = 0; i < kEach; ++i) {
            list[i] = t.write_of(one, id + i);
            list[i].next = i + 1 < kEach ? &list[i + 1] : nullptr;
          }
          ibv_send_wr* bad = nullptr;
          if (provider::post_send(&t.ex->qp_base, list, &bad) != 0) ++failed;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failed == 0);
  REQUIRE(t.queue().produced() == kThreads * kRounds * kEach);
  bool apart = true;
  for (std::uint32_t i = 0; i < kThreads * kRounds * kEach; i += kEach)
    for (std::uint32_t j = 0; j < kEach; ++j)
      apart =
          apart && t.own().work[i + j].wr_id % 10 == j && t.own().work[i + j].wr_id / 10 == t.own().work[i].wr_id / 10;
  CHECK(apart);
}

TEST_CASE("a batch after the daemon's death fails as a post does", "[provider][build]") {
  Built t(4);
  t.daemon.die();
  for (int i = 0; i < 5000 && t.app.context->dead == 0; ++i) usleep(1000);
  CHECK(t.write_batch(1) == EIO);
  ibv_sge one = t.sge(8);
  ibv_send_wr wr = t.write_of(one, 1);
  ibv_send_wr* bad = nullptr;
  CHECK(provider::post_send(&t.ex->qp_base, &wr, &bad) == EIO);
}

namespace {

// What it says in a forked child, from 0 to 255; 256: it has not come to an end.
template <typename Say>
int forked_child_says(Say say) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(20);
    _exit(say());
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 256;
}

// In a forked child, of each of our ways to post: bit 1 << n, where the n-th is not refused with EPERM.
struct EachPost {
  Built& t;
  ibv_srq* srq;
  ibv_mw* window;

  int operator()() const {
    ibv_sge one = t.sge(8);
    ibv_send_wr write = t.write_of(one, 66);
    ibv_send_wr* bad_send = nullptr;
    ibv_recv_wr receive{};
    receive.sg_list = &one;
    receive.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    ibv_mw_bind nothing{};
    const int errors[] = {provider::post_send(t.qp, &write, &bad_send), provider::post_recv(t.qp, &receive, &bad),
                          provider::post_srq_recv(srq, &receive, &bad), provider::bind_mw(t.qp, window, &nothing),
                          t.write_batch(2)};
    int others = bad_send == &write && bad == &receive ? 0 : 1 << 7;
    for (std::size_t i = 0; i < std::size(errors); ++i) others |= errors[i] == EPERM ? 0 : 1 << i;
    return others;
  }
};

}  // namespace

TEST_CASE("a forked child posts nothing to its parent's queues", "[provider][build][forks]") {
  Built t(8);
  ibv_srq* const srq = t.app.make_srq(4);
  ibv_mw* const window = provider::alloc_mw(t.app.pd, IBV_MW_TYPE_1);
  REQUIRE((srq != nullptr && window != nullptr));
  const std::vector<provider::WorkQueue*> queues{&provider::of(t.qp).send, &provider::of(t.qp).receive,
                                                 &provider::of(srq).queue, &provider::of(t.ex).send};
  const auto seen = [&] {
    std::string all;
    for (const provider::WorkQueue* queue : queues) {
      all.append(reinterpret_cast<const char*>(queue->control), sizeof *queue->control);
      all.append(reinterpret_cast<const char*>(queue->slots), std::size_t{queue->size} * queue->stride);
    }
    return all;
  };
  const EachPost each{t, srq, window};
  const std::string before = seen();
  SECTION("of a parent whose queues are at rest") { CHECK(forked_child_says(each) == 0); }
  SECTION("of a parent whose other threads are posting") {
    for (provider::WorkQueue* queue : queues) queue->lock.lock();
    const int said = forked_child_says(each);
    for (provider::WorkQueue* queue : queues) queue->lock.unlock();
    CHECK(said == 0);
  }
  SECTION("nor the rest of a batch that was begun before the fork") {
    std::memcpy(t.buffer, "its parent's", 12);
    ibv_wr_start(t.ex);
    t.begin_write(1);
    t.set(t.sge(12));
    t.begin_write(2);
    const std::string begun = seen();
    const auto goes_on = [&](const std::function<void()>& build) {
      return forked_child_says([&] {
        build();
        return ibv_wr_complete(t.ex);
      });
    };
    const auto write = [&] {
      t.begin_write(66, 0);
      t.set(t.sge(4));
    };
    CHECK(goes_on([] {}) == EPERM);
    CHECK(goes_on(write) == EPERM);
    CHECK(goes_on([&] { t.set(t.sge(4)); }) == EPERM);
    CHECK(goes_on([&] { ibv_wr_atomic_fetch_add(t.ex, 1, 2, 3); }) == EPERM);
    CHECK(goes_on([&] { ibv_wr_set_inline_data(t.ex, t.buffer, 65); }) == EPERM);
    CHECK(goes_on([&] { (void)provider::next_entry(*t.ex); }) == EPERM);
    CHECK(forked_child_says([&] { return provider::next_entry(*t.ex) == nullptr ? 0 : 1; }) == 0);
    CHECK(forked_child_says([&] {
            ibv_wr_abort(t.ex);
            return t.write_batch(1);
          }) == EPERM);
    CHECK(seen() == begun);
    t.set(t.sge(8));
    CHECK(ibv_wr_complete(t.ex) == 0);
    CHECK(t.queue().produced() == 2);
    CHECK(std::memcmp(t.queue().slot(0) + sizeof(rnic_sqe) + sizeof(rnic_sge), "its parent's", 12) == 0);
    return;
  }
  CHECK(seen() == before);
  CHECK(t.post_write(1) == 0);
  CHECK(t.write_batch(1) == 0);
}

TEST_CASE("V-VBX-01: a queue pair is made of what it is asked for, or refused", "[provider][build][V-VBX-01]") {
  Built t(4);
  CHECK(ibv_qp_to_qp_ex(t.qp) == nullptr);  // made without builders
  ibv_qp_init_attr_ex init = t.attributes();
  CHECK(t.refusal(init) == 0);
  for (const std::uint64_t operation :
       {IBV_QP_EX_WITH_TSO, IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_QP_EX_WITH_ATOMIC_WRITE}) {
    init.send_ops_flags = kOperations | operation;
    CHECK(t.refusal(init) == EOPNOTSUPP);
  }
  init.send_ops_flags = std::uint64_t{1} << 40;
  CHECK(t.refusal(init) == EOPNOTSUPP);
  init = t.attributes();
  init.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  CHECK(t.refusal(init) == EINVAL);  // no PD
  for (const std::uint32_t attribute : {IBV_QP_INIT_ATTR_XRCD, IBV_QP_INIT_ATTR_IND_TABLE, IBV_QP_INIT_ATTR_RX_HASH}) {
    init = t.attributes();
    init.comp_mask |= attribute;
    CHECK(t.refusal(init) == EOPNOTSUPP);
  }
  init = t.attributes();
  init.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
  CHECK(t.refusal(init) == 0);  // asks for nothing
  init.create_flags = IBV_QP_CREATE_SOURCE_QPN;
  CHECK(t.refusal(init) == EOPNOTSUPP);
  init.create_flags = 0;
  init.max_tso_header = 64;
  CHECK(t.refusal(init) == EOPNOTSUPP);
  init = t.attributes();
  init.qp_type = IBV_QPT_UD;
  CHECK(t.refusal(init) == EOPNOTSUPP);

  // RFC 7306's are those of devices that have them.
  t.app.context->attributes.atomics = 0;
  init = t.attributes();
  init.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
  CHECK(t.refusal(init) == EOPNOTSUPP);
  init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
  CHECK(t.refusal(init) == 0);
  t.app.context->attributes.capabilities &= ~RNIC_CAP_IMMEDIATE;
  CHECK(t.refusal(init) == EOPNOTSUPP);
}

TEST_CASE("what a device could offer and does not, the daemon hears of once for each kind, for its log",
          "[provider][build]") {
  OneQp t;
  std::uint64_t result = 0;
  ibv_sge one = t.sge(8);
  const auto refused = [&](ibv_wr_opcode opcode) {
    ibv_send_wr wr = t.write_of(one, 1);
    wr.opcode = opcode;
    wr.wr.atomic.remote_addr = reinterpret_cast<std::uintptr_t>(&result);
    ibv_send_wr* bad = nullptr;
    CHECK(provider::post_send(t.qp, &wr, &bad) == EOPNOTSUPP);
    return t.daemon.relay().count(RNIC_NOT_OFFERED);
  };
  CHECK(refused(IBV_WR_SEND_WITH_IMM) == 0);  // no key allows it
  CHECK(refused(IBV_WR_ATOMIC_FETCH_AND_ADD) == 1);
  CHECK(refused(IBV_WR_ATOMIC_CMP_AND_SWP) == 1);
  CHECK(refused(IBV_WR_RDMA_WRITE_WITH_IMM) == 2);
  CHECK(refused(IBV_WR_RDMA_WRITE_WITH_IMM) == 2);

  // Asked for as a queue pair is made, it is told likewise.
  OneQp other;
  ibv_qp_init_attr_ex init{};
  init.send_cq = other.send_cq;
  init.recv_cq = other.receive_cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {8, 8, 4, 4, 64};
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = other.app.pd;
  init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
  for (int i = 0; i < 2; ++i) CHECK(provider::create_qp_ex(&other.app.context->verbs.context, &init) == nullptr);
  CHECK(other.daemon.relay().count(RNIC_NOT_OFFERED) == 1);
}
