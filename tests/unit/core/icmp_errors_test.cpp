// What ICMP says of connections, and of calls.
#include "kit/frames.hpp"
#include "unit/core/segments.hpp"

using namespace rnic;
using namespace rnic::test::segments;

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
