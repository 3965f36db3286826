// What the peer says of our octets: windows, acknowledgements and SACK (RFC 9293 s3.10.7.4,
// RFC 2018, RFC 2883). What follows for losses is in recovery.cpp.
#include <algorithm>

#include "tcp/connection.hpp"

namespace rnic::tcp {

// SND.UNA =< ack =< SND.NXT.
void Connection::on_acknowledgement(const Incoming& in, Seq ack, Instant now) {
  const wire::TcpHeader& header = in.segment.header;
  const bool advances = ack != queue_.una();
  if (!advances && queue_.all_acknowledged() && header.sack_count == 0 && !tail_probe_.out()) {
    update_window(header, ack);  // nothing of ours is out
    return;
  }
  const std::uint32_t pipe_before = pipe_bytes();
  const std::uint32_t flight_before = queue_.nxt().since(queue_.una());
  const Seq forward = queue_.forward();
  const Seq edge_before = send_edge_;
  const bool window_changed = update_window(header, ack);
  Delivered delivered = nothing_delivered_yet(header, now);
  Told told;
  if (header.sack_count > 0 && sack_) [[unlikely]] {
    told = take_sack(header, ack, delivered);
    delivered.duplicate_told = told.duplicate;
    if (told.duplicate) on_duplicate_told(told, delivered, now);
  }

  if (advances) {
    queue_.acknowledge(ack, delivered);
    if (const auto sent_at = delivered.answered_sent_at(sack_)) rtt_.sample(now - *sent_at);
    if (delivered.sampled) tail_probe_.on_round_trip();
    path_.on_acknowledged(delivered.largest + option_bytes(), ack);
    retransmissions_ = 0;
  }
  const bool plain = !advances && !window_changed && in.payload.empty() && !in.fin;
  if (tail_probe_.out()) [[unlikely]]
    on_probe_answered(told, ack, plain && header.sack_count == 0, flight_before);
  if (!advances && queue_.all_acknowledged()) return;
  rack_.on_delivered(delivered, forward, now);
  receiver_.set_round_trip(rack_.least_round_trip());
  if (ecn_.may_be_marked()) on_echo(header, delivered, flight_before, now);
  // A shut window that is answered for is no dead peer (RFC 9293 s3.8.6.1).
  if (!send_edge_.after(ack)) retransmissions_ = 0;
  // What was sent beyond the peer's edge (a probe) it has dropped; now that there is room, again.
  if (window_changed && send_edge_.after(edge_before) && queue_.nxt().after(edge_before))
    queue_.mark_lost_from(edge_before.before(ack) ? ack : edge_before);

  const bool recovery_before = recovery_ == Recovery::fast;  // and with this ACK perhaps no more
  const bool duplicate = plain && !sack_;
  if (told.news || duplicate || recovering() || queue_.any_sacked() || reordering_at_ != kNever) [[unlikely]]
    look_for_losses(delivered, duplicate, now);
  if (queue_.probe() >= SendQueue::Probe::arrived) [[unlikely]]
    on_path_probe_answered(now);
  if (advances) {
    if (sack_ || !recovering()) duplicate_acks_ = 0;
    const bool echo = ecn_.may_be_marked() && header.has(wire::tcp_flags::kEce);
    if (!recovery_before && recovery_ != Recovery::fast && !echo)
      congestion_.on_acknowledged(delivered.acknowledged, pipe_before, rtt_.smoothed(), now);
    restart_retransmission_timer(now);
    schedule_tail_probe(now);
    if (congestion_.window_bytes() > slots_enough_bytes_) [[unlikely]]
      follow_congestion_window();
    if (delivered.fin) on_our_fin_acknowledged(now);
  }
}

// Overtaken by a later ACK; but its SACK blocks may be news.
void Connection::on_old_acknowledgement(const wire::TcpHeader& header, Instant now) {
  if (header.sack_count == 0 || !sack_) return;
  const Seq forward = queue_.forward();
  Delivered delivered = nothing_delivered_yet(header, now);
  if (!take_sack(header, queue_.una(), delivered).news) return;
  rack_.on_delivered(delivered, forward, now);
  look_for_losses(delivered, false, now);
}

// RFC 9293 s3.10.7.4: only by segments that are not older than the last that did. Says whether the
// edge moved.
bool Connection::update_window(const wire::TcpHeader& header, Seq ack) {
  Seq sequence{header.sequence};
  if (sequence.after(receiver_.edge())) [[unlikely]]  // from beyond our shut window: as if from its edge
    sequence = receiver_.edge();
  if (sequence.before(window_sequence_)) return false;
  if (sequence == window_sequence_ && ack.before(window_ack_)) return false;
  window_sequence_ = sequence;
  window_ack_ = ack;
  const std::uint32_t window = std::uint32_t{header.window} << send_shift_;
  if (window > send_window_max_) [[unlikely]]
    raise_window_max(window);
  const Seq edge = ack + window;
  if (edge == send_edge_) return false;
  // The scale's rounding can seem to take back a little; nothing was taken back.
  if (edge.before(send_edge_) && send_edge_.since(edge) < (1u << send_shift_)) return false;
  send_edge_ = edge;
  persist_at_ = kNever;
  window_probe_due_ = false;
  return true;
}

// A first block at or below the ACK, or inside the second, tells of a duplicate (RFC 2883 s4, s5).
// What it names we must once have sent.
Connection::Told Connection::take_sack(const wire::TcpHeader& header, Seq ack, Delivered& delivered) {
  Told told;
  const Seq first{header.sack[0].first}, end{header.sack[0].end};
  if (first.before(end)) {
    const bool below = !end.after(ack) && !first.before(ack - send_window_max_);
    const bool inside = header.sack_count > 1 && !first.before(Seq{header.sack[1].first}) &&
                        !end.after(Seq{header.sack[1].end}) && end.after(ack) && !end.after(queue_.nxt());
    if (below || inside) told = {.news = false, .duplicate = true, .duplicate_first = first, .duplicate_end = end};
  }
  for (unsigned i = 0; i < header.sack_count; ++i) {
    const Seq block_first{header.sack[i].first}, block_end{header.sack[i].end};
    if (!block_end.after(ack)) continue;
    told.news |= queue_.sack(block_first, block_end, delivered);
  }
  return told;
}

// With what the ACK lets us believe of it.
Delivered Connection::nothing_delivered_yet(const wire::TcpHeader& header, Instant now) const {
  Delivered delivered;
  delivered.echoed_until = echoed_until(header, now);
  delivered.believed_until = std::min(now - rack_.least_round_trip(), delivered.echoed_until);
  return delivered;
}

// The end of the tick of ours that the ACK's timestamp echoes; kNever where it has none.
Instant Connection::echoed_until(const wire::TcpHeader& header, Instant now) const {
  if (!timestamps_ || !header.timestamps) [[likely]]
    return kNever;
  const std::uint32_t tick = timestamp_clock(now) + timestamp_offset_;
  const auto behind = std::max(static_cast<std::int32_t>(tick - header.timestamps->echo), 0);
  return Instant{(((now.ns >> kTimestampShift) - behind + 1) << kTimestampShift) - 1};
}

// What the peer tells of marks (RFC 3168 s6.1.2, RFC 8257 s3.3): once for each window of data.
void Connection::on_echo(const wire::TcpHeader& header, const Delivered& delivered, std::uint32_t flight_before,
                         Instant now) {
  const bool echo = header.has(wire::tcp_flags::kEce);
  if (delivered.acknowledged > 0)
    congestion_.on_echo_known(delivered.acknowledged, echo, queue_.acknowledged(), queue_.sent());
  if (!echo) return;
  spurious_.forget();  // there was congestion
  // What is acknowledged up to where it was reduced left before that.
  if (recovering() || queue_.acknowledged() <= reduced_until_) return;
  if (congestion_.window_bytes() <= emss_) pause_for_mark(now);
  ++counters_.ecn_reductions;
  congestion_.on_mark(flight_before);
  reduced_until_ = queue_.sent();
  on_window_reduced();
}

// Less than one segment for each round trip: one for each timeout. RFC 8257 leaves it open for DCTCP, whose switches
// mark long before a queue is full, and where a timeout is a thousand round trips: one for two of them.
void Connection::pause_for_mark(Instant now) {
  if (options_.congestion == Algorithm::dctcp) return pacer_.hold(now + rtt_.smoothed());
  ecn_pause_ = true;
  rto_at_ = now + rtt_.rto();
}

void Connection::restart_retransmission_timer(Instant now) {
  rto_at_ = queue_.all_acknowledged() && !ecn_pause_ ? kNever : now + rtt_.rto();
}

}  // namespace rnic::tcp
