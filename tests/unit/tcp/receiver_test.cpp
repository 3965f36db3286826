// The receiving half of a connection, alone: no state, no handshake, nothing sent.
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "kit/catch.hpp"
#include "tcp/receiver.hpp"

using namespace rnic;
using namespace rnic::tcp;

namespace {

constexpr Instant kStart{seconds(10).ns};
constexpr Seq kTheirs{0xFFFFFFFB};  // their SYN: the stream wraps at its fifth octet
using Place = Receiver::Place;

Options small_window() {
  Options options;
  options.receive_window_bytes = 100;
  options.mss_bytes = 20;
  return options;
}

Handshake agreed(bool sack = true) {
  Handshake handshake;
  handshake.theirs = kTheirs;
  handshake.sack = sack;
  return handshake;
}

// `first` counts from their SYN: the stream's first octet is 1.
struct Bench {
  explicit Bench(const Options& with = {}, const Handshake& handshake = agreed()) : options(with) {
    receiver.start(handshake, kStart);
    say();
  }

  static Seq at(std::uint32_t first) { return kTheirs + first; }
  // As a connection would: trimmed, then taken. Says where it stood.
  Place hears(std::uint32_t first, std::string_view text, std::uint8_t flags = wire::tcp_flags::kAck,
              Instant now = kStart) {
    SegmentIn segment = made(first, text, flags);
    Incoming in = incoming(segment);
    if (!receiver.expects(in)) {
      const Place place = receiver.trim(in, now);
      if (place != Place::acceptable) return place;
    }
    if (!in.payload.empty()) receiver.take_payload(in, now);
    if (in.fin || receiver.fin_known()) closed |= receiver.take_fin(in);
    return Place::acceptable;
  }
  SegmentIn made(std::uint32_t first, std::string_view text, std::uint8_t flags = wire::tcp_flags::kAck) {
    SegmentIn segment;
    segment.header.sequence = at(first).value;
    segment.header.flags = flags;
    segment.buffer = BufferRef::take(pool);
    const MutableBytes place = segment.buffer->append(static_cast<std::uint32_t>(text.size()));
    std::memcpy(place.data(), text.data(), text.size());
    segment.payload = place;
    return segment;
  }
  static Incoming incoming(SegmentIn& segment) {
    return {.segment = segment,
            .sequence = Seq{segment.header.sequence},
            .payload = segment.payload,
            .fin = segment.header.has(wire::tcp_flags::kFin)};
  }
  // What an ACK of now says; none is owed after it, unless not all blocks had room.
  wire::TcpHeader say() {
    wire::TcpHeader header;
    receiver.fill(header);
    receiver.on_data_sent();
    receiver.add_sack(header, 40);
    return header;
  }
  std::uint32_t acknowledges() { return Seq{say().acknowledgement}.since(kTheirs); }
  std::string readable() {
    std::string all;
    for (std::size_t i = 0; i < receiver.readable_count(); ++i) {
      const Bytes span = receiver.readable(i).span;
      all.append(reinterpret_cast<const char*>(span.data()), span.size());
    }
    return all;
  }

  HeapPool pool{64, 2048};
  Options options;
  Counters counters;
  Receiver receiver{options, counters};
  bool closed = false;
};

wire::SackBlock block(std::uint32_t first, std::uint32_t end) { return {Bench::at(first).value, Bench::at(end).value}; }

}  // namespace

TEST_CASE("W-TCP-10: the receiver hands up octets in order, and those beyond a gap when it closes",
          "[tcp][receiver][W-TCP-10]") {
  Bench b;
  CHECK(b.hears(1, "abc") == Place::acceptable);
  CHECK(b.hears(7, "ghi") == Place::acceptable);
  CHECK(b.readable() == "abc");
  CHECK(b.receiver.received() == 3);
  REQUIRE(b.receiver.beyond_count() == 1);
  CHECK(b.receiver.beyond(0).position == 6);
  CHECK(b.acknowledges() == 4);
  b.hears(4, "def");
  CHECK(b.readable() == "abcdefghi");
  CHECK(b.acknowledges() == 10);
  CHECK(b.counters.out_of_order == 1);
  CHECK(b.counters.bytes_in == 9);
}

TEST_CASE("W-TCP-01: segments that a port has merged are acknowledged as so many", "[tcp][receiver][W-TCP-01]") {
  Options options;
  options.mss_bytes = 600;
  Bench b(options);
  b.hears(1, std::string(1800, 'x'));
  CHECK(b.receiver.ack_due());
  b.say();
  b.hears(1801, std::string(600, 'x'));
  CHECK_FALSE(b.receiver.ack_due());
  b.hears(2401, std::string(600, 'x'));
  CHECK(b.receiver.ack_due());
}

TEST_CASE("W-TCP-01: the receiver owes an ACK for two full segments, at a burst's end, or when time is up",
          "[tcp][receiver][W-TCP-01]") {
  Bench b;
  const std::string full(1000, 'x');
  b.hears(1, full);
  CHECK_FALSE(b.receiver.ack_due());
  CHECK(b.receiver.deadline() == kStart + b.options.delayed_ack);
  SECTION("two full segments") {
    b.hears(1001, full);
    CHECK(b.receiver.ack_due());
  }
  SECTION("the burst's end") {
    b.receiver.end_of_burst();
    CHECK(b.receiver.ack_due());
  }
  SECTION("the time") {
    b.receiver.run_timer(kStart + b.options.delayed_ack - Duration{1});
    CHECK_FALSE(b.receiver.ack_due());
    b.receiver.run_timer(kStart + b.options.delayed_ack);
    CHECK(b.receiver.ack_due());
  }
  b.say();
  CHECK_FALSE(b.receiver.ack_due());
  CHECK(b.receiver.deadline() == kNever);
  b.receiver.end_of_burst();
  CHECK_FALSE(b.receiver.ack_due());  // it would say nothing new
}

TEST_CASE("W-TCP-11: of octets that come again the front is cut off, and told as a duplicate",
          "[tcp][receiver][W-TCP-11]") {
  Bench b;
  b.hears(1, "abcdef");
  b.say();
  CHECK(b.hears(3, "CDEFgh") == Place::acceptable);
  CHECK(b.readable() == "abcdefgh");
  CHECK(b.receiver.tells_sack());
  const wire::TcpHeader said = b.say();
  REQUIRE(said.sack_count == 1);
  CHECK(said.sack[0] == block(3, 7));
  CHECK_FALSE(b.receiver.tells_sack());  // once
}

TEST_CASE("W-TCP-12: what is old to its last octet is not taken, and answered", "[tcp][receiver][W-TCP-12]") {
  Bench b;
  b.hears(1, "abcdef");
  b.say();
  CHECK(b.hears(1, "abcdef") == Place::old);
  CHECK(b.counters.duplicates == 1);
  CHECK(b.receiver.blocks_due());
  CHECK(b.say().sack[0] == block(1, 7));
  CHECK(b.hears(1, "abcdefg") == Place::acceptable);  // the last octet is new
  CHECK(b.readable() == "abcdefg");
}

TEST_CASE("W-TCP-12: without SACK no block is told, and each segment beyond a gap has its ACK",
          "[tcp][receiver][W-TCP-12]") {
  Bench b({}, agreed(false));
  b.hears(3, "c");
  b.hears(4, "d");
  b.hears(4, "d");
  CHECK_FALSE(b.receiver.tells_sack());
  int acks = 0;
  for (; b.receiver.ack_due(); ++acks) b.receiver.on_bare_ack_sent();
  CHECK(acks == 3);
}

TEST_CASE("W-TCP-25: as many blocks are told as the options have room for", "[tcp][receiver][W-TCP-25]") {
  Bench b;
  for (std::uint32_t first : {3u, 5u, 7u, 9u, 11u}) b.hears(first, "x");
  wire::TcpHeader header;
  b.receiver.add_sack(header, 11);
  CHECK(header.sack_count == 0);
  b.receiver.add_sack(header, 12);
  CHECK(header.sack_count == 1);
  CHECK(header.sack[0] == block(3, 4));  // as if it were sent when that came
  b.receiver.add_sack(header, 40);
  REQUIRE(header.sack_count == 4);
  CHECK(header.sack[0] == block(11, 12));
}

TEST_CASE("W-TCP-25: of a burst with many gaps all blocks are told, by as many ACKs as that takes",
          "[tcp][receiver][W-TCP-25]") {
  Bench b;
  for (std::uint32_t first = 3; first <= 21; first += 2) b.hears(first, "x");  // ten
  b.hears(4, "x");                                                             // of two it makes one
  std::vector<std::uint32_t> told;
  int acks = 0;
  for (; b.receiver.ack_due(); ++acks) {
    const wire::TcpHeader said = b.say();
    for (unsigned i = 0; i < said.sack_count; ++i) told.push_back(Seq{said.sack[i].first}.since(kTheirs));
  }
  CHECK(acks == 3);
  // The last says what came last.
  CHECK(told == std::vector<std::uint32_t>{13, 11, 9, 7, 21, 19, 17, 15, 3, 21, 19, 17});
  b.hears(23, "x");
  CHECK(b.say().sack_count == 4);  // news, and what was told before
  CHECK_FALSE(b.receiver.ack_due());
}

TEST_CASE("W-TCP-01: what reaches over the window's edge is cut, what begins there is refused",
          "[tcp][receiver][W-TCP-01]") {
  Bench b(small_window());
  SECTION("the last that fits") {
    CHECK(b.hears(1, std::string(100, 'x')) == Place::acceptable);
    CHECK(b.counters.out_of_window == 0);
    CHECK(b.receiver.received() == 100);
  }
  SECTION("one too many, and a FIN behind it") {
    CHECK(b.hears(1, std::string(101, 'x'), wire::tcp_flags::kFin) == Place::acceptable);
    CHECK(b.counters.out_of_window == 1);
    CHECK(b.receiver.received() == 100);
    CHECK_FALSE(b.closed);
    CHECK(b.receiver.ack_due());
  }
  SECTION("beyond") {
    CHECK(b.hears(100, "x") == Place::acceptable);
    CHECK(b.hears(101, "x") == Place::outside);
    CHECK(b.hears(101, "") == Place::acceptable);  // a bare ACK may stand at the edge
    CHECK(b.hears(102, "") == Place::outside);
  }
}

TEST_CASE("W-TCP-01: a probe of the shut window is answered and not taken", "[tcp][receiver][W-TCP-01]") {
  Bench b(small_window());
  b.hears(1, std::string(100, 'x'));
  CHECK(b.say().window == 0);
  CHECK(b.hears(101, "y") == Place::acceptable);  // its ACK counts
  CHECK(b.receiver.received() == 100);
  CHECK(b.receiver.ack_due());
  b.say();
  CHECK(b.hears(102, "") == Place::acceptable);  // so does one from behind such a probe
  CHECK_FALSE(b.receiver.ack_due());
}

TEST_CASE("W-TCP-01: the window opens by enough or not at all", "[tcp][receiver][W-TCP-01]") {
  Bench b(small_window());
  b.hears(1, std::string(100, 'x'));
  b.say();
  CHECK_FALSE(b.receiver.consume(19));  // less than an MSS
  CHECK(b.say().window == 0);
  CHECK(b.receiver.consume(1));
  CHECK(b.say().window == 20);
  CHECK(b.receiver.consumed() == 20);
  CHECK(b.receiver.edge() == Bench::at(121));
}

TEST_CASE("W-TCP-01: without a scale the window is at most what 16 bits say", "[tcp][receiver][W-TCP-01]") {
  Handshake handshake = agreed();
  Bench plain({}, handshake);
  CHECK(plain.say().window == 0xFFFF);
  CHECK(plain.receiver.edge() == Bench::at(1 + 0xFFFF));
  handshake.scaling = true;
  handshake.receive_shift = 5;
  Bench scaled({}, handshake);
  CHECK(scaled.say().window == (1u << 20 >> 5));
  CHECK(scaled.receiver.edge() == Bench::at(1 + (1u << 20)));
}

TEST_CASE("the receiver takes a FIN behind all octets in front of it", "[tcp][receiver]") {
  Bench b;
  b.hears(4, "def", wire::tcp_flags::kFin);
  CHECK(b.receiver.fin_known());
  CHECK_FALSE(b.closed);
  b.hears(1, "abc");
  CHECK(b.closed);
  CHECK(b.receiver.peer_closed());
  CHECK(b.readable() == "abcdef");
  CHECK(b.acknowledges() == 8);
  CHECK(b.hears(8, "more") == Place::acceptable);
  CHECK(b.readable() == "abcdef");
}

TEST_CASE("W-TCP-17: the receiver acknowledges nothing at and after where it is held", "[tcp][receiver][W-TCP-17]") {
  Bench b;
  b.receiver.hold_acknowledgements_from(2);
  b.hears(1, "abcd");
  CHECK(b.acknowledges() == 3);
  CHECK(b.receiver.is_exact(Bench::at(3)));  // where the peer believes us to be
  CHECK(b.receiver.is_exact(Bench::at(5)));  // and where we are
  CHECK_FALSE(b.receiver.is_exact(Bench::at(4)));
  CHECK_FALSE(b.receiver.ack_due());
  b.receiver.hold_acknowledgements_from(Receiver::kNoHold);
  CHECK(b.receiver.ack_due());
  CHECK(b.acknowledges() == 5);
}

TEST_CASE("RFC 5961 s3.2: a sequence number is in the window up to its edge, and at RCV.NXT of one that is shut",
          "[tcp][receiver][W-TCP-01]") {
  Bench b(small_window());
  CHECK(b.receiver.in_window(Bench::at(100)));
  CHECK_FALSE(b.receiver.in_window(Bench::at(101)));
  CHECK_FALSE(b.receiver.in_window(Bench::at(0)));
  b.hears(1, std::string(100, 'x'));
  b.say();
  CHECK(b.receiver.in_window(Bench::at(101)));
  CHECK_FALSE(b.receiver.in_window(Bench::at(102)));
}

TEST_CASE("W-TCP-26: a timestamp is outdated when it is older than the last, and for 24 days",
          "[tcp][receiver][W-TCP-26]") {
  Handshake handshake = agreed();
  handshake.timestamps = true;
  handshake.timestamp_recent = 5;
  Bench b({}, handshake);
  CHECK_FALSE(b.receiver.is_outdated(5, kStart));
  CHECK(b.receiver.is_outdated(4, kStart));
  CHECK(b.receiver.is_outdated(0xFFFFFFFF, kStart));  // before the wrap
  const Duration life = seconds(24 * 24 * 3600);
  CHECK(b.receiver.is_outdated(4, kStart + life - Duration{1}));
  CHECK_FALSE(b.receiver.is_outdated(4, kStart + life));
}

TEST_CASE("RFC 7323 s4.3: what is echoed is of a segment that reaches over what was acknowledged last",
          "[tcp][receiver][W-TCP-12]") {
  Handshake handshake = agreed();
  handshake.timestamps = true;
  Bench b({}, handshake);
  b.hears(1, "abc");
  const auto tells = [&](std::uint32_t first, std::string_view text) {
    SegmentIn segment = b.made(first, text);
    return b.receiver.tells_timestamp(Bench::incoming(segment));
  };
  CHECK(tells(1, "abc"));  // at Last.ACK.sent, though all of it came
  b.say();
  CHECK_FALSE(tells(1, "abc"));  // ends there
  CHECK(tells(1, "abcd"));       // reaches over
  CHECK(tells(4, ""));           // no octets, and stands there
  CHECK_FALSE(tells(5, "e"));    // behind a gap
}

TEST_CASE("what is in order stays readable when the receiver stops, what is not goes", "[tcp][receiver]") {
  Bench b;
  b.hears(1, "abc");
  b.hears(5, "e");
  b.receiver.stop();
  CHECK(b.receiver.beyond_count() == 0);
  CHECK_FALSE(b.receiver.ack_due());
  CHECK(b.receiver.deadline() == kNever);
  CHECK(b.readable() == "abc");
  b.receiver.drop_readable();
  CHECK(b.receiver.readable_count() == 0);
  CHECK(b.receiver.consumed() == 3);
  CHECK(b.receiver.kept().small == 0);
}
