// Closing in every order, TIME-WAIT, and aborting (RFC 9293 s3.6).
#include "kit/tcp_conversation.hpp"

using namespace rnic;
using namespace rnic::test;
using tcp::Ended;
using tcp::State;

TEST_CASE("W-TCP-18: we close first, the peer later, and TIME-WAIT follows", "[tcp][W-TCP-18]") {
  auto c = Conversation::established();
  c.at(0)->close();
  c.at(0).says(fin(1).ack(1));
  CHECK(c->state() == State::fin_wait_1);
  c.at(1).hears(ack(2));
  CHECK(c->state() == State::fin_wait_2);
  c.at(5).hears(data(1, "late"));  // half closed: the peer may go on
  CHECK(c.reads() == "late");
  c.at(10).hears(fin(5));
  CHECK(c->state() == State::time_wait);
  CHECK(c->ended() == Ended::gracefully);
  c.at(10).says(ack(6));
  c.is_silent_until(60'010).is_silent();
  CHECK(c->state() == State::closed);
  CHECK(c->ended() == Ended::gracefully);
  CHECK(c->next_deadline() == kNever);
}

TEST_CASE("W-TCP-18: the peer closes first, we later", "[tcp][W-TCP-18]") {
  auto c = Conversation::established();
  c.at(0).hears(fin(1));
  CHECK(c->state() == State::close_wait);
  CHECK(c->peer_closed());
  c.at(0).says(ack(2));
  c.appends("still here");
  c.at(1).says(data(1, "still here").ack(2));
  c->close();
  CHECK(c->state() == State::last_ack);
  c.at(1).says(fin(11).ack(2));
  c.at(2).hears(ack(12));
  CHECK(c->state() == State::closed);
  CHECK(c->ended() == Ended::gracefully);
}

TEST_CASE("W-TCP-18: both close at once", "[tcp][W-TCP-18]") {
  auto c = Conversation::established();
  c->close();
  c.at(0).says(fin(1));
  c.at(0).hears(fin(1).ack(1));
  CHECK(c->state() == State::closing);
  c.at(0).says(ack(2));
  c.at(1).hears(ack(2));
  CHECK(c->state() == State::time_wait);
}

TEST_CASE("W-TCP-18: the peer's FIN with the ACK of ours leads straight to TIME-WAIT", "[tcp][W-TCP-18]") {
  auto c = Conversation::established();
  c->close();
  c.at(0).says(fin(1));
  c.at(1).hears(fin(1).ack(2));
  CHECK(c->state() == State::time_wait);
  c.at(1).says(ack(2));
}

TEST_CASE("W-TCP-18: the FIN goes after the last octet, and nothing can be appended behind it", "[tcp][W-TCP-18]") {
  auto c = Conversation::established();
  c.appends("abc").appends("def");
  c->close();
  c.says(data(1, "abc").no_psh());
  c.says(data(4, "def"));
  c.says(fin(7));
  CHECK(c->room_bytes() == 0);
  CHECK_FALSE(c->append(BufferRef::take(c.pool())));
  c.is_silent();
}

TEST_CASE("W-TCP-18: a lost FIN is sent again", "[tcp][W-TCP-18]") {
  tcp::Options options;
  options.tail_loss_probe = false;
  auto c = Conversation::established(options);
  c->close();
  c.at(0).says(fin(1));
  c.is_silent_until(200).says(fin(1));
  c.at(201).hears(ack(2));
  CHECK(c->state() == State::fin_wait_2);
  CHECK(c->next_deadline() == kNever);
}

TEST_CASE("W-TCP-18: a FIN that overtakes octets waits for them", "[tcp][W-TCP-18]") {
  auto c = Conversation::established();
  c.at(0).hears(fin(4));
  CHECK_FALSE(c->peer_closed());
  CHECK(c->state() == State::established);
  c.says(ack(1));
  c.at(1).hears(data(1, "abc"));
  CHECK(c->peer_closed());
  CHECK(c.reads() == "abc");
  c.at(1).says(ack(5));
}

TEST_CASE("W-TCP-01: a repeated FIN in TIME-WAIT is answered and TIME-WAIT begins anew", "[tcp][W-TCP-01]") {
  tcp::Options options;
  options.time_wait = milliseconds(100);
  auto c = Conversation::established(options);
  c->close();
  c.at(0).says(fin(1));
  c.at(0).hears(fin(1).ack(2));
  c.at(0).says(ack(2));
  c.at(90).hears(fin(1).ack(2));
  c.at(90).says(ack(2));
  c.is_silent_until(190).is_silent();
  CHECK(c->state() == State::closed);
}

TEST_CASE("W-TCP-18: abort sends one RST, drops everything and is over", "[tcp][W-TCP-18]") {
  auto c = Conversation::established();
  const auto free_before = c.pool().available();
  c.appends("abc").appends("def");
  c.says(data(1, "abc").no_psh());
  c.hears(data(1, "xyz"));
  c.at(1)->abort(c.now());
  CHECK(c->state() == State::closed);
  CHECK(c->ended() == Ended::aborted);
  c.at(1).says(rst(4).ack(4));
  c.is_silent();
  CHECK(c.pool().available() == free_before);
}

TEST_CASE("W-TCP-01: a segment for a connection that is over is answered by a RST", "[tcp][W-TCP-01]") {
  auto c = Conversation::established();
  c->abort(c.now());
  c.says(rst(1).ack(1));
  c.at(1).hears(data(1, "hello?").ack(1));
  c.at(1).says(rst(1));
  c.at(2).hears(rst(1));
  c.is_silent();
}

TEST_CASE("W-TCP-01: a RST for a segment without ACK acknowledges its length", "[tcp][W-TCP-01]") {
  wire::TcpHeader stray;
  stray.source_port = 1000;
  stray.destination_port = 2000;
  stray.sequence = 500;
  stray.flags = wire::tcp_flags::kSyn;
  const auto reset = tcp::reset_in_reply(stray, 3);
  REQUIRE(reset);
  CHECK(reset->flags == (wire::tcp_flags::kRst | wire::tcp_flags::kAck));
  CHECK(reset->sequence == 0);
  CHECK(reset->acknowledgement == 504);
  CHECK(reset->source_port == 2000);
  CHECK(reset->destination_port == 1000);
  stray.flags = wire::tcp_flags::kRst;
  CHECK_FALSE(tcp::reset_in_reply(stray, 0));
}
