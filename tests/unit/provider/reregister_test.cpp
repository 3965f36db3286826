// ibv_rereg_mr, as an application and its peer see it: what a region becomes, and what is left of it when it cannot.
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "kit/provider_each_way.hpp"
#include "unit/provider/pages.hpp"
#include "unit/provider/windows.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

constexpr int kLocal = IBV_ACCESS_LOCAL_WRITE;

int reregister_access(ibv_mr* mr, int access) {
  return provider::rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, access);
}
int reregister_pd(ibv_mr* mr, ibv_pd* pd) { return provider::rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, nullptr, 0, 0); }
int reregister_at(ibv_mr* mr, void* at, std::size_t length) {
  return provider::rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, at, length, 0);
}

std::uint64_t address_of(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }

}  // namespace

TEST_CASE("V-MR-05: a region's rights change under the same STag, for its peers and for its own work",
          "[wired][reregister][V-MR-05][V-VB-22][V-STAG-03]") {
  Windowed t;
  ibv_mr& mr = *t.end_b.mr;
  const std::uint32_t rkey = mr.rkey;
  std::memset(t.end_a.memory.data(), 'r', 64);
  CHECK(Windowed::writes(t.end_a, t.address(0), rkey));
  REQUIRE(reregister_access(&mr, kLocal) == 0);
  CHECK(mr.rkey == rkey);
  CHECK(mr.lkey == rkey);
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, t.address(1), rkey); }));
  CHECK(t.refused([&] { return Windowed::reads(t.end_a, t.address(0), rkey); }));
  REQUIRE(reregister_access(&mr, IBV_ACCESS_REMOTE_READ) == 0);
  CHECK(Windowed::reads(t.end_a, t.address(0), rkey));
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, t.address(1), rkey); }));
  // Of its own: a receive goes nowhere now.
  REQUIRE(post_receive(t.end_b.qp, 4, {t.end_b.sge(0, 8)}) == 0);
  REQUIRE(post(t.end_a.qp, {5}, {t.end_a.sge(0, 8)}) == 0);
  expect(t.end_b.receive_cq, 4, IBV_WC_LOC_PROT_ERR);
  t.join_first();
  REQUIRE(reregister_access(&mr, WiredPair::kRemote) == 0);
  CHECK(Windowed::writes(t.end_a, t.address(1), rkey));
  CHECK(t.end_b.memory[1] == 'r');
}

TEST_CASE("V-MR-05: a region goes over to another domain, which holds it then",
          "[wired][reregister][V-MR-05][V-SEC-02][V-PD-04][V-PD-05]") {
  Windowed t;
  ibv_pd* other = provider::alloc_pd(&t.b.context->verbs.context);
  REQUIRE(other != nullptr);
  ibv_mr& mr = *t.end_b.mr;
  REQUIRE(reregister_pd(&mr, other) == 0);
  CHECK(provider::dealloc_pd(other) == EBUSY);
  std::memset(t.end_a.memory.data(), 'p', 64);
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, t.address(0), mr.rkey); }));
  CHECK(t.end_b.memory[0] == 0);
  REQUIRE(post_receive(t.end_b.qp, 4, {t.end_b.sge(0, 8)}) == 0);
  REQUIRE(post(t.end_a.qp, {5}, {t.end_a.sge(0, 8)}) == 0);
  const ibv_wc wc = poll(t.end_b.receive_cq, 1)[0];
  CHECK(wc.status == IBV_WC_LOC_PROT_ERR);
  CHECK(wc.vendor_err == RNIC_WC_INVALID_PD);
  CHECK(t.end_b.memory[0] == 0);
  t.join_first();
  REQUIRE(reregister_pd(&mr, t.b.pd) == 0);
  CHECK(provider::dealloc_pd(other) == 0);
  CHECK(Windowed::writes(t.end_a, t.address(0), mr.rkey));
  CHECK(t.end_b.memory[0] == 'p');
}

TEST_CASE("V-MR-08: a region moves to other memory, and nobody comes to it by what was",
          "[wired][reregister][V-MR-05][V-MR-08][V-MR-04]") {
  Windowed t;
  ibv_mr& mr = *t.end_b.mr;
  const std::uint32_t before = mr.rkey;
  std::vector<char> elsewhere(5000);
  // Over the old place too: an old rkey is no good even where the address is.
  const bool overlaps = GENERATE(false, true);
  char* const to = overlaps ? t.end_b.memory.data() + 1 : elsewhere.data();
  REQUIRE(reregister_at(&mr, to, 5000) == 0);
  CHECK(mr.rkey != before);
  CHECK(mr.rkey >> 8 == before >> 8);
  CHECK(mr.lkey == mr.rkey);
  std::memset(t.end_a.memory.data(), 't', 64);
  CHECK(Windowed::writes(t.end_a, address_of(to), mr.rkey));
  CHECK(Windowed::writes(t.end_a, address_of(to) + 4999, mr.rkey));
  CHECK(to[0] == 't');
  CHECK(to[4999] == 't');
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, address_of(to) + 5000, mr.rkey); }));
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, t.address(0), mr.rkey); }));
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, address_of(to), before); }));
  CHECK(t.end_b.memory[0] == 0);
  // What is posted next is gathered from the new place, too.
  std::memset(to, 'g', 8);
  REQUIRE(post_receive(t.end_a.qp, 4, {t.end_a.sge(100, 8)}) == 0);
  REQUIRE(post(t.end_b.qp, {5}, {{address_of(to), 8, mr.lkey}}) == 0);
  expect(t.end_a.receive_cq, 4);
  CHECK(t.end_a.memory[107] == 'g');
}

TEST_CASE("V-MR-05: all of a region changes at once, to one from zero and back",
          "[wired][reregister][V-MR-05][V-PBL-05][V-PBL-04]") {
  Windowed t;
  ibv_mr& mr = *t.end_b.mr;
  ibv_pd* other = provider::alloc_pd(&t.b.context->verbs.context);
  std::vector<char> elsewhere(300);
  constexpr int kAll = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
  REQUIRE(provider::rereg_mr(&mr, kAll, other, elsewhere.data() + 3, 200, WiredPair::kRemote | IBV_ACCESS_ZERO_BASED) ==
          0);
  REQUIRE(reregister_pd(&mr, t.b.pd) == 0);
  std::memset(t.end_a.memory.data(), 'a', 64);
  CHECK(Windowed::writes(t.end_a, 0, mr.rkey));
  CHECK(Windowed::writes(t.end_a, 199, mr.rkey));
  CHECK(elsewhere[3] == 'a');
  CHECK(elsewhere[202] == 'a');
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, 200, mr.rkey); }));
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, address_of(&elsewhere[3]), mr.rkey); }));
  REQUIRE(reregister_access(&mr, WiredPair::kRemote) == 0);
  CHECK(Windowed::writes(t.end_a, address_of(&elsewhere[4]), mr.rkey));
  CHECK(elsewhere[4] == 'a');
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, 0, mr.rkey); }));
}

TEST_CASE("an offset that a region was given stays its own while it does not move", "[wired][reregister]") {
  Windowed t;
  std::vector<char> memory(128);
  constexpr std::uint64_t kIova = 0x123450000;
  ibv_mr* mr = provider::reg_mr(t.b.pd, memory.data(), memory.size(), kIova, kLocal);
  REQUIRE(mr != nullptr);
  mr->context = &t.b.context->verbs.context;
  REQUIRE(reregister_access(mr, WiredPair::kRemote) == 0);
  std::memset(t.end_a.memory.data(), 'i', 64);
  CHECK(Windowed::writes(t.end_a, kIova + 127, mr->rkey));
  CHECK(memory[127] == 'i');
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, address_of(memory.data()), mr->rkey); }));
}

TEST_CASE("V-MR-07: a region that cannot become what was asked for is gone, and only its handle is left",
          "[wired][reregister][V-MR-07][V-IS-29][V-IS-30][V-IS-31][V-IS-07][V-MR-02]") {
  Windowed t;
  ibv_mr& mr = *t.end_b.mr;
  const std::uint32_t rkey = mr.rkey;
  const long page = sysconf(_SC_PAGESIZE);
  char* const hole = static_cast<char*>(
      mmap(nullptr, static_cast<std::size_t>(2 * page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(hole != MAP_FAILED);
  REQUIRE(mprotect(hole + page, static_cast<std::size_t>(page), PROT_READ) == 0);
  CHECK(Windowed::writes(t.end_a, t.address(0), rkey));
  errno = 0;
  int expected = EINVAL;
  int error = 0;
  SECTION("by its rights") { error = reregister_access(&mr, IBV_ACCESS_REMOTE_WRITE); }
  SECTION("by rights that this device has not") {
    error = reregister_access(&mr, kLocal | IBV_ACCESS_ON_DEMAND);
    expected = EOPNOTSUPP;
  }
  SECTION("by its length") { error = reregister_at(&mr, t.end_b.memory.data(), 0); }
  SECTION("by its end") { error = reregister_at(&mr, reinterpret_cast<void*>(~std::uintptr_t{0} - 10), 100); }
  SECTION("by memory that is not there") {
    REQUIRE(munmap(hole, static_cast<std::size_t>(page)) == 0);
    error = reregister_at(&mr, hole, 100);
    expected = EFAULT;
  }
  SECTION("by memory that may not be written") {
    error = reregister_at(&mr, hole + page, 100);
    expected = EFAULT;
  }
  SECTION("by its domain") { error = reregister_pd(&mr, nullptr); }
  SECTION("by a domain of another device") { error = reregister_pd(&mr, t.a.pd); }
  CHECK(error == expected);
  CHECK(errno == expected);
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, t.address(0), rkey); }));
  REQUIRE(post_receive(t.end_b.qp, 4, {t.end_b.sge(0, 8)}) == 0);
  REQUIRE(post(t.end_a.qp, {5}, {t.end_a.sge(0, 8)}) == 0);
  expect(t.end_b.receive_cq, 4, IBV_WC_LOC_PROT_ERR);
  t.join_first();
  // It cannot be had back: what is left is to deregister it.
  CHECK(reregister_access(&mr, kLocal) == EINVAL);
  CHECK(provider::dereg_mr(&mr) == 0);
  t.end_b.mr = t.b.make_mr(t.end_b.memory.data(), WiredPair::kBytes, WiredPair::kRemote);
  CHECK(Windowed::writes(t.end_a, t.address(0), t.end_b.mr->rkey));
  munmap(hole, static_cast<std::size_t>(2 * page));
}

TEST_CASE("V-MR-06: a region with a window bound stays as it is, whatever was asked for",
          "[wired][reregister][V-MR-06][V-MR-07][V-MW-14][V-IS-36][V-IMM-01]") {
  Windowed t;
  ibv_mw* window = t.window();
  const std::uint32_t rkey = t.bind(window, t.info(0, 64));
  errno = 0;
  SECTION("good") { CHECK(reregister_access(t.region, kLocal) == EBUSY); }
  SECTION("bad") { CHECK(reregister_access(t.region, IBV_ACCESS_REMOTE_WRITE) == EBUSY); }
  SECTION("elsewhere") { CHECK(reregister_at(t.region, t.second_b.memory.data(), 100) == EBUSY); }
  CHECK(errno == EBUSY);
  CHECK(Windowed::writes(t.end_a, t.address(0), rkey));
  // It is itself good for work still, also for what is gathered at post.
  REQUIRE(post_receive(t.end_a.qp, 4, {t.end_a.sge(100, 8)}) == 0);
  std::memset(t.end_b.memory.data() + 8, 'h', 8);
  REQUIRE(post(t.end_b.qp, {5}, {{t.address(8), 8, t.region->lkey}}) == 0);
  expect(t.end_a.receive_cq, 4);
  expect(t.end_b.send_cq, 5);
  CHECK(t.end_a.memory[107] == 'h');
  REQUIRE(Windowed::invalidated(t.end_b, rkey).status == IBV_WC_SUCCESS);
  CHECK(reregister_access(t.region, WiredPair::kRemote) == 0);
  CHECK(Windowed::writes(t.end_a, t.address(0), t.region->rkey));
}

TEST_CASE("V-STATE-01: an invalidated region is Valid again when it is reregistered",
          "[wired][reregister][V-STATE-01][V-STATE-03][V-MR-05]") {
  Windowed t;
  ibv_mr& mr = *t.end_b.mr;
  REQUIRE(Windowed::invalidated(t.end_b, mr.rkey).status == IBV_WC_SUCCESS);
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, t.address(0), mr.rkey); }));
  REQUIRE(reregister_access(&mr, WiredPair::kRemote) == 0);
  CHECK(Windowed::writes(t.end_a, t.address(0), mr.rkey));
}

TEST_CASE("V-MR-09: a region is reregistered any number of times, in all its ways", "[wired][reregister][V-MR-09]") {
  Windowed t;
  ibv_mr& mr = *t.end_b.mr;
  ibv_pd* const pds[] = {t.b.pd, provider::alloc_pd(&t.b.context->verbs.context)};
  for (std::size_t i = 0; i < 400; ++i) {
    REQUIRE(reregister_pd(&mr, pds[(i + 1) % 2]) == 0);
    REQUIRE(reregister_at(&mr, t.end_b.memory.data() + i, WiredPair::kBytes - 2 * i) == 0);
    REQUIRE(reregister_access(&mr, i % 2 == 0 ? kLocal : WiredPair::kRemote) == 0);
  }
  CHECK(provider::dealloc_pd(pds[1]) == 0);
  CHECK(Windowed::writes(t.end_a, t.address(399), mr.rkey));
  CHECK(provider::dereg_mr(&mr) == 0);
}

TEST_CASE("what asks for no change, or for one that there is not, changes nothing", "[wired][reregister][V-VBX-01]") {
  Windowed t;
  ibv_mr& mr = *t.end_b.mr;
  CHECK(provider::rereg_mr(&mr, 0, nullptr, nullptr, 0, 0) == EINVAL);
  CHECK(provider::rereg_mr(&mr, 8, nullptr, nullptr, 0, 0) == EINVAL);
  CHECK(errno == EINVAL);
  CHECK(Windowed::writes(t.end_a, t.address(0), mr.rkey));
}

TEST_CASE("a region of swapped pages is reregistered: to others, which are swapped, and of its own nothing is kept",
          "[wired][reregister][swap]") {
  SKIP_WITHOUT_USERFAULTFD();
  const EachWay way;
  Windowed t;
  Pages first(64), second(40);
  setenv("RNIC_FAST_MEMORY", "1", 1);  // not for the heap's memory, in which the daemon has its own
  {
    ibv_mr* mr = t.b.make_mr(first.octets, 32 * kPage, WiredPair::kRemote);
    REQUIRE(mr != nullptr);
    const auto& own = *reinterpret_cast<provider::Mr*>(mr);
    const auto reached = [&](char* at) {
      const char wanted = static_cast<char>(*at + 1);
      std::memset(t.end_a.memory.data(), wanted, 64);
      return Windowed::writes(t.end_a, address_of(at), mr->rkey) && *at == wanted;
    };
    CHECK(own.swapped != nullptr);
    CHECK(reached(first.octets + kPage));
    REQUIRE(reregister_access(mr, kLocal) == 0);
    CHECK(own.swapped != nullptr);
    REQUIRE(reregister_access(mr, WiredPair::kRemote) == 0);
    CHECK(own.swapped != nullptr);
    CHECK(reached(first.octets + kPage));
    REQUIRE(reregister_at(mr, second.octets, second.size) == 0);
    CHECK(own.swapped != nullptr);
    CHECK(reached(second.octets + 39 * kPage + 5));
    // Pages that a region uses are left as they are; nobody uses the first.
    ibv_mr* larger = t.b.make_mr(first.octets, first.size, WiredPair::kRemote);
    REQUIRE(larger != nullptr);
    CHECK(reinterpret_cast<provider::Mr*>(larger)->swapped != nullptr);
    CHECK(provider::dereg_mr(larger) == 0);
    // What fails keeps none, either.
    CHECK(reregister_access(mr, IBV_ACCESS_REMOTE_WRITE) == EINVAL);
    CHECK(own.swapped == nullptr);
    CHECK(provider::dereg_mr(mr) == 0);
    CHECK_FALSE(stays(second.octets, second.size));
  }
  unsetenv("RNIC_FAST_MEMORY");
}

namespace {

// Writes without end into b's memory by the second pair, and goes on in vain when it is refused.
class Neighbour {
 public:
  Neighbour(Windowed& pair, std::uint32_t rkey) : pair_(pair), rkey_(rkey), thread_([this] { run(); }) {}
  ~Neighbour() { stop(); }
  void stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    ibv_wc wc{};
    std::memset(pair_.second_a.memory.data(), 'n', WiredPair::kBytes);
    for (std::uint64_t count = 1; !stop_; ++count) {
      post(pair_.second_a.qp, {count, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, {pair_.address(0), rkey_}},
           {pair_.second_a.sge(0, WiredPair::kBytes)});
      while (provider::poll_cq(pair_.second_a.send_cq, 1, &wc) == 1) {
      }
    }
  }
  Windowed& pair_;
  std::uint32_t rkey_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace

TEST_CASE("V-MR-10: once a region is taken back, by whatever verb, no neighbour that writes all the time reaches it",
          "[wired][reregister][V-MR-10][V-MR-20][V-INV-10][V-SEC-07]") {
  Windowed t(GENERATE(Windowed::kTwoDevices, Windowed::kTwoDirect));
  std::vector<char> elsewhere(WiredPair::kBytes);
  for (int round = 0; round < 10; ++round) {
    CAPTURE(round);
    std::fill(t.end_b.memory.begin(), t.end_b.memory.end(), '\0');
    ibv_mr& mr = *t.end_b.mr;
    ibv_mw* first = t.window(IBV_MW_TYPE_1);
    std::uint32_t rkey = mr.rkey;
    if (round % 5 >= 3) {
      ibv_mw_bind bind{1, IBV_SEND_SIGNALED, t.info(0, WiredPair::kBytes)};
      REQUIRE(provider::bind_mw(t.end_b.qp, first, &bind) == 0);
      expect(t.end_b.send_cq, 1);
      rkey = first->rkey;
    }
    {
      Neighbour neighbour(t, rkey);
      volatile const char& last = t.end_b.memory[WiredPair::kBytes - 1];
      REQUIRE(comes_true([&] { return last == 'n'; }));
      switch (round % 5) {
        case 0:
          REQUIRE(reregister_access(&mr, kLocal) == 0);
          break;
        case 1:
          REQUIRE(reregister_at(&mr, elsewhere.data(), elsewhere.size()) == 0);
          break;
        case 2:  // by the work of another queue pair than the one that is written to by
          REQUIRE(Windowed::invalidated(t.end_b, mr.rkey).status == IBV_WC_SUCCESS);
          break;
        case 3:
          REQUIRE(provider::dealloc_mw(first) == 0);
          first = nullptr;
          break;
        case 4: {
          ibv_mw_bind bind{1, IBV_SEND_SIGNALED, {nullptr, 0, 0, 0}};
          REQUIRE(provider::bind_mw(t.end_b.qp, first, &bind) == 0);
          expect(t.end_b.send_cq, 1);
          break;
        }
      }
      std::fill(t.end_b.memory.begin(), t.end_b.memory.end(), 'q');
      usleep(10'000);
      CHECK(comes_true([&] { return state_of(t.second_b.qp) == IBV_QPS_ERR; }));
    }
    CHECK(t.end_b.memory == std::vector<char>(WiredPair::kBytes, 'q'));
    CHECK(elsewhere == std::vector<char>(WiredPair::kBytes));
    if (first != nullptr) REQUIRE(provider::dealloc_mw(first) == 0);
    REQUIRE(reregister_at(&mr, t.end_b.memory.data(), WiredPair::kBytes) == 0);
    REQUIRE(reregister_access(&mr, WiredPair::kRemote) == 0);
    t.join_second();
  }
}
