// One queue pair with a raw peer, one stream after the other: what a clean close leaves behind is nothing, and what
// comes before the entry to RTS is not lost.

#include "kit/catch.hpp"
#include "kit/qp_world.hpp"

using namespace rnic;
using namespace rnic::test;
using qp::State;

namespace {

template <typename T, typename... Arguments>
void make_anew(T& object, const Arguments&... arguments) {
  std::destroy_at(&object);
  std::construct_at(&object, arguments...);
}

// The next stream of a queue pair that is in Idle. `early`: what the peer says before the queue pair has it.
void connect_again(Raw& raw, const qp::Start& start, const std::vector<Octets>& early = {}) {
  make_anew(raw.us->tcp, raw.options);
  make_anew(raw.tcp, raw.options);
  make_anew(raw.packer, start.crc, mpa::Markers::none);
  make_anew(raw.framer, start.crc, mpa::Markers::none);
  raw.wire.a.in.clear();
  raw.wire.b.in.clear();
  raw.wire.payload_sizes.clear();
  raw.wire.join();
  for (const Octets& ulpdu : early) raw.say_octets(raw.fpdu(ulpdu));
  while (raw.wire.carry()) {
  }
  raw.us->qp.attach(raw.us->tcp, start, raw.wire.now);
}

void forget(Raw& raw) {
  raw.heard.clear();
  raw.us->app.completions.clear();
  raw.us->app.events.clear();
  raw.us->app.changes.clear();
  raw.us->mover.places.clear();
}

// A message on each queue in both directions, the number of each the first; then a close by either side.
void use_and_close(Raw& raw, Region& memory, bool peer_first) {
  raw.us->post_receive({Side::sge(memory, 0, 8)});
  raw.us->post_receive({Side::sge(memory, 8, 8)});
  raw.us->post(send());
  raw.us->post(read({Side::sge(memory, 16, 8)}, {9}, 0));
  raw.run();
  REQUIRE(raw.heard.size() == 2);
  const auto sent = wire::parse_untagged(raw.heard[0]), asked = wire::parse_untagged(raw.heard[1]);
  REQUIRE(sent);
  REQUIRE(sent->queue == 0);
  REQUIRE(sent->msn == 1);
  REQUIRE(asked);
  REQUIRE(asked->queue == 1);
  REQUIRE(asked->msn == 1);
  const auto request = wire::parse_read_request(Bytes(raw.heard[1]).subspan(18));
  REQUIRE(request);
  raw.say(tagged(2, true, request->sink_stag, request->sink_to, filled(8)));
  raw.say(untagged(3, true, 0, 1, 0, filled(8)));
  raw.say(read_request(1, {{1}, 0, 8, memory.stag, memory.base}));
  REQUIRE(raw.heard.size() == 3);

  if (peer_first) {
    raw.tcp.close();
  } else {
    REQUIRE(raw.us->qp.modify_state(State::closing, raw.wire.now));
  }
  raw.run();
  if (!peer_first) raw.tcp.close();
  raw.run();
  REQUIRE(raw.us->qp.state() == State::idle);
  REQUIRE_FALSE(raw.us->qp.attached());
  REQUIRE(raw.us->app.events == std::vector{qp::Event::close_complete});
  const auto& told = raw.us->app.completions;
  REQUIRE(told.size() == 4);
  for (std::size_t i = 0; i < 3; ++i) REQUIRE(told[i].status == qp::Status::success);
  REQUIRE(told[3].status == qp::Status::flushed);
  REQUIRE_FALSE(told[3].of_send_queue);
}

}  // namespace

TEST_CASE("V-CLS-07: closed cleanly and connected again a thousand times, each stream's messages begin at 1",
          "[qp][V-CLS-07][V-CONN-02][V-CLS-03][V-AE-01]") {
  const qp::Start start = default_start();
  Raw raw(start);
  Region& memory = raw.us->region(64);
  for (int round = 0; round < 1000; ++round) {
    if (round != 0) connect_again(raw, start);
    use_and_close(raw, memory, round % 2 == 0);
    forget(raw);
  }
}

TEST_CASE("V-CONN-05: FPDUs that are there before a queue pair goes to RTS are taken, none is lost",
          "[qp][V-CONN-05][V-CONN-02]") {
  const qp::Start start = GENERATE(default_start(), responder_start());
  Raw raw(start);
  Region& memory = raw.us->region(3000);
  raw.tcp.close();
  raw.run();
  REQUIRE(raw.us->qp.state() == State::idle);
  forget(raw);

  for (std::uint32_t i = 0; i < 2; ++i) raw.us->post_receive({Side::sge(memory, 1000 * i, 1000)});
  connect_again(
      raw, start,
      {untagged(3, true, 0, 1, 0, filled(1000, 1)), tagged(0, true, memory.stag, memory.at(2000), filled(900)),
       untagged(3, true, 0, 2, 0, filled(700, 2))});
  CHECK(raw.us->app.completions.empty());
  raw.run();
  CHECK(raw.us->qp.state() == State::rts);
  REQUIRE(raw.us->app.completions.size() == 2);
  CHECK(raw.us->app.completions[0].length == 1000);
  CHECK(raw.us->app.completions[1].length == 700);
  const auto holds = [&](std::ptrdiff_t at, const Octets& octets) {
    return std::equal(octets.begin(), octets.end(), memory.memory.begin() + at);
  };
  CHECK(holds(0, filled(1000, 1)));
  CHECK(holds(1000, filled(700, 2)));
  CHECK(holds(2000, filled(900)));
}

TEST_CASE("V-CONN-09: either end goes to RTS first, and either may be who speaks first", "[qp][V-CONN-09][V-CONN-07]") {
  const bool a_first = GENERATE(true, false), a_initiates = GENERATE(true, false);
  Pair pair;
  pair.run();
  REQUIRE(pair.a->qp.modify_state(State::closing, pair.wire.now));
  pair.run();
  for (Side* side : {pair.a.get(), pair.b.get()}) {
    REQUIRE(side->qp.state() == State::idle);
    make_anew(side->tcp, pair.options.tcp);
    side->app.completions.clear();
  }
  pair.wire.a.in.clear();
  pair.wire.b.in.clear();
  pair.wire.join();  // a calls
  const auto go = [&](bool a) {
    Side& side = a ? *pair.a : *pair.b;
    side.qp.attach(side.tcp, a == a_initiates ? default_start() : responder_start(), pair.wire.now);
    side.post_receive({});
    side.post(send());
    for (int i = 0; i < 10; ++i) {
      pair.turn(side);
      pair.wire.carry();
    }
  };
  go(a_first);
  go(!a_first);
  pair.run();
  for (Side* side : {pair.a.get(), pair.b.get()}) {
    CHECK(side->qp.state() == State::rts);
    REQUIRE(side->app.completions.size() == 2);
    for (const auto& told : side->app.completions) CHECK(told.status == qp::Status::success);
  }
}
