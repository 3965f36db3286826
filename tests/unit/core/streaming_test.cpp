// Streams in streaming mode: what their applications say on them before iWARP, and the step to that.
#include <algorithm>
#include <string>
#include <string_view>

#include "unit/core/network.hpp"

using namespace rnic;
using namespace rnic::test::network;
using core::kStreamingCookie;
using core::RdmaStreams;
using core::StreamError;
using core::StreamEvent;
using core::StreamFailure;
using Kind = StreamEvent::Kind;

namespace {

constexpr std::uint64_t kListener = kStreamingCookie | 77, kCaller = kStreamingCookie | 5,
                        kCalled = kStreamingCookie | 6;

Bytes octets_of(std::string_view text) { return {reinterpret_cast<const std::byte*>(text.data()), text.size()}; }

// Devices that have listened and called; B takes whoever calls, unless a test does.
struct Streams {
  World world;
  core::StreamId caller{}, called{};
  unsigned ready_a = 0, ready_b = 0;

  explicit Streams(WorldOptions options = {}) : world(options) {
    REQUIRE(world.b.device.listen({}, kPort, 8, kListener));
    world.a.on_event = [this](const StreamEvent& event) { ready_a += event.kind == Kind::ready ? 1 : 0; };
    world.b.on_event = [this](const StreamEvent& event) {
      ready_b += event.kind == Kind::ready ? 1 : 0;
      if (event.kind == Kind::connect_request) called = event.stream;
    };
  }
  core::StreamId call() {
    core::ConnectOptions options;
    options.remote = sim::kAddressB;
    options.remote_port = kPort;
    options.cookie = kCaller;
    const auto id = world.a.device.open(options, world.clock.now);
    REQUIRE(id);
    return caller = *id;
  }
  void join() {
    call();
    REQUIRE(world.run_until([&] { return called.value != 0; }, seconds(5)));
    REQUIRE(world.b.device.claim(called, kCalled));
    REQUIRE(told(world.a, Kind::established) == 1);
  }
  static std::ptrdiff_t told(const sim::Rnic& rnic, Kind kind) {
    return std::count_if(rnic.events.begin(), rnic.events.end(),
                         [kind](const auto& event) { return event.kind == kind; });
  }
  std::size_t say(sim::Rnic& rnic, core::StreamId stream, std::string_view text) {
    const auto taken = rnic.device.say(stream, octets_of(text), world.clock.now);
    REQUIRE(taken);
    return *taken;
  }
  // So many octets, in so many pieces as they come in.
  std::string hear(sim::Rnic& rnic, core::StreamId stream, std::size_t size) {
    std::string text(size, 0);
    std::size_t done = 0;
    REQUIRE(world.run_until(
        [&] {
          const auto heard = rnic.device.hear(stream, {reinterpret_cast<std::byte*>(text.data()) + done, size - done});
          REQUIRE(heard);
          done += heard->octets;
          return done == size;
        },
        seconds(60)));
    return text;
  }
  core::Heard look(sim::Rnic& rnic, core::StreamId stream) {
    const auto heard = rnic.device.hear(stream, {});
    REQUIRE(heard);
    return *heard;
  }
  auto begin(sim::Rnic& rnic, core::StreamId stream, sim::Endpoint& endpoint, std::string_view last = {}) {
    return rnic.device.begin_iwarp(stream, {.last_message = octets_of(last), .ird = 4, .ord = 3}, *endpoint.qp,
                                   world.clock.now);
  }
};

// How often `text` is in the frames, and where the last is.
std::ptrdiff_t place_of(const std::vector<sim::Frame>& frames, std::string_view text) {
  const Bytes wanted = octets_of(text);
  for (std::size_t i = 0; i < frames.size(); ++i)
    if (std::search(frames[i].begin(), frames[i].end(), wanted.begin(), wanted.end()) != frames[i].end())
      return static_cast<std::ptrdiff_t>(i);
  return -1;
}

}  // namespace

TEST_CASE("V-CONN-12: an application's handshake in streaming mode, and iWARP behind it",
          "[core][V-CONN-12][V-CONN-03][V-CONN-05][V-CONN-06][V-CONN-09]") {
  const bool caller_first = GENERATE(true, false);
  Streams t;
  t.join();
  // Octets both ways, and no MPA Request or Reply.
  CHECK(t.say(t.world.a, t.caller, "who are you") == 11);
  CHECK(t.hear(t.world.b, t.called, 11) == "who are you");
  CHECK(t.say(t.world.b, t.called, "b") == 1);
  CHECK(t.hear(t.world.a, t.caller, 1) == "b");

  sim::Endpoint &a = t.world.a.make_qp(plain()), &b = t.world.b.make_qp(plain());
  sim::Rnic& first = caller_first ? t.world.a : t.world.b;
  sim::Rnic& second = caller_first ? t.world.b : t.world.a;
  sim::Endpoint& first_qp = caller_first ? a : b;
  const core::StreamId first_stream = caller_first ? t.caller : t.called;
  const core::StreamId second_stream = caller_first ? t.called : t.caller;
  sim::Endpoint& second_qp = caller_first ? b : a;
  // What was posted in Idle leaves behind the last message, and comes while the peer is in streaming mode still.
  const Written early(first, first_qp, second, 3000);
  Watched watched(caller_first ? t.world.a_to_b : t.world.b_to_a);
  REQUIRE(t.begin(first, first_stream, first_qp, "go"));
  CHECK(first_qp.qp->state() == qp::State::rts);
  CHECK(first_qp.qp->config().ird == 4);
  CHECK(first_qp.qp->config().ord == 3);
  CHECK(first.device.stream_of(*first_qp.qp) == first_stream);
  CHECK(t.hear(second, second_stream, 2) == "go");
  t.world.run_for(milliseconds(5));
  CHECK_FALSE(early.arrived());
  REQUIRE(t.begin(second, second_stream, second_qp));
  REQUIRE(t.world.run_until([&] { return early.arrived(); }, seconds(5)));
  const Written back(second, second_qp, first, 3000);
  REQUIRE(t.world.run_until([&] { return back.arrived(); }, seconds(5)));
  CHECK(place_of(watched.frames, "MPA ID") == -1);
  // The application's no more.
  CHECK(t.world.a.device.say(t.caller, octets_of("more"), t.world.clock.now).error() == StreamError::unknown);
  CHECK(t.world.b.device.hear(t.called, {}).error() == StreamError::unknown);

  REQUIRE(first_qp.qp->modify_state(qp::State::closing, t.world.clock.now));
  first.device.touch(*first_qp.qp);
  CHECK(t.world.run_until([&] { return a.qp->state() == qp::State::idle && b.qp->state() == qp::State::idle; },
                          seconds(5)));
  for (const sim::Rnic* rnic : {&t.world.a, &t.world.b}) CHECK(Streams::told(*rnic, Kind::disconnected) == 1);
}

TEST_CASE("V-CONN-04: with inbound paused the last message is sent, then layers are attached, then inbound goes on",
          "[core][V-CONN-04][V-CONN-05]") {
  Streams t;
  t.join();
  sim::Endpoint &a = t.world.a.make_qp(plain()), &b = t.world.b.make_qp(plain());
  // B's FPDUs are there before A has said its last: a message, and a Read, which A answers as soon as it may.
  std::vector<std::byte> from = test::pattern(64), to(64);
  const Stag source = t.world.a.register_memory(from, tpt::Rights::local_read | tpt::Rights::remote_read);
  const Stag sink = t.world.b.register_memory(to, tpt::Rights::local_write | tpt::Rights::remote_write);
  qp::WorkRequest read;
  read.opcode = qp::Opcode::read;
  read.signaled = true;
  read.sge_count = 1;
  read.sges[0] = {reinterpret_cast<std::uintptr_t>(to.data()), 64, sink};
  read.remote_to = reinterpret_cast<std::uintptr_t>(from.data());
  read.remote_stag = source;
  REQUIRE(t.begin(t.world.b, t.called, b));
  t.world.b.post_send(b, read);
  t.world.run_for(milliseconds(5));
  Watched watched(t.world.a_to_b);
  REQUIRE(t.begin(t.world.a, t.caller, a, "my last words"));
  const Bytes response = Bytes(from).first(32);
  const std::string_view text(reinterpret_cast<const char*>(response.data()), response.size());
  REQUIRE(t.world.run_until([&] { return place_of(watched.frames, text) >= 0; }, seconds(5)));
  const std::ptrdiff_t last = place_of(watched.frames, "my last words");
  REQUIRE(last >= 0);
  CHECK(last <= place_of(watched.frames, text));
}

TEST_CASE("V-CONN-01: without a stream in Established a queue pair stays in Idle", "[core][V-CONN-01][V-SEC-23]") {
  Streams t;
  sim::Endpoint& a = t.world.a.make_qp(plain());
  t.call();
  CHECK(t.say(t.world.a, t.caller, "x") == 0);
  CHECK(t.begin(t.world.a, t.caller, a).error() == StreamError::unknown);  // SYN-SENT
  REQUIRE(t.world.run_until([&] { return t.called.value != 0; }, seconds(5)));
  REQUIRE(t.world.b.device.claim(t.called, kCalled));
  CHECK(t.begin(t.world.a, core::StreamId{t.caller.value + 1}, a).error() == StreamError::unknown);
  // Half closed by the peer: what it said before can be heard, and we can speak.
  CHECK(t.say(t.world.b, t.called, "end") == 3);
  t.world.b.device.disconnect(t.called, core::Disconnect::graceful, t.world.clock.now);
  t.world.run_for(milliseconds(5));
  CHECK(t.begin(t.world.a, t.caller, a).error() == StreamError::unknown);
  CHECK(t.hear(t.world.a, t.caller, 3) == "end");
  CHECK(t.look(t.world.a, t.caller).ended);
  CHECK(t.say(t.world.a, t.caller, "bye") == 3);
  CHECK(a.qp->state() == qp::State::idle);
  t.world.a.device.disconnect(t.caller, core::Disconnect::graceful, t.world.clock.now);
  CHECK(t.world.run_until([&] { return t.world.a.device.stream_count() + t.world.b.device.stream_count() == 0; },
                          seconds(60)));
  CHECK(Streams::told(t.world.a, Kind::failed) == 0);
}

TEST_CASE("V-CONN-01: a queue pair that is not in Idle takes no stream, and the stream goes on", "[core][V-CONN-01]") {
  Streams t;
  t.join();
  sim::Endpoint& a = t.world.a.make_qp(plain());
  REQUIRE(a.qp->modify_state(qp::State::error, t.world.clock.now));
  CHECK(t.begin(t.world.a, t.caller, a, "never said").error() == StreamError::wrong_state);
  CHECK(t.say(t.world.a, t.caller, "x") == 1);
  CHECK(t.hear(t.world.b, t.called, 1) == "x");
}

TEST_CASE("V-CONN-02: a queue pair goes from one stream in streaming mode to another",
          "[core][V-CONN-02][V-ERRST-09]") {
  Streams t;
  sim::Endpoint &a = t.world.a.make_qp(plain()), &b = t.world.b.make_qp(plain());
  for (int i = 0; i < 3; ++i) {
    t.called = {};
    t.world.a.events.clear();
    t.join();
    REQUIRE(t.begin(t.world.a, t.caller, a));
    REQUIRE(t.begin(t.world.b, t.called, b));
    const Written there(t.world.a, a, t.world.b, 100), back(t.world.b, b, t.world.a, 100);
    REQUIRE(t.world.run_until([&] { return there.arrived() && back.arrived(); }, seconds(5)));
    for (sim::Endpoint* end : {&a, &b})
      if (end->qp->state() == qp::State::rts) REQUIRE(end->qp->modify_state(qp::State::error, t.world.clock.now));
    t.world.a.device.touch(*a.qp);
    t.world.b.device.touch(*b.qp);
    REQUIRE(t.world.run_until(
        [&] {
          for (sim::Endpoint* end : {&a, &b})
            if (end->qp->state() == qp::State::error) (void)end->qp->modify_state(qp::State::idle, t.world.clock.now);
          return a.qp->state() == qp::State::idle && b.qp->state() == qp::State::idle;
        },
        seconds(5)));
  }
}

TEST_CASE("what a peer does not hear is bounded, and who waited for room is told once", "[core][V-SEC-01]") {
  Streams t;
  t.join();
  const std::string much(16384, 'x');
  std::size_t said = 0;
  for (int i = 0; i < 1000; ++i) {
    said += t.say(t.world.a, t.caller, much);
    t.world.run_for(milliseconds(1));
  }
  const std::size_t window = t.world.b.device.options().tcp.receive_window_bytes;
  CHECK(said <= window + RdmaStreams::kSaidMax);
  CHECK(t.say(t.world.a, t.caller, much) == 0);
  CHECK(t.say(t.world.a, t.caller, much) == 0);
  const unsigned before = t.ready_a;
  CHECK(t.hear(t.world.b, t.called, said) == std::string(said, 'x'));
  t.world.run_for(seconds(2));
  CHECK(t.ready_a == before + 1);
  CHECK(t.say(t.world.a, t.caller, much) == much.size());
}

TEST_CASE("sayings of one octet take so many buffers and no more", "[core][V-SEC-01]") {
  Streams t;
  t.join();
  sim::LinkOptions lossy;
  lossy.loss_per_1000 = 1000;
  t.world.a_to_b.set_options(lossy);
  const auto free_before = t.world.a.port.pool().available();
  std::size_t said = 0;
  for (int i = 0; i < 1000; ++i) said += t.say(t.world.a, t.caller, "x");
  CHECK(said <= 64);
  CHECK(free_before - t.world.a.port.pool().available() <= 64);
}

TEST_CASE("where there are no buffers nothing is taken, and who waits is told when they are back", "[core][V-SEC-01]") {
  const bool says_before = GENERATE(false, true);
  Streams t;
  t.join();
  if (says_before) {
    CHECK(t.say(t.world.a, t.caller, "x") == 1);  // to be acknowledged while there are none
  }
  std::vector<BufferRef> taken;
  while (t.world.a.port.pool().available() > 100) taken.push_back(BufferRef::take(t.world.a.port.pool()));
  t.world.a.device.run_timers(t.world.clock.now);
  t.world.a.device.receive(t.world.clock.now);  // a turn begins, which looks at what there is
  CHECK(t.say(t.world.a, t.caller, "y") == 0);
  t.world.run_for(milliseconds(50));
  CHECK(t.ready_a == 0);
  taken.clear();
  t.world.run_for(milliseconds(5));
  CHECK(t.ready_a == 1);
  CHECK(t.say(t.world.a, t.caller, "y") == 1);
}

TEST_CASE("who hears nothing is told once when there is something", "[core]") {
  Streams t;
  t.join();
  CHECK(t.look(t.world.b, t.called).octets == 0);
  t.say(t.world.a, t.caller, "one");
  t.world.run_for(milliseconds(5));
  t.say(t.world.a, t.caller, "two");
  t.world.run_for(milliseconds(5));
  CHECK(t.ready_b == 1);
  CHECK(t.hear(t.world.b, t.called, 6) == "onetwo");
  t.say(t.world.a, t.caller, "three");  // nobody has found it empty since
  t.world.run_for(milliseconds(5));
  CHECK(t.ready_b == 1);
  CHECK(t.hear(t.world.b, t.called, 5) == "three");
  CHECK_FALSE(t.look(t.world.b, t.called).ended);
  t.world.a.device.disconnect(t.caller, core::Disconnect::graceful, t.world.clock.now);
  t.world.run_for(milliseconds(5));
  CHECK(t.ready_b == 2);
  CHECK(t.look(t.world.b, t.called).ended);
}

TEST_CASE("a stream in streaming mode that the peer resets has failed, claimed or not", "[core][V-SEC-01]") {
  const bool claimed = GENERATE(true, false);
  Streams t;
  t.call();
  REQUIRE(t.world.run_until([&] { return t.called.value != 0; }, seconds(5)));
  if (claimed) REQUIRE(t.world.b.device.claim(t.called, kCalled));
  t.world.a.device.disconnect(t.caller, core::Disconnect::abrupt, t.world.clock.now);
  REQUIRE(t.world.run_until([&] { return Streams::told(t.world.b, Kind::failed) == 1; }, seconds(5)));
  CHECK(t.world.b.events.back().cookie == (claimed ? kCalled : kListener));
  CHECK(t.world.b.events.back().stream == t.called);
  CHECK(t.world.b.device.hear(t.called, {}).error() == StreamError::unknown);
  CHECK(t.world.b.device.claim(t.called, kCalled).error() == StreamError::unknown);
  CHECK(t.world.run_until([&] { return t.world.b.device.stream_count() == 0; }, seconds(5)));
}

TEST_CASE("a call in streaming mode to where nobody listens is refused", "[core]") {
  Streams t;
  t.world.b.device.unlisten({}, kPort, t.world.clock.now);
  t.world.run_for(seconds(1));
  t.call();
  REQUIRE(t.world.run_until([&] { return Streams::told(t.world.a, Kind::failed) == 1; }, seconds(60)));
  CHECK(t.world.a.events.back().failure == StreamFailure::refused);
}

TEST_CASE("callers beyond the backlog wait for their turn to be claimed, and go when their listener does",
          "[core][V-SEC-01]") {
  Streams t;
  std::vector<core::StreamId> told;
  t.world.b.on_event = [&](const StreamEvent& event) {
    if (event.kind == Kind::connect_request) told.push_back(event.stream);
  };
  for (int i = 0; i < 20; ++i) t.call();
  t.world.run_for(milliseconds(50));
  REQUIRE(told.size() == 8);
  REQUIRE(t.world.b.device.claim(told[0], kCalled));
  CHECK_FALSE(t.world.b.device.claim(told[0], kCalled));  // once
  REQUIRE(t.world.run_until([&] { return told.size() == 9; }, seconds(60)));
  t.world.b.device.unlisten({}, kPort, t.world.clock.now);
  for (const core::StreamId stream : told)
    t.world.b.device.disconnect(stream, core::Disconnect::abrupt, t.world.clock.now);
  CHECK(t.world.run_until([&] { return t.world.b.device.stream_count() + t.world.b.device.half_open_count() == 0; },
                          seconds(120)));
}

TEST_CASE("1,000 streams in streaming mode, opened and closed, leave nothing", "[core][V-SEC-01]") {
  Streams t;
  const auto free_a = t.world.a.port.pool().available(), free_b = t.world.b.port.pool().available();
  for (int i = 0; i < 1000; ++i) {
    t.called = {};
    t.call();
    REQUIRE(t.world.run_until([&] { return t.called.value != 0; }, seconds(5)));
    REQUIRE(t.world.b.device.claim(t.called, kCalled));
    t.say(t.world.a, t.caller, "hello, and more than is heard");
    t.world.run_for(microseconds(100));
    const auto how = i % 2 == 0 ? core::Disconnect::graceful : core::Disconnect::abrupt;
    t.world.a.device.disconnect(t.caller, how, t.world.clock.now);
    t.world.b.device.disconnect(t.called, how, t.world.clock.now);
  }
  CHECK(t.world.run_until([&] { return t.world.a.device.stream_count() + t.world.b.device.stream_count() == 0; },
                          seconds(60)));
  t.world.run_for(seconds(1));
  constexpr std::uint32_t kKept = 64;  // by a device, for what it says next
  CHECK(free_a - t.world.a.port.pool().available() <= kKept);
  CHECK(free_b - t.world.b.port.pool().available() <= kKept);
}
