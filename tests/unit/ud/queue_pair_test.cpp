// A queue pair of type UD: its states, what it sends, and what it takes.
#include "ud/queue_pair.hpp"

#include <deque>
#include <string>
#include <vector>

#include "kit/catch.hpp"
#include "kit/hex.hpp"
#include "kit/tpt_memory.hpp"
#include "kit/tpt_mover.hpp"

using namespace rnic;
using namespace rnic::test;
using rdmap::Status;
using ud::State;
using wire::IpAddress;

namespace {

using Octets = std::vector<std::byte>;
constexpr Instant kNow{seconds(1000).ns};
constexpr PdId kPd{1};
constexpr std::uint32_t kKey = 0x1234;
const IpAddress kOurs = IpAddress::v4(10, 0, 0, 1), kPeer = IpAddress::v4(10, 0, 0, 2);

class Queues final : public ud::Host {
 public:
  std::deque<ud::WorkRequest> sends;
  std::deque<rdmap::ReceiveRequest> receives;
  std::vector<rdmap::Completion> completions;
  std::vector<rdmap::Event> events;
  std::size_t room = SIZE_MAX;

  bool take_send(ud::WorkRequest& out) override {
    if (sends.empty()) return false;
    out = sends.front();
    sends.pop_front();
    return true;
  }
  bool take_receive(rdmap::ReceiveRequest& out) override {
    if (receives.empty()) return false;
    out = last_ = receives.front();
    receives.pop_front();
    return true;
  }
  void give_back_receive() override { receives.push_front(last_); }
  bool complete(const rdmap::Completion& completion) override {
    if (completions.size() >= room) return false;
    completions.push_back(completion);
    return true;
  }
  void raise(rdmap::Event event) override { events.push_back(event); }

 private:
  rdmap::ReceiveRequest last_;
};

class Wire final : public ud::Network {
 public:
  struct Sent {
    Octets octets;
    IpAddress from;
    ud::Address address;
  };
  std::uint32_t max = 1024;
  bool full = false, no_buffers = false;
  std::vector<Sent> sent;

  std::uint32_t message_max() const override { return max; }
  std::optional<IpAddress> source(std::uint8_t index) const override {
    return index == 0 ? std::optional(kOurs) : std::nullopt;
  }
  BufferRef take(std::uint32_t octets) override { return no_buffers ? BufferRef() : BufferRef::take(pool_, octets); }
  bool has_room(const IpAddress&) const override { return !full; }
  void send(BufferRef datagram, const IpAddress& from, const ud::Address& address, Instant) override {
    sent.push_back({Octets(datagram->bytes().begin(), datagram->bytes().end()), from, address});
  }

 private:
  HeapPool pool_{256, 2048};
};

struct Ground {
  explicit Ground(Moves moves = Moves::at_flush, bool shared = false)
      : mover(moves, 1),
        qp({.number = {0x112}, .pd = kPd, .receive_pd = kPd, .space = {}, .shared_receive = shared}, queues, table,
           mover) {}

  void to_rts() {
    REQUIRE(qp.modify(State::init, kKey));
    REQUIRE(qp.modify(State::rtr, std::nullopt));
    REQUIRE(qp.modify(State::rts, std::nullopt));
  }
  rdmap::Sge sge(std::size_t offset, std::uint32_t length) const { return {memory.at(offset), length, memory.stag}; }
  void posts(std::uint32_t slot, std::vector<rdmap::Sge> sges, bool signaled = true, std::uint32_t q_key = kKey) {
    ud::WorkRequest work;
    work.slot = slot;
    work.signaled = signaled;
    work.sge_count = static_cast<std::uint8_t>(sges.size());
    std::copy(sges.begin(), sges.end(), work.sges.begin());
    work.address = {.to = kPeer, .number = {0x234}, .q_key = q_key};
    queues.sends.push_back(work);
    qp.work_posted();
  }
  void posts_receive(std::uint32_t slot, std::vector<rdmap::Sge> sges) {
    rdmap::ReceiveRequest request;
    request.slot = slot;
    request.sge_count = static_cast<std::uint8_t>(sges.size());
    std::copy(sges.begin(), sges.end(), request.sges.begin());
    queues.receives.push_back(request);
    qp.receive_posted();
  }
  void turn(std::uint32_t frames = 64) {
    qp.settle(wire, kNow);
    qp.transmit(wire, frames);
    mover.flush();
    qp.settle(wire, kNow);
  }
  void hears(const Octets& payload, std::uint32_t q_key = kKey, wire::Datagram header = {}) {
    header.source = {0x234};
    header.q_key = q_key;
    ud::Grh grh;
    grh.fill(std::byte{0x6b});
    BufferRef frame = BufferRef::take(pool);
    std::copy(payload.begin(), payload.end(), frame->append(static_cast<std::uint32_t>(payload.size())).begin());
    qp.receive({.header = header, .grh = grh, .ipv4 = ipv4, .payload = frame->bytes(), .frame = frame.get()});
  }

  bool ipv4 = false;  // of what comes
  tpt::Table table{64, 1};
  PlainMover mover;
  Region memory{table, 8192, 3, tpt::Rights::local_read | tpt::Rights::local_write, kPd};
  HeapPool pool{600, 2048};
  Queues queues;
  Wire wire;
  ud::QueuePair qp;
};

}  // namespace

TEST_CASE("the states of a queue pair of type UD are InfiniBand's", "[ud]") {
  Ground g;
  CHECK(g.qp.idle());
  CHECK_FALSE(g.qp.modify(State::rtr, std::nullopt));
  CHECK_FALSE(g.qp.modify(State::rts, std::nullopt));
  REQUIRE(g.qp.modify(State::init, kKey));
  CHECK_FALSE(g.qp.modify(State::rts, std::nullopt));
  CHECK_FALSE(g.qp.modify(State::reset, std::nullopt));
  REQUIRE(g.qp.modify(State::init, 5u));
  REQUIRE(g.qp.modify(State::rtr, std::nullopt));
  REQUIRE(g.qp.modify(State::rts, std::nullopt));
  CHECK_FALSE(g.qp.modify(State::sqe, std::nullopt));
  CHECK_FALSE(g.qp.modify(State::init, std::nullopt));
  REQUIRE(g.qp.modify(State::rts, 6u));
  REQUIRE(g.qp.modify(State::error, std::nullopt));
  CHECK_FALSE(g.qp.modify(State::rts, std::nullopt));
  g.turn();
  REQUIRE(g.qp.modify(State::reset, std::nullopt));
  CHECK(g.qp.state() == State::reset);
}

TEST_CASE("a Send is one datagram, gathered of its SGEs, and complete when it is gone", "[ud]") {
  Ground g;
  g.to_rts();
  g.posts(7, {g.sge(0, 3), g.sge(100, 0), g.sge(200, 5)});
  g.posts(8, {}, false);
  g.qp.settle(g.wire, kNow);
  std::uint32_t frames = 64;
  CHECK(g.qp.transmit(g.wire, frames));
  CHECK(frames == 62);
  CHECK_FALSE(g.qp.settle(g.wire, kNow));  // it has not been gathered
  CHECK(g.queues.completions.empty());
  g.mover.flush();
  CHECK(g.qp.settle(g.wire, kNow));
  REQUIRE(g.wire.sent.size() == 2);
  const auto& sent = g.wire.sent[0];
  CHECK(sent.from == kOurs);
  CHECK(sent.address.to == kPeer);
  const auto header = wire::parse_datagram(sent.octets);
  REQUIRE(header);
  CHECK(header->source == QpNumber{0x112});
  CHECK(header->destination == QpNumber{0x234});
  CHECK(header->q_key == kKey);
  CHECK(header->length == 8);
  Octets expected(g.memory.memory.begin(), g.memory.memory.begin() + 3);
  expected.insert(expected.end(), g.memory.memory.begin() + 200, g.memory.memory.begin() + 205);
  CHECK(Octets(sent.octets.begin() + wire::Datagram::kSize, sent.octets.end()) == expected);
  REQUIRE(g.queues.completions.size() == 1);
  CHECK(g.queues.completions[0].slot == 7);
  CHECK(g.queues.completions[0].status == Status::success);
  CHECK(g.qp.idle());
}

TEST_CASE("what has just been posted is something to do, and 16 SGEs are the most of a Send", "[ud]") {
  Ground g;
  g.to_rts();
  g.turn();
  CHECK(g.qp.idle());
  g.posts(1, std::vector<rdmap::Sge>(rdmap::kSgesMax, g.sge(0, 2)));
  g.queues.sends[0].sge_count = 40;
  CHECK_FALSE(g.qp.idle());
  g.turn();
  REQUIRE(g.wire.sent.size() == 1);
  CHECK(wire::parse_datagram(g.wire.sent[0].octets)->length == 2 * rdmap::kSgesMax);
  CHECK(g.qp.idle());
}

TEST_CASE("a queue pair receives from RTR on, and begins nothing behind a Send that is wrong", "[ud]") {
  Ground g;
  REQUIRE(g.qp.modify(State::init, kKey));
  g.posts_receive(1, {g.sge(4096, 100)});
  g.hears(Octets(4));
  CHECK(g.qp.counters().refused == 1);
  REQUIRE(g.qp.modify(State::rtr, std::nullopt));
  g.hears(Octets(4));
  g.turn();
  REQUIRE(g.queues.completions.size() == 1);
  CHECK(g.queues.completions[0].slot == 1);
  CHECK_FALSE(g.queues.completions[0].of_send_queue);

  REQUIRE(g.qp.modify(State::rts, std::nullopt));
  g.posts(2, {g.sge(0, 2000)});
  g.posts(3, {g.sge(0, 8)});
  std::uint32_t frames = 64;
  g.qp.transmit(g.wire, frames);
  CHECK(g.queues.sends.size() == 1);
  g.turn();
  REQUIRE(g.queues.completions.size() == 3);
  CHECK(g.queues.completions[1].of_send_queue);
  CHECK(g.queues.completions[2].status == Status::flushed);
}

TEST_CASE("a Q_Key with its highest bit means the queue pair's own", "[ud]") {
  Ground g;
  g.to_rts();
  g.posts(1, {}, true, 0x80000000);
  g.turn();
  CHECK(wire::parse_datagram(g.wire.sent.at(0).octets)->q_key == kKey);
}

TEST_CASE("a message as long as the MTU goes, one octet more is an error of its own", "[ud]") {
  Ground g;
  g.to_rts();
  g.posts(1, {g.sge(0, 1024)});
  g.posts(2, {g.sge(0, 1025)});
  g.posts(3, {g.sge(0, 1)});
  g.turn();
  g.turn();
  CHECK(g.wire.sent.size() == 1);
  REQUIRE(g.queues.completions.size() == 3);
  CHECK(g.queues.completions[0].status == Status::success);
  CHECK(g.queues.completions[1].status == Status::invalid_length);
  CHECK(g.queues.completions[2].status == Status::flushed);
  CHECK(g.qp.state() == State::sqe);
  // It receives, and sends again after a Modify.
  g.posts_receive(9, {g.sge(4096, 64)});
  g.hears(Octets(4));
  g.turn();
  CHECK(g.queues.completions.at(3).slot == 9);
  REQUIRE(g.qp.modify(State::rts, std::nullopt));
  g.posts(4, {g.sge(0, 1)});
  g.turn();
  CHECK(g.wire.sent.size() == 2);
}

TEST_CASE("what a Send may not have, or cannot, fails in its turn", "[ud]") {
  struct Wrong {
    Status status;
    void (*make)(ud::WorkRequest&);
  };
  const Wrong wrong[] = {
      {Status::invalid_stag, [](ud::WorkRequest& work) { work.sges[0].lkey = Stag{0xABCD00}; }},
      {Status::base_bounds, [](ud::WorkRequest& work) { work.sges[0].address += 8192; }},
      {Status::invalid_wqe, [](ud::WorkRequest& work) { work.address.gid_index = 3; }},
      {Status::invalid_wqe, [](ud::WorkRequest& work) { work.address.to = *wire::parse_ip("fd00::1"); }},
      {Status::invalid_wqe, [](ud::WorkRequest& work) { work.malformed = true; }},
      {Status::invalid_wqe, [](ud::WorkRequest& work) { work.opcode = rdmap::Opcode::write; }},
  };
  for (const Wrong& each : wrong) {
    Ground g;
    g.to_rts();
    g.posts(1, {g.sge(0, 8)});
    g.posts(2, {g.sge(0, 8)}, false);
    each.make(g.queues.sends[1]);
    g.turn();
    REQUIRE(g.queues.completions.size() == 2);
    CHECK(g.queues.completions[0].status == Status::success);
    CHECK(g.queues.completions[1].status == each.status);
    CHECK(g.wire.sent.size() == 1);
  }
}

TEST_CASE("without room on the wire, or a buffer, a Send waits", "[ud]") {
  Ground g;
  g.to_rts();
  g.wire.full = true;
  g.posts(1, {g.sge(0, 8)});
  g.turn();
  CHECK(g.wire.sent.empty());
  CHECK(g.qp.waits_for_room());
  g.wire.full = false;
  g.turn();
  CHECK(g.wire.sent.size() == 1);
  CHECK_FALSE(g.qp.waits_for_room());
  g.wire.no_buffers = true;
  g.posts(2, {g.sge(0, 8)});
  g.turn();
  CHECK(g.qp.waits_for_room());
  CHECK_FALSE(g.qp.idle());
  g.wire.no_buffers = false;
  g.turn();
  CHECK(g.wire.sent.size() == 2);
}

TEST_CASE("who waits for room, or for a page, begins nothing more that would only hold buffers", "[ud]") {
  Ground g;
  g.to_rts();
  BufferCount held;
  g.qp.count_held_in(&held);
  g.wire.full = true;
  for (std::uint32_t i = 0; i < 20; ++i) g.posts(i, {g.sge(0, 8)});
  for (int i = 0; i < 10; ++i) g.turn(4);
  CHECK(held.all() == 4);
  CHECK(g.queues.sends.size() == 16);
  g.wire.full = false;
  g.turn(4);  // which lets those go, and begins as many
  CHECK(g.wire.sent.size() == 8);
  CHECK(held.all() == 0);

  std::uint32_t frames = 4;
  g.qp.transmit(g.wire, frames);
  g.mover.stalled = g.mover.stuck = true;
  for (int i = 0; i < 10; ++i) g.turn(4);
  CHECK(held.all() == 4);
  CHECK(g.qp.idle());
  g.qp.count_held_in(nullptr);
  CHECK(held.all() == 0);
  g.qp.count_held_in(&held);
  CHECK(held.all() == 4);
  g.mover.stalled = g.mover.stuck = false;
  g.mover.flush();
  for (int i = 0; i < 3; ++i) g.turn(4);
  CHECK(g.wire.sent.size() == 20);
  CHECK(held.all() == 0);
}

TEST_CASE("a datagram is placed behind its header, and told when it is there", "[ud]") {
  Ground g;
  g.to_rts();
  g.posts_receive(5, {g.sge(0, 30), g.sge(1000, 100)});
  wire::Datagram header{.solicited = true, .has_immediate = true};
  header.immediate = 0x01020304;
  Octets payload(20);
  g.ipv4 = true;
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(0x40 + i);
  g.hears(payload, kKey, header);
  g.qp.settle(g.wire, kNow);
  CHECK(g.queues.completions.empty());
  g.mover.flush();
  g.qp.settle(g.wire, kNow);
  REQUIRE(g.queues.completions.size() == 1);
  const auto& done = g.queues.completions[0];
  CHECK(done.status == Status::success);
  CHECK(done.slot == 5);
  CHECK(done.length == 60);
  CHECK(done.solicited);
  CHECK(done.immediate);
  CHECK(done.word == to_big(std::uint32_t{0x01020304}));
  CHECK(done.datagram);
  CHECK(done.ipv4);
  CHECK(done.source == QpNumber{0x234});
  for (std::size_t i = 0; i < 30; ++i) CHECK(g.memory.memory[i] == std::byte{0x6b});
  for (std::size_t i = 0; i < 10; ++i) CHECK(g.memory.memory[1000 + i] == std::byte{0x6b});
  CHECK(std::equal(payload.begin(), payload.end(), g.memory.memory.begin() + 1010));
  CHECK(g.memory.memory[1030] == octet_at(1030, 3));
  // Its last octets came last (V-ORD-09).
  CHECK(g.mover.places.back().part == tpt::Part::tail);
}

TEST_CASE("another Q_Key, no receive, or one that is too small: dropped, counted, and nothing is told", "[ud]") {
  Ground g;
  g.hears(Octets(4));
  CHECK(g.qp.counters().refused == 1);  // in RESET
  g.to_rts();
  g.hears(Octets(4), kKey + 1);
  CHECK(g.qp.counters().refused == 2);
  g.hears(Octets(4));
  CHECK(g.qp.counters().without_receive == 1);
  g.posts_receive(5, {g.sge(0, 43)});
  g.hears(Octets(4));
  CHECK(g.qp.counters().without_receive == 2);
  g.turn();
  CHECK(g.queues.completions.empty());
  CHECK(g.memory.memory[0] == octet_at(0, 3));
  // The receive is there for one that fits.
  g.hears(Octets(3));
  g.turn();
  REQUIRE(g.queues.completions.size() == 1);
  CHECK(g.queues.completions[0].slot == 5);
  CHECK(g.qp.state() == State::rts);
}

TEST_CASE("a receive that is wrong is told, and ends the queue pair", "[ud]") {
  Ground g;
  g.to_rts();
  auto sge = g.sge(0, 100);
  sge.lkey = Stag{0x77700};
  g.posts_receive(5, {sge});
  g.posts_receive(6, {g.sge(0, 100)});
  g.posts(1, {g.sge(0, 4)});
  g.hears(Octets(3));
  g.turn();
  g.turn();
  CHECK(g.qp.state() == State::error);
  REQUIRE(g.queues.completions.size() == 3);
  CHECK(g.queues.completions[0].status == Status::invalid_stag);
  CHECK(g.queues.completions[1].status == Status::flushed);
  CHECK(g.queues.completions[2].status == Status::flushed);
}

TEST_CASE("in Error all is flushed, late work too, and then it can be in RESET", "[ud]") {
  Ground g;
  g.to_rts();
  g.posts_receive(5, {g.sge(0, 100)});
  g.posts(1, {g.sge(0, 4)}, false);
  REQUIRE(g.qp.modify(State::error, std::nullopt));
  const auto early = g.qp.modify(State::reset, std::nullopt);
  REQUIRE_FALSE(early);
  CHECK(early.error() == ud::ModifyError::still_flushing);
  g.turn();
  CHECK(g.queues.completions.size() == 2);
  g.posts(2, {g.sge(0, 4)});
  g.posts_receive(6, {});
  CHECK_FALSE(g.qp.idle());
  g.turn();
  CHECK(g.queues.completions.size() == 4);
  for (const auto& each : g.queues.completions) CHECK(each.status == Status::flushed);
  REQUIRE(g.qp.modify(State::reset, std::nullopt));
}

TEST_CASE("what was posted in Error and not told of yet is flushed before it is in RESET", "[ud]") {
  Ground g;
  g.to_rts();
  REQUIRE(g.qp.modify(State::error, std::nullopt));
  g.turn();
  REQUIRE(g.qp.idle());
  const bool receive = GENERATE(false, true);
  CAPTURE(receive);
  if (receive) {
    g.queues.receives.emplace_back().slot = 6;
  } else {
    ud::WorkRequest work;
    work.slot = 6;
    work.signaled = true;
    g.queues.sends.push_back(work);
  }
  const auto early = g.qp.modify(State::reset, std::nullopt);
  REQUIRE_FALSE(early);
  CHECK(early.error() == ud::ModifyError::still_flushing);
  REQUIRE(g.queues.completions.size() == 1);
  CHECK(g.queues.completions[0].slot == 6);
  CHECK(g.queues.completions[0].status == Status::flushed);
  CHECK(g.qp.state() == State::error);
  REQUIRE(g.qp.modify(State::reset, std::nullopt));
}

TEST_CASE("with a shared receive queue what nobody has taken stays, and the end is told", "[ud]") {
  Ground g(Moves::at_flush, true);
  g.to_rts();
  g.posts_receive(5, {g.sge(0, 100)});
  REQUIRE(g.qp.modify(State::error, std::nullopt));
  g.turn();
  CHECK(g.queues.completions.empty());
  CHECK(g.queues.receives.size() == 1);
  REQUIRE(g.queues.events.size() == 1);
  CHECK(g.queues.events[0] == rdmap::Event::last_wqe_reached);
}

TEST_CASE("while a copy waits for a page nothing more is taken, and its end is waited for", "[ud]") {
  Ground g;
  g.to_rts();
  g.posts_receive(5, {g.sge(0, 100)});
  g.posts_receive(6, {g.sge(200, 100)});
  g.posts(1, {g.sge(0, 4)});
  g.hears(Octets(3));
  std::uint32_t frames = 64;
  g.qp.transmit(g.wire, frames);
  g.mover.stalled = g.mover.stuck = true;
  g.mover.flush();
  g.qp.settle(g.wire, kNow);
  g.hears(Octets(3));
  CHECK(g.qp.counters().overrun == 1);
  CHECK(g.queues.completions.empty());
  CHECK(g.qp.idle());
  tpt::Kept kept;
  g.qp.keep(kept);
  CHECK(kept.buffers.size() == 2);
  CHECK(kept.memory.size() == 1);
  REQUIRE(g.qp.modify(State::error, std::nullopt));
  g.turn();
  CHECK(g.queues.completions.empty());
  g.mover.stalled = g.mover.stuck = false;
  g.mover.flush();
  g.turn();
  REQUIRE(g.queues.completions.size() == 3);
  CHECK(g.queues.completions[0].status == Status::success);  // it is there
  CHECK(g.queues.completions[1].status == Status::flushed);
}

TEST_CASE("memory that cannot be reached fails the Send that wanted it", "[ud]") {
  Ground g;
  g.to_rts();
  g.mover.unreachable.insert(g.memory.stag.value);
  g.posts(1, {g.sge(0, 4)});
  g.turn();
  REQUIRE(g.queues.completions.size() == 1);
  CHECK(g.queues.completions[0].status == Status::local_catastrophic);
  CHECK(g.qp.state() == State::sqe);
}

TEST_CASE("a completion queue that is full ends the queue pair", "[ud]") {
  Ground g;
  g.queues.room = 0;
  g.to_rts();
  g.posts(1, {g.sge(0, 4)});
  g.turn();
  CHECK(g.qp.state() == State::error);
}

TEST_CASE("a queue pair has 64 sends begun at most, and goes on behind those that are gone", "[ud]") {
  Ground g;
  g.to_rts();
  for (std::uint32_t i = 0; i < 70; ++i) g.posts(i, {g.sge(0, 8)});
  std::uint32_t frames = 100;
  CHECK(g.qp.transmit(g.wire, frames));
  CHECK(frames == 36);
  CHECK(g.queues.sends.size() == 6);
  CHECK(g.qp.idle());  // until they are gathered
  CHECK_FALSE(g.qp.transmit(g.wire, frames));
  g.mover.flush();
  CHECK_FALSE(g.qp.idle());
  g.turn(100);
  g.turn(100);
  CHECK(g.wire.sent.size() == 70);
  CHECK(g.queues.completions.size() == 70);
  CHECK(g.qp.idle());
  CHECK(g.qp.counters().sends_out == 70);
  CHECK(g.qp.counters().bytes_out == 70 * 8);
  CHECK(g.qp.counters().errors == 0);
}

TEST_CASE("a queue pair places 512 datagrams at once, and counts what comes beyond", "[ud]") {
  Ground g;
  g.to_rts();
  for (std::uint32_t i = 0; i < 514; ++i) g.posts_receive(i, {g.sge(0, 100)});
  for (int i = 0; i < 511; ++i) g.hears(Octets(2));
  CHECK(g.qp.counters().overrun == 0);
  g.hears(Octets(2));
  CHECK(g.qp.counters().overrun == 0);
  g.hears(Octets(2));
  CHECK(g.qp.counters().overrun == 1);
  CHECK(g.queues.receives.size() == 2);
  g.turn();
  CHECK(g.queues.completions.size() == 512);
  g.hears(Octets(2));
  g.turn();
  REQUIRE(g.queues.completions.size() == 513);
  for (std::uint32_t i = 0; i < 513; ++i) CHECK(g.queues.completions[i].slot == i);
  CHECK(g.qp.counters().sends_in == 513);
  CHECK(g.qp.counters().bytes_in == 513 * 2);
  CHECK(g.qp.counters().errors == 0);
}

TEST_CASE("data that came with the request goes out, whatever becomes of where it was", "[ud]") {
  Ground g;
  g.to_rts();
  const Octets data(5, std::byte{0x77});
  g.posts(1, {});
  g.queues.sends[0].has_data = true;
  g.queues.sends[0].data = data;
  g.posts(2, {});
  g.queues.sends[1].has_data = true;
  g.turn();
  REQUIRE(g.wire.sent.size() == 2);
  const auto& first = g.wire.sent[0].octets;
  CHECK(Octets(first.begin() + wire::Datagram::kSize, first.end()) == data);
  CHECK(wire::parse_datagram(g.wire.sent[0].octets)->length == 5);
  CHECK(g.wire.sent[1].octets.size() == wire::Datagram::kSize);
}

TEST_CASE("lengths are added up as they are: no sum comes round", "[ud]") {
  Ground g;
  g.to_rts();
  g.posts(1, {g.sge(0, 0x80000000), g.sge(0, 0x80000001)});
  g.turn();
  REQUIRE(g.queues.completions.size() == 1);
  CHECK(g.queues.completions[0].status == Status::invalid_length);

  Ground h;
  h.to_rts();
  h.posts_receive(1, {h.sge(0, 0x80000000), h.sge(0, 0x80000000)});  // more than any memory has: its own error
  h.hears(Octets(4));
  h.turn();
  REQUIRE(h.queues.completions.size() == 1);
  CHECK(h.queues.completions[0].status == Status::base_bounds);
  CHECK(h.qp.counters().errors == 1);
}

TEST_CASE("a receive as large as header and message is filled to its last octet", "[ud]") {
  Ground g;
  g.to_rts();
  g.posts_receive(1, {g.sge(0, 40), g.sge(64, 0), g.sge(128, 4)});
  g.hears(Octets(4, std::byte{0x55}));
  g.turn();
  REQUIRE(g.queues.completions.size() == 1);
  CHECK(g.queues.completions[0].status == Status::success);
  CHECK(g.queues.completions[0].length == 44);
  CHECK(g.memory.memory[39] == std::byte{0x6b});
  CHECK(g.memory.memory[131] == std::byte{0x55});
  CHECK(g.memory.memory[132] == octet_at(132, 3));
}

TEST_CASE("a receive that is malformed is told, and nothing is placed by it", "[ud]") {
  Ground g;
  g.to_rts();
  g.posts_receive(1, {g.sge(0, 100)});
  g.queues.receives[0].malformed = true;
  g.hears(Octets(4));
  g.turn();
  REQUIRE(g.queues.completions.size() == 1);
  CHECK(g.queues.completions[0].status == Status::invalid_wqe);
  CHECK(g.qp.counters().errors == 1);
  CHECK(g.qp.state() == State::error);
  CHECK(g.memory.memory[0] == octet_at(0, 3));
}

TEST_CASE("a flush takes 64 of a queue in a call, and is over when both are empty", "[ud]") {
  Ground g;
  g.to_rts();
  for (std::uint32_t i = 0; i < 65; ++i) {
    g.posts(i, {g.sge(0, 8)}, false);
    g.posts_receive(i, {g.sge(0, 100)});
  }
  REQUIRE(g.qp.modify(State::error, std::nullopt));
  CHECK(g.qp.settle(g.wire, kNow));
  CHECK(g.queues.completions.size() == 128);
  CHECK_FALSE(g.qp.idle());
  CHECK(g.qp.settle(g.wire, kNow));
  CHECK(g.queues.completions.size() == 130);
  CHECK(g.qp.idle());
  CHECK_FALSE(g.qp.settle(g.wire, kNow));
  CHECK(g.qp.counters().errors == 0);  // a flush is none
  REQUIRE(g.qp.modify(State::reset, std::nullopt));
  REQUIRE(g.qp.modify(State::reset, std::nullopt));  // as often as one likes
}

TEST_CASE("in RESET the Q_Key is nobody's, and nothing that was posted before is sent later", "[ud]") {
  Ground g;
  g.to_rts();
  g.posts(1, {g.sge(0, 8)});
  REQUIRE(g.qp.modify(State::error, std::nullopt));
  g.turn();
  REQUIRE(g.qp.modify(State::reset, std::nullopt));
  g.posts(2, {g.sge(0, 8)});
  g.turn();
  CHECK(g.wire.sent.empty());
  CHECK(g.qp.idle());
  REQUIRE(g.qp.modify(State::init, std::nullopt));
  REQUIRE(g.qp.modify(State::rtr, std::nullopt));
  g.posts_receive(3, {g.sge(0, 100)});
  g.hears(Octets(2));
  CHECK(g.qp.counters().refused == 1);
  g.hears(Octets(2), 0);
  CHECK(g.qp.counters().sends_in == 1);
  g.mover.flush();
  g.qp.settle(g.wire, kNow);
  CHECK(g.qp.idle());
  CHECK(g.queues.completions.size() == 2);
}

TEST_CASE("a failed move is told of what it was for: a Send, or a receive", "[ud]") {
  Ground g(Moves::late);
  g.to_rts();
  g.posts_receive(3, {g.sge(0, 100)});
  g.hears(Octets(2));
  g.posts(1, {g.sge(0, 8), g.sge(64, 8)});
  std::uint32_t frames = 1;
  g.qp.transmit(g.wire, frames);
  g.mover.unreachable.insert(g.memory.stag.value);
  for (int i = 0; i < 10 && g.queues.completions.size() < 2; ++i) g.turn();
  REQUIRE(g.queues.completions.size() == 2);
  CHECK(g.queues.completions[0].status == Status::local_catastrophic);
  CHECK(g.queues.completions[1].status != Status::success);
  CHECK(g.qp.state() == State::error);
  CHECK(g.wire.sent.empty());
}

TEST_CASE("whose queue pair has gone, and whose queue is full, is told of by state alone", "[ud]") {
  Ground g(Moves::at_flush, true);
  g.queues.room = 1;
  g.to_rts();
  g.posts_receive(1, {g.sge(0, 100)});
  g.posts_receive(2, {g.sge(0, 100)});
  g.hears(Octets(2));
  g.turn();
  CHECK(g.qp.state() == State::rts);
  g.hears(Octets(2));
  g.turn();
  CHECK(g.qp.state() == State::error);
  CHECK(g.queues.events.size() == 1);
  g.hears(Octets(2));
  CHECK(g.qp.counters().refused == 1);
  REQUIRE(g.qp.modify(State::error, std::nullopt));
  CHECK(g.queues.events.size() == 1);  // said once
}

TEST_CASE("each state has InfiniBand's name", "[ud]") {
  CHECK(std::string(ud::name(State::reset)) == "RESET");
  CHECK(std::string(ud::name(State::sqe)) == "SQE");
  CHECK(std::string(ud::name(State::error)) == "ERR");
}
