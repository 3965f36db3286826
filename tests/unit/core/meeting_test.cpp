// Streams of queue pairs that meet without rdma_cm: the marks of both startup frames, and a connection with itself.
#include <optional>

#include "mpa/meeting.hpp"
#include "unit/core/network.hpp"

using namespace rnic;
using namespace rnic::test::network;
using core::StreamEvent;
using core::StreamFailure;
using wire::Meeting;

namespace {

Meeting of_a() {
  return {.own_gid = sim::kAddressA,
          .peer_gid = sim::kAddressB,
          .own_number = {7},
          .peer_number = {9},
          .own_psn = 100,
          .due_psn = 200};
}
Meeting of_b() {
  return {.own_gid = sim::kAddressB,
          .peer_gid = sim::kAddressA,
          .own_number = {9},
          .peer_number = {7},
          .own_psn = 200,
          .due_psn = 100};
}

core::PrivateData saying(const Meeting& meeting) {
  wire::Mark mark;
  mark.capabilities = mark.needed = mpa::mark_capabilities(Face::iwarp);
  mark.meeting = meeting;
  core::PrivateData data;
  data.length = static_cast<std::uint16_t>(wire::emit(mark, data.octets));
  return data;
}

// A calls B, meaning its queue pair; B's answer is what the test says.
struct Meet {
  World world;
  sim::Endpoint *a = nullptr, *b = nullptr;
  core::StreamId stream_of_a{};
  bool first_is_lost = false;  // what A says first behind its Request

  explicit Meet(const core::PrivateData& answer, WorldOptions options = {}) : world(options) {
    REQUIRE(world.b.device.listen({}, kPort, 8, 77));
    world.b.on_event = [this, answer](const StreamEvent& event) {
      if (event.kind != StreamEvent::Kind::connect_request) return;
      if (b == nullptr) b = &world.b.make_qp(plain());
      REQUIRE(world.b.device.accept(event.stream,
                                    {.ird = 4, .ord = 4, .private_data = answer, .cookie = 5, .outlives_peer = true},
                                    *b->qp, world.clock.now));
      if (first_is_lost) set_loss(1000);
    };
    call();
  }
  void call() {
    a = &world.a.make_qp(plain());
    core::ConnectOptions options_of_call;
    options_of_call.remote = sim::kAddressB;
    options_of_call.remote_port = kPort;
    options_of_call.ird = options_of_call.ord = 4;
    options_of_call.meeting = of_a();
    options_of_call.private_data = saying(of_a());
    const auto called = world.a.device.connect(options_of_call, *a->qp, world.clock.now);
    REQUIRE(called);
    stream_of_a = *called;
  }
  void set_loss(std::uint32_t per_1000) {
    sim::LinkOptions options;
    options.loss_per_1000 = per_1000;
    world.a_to_b.set_options(options);
  }
  static const StreamEvent* heard(const sim::Rnic& rnic, StreamEvent::Kind kind) {
    for (const StreamEvent& event : rnic.events)
      if (event.kind == kind) return &event;
    return nullptr;
  }
  bool until(const sim::Rnic& rnic, StreamEvent::Kind kind) {
    return world.run_until([&] { return heard(rnic, kind) != nullptr; }, seconds(5));
  }
};

}  // namespace

TEST_CASE("the peer's queue pair answers, and both are connected", "[core][oob]") {
  WorldOptions options;
  // Whatever strangers are offered: between two rnics either may speak first.
  options.a.device.peer_to_peer = false;
  options.a.device.mpa_revision = GENERATE(1u, 2u);
  Meet m(saying(of_b()), options);
  REQUIRE(m.until(m.world.a, StreamEvent::Kind::established));
  REQUIRE(m.until(m.world.b, StreamEvent::Kind::established));
  const StreamEvent* request = Meet::heard(m.world.b, StreamEvent::Kind::connect_request);
  const auto mark = wire::parse_mark(core::bytes_of(request->private_data));
  REQUIRE(mark);
  CHECK(mark->meeting == of_a());
  // The responder's Send needs no message of the initiator's before it.
  qp::WorkRequest send;
  send.signaled = true;
  m.world.b.post_send(*m.b, send);
  CHECK(m.world.run_until([&] { return !m.b->host.completions.empty(); }, seconds(5)));
}

TEST_CASE("a peer that says a word and goes, both of which come at once, was there all the same", "[core][oob]") {
  Meet m(saying(of_b()));
  m.first_is_lost = true;
  REQUIRE(m.until(m.world.a, StreamEvent::Kind::established));
  m.world.b.post_receive(*m.b, {});
  m.world.run_for(microseconds(50));  // the first FPDU is under way, and lost
  m.set_loss(0);
  m.world.a.post_send(*m.a, {});
  m.world.run_for(microseconds(3));  // it has left, and waits there for what was lost
  CHECK(m.b->host.completions.empty());
  REQUIRE(m.a->qp->modify_state(qp::State::terminate, m.world.clock.now));
  m.world.a.device.touch(*m.a->qp);
  REQUIRE(m.until(m.world.b, StreamEvent::Kind::disconnected));
  CHECK(m.b->qp->state() == qp::State::idle);
  REQUIRE(m.b->host.completions.size() == 1);
  CHECK(m.b->host.completions[0].status == qp::Status::success);
  std::vector<StreamEvent::Kind> told;
  for (const StreamEvent& event : m.world.b.events) told.push_back(event.kind);
  using Kind = StreamEvent::Kind;
  CHECK(told == std::vector{Kind::connect_request, Kind::established, Kind::disconnected});
}

TEST_CASE("W-MEET-03: a call that is renewed does not wait for the next of its SYNs", "[core][oob][W-MEET-03]") {
  Meet m(saying(of_b()));
  REQUIRE(m.until(m.world.a, StreamEvent::Kind::established));  // and the neighbour is known
  m.b = nullptr;
  m.set_loss(1000);
  m.call();
  m.world.a.events.clear();
  m.world.run_for(seconds(8));  // since the seventh second its SYN waits for eight
  m.set_loss(0);
  m.world.run_for(seconds(4));
  REQUIRE(m.world.a.events.empty());
  m.world.a.device.renew_call(m.stream_of_a, m.world.clock.now);
  m.world.run_for(seconds(1));
  CHECK(Meet::heard(m.world.a, StreamEvent::Kind::established) != nullptr);
}

TEST_CASE("W-MEET-02: one that is accepted and says nothing was not there", "[core][oob][W-MEET-02]") {
  Meet m(saying(of_b()));
  m.first_is_lost = true;
  REQUIRE(m.until(m.world.a, StreamEvent::Kind::established));
  qp::WorkRequest send;
  send.signaled = true;
  m.world.b.post_send(*m.b, send);
  SECTION("for long") { m.world.run_for(seconds(11)); }
  SECTION("and ends") {
    m.world.run_for(milliseconds(1));
    m.set_loss(0);
    REQUIRE(m.a->qp->modify_state(qp::State::error, m.world.clock.now));
    m.world.a.device.touch(*m.a->qp);
    m.world.run_for(seconds(3));
  }
  CHECK(m.b->qp->state() == qp::State::idle);
  CHECK(m.b->host.completions.empty());
  CHECK(Meet::heard(m.world.b, StreamEvent::Kind::established) == nullptr);
  CHECK(Meet::heard(m.world.b, StreamEvent::Kind::disconnected) == nullptr);
  REQUIRE(Meet::heard(m.world.b, StreamEvent::Kind::failed) != nullptr);
  // So it may be called again, and what was posted is there.
  m.set_loss(0);
  m.world.b.events.clear();
  m.world.a.events.clear();
  m.first_is_lost = false;
  m.call();
  REQUIRE(m.until(m.world.b, StreamEvent::Kind::established));
  m.world.a.post_receive(*m.a, {});
  CHECK(m.world.run_until([&] { return !m.b->host.completions.empty(); }, seconds(5)));
}

TEST_CASE("an answer of anybody else is none: the queue pair never has that connection", "[core][oob]") {
  core::PrivateData answer;
  Meeting other = of_b();
  SECTION("without a mark") {}
  SECTION("of another number") {
    other.own_number = {10};
    answer = saying(other);
  }
  SECTION("with another PSN") {
    other.own_psn = 201;
    answer = saying(other);
  }
  SECTION("of a queue pair that means another") {
    other.peer_number = {8};
    answer = saying(other);
  }
  Meet m(answer);
  REQUIRE(m.until(m.world.a, StreamEvent::Kind::failed));
  CHECK(Meet::heard(m.world.a, StreamEvent::Kind::failed)->failure == StreamFailure::protocol);
  m.world.run_for(seconds(1));
  CHECK(m.a->qp->state() == qp::State::idle);
  CHECK_FALSE(m.a->qp->attached());
  CHECK_FALSE(m.world.a.device.has_stream(*m.a->qp));
  // Who answered has a peer that went when nothing was under way.
  CHECK(m.b->qp->state() == qp::State::idle);
  CHECK_FALSE(m.b->qp->attached());
  CHECK(Meet::heard(m.world.a, StreamEvent::Kind::established) == nullptr);
}

TEST_CASE("a queue pair that is connected with itself receives what it sends", "[core][oob]") {
  World world{WorldOptions{}};
  sim::Endpoint& alone = world.a.make_qp(plain());
  core::ConnectOptions options;
  options.local = options.remote = sim::kAddressA;
  options.local_port = options.remote_port = 40'000;
  options.ird = options.ord = 4;
  options.itself = true;
  REQUIRE(world.a.device.connect(options, *alone.qp, world.clock.now));
  REQUIRE(world.run_until([&] { return Meet::heard(world.a, StreamEvent::Kind::established) != nullptr; }, seconds(5)));
  CHECK(world.a.device.stream_count() == 1);
  qp::WorkRequest send;
  send.signaled = true;
  world.a.post_receive(alone, {});
  world.a.post_send(alone, send);
  REQUIRE(world.run_until([&] { return alone.host.completions.size() == 2; }, seconds(5)));
  for (const auto& completion : alone.host.completions) CHECK(completion.status == qp::Status::success);
  const Written written(world.a, alone, world.a, 100'000);
  CHECK(world.run_until([&] { return written.arrived(); }, seconds(10)));
  // Nothing of it is on the wire, and its end is one like others.
  REQUIRE(alone.qp->modify_state(qp::State::error, world.clock.now));
  world.a.device.touch(*alone.qp);
  world.run_for(seconds(1));
  CHECK(world.a.device.stream_count() == 0);
  CHECK(alone.qp->modify_state(qp::State::idle, world.clock.now));
}
