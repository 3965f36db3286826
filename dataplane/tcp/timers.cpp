// The timers of a connection. All run in next_segment(), which is called when next_deadline() has
// passed.
#include <algorithm>

#include "tcp/connection.hpp"

namespace rnic::tcp {

namespace {
constexpr Duration kKeepaliveInterval = seconds(75);
constexpr std::uint32_t kKeepaliveProbesMax = 9;
}  // namespace

void Connection::run_timers(Instant now) {
  receiver_.run_timer(now);
  if (persist_at_ <= now) {
    persist_at_ = kNever;
    window_probe_due_ = true;
  }
  if (reordering_at_ <= now) {
    look_for_losses(Delivered{}, false, now);
    if (queue_.probe() == SendQueue::Probe::lost) on_path_probe_answered(now);
  }
  if (tail_probe_at_ <= now) on_tail_probe_timeout(now);  // before the retransmission timer: it may be due as well
  if (rto_at_ <= now) on_retransmission_timeout(now);
  if (keepalive_at_ <= now) on_keepalive(now);
  if (time_wait_at_ <= now) end(Ended::gracefully);
}

void Connection::renew_syn(Instant now) {
  if (state_ != State::syn_sent || rto_at_ == kNever || rto_at_ - now <= options_.rto_initial) return;
  rto_at_ = kNever;
  retransmissions_ = 0;
  syn_due_ = true;
}

// RFC 6298 s5.4 to s5.7, RFC 8985 s6.3.
void Connection::on_retransmission_timeout(Instant now) {
  rto_at_ = kNever;
  if (ecn_pause_) {
    ecn_pause_ = false;
    if (queue_.all_acknowledged()) return;
  }
  ++counters_.timeouts;
  ++retransmissions_;
  if (state_ < State::established) {
    if (retransmissions_ > handshake_repeats(options_, options_.syn_retransmissions_max)) return end(Ended::timed_out);
    if (state_ == State::syn_sent && remains_) number_behind_remains();
    syn_due_ = true;
    return;
  }
  if (queue_.all_acknowledged()) return;
  if (retransmissions_ > options_.retransmissions_max) return end(Ended::timed_out);
  rtt_.back_off();
  rto_at_ = now + rtt_.rto();
  tail_probe_at_ = reordering_at_ = kNever;
  tail_probe_due_ = false;
  tail_probe_.forget();
  duplicate_acks_ = 0;
  send_one_anyway_ = true;
  if (!queue_.una().before(send_edge_)) {
    // The peer's window is shut, and what went was a probe: that says nothing about the path.
    queue_.mark_oldest_lost();
    ++counters_.window_probes;
    return;
  }
  if (path_.on_timeout(retransmissions_, queue_.at(queue_.oldest()).first_bytes() + option_bytes(), now))
    on_path_changed();
  // RFC 5682 s2.1 and s3.1, step 1: F-RTO, unless a recovery was under way. A timer that has run out again with
  // nothing acknowledged in between is still the same attempt: only the oldest segment has gone again.
  const bool tries_new = recovery_ == Recovery::none || spurious_.frto() == SpuriousCheck::Frto::first;
  if (recovery_ == Recovery::fast) congestion_.break_off_recovery();
  if (retransmissions_ == 1) {
    congestion_.on_timeout(queue_.nxt().since(queue_.una()));
    spurious_.begin(SpuriousCheck::After::timeout);
    on_window_reduced();
  } else {
    congestion_.on_repeated_timeout();
    spurious_.frto_off();
  }
  if (tries_new) spurious_.frto_begin(queue_.nxt());
  recovery_ = Recovery::timeout;
  recovery_end_ = reduced_until_ = queue_.sent();
  const bool judges = sack_ && rack_.started();
  const Duration window = rack_.reordering_window(true, queue_.sacked_count(), rtt_.smoothed());
  queue_.mark_lost_after_timeout(judges ? rack_.horizon(window).patience : Duration{0}, now);
  if (queue_.probe() == SendQueue::Probe::lost) on_path_probe_answered(now);
}

// RFC 9293 s3.8.4.
void Connection::on_keepalive(Instant now) {
  keepalive_at_ = now + std::min(options_.keepalive, kKeepaliveInterval);
  if (!queue_.all_acknowledged()) return;  // the retransmission timer watches
  if (keepalive_probes_++ == kKeepaliveProbesMax) return end(Ended::timed_out);
  keepalive_due_ = true;
}

void Connection::send_keepalive() {
  if (state_ >= State::established && state_ != State::time_wait) keepalive_due_ = true;
}

}  // namespace rnic::tcp
