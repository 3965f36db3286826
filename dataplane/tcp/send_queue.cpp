// The retransmit queue and its scoreboard.
#include "tcp/send_queue.hpp"

#include <algorithm>
#include <bit>

namespace rnic::tcp {

namespace {

// RFC 6675 s2.
constexpr std::uint32_t kDuplicateThreshold = 3;

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

SendQueue::SendQueue(std::uint32_t slots)
    : slots_(std::make_unique<QueuedSegment[]>(std::bit_ceil(std::max(slots, 4u)))) {
  const std::uint32_t size = std::bit_ceil(std::max(slots, 4u));
  mask_ = size - 1;
  usable_ = size - std::clamp(size / 4, 2u, 16u);
}

void SendQueue::start(Seq first) {
  RNIC_ASSERT(empty());
  una_ = nxt_ = end_ = first;
}

void SendQueue::clear() {
  Returns returns;
  for (; head_ != tail_; ++head_) returns.add(std::exchange(slot(head_).buffer, nullptr));
  next_ = judged_ = highest_sacked_ = lost_from_ = head_;
  unsent_bytes_ = pipe_bytes_ = sacked_count_ = lost_waiting_ = 0;
  una_ = nxt_;
}

bool SendQueue::append(BufferRef payload) {
  if (!has_slot()) return false;
  push(std::move(payload));
  return true;
}

bool SendQueue::append_last(BufferRef payload) {
  if (tail_ - head_ >= mask_) return false;  // the last slot is for a FIN
  push(std::move(payload));
  return true;
}

void SendQueue::push(BufferRef payload) {
  QueuedSegment& s = slot(tail_++);
  s.head = payload->head;
  s.length = payload->length;
  s.sequence = end_;
  s.flags = QueuedSegment::kWholeBuffer;
  s.buffer = payload.release();
  end_ = end_ + s.length;
  unsent_bytes_ += s.length;
  appended_ += s.length;
}

void SendQueue::append_fin() {
  RNIC_ASSERT(tail_ - head_ <= mask_);
  QueuedSegment& s = slot(tail_++);
  s = QueuedSegment{};
  s.sequence = end_;
  s.flags = QueuedSegment::kFin;
  end_ = end_ + 1;
}

bool SendQueue::cut(Index i, std::uint32_t octets) {
  if (tail_ - head_ >= mask_) return false;  // the last slot is for a FIN
  QueuedSegment& first = slot(i);
  RNIC_ASSERT(octets > 0 && octets < first.length && !first.has(QueuedSegment::kFin));
  for (Index j = tail_; j != i + 1; --j) slot(j) = slot(j - 1);
  ++tail_;
  QueuedSegment& second = slot(i + 1);
  first.flags &= static_cast<std::uint8_t>(~QueuedSegment::kWholeBuffer);
  second = first;
  ++second.buffer->refs;
  second.sequence = first.sequence + octets;
  second.head += octets;
  second.length -= octets;
  first.length = octets;
  const bool sent = is_sent(i);
  if (sent) ++next_;
  // Every mark behind the cut moves with what it marks.
  for (Index* mark : {&judged_, &highest_sacked_})
    if (static_cast<std::int32_t>(*mark - i) > 0) ++*mark;
  if (static_cast<std::int32_t>(lost_from_ - i) > 0) ++lost_from_;
  if (sent && first.has(QueuedSegment::kSacked)) ++sacked_count_;
  if (sent && first.has(QueuedSegment::kLost) && !first.has(QueuedSegment::kRetransmitted)) ++lost_waiting_;
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

std::optional<SendQueue::Index> SendQueue::last_not_sacked() const {
  for (Index i = next_; i != head_; --i)
    if (!at(i - 1).has(QueuedSegment::kSacked)) return i - 1;
  return std::nullopt;
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

SendQueue::Acknowledged SendQueue::acknowledge(Seq ack) {
  Acknowledged result;
  Returns returns;
  while (head_ != next_) {
    QueuedSegment& s = slot(head_);
    if (ack.before(s.end())) break;
    pipe_bytes_ -= pipe_share(s);
    if (s.has(QueuedSegment::kSacked))
      --sacked_count_;
    else if (s.has(QueuedSegment::kLost) && !s.has(QueuedSegment::kRetransmitted))
      --lost_waiting_;
    if (!s.has(QueuedSegment::kSentTwice)) {
      result.sent_at = s.sent_at;
      // What was SACKed arrived long ago, so its time says nothing about this ACK.
      result.sampled = !s.has(QueuedSegment::kSacked);
    } else {
      result.sampled = false;
    }
    newest_delivered_ = std::max(newest_delivered_, s.sent_at);
    result.octets += s.length;
    result.fin = s.has(QueuedSegment::kFin);
    returns.add(std::exchange(s.buffer, nullptr));
    ++head_;
  }
  una_ = ack;
  if (head_ != next_) {  // perhaps a part of the next
    QueuedSegment& s = slot(head_);
    const std::uint32_t part = ack.since(s.sequence);
    if (part > 0 && part < s.length) {
      if (pipe_share(s) != 0) pipe_bytes_ -= part;
      s.sequence = ack;
      s.head += part;
      s.length -= part;
      s.flags &= static_cast<std::uint8_t>(~QueuedSegment::kWholeBuffer);
      result.octets += part;
    }
  }
  acknowledged_ += result.octets;
  for (Index* mark : {&judged_, &lost_from_, &highest_sacked_})
    if (static_cast<std::int32_t>(*mark - head_) < 0) *mark = head_;
  return result;
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

bool SendQueue::sack(Seq first, Seq end) {
  if (!first.before(end) || first.before(una_) || end.after(nxt_)) return false;
  bool news = false;
  for (Index i = find(first); i != next_; ++i) {
    QueuedSegment& s = slot(i);
    if (s.end().after(end)) break;
    if (s.has(QueuedSegment::kSacked) || s.sequence.before(first)) continue;
    if (s.has(QueuedSegment::kLost) && !s.has(QueuedSegment::kRetransmitted)) --lost_waiting_;
    set_flags(s, QueuedSegment::kSacked, QueuedSegment::kLost | QueuedSegment::kRetransmitted);
    newest_delivered_ = std::max(newest_delivered_, s.sent_at);
    if (sacked_count_++ == 0 || static_cast<std::int32_t>(i + 1 - highest_sacked_) > 0) highest_sacked_ = i + 1;
    news = true;
  }
  return news;
}

bool SendQueue::mark_lost(Index i) {
  QueuedSegment& s = slot(i);
  if (s.has(QueuedSegment::kSacked)) return false;
  if (s.has(QueuedSegment::kLost) && !s.has(QueuedSegment::kRetransmitted)) return false;
  set_flags(s, QueuedSegment::kLost, QueuedSegment::kRetransmitted);
  if (lost_waiting_++ == 0 || static_cast<std::int32_t>(i - lost_from_) < 0) lost_from_ = i;
  return true;
}

bool SendQueue::detect_losses(std::uint32_t mss_bytes, Duration reordering) {
  if (sacked_count_ == 0 || judged_ - head_ >= highest_sacked_ - head_) return false;
  // From the highest down, until enough above us has arrived.
  std::uint32_t segments = 0, octets = 0;
  Index i = highest_sacked_;
  for (; i != judged_; --i) {
    if (segments >= kDuplicateThreshold || octets > (kDuplicateThreshold - 1) * mss_bytes) break;
    const QueuedSegment& s = at(i - 1);
    if (!s.has(QueuedSegment::kSacked)) continue;
    ++segments;
    octets += s.length;
  }
  bool found = false;
  for (; judged_ != i; ++judged_)
    if (!at(judged_).has(QueuedSegment::kLost)) found |= mark_lost(judged_);
  for (; judged_ != highest_sacked_; ++judged_) {
    const QueuedSegment& s = at(judged_);
    if (s.has(QueuedSegment::kSacked | QueuedSegment::kLost)) continue;
    if (!(s.sent_at + reordering < newest_delivered_)) break;
    found |= mark_lost(judged_);
  }
  return found;
}

bool SendQueue::detect_lost_retransmissions(Duration reordering) {
  bool found = false;
  // Retransmissions leave in order, so the first that is not overdue ends the search.
  for (Index i = head_; i != judged_; ++i) {
    const QueuedSegment& s = at(i);
    if (s.has(QueuedSegment::kSacked) || !s.has(QueuedSegment::kRetransmitted)) continue;
    if (!(s.sent_at + reordering < newest_delivered_)) break;
    found |= mark_lost(i);
  }
  return found;
}

bool SendQueue::mark_oldest_lost() {
  if (head_ == next_) return false;
  if (judged_ == head_) judged_ = head_ + 1;
  return mark_lost(head_);
}

void SendQueue::mark_all_lost() {
  if (head_ == next_) return;
  if (at(head_).has(QueuedSegment::kSacked)) {
    for (Index i = head_; i != next_; ++i) set_flags(slot(i), 0, QueuedSegment::kSacked);
    sacked_count_ = 0;
  }
  for (Index i = head_; i != next_; ++i) mark_lost(i);
  judged_ = next_;
}

void SendQueue::mark_lost_from(Seq first) {
  for (Index i = next_; i != head_ && !at(i - 1).sequence.before(first); --i) mark_lost(i - 1);
}

void SendQueue::mark_lost_longer_than(std::uint32_t octets) {
  for (Index i = head_; i != next_; ++i)
    if (at(i).length > octets) mark_lost(i);
}

}  // namespace rnic::tcp
