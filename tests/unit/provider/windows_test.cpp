// Memory windows as an application has them: allocated, bound and invalidated by work, and what their region, queue
// pair and protection domain may not do meanwhile.
#include <set>

#include "unit/provider/windows.hpp"

using namespace rnic;
using namespace rnic::test;

TEST_CASE("V-MW-07: a window opens its range, under the key that it was bound with",
          "[wired][windows][V-MW-07][V-MW-06][V-MWR-01][V-MWR-04][V-MW-11][V-MW-04]") {
  Windowed t;
  ibv_mw* window = t.window();
  CHECK(window->rkey >> 8 != 0);
  std::memset(t.end_a.memory.data(), 'w', 64);
  // The Bind takes effect before the Send behind it, which tells the peer of it.
  REQUIRE(post_receive(t.end_a.qp, 9) == 0);
  const std::uint32_t rkey = ibv_inc_rkey(window->rkey);
  SECTION("by addresses") {
    REQUIRE(Windowed::post_bind(t.end_b, window, rkey, t.info(100, 50), 5) == 0);
    REQUIRE(post(t.end_b.qp, {6}) == 0);
    expect(t.end_b.send_cq, 5);
    expect(t.end_b.send_cq, 6);
    expect(t.end_a.receive_cq, 9);
    CHECK(Windowed::writes(t.end_a, t.address(100), rkey));
    CHECK(Windowed::writes(t.end_a, t.address(149), rkey));
    CHECK(Windowed::writes(t.end_a, t.address(100), rkey, 50));
    CHECK(t.end_b.memory[99] == 0);
    CHECK(t.end_b.memory[100] == 'w');
    CHECK(t.end_b.memory[149] == 'w');
    CHECK(t.end_b.memory[150] == 0);
    CHECK(t.refused([&] { return Windowed::writes(t.end_a, t.address(99), rkey); }));
    CHECK(t.refused([&] { return Windowed::writes(t.end_a, t.address(150), rkey); }));
    CHECK(t.refused([&] { return Windowed::writes(t.end_a, t.address(100), rkey, 51); }));
    CHECK(t.end_b.memory[150] == 0);
  }
  SECTION("from zero") {
    REQUIRE(Windowed::post_bind(t.end_b, window, rkey, t.info(100, 50, Windowed::kReadWrite | IBV_ACCESS_ZERO_BASED)) ==
            0);
    REQUIRE(post(t.end_b.qp, {6}) == 0);
    expect(t.end_b.send_cq, 0);
    expect(t.end_b.send_cq, 6);
    expect(t.end_a.receive_cq, 9);
    CHECK(Windowed::writes(t.end_a, 0, rkey));
    CHECK(Windowed::writes(t.end_a, 49, rkey));
    CHECK(t.end_b.memory[99] == 0);
    CHECK(t.end_b.memory[100] == 'w');
    CHECK(t.end_b.memory[149] == 'w');
    CHECK(t.refused([&] { return Windowed::writes(t.end_a, 50, rkey); }));
    CHECK(t.refused([&] { return Windowed::writes(t.end_a, t.address(100), rkey); }));
  }
  CHECK(provider::dealloc_mw(window) == 0);
}

TEST_CASE("V-MW-10: a window is its queue pair's, and stands on none of its region's remote rights",
          "[wired][windows][V-MW-10][V-SEC-03][V-ACC-04][V-PD-07][V-SEC-05]") {
  Windowed t;
  ibv_mw* window = t.window();
  const std::uint32_t rkey = t.bind(window, t.info(0, 64));
  std::memset(t.end_a.memory.data(), 'o', 64);
  std::memset(t.second_a.memory.data(), 'n', 64);
  CHECK(Windowed::writes(t.end_a, t.address(0), rkey));
  CHECK(Windowed::reads(t.end_a, t.address(0), rkey));
  // The region itself may not be reached, nor the window by another queue pair of the same domain.
  CHECK_FALSE(Windowed::writes(t.second_a, t.address(0), rkey));
  CHECK(t.end_b.memory[0] == 'o');
  CHECK(state_of(t.end_b.qp) == IBV_QPS_RTS);
  CHECK(Windowed::writes(t.end_a, t.address(1), rkey));
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, t.address(0), t.region->rkey); }));
  // For writing alone, and for reading alone.
  REQUIRE(Windowed::invalidated(t.end_b, rkey).status == IBV_WC_SUCCESS);
  const std::uint32_t read_only = t.bind(window, t.info(0, 64, IBV_ACCESS_REMOTE_READ));
  CHECK(Windowed::reads(t.end_a, t.address(0), read_only));
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, t.address(0), read_only); }));
  REQUIRE(Windowed::invalidated(t.end_b, read_only).status == IBV_WC_SUCCESS);
  const std::uint32_t write_only = t.bind(window, t.info(0, 64, IBV_ACCESS_REMOTE_WRITE));
  CHECK(Windowed::writes(t.end_a, t.address(0), write_only));
  CHECK(t.refused([&] { return Windowed::reads(t.end_a, t.address(0), write_only); }));
}

TEST_CASE("V-MW-08: after an invalidation and another Bind no earlier key is good",
          "[wired][windows][V-MW-08][V-INV-09][V-STATE-01][V-STATE-02][V-SEC-06]") {
  Windowed t;
  ibv_mw* window = t.window();
  const std::uint32_t first = t.bind(window, t.info(0, 64));
  CHECK(Windowed::writes(t.end_a, t.address(0), first));
  REQUIRE(Windowed::invalidated(t.end_b, first).status == IBV_WC_SUCCESS);
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, t.address(0), first); }));
  const std::uint32_t second = t.bind(window, t.info(0, 64));
  CHECK(second == ibv_inc_rkey(first));
  CHECK(Windowed::writes(t.end_a, t.address(0), second));
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, t.address(0), first); }));
}

TEST_CASE("V-SR-08: a Send with Invalidate closes the peer's window, and its receive says which",
          "[wired][windows][V-SR-07][V-SR-08][V-INV-04][V-INV-07][V-EH-32][V-EH-33][V-CS-11]") {
  Windowed t;
  ibv_mw* window = t.window();
  const std::uint32_t rkey = t.bind(window, t.info(0, 64));
  const auto send = [&](std::uint32_t invalidates) {
    REQUIRE(post_receive(t.end_b.qp, 3) == 0);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND_WITH_INV;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.invalidate_rkey = invalidates;
    ibv_send_wr* bad = nullptr;
    REQUIRE(provider::post_send(t.end_a.qp, &wr, &bad) == 0);
    return poll(t.end_b.receive_cq, 1)[0];
  };
  const ibv_wc wc = send(rkey);
  CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK((wc.wc_flags & IBV_WC_WITH_INV) != 0);
  CHECK(wc.invalidated_rkey == rkey);
  expect(t.end_a.send_cq, 0);
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, t.address(0), rkey); }));
  // It is free to be bound again, and its region to go.
  const std::uint32_t again = t.bind(window, t.info(0, 64));
  CHECK(Windowed::writes(t.end_a, t.address(0), again));
  // With a wrong key, and of a region that no peer may reach, it is an error of the receive.
  CHECK(send(GENERATE(true, false) ? rkey : t.region->rkey).status == IBV_WC_LOC_ACCESS_ERR);
  t.join_first();
  CHECK(Windowed::writes(t.end_a, t.address(0), again));
}

TEST_CASE("V-MW-14: while a window is bound its region, queue pair and domain are busy, and work on",
          "[wired][windows][V-MW-14][V-QP-15][V-PD-04][V-IS-36][V-IS-28][V-MR-06][V-MR-19][V-INV-05][V-VB-21]") {
  Windowed t;
  ibv_mw* window = t.window();
  const auto busy = [&] {
    CHECK(provider::dereg_mr(t.region) == EBUSY);
    CHECK(provider::rereg_mr(t.region, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE) ==
          EBUSY);
    CHECK(provider::destroy_qp(t.end_b.qp) == EBUSY);
    CHECK(provider::dealloc_pd(t.b.pd) == EBUSY);
  };
  // Whoever counts wrongly, by one each time, is found out.
  for (int i = 0; i < 200; ++i)
    REQUIRE(Windowed::invalidated(t.end_b, t.bind(window, t.info(0, 64))).status == IBV_WC_SUCCESS);
  const std::uint32_t rkey = t.bind(window, t.info(0, 64));
  busy();
  CHECK(Windowed::writes(t.end_a, t.address(0), rkey));
  CHECK(t.works());
  // By another queue pair of the domain, which alone pays for it.
  CHECK(Windowed::invalidated(t.second_b, t.region->lkey).status == IBV_WC_LOC_PROT_ERR);
  CHECK(comes_true([&] { return state_of(t.second_b.qp) == IBV_QPS_ERR; }));
  CHECK(state_of(t.end_b.qp) == IBV_QPS_RTS);
  busy();
  CHECK(Windowed::writes(t.end_a, t.address(0), rkey));
  // As the peer closes the window all of it may go.
  REQUIRE(post_receive(t.end_b.qp, 3) == 0);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND_WITH_INV;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.invalidate_rkey = rkey;
  ibv_send_wr* bad = nullptr;
  REQUIRE(provider::post_send(t.end_a.qp, &wr, &bad) == 0);
  expect(t.end_b.receive_cq, 3);
  CHECK(provider::dereg_mr(t.region) == 0);
  CHECK(provider::destroy_qp(t.end_b.qp) == 0);
  CHECK(provider::dealloc_pd(t.b.pd) == EBUSY);  // an Invalid window is still the domain's
  CHECK(provider::dealloc_mw(window) == 0);
  CHECK(provider::destroy_qp(t.second_b.qp) == 0);
  CHECK(provider::dereg_mr(t.end_b.mr) == 0);
  CHECK(provider::dereg_mr(t.second_b.mr) == 0);
  CHECK(provider::dealloc_pd(t.b.pd) == 0);
}

TEST_CASE("V-ERRST-10: a window stays bound when its queue pair has failed, which is busy until it is deallocated",
          "[wired][windows][V-ERRST-10][V-QP-15][V-MW-14]") {
  Windowed t;
  ibv_mw* window = t.window();
  t.bind(window, t.info(0, 64));
  REQUIRE(to_state(t.end_b.qp, IBV_QPS_ERR) == 0);
  REQUIRE(comes_true([&] { return state_of(t.end_b.qp) == IBV_QPS_ERR; }));
  CHECK(provider::destroy_qp(t.end_b.qp) == EBUSY);
  CHECK(provider::dereg_mr(t.region) == EBUSY);
  CHECK(provider::dealloc_mw(window) == 0);
  CHECK(provider::dereg_mr(t.region) == 0);
  CHECK(provider::destroy_qp(t.end_b.qp) == 0);
}

TEST_CASE("V-MW-15: a window that is bound is deallocated all the same, and nobody comes through it",
          "[wired][windows][V-MW-15][V-STATE-01][V-VB-21]") {
  Windowed t;
  ibv_mw* window = t.window();
  const std::uint32_t rkey = t.bind(window, t.info(0, 64));
  CHECK(Windowed::writes(t.end_a, t.address(0), rkey));
  CHECK(provider::dealloc_mw(window) == 0);
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, t.address(0), rkey); }));
  CHECK(provider::dereg_mr(t.region) == 0);
  CHECK(provider::destroy_qp(t.end_b.qp) == 0);
}

TEST_CASE("V-MW-03: windows without number are bound to one region on one queue pair, over each other",
          "[wired][windows][V-MW-03][V-MW-13][V-MW-01]") {
  Windowed t;
  std::vector<ibv_mw*> windows;
  for (std::uint32_t i = 0; i < 500; ++i) {
    windows.push_back(t.window());
    t.bind(windows.back(), t.info(i, 100, i % 2 == 0 ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ));
  }
  CHECK(std::set<ibv_mw*>(windows.begin(), windows.end()).size() == windows.size());
  std::memset(t.end_a.memory.data(), 'm', 64);
  for (const std::uint32_t i : {0u, 250u, 498u}) CHECK(Windowed::writes(t.end_a, t.address(i + 99), windows[i]->rkey));
  CHECK(Windowed::reads(t.end_a, t.address(350), windows[251]->rkey));
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, t.address(350), windows[251]->rkey); }));
  for (ibv_mw* window : windows) REQUIRE(provider::dealloc_mw(window) == 0);
  CHECK(provider::dereg_mr(t.region) == 0);
}

TEST_CASE("V-MW-09: a Bind that is refused completes with its error, binds nothing, and takes its queue pair along",
          "[wired][windows][V-MW-09][V-MW-02][V-MW-04][V-MW-05][V-PD-06][V-MWR-06][V-ACC-02][V-STAG-10]"
          "[V-CS-07][V-CS-08][V-CS-09][V-CS-10][V-CS-14][V-CS-23][V-CS-24]") {
  Windowed t;
  ibv_mw* window = t.window();
  ibv_mw_bind_info info = t.info(0, 64);
  ibv_mr other = *t.region;  // as the provider is told of it
  ibv_wc_status status = IBV_WC_MW_BIND_ERR;
  std::uint32_t reason = 0;
  std::uint32_t rkey = ibv_inc_rkey(window->rkey);
  SECTION("of a window that is bound") {
    t.bind(window, info);
    rkey = ibv_inc_rkey(window->rkey);
    reason = RNIC_WC_STAG_NOT_INVALID;
  }
  SECTION("to a region of another key") {
    other.lkey = ibv_inc_rkey(other.lkey);
    info.mr = &other;
    reason = RNIC_WC_INVALID_REGION;
  }
  SECTION("to STag 0") {
    other.lkey = 0;
    info.mr = &other;
    reason = RNIC_WC_INVALID_REGION;
  }
  SECTION("to a window") {
    other.lkey = t.bind(t.window(), info);
    info.mr = &other;
    reason = RNIC_WC_INVALID_REGION;
  }
  SECTION("to a region from zero") {
    info.mr =
        t.b.make_mr(t.end_b.memory.data(), 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED);
    info.addr = 0;
    reason = RNIC_WC_INVALID_REGION;
  }
  SECTION("to a region without the right to bind") {
    info.mr = t.end_b.mr;
    reason = RNIC_WC_ACCESS;
  }
  SECTION("to a region that may not be written") {
    info.mr = t.b.make_mr(t.end_b.memory.data(), 4096, IBV_ACCESS_MW_BIND);
    reason = RNIC_WC_ACCESS;
  }
  SECTION("for nothing at all") {
    info.mw_access_flags = 0;
    reason = RNIC_WC_ACCESS;
  }
  SECTION("to a region of another domain") {
    ibv_pd* const own = t.b.pd;
    t.b.pd = provider::alloc_pd(&t.b.context->verbs.context);
    info.mr = t.b.make_mr(t.end_b.memory.data(), 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    t.b.pd = own;
    reason = RNIC_WC_INVALID_PD;
  }
  SECTION("of a window of another domain") {
    ibv_pd* const own = t.b.pd;
    t.b.pd = provider::alloc_pd(&t.b.context->verbs.context);
    window = t.window();
    t.b.pd = own;
    rkey = ibv_inc_rkey(window->rkey);
    reason = RNIC_WC_INVALID_PD;
  }
  SECTION("before a region") {
    --info.addr;
    reason = RNIC_WC_BASE_BOUNDS;
  }
  SECTION("past a region") {
    info.length = Windowed::kBytes + 1;
    reason = RNIC_WC_BASE_BOUNDS;
  }
  SECTION("round the end of all addresses") {
    info.length = ~std::uint64_t{0};
    status = IBV_WC_LOC_PROT_ERR;
    reason = RNIC_WC_WRAP;
  }
  SECTION("of what is no window") {
    ibv_mw forged = *window;
    forged.rkey = t.end_b.mr->rkey;
    const ibv_wc wc = Windowed::bound(t.end_b, &forged, forged.rkey, info);
    CHECK(wc.vendor_err == RNIC_WC_INVALID_WINDOW);
    CHECK(wc.status == IBV_WC_MW_BIND_ERR);
    return;
  }
  SECTION("of a window that is gone") {
    ibv_mw gone = *window;
    REQUIRE(provider::dealloc_mw(window) == 0);
    const ibv_wc wc = Windowed::bound(t.end_b, &gone, rkey, info);
    CHECK(wc.vendor_err == RNIC_WC_INVALID_WINDOW);
    CHECK(wc.status == IBV_WC_MW_BIND_ERR);
    return;
  }
  const ibv_wc wc = Windowed::bound(t.end_b, window, rkey, info);
  CHECK(wc.status == status);
  CHECK(wc.vendor_err == reason);
  CHECK(comes_true([&] { return state_of(t.end_b.qp) == IBV_QPS_ERR; }));
  CHECK(Windowed::comes_back(t.second_a));
  t.join_first();
  CHECK_FALSE(Windowed::writes(t.end_a, info.addr, rkey));
}

TEST_CASE("V-INV-07: an invalidation that is refused is an error of its work request, and changes nothing",
          "[wired][windows][V-INV-01][V-INV-03][V-INV-07][V-INV-08][V-STAG-10][V-INV-02]") {
  Windowed t;
  ibv_mw* window = t.window();
  // An Invalid one is invalidated again, under any key.
  CHECK(Windowed::invalidated(t.end_b, window->rkey).status == IBV_WC_SUCCESS);
  CHECK(Windowed::invalidated(t.second_b, ibv_inc_rkey(window->rkey)).status == IBV_WC_SUCCESS);
  const std::uint32_t rkey = t.bind(window, t.info(0, 64));
  SECTION("by another queue pair") {
    const ibv_wc wc = Windowed::invalidated(t.second_b, rkey);
    CHECK(wc.status == IBV_WC_LOC_PROT_ERR);
    CHECK(wc.vendor_err == RNIC_WC_INVALID_PD);
  }
  SECTION("under another key") {
    CHECK(Windowed::invalidated(t.second_b, ibv_inc_rkey(rkey)).vendor_err == RNIC_WC_INVALID_STAG);
  }
  SECTION("of STag 0") { CHECK(Windowed::invalidated(t.second_b, 0).vendor_err == RNIC_WC_INVALID_STAG); }
  CHECK(Windowed::writes(t.end_a, t.address(0), rkey));
}

TEST_CASE("what is no Bind at all is refused as it is posted", "[wired][windows][V-IS-38][V-RNIC-01][V-IMM-01]") {
  Windowed t;
  ibv_mw* window = t.window();
  const std::uint32_t rkey = ibv_inc_rkey(window->rkey);
  const ibv_mw_bind_info info = t.info(0, 64);
  CHECK(Windowed::post_bind(t.end_b, nullptr, rkey, info) == EINVAL);
  CHECK(Windowed::post_bind(t.end_b, window, rkey + 0x100, info) == EINVAL);
  CHECK(Windowed::post_bind(t.end_b, window, rkey, {nullptr, 0, 0, 0}) == EINVAL);
  CHECK(Windowed::post_bind(t.end_b, window, rkey, t.info(0, 64, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND)) ==
        EINVAL);
  ibv_mw* first = t.window(IBV_MW_TYPE_1);
  CHECK(Windowed::post_bind(t.end_b, first, ibv_inc_rkey(first->rkey), info) == EINVAL);
  ibv_mw_bind bind{1, IBV_SEND_SIGNALED, info};
  CHECK(provider::bind_mw(t.end_b.qp, window, &bind) == EINVAL);
  // Of another device: its numbers mean something else there.
  CHECK(Windowed::post_bind(t.end_a, window, rkey, info) == EINVAL);
  CHECK(provider::bind_mw(t.end_a.qp, first, &bind) == EINVAL);
  errno = 0;
  CHECK(provider::alloc_mw(t.b.pd, static_cast<ibv_mw_type>(3)) == nullptr);
  CHECK(errno == EINVAL);
  ibv_wc wc{};
  CHECK(provider::poll_cq(t.end_b.send_cq, 1, &wc) == 0);
  CHECK(Windowed::writes(t.end_a, t.address(0), t.bind(window, info)));
}

namespace {
// Of type 1; whether it was done.
ibv_wc_status bind_first(Windowed& t, const Windowed::End& end, ibv_mw* window, const ibv_mw_bind_info& info) {
  ibv_mw_bind bind{77, IBV_SEND_SIGNALED, info};
  const std::uint32_t before = window->rkey;
  REQUIRE(provider::bind_mw(end.qp, window, &bind) == 0);
  CHECK(window->rkey == ibv_inc_rkey(before));
  const ibv_wc wc = poll(end.send_cq, 1)[0];
  CHECK(wc.wr_id == 77);
  CHECK(wc.opcode == (wc.status == IBV_WC_SUCCESS ? IBV_WC_BIND_MW : wc.opcode));
  (void)t;
  return wc.status;
}
}  // namespace

TEST_CASE("a window of type 1 is open to its whole domain, and bound anew while it is bound", "[wired][windows]") {
  Windowed t;
  ibv_mw* window = t.window(IBV_MW_TYPE_1);
  std::memset(t.end_a.memory.data(), '1', 64);
  std::memset(t.second_a.memory.data(), '2', 64);
  REQUIRE(bind_first(t, t.end_b, window, t.info(0, 64)) == IBV_WC_SUCCESS);
  const std::uint32_t first = window->rkey;
  CHECK(Windowed::writes(t.end_a, t.address(0), first));
  CHECK(Windowed::writes(t.second_a, t.address(1), first));
  CHECK(t.end_b.memory[0] == '1');
  CHECK(t.end_b.memory[1] == '2');
  CHECK(provider::dereg_mr(t.region) == EBUSY);
  // By the other queue pair, to other memory.
  ibv_mr* elsewhere = t.b.make_mr(t.second_b.memory.data(), 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  const auto there = reinterpret_cast<std::uintptr_t>(t.second_b.memory.data());
  REQUIRE(bind_first(t, t.second_b, window, {elsewhere, there, 64, Windowed::kReadWrite}) == IBV_WC_SUCCESS);
  CHECK(provider::dereg_mr(elsewhere) == EBUSY);
  CHECK(Windowed::writes(t.end_a, there, window->rkey));
  CHECK(t.second_b.memory[0] == '1');
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, t.address(0), first); }));
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, t.address(0), window->rkey); }));
  // To nothing, with a region or without one.
  const bool with = GENERATE(true, false);
  const std::uint32_t last = window->rkey;
  REQUIRE(bind_first(t, t.end_b, window, {with ? t.region : nullptr, 0, 0, 0}) == IBV_WC_SUCCESS);
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, there, last); }));
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, there, window->rkey); }));
  CHECK(provider::dereg_mr(elsewhere) == 0);
  CHECK(provider::dereg_mr(t.region) == 0);
}

TEST_CASE("a window of type 1 keeps no queue pair, and no invalidation closes it", "[wired][windows][V-PD-04]") {
  Windowed t;
  ibv_mw* window = t.window(IBV_MW_TYPE_1);
  REQUIRE(bind_first(t, t.second_b, window, t.info(0, 64)) == IBV_WC_SUCCESS);
  CHECK(Windowed::invalidated(t.second_b, window->rkey).status == IBV_WC_LOC_PROT_ERR);
  CHECK(Windowed::writes(t.end_a, t.address(0), window->rkey));
  CHECK(provider::destroy_qp(t.second_b.qp) == 0);
  CHECK(Windowed::writes(t.end_a, t.address(0), window->rkey));
  // A Bind that fails leaves it where it was.
  CHECK(bind_first(t, t.end_b, window, t.info(0, Windowed::kBytes + 1)) == IBV_WC_MW_BIND_ERR);
  window->rkey = (window->rkey & ~0xFFu) | ((window->rkey - 1) & 0xFF);
  t.join_first();
  const std::uint32_t rkey = window->rkey;
  CHECK(Windowed::writes(t.end_a, t.address(0), rkey));
  CHECK(provider::dealloc_mw(window) == 0);
  CHECK(t.refused([&] { return Windowed::writes(t.end_a, t.address(0), rkey); }));
  CHECK(provider::dereg_mr(t.region) == 0);
}

TEST_CASE("V-QRN-19: a device says that it has windows, of both types", "[wired][windows][V-QRN-19]") {
  Windowed t;
  ibv_device_attr_ex attributes{};
  REQUIRE(provider::query_device_ex(&t.b.context->verbs.context, nullptr, &attributes, sizeof attributes) == 0);
  CHECK(attributes.orig_attr.max_mw > 0);
  CHECK((attributes.orig_attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW) != 0);
  CHECK((attributes.orig_attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0);
  CHECK((attributes.orig_attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A) == 0);
}
