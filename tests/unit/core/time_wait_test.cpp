// What TIME-WAIT answers, and to whom it gives way.
#include "host/flow.hpp"
#include "mpa/startup.hpp"
#include "unit/core/segments.hpp"

using namespace rnic;
using namespace rnic::test::segments;

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

TEST_CASE("a SYN over one in TIME-WAIT finds a listener that was just closed as any other does", "[core]") {
  World world({});
  Stranger stranger(world);
  const Closed closed(world, stranger);
  world.b.device.unlisten({}, kPort, world.clock.now);
  world.run_for(milliseconds(100));
  stranger.says(syn(closed.theirs + 1000));
  CHECK(stranger.heard.empty());
  SECTION("it listens again") {
    REQUIRE(world.b.device.listen({}, kPort, 8, 78));
    stranger.says(syn(closed.theirs + 1000));
    REQUIRE(stranger.heard.size() == 1);
    CHECK(stranger.heard[0].header.flags == (flag::kSyn | flag::kAck));
  }
  SECTION("it does not") {
    world.run_for(host::Listeners::kAfterlife);
    stranger.says(syn(closed.theirs + 1000));
    REQUIRE(stranger.heard.size() == 1);
    CHECK(stranger.heard[0].header.has(flag::kRst));
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
