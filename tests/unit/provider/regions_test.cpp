// Regions of each kind that ibverbs can name, as an application and its peer see them.
#include <sys/mman.h>

#include "unit/provider/windows.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {
std::uint64_t address_of(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }
}  // namespace

TEST_CASE("V-PBL-04: a region from zero begins with its first octet, wherever that is, for all work",
          "[wired][regions][V-PBL-04][V-PBL-05][V-PBL-06][V-VB-19]") {
  Windowed t;
  std::vector<char> memory(9000);
  char* const at = memory.data() + 17;
  ibv_mr* mr = t.b.make_mr(at, 5003, WiredPair::kRemote | IBV_ACCESS_ZERO_BASED);
  REQUIRE(mr != nullptr);
  std::memset(t.end_a.memory.data(), 'z', 64);
  CHECK(Windowed::writes(t.end_a, 0, mr->rkey));
  CHECK(Windowed::writes(t.end_a, 5002, mr->rkey));
  CHECK(at[-1] == 0);
  CHECK(at[0] == 'z');
  CHECK(at[5002] == 'z');
  CHECK(at[5003] == 0);
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, 5003, mr->rkey); }));
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, address_of(at), mr->rkey); }));
  // Its own work names it by offsets, too.
  REQUIRE(post_receive(t.end_b.qp, 1, {{100, 8, mr->lkey}}) == 0);
  REQUIRE(post(t.end_a.qp, {2}, {t.end_a.sge(0, 8)}) == 0);
  expect(t.end_b.receive_cq, 1);
  CHECK(at[107] == 'z');
  REQUIRE(post_receive(t.end_a.qp, 3, {t.end_a.sge(200, 8)}) == 0);
  REQUIRE(post(t.end_b.qp, {4}, {{100, 8, mr->lkey}}) == 0);
  expect(t.end_a.receive_cq, 3);
  CHECK(t.end_a.memory[207] == 'z');
  REQUIRE(post(t.end_b.qp, {6}, {{address_of(at), 8, mr->lkey}}) == 0);
  CHECK(poll(t.end_b.send_cq, 2)[1].status == IBV_WC_LOC_PROT_ERR);
}

TEST_CASE("V-SGL-05: a region of Local Write alone is for its owner's work, and for no peer's",
          "[wired][regions][V-ACC-01][V-SGL-05][V-ACC-03]") {
  Windowed t;
  std::vector<char> memory(4096);
  ibv_mr* mr = t.b.make_mr(memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(mr != nullptr);
  std::memset(t.end_a.memory.data(), 'l', 64);
  REQUIRE(post_receive(t.end_b.qp, 1, {{address_of(memory.data()), 8, mr->lkey}}) == 0);
  REQUIRE(post(t.end_a.qp, {2, IBV_WR_SEND, 0}, {t.end_a.sge(0, 8)}) == 0);
  expect(t.end_b.receive_cq, 1);
  CHECK(memory[7] == 'l');
  // A Read's sink as well, as programs for InfiniBand expect it.
  REQUIRE(post(t.end_b.qp, {3, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, t.end_a.remote()},
               {{address_of(&memory[100]), 8, mr->lkey}}) == 0);
  expect(t.end_b.send_cq, 3);
  CHECK(memory[107] == 'l');
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, address_of(&memory[50]), mr->rkey); }));
  CHECK(t.refused([&] { return Windowed::reads(t.end_a, address_of(&memory[0]), mr->rkey); }));
  CHECK(memory[50] == 0);
}

TEST_CASE("V-ACC-01: which rights a region may have", "[wired][regions][V-ACC-01][V-IS-31][V-VB-19]") {
  Windowed t;
  char octet = 0;
  const auto refusal = [&](unsigned access) {
    errno = 0;
    ibv_mr* mr = t.b.make_mr(&octet, 1, static_cast<int>(access));
    if (mr != nullptr) REQUIRE(provider::dereg_mr(mr) == 0);
    return mr != nullptr ? 0 : errno;
  };
  constexpr unsigned kAll = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  for (unsigned remote = 0; remote < 16; ++remote) {
    if ((remote & IBV_ACCESS_LOCAL_WRITE) != 0) continue;
    const bool writes = (remote & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
    CHECK(refusal(remote) == (writes ? EINVAL : 0));
    CHECK(refusal(remote | IBV_ACCESS_LOCAL_WRITE) == 0);
  }
  CHECK(refusal(IBV_ACCESS_LOCAL_WRITE | kAll | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB) == 0);
  // What is optional is taken and means nothing here; each of it, relaxed ordering first.
  for (unsigned bit = 20; bit < 30; ++bit) CHECK(refusal(IBV_ACCESS_LOCAL_WRITE | 1u << bit) == 0);
  CHECK(refusal(IBV_ACCESS_LOCAL_WRITE | 1u << 30) == EINVAL);
  CHECK(refusal(IBV_ACCESS_LOCAL_WRITE | 1u << 10) == EINVAL);
  CHECK(refusal(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND) == EOPNOTSUPP);
}

TEST_CASE("a region of relaxed ordering is one as any other, last octets last", "[wired][regions][V-ORD-09]") {
  Windowed t;
  ibv_mr* mr = t.b.make_mr(t.end_b.memory.data(), WiredPair::kBytes, WiredPair::kRemote | IBV_ACCESS_RELAXED_ORDERING);
  REQUIRE(mr != nullptr);
  volatile const char& last = t.end_b.memory[WiredPair::kBytes - 1];
  for (int round = 1; round <= 50; ++round) {
    std::memset(t.end_a.memory.data(), round, WiredPair::kBytes);
    REQUIRE(post(t.end_a.qp, {1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, {t.address(0), mr->rkey}},
                 {t.end_a.sge(0, WiredPair::kBytes)}) == 0);
    REQUIRE(comes_true([&] { return last == round; }));
    CHECK(t.end_b.memory == std::vector<char>(WiredPair::kBytes, static_cast<char>(round)));
    expect(t.end_a.send_cq, 1);
  }
}

TEST_CASE("V-PD-05: a region of another domain is no memory for a queue pair, its own work or its peer's",
          "[wired][regions][V-PD-05][V-PD-01][V-PD-02][V-SEC-02][V-CS-09]") {
  Windowed t;
  ibv_pd* const own = t.b.pd;
  t.b.pd = provider::alloc_pd(&t.b.context->verbs.context);
  std::vector<char> memory(4096, 'd');
  ibv_mr* mr = t.b.make_mr(memory.data(), memory.size(), WiredPair::kRemote);
  ibv_pd* const other = std::exchange(t.b.pd, own);
  const ibv_sge sge{address_of(memory.data()), 8, mr->lkey};
  SECTION("as a source") {
    REQUIRE(post_receive(t.end_a.qp, 1, {t.end_a.sge(0, 8)}) == 0);
    REQUIRE(post(t.end_b.qp, {2}, {sge}) == 0);
    const ibv_wc wc = poll(t.end_b.send_cq, 1)[0];
    CHECK(wc.status == IBV_WC_LOC_PROT_ERR);
    CHECK(wc.vendor_err == RNIC_WC_INVALID_PD);
    CHECK(t.end_a.memory[0] == 0);
  }
  SECTION("as a receive") {
    REQUIRE(post_receive(t.end_b.qp, 1, {sge}) == 0);
    REQUIRE(post(t.end_a.qp, {2}, {t.end_a.sge(0, 8)}) == 0);
    CHECK(poll(t.end_b.receive_cq, 1)[0].vendor_err == RNIC_WC_INVALID_PD);
  }
  SECTION("as a Read's sink") {
    REQUIRE(post(t.end_b.qp, {2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, t.end_a.remote()}, {sge}) == 0);
    CHECK(poll(t.end_b.send_cq, 1)[0].vendor_err == RNIC_WC_INVALID_PD);
  }
  SECTION("for its peer") {
    CHECK_FALSE(Windowed::writes(t.end_a, sge.addr, mr->rkey));
    CHECK(Windowed::comes_back(t.second_a));  // of that stream alone (V-SEC-02)
  }
  CHECK(std::count(memory.begin(), memory.end(), 'd') == 4096);
  // A queue pair of that domain has it, and any other the same.
  t.b.pd = other;
  ibv_cq* cq = t.b.make_cq(16);
  ibv_qp* qp = t.b.make_qp(cq, cq, 8);
  ibv_srq* srq = t.b.make_srq(8);
  ibv_mw* window = t.window();
  CHECK(provider::dealloc_pd(other) == EBUSY);
  CHECK(provider::destroy_qp(qp) == 0);
  CHECK(provider::destroy_srq(srq) == 0);
  CHECK(provider::dereg_mr(mr) == 0);
  CHECK(provider::dealloc_pd(other) == EBUSY);
  CHECK(provider::dealloc_mw(window) == 0);
  CHECK(provider::dealloc_pd(other) == 0);
}

TEST_CASE("V-MR-14: regions over the same memory stand by themselves",
          "[wired][regions][V-MR-14][V-STATE-05][V-MR-01]") {
  Windowed t;
  ibv_mr* read = t.b.make_mr(t.end_b.memory.data() + 10, 100, IBV_ACCESS_REMOTE_READ);
  ibv_mr* written = t.b.make_mr(t.end_b.memory.data(), 200, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  REQUIRE((read != nullptr && written != nullptr));
  CHECK(read->rkey >> 8 != written->rkey >> 8);
  std::memset(t.end_a.memory.data(), 'o', 64);
  CHECK(Windowed::writes(t.end_a, t.address(20), written->rkey));
  CHECK(Windowed::reads(t.end_a, t.address(20), read->rkey));
  CHECK(t.end_a.memory[64] == 'o');
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, t.address(20), read->rkey); }));
  CHECK(t.refused([&] { return Windowed::reads(t.end_a, t.address(20), written->rkey); }));
  REQUIRE(Windowed::invalidated(t.end_b, read->rkey).status == IBV_WC_SUCCESS);
  CHECK(Windowed::writes(t.end_a, t.address(20), written->rkey));
  REQUIRE(provider::dereg_mr(written) == 0);
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, t.address(20), written->rkey); }));
  // Invalid it goes as well.
  CHECK(provider::dereg_mr(read) == 0);
  CHECK(Windowed::writes(t.end_a, t.address(20), t.end_b.mr->rkey));
}

TEST_CASE("V-STAG-12: STag 0 is nobody's memory",
          "[wired][regions][V-STAG-12][V-STAG-07][V-STAG-08][V-STAG-09][V-MR-01]") {
  Windowed t;
  char octet = 'q';
  const ibv_sge physical{address_of(&octet), 1, 0};
  SECTION("as a source") {
    REQUIRE(post(t.end_b.qp, {2}, {physical}) == 0);
    CHECK(poll(t.end_b.send_cq, 1)[0].vendor_err == RNIC_WC_INVALID_STAG);
  }
  SECTION("as a receive") {
    REQUIRE(post_receive(t.end_b.qp, 1, {physical}) == 0);
    REQUIRE(post(t.end_a.qp, {2}, {t.end_a.sge(0, 1)}) == 0);
    CHECK(poll(t.end_b.receive_cq, 1)[0].vendor_err == RNIC_WC_INVALID_STAG);
  }
  SECTION("as a Read's sink") {
    REQUIRE(post(t.end_b.qp, {2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, t.end_a.remote()}, {physical}) == 0);
    CHECK(poll(t.end_b.send_cq, 1)[0].vendor_err == RNIC_WC_INVALID_STAG);
  }
  SECTION("as what is written to") {
    REQUIRE(post(t.end_a.qp, {2, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, {address_of(&octet), 0}}, {t.end_a.sge(0, 1)}) ==
            0);
    CHECK(poll(t.end_a.send_cq, 1)[0].vendor_err == RNIC_WC_INVALID_STAG);
  }
  SECTION("as what is read") {
    CHECK_FALSE(Windowed::reads(t.end_a, address_of(&octet), 0));
    const auto told = next_async(t.b, 10'000);
    REQUIRE(told);
    CHECK(told->type == IBV_EVENT_QP_ACCESS_ERR);
  }
  CHECK(octet == 'q');
}

TEST_CASE(
    "V-ACC-09: whom memory belongs to is told of each access that a peer may not make, and loses that stream alone",
    "[wired][regions][V-ACC-09][V-ERR-01][V-ERR-06][V-AE-16][V-AE-17][V-AE-18][V-AE-19][V-AE-20][V-AE-28][V-AE-29]"
    "[V-AE-30][V-AE-31][V-AE-32]") {
  Windowed t;
  ibv_pd* const own = t.b.pd;
  t.b.pd = provider::alloc_pd(&t.b.context->verbs.context);
  const ibv_mr* const others = t.b.make_mr(t.end_b.memory.data(), 4096, WiredPair::kRemote);
  t.b.pd = own;
  const bool reads = GENERATE(false, true);
  const std::uint32_t rkey = t.end_b.mr->rkey;
  struct Wrong {
    const char* what;
    std::uint64_t to;
    std::uint32_t rkey;
    std::uint32_t length;
  };
  const Wrong all[] = {
      {"STag", t.address(0), ibv_inc_rkey(rkey), 8}, {"bounds", t.address(WiredPair::kBytes - 4), rkey, 8},
      {"rights", t.address(0), t.region->rkey, 8},   {"domain", t.address(0), others->rkey, 8},
      {"wrap", ~std::uint64_t{0} - 3, rkey, 8},
  };
  std::memset(t.end_a.memory.data(), 'w', 64);
  for (const Wrong& wrong : all) {
    INFO(wrong.what << (reads ? " read" : " written"));
    const ibv_wr_opcode opcode = reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
    REQUIRE(post(t.end_a.qp, {1, opcode, 0, {wrong.to, wrong.rkey}}, {t.end_a.sge(0, wrong.length)}) == 0);
    const auto told = next_async(t.b, 10'000);
    REQUIRE(told);
    CHECK(told->object == reinterpret_cast<std::uintptr_t>(t.end_b.qp));
    CHECK(told->type == IBV_EVENT_QP_ACCESS_ERR);
    CHECK(comes_true([&] { return state_of(t.end_b.qp) == IBV_QPS_ERR; }));
    CHECK_FALSE(next_async(t.b, 0));
    CHECK(t.end_b.memory == std::vector<char>(WiredPair::kBytes));
    CHECK(std::count(t.end_a.memory.begin(), t.end_a.memory.end(), 'w') == 64);
    CHECK(Windowed::comes_back(t.second_a));
    t.join_first();
  }
}

namespace {

// An entry that the provider would not have written.
void forge(ibv_qp* ibv, const rnic_sqe& entry) {
  provider::Qp& qp = provider::of(ibv);
  provider::SendQueue& queue = qp.send;
  std::memset(queue.slot(queue.head), 0, queue.stride);
  std::memcpy(queue.slot(queue.head), &entry, sizeof entry);
  queue.work[queue.head & (queue.size - 1)] = {99, entry.opcode, 0};
  queue.publish(queue.head + 1, qp.context->doorbells);
}

}  // namespace

TEST_CASE("V-PBL-07: shared memory is what was registered, whatever its application maps at its address since",
          "[wired][regions][V-PBL-07]") {
  Windowed t;
  constexpr std::size_t kPage = 4096;
  const int fd = memfd_create("registered", MFD_CLOEXEC);
  REQUIRE(ftruncate(fd, kPage) == 0);
  const auto map = [&](void* at, int flags, int file) {
    void* made = mmap(at, kPage, PROT_READ | PROT_WRITE, flags, file, 0);
    REQUIRE(made != MAP_FAILED);
    return static_cast<char*>(made);
  };
  char* const memory = map(nullptr, MAP_SHARED, fd);
  ibv_mr* mr = t.b.make_mr(memory, kPage, WiredPair::kRemote);
  REQUIRE(mr != nullptr);
  REQUIRE(map(memory, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1) == memory);
  std::memset(t.end_a.memory.data(), 'r', 64);
  CHECK(Windowed::writes(t.end_a, address_of(memory) + 100, mr->rkey, 8));
  char there[8] = {};
  REQUIRE(pread(fd, there, sizeof there, 100) == sizeof there);
  CHECK(std::string(there, sizeof there) == "rrrrrrrr");
  CHECK(memory[100] == 0);
  // Until it is registered again.
  REQUIRE(provider::dereg_mr(mr) == 0);
  mr = t.b.make_mr(memory, kPage, WiredPair::kRemote);
  CHECK(Windowed::writes(t.end_a, address_of(memory) + 200, mr->rkey, 8));
  CHECK(memory[207] == 'r');
  t.end();
  munmap(memory, kPage);
  close(fd);
}

TEST_CASE("V-SEC-12: no forged entry registers memory, or binds by what it is not",
          "[wired][regions][V-SEC-12][V-MR-23][V-STAG-13][V-QP-05][V-CS-03][V-CS-13][V-SEC-09]") {
  Windowed t;
  ibv_mw* window = t.window();
  rnic_sqe entry{};
  entry.flags = RNIC_SQE_SIGNALED;
  entry.remote_address = t.address(0);
  entry.argument = 64;
  std::uint32_t reason = 0;
  ibv_wc_status status = IBV_WC_LOC_QP_OP_ERR;
  SECTION("a fast registration") {
    entry.opcode = RNIC_OP_FAST_REGISTER;
    entry.rkey = t.region->rkey;
    reason = RNIC_WC_NOT_PRIVILEGED;
  }
  SECTION("more SGEs than there can be") {
    entry.opcode = RNIC_OP_WRITE;
    entry.sge_count = 200;
    reason = RNIC_WC_INVALID_WQE;
  }
  SECTION("an operation that there is not") {
    entry.opcode = 200;
    reason = RNIC_WC_INVALID_WQE;
  }
  SECTION("a Bind to what is beyond all numbers") {
    entry.opcode = RNIC_OP_BIND;
    entry.rkey = window->rkey;
    entry.invalidate = 0xFFFFFFFF;
    reason = RNIC_WC_INVALID_REGION;
    status = IBV_WC_MW_BIND_ERR;
  }
  SECTION("a Bind of what is beyond all numbers") {
    entry.opcode = RNIC_OP_BIND;
    entry.rkey = 0xFFFFFFFF;
    entry.invalidate = t.region->lkey;
    reason = RNIC_WC_INVALID_WINDOW;
    status = IBV_WC_MW_BIND_ERR;
  }
  SECTION("a Bind of a window to itself") {
    entry.opcode = RNIC_OP_BIND;
    entry.rkey = entry.invalidate = window->rkey;
    reason = RNIC_WC_INVALID_REGION;
    status = IBV_WC_MW_BIND_ERR;
  }
  SECTION("a Bind without a right") {
    entry.opcode = RNIC_OP_BIND;
    entry.rkey = window->rkey;
    entry.invalidate = t.region->lkey;
    reason = RNIC_WC_ACCESS;
    status = IBV_WC_MW_BIND_ERR;
  }
  forge(t.end_b.qp, entry);
  const ibv_wc wc = poll(t.end_b.send_cq, 1)[0];
  CHECK(wc.wr_id == 99);
  CHECK(wc.vendor_err == reason);
  CHECK(wc.status == status);
  CHECK(Windowed::comes_back(t.second_a));
}
