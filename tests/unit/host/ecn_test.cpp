// Congestion told by marks, through whole devices: IP's two bits in and out, of both versions and behind
// a VLAN tag, with checksums that are looked at.
#include "wire/ecn.hpp"
#include "kit/catch.hpp"
#include "kit/octet_streams.hpp"
#include "sim/plain_world.hpp"
#include "wire/ethernet.hpp"
#include "wire/ipv4.hpp"
#include "wire/ipv6.hpp"
#include "wire/tcp.hpp"

namespace rnic {
namespace {

constexpr std::uint16_t kPort = 7;
constexpr std::uint64_t kBytes = 2'000'000;

// What IP and TCP say in one frame.
struct Seen {
  std::uint8_t ecn = 0;
  std::uint8_t flags = 0;
  std::size_t payload_bytes = 0;
};
std::optional<Seen> look(Bytes frame, bool tagged) {
  const Bytes packet = frame.subspan(tagged ? 18 : 14);
  std::size_t header = 0, end = 0;
  Seen seen;
  if (const auto four = wire::parse_ipv4(packet)) {
    if (four->header.protocol != wire::protocol::kTcp) return std::nullopt;
    seen.ecn = four->header.traffic_class & 3;
    header = four->header_size;
    end = four->header.total_length;
  } else if (const auto six = wire::parse_ipv6(packet)) {
    if (six->next_header != wire::protocol::kTcp) return std::nullopt;
    seen.ecn = six->traffic_class & 3;
    header = wire::Ipv6Header::kSize;
    end = header + six->payload_length;
  } else {
    return std::nullopt;
  }
  const Bytes segment = packet.subspan(header, end - header);
  const auto tcp = wire::parse_tcp(segment);
  if (!tcp) return std::nullopt;
  seen.flags = tcp->header.flags;
  seen.payload_bytes = segment.size() - tcp->data_offset;
  return seen;
}

struct Marked {
  explicit Marked(sim::PlainOptions options, bool v6 = false)
      : tagged(options.a.host.vlan.has_value()), world((prepare(options, v6), options), a, b) {
    a.use(world.a.host);
    b.use(world.b.host);
    b.plan(kPort, {});
    world.a_to_b.watch([this](Bytes frame, Instant, sim::Link::Fate) { note(frame, from_a); });
    world.b_to_a.watch([this](Bytes frame, Instant, sim::Link::Fate) { note(frame, from_b); });
    REQUIRE(world.b.host.listen(kPort));
    host::Call wishes;
    wishes.remote = world.b.address;
    wishes.remote_port = kPort;
    const auto stream = world.a.host.call(wishes, world.clock.now);
    REQUIRE(stream);
    called = *stream;
    a.plan(called, {.send_bytes = kBytes, .close = test::Plan::Close::sent});
    REQUIRE(world.run_until(
        [&] { return a.find(called)->ended && b.records().size() == 1 && b.records().begin()->second.ended; }));
    CHECK(b.records().begin()->second.received_bytes == kBytes);
    CHECK(b.records().begin()->second.wrong_bytes == 0);
    CHECK(world.a.host.counters().bad_checksums == 0);
    CHECK(world.b.host.counters().bad_checksums == 0);
  }
  static void prepare(sim::PlainOptions& options, bool v6) {
    if (!v6) return;
    options.a.address = sim::address_v6(1);
    options.b.address = sim::address_v6(2);
  }
  void note(Bytes frame, std::vector<Seen>& into) {
    if (const auto seen = look(frame, tagged)) into.push_back(*seen);
  }
  const tcp::Counters& sender() { return a.find(called)->counters; }

  bool tagged;
  std::vector<Seen> from_a, from_b;
  test::OctetStreams a, b;
  sim::PlainWorld world;
  host::StreamId called;
};

sim::PlainOptions asking(tcp::Algorithm algorithm = tcp::Algorithm::cubic) {
  sim::PlainOptions options;
  options.a.host.tcp.ecn = tcp::EcnUse::on;
  options.a.host.tcp.congestion = options.b.host.tcp.congestion = algorithm;
  options.link.mark_per_1000 = 50;
  return options;
}

}  // namespace

TEST_CASE("W-TCP-01: ECN: data of a device may be marked, and what is marked slows its peer down",
          "[host][rfc3168][W-TCP-01]") {
  const bool v6 = GENERATE(false, true);
  const bool tagged = GENERATE(false, true);
  CAPTURE(v6, tagged);
  auto options = asking();
  if (tagged) options.a.host.vlan = options.b.host.vlan = std::uint16_t{7};
  Marked run(options, v6);
  CHECK(run.sender().ecn_reductions > 0);
  CHECK(run.sender().retransmitted == 0);
  for (const Seen& seen : run.from_a) CHECK((seen.ecn == wire::ecn::kCapable) == (seen.payload_bytes > 0));
  for (const Seen& seen : run.from_b) CHECK(seen.ecn == wire::ecn::kNotCapable);
}

TEST_CASE("W-TCP-01: ECN: where a peer does not agree nothing may be marked", "[host][rfc3168][W-TCP-01]") {
  auto options = asking();
  options.b.host.tcp.ecn = tcp::EcnUse::off;
  Marked run(options);
  CHECK(run.sender().ecn_reductions == 0);
  for (const Seen& seen : run.from_a) CHECK(seen.ecn == wire::ecn::kNotCapable);
}

TEST_CASE("W-TCP-01: DCTCP: SYN and SYN-ACK of a device may be marked", "[host][rfc8257][W-TCP-01]") {
  const bool v6 = GENERATE(false, true);
  Marked run(asking(tcp::Algorithm::dctcp), v6);
  CHECK(run.sender().ecn_reductions > 0);
  CHECK(run.from_a.front().ecn == wire::ecn::kCapable);
  CHECK(run.from_b.front().ecn == wire::ecn::kCapable);
}

TEST_CASE("W-TCP-01: ECN: a mark on one of two fragments is the packet's", "[host][rfc3168][W-TCP-01]") {
  auto options = asking();
  options.link.fragment_per_1000 = 1000;
  Marked run(options);
  CHECK(run.sender().ecn_reductions > 0);
}

}  // namespace rnic
