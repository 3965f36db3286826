// Losses, and the way back from them: found by time where the peer speaks SACK (RFC 8985), else by
// duplicate ACKs (RFC 5681 s3.2, RFC 6582); sent again at the pace that PRR allows (RFC 6937). And
// the tail probe (RFC 8985 s7).
#include <algorithm>

#include "tcp/connection.hpp"

namespace rnic::tcp {

namespace {
constexpr std::uint32_t kDuplicateThreshold = 3;
}  // namespace

// An ACK told of something, or the reordering timer ran out (then nothing was delivered).
void Connection::look_for_losses(const Delivered& delivered, bool duplicate, Instant now) {
  const bool advances = delivered.acknowledged > 0 || delivered.fin;
  const std::uint32_t news_bytes = delivered_bytes(delivered, duplicate);
  if (recovering() && recovery_was_spurious(delivered, advances)) undo_recovery(delivered, now);
  if (recovering() && queue_.acknowledged() >= recovery_end_) end_recovery();
  bool lost = sack_ ? detect_by_time(now) : detect_by_duplicates(advances, duplicate);
  if (lost && !recovering()) {
    congestion_.measure_path(rack_.least_round_trip(), rack_.latest_round_trip(), now);
    begin_recovery();
    // In a recovery there is no patience with what may only be late (RFC 8985 s6.2 step 4).
    if (sack_) detect_by_time(now);
  }
  if (recovery_ == Recovery::fast) congestion_.recover(news_bytes, pipe_bytes(), now);
}

bool Connection::detect_by_time(Instant now) {
  reordering_at_ = kNever;
  if (!rack_.started()) return false;
  const Duration window = rack_.reordering_window(recovering(), queue_.sacked_count(), rtt_.smoothed());
  const SendQueue::Losses losses = queue_.detect_losses(rack_.horizon(window), now);
  reordering_at_ = losses.next;
  // Segments behind a hole arrive, so the peer is alive: no probe (RFC 8985 s7.2).
  if (queue_.any_sacked()) tail_probe_at_ = kNever;
  return losses.found;
}

// RFC 6582 s3.2.
bool Connection::detect_by_duplicates(bool advances, bool duplicate) {
  if (recovery_ == Recovery::none) {
    // Step 2: not again for what was outstanding at the last loss.
    const bool past_recovery = queue_.acknowledged() >= recovery_end_;
    return duplicate && duplicate_acks_ >= kDuplicateThreshold && past_recovery && queue_.mark_oldest_lost();
  }
  // Step 3: a partial acknowledgement shows the next hole.
  if (advances && recovery_ == Recovery::fast && queue_.mark_oldest_lost()) send_one_anyway_ = true;
  return false;
}

// What a duplicate ACK stands for: which of the segments in flight it was, it does not say.
std::uint32_t Connection::duplicate_bytes() const {
  return queue_.sent_count() == 0 ? 0 : queue_.nxt().since(queue_.una()) / queue_.sent_count();
}

// RFC 6937 s3: what this ACK says has arrived. Without SACK a duplicate ACK stands for a segment,
// and an ACK that advances for what the duplicates before it did not stand for. No more of these
// are believed than there are segments behind the hole.
std::uint32_t Connection::delivered_bytes(const Delivered& delivered, bool duplicate) {
  if (sack_) return delivered.octets;
  if (duplicate) {
    if (duplicate_acks_ + 1 >= queue_.sent_count()) return 0;
    ++duplicate_acks_;
    return duplicate_bytes();
  }
  if (delivered.acknowledged == 0) return 0;
  const std::uint32_t counted = std::min(duplicate_acks_, delivered.segments > 0 ? delivered.segments - 1 : 0);
  duplicate_acks_ -= counted;
  const std::uint32_t each = delivered.segments > 0 ? delivered.acknowledged / delivered.segments : 0;
  return delivered.acknowledged - std::min(delivered.acknowledged, counted * each);
}

void Connection::begin_recovery() {
  recovery_ = Recovery::fast;
  recovery_end_ = queue_.sent();
  send_one_anyway_ = true;
  tail_probe_at_ = kNever;
  tail_probe_.forget();
  ++counters_.fast_retransmits;
  const bool reduces = !reduced_for_this_window();
  congestion_.begin_recovery(queue_.nxt().since(queue_.una()), reduces);
  spurious_.forget();
  if (reduces) {
    spurious_.begin(SpuriousCheck::After::losses);
    on_window_reduced();
  }
  reduced_until_ = recovery_end_;
}

void Connection::end_recovery() {
  if (recovery_ == Recovery::fast) congestion_.end_recovery(pipe_bytes());
  recovery_ = Recovery::none;
  duplicate_acks_ = 0;
  send_one_anyway_ = false;
  rack_.on_recovery_end();
  spurious_.frto_off();
}

// The peer had it already: perhaps we are too quick (RFC 8985 s6.2 step 4). That a probe was not
// needed says nothing of the kind.
void Connection::on_duplicate_told(const Told& told, const Delivered& delivered, Instant now) {
  ++counters_.duplicates_told;
  if (spurious_.on_duplicate(told.duplicate_first, told.duplicate_end)) undo_recovery(delivered, now);
  if (!tail_probe_.is_own(told.duplicate_end)) rack_.on_duplicate(queue_.acknowledged(), queue_.sent());
}

void Connection::on_window_reduced() { ecn_.on_window_reduced(); }

// ---- what was no loss ----------------------------------------------------------------------

// New data that could go now: for F-RTO's second step.
bool Connection::may_try_new_data() const {
  if (!queue_.has_unsent()) return false;
  const QueuedSegment& segment = queue_.at(queue_.first_unsent());
  if (segment.has(QueuedSegment::kFin) || (options_.nagle && segment.first_bytes() < emss_)) return false;
  return std::min(segment.first_bytes(), emss_) <= window_room();
}

bool Connection::recovery_was_spurious(const Delivered& delivered, bool advances) {
  using Frto = SpuriousCheck::Frto;
  if (advances && spurious_.on_acknowledgement(queue_.una(), delivered.echoed_until)) return true;
  switch (spurious_.frto()) {
    case Frto::off:
      return false;
    case Frto::first:
      if (!advances) return false;
      if (queue_.acknowledged() < recovery_end_ && may_try_new_data())
        spurious_.frto_second();
      else
        spurious_.frto_off();
      return false;
    case Frto::second:
      if (!delivered.any() && !delivered.originals) {
        // Without SACK a duplicate ACK is all that the new segments can bring.
        if (!sack_ && !advances) spurious_.frto_off();
        return false;
      }
      return spurious_.frto_decides(delivered);
  }
  return false;
}

// As if nothing had been (RFC 4015 s3.2, RFC 9438 s4.9).
void Connection::undo_recovery(const Delivered& delivered, Instant now) {
  ++counters_.spurious_recoveries;
  if (recovering()) queue_.forgive();
  if (spurious_.after_timeout()) {
    congestion_.undo_timeout(queue_.pipe_bytes(), delivered.acknowledged);
    rack_.on_spurious_timeout();
    rtt_.on_spurious_timeout();
    if (const auto sent_at = delivered.answered_sent_at(sack_)) rtt_.sample(now - *sent_at);
  } else {
    congestion_.undo();
    rack_.on_reordering();  // nothing was lost, only late
  }
  spurious_.forget();
  recovery_ = Recovery::none;
  send_one_anyway_ = false;
  duplicate_acks_ = 0;
  retransmissions_ = 0;
  reduced_until_ = 0;
}

// ---- the tail probe ------------------------------------------------------------------------

// RFC 8985 s7.2. Not where segments were SACKed, or none lies in the peer's window: there other
// timers watch.
void Connection::schedule_tail_probe(Instant now) {
  tail_probe_at_ = kNever;
  if (!sack_ || !options_.tail_loss_probe || tail_probe_.out() || recovering()) return;
  if (queue_.all_acknowledged() || queue_.any_sacked() || !queue_.una().before(send_edge_)) return;
  const bool single = queue_.sent_count() == 1 && queue_.at(queue_.oldest()).unit_bytes == 0;
  const Duration wait = TailProbe::wait(rtt_.smoothed(), single, options_.delayed_ack);
  tail_probe_at_ = std::min(now + wait, rto_at_);
}

// RFC 8985 s7.3: whether a probe goes or not, the retransmission timer starts anew.
void Connection::on_tail_probe_timeout(Instant now) {
  tail_probe_at_ = kNever;
  if (queue_.all_acknowledged()) return;
  tail_probe_due_ = tail_probe_.allowed();
  rto_at_ = now + rtt_.rto();
}

// Something new, where the peer's window has room for it, whatever ours says; else the last again.
bool Connection::send_tail_probe(SegmentOut& out, Instant now) {
  if (queue_.all_acknowledged() || recovering()) return false;
  ++counters_.tail_probes;
  if (queue_.has_unsent()) {
    const SendQueue::Index i = queue_.first_unsent();
    const std::uint32_t octets = std::min(queue_.at(i).first_bytes(), emss_);
    if (octets <= window_room() && (octets == queue_.at(i).length || queue_.cut(i, octets))) {
      tail_probe_.on_sent(false, queue_.at(i).end());
      send_first_unsent(out, octets, now);
      rto_at_ = now + rtt_.rto();
      return true;
    }
  }
  tail_probe_.on_sent(true, queue_.nxt());
  const SendQueue::Index run = queue_.first_unsent() - 1;
  if (const std::uint32_t unit = queue_.at(run).unit_bytes; unit != 0)
    queue_.cut(run, (queue_.at(run).segments() - 1) * unit);
  retransmit(out, queue_.first_unsent() - 1, now);
  rto_at_ = now + rtt_.rto();
  return true;
}

// RFC 8985 s7.4.2: the probe has made good what was lost. That is congestion all the same.
void Connection::on_probe_answered(const Told& told, Seq ack, bool plain, std::uint32_t flight_before) {
  if (!tail_probe_.repaired_loss(ack, told.duplicate, told.duplicate_end, plain)) return;
  if (recovering() || reduced_for_this_window()) return;
  congestion_.on_repaired_loss(flight_before);
  reduced_until_ = queue_.sent();
  spurious_.forget();
  on_window_reduced();
}

}  // namespace rnic::tcp
