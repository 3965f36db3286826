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
  if (delayed_ack_at_ <= now) {
    delayed_ack_at_ = kNever;
    progress_ack_ = true;
  }
  if (persist_at_ <= now) {
    persist_at_ = kNever;
    window_probe_due_ = true;
  }
  if (tail_probe_at_ <= now) {
    tail_probe_at_ = kNever;
    if (recovery_ == Recovery::none && !queue_.all_acknowledged()) tail_probe_due_ = true;
  }
  if (rto_at_ <= now) on_retransmission_timeout(now);
  if (keepalive_at_ <= now) on_keepalive(now);
  if (time_wait_at_ <= now) end(Ended::gracefully);
}

// RFC 6298 s5.4 to s5.7, RFC 6675 s5.1.
void Connection::on_retransmission_timeout(Instant now) {
  rto_at_ = kNever;
  ++counters_.timeouts;
  ++retransmissions_;
  if (state_ < State::established) {
    if (retransmissions_ > options_.syn_retransmissions_max) return end(Ended::timed_out);
    rtt_.back_off();
    syn_due_ = true;
    return;
  }
  if (queue_.all_acknowledged()) return;
  if (retransmissions_ > options_.retransmissions_max) return end(Ended::timed_out);
  rtt_.back_off();
  rto_at_ = now + rtt_.rto();
  tail_probe_at_ = kNever;
  tail_probe_due_ = tail_probe_out_ = false;
  duplicate_acks_ = 0;
  send_one_anyway_ = true;
  if (!queue_.una().before(send_edge_)) {
    // The peer's window is shut, and what went was a probe: that says nothing about the path.
    queue_.mark_oldest_lost();
    ++counters_.window_probes;
    return;
  }
  if (retransmissions_ == 1)
    congestion_.on_timeout(queue_.nxt().since(queue_.una()));
  else
    congestion_.on_repeated_timeout();
  recovery_ = Recovery::timeout;
  recovery_end_ = queue_.nxt();
  queue_.mark_all_lost();
}

// RFC 9293 s3.8.4.
void Connection::on_keepalive(Instant now) {
  keepalive_at_ = now + std::min(options_.keepalive, kKeepaliveInterval);
  if (!queue_.all_acknowledged()) return;  // the retransmission timer watches
  if (keepalive_probes_++ == kKeepaliveProbesMax) return end(Ended::timed_out);
  keepalive_due_ = true;
}

}  // namespace rnic::tcp
