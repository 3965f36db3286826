// Octets that come in: order, gaps, duplicates, and the acknowledgements they cause.
#include "kit/tcp_conversation.hpp"

using namespace rnic;
using namespace rnic::test;

TEST_CASE("W-TCP-05: octets are readable however they were cut", "[tcp][W-TCP-05]") {
  auto c = Conversation::established();
  c.hears(data(1, "a"));
  c.hears(data(2, pattern(1000)));
  c.hears(data(1002, "z"));
  CHECK(c->received() == 1002);
  CHECK(c->readable_count() == 3);
  CHECK(c.reads(500) == "a" + pattern(499));
  CHECK(c->readable_count() == 2);
  CHECK(c.reads() == pattern(501, 499) + "z");
  CHECK(c->readable_count() == 0);
  CHECK(c->consumed() == 1002);
}

TEST_CASE("W-TCP-10: octets behind a gap are not readable until it closes", "[tcp][W-TCP-10]") {
  auto c = Conversation::established();
  c.hears(data(4, "def"));
  c.says(ack(1).sack(4, 7));
  CHECK(c->received() == 0);
  CHECK(c->readable_count() == 0);
  c.hears(data(1, "abc"));
  c.says(ack(7));
  CHECK(c.reads() == "abcdef");
}

TEST_CASE("W-TCP-09: many gaps close in any order", "[tcp][W-TCP-09]") {
  auto c = Conversation::established();
  const int order[] = {9, 3, 7, 1, 5, 8, 2, 6, 4, 0};
  for (int i : order) {
    c.hears(data(1 + 10 * static_cast<std::uint32_t>(i), pattern(10, 10 * static_cast<std::size_t>(i))));
    REQUIRE(c.next());  // each is acknowledged at once
  }
  CHECK(c.reads() == pattern(100));
}

TEST_CASE("W-TCP-11: of octets that come twice the first copy stays", "[tcp][W-TCP-11]") {
  auto c = Conversation::established();
  SECTION("when both are behind a gap") {
    c.hears(data(4, "def"));
    c.hears(data(3, "XYZWV"));  // 3..7: new are octets 3 and 7
    c.hears(data(1, "ab"));
    CHECK(c.reads() == "abXdefV");
  }
  SECTION("when the second closes the gap") {
    c.hears(data(4, "def"));
    c.hears(data(1, "abcXYZWV"));
    CHECK(c.reads() == "abcdefWV");
  }
  SECTION("when the first is in order already") {
    c.hears(data(1, "abc"));
    c.hears(data(1, "XYZd"));
    CHECK(c.reads() == "abcd");
  }
}

TEST_CASE("W-TCP-12: blocks tell the gaps, what came last first", "[tcp][W-TCP-12]") {
  auto c = Conversation::established();
  c.hears(data(11, "k"));
  c.says(ack(1).sack(11, 12));
  c.hears(data(21, "u"));
  c.says(ack(1).sack(21, 22).sack(11, 12));
  c.hears(data(31, "E"));
  c.says(ack(1).sack(31, 32).sack(21, 22).sack(11, 12));
  c.hears(data(12, "l"));
  c.says(ack(1).sack(11, 13).sack(31, 32).sack(21, 22));
  c.hears(data(41, "O"));
  c.hears(data(51, "Y"));
  c.says(ack(1).sack(51, 52).sack(41, 42).sack(11, 13).sack(31, 32));
}

TEST_CASE("W-TCP-12: a duplicate is told first (DSACK)", "[tcp][W-TCP-12]") {
  auto c = Conversation::established();
  c.hears(data(1, "abcdef"));
  c->end_of_burst();
  c.says(ack(7));
  c.hears(data(1, "abc"));
  c.says(ack(7).sack(1, 4));
  c.hears(data(11, "xyz"));
  c.says(ack(7).sack(11, 14));
  c.hears(data(11, "xyz"));
  c.says(ack(7).sack(11, 14).sack(11, 14));
  c.is_silent();
}

TEST_CASE("W-TCP-25: SACK blocks ride on a data segment where there is room, else on a pure ACK", "[tcp][W-TCP-25]") {
  auto c = Conversation::established();
  c.hears(data(11, "xyz"));
  c.says(ack(1).sack(11, 14));
  SECTION("room for one block: 12 octets") {
    c.appends(pattern(1448));
    c.says(data(1, pattern(1448)).sack(11, 14));
  }
  SECTION("one octet too few") {
    c.appends(pattern(1449));
    c.says(data(1, pattern(1449)));
  }
  SECTION("a full segment with news to tell: the ACK goes by itself") {
    c.hears(data(21, "XYZ"));
    c.appends(pattern(1460));
    c.says(ack(1).sack(21, 24).sack(11, 14));
    c.says(data(1, pattern(1460)));
  }
}

TEST_CASE("W-TCP-14: PSH on what comes means nothing", "[tcp][W-TCP-14]") {
  const bool pushed = GENERATE(false, true);
  auto c = Conversation::established();
  Line line = data(1, "abc");
  c.at(0).hears(pushed ? line : line.no_psh());
  CHECK(c->readable_count() == 1);
  c.is_silent_until(40).says(ack(4));
  CHECK(c.reads() == "abc");
}

TEST_CASE("W-TCP-01: one segment is acknowledged when the burst ends or the time is up", "[tcp][W-TCP-01]") {
  auto c = Conversation::established();
  c.at(0).hears(data(1, "abc"));
  SECTION("the timer") { c.is_silent_until(40).says(ack(4)); }
  SECTION("the end of the burst") {
    c.is_silent();
    c->end_of_burst();
    c.says(ack(4));
    c.is_silent();
    c->end_of_burst();
    c.is_silent();  // nothing new to say
  }
  SECTION("a segment of ours takes it along") {
    c.appends("hello");
    c.says(data(1, "hello").ack(4));
    c->end_of_burst();
    c.is_silent();
  }
}

TEST_CASE("W-TCP-01: every second full segment is acknowledged at once", "[tcp][W-TCP-01]") {
  auto c = Conversation::established();
  c.hears(data(1, pattern(1460)));
  c.is_silent();
  c.hears(data(1461, pattern(1460)));
  c.says(ack(2921));
}

TEST_CASE("W-TCP-01: a segment behind a gap and a repeated one are acknowledged at once", "[tcp][W-TCP-01]") {
  auto c = Conversation::established();
  c.hears(data(4, "def"));
  c.says(ack(1).sack(4, 7));
  c.hears(data(1, "abc"));
  c.says(ack(7));
  c.hears(data(1, "abc"));
  c.says(ack(7).sack(1, 4));
}

TEST_CASE("W-TCP-01: without SACK each segment behind a gap has its duplicate ACK", "[tcp][W-TCP-01]") {
  auto c = Conversation::established_without_sack();
  c.hears(data(4, "d"));
  c.hears(data(5, "e"));
  c.hears(data(6, "f"));
  c.says(ack(1)).says(ack(1)).says(ack(1));
  c.is_silent();
}

TEST_CASE("W-TCP-17: held octets are neither acknowledged nor SACKed", "[tcp][W-TCP-17]") {
  auto c = Conversation::established();
  c->hold_acknowledgements_from(3);
  c.at(0).hears(data(1, "abcdef"));
  c->end_of_burst();
  c.says(ack(4));
  c->end_of_burst();
  c.is_silent();
  c.at(100).is_silent();
  c.hears(data(1, "abcdef"));  // sent again: no DSACK of held octets
  c.says(ack(4));
  c->hold_acknowledgements_from(tcp::Connection::kNoHold);
  c.says(ack(7));
}

TEST_CASE("W-TCP-17: the peer's FIN is not acknowledged while octets in front are held", "[tcp][W-TCP-17]") {
  auto c = Conversation::established();
  c->hold_acknowledgements_from(0);
  c.hears(data(1, "abc"));
  c.hears(fin(4));
  CHECK(c->peer_closed());
  c.says(ack(1));
  c->hold_acknowledgements_from(tcp::Connection::kNoHold);
  c->end_of_burst();
  c.says(ack(5));
}

TEST_CASE("W-TCP-26: what was SACKed stays when there is no room for more", "[tcp][W-TCP-26]") {
  tcp::Options options;
  options.out_of_order_segments_max = 2;
  auto c = Conversation::established(options);
  c.hears(data(11, "k"));
  c.hears(data(21, "u"));
  c.hears(data(31, "E"));
  c.says(ack(1).sack(21, 22).sack(11, 12));
  CHECK(c->counters().dropped_no_room == 1);
  c.hears(data(1, pattern(10)));
  c.says(ack(12).sack(21, 22));
  c.hears(data(12, pattern(9)));
  CHECK(c->received() == 21);
}

TEST_CASE("W-TCP-06: the largest FPDU octet by octet does not use up the slots", "[tcp][W-TCP-06]") {
  tcp::Options options;
  options.receive_segments_max = 128;
  auto c = Conversation::established(options);
  const std::string fpdu = pattern(64776);
  for (std::uint32_t i = 0; i < 64776; ++i) {
    c.hears(data(1 + i, fpdu.substr(i, 1)));
    c->end_of_burst();
    while (c.next()) {
    }
  }
  CHECK(c->received() == 64776);
  CHECK(c.reads() == fpdu);
  CHECK(c.pool().available() == 4096);
}

TEST_CASE("W-TCP-06: octets are not put behind others in a buffer that somebody else holds", "[tcp][W-TCP-06]") {
  tcp::Options options;
  options.receive_segments_max = 4;
  auto c = Conversation::established(options);
  c.hears(data(1, pattern(1)));
  c.hears(data(2, pattern(1, 1)));
  REQUIRE(c->readable_count() == 2);
  const BufferRef held = c->readable(1).buffers->share();
  c.hears(data(3, pattern(1, 2)));
  CHECK(c->readable_count() == 3);
  CHECK(held->length == 1);
  c.hears(data(4, pattern(1, 3)));  // behind the third, which is nobody else's
  CHECK(c->readable_count() == 3);
  CHECK(c.reads() == pattern(4));
}

TEST_CASE("W-TCP-06: with all slots taken by large segments the next is refused, not lost", "[tcp][W-TCP-06]") {
  tcp::Options options;
  options.receive_segments_max = 4;
  auto c = Conversation::established(options);
  for (std::uint32_t i = 0; i < 5; ++i) c.hears(data(1 + 1000 * i, pattern(1000, 1000 * i)));
  CHECK(c->received() == 4000);
  c.says(ack(4001));
  CHECK(c.reads(1000) == pattern(1000));
  c.hears(data(4001, pattern(1000, 4000)));
  CHECK(c.reads() == pattern(4000, 1000));
}

TEST_CASE("W-TCP-26: what waits behind full slots is readable when one is free, without a word of the peer's",
          "[tcp][W-TCP-26][W-TCP-06]") {
  tcp::Options options;
  options.receive_segments_max = 4;
  auto c = Conversation::established(options);
  for (std::uint32_t i = 1; i < 6; ++i) c.hears(data(1 + 1000 * i, pattern(1000, 1000 * i)));
  c.hears(data(1, pattern(1000)));
  CHECK(c->received() == 4000);
  CHECK(c.reads(1000) == pattern(1000));
  CHECK(c->received() == 5000);
  CHECK(c.reads() == pattern(4000, 1000));
  CHECK(c.reads() == pattern(1000, 5000));
}

TEST_CASE("W-TCP-21: both streams go through the wrap of their sequence numbers", "[tcp][W-TCP-21]") {
  auto c = Conversation::established();  // both begin close to 2^32
  c.hears(data(1, pattern(1000)));
  CHECK(c.reads() == pattern(1000));
  c.appends(pattern(1000));
  c.says(data(1, pattern(1000)).ack(1001));
  c.hears(ack(1001));
  CHECK(c->acknowledged() == 1000);
  CHECK(c->in_flight_bytes() == 0);
}
