// SYN cookies and half-open connections (RFC 4987), and what begins anew in TIME-WAIT (RFC 6191).
#include "tcp/cookies.hpp"
#include "kit/tcp_conversation.hpp"
#include "tcp/reuse.hpp"

using namespace rnic;
using tcp::Cookies;
using tcp::Handshake;
using tcp::Seq;
namespace flag = wire::tcp_flags;

namespace {

constexpr Instant kNow{seconds(1000).ns};
constexpr std::uint64_t kName = 0x1234567890ABCDEF;

wire::TcpHeader syn_with(std::uint16_t mss) {
  wire::TcpHeader header;
  header.flags = flag::kSyn;
  header.sequence = 0xFFFFFFFF;  // its first octet is 0
  header.mss = mss;
  header.sack_permitted = true;
  header.window_scale = 9;
  return header;
}

// What comes back when the SYN-ACK arrived.
wire::TcpHeader third(const Handshake& made) {
  wire::TcpHeader header;
  header.flags = flag::kAck;
  header.sequence = made.theirs.value + 1;
  header.acknowledgement = made.ours.value + 1;
  header.window = 777;
  return header;
}

tcp::Options with_timestamps() {
  tcp::Options options;
  options.timestamps = true;
  return options;
}

}  // namespace

TEST_CASE("W-TCP-01: SipHash gives what its authors say", "[tcp][W-TCP-01]") {
  constexpr SipKey key{0x0706050403020100, 0x0f0e0d0c0b0a0908};
  const std::uint64_t words[2] = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
  CHECK(siphash({}, key) == 0x726fdb47dd0e0e31);
  CHECK(siphash(std::span(words, 1), key) == 0x93f5f5799a932462);
  CHECK(siphash(words, key) == 0x3f2acc7f57c29bdb);
}

TEST_CASE("W-TCP-01: a cookie that comes back opens a connection without scale and SACK", "[tcp][W-TCP-01]") {
  Cookies cookies({1, 2});
  const Handshake made = cookies.make(kName, syn_with(1460), {}, 0, kNow);
  CHECK_FALSE(made.sack);
  CHECK_FALSE(made.scaling);
  const auto opened = cookies.open(kName, third(made), {}, 0, kNow + seconds(1));
  REQUIRE(opened);
  CHECK(opened->ours == made.ours);
  CHECK(opened->theirs == made.theirs);
  CHECK(opened->peer_mss == 1460);
  CHECK(opened->window == 777);
  CHECK_FALSE(opened->sack);
  CHECK_FALSE(opened->scaling);
  CHECK_FALSE(opened->timestamps);
}

TEST_CASE("W-TCP-01: the MSS in a cookie is the nearest that is not above the peer's", "[tcp][W-TCP-01]") {
  Cookies cookies({1, 2});
  const auto comes_back = [&](std::uint16_t mss) {
    return cookies.open(kName, third(cookies.make(kName, syn_with(mss), {}, 0, kNow)), {}, 0, kNow)->peer_mss;
  };
  CHECK(comes_back(0) == 48);
  CHECK(comes_back(535) == 48);
  CHECK(comes_back(536) == 536);
  CHECK(comes_back(1459) == 1440);
  CHECK(comes_back(8899) == 1460);
  CHECK(comes_back(8960) == 8900);
  // What ports in memory have: frames of 65,535 octets, less the headers of IPv6 or IPv4.
  CHECK(comes_back(65'474) == 8900);
  CHECK(comes_back(65'475) == 65'475);
  CHECK(comes_back(65'495) == 65'475);
}

TEST_CASE("W-TCP-01: a cookie is of one connection, and of one key", "[tcp][W-TCP-01]") {
  Cookies cookies({1, 2}), others({1, 3});
  const Handshake made = cookies.make(kName, syn_with(1460), {}, 0, kNow);
  (void)others.make(kName, syn_with(1460), {}, 0, kNow);
  const wire::TcpHeader right = third(made);
  REQUIRE(cookies.open(kName, right, {}, 0, kNow));
  CHECK_FALSE(others.open(kName, right, {}, 0, kNow));
  CHECK_FALSE(cookies.open(kName + 1, right, {}, 0, kNow));
  auto wrong = right;
  ++wrong.sequence;
  CHECK_FALSE(cookies.open(kName, wrong, {}, 0, kNow));
  wrong = right;
  wrong.acknowledgement ^= 1u << 24;  // another MSS
  CHECK_FALSE(cookies.open(kName, wrong, {}, 0, kNow));
  wrong = right;
  ++wrong.acknowledgement;
  CHECK_FALSE(cookies.open(kName, wrong, {}, 0, kNow));
  wrong = right;
  wrong.flags = flag::kPsh;  // no ACK
  CHECK_FALSE(cookies.open(kName, wrong, {}, 0, kNow));
  wrong.flags = flag::kAck | flag::kSyn;
  CHECK_FALSE(cookies.open(kName, wrong, {}, 0, kNow));
}

TEST_CASE("W-TCP-01: a cookie holds for one period and a part of the next", "[tcp][W-TCP-01]") {
  Cookies cookies({1, 2});
  const Instant start{Cookies::kPeriod.ns * 100};
  const wire::TcpHeader header = third(cookies.make(kName, syn_with(1460), {}, 0, start));
  CHECK(cookies.open(kName, header, {}, 0, start + Cookies::kPeriod * 2 - nanoseconds(1)));
  // Others may have been sent since.
  (void)cookies.make(kName, syn_with(1460), {}, 0, start + Cookies::kPeriod * 2);
  CHECK_FALSE(cookies.open(kName, header, {}, 0, start + Cookies::kPeriod * 2));
}

TEST_CASE("W-TCP-01: where none was sent lately none is looked for", "[tcp][W-TCP-01]") {
  Cookies cookies({1, 2}), quiet({1, 2});
  const Handshake made = cookies.make(kName, syn_with(1460), {}, 0, kNow);
  CHECK(cookies.any_valid(kNow + Cookies::kPeriod * 2 - nanoseconds(1)));
  CHECK_FALSE(cookies.any_valid(kNow + Cookies::kPeriod * 2));
  CHECK_FALSE(quiet.open(kName, third(made), {}, 0, kNow));
}

TEST_CASE("W-TCP-12: with timestamps a cookie keeps the window scale and SACK", "[tcp][W-TCP-12]") {
  Cookies cookies({1, 2});
  const tcp::Options options = with_timestamps();
  constexpr std::uint32_t kOffset = 0xFFFFFFF3;  // of this connection's clock
  auto syn = syn_with(1460);
  syn.timestamps = {500, 0};
  const auto comes_back = [&] {
    const Handshake made = cookies.make(kName, syn, options, kOffset, kNow);
    auto header = third(made);
    header.timestamps = {501, tcp::cookie_timestamp(made, kNow)};
    return *cookies.open(kName, header, options, kOffset, kNow);
  };
  Handshake opened = comes_back();
  CHECK(opened.timestamps);
  CHECK(opened.timestamp_recent == 501);
  CHECK(opened.sack);
  CHECK(opened.scaling);
  CHECK(opened.send_shift == 9);
  CHECK(opened.receive_shift == 5);
  syn.sack_permitted = false;
  syn.window_scale.reset();
  opened = comes_back();
  CHECK_FALSE(opened.sack);
  CHECK_FALSE(opened.scaling);
  CHECK(opened.send_shift == 0);
  CHECK(opened.receive_shift == 0);
}

TEST_CASE("W-TCP-12: a window is scaled only where 16 bits do not hold it", "[tcp][rfc7323][W-TCP-12]") {
  CHECK(tcp::window_shift(0) == 0);
  CHECK(tcp::window_shift(65535) == 0);
  CHECK(tcp::window_shift(65536) == 1);
  CHECK(tcp::window_shift(131071) == 1);
  CHECK(tcp::window_shift(131072) == 2);
  CHECK(tcp::window_shift(0x3FFFFFFF) == 14);
  CHECK(tcp::window_shift(0xFFFFFFFF) == 14);  // RFC 7323 s2.3
}

TEST_CASE("W-TCP-12: a cookie's timestamp is never ahead of the clock", "[tcp][W-TCP-12]") {
  Cookies cookies({1, 2});
  const tcp::Options options = with_timestamps();
  auto syn = syn_with(1460);
  syn.timestamps = {500, 0};
  for (int i = 0; i < 100; ++i) {
    const Instant now = kNow + milliseconds(i);
    const Handshake made = cookies.make(kName, syn, options, 0, now);
    CHECK(tcp::timestamp_clock(now) - tcp::cookie_timestamp(made, now) < 32);
  }
}

TEST_CASE("W-TCP-01: TIME-WAIT gives way to a SYN from further on only", "[tcp][W-TCP-01]") {
  const tcp::Finished finished{.send_next = {1}, .receive_next = {0xFFFFFFFF}};
  wire::TcpHeader syn = syn_with(1460);
  syn.sequence = 0xFFFFFFFF;
  CHECK_FALSE(tcp::may_begin_anew(finished, syn, true));
  syn.sequence = 0;
  CHECK(tcp::may_begin_anew(finished, syn, true));
  syn.sequence = 0x80000000;  // nearer from behind
  CHECK_FALSE(tcp::may_begin_anew(finished, syn, true));
}

TEST_CASE("W-TCP-12: with timestamps TIME-WAIT gives way to a later one, whatever its sequence number",
          "[tcp][W-TCP-12]") {
  tcp::Finished finished{.send_next = {1}, .receive_next = {1000}, .timestamps = wire::TcpTimestamps{77, 5000}};
  wire::TcpHeader syn = syn_with(1460);
  const auto accepts = [&](std::uint32_t sequence, std::uint32_t stamp) {
    syn.sequence = sequence;
    syn.timestamps = wire::TcpTimestamps{stamp, 0};
    return tcp::may_begin_anew(finished, syn, true);
  };
  CHECK(accepts(10, 5001));
  CHECK(accepts(1001, 5000));
  CHECK_FALSE(accepts(10, 5000));
  CHECK_FALSE(accepts(1001, 4999));  // an old duplicate
  syn.timestamps.reset();
  CHECK(tcp::may_begin_anew(finished, syn, true));
  syn.sequence = 10;
  CHECK_FALSE(tcp::may_begin_anew(finished, syn, true));
  // The old one had none: the new one's are later than nothing, if they are used.
  finished.timestamps.reset();
  CHECK(accepts(10, 1));
  CHECK_FALSE(tcp::may_begin_anew(finished, syn, false));
}
