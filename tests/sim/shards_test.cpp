// A device whose connections are divided among several workers, against an ordinary one that does not know: whatever
// the order in which the workers have their turns, whatever the wire does, and by whatever queue a frame comes.
#include <algorithm>
#include <cstring>
#include <optional>

#include "kit/catch.hpp"
#include "kit/frames.hpp"
#include "sim/divided_world.hpp"
#include "unit/core/network.hpp"
#include "wire/neighbour_discovery.hpp"
#include "wire/rss.hpp"

using namespace rnic;
using core::StreamEvent;
using sim::DividedOptions;
using sim::DividedWorld;
using sim::Queues;
using sim::Rnic;
using test::network::kPort;
using test::network::plain;
using wire::IpAddress;

namespace {

struct Memory {
  Memory(Rnic& rnic, std::size_t size, sim::Random* fill = nullptr) : octets(size) {
    if (fill != nullptr) fill->fill(octets);
    stag = rnic.register_memory(octets, tpt::Rights::local_read | tpt::Rights::local_write | tpt::Rights::remote_read |
                                            tpt::Rights::remote_write);
  }
  rdmap::Sge sge() const { return {at(), static_cast<std::uint32_t>(octets.size()), stag}; }
  std::uint64_t at() const { return reinterpret_cast<std::uintptr_t>(octets.data()); }
  std::vector<std::byte> octets;
  Stag stag;
};

// One end of a connection.
struct End {
  Rnic* rnic = nullptr;
  sim::Endpoint* endpoint = nullptr;
  core::StreamId stream;
  bool established = false;
  std::size_t completed() const { return endpoint->host.completions.size(); }
};

// A connection, and its work: of the caller a Write, a Read and a Send, all of the same size.
struct Work {
  Work(unsigned its_number, std::size_t its_size) : number(its_number), size(its_size) {}

  unsigned number;
  std::size_t size;
  End caller, callee;
  std::unique_ptr<Memory> written_from, written_to, read_from, read_into, sent, received;
  bool begun = false;

  bool up() const { return caller.established && callee.established; }
  bool done() const { return begun && caller.completed() == 3 && callee.completed() == 1; }
  bool is_right() const {
    const auto good = [](const End& end) {
      return std::all_of(end.endpoint->host.completions.begin(), end.endpoint->host.completions.end(),
                         [](const auto& completion) { return completion.status == qp::Status::success; });
    };
    return done() && good(caller) && good(callee) && written_from->octets == written_to->octets &&
           read_from->octets == read_into->octets && sent->octets == received->octets;
  }
};

// All connections of a world: whoever listens takes whoever calls.
class Works {
 public:
  Works(DividedWorld& world, std::uint64_t seed) : world_(world), random_(seed * 16 + 9) {
    for (auto& shard : world.shards) take_calls(*shard);
    take_calls(*world.peer);
    world.application = [this] { go_on(); };
  }

  Work& add(Rnic& by, const core::ConnectOptions& options) {
    Work& work = *all.emplace_back(std::make_unique<Work>(static_cast<unsigned>(all.size()),
                                                          static_cast<std::size_t>(random_.between(1, 20'000))));
    work.caller = {.rnic = &by, .endpoint = &by.make_qp(plain()), .stream = {}, .established = false};
    core::ConnectOptions call = options;
    call.ird = call.ord = 4;
    call.cookie = work.number * 2;
    call.private_data.length = sizeof work.number;
    std::memcpy(call.private_data.octets.data(), &work.number, sizeof work.number);
    world_.wake(by);
    const auto stream = by.device.connect(call, *work.caller.endpoint->qp, world_.clock.now);
    REQUIRE(stream);
    work.caller.stream = *stream;
    return work;
  }
  Work& call(Rnic& by, const IpAddress& remote) {
    core::ConnectOptions options;
    options.remote = remote;
    options.remote_port = kPort;
    return add(by, options);
  }
  bool all_done() const {
    return !complaint.empty() || !world_.complaint.empty() ||
           std::all_of(all.begin(), all.end(), [](const auto& work) { return work->done(); });
  }
  void end_all() {
    for (const auto& work : all) {
      if (!work->up()) continue;
      world_.wake(*work->caller.rnic);
      work->caller.rnic->device.disconnect(work->caller.stream, core::Disconnect::graceful, world_.clock.now);
    }
  }

  std::vector<std::unique_ptr<Work>> all;
  std::string complaint;

 private:
  void take_calls(Rnic& rnic) {
    REQUIRE(rnic.device.listen({}, kPort, 32, 1));
    rnic.on_event = [this, &rnic](const StreamEvent& event) { on_event(rnic, event); };
  }
  // Of a shard: what it has says so.
  void check_shard(const Rnic& rnic, const StreamEvent& event) {
    const host::Shard& shard = rnic.device.options().shard;
    if (event.stream.shard() != shard.index) complaint = "a stream's name has another shard";
    if (wire::rss::shard_of(event.local, event.local_port, event.remote, event.remote_port, shard.count) != shard.index)
      complaint = "a connection is at another shard";
  }
  void on_event(Rnic& rnic, const StreamEvent& event) {
    check_shard(rnic, event);
    if (event.kind == StreamEvent::Kind::connect_request) {
      unsigned number = 0;
      std::memcpy(&number, event.private_data.octets.data(), sizeof number);
      Work& work = *all.at(number);
      work.callee = {.rnic = &rnic, .endpoint = &rnic.make_qp(plain()), .stream = event.stream, .established = false};
      work.received = std::make_unique<Memory>(rnic, work.size);
      qp::ReceiveRequest receive;
      receive.sge_count = 1;
      receive.sges[0] = work.received->sge();
      rnic.post_receive(*work.callee.endpoint, receive);
      if (!rnic.device.accept(event.stream, {.ird = 4, .ord = 4, .private_data = {}, .cookie = number * 2 + 1},
                              *work.callee.endpoint->qp, world_.clock.now))
        complaint = "a call cannot be taken";
      return;
    }
    Work& work = *all.at(event.cookie / 2);
    if (event.kind == StreamEvent::Kind::established)
      (event.cookie % 2 == 0 ? work.caller : work.callee).established = true;
    else if (event.kind != StreamEvent::Kind::disconnected)
      complaint = "a call has failed";
    else if (!work.done())
      complaint = "a connection has ended";
  }
  void go_on() {
    for (const auto& work : all)
      if (work->up() && !std::exchange(work->begun, true)) begin(*work);
  }
  void begin(Work& work) {
    Rnic &by = *work.caller.rnic, &other = *work.callee.rnic;
    work.written_from = std::make_unique<Memory>(by, work.size, &random_);
    work.written_to = std::make_unique<Memory>(other, work.size);
    work.read_from = std::make_unique<Memory>(other, work.size, &random_);
    work.read_into = std::make_unique<Memory>(by, work.size);
    work.sent = std::make_unique<Memory>(by, work.size, &random_);
    const auto post = [&](qp::Opcode opcode, const Memory& own, const Memory* others) {
      qp::WorkRequest request;
      request.opcode = opcode;
      request.signaled = true;
      request.sge_count = 1;
      request.sges[0] = own.sge();
      if (others != nullptr) {
        request.remote_stag = others->stag;
        request.remote_to = others->at();
      }
      by.post_send(*work.caller.endpoint, request);
    };
    world_.wake(by);
    post(qp::Opcode::write, *work.written_from, work.written_to.get());
    post(qp::Opcode::read, *work.read_into, work.read_from.get());
    post(qp::Opcode::send, *work.sent, nullptr);
  }

  DividedWorld& world_;
  sim::Random random_;
};

// What one end has said, as far as it is about the station that it is.
struct Said {
  unsigned asked = 0, answered = 0;  // neighbours; `asked`: as often as it arrived
  unsigned probes = 0, announced = 0, reports = 0;
  unsigned resets = 0, echoes = 0, errors = 0;  // of ICMP
  std::size_t largest = 0;

  void hear(Bytes frame, sim::Link::Fate fate) {
    const auto type = load_be<std::uint16_t>(frame, 12);
    const Bytes packet = frame.subspan(14);
    largest = std::max(largest, frame.size());
    const unsigned times = fate == sim::Link::Fate::lost ? 0 : fate == sim::Link::Fate::repeated ? 2 : 1;
    if (type == wire::ether_type::kArp) return hear_arp(*wire::parse_arp(packet), times);
    if (type == wire::ether_type::kIpv4) return hear_v4(packet);
    if (type == wire::ether_type::kIpv6) hear_v6(packet, times);
  }

 private:
  void hear_arp(const wire::ArpPacket& arp, unsigned times) {
    if (arp.operation == wire::ArpPacket::kReply)
      ++answered;
    else if (arp.sender_ip.is_unspecified())
      ++probes;
    else if (arp.sender_ip == arp.target_ip)
      ++announced;
    else
      asked += times;
  }
  void hear_v4(Bytes packet) {
    const auto ip = wire::parse_ipv4(packet);
    if (ip->header.is_fragment()) return;
    hear_upper(ip->header.protocol, packet.subspan(ip->header_size), wire::icmp_type::kEchoReply);
  }
  void hear_v6(Bytes packet, unsigned times) {
    const auto ip = wire::parse_ipv6(packet);
    const Bytes payload = packet.subspan(wire::Ipv6Header::kSize);
    const auto neighbour = wire::parse_neighbour(payload);
    if (ip->next_header == wire::ipv6_next::kHopByHop)
      ++reports;
    else if (ip->next_header != wire::protocol::kIcmpV6 || !neighbour)
      hear_upper(ip->next_header, payload, wire::icmp6_type::kEchoReply);
    else if (neighbour->advertisement)
      ++(neighbour->solicited ? answered : announced);
    else if (ip->source.is_unspecified())
      ++probes;
    else
      asked += times;
  }
  void hear_upper(std::uint8_t protocol, Bytes payload, std::uint8_t echo_reply) {
    if (protocol == wire::protocol::kIcmp || protocol == wire::protocol::kIcmpV6)
      ++(std::to_integer<std::uint8_t>(payload[0]) == echo_reply ? echoes : errors);
    else if (const auto tcp = wire::parse_tcp(payload); protocol == wire::protocol::kTcp && tcp)
      resets += tcp->header.has(wire::tcp_flags::kRst);
  }
};

// Both ends, from now on.
struct Witness {
  explicit Witness(DividedWorld& world) {
    world.to_peer.watch([this](Bytes frame, Instant, sim::Link::Fate fate) { device.hear(frame, fate); });
    world.from_peer.watch([this](Bytes frame, Instant, sim::Link::Fate fate) { peer.hear(frame, fate); });
  }
  Said device, peer;
};

// A router that puts options in front of what it passes on: IPv4's, or IPv6's for the destination.
void add_options(sim::Frame& frame) {
  const auto type = load_be<std::uint16_t>(frame, 12);
  const MutableBytes packet = MutableBytes(frame).subspan(14);
  if (type == wire::ether_type::kIpv4 && packet[9] == std::byte{wire::protocol::kTcp}) {
    const auto nothing = test::hex("01010100");
    packet[0] = std::byte{0x46};
    store_be(packet, 2, static_cast<std::uint16_t>(load_be<std::uint16_t>(packet, 2) + 4));
    frame.insert(frame.begin() + 14 + 20, nothing.begin(), nothing.end());
    test::frames::fix_checksums(frame);
  } else if (type == wire::ether_type::kIpv6 && packet[6] == std::byte{wire::protocol::kTcp}) {
    const auto padding = test::hex("0600010400000000");
    packet[6] = std::byte{wire::ipv6_next::kDestination};
    store_be(packet, 4, static_cast<std::uint16_t>(load_be<std::uint16_t>(packet, 4) + 8));
    frame.insert(frame.begin() + 14 + 40, padding.begin(), padding.end());
  }
}

DividedOptions choose(std::uint64_t seed, Queues queues) {
  sim::Random random(seed * 32 + 11);
  DividedOptions options;
  options.seed = seed;
  options.queues = queues;
  options.shards = static_cast<unsigned>(random.between(2, 3));
  options.skip_per_1000 = random.chance(500) ? static_cast<std::uint32_t>(random.below(700)) : 0;
  options.link.delay = microseconds(static_cast<std::int64_t>(random.between(1, 200)));
  if (random.chance(700)) {
    options.link.jitter_max = microseconds(static_cast<std::int64_t>(random.below(100)));
    options.link.loss_per_1000 = static_cast<std::uint32_t>(random.below(20));
    options.link.repeat_per_1000 = static_cast<std::uint32_t>(random.below(20));
    options.link.fragment_per_1000 = static_cast<std::uint32_t>(random.below(100));
  }
  options.device.buffers = options.peer.buffers = 512;
  const bool v6 = random.chance(500);
  options.device.address = v6 ? sim::address_v6(1) : sim::kAddressA;
  options.peer.address = v6 ? sim::address_v6(2) : sim::kAddressB;
  options.device.device.probe = options.peer.device.probe = random.chance(300);
  options.device.runs = queues == Queues::one && random.chance(500);
  return options;
}

std::string story(const DividedOptions& options) {
  return "seed " + std::to_string(options.seed) + ", " + std::to_string(options.shards) + " shards, " +
         (options.device.address.is_v6() ? "IPv6" : "IPv4") + (options.device.device.probe ? ", probes" : "") +
         (options.device.runs ? ", runs" : "") + ", loss " + std::to_string(options.link.loss_per_1000) +
         ", fragments " + std::to_string(options.link.fragment_per_1000);
}

unsigned streams_of(const DividedWorld& world) {
  std::size_t count = world.peer->device.stream_count();
  for (const auto& shard : world.shards) count += shard->device.stream_count();
  return static_cast<unsigned>(count);
}

void run(const DividedOptions& options) {
  INFO(story(options));
  DividedWorld world(options);
  sim::Random random(options.seed * 64 + 13);
  if (random.chance(300))
    world.from_peer.edit([&](sim::Frame& frame) {
      if (random.chance(300)) add_options(frame);
    });
  Witness witness(world);
  world.run_for(options.device.device.probe ? seconds(15) : seconds(1));
  Works works(world, options.seed);
  for (int i = 0; i < 6; ++i) works.call(*world.peer, world.address());
  for (auto& shard : world.shards) {
    works.call(*shard, world.peer_address());
    works.call(*shard, world.address());  // itself
  }
  const bool done = world.run_until([&] { return works.all_done(); }, seconds(120));
  CHECK(works.complaint.empty());
  CHECK(world.complaint.empty());
  REQUIRE(done);
  for (const auto& work : works.all) REQUIRE(work->is_right());
  CHECK(witness.device.resets == 0);
  CHECK(witness.device.largest <= 1514 + wire::Ipv6Fragment::kSize);  // what the link cuts has a header more
  works.end_all();
  CHECK(world.run_until([&] { return streams_of(world) == 0; }, seconds(120)));
  world.run_for(milliseconds(10));
  // It is one station, as the other is.
  CHECK(witness.device.answered == witness.peer.asked);
  CHECK(witness.device.announced == witness.peer.announced);
  CHECK(witness.device.probes == witness.peer.probes);
  CHECK(witness.device.reports == witness.peer.reports);
  CHECK(world.frames_lost() == 0);
  CHECK(world.ends_with_all_buffers());
}

// Where each way in leads to every shard: seeds over a good wire.
DividedOptions plain_world(Queues queues, bool v6 = false) {
  DividedOptions options;
  options.shards = 3;
  options.queues = queues;
  if (v6) {
    options.device.address = sim::address_v6(1);
    options.peer.address = sim::address_v6(2);
  }
  return options;
}

sim::Frame to_device(const DividedWorld& world, std::uint8_t protocol, Bytes payload) {
  return test::frames::packet(
      {.destination = world.shards[0]->device.port().facts().mac, .source = {{2, 0, 0, 0, 0, 9}}}, protocol,
      world.peer_address(), world.address(), payload);
}

test::Octets echo_request(const DividedWorld& world, std::size_t size) {
  const test::Octets body = test::pattern(size);
  if (world.address().is_v4()) return test::frames::icmp({.type = wire::icmp_type::kEchoRequest, .rest = 1}, body);
  return test::frames::icmp6({.type = wire::icmp6_type::kEchoRequest, .rest = 1}, body, world.peer_address(),
                             world.address());
}

// In two, of which the first has so many octets.
std::vector<sim::Frame> in_fragments(const DividedWorld& world, std::uint8_t protocol, Bytes payload, std::size_t at) {
  std::vector<sim::Frame> both;
  for (const bool first : {true, false}) {
    const Bytes part = first ? payload.first(at) : payload.subspan(at);
    if (world.address().is_v6()) {
      test::Octets behind(wire::Ipv6Fragment::kSize);
      behind[0] = std::byte{protocol};
      store_be(MutableBytes(behind), 2, static_cast<std::uint16_t>(first ? 1 : at));
      store_be<std::uint32_t>(MutableBytes(behind), 4, 77);
      test::append(behind, part);
      both.push_back(to_device(world, wire::ipv6_next::kFragment, behind));
      continue;
    }
    sim::Frame& frame = both.emplace_back(to_device(world, protocol, part));
    const auto place = static_cast<std::uint16_t>(first ? 0x2000 : at / 8);
    store_be<std::uint16_t>(MutableBytes(frame), 14 + 4, 77);
    store_be(MutableBytes(frame), 14 + 6, place);
    store_be<std::uint16_t>(MutableBytes(frame), 14 + 10, 0);
    store_be(MutableBytes(frame), 14 + 10, wire::checksum_of(Bytes(frame).subspan(14, 20)));
  }
  return both;
}

}  // namespace

TEST_CASE("the simulator runs two workers' interleavings, over one queue", "[sim][shards]") {
  for (std::uint64_t seed = 0; seed < 80; ++seed) run(choose(seed, Queues::one));
}

TEST_CASE("the simulator runs two workers' interleavings, with a queue each and frames in any of them",
          "[sim][shards]") {
  for (std::uint64_t seed = 1000; seed < 1080; ++seed) run(choose(seed, Queues::at_random));
}

TEST_CASE("the simulator runs two workers' interleavings, with a queue each and frames in theirs", "[sim][shards]") {
  for (std::uint64_t seed = 2000; seed < 2080; ++seed) run(choose(seed, Queues::steered));
}

TEST_CASE("each shard has its part of the calls that come, and of those that go", "[sim][shards]") {
  DividedWorld world(plain_world(Queues::one));
  Works works(world, 1);
  for (int i = 0; i < 40; ++i) works.call(*world.peer, world.address());
  for (int i = 0; i < 8; ++i)
    for (auto& shard : world.shards) works.call(*shard, world.peer_address());
  REQUIRE(world.run_until([&] { return works.all_done(); }));
  CHECK(works.complaint.empty());
  for (auto& shard : world.shards) CHECK(shard->device.stream_count() >= 8 + 5);
}

TEST_CASE("from a port that it is given a shard calls only what is its own", "[sim][shards]") {
  DividedWorld world(plain_world(Queues::one));
  Works works(world, 1);
  core::ConnectOptions call;
  call.remote = world.peer_address();
  call.remote_port = kPort;
  unsigned refused = 0;
  for (call.local_port = 5000; call.local_port < 5030; ++call.local_port)
    for (unsigned i = 0; i < 3; ++i) {
      Rnic& shard = *world.shards[i];
      if (wire::rss::shard_of(world.address(), call.local_port, call.remote, call.remote_port, 3) == i) {
        works.add(shard, call);
        continue;
      }
      const auto called = shard.device.connect(call, *shard.make_qp(plain()).qp, world.clock.now);
      REQUIRE_FALSE(called);
      CHECK(called.error() == core::StreamError::another_shard);
      ++refused;
    }
  CHECK(refused == 60);
  REQUIRE(world.run_until([&] { return works.all_done(); }));
  CHECK(works.complaint.empty());
}

TEST_CASE("a port that nobody listens to is refused once, whoever of the shards is asked", "[sim][shards]") {
  DividedOptions options = plain_world(Queues::at_random, GENERATE(false, true));
  options.link.fragment_per_1000 = GENERATE(0u, 1000u);
  DividedWorld world(options);
  core::ConnectOptions call;
  call.remote = world.address();
  unsigned refused = 0;
  world.peer->on_event = [&](const StreamEvent& event) { refused += event.failure == core::StreamFailure::refused; };
  Witness witness(world);
  for (call.remote_port = 100; call.remote_port < 120; ++call.remote_port)
    REQUIRE(world.peer->device.connect(call, *world.peer->make_qp(plain()).qp, world.clock.now));
  world.run_until([&] { return refused == 20; }, seconds(10));
  CHECK(refused == 20);
  CHECK(world.to_peer.frames() < 200);
  if (options.link.fragment_per_1000 == 0) CHECK(witness.device.resets == 20);
}

// perftest's server closes its listener and opens the next, for the connections that it measures.
TEST_CASE("a server that serves at one shard may take its time to listen again at all", "[sim][shards]") {
  DividedWorld world(plain_world(Queues::one));
  Works works(world, 1);
  const auto unlisten = [&] {
    for (auto& shard : world.shards) shard->device.unlisten({}, kPort, world.clock.now);
  };
  works.call(*world.peer, world.address());
  REQUIRE(world.run_until([&] { return works.all_done(); }));
  unlisten();
  world.run_for(host::Listeners::kAfterlife * 2);
  Witness witness(world);
  for (int i = 0; i < 12; ++i) works.call(*world.peer, world.address());
  world.run_for(milliseconds(10));
  CHECK(witness.device.resets == 0);
  for (auto& shard : world.shards) REQUIRE(shard->device.listen({}, kPort, 32, 1));
  REQUIRE(world.run_until([&] { return works.all_done(); }));
  CHECK(works.complaint.empty());
  for (auto& shard : world.shards) CHECK(shard->device.stream_count() >= 1);

  // Where nobody is served any more, whoever calls is told so.
  SECTION("they end well") { works.end_all(); }
  SECTION("they are reset") {
    for (const auto& work : works.all) world.peer->device.kill(work->caller.stream, world.clock.now);
  }
  REQUIRE(world.run_until([&] { return streams_of(world) == 0; }));
  unlisten();
  world.run_for(host::Listeners::kAfterlife);
  core::ConnectOptions call;
  call.remote = world.address();
  call.remote_port = kPort;
  for (int i = 0; i < 12; ++i)
    REQUIRE(world.peer->device.connect(call, *world.peer->make_qp(plain()).qp, world.clock.now));
  world.run_for(milliseconds(10));
  CHECK(witness.device.resets == 12);
}

TEST_CASE("a ping is answered once, in one frame, in fragments or behind other headers", "[sim][shards]") {
  const bool v6 = GENERATE(false, true);
  DividedWorld world(plain_world(GENERATE(Queues::one, Queues::at_random, Queues::steered), v6));
  world.run_for(seconds(1));
  const std::uint8_t protocol = v6 ? wire::protocol::kIcmpV6 : wire::protocol::kIcmp;
  std::vector<sim::Frame> ping;
  SECTION("in one frame") { ping.push_back(to_device(world, protocol, echo_request(world, 100))); }
  SECTION("in fragments") { ping = in_fragments(world, protocol, echo_request(world, 1000), 504); }
  SECTION("behind other headers") {
    test::Octets behind = test::hex("3a00010400000000");
    test::append(behind, echo_request(world, 100));
    ping.push_back(to_device(world, v6 ? std::uint8_t{wire::ipv6_next::kDestination} : protocol,
                             v6 ? behind : echo_request(world, 100)));
  }
  Witness witness(world);
  for (const sim::Frame& frame : ping) world.from_peer.send(frame, world.clock.now);
  world.run_for(seconds(2));
  CHECK(witness.device.echoes == 1);
  CHECK(witness.device.errors == 0);
}

TEST_CASE("what every shard gets and nobody wants is complained of once", "[sim][shards]") {
  DividedWorld world(plain_world(GENERATE(Queues::one, Queues::at_random), true));
  world.run_for(seconds(1));
  std::vector<sim::Frame> bad;
  SECTION("a header that nobody knows, behind one that is known") {
    test::Octets behind = test::hex("fd00010400000000");
    bad.push_back(to_device(world, wire::ipv6_next::kDestination, behind));
  }
  SECTION("an option that nobody knows and that is to be told of") {
    test::Octets behind = test::hex("3a00830400000000");
    test::append(behind, echo_request(world, 100));
    bad.push_back(to_device(world, wire::ipv6_next::kDestination, behind));
  }
  SECTION("fragments of a datagram") {
    bad = in_fragments(world, wire::protocol::kUdp,
                       test::frames::udp(9, 9, world.peer_address(), world.address(), test::pattern(1000)), 504);
  }
  SECTION("a packet whose rest does not come") {
    bad = in_fragments(world, wire::protocol::kIcmpV6, echo_request(world, 1000), 504);
    bad.pop_back();
  }
  Witness witness(world);
  for (const sim::Frame& frame : bad) world.from_peer.send(frame, world.clock.now);
  world.run_for(seconds(100));
  CHECK(witness.device.errors == 1);
  CHECK(witness.device.echoes == 0);
}

TEST_CASE("a solicitation behind other headers is answered once", "[sim][shards]") {
  DividedWorld world(plain_world(GENERATE(Queues::one, Queues::at_random), true));
  world.run_for(seconds(1));
  test::Octets message(wire::NeighbourMessage::kSizeMax);
  message.resize(wire::emit(
      wire::NeighbourMessage{.target = world.address(), .link_address = wire::Mac{{2, 0, 0, 0, 0, 9}}}, message));
  wire::icmp6_set_checksum(message, world.peer_address(), world.address());
  test::Octets behind = test::hex("3a00010400000000");
  test::append(behind, message);
  sim::Frame frame = to_device(world, wire::ipv6_next::kDestination, behind);
  frame[14 + 7] = std::byte{255};
  Witness witness(world);
  world.from_peer.send(frame, world.clock.now);
  world.run_for(milliseconds(100));
  CHECK(witness.device.answered == 1);
}

TEST_CASE("what a router says of a packet that is too big its connection hears, at whatever shard", "[sim][shards]") {
  const bool v6 = GENERATE(false, true);
  DividedOptions options = plain_world(GENERATE(Queues::one, Queues::at_random, Queues::steered), v6);
  options.link.delay = milliseconds(5);
  DividedWorld world(options);
  Works works(world, 1);
  for (auto& shard : world.shards) works.call(*shard, world.peer_address());
  REQUIRE(world.run_until([&] { return works.all_done(); }));
  const auto mss = [&](unsigned shard) { return world.shards[shard]->device.streams()[0].mss_bytes; };
  const std::uint32_t full = mss(0);
  unsigned said = 0;
  world.to_peer.on_too_large([&](Bytes frame) {
    ++said;
    const Bytes packet = frame.subspan(14);
    world.from_peer.send(
        v6 ? to_device(world, wire::protocol::kIcmpV6,
                       test::frames::icmp6({.type = wire::icmp6_type::kPacketTooBig, .rest = 1400}, packet.first(60),
                                           world.peer_address(), world.address()))
           : to_device(world, wire::protocol::kIcmp,
                       test::frames::icmp({.type = wire::icmp_type::kUnreachable, .code = 4, .rest = 1400},
                                          packet.first(28))),
        world.clock.now);
  });
  sim::LinkOptions narrow = options.link;
  narrow.frame_max_bytes = 1400 + 14;
  world.to_peer.set_options(narrow);
  for (unsigned i = 0; i < 3; ++i) {
    CHECK(mss(i) == full);
    Memory from(*world.shards[i], 50'000), to(*world.peer, 50'000);
    std::fill(from.octets.begin(), from.octets.end(), std::byte{7});
    qp::WorkRequest write;
    write.opcode = qp::Opcode::write;
    write.sge_count = 1;
    write.sges[0] = from.sge();
    write.remote_stag = to.stag;
    write.remote_to = to.at();
    world.wake(*world.shards[i]);
    world.shards[i]->post_send(*works.all[i]->caller.endpoint, write);
    REQUIRE(world.run_until([&] { return to.octets == from.octets; }, seconds(20)));
    CHECK(mss(i) == full - 100);
  }
  CHECK(said >= 3);
}

TEST_CASE("connections outlive their link's absence, which the first shard alone tells of", "[sim][shards]") {
  const bool v6 = GENERATE(false, true);
  const Queues queues = GENERATE(Queues::one, Queues::at_random, Queues::steered);
  DividedOptions options = plain_world(queues, v6);
  options.link.delay = milliseconds(1);
  DividedWorld world(options);
  world.run_for(seconds(1));
  Works works(world, 1);
  Witness witness(world);
  for (int i = 0; i < 6; ++i) works.call(*world.peer, world.address());
  for (auto& shard : world.shards) works.call(*shard, world.peer_address());
  world.run_for(milliseconds(6));
  REQUIRE_FALSE(works.all_done());
  world.set_link_up(false);
  world.run_for(milliseconds(700));
  CHECK(witness.device.announced == 0);
  world.set_link_up(true);
  REQUIRE(world.run_until([&] { return works.all_done(); }));
  CHECK(works.complaint.empty());
  CHECK(world.complaint.empty());
  for (const auto& work : works.all) CHECK(work->is_right());
  world.run_for(seconds(1));
  CHECK(witness.device.announced == (v6 ? 2 : 1));
}
