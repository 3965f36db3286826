// Work requests of each kind as an application posts them: what they do, what they are told as, and where each bad
// one is reported. Provider, daemon and data plane.
#include "unit/provider/wired.hpp"

#include <cstring>

using namespace rnic;
using namespace rnic::test;

namespace {

// Nothing more is told.
void nothing_in(ibv_cq* cq) {
  ibv_wc wc{};
  CHECK(provider::poll_cq(cq, 1, &wc) == 0);
}

// All that was posted before has been done at both ends.
void fence(WiredPair& t) {
  REQUIRE(post(t.end_a.qp, {999, IBV_WR_RDMA_READ}, {}) == 0);
  expect(t.end_a.send_cq, 999);
}

struct Kind {
  const char* name;
  ibv_wr_opcode posted;
  ibv_wc_opcode told;
  int receives;  // of the peer's
};
const Kind kKinds[] = {
    {"Send", IBV_WR_SEND, IBV_WC_SEND, 1},
    {"Send with Invalidate", IBV_WR_SEND_WITH_INV, IBV_WC_SEND, 1},
    {"Write", IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, 0},
    {"Write with Immediate", IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE, 1},
    {"Read", IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, 0},
    {"Fetch and Add", IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD, 0},
    {"Compare and Swap", IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP, 0},
    {"Local Invalidate", IBV_WR_LOCAL_INV, IBV_WC_LOCAL_INV, 0},
};

constexpr const char* kExtended =
    "sched_fifo = false\n"
    "[[device]]\nport = \"pair:w\"\naddress = \"127.0.9.1/24\"\nmtu = 1500\nextensions = true\n"
    "[[device]]\nport = \"pair:w\"\naddress = \"127.0.9.2/24\"\nmtu = 1500\nextensions = true\n";

constexpr unsigned kAllRightsOfPeer =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

}  // namespace

TEST_CASE("V-POLL-04: signaled work is told, unsignaled is not, receives always are, whatever the operation",
          "[wired][V-POLL-04][V-POLL-05][V-WR-13][V-WR-15][V-WR-01][V-CS-01][V-VB-26][V-IS-01]") {
  WiredPair t(64, nullptr, kExtended, kAllRightsOfPeer);
  for (const Kind& kind : kKinds) {
    for (const unsigned flags : {0u, unsigned{IBV_SEND_SIGNALED}}) {
      INFO(kind.name << (flags != 0 ? ", signaled" : ""));
      auto& of_victim = kind.posted == IBV_WR_LOCAL_INV ? t.end_a : t.end_b;
      auto& app = kind.posted == IBV_WR_LOCAL_INV ? t.a : t.b;
      ibv_mr* victim = app.make_mr(of_victim.memory.data(), 64, kAllRightsOfPeer);
      for (int i = 0; i < kind.receives; ++i) REQUIRE(post_receive(t.end_b.qp, 50, {t.end_b.sge(512, 64)}) == 0);
      ibv_sge sge = t.end_a.sge(64, 8);
      ibv_send_wr wr{};
      wr.wr_id = 5;
      wr.opcode = kind.posted;
      wr.send_flags = flags;
      wr.sg_list = &sge;
      wr.num_sge = 1;
      if (kind.posted == IBV_WR_SEND_WITH_INV || kind.posted == IBV_WR_LOCAL_INV)
        wr.invalidate_rkey = victim->rkey;
      else if (kind.posted == IBV_WR_RDMA_WRITE_WITH_IMM)
        wr.imm_data = 0x01020304;
      if (kind.posted == IBV_WR_ATOMIC_FETCH_AND_ADD || kind.posted == IBV_WR_ATOMIC_CMP_AND_SWP)
        wr.wr.atomic = {t.end_b.remote(128).address, 1, 2, t.end_b.mr->rkey};
      else
        wr.wr.rdma = {t.end_b.remote(128).address, t.end_b.mr->rkey};
      ibv_send_wr* bad = nullptr;
      REQUIRE(provider::post_send(t.end_a.qp, &wr, &bad) == 0);
      if (flags != 0) {
        const ibv_wc wc = poll(t.end_a.send_cq, 1)[0];
        CHECK(wc.wr_id == 5);
        CHECK(wc.status == IBV_WC_SUCCESS);
        CHECK(wc.opcode == kind.told);
        CHECK(wc.qp_num == t.end_a.qp->qp_num);
      }
      fence(t);
      nothing_in(t.end_a.send_cq);
      for (int i = 0; i < kind.receives; ++i) expect(t.end_b.receive_cq, 50);
      nothing_in(t.end_b.receive_cq);
      nothing_in(t.end_a.receive_cq);
      nothing_in(t.end_b.send_cq);
      REQUIRE(provider::dereg_mr(victim) == 0);
    }
  }
}

TEST_CASE("V-SGL-01: sixteen SGEs are gathered and scattered, and 512 octets travel inline",
          "[wired][V-SGL-01][V-QRN-05][V-QRN-03][V-WR-11][V-WR-16][V-IS-41]") {
  WiredPair::End from, to;
  Wired t;
  WiredPair::set_up(t.a, from, 4, nullptr);
  WiredPair::set_up(t.b, to, 4, nullptr);
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RC;
  init.cap = {4, 4, 16, 16, 512};
  init.send_cq = from.send_cq;
  init.recv_cq = from.receive_cq;
  from.qp = provider::create_qp(t.a.pd, &init);
  init.cap = {4, 4, 16, 16, 512};
  init.send_cq = to.send_cq;
  init.recv_cq = to.receive_cq;
  to.qp = provider::create_qp(t.b.pd, &init);
  REQUIRE(from.qp != nullptr);
  REQUIRE(to.qp != nullptr);
  t.join(from.qp, to.qp);
  for (std::size_t i = 0; i < 2000; ++i) from.memory[i] = static_cast<char>(i * 7 + 1);
  // Pieces of 1 to 16 octets, one after the other here, apart there; those there are of other lengths.
  std::vector<ibv_sge> gathered, scattered;
  std::uint32_t octets = 0;
  for (std::uint32_t i = 0; i < 16; ++i) {
    gathered.push_back(from.sge(octets, i + 1));
    scattered.push_back(to.sge(100 * i, 16 - i));
    octets += i + 1;
  }
  REQUIRE(post_receive(to.qp, 1, scattered) == 0);
  REQUIRE(post(from.qp, {2}, gathered) == 0);
  expect(from.send_cq, 2);
  const ibv_wc wc = poll(to.receive_cq, 1)[0];
  CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(wc.byte_len == octets);
  std::uint32_t at = 0;
  for (std::uint32_t i = 0; i < 16; ++i) {
    CHECK(std::memcmp(to.memory.data() + 100 * i, from.memory.data() + at, 16 - i) == 0);
    CHECK(to.memory[100 * i + 16 - i] == 0);
    at += 16 - i;
  }
  // A Write of as many.
  REQUIRE(post(from.qp, {3, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, to.remote(4096)}, gathered) == 0);
  expect(from.send_cq, 3);
  // One more is refused at once, of each kind; and of a Read more than one (V-SGL-07).
  gathered.push_back(from.sge(0, 1));
  scattered.push_back(to.sge(0, 1));
  CHECK(post(from.qp, {4}, gathered) == EINVAL);
  CHECK(post(from.qp, {4, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, to.remote(4096)}, gathered) == EINVAL);
  CHECK(post_receive(to.qp, 4, scattered) == EINVAL);
  // What is inline is the application's again at once, and has no region.
  std::vector<char> mine(512);
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = static_cast<char>(i * 5 + 3);
  const std::vector<char> sent = mine;
  const ibv_sge whole{reinterpret_cast<std::uintptr_t>(mine.data()), 512, 0xDEAD};
  REQUIRE(post(from.qp, {5, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | IBV_SEND_INLINE, to.remote(8192)}, {whole}) == 0);
  std::fill(mine.begin(), mine.end(), '!');
  expect(from.send_cq, 5);
  REQUIRE(post(from.qp, {6, IBV_WR_RDMA_READ}, {}) == 0);
  expect(from.send_cq, 6);
  CHECK(std::equal(sent.begin(), sent.end(), to.memory.begin() + 8192));
  CHECK(std::memcmp(to.memory.data() + 4096, from.memory.data(), octets) == 0);
}

namespace {

struct Refused {
  const char* what;
  std::function<int(WiredPair&)> posts;
  int error;
};

const Refused kRefused[] = {
    {"an operation that is none",
     [](WiredPair& t) {
       return post(t.end_a.qp, {1, static_cast<ibv_wr_opcode>(13)});
     },
     EINVAL},
    {"one that iWARP has not",
     [](WiredPair& t) {
       return post(t.end_a.qp, {1, IBV_WR_SEND_WITH_IMM});
     },
     EOPNOTSUPP},
    {"too many SGEs of a Send",
     [](WiredPair& t) { return post(t.end_a.qp, {1}, std::vector<ibv_sge>(5, t.end_a.sge(0, 1))); }, EINVAL},
    {"too many SGEs of a Read",
     [](WiredPair& t) {
       return post(t.end_a.qp, {1, IBV_WR_RDMA_READ, 0, t.end_b.remote()}, std::vector<ibv_sge>(2, t.end_a.sge(0, 1)));
     },
     EINVAL},
    {"a count of SGEs below none",
     [](WiredPair& t) {
       ibv_send_wr wr{};
       wr.num_sge = -1;
       ibv_send_wr* bad = nullptr;
       const int error = provider::post_send(t.end_a.qp, &wr, &bad);
       CHECK(bad == &wr);
       return error;
     },
     EINVAL},
    {"too much inline",
     [](WiredPair& t) {
       return post(t.end_a.qp, {1, IBV_WR_SEND, IBV_SEND_INLINE}, {t.end_a.sge(0, 4096)});
     },
     EINVAL},
    {"too many SGEs of a receive",
     [](WiredPair& t) { return post_receive(t.end_a.qp, 1, std::vector<ibv_sge>(5, t.end_a.sge(0, 1))); }, EINVAL},
    {"a receive with SGEs below none",
     [](WiredPair& t) {
       ibv_recv_wr wr{};
       wr.num_sge = -1;
       ibv_recv_wr* bad = nullptr;
       const int error = provider::post_recv(t.end_a.qp, &wr, &bad);
       CHECK(bad == &wr);
       return error;
     },
     EINVAL},
    {"a receive of a queue pair whose receives are shared", [](WiredPair& t) { return post_receive(t.end_b.qp, 1); },
     EINVAL},
    {"too many SGEs of a shared receive",
     [](WiredPair& t) { return post_receive(t.srq, 1, std::vector<ibv_sge>(5, t.end_b.sge(0, 1))); }, EINVAL},
};

}  // namespace

TEST_CASE("V-WR-03: what can be refused at once is: nothing is queued, and the queue pair goes on",
          "[wired][V-WR-03][V-IS-38][V-IS-40][V-IS-41][V-IS-42][V-IS-03][V-VB-26][V-VB-27][V-SRQ-04][V-IMM-01]"
          "[V-ERR-01]") {
  WiredPair t(4, [](Application& app) { return app.make_srq(4); });
  for (const Refused& row : kRefused) {
    INFO(row.what);
    CHECK(row.posts(t) == row.error);
    nothing_in(t.end_a.send_cq);
    nothing_in(t.end_a.receive_cq);
    nothing_in(t.end_b.receive_cq);
  }
  for (std::uint64_t i = 0; i < 4; ++i) CHECK(post_receive(t.srq, i) == 0);
  CHECK(post_receive(t.srq, 4) == ENOMEM);
  for (std::uint64_t i = 0; i < 4; ++i) {
    REQUIRE(post(t.end_a.qp, {i}) == 0);
    expect(t.end_a.send_cq, i);
    expect(t.end_b.receive_cq, i);
  }
  CHECK_FALSE(next_async(t.a, 0));
  CHECK_FALSE(next_async(t.b, 0));
}

TEST_CASE("V-IS-37: a full queue takes no more, at once, though nobody looks at it",
          "[wired][V-IS-37][V-WR-04][V-WR-07][V-VB-27][V-SRQ-06]") {
  WiredPair t(8, [](Application& app) { return app.make_srq(8); });
  t.stop_turning();  // no post waits for what is posted to be done
  for (std::uint64_t i = 0; i < 8; ++i) {
    REQUIRE(post(t.end_a.qp, {i}) == 0);
    REQUIRE(post_receive(t.end_a.qp, i) == 0);
    REQUIRE(post_receive(t.srq, i) == 0);
  }
  CHECK(post(t.end_a.qp, {8}) == ENOMEM);
  CHECK(post_receive(t.end_a.qp, 8) == ENOMEM);
  CHECK(post_receive(t.srq, 8) == ENOMEM);
  nothing_in(t.end_a.send_cq);
}

namespace {

struct Failing {
  const char* what;
  Work work;
  std::function<std::vector<ibv_sge>(WiredPair&)> sges;
  ibv_wc_status status;
  std::uint32_t exact;
};

const Failing kFailing[] = {
    {"an lkey of nobody",
     {1},
     [](WiredPair& t) {
       return std::vector{ibv_sge{t.end_a.sge(0, 8).addr, 8, 0xdeadbe00}};
     },
     IBV_WC_LOC_PROT_ERR,
     RNIC_WC_INVALID_STAG},
    {"a wrong key",
     {1},
     [](WiredPair& t) {
       return std::vector{ibv_sge{t.end_a.sge(0, 8).addr, 8, t.end_a.mr->lkey ^ 1}};
     },
     IBV_WC_LOC_PROT_ERR,
     RNIC_WC_INVALID_STAG},
    {"STag 0, which is the kernel's",
     {1},
     [](WiredPair& t) {
       return std::vector{ibv_sge{t.end_a.sge(0, 8).addr, 8, 0}};
     },
     IBV_WC_LOC_PROT_ERR,
     RNIC_WC_INVALID_STAG},
    {"an octet outside",
     {1, IBV_WR_RDMA_WRITE, 0},
     [](WiredPair& t) { return std::vector{t.end_a.sge(WiredPair::kBytes - 7, 8)}; },
     IBV_WC_LOC_PROT_ERR,
     RNIC_WC_BASE_BOUNDS},
    {"addresses that go round",
     {1},
     [](WiredPair& t) {
       return std::vector{ibv_sge{~0ull - 3, 8, t.end_a.mr->lkey}};
     },
     IBV_WC_LOC_PROT_ERR,
     RNIC_WC_WRAP},
    {"a region of another protection domain",
     {1},
     [](WiredPair& t) {
       ibv_pd* const own = t.a.pd;
       t.a.pd = provider::alloc_pd(&t.a.context->verbs.context);
       ibv_mr* foreign = t.a.make_mr(t.end_a.memory.data(), 64, WiredPair::kRemote);
       t.a.pd = own;
       return std::vector{sge_of(foreign, t.end_a.memory.data(), 8)};
     },
     IBV_WC_LOC_PROT_ERR,
     RNIC_WC_INVALID_PD},
    {"more than 4 GiB",
     {1},
     [](WiredPair& t) {
       return std::vector{ibv_sge{t.end_a.sge(0, 8).addr, 0xFFFFFFFF, t.end_a.mr->lkey}, t.end_a.sge(0, 1)};
     },
     IBV_WC_LOC_LEN_ERR,
     RNIC_WC_INVALID_LENGTH},
    {"a Read into memory that may not be written",
     {1, IBV_WR_RDMA_READ, 0},
     [](WiredPair& t) {
       ibv_mr* unwritable = t.a.make_mr(t.end_a.memory.data(), 64, 0);
       return std::vector{sge_of(unwritable, t.end_a.memory.data(), 8)};
     },
     IBV_WC_LOC_PROT_ERR,
     RNIC_WC_ACCESS},
    {"a Read into STag 0",
     {1, IBV_WR_RDMA_READ, 0},
     [](WiredPair& t) {
       return std::vector{ibv_sge{t.end_a.sge(0, 8).addr, 8, 0}};
     },
     IBV_WC_LOC_PROT_ERR,
     RNIC_WC_INVALID_STAG},
    {"a Write to STag 0",
     {1, IBV_WR_RDMA_WRITE, 0, {0x1000, 0}},
     [](WiredPair& t) { return std::vector{t.end_a.sge(0, 8)}; },
     IBV_WC_LOC_PROT_ERR,
     RNIC_WC_INVALID_STAG},
};

}  // namespace

TEST_CASE("V-CS-06: bad work of the send queue is told by its completion, unsignaled too, and by nothing else",
          "[wired][V-CS-06][V-CS-07][V-CS-08][V-CS-09][V-CS-10][V-CS-25][V-CS-02][V-SGL-06][V-STAG-05][V-STAG-08]"
          "[V-STAG-12][V-STAG-13][V-RTS-09][V-ERRST-05][V-ERR-01][V-POLL-08][V-POLL-09][V-PD-05][V-MR-01]") {
  for (const Failing& row : kFailing) {
    INFO(row.what);
    WiredPair t(8);
    REQUIRE(post_receive(t.end_b.qp, 9, {t.end_b.sge(0, 64)}) == 0);
    const std::vector<char> before = t.end_b.memory;
    REQUIRE(post(t.end_a.qp, {0, IBV_WR_RDMA_WRITE, 0, t.end_b.remote()}, {t.end_a.sge(0, 0)}) == 0);
    Work bad = row.work;
    bad.flags = 0;
    if (bad.opcode == IBV_WR_RDMA_READ || (bad.opcode == IBV_WR_RDMA_WRITE && bad.remote.address == 0))
      bad.remote = t.end_b.remote();
    REQUIRE(post(t.end_a.qp, bad, row.sges(t)) == 0);
    REQUIRE(post(t.end_a.qp, {2}, {t.end_a.sge(0, 8)}) == 0);
    const std::vector<ibv_wc> told = poll(t.end_a.send_cq, 2);
    CHECK(told[0].wr_id == 1);
    CHECK(told[0].status == row.status);
    CHECK(told[0].vendor_err == row.exact);
    CHECK(told[0].qp_num == t.end_a.qp->qp_num);
    CHECK(told[1].wr_id == 2);
    CHECK(told[1].status == IBV_WC_WR_FLUSH_ERR);
    REQUIRE(comes_true([&] { return state_of(t.end_a.qp) == IBV_QPS_ERR; }));
    REQUIRE(comes_true([&] { return state_of(t.end_b.qp) == IBV_QPS_ERR; }));
    CHECK_FALSE(next_async(t.a, 20));
    expect(t.end_b.receive_cq, 9, IBV_WC_WR_FLUSH_ERR);
    CHECK(t.end_b.memory == before);
  }
}

namespace {

ibv_srq* srq_of_eight(Application& app) { return app.make_srq(8); }

struct FailingReceive {
  const char* what;
  std::function<ibv_sge(WiredPair&)> sge;
  ibv_wc_status status;
  std::uint32_t exact;
};

const FailingReceive kFailingReceives[] = {
    {"too short", [](WiredPair& t) { return t.end_b.sge(0, 15); }, IBV_WC_LOC_LEN_ERR, RNIC_WC_MESSAGE_TOO_LONG},
    {"of nobody",
     [](WiredPair& t) {
       return ibv_sge{t.end_b.sge(0, 8).addr, 64, 0xdeadbe00};
     },
     IBV_WC_LOC_PROT_ERR, RNIC_WC_INVALID_STAG},
    {"STag 0",
     [](WiredPair& t) {
       return ibv_sge{t.end_b.sge(0, 8).addr, 64, 0};
     },
     IBV_WC_LOC_PROT_ERR, RNIC_WC_INVALID_STAG},
    {"outside", [](WiredPair& t) { return t.end_b.sge(WiredPair::kBytes - 8, 64); }, IBV_WC_LOC_PROT_ERR,
     RNIC_WC_BASE_BOUNDS},
    {"that may not be written",
     [](WiredPair& t) { return sge_of(t.b.make_mr(t.end_b.memory.data(), 64, 0), t.end_b.memory.data(), 64); },
     IBV_WC_LOC_PROT_ERR, RNIC_WC_ACCESS},
};

}  // namespace

TEST_CASE("V-EH-37: a bad receive is told by its completion when a Send takes it",
          "[wired][V-EH-37][V-SR-02][V-CS-06][V-CS-07][V-CS-08][V-STAG-08][V-SRQ-18][V-SRQ-16][V-POLL-10][V-ERR-01]") {
  const bool shared = GENERATE(false, true);
  for (const FailingReceive& row : kFailingReceives) {
    INFO(row.what << (shared ? ", shared" : ""));
    WiredPair t(8, shared ? srq_of_eight : nullptr);
    const auto take = [&](std::uint64_t id, const ibv_sge& sge) {
      return shared ? post_receive(t.srq, id, {sge}) : post_receive(t.end_b.qp, id, {sge});
    };
    REQUIRE(take(1, t.end_b.sge(1024, 64)) == 0);
    REQUIRE(take(2, row.sge(t)) == 0);
    REQUIRE(take(3, t.end_b.sge(1024, 64)) == 0);
    const std::vector<char> before = t.end_b.memory;
    for (std::uint64_t i = 0; i < 3; ++i) REQUIRE(post(t.end_a.qp, {i, IBV_WR_SEND, 0}, {t.end_a.sge(0, 16)}) == 0);
    const std::vector<ibv_wc> told = poll(t.end_b.receive_cq, shared ? 2 : 3);
    CHECK(told[0].wr_id == 1);
    CHECK(told[0].status == IBV_WC_SUCCESS);
    CHECK(told[1].wr_id == 2);
    CHECK(told[1].status == row.status);
    CHECK(told[1].vendor_err == row.exact);
    if (!shared) CHECK(told[2].status == IBV_WC_WR_FLUSH_ERR);
    REQUIRE(comes_true([&] { return state_of(t.end_b.qp) == IBV_QPS_ERR; }));
    nothing_in(t.end_b.receive_cq);
    nothing_in(t.end_b.send_cq);
    const auto event = next_async(t.b, shared ? 10'000 : 20);
    CHECK(event.has_value() == shared);
    if (event) CHECK(event->type == IBV_EVENT_QP_LAST_WQE_REACHED);
    CHECK(t.end_b.memory == before);
  }
}

namespace {

struct Right {
  const char* what;
  unsigned enabled, granted;
  ibv_wr_opcode opcode;
  bool foreign;  // another domain's region
  bool done;
};
constexpr unsigned kR = IBV_ACCESS_REMOTE_READ, kW = IBV_ACCESS_REMOTE_WRITE, kL = IBV_ACCESS_LOCAL_WRITE;
constexpr Right kRights[] = {
    {"a Write, all on", kR | kW, kL | kR | kW, IBV_WR_RDMA_WRITE, false, true},
    {"a Read, all on", kR | kW, kL | kR | kW, IBV_WR_RDMA_READ, false, true},
    {"a Write where only Writes are enabled", kW, kL | kW, IBV_WR_RDMA_WRITE, false, true},
    {"a Read where only Reads are enabled", kR, kR, IBV_WR_RDMA_READ, false, true},
    {"a Write where only Reads are enabled", kR, kL | kR | kW, IBV_WR_RDMA_WRITE, false, false},
    {"a Read where only Writes are enabled", kW, kL | kR | kW, IBV_WR_RDMA_READ, false, false},
    {"a Write to a region without the right", kR | kW, kL | kR, IBV_WR_RDMA_WRITE, false, false},
    {"a Read of a region without the right", kR | kW, kL | kW, IBV_WR_RDMA_READ, false, false},
    {"a Write to a region with local rights alone", kR | kW, kL, IBV_WR_RDMA_WRITE, false, false},
    {"a Write to another domain's region", kR | kW, kL | kR | kW, IBV_WR_RDMA_WRITE, true, false},
    {"a Read of another domain's region", kR | kW, kL | kR | kW, IBV_WR_RDMA_READ, true, false},
};

}  // namespace

TEST_CASE("V-QP-12: a peer may what both the queue pair and the region let it, each kind by itself",
          "[wired][V-QP-12][V-RD-01][V-RD-02][V-ACC-03][V-ACC-09][V-PD-05][V-SEC-02][V-SEC-05][V-QQP-09][V-AE-12]"
          "[V-AE-13][V-AE-18][V-AE-19][V-AE-30][V-AE-31][V-ERR-03][V-ERR-06]") {
  for (const Right& row : kRights) {
    INFO(row.what);
    Wired t;
    WiredPair::End from, to;
    WiredPair::set_up(t.a, from, 8, nullptr);
    WiredPair::set_up(t.b, to, 8, nullptr);
    REQUIRE(to_state(from.qp, IBV_QPS_INIT, IBV_QP_ACCESS_FLAGS) == 0);
    REQUIRE(to_state(to.qp, IBV_QPS_INIT, IBV_QP_ACCESS_FLAGS, row.enabled) == 0);
    CHECK(attributes_of(to.qp).qp_access_flags == row.enabled);
    t.accept(t.call(from.qp), to.qp);
    if (row.foreign) t.b.pd = provider::alloc_pd(&t.b.context->verbs.context);
    ibv_mr* mr = t.b.make_mr(to.memory.data(), 64, static_cast<int>(row.granted));
    REQUIRE(mr != nullptr);
    std::memset(from.memory.data(), 'f', 64);
    std::memset(to.memory.data(), 't', 64);
    const Remote remote{reinterpret_cast<std::uintptr_t>(to.memory.data()), mr->rkey};
    const bool write = row.opcode == IBV_WR_RDMA_WRITE;
    REQUIRE(post_receive(to.qp, 1) == 0);
    REQUIRE(post(from.qp, {1, row.opcode, write ? 0u : unsigned{IBV_SEND_SIGNALED}, remote}, {from.sge(0, 8)}) == 0);
    if (write) REQUIRE(post(from.qp, {1}) == 0);
    const ibv_wc wc = poll(write ? to.receive_cq : from.send_cq, 1)[0];
    CHECK((wc.status == IBV_WC_SUCCESS) == row.done);
    CHECK((write ? to : from).memory[7] == (row.done == write ? 'f' : 't'));
    CHECK((write ? to : from).memory[8] == (write ? 't' : 'f'));
    const auto told = next_async(t.b, row.done ? 20 : 10'000);
    CHECK(told.has_value() != row.done);
    if (!told) continue;
    CHECK(told->type == IBV_EVENT_QP_ACCESS_ERR);
    CHECK(told->object == reinterpret_cast<std::uintptr_t>(to.qp));
    REQUIRE(comes_true([&] { return state_of(to.qp) == IBV_QPS_ERR; }));
  }
}

TEST_CASE("V-QP-10: Reads are answered in the order they were posted in, as many at a time as there are places",
          "[wired][V-QP-10][V-IRD-07][V-ORD-02][V-ORD-07]") {
  WiredPair t(64);
  REQUIRE(attributes_of(t.end_b.qp).max_dest_rd_atomic == 4);
  for (std::size_t i = 0; i < WiredPair::kBytes; ++i) t.end_b.memory[i] = static_cast<char>(i / 64 + 1);
  for (int round = 0; round < 8; ++round) {
    for (std::uint64_t i = 0; i < 60; ++i)
      REQUIRE(post(t.end_a.qp, {i, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, t.end_b.remote(64 * i)}, {t.end_a.sge(8, 8)}) ==
              0);  // all into one place: the last is the last posted
    for (std::uint64_t i = 0; i < 60; ++i) expect(t.end_a.send_cq, i);
    CHECK(t.end_a.memory[8] == 60);
    CHECK(t.end_a.memory[15] == 60);
    CHECK(t.end_a.memory[16] == 0);
  }
}

TEST_CASE("V-PD-02: protection domains, regions, queue pairs and shared queues go together in any way",
          "[wired][V-PD-01][V-PD-02][V-PD-03][V-VB-04]") {
  Wired t;
  ibv_cq* cq_a = t.a.make_cq(64);
  ibv_cq* cq_b = t.b.make_cq(64);
  std::vector<char> memory(64 * 4);
  std::vector<ibv_mr*> regions;
  for (std::uint64_t domain = 0; domain < 3; ++domain) {
    t.b.pd = provider::alloc_pd(&t.b.context->verbs.context);
    REQUIRE(t.b.pd != nullptr);
    ibv_srq* srq = t.b.make_srq(8);
    for (std::uint64_t i = 0; i < 2; ++i) {
      ibv_qp* caller = t.a.make_qp(cq_a, cq_a, 4);
      ibv_qp* called = t.b.make_qp(cq_b, cq_b, 4, i == 0 ? srq : nullptr);
      t.join(caller, called);
      for (int each = 0; each < 2; ++each) {
        regions.push_back(t.b.make_mr(memory.data(), 64, IBV_ACCESS_LOCAL_WRITE));
        const std::vector sges{sge_of(regions.back(), memory.data(), 8)};
        REQUIRE((i == 0 ? post_receive(srq, 7, sges) : post_receive(called, 7, sges)) == 0);
        REQUIRE(post(caller, {8}) == 0);
        expect(cq_a, 8);
        expect(cq_b, 7);
      }
    }
  }
}
