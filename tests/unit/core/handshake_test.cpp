// What a device does for those who have only an address to their name: half-open connections, SYN
// floods, scans, and what TIME-WAIT says. A stranger speaks to B segment by segment.
#include <algorithm>
#include <map>

#include "host/flow.hpp"
#include "host/listeners.hpp"
#include "kit/allocations.hpp"
#include "kit/catch.hpp"
#include "kit/frames.hpp"
#include "mpa/startup.hpp"
#include "sim/stranger.hpp"

using namespace rnic;
using core::StreamEvent;
using sim::Stranger;
using sim::World;
using sim::WorldOptions;
namespace flag = wire::tcp_flags;

namespace {

constexpr std::uint16_t kPort = 7471;

wire::TcpHeader syn(std::uint32_t sequence) {
  wire::TcpHeader header;
  header.flags = flag::kSyn;
  header.sequence = sequence;
  header.window = 65535;
  header.mss = 1460;
  header.sack_permitted = true;
  header.window_scale = 7;
  return header;
}

// A whole one, of Revision 1.
const std::string kRequest = std::string("MPA ID Req Frame") + std::string{0x40, 1, 0, 0};

// What the peer of `answer`, a SYN-ACK, says next.
wire::TcpHeader third(const wire::TcpHeader& answer, std::uint32_t sequence) {
  wire::TcpHeader header;
  header.flags = flag::kAck;
  header.sequence = sequence;
  header.acknowledgement = answer.sequence + 1;
  header.window = 65535;
  return header;
}

wire::TcpHeader plain(std::uint8_t flags, std::uint32_t sequence, std::uint32_t acknowledgement = 0) {
  wire::TcpHeader header;
  header.flags = flags;
  header.sequence = sequence;
  header.acknowledgement = acknowledgement;
  header.window = 65535;
  return header;
}

qp::Config config() {
  qp::Config config;
  config.ird = config.ord = 4;
  return config;
}

// A's QP dials; B accepts.
bool connects(World& world) {
  world.b.on_event = [&](const StreamEvent& event) {
    if (event.kind != StreamEvent::Kind::connect_request) return;
    sim::Endpoint& b = world.b.make_qp(config());
    REQUIRE(world.b.device.accept(event.stream, {.ird = 4, .ord = 4, .private_data = {}, .cookie = 5}, *b.qp,
                                  world.clock.now));
  };
  world.a.events.clear();
  sim::Endpoint& a = world.a.make_qp(config());
  core::ConnectOptions options;
  options.remote = sim::kAddressB;
  options.remote_port = kPort;
  options.ird = options.ord = 4;
  if (!world.a.device.connect(options, *a.qp, world.clock.now)) return false;
  return world.run_until(
      [&] {
        return std::any_of(world.a.events.begin(), world.a.events.end(),
                           [](const StreamEvent& e) { return e.kind == StreamEvent::Kind::established; });
      },
      seconds(20));
}

// SYNs from as many different places as there are ports, of each of 200 addresses in turn.
struct Flood {
  std::uint32_t next = 0;
  void send(Stranger& stranger, unsigned count) {
    for (unsigned i = 0; i < count; ++i, ++next) {
      wire::TcpHeader header = syn(next * 77);
      header.source_port = static_cast<std::uint16_t>(1024 + next / 200);
      stranger.sends(wire::IpAddress::v4(0x0A000000 + 10 + next % 200), header);
    }
  }
};

}  // namespace

TEST_CASE("W-TCP-01: a SYN alone makes no stream, and its answer is sent five times again, then forgotten",
          "[core][W-TCP-01]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  const Instant start = world.clock.now;
  stranger.says(syn(100));
  CHECK(world.b.device.half_open_count() == 1);
  world.run_for(seconds(200));
  CHECK(world.b.device.half_open_count() == 0);
  CHECK(world.b.device.stream_count() == 0);
  std::vector<std::int64_t> at_seconds;
  for (const auto& each : stranger.heard) {
    CHECK(each.header.flags == (flag::kSyn | flag::kAck));
    CHECK(each.header.acknowledgement == 101);
    CHECK(each.header.sequence == stranger.heard[0].header.sequence);
    at_seconds.push_back((each.at - start).ns / 1'000'000'000);
  }
  CHECK(at_seconds == std::vector<std::int64_t>{0, 1, 3, 7, 15, 31});
  CHECK(world.b.device.next_deadline() == kNever);
}

TEST_CASE("W-TCP-01: the third segment, or data in its place, makes the stream; a RST in its place ends it",
          "[core][W-TCP-01]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  stranger.says(syn(100));
  const wire::TcpHeader answer = stranger.take()[0].header;
  CHECK(answer.window_scale);
  CHECK(answer.sack_permitted);
  SECTION("the third segment") { stranger.says(third(answer, 101)); }
  SECTION("data") { stranger.says(third(answer, 101), "MPA"); }
  SECTION("a RST") {
    stranger.says(plain(flag::kRst, 101));
    CHECK(world.b.device.half_open_count() == 0);
    CHECK(world.b.device.stream_count() == 0);
    CHECK(stranger.heard.empty());
    return;
  }
  CHECK(world.b.device.half_open_count() == 0);
  REQUIRE(world.b.device.stream_count() == 1);
  CHECK(world.b.device.streams()[0].tcp_state == std::string("ESTABLISHED"));
}

TEST_CASE("W-TCP-16: a Request on the handshake's third ACK is heard, through a cookie too", "[core][W-TCP-16]") {
  const bool through_cookie = GENERATE(false, true);
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  if (through_cookie) {
    Flood{}.send(stranger, 64);
    world.run_for(milliseconds(10));
    stranger.heard.clear();
  }
  stranger.says(syn(100));
  const wire::TcpHeader answer = stranger.take().at(0).header;
  std::string request = "MPA ID Req Frame";
  request += {0x40, 1, 0, 3};  // CRC, Revision 1, three octets of private data
  stranger.says(third(answer, 101), request + "abc");
  CHECK(world.b.device.counters().cookies_good == (through_cookie ? 1 : 0));
  REQUIRE(world.b.events.size() == 1);
  CHECK(world.b.events[0].kind == StreamEvent::Kind::connect_request);
  CHECK(world.b.events[0].private_data.length == 3);
  CHECK(world.b.device.streams().at(0).tcp.bytes_in == request.size() + 3);
}

TEST_CASE("a listener that is closed resets connections whose Request has not come", "[core]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  stranger.says(syn(100));
  stranger.says(third(stranger.take()[0].header, 101));
  REQUIRE(world.b.device.stream_count() == 1);
  world.b.device.unlisten({}, kPort, world.clock.now);
  world.run_for(milliseconds(1));
  CHECK(world.b.device.stream_count() == 0);
  REQUIRE(stranger.heard.size() == 1);
  CHECK(stranger.heard[0].header.has(flag::kRst));
}

TEST_CASE("W-TCP-01: a SYN repeated is answered with the same numbers; another one is challenged", "[core][W-TCP-01]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  stranger.says(syn(100));
  const wire::TcpHeader answer = stranger.take()[0].header;
  stranger.says(syn(100));
  REQUIRE(stranger.heard.size() == 1);
  CHECK(stranger.take()[0].header.sequence == answer.sequence);
  stranger.says(syn(5000));
  REQUIRE(stranger.heard.size() == 1);
  CHECK(stranger.heard[0].header.flags == flag::kAck);
  CHECK(stranger.heard[0].header.acknowledgement == 101);
  CHECK(world.b.device.half_open_count() == 1);
  // A peer that has forgotten its first SYN answers that with a RST, and its next SYN is heard.
  stranger.says(plain(flag::kRst, 101));
  stranger.says(syn(5000));
  CHECK(stranger.heard.back().header.flags == (flag::kSyn | flag::kAck));
  CHECK(stranger.heard.back().header.acknowledgement == 5001);
}

TEST_CASE("W-TCP-01: a third segment with a wrong acknowledgement is refused, and the SYN still stands",
          "[core][W-TCP-01]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  stranger.says(syn(100));
  const wire::TcpHeader answer = stranger.take()[0].header;
  stranger.says(plain(flag::kAck, 101, answer.sequence + 2));
  REQUIRE(stranger.heard.size() == 1);
  CHECK(stranger.heard[0].header.flags == flag::kRst);
  CHECK(stranger.heard[0].header.sequence == answer.sequence + 2);
  stranger.says(third(answer, 101));
  CHECK(world.b.device.stream_count() == 1);
}

TEST_CASE("W-TCP-01: 100,000 SYNs take no memory and no buffers, and who means it gets through", "[core][W-TCP-01]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  const std::uint32_t buffers = world.b.port.pool().available();
  Flood flood;
  flood.send(stranger, 2'000);  // ARP entries and the like
  world.run_for(milliseconds(10));
  std::uint64_t allocated = 0;
  for (int i = 0; i < 490; ++i) {
    flood.send(stranger, 200);
    world.clock.now = world.clock.now + microseconds(100);
    const std::uint64_t before = test::allocations();
    world.b.device.receive(world.clock.now);
    allocated += test::allocations() - before;
    world.run_for(microseconds(100));
    stranger.heard.clear();
  }
  CHECK(flood.next == 100'000);
  CHECK(allocated == 0);
  CHECK(world.b.device.stream_count() == 0);
  CHECK(world.b.device.half_open_count() == 64);  // a quarter of the 256 streams of a simulated device
  CHECK(world.b.device.counters().cookies_sent > 10'000);
  SECTION("through a cookie, in the middle of it") {
    CHECK(connects(world));
    CHECK(world.b.device.counters().cookies_good == 1);
  }
  SECTION("as ever, when it is over") {
    world.run_for(seconds(64));
    CHECK(world.b.device.half_open_count() == 0);
    CHECK(connects(world));
    CHECK(world.b.device.counters().cookies_good == 0);
  }
  world.run_for(seconds(1));
  CHECK(world.b.port.pool().available() + 32 >= buffers);  // 32: the device's own stock for control
}

TEST_CASE("W-TCP-12: under a flood scale and SACK are kept in timestamps, or not agreed on", "[core][W-TCP-12]") {
  WorldOptions options;
  options.a.device.tcp.timestamps = options.b.device.tcp.timestamps = true;
  World world(options);
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  Flood{}.send(stranger, 64);
  world.run_for(milliseconds(10));
  REQUIRE(world.b.device.half_open_count() == 64);
  stranger.heard.clear();
  SECTION("without") {
    stranger.says(syn(100));
    CHECK_FALSE(stranger.heard.at(0).header.window_scale);
    CHECK_FALSE(stranger.heard[0].header.sack_permitted);
    CHECK_FALSE(stranger.heard[0].header.timestamps);
    CHECK(stranger.heard[0].header.mss == 1460);
  }
  SECTION("with") {
    auto header = syn(100);
    header.timestamps = {9000, 0};
    stranger.says(header);
    const wire::TcpHeader answer = stranger.take().at(0).header;
    CHECK(answer.window_scale);
    CHECK(answer.sack_permitted);
    REQUIRE(answer.timestamps);
    CHECK(answer.timestamps->echo == 9000);
    // The same SYN with other options, at the same moment.
    header.window_scale.reset();
    header.sack_permitted = false;
    stranger.sends(Stranger::kAddress, header);
    header.window_scale = 7;
    stranger.sends(Stranger::kAddress, header);
    world.run_for(microseconds(100));
    REQUIRE(stranger.heard.size() == 2);
    CHECK(stranger.heard[0].header.timestamps->value != stranger.heard[1].header.timestamps->value);
    stranger.heard.clear();
    auto next = third(answer, 101);
    next.timestamps = {9001, answer.timestamps->value};
    stranger.says(next);
    REQUIRE(world.b.device.stream_count() == 1);
    CHECK(world.b.device.streams()[0].mss_bytes == 1448);
    // And the clock goes on from there.
    auto fin = plain(flag::kAck | flag::kFin, 101, answer.sequence + 1);
    fin.timestamps = next.timestamps;
    stranger.says(fin);
    REQUIRE(stranger.heard.at(0).header.timestamps);
    CHECK(stranger.heard[0].header.timestamps->value - answer.timestamps->value < 64);
    CHECK(stranger.heard[0].header.window == ((1u << 20) - 1) >> 5);
  }
}

namespace {

// An IPv4 header of B's, and of the segment behind it as much as routers quote.
std::vector<std::byte> quote(const wire::TcpHeader& segment) {
  return test::frames::quote({.total_length = 40, .source = sim::kAddressB, .destination = Stranger::kAddress},
                             segment);
}

struct IcmpKind {
  std::uint8_t type, code;
};
constexpr IcmpKind kUnreachable[] = {{3, 0}, {3, 1}, {3, 2}, {3, 3}, {3, 5}, {3, 13}};
constexpr IcmpKind kHints[] = {{11, 0}, {11, 1}, {12, 0}, {4, 0}};  // time, parameter problem, source quench

}  // namespace

TEST_CASE("W-TCP-01: what ICMP says ends no connection that stands (MUST-55, MUST-56)", "[core][W-TCP-01]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  stranger.says(syn(100));
  wire::TcpHeader ours = stranger.take()[0].header;
  stranger.says(third(ours, 101));
  ++ours.sequence;
  const auto before = world.b.device.streams().at(0);
  const auto hears = [&](const IcmpKind& kind) {
    CAPTURE(int{kind.type}, int{kind.code});
    stranger.sends_icmp(kind.type, kind.code, 0, quote(ours));
    world.run_for(milliseconds(1));
    REQUIRE(world.b.device.stream_count() == 1);
    CHECK(world.b.device.streams()[0].tcp_state == std::string("ESTABLISHED"));
    CHECK(world.b.device.streams()[0].congestion_window_bytes == before.congestion_window_bytes);
  };
  for (const IcmpKind& kind : kUnreachable) hears(kind);
  for (const IcmpKind& kind : kHints) hears(kind);
  CHECK(stranger.heard.empty());
}

TEST_CASE("W-TCP-01: what ICMP says of a call: unreachable ends it, and is told; all else does not (SHLD-25, SHLD-26)",
          "[core][W-TCP-01]") {
  World world({});
  Stranger stranger(world);
  sim::Endpoint& b = world.b.make_qp(config());
  core::ConnectOptions options;
  options.remote = Stranger::kAddress;
  options.remote_port = 99;
  REQUIRE(world.b.device.connect(options, *b.qp, world.clock.now));
  world.run_for(milliseconds(10));
  REQUIRE(stranger.heard.size() == 1);
  const wire::TcpHeader ours = stranger.heard[0].header;
  for (const IcmpKind& kind : kHints) {
    stranger.sends_icmp(kind.type, kind.code, 0, quote(ours));
    world.run_for(milliseconds(1));
    CHECK(world.b.events.empty());
  }
  const IcmpKind kind = GENERATE(from_range(std::begin(kUnreachable), std::end(kUnreachable)));
  for (const int off : {-1, 3}) {  // not of our segment: somebody guesses
    wire::TcpHeader other = ours;
    other.sequence += static_cast<std::uint32_t>(off);
    stranger.sends_icmp(kind.type, kind.code, 0, quote(other));
    world.run_for(milliseconds(1));
    CHECK(world.b.events.empty());
  }
  stranger.sends_icmp(kind.type, kind.code, 0, quote(ours));
  world.run_for(milliseconds(1));
  REQUIRE(world.b.events.size() == 1);
  CHECK(world.b.events[0].kind == StreamEvent::Kind::failed);
  CHECK(world.b.events[0].failure == core::StreamFailure::unreachable);
}

TEST_CASE("W-TCP-01: an acknowledgement of no cookie of ours is refused, flood or not", "[core][W-TCP-01]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  stranger.says(plain(flag::kAck, 1, 5555));
  REQUIRE(stranger.heard.size() == 1);
  CHECK(stranger.heard[0].header.flags == flag::kRst);
  Flood{}.send(stranger, 65);
  world.run_for(milliseconds(10));
  CHECK(world.b.device.counters().cookies_sent == 1);
  stranger.heard.clear();
  stranger.says(plain(flag::kAck, 1, 5555));
  REQUIRE(stranger.heard.size() == 1);
  CHECK(stranger.heard[0].header.flags == flag::kRst);
  CHECK(world.b.device.stream_count() == 0);
}

TEST_CASE("W-TCP-01: octets for nobody are thrown away for a while, then refused (SHLD-3)", "[core][W-TCP-01]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  stranger.says(syn(100));
  const wire::TcpHeader answer = stranger.take()[0].header;
  stranger.says(third(answer, 101), "no Request of MPA's");
  const wire::TcpHeader fin = stranger.take().back().header;
  REQUIRE(fin.has(flag::kFin));
  const std::string octets(1024, 'x');
  std::uint32_t sequence = fin.acknowledgement;
  const auto resets = [&] {
    return std::count_if(stranger.heard.begin(), stranger.heard.end(),
                         [](const Stranger::Heard& heard) { return heard.header.has(flag::kRst); });
  };
  for (int i = 0; i < 1024; ++i, sequence += 1024) stranger.says(plain(flag::kAck, sequence, fin.sequence + 1), octets);
  CHECK(resets() == 0);
  CHECK(stranger.take().back().header.acknowledgement == sequence);
  for (int i = 0; i < 2; ++i, sequence += 1024) stranger.says(plain(flag::kAck, sequence, fin.sequence + 1), octets);
  CHECK(resets() > 0);
  CHECK(world.b.device.stream_count() == 0);
}

TEST_CASE("a full backlog keeps a finished handshake waiting, and takes it when there is room", "[core]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 1, 77));
  Stranger stranger(world);
  const auto call = [&](std::uint16_t port, std::uint32_t sequence) {
    stranger.source_port = port;
    stranger.says(syn(sequence));
    return stranger.take().at(0).header;
  };
  const wire::TcpHeader first = call(3000, 100);
  CHECK(first.window == 65535);
  // Whoever may not fit is answered as well, and asked to say nothing yet.
  const wire::TcpHeader second = call(3001, 500), last = call(3002, 900);
  CHECK(second.window == 0);
  CHECK(last.window == 0);
  stranger.says(third(last, 901), kRequest);
  REQUIRE(world.b.events.size() == 1);
  REQUIRE(world.b.device.stream_count() == 1);
  // There was room: it hears so at once, or it would wait for ever.
  REQUIRE(stranger.heard.size() == 1);
  CHECK(stranger.heard[0].header.window > 0);
  CHECK(stranger.take()[0].header.flags == flag::kAck);

  // The second before the first: in this order they wait.
  stranger.source_port = 3001;
  stranger.says(third(second, 501));
  stranger.source_port = 3000;
  stranger.says(third(first, 101), "abc");
  CHECK(world.b.device.stream_count() == 1);
  CHECK(world.b.device.half_open_count() == 2);
  CHECK(world.b.device.counters().backlog_waits == 2);
  CHECK(stranger.heard.empty());
  // One whose window is shut asks now and then, and must hear that somebody is there.
  stranger.source_port = 3001;
  stranger.says(third(second, 501), "a");
  REQUIRE(stranger.heard.size() == 1);
  CHECK(stranger.heard[0].header.acknowledgement == 501);
  CHECK(stranger.take()[0].header.window == 0);
  CHECK(world.b.device.counters().backlog_waits == 2);

  const auto answered = [&](std::size_t event) {
    REQUIRE(world.b.events.size() == event + 1);
    REQUIRE(world.b.device.reject(world.b.events[event].stream, {}, world.clock.now));
    world.run_for(milliseconds(1));
  };
  answered(0);
  // Neither has asked, so neither has the place; the one whose window was shut hears that it is open.
  CHECK(world.b.device.half_open_count() == 0);
  CHECK(world.b.device.stream_count() == 3);
  std::vector<std::uint16_t> opened;
  for (const Stranger::Heard& each : stranger.take())
    if (each.header.destination_port != 3002 && each.header.window > 0) opened.push_back(each.header.destination_port);
  CHECK(opened == std::vector<std::uint16_t>{3001});
  // What was said was not kept, and comes again. Who asks first has the place.
  stranger.source_port = 3000;
  stranger.says(third(first, 101), kRequest);
  REQUIRE(world.b.events.size() == 2);
  CHECK(world.b.events[1].remote_port == 3000);
  stranger.source_port = 3001;
  stranger.says(third(second, 501), kRequest);
  CHECK(world.b.events.size() == 2);
  CHECK(world.b.device.counters().backlog_waits == 3);
  answered(1);
  REQUIRE(world.b.events.size() == 3);
  CHECK(world.b.events[2].remote_port == 3001);
  CHECK(world.b.device.counters().syns_dropped == 0);
}

TEST_CASE("who has asked and waits in line may give up, is let go after a minute, and ends with the listener",
          "[core]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 1, 77));
  Stranger stranger(world);
  const auto third_of = [&](std::uint16_t port) {
    stranger.source_port = port;
    stranger.says(syn(port));
    return third(stranger.take().back().header, port + 1u);
  };
  const wire::TcpHeader first = third_of(3000), second = third_of(3001);
  stranger.says(second);
  stranger.source_port = 3000;
  stranger.says(first, kRequest);
  stranger.source_port = 3001;
  stranger.says(second, kRequest);
  REQUIRE(world.b.events.size() == 1);
  REQUIRE(world.b.device.stream_count() == 2);
  REQUIRE(world.b.device.counters().backlog_waits == 1);
  stranger.heard.clear();
  SECTION("a RST") {
    stranger.says(plain(flag::kRst, 3002 + static_cast<std::uint32_t>(kRequest.size())));
    world.run_for(milliseconds(1));
    CHECK(world.b.device.stream_count() == 1);
  }
  SECTION("octets behind the Request") {
    stranger.says(plain(flag::kAck, 3002 + static_cast<std::uint32_t>(kRequest.size()), second.acknowledgement), "x");
    world.run_for(milliseconds(1));
    CHECK(world.b.device.stream_count() == 1);
  }
  SECTION("a minute") {
    world.run_for(seconds(59));
    CHECK(world.b.device.stream_count() == 2);
    world.run_for(seconds(40));
    CHECK(world.b.device.stream_count() == 1);
  }
  SECTION("the listener ends") {
    world.b.device.unlisten({}, kPort, world.clock.now);
    world.run_for(milliseconds(1));
    CHECK(world.b.device.stream_count() == 1);  // the one that was told of
    CHECK(std::any_of(stranger.heard.begin(), stranger.heard.end(), [](const Stranger::Heard& each) {
      return each.header.destination_port == 3001 && each.header.has(flag::kRst);
    }));
    return;
  }
  // Nobody is in line any more, and the place is free when the first has its answer.
  REQUIRE(world.b.device.reject(world.b.events[0].stream, {}, world.clock.now));
  world.run_for(milliseconds(1));
  CHECK(world.b.events.size() == 1);
  REQUIRE(connects(world));
}

TEST_CASE("who waits for a place in the backlog may give up, and is let go after a minute", "[core]") {
  WorldOptions patient;
  patient.a.device.reply_timeout = seconds(600);
  World world(patient);
  REQUIRE(world.b.device.listen({}, kPort, 1, 77));
  sim::Endpoint& holder = world.a.make_qp(config());
  core::ConnectOptions options;
  options.remote = sim::kAddressB;
  options.remote_port = kPort;
  options.ird = options.ord = 4;
  world.b.events.clear();
  REQUIRE(world.a.device.connect(options, *holder.qp, world.clock.now));
  REQUIRE(world.run_until([&] { return world.b.events.size() == 1; }, seconds(1)));  // asked, and not answered
  const std::size_t streams = world.b.device.stream_count();
  Stranger stranger(world);
  stranger.says(syn(100));
  stranger.says(third(stranger.take()[0].header, 101));
  REQUIRE(world.b.device.counters().backlog_waits == 1);
  REQUIRE(world.b.device.half_open_count() == 1);
  SECTION("a RST") {
    stranger.says(plain(flag::kRst, 101));
    CHECK(world.b.device.half_open_count() == 0);
  }
  SECTION("the listener ends") {
    world.b.device.unlisten({}, kPort, world.clock.now);
    world.run_for(milliseconds(1));
    CHECK(world.b.device.half_open_count() == 0);
    REQUIRE(stranger.heard.size() == 1);
    CHECK(stranger.heard[0].header.has(flag::kRst));
    CHECK(stranger.heard[0].header.acknowledgement == 101);
  }
  SECTION("a minute") {
    world.run_for(seconds(59));
    CHECK(world.b.device.half_open_count() == 1);
    world.run_for(seconds(2));
    CHECK(world.b.device.half_open_count() == 0);
    CHECK(world.b.device.stream_count() == streams);
    CHECK(world.b.device.counters().backlog_waits == 1);
  }
}

TEST_CASE("those who connect and do not ask take no place in the backlog, however small it is", "[core]") {
  const std::uint32_t backlog = GENERATE(1u, 3u, 128u);
  const bool half_a_request = GENERATE(false, true);
  CAPTURE(backlog, half_a_request);
  WorldOptions options;
  options.b.streams_max = 2048;
  World world(options);
  REQUIRE(world.b.device.listen({}, kPort, backlog, 77));
  Stranger stranger(world);
  for (std::uint16_t port = 3000; port < 3000 + 200; ++port) {
    stranger.source_port = port;
    stranger.says(syn(port));
    stranger.says(third(stranger.take().back().header, port + 1u), half_a_request ? "MPA ID" : "");
  }
  REQUIRE(world.b.device.stream_count() == 200);
  const Instant start = world.clock.now;
  for (int i = 0; i < 5; ++i) REQUIRE(connects(world));
  CHECK(world.clock.now - start < milliseconds(100));
  CHECK(world.b.device.counters().backlog_waits == 0);
  CHECK(world.b.device.stream_count() == 205);
}

TEST_CASE("of those who connect and do not ask so many are kept, and the oldest goes first", "[core]") {
  WorldOptions options;
  options.b.streams_max = 2048;
  World world(options);
  REQUIRE(world.b.device.listen({}, kPort, 3, 77));
  Stranger stranger(world);
  constexpr std::uint16_t kFirst = 3000, kTooMany = 5;
  std::vector<std::uint16_t> reset;
  for (std::uint16_t i = 0; i < host::Listeners::kSilentMax + kTooMany; ++i) {
    stranger.source_port = static_cast<std::uint16_t>(kFirst + i);
    stranger.says(syn(i));
    wire::TcpHeader answer;
    for (const Stranger::Heard& each : stranger.take()) {
      if (each.header.has(flag::kRst)) reset.push_back(each.header.destination_port);
      if (each.header.has(flag::kSyn)) answer = each.header;
    }
    stranger.says(third(answer, i + 1u));
  }
  for (const Stranger::Heard& each : stranger.take())
    if (each.header.has(flag::kRst)) reset.push_back(each.header.destination_port);
  CHECK(world.b.device.stream_count() == host::Listeners::kSilentMax);
  CHECK(reset == std::vector<std::uint16_t>{3000, 3001, 3002, 3003, 3004});
  REQUIRE(connects(world));
}

TEST_CASE("the silent of all listeners together leave seven eighths of the streams", "[core]") {
  World world({});  // 256 streams
  constexpr std::uint16_t kListeners = 16, kEach = 32;
  REQUIRE(world.b.device.listen({}, kPort, 3, 77));
  for (std::uint16_t i = 1; i <= kListeners; ++i)
    REQUIRE(world.b.device.listen({}, static_cast<std::uint16_t>(kPort + i), 3, 77));
  Stranger stranger(world);
  const auto keeps_silent = [&](std::uint16_t port, std::uint16_t from) {
    stranger.source_port = from;
    stranger.destination_port = port;
    stranger.take();
    stranger.says(syn(from));
    for (const Stranger::Heard& each : stranger.take())
      if (each.header.has(flag::kSyn)) stranger.says(third(each.header, from + 1u));
  };
  keeps_silent(kPort, 2999);  // it was first, and its listener has few
  for (std::uint16_t i = 0; i < kListeners * kEach; ++i)
    keeps_silent(static_cast<std::uint16_t>(kPort + 1 + i % kListeners), static_cast<std::uint16_t>(3000 + i));
  CHECK(world.b.device.stream_count() == 32);
  for (std::uint16_t i = 0; i < 200; ++i) keeps_silent(kPort + 1, static_cast<std::uint16_t>(4000 + i));
  CHECK(world.b.device.stream_count() == 32);
  // Of one listener that has more than a few its own went: the other fifteen keep the rest.
  std::map<std::uint16_t, int> of;
  for (const auto& each : world.b.device.streams()) ++of[each.local_port];
  CHECK(of[kPort + 1] == 9);
  REQUIRE(connects(world));
}

TEST_CASE("W-TCP-01: a flood of SYNs takes no place in a small backlog", "[core][W-TCP-01]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 2, 77));
  Stranger stranger(world);
  Flood flood;
  flood.send(stranger, 40);
  world.run_for(milliseconds(10));
  REQUIRE(world.b.device.half_open_count() == 40);
  const Instant start = world.clock.now;
  REQUIRE(connects(world));  // told to wait, and then at once that there is a place
  CHECK(world.clock.now - start < milliseconds(100));
  CHECK(world.b.device.counters().backlog_waits == 0);
  CHECK(world.b.device.counters().syns_dropped == 0);
}

TEST_CASE("W-TCP-01: a cookie that comes back to a full backlog waits like others", "[core][W-TCP-01]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 1, 77));
  Stranger stranger(world);
  stranger.says(syn(100));
  stranger.says(third(stranger.take()[0].header, 101), kRequest);  // has the place
  stranger.heard.clear();
  Flood flood;
  flood.send(stranger, 64);
  world.run_for(milliseconds(10));
  REQUIRE(world.b.device.half_open_count() == 64);
  stranger.heard.clear();
  stranger.source_port = 3001;
  stranger.says(syn(500));
  const wire::TcpHeader cookie = stranger.take().at(0).header;
  REQUIRE(world.b.device.counters().cookies_sent == 1);
  stranger.says(third(cookie, 501));
  CHECK(world.b.device.counters().syns_dropped == 1);  // no entry to wait in
  world.run_for(seconds(64));                          // the flood is forgotten
  REQUIRE(world.b.device.half_open_count() == 0);
  stranger.says(third(cookie, 501));
  CHECK(world.b.device.counters().cookies_good == 1);
  CHECK(world.b.device.counters().backlog_waits == 1);
  REQUIRE(world.b.device.stream_count() == 1);
  REQUIRE(world.b.device.reject(world.b.events.at(0).stream, {}, world.clock.now));
  world.run_for(milliseconds(1));
  const auto streams = world.b.device.streams();
  CHECK(std::any_of(streams.begin(), streams.end(), [](const auto& each) { return each.remote_port == 3001; }));
}

TEST_CASE("where only memory is between, a SYN-ACK comes again after 10 ms, doubling up to a second, and then as ever",
          "[core][W-TCP-01]") {
  WorldOptions options;
  options.b.device.tcp.syn_wait_first = milliseconds(10);
  World world(options);
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  const Instant start = world.clock.now;
  stranger.says(syn(100));
  world.run_for(seconds(200));
  std::vector<std::int64_t> at_ms;
  for (const auto& each : stranger.heard) at_ms.push_back((each.at - start).ns / 1'000'000);
  CHECK(at_ms == std::vector<std::int64_t>{0, 10, 30, 70, 150, 310, 630, 1270, 2270, 4270, 8270, 16270, 32270});
  CHECK(world.b.device.half_open_count() == 0);
}

TEST_CASE("W-TCP-01: a scan of every port is refused, a share in each turn, and leaves nothing behind",
          "[core][W-TCP-01]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  stranger.says(plain(flag::kRst, 1));  // nobody answers a RST
  CHECK(stranger.heard.empty());
  std::size_t answers = 0;
  for (std::uint32_t port = 1; port <= 65535; port += 255) {
    for (std::uint32_t each = port; each < std::min(port + 255, 65536u); ++each) {
      if (each == kPort) continue;
      auto header = syn(each);
      header.destination_port = static_cast<std::uint16_t>(each);
      stranger.sends(Stranger::kAddress, header);
    }
    world.clock.now = world.clock.now + microseconds(10);
    const std::size_t before = stranger.heard.size();
    world.b.device.receive(world.clock.now);
    world.b.device.send(world.clock.now);
    CHECK(stranger.heard.size() - before <= 64);
    world.run_for(microseconds(100));
    for (const auto& each : stranger.take()) {
      CHECK(each.header.flags == (flag::kRst | flag::kAck));
      ++answers;
    }
  }
  CHECK(answers > 10'000);
  CHECK(world.b.device.counters().no_listener == 65534);
  CHECK(world.b.device.stream_count() == 0);
  CHECK(world.b.device.half_open_count() == 0);
}

TEST_CASE("W-TCP-01: odd segments to a listener: with ACK a RST, without one silence", "[core][W-TCP-01]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  for (const int flags :
       {0, int{flag::kFin}, flag::kFin | flag::kPsh | flag::kUrg, int{flag::kPsh}, flag::kSyn | flag::kFin}) {
    stranger.says(plain(static_cast<std::uint8_t>(flags), 1), "x");
    CHECK(stranger.heard.empty());
  }
  for (const int flags : {int{flag::kAck}, flag::kSyn | flag::kAck, flag::kAck | flag::kFin}) {
    stranger.says(plain(static_cast<std::uint8_t>(flags), 1, 77));
    REQUIRE(stranger.heard.size() == 1);
    const auto answer = stranger.take()[0].header;
    CHECK(answer.flags == flag::kRst);
    CHECK(answer.sequence == 77);
  }
}

namespace {

// A connection of the stranger's, through, and closed by B first.
struct Closed {
  explicit Closed(World& world, Stranger& stranger) {
    REQUIRE(world.b.device.listen({}, kPort, 8, 77));
    const bool stamps = world.b.device.options().tcp.timestamps;
    auto first = syn(100);
    if (stamps) first.timestamps = {5000, 0};
    stranger.says(first);
    const wire::TcpHeader answer = stranger.take().at(0).header;
    ours = answer.sequence + 1;
    // No MPA Request: B ends the connection itself.
    auto next = third(answer, 101);
    if (stamps) next.timestamps = {5001, answer.timestamps->value};
    stranger.says(next, "nonsense");
    world.run_for(milliseconds(1));
    const auto fin = stranger.take().back().header;
    REQUIRE(fin.has(flag::kFin));
    theirs = fin.acknowledgement;
    auto last = plain(flag::kAck | flag::kFin, theirs, fin.sequence + 1);
    if (stamps) last.timestamps = {5002, fin.timestamps->value};
    stranger.says(last);
    send_next = fin.sequence + 1;
    REQUIRE(world.b.device.stream_count() == 0);
    stranger.heard.clear();
    ++theirs;
  }
  std::uint32_t ours = 0, theirs = 0;  // theirs: RCV.NXT
  std::uint32_t send_next = 0;
};

}  // namespace

TEST_CASE("W-TCP-01: TIME-WAIT answers a repeated FIN, and not too often; a RST does not end it", "[core][W-TCP-01]") {
  World world({});
  Stranger stranger(world);
  const Closed closed(world, stranger);
  stranger.says(plain(flag::kRst, closed.theirs));
  stranger.says(plain(flag::kAck, closed.theirs, closed.send_next));
  CHECK(stranger.heard.empty());
  const auto fin = plain(flag::kAck | flag::kFin, closed.theirs - 1, closed.send_next);
  stranger.says(fin);
  REQUIRE(stranger.heard.size() == 1);
  CHECK(stranger.heard[0].header.flags == flag::kAck);
  CHECK(stranger.heard[0].header.sequence == closed.send_next);
  CHECK(stranger.take()[0].header.acknowledgement == closed.theirs);
  stranger.says(fin);
  CHECK(stranger.heard.empty());
  world.run_for(milliseconds(100));
  stranger.says(fin);
  CHECK(stranger.heard.size() == 1);
}

TEST_CASE("W-TCP-01: TIME-WAIT begins anew with a repeated FIN, and only with that", "[core][W-TCP-01]") {
  World world({});
  Stranger stranger(world);
  const Closed closed(world, stranger);
  world.clock.now = world.clock.now + seconds(40);
  SECTION("a FIN") {
    stranger.says(plain(flag::kAck | flag::kFin, closed.theirs - 1, closed.send_next));
    world.clock.now = world.clock.now + seconds(40);
    world.b.device.run_timers(world.clock.now);
    stranger.heard.clear();
    stranger.says(plain(flag::kAck, closed.theirs + 5, closed.send_next));
    REQUIRE(stranger.heard.size() == 1);
    CHECK(stranger.heard[0].header.flags == flag::kAck);
  }
  SECTION("anything else") {
    stranger.says(plain(flag::kAck, closed.theirs + 5, closed.send_next));
    world.clock.now = world.clock.now + seconds(40);
    world.b.device.run_timers(world.clock.now);
    stranger.heard.clear();
    stranger.says(plain(flag::kAck, closed.theirs + 5, closed.send_next));
    REQUIRE(stranger.heard.size() == 1);
    CHECK(stranger.heard[0].header.flags == flag::kRst);
  }
}

TEST_CASE("W-TCP-01: TIME-WAIT gives way to a later SYN, with numbers behind its own; an old one is told where we are",
          "[core][W-TCP-01]") {
  World world({});
  Stranger stranger(world);
  const Closed closed(world, stranger);
  stranger.says(syn(closed.theirs - 50));
  REQUIRE(stranger.heard.size() == 1);
  CHECK(stranger.take()[0].header.flags == flag::kAck);
  stranger.says(syn(closed.theirs + 50));
  REQUIRE(stranger.heard.size() == 1);
  const auto answer = stranger.take()[0].header;
  CHECK(answer.flags == (flag::kSyn | flag::kAck));
  CHECK(tcp::Seq{answer.sequence}.after({closed.send_next}));
  SECTION("and is gone when the new one is open") {
    stranger.says(third(answer, closed.theirs + 51));
    CHECK(world.b.device.stream_count() == 1);
    // The end of the new one leaves a TIME-WAIT of its own, or none; of the old one nothing is left.
    stranger.says(plain(flag::kRst, closed.theirs + 51));
    stranger.heard.clear();
    stranger.says(plain(flag::kAck | flag::kFin, closed.theirs - 1, closed.send_next));
    CHECK(stranger.heard.at(0).header.flags == flag::kRst);
  }
  SECTION("and is back when nothing becomes of the new one") {
    world.run_for(milliseconds(100));
    stranger.says(plain(flag::kRst, closed.theirs + 51));
    stranger.says(plain(flag::kAck | flag::kFin, closed.theirs - 1, closed.send_next));
    REQUIRE(stranger.heard.size() == 1);
    CHECK(stranger.heard[0].header.flags == flag::kAck);
    CHECK(stranger.heard[0].header.acknowledgement == closed.theirs);
  }
  SECTION("and meanwhile acknowledges the peer's FIN again: the SYN may be somebody else's") {
    world.run_for(milliseconds(100));
    stranger.says(plain(flag::kAck | flag::kFin, closed.theirs - 1, closed.send_next));
    REQUIRE(stranger.heard.size() == 1);
    CHECK(stranger.heard[0].header.flags == flag::kAck);
    CHECK(stranger.heard[0].header.sequence == closed.send_next);
    CHECK(stranger.take()[0].header.acknowledgement == closed.theirs);
    stranger.says(third(answer, closed.theirs + 51));
    CHECK(world.b.device.stream_count() == 1);
  }
  SECTION("but not if its time is over by then") {
    world.clock.now = world.clock.now + seconds(60);
    stranger.says(plain(flag::kRst, closed.theirs + 51));
    stranger.heard.clear();
    stranger.says(plain(flag::kAck | flag::kFin, closed.theirs - 1, closed.send_next));
    CHECK(stranger.heard.at(0).header.flags == flag::kRst);
  }
}

TEST_CASE("W-TCP-01: a connection in the place of one in TIME-WAIT begins behind all that it sent",
          "[core][W-TCP-01]") {
  World world({});
  Stranger stranger(world);
  // B rejects with 200 octets, more than its clock of initial sequence numbers counts meanwhile.
  world.b.on_event = [&](const StreamEvent& event) {
    if (event.kind != StreamEvent::Kind::connect_request) return;
    core::PrivateData data;
    data.length = 200;
    REQUIRE(world.b.device.reject(event.stream, data, world.clock.now));
  };
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  stranger.says(syn(100));
  const wire::TcpHeader answer = stranger.take().at(0).header;
  const mpa::Initiator initiator(mpa::StartupOptions{}, {}, world.clock.now);
  const Bytes request = initiator.request();
  stranger.says(third(answer, 101), std::string(reinterpret_cast<const char*>(request.data()), request.size()));
  const std::uint32_t theirs = 101 + static_cast<std::uint32_t>(request.size());
  const auto reply = stranger.take().back();
  REQUIRE_FALSE(reply.header.has(flag::kFin));
  stranger.says(plain(flag::kAck, theirs, reply.header.sequence + 24 + 200));  // the FIN waits for that
  const auto fin = stranger.take().back().header;
  REQUIRE(fin.has(flag::kFin));
  stranger.says(plain(flag::kAck | flag::kFin, theirs, fin.sequence + 1));
  REQUIRE(world.b.device.stream_count() == 0);
  stranger.heard.clear();
  REQUIRE(fin.sequence - answer.sequence > 200);
  stranger.says(syn(theirs + 50));
  REQUIRE(stranger.heard.size() == 1);
  REQUIRE(stranger.heard[0].header.flags == (flag::kSyn | flag::kAck));
  CHECK(tcp::Seq{stranger.heard[0].header.sequence}.after({fin.sequence}));
}

TEST_CASE("W-TCP-01: no round trip is measured on a SYN-ACK that was sent twice", "[core][W-TCP-01]") {
  World world({});
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  Stranger stranger(world);
  stranger.says(syn(100));
  const bool twice = GENERATE(false, true);
  if (twice) stranger.says(syn(100));
  const wire::TcpHeader answer = stranger.take()[0].header;
  world.run_for(milliseconds(5));
  stranger.says(third(answer, 101));
  REQUIRE(world.b.device.stream_count() == 1);
  CHECK((world.b.device.streams()[0].rtt_us == 0) == twice);
}

TEST_CASE("W-TCP-12: with timestamps TIME-WAIT gives way to a later one, and answers with the peer's last",
          "[core][W-TCP-12]") {
  WorldOptions options;
  options.a.device.tcp.timestamps = options.b.device.tcp.timestamps = true;
  World world(options);
  Stranger stranger(world);
  const Closed closed(world, stranger);
  auto old = syn(closed.theirs + 50);
  old.timestamps = {5001, 0};
  stranger.says(old);
  REQUIRE(stranger.heard.size() == 1);
  CHECK(stranger.heard[0].header.flags == flag::kAck);
  REQUIRE(stranger.heard[0].header.timestamps);
  CHECK(stranger.take()[0].header.timestamps->echo == 5002);
  auto later = syn(closed.theirs - 5000);
  later.timestamps = {5003, 0};
  stranger.says(later);
  REQUIRE(stranger.heard.size() == 1);
  CHECK(stranger.heard[0].header.flags == (flag::kSyn | flag::kAck));
}

TEST_CASE("W-TCP-12: timestamps of one connection after another grow, and of two names begin elsewhere",
          "[core][W-TCP-12]") {
  const host::HashKeys keys = host::HashKeys::from_seed(9);
  const host::Flow flow{wire::IpAddress::v4(10, 0, 0, 1), wire::IpAddress::v4(10, 0, 0, 2), 1, 2};
  host::Flow other = flow;
  other.remote_port = 3;
  CHECK(host::timestamp_offset(flow, keys) == host::timestamp_offset(flow, keys));
  CHECK(host::timestamp_offset(flow, keys) != host::timestamp_offset(other, keys));
  CHECK(host::timestamp_offset(flow, keys) != host::timestamp_offset(flow, host::HashKeys::from_seed(10)));
  CHECK(host::timestamp_offset(flow, keys) != host::initial_sequence(flow, keys, Instant{0}).value);
}
