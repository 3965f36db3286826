// A peer that has not noticed what an initiator said first: siw, as responder, loses the news of
// octets that come before it has changed its socket's callbacks, and an application that waits for
// an answer would wait for ever.
#include "kit/catch.hpp"
#include "kit/qp_world.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

qp::Start with_rtr(qp::Start::Rtr rtr) {
  qp::Start start = default_start();
  start.rtr = rtr;
  return start;
}
std::size_t writes(const Raw& peer) { return peer.heard_opcode(wire::RdmapOpcode::write).size(); }

}  // namespace

TEST_CASE("an initiator that hears nothing says a Write of no octets, three times", "[qp][peer]") {
  Raw peer(with_rtr(qp::Start::Rtr::write));
  peer.run();
  REQUIRE(writes(peer) == 1);  // the RTR
  CHECK(peer.us->qp.next_deadline() == peer.wire.now + milliseconds(50));
  peer.pass(milliseconds(49), milliseconds(49));
  CHECK(writes(peer) == 1);
  peer.pass(milliseconds(1), milliseconds(1));
  REQUIRE(writes(peer) == 2);
  const auto header = wire::parse_ddp(peer.heard.back());
  REQUIRE(header);
  CHECK(header->last);
  CHECK(peer.heard.back().size() == 14);  // a header, and nothing behind it
  peer.pass(milliseconds(200));
  CHECK(writes(peer) == 3);
  peer.pass(milliseconds(1000));
  CHECK(writes(peer) == 4);
  peer.pass(seconds(10));
  CHECK(writes(peer) == 4);
  CHECK(peer.us->app.completions.empty());
  CHECK(peer.us->qp.state() == qp::State::rts);
}

TEST_CASE("an initiator that has heard an FPDU says nothing of its own accord", "[qp][peer]") {
  Raw peer(with_rtr(qp::Start::Rtr::write));
  peer.run();
  peer.pass(milliseconds(50));
  REQUIRE(writes(peer) == 2);
  peer.say(tagged(0, true, {1}, 0));
  peer.pass(seconds(10));
  CHECK(writes(peer) == 2);
}

TEST_CASE("without an RTR there is a nudge only after something was said", "[qp][peer]") {
  Raw peer(with_rtr(qp::Start::Rtr::none));
  peer.pass(milliseconds(50));
  CHECK(peer.heard.empty());
  peer.us->post(send());
  peer.run();
  REQUIRE(peer.heard.size() == 1);
  peer.pass(milliseconds(200));
  CHECK(writes(peer) == 1);
}

TEST_CASE("no nudge from a responder, and none to a peer that chose a Read as RTR", "[qp][peer]") {
  Raw read_peer(with_rtr(qp::Start::Rtr::read));
  read_peer.pass(seconds(2));
  CHECK(writes(read_peer) == 0);
  Raw initiator(responder_start());
  initiator.say(tagged(0, true, {1}, 0));
  initiator.us->post(send());
  initiator.pass(seconds(2));
  CHECK(writes(initiator) == 0);
}

TEST_CASE("a nudge waits behind no message and cuts into none", "[qp][peer]") {
  Raw peer(with_rtr(qp::Start::Rtr::write));
  peer.run();
  Region& region = peer.us->region(3'000'000, 5);
  peer.us->post(send({Side::sge(region, 0, 3'000'000)}));
  // The peer takes nothing while the time of the first nudge passes.
  peer.wire.now = peer.wire.now + milliseconds(60);
  peer.run();
  REQUIRE(peer.us->app.of_sends().size() == 1);
  std::uint32_t offset = 0;
  bool within = false;
  for (const Octets& ulpdu : peer.heard) {
    const auto header = wire::parse_ddp(ulpdu);
    REQUIRE(header);
    if (wire::rdmap_opcode(header->rdmap_control) == wire::RdmapOpcode::send) {
      within = !header->last;
      offset += static_cast<std::uint32_t>(ulpdu.size()) - 18;
    } else {
      CHECK_FALSE(within);
    }
  }
  CHECK(offset == 3'000'000);
}

TEST_CASE("a nudge that crosses a FIN spoils no close", "[qp][peer][V-CLS-05]") {
  Raw peer(responder_start());
  peer.run();
  REQUIRE(peer.us->qp.modify_state(qp::State::closing, peer.wire.now));
  SECTION("V-CLS-05: Writes of no octets in Closing are no data") {
    peer.say_octets(peer.fpdu(tagged(0, true, {1}, 0)) + peer.fpdu(tagged(0, true, {1}, 0)));
    peer.run();
    CHECK(peer.us->qp.state() == qp::State::closing);
    peer.tcp.close();
    peer.run();
    CHECK(peer.us->qp.state() == qp::State::idle);
    CHECK(peer.us->app.events == std::vector{qp::Event::close_complete});
  }
  SECTION("V-CLS-05: one octet in Closing is data") {
    peer.say(tagged(0, true, {1}, 0, filled(1)));
    CHECK(peer.us->app.events == std::vector{qp::Event::bad_close});
  }
  SECTION("V-CLS-05: an empty Send in Closing is data") {
    peer.say(untagged(3, true, 0, 1, 0));
    CHECK(peer.us->app.events == std::vector{qp::Event::bad_close});
  }
  SECTION("V-CLS-05: half a nudge is data") {
    Octets half = peer.fpdu(tagged(0, true, {1}, 0));
    half.resize(12);
    peer.say_octets(half);
    peer.run();
    CHECK(peer.us->app.events == std::vector{qp::Event::bad_close});
  }
}
