// The path's MTU: what routers say, black holes, and probes upwards (RFC 1191, 8201, 4821, 8899,
// 5927 s7).
#include "tcp/path_mtu.hpp"

#include "kit/tcp_conversation.hpp"

using namespace rnic;
using namespace rnic::test;
using tcp::PathMtu;
using tcp::Seq;

namespace {

constexpr Instant kStart{seconds(1000).ns};
constexpr std::uint32_t kHeaders = 40, kFloor = 512, kTop = 1460;

PathMtu plain(std::uint32_t ceiling = kTop) { return PathMtu(kHeaders, kFloor, ceiling); }

// One turn of the search on a path that lets through `truth`. False: nothing was to be tried.
bool search_step(PathMtu& path, std::uint32_t truth, Instant& now, unsigned& lost) {
  const std::uint32_t size = path.wanted_probe(now);
  if (size == 0) return false;
  path.on_probe_begun(size, now);
  REQUIRE(path.on_probe_handed(size));
  if (size <= truth) {
    path.on_probe_arrived(now);
  } else {
    ++lost;
    path.on_probe_lost(PathMtu::Lost::alone, {}, now);
  }
  return true;
}

}  // namespace

// ---- what routers say ---------------------------------------------------------------------------

TEST_CASE("W-TCP-07: a router is believed at once where nothing larger has come through", "[tcp][W-TCP-07]") {
  auto path = plain();
  CHECK_FALSE(path.on_packet_too_big(1460, Seq{1}, kStart));  // no less than what we send
  CHECK(path.on_packet_too_big(1459, Seq{1}, kStart));
  CHECK(path.size_bytes() == 1459);
  path.on_acknowledged(1000, Seq{1000});
  CHECK(path.on_packet_too_big(1000, Seq{1000}, kStart));
  CHECK(path.size_bytes() == 1000);
}

TEST_CASE("W-TCP-07: less than what every path lets through is not believed", "[tcp][W-TCP-07]") {
  auto path = plain();
  CHECK_FALSE(path.on_packet_too_big(kFloor - 1, Seq{1}, kStart));
  CHECK(path.size_bytes() == kTop);
  CHECK(path.on_packet_too_big(kFloor, Seq{1}, kStart));
  CHECK(path.size_bytes() == kFloor);
}

TEST_CASE("W-TCP-07: where larger ones did come through a router is believed when a timeout says so, too",
          "[tcp][W-TCP-07]") {
  auto path = plain();
  path.on_acknowledged(1001, Seq{100});
  CHECK_FALSE(path.on_packet_too_big(1000, Seq{100}, kStart));
  CHECK(path.size_bytes() == kTop);
  SECTION("of a segment that large") {
    CHECK_FALSE(path.on_timeout(1, 1000, kStart));
    CHECK(path.on_timeout(1, 1001, kStart));
    CHECK(path.size_bytes() == 1000);
  }
  SECTION("not when the segment has come through after all") {
    path.on_acknowledged(500, Seq{100});  // up to it: not yet
    path.on_acknowledged(500, Seq{101});
    CHECK_FALSE(path.on_timeout(1, 1460, kStart));
    CHECK(path.size_bytes() == kTop);
  }
}

TEST_CASE("W-TCP-07: a connection hears a router only of what is in flight", "[tcp][W-TCP-07]") {
  auto c = Conversation::established(no_tail_probe());
  c.appends(3, 1460);
  c.says(data(1, pattern(1460)).no_psh());
  c.hears(ack(1461));
  c.says(data(1461, pattern(1460, 1460)).no_psh());
  c.says(data(2921, pattern(1460, 2920)));
  const auto told = [&](std::uint32_t at) {
    c->on_packet_too_big(1400, Seq{Conversation::kOurStart + at}, c.now());
    c.at(200).next();  // if it was heard, the timeout confirms it
    return c->emss() == 1400;
  };
  SECTION("before it") { CHECK_FALSE(told(1460)); }
  SECTION("the first") { CHECK(told(1461)); }
  SECTION("the last") { CHECK(told(4380)); }
  SECTION("behind it") { CHECK_FALSE(told(4381)); }
}

TEST_CASE("W-TCP-07: a router in mid-stream: after the timeout all that is too long goes again, cut",
          "[tcp][W-TCP-07]") {
  auto c = Conversation::established(no_tail_probe());
  c.appends(1, 1460);
  c.says(data(1, pattern(1460)));
  c.at(1).hears(ack(1461));
  c.appends(2, 1460);
  c.at(2).says(data(1461, pattern(1460, 1460)).no_psh());
  c.at(2).says(data(2921, pattern(1460, 2920)));
  c.at(3)->on_packet_too_big(1000, Seq{Conversation::kOurStart + 1461}, c.now());
  CHECK(c->emss() == 1460);
  c.is_silent_until(202).says(data(1461, pattern(1000, 1460)).no_psh());
  CHECK(c->emss() == 1000);
  c.at(203).hears(ack(2461));
  c.says(data(2461, pattern(460, 2460)).no_psh());
  c.says(data(2921, pattern(1000, 2920)).no_psh());
  c.at(204).hears(ack(3921));
  c.says(data(3921, pattern(460, 3920)));
  c.hears(ack(4381));
  CHECK(c->acknowledged() == 4380);
}

TEST_CASE("W-TCP-07: a router in the beginning: at once, and without a smaller congestion window", "[tcp][W-TCP-07]") {
  auto c = Conversation::established(no_tail_probe());
  c.appends(2, 1400);
  c.says(data(1, pattern(1400)).no_psh());
  c.says(data(1401, pattern(1400, 1400)));
  const auto window = c->congestion_window_bytes();
  c->on_packet_too_big(1000, Seq{Conversation::kOurStart + 1}, c.now());
  CHECK(c->emss() == 1000);
  c.says(data(1, pattern(1000)).no_psh());
  c.says(data(1001, pattern(400, 1000)).no_psh());
  c.says(data(1401, pattern(1000, 1400)).no_psh());
  c.says(data(2401, pattern(400, 2400)));
  CHECK(c->congestion_window_bytes() == window);
  CHECK(c->counters().timeouts == 0);
}

// ---- black holes --------------------------------------------------------------------------------

TEST_CASE("W-TCP-07: three timeouts in a row of a large segment are a black hole", "[tcp][W-TCP-07]") {
  auto path = plain();
  CHECK_FALSE(path.on_timeout(1, 1460, kStart));
  CHECK_FALSE(path.on_timeout(2, 1460, kStart));
  CHECK(path.on_timeout(3, 1460, kStart));
  CHECK(path.size_bytes() == 1240);  // IPv6's least MTU, and what tunnels let through
  CHECK(path.on_timeout(4, 1240, kStart));
  CHECK(path.size_bytes() == kFloor);
  CHECK_FALSE(path.on_timeout(5, kFloor, kStart));
}

TEST_CASE("W-TCP-07: timeouts of segments that are small anyway say nothing of the path", "[tcp][W-TCP-07]") {
  auto path = plain();
  CHECK_FALSE(path.on_timeout(5, kFloor + 32, kStart));  // hardly more than the least
  CHECK(path.size_bytes() == kTop);
  CHECK(path.on_timeout(5, kFloor + 33, kStart));
  CHECK(path.size_bytes() == kFloor);
}

TEST_CASE("W-TCP-07: IPv6's least is never gone below", "[tcp][W-TCP-07]") {
  PathMtu path(60, 1220, 1440);
  CHECK(path.on_timeout(3, 1440, kStart));
  CHECK(path.size_bytes() == 1220);
  CHECK_FALSE(path.on_timeout(4, 1220, kStart));
}

TEST_CASE("W-TCP-07: on a path that swallows long segments in silence the stream goes on in short ones",
          "[tcp][W-TCP-07]") {
  auto c = Conversation::established(no_tail_probe());
  c.appends(1, 1460).appends(1, 100);
  c.at(0).says(data(1, pattern(1460)).no_psh());
  c.at(0).says(data(1461, pattern(100, 1460)));
  c.at(1).hears(ack(1).sack(1461, 1561));
  c.is_silent_until(1.25).says(data(1, pattern(1460)).no_psh());
  c.is_silent_until(200).says(data(1, pattern(1460)).no_psh());
  c.is_silent_until(600).says(data(1, pattern(1460)).no_psh());
  CHECK(c->emss() == 1460);
  c.is_silent_until(1400).says(data(1, pattern(1240)).no_psh());
  CHECK(c->emss() == 1240);
  c.at(1401).hears(ack(1241).sack(1461, 1561));
  c.says(data(1241, pattern(220, 1240)).no_psh());
  c.hears(ack(1561));
  CHECK(c->acknowledged() == 1560);
}

// ---- probes -------------------------------------------------------------------------------------

TEST_CASE("W-TCP-07: whatever the path lets through is found, or nearly", "[tcp][W-TCP-07]") {
  for (const std::uint32_t top : {1460u, 4056u, 8960u}) {
    for (std::uint32_t truth = 1240; truth <= top; truth += 7) {
      auto path = plain(top);
      REQUIRE(path.on_timeout(3, top, kStart));
      Instant now = kStart;
      unsigned lost = 0;
      for (int i = 0; i < 1000; ++i) {
        if (!search_step(path, truth, now, lost)) now = now + milliseconds(100);
        if (now > kStart + seconds(300)) break;
      }
      INFO("top " << top << " truth " << truth);
      REQUIRE(path.size_bytes() <= truth);
      REQUIRE(path.size_bytes() + 32 >= truth);
      REQUIRE(lost <= 26);
    }
  }
}

TEST_CASE("W-TCP-07: after an outage the first probe asks for all, and gets it", "[tcp][W-TCP-07]") {
  auto path = plain(8960);
  REQUIRE(path.on_timeout(3, 8960, kStart));
  CHECK(path.wanted_probe(kStart + milliseconds(999)) == 0);
  Instant now = kStart + seconds(1);
  CHECK(path.wanted_probe(now) == 8960);
  unsigned lost = 0;
  REQUIRE(search_step(path, 8960, now, lost));
  CHECK(path.size_bytes() == 8960);
  CHECK(path.wanted_probe(now + seconds(100'000)) == 0);
}

TEST_CASE("W-TCP-07: what a router has said is doubted after ten minutes", "[tcp][W-TCP-07]") {
  auto path = plain();
  REQUIRE(path.on_packet_too_big(1400, Seq{1}, kStart));
  CHECK(path.wanted_probe(kStart + seconds(600) - nanoseconds(1)) == 0);
  Instant now = kStart + seconds(600);
  CHECK(path.wanted_probe(now) == kTop);
  SECTION("and said again: the search is over, and rests") {
    path.on_probe_begun(kTop, now);
    REQUIRE(path.on_probe_handed(kTop));
    CHECK_FALSE(path.on_packet_too_big(1400, Seq{1}, now));
    path.on_probe_lost(PathMtu::Lost::alone, {}, now);
    CHECK(path.wanted_probe(now + seconds(600)) == 0);
    CHECK(path.wanted_probe(now + seconds(601)) == kTop);
  }
  SECTION("and another size said: that is tried next, exactly") {
    path.on_probe_begun(kTop, now);
    REQUIRE(path.on_probe_handed(kTop));
    CHECK_FALSE(path.on_packet_too_big(1411, Seq{1}, now));
    path.on_probe_lost(PathMtu::Lost::alone, {}, now);
    now = now + seconds(1);
    CHECK(path.wanted_probe(now) == 1411);
    unsigned lost = 0;
    REQUIRE(search_step(path, 1411, now, lost));
    CHECK(path.size_bytes() == 1411);
    CHECK(path.wanted_probe(now + seconds(599)) == 0);
  }
}

TEST_CASE("W-TCP-07: a size is given up after three probes, unless others were lost beside it", "[tcp][W-TCP-07]") {
  auto path = plain(8960);
  REQUIRE(path.on_packet_too_big(1460, Seq{1}, kStart));
  Instant now = kStart + seconds(600);
  const auto lose = [&](PathMtu::Lost how, Duration pause) {
    const auto size = path.wanted_probe(now);
    path.on_probe_begun(size, now);
    REQUIRE(path.on_probe_handed(size));
    path.on_probe_lost(how, pause, now);
    const Duration wait = std::max(pause, seconds(1));
    CHECK(path.wanted_probe(now + wait - nanoseconds(1)) == 0);
    now = now + wait;
    return size;
  };
  CHECK(lose(PathMtu::Lost::alone, {}) == 8960);
  CHECK(lose(PathMtu::Lost::among_others, {}) == 8960);
  CHECK(lose(PathMtu::Lost::alone, seconds(3)) == 8960);
  CHECK(lose(PathMtu::Lost::among_others, {}) == 8960);
  CHECK(lose(PathMtu::Lost::alone, {}) == 8960);
  CHECK(lose(PathMtu::Lost::alone, {}) == 5210);  // half of what is between
}

TEST_CASE("W-TCP-07: a probe that was begun and not sent is asked for again", "[tcp][W-TCP-07]") {
  auto path = plain();
  REQUIRE(path.on_timeout(3, 1460, kStart));
  Instant now = kStart + seconds(1);
  REQUIRE(path.wanted_probe(now) == kTop);
  path.on_probe_begun(kTop, now);
  CHECK(path.wanted_probe(now) == 0);
  CHECK_FALSE(path.on_probe_handed(1240));  // an ordinary segment
  CHECK(path.wanted_probe(now + seconds(1)) == kTop);
}

TEST_CASE("W-TCP-08: the ceiling moves the size with it, unless the path is the limit", "[tcp][W-TCP-08]") {
  auto path = plain();
  path.set_ceiling(1000);
  CHECK(path.size_bytes() == 1000);
  path.set_ceiling(8960);
  CHECK(path.size_bytes() == 8960);
  REQUIRE(path.on_packet_too_big(1400, Seq{1}, kStart));
  path.set_ceiling(4000);
  CHECK(path.size_bytes() == 1400);
  path.set_ceiling(1300);
  CHECK(path.size_bytes() == 1300);
  path.set_ceiling(1460);
  CHECK(path.size_bytes() == 1460);
}

namespace {

// Fallen into a black hole and out of it: 1240 octets instead of 1460. `timeouts_ms`: when the segment
// goes again; 100 ms after the last of them it is acknowledged.
Conversation after_a_black_hole(tcp::Options options = no_tail_probe(),
                                std::vector<double> timeouts_ms = {200, 600, 1400}) {
  auto c = Conversation::established(options);
  c.appends(1, 1460);
  REQUIRE(c.next());
  for (const double ms : timeouts_ms) {
    c.at(ms);
    REQUIRE(c.next());
  }
  c.at(timeouts_ms.back() + 100).hears(ack(1241));
  REQUIRE(c.next());
  c.hears(ack(1461));
  REQUIRE(c->emss() == 1240);
  return c;
}

}  // namespace

TEST_CASE("W-TCP-07: a connection sends a probe whole, and its segments grow when that has arrived",
          "[tcp][W-TCP-07]") {
  auto c = after_a_black_hole();
  CHECK(c->begin_segment(10'000, c.now()) == 1240);
  c.at(2400);
  CHECK(c->begin_segment(1459, c.now()) == 1240);  // no room for it
  CHECK(c->begin_segment(1460, c.now()) == 1460);
  CHECK(c->begin_segment(1460, c.now()) == 1240);  // one is enough
  CHECK(c->emss() == 1240);
  c.appends(1, 100).appends(1, 1460);
  c.says(data(1461, pattern(100, 1460)).no_psh());
  c.says(data(1561, pattern(1460, 1560)));
  CHECK(c->counters().path_probes == 1);
  SECTION("acknowledged") { c.at(2401).hears(ack(3021)); }
  SECTION("or SACKed") { c.at(2401).hears(ack(1461).sack(1561, 3021)); }
  CHECK(c->emss() == 1460);
}

TEST_CASE("W-TCP-04: a second segment as long as the probe is just too long, and cut", "[tcp][W-TCP-04]") {
  auto c = after_a_black_hole();
  c.at(2400);
  REQUIRE(c->begin_segment(10'000, c.now()) == 1460);
  c.appends(2, 1460);
  c.hears(ack(1461));
  CHECK(c->counters().path_probes == 1);
  c.says(data(1461, pattern(1460, 1460)).no_psh());
  c.is_silent();  // a congestion window of two segments
  c.hears(ack(2921));
  CHECK(c->emss() == 1460);
  c.says(data(2921, pattern(1460, 2920)));
}

TEST_CASE("W-TCP-07: a lost probe goes again in pieces, is no loss for congestion control, and changes nothing",
          "[tcp][W-TCP-07]") {
  auto c = Conversation::established(no_tail_probe());
  c.appends(1, 1400);
  c.says(data(1, pattern(1400)));
  c->on_packet_too_big(1240, Seq{Conversation::kOurStart + 1}, c.now());
  REQUIRE(c.next());
  REQUIRE(c.next());
  c.at(1).hears(ack(1401));
  constexpr double kLater = 600'000;  // when a router's word is doubted
  c.at(kLater);
  REQUIRE(c->begin_segment(10'000, c.now()) == 1460);
  c.appends(1, 1460).appends(3, 1240);
  for (int i = 0; i < 4; ++i) REQUIRE(c.next());
  const auto window = c->congestion_window_bytes();
  c.at(kLater + 1).hears(ack(1401).sack(2861, 4101));
  c.hears(ack(1401).sack(2861, 5341));
  c.hears(ack(1401).sack(2861, 6581));
  c.says(data(1401, pattern(1240, 1400)).no_psh());
  c.says(data(2641, pattern(220, 2640)).no_psh());
  CHECK(c->congestion_window_bytes() == window);
  CHECK(c->counters().fast_retransmits == 0);
  c.at(kLater + 2).hears(ack(6581));
  CHECK(c->emss() == 1240);
  CHECK(c->begin_segment(10'000, c.now()) == 1240);
  c.at(kLater + 1001);
  CHECK(c->begin_segment(10'000, c.now()) == 1460);  // once more: it may have been chance
}

TEST_CASE("W-TCP-07: no probe is begun while losses are being repaired", "[tcp][W-TCP-07]") {
  auto c = after_a_black_hole();
  c.at(2400).appends(5, 100);
  for (int i = 0; i < 5; ++i) c.next();
  c.hears(ack(1461).sack(1561, 1961));
  CHECK(c->begin_segment(10'000, c.now()) == 1240);
  c.hears(ack(1961));
  CHECK(c->begin_segment(10'000, c.now()) == 1460);
}

TEST_CASE("W-TCP-07: a probe at the tail that is not answered is taken back by the tail probe", "[tcp][W-TCP-07]") {
  auto c = after_a_black_hole(tcp::Options{}, {200, 400, 800, 1600});  // the first is a tail probe's
  c.at(2600).appends(1, 100);
  c.says(data(1461, pattern(100, 1460)));
  c.at(2601).hears(ack(1561));  // a round trip, without which no tail probe goes
  const auto probes = c->counters().tail_probes;
  REQUIRE(c->begin_segment(10'000, c.now()) == 1460);
  c.appends(1, 1460);
  c.says(data(1561, pattern(1460, 1560)));
  c.wakes();
  c.says(data(1561, pattern(1240, 1560)).no_psh());
  CHECK(c->counters().tail_probes == probes + 1);
  CHECK(c->counters().timeouts == 3);  // of the black hole
  CHECK(c->emss() == 1240);
}

TEST_CASE("W-TCP-07: a probe that meets a small window is cut, and is none", "[tcp][W-TCP-07]") {
  auto c = after_a_black_hole();
  c.at(2400);
  REQUIRE(c->begin_segment(10'000, c.now()) == 1460);
  c.hears(ack(1461).window(1300));
  c.appends(1, 1460);
  c.says(data(1461, pattern(1300, 1460)).no_psh());
  c.hears(ack(2761).window(2000));
  c.says(data(2761, pattern(160, 2760)));
  CHECK(c->emss() == 1240);
}

TEST_CASE("W-TCP-12: with timestamps a probe has 12 octets less", "[tcp][W-TCP-12]") {
  tcp::Options options = no_tail_probe();
  options.timestamps = true;
  Conversation c(options);
  c.answers(syn().timestamps(1000, 0));
  REQUIRE(c.next());
  c.hears(Line{.flags = wire::tcp_flags::kAck, .sequence = 1, .ack_ = 1}.timestamps(1001, 0));
  c.appends(1, 1448);
  for (const double ms : {0.0, 200.0, 600.0, 1400.0}) {
    c.at(ms);
    REQUIRE(c.next());
  }
  CHECK(c->emss() == 1228);
  c.hears(ack(1449).timestamps(1002, 0));
  c.at(2400);
  REQUIRE(c->begin_segment(10'000, c.now()) == 1448);
  c.appends(1, 1448);
  REQUIRE(c.next());
  c.hears(ack(2897).timestamps(1003, 0));
  CHECK(c->emss() == 1448);
}
