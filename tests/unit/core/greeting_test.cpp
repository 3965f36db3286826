// Streams that greet: rdma_cm's connections between RoCE faces, which no queue pair ever has.
#include "mpa/meeting.hpp"
#include "unit/core/network.hpp"

using namespace rnic;
using namespace rnic::test::network;
using core::StreamEvent;
using core::StreamFailure;
using Kind = StreamEvent::Kind;

namespace {

core::PrivateData saying(std::uint32_t number) {
  wire::Mark mark;
  mark.kind = wire::Mark::Kind::greeting;
  mark.capabilities = mark.needed = mpa::mark_capabilities(Face::roce);
  mark.greeting.number = {number};
  core::PrivateData data;
  data.length = static_cast<std::uint16_t>(wire::emit(mark, data.octets));
  return data;
}

// A calls B, which answers with what the test says, or waits.
struct Call {
  World world;
  core::StreamId caller{}, called{};

  explicit Call(std::optional<core::PrivateData> answer = saying(9), WorldOptions options = {}) : world(options) {
    REQUIRE(world.b.device.listen({}, kPort, 8, 77));
    world.b.on_event = [this, answer](const StreamEvent& event) {
      if (event.kind != Kind::connect_request) return;
      called = event.stream;
      if (answer) REQUIRE(world.b.device.welcome(called, {.private_data = *answer, .cookie = 5}, world.clock.now));
    };
    core::ConnectOptions call;
    call.remote = sim::kAddressB;
    call.remote_port = kPort;
    call.private_data = saying(7);
    const auto id = world.a.device.greet(call, world.clock.now);
    REQUIRE(id);
    caller = *id;
  }
  static std::vector<Kind> told(const sim::Rnic& rnic) {
    std::vector<Kind> kinds;
    for (const StreamEvent& event : rnic.events) kinds.push_back(event.kind);
    return kinds;
  }
  bool until(const sim::Rnic& rnic, Kind kind, Duration limit = seconds(5)) {
    return world.run_until(
        [&] {
          const auto kinds = told(rnic);
          return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
        },
        limit);
  }
};

WorldOptions with_markers(mpa::MarkerUse a, mpa::MarkerUse b) {
  WorldOptions options;
  options.a.device.markers = a;
  options.b.device.markers = b;
  return options;
}

}  // namespace

TEST_CASE("who greets hears the answer, and who answers that it was heard", "[core][roce]") {
  using enum mpa::MarkerUse;
  const auto markers =
      GENERATE(std::pair{send, send}, std::pair{both, both}, std::pair{never, both}, std::pair{both, never});
  Call c(saying(9), with_markers(markers.first, markers.second));
  REQUIRE(c.until(c.world.a, Kind::established));
  const auto answer = wire::parse_mark(core::bytes_of(c.world.a.events.back().private_data));
  REQUIRE(answer);
  CHECK(answer->greeting.number == QpNumber{9});
  c.world.run_for(seconds(1));
  CHECK(Call::told(c.world.b) == std::vector{Kind::connect_request});
  REQUIRE(c.world.a.device.confirm(c.caller, c.world.clock.now));
  REQUIRE(c.until(c.world.b, Kind::established));
  CHECK_FALSE(c.world.a.device.confirm(c.caller, c.world.clock.now));
  c.world.run_for(seconds(100));  // and it stays as long as it is wanted
  CHECK(Call::told(c.world.b).size() == 2);
  CHECK(Call::told(c.world.a).size() == 1);
}

TEST_CASE("the end of a call is told at both of its ends, whoever ended it", "[core][roce]") {
  Call c;
  REQUIRE(c.until(c.world.a, Kind::established));
  REQUIRE(c.world.a.device.confirm(c.caller, c.world.clock.now));
  const bool at_once = GENERATE(true, false);  // the FIN comes with the confirmation
  if (!at_once) REQUIRE(c.until(c.world.b, Kind::established));
  const bool by_caller = at_once || GENERATE(true, false);
  auto& ends = by_caller ? c.world.a : c.world.b;
  const auto how = GENERATE(core::Disconnect::graceful, core::Disconnect::abrupt);
  ends.device.disconnect(by_caller ? c.caller : c.called, how, c.world.clock.now);
  REQUIRE(c.until(c.world.a, Kind::disconnected));
  REQUIRE(c.until(c.world.b, Kind::disconnected));
  CHECK(Call::told(c.world.b) == std::vector{Kind::connect_request, Kind::established, Kind::disconnected});
  CHECK(Call::told(c.world.a) == std::vector{Kind::established, Kind::disconnected});
}

TEST_CASE("a caller that goes without a word of confirmation has not been there", "[core][roce]") {
  Call c;
  REQUIRE(c.until(c.world.a, Kind::established));
  c.world.a.device.disconnect(c.caller, core::Disconnect::abrupt, c.world.clock.now);
  REQUIRE(c.until(c.world.b, Kind::failed));
  CHECK(c.world.b.events.back().failure == StreamFailure::reset);
}

TEST_CASE("a caller that never confirms is given up", "[core][roce]") {
  Call c;
  REQUIRE(c.until(c.world.b, Kind::failed, seconds(61)));
  CHECK(c.world.b.events.back().failure == StreamFailure::timed_out);
  REQUIRE(c.until(c.world.a, Kind::disconnected));
}

TEST_CASE("a server that has been greeted may take its time to listen again", "[core][roce]") {
  Call c;
  REQUIRE(c.until(c.world.a, Kind::established));
  c.world.b.device.unlisten({}, kPort, c.world.clock.now);
  c.world.run_for(host::Listeners::kAfterlife * 4);
  core::ConnectOptions again;
  again.remote = sim::kAddressB;
  again.remote_port = kPort;
  again.private_data = saying(8);
  REQUIRE(c.world.a.device.greet(again, c.world.clock.now));
  c.world.run_for(milliseconds(500));
  CHECK(c.world.b.device.counters().no_listener == 0);
  SECTION("it does") {
    REQUIRE(c.world.b.device.listen({}, kPort, 8, 78));
    CHECK(c.world.run_until([&] {
      const auto& events = c.world.b.events;
      return std::any_of(events.begin(), events.end(), [](const StreamEvent& event) {
        return event.kind == Kind::connect_request && event.cookie == 78;
      });
    }));
  }
  SECTION("it has ended the first") {
    c.world.b.device.disconnect(c.called, core::Disconnect::abrupt, c.world.clock.now);
    CHECK(c.until(c.world.a, Kind::failed));
    CHECK(c.world.b.device.counters().no_listener == 1);
  }
}

TEST_CASE("an answer that is no greeting is none", "[core][roce]") {
  Call c(core::PrivateData{});
  REQUIRE(c.until(c.world.a, Kind::failed));
  CHECK(c.world.a.events.back().failure == StreamFailure::protocol);
  REQUIRE(c.until(c.world.b, Kind::failed));
}

TEST_CASE("a call that is rejected is told so, with what was said", "[core][roce]") {
  Call c(std::nullopt);
  REQUIRE(c.until(c.world.b, Kind::connect_request));
  REQUIRE(c.world.b.device.reject(c.called, saying(3), c.world.clock.now));
  REQUIRE(c.until(c.world.a, Kind::rejected));
  CHECK(wire::parse_mark(core::bytes_of(c.world.a.events.back().private_data))->greeting.number == QpNumber{3});
}

TEST_CASE("W-INQ-05: who goes before he is answered is told of, once", "[core][roce][W-INQ-05]") {
  Call c(std::nullopt);
  REQUIRE(c.until(c.world.b, Kind::connect_request));
  c.world.a.device.disconnect(c.caller, core::Disconnect::abrupt, c.world.clock.now);
  REQUIRE(c.until(c.world.b, Kind::withdrawn));
  CHECK(c.world.b.events.back().stream == c.called);
  CHECK(c.world.b.events.back().cookie == 77);
  const bool dropped = GENERATE(true, false);
  if (dropped) CHECK(c.world.b.device.reject(c.called, {}, c.world.clock.now));
  CHECK_FALSE(c.world.b.device.welcome(c.called, {.private_data = saying(9), .cookie = 5}, c.world.clock.now));
  c.world.run_for(seconds(100));
  CHECK(Call::told(c.world.b) == std::vector{Kind::connect_request, Kind::withdrawn});
}

TEST_CASE("W-INQ-06: a call that is not answered for 20 s is given up", "[core][roce][W-INQ-06]") {
  Call c(std::nullopt);
  REQUIRE(c.until(c.world.b, Kind::connect_request));
  c.world.run_for(seconds(19));
  CHECK(c.world.a.events.empty());
  REQUIRE(c.until(c.world.a, Kind::failed));
  CHECK(c.world.a.events.back().failure == StreamFailure::timed_out);
  // What comes too late is for nobody, and its own side is told so.
  c.world.run_for(seconds(100));
  CHECK_FALSE(c.world.b.device.reject(c.called, {}, c.world.clock.now));
  CHECK(c.world.a.events.size() == 1);
}

TEST_CASE("a stranger whose queue pair speaks where a greeting was welcome is cut off", "[core][roce]") {
  World world{WorldOptions{}};
  REQUIRE(world.b.device.listen({}, kPort, 8, 77));
  world.b.on_event = [&](const StreamEvent& event) {
    if (event.kind == Kind::connect_request)
      REQUIRE(world.b.device.welcome(event.stream, {.private_data = saying(9), .cookie = 5}, world.clock.now));
  };
  sim::Endpoint& a = world.a.make_qp(plain());
  core::ConnectOptions call;
  call.remote = sim::kAddressB;
  call.remote_port = kPort;
  call.ird = call.ord = 4;
  REQUIRE(world.a.device.connect(call, *a.qp, world.clock.now));
  const auto heard = [&](const sim::Rnic& rnic, Kind kind) {
    return world.run_until([&] { return !rnic.events.empty() && rnic.events.back().kind == kind; }, seconds(5));
  };
  REQUIRE(heard(world.a, Kind::established));
  world.a.post_send(a, {});
  const bool told = world.run_until(
      [&] { return world.b.events.back().kind == Kind::failed || world.b.events.back().kind == Kind::disconnected; },
      seconds(5));
  CHECK(told);
  CHECK(heard(world.a, Kind::disconnected));
}
