// Runs: several segments of equal length that leave as one frame. To the peer they are what they are, and so they are
// acknowledged, lost, sent again and counted each by itself.
#include "kit/tcp_conversation.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

// Payload and options of 65,535 octets of IP.
tcp::Options with_runs() {
  tcp::Options options;
  options.tail_loss_probe = false;
  options.run_bytes_max = 65'495;
  return options;
}

// A run of `octets`, in segments of 100.
void append_run(Conversation& c, std::size_t octets) {
  BufferRef buffer = BufferRef::take(c.pool());
  const std::string text = pattern(octets, c->appended());
  std::memcpy(buffer->append(static_cast<std::uint32_t>(octets)).data(), text.data(), octets);
  REQUIRE(c->append(std::move(buffer), 100));
}

// Octets from the `first`, counted from 0, in a frame of one segment, or of a run.
void says_octets(Conversation& c, std::uint32_t first, std::size_t octets, bool last = false) {
  const auto out = c.next();
  REQUIRE(out);
  CHECK(out->header.sequence - Conversation::kOurStart == 1 + first);
  CHECK(std::string(reinterpret_cast<const char*>(out->payload.data()), out->payload.size()) == pattern(octets, first));
  CHECK(out->unit_bytes == (octets > 100 ? 100 : 0));
  CHECK(out->header.has(wire::tcp_flags::kPsh) == last);
}

// Ten segments in one frame, at 0; the round trip is 40 ms.
Conversation ten_out(const tcp::Options& options = with_runs()) {
  auto c = Conversation::established(options, 65535, 40);
  append_run(c, 1000);
  says_octets(c, 0, 1000, true);
  c.is_silent();
  CHECK(c->counters().segments_out == 10);
  return c;
}

}  // namespace

TEST_CASE("W-TCP-01: a run is acknowledged by the segment, and wholly", "[tcp][W-TCP-01]") {
  auto c = ten_out();
  c.at(40).hears(ack(301));
  CHECK(c->acknowledged() == 300);
  CHECK(c->in_flight_bytes() == 700);
  CHECK(c->queued().all() == 1);
  c.at(41).hears(ack(1001));
  CHECK(c->in_flight_bytes() == 0);
  CHECK(c->queued().all() == 0);
  CHECK(c.pool().available() == 4096);
  c.is_silent();
}

TEST_CASE("W-TCP-03: of a run the segment that is lost goes again, as it was", "[tcp][W-TCP-03][rfc8985]") {
  auto c = ten_out();
  SECTION("the first") {
    c.at(40).hears(ack(1).sack(101, 401));
    says_octets(c, 0, 100);
    c.is_silent();
  }
  SECTION("one in the middle: those before it are acknowledged") {
    c.at(40).hears(ack(501).sack(601, 1001));
    says_octets(c, 500, 100);
    c.is_silent();
  }
  SECTION("two apart from each other, at the pace of a recovery") {
    c.at(40).hears(ack(1).sack(101, 501).sack(601, 1001));
    says_octets(c, 0, 100);
    says_octets(c, 500, 100);
    c.is_silent();
  }
  SECTION("an acknowledgement of a part of a segment leaves the others where they are") {
    c.at(40).hears(ack(251).sack(401, 1001));
    says_octets(c, 250, 50);
    says_octets(c, 300, 100);
    c.is_silent();
  }
  CHECK(c->counters().fast_retransmits == 1);
  c.at(90).hears(ack(1001));
  CHECK(c.pool().available() == 4096);
}

TEST_CASE("W-TCP-12: the segments of a run that were SACKed count as so many", "[tcp][W-TCP-12][rfc8985]") {
  auto c = ten_out();
  SECTION("two: it may be reordering") {
    c.at(40).hears(ack(1).sack(101, 301));
    c.is_silent_until(50);
    says_octets(c, 0, 100);
  }
  SECTION("three: it is a loss") {
    c.at(40).hears(ack(1).sack(101, 401));
    says_octets(c, 0, 100);
  }
}

TEST_CASE("W-TCP-19: after a timeout a run goes again by the segment", "[tcp][W-TCP-19]") {
  // To the peer it is as if they had been ten from the beginning.
  auto run = ten_out();
  auto each = Conversation::established(with_runs(), 65535, 40);
  each.appends(10, 100);
  while (each.next()) {
  }
  std::vector<std::uint32_t> said[2];
  for (int i = 0; i < 2; ++i) {
    Conversation& c = i == 0 ? run : each;
    const double at = c.wakes();
    CHECK(at >= 200);
    const auto listen = [&] {
      while (const auto out = c.next()) {
        CHECK(out->payload.size() == 100);
        CHECK(out->unit_bytes == 0);
        said[i].push_back(out->header.sequence - Conversation::kOurStart);
      }
    };
    listen();
    c.at(at + 40).hears(ack(101));
    listen();
    c.at(at + 80).hears(ack(301));
    listen();
  }
  CHECK(said[0].size() >= 3);
  CHECK(said[0] == said[1]);
}

TEST_CASE("W-TCP-01: the tail of a run is probed by its last segment", "[tcp][rfc8985][W-TCP-01]") {
  tcp::Options options = with_runs();
  options.tail_loss_probe = true;
  auto c = ten_out(options);
  // Two round trips: ten segments have no delayed acknowledgement to wait for.
  c.is_silent_until(80);
  says_octets(c, 900, 100, true);
  CHECK(c->counters().tail_probes == 1);
}

TEST_CASE("W-TCP-27: of a run as many segments go as the windows have room for", "[tcp][W-TCP-27]") {
  SECTION("the peer's") {
    auto c = Conversation::established(with_runs(), 450, 40);
    append_run(c, 1000);
    says_octets(c, 0, 400);
    c.is_silent();
    c.at(40).hears(ack(401).window(450));
    says_octets(c, 400, 400);
    c.is_silent();
    c.at(80).hears(ack(601).window(650));
    says_octets(c, 800, 200, true);
  }
  SECTION("the congestion window's") {
    auto c = Conversation::established(with_runs(), 65535, 40);
    for (int i = 0; i < 10; ++i) append_run(c, 2000);
    const std::uint32_t window = c->congestion_window_bytes();
    REQUIRE(window < 20'000);
    std::uint32_t sent = 0;
    while (const auto out = c.next()) sent += static_cast<std::uint32_t>(out->payload.size());
    CHECK(sent <= window);
    CHECK(sent + 100 > window);
    CHECK(sent % 100 == 0);
  }
}

TEST_CASE("W-MPA-59: a run of segments that have become too long is cut", "[tcp][W-MPA-59]") {
  tcp::Options options = with_runs();
  options.mss_bytes = 100;
  options.path_floor_bytes = 40;
  Conversation c(options);
  c.at(-40).answers(syn());
  REQUIRE(c.next());
  c.at(0).hears(ack(1));
  append_run(c, 300);
  c->set_mss(60);
  const std::uint32_t emss = c->emss();
  REQUIRE(emss < 100);
  // Each segment in two parts: what was cut is not mended, but behind it segments begin where they did.
  for (std::uint32_t first = 0; first < 300; first += 100) {
    says_octets(c, first, emss);
    says_octets(c, first + emss, 100 - emss, first == 200);
  }
  c.is_silent();
}

TEST_CASE("W-TCP-01: that the window was reduced is said by one segment", "[tcp][W-TCP-01][rfc3168]") {
  tcp::Options options = with_runs();
  options.ecn = tcp::EcnUse::on;
  Conversation c(options);
  Line call = syn();
  call.flags |= tcp::Ecn::kSetupSyn;
  c.at(-40).answers(call);
  REQUIRE(c.next());
  c.at(0).hears(ack(1).window(65535));
  append_run(c, 1000);
  const auto whole = c.next();
  REQUIRE(whole);
  CHECK(whole->may_be_marked);
  CHECK(whole->payload.size() == 1000);
  c.at(40).hears(ack(1001).ece());
  append_run(c, 1000);
  const auto alone = c.next();
  REQUIRE(alone);
  CHECK(alone->header.has(wire::tcp_flags::kCwr));
  CHECK(alone->payload.size() == 100);
  CHECK(alone->unit_bytes == 0);
  const auto rest = c.next();
  REQUIRE(rest);
  CHECK_FALSE(rest->header.has(wire::tcp_flags::kCwr));
  CHECK(rest->payload.size() == 900);
}

TEST_CASE("W-TCP-01: a run takes a slot for each of its segments", "[tcp][W-TCP-01]") {
  tcp::Options options = with_runs();
  options.send_segments_max = 256;
  auto c = Conversation::established(options, 65535, 40);
  CHECK(c->run_bytes() == 0);  // too few slots
  options.send_segments_max = 512;
  auto more = Conversation::established(options, 65535, 40);
  CHECK(more->run_bytes() != 0);
  unsigned runs = 0;
  for (;; ++runs) {
    BufferRef buffer = BufferRef::take(more.pool());
    buffer->append(640);
    if (!more->append(std::move(buffer), 10)) break;
  }
  CHECK(runs == (512 - 16) / 64);
}

TEST_CASE("W-TCP-01: a peer that knows no SACK gets no runs, nor does a path more than a burst", "[tcp][W-TCP-01]") {
  CHECK(Conversation::established_without_sack(with_runs())->run_bytes() == 0);
  CHECK(Conversation::established(with_runs(), 65535, 40)->run_bytes() == 65'495);
  CHECK(Conversation::established({}, 65535, 40)->run_bytes() == 0);
}

TEST_CASE("W-TCP-03: a buffer that a run was cut from is held once", "[tcp][W-TCP-03]") {
  HeapPool pool(PoolSize{.count = 4, .room_bytes = 2048, .large_count = 2, .large_room_bytes = 65'535});
  tcp::SendQueue queue(512);
  queue.start(tcp::Seq{1});
  BufferRef buffer{pool.take_large()};
  buffer->append(1000);
  REQUIRE(queue.append(std::move(buffer), 100));
  queue.on_sent({});
  tcp::Delivered delivered;
  CHECK(queue.sack(tcp::Seq{301}, tcp::Seq{501}, delivered));
  CHECK(queue.sack(tcp::Seq{701}, tcp::Seq{801}, delivered));
  CHECK(queue.sacked_count() == 3);
  CHECK(queue.held().large == 1);
  CHECK(queue.held().small == 0);
  queue.acknowledge(tcp::Seq{401}, delivered);
  CHECK(queue.held().large == 1);
  queue.acknowledge(tcp::Seq{1001}, delivered);
  CHECK(queue.held().all() == 0);
  CHECK(queue.sacked_count() == 0);
  CHECK(pool.large_available() == 2);
}

TEST_CASE("W-TCP-07: the segments of a run are as long as they are, not as the run", "[tcp][W-TCP-07][rfc8899]") {
  SECTION("a smaller MSS that they fit makes none of them lost") {
    auto c = ten_out();
    c->set_mss(600);
    c.is_silent();
    CHECK(c->counters().retransmitted == 0);
  }
  SECTION("that it came through says nothing of longer ones") {
    auto c = ten_out();
    c.at(40).hears(ack(1001));
    append_run(c, 1000);
    REQUIRE(c.next());
    c->on_packet_too_big(600, tcp::Seq{Conversation::kOurStart + 1001}, c.now());
    CHECK(c->emss() == 600);
  }
  SECTION("that it is late is no reason to believe a router's word about longer ones") {
    auto c = Conversation::established(with_runs(), 65535, 40);
    c.appends(1, 1460);
    REQUIRE(c.next());
    c.at(40).hears(ack(1461));
    append_run(c, 1000);
    REQUIRE(c.next());
    c->on_packet_too_big(600, tcp::Seq{Conversation::kOurStart + 1461}, c.now());
    c.wakes();
    REQUIRE(c.next());
    CHECK(c->counters().timeouts == 1);
    CHECK(c->emss() == 1460);
  }
}

TEST_CASE("W-TCP-12: after a timeout a run brings no more new octets than segments would", "[tcp][W-TCP-12][rfc5682]") {
  tcp::Options options = with_runs();
  options.mss_bytes = 100;
  options.path_floor_bytes = 40;
  std::size_t said[2];
  for (const bool run : {false, true}) {
    Conversation c(options);
    c.at(-40).answers(syn());
    REQUIRE(c.next());
    c.at(0).hears(ack(1));
    c.appends(8, 100);
    while (c.next()) {
    }
    c.wakes();
    REQUIRE(c.next());
    run ? append_run(c, 1000) : static_cast<void>(c.appends(10, 100));
    c.at(1000).hears(ack(601));
    said[run] = 0;
    while (const auto out = c.next()) said[run] += out->payload.size();
  }
  CHECK(said[0] > 0);
  CHECK(said[1] == said[0]);
}

TEST_CASE("W-TCP-01: a paced path has runs of a portion", "[tcp][W-TCP-01]") {
  auto c = Conversation::established(with_runs(), 65535, 40);
  for (int round = 1; round < 12; ++round) {
    for (int i = 0; i < 40 && c->room_bytes() >= 1460; ++i) c.appends(1, 1460);
    while (true) {
      while (c.next()) {
      }
      if (c->next_deadline() > c.now() + milliseconds(20)) break;
      c.wakes();
    }
    c.at(100.0 * round).hears(ack(static_cast<std::uint32_t>(1 + c->appended())));
  }
  REQUIRE(c->congestion_window_bytes() > 64 * 1024);
  CHECK(c->run_bytes() < 10'000);
  CHECK(c->run_bytes() >= 2 * 1460);
}

TEST_CASE("W-TCP-25: what is told of gaps goes by itself, not with each segment of a run", "[tcp][W-TCP-25]") {
  auto c = Conversation::established(with_runs(), 65535, 40);
  c.at(10).hears(data(101, "beyond"));
  append_run(c, 1000);
  bool told = false;
  while (const auto out = c.next()) {
    if (!out->payload.empty()) CHECK(out->header.sack_count == 0);
    told |= out->payload.empty() && out->header.sack_count != 0;
  }
  CHECK(told);
}

TEST_CASE("W-TCP-01: a tail probe of new octets is one segment of a run", "[tcp][rfc8985][W-TCP-01]") {
  tcp::Options options = with_runs();
  options.tail_loss_probe = true;
  auto c = Conversation::established(options, 65535, 40);
  for (int i = 0; i < 9; ++i) append_run(c, 2000);
  std::uint32_t sent = 0;
  while (const auto out = c.next()) sent += static_cast<std::uint32_t>(out->payload.size());
  REQUIRE(sent < 16'000);
  REQUIRE(sent % 2000 != 0);
  c.wakes();
  says_octets(c, sent, 100);
  CHECK(c->counters().tail_probes == 1);
  c.is_silent();
}

// ---- to its sender, too, a run is what its segments are ----

namespace {

// Of an established connection, with what is said of ten segments of 100 as a run, and of ten by themselves.
struct Both {
  explicit Both(const tcp::Options& options = with_runs()) : run(open(options)), each(open(options)) {
    append_run(run, 1000);
    each.appends(10, 100);
    drain();
  }
  static Conversation open(const tcp::Options& options) { return Conversation::established(options, 65535, 40); }
  Both& at(double milliseconds, const Line& line) {
    for (Conversation* c : {&run, &each}) c->at(milliseconds).hears(line);
    drain();
    return *this;
  }
  void wake() {
    CHECK(run.wakes() == each.wakes());
    drain();
  }
  // Whatever they say, they say of the same octets.
  void drain() {
    std::vector<std::pair<std::uint32_t, std::size_t>> said[2];
    for (const bool of_run : {false, true}) {
      Conversation& c = of_run ? run : each;
      while (const auto out = c.next()) {
        const std::size_t unit = out->unit_bytes != 0 ? out->unit_bytes : std::max<std::size_t>(out->payload.size(), 1);
        for (std::size_t at = 0; at < std::max<std::size_t>(out->payload.size(), 1); at += unit)
          said[of_run].emplace_back(out->header.sequence - Conversation::kOurStart + static_cast<std::uint32_t>(at),
                                    std::min(unit, out->payload.size() - std::min(at, out->payload.size())));
      }
    }
    CHECK(said[0] == said[1]);
    CHECK(run->smoothed_rtt().ns == each->smoothed_rtt().ns);
    CHECK(run->congestion_window_bytes() == each->congestion_window_bytes());
  }
  Conversation run, each;
};

}  // namespace

TEST_CASE("W-TCP-01: an ACK within a run tells what an ACK between segments tells", "[tcp][W-TCP-01][rfc6298]") {
  SECTION("round trips") {
    Both both;
    both.at(80, ack(201)).at(90, ack(401)).at(91, ack(601)).at(99, ack(801)).at(100, ack(1001));
    CHECK(both.run->smoothed_rtt() > milliseconds(41));
  }
  SECTION("in the middle of a segment") {
    Both both;
    both.at(80, ack(251)).at(90, ack(299)).at(91, ack(950)).at(99, ack(1001));
  }
  SECTION("that a tail probe may go again") {
    tcp::Options options = with_runs();
    options.tail_loss_probe = true;
    Both both(options);
    both.at(40, ack(801));
    both.wake();
    both.at(150, ack(1001));
    append_run(both.run, 1000);
    both.each.appends(10, 100);
    both.drain();
    both.at(190, ack(1201)).at(191, ack(1401)).at(192, ack(1801));
    both.wake();
    CHECK(both.run->counters().tail_probes == 2);
    CHECK(both.each->counters().tail_probes == 2);
  }
  SECTION("after a timeout") {
    Both both;
    both.wake();
    for (Conversation* c : {&both.run, &both.each}) c->appends(4, 100);
    both.at(300, ack(201)).at(301, ack(401)).at(302, ack(601)).at(340, ack(1001));
    CHECK(both.run->counters().retransmitted == both.each->counters().retransmitted);
  }
}

TEST_CASE("W-TCP-07: a router's word is not believed against what came of a run", "[tcp][W-TCP-07][rfc5927]") {
  tcp::Options options = with_runs();
  auto c = Conversation::established(options, 65535, 40);
  BufferRef buffer = BufferRef::take(c.pool());
  buffer->append(1900);
  REQUIRE(c->append(std::move(buffer), 900));
  REQUIRE(c.next());
  c.at(40).hears(ack(901));
  c->on_packet_too_big(600, tcp::Seq{Conversation::kOurStart + 901}, c.now());
  CHECK(c->emss() == 1460);
}

TEST_CASE("W-TCP-01: after a pause no more of a run leaves than the window is then", "[tcp][W-TCP-01][rfc5681]") {
  auto c = Conversation::established(with_runs(), 65535, 40);
  for (int round = 1; round < 4; ++round) {
    while (c->room_bytes() >= 2000) {
      append_run(c, 2000);
      while (c.next()) {
      }
    }
    c.at(40.0 * round).hears(ack(static_cast<std::uint32_t>(1 + c->appended())));
  }
  const std::uint32_t window = c->congestion_window_bytes();
  REQUIRE(window > 20'000);
  c.at(10'000);
  for (int i = 0; i < 15; ++i) append_run(c, 2000);
  std::uint32_t sent = 0;
  while (const auto out = c.next()) sent += static_cast<std::uint32_t>(out->payload.size());
  CHECK(sent <= c->congestion_window_bytes());
  CHECK(sent < 16'000);
}

TEST_CASE("W-TCP-13: Nagle's rule holds back what is short of a run", "[tcp][W-TCP-13]") {
  tcp::Options options = with_runs();
  options.nagle = true;
  options.mss_bytes = 100;
  options.path_floor_bytes = 40;
  Conversation small(options);
  small.at(-40).answers(syn());
  REQUIRE(small.next());
  small.at(0).hears(ack(1));
  append_run(small, 350);
  says_octets(small, 0, 300);
  small.is_silent();
  small.at(40).hears(ack(301));
  says_octets(small, 300, 50, true);
}

TEST_CASE("W-TCP-27: what of a run was beyond a window that was taken back goes again", "[tcp][W-TCP-27]") {
  Both both;
  both.at(40, ack(1).window(450)).at(41, ack(401).window(50)).at(42, ack(401).window(2000));
  CHECK(both.run->counters().retransmitted == both.each->counters().retransmitted);
  CHECK(both.run->counters().retransmitted != 0);
}

TEST_CASE("W-MPA-59: of a run the last may be short enough", "[tcp][W-MPA-59]") {
  auto c = Conversation::established(with_runs(), 65535, 40);
  BufferRef buffer = BufferRef::take(c.pool());
  buffer->append(1900);
  REQUIRE(c->append(std::move(buffer), 900));  // the last has 100
  REQUIRE(c.next());
  c->set_mss(600);
  std::size_t again = 0;
  while (const auto out = c.next()) again += out->payload.size();
  CHECK(again == 1800);
}
