// What the peer says of our octets: windows, acknowledgements, SACK, and from these losses and
// recovery (RFC 5681 s3, RFC 6675 s5, RFC 6582 s3).
#include <algorithm>

#include "tcp/connection.hpp"

namespace rnic::tcp {

namespace flag = wire::tcp_flags;

namespace {
constexpr std::uint32_t kDuplicateThreshold = 3;
// A tail probe waits at least this long: a peer that shares its processor is often late.
constexpr Duration kTailProbeMin = milliseconds(5);
}  // namespace

// SND.UNA =< ack =< SND.NXT.
void Connection::on_acknowledgement(const Incoming& in, Seq ack, Instant now) {
  const wire::TcpHeader& header = in.segment.header;
  const bool advances = ack != queue_.una();
  const std::uint32_t in_flight_before = pipe_bytes();
  const Seq edge_before = send_edge_;
  const bool window_changed = update_window(header, ack);
  bool news = false;
  if (header.sack_count > 0 && sack_) [[unlikely]]
    news = take_sack(header, ack);

  SendQueue::Acknowledged done;
  if (advances) {
    done = queue_.acknowledge(ack);
    if (done.sampled) rtt_.sample(now - done.sent_at);
    retransmissions_ = 0;
    if (tail_probe_out_ && !ack.before(tail_probe_end_)) tail_probe_out_ = false;
  } else if (queue_.all_acknowledged()) {
    return;  // nothing of ours is out
  }
  // A shut window that is answered for is no dead peer (RFC 9293 s3.8.6.1).
  if (!send_edge_.after(ack)) retransmissions_ = 0;
  // What was sent beyond the peer's edge (a probe) it has dropped; now that there is room, again.
  if (window_changed && send_edge_.after(edge_before) && queue_.nxt().after(edge_before))
    queue_.mark_lost_from(edge_before.before(ack) ? ack : edge_before);

  const bool in_recovery = recovery_ == Recovery::fast;  // and with this ACK perhaps no more
  const bool duplicate = !advances && !sack_ && !window_changed && in.payload.empty() && !in.fin;
  if (news || duplicate || recovery_ != Recovery::none || queue_.any_sacked()) [[unlikely]] {
    if (duplicate) ++duplicate_acks_;
    detect_losses(advances, duplicate);
  }
  if (advances) {
    if (sack_ || recovery_ == Recovery::none) duplicate_acks_ = 0;
    if (!in_recovery && recovery_ != Recovery::fast)
      congestion_.on_acknowledged(done.octets, in_flight_before, rtt_.smoothed(), now);
    restart_retransmission_timer(now);
    schedule_tail_probe(now);
    if (done.fin) on_our_fin_acknowledged(now);
  }
}

// RFC 9293 s3.10.7.4: only by segments that are not older than the last that did. Says whether the
// edge moved.
bool Connection::update_window(const wire::TcpHeader& header, Seq ack) {
  const Seq sequence{header.sequence};
  if (sequence.before(window_sequence_)) return false;
  if (sequence == window_sequence_ && ack.before(window_ack_)) return false;
  window_sequence_ = sequence;
  window_ack_ = ack;
  const std::uint32_t window = std::uint32_t{header.window} << send_shift_;
  if (window > send_window_max_) send_window_max_ = window;
  const Seq edge = ack + window;
  if (edge == send_edge_) return false;
  // The scale's rounding can seem to take back a little; nothing was taken back.
  if (edge.before(send_edge_) && send_edge_.since(edge) < (1u << send_shift_)) return false;
  send_edge_ = edge;
  persist_at_ = kNever;
  window_probe_due_ = false;
  return true;
}

// Whether any block says something new. A first block at or below the ACK, or inside the second,
// tells of a duplicate (RFC 2883 s4) and of nothing else.
bool Connection::take_sack(const wire::TcpHeader& header, Seq ack) {
  bool news = false;
  for (unsigned i = 0; i < header.sack_count; ++i) {
    const Seq first{header.sack[i].first}, end{header.sack[i].end};
    if (!end.after(ack)) continue;
    news |= queue_.sack(first, end);
  }
  return news;
}

void Connection::detect_losses(bool advances, bool duplicate) {
  bool lost = false;
  if (sack_) {
    const Duration reordering{std::max(rtt_.smoothed().ns >> 2, milliseconds(1).ns)};
    lost = queue_.detect_losses(emss_, reordering);
    if (recovery_ != Recovery::none) lost |= queue_.detect_lost_retransmissions(reordering);
  }
  const bool past_recovery = !queue_.una().before(recovery_end_);
  if (recovery_ != Recovery::none && past_recovery) {
    recovery_ = Recovery::none;
    duplicate_acks_ = 0;
    send_one_anyway_ = false;
  }
  if (recovery_ == Recovery::none) {
    // RFC 6582 s3.2 step 1: not again for what was outstanding at the last loss.
    if (duplicate && duplicate_acks_ >= kDuplicateThreshold && past_recovery) lost = queue_.mark_oldest_lost();
    if (lost) start_recovery();
  } else if (!sack_ && advances && recovery_ == Recovery::fast) {
    // A partial acknowledgement: the next hole (RFC 6582 s3.2 step 5).
    duplicate_acks_ = 0;
    if (queue_.mark_oldest_lost()) send_one_anyway_ = true;
  }
}

void Connection::start_recovery() {
  recovery_ = Recovery::fast;
  recovery_end_ = queue_.nxt();
  send_one_anyway_ = true;
  tail_probe_at_ = kNever;
  ++counters_.fast_retransmits;
  congestion_.on_loss(queue_.nxt().since(queue_.una()));
}

void Connection::restart_retransmission_timer(Instant now) {
  rto_at_ = queue_.all_acknowledged() ? kNever : now + rtt_.rto();
}

// The last segments of a burst have none behind them that could show their loss. Before the
// timeout, the last one goes again (RFC 8985 s7); its SACK shows what is missing.
void Connection::schedule_tail_probe(Instant now) {
  tail_probe_at_ = kNever;
  if (!sack_ || !options_.tail_loss_probe || tail_probe_out_ || recovery_ != Recovery::none) return;
  if (queue_.all_acknowledged() || rtt_.smoothed().ns == 0) return;
  Duration wait{std::max(rtt_.smoothed().ns * 2, kTailProbeMin.ns)};
  if (queue_.sent_count() == 1) wait = wait + options_.delayed_ack;  // the peer's may be as long
  if (now + wait < rto_at_) tail_probe_at_ = now + wait;
}

}  // namespace rnic::tcp
