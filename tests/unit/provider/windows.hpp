// Two queue pairs of each application, of one protection domain, and a region of b's that windows may be bound to and
// nobody may reach otherwise.
#pragma once

#include "unit/provider/wired.hpp"

namespace rnic::test {

struct Windowed : WiredPair {
  static constexpr unsigned kReadWrite = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

  explicit Windowed(const char* devices = kTwoDevices) : WiredPair(64, nullptr, devices) {
    set_up(a, second_a, 64, nullptr);
    set_up(b, second_b, 64, nullptr);
    second_ids = join(second_a.qp, second_b.qp);
    region = b.make_mr(end_b.memory.data(), kBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    REQUIRE(region != nullptr);
    while (next_async(a, 0) || next_async(b, 0)) {
    }
  }
  ibv_mw* window(ibv_mw_type type = IBV_MW_TYPE_2) {
    ibv_mw* made = provider::alloc_mw(b.pd, type);
    REQUIRE(made != nullptr);
    return made;
  }
  ibv_mw_bind_info info(std::uint64_t offset, std::uint64_t length, unsigned access = kReadWrite) const {
    return {region, address(offset), length, access};
  }
  std::uint64_t address(std::uint64_t offset) const {
    return reinterpret_cast<std::uintptr_t>(end_b.memory.data()) + offset;
  }
  static int post_bind(const End& end, ibv_mw* window, std::uint32_t rkey, const ibv_mw_bind_info& info,
                       std::uint64_t wr_id = 0) {
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.bind_mw.mw = window;
    wr.bind_mw.rkey = rkey;
    wr.bind_mw.bind_info = info;
    ibv_send_wr* bad = nullptr;
    return provider::post_send(end.qp, &wr, &bad);
  }
  static ibv_wc bound(const End& end, ibv_mw* window, std::uint32_t rkey, const ibv_mw_bind_info& info) {
    REQUIRE(post_bind(end, window, rkey, info) == 0);
    return poll(end.send_cq, 1)[0];
  }
  // Under the next key, which is then the window's.
  std::uint32_t bind(ibv_mw* window, const ibv_mw_bind_info& info) { return bind(end_b, window, info); }
  static std::uint32_t bind(const End& end, ibv_mw* window, const ibv_mw_bind_info& info) {
    window->rkey = ibv_inc_rkey(window->rkey);
    const ibv_wc wc = bound(end, window, window->rkey, info);
    REQUIRE(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.opcode == IBV_WC_BIND_MW);
    return window->rkey;
  }
  static int post_invalidate(const End& end, std::uint32_t rkey) {
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_LOCAL_INV;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.invalidate_rkey = rkey;
    ibv_send_wr* bad = nullptr;
    return provider::post_send(end.qp, &wr, &bad);
  }
  static ibv_wc invalidated(const End& end, std::uint32_t rkey) {
    REQUIRE(post_invalidate(end, rkey) == 0);
    return poll(end.send_cq, 1)[0];
  }
  // Whether it was let.
  static bool writes(const End& end, std::uint64_t to, std::uint32_t rkey, std::uint32_t length = 1) {
    REQUIRE(post(end.qp, {1, IBV_WR_RDMA_WRITE, 0, {to, rkey}}, {end.sge(0, length)}) == 0);
    return comes_back(end);
  }
  static bool reads(const End& end, std::uint64_t from, std::uint32_t rkey) {
    REQUIRE(post(end.qp, {2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, {from, rkey}}, {end.sge(64, 1)}) == 0);
    return poll(end.send_cq, 1)[0].status == IBV_WC_SUCCESS;
  }
  // A Read of nothing is answered when what was before it has been placed, and flushed when it was refused.
  static bool comes_back(const End& end) {
    REQUIRE(post(end.qp, {2, IBV_WR_RDMA_READ}, {}) == 0);
    const ibv_wc wc = poll(end.send_cq, 1)[0];
    CHECK(wc.wr_id == 2);
    return wc.status == IBV_WC_SUCCESS;
  }
  bool works() const { return comes_back(end_a) && comes_back(second_a); }

  void join_first() {
    join_again();
    while (next_async(a, 0) || next_async(b, 0)) {
    }
  }
  void join_second() {
    std::swap(end_a, second_a);
    std::swap(end_b, second_b);
    std::swap(ids, second_ids);
    join_first();
    std::swap(end_a, second_a);
    std::swap(end_b, second_b);
    std::swap(ids, second_ids);
  }
  // What a peer may not, it hears of, and is connected again.
  bool refused(const std::function<bool()>& access) {
    if (access()) return false;
    join_first();
    return true;
  }

  End second_a, second_b;
  Ids second_ids;
  ibv_mr* region = nullptr;
};

}  // namespace rnic::test
