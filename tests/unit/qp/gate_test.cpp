// Who may speak first, and when.

#include "qp/gate.hpp"

#include "kit/catch.hpp"

using namespace rnic;
using Rtr = qp::Start::Rtr;

namespace {

constexpr Instant kStart{1'000'000};

qp::Gate initiator(Rtr rtr) { return {{.initiator = true, .rtr = rtr}, kStart}; }
qp::Gate responder(bool peer_to_peer) { return {{.initiator = false, .peer_to_peer = peer_to_peer}, kStart}; }

}  // namespace

TEST_CASE("W-MPA-21: the responder is silent until it has heard an FPDU", "[qp][W-MPA-21][W-MPA-79]") {
  qp::Gate gate = responder(false);
  CHECK_FALSE(gate.open());
  CHECK_FALSE(gate.may_terminate());
  CHECK_FALSE(gate.rtr_due());
  CHECK(gate.next_deadline() == kNever);
  CHECK(gate.heard());
  CHECK(gate.open());
  CHECK(gate.may_terminate());
  CHECK_FALSE(gate.heard());
}

TEST_CASE("W-MPA-90: peer to peer, the first FPDU is due in ten seconds", "[qp][W-MPA-90]") {
  qp::Gate gate = responder(true);
  CHECK(gate.next_deadline() == kStart + seconds(10));
  CHECK_FALSE(gate.first_is_late(kStart + milliseconds(9999)));
  CHECK(gate.first_is_late(kStart + seconds(10)));
  SECTION("it comes") { CHECK(gate.heard()); }
  SECTION("RTS is left") { gate.close(); }
  CHECK(gate.next_deadline() == kNever);
  CHECK_FALSE(gate.first_is_late(kStart + seconds(11)));
}

TEST_CASE("without an RTR the initiator speaks at once", "[qp][W-MPA-42]") {
  qp::Gate gate = initiator(Rtr::none);
  CHECK(gate.open());
  CHECK_FALSE(gate.rtr_due());
  CHECK_FALSE(gate.heard());
  CHECK_FALSE(gate.sent_up_to(100));
}

TEST_CASE("W-MPA-87: the initiator's gate opens when its RTR is with TCP, and not for what it hears",
          "[qp][W-MPA-42][W-MPA-87]") {
  qp::Gate gate = initiator(Rtr::send);
  CHECK(gate.may_terminate());
  CHECK(gate.rtr_due());
  CHECK_FALSE(gate.heard());
  CHECK_FALSE(gate.open());
  CHECK_FALSE(gate.sent_up_to(100));
  CHECK(gate.take_rtr(3) == Rtr::send);
  CHECK_FALSE(gate.rtr_due());
  CHECK_FALSE(gate.sent_up_to(3));
  CHECK_FALSE(gate.open());
  SECTION("it leaves") {
    CHECK(gate.sent_up_to(4));
    CHECK(gate.open());
    CHECK_FALSE(gate.sent_up_to(5));
  }
  SECTION("its segment is dropped") {
    gate.segments_dropped();
    CHECK_FALSE(gate.sent_up_to(4));
    CHECK_FALSE(gate.open());
  }
}

TEST_CASE("three nudges, of an initiator that has spoken", "[qp][peer]") {
  qp::Gate gate = initiator(Rtr::none);
  for (const int after : {50, 250, 1250}) {
    const Instant at = kStart + milliseconds(after);
    CHECK(gate.next_deadline() == at);
    gate.on_time(kStart + milliseconds(after - 1), true);
    CHECK_FALSE(gate.nudge_due());
    gate.on_time(at, true);
    CHECK(gate.nudge_due());
    gate.nudged();
    CHECK_FALSE(gate.nudge_due());
  }
  CHECK(gate.next_deadline() == kNever);
  gate.on_time(kStart + seconds(100), true);
  CHECK_FALSE(gate.nudge_due());
}

TEST_CASE("no nudge of one that has not spoken, that is not open, or that has heard something", "[qp][peer]") {
  const Instant at = kStart + milliseconds(50);
  SECTION("not spoken: that time is over") {
    qp::Gate gate = initiator(Rtr::none);
    gate.on_time(at, false);
    CHECK_FALSE(gate.nudge_due());
    CHECK(gate.next_deadline() == kStart + milliseconds(250));
  }
  SECTION("not open") {
    qp::Gate gate = initiator(Rtr::write);
    gate.on_time(at, true);
    CHECK_FALSE(gate.nudge_due());
  }
  SECTION("an FPDU was taken, before its time or when it was due") {
    qp::Gate gate = initiator(Rtr::none);
    if (GENERATE(true, false)) gate.on_time(at, true);
    gate.taken();
    gate.on_time(at, true);
    CHECK_FALSE(gate.nudge_due());
    CHECK(gate.next_deadline() == kNever);
  }
  SECTION("RTS was left") {
    qp::Gate gate = initiator(Rtr::none);
    gate.on_time(at, true);
    gate.close();
    CHECK_FALSE(gate.nudge_due());
    CHECK(gate.next_deadline() == kNever);
  }
  SECTION("the peer chose an RTR of its own taste") {
    CHECK(initiator(Rtr::send).next_deadline() == kNever);
    CHECK(initiator(Rtr::read).next_deadline() == kNever);
    CHECK(initiator(Rtr::write).next_deadline() == at);
  }
}

TEST_CASE("RTS left, an RTR that was due is not said", "[qp]") {
  qp::Gate gate = initiator(Rtr::read);
  gate.close();
  CHECK_FALSE(gate.rtr_due());
}
