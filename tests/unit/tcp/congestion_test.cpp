// Congestion windows, alone: NewReno (RFC 5681), CUBIC (RFC 9438), DCTCP (RFC 8257), and the way
// through a recovery (PRR, RFC 6937).
#include "kit/catch.hpp"
#include "tcp/congestion/control.hpp"

using namespace rnic;
using namespace rnic::tcp;

namespace {
constexpr Instant kStart{seconds(10).ns};

// A loss whose recovery is over.
void lose(CongestionControl& control, std::uint32_t in_flight_bytes) {
  control.begin_recovery(in_flight_bytes, true);
  control.end_recovery(in_flight_bytes);
}
}  // namespace

TEST_CASE("W-TCP-01: the first window is ten segments, fourteen thousand octets, or two segments", "[tcp][W-TCP-01]") {
  CHECK(CongestionWindow::initial(536) == 5360);
  CHECK(CongestionWindow::initial(1460) == 14600);
  CHECK(CongestionWindow::initial(4096) == 14600);
  CHECK(CongestionWindow::initial(9000) == 18000);
}

TEST_CASE("W-TCP-01: slow start doubles a window that is used, and leaves alone one that is not", "[tcp][W-TCP-01]") {
  CongestionControl control(Algorithm::newreno);
  control.start(1000, false);
  CHECK(control.window_bytes() == 10000);
  control.on_acknowledged(10000, 10000, milliseconds(1), kStart);
  CHECK(control.window_bytes() == 20000);
  control.on_acknowledged(100, 100, milliseconds(1), kStart);
  CHECK(control.window_bytes() == 20000);
}

TEST_CASE("W-TCP-01: NewReno gives up half and gains a segment for each window", "[tcp][W-TCP-01]") {
  CongestionControl control(Algorithm::newreno);
  control.start(1000, false);
  lose(control, 10000);
  CHECK(control.window_bytes() == 5000);
  for (int i = 0; i < 4; ++i) control.on_acknowledged(1000, 5000, milliseconds(1), kStart);
  CHECK(control.window_bytes() == 5000);
  control.on_acknowledged(1000, 5000, milliseconds(1), kStart);
  CHECK(control.window_bytes() == 6000);
}

TEST_CASE("W-TCP-01: NewReno counts a window anew after each reduction, to the octet", "[tcp][W-TCP-01]") {
  CongestionWindow window{.mss_bytes = 1000, .bytes = 10000};
  NewReno reno;
  reno.on_acknowledged(window, 9000);
  CHECK(window.bytes == 10000);
  CHECK(reno.reduce(window, 12000) == 5000);
  CHECK(reno.reduce(window, 8000) == 4000);
  reno.on_acknowledged(window, 9999);
  CHECK(window.bytes == 10000);
  reno.on_acknowledged(window, 1);
  CHECK(window.bytes == 11000);
  // What was over counts for the next.
  reno.on_acknowledged(window, 12000);
  CHECK(window.bytes == 12000);
  reno.on_acknowledged(window, 10999);
  CHECK(window.bytes == 12000);
  reno.on_acknowledged(window, 1);
  CHECK(window.bytes == 13000);
}

TEST_CASE("W-TCP-01: a timeout leaves one segment, and never less than two as threshold", "[tcp][W-TCP-01]") {
  CongestionControl control(Algorithm::newreno);
  control.start(1000, false);
  control.on_timeout(10000);
  CHECK(control.window_bytes() == 1000);
  CHECK(control.threshold_bytes() == 5000);
  control.on_repeated_timeout();
  CHECK(control.threshold_bytes() == 5000);
  control.on_timeout(1000);
  CHECK(control.threshold_bytes() == 2000);
}

TEST_CASE("W-TCP-01: CUBIC gives up three tenths and is back where it was after K", "[tcp][W-TCP-01]") {
  CongestionControl control(Algorithm::cubic);
  control.start(1000, false);
  control.on_acknowledged(990'000, 10'000, milliseconds(100), kStart);
  CHECK(control.window_bytes() == 1'000'000);  // 1000 segments
  lose(control, 1'000'000);
  CHECK(control.window_bytes() == 700'000);
  // K = cbrt(1000 * 0.3 / 0.4) = 9.086 s. A window is acknowledged each 100 ms.
  Instant now = kStart;
  const auto run_for = [&](Duration time) {
    for (const Instant end = now + time; now < end; now = now + milliseconds(10))
      control.on_acknowledged(control.window_bytes() / 10, control.window_bytes(), milliseconds(100), now);
  };
  run_for(milliseconds(4500));  // half of K: 1000 - 0.4 * (9.086 - 4.6)^3 = 964
  CHECK(control.window_bytes() == Approx(964'000).epsilon(0.01));
  run_for(milliseconds(4500));
  CHECK(control.window_bytes() == Approx(1'000'000).epsilon(0.005));
  run_for(seconds(4));  // and then it explores: 1000 + 0.4 * (13.1 - 9.086)^3 = 1026
  CHECK(control.window_bytes() == Approx(1'026'000).epsilon(0.01));
}

TEST_CASE("W-TCP-01: where round trips are short CUBIC is as fast as Reno", "[tcp][W-TCP-01]") {
  CongestionControl control(Algorithm::cubic);
  control.start(1000, false);
  lose(control, 10'000);
  CHECK(control.window_bytes() == 7'000);
  // 100 windows in 10 ms: Reno with this loss factor gains 0.53 segments in each, and a whole one
  // from where it was before the loss: after 6 of them (RFC 9438 s4.3).
  Instant now = kStart;
  for (int i = 0; i < 1000; ++i, now = now + microseconds(10))
    control.on_acknowledged(control.window_bytes() / 10, control.window_bytes(), microseconds(100), now);
  CHECK(control.window_bytes() == Approx(10'000 + 94'000).epsilon(0.02));
}

TEST_CASE("W-TCP-01: CUBIC: who lost again below the last maximum leaves room", "[tcp][rfc9438][W-TCP-01]") {
  CongestionControl control(Algorithm::cubic);
  control.start(1000, false);
  control.on_acknowledged(90'000, 10'000, milliseconds(100), kStart);
  lose(control, 100'000);
  CHECK(control.window_bytes() == 70'000);
  lose(control, 70'000);
  CHECK(control.window_bytes() == 49'000);
  // W_max is 70 * 1.7 / 2 = 59.5, so K is cbrt(10.5 / 0.4) = 2.97 s: flat there, not at 70.
  Instant now = kStart;
  for (; now < kStart + milliseconds(2970); now = now + milliseconds(10))
    control.on_acknowledged(control.window_bytes() / 100, control.window_bytes(), seconds(1), now);
  CHECK(control.window_bytes() == Approx(59'500).epsilon(0.02));
}

TEST_CASE("W-TCP-01: CUBIC: after a timeout it explores from where slow start ends", "[tcp][rfc9438][W-TCP-01]") {
  CongestionControl control(Algorithm::cubic);
  control.start(1000, false);
  control.on_acknowledged(990'000, 10'000, milliseconds(100), kStart);
  control.on_timeout(1'000'000);
  CHECK(control.window_bytes() == 1000);
  CHECK(control.threshold_bytes() == 700'000);
  control.on_acknowledged(699'000, 1000, milliseconds(100), kStart);  // slow start, to the threshold
  CHECK(control.window_bytes() == 700'000);
  // K is 0 and W_max 700 (s4.8). Without that it would be half way to 1000 by now: 966.
  Instant now = kStart;
  for (; now < kStart + milliseconds(4500); now = now + milliseconds(10))
    control.on_acknowledged(control.window_bytes() / 10, control.window_bytes(), milliseconds(100), now);
  CHECK(control.window_bytes() == Approx(700'000 + 38'900).epsilon(0.01));  // 0.4 * 4.6^3
}

TEST_CASE("W-TCP-01: CUBIC: time in which the window was not used does not count", "[tcp][rfc9438][W-TCP-01]") {
  CongestionControl control(Algorithm::cubic);
  control.start(1000, false);
  control.on_acknowledged(990'000, 10'000, milliseconds(100), kStart);
  lose(control, 1'000'000);
  Instant now = kStart;
  const auto run_for = [&](Duration time, bool used) {
    for (const Instant end = now + time; now < end; now = now + milliseconds(10))
      control.on_acknowledged(control.window_bytes() / 10, used ? control.window_bytes() : 1000, milliseconds(100),
                              now);
  };
  run_for(milliseconds(2000), true);
  const auto before = control.window_bytes();
  run_for(seconds(20), false);
  CHECK(control.window_bytes() == before);
  run_for(milliseconds(2500), true);
  CHECK(control.window_bytes() == Approx(964'000).epsilon(0.01));  // as after 4.5 s without a break
}

TEST_CASE("W-TCP-01: a reduction is undone when it was for nothing", "[tcp][rfc9438][W-TCP-01]") {
  for (const Algorithm algorithm : {Algorithm::newreno, Algorithm::cubic, Algorithm::dctcp}) {
    CongestionControl control(algorithm);
    control.start(1000, false);
    control.on_acknowledged(90'000, 10'000, milliseconds(1), kStart);
    control.begin_recovery(100'000, true);
    control.recover(1000, 90'000, kStart);
    CHECK(control.window_bytes() < 100'000);
    control.end_recovery(90'000);
    CHECK(control.window_bytes() <= 70'000);
    control.undo();
    CHECK(control.window_bytes() == 100'000);
    CHECK(control.threshold_bytes() == CongestionWindow::kBytesMax);
  }
}

TEST_CASE("W-TCP-01: a timeout undone gives the window back, but not in one burst", "[tcp][rfc4015][W-TCP-01]") {
  CongestionControl control(Algorithm::newreno);
  control.start(1000, false);
  control.on_acknowledged(90'000, 10'000, milliseconds(1), kStart);
  control.on_timeout(100'000);
  CHECK(control.window_bytes() == 1000);
  SECTION("what is out, and what an ACK may let go") {
    control.undo_timeout(40'000, 50'000);
    CHECK(control.window_bytes() == 50'000);  // 40000 and ten segments
    CHECK(control.threshold_bytes() == CongestionWindow::kBytesMax);
  }
  SECTION("never more than it was") {
    control.undo_timeout(99'000, 50'000);
    CHECK(control.window_bytes() == 100'000);
  }
}

TEST_CASE("W-TCP-01: PRR lets out in proportion to what arrives", "[tcp][rfc6937][W-TCP-01]") {
  Prr prr;
  prr.begin(20'000, 10'000);
  CHECK(prr.may_leave(1000, 19'000, 1000) == 500);
  prr.on_sent(1000);  // the fast retransmission asks nobody
  CHECK(prr.may_leave(1000, 18'000, 1000) == 0);
  CHECK(prr.may_leave(1000, 17'000, 1000) == 500);
  CHECK(prr.may_leave(1000, 16'000, 1000) == 1000);
  prr.on_sent(1000);
  CHECK(prr.may_leave(2000, 16'000, 1000) == 1000);
  // A part of an octet is one (CEIL).
  Prr odd;
  odd.begin(3, 1);
  CHECK(odd.may_leave(1, 2, 1) == 1);
}

TEST_CASE("W-TCP-01: PRR grows back as slow start does, where more was lost than asked for",
          "[tcp][rfc6937][W-TCP-01]") {
  // RFC 6937 s3.1, second example: 20 out, 15 of them lost; pipe is 4 at the third duplicate.
  Prr prr;
  prr.begin(20'000, 10'000);
  CHECK(prr.may_leave(1000, 4'000, 1000) == 2000);
  prr.on_sent(2000);
  CHECK(prr.may_leave(1000, 5'000, 1000) == 2000);
  prr.on_sent(2000);
  CHECK(prr.may_leave(1000, 6'000, 1000) == 2000);
  // What arrived and let nothing out is banked.
  CHECK(prr.may_leave(1000, 5'000, 1000) == 3000 - 2000 + 1000);
  CHECK(prr.may_leave(3000, 2'000, 1000) == 4000);
  // Never beyond the threshold.
  CHECK(prr.may_leave(1000, 9'500, 1000) == 500);
  CHECK(prr.may_leave(0, 10'000, 1000) == 0);
}

TEST_CASE("W-TCP-01: PRR lets out no more than ten segments at once of what the peer's window has held back",
          "[tcp][rfc6937][W-TCP-01]") {
  Prr prr;
  prr.begin(200'000, 100'000);
  for (int i = 0; i < 90; ++i) prr.may_leave(1000, 20'000, 1000);  // nothing could leave
  CHECK(prr.may_leave(1000, 20'000, 1000) == 11'000);
  prr.on_sent(11'000);
  CHECK(prr.may_leave(1000, 31'000, 1000) == 11'000);
  CHECK(prr.may_leave(30'000, 20'000, 1000) == 31'000);  // what arrives all at once goes out at once
}

// RFC 6582 s3.2 step 3.
TEST_CASE("W-TCP-01: a recovery that ends with little in the network ends without a burst",
          "[tcp][rfc6582][W-TCP-01]") {
  CongestionControl control(GENERATE(Algorithm::newreno, Algorithm::cubic));
  control.start(1000, false);
  control.on_acknowledged(90'000, 10'000, milliseconds(1), kStart);
  control.begin_recovery(100'000, true);
  const std::uint32_t threshold = control.threshold_bytes();
  control.end_recovery(5'000);
  CHECK(control.window_bytes() == 15'000);
  CHECK(control.threshold_bytes() == threshold);
  SECTION("it is back at the threshold by slow start") {
    control.on_acknowledged(15'000, 15'000, milliseconds(1), kStart);
    CHECK(control.window_bytes() == 30'000);
  }
  SECTION("the next reduction is from there, not from what the burst was saved by") {
    lose(control, threshold);
    CHECK(control.threshold_bytes() >= threshold / 2);
    CHECK(control.threshold_bytes() < threshold);
    lose(control, control.threshold_bytes());
    CHECK(control.threshold_bytes() < threshold / 2);
  }
  SECTION("nor is a recovery without a reduction one") {
    control.begin_recovery(15'000, false);
    CHECK(control.threshold_bytes() == threshold);
  }
  SECTION("but by a timeout it is") {
    control.begin_recovery(15'000, true);
    control.break_off_recovery();
    control.on_timeout(15'000);
    CHECK(control.window_bytes() == 1000);
    control.on_repeated_timeout();
    CHECK(control.window_bytes() == 1000);
  }
}

TEST_CASE("W-TCP-01: without a reduction of its own a recovery keeps the threshold", "[tcp][rfc3168][W-TCP-01]") {
  CongestionControl control(Algorithm::newreno);
  control.start(1000, false);
  control.on_mark(10'000);
  CHECK(control.window_bytes() == 5'000);
  control.begin_recovery(8'000, false);
  control.end_recovery(5'000);
  CHECK(control.window_bytes() == 5'000);
}

TEST_CASE("W-TCP-01: a mark may leave one segment, a loss never less than two", "[tcp][rfc3168][W-TCP-01]") {
  for (const Algorithm algorithm : {Algorithm::newreno, Algorithm::cubic, Algorithm::dctcp}) {
    CongestionControl control(algorithm);
    control.start(1000, true);
    control.on_acknowledged(1'000, 1000, milliseconds(1), kStart);
    CHECK(control.window_bytes() == 2000);
    control.on_mark(2000);
    CHECK(control.window_bytes() == (algorithm == Algorithm::cubic ? 1400 : 1000));
    CHECK(control.threshold_bytes() == 2000);
    for (int i = 0; i < 4; ++i) control.on_mark(1000);
    CHECK(control.window_bytes() == 1000);
    lose(control, 1000);
    CHECK(control.window_bytes() == 2000);
  }
}

TEST_CASE("W-TCP-01: DCTCP gives up half of the share that was marked", "[tcp][rfc8257][W-TCP-01]") {
  CongestionControl control(Algorithm::dctcp);
  control.start(1000, false);
  // The estimate begins at 1: the first mark halves.
  CHECK(control.dctcp().alpha() == Approx(1));
  // Each window of observation of 10 segments moves it by a sixteenth of the difference.
  std::uint64_t position = 0;
  const auto window = [&](unsigned marked) {
    for (unsigned i = 0; i < 10; ++i) {
      position += 1000;
      control.on_echo_known(1000, i < marked, position, position + 9'000);
    }
  };
  control.on_echo_known(1000, true, 1000, 10'000);  // ends the window that began with nothing
  position = 1000;
  window(0);
  CHECK(control.dctcp().alpha() == Approx(1 - 1.0 / 16).epsilon(0.001));
  window(5);
  CHECK(control.dctcp().alpha() == Approx(0.9375 * 15 / 16 + 0.5 / 16).epsilon(0.001));
  for (int i = 0; i < 200; ++i) window(1);
  CHECK(control.dctcp().alpha() == Approx(0.1).epsilon(0.02));
  control.on_mark(10'000);
  CHECK(control.window_bytes() == Approx(9'500).epsilon(0.002));
  // Without marks it comes to 0 (s4.2), and a mark takes nothing.
  for (int i = 0; i < 200; ++i) window(0);
  CHECK(control.dctcp().alpha() == 0);
  // A loss is a loss (s3.5).
  lose(control, 9'500);
  CHECK(control.window_bytes() == Approx(4'750).epsilon(0.002));
}

TEST_CASE("W-TCP-01: DCTCP's estimate is never beyond all", "[tcp][rfc8257][W-TCP-01]") {
  Dctcp dctcp;
  for (std::uint64_t i = 1; i < 100; ++i) dctcp.on_acknowledged(1000, true, i * 1000, i * 1000);
  CHECK(dctcp.alpha() == 1);
}

TEST_CASE("W-TCP-01: after an idle time the first window is what is left, at most", "[tcp][rfc5681][W-TCP-01]") {
  CongestionControl control(Algorithm::cubic);
  control.start(1000, false);
  control.on_acknowledged(90'000, 10'000, milliseconds(1), kStart);
  control.on_idle();
  CHECK(control.window_bytes() == 10'000);
  control.on_timeout(10'000);
  control.on_idle();
  CHECK(control.window_bytes() == 1'000);
}

TEST_CASE("W-TCP-01: slow start ends at the threshold, however much one ACK acknowledges", "[tcp][rfc5681][W-TCP-01]") {
  CongestionControl control(Algorithm::newreno);
  control.start(1000, false);
  control.on_acknowledged(90'000, 10'000, milliseconds(1), kStart);
  lose(control, 100'000);
  CHECK(control.threshold_bytes() == 50'000);
  control.on_idle();
  CHECK(control.window_bytes() == 10'000);
  control.on_acknowledged(1'000'000, 10'000, milliseconds(1), kStart);
  CHECK(control.window_bytes() == 50'000);
}

TEST_CASE("W-TCP-01: what may leave in a round trip is a little more than the window, and no more than the threshold",
          "[tcp][pacing][W-TCP-01]") {
  CongestionControl control(Algorithm::newreno);
  control.start(1000, false);
  CHECK(control.pace_bytes() == 12'500);  // in slow start a quarter more
  control.on_acknowledged(22'000, 10'000, milliseconds(1), kStart);
  lose(control, 32'000);
  CHECK(control.window_bytes() == 16'000);
  CHECK(control.pace_bytes() == 17'000);
  control.on_idle();
  CHECK(control.pace_bytes() == 12'500);
  control.on_acknowledged(5'000, 10'000, milliseconds(1), kStart);
  CHECK(control.window_bytes() == 15'000);
  CHECK(control.pace_bytes() == 16'000);
}

namespace {

// Slow start to 2 MB on a path that holds 1.2 MB, with a queue in front.
struct Overshot {
  explicit Overshot(Algorithm algorithm = Algorithm::cubic) : control(algorithm) {
    control.start(1000, false);
    while (control.window_bytes() < 2'000'000)
      control.on_acknowledged(2'000'000 - control.window_bytes(), control.window_bytes(), milliseconds(10), kStart);
  }
  // What arrives in a round trip and a half, in steps of a tenth.
  void recovers(std::uint32_t lost = 800'000) {
    control.on_sent_again(lost);
    for (int tenth = 1; tenth <= 15; ++tenth) control.recover(120'000, 900'000, kStart + milliseconds(1) * tenth);
    control.end_recovery(900'000);
  }
  CongestionControl control;
};

}  // namespace

TEST_CASE("W-TCP-01: a slow start that overfills a long path goes on with what the path carries",
          "[tcp][pacing][W-TCP-01]") {
  Overshot path;
  path.control.measure_path(milliseconds(10), milliseconds(11), kStart);
  path.control.begin_recovery(2'000'000, true);
  CHECK(path.control.threshold_bytes() == 1'400'000);
  path.recovers();
  CHECK(path.control.threshold_bytes() == 1'200'000);
}

TEST_CASE("W-TCP-01: where the queue is deep, it goes on as from a loss of what overflows it",
          "[tcp][pacing][W-TCP-01]") {
  Overshot path;
  path.control.measure_path(milliseconds(5), milliseconds(10), kStart);
  path.control.begin_recovery(2'000'000, true);
  path.recovers();
  CHECK(path.control.threshold_bytes() == 840'000);  // 0.7 of what it has in 10 ms; in 5 ms it has 600,000
}

TEST_CASE("W-TCP-01: without a sign of a queue, or where it is not sure, a loss is what it always is",
          "[tcp][pacing][W-TCP-01]") {
  SECTION("the round trip is not longer than the least") {
    Overshot path;
    path.control.measure_path(milliseconds(10), milliseconds(10), kStart);
    path.control.begin_recovery(2'000'000, true);
    path.recovers();
    CHECK(path.control.threshold_bytes() == 1'400'000);
  }
  SECTION("few are lost") {
    Overshot path;
    path.control.measure_path(milliseconds(10), milliseconds(11), kStart);
    path.control.begin_recovery(2'000'000, true);
    path.recovers(30'000);
    CHECK(path.control.threshold_bytes() == 1'400'000);
  }
  SECTION("a short path") {
    Overshot path;
    path.control.measure_path(microseconds(100), microseconds(110), kStart);
    path.control.begin_recovery(2'000'000, true);
    path.recovers();
    CHECK(path.control.threshold_bytes() == 1'400'000);
  }
  SECTION("congestion avoidance") {
    Overshot path;
    lose(path.control, 2'000'000);
    path.control.on_acknowledged(1'400'000, 1'400'000, milliseconds(10), kStart);
    path.control.measure_path(milliseconds(10), milliseconds(11), kStart);
    path.control.begin_recovery(1'400'000, true);
    const std::uint32_t threshold = path.control.threshold_bytes();
    path.recovers();
    CHECK(path.control.threshold_bytes() == threshold);
  }
  SECTION("NewReno, which halves") {
    Overshot path(Algorithm::newreno);
    path.control.measure_path(milliseconds(10), milliseconds(11), kStart);
    path.control.begin_recovery(2'000'000, true);
    path.recovers();
    CHECK(path.control.threshold_bytes() == 1'000'000);
  }
}
