// Opening a connection (RFC 9293 s3.5, s3.10.7.2 and .3).
#include "kit/tcp_conversation.hpp"

using namespace rnic;
using namespace rnic::test;
using tcp::State;
namespace flag = wire::tcp_flags;

TEST_CASE("W-TCP-01: we call, the peer answers, we acknowledge", "[tcp][W-TCP-01]") {
  Conversation c;
  c.opens();
  c.at(0).says(syn().scale(5));
  CHECK(c->state() == State::syn_sent);
  c.at(1).hears(syn_ack().scale(7));
  c.at(1).says(ack(1));
  CHECK(c->state() == State::established);
  c.is_silent();
}

TEST_CASE("W-TCP-01: the peer calls, we answer", "[tcp][W-TCP-01]") {
  Conversation c;
  c.answers(syn().scale(7));
  CHECK(c.half_open());
  c.at(0).says(syn_ack().scale(5));
  c.at(1).hears(ack(1));
  c.is_silent();
  CHECK(c->established());
}

TEST_CASE("W-TCP-01: both call at once and meet", "[tcp][W-TCP-01]") {
  Conversation c;
  c.opens();
  c.at(0).says(syn());
  c.at(1).hears(syn());
  CHECK(c->state() == State::syn_received);
  c.at(1).says(syn_ack());
  c.at(2).hears(syn_ack());
  CHECK(c->established());
  c.at(2).says(ack(1));
  c.appends("abc");
  c.at(2).says(data(1, "abc"));
}

TEST_CASE("W-TCP-16: data on the handshake's third ACK is taken", "[tcp][W-TCP-16]") {
  Conversation c;
  c.answers(syn());
  c.at(0).says(syn_ack());
  c.at(1).hears(data(1, "request").ack(1));
  CHECK(c->established());
  CHECK(c.reads() == "request");
}

TEST_CASE("W-TCP-01: a SYN that nobody answers is sent again, then given up", "[tcp][W-TCP-01]") {
  tcp::Options options;
  options.syn_retransmissions_max = 2;
  Conversation c(options);
  c.opens();
  c.at(0).says(syn());
  c.is_silent_until(1000).says(syn());
  c.is_silent_until(3000).says(syn());
  c.is_silent_until(7000).is_silent();
  CHECK(c->state() == State::closed);
  CHECK(c->ended() == tcp::Ended::timed_out);
  CHECK(c->next_deadline() == kNever);
}

TEST_CASE("W-TCP-01: a SYN goes again at once when its peer is known to be there, and the waits begin anew",
          "[tcp][W-TCP-01]") {
  Conversation c;
  c.opens();
  c.at(0).says(syn());
  c.at(10);
  c->renew_syn(c.now());  // the next is due soon anyway
  c.is_silent_until(1000).says(syn());
  c.is_silent_until(3000).says(syn());
  c.is_silent_until(5000);
  c->renew_syn(c.now());
  c.says(syn());
  c.is_silent_until(6000).says(syn());
  c.is_silent_until(8000).says(syn());
  c.hears(syn_ack());
  CHECK(c->established());
  c->renew_syn(c.now());
  c.says(ack(1));
  c.is_silent();
}

TEST_CASE("W-TCP-01: the peer's SYN again gets our SYN-ACK again", "[tcp][W-TCP-01]") {
  Conversation c;
  c.answers(syn());
  c.at(0).says(syn_ack());
  c.at(500).hears(syn());
  c.at(500).says(syn_ack());
  c.at(501).hears(ack(1));
  CHECK(c->established());
}

TEST_CASE("W-TCP-01: after two lost SYNs one segment goes first, after one still ten", "[tcp][rfc6928][W-TCP-01]") {
  Conversation c;
  c.opens();
  c.at(0).says(syn());
  c.at(1000).says(syn());
  SECTION("one") {
    c.at(1001).hears(syn_ack());
    c.says(ack(1));
    CHECK(c->congestion_window_bytes() == 14600);
  }
  SECTION("two") {
    c.at(3000).says(syn());
    c.at(3001).hears(syn_ack());
    c.says(ack(1));
    CHECK(c->congestion_window_bytes() == 1460);
  }
}

TEST_CASE("W-TCP-01: a RST in answer to our SYN refuses", "[tcp][W-TCP-01]") {
  Conversation c;
  c.opens();
  c.at(0).says(syn());
  SECTION("that acknowledges it") {
    c.at(1).hears(rst(0).ack(1));
    CHECK(c->ended() == tcp::Ended::refused);
    CHECK(c->state() == State::closed);
  }
  SECTION("but not one that does not") {
    c.at(1).hears(rst(0));
    CHECK(c->state() == State::syn_sent);
  }
  SECTION("nor one that acknowledges something else") {
    c.at(1).hears(rst(0).ack(2));
    CHECK(c->state() == State::syn_sent);
    c.is_silent();
  }
}

TEST_CASE("W-TCP-01: an old SYN-ACK is answered by a RST and the call goes on", "[tcp][W-TCP-01]") {
  Conversation c;
  c.opens();
  c.at(0).says(syn());
  c.at(1).hears(syn_ack().ack(77));
  c.at(1).says(rst(77));
  CHECK(c->state() == State::syn_sent);
  c.at(2).hears(syn_ack().ack(1));
  CHECK(c->established());
}

TEST_CASE("W-TCP-01: a wrong third ACK is answered by a RST", "[tcp][W-TCP-01]") {
  Conversation c;
  c.answers(syn());
  c.at(0).says(syn_ack());
  c.at(1).hears(Line{.flags = flag::kAck, .sequence = 1, .ack_ = 2});
  c.at(1).says(rst(2));
  CHECK(c.half_open());
}

TEST_CASE("W-TCP-12: what one side does not offer is not used", "[tcp][W-TCP-12]") {
  tcp::Options options;
  options.timestamps = true;
  Conversation c(options);
  SECTION("by us, when the peer's SYN has no options") {
    c.answers(Line{.flags = flag::kSyn});
    auto out = c.next();
    REQUIRE(out);
    CHECK_FALSE(out->header.window_scale);
    CHECK_FALSE(out->header.timestamps);
    CHECK_FALSE(out->header.sack_permitted);
    CHECK(out->header.mss == 1460);
    c.hears(Line{.flags = flag::kAck, .sequence = 1, .ack_ = 1});
    CHECK(c->emss() == 536);
  }
  SECTION("and what both offer is") {
    c.answers(syn().scale(3).timestamps(500, 0));
    c.says(syn_ack().scale(5).timestamps(0, 500));
    c.hears(Line{.flags = flag::kAck, .sequence = 1, .ack_ = 1, .window_ = 1000}.timestamps(501, 0));
    CHECK(c->emss() == 1448);
    CHECK(c->room_bytes() == 8000);
  }
}

TEST_CASE("W-TCP-12: the window in a SYN is not scaled, all later ones are", "[tcp][W-TCP-12]") {
  Conversation c;
  c.opens();
  c.says(syn().window(65535));
  c.hears(syn_ack().scale(4).window(100));
  auto third = c.next();
  REQUIRE(third);
  CHECK(third->header.window == (1u << 20) >> 5);
  // At least one segment may always be handed over; the peer's 100 octets are not 1600.
  c.appends(pattern(99));
  c.says(data(1, pattern(99)));
  CHECK(c->room_bytes() == 1);
  c.hears(ack(100).window(200));
  CHECK(c->room_bytes() == 3200);
}

TEST_CASE("W-TCP-01: closing while calling leaves nothing behind", "[tcp][W-TCP-01]") {
  Conversation c;
  c.opens();
  c.says(syn());
  c->close();
  CHECK(c->state() == State::closed);
  CHECK(c->ended() == tcp::Ended::aborted);
  c.is_silent();
}

TEST_CASE("W-TCP-18: closing while both call sends the FIN after the handshake", "[tcp][W-TCP-18]") {
  Conversation c;
  c.opens();
  c.at(0).says(syn());
  c.at(0).hears(syn());
  c.says(syn_ack());
  c->close();
  c.is_silent();
  c.at(1).hears(syn_ack());
  CHECK(c->state() == State::fin_wait_1);
  c.at(1).says(fin(1).ack(1));
}

TEST_CASE("W-TCP-01: half open, a RST ends it where it is exact, and is challenged where it is near",
          "[tcp][W-TCP-01]") {
  Conversation c;
  c.answers(syn());
  c.says(syn_ack());
  c.hears(rst(65536));  // the first beyond the window that we told
  c.is_silent();
  c.hears(rst(0));
  c.is_silent();
  c.hears(rst(65535));
  c.says(ack(1).seq(1));
  CHECK(c.half_open());
  c.hears(rst(1));
  CHECK_FALSE(c.half_open());
}

TEST_CASE("W-TCP-01: half open, another SYN of the same name is told where we are", "[tcp][W-TCP-01]") {
  Conversation c;
  c.answers(syn());
  c.says(syn_ack());
  c.hears(syn().seq(5));
  c.says(ack(1).seq(1));
  c.hears(syn_ack());
  c.says(ack(1).seq(1));
  CHECK(c.half_open());
}

TEST_CASE("W-TCP-01: half open, a segment without ACK or wholly outside the window completes nothing",
          "[tcp][W-TCP-01]") {
  Conversation c;
  c.answers(syn());
  c.says(syn_ack());
  c.hears(Line{.flags = flag::kPsh, .sequence = 1, .text = "abc"});
  c.is_silent();
  c.hears(data(65536, "x").ack(1));
  c.says(ack(1).seq(1));
  c.hears(data(0, "x").ack(1));
  c.says(ack(1).seq(1));
  CHECK(c.half_open());
  c.hears(data(65535, "x").ack(1));  // a later segment that overtook the third
  CHECK(c->established());
  c.says(ack(1).seq(1).sack(65535, 65536));
}

TEST_CASE("W-TCP-12: half open, timestamps are looked at", "[tcp][W-TCP-12]") {
  tcp::Options options;
  options.timestamps = true;
  Conversation c(options);
  c.answers(syn().timestamps(1000, 0));
  c.says(syn_ack());
  c.hears(Line{.flags = flag::kAck, .sequence = 1, .ack_ = 1});
  c.is_silent();
  c.hears(Line{.flags = flag::kAck, .sequence = 1, .ack_ = 1}.timestamps(999, 0));
  c.says(ack(1).seq(1).timestamps(0, 1000));
  CHECK(c.half_open());
  c.hears(Line{.flags = flag::kAck, .sequence = 1, .ack_ = 1}.timestamps(1000, 0));
  CHECK(c->established());
}

TEST_CASE("W-TCP-01: a peer that names no MSS is sent 536 octets, or what its network's version says",
          "[tcp][W-TCP-01]") {
  tcp::Options options;
  SECTION("IPv4") {
    auto c = Conversation(options);
    c.answers(Line{.flags = flag::kSyn});
    c.says(syn_ack().sack_permitted(false));
    c.hears(Line{.flags = flag::kAck, .sequence = 1, .ack_ = 1});
    CHECK(c->emss() == 536);
  }
  SECTION("IPv6") {
    options.mss_default_bytes = 1220;
    auto c = Conversation(options);
    c.opens();
    c.says(syn());
    c.hears(Line{.flags = flag::kSyn | flag::kAck, .ack_ = 1});
    CHECK(c->emss() == 1220);
  }
}

TEST_CASE("W-TCP-12: a window scale beyond 14 is taken for 14", "[tcp][W-TCP-12]") {
  wire::TcpHeader header{.flags = flag::kSyn, .window_scale = 14};
  CHECK(tcp::agree(header, {}, {}, 0).send_shift == 14);
  header.window_scale = 15;
  CHECK(tcp::agree(header, {}, {}, 0).send_shift == 14);
  header.window_scale = 255;
  CHECK(tcp::agree(header, {}, {}, 0).send_shift == 14);
}

TEST_CASE("W-TCP-12: no round trip is measured on a handshake that nobody timed", "[tcp][W-TCP-12]") {
  tcp::Handshake handshake = tcp::agree(wire::TcpHeader{.flags = flag::kSyn, .window = 1000, .mss = 1460}, {}, {7}, 0);
  wire::TcpHeader third;
  third.flags = flag::kAck;
  third.sequence = 1;
  third.acknowledgement = 8;
  const Instant now{seconds(5).ns};
  tcp::Connection of_a_cookie{tcp::Options{}};
  of_a_cookie.open_passive(handshake, third, now);
  CHECK(of_a_cookie.smoothed_rtt().ns == 0);
  CHECK(of_a_cookie.congestion_window_bytes() == 14600);
  handshake.sent = 1;
  handshake.sent_at = now - milliseconds(3);
  tcp::Connection timed{tcp::Options{}};
  timed.open_passive(handshake, third, now);
  CHECK(timed.smoothed_rtt() == milliseconds(3));
}

TEST_CASE("W-TCP-01: octets are taken to send while the stream is open, not before and not after", "[tcp][W-TCP-01]") {
  Conversation c;
  const auto takes = [&c] {
    BufferRef buffer = BufferRef::take(c.pool());
    buffer->append(3);
    return c->append(std::move(buffer));
  };
  c.opens();
  c.at(0).says(syn());
  CHECK_FALSE(takes());
  c.at(1).hears(syn_ack());
  c.says(ack(1));
  CHECK(takes());
  CHECK(c->appended() == 3);
  c->abort(c.now());
  CHECK_FALSE(takes());
  CHECK(c->appended() == 3);
}
