// The rings of abi/rnic_shm.h, from the data plane's end.
#include "shm/queues.hpp"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "control/limits.hpp"
#include "kit/catch.hpp"

namespace {

using namespace rnic;

struct Area {
  explicit Area(std::size_t size) : octets(size + 64) {
    const auto address = reinterpret_cast<std::uintptr_t>(octets.data());
    start = octets.data() + (64 - address % 64) % 64;
    length = size;
  }
  MutableBytes bytes() { return {start, length}; }
  template <typename T>
  T& at(std::size_t offset) {
    return *reinterpret_cast<T*>(start + offset);
  }
  std::vector<std::byte> octets;
  std::byte* start;
  std::size_t length;
};

// A send queue of four entries of one line, as an application sees it.
struct SendWorld {
  Area area{shm::SendQueue::area_bytes(4, 64)};
  shm::SendQueue queue{area.bytes(), 4, 64, 2};
  rnic_ring_control& control() { return area.at<rnic_ring_control>(0); }
  rnic_sqe& slot(std::uint32_t index) { return area.at<rnic_sqe>(sizeof(rnic_ring_control) + (index & 3) * 64); }
  void post(const rnic_sqe& entry) {
    slot(control().produced) = entry;
    ++control().produced;
  }
};

rnic_sqe send_entry(std::uint8_t opcode = RNIC_OP_SEND) {
  rnic_sqe entry{};
  entry.opcode = opcode;
  entry.flags = RNIC_SQE_SIGNALED;
  entry.sge_count = 1;
  return entry;
}

TEST_CASE("V-WR-02: work requests are taken in the order posted, one for each entry", "[shm][V-WR-02]") {
  SendWorld world;
  qp::WorkRequest out;
  CHECK_FALSE(world.queue.take(out));
  for (std::uint32_t i = 0; i < 3; ++i) {
    auto entry = send_entry();
    entry.remote_address = 100 + i;
    world.post(entry);
  }
  for (std::uint32_t i = 0; i < 3; ++i) {
    REQUIRE(world.queue.take(out));
    CHECK(out.slot == i);
    CHECK(out.remote_to == 100 + i);
    CHECK(out.signaled);
    CHECK_FALSE(out.malformed);
  }
  CHECK_FALSE(world.queue.take(out));
}

TEST_CASE("V-SEC-08: a scribbled producer index takes nothing and reads no slot", "[shm][V-SEC-08]") {
  SendWorld world;
  qp::WorkRequest out;
  world.control().produced = 5;  // the ring holds four
  CHECK_FALSE(world.queue.take(out));
  CHECK(world.queue.broken());
  world.control().produced = 4;  // the last that is allowed
  CHECK(world.queue.take(out));
}

TEST_CASE("V-SEC-08: more SGEs than the queue was made for are a malformed request", "[shm][V-SEC-08]") {
  SendWorld world;
  qp::WorkRequest out;
  auto entry = send_entry();
  entry.sge_count = 2;
  world.post(entry);
  REQUIRE(world.queue.take(out));
  CHECK_FALSE(out.malformed);
  entry.sge_count = 3;
  world.post(entry);
  REQUIRE(world.queue.take(out));
  CHECK(out.malformed);
  CHECK(out.sge_count == 0);
}

TEST_CASE("V-SEC-08: inline data may fill the entry and not one octet more", "[shm][V-SEC-08]") {
  SendWorld world;
  qp::WorkRequest out;
  auto entry = send_entry();
  entry.flags = RNIC_SQE_INLINE;
  entry.sge_count = 0;
  entry.length = 32;
  world.post(entry);
  REQUIRE(world.queue.take(out));
  CHECK_FALSE(out.malformed);
  CHECK(out.data.size() == 32);
  entry.length = 33;
  world.post(entry);
  REQUIRE(world.queue.take(out));
  CHECK(out.malformed);
  CHECK(out.data.empty());
  entry.length = 0xFFFFFFFF;
  world.post(entry);
  REQUIRE(world.queue.take(out));
  CHECK(out.malformed);
}

TEST_CASE("V-SEC-08: staged data lies in the queue's transmit memory, all of it", "[shm][V-SEC-08]") {
  SendWorld world;
  std::array<std::byte, 128> memory{};
  const auto take = [&](std::uint64_t from, std::uint32_t length) {
    auto entry = send_entry();
    entry.flags |= RNIC_SQE_STAGED;
    entry.argument = from;
    entry.length = length;
    world.post(entry);
    qp::WorkRequest out;
    REQUIRE(world.queue.take(out));
    CHECK(out.sge_count == 1);
    return out;
  };
  CHECK(take(0, 1).malformed);  // it has none
  world.queue.set_transmit_memory(memory);
  const auto good = take(28, 100);
  CHECK_FALSE(good.malformed);
  CHECK(good.has_data);
  CHECK(good.data.data() == memory.data() + 28);
  CHECK(good.data.size() == 100);
  CHECK(take(29, 100).malformed);
  CHECK(take(129, 0).malformed);
  CHECK(take(UINT64_MAX, 2).malformed);
  CHECK(take(0, UINT32_MAX).malformed);
}

TEST_CASE("V-SEC-12: an unknown opcode is malformed, and what lacks room for its list or its masks",
          "[shm][V-SEC-12]") {
  SendWorld world;
  qp::WorkRequest out;
  for (const int opcode :
       {int{RNIC_OP_FAST_REGISTER}, int{RNIC_OP_MASKED_FETCH_ADD}, int{RNIC_OP_MASKED_COMPARE_SWAP}, 14, 15, 255}) {
    world.post(send_entry(static_cast<std::uint8_t>(opcode)));
    REQUIRE(world.queue.take(out));
    CHECK(out.malformed);
  }
  world.post(send_entry(RNIC_OP_WRITE));
  REQUIRE(world.queue.take(out));
  CHECK_FALSE(out.malformed);
  CHECK(out.opcode == qp::Opcode::write);
}

TEST_CASE("W-EXT-02: an atomic operation is taken with its masks, and one without them with none",
          "[shm][W-EXT-02][W-EXT-10]") {
  Area area{shm::SendQueue::area_bytes(2, 128)};
  shm::SendQueue queue{area.bytes(), 2, 128, 4};
  qp::WorkRequest out;
  const auto take = [&](rnic_opcode opcode, std::uint8_t sges, const rnic_atomic_masks& masks) {
    auto& control = area.at<rnic_ring_control>(0);
    const std::size_t at = sizeof control + (control.produced & 1) * 128;
    auto& entry = area.at<rnic_sqe>(at) = send_entry(opcode);
    entry.argument = 0xC0;
    entry.sge_count = sges;
    std::memcpy(&area.at<std::byte>(at + sizeof entry + sges * sizeof(rnic_sge)), &masks,
                std::min(sizeof masks, 128 - sizeof entry - sges * sizeof(rnic_sge)));
    ++control.produced;
    REQUIRE(queue.take(out));
  };
  for (int round = 0; round < 2; ++round) {  // each after the other
    take(RNIC_OP_MASKED_FETCH_ADD, 1, {.swap = 1, .data = 0x8000, .compare = 3});
    CHECK_FALSE(out.malformed);
    CHECK(out.opcode == qp::Opcode::fetch_add);
    CHECK(out.argument == 0xC0);
    CHECK(out.add_mask == 0x8000);
    take(RNIC_OP_FETCH_ADD, 1, {.swap = 1, .data = 0x8000, .compare = 3});
    CHECK(out.opcode == qp::Opcode::fetch_add);
    CHECK(out.add_mask == 0);
    take(RNIC_OP_MASKED_COMPARE_SWAP, 1, {.swap = 0x5A, .data = 0xFF, .compare = 0xF0});
    CHECK_FALSE(out.malformed);
    CHECK(out.opcode == qp::Opcode::compare_swap);
    CHECK(out.argument == 0xC0);
    CHECK(out.swap == 0x5A);
    CHECK(out.swap_mask == 0xFF);
    CHECK(out.compare_mask == 0xF0);
    take(RNIC_OP_COMPARE_SWAP, 1, {.swap = 0x5A, .data = 0xFF, .compare = 0xF0});
    CHECK(out.opcode == qp::Opcode::compare_swap);
    CHECK(out.swap == 0x5A);
    CHECK(out.swap_mask == UINT64_MAX);
    CHECK(out.compare_mask == UINT64_MAX);
  }
  // Behind four SGEs they fill the entry, and behind a fifth of them nothing would be left to read.
  take(RNIC_OP_MASKED_FETCH_ADD, 4, {.swap = 1, .data = 0x8000, .compare = 3});
  CHECK_FALSE(out.malformed);
  CHECK(out.add_mask == 0x8000);
  take(RNIC_OP_MASKED_FETCH_ADD, 5, {.swap = 1, .data = 0x8000, .compare = 3});
  CHECK(out.malformed);
}

TEST_CASE("V-MR-16: a Fast-Register is taken with all that its list says", "[shm][V-MR-16]") {
  Area area{shm::SendQueue::area_bytes(2, 256)};
  shm::SendQueue queue{area.bytes(), 2, 256, 2};
  rnic_sqe& entry = area.at<rnic_sqe>(sizeof(rnic_ring_control));
  entry = send_entry(RNIC_OP_FAST_REGISTER);
  entry.sge_count = 0;
  entry.rkey = 0x1234;
  entry.remote_address = 0x7010;
  entry.argument = 5000;
  area.at<rnic_fast_register>(sizeof(rnic_ring_control) + sizeof entry) = {
      .view = 0x50000, .addresses = 0x73000, .page_bytes = 4096, .first_offset = 16, .page_count = 2, .access = 0x0F};
  ++area.at<rnic_ring_control>(0).produced;
  qp::WorkRequest out;
  REQUIRE(queue.take(out));
  CHECK_FALSE(out.malformed);
  CHECK(out.opcode == qp::Opcode::fast_register);
  CHECK(out.remote_stag == Stag{0x1234});
  CHECK(out.remote_to == 0x7010);
  CHECK(out.argument == 5000);
  CHECK(out.list.view == 0x50000);
  CHECK(out.list.addresses == 0x73000);
  CHECK(out.list.page_bytes == 4096);
  CHECK(out.list.first_offset == 16);
  CHECK(out.list.count == 2);
  CHECK(out.list.rights == static_cast<tpt::Rights>(0x0F));
}

// A datagram's entry: its first line, and the SGEs behind it.
struct DatagramWorld {
  Area area{shm::SendQueue::area_bytes(2, 128)};
  shm::SendQueue queue{area.bytes(), 2, 128, 2};
  void post(const rnic_sqe& entry, const rnic_ud_address& to) {
    auto& control = area.at<rnic_ring_control>(0);
    const std::size_t at = sizeof control + (control.produced & 1) * 128;
    area.at<rnic_sqe>(at) = entry;
    area.at<rnic_ud_address>(at + sizeof entry) = to;
    area.at<rnic_sge>(at + sizeof entry + sizeof to) = {.address = 0x7000, .length = 100, .lkey = 0x500};
    ++control.produced;
  }
};

TEST_CASE("a datagram is taken with its address, and its SGEs are counted", "[shm][datagram][V-SEC-08]") {
  DatagramWorld world;
  ud::WorkRequest out;
  rnic_ud_address to{};
  to.qp_number = 0xFF000123;
  to.q_key = 77;
  world.post(send_entry(), to);
  REQUIRE(world.queue.take(out));
  CHECK_FALSE(out.malformed);
  CHECK(out.address.number == QpNumber{0x123});
  CHECK(out.address.q_key == 77);
  REQUIRE(out.sge_count == 1);
  CHECK(out.sges[0].address == 0x7000);
  CHECK(out.sges[0].length == 100);
  CHECK(out.sges[0].lkey == Stag{0x500});
  auto entry = send_entry();
  SECTION("more SGEs than the queue was made for") { entry.sge_count = 3; }
  SECTION("no Send") { entry.opcode = RNIC_OP_WRITE; }
  world.post(entry, to);
  REQUIRE(world.queue.take(out));
  CHECK(out.malformed == (entry.sge_count == 3 || entry.opcode != RNIC_OP_SEND));
  CHECK(out.sge_count == (out.malformed ? 0 : 1));
}

TEST_CASE("a datagram's entry says by its flags what it wants", "[shm][datagram]") {
  DatagramWorld world;
  struct Row {
    std::uint8_t flag;
    bool ud::WorkRequest::*says;
  };
  const Row rows[] = {{RNIC_SQE_SIGNALED, &ud::WorkRequest::signaled},
                      {RNIC_SQE_SOLICITED, &ud::WorkRequest::solicited},
                      {RNIC_SQE_IMMEDIATE, &ud::WorkRequest::has_immediate},
                      {RNIC_SQE_INLINE, &ud::WorkRequest::has_data}};
  for (const Row& asked : rows) {
    auto entry = send_entry();
    entry.flags = asked.flag;
    entry.length = 0;
    entry.invalidate = 0x11223344;
    world.post(entry, {});
    ud::WorkRequest out;
    REQUIRE(world.queue.take(out));
    for (const Row& each : rows) CHECK(out.*each.says == (each.flag == asked.flag));
    if (out.has_immediate) CHECK(out.immediate == 0x11223344);
  }
}

TEST_CASE("inline data of a datagram ends with its slot", "[shm][datagram][V-SEC-08]") {
  DatagramWorld world;
  for (const std::uint32_t length : {64u, 65u, 128u, 0xFFFFFFFFu}) {
    auto entry = send_entry();
    entry.sge_count = 0;
    entry.flags = RNIC_SQE_INLINE;
    entry.length = length;
    world.post(entry, {});
    ud::WorkRequest out;
    REQUIRE(world.queue.take(out));
    CHECK(out.malformed == (length > 64));
    CHECK(out.data.size() == (length > 64 ? 0 : length));
  }
}

TEST_CASE("V-SEC-09: what was taken is a private copy that later scribbling does not change", "[shm][V-SEC-09]") {
  SendWorld world;
  qp::WorkRequest out;
  auto entry = send_entry(RNIC_OP_WRITE);
  entry.rkey = 0x1234;
  world.post(entry);
  REQUIRE(world.queue.take(out));
  world.slot(0).rkey = 0x9999;
  world.slot(0).opcode = RNIC_OP_READ;
  CHECK(out.remote_stag == Stag{0x1234});
  CHECK(out.opcode == qp::Opcode::write);
}

// Another process that writes to an entry without end: what it may be, and what it may not.
class Flipper {
 public:
  explicit Flipper(rnic_sqe& entry) : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
      put(entry.opcode, RNIC_OP_WRITE), put(entry.sge_count, 2), put(entry.flags, 0), put(entry.length, 0);
      put(entry.opcode, RNIC_OP_FAST_REGISTER), put(entry.sge_count, 255);
      put(entry.flags, RNIC_SQE_INLINE), put(entry.length, 0xFFFFFFFF);
      put(entry.opcode, RNIC_OP_SEND), put(entry.sge_count, 0), put(entry.length, 32);
    }
  }
  ~Flipper() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Flipper(const Flipper&) = delete;

 private:
  template <typename T, typename V>
  static void put(T& word, V value) {
    std::atomic_ref(word).store(static_cast<T>(value), std::memory_order_relaxed);
  }
  pid_t pid_;
};

TEST_CASE("V-SEC-09: an entry that changes while it is taken is judged and used as one copy",
          "[shm][V-SEC-09][V-SEC-12]") {
  const std::size_t size = shm::SendQueue::area_bytes(4, 64);
  void* const shared = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED);
  const MutableBytes area{static_cast<std::byte*>(shared), size};
  shm::SendQueue queue(area, 4, 64, 2);
  auto& control = *reinterpret_cast<rnic_ring_control*>(shared);
  const auto slot = [&](std::uint32_t i) -> rnic_sqe& {
    return *reinterpret_cast<rnic_sqe*>(area.data() + sizeof control + (i & 3) * 64);
  };
  std::uint32_t taken = 0, bad = 0, refused = 0;
  {
    const Flipper first(slot(0)), third(slot(2));
    // On a busy machine the others may not have run yet: on until both kinds of entries were seen, at most so often.
    const auto both_seen = [&] { return refused > 0 && refused < taken; };
    for (; taken < 400'000 || (!both_seen() && taken < 400'000'000); ++taken) {
      if (taken >= 400'000 && taken % 1'000 == 0) sched_yield();
      ++control.produced;
      qp::WorkRequest out;
      if (!queue.take(out)) std::abort();
      refused += out.malformed;
      if (out.malformed) continue;
      bad += out.sge_count > 2 || out.opcode == qp::Opcode::fast_register;
      bad += out.data.size() + out.sge_count * sizeof(rnic_sge) > 32;
      bad += out.has_data ? out.data.size() > 32 : !out.data.empty();
    }
  }
  CHECK(bad == 0);
  CHECK(refused > 0);
  CHECK(refused < taken);
  munmap(shared, size);
}

TEST_CASE("V-SEC-08: a receive entry with too many SGEs is malformed", "[shm][V-SEC-08]") {
  Area area{shm::SendQueue::area_bytes(4, 64)};
  shm::ReceiveQueue queue(area.bytes(), 4, 64, 3);
  auto& control = area.at<rnic_ring_control>(0);
  auto& slot = area.at<rnic_rqe>(sizeof(rnic_ring_control));
  slot.sge_count = 4;
  control.produced = 1;
  qp::ReceiveRequest out;
  REQUIRE(queue.take(out));
  CHECK(out.malformed);
  auto& second = area.at<rnic_rqe>(sizeof(rnic_ring_control) + 64);
  second.sge_count = 3;
  control.produced = 2;
  REQUIRE(queue.take(out));
  CHECK_FALSE(out.malformed);
  CHECK(out.sge_count == 3);
}

// ---- shared receive queues -----------------------------------------------------------------------

struct SharedWorld {
  Area area{shm::SharedReceiveQueue::area_bytes(8, 64)};
  shm::SharedReceiveQueue queue{area.bytes(), 8, 64, 2};
  void post(std::uint32_t id) { post_into(area, 8, id); }
  static void post_into(Area& area, std::uint32_t size, std::uint32_t id) {
    auto& control = area.at<rnic_ring_control>(0);
    area.at<rnic_rqe>(sizeof(rnic_ring_control) + (control.produced & (size - 1)) * 64).id = id;
    ++control.produced;
  }
};

TEST_CASE("V-SRQ-08: shared receives are named by their ids, in the order of the ring", "[shm][V-SRQ-08]") {
  SharedWorld world;
  world.post(5);
  world.post(2);
  qp::ReceiveRequest out;
  REQUIRE(world.queue.take(out));
  CHECK(out.slot == 5);
  CHECK(out.shared);
  REQUIRE(world.queue.take(out));
  CHECK(out.slot == 2);
  CHECK_FALSE(world.queue.take(out));
}

TEST_CASE("V-SEC-08: a shared receive with too many SGEs is malformed, and its id is its application's affair",
          "[shm][V-SEC-08]") {
  SharedWorld world;
  world.area.at<rnic_rqe>(sizeof(rnic_ring_control)).sge_count = 3;
  world.post(0xffffffff);
  qp::ReceiveRequest out;
  REQUIRE(world.queue.take(out));
  CHECK(out.malformed);
  CHECK(out.slot == 0xffffffff);
}

TEST_CASE("V-SRZ-01: a shared queue goes to another ring with what is posted and not taken", "[shm][V-SRZ-01]") {
  qp::ReceiveRequest out;
  Area first{shm::SharedReceiveQueue::area_bytes(8, 64)};
  shm::SharedReceiveQueue queue{first.bytes(), 8, 64, 2};
  queue.set_worker(3);
  for (std::uint32_t i = 0; i < 6; ++i) SharedWorld::post_into(first, 8, 100 + i);
  REQUIRE(queue.take(out));
  REQUIRE(queue.take(out));
  for (std::uint32_t i = 6; i < 10; ++i) SharedWorld::post_into(first, 8, 100 + i);  // eight wait
  queue.arm_limit(2);
  Area small{shm::SharedReceiveQueue::area_bytes(4, 64)}, large{shm::SharedReceiveQueue::area_bytes(32, 64)};
  CHECK_FALSE(queue.resize(small.bytes(), 4));
  CHECK(queue.available() == 8);
  REQUIRE(queue.resize(large.bytes(), 32));
  CHECK(queue.available() == 8);
  CHECK(queue.limit() == 2);
  CHECK(large.at<rnic_ring_control>(0).worker == 3);
  SharedWorld::post_into(large, 32, 110);
  for (std::uint32_t i = 2; i < 8; ++i) {
    REQUIRE(queue.take(out));
    CHECK(out.slot == 100 + i);
  }
  REQUIRE(queue.resize(small.bytes(), 4));
  for (std::uint32_t i = 8; i < 11; ++i) {
    REQUIRE(queue.take(out));
    CHECK(out.slot == 100 + i);
  }
  CHECK_FALSE(queue.take(out));
  CHECK(queue.take_limit_event());
}

TEST_CASE("A receive queue that is watched asks for a doorbell when a receive is missing", "[shm]") {
  SharedWorld shared;
  Area area{shm::SendQueue::area_bytes(8, 64)};
  shm::ReceiveQueue own{area.bytes(), 8, 64, 2};
  const auto asks = [](auto& queue, Area& ring) {
    const std::uint32_t& watched = ring.at<rnic_ring_control>(0).watched;
    qp::ReceiveRequest out;
    CHECK(watched == 0);
    CHECK(queue.watch());
    CHECK(watched == 1);
    CHECK_FALSE(queue.watch());
    SharedWorld::post_into(ring, 8, 1);
    SharedWorld::post_into(ring, 8, 2);
    REQUIRE(queue.take(out));
    REQUIRE(queue.take(out));
    CHECK(watched == 1);
    CHECK_FALSE(queue.take(out));
    CHECK(watched == 0);
    CHECK_FALSE(queue.take(out));
    SharedWorld::post_into(ring, 8, 3);
    REQUIRE(queue.take(out));
    CHECK(watched == 0);  // until it has rung for one
    CHECK(queue.watch());
    CHECK(watched == 1);
  };
  asks(shared.queue, shared.area);
  asks(own, area);
}

TEST_CASE("A shared queue that goes to another ring is not watched there", "[shm]") {
  SharedWorld world;
  Area other{shm::SharedReceiveQueue::area_bytes(32, 64)};
  REQUIRE(world.queue.watch());
  REQUIRE(world.queue.resize(other.bytes(), 32));
  CHECK(other.at<rnic_ring_control>(0).watched == 0);
  CHECK(world.queue.watch());
  CHECK(other.at<rnic_ring_control>(0).watched == 1);
}

TEST_CASE("V-SEC-08: a shared queue with a scribbled producer index is not resized", "[shm][V-SEC-08]") {
  SharedWorld world;
  Area other{shm::SharedReceiveQueue::area_bytes(32, 64)};
  world.area.at<rnic_ring_control>(0).produced = 9;  // the ring holds eight
  CHECK_FALSE(world.queue.resize(other.bytes(), 32));
  world.area.at<rnic_ring_control>(0).produced = 8;
  CHECK(world.queue.resize(other.bytes(), 32));
}

TEST_CASE("V-LIM-02: the limit fires once when available receives fall below it, until armed again",
          "[shm][V-LIM-01][V-LIM-02]") {
  SharedWorld world;
  for (std::uint32_t i = 0; i < 6; ++i) world.post(i);
  world.queue.arm_limit(4);
  qp::ReceiveRequest out;
  REQUIRE(world.queue.take(out));
  REQUIRE(world.queue.take(out));
  CHECK_FALSE(world.queue.take_limit_event());  // four are left: not below
  REQUIRE(world.queue.take(out));
  CHECK(world.queue.take_limit_event());
  CHECK(world.queue.limit() == 0);
  REQUIRE(world.queue.take(out));
  CHECK_FALSE(world.queue.take_limit_event());
  world.queue.arm_limit(2);
  REQUIRE(world.queue.take(out));
  CHECK(world.queue.take_limit_event());
}

TEST_CASE("V-LIM-01: without a limit nothing fires, and what has fired and was not told goes with its limit",
          "[shm][V-LIM-01][V-LIM-03]") {
  SharedWorld world;
  CHECK(world.queue.limit() == 0);
  for (std::uint32_t i = 0; i < 6; ++i) world.post(i);
  qp::ReceiveRequest out;
  while (world.queue.available() > 2) REQUIRE(world.queue.take(out));
  CHECK_FALSE(world.queue.take_limit_event());
  world.queue.arm_limit(2);
  REQUIRE(world.queue.take(out));
  SECTION("0: there is none") {
    world.queue.arm_limit(0);
    CHECK_FALSE(world.queue.take_limit_event());
  }
  SECTION("another does not unsay it") {
    world.queue.arm_limit(1);
    CHECK(world.queue.take_limit_event());
  }
  REQUIRE(world.queue.take(out));
  CHECK(world.queue.available() == 0);
}

TEST_CASE("V-SEC-08: a scribbled producer index of a shared receive queue is nothing to take", "[shm][V-SEC-08]") {
  SharedWorld world;
  auto& produced = world.area.at<rnic_ring_control>(0).produced;
  qp::ReceiveRequest out;
  produced = 9;  // the ring holds eight
  CHECK(world.queue.available() == 0);
  CHECK_FALSE(world.queue.take(out));
  produced = 8;
  CHECK(world.queue.available() == 8);
  CHECK(world.queue.take(out));
}

TEST_CASE("V-LIM-03: an armed limit can be armed again, to another value", "[shm][V-LIM-03]") {
  SharedWorld world;
  for (std::uint32_t i = 0; i < 6; ++i) world.post(i);
  world.queue.arm_limit(6);
  world.queue.arm_limit(3);
  qp::ReceiveRequest out;
  REQUIRE(world.queue.take(out));
  CHECK_FALSE(world.queue.take_limit_event());
  CHECK(world.queue.limit() == 3);
}

// ---- completion queues ---------------------------------------------------------------------------

struct CqWorld {
  Area area{shm::CompletionQueue::area_bytes(4)};
  shm::CompletionQueue cq{area.bytes(), 4, 77};
  std::uint32_t consumed = 0;
  rnic_cq_control& control() { return area.at<rnic_cq_control>(0); }
  rnic_cqe& entry(std::uint32_t index) { return area.at<rnic_cqe>(sizeof(rnic_cq_control) + (index & 3) * 64); }
  bool push(std::uint32_t slot, std::uint8_t flags = 0, std::uint8_t status = RNIC_WC_SUCCESS) {
    rnic_cqe made{};
    made.slot = slot;
    made.flags = flags;
    made.status = status;
    return cq.push(made);
  }
  // As the provider polls.
  bool poll(rnic_cqe& out) {
    const rnic_cqe& at = entry(consumed);
    if (at.phase != consumed / 4 + 1) return false;
    out = at;
    control().consumed = ++consumed;
    return true;
  }
  void arm(std::uint32_t kind) { control().arm = ((control().arm >> 2) + 1) << 2 | kind; }
};

TEST_CASE("V-POLL-02: each completion is seen once and in order, round and round the ring",
          "[shm][V-POLL-01][V-POLL-02]") {
  CqWorld world;
  rnic_cqe out{};
  CHECK_FALSE(world.poll(out));
  for (std::uint32_t i = 0; i < 1000; ++i) {
    REQUIRE(world.push(i));
    if (i % 3 != 2) continue;
    for (std::uint32_t k = i - 2; k <= i; ++k) {
      REQUIRE(world.poll(out));
      CHECK(out.slot == k);
    }
    CHECK_FALSE(world.poll(out));
  }
}

TEST_CASE("V-CQ-06: a full queue refuses, keeps what it has, and stays refused", "[shm][V-CQ-06][V-AE-37]") {
  CqWorld world;
  for (std::uint32_t i = 0; i < 4; ++i) REQUIRE(world.push(i));
  CHECK_FALSE(world.cq.overflowed());
  CHECK_FALSE(world.push(4));
  CHECK(world.cq.overflowed());
  rnic_cqe out{};
  for (std::uint32_t i = 0; i < 4; ++i) {
    REQUIRE(world.poll(out));
    CHECK(out.slot == i);
  }
  CHECK_FALSE(world.push(5));
}

TEST_CASE("V-POLL-03: polling one completion makes room for one", "[shm][V-POLL-03]") {
  CqWorld world;
  for (std::uint32_t i = 0; i < 4; ++i) {
    CHECK(world.cq.has_room());
    REQUIRE(world.push(i));
  }
  CHECK_FALSE(world.cq.has_room());
  rnic_cqe out{};
  REQUIRE(world.poll(out));
  CHECK(world.cq.has_room());
  CHECK(world.push(4));
  CHECK_FALSE(world.push(5));
  REQUIRE(world.poll(out));
  CHECK_FALSE(world.cq.has_room());  // it has overflowed
}

TEST_CASE("V-NTF-05: an arming for the next completion fires on any, once", "[shm][V-NTF-01][V-NTF-02][V-NTF-05]") {
  CqWorld world;
  CHECK(world.push(0));
  CHECK_FALSE(world.cq.take_notification());  // never armed
  world.arm(RNIC_ARM_NEXT);
  world.arm(RNIC_ARM_NEXT);
  CHECK(world.push(1));
  CHECK(world.cq.take_notification());
  CHECK(world.push(2));
  CHECK_FALSE(world.cq.take_notification());
}

TEST_CASE("V-NTF-03: completions that were there before the arming do not fire", "[shm][V-NTF-03]") {
  CqWorld world;
  CHECK(world.push(0));
  CHECK_FALSE(world.cq.take_notification());
  world.arm(RNIC_ARM_NEXT);
  CHECK_FALSE(world.cq.take_notification());
  CHECK(world.push(1));
  CHECK(world.cq.take_notification());
}

TEST_CASE("V-NTF-04: a solicited arming fires on solicited receives and on errors, not on others", "[shm][V-NTF-04]") {
  CqWorld world;
  world.arm(RNIC_ARM_SOLICITED);
  CHECK(world.push(0));
  CHECK_FALSE(world.cq.take_notification());
  CHECK(world.push(1, RNIC_CQE_SOLICITED));
  CHECK(world.cq.take_notification());
  world.arm(RNIC_ARM_SOLICITED);
  CHECK(world.push(2, 0, RNIC_WC_FLUSHED));
  CHECK(world.cq.take_notification());
}

namespace {
constexpr auto kSeveral = shm::CompletionQueue::Producers::several;
}  // namespace

TEST_CASE("V-POLL-02: where one of several workers completes, all is there at once", "[shm][V-POLL-02]") {
  Area area{shm::CompletionQueue::area_bytes(4)};
  shm::CompletionQueue cq{area.bytes(), 4, 77, false, 2};
  for (std::uint32_t i = 0; i < 4; ++i) {
    REQUIRE(cq.push(rnic_cqe{}, 1));
    CHECK(area.at<rnic_cqe>(sizeof(rnic_cq_control) + i * sizeof(rnic_cqe)).phase == 1);
  }
  CHECK_FALSE(cq.has_room(1));
  CHECK_FALSE(cq.push(rnic_cqe{}, 1));
  CHECK(cq.overflowed());
}

TEST_CASE("V-POLL-02: of several workers each one's completions are in order, and all are there when it has published",
          "[shm][V-POLL-02]") {
  Area area{shm::CompletionQueue::area_bytes(64)};
  shm::CompletionQueue cq{area.bytes(), 64, 77, false, 2, kSeveral};
  const auto push = [&](std::uint32_t slot, std::uint32_t worker) {
    rnic_cqe made{};
    made.slot = slot;
    made.qp_number = worker;
    return cq.push(made, worker);
  };
  for (std::uint32_t i = 0; i < 20; ++i) {
    REQUIRE(push(i, 0));
    REQUIRE(push(i, 1));
  }
  REQUIRE(cq.publish(0));
  REQUIRE(cq.publish(1));
  REQUIRE(cq.publish(1));
  std::uint32_t next[2] = {};
  for (std::uint32_t i = 0; i < 40; ++i) {
    const auto& cqe = area.at<rnic_cqe>(sizeof(rnic_cq_control) + i * sizeof(rnic_cqe));
    REQUIRE(cqe.phase == 1);
    CHECK(cqe.slot == next[cqe.qp_number]++);
  }
  CHECK(next[0] == 20);
  CHECK(next[1] == 20);
  CHECK(cq.unpolled() == 40);
}

TEST_CASE("V-CQ-06: what a worker has held back is there as far as it fits", "[shm][V-CQ-06][V-AE-37]") {
  Area area{shm::CompletionQueue::area_bytes(4)};
  shm::CompletionQueue cq{area.bytes(), 4, 77, false, 2, kSeveral};
  for (std::uint32_t i = 0; i < 3; ++i) {
    CHECK(cq.has_room(0));
    REQUIRE(cq.push(rnic_cqe{}, 0));
  }
  CHECK(cq.has_room(0));
  REQUIRE(cq.push(rnic_cqe{}, 1));
  REQUIRE(cq.publish(1));
  CHECK_FALSE(cq.has_room(0));
  REQUIRE(cq.push(rnic_cqe{}, 0));  // one too many, and nobody knows yet
  CHECK_FALSE(cq.overflowed());
  CHECK_FALSE(cq.publish(0));
  CHECK(cq.overflowed());
  CHECK(cq.unpolled() == 4);
  for (std::uint32_t i = 0; i < 4; ++i)
    CHECK(area.at<rnic_cqe>(sizeof(rnic_cq_control) + i * sizeof(rnic_cqe)).phase == 1);
  CHECK_FALSE(cq.push(rnic_cqe{}, 1));
  CHECK(cq.publish(0));  // nothing is left of it
}

TEST_CASE("V-NTF-02: an arming fires for one of several workers that have pushed", "[shm][V-NTF-02][V-NTF-04]") {
  Area area{shm::CompletionQueue::area_bytes(64)};
  shm::CompletionQueue cq{area.bytes(), 64, 77, false, 2, kSeveral};
  const auto arm = [&](std::uint32_t kind) {
    auto& control = area.at<rnic_cq_control>(0);
    control.arm = ((control.arm >> 2) + 1) << 2 | kind;
  };
  const auto push = [&](std::uint32_t worker, std::uint8_t flags = 0) {
    rnic_cqe made{};
    made.flags = flags;
    REQUIRE(cq.push(made, worker));
    REQUIRE(cq.publish(worker));
  };
  arm(RNIC_ARM_NEXT);
  CHECK_FALSE(cq.take_notification(1));
  push(0);
  push(1);
  CHECK(cq.take_notification(1));
  CHECK_FALSE(cq.take_notification(0));
  arm(RNIC_ARM_SOLICITED);
  push(0);
  push(1, RNIC_CQE_SOLICITED);
  CHECK_FALSE(cq.take_notification(0));
  CHECK(cq.take_notification(1));
}

// A producer that was held up between its two looks, at the tail and at what was polled, finds more polled than it
// knows to be pushed.
TEST_CASE("V-CQ-06: a queue that has room has not overflowed, however many workers push and however fast it is polled",
          "[shm][V-CQ-06]") {
  constexpr std::uint32_t kSize = 16, kWorkers = 2, kEach = 5'000'000;
  Area area{shm::CompletionQueue::area_bytes(kSize)};
  shm::CompletionQueue cq{area.bytes(), kSize, 77, false, kWorkers, kSeveral};
  std::atomic<std::int32_t> room{kSize};
  std::atomic<bool> refused{false};
  // The application, whose turn it is on whichever thread: two are as many as may run at a time.
  std::atomic_flag polls;
  std::uint32_t polled = 0;
  const auto poll = [&] {
    if (polls.test_and_set(std::memory_order_acquire)) return;
    auto& next = area.at<rnic_cqe>(sizeof(rnic_cq_control) + (polled % kSize) * sizeof(rnic_cqe));
    if (std::atomic_ref(next.phase).load(std::memory_order_acquire) == polled / kSize + 1) {
      std::atomic_ref(area.at<rnic_cq_control>(0).consumed).store(++polled, std::memory_order_release);
      room.fetch_add(1, std::memory_order_relaxed);
    }
    polls.clear(std::memory_order_release);
  };
  std::vector<std::thread> workers;
  for (std::uint32_t worker = 0; worker < kWorkers; ++worker)
    workers.emplace_back([&, worker] {
      for (std::uint32_t i = 0; i < kEach && !refused; ++i) {
        while (room.fetch_sub(1, std::memory_order_relaxed) <= 0) {
          room.fetch_add(1, std::memory_order_relaxed);
          if (!cq.publish(worker)) refused = true;
          poll();
        }
        if (!cq.push(rnic_cqe{}, worker) || (i % 3 == 0 && !cq.publish(worker))) refused = true;
        poll();
      }
      if (!cq.publish(worker)) refused = true;
    });
  for (std::thread& worker : workers) worker.join();
  CHECK_FALSE(refused);
  CHECK_FALSE(cq.overflowed());
}

// Its three steps; `meanwhile` is what producers do during the second.
bool resize(shm::CompletionQueue& cq, MutableBytes area, std::uint32_t size,
            const std::function<void()>& meanwhile = {}) {
  const auto begun = cq.begin_resize(area, size);
  if (!begun) return false;
  cq.copy(*begun);
  if (meanwhile) meanwhile();
  return cq.finish_resize(*begun);
}

TEST_CASE("V-CQ-07: resize loses, repeats and reorders nothing", "[shm][V-CQ-07]") {
  CqWorld world;
  rnic_cqe out{};
  for (std::uint32_t i = 0; i < 3; ++i) REQUIRE(world.push(i));
  REQUIRE(world.poll(out));
  Area larger{shm::CompletionQueue::area_bytes(8)};
  REQUIRE(resize(world.cq, larger.bytes(), 8));
  for (std::uint32_t i = 3; i < 9; ++i) REQUIRE(world.push(i));
  CHECK_FALSE(world.push(9));
  for (std::uint32_t i = 0; i < 8; ++i) {
    const auto& at = larger.at<rnic_cqe>(sizeof(rnic_cq_control) + i * 64);
    CHECK(at.phase == 1);
    CHECK(at.slot == i + 1);
  }
}

TEST_CASE("V-CQ-07: what completes while a queue is resized is behind what waited", "[shm][V-CQ-07][V-CQ-08]") {
  CqWorld world;  // of 4
  rnic_cqe out{};
  for (std::uint32_t i = 0; i < 3; ++i) REQUIRE(world.push(i));
  REQUIRE(world.poll(out));
  Area smaller{shm::CompletionQueue::area_bytes(2)};
  CHECK_FALSE(resize(world.cq, smaller.bytes(), 2, [&] { REQUIRE(world.push(3)); }));
  Area other{shm::CompletionQueue::area_bytes(4)};
  REQUIRE(resize(world.cq, other.bytes(), 4, [&] { REQUIRE(world.push(4)); }));
  CHECK_FALSE(world.push(5));
  for (std::uint32_t i = 0; i < 4; ++i) {
    const auto& at = other.at<rnic_cqe>(sizeof(rnic_cq_control) + i * sizeof(rnic_cqe));
    CHECK(at.phase == 1);
    CHECK(at.slot == i + 1);
  }
}

TEST_CASE("V-CQ-07: a million completions are moved as they are", "[shm][V-CQ-07][V-CQ-08][V-CQ-06]") {
  constexpr std::uint32_t kMost = control::kCqesMax;
  Area area{shm::CompletionQueue::area_bytes(kMost)}, other{shm::CompletionQueue::area_bytes(kMost)};
  shm::CompletionQueue cq{area.bytes(), kMost, 77};
  rnic_cqe made{};
  for (made.slot = 0; made.slot < kMost; ++made.slot)
    if (!cq.push(made)) FAIL("refused at " << made.slot);
  CHECK_FALSE(resize(cq, other.bytes(), kMost / 2));
  CHECK(cq.unpolled() == kMost);
  REQUIRE(resize(cq, other.bytes(), kMost));
  for (std::uint32_t i = 0; i < kMost; ++i) {
    const auto& at = other.at<rnic_cqe>(sizeof(rnic_cq_control) + std::size_t{i} * sizeof(rnic_cqe));
    if (at.slot != i || at.phase != 1) FAIL("wrong at " << i);
  }
  CHECK_FALSE(cq.push(made));
  CHECK(cq.overflowed());
}

TEST_CASE("V-CQ-08: resize below what waits fails and changes nothing", "[shm][V-CQ-08]") {
  CqWorld world;
  for (std::uint32_t i = 0; i < 3; ++i) REQUIRE(world.push(i));
  Area smaller{shm::CompletionQueue::area_bytes(2)};
  CHECK_FALSE(resize(world.cq, smaller.bytes(), 2));
  rnic_cqe out{};
  REQUIRE(world.poll(out));
  CHECK(out.slot == 0);
  REQUIRE(world.poll(out));
  CHECK(out.slot == 1);
}

}  // namespace
