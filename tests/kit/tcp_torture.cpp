#include "kit/tcp_torture.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "kit/tcp_runs.hpp"

namespace rnic::test {

namespace {

std::byte octet_of(int side, std::uint64_t position) {
  std::uint64_t x = position * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(side) * 77;
  return static_cast<std::byte>(x >> 40);
}

}  // namespace

Torture::Torture(const TorturePlan& plan, std::uint64_t seed)
    : plan_(plan),
      random_(seed),
      pool_(kBuffers, 2048),
      runs_(kRuns, 65'535),
      ends_{tcp::Connection(plan.options[0]), tcp::Connection(plan.options[1])} {
  flying_.reserve(20'000);
  if (plan.wire.every.ns > 0) weather_at_ = now_;
}

Duration Torture::up_to(Duration most) {
  return {most.ns > 0 ? static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(most.ns)) : 0};
}

std::string Torture::run() {
  for (int side : {0, 1})
    if (side == 0 || plan_.both_call)
      ends_[side].open_active(tcp::Seq{0xFFFFF000u + static_cast<std::uint32_t>(random_() % 8000)});
  for (std::uint64_t step = 0; step < 20'000'000; ++step) {
    while (now_ >= weather_at_) weather();
    for (int side : {0, 1}) turn(side);
    if (!complaint_.empty()) return complaint_;
    if (finished()) return complaint_;
    const Instant next = next_event();
    if (next == kNever) return "nothing will ever happen again: " + status();
    now_ = std::max(now_ + nanoseconds(1), next);
    deliver();
  }
  return "no end: " + status();
}

std::string Torture::status() const {
  std::string s;
  for (int side : {0, 1}) {
    const auto& c = ends_[side];
    s += std::string(name(c.state())) + " appended " + std::to_string(c.appended()) + " acked " +
         std::to_string(c.acknowledged()) + " received " + std::to_string(c.received()) + " in flight " +
         std::to_string(c.in_flight_bytes()) + " cwnd " + std::to_string(c.congestion_window_bytes()) + " emss " +
         std::to_string(c.emss()) + " rto " + std::to_string(c.counters().timeouts) + " retx " +
         std::to_string(c.counters().retransmitted) + " fast " + std::to_string(c.counters().fast_retransmits) +
         " tlp " + std::to_string(c.counters().tail_probes) + " ended " + std::to_string(int(c.ended())) + "; ";
  }
  return s + "ms " + std::to_string(took().ns / 1000000);
}

// ---- what the ends do -------------------------------------------------------------------------------

void Torture::turn(int side) {
  tcp::Connection& c = ends_[side];
  if (plan_.mss_changes && chance(5)) c.set_mss(static_cast<std::uint32_t>(300 + random_() % 1161));
  write(side);
  if (c.appended() == plan_.bytes[side] && c.established()) c.close();
  if (plan_.holds_per_1000 > 0) {
    const bool holds = chance(plan_.holds_per_1000);
    c.hold_acknowledgements_from(holds ? c.consumed() : tcp::Connection::kNoHold);
    asleep_[side] |= holds;
  }
  read(side);
  if (chance(500)) c.end_of_burst();
  while (auto out = c.next_segment(now_)) send(side, std::move(*out));
  look_at(side);
}

// As the QP layer does: whole segments as long as there is room, now and then one to probe the path.
void Torture::write(int side) {
  tcp::Connection& c = ends_[side];
  while (c.appended() < plan_.bytes[side] && c.room_bytes() > 0) {
    if (plan_.options[side].run_bytes_max != 0 && chance(500) && write_run(side)) continue;
    const std::uint32_t holds = c.begin_segment(c.room_bytes(), now_);
    const auto most = std::min<std::uint64_t>(std::min(holds, plan_.segment_max), plan_.bytes[side] - c.appended());
    const auto size = static_cast<std::uint32_t>(chance(500) ? most : 1 + random_() % most);
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
}

// Several segments at once. False: there is no room for as many as two.
bool Torture::write_run(int side) {
  tcp::Connection& c = ends_[side];
  const std::uint32_t unit = chance(700)
                                 ? std::min(c.emss(), plan_.segment_max)
                                 : 1 + static_cast<std::uint32_t>(random_() % std::min(c.emss(), plan_.segment_max));
  const auto most = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      {c.run_bytes(), c.room_bytes(), plan_.bytes[side] - c.appended(), std::uint64_t{unit} * tcp::kRunSegmentsMax}));
  if (most < 2 * unit) return false;
  const std::uint32_t size =
      chance(500) ? most : 2 * unit + static_cast<std::uint32_t>(random_() % (most - 2 * unit + 1));
  BufferRef b = BufferRef::take(runs_);
  if (!b) return false;
  std::uint64_t at = c.appended();
  for (auto& octet : b->append(size)) octet = octet_of(side, at++);
  return c.append(std::move(b), static_cast<std::uint16_t>(unit));
}

// Any part of what is there.
void Torture::read(int side) {
  tcp::Connection& c = ends_[side];
  if (!chance(plan_.reads_per_1000)) {
    asleep_[side] |= c.readable_count() > 0;
    return;
  }
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
}

// What holds at every moment.
void Torture::look_at(int side) {
  tcp::Connection& c = ends_[side];
  if (!c.established()) return;
  if (c.congestion_window_bytes() < std::min(c.emss(), 1u) || c.congestion_window_bytes() > 1u << 30)
    complaint_ = "a congestion window that cannot be: " + status();
  if (c.acknowledged() > ends_[1 - side].received()) complaint_ = "acknowledged before it came: " + status();
  if (c.emss() > plan_.options[side].mss_bytes) complaint_ = "an EMSS beyond the port: " + status();
  if (c.next_deadline() <= now_) complaint_ = "work left behind: " + status();
}

// ---- the wire -------------------------------------------------------------------------------------

// Changes by itself, whoever sends.
void Torture::weather() {
  const TortureWire& wire = plan_.wire;
  const Instant from = std::exchange(weather_at_, weather_at_ + up_to(wire.every * 2) + nanoseconds(1));
  if (!wire.path_sizes.empty()) path_size_ = wire.path_sizes[random_() % wire.path_sizes.size()];
  if (wire.takes_windows_back) {
    bare_window_.reset();
    if (chance(750)) bare_window_ = static_cast<std::uint16_t>(random_() % 3);
  }
  if (chance(500))
    silent_until_ = from + up_to(wire.silent_for);
  else
    late_until_ = from + up_to(wire.late_by);
}

// A run is cut as a port does it.
void Torture::send(int side, tcp::SegmentOut&& out) {
  if (out.unit_bytes == 0) return send_one(side, out);
  ++runs_sent_;
  if (out.header.has(wire::tcp_flags::kCwr | wire::tcp_flags::kFin))
    complaint_ = "a run that says what one segment does";
  if (out.payload.size() <= out.unit_bytes || out.payload.size() > 65'535) complaint_ = "a run that is none";
  each_segment(out, [&](const tcp::SegmentOut& one) { send_one(side, one); });
}

// A fresh copy is what a wire makes.
void Torture::send_one(int side, const tcp::SegmentOut& out) {
  const TortureWire& wire = plan_.wire;
  std::array<std::byte, 60> octets;
  const auto size = wire::emit(out.header, octets);
  const auto segment_bytes = static_cast<std::uint32_t>(size - wire::TcpHeader::kSize + out.payload.size());
  if (segment_bytes > plan_.options[side].mss_bytes) {
    complaint_ = "segment larger than the MSS";
    return;
  }
  auto header = wire::parse_tcp(Bytes(octets).first(size))->header;
  const bool bare = out.payload.empty() && !header.has(wire::tcp_flags::kSyn | wire::tcp_flags::kFin);
  if (bare_window_ && bare) header.window = std::min(header.window, *bare_window_);
  if (now_ < silent_until_) return;
  if (path_size_ != 0 && segment_bytes > path_size_) {
    if (wire.routers_tell) fly({now_ + wire.delay, order_++, side, header, {}, {}, false, path_size_});
    return;
  }
  const int copies = chance(wire.loss_per_1000) ? 0 : chance(wire.repeat_per_1000) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    Instant arrives = now_ + wire.delay;
    if (chance(wire.reorder_per_1000)) arrives = arrives + up_to(wire.reorder_by);
    arrives = std::max(arrives, late_until_);
    const bool marked = out.may_be_marked && chance(wire.mark_per_1000);
    Flying f{arrives, order_++, 1 - side, header, BufferRef::take(pool_), {}, marked, 0};
    if (!f.buffer) continue;
    const auto room = f.buffer->append(static_cast<std::uint32_t>(out.payload.size()));
    std::copy(out.payload.begin(), out.payload.end(), room.begin());
    f.payload = room;
    fly(std::move(f));
  }
}

void Torture::fly(Flying&& flying) {
  flying_.push_back(std::move(flying));
  std::push_heap(flying_.begin(), flying_.end(), later);
}

bool Torture::later(const Flying& a, const Flying& b) {
  return a.arrives != b.arrives ? a.arrives > b.arrives : a.order > b.order;
}

void Torture::deliver() {
  while (!flying_.empty() && flying_.front().arrives <= now_) {
    std::pop_heap(flying_.begin(), flying_.end(), later);
    Flying f = std::move(flying_.back());
    flying_.pop_back();
    tcp::Connection& c = ends_[f.to];
    if (f.too_big_for != 0) {
      c.on_packet_too_big(f.too_big_for, tcp::Seq{f.header.sequence}, now_);
      continue;
    }
    tcp::SegmentIn in{f.header, std::move(f.buffer), f.payload, f.marked};
    const bool called = f.to == 0 || plan_.both_call;
    if (!called && c.state() == tcp::State::closed && c.ended() == tcp::Ended::no && !answer(in)) continue;
    c.on_segment(std::move(in), now_);
  }
}

// The passive side before its connection is there, as the device does it. True: now it is.
bool Torture::answer(const tcp::SegmentIn& in) {
  const tcp::Options& options = plan_.options[1];
  if (in.header.has(wire::tcp_flags::kSyn)) {
    if (handshake_)
      tcp::on_syn_again(*handshake_, in.header);
    else
      handshake_ = tcp::agree(in.header, options, {static_cast<std::uint32_t>(random_())}, 7);
    tcp::SegmentOut out;
    out.header = tcp::syn_ack(*handshake_, options, now_);
    out.may_be_marked = tcp::syn_ack_may_be_marked(*handshake_, options);
    ++handshake_->sent;
    send(1, std::move(out));
    return false;
  }
  if (!handshake_ ||
      tcp::on_half_open(*handshake_, options, in.header, in.payload.size()) != tcp::HalfOpenStep::complete)
    return false;
  ends_[1].open_passive(*handshake_, in.header, now_);
  return true;
}

// ---- time -----------------------------------------------------------------------------------------

Instant Torture::next_event() {
  Instant next = kNever;
  for (int side : {0, 1}) {
    next = std::min(next, ends_[side].next_deadline());
    if (asleep_[side]) next = std::min(next, now_ + microseconds(200));
    asleep_[side] = false;
  }
  if (!flying_.empty()) next = std::min(next, flying_.front().arrives);
  return next;
}

bool Torture::finished() {
  for (int side : {0, 1}) {
    const tcp::Connection& c = ends_[side];
    if (c.ended() != tcp::Ended::no && c.ended() != tcp::Ended::gracefully) {
      complaint_ = "ended otherwise: " + status();
      return true;
    }
    if (c.ended() != tcp::Ended::gracefully || c.consumed() != plan_.bytes[1 - side]) return false;
  }
  return true;
}

}  // namespace rnic::test
