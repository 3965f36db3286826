// Queue pairs of type UD on a device: whose a datagram is, groups, and turns.
#include "core/datagrams.hpp"

#include <deque>
#include <memory>

#include "kit/catch.hpp"
#include "kit/tpt_memory.hpp"
#include "kit/tpt_mover.hpp"
#include "unit/host/host_parts.hpp"

using namespace rnic;
using namespace rnic::test;
using wire::IpAddress;

namespace {

constexpr std::uint16_t kPort = 26581;
constexpr std::uint32_t kKey = 0x1111;
constexpr PdId kPd{1};
const IpAddress kGroup = IpAddress::v4(239, 1, 2, 3);

// A queue pair and its application.
struct End final : ud::Host {
  End(QpNumber number, tpt::Table& table, tpt::Mover& mover, SpaceId space)
      : qp({.number = number, .pd = kPd, .receive_pd = kPd, .space = space}, *this, table, mover) {}
  bool take_send(ud::WorkRequest& out) override {
    if (sends.empty()) return false;
    out = sends.front();
    sends.pop_front();
    return true;
  }
  bool take_receive(rdmap::ReceiveRequest& out) override {
    if (receives.empty()) return false;
    out = last = receives.front();
    receives.pop_front();
    return true;
  }
  void give_back_receive() override { receives.push_front(last); }
  bool complete(const rdmap::Completion& completion) override {
    completions.push_back(completion);
    return true;
  }
  void raise(rdmap::Event) override {}

  std::deque<ud::WorkRequest> sends;
  std::deque<rdmap::ReceiveRequest> receives;
  rdmap::ReceiveRequest last;
  std::vector<rdmap::Completion> completions;
  ud::QueuePair qp;
};

struct OneDevice {
  OneDevice() : host({.addresses = {{kOurs, 24}}}, port, user) {
    datagrams.serve(kPort);
    host.begin_send(kNow);
    port.sent.clear();
  }
  End& make(std::uint32_t number, std::uint32_t q_key = kKey, SpaceId space = {}) {
    ends.push_back(std::make_unique<End>(QpNumber{number}, table, mover, space));
    End& end = *ends.back();
    datagrams.add(end.qp);
    REQUIRE(end.qp.modify(ud::State::init, q_key));
    REQUIRE(end.qp.modify(ud::State::rtr, std::nullopt));
    REQUIRE(end.qp.modify(ud::State::rts, std::nullopt));
    return end;
  }
  void posts(End& end, const IpAddress& to, std::uint32_t number, std::uint32_t octets = 8) {
    ud::WorkRequest work;
    work.signaled = true;
    work.sge_count = 1;
    work.sges[0] = {memory.at(0), octets, memory.stag};
    work.address = {.to = to, .number = {number}, .q_key = kKey};
    end.sends.push_back(work);
    end.qp.work_posted();
    datagrams.touch(end.qp);
  }
  void posts_receive(End& end, std::size_t offset = 4096) {
    rdmap::ReceiveRequest request;
    request.sge_count = 1;
    request.sges[0] = {memory.at(offset), 1024, memory.stag};
    end.receives.push_back(request);
  }
  // What a peer's rnic would send.
  void hears(std::uint32_t number, const IpAddress& to = kOurs, std::uint32_t q_key = kKey, std::size_t damage = 0) {
    Octets whole(wire::Datagram::kSize + 4);
    wire::emit(wire::Datagram{.source = {77}, .destination = {number}, .q_key = q_key}, whole);
    if (damage != 0) whole[damage] ^= std::byte{1};
    const Octets frame =
        frames::packet({.destination = to.is_multicast() ? wire::multicast_mac(to) : kOurMac, .source = kPeerMac},
                       wire::protocol::kUdp, kPeer, to, frames::udp(kPort, kPort, kPeer, to, whole));
    port.arrives.push_back(frame);
  }
  void turn() {
    host.receive(now);
    mover.flush();
    datagrams.settle(now);
    datagrams.transmit(now);
    mover.flush();
    datagrams.settle(now);
    if (datagrams.next_deadline() <= now) datagrams.run_timers(now);
    host.begin_send(now);
    datagrams.end_turn(now);
    host.flush(now);
  }

  class Port final : public port::Port {
   public:
    Port() {
      facts_.mac = kOurMac;
      facts_.mtu_bytes = 1500;
    }
    const port::PortFacts& facts() const override { return facts_; }
    bool link_up() const override { return true; }
    BufferPool& pool() override { return pool_; }
    unsigned receive_burst(Buffer** out, unsigned max) override {
      unsigned count = 0;
      for (; count < max && !arrives.empty(); ++count) {
        const auto size = static_cast<std::uint32_t>(arrives.front().size());
        BufferRef buffer = BufferRef::take(pool_, size);
        std::copy(arrives.front().begin(), arrives.front().end(), buffer->append(size).begin());
        out[count] = buffer.release();
        arrives.pop_front();
      }
      return count;
    }
    unsigned send_burst(Buffer* const* frames, unsigned count) override {
      if (blocked) return 0;
      for (unsigned i = 0; i < count; ++i) {
        const BufferRef frame{frames[i]};
        sent.push_back(copy_of(frame->bytes()));
      }
      return count;
    }
    int wake_descriptor() override { return -1; }
    bool arm() override { return true; }
    void disarm() override {}

    std::deque<Octets> arrives;
    std::vector<Octets> sent;
    bool blocked = false;

   private:
    port::PortFacts facts_;
    HeapPool pool_{4096, 2048};
  };

  std::size_t datagrams_sent(const wire::Mac& to) {
    return static_cast<std::size_t>(std::count_if(port.sent.begin(), port.sent.end(), [&](const Octets& frame) {
      return wire::load_mac(frame, 0) == to && load_be<std::uint16_t>(frame, 12) == wire::ether_type::kIpv4 &&
             std::to_integer<unsigned>(frame[14 + 9]) == wire::protocol::kUdp;
    }));
  }

  Instant now = kNow;
  Port port;
  NotingUser user;
  host::Host host;
  core::Datagrams datagrams{host, true};
  tpt::Table table{64, 1};
  PlainMover mover{Moves::at_flush, 1};
  Region memory{table, 16384, 3, tpt::Rights::local_read | tpt::Rights::local_write, kPd};
  std::vector<std::unique_ptr<End>> ends;
};

}  // namespace

TEST_CASE("a datagram is that queue pair's whose number it names, with an IPv4 header in front", "[core][datagram]") {
  OneDevice d;
  End& one = d.make(2);
  End& other = d.make(3);
  d.posts_receive(one);
  d.posts_receive(other);
  d.hears(2);
  d.turn();
  REQUIRE(one.completions.size() == 1);
  CHECK(other.completions.empty());
  CHECK(one.completions[0].length == 44);
  CHECK(one.completions[0].source == QpNumber{77});
  const Bytes received = Bytes(d.memory.memory).subspan(4096, 44);
  for (std::size_t i = 0; i < 20; ++i) CHECK(received[i] == std::byte{});
  const Bytes header = received.subspan(20, 20);
  CHECK(wire::checksum_of(header) == 0);
  const auto ip = wire::parse_ipv4(Octets(header.begin(), header.end()));
  CHECK_FALSE(ip);  // it says how long the packet was
  CHECK(load_be<std::uint8_t>(header, 0) == 0x45);
  CHECK(IpAddress::load_v4(header, 12) == kPeer);
  CHECK(IpAddress::load_v4(header, 16) == kOurs);
}

TEST_CASE("what is nobody's, damaged, or not to be had is counted, and nobody is answered", "[core][datagram]") {
  OneDevice d;
  End& one = d.make(2);
  d.hears(5);
  d.hears(2, kOurs, kKey + 1);
  d.hears(2, kOurs, kKey, 10);
  d.hears(2);
  d.turn();
  const auto counted = d.datagrams.counters();
  CHECK(counted.in == 4);
  CHECK(counted.unknown == 1);
  CHECK(counted.refused == 1);
  CHECK(counted.bad == 1);
  CHECK(counted.no_receive == 1);
  CHECK(one.completions.empty());
  CHECK(d.datagrams_sent(kPeerMac) == 0);
  // And what has been counted stays so when the queue pair has gone.
  d.datagrams.remove(one.qp);
  CHECK(d.datagrams.counters().refused == 1);
  d.hears(2);
  d.turn();
  CHECK(d.datagrams.counters().unknown == 2);
}

TEST_CASE("to an address of its own a device's datagrams go round", "[core][datagram]") {
  OneDevice d;
  End& one = d.make(2);
  End& other = d.make(3);
  d.posts_receive(other);
  d.posts(one, kOurs, 3);
  d.turn();
  d.turn();
  REQUIRE(one.completions.size() == 1);
  REQUIRE(other.completions.size() == 1);
  CHECK(other.completions[0].source == QpNumber{2});
  CHECK(std::equal(d.memory.memory.begin(), d.memory.memory.begin() + 8, d.memory.memory.begin() + 4096 + 40));
  CHECK(d.datagrams.idle());
}

TEST_CASE("a datagram to a group is for all that are attached, the sender too, and no others", "[core][datagram]") {
  OneDevice d;
  End& one = d.make(2);
  End& two = d.make(3);
  End& three = d.make(4);
  for (End* end : {&one, &two, &three}) d.posts_receive(*end);
  REQUIRE(d.datagrams.attach(one.qp, kGroup, kNow));
  REQUIRE(d.datagrams.attach(two.qp, kGroup, kNow));
  REQUIRE(d.datagrams.attach(two.qp, kGroup, kNow));  // once more is once
  d.posts(one, kGroup, 0xFFFFFF);
  d.turn();
  d.turn();
  CHECK(d.datagrams_sent(wire::multicast_mac(kGroup)) == 1);
  CHECK(one.completions.size() == 2);
  CHECK(two.completions.size() == 1);
  CHECK(three.completions.empty());
  // A peer's; and one to a number, which no group takes.
  d.posts_receive(two);
  d.hears(0xFFFFFF, kGroup);
  d.hears(3, kGroup);
  d.turn();
  CHECK(two.completions.size() == 2);
  CHECK(d.datagrams.counters().unknown == 1);
  // To the number of all where it is to one.
  d.hears(0xFFFFFF);
  d.turn();
  CHECK(d.datagrams.counters().unknown == 2);
  CHECK(d.datagrams.detach(two.qp, kGroup));
  CHECK_FALSE(d.datagrams.detach(two.qp, kGroup));
  CHECK(d.host.station().listens_to(kGroup));
  d.datagrams.remove(one.qp);
  CHECK_FALSE(d.host.station().listens_to(kGroup));
}

TEST_CASE("what comes to groups costs a turn so much, and no more; it is all of a group's or nobody's",
          "[core][datagram]") {
  OneDevice d;
  constexpr std::uint32_t kAttached = core::Datagrams::kAttachedMax;
  constexpr std::uint32_t kServed = (core::Datagrams::kTurnCopies + kAttached - 1) / kAttached;
  for (std::uint32_t i = 0; i < kAttached; ++i) {
    REQUIRE(d.datagrams.attach(d.make(16 + i).qp, kGroup, kNow));
    for (int k = 0; k < 40; ++k) d.posts_receive(*d.ends.back());
  }
  End& alone = d.make(4);
  REQUIRE(d.datagrams.attach(alone.qp, IpAddress::v4(239, 1, 2, 4), kNow));
  for (int k = 0; k < 40; ++k) d.posts_receive(alone);
  d.hears(0xFFFFFF, IpAddress::v4(239, 1, 2, 4));
  for (std::uint32_t i = 0; i < kServed + 3; ++i) d.hears(0xFFFFFF, kGroup);
  d.posts_receive(alone);
  d.hears(4);  // to one
  d.turn();
  for (std::uint32_t i = 0; i < kAttached; ++i) CHECK(d.ends[i]->completions.size() == kServed);
  CHECK(alone.completions.size() == 2);
  CHECK(d.datagrams.counters().overrun == 3 * kAttached);
  // Each turn anew.
  d.hears(0xFFFFFF, kGroup);
  d.turn();
  for (std::uint32_t i = 0; i < kAttached; ++i) CHECK(d.ends[i]->completions.size() == kServed + 1);
}

TEST_CASE("so many groups, and no more", "[core][datagram]") {
  OneDevice d;
  End& one = d.make(2);
  for (std::uint32_t i = 0; i < ip::Groups::kJoinedMax; ++i)
    REQUIRE(d.datagrams.attach(one.qp, IpAddress::v4(0xEF000000 + i), kNow));
  CHECK_FALSE(d.datagrams.attach(one.qp, kGroup, kNow));
}

TEST_CASE("a turn's datagrams are shared by those who send", "[core][datagram]") {
  OneDevice d;
  d.hears(5);  // so that the peer is known
  d.turn();
  End& one = d.make(2);
  End& other = d.make(3);
  for (int i = 0; i < 200; ++i) d.posts(one, kOurs, 9);
  d.posts(other, kOurs, 9);
  d.turn();
  CHECK(one.completions.size() == core::Datagrams::kTurnFrames / 2);
  CHECK(other.completions.size() == 1);
  CHECK_FALSE(d.datagrams.idle());
  for (int i = 0; i < 10; ++i) d.turn();
  CHECK(one.completions.size() == 200);
}

TEST_CASE("senders that never stop, to one who takes nothing, leave a neighbour its part of each turn",
          "[core][datagram]") {
  OneDevice d;
  constexpr int kGreedy = 40;
  End& shut = d.make(8);  // it has never posted a receive, and never polls
  End& neighbour = d.make(9, kKey, {2});
  End& hears = d.make(10, kKey, {2});
  for (std::uint32_t i = 0; i < kGreedy; ++i) d.make(16 + i, kKey, {1});
  for (std::size_t k = 0; k < 40; ++k) {
    d.posts(neighbour, kOurs, 10);
    d.posts_receive(hears);
  }
  int turns = 0;
  for (; turns < 400 && hears.completions.size() < 40; ++turns) {
    for (std::size_t i = 3; i < d.ends.size(); ++i)
      while (d.ends[i]->sends.size() < 100) d.posts(*d.ends[i], kOurs, 8);
    d.turn();
  }
  CHECK(hears.completions.size() == 40);
  CHECK(neighbour.completions.size() == 40);
  CHECK(turns < 66);  // four of each sixth turn
  CHECK(shut.completions.empty());
  CHECK(d.datagrams.counters().no_receive > 1000);
  CHECK(d.datagrams.counters().overrun == 0);
  CHECK(d.port.pool().available() > 2000);
}

TEST_CASE("who finds the wire full waits for a moment, and goes on", "[core][datagram]") {
  OneDevice d;
  End& one = d.make(2);
  d.port.blocked = true;
  for (int i = 0; i < 400; ++i) d.posts(one, kGroup, 0xFFFFFF);
  for (int i = 0; i < 20; ++i) d.turn();
  CHECK(one.completions.size() < 400);
  CHECK(d.datagrams.idle());
  REQUIRE(d.datagrams.next_deadline() != kNever);
  d.port.blocked = false;
  for (int i = 0; i < 60; ++i) {
    d.now = d.now + microseconds(60);
    d.turn();
  }
  CHECK(one.completions.size() == 400);
  CHECK(d.datagrams_sent(wire::multicast_mac(kGroup)) == 400);
}

TEST_CASE("thousands of an application's hold no more buffers than it may, and others have what they need",
          "[core][datagram]") {
  OneDevice d;
  End& late = d.make(5, kKey, {1});
  d.port.blocked = true;
  // Twice, as who has gone holds nothing.
  for (int times = 0; times < 2; ++times) {
    for (std::size_t i = 1; i < d.ends.size(); ++i) d.datagrams.remove(d.ends[i]->qp);
    d.ends.resize(1);
    // As many as would be 12,000 buffers, of 4,096.
    for (std::uint32_t i = 0; i < 3000; ++i) {
      End& end = d.make(16 + i, kKey, {1});
      for (int k = 0; k < 8; ++k) d.posts(end, kGroup, 0xFFFFFF);
    }
    for (int i = 0; i < 500; ++i) {
      d.now = d.now + microseconds(60);
      d.turn();
    }
    CHECK(d.port.pool().available() > 1500);
    CHECK(d.port.pool().available() < 2800);
  }
  End& neighbour = d.make(4, kKey, {2});
  for (int i = 0; i < 4; ++i) d.posts(neighbour, kGroup, 0xFFFFFF);
  for (int i = 0; i < 200; ++i) {
    d.now = d.now + microseconds(60);
    d.turn();
  }
  CHECK(neighbour.sends.empty());  // all begun
  for (std::size_t i = 1; i < d.ends.size(); ++i) d.datagrams.remove(d.ends[i]->qp);
  d.ends.resize(1);
  for (int i = 0; i < 4; ++i) d.posts(late, kGroup, 0xFFFFFF);
  d.turn();
  CHECK(late.sends.empty());
}

TEST_CASE("the longest message is the largest of InfiniBand's MTUs that fits with all headers", "[core][datagram]") {
  OneDevice d;
  CHECK(d.datagrams.message_max() == 1024);
  d.host.set_link_mtu(1024 + 76);
  CHECK(d.datagrams.message_max() == 1024);
  d.host.set_link_mtu(1024 + 75);
  CHECK(d.datagrams.message_max() == 512);
}
