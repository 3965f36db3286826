// Two connections back to back over a wire that loses, repeats and reorders, both ways at once.
// What arrives is what was sent, whatever the wire did, and both ends close.
#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "tcp/connection.hpp"

using namespace rnic;
using tcp::Connection;

namespace {

struct Wire {
  std::uint32_t loss_per_1000 = 0;
  std::uint32_t repeat_per_1000 = 0;
  std::uint32_t reorder_per_1000 = 0;
  Duration delay = microseconds(50);
};

struct Plan {
  tcp::Options options[2];
  Wire wire;
  std::uint64_t bytes[2] = {1'000'000, 1'000'000};
  std::uint32_t segment_max = 1460;     // payloads are of 1 to this many octets
  std::uint32_t reads_per_1000 = 1000;  // how often a reader reads
  bool mss_changes = false;
};

std::byte octet_of(int side, std::uint64_t position) {
  std::uint64_t x = position * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(side) * 77;
  return static_cast<std::byte>(x >> 40);
}

struct Flying {
  Instant arrives;
  std::uint64_t order;
  int to;
  wire::TcpHeader header;
  BufferRef buffer;
  Bytes payload;
};

class Torture {
 public:
  Torture(const Plan& plan, std::uint64_t seed)
      : plan_(plan),
        random_(seed),
        pool_(kBuffers, 2048),
        ends_{Connection(plan.options[0]), Connection(plan.options[1])} {
    flying_.reserve(20'000);
  }

  // Empty when all went well, else what did not.
  std::string run() {
    ends_[0].open_active(tcp::Seq{0xFFFFF000u + static_cast<std::uint32_t>(random_() % 8000)}, now_);
    for (std::uint64_t step = 0; step < 20'000'000; ++step) {
      for (int side : {0, 1}) turn(side);
      if (!complaint_.empty()) return complaint_;
      if (finished()) return {};
      const Instant next = next_event();
      if (next == kNever) return "nothing will ever happen again: " + status();
      now_ = std::max(now_ + nanoseconds(1), next);
      deliver();
    }
    return "no end: " + status();
  }

  std::string status() {
    std::string s;
    for (int side : {0, 1}) {
      auto& c = ends_[side];
      s += std::string(name(c.state())) + " appended " + std::to_string(c.appended()) + " acked " +
           std::to_string(c.acknowledged()) + " received " + std::to_string(c.received()) + " in flight " +
           std::to_string(c.in_flight_bytes()) + " cwnd " + std::to_string(c.congestion_window_bytes()) + " rto " +
           std::to_string(c.counters().timeouts) + " retx " + std::to_string(c.counters().retransmitted) + " fast " +
           std::to_string(c.counters().fast_retransmits) + " tlp " + std::to_string(c.counters().tail_probes) +
           " ended " + std::to_string(int(c.ended())) + "; ";
    }
    return s + "ms " + std::to_string(now_.ns / 1000000);
  }
  Connection& end(int side) { return ends_[side]; }
  Instant now() const { return now_; }
  std::uint32_t buffers_out() const { return kBuffers - pool_.available(); }
  std::uint32_t in_the_air() const { return static_cast<std::uint32_t>(flying_.size()); }

 private:
  bool chance(std::uint32_t per_1000) { return random_() % 1000 < per_1000; }

  void turn(int side) {
    Connection& c = ends_[side];
    if (plan_.mss_changes && chance(5)) c.set_mss(static_cast<std::uint32_t>(300 + random_() % 1161));
    // The writer: as the QP layer does, whole segments as long as there is room.
    while (c.appended() < plan_.bytes[side] && c.room_bytes() > 0) {
      const auto most =
          std::min<std::uint64_t>(std::min(c.emss(), plan_.segment_max), plan_.bytes[side] - c.appended());
      const auto size = static_cast<std::uint32_t>(1 + random_() % most);
      if (c.room_bytes() < size) break;
      BufferRef b = BufferRef::take(pool_);
      if (!b) break;
      std::uint64_t at = c.appended();
      for (auto& octet : b->append(size)) octet = octet_of(side, at++);
      if (!c.append(std::move(b))) {
        complaint_ = "append refused";
        return;
      }
    }
    if (c.appended() == plan_.bytes[side] && c.established()) c.close(now_);
    // The reader: any part of what is there.
    if (chance(plan_.reads_per_1000)) {
      while (c.readable_count() > 0) {
        const Bytes span = c.readable(0).span;
        const std::size_t part = 1 + random_() % span.size();
        for (std::size_t i = 0; i < part; ++i)
          if (span[i] != octet_of(1 - side, c.consumed() + i)) {
            complaint_ = "octet " + std::to_string(c.consumed() + i) + " differs";
            return;
          }
        c.consume(part);
      }
    } else if (c.readable_count() > 0) {
      asleep_[side] = true;
    }
    if (chance(500)) c.end_of_burst(now_);
    while (auto out = c.next_segment(now_)) send(side, std::move(*out));
  }

  void send(int side, tcp::SegmentOut&& out) {
    // A fresh copy is what a wire makes.
    const int copies = chance(plan_.wire.loss_per_1000) ? 0 : chance(plan_.wire.repeat_per_1000) ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      Duration delay = plan_.wire.delay;
      if (chance(plan_.wire.reorder_per_1000)) delay = delay + microseconds(static_cast<std::int64_t>(random_() % 400));
      std::array<std::byte, 60> header;
      const auto size = wire::emit(out.header, header);
      const auto parsed = wire::parse_tcp(Bytes(header).first(size));
      Flying f{now_ + delay, order_++, 1 - side, parsed->header, {}, {}};
      if (size - 20 + out.payload.size() > plan_.options[side].mss_bytes) {
        complaint_ = "segment larger than the MSS";
        return;
      }
      f.buffer = BufferRef::take(pool_);
      if (!f.buffer) continue;
      const auto room = f.buffer->append(static_cast<std::uint32_t>(out.payload.size()));
      std::copy(out.payload.begin(), out.payload.end(), room.begin());
      f.payload = room;
      flying_.push_back(std::move(f));
      std::push_heap(flying_.begin(), flying_.end(), later);
    }
  }
  static bool later(const Flying& a, const Flying& b) {
    return a.arrives != b.arrives ? a.arrives > b.arrives : a.order > b.order;
  }

  void deliver() {
    while (!flying_.empty() && flying_.front().arrives <= now_) {
      std::pop_heap(flying_.begin(), flying_.end(), later);
      Flying f = std::move(flying_.back());
      flying_.pop_back();
      Connection& c = ends_[f.to];
      tcp::SegmentIn in{f.header, std::move(f.buffer), f.payload};
      if (f.to == 1 && c.state() == tcp::State::closed && c.ended() == tcp::Ended::no && !answer(in)) continue;
      c.on_segment(std::move(in), now_);
    }
  }

  // The passive side before its connection is there, as the device does it. True: now it is.
  bool answer(const tcp::SegmentIn& in) {
    if (in.header.has(wire::tcp_flags::kSyn)) {
      if (!handshake_)
        handshake_ = tcp::agree(in.header, plan_.options[1], {static_cast<std::uint32_t>(random_())}, 7);
      tcp::SegmentOut out;
      out.header = tcp::syn_ack(*handshake_, plan_.options[1], now_);
      ++handshake_->sent;
      send(1, std::move(out));
      return false;
    }
    if (!handshake_ || tcp::on_half_open(*handshake_, plan_.options[1], in.header, in.payload.size()) !=
                           tcp::HalfOpenStep::complete)
      return false;
    ends_[1].open_passive(*handshake_, in.header, now_);
    return true;
  }

  Instant next_event() {
    Instant next = kNever;
    for (int side : {0, 1}) {
      next = std::min(next, ends_[side].next_deadline());
      if (asleep_[side]) next = std::min(next, now_ + microseconds(200));
      asleep_[side] = false;
    }
    if (!flying_.empty()) next = std::min(next, flying_.front().arrives);
    return next;
  }

  bool finished() {
    for (int side : {0, 1}) {
      const Connection& c = ends_[side];
      if (c.ended() != tcp::Ended::no && c.ended() != tcp::Ended::gracefully) {
        complaint_ = "ended otherwise: " + status();
        return true;
      }
      if (c.ended() != tcp::Ended::gracefully || c.consumed() != plan_.bytes[1 - side]) return false;
    }
    return true;
  }

  static constexpr std::uint32_t kBuffers = 8'000;

  Plan plan_;
  std::mt19937_64 random_;
  HeapPool pool_;
  Connection ends_[2];
  Instant now_{seconds(100).ns};
  std::vector<Flying> flying_;
  std::uint64_t order_ = 0;
  std::optional<tcp::Handshake> handshake_;
  bool asleep_[2] = {};
  std::string complaint_;
};

}  // namespace

namespace {

void survives(const Plan& plan, std::uint64_t seeds) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    Torture torture(plan, seed);
    const std::string complaint = torture.run();
    INFO("seed " << seed);
    REQUIRE(complaint == "");
  }
}

}  // namespace

TEST_CASE("W-TCP-19: a good wire carries both streams without a retransmission", "[tcp][W-TCP-19]") {
  Torture torture(Plan{}, 1);
  CHECK(torture.run() == "");
  for (int side : {0, 1}) {
    CHECK(torture.end(side).counters().retransmitted == 0);
    CHECK(torture.end(side).counters().timeouts == 0);
  }
  // Every buffer that the connections held has come back.
  CHECK(torture.buffers_out() == torture.in_the_air());
}

TEST_CASE("W-TCP-19: loss of one in a hundred, with SACK", "[tcp][W-TCP-19]") {
  Plan plan;
  plan.wire.loss_per_1000 = 10;
  survives(plan, 10);
}

TEST_CASE("W-TCP-19: loss, repetition and reordering together", "[tcp][W-TCP-19]") {
  Plan plan;
  plan.wire = {.loss_per_1000 = 50, .repeat_per_1000 = 50, .reorder_per_1000 = 300};
  survives(plan, 10);
}

TEST_CASE("W-TCP-19: one packet in ten lost, with timestamps and NewReno", "[tcp][W-TCP-19]") {
  Plan plan;
  plan.wire.loss_per_1000 = 100;
  for (auto& options : plan.options) {
    options.timestamps = true;
    options.congestion = tcp::Options::Congestion::newreno;
  }
  survives(plan, 5);
}

TEST_CASE("W-TCP-19: loss without SACK", "[tcp][W-TCP-19]") {
  Plan plan;
  plan.wire.loss_per_1000 = 30;
  plan.options[0].sack = false;
  survives(plan, 5);
}

TEST_CASE("W-TCP-27: windows smaller than a segment, slow readers and loss", "[tcp][W-TCP-27]") {
  Plan plan;
  plan.wire = {.loss_per_1000 = 20, .repeat_per_1000 = 20, .reorder_per_1000 = 100};
  for (auto& options : plan.options) options.receive_window_bytes = 1000;
  plan.bytes[0] = plan.bytes[1] = 100'000;
  plan.reads_per_1000 = 300;
  survives(plan, 5);
}

TEST_CASE("W-TCP-27: windows of a hundred octets", "[tcp][W-TCP-27]") {
  Plan plan;
  plan.wire = {.loss_per_1000 = 10, .repeat_per_1000 = 10, .reorder_per_1000 = 100};
  for (auto& options : plan.options) options.receive_window_bytes = 100;
  plan.bytes[0] = plan.bytes[1] = 20'000;
  plan.reads_per_1000 = 500;
  survives(plan, 3);
}

TEST_CASE("W-TCP-02: small segments, few slots and loss", "[tcp][W-TCP-02]") {
  Plan plan;
  plan.wire = {.loss_per_1000 = 20, .repeat_per_1000 = 20, .reorder_per_1000 = 100};
  for (auto& options : plan.options) {
    options.send_segments_max = 16;
    options.out_of_order_segments_max = 4;
    options.receive_segments_max = 8;
  }
  plan.bytes[0] = plan.bytes[1] = 100'000;
  plan.segment_max = 60;
  plan.reads_per_1000 = 300;
  survives(plan, 5);
}

TEST_CASE("W-TCP-07: the path's MTU shrinks and grows under way", "[tcp][W-TCP-07]") {
  Plan plan;
  plan.wire = {.loss_per_1000 = 20, .repeat_per_1000 = 20, .reorder_per_1000 = 100};
  plan.mss_changes = true;
  plan.bytes[0] = plan.bytes[1] = 300'000;
  survives(plan, 5);
}

TEST_CASE("W-TCP-19: nothing is allocated while streams are carried", "[tcp][W-TCP-19]") {
  Plan plan;
  plan.wire = {.loss_per_1000 = 20, .repeat_per_1000 = 20, .reorder_per_1000 = 100};
  Torture torture(plan, 3);
  const std::uint64_t before = test::allocations();
  const std::string complaint = torture.run();
  const std::uint64_t after = test::allocations();
  CHECK(complaint == "");
  CHECK(after == before);
}
