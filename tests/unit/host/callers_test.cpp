// Callers: who has a place in a listener's backlog, who waits in line for one, and who goes when many only connect.
#include "host/callers.hpp"

#include "host/host.hpp"
#include "kit/catch.hpp"
#include "unit/host/host_parts.hpp"

using namespace rnic;
using namespace rnic::test;
using host::StreamId;

namespace {

struct Bench {
  explicit Bench(std::uint32_t streams_max = 1024)
      : host(streams_max), callers(host.streams, host.user, host.counters) {
    host.user.on_lost_place = [this](host::Stream& stream) { callers.leave(stream); };
  }
  std::uint32_t listen(std::uint16_t port, std::uint32_t backlog = 0) {
    return callers.open(kOurs, port, backlog, port, false);
  }
  // Has connected.
  host::Stream& caller(std::uint32_t listener) {
    callers.make_room_for_silent(listener, kNow);
    host::Stream& stream = *host.streams.make({kOurs, kPeer, 7000, ++remote_port});
    callers.add(stream, listener);
    return stream;
  }

  HostParts host;
  host::Callers callers;
  std::uint16_t remote_port = 1000;
};

}  // namespace

TEST_CASE("who asks has a place as far as the backlog goes, and then waits in line, in order", "[host]") {
  Bench bench;
  const std::uint32_t listener = bench.listen(7000, 2);
  host::Stream* callers[5];
  for (auto*& caller : callers) caller = &bench.caller(listener);
  CHECK(callers[0]->cookie == 7000);
  for (auto* caller : callers) bench.callers.asked(*caller, kNow);
  CHECK(bench.host.user.admitted == std::vector{callers[0]->id(), callers[1]->id()});
  CHECK(bench.host.counters.backlog_waits == 3);
  CHECK(callers[0]->deadline == kNever);
  CHECK(callers[2]->deadline == kNow + seconds(60));
  CHECK(bench.callers.any_in_line());

  CHECK(bench.callers.leave(*callers[1]));
  bench.callers.admit_in_line(listener);
  CHECK(bench.host.user.admitted.back() == callers[2]->id());
  CHECK(callers[2]->deadline == kNever);
  CHECK(bench.host.streams.active().front() == callers[2]);
  CHECK(bench.callers.leave(*callers[3]));  // gives up
  CHECK(bench.callers.leave(*callers[0]));
  bench.callers.admit_in_line(listener);
  CHECK(bench.host.user.admitted.back() == callers[4]->id());
  CHECK_FALSE(bench.callers.any_in_line());
  CHECK_FALSE(bench.callers.leave(*callers[0]));  // it was none any more
}

TEST_CASE("nobody who asks overtakes those in line, though there is room", "[host]") {
  Bench bench;
  const std::uint32_t listener = bench.listen(7000, 1);
  host::Stream &first = bench.caller(listener), &second = bench.caller(listener), &third = bench.caller(listener);
  bench.callers.asked(first, kNow);
  bench.callers.asked(second, kNow);
  bench.callers.leave(first);
  bench.callers.asked(third, kNow);
  bench.callers.admit_in_line(listener);
  CHECK(bench.host.user.admitted == std::vector{first.id(), second.id()});
}

TEST_CASE("of those that only connect a listener keeps so many, and the oldest goes", "[host]") {
  Bench bench(16384);
  const std::uint32_t listener = bench.listen(7000);
  std::vector<StreamId> silent;
  for (std::uint32_t i = 0; i < host::Listeners::kSilentMax; ++i) silent.push_back(bench.caller(listener).id());
  CHECK(bench.host.user.lost_place.empty());
  bench.caller(listener);
  CHECK(bench.host.user.lost_place == std::vector{silent[0]});
  bench.callers.asked(*bench.host.streams.find(silent[1]), kNow);  // it is none of them any more
  bench.caller(listener);
  CHECK(bench.host.user.lost_place.size() == 1);
  bench.caller(listener);
  CHECK(bench.host.user.lost_place == std::vector{silent[0], silent[2]});
}

TEST_CASE("of all listeners' an eighth of the streams is kept: who has many loses his own, else the oldest goes",
          "[host]") {
  Bench bench(64);  // 8 are kept; 2 are a few
  const std::uint32_t many = bench.listen(7000), few = bench.listen(7001);
  const StreamId oldest = bench.caller(few).id();
  std::vector<StreamId> of_many;
  for (int i = 0; i < 7; ++i) of_many.push_back(bench.caller(many).id());
  CHECK(bench.host.user.lost_place.empty());
  bench.caller(many);
  CHECK(bench.host.user.lost_place == std::vector{of_many[0]});
  bench.caller(few);
  CHECK(bench.host.user.lost_place == std::vector{of_many[0], oldest});
}

TEST_CASE("a listener that is closed ends those that its user was not told of, and no others", "[host]") {
  Bench bench;
  const std::uint32_t listener = bench.listen(7000, 1);
  host::Stream &told = bench.caller(listener), &in_line = bench.caller(listener), &silent = bench.caller(listener);
  bench.callers.asked(told, kNow);
  bench.callers.asked(in_line, kNow);
  bench.callers.listeners().close(listener, kNow);
  CHECK(bench.callers.close(listener, kNow));
  CHECK(bench.host.user.lost_listener == std::vector{silent.id(), in_line.id()});
  CHECK(silent.stage == host::Stream::Stage::orphan);
  CHECK(in_line.stage == host::Stream::Stage::orphan);
  CHECK(told.pending);
  CHECK(told.stage == host::Stream::Stage::opening);
  CHECK_FALSE(bench.callers.any_in_line());
  CHECK_FALSE(bench.callers.close(listener, kNow));
}

TEST_CASE("an orphan has half a minute", "[host]") {
  KeepingPort port;
  NotingUser user;
  host::Host host({.addresses = {{kOurs, 24}}, .seed = 1}, port, user);
  (void)host.receive(kNow);
  const auto called = host.call({.local = {}, .remote = kPeer, .remote_port = 7}, kNow);
  REQUIRE(called);
  host::Stream& stream = **called;
  host.orphan(stream, host::Host::Fin::at_once, kNow);
  CHECK(stream.stage == host::Stream::Stage::orphan);
  CHECK(stream.deadline == kNow + seconds(30));
}
