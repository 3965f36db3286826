// The retransmit queue and its scoreboard.
#include "tcp/send_queue.hpp"

#include <algorithm>
#include <bit>

namespace rnic::tcp {

namespace {

// Gives buffers back in bulk: one call on the pool for many.
class Returns {
 public:
  ~Returns() { flush(); }
  void add(Buffer* buffer) {
    if (buffer == nullptr) return;
    RNIC_ASSERT(buffer->refs > 0);
    if (--buffer->refs != 0) return;
    if (count_ == kBatch || (count_ > 0 && pool_ != buffer->pool)) flush();
    pool_ = buffer->pool;
    gone_[count_++] = buffer;
  }
  void flush() {
    if (count_ > 0) pool_->give(gone_, count_);
    count_ = 0;
  }

 private:
  static constexpr unsigned kBatch = 32;
  Buffer* gone_[kBatch];
  unsigned count_ = 0;
  BufferPool* pool_ = nullptr;
};

}  // namespace

SendQueue::SendQueue(std::uint32_t slots) : most_(0), usable_(0) { allow(std::max(slots, 4u)); }

void SendQueue::allow(std::uint32_t slots) {
  most_ = std::max(most_, std::bit_ceil(slots));
  usable_ = most_ - std::clamp(most_ / 4, 2u, 16u);
}

QueuedSegment& SendQueue::new_slot() {
  slots_.need(head_, tail_, most_);
  return slot(tail_++);
}

void SendQueue::start(Seq first) {
  RNIC_ASSERT(empty());
  una_ = nxt_ = end_ = first;
}

void SendQueue::clear() {
  Returns returns;
  for (; head_ != tail_; ++head_) returns.add(std::exchange(slot(head_).buffer, nullptr));
  next_ = judged_ = highest_sacked_ = lost_from_ = head_;
  unsent_bytes_ = pipe_bytes_ = sacked_count_ = lost_waiting_ = resent_count_ = 0;
  in_runs_ = large_count_ = large_slots_ = 0;
  una_ = nxt_;
  end_probe();
}

bool SendQueue::append(BufferRef payload, std::uint16_t unit_bytes) {
  const std::uint32_t segments = segments_in(payload->length, unit_bytes);
  if (used() + segments > usable_) return false;
  push(std::move(payload), unit_bytes);
  return true;
}

bool SendQueue::append_last(BufferRef payload) {
  if (!can_cut()) return false;
  push(std::move(payload), 0);
  return true;
}

void SendQueue::push(BufferRef payload, std::uint16_t unit_bytes) {
  QueuedSegment& s = new_slot();
  s.head = payload->head;
  s.length = payload->length;
  s.sequence = end_;
  s.flags = QueuedSegment::kWholeBuffer;
  s.unit_bytes = s.length > unit_bytes ? unit_bytes : std::uint16_t{0};
  in_runs_ += s.segments() - 1;
  if (is_large(*payload)) {
    s.flags |= QueuedSegment::kLarge;
    ++large_count_;
    ++large_slots_;
  }
  s.buffer = payload.release();
  end_ = end_ + s.length;
  unsent_bytes_ += s.length;
  appended_ += s.length;
}

void SendQueue::append_fin() {
  QueuedSegment& s = new_slot();
  s = QueuedSegment{};
  s.sequence = end_;
  s.flags = QueuedSegment::kFin;
  end_ = end_ + 1;
}

void SendQueue::mark_probe() {
  probe_ = at(tail_ - 1).sequence;
  probe_state_ = Probe::out;
}

// `second` becomes what is behind the first `octets` of `first`. So many segments more there are: one where that cut a
// segment, none where it was between two of a run.
std::uint32_t SendQueue::divide(QueuedSegment& first, QueuedSegment& second, std::uint32_t octets) {
  const std::uint32_t segments = first.segments();
  first.flags &= static_cast<std::uint8_t>(~QueuedSegment::kWholeBuffer);
  second = first;
  if (first.has(QueuedSegment::kLarge)) {
    second.flags |= QueuedSegment::kSlice;
    ++large_slots_;
  }
  ++second.buffer->refs;
  second.sequence = first.sequence + octets;
  second.head += octets;
  second.length -= octets;
  first.length = octets;
  for (QueuedSegment* each : {&first, &second})
    if (each->length <= each->unit_bytes) each->unit_bytes = 0;
  const std::uint32_t more = first.segments() + second.segments() - segments;
  in_runs_ += more - 1;
  return more;
}

// The oldest, a run, between two of its segments: in front of it there is always a slot, and nothing has to move.
void SendQueue::cut_oldest(std::uint32_t octets) {
  slots_.need(head_, tail_, most_);
  const Index rest = head_--;
  QueuedSegment& first = slot(head_);
  first = slot(rest);
  divide(first, slot(rest), octets);
  for (Index* mark : {&judged_, &lost_from_})
    if (*mark == rest) *mark = head_;
  if (first.has(QueuedSegment::kRetransmitted))
    ++resent_count_;
  else if (first.has(QueuedSegment::kLost))
    ++lost_waiting_;
}

bool SendQueue::cut(Index i, std::uint32_t octets) {
  if (const std::uint32_t unit = at(i).unit_bytes; unit == 0) {
    if (!can_cut()) return false;
  } else if (octets % unit != 0) {
    // Within one segment of a run: those behind it stay what they are.
    if (!can_cut()) return false;
    if (const std::uint32_t whole = (octets / unit + 1) * unit; whole < at(i).length) cut(i, whole);
  }
  if (is_probe(i)) end_probe();
  new_slot();
  for (Index j = tail_ - 1; j != i + 1; --j) slot(j) = slot(j - 1);
  QueuedSegment& first = slot(i);
  RNIC_ASSERT(octets > 0 && octets < first.length && !first.has(QueuedSegment::kFin));
  const std::uint32_t more = divide(first, slot(i + 1), octets);
  const bool sent = is_sent(i);
  if (sent) ++next_;
  // Every mark behind the cut moves with what it marks.
  for (Index* mark : {&judged_, &highest_sacked_})
    if (static_cast<std::int32_t>(*mark - i) > 0) ++*mark;
  if (static_cast<std::int32_t>(lost_from_ - i) > 0) ++lost_from_;
  if (sent && first.has(QueuedSegment::kSacked)) sacked_count_ += more;
  if (sent && first.has(QueuedSegment::kRetransmitted))
    ++resent_count_;
  else if (sent && first.has(QueuedSegment::kLost))
    ++lost_waiting_;
  return true;
}

void SendQueue::on_sent(Instant now) {
  QueuedSegment& s = slot(next_++);
  s.sent_at = now;
  nxt_ = s.end();
  unsent_bytes_ -= s.length;
  pipe_bytes_ += s.sequence_length();
}

void SendQueue::on_retransmitted(Index i, Instant now) {
  QueuedSegment& s = slot(i);
  s.sent_at = now;
  if (s.has(QueuedSegment::kLost) && !s.has(QueuedSegment::kRetransmitted)) {
    --lost_waiting_;
    if (lost_from_ == i) ++lost_from_;
  }
  if (!s.has(QueuedSegment::kRetransmitted) && resent_count_++ == 0) oldest_resent_at_ = now;
  set_flags(s, QueuedSegment::kLost | QueuedSegment::kRetransmitted | QueuedSegment::kSentTwice, 0);
}

SendQueue::Index SendQueue::find_lost() const {
  for (;; ++lost_from_) {
    RNIC_ASSERT(is_sent(lost_from_));
    const QueuedSegment& s = at(lost_from_);
    if (s.has(QueuedSegment::kLost) && !s.has(QueuedSegment::kSacked | QueuedSegment::kRetransmitted))
      return lost_from_;
  }
}

std::uint32_t SendQueue::pipe_share(const QueuedSegment& s) {
  if (s.has(QueuedSegment::kSacked)) return 0;
  if (s.has(QueuedSegment::kLost) && !s.has(QueuedSegment::kRetransmitted)) return 0;
  return s.sequence_length();
}

void SendQueue::set_flags(QueuedSegment& s, std::uint8_t set, std::uint8_t cleared) {
  pipe_bytes_ -= pipe_share(s);
  s.flags = static_cast<std::uint8_t>((s.flags & ~cleared) | set);
  pipe_bytes_ += pipe_share(s);
}

void SendQueue::acknowledge(Seq ack, Delivered& delivered) {
  constexpr std::uint8_t kHasStory = QueuedSegment::kSacked | QueuedSegment::kLost | QueuedSegment::kRetransmitted |
                                     QueuedSegment::kSentTwice | QueuedSegment::kFin;
  Returns returns;
  const Index first = head_;
  // Of those to which nothing has happened but being sent.
  std::uint32_t plain_count = 0, plain_bytes = 0;
  Seq first_plain_end, last_plain_end;
  Instant last_plain_sent_at;
  Index last_plain = 0;
  std::uint32_t largest = delivered.largest;
  for (; head_ != next_; ++head_) {
    if (ack.before(at(head_).end())) {
      // Whole segments of a run are segments of their own.
      const std::uint32_t unit = at(head_).unit_bytes, part = ack.since(at(head_).sequence);
      if (unit == 0 || part < unit) break;
      cut_oldest(part / unit * unit);
    }
    QueuedSegment& s = slot(head_);
    if (s.has(kHasStory)) [[unlikely]] {
      forget(s, delivered);
    } else {
      if (plain_count++ == 0) first_plain_end = s.first_end();
      last_plain = head_;
      last_plain_end = s.end();
      last_plain_sent_at = s.sent_at;
      plain_bytes += s.length;
    }
    largest = std::max(largest, s.first_bytes());
    if (s.unit_bytes != 0) in_runs_ -= s.segments() - 1;
    if (s.has(QueuedSegment::kLarge)) let_go_of_large();
    returns.add(std::exchange(s.buffer, nullptr));
  }
  if (plain_count != 0) {
    pipe_bytes_ -= plain_bytes;
    delivered.acknowledged += plain_bytes;
    delivered.octets += plain_bytes;
    delivered.on_original(first_plain_end);
    delivered.on_sent_at(last_plain_sent_at, last_plain_end);
    if (last_plain == head_ - 1 && !delivered.sent_twice) {
      delivered.sampled = true;
      delivered.sample_sent_at = last_plain_sent_at;
    }
  }
  delivered.segments += head_ - first;
  delivered.largest = largest;
  if (probe_state_ == Probe::out && probe_.before(ack)) [[unlikely]]
    probe_state_ = Probe::arrived;
  una_ = ack;
  if (head_ != next_) {  // perhaps a part of the next
    const std::uint32_t part = ack.since(at(head_).sequence);
    if (part > 0 && part < at(head_).length) {
      // Of a run, of its first segment, which is by itself then.
      if (const std::uint32_t unit = at(head_).unit_bytes; unit != 0) cut_oldest(unit);
      QueuedSegment& s = slot(head_);
      if (pipe_share(s) != 0) pipe_bytes_ -= part;
      if (!s.has(QueuedSegment::kSacked)) delivered.octets += part;
      trim(s, part);
      delivered.acknowledged += part;
    }
  }
  acknowledged_ += delivered.acknowledged;
  for (Index* mark : {&judged_, &lost_from_, &highest_sacked_})
    if (static_cast<std::int32_t>(*mark - head_) < 0) *mark = head_;
}

// The first of its octets are acknowledged.
void SendQueue::trim(QueuedSegment& s, std::uint32_t octets) {
  s.sequence = s.sequence + octets;
  s.head += octets;
  s.length -= octets;
  s.flags &= static_cast<std::uint8_t>(~QueuedSegment::kWholeBuffer);
}

// The oldest segment's, unless the next is a part of the same buffer.
void SendQueue::let_go_of_large() {
  --large_slots_;
  if (head_ + 1 != tail_ && at(head_ + 1).has(QueuedSegment::kSlice))
    slot(head_ + 1).flags &= static_cast<std::uint8_t>(~QueuedSegment::kSlice);
  else
    --large_count_;
}

// A segment that is no more, and to which something had happened.
void SendQueue::forget(const QueuedSegment& s, Delivered& delivered) {
  pipe_bytes_ -= pipe_share(s);
  delivered.acknowledged += s.length;
  delivered.sampled = false;
  delivered.fin |= s.has(QueuedSegment::kFin);
  // What was SACKed arrived long ago, so its time says nothing about this ACK.
  if (s.has(QueuedSegment::kSacked)) {
    sacked_count_ -= s.segments();
    return;
  }
  if (s.has(QueuedSegment::kRetransmitted))
    --resent_count_;
  else if (s.has(QueuedSegment::kLost))
    --lost_waiting_;
  delivered.octets += s.length;
  if (!s.has(QueuedSegment::kSentTwice)) {
    delivered.sampled = !delivered.sent_twice;
    delivered.sample_sent_at = s.sent_at;
    delivered.on_original(s.first_end());
    delivered.on_sent_at(s.sent_at, s.end());
    return;
  }
  delivered.sent_twice = true;
  if (s.sent_at <= delivered.believed_until)
    delivered.on_sent_at(s.sent_at, s.end());
  else
    delivered.late |= s.sent_at > delivered.echoed_until;
}

SendQueue::Index SendQueue::find(Seq sequence) const {
  Index low = head_, high = next_;
  while (low != high) {
    const Index middle = low + (high - low) / 2;
    if (sequence.before(at(middle).end()))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// Of a run at the edge of what the peer tells of: its segments before the first that the peer has, or, where that is
// the run's first, those that it has.
void SendQueue::cut_apart(Index i, std::uint32_t unit, Seq first, Seq end) {
  const QueuedSegment& s = at(i);
  std::uint32_t octets = 0;
  if (s.sequence.before(first))
    octets = (first.since(s.sequence) + unit - 1) / unit * unit;
  else if (s.end().after(end))
    octets = end.since(s.sequence) / unit * unit;
  if (octets != 0 && octets < s.length) cut(i, octets);
}

bool SendQueue::sack(Seq first, Seq end, Delivered& delivered) {
  if (!first.before(end) || first.before(una_) || end.after(nxt_)) return false;
  bool news = false;
  for (Index i = find(first); i != next_; ++i) {
    if (const std::uint32_t unit = at(i).unit_bytes; unit != 0 && !at(i).has(QueuedSegment::kSacked)) [[unlikely]]
      cut_apart(i, unit, first, end);
    QueuedSegment& s = slot(i);
    if (s.end().after(end)) break;
    if (s.has(QueuedSegment::kSacked) || s.sequence.before(first)) continue;
    if (is_probe(i)) [[unlikely]]
      probe_state_ = Probe::arrived;
    if (s.has(QueuedSegment::kRetransmitted))
      --resent_count_;
    else if (s.has(QueuedSegment::kLost))
      --lost_waiting_;
    set_flags(s, QueuedSegment::kSacked, QueuedSegment::kLost | QueuedSegment::kRetransmitted);
    delivered.octets += s.length;
    if (!s.has(QueuedSegment::kSentTwice)) {
      delivered.on_original(s.first_end());
      delivered.on_sent_at(s.sent_at, s.end());
    } else if (s.sent_at <= delivered.believed_until) {
      delivered.on_sent_at(s.sent_at, s.end());
    }
    if (sacked_count_ == 0 || static_cast<std::int32_t>(i + 1 - highest_sacked_) > 0) highest_sacked_ = i + 1;
    sacked_count_ += s.segments();
    news = true;
  }
  return news;
}

bool SendQueue::mark_lost(Index i) {
  QueuedSegment& s = slot(i);
  if (s.has(QueuedSegment::kSacked)) return false;
  if (s.has(QueuedSegment::kLost) && !s.has(QueuedSegment::kRetransmitted)) return false;
  if (s.has(QueuedSegment::kRetransmitted)) --resent_count_;
  set_flags(s, QueuedSegment::kLost, QueuedSegment::kRetransmitted);
  if (lost_waiting_++ == 0 || static_cast<std::int32_t>(i - lost_from_) < 0) lost_from_ = i;
  if (!is_probe(i)) return true;
  probe_state_ = Probe::lost;
  return false;
}

SendQueue::Losses SendQueue::detect_losses(const Rack::Horizon& horizon, Instant now) {
  Losses losses;
  const auto is_lost = [&](Index i) {
    const Instant lost_at = at(i).sent_at + horizon.patience;
    if (lost_at > now) {
      losses.next = std::min(losses.next, lost_at);
      return false;
    }
    losses.found |= mark_lost(i);
    return true;
  };
  // What was sent once left in order, so the first that is not lost ends the search.
  for (; judged_ != next_; ++judged_) {
    const QueuedSegment& s = at(judged_);
    if (s.has(QueuedSegment::kSacked | QueuedSegment::kLost)) continue;
    if (!horizon.overtook(s.sent_at, s.end()) || !is_lost(judged_)) break;
  }
  // What was sent again left in any order. Mostly all of it is younger than what has arrived.
  if (resent_count_ == 0 || horizon.sent_at < oldest_resent_at_) return losses;
  oldest_resent_at_ = kNever;
  std::uint32_t left = resent_count_;
  for (Index i = head_; left != 0; ++i) {
    const QueuedSegment& s = at(i);
    if (!s.has(QueuedSegment::kRetransmitted)) continue;
    --left;
    if (horizon.overtook(s.sent_at, s.end()) && is_lost(i)) continue;
    oldest_resent_at_ = std::min(oldest_resent_at_, s.sent_at);
  }
  return losses;
}

bool SendQueue::mark_oldest_lost() {
  if (head_ == next_) return false;
  if (const std::uint32_t unit = at(head_).unit_bytes; unit != 0) cut_oldest(unit);
  if (judged_ == head_) judged_ = head_ + 1;
  return mark_lost(head_);
}

void SendQueue::mark_lost_after_timeout(Duration patience, Instant now) {
  if (head_ == next_) return;
  if (at(head_).has(QueuedSegment::kSacked)) {
    for (Index i = head_; i != next_; ++i) set_flags(slot(i), 0, QueuedSegment::kSacked);
    sacked_count_ = 0;
    patience = Duration{0};
  }
  judged_ = head_;
  bool all_before = true;
  for (Index i = head_; i != next_; ++i) {
    if (i == head_ || at(i).sent_at + patience <= now) mark_lost(i);
    all_before &= at(i).has(QueuedSegment::kSacked | QueuedSegment::kLost);
    if (all_before) judged_ = i + 1;
  }
}

void SendQueue::forgive() {
  for (Index i = head_; i != next_; ++i) {
    QueuedSegment& s = slot(i);
    if (!s.has(QueuedSegment::kLost) || s.has(QueuedSegment::kRetransmitted)) continue;
    --lost_waiting_;
    if (s.has(QueuedSegment::kSentTwice)) {  // its retransmission is on its way
      oldest_resent_at_ = resent_count_++ == 0 ? s.sent_at : std::min(oldest_resent_at_, s.sent_at);
      set_flags(s, QueuedSegment::kRetransmitted, 0);
    } else {
      set_flags(s, 0, QueuedSegment::kLost);
    }
  }
  judged_ = head_;
}

void SendQueue::mark_lost_from(Seq first) {
  Index i = next_;
  for (; i != head_ && !at(i - 1).sequence.before(first); --i) mark_lost(i - 1);
  if (i == head_ || at(i - 1).unit_bytes == 0 || !first.before(at(i - 1).end())) return;
  const std::uint32_t unit = at(i - 1).unit_bytes;
  const std::uint32_t octets = (first.since(at(i - 1).sequence) + unit - 1) / unit * unit;
  if (octets < at(i - 1).length && cut(i - 1, octets)) mark_lost(i);
}

void SendQueue::mark_lost_longer_than(std::uint32_t octets) {
  for (Index i = head_; i != next_; ++i) {
    if (at(i).first_bytes() <= octets) continue;
    // The last of a run may be shorter.
    if (const std::uint32_t unit = at(i).unit_bytes;
        unit != 0 && at(i).length % unit != 0 && at(i).length % unit <= octets)
      cut(i, at(i).length / unit * unit);
    mark_lost(i);
  }
}

}  // namespace rnic::tcp
