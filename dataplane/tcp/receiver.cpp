#include "tcp/receiver.hpp"

namespace rnic::tcp {

namespace flag = wire::tcp_flags;

namespace {
// Without a scale a window is no larger (RFC 7323 s2.2).
constexpr std::uint32_t kPlainWindowMax = 0xFFFF;
// RFC 7323 s5.5: after so long without news TS.Recent says nothing.
constexpr Duration kTimestampLife = seconds(24 * 24 * 3600);

std::uint32_t octets_of(const Incoming& in) { return static_cast<std::uint32_t>(in.payload.size()); }
}  // namespace

Receiver::Receiver(const Options& options, Counters& counters)
    : window_bytes_(options.receive_window_bytes),
      mss_bytes_(options.mss_bytes),
      window_max_bytes_(0),
      delayed_ack_(options.delayed_ack),
      readable_(options.receive_segments_max, keeper_),
      reassembly_(options.out_of_order_segments_max, keeper_),
      counters_(counters),
      keeps_beyond_(options.out_of_order_segments_max > 0),
      window_offered_bytes_(options.receive_window_bytes),
      window_limit_bytes_(options.grows() ? options.window_max_bytes : 0),
      beyond_limit_(options.out_of_order_segments_max) {}

void Receiver::start(const Handshake& agreed, Instant now) {
  RNIC_ASSERT(received_ == 0);
  initial_ = agreed.theirs;
  next_ = last_ack_ = initial_ + 1;
  edge_ = next_ + std::min(window_offered_bytes_, kPlainWindowMax);  // never scaled in a SYN
  window_bytes_ = agreed.scaling ? window_offered_bytes_ : std::min(window_offered_bytes_, kPlainWindowMax);
  window_max_bytes_ = agreed.scaling ? window_limit_bytes_ : 0;
  limit_ = next_ + window_bytes_;
  shift_ = agreed.receive_shift;
  sack_ = agreed.sack;
  timestamps_ = agreed.timestamps;
  timestamp_recent_ = agreed.timestamp_recent;
  timestamp_recent_at_ = now;
}

// ---- where a segment stands ----------------------------------------------------------------

Receiver::Place Receiver::trim(Incoming& in, Instant now) {
  std::uint32_t length = octets_of(in) + (in.fin ? 1 : 0) + (in.segment.header.has(flag::kSyn) ? 1 : 0);
  if (in.sequence.before(next_)) {
    const std::uint32_t old = next_.since(in.sequence);
    if (length <= old) {
      on_old(in, length, now);
      return length == 0 && old <= window_bytes_ ? Place::overtaken : Place::old;
    }
    if (!in.payload.empty()) {
      if (sack_ && !acknowledgement().before(next_)) {
        has_duplicate_ = true;
        duplicate_ = {in.sequence.value, next_.value};
      }
      owe_ack();
      in.payload = in.payload.subspan(std::min(old, octets_of(in)));
    }
    in.sequence = next_;
    length -= old;
  }

  const std::uint32_t window = edge_.since(next_);
  const std::uint32_t offset = in.sequence.since(next_);
  if (offset < window || (offset == window && length == 0)) {
    const std::uint32_t room = window - offset;
    if (in.payload.size() > room) {
      in.payload = in.payload.first(room);
      in.fin = false;
      ++counters_.out_of_window;
      owe_ack();
    }
    return Place::acceptable;
  }
  ++counters_.out_of_window;
  // Our window is shut: a probe. Its octets are refused, its ACK counts (RFC 9293 s3.10.7.4).
  if (offset == 0) {
    owe_ack();
    in.payload = {};
    in.fin = in.fin && in.segment.payload.empty();
    return Place::acceptable;
  }
  // An ACK of a peer whose probe or FIN went beyond our edge: it counts as well, and says no more of the order of
  // things.
  if (window == 0 && length == 0 && offset <= window_bytes_ && !peer_closed_) {
    in.sequence = next_;
    return Place::acceptable;
  }
  const bool answered = length > 0 && !in.segment.header.has(flag::kSyn);
  if (answered || empty_answers_.allows(now)) owe_ack();
  return Place::outside;
}

// All of it is before RCV.NXT.
void Receiver::on_old(const Incoming& in, std::uint32_t length, Instant now) {
  ++counters_.duplicates;
  if (length == 0) {
    // A keepalive probe, or an ACK that was overtaken. Whoever does not know our sequence numbers takes no probe of the
    // peer's its answer.
    tcp::RateLimit& limit = in.sequence == next_ - 1 ? probe_answers_ : empty_answers_;
    if (limit.allows(now)) owe_ack();
    return;
  }
  owe_ack();
  const Seq end = in.sequence + octets_of(in);
  if (sack_ && !in.payload.empty() && !end.after(acknowledgement())) {
    has_duplicate_ = true;
    duplicate_ = {in.sequence.value, end.value};
  }
}

// ---- the window that grows ------------------------------------------------------------------

// A peer in slow start sends four times as much when the next round trip is measured, and eight times when that has
// come: so who sends a quarter of our window in a round trip may soon be held up by it. What comes in the least round
// trip that there was is never more than what the path carries.
void Receiver::follow_peer(Instant now) {
  if (round_trip_.ns == 0) return;
  const bool measured = round_began_at_ != kNever;
  const Duration lasted = now - round_began_at_;
  if (measured && lasted < round_trip_) return;
  const std::uint64_t came = received_ - round_began_;
  round_began_ = received_;
  round_began_at_ = now;
  // Not what came with pauses.
  if (!measured || lasted > round_trip_ * 2 || came < window_bytes_ / 4) return;
  widen(static_cast<std::uint32_t>(
      std::min<std::uint64_t>({8 * came, std::uint64_t{8} * window_bytes_, window_max_bytes_})));
}

void Receiver::widen(std::uint32_t window_bytes) {
  if (window_bytes <= window_bytes_) return;
  limit_ = limit_ + (window_bytes - window_bytes_);
  window_bytes_ = window_bytes;
  if (window_bytes_ == window_max_bytes_) window_max_bytes_ = 0;
  // Of segments half as long as the longest.
  pieces_for_window_ = std::min(window_bytes_ / std::max(mss_bytes_ / 2, 1u), Options::kSegmentsGrown);
  readable_.allow(pieces_for_window_);
  limit_pieces();
}

void Receiver::limit_pieces() {
  // Nobody who consumes: nobody for whom it is worth it.
  reassembly_.limit(beyond_limit_ < reassembly_.first_limit() ? beyond_limit_
                                                              : std::max(beyond_limit_, pieces_for_window_));
}

// ---- timestamps ----------------------------------------------------------------------------

bool Receiver::is_outdated(std::uint32_t timestamp, Instant now) const {
  return static_cast<std::int32_t>(timestamp - timestamp_recent_) < 0 && now - timestamp_recent_at_ < kTimestampLife;
}

// Only a segment that reaches over the left edge says what is echoed, or one without octets that stands there. Whether
// its acknowledgement is acceptable is seen later.
bool Receiver::tells_timestamp(const Incoming& in) const {
  const Seq end = in.sequence + octets_of(in) + (in.fin ? 1 : 0);
  return in.sequence == last_ack_ || (in.sequence.before(last_ack_) && end.after(last_ack_));
}

// ---- what an acceptable segment brings -----------------------------------------------------

void Receiver::take_payload(Incoming& in, Instant now) {
  if (peer_closed_) return;
  note_peer_segment(octets_of(in));
  if (in.sequence != next_) {
    ++counters_.out_of_order;
    if (keeps_beyond_) keep_beyond(in);
    // The sender without SACK counts our duplicate ACKs (RFC 5681 s4.2).
    forced_ = sack_ ? 1 : forced_ + 1;
    return;
  }
  if (!reassembly_.empty()) [[unlikely]] {
    // Its time is what is echoed, though acknowledgements may be held back before it (RFC 7323 s4.2 (C)).
    if (timestamps_) take_timestamp(in.segment.header, now);
    fill_gap(in);
    owe_ack();
    return;
  }
  take_in_order(std::move(in.segment.buffer), in.payload, now);
}

// Every second full segment is acknowledged at once, else when the burst ends or the timer says so (RFC 5681 s4.2).
void Receiver::take_in_order(BufferRef&& buffer, Bytes payload, Instant now) {
  const auto octets = static_cast<std::uint32_t>(payload.size());
  if (!accept(std::move(buffer), payload)) {
    owe_ack();
    return;
  }
  if (window_max_bytes_ != 0) follow_peer(now);
  unacknowledged_bytes_ += octets;
  if (unacknowledged_bytes_ >= 2 * peer_segment_bytes_) progress_due_ = true;
  if (delayed_ack_at_ == kNever) delayed_ack_at_ = now + delayed_ack_;
}

void Receiver::keep_beyond(const Incoming& in) {
  switch (reassembly_.add(in.sequence, in.payload, in.segment.buffer)) {
    case Reassembly::Added::kept:
      break;
    case Reassembly::Added::no_room:
      ++counters_.dropped_no_room;
      break;
    case Reassembly::Added::duplicate:
      ++counters_.duplicates;
      has_duplicate_ = true;
      duplicate_ = {in.sequence.value, in.sequence.value + octets_of(in)};
      break;
  }
}

// It fills a gap, wholly or partly. What came first of its octets stays.
void Receiver::fill_gap(Incoming& in) {
  while (!in.payload.empty() && in.sequence == next_) {
    const std::uint32_t until_next = reassembly_.first().since(next_);
    const Bytes part = in.payload.first(
        std::min<std::size_t>(reassembly_.empty() ? in.payload.size() : until_next, in.payload.size()));
    if (!part.empty() && !accept(in.segment.buffer.share(), part)) break;
    drain_reassembly();
    const Seq end = in.sequence + octets_of(in);
    if (!end.after(next_)) break;
    in.payload = in.payload.subspan(next_.since(in.sequence));
    in.sequence = next_;
    if (part.empty() && reassembly_.front(next_) != nullptr) break;  // no room above
  }
}

bool Receiver::accept(BufferRef&& buffer, Bytes octets, bool copied) {
  if (!readable_.push(std::move(buffer), octets, copied)) {
    ++counters_.dropped_no_room;
    return false;
  }
  const auto size = static_cast<std::uint32_t>(octets.size());
  next_ = next_ + size;
  received_ += size;
  counters_.bytes_in += size;
  return true;
}

void Receiver::drain_reassembly() {
  while (auto* piece = reassembly_.front(next_)) {
    if (!accept(piece->buffer.share(), {piece->data, piece->length}, piece->copied)) return;
    reassembly_.pop();
  }
}

bool Receiver::take_fin(const Incoming& in) {
  if (peer_closed_) return false;
  if (in.fin && !fin_known_) {
    fin_known_ = true;
    fin_ = in.sequence + octets_of(in);
    if (fin_ != next_) owe_ack();
  }
  // It may have sent octets for behind its FIN: that is its own concern, but closed it has.
  if (fin_.after(next_)) return false;
  peer_closed_ = true;
  next_ = next_ + 1;
  // A FIN asks no window, so the edge may have to make room: RCV.NXT is never beyond it.
  if (next_.after(edge_)) edge_ = next_;
  if (edge_.after(limit_)) limit_ = edge_;
  owe_ack();
  reassembly_.clear();
  return true;
}

// ---- handed up -----------------------------------------------------------------------------

Receiver::Beyond Receiver::beyond(std::size_t index) const {
  const Reassembly::Piece& piece = reassembly_.piece(static_cast<std::uint32_t>(index));
  return {received_ + piece.first.since(next_), {piece.data, piece.length}, &piece.buffer};
}

// The peer hears of the room by our ACKs. Only where it may be waiting for room, by an ACK of its own.
bool Receiver::consume(std::uint64_t bytes) {
  RNIC_ASSERT(bytes <= received_ - consumed_);
  readable_.consume(bytes);
  consumed_ += bytes;
  limit_ = limit_ + static_cast<std::uint32_t>(bytes);
  if (!reassembly_.empty()) [[unlikely]]
    drain_reassembly();
  if (peer_closed_) return false;
  const std::uint32_t gain = limit_.since(edge_);
  if (gain >= window_bytes_ / 2) return true;
  // The peer reads our edge in steps of the scale.
  return edge_.since(next_) < std::max(2 * mss_bytes_, 2u << shift_) && gain >= enough_bytes();
}

// ---- our ACKs ------------------------------------------------------------------------------

void Receiver::hold_acknowledgements_from(std::uint64_t position) {
  hold_ = position;
  if (delayed_ack_at_ == kNever && acknowledgement().after(last_ack_)) progress_due_ = true;
}

void Receiver::add_sack(wire::TcpHeader& header, std::uint32_t room_bytes) {
  if (room_bytes < 12) return;
  const unsigned most = std::min((room_bytes - 4) / 8, timestamps_ ? 3u : 4u);
  unsigned count = 0;
  if (has_duplicate_) header.sack[count++] = duplicate_;
  has_duplicate_ = false;
  count += reassembly_.tell_blocks(&header.sack[count], most - count);
  header.sack_count = static_cast<std::uint8_t>(count);
  // What no ACK tells of is sent again: another ACK.
  if (reassembly_.has_untold()) owe_ack();
}

// ---- the end -------------------------------------------------------------------------------

void Receiver::stop() {
  reassembly_.clear();
  delayed_ack_at_ = kNever;
  progress_due_ = false;
  forced_ = 0;
}

void Receiver::drop_readable() {
  readable_.clear();
  consumed_ = received_;
}

}  // namespace rnic::tcp
