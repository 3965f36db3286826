// A device at its edges: who may connect, what happens when the other side does not answer, and
// how streams end. Two whole RNICs in the simulator; each test is one story.
#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "host/listeners.hpp"
#include "kit/catch.hpp"
#include "kit/frames.hpp"
#include "sim/world.hpp"

using namespace rnic;
using core::StreamEvent;
using core::StreamFailure;
using sim::World;
using sim::WorldOptions;

namespace {

constexpr std::uint16_t kPort = 7471;

qp::Config plain() {
  qp::Config config;
  config.access = tpt::Rights::remote_read | tpt::Rights::remote_write;
  config.ird = config.ord = 4;
  return config;
}

core::PrivateData data_of(std::initializer_list<int> octets) {
  core::PrivateData data;
  for (const int octet : octets) data.octets[data.length++] = static_cast<std::byte>(octet);
  return data;
}

const StreamEvent* heard(const sim::Rnic& rnic, StreamEvent::Kind kind) {
  for (const StreamEvent& event : rnic.events)
    if (event.kind == kind) return &event;
  return nullptr;
}

std::size_t count(const sim::Rnic& rnic, StreamEvent::Kind kind) {
  return static_cast<std::size_t>(
      std::count_if(rnic.events.begin(), rnic.events.end(), [&](const StreamEvent& e) { return e.kind == kind; }));
}

// A connects to B's port; whatever comes of it.
sim::Endpoint& dial(World& world, const core::PrivateData& data = {}, std::uint16_t local_port = 0) {
  sim::Endpoint& a = world.a.make_qp(plain());
  core::ConnectOptions options;
  options.remote = sim::kAddressB;
  options.remote_port = kPort;
  options.local_port = local_port;
  options.ird = options.ord = 4;
  options.private_data = data;
  const auto stream = world.a.device.connect(options, *a.qp, world.clock.now);
  REQUIRE(stream);
  a.stream = *stream;
  return a;
}

// B accepts whoever comes, each with a QP of its own.
void accept_all(World& world, const core::PrivateData& data = {}) {
  world.b.on_event = [&world, data](const StreamEvent& event) {
    if (event.kind != StreamEvent::Kind::connect_request) return;
    sim::Endpoint& b = world.b.make_qp(plain());
    b.stream = event.stream;
    REQUIRE(world.b.device.accept(event.stream, {.ird = 4, .ord = 4, .private_data = data, .cookie = 5}, *b.qp,
                                  world.clock.now));
  };
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
}

bool run_until_heard(World& world, const sim::Rnic& rnic, StreamEvent::Kind kind, Duration limit = seconds(60)) {
  return world.run_until([&] { return heard(rnic, kind) != nullptr; }, limit);
}

bool run_until_no_streams(World& world, Duration limit = seconds(20)) {
  return world.run_until([&] { return world.a.device.stream_count() == 0 && world.b.device.stream_count() == 0; },
                         limit);
}

sim::LinkOptions dead_wire() {
  sim::LinkOptions dead;
  dead.loss_per_1000 = 1000;
  return dead;
}

// Counts RSTs that a link carries from now on.
struct CountedResets {
  explicit CountedResets(sim::Link& link) : link_(link) {
    link.watch([this](Bytes frame, Instant, sim::Link::Fate) {
      const auto ip = wire::parse_ipv4(frame.subspan(14));
      if (!ip || ip->header.protocol != wire::protocol::kTcp) return;
      const auto tcp = wire::parse_tcp(frame.subspan(14 + ip->header_size));
      if (tcp && tcp->header.has(wire::tcp_flags::kRst)) ++seen;
    });
  }
  ~CountedResets() { link_.watch(nullptr); }
  std::size_t seen = 0;

 private:
  sim::Link& link_;
};

}  // namespace

TEST_CASE("nobody listens: the connection is refused", "[core]") {
  World world({});
  dial(world);
  REQUIRE(run_until_heard(world, world.a, StreamEvent::Kind::failed));
  CHECK(heard(world.a, StreamEvent::Kind::failed)->failure == StreamFailure::refused);
  CHECK(world.b.device.counters().no_listener == 1);
  CHECK(run_until_no_streams(world));
}

TEST_CASE("nobody has the address: the connection is unreachable", "[core]") {
  WorldOptions options;
  options.b.address = wire::IpAddress::v4(10, 0, 0, 99);
  World world(options);
  dial(world);
  REQUIRE(run_until_heard(world, world.a, StreamEvent::Kind::failed));
  CHECK(heard(world.a, StreamEvent::Kind::failed)->failure == StreamFailure::unreachable);
}

TEST_CASE("no route: connect() itself says so", "[core]") {
  World world({});
  sim::Endpoint& a = world.a.make_qp(plain());
  core::ConnectOptions options;
  options.remote = wire::IpAddress::v4(192, 0, 2, 1);
  options.remote_port = kPort;
  const auto stream = world.a.device.connect(options, *a.qp, world.clock.now);
  REQUIRE_FALSE(stream);
  CHECK(stream.error() == core::StreamError::no_route);
}

TEST_CASE("a peer that no longer answers: the connection fails in time", "[core]") {
  World world({});
  accept_all(world);
  dial(world);
  REQUIRE(run_until_heard(world, world.a, StreamEvent::Kind::established));
  // ARP is known by now; the next connection meets a dead wire.
  world.b_to_a.set_options(dead_wire());
  dial(world);
  REQUIRE(run_until_heard(world, world.a, StreamEvent::Kind::failed, seconds(300)));
  const auto failure = heard(world.a, StreamEvent::Kind::failed)->failure;
  CHECK((failure == StreamFailure::timed_out || failure == StreamFailure::unreachable));
}

TEST_CASE("W-MPA-82: private data arrives with its length, both ways", "[core][W-MPA-82]") {
  World world({});
  accept_all(world, data_of({9, 8}));
  dial(world, data_of({1, 2, 3}));
  REQUIRE(run_until_heard(world, world.a, StreamEvent::Kind::established));
  const StreamEvent* request = heard(world.b, StreamEvent::Kind::connect_request);
  REQUIRE(request != nullptr);
  CHECK(request->cookie == 77);
  REQUIRE(request->private_data.length == 3);
  CHECK(request->private_data.octets[2] == std::byte{3});
  const StreamEvent* established = heard(world.a, StreamEvent::Kind::established);
  REQUIRE(established->private_data.length == 2);
  CHECK(established->private_data.octets[0] == std::byte{9});
}

TEST_CASE("W-MPA-38: the depths of a Request are told from the responder's side", "[core][W-MPA-38]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  sim::Endpoint& a = world.a.make_qp(plain());
  core::ConnectOptions options;
  options.remote = sim::kAddressB;
  options.remote_port = kPort;
  options.ird = 3;
  options.ord = 7;
  REQUIRE(world.a.device.connect(options, *a.qp, world.clock.now));
  REQUIRE(run_until_heard(world, world.b, StreamEvent::Kind::connect_request));
  CHECK(heard(world.b, StreamEvent::Kind::connect_request)->ird == 7);
  CHECK(heard(world.b, StreamEvent::Kind::connect_request)->ord == 3);
}

TEST_CASE("W-MPA-19: a rejection arrives with its private data, and the stream ends with FIN",
          "[core][W-MPA-19][W-MPA-20]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  world.b.on_event = [&](const StreamEvent& event) {
    REQUIRE(world.b.device.reject(event.stream, data_of({42}), world.clock.now));
  };
  sim::Endpoint& a = dial(world);
  const CountedResets resets(world.b_to_a);
  REQUIRE(run_until_heard(world, world.a, StreamEvent::Kind::rejected));
  CHECK(run_until_no_streams(world));
  CHECK(resets.seen == 0);
  REQUIRE(heard(world.a, StreamEvent::Kind::rejected)->private_data.length == 1);
  CHECK(heard(world.a, StreamEvent::Kind::rejected)->private_data.octets[0] == std::byte{42});
  CHECK(a.qp->state() == qp::State::idle);
  CHECK(heard(world.a, StreamEvent::Kind::failed) == nullptr);
}

TEST_CASE("W-MPA-24: the Request leaves as soon as the connection is established", "[core][W-MPA-24]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  dial(world);
  const Instant start = world.clock.now;
  REQUIRE(run_until_heard(world, world.b, StreamEvent::Kind::connect_request));
  // Three ways over the wire, ARP, and turns: far from a second.
  CHECK(world.clock.now - start < milliseconds(1));
}

TEST_CASE("W-MPA-15: the Request is one TCP segment", "[core][W-MPA-15]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  std::vector<std::size_t> sizes;
  world.a_to_b.watch([&](Bytes frame, Instant, sim::Link::Fate) {
    const auto ip = wire::parse_ipv4(frame.subspan(14));
    if (!ip || ip->header.protocol != wire::protocol::kTcp) return;
    const auto tcp = wire::parse_tcp(frame.subspan(14 + ip->header_size, ip->payload_size()));
    if (tcp && ip->payload_size() > tcp->data_offset) sizes.push_back(ip->payload_size() - tcp->data_offset);
  });
  dial(world, data_of({1, 2, 3, 4}));
  REQUIRE(run_until_heard(world, world.b, StreamEvent::Kind::connect_request));
  CHECK(sizes == std::vector<std::size_t>{20 + 4 + 4});
}

TEST_CASE("W-TCP-14: startup frames are pushed", "[core][W-TCP-14]") {
  World world({});
  accept_all(world, data_of({5, 6}));
  std::vector<bool> pushed;
  for (sim::Link* link : {&world.a_to_b, &world.b_to_a})
    link->watch([&](Bytes frame, Instant, sim::Link::Fate) {
      const auto ip = wire::parse_ipv4(frame.subspan(14));
      if (!ip || ip->header.protocol != wire::protocol::kTcp) return;
      const Bytes segment = frame.subspan(14 + ip->header_size, ip->payload_size());
      const auto tcp = wire::parse_tcp(segment);
      if (!tcp || segment.size() < tcp->data_offset + 6) return;
      const Bytes payload = segment.subspan(tcp->data_offset);
      if (std::memcmp(payload.data(), "MPA ID", 6) == 0) pushed.push_back(tcp->header.has(wire::tcp_flags::kPsh));
    });
  dial(world, data_of({1, 2, 3, 4}));
  REQUIRE(run_until_heard(world, world.a, StreamEvent::Kind::established));
  CHECK(pushed == std::vector<bool>{true, true});
}

TEST_CASE("W-MPA-23: an initiator waits 20 s for the Reply, and no longer", "[core][W-MPA-23]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  dial(world);
  REQUIRE(run_until_heard(world, world.b, StreamEvent::Kind::connect_request));
  const Instant start = world.clock.now;
  REQUIRE(run_until_heard(world, world.a, StreamEvent::Kind::failed));
  CHECK(heard(world.a, StreamEvent::Kind::failed)->failure == StreamFailure::timed_out);
  CHECK(world.clock.now - start >= milliseconds(19'990));
  CHECK(world.clock.now - start <= milliseconds(20'010));
}

TEST_CASE("W-MPA-90: a responder whose first FPDU does not come gives up after 10 s", "[core][W-MPA-90]") {
  World world({});
  accept_all(world);
  dial(world);
  REQUIRE(run_until_heard(world, world.b, StreamEvent::Kind::connect_request));
  world.a_to_b.set_options(dead_wire());
  world.run_for(milliseconds(9'990));
  CHECK(heard(world.b, StreamEvent::Kind::failed) == nullptr);
  world.run_for(milliseconds(110));
  REQUIRE(heard(world.b, StreamEvent::Kind::failed));
  CHECK(heard(world.b, StreamEvent::Kind::failed)->failure == StreamFailure::timed_out);
  CHECK(heard(world.b, StreamEvent::Kind::established) == nullptr);
}

TEST_CASE("W-MPA-90: without the peer-to-peer model a responder is established at once, however silent its client",
          "[core][W-MPA-90]") {
  WorldOptions options;
  options.a.device.peer_to_peer = false;
  World world(options);
  accept_all(world);
  dial(world);
  REQUIRE(run_until_heard(world, world.b, StreamEvent::Kind::established));
  world.run_for(seconds(60));
  CHECK(count(world.b, StreamEvent::Kind::disconnected) == 0);
}

TEST_CASE("W-MPA-87: established is told when the RTR is out, and when it is in", "[core][W-MPA-87]") {
  World world({});
  accept_all(world);
  dial(world);
  REQUIRE(run_until_heard(world, world.b, StreamEvent::Kind::established));
  CHECK(count(world.a, StreamEvent::Kind::established) == 1);
  CHECK(world.a.endpoints[0]->qp->gate_open());
  CHECK(world.b.endpoints[0]->qp->gate_open());
}

TEST_CASE("V-TDN-01: a disconnect is told once on either side, and both queue pairs are Idle",
          "[core][V-TDN-01][V-TDN-09]") {
  World world({});
  const auto pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  world.a.device.disconnect(pair.a->stream, core::Disconnect::graceful, world.clock.now);
  REQUIRE(run_until_no_streams(world));
  CHECK(count(world.a, StreamEvent::Kind::disconnected) == 1);
  CHECK(count(world.b, StreamEvent::Kind::disconnected) == 1);
  CHECK(pair.a->qp->state() == qp::State::idle);
  CHECK(pair.b->qp->state() == qp::State::idle);
}

TEST_CASE("V-TDN-03: Modify to Error resets the connection, and the peer hears of it", "[core][V-TDN-03]") {
  World world({});
  const auto pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  const CountedResets resets(world.a_to_b);
  REQUIRE(pair.a->qp->modify_state(qp::State::error, world.clock.now));
  world.a.device.touch(*pair.a->qp);
  REQUIRE(run_until_heard(world, world.b, StreamEvent::Kind::disconnected));
  CHECK(resets.seen == 1);
  CHECK(pair.b->qp->state() == qp::State::error);
  CHECK(count(world.a, StreamEvent::Kind::disconnected) == 1);
}

TEST_CASE("V-TDN-09: a queue pair destroyed in RTS: the peer hears of it once, and all that it posts is flushed",
          "[core][V-TDN-09][V-QP-16]") {
  World world({});
  const auto pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  sim::Endpoint& b = *pair.b;
  const CountedResets resets(world.a_to_b);
  world.a.destroy_qp(*pair.a);
  REQUIRE(run_until_heard(world, world.b, StreamEvent::Kind::disconnected));
  REQUIRE(run_until_no_streams(world));
  CHECK(b.qp->state() == qp::State::error);
  CHECK(b.host.events == std::vector{qp::Event::peer_gone});
  CHECK(resets.seen == 0);
  // An application that works through its completions may post yet.
  qp::WorkRequest late;
  late.opcode = qp::Opcode::send;
  late.signaled = true;
  world.b.post_send(b, late);
  REQUIRE(world.run_until([&] { return !b.host.completions.empty(); }, seconds(1)));
  CHECK(b.host.completions[0].status == qp::Status::flushed);
  CHECK(count(world.b, StreamEvent::Kind::disconnected) == 1);
}

TEST_CASE("V-TDN-09: an abrupt disconnect is told on either side, and both queue pairs are in Error",
          "[core][V-TDN-09]") {
  World world({});
  const auto pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  world.a.device.disconnect(pair.a->stream, core::Disconnect::abrupt, world.clock.now);
  REQUIRE(run_until_heard(world, world.b, StreamEvent::Kind::disconnected));
  REQUIRE(run_until_no_streams(world));
  CHECK(count(world.a, StreamEvent::Kind::disconnected) == 1);
  CHECK(count(world.b, StreamEvent::Kind::disconnected) == 1);
  CHECK(pair.a->qp->state() == qp::State::error);
  CHECK(pair.b->qp->state() == qp::State::error);
  CHECK(pair.b->host.events == std::vector{qp::Event::peer_gone});
}

TEST_CASE("an administrator's kill ends both sides", "[core]") {
  World world({});
  const auto pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  CHECK(world.a.device.kill(pair.a->stream, world.clock.now));
  CHECK(pair.a->host.events == std::vector{qp::Event::connection_lost});
  CHECK(pair.a->qp->state() == qp::State::error);
  REQUIRE(run_until_heard(world, world.b, StreamEvent::Kind::disconnected));
  CHECK(count(world.a, StreamEvent::Kind::disconnected) == 1);
  world.run_for(milliseconds(10));
  CHECK_FALSE(world.a.device.kill(pair.a->stream, world.clock.now));
}

TEST_CASE("V-CLS-11: after a close TIME-WAIT is the device's, and a new connection with the same ports takes its place",
          "[core][V-CLS-11][V-SEC-24][V-CLS-10]") {
  World world({});
  accept_all(world);
  sim::Endpoint& first = dial(world, {}, 40000);
  REQUIRE(run_until_heard(world, world.b, StreamEvent::Kind::established));
  // B closes first, so B keeps TIME-WAIT.
  world.b.device.disconnect(world.b.endpoints[0]->stream, core::Disconnect::graceful, world.clock.now);
  REQUIRE(run_until_no_streams(world));
  CHECK(world.b.endpoints[0]->qp->state() == qp::State::idle);
  world.a.events.clear();
  // Initial sequence numbers move on by 250,000 in a second: the new one is beyond the old stream.
  world.clock.now = world.clock.now + seconds(1);
  sim::Endpoint& second = dial(world, {}, 40000);
  REQUIRE(run_until_heard(world, world.a, StreamEvent::Kind::established, seconds(5)));
  CHECK(first.stream != second.stream);
}

TEST_CASE("the side that holds TIME-WAIT cannot call from the same port before it is over", "[core]") {
  World world({});
  accept_all(world);
  sim::Endpoint& first = dial(world, {}, 40000);
  REQUIRE(run_until_heard(world, world.b, StreamEvent::Kind::established));
  world.a.device.disconnect(first.stream, core::Disconnect::graceful, world.clock.now);
  REQUIRE(run_until_no_streams(world));
  sim::Endpoint& second = world.a.make_qp(plain());
  core::ConnectOptions options;
  options.remote = sim::kAddressB;
  options.remote_port = kPort;
  options.local_port = 40000;
  const auto refused = world.a.device.connect(options, *second.qp, world.clock.now);
  REQUIRE_FALSE(refused);
  CHECK(refused.error() == core::StreamError::address_in_use);
  // It is no reason to wake up: it is over when somebody looks.
  world.clock.now = world.clock.now + seconds(61);
  world.a.device.run_timers(world.clock.now);
  CHECK(world.a.device.connect(options, *second.qp, world.clock.now));
}

TEST_CASE("a backlog of one takes one request until it is answered; the next comes through afterwards", "[core]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 1, 77));
  dial(world);
  dial(world);
  REQUIRE(run_until_heard(world, world.b, StreamEvent::Kind::connect_request));
  world.run_for(milliseconds(100));
  CHECK(count(world.b, StreamEvent::Kind::connect_request) == 1);
  REQUIRE(world.b.device.reject(heard(world.b, StreamEvent::Kind::connect_request)->stream, {}, world.clock.now));
  CHECK(world.run_until([&] { return count(world.b, StreamEvent::Kind::connect_request) == 2; }, seconds(10)));
}

TEST_CASE("many callers at once find a small backlog: none is dropped, each gets its turn, and the wait is no timeout",
          "[core]") {
  WorldOptions options;
  options.b.streams_max = 1024;  // an eighth for those who have not asked yet
  World world(options);
  REQUIRE(world.b.device.listen({}, kPort, 3, 77));
  constexpr std::size_t kCallers = 40;
  std::vector<core::StreamId> asked;
  std::size_t most = 0;
  world.b.on_event = [&](const StreamEvent& event) {
    if (event.kind == StreamEvent::Kind::connect_request) asked.push_back(event.stream);
  };
  // The first alone: while a neighbour is asked for, not all SYNs are kept.
  dial(world);
  REQUIRE(world.run_until([&] { return !asked.empty(); }, seconds(1)));
  for (std::size_t i = 1; i < kCallers; ++i) dial(world);
  const Instant start = world.clock.now;
  for (std::size_t answered = 0; answered < kCallers; ++answered) {
    REQUIRE(world.run_until([&] { return !asked.empty(); }, seconds(20)));
    most = std::max(most, asked.size());
    sim::Endpoint& b = world.b.make_qp(plain());
    REQUIRE(world.b.device.accept(asked.front(), {.ird = 4, .ord = 4, .private_data = {}, .cookie = 5}, *b.qp,
                                  world.clock.now));
    asked.erase(asked.begin());
  }
  REQUIRE(world.run_until([&] { return count(world.a, StreamEvent::Kind::established) == kCallers; }, seconds(20)));
  CHECK(most <= 3);
  CHECK(world.b.device.counters().syns_dropped == 0);
  CHECK(world.b.device.counters().backlog_waits > 0);
  CHECK(world.clock.now - start < seconds(1));
}

TEST_CASE("a request whose peer has gone is not accepted", "[core]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  sim::Endpoint& a = dial(world);
  REQUIRE(run_until_heard(world, world.b, StreamEvent::Kind::connect_request));
  world.a.device.disconnect(a.stream, core::Disconnect::graceful, world.clock.now);
  world.run_for(milliseconds(10));
  sim::Endpoint& b = world.b.make_qp(plain());
  const auto refused =
      world.b.device.accept(heard(world.b, StreamEvent::Kind::connect_request)->stream, {}, *b.qp, world.clock.now);
  REQUIRE_FALSE(refused);
  CHECK(refused.error() == core::StreamError::unknown);
  CHECK(b.qp->state() == qp::State::idle);
  CHECK(run_until_no_streams(world));
}

TEST_CASE("a device speaks to itself without a wire", "[core]") {
  World world({});
  world.a.port.set_link_up(false);
  sim::Rnic& self = world.a;
  REQUIRE(self.device.listen({}, kPort, 8, 77));
  self.on_event = [&](const StreamEvent& event) {
    if (event.kind != StreamEvent::Kind::connect_request) return;
    sim::Endpoint& b = self.make_qp(plain());
    REQUIRE(self.device.accept(event.stream, {.ird = 4, .ord = 4, .private_data = {}, .cookie = 5}, *b.qp,
                               world.clock.now));
  };
  sim::Endpoint& a = self.make_qp(plain());
  core::ConnectOptions options;
  options.remote = options.local = sim::kAddressA;
  options.remote_port = kPort;
  options.ird = options.ord = 4;
  options.cookie = 6;
  REQUIRE(self.device.connect(options, *a.qp, world.clock.now));
  REQUIRE(world.run_until([&] { return count(self, StreamEvent::Kind::established) == 2; }, seconds(1)));
  std::vector<std::byte> from(100'000, std::byte{7}), to(100'000);
  const Stag source = self.register_memory(from, tpt::Rights::local_read);
  const Stag target = self.register_memory(to, tpt::Rights::local_write | tpt::Rights::remote_write);
  qp::WorkRequest write;
  write.opcode = qp::Opcode::write;
  write.signaled = true;
  write.sge_count = 1;
  write.sges[0] = {reinterpret_cast<std::uintptr_t>(from.data()), 100'000, source};
  write.remote_to = reinterpret_cast<std::uintptr_t>(to.data());
  write.remote_stag = target;
  self.post_send(a, write);
  REQUIRE(world.run_until([&] { return to == from; }, seconds(1)));
  CHECK(world.a_to_b.frames() == 0);
}

TEST_CASE("a ping is answered", "[core]") {
  World world({});
  world.run_for(microseconds(100));
  const auto request = test::frames::icmp({.type = wire::icmp_type::kEchoRequest, .rest = 0x10002},
                                          std::vector<std::byte>(8, std::byte{3}));
  const auto frame = test::frames::packet({.destination = world.b.port.facts().mac, .source = world.a.port.facts().mac},
                                          wire::protocol::kIcmp, sim::kAddressA, sim::kAddressB, request);
  std::size_t replies = 0;
  world.b_to_a.watch([&](Bytes sent, Instant, sim::Link::Fate) {
    const auto ip = wire::parse_ipv4(sent.subspan(14));
    if (!ip || ip->header.protocol != wire::protocol::kIcmp) return;
    ++replies;
    CHECK(sent[34] == std::byte{wire::icmp_type::kEchoReply});
    CHECK(wire::load_mac(sent, 0) == world.a.port.facts().mac);
  });
  world.a_to_b.send(frame, world.clock.now);
  world.run_for(milliseconds(1));
  CHECK(replies == 1);
}

TEST_CASE("a listener that is closed lets go of connections that nobody was told of", "[core]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  dial(world);
  REQUIRE(world.run_until([&] { return world.b.device.half_open_count() == 1; }));
  world.b.device.unlisten({}, kPort, world.clock.now);
  CHECK(world.b.device.half_open_count() == 0);
  REQUIRE(run_until_heard(world, world.a, StreamEvent::Kind::failed));
  CHECK(world.b.device.stream_count() == 0);
  CHECK(count(world.b, StreamEvent::Kind::connect_request) == 0);
}

TEST_CASE("a server that closes its listener and opens the next loses no caller in between", "[core]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  world.b.device.unlisten({}, kPort, world.clock.now);
  dial(world);
  world.run_for(milliseconds(100));
  CHECK(world.b.device.counters().no_listener == 0);
  REQUIRE(world.b.device.listen({}, kPort, 8, 78));
  REQUIRE(run_until_heard(world, world.b, StreamEvent::Kind::connect_request));
  CHECK(heard(world.b, StreamEvent::Kind::connect_request)->cookie == 78);
}

TEST_CASE("a listener that ended a while ago is nobody's", "[core]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  world.b.device.unlisten({}, kPort, world.clock.now);
  world.run_for(host::Listeners::kAfterlife);
  dial(world);
  REQUIRE(run_until_heard(world, world.a, StreamEvent::Kind::failed));
  CHECK(heard(world.a, StreamEvent::Kind::failed)->failure == StreamFailure::refused);
  CHECK(world.b.device.counters().no_listener == 1);
}

TEST_CASE("a server that still serves may take its time to listen again", "[core]") {
  World world({});
  const auto first = sim::connect(world, plain(), plain());  // and its listener is closed
  REQUIRE(first.established);
  world.run_for(host::Listeners::kAfterlife * 4);
  dial(world);
  world.run_for(milliseconds(500));
  CHECK(world.b.device.counters().no_listener == 0);
  SECTION("it does") {
    REQUIRE(world.b.device.listen({}, kPort, 8, 78));
    REQUIRE(world.run_until([&] { return count(world.b, StreamEvent::Kind::connect_request) == 2; }));
  }
  SECTION("it ends") {
    world.b.device.kill(first.b->stream, world.clock.now);
    REQUIRE(run_until_heard(world, world.a, StreamEvent::Kind::failed));
    CHECK(heard(world.a, StreamEvent::Kind::failed)->failure == StreamFailure::refused);
  }
  SECTION("it does not") {
    REQUIRE(run_until_heard(world, world.a, StreamEvent::Kind::failed));
    CHECK(heard(world.a, StreamEvent::Kind::failed)->failure == StreamFailure::refused);
    CHECK(first.b->qp->state() == qp::State::rts);
  }
}

TEST_CASE("an idle device has nothing to do and no deadline", "[core]") {
  World world({});
  const auto pair = sim::connect(world, plain(), plain());
  REQUIRE(pair.established);
  for (int i = 0; i < 100; ++i) world.step();
  CHECK(world.a.device.idle());
  CHECK(world.b.device.idle());
  CHECK(world.a.device.next_deadline() == kNever);
  CHECK(world.b.device.next_deadline() == kNever);
}
