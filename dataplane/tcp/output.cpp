// What goes out, and when: retransmissions first, then new octets as far as both windows let them,
// then acknowledgements that found no segment to ride on.
#include <algorithm>

#include "tcp/connection.hpp"

namespace rnic::tcp {

namespace flag = wire::tcp_flags;

// ---- what may go ---------------------------------------------------------------------------

Seq Connection::send_next() const {
  if (state_ == State::syn_sent || state_ == State::syn_received) return syn_sent_count_ > 0 ? iss_ + 1 : iss_;
  return queue_.nxt();
}

// For segments without octets. Behind a probe of a shut window, a window that was taken back or a FIN that had none,
// SND.NXT is beyond the peer's edge, and a peer that takes nothing there does not look at the ACK either (RFC 9293
// s3.10.7.4): at its edge it does.
Seq Connection::acceptable_next() const {
  const Seq next = send_next();
  if (state_ < State::established || !next.after(send_edge_)) [[likely]]
    return next;
  return send_edge_.before(queue_.una()) ? queue_.una() : send_edge_;
}

// Without SACK, each duplicate ACK says that one segment has left the network (RFC 5681 s3.2).
// Outside of a recovery the first two let a new segment go each (limited transmit, RFC 3042), and
// no more do.
std::uint32_t Connection::pipe_bytes() const {
  const std::uint32_t pipe = queue_.pipe_bytes();
  if (duplicate_acks_ == 0) [[likely]]
    return pipe;
  const std::uint32_t left = recovering() ? duplicate_acks_ : std::min(duplicate_acks_, 2u);
  return pipe - std::min(pipe, left * duplicate_bytes());
}

std::uint32_t Connection::window_room() const {
  const Seq next = queue_.nxt();
  return send_edge_.after(next) ? send_edge_.since(next) : 0;
}

// Octets of the first unsent segment that may go now, of a run those of its first; less than all of it where it must be
// cut.
std::uint32_t Connection::sendable_bytes() const {
  if (!queue_.has_unsent()) return 0;
  const QueuedSegment& segment = queue_.at(queue_.first_unsent());
  if (ecn_pause_) [[unlikely]]
    return 0;
  std::uint32_t piece = segment.first_bytes();
  if (piece > emss_ && !queue_.is_probe(queue_.first_unsent())) [[unlikely]] {  // the EMSS has shrunk
    if (!queue_.can_cut()) return 0;                                            // an ACK will make room
    piece = emss_;
  }
  const bool idle = queue_.all_acknowledged();
  const std::uint32_t room = window_room();
  if (piece > room) [[unlikely]] {
    if (!idle || !queue_.can_cut()) return 0;  // W-TCP-27: rather wait than cut
    // A cut must be worth it (RFC 9293 s3.8.6.2.1), or the time be up.
    if (room > 0 && room >= std::min(emss_, send_window_max_ / 2)) return room;
    return window_probe_due_ && !segment.has(QueuedSegment::kFin) ? std::max(room, 1u) : 0;
  }
  if (idle) return piece;
  const std::uint32_t pipe = pipe_bytes();
  if (pipe > 0 && pipe + piece > congestion_.window_bytes()) return 0;
  // RFC 5682 s3.1 step 2: two new segments, no more.
  if (spurious_.frto() == SpuriousCheck::Frto::second && pipe + piece > 2 * emss_) [[unlikely]]
    return 0;
  if (options_.nagle && piece < emss_ && !fin_appended_) return 0;
  return piece;
}

// Of a run as many of its segments as may go, where its first may. RFC 3168 s6.1.2: CWR is said by one segment.
std::uint32_t Connection::sendable_of_run(std::uint32_t first_bytes) const {
  const QueuedSegment& segment = queue_.at(queue_.first_unsent());
  if (first_bytes != segment.unit_bytes || ecn_.tells_reduced()) return first_bytes;
  const std::uint32_t pipe = pipe_bytes();
  std::uint32_t window = congestion_.window_bytes();
  if (spurious_.frto() == SpuriousCheck::Frto::second) [[unlikely]]
    window = std::min(window, 2 * emss_);
  const std::uint32_t room = std::min(window_room(), window > pipe ? window - pipe : 0);
  std::uint32_t most = segment.length;
  if (options_.nagle && !fin_appended_) [[unlikely]]  // what is short waits for an acknowledgement
    most = first_bytes < emss_ ? first_bytes : most / first_bytes * first_bytes;
  return room >= most ? most : std::max(first_bytes, room / first_bytes * first_bytes);
}

// All octets have gone. The FIN asks no window: at worst it is not taken and goes again.
bool Connection::may_send_fin() const {
  return fin_appended_ && queue_.has_unsent() && queue_.at(queue_.first_unsent()).has(QueuedSegment::kFin);
}

bool Connection::may_retransmit(SendQueue::Index i) const {
  const QueuedSegment& segment = queue_.at(i);
  if (!segment.sequence.before(send_edge_) && i != queue_.oldest()) return false;
  if (send_one_anyway_) return true;
  if (spurious_.frto() == SpuriousCheck::Frto::second) return false;  // new data first
  const std::uint32_t pipe = pipe_bytes();
  // Of one that is too long and finds no slot to be cut in, its front goes.
  return pipe == 0 || pipe + std::min(segment.first_bytes(), emss_) <= congestion_.window_bytes();
}

// A time that has passed means: now.
Instant Connection::next_deadline() const {
  if (reset_due_ || syn_due_) return kPast;
  const Instant timer = earliest_timer();
  if (state_ < State::established) return timer;
  if (receiver_.ack_due() || keepalive_due_ || tail_probe_due_) return kPast;
  if (const auto lost = queue_.first_lost(); lost && may_retransmit(*lost)) return kPast;
  if (!queue_.has_unsent()) return timer;
  if (sendable_bytes() > 0) return std::min(timer, pacer_.due());
  if (may_send_fin()) return kPast;
  // The persist timer is to be started.
  return queue_.all_acknowledged() && persist_at_ == kNever && !ecn_pause_ ? kPast : timer;
}

bool Connection::paces_out(Instant now) {
  return !pacer_.may_send(now, [this] { return pace(); });
}

// Without SACK the peer's duplicate ACKs are counted by the segment.
std::uint32_t Connection::run_bytes() const {
  if (options_.run_bytes_max <= option_bytes() || !sack_ || !queue_.takes_runs()) return 0;
  return std::min(options_.run_bytes_max - option_bytes(), Pacer::burst_bytes(pace()));
}

std::uint32_t Connection::room_bytes() const {
  if (state_ != State::established && state_ != State::close_wait) return 0;
  if (fin_appended_ || !queue_.has_slot()) return 0;
  const std::uint32_t pipe = pipe_bytes();
  const std::uint32_t congestion = congestion_.window_bytes();
  std::uint32_t room = std::min(congestion > pipe ? congestion - pipe : 0, window_room());
  if (queue_.empty()) return std::max(room, emss_);
  const std::uint32_t unsent = queue_.unsent_bytes();
  return room > unsent ? room - unsent : 0;
}

// ---- headers -------------------------------------------------------------------------------

void Connection::fill(wire::TcpHeader& header, std::uint8_t flags, Seq sequence, Instant now) {
  header.sequence = sequence.value;
  header.flags = flags;
  receiver_.fill(header);
  if (timestamps_) [[unlikely]]
    header.timestamps = {timestamp_clock(now) + timestamp_offset_, receiver_.timestamp_recent()};
  ++counters_.segments_out;
}

void Connection::fill_handshake(SegmentOut& out, Instant now) {
  syn_due_ = false;
  ++counters_.segments_out;
  if (syn_sent_count_++ == 0) syn_sent_at_ = now;
  if (rto_at_ == kNever) rto_at_ = now + handshake_wait(options_, retransmissions_);
  wire::TcpHeader& header = out.header;
  const bool answer = state_ == State::syn_received;
  header.sequence = iss_.value;
  header.flags = answer ? flag::kSyn | flag::kAck : flag::kSyn;
  if (answer) {
    if (ecn_.may_be_marked()) header.flags |= Ecn::kSetupSynAck;
  } else if (options_.ecn == EcnUse::on && syn_sent_count_ == 1) {  // not again (RFC 3168 s6.1.1.1)
    ecn_asked_ = true;
    header.flags |= Ecn::kSetupSyn;
  }
  out.may_be_marked = options_.congestion == Algorithm::dctcp && header.has(flag::kEce);  // RFC 8257 s3.6
  header.acknowledgement = answer ? receiver_.next().value : 0;
  header.window = static_cast<std::uint16_t>(std::min(options_.receive_window_bytes, 0xFFFFu));
  header.mss = static_cast<std::uint16_t>(std::min(options_.mss_bytes, 0xFFFFu));
  // An answer agrees to what was offered, and offers nothing.
  header.sack_permitted = answer ? sack_ : options_.sack;
  if (answer ? scaling_ : options_.window_scale) header.window_scale = window_shift(options_.widest_window_bytes());
  if (answer ? timestamps_ : options_.timestamps)
    header.timestamps = {timestamp_clock(now) + timestamp_offset_, answer ? receiver_.timestamp_recent() : 0};
}

void Connection::fill_acknowledgement(SegmentOut& out, Instant now) {
  fill(out.header, flag::kAck, acceptable_next(), now);
  receiver_.on_bare_ack_sent();
  if (receiver_.tells_sack()) receiver_.add_sack(out.header, 40 - (timestamps_ ? 12 : 0));
}

// An octet that the peer has had: it must answer (RFC 9293 s3.8.4).
void Connection::fill_keepalive(SegmentOut& out, Instant now) {
  keepalive_due_ = false;
  fill(out.header, flag::kAck, queue_.nxt() - 1, now);
}

// `first_time`: no driver can hold the buffer, so its pool need not be asked.
void Connection::fill_data(SegmentOut& out, SendQueue::Index i, bool first_time, Instant now) {
  const QueuedSegment& segment = queue_.at(i);
  std::uint8_t flags = flag::kAck;
  if (segment.has(QueuedSegment::kFin)) [[unlikely]]
    flags |= flag::kFin;
  else if (queue_.is_last(i))
    flags |= flag::kPsh;  // W-TCP-14
  fill(out.header, flags, segment.sequence, now);
  receiver_.on_data_sent();
  // W-TCP-25: only where there is room for blocks.
  if (receiver_.tells_sack()) [[unlikely]]
    receiver_.add_sack(out.header, segment.unit_bytes != 0 ? 0 : emss_ - std::min(emss_, segment.length));
  counters_.segments_out += segment.segments() - 1;
  last_sent_at_ = now;
  if (recovery_ == Recovery::fast) [[unlikely]]
    congestion_.on_sent_in_recovery(segment.length);
  Buffer* const buffer = segment.buffer;
  if (buffer == nullptr) return;
  if (segment.has(QueuedSegment::kWholeBuffer)) {
    out.whole = first_time ? buffer->refs == 1 : !buffer->pool->shared(*buffer);
    if (out.whole) {  // an earlier sending left its headers
      buffer->head = segment.head;
      buffer->length = segment.length;
    }
  }
  ++buffer->refs;
  out.buffer = BufferRef(buffer);
  out.payload = segment.octets();
  out.unit_bytes = segment.unit_bytes;
}

// ---- sending -------------------------------------------------------------------------------

void Connection::send_first_unsent(SegmentOut& out, std::uint32_t octets, Instant now) {
  const SendQueue::Index i = queue_.first_unsent();
  const bool probe = window_probe_due_;
  if (probe) [[unlikely]] {
    window_probe_due_ = false;
    ++counters_.window_probes;
  }
  persist_at_ = kNever;
  fill_data(out, i, true, now);
  if (ecn_.may_be_marked() && octets > 0 && !probe) [[unlikely]] {
    out.may_be_marked = true;
    out.header.flags |= ecn_.take_data_flags();
  }
  queue_.on_sent(now);
  pacer_.on_sent(octets);
  counters_.bytes_out += octets;
  if (rto_at_ == kNever) rto_at_ = now + rtt_.rto();
  schedule_tail_probe(now);
}

void Connection::retransmit(SegmentOut& out, SendQueue::Index i, Instant now) {
  send_one_anyway_ = false;
  if (const std::uint32_t unit = queue_.at(i).unit_bytes; unit != 0) queue_.cut(i, unit);  // each segment by itself
  ++counters_.retransmitted;
  congestion_.on_sent_again(queue_.at(i).length);
  if (queue_.is_probe(i)) [[unlikely]] {  // it was the tail, and the tail is not answered
    queue_.end_probe();
    path_.on_probe_lost(PathMtu::Lost::alone, rtt_.smoothed(), now);
  }
  const bool too_long = queue_.at(i).length > emss_ && !queue_.cut(i, emss_);
  fill_data(out, i, false, now);
  if (too_long) {  // no slot to cut it: its front, and the rest when that is acknowledged
    out.payload = out.payload.first(emss_);
    out.whole = false;
  }
  if (recovering()) spurious_.on_retransmitted(queue_.at(i).sequence, queue_.at(i).end(), now);
  queue_.on_retransmitted(i, now);
  if (rto_at_ == kNever) rto_at_ = now + rtt_.rto();
}

std::optional<SegmentOut> Connection::next_segment(Instant now) {
  std::optional<SegmentOut> out;
  if (earliest_timer() <= now) [[unlikely]]
    run_timers(now);
  if (reset_due_) [[unlikely]] {
    reset_due_ = false;
    out.emplace().header = reset_;
    out->may_be_marked = ecn_.may_be_marked() && options_.congestion == Algorithm::dctcp;  // RFC 8257 s3.6
    return out;
  }
  if (state_ < State::established) [[unlikely]] {
    if (syn_due_) fill_handshake(out.emplace(), now);
    return out;
  }
  // Blocks that found no room on a segment go by themselves, and at once.
  if (receiver_.blocks_due()) [[unlikely]] {
    fill_acknowledgement(out.emplace(), now);
    return out;
  }
  if (const auto lost = queue_.first_lost(); lost && may_retransmit(*lost)) [[unlikely]] {
    retransmit(out.emplace(), *lost, now);
    return out;
  }
  if (tail_probe_due_) [[unlikely]] {
    tail_probe_due_ = false;
    if (send_tail_probe(out.emplace(), now)) return out;
    out.reset();
  }
  if (queue_.has_unsent()) {
    if (queue_.all_acknowledged() && now - last_sent_at_ > rtt_.rto()) congestion_.on_idle();
    const std::uint32_t first = sendable_bytes();
    if (first > 0) {
      const SendQueue::Index i = queue_.first_unsent();
      if (paces_out(now)) {
        // Its time will come.
      } else if (const std::uint32_t octets = sendable_of_run(first);
                 octets == queue_.at(i).length || queue_.cut(i, octets)) [[likely]] {
        send_first_unsent(out.emplace(), octets, now);
        return out;
      }
    } else if (may_send_fin()) {
      send_first_unsent(out.emplace(), 0, now);
      return out;
    } else if (queue_.all_acknowledged() && persist_at_ == kNever && !ecn_pause_) {
      persist_at_ = now + rtt_.rto();  // blocked by the peer's window
    }
  }
  if (receiver_.ack_due()) {
    fill_acknowledgement(out.emplace(), now);
    return out;
  }
  if (keepalive_due_) [[unlikely]]
    fill_keepalive(out.emplace(), now);
  return out;
}

}  // namespace rnic::tcp
