// Send and receive queues of abi/rnic_shm.h, from the data plane's end.
#include "shm/queues.hpp"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "kit/catch.hpp"
#include "unit/shm/area.hpp"

namespace {

using namespace rnic;
using test::Area;

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

}  // namespace
