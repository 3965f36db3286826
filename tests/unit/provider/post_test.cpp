// Posting: credit by polling, what an entry holds, what is refused, and doorbells.
#include <sched.h>

#include "kit/catch.hpp"

#include "unit/provider/daemon.hpp"

using namespace rnic;
using namespace rnic::test;

TEST_CASE("V-WR-07: a post to a full send queue is refused, and none before", "[provider][V-WR-07]") {
  OneQp t(4);
  for (std::uint64_t i = 0; i < 4; ++i) CHECK(t.post_write(i) == 0);
  CHECK(t.post_write(4) == ENOMEM);
  CHECK(t.app.view(t.qp).send.produced() == 4);
}

TEST_CASE("V-WR-05: a signaled slot is free after its completion was polled, not when it is made",
          "[provider][V-WR-05]") {
  OneQp t(4);
  for (std::uint64_t i = 0; i < 4; ++i) REQUIRE(t.post_write(i) == 0);
  t.complete_send(0);
  CHECK(t.post_write(4) == ENOMEM);
  ibv_wc wc{};
  REQUIRE(provider::poll_cq(t.send_cq, 1, &wc) == 1);
  CHECK(t.post_write(4) == 0);
  CHECK(t.post_write(5) == ENOMEM);
}

TEST_CASE("V-WR-05: a full queue whose work is all done takes nothing, and one more for each completion polled",
          "[provider][V-WR-05][V-WR-07]") {
  OneQp t(4);
  const bool sends = GENERATE(true, false);
  const auto post = [&](std::uint64_t id) { return sends ? t.post_write(id) : t.post_receive(id); };
  for (std::uint32_t i = 0; i < 4; ++i) REQUIRE(post(i) == 0);
  for (std::uint32_t i = 0; i < 4; ++i) {
    if (sends)
      t.complete_send(i);
    else
      t.daemon.push(t.receive_cq, t.received(i, 5));
  }
  CHECK(post(4) == ENOMEM);
  ibv_wc wc{};
  for (std::uint64_t i = 0; i < 4; ++i) {
    REQUIRE(provider::poll_cq(sends ? t.send_cq : t.receive_cq, 1, &wc) == 1);
    CHECK(wc.wr_id == i);
    CHECK(post(10 + i) == 0);
    CHECK(post(99) == ENOMEM);
  }
}

TEST_CASE("V-WR-05: what the data plane says it has taken gives no credit", "[provider][V-WR-05]") {
  OneQp t(4);
  for (std::uint64_t i = 0; i < 4; ++i) REQUIRE(t.post_write(i) == 0);
  t.app.view(t.qp).send.control->taken = 4;
  CHECK(t.post_write(4) == ENOMEM);
}

TEST_CASE("V-WR-10: a receive's SGEs are copied at post, in order, and its id comes back", "[provider][V-WR-10]") {
  OneQp t(4);
  for (std::uint64_t i = 0; i < 5; ++i) {  // the ring goes round
    ibv_sge two[2] = {t.sge(3, 100), t.sge(60, 200)};
    ibv_recv_wr wr{};
    wr.wr_id = 70 + i;
    wr.sg_list = two;
    wr.num_sge = 2;
    ibv_recv_wr* bad = nullptr;
    REQUIRE(provider::post_recv(t.qp, &wr, &bad) == 0);
    two[0] = two[1] = {};  // the list is the application's again
    const auto slot = static_cast<std::uint32_t>(i);
    const char* at = t.app.view(t.qp).receive.slot(slot);
    const auto& rqe = *reinterpret_cast<const rnic_rqe*>(at);
    const auto* sges = reinterpret_cast<const rnic_sge*>(at + sizeof rqe);
    CHECK(rqe.sge_count == 2);
    const auto buffer = reinterpret_cast<std::uintptr_t>(t.buffer);
    CHECK((sges[0].address == buffer + 100 && sges[0].length == 3 && sges[0].lkey == t.mr->lkey));
    CHECK((sges[1].address == buffer + 200 && sges[1].length == 60 && sges[1].lkey == t.mr->lkey));
    t.daemon.push(t.receive_cq, t.received(slot, 63));
    ibv_wc wc{};
    REQUIRE(provider::poll_cq(t.receive_cq, 1, &wc) == 1);
    CHECK((wc.wr_id == 70 + i && wc.status == IBV_WC_SUCCESS && wc.byte_len == 63));
  }
}

TEST_CASE("V-WR-06: polling a later completion frees the unsignaled slots before it", "[provider][V-WR-06]") {
  OneQp t(4);
  REQUIRE(t.post_write(0, 0) == 0);
  REQUIRE(t.post_write(1, 0) == 0);
  REQUIRE(t.post_write(2, IBV_SEND_SIGNALED) == 0);
  REQUIRE(t.post_write(3, 0) == 0);
  t.complete_send(2);
  ibv_wc wc{};
  REQUIRE(provider::poll_cq(t.send_cq, 1, &wc) == 1);
  CHECK(wc.wr_id == 2);
  for (std::uint64_t i = 4; i < 7; ++i) CHECK(t.post_write(i) == 0);
  CHECK(t.post_write(7) == ENOMEM);
}

TEST_CASE("V-WR-07: credit is exact over many rounds of the ring", "[provider][V-WR-07]") {
  OneQp t(4);
  ibv_wc wc{};
  for (std::uint32_t i = 0; i < 100; ++i) {
    REQUIRE(t.post_write(i) == 0);
    t.complete_send(i);
    REQUIRE(provider::poll_cq(t.send_cq, 1, &wc) == 1);
    REQUIRE(wc.wr_id == i);
    REQUIRE(provider::poll_cq(t.send_cq, 1, &wc) == 0);
  }
}

TEST_CASE("V-WR-07: a receive queue refuses when full and takes again after a poll", "[provider][V-WR-07]") {
  OneQp t(2);
  CHECK(t.post_receive(1) == 0);
  CHECK(t.post_receive(2) == 0);
  CHECK(t.post_receive(3) == ENOMEM);
  t.daemon.push(t.receive_cq, t.received(0, 5));
  ibv_wc wc{};
  REQUIRE(provider::poll_cq(t.receive_cq, 1, &wc) == 1);
  CHECK(wc.byte_len == 5);
  CHECK(t.post_receive(3) == 0);
  CHECK(t.post_receive(4) == ENOMEM);
}

TEST_CASE("V-WR-03: the first refused WR of a list stops it; those before it are queued", "[provider][V-WR-03]") {
  OneQp t(8);
  ibv_sge one = t.sge(8);
  ibv_send_wr list[3];
  for (int i = 0; i < 3; ++i) {
    list[i] = t.write_of(one, static_cast<std::uint64_t>(i));
    list[i].next = i < 2 ? &list[i + 1] : nullptr;
  }
  list[1].num_sge = 5;
  ibv_send_wr* bad = nullptr;
  CHECK(provider::post_send(t.qp, list, &bad) == EINVAL);
  CHECK(bad == &list[1]);
  CHECK(t.app.view(t.qp).send.produced() == 1);
}

TEST_CASE("V-WR-11: as many SGEs as the limit are taken, one more is refused", "[provider][V-WR-11]") {
  OneQp t(8);
  std::vector<ibv_sge> sges(5, t.sge(4));
  ibv_send_wr wr = t.write_of(sges[0], 1);
  wr.num_sge = 4;
  CHECK(t.post(wr) == 0);
  wr.num_sge = 5;
  CHECK(t.post(wr) == EINVAL);
}

TEST_CASE("V-SGL-07: a Read has at most one local address", "[provider][V-SGL-07]") {
  OneQp t(8);
  std::vector<ibv_sge> sges(2, t.sge(4));
  ibv_send_wr wr = t.write_of(sges[0], 1);
  wr.opcode = IBV_WR_RDMA_READ;
  CHECK(t.post(wr) == 0);
  wr.num_sge = 2;
  CHECK(t.post(wr) == EINVAL);
}

TEST_CASE("V-IS-38: an operation we do not offer is refused at post", "[provider][V-IS-38]") {
  OneQp t(8);
  ibv_sge one = t.sge(8);
  // Those of RFC 7306 too, on a device that has them not (W-EXT-14).
  for (const ibv_wr_opcode opcode : {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_ATOMIC_CMP_AND_SWP,
                                     IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_TSO}) {
    ibv_send_wr wr = t.write_of(one, 1);
    wr.opcode = opcode;
    CHECK(t.post(wr) == EOPNOTSUPP);
  }
  ibv_send_wr wr = t.write_of(one, 1);
  wr.opcode = static_cast<ibv_wr_opcode>(12);
  CHECK(t.post(wr) == EINVAL);
}

TEST_CASE("W-EXT-12: Write with Immediate carries its value as the application gave it", "[provider][W-EXT-12]") {
  OneQp t(8);
  t.app.context->attributes.capabilities |= RNIC_CAP_IMMEDIATE;
  ibv_sge one = t.sge(8);
  ibv_send_wr wr = t.write_of(one, 1, IBV_SEND_SOLICITED | IBV_SEND_FENCE);
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.imm_data = 0x11223344;
  REQUIRE(t.post(wr) == 0);
  const auto send = t.app.view(t.qp).send;
  const rnic_sqe& sqe = send.sqe(0);
  CHECK(sqe.opcode == RNIC_OP_WRITE_IMMEDIATE);
  CHECK(sqe.invalidate == 0x11223344);
  CHECK(sqe.remote_address == wr.wr.rdma.remote_addr);
  CHECK(sqe.rkey == wr.wr.rdma.rkey);
  CHECK((sqe.flags & (RNIC_SQE_SOLICITED | RNIC_SQE_FENCE)) == (RNIC_SQE_SOLICITED | RNIC_SQE_FENCE));
  // iWARP has no message for the other one, whatever the device can.
  wr.opcode = IBV_WR_SEND_WITH_IMM;
  CHECK(t.post(wr) == EOPNOTSUPP);
}

TEST_CASE("W-EXT-02: atomics have their values, and one place for the result", "[provider][W-EXT-02]") {
  OneQp t(8);
  t.app.context->attributes.atomics = 1;
  std::vector<ibv_sge> sges(2, t.sge(8));
  ibv_send_wr wr = t.write_of(sges[0], 1, IBV_SEND_FENCE | IBV_SEND_SOLICITED | IBV_SEND_INLINE);
  wr.wr.atomic = {0x1000, 0xA0A1A2A3, 0xB0B1B2B3, 0x77};
  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  REQUIRE(t.post(wr) == 0);
  wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
  REQUIRE(t.post(wr) == 0);
  const std::uint8_t opcodes[] = {RNIC_OP_FETCH_ADD, RNIC_OP_COMPARE_SWAP};
  for (std::uint32_t i = 0; i < 2; ++i) {
    const auto send = t.app.view(t.qp).send;
    const rnic_sqe& sqe = send.sqe(i);
    CHECK(sqe.opcode == opcodes[i]);
    CHECK(sqe.remote_address == 0x1000);
    CHECK(sqe.argument == 0xA0A1A2A3);
    CHECK(sqe.rkey == 0x77);
    CHECK(sqe.sge_count == 1);
    CHECK(sqe.flags == RNIC_SQE_FENCE);
    CHECK(std::memcmp(&sqe + 1, sges.data(), sizeof(rnic_sge)) == 0);
  }
  std::uint64_t swap = 0;
  std::memcpy(&swap, t.app.view(t.qp).send.slot(1) + sizeof(rnic_sqe) + sizeof(rnic_sge), sizeof swap);
  CHECK(swap == 0xB0B1B2B3);
  wr.num_sge = 0;
  CHECK(t.post(wr) == EINVAL);
  wr.num_sge = 2;
  CHECK(t.post(wr) == EINVAL);
}

TEST_CASE("V-WR-17: with sq_sig_all every entry is signaled, else only those that ask", "[provider][V-WR-17]") {
  OneQp all(4, 1);
  REQUIRE(all.post_write(1, 0) == 0);
  CHECK((all.app.view(all.qp).send.sqe(0).flags & RNIC_SQE_SIGNALED) != 0);
  OneQp some(4, 0);
  REQUIRE(some.post_write(1, 0) == 0);
  REQUIRE(some.post_write(2, IBV_SEND_SIGNALED) == 0);
  CHECK((some.app.view(some.qp).send.sqe(0).flags & RNIC_SQE_SIGNALED) == 0);
  CHECK((some.app.view(some.qp).send.sqe(1).flags & RNIC_SQE_SIGNALED) != 0);
}

TEST_CASE("V-WR-09: flags not meant for an opcode are left out of its entry", "[provider][V-WR-09]") {
  OneQp t(8);
  ibv_sge one = t.sge(8);
  ibv_send_wr wr = t.write_of(one, 1, IBV_SEND_FENCE | IBV_SEND_SOLICITED | IBV_SEND_INLINE);
  wr.opcode = IBV_WR_RDMA_READ;
  REQUIRE(t.post(wr) == 0);
  CHECK(t.app.view(t.qp).send.sqe(0).flags == 0);
  wr.opcode = IBV_WR_SEND;
  REQUIRE(t.post(wr) == 0);
  CHECK(t.app.view(t.qp).send.sqe(1).flags == (RNIC_SQE_FENCE | RNIC_SQE_SOLICITED | RNIC_SQE_INLINE));
}

TEST_CASE("V-WR-16: inline data is in the entry, whatever its lkey; one octet too many is refused",
          "[provider][V-WR-16]") {
  OneQp t(8);
  const std::uint32_t inline_max = provider::of(t.qp).send.inline_max;
  REQUIRE(inline_max >= 64);
  std::vector<char> data(inline_max + 1, 'x');
  ibv_sge one{reinterpret_cast<std::uintptr_t>(data.data()), inline_max, 0xDEAD};
  ibv_send_wr wr = t.write_of(one, 1, IBV_SEND_INLINE);
  REQUIRE(t.post(wr) == 0);
  const auto send = t.app.view(t.qp).send;
  const rnic_sqe& sqe = send.sqe(0);
  CHECK((sqe.flags & RNIC_SQE_INLINE) != 0);
  CHECK(sqe.sge_count == 0);
  CHECK(sqe.length == inline_max);
  CHECK(std::memcmp(&sqe + 1, data.data(), inline_max) == 0);
  one.length = inline_max + 1;
  CHECK(t.post(wr) == EINVAL);
}

TEST_CASE("every opcode carries its own fields", "[provider][V-WR-10]") {
  OneQp t(8);
  ibv_sge one = t.sge(8);
  ibv_send_wr wr = t.write_of(one, 1);
  REQUIRE(t.post(wr) == 0);
  wr.opcode = IBV_WR_SEND_WITH_INV;
  wr.invalidate_rkey = 0xABC;
  REQUIRE(t.post(wr) == 0);
  wr.opcode = IBV_WR_LOCAL_INV;
  REQUIRE(t.post(wr) == 0);
  const QueueView queue = t.app.view(t.qp).send;
  CHECK(queue.sqe(0).opcode == RNIC_OP_WRITE);
  CHECK(queue.sqe(0).remote_address == 0x1000);
  CHECK(queue.sqe(0).rkey == 0x77);
  CHECK(queue.sqe(1).opcode == RNIC_OP_SEND_INVALIDATE);
  CHECK(queue.sqe(1).invalidate == 0xABC);
  CHECK(queue.sqe(2).opcode == RNIC_OP_LOCAL_INVALIDATE);
  CHECK(queue.sqe(2).rkey == 0xABC);
  CHECK(queue.sqe(2).sge_count == 0);
}

// ---- Gather at post ------------------------------------------------------------------------------

namespace {

bool copied(OneQp& t, std::uint32_t index) { return (t.app.view(t.qp).send.sqe(index).flags & RNIC_SQE_COPIED) != 0; }

}  // namespace

TEST_CASE("gather at post: a small write travels in its entry, beside its SGE", "[provider][gather]") {
  OneQp t(8);
  std::memcpy(t.buffer, "8 octets", 8);
  REQUIRE(t.post_write(1) == 0);
  const auto send = t.app.view(t.qp).send;
  const rnic_sqe& sqe = send.sqe(0);
  CHECK(copied(t, 0));
  CHECK(sqe.sge_count == 1);
  CHECK(sqe.length == 8);
  CHECK(std::memcmp(reinterpret_cast<const char*>(&sqe + 1) + sizeof(rnic_sge), "8 octets", 8) == 0);
}

TEST_CASE("gather at post: as much as fits is copied, one octet more is not", "[provider][gather]") {
  OneQp t(8);
  const std::uint32_t room =
      t.app.view(t.qp).send.stride - static_cast<std::uint32_t>(sizeof(rnic_sqe) + sizeof(rnic_sge));
  ibv_sge one = t.sge(room);
  ibv_send_wr wr = t.write_of(one, 1);
  REQUIRE(t.post(wr) == 0);
  one.length = room + 1;
  REQUIRE(t.post(wr) == 0);
  CHECK(copied(t, 0));
  CHECK_FALSE(copied(t, 1));
}

TEST_CASE("gather at post: never where the region's own checks would fail", "[provider][gather]") {
  OneQp t(8);
  ibv_sge past = t.sge(8, sizeof t.buffer - 7);
  ibv_send_wr wr = t.write_of(past, 1);
  REQUIRE(t.post(wr) == 0);
  CHECK_FALSE(copied(t, 0));
  ibv_sge last = t.sge(8, sizeof t.buffer - 8);
  wr = t.write_of(last, 2);
  REQUIRE(t.post(wr) == 0);
  CHECK(copied(t, 1));
  ibv_sge other_key = t.sge(8);
  other_key.lkey ^= 1;
  wr = t.write_of(other_key, 3);
  REQUIRE(t.post(wr) == 0);
  CHECK_FALSE(copied(t, 2));
  ibv_sge gone = t.sge(8);
  REQUIRE(provider::dereg_mr(t.mr) == 0);
  wr = t.write_of(gone, 4);
  REQUIRE(t.post(wr) == 0);
  CHECK_FALSE(copied(t, 3));
}

TEST_CASE("gather at post: never for a zero-based region", "[provider][gather]") {
  OneQp t(8);
  ibv_mr* zero = t.app.make_mr(t.buffer, sizeof t.buffer, IBV_ACCESS_ZERO_BASED);
  ibv_sge one{0, 8, zero->lkey};
  ibv_send_wr wr = t.write_of(one, 1);
  REQUIRE(t.post(wr) == 0);
  CHECK_FALSE(copied(t, 0));
}

TEST_CASE("gather at post: never when fenced, nor while a Read is outstanding", "[provider][gather]") {
  OneQp t(8);
  REQUIRE(t.post_write(0, IBV_SEND_FENCE) == 0);
  CHECK_FALSE(copied(t, 0));
  ibv_sge one = t.sge(8);
  ibv_send_wr read = t.write_of(one, 1);
  read.opcode = IBV_WR_RDMA_READ;
  REQUIRE(t.post(read) == 0);
  REQUIRE(t.post_write(2) == 0);
  CHECK_FALSE(copied(t, 2));
  t.complete_send(1, RNIC_OP_READ);
  ibv_wc wc{};
  REQUIRE(provider::poll_cq(t.send_cq, 1, &wc) == 1);
  CHECK(wc.opcode == IBV_WC_RDMA_READ);
  REQUIRE(t.post_write(3) == 0);
  CHECK(copied(t, 3));
}

// ---- Transmit memory -----------------------------------------------------------------------------

namespace {

// Writes of more than fits an entry, from memory that the daemon does not map.
struct Long {
  explicit Long(std::uint32_t depth = 4) : t(depth), memory(std::size_t{1} << 20) {
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<char>(i * 7 + (i >> 10));
    mr = t.app.make_mr(memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
  }
  int post(std::uint32_t length, std::uint32_t offset = 0, unsigned flags = IBV_SEND_SIGNALED) {
    ibv_sge two[] = {
        {reinterpret_cast<std::uintptr_t>(memory.data()) + offset, length / 2, mr->lkey},
        {reinterpret_cast<std::uintptr_t>(memory.data()) + offset + length / 2, length - length / 2, mr->lkey}};
    ibv_send_wr wr = t.write_of(two[0], next, flags);
    wr.num_sge = 2;
    ++next;
    return t.post(wr);
  }
  const rnic_sqe& entry(std::uint32_t index) { return t.app.view(t.qp).send.sqe(index); }
  bool staged(std::uint32_t index) { return (entry(index).flags & RNIC_SQE_STAGED) != 0; }
  bool staged_right(std::uint32_t index, std::uint32_t length, std::uint32_t offset = 0) {
    const rnic_sqe& it = entry(index);
    return staged(index) && it.length == length && it.sge_count == 2 &&
           std::memcmp(provider::of(t.qp).send.transmit.base + it.argument, memory.data() + offset, length) == 0;
  }
  void complete(std::uint32_t index) {
    t.complete_send(index, RNIC_OP_WRITE);
    ibv_wc wc{};
    REQUIRE(provider::poll_cq(t.send_cq, 1, &wc) == 1);
  }
  std::size_t asked() { return t.daemon.relay().count(RNIC_TRANSMIT_MEMORY); }

  OneQp t;
  std::vector<char> memory;
  ibv_mr* mr;
  std::uint32_t next = 0;
};

}  // namespace

TEST_CASE("transmit memory: asked for once, when it is missed, and good for the posts that follow",
          "[provider][gather]") {
  Long w;
  REQUIRE(w.post(5000) == 0);
  CHECK_FALSE(w.staged(0));
  CHECK(w.asked() == 1);
  REQUIRE(w.post(5000, 100) == 0);
  REQUIRE(w.post(256 * 1024, 333) == 0);
  REQUIRE(w.post(256 * 1024 + 1) == 0);
  CHECK(w.staged_right(1, 5000, 100));
  CHECK(w.staged_right(2, 256 * 1024, 333));
  CHECK(w.staged_right(1, 5000, 100));  // still
  CHECK_FALSE(w.staged(3));
  CHECK(w.asked() == 1);
}

TEST_CASE("transmit memory: what the daemon has mapped it takes as it is", "[provider][gather]") {
  constexpr std::size_t kSize = std::size_t{1} << 20;
  Long w;
  const control::Descriptor file(memfd_create("mapped", MFD_CLOEXEC));
  REQUIRE(ftruncate(file.get(), kSize) == 0);
  void* const shared = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  REQUIRE(shared != MAP_FAILED);
  ibv_mr* const mapped = w.t.app.make_mr(shared, kSize, IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(w.post(5000) == 0);
  REQUIRE(w.post(5000) == 0);
  CHECK(w.staged(1));
  ibv_sge of_both[] = {{reinterpret_cast<std::uintptr_t>(shared), 5000, mapped->lkey},
                       {reinterpret_cast<std::uintptr_t>(w.memory.data()), 5000, w.mr->lkey}};
  ibv_send_wr wr = w.t.write_of(of_both[0], 2);
  REQUIRE(w.t.post(wr) == 0);
  CHECK_FALSE(w.staged(2));
  wr.num_sge = 2;
  REQUIRE(w.t.post(wr) == 0);
  CHECK_FALSE(w.staged(3));
  w.t.app.end();
  munmap(shared, kSize);
}

TEST_CASE("transmit memory: who is given none does without, and does not ask again", "[provider][gather]") {
  Long w;
  w.t.daemon.relay().refuse(RNIC_TRANSMIT_MEMORY, ENOMEM);
  for (std::uint32_t i = 0; i < 4; ++i) REQUIRE(w.post(5000) == 0);
  for (std::uint32_t i = 0; i < 4; ++i) CHECK_FALSE(w.staged(i));
  CHECK(w.asked() == 1);
}

TEST_CASE("transmit memory: never when fenced, while a Read is outstanding, or from a region unknown or gone",
          "[provider][gather]") {
  Long w(8);
  REQUIRE(w.post(5000) == 0);
  REQUIRE(w.post(5000, 0, IBV_SEND_FENCE | IBV_SEND_SIGNALED) == 0);
  CHECK_FALSE(w.staged(1));
  REQUIRE(w.post(5000) == 0);
  CHECK(w.staged(2));
  ibv_sge one = w.t.sge(8);
  ibv_send_wr read = w.t.write_of(one, 3);
  read.opcode = IBV_WR_RDMA_READ;
  REQUIRE(w.t.post(read) == 0);
  REQUIRE(w.post(5000) == 0);
  CHECK_FALSE(w.staged(4));
  w.t.complete_send(3, RNIC_OP_READ);
  ibv_wc wc{};
  REQUIRE(provider::poll_cq(w.t.send_cq, 1, &wc) == 1);
  REQUIRE(w.post(5000) == 0);
  CHECK(w.staged(5));
  REQUIRE(provider::dereg_mr(w.mr) == 0);
  REQUIRE(w.post(5000) == 0);
  CHECK_FALSE(w.staged(6));
}

TEST_CASE("transmit memory: what is not complete is not overwritten, and comes free with its entry",
          "[provider][gather]") {
  constexpr std::uint32_t kPiece = 250'000;
  Long w(64);
  REQUIRE(w.post(kPiece) == 0);
  REQUIRE(provider::of(w.t.qp).send.transmit.size == RNIC_TRANSMIT_MEMORY_MAX);
  const std::uint32_t fit = provider::of(w.t.qp).send.transmit.size / (kPiece + 63);
  REQUIRE(fit + 4 < 64);
  std::uint32_t posted = 1;
  for (; posted <= fit; ++posted) REQUIRE(w.post(kPiece, posted * 1000) == 0);
  for (std::uint32_t i = 1; i <= fit; ++i) CHECK(w.staged_right(i, kPiece, i * 1000));
  REQUIRE(w.post(kPiece, 1) == 0);  // no room
  CHECK_FALSE(w.staged(posted++));
  for (std::uint32_t i = 0; i <= 2; ++i) w.complete(i);
  REQUIRE(w.post(kPiece, 77) == 0);
  CHECK(w.staged_right(posted++, kPiece, 77));
  for (std::uint32_t i = 3; i <= fit; ++i) CHECK(w.staged_right(i, kPiece, i * 1000));
  for (std::uint32_t i = 3; i < posted; ++i) w.complete(i);
  // Many times around, two at a time: what is left out at the ring's end counts as taken.
  for (std::uint32_t i = 0; i < 100; ++i, ++posted) {
    REQUIRE(w.post(kPiece - 999 * i, i) == 0);
    CHECK(w.staged_right(posted, kPiece - 999 * i, i));
    if (i == 0) continue;
    CHECK(w.staged_right(posted - 1, kPiece - 999 * (i - 1), i - 1));
    w.complete(posted - 1);
  }
}

// ---- Doorbells -----------------------------------------------------------------------------------

TEST_CASE("a post sets the queue's bit, its word's bit and the flag", "[provider][doorbell]") {
  OneQp t(8);
  const std::uint32_t index = provider::of(t.qp).send.doorbell, receive = provider::of(t.qp).receive.doorbell;
  rnic_doorbells& bells = t.daemon.doorbells();
  CHECK(bells.any == 0);
  REQUIRE(t.post_write(1) == 0);
  CHECK(bells.any == 1);
  CHECK(bells.summary[index / 64 / 64] == std::uint64_t{1} << (index / 64 % 64));
  CHECK(bells.words[index / 64] == std::uint64_t{1} << (index % 64));
  REQUIRE(t.post_receive(1) == 0);
  REQUIRE(receive / 64 == index / 64);
  CHECK(bells.words[index / 64] == (std::uint64_t{1} << (index % 64) | std::uint64_t{1} << (receive % 64)));
}

TEST_CASE("a worker that sleeps is woken, one that does not is left alone", "[provider][doorbell]") {
  OneQp t(8);
  t.daemon.page().worker[0].asleep = 0;
  REQUIRE(t.post_write(1) == 0);
  CHECK_FALSE(readable(t.daemon.worker_eventfd, 0));
  t.daemon.page().worker[0].asleep = 1;
  REQUIRE(t.post_write(2) == 0);
  CHECK(readable(t.daemon.worker_eventfd, 0));
}

TEST_CASE("who posts to a queue that is watched neither rings nor wakes", "[provider][doorbell]") {
  OneQp t(8);
  t.daemon.page().worker[0].asleep = 1;
  const auto& view = t.app.view(t.qp);
  view.send.control->watched = view.receive.control->watched = 1;
  REQUIRE(t.post_write(1) == 0);
  REQUIRE(t.post_receive(1) == 0);
  CHECK(view.send.produced() == 1);
  CHECK(view.receive.produced() == 1);
  CHECK(t.daemon.doorbells().any == 0);
  CHECK_FALSE(readable(t.daemon.worker_eventfd, 0));
  view.send.control->watched = 0;
  REQUIRE(t.post_write(2) == 0);
  CHECK(t.daemon.doorbells().any == 1);
  CHECK(readable(t.daemon.worker_eventfd, 0));
}

TEST_CASE("who wakes a worker says on which CPU, and nobody else does", "[provider][doorbell]") {
  OneQp t(8);
  cpu_set_t before, one;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &before)) ++cpu;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  rnic_doorbells& bells = t.daemon.doorbells();
  t.daemon.page().worker[0].asleep = 0;
  CHECK(t.post_write(1) == 0);
  CHECK(bells.rung_from == 0);
  t.daemon.page().worker[0].asleep = 1;
  CHECK(t.post_write(2) == 0);
  CHECK(bells.rung_from == static_cast<std::uint32_t>(cpu) + 1);
  sched_setaffinity(0, sizeof before, &before);
}

// ---- Shared receive queues -----------------------------------------------------------------------

namespace {

struct SharedPair {
  explicit SharedPair(std::uint32_t depth) : app(daemon) {
    cq = app.make_cq(16);
    srq = app.make_srq(depth);
    qp = app.make_qp(cq, cq, 4, srq);
  }
  int post(std::uint64_t wr_id) {
    ibv_recv_wr wr{};
    wr.wr_id = wr_id;
    ibv_recv_wr* bad = nullptr;
    return provider::post_srq_recv(srq, &wr, &bad);
  }
  void complete(std::uint32_t slot) {
    rnic_cqe cqe{};
    cqe.qp_number = qp->qp_num;
    cqe.slot = slot;
    cqe.opcode = RNIC_OP_RECEIVE;
    cqe.flags = RNIC_CQE_SHARED;
    daemon.push(cq, cqe);
  }
  TestDaemon daemon;
  Application app;
  ibv_cq* cq = nullptr;
  ibv_srq* srq = nullptr;
  ibv_qp* qp = nullptr;
};

}  // namespace

TEST_CASE("V-SRQ-06: a full shared queue refuses a post", "[provider][V-SRQ-06]") {
  SharedPair t(2);
  CHECK(t.post(1) == 0);
  CHECK(t.post(2) == 0);
  CHECK(t.post(3) == ENOMEM);
  CHECK(t.app.view(t.srq).queue.produced() == 2);
}

TEST_CASE("V-SRQ-07: a shared slot is free once its completion was polled, in any order", "[provider][V-SRQ-07]") {
  SharedPair t(4);
  for (std::uint64_t i = 0; i < 4; ++i) REQUIRE(t.post(i) == 0);
  const SrqView view = t.app.view(t.srq);
  const std::uint32_t second = view.id(1);
  t.complete(second);
  CHECK(t.post(4) == ENOMEM);
  ibv_wc wc{};
  REQUIRE(provider::poll_cq(t.cq, 1, &wc) == 1);
  CHECK(wc.wr_id == 1);
  CHECK(t.post(4) == 0);
  CHECK(view.id(4) == second);
  CHECK(t.post(5) == ENOMEM);
}

TEST_CASE("V-SRZ-02: a shared queue is not made smaller than what is posted or not polled, and keeps whose each is",
          "[provider][V-SRZ-01][V-SRZ-02][V-SRQ-06][V-SRQ-07]") {
  SharedPair t(8);
  const auto resize = [&](std::uint32_t max_wr) {
    ibv_srq_attr attributes{};
    attributes.max_wr = max_wr;
    return provider::modify_srq(t.srq, &attributes, IBV_SRQ_MAX_WR);
  };
  const auto depth = [&] {
    ibv_srq_attr attributes{};
    REQUIRE(provider::query_srq(t.srq, &attributes) == 0);
    return attributes.max_wr;
  };
  for (std::uint64_t i = 0; i < 6; ++i) REQUIRE(t.post(i) == 0);
  // The data plane has taken none: what completes here is still in its ring, as far as it knows.
  const std::uint32_t ids[] = {t.app.view(t.srq).id(0), t.app.view(t.srq).id(4), t.app.view(t.srq).id(5)};
  for (const std::uint32_t id : ids) t.complete(id);
  ibv_wc wc{};
  REQUIRE(provider::poll_cq(t.cq, 1, &wc) == 1);
  CHECK(wc.wr_id == 0);  // five are left, two of them to be polled
  CHECK(resize(4) == EINVAL);
  CHECK(resize(0) == EINVAL);
  CHECK(resize(control::kSrqWorkRequestsMax + 1) == EINVAL);
  CHECK(depth() == 8);
  REQUIRE(resize(32) == 0);
  CHECK(depth() == 32);
  for (std::uint64_t i = 5; i < 32; ++i) REQUIRE(t.post(100 + i) == 0);
  CHECK(t.post(7) == ENOMEM);
  CHECK(resize(16) == EINVAL);
  for (const std::uint64_t expected : {4, 5}) {
    REQUIRE(provider::poll_cq(t.cq, 1, &wc) == 1);
    CHECK(wc.wr_id == expected);
  }
  // Those of the old ring stand in the new one, and are who they were.
  const SrqView view = t.app.view(t.srq);
  CHECK(view.queue.size == 32);
  CHECK(view.queue.produced() == 33);
  for (std::uint32_t i = 1; i < 4; ++i) {
    t.complete(view.id(i));
    REQUIRE(provider::poll_cq(t.cq, 1, &wc) == 1);
    CHECK(wc.wr_id == i);
  }
}

TEST_CASE("V-SRZ-01: receives with ids beyond a smaller queue's size come back, and it takes no more than it has",
          "[provider][V-SRZ-01][V-SRQ-06][V-SRQ-07]") {
  SharedPair t(8);
  for (std::uint64_t i = 0; i < 8; ++i) REQUIRE(t.post(i) == 0);
  ibv_wc wc{};
  rnic_ring_control& control = *t.app.view(t.srq).queue.control;
  for (std::uint32_t i = 0; i < 6; ++i) {
    t.complete(t.app.view(t.srq).id(i));
    REQUIRE(provider::poll_cq(t.cq, 1, &wc) == 1);
  }
  const std::uint32_t left[] = {t.app.view(t.srq).id(6), t.app.view(t.srq).id(7)};
  CHECK(left[1] > 1);
  qp::ReceiveRequest taken;
  t.daemon.live().run([&] {
    auto& queue = *t.daemon.live().machine.srqs_by_cookie.begin()->second->queue;
    for (int i = 0; i < 7; ++i) REQUIRE(queue.take(taken));
  });
  CHECK(taken.slot == left[0]);
  CHECK(control.taken == 7);
  ibv_srq_attr attributes{};
  attributes.max_wr = 2;
  REQUIRE(provider::modify_srq(t.srq, &attributes, IBV_SRQ_MAX_WR) == 0);
  CHECK(t.post(8) == ENOMEM);
  t.complete(left[0]);  // it was under way
  REQUIRE(provider::poll_cq(t.cq, 1, &wc) == 1);
  CHECK(wc.wr_id == 6);
  CHECK(t.post(8) == 0);
  CHECK(t.post(9) == ENOMEM);
  CHECK(t.app.view(t.srq).id(7) == left[1]);
  for (const std::uint64_t expected : {7, 8}) {
    t.complete(t.app.view(t.srq).id(static_cast<std::uint32_t>(expected)));
    REQUIRE(provider::poll_cq(t.cq, 1, &wc) == 1);
    CHECK(wc.wr_id == expected);
  }
  CHECK(t.post(9) == 0);
  CHECK(t.post(10) == 0);
  CHECK(t.post(11) == ENOMEM);
}

TEST_CASE("V-SRQ-04: a QP with a shared queue has no receive queue to post to", "[provider][V-SRQ-04]") {
  SharedPair t(4);
  ibv_recv_wr wr{};
  ibv_recv_wr* bad = nullptr;
  CHECK(provider::post_recv(t.qp, &wr, &bad) == EINVAL);
  CHECK(bad == &wr);
}
