// The segments of our stream that the peer has not acknowledged, sent and unsent, with the SACK
// scoreboard (RFC 6675 s3) kept on them.
//
// A segment is a buffer, or a part of one when it had to be cut (W-TCP-27, a smaller EMSS). Its
// octets are never touched (W-TCP-19). A ring whose memory follows what is in it (base/ring_slots.hpp).
//
// Several segments of equal length, the last perhaps shorter, can be queued as one, a *run*, in one buffer: they leave
// as one frame, which the port cuts apart. What becomes of some of them and not of others cuts the run, between
// segments: so its segments count as what they are, and a slot is kept for each.
#pragma once

#include <cstdint>
#include <optional>

#include "base/buffer.hpp"
#include "base/ring_slots.hpp"
#include "base/time.hpp"
#include "tcp/delivered.hpp"
#include "tcp/rack.hpp"
#include "tcp/seq.hpp"

namespace rnic::tcp {

struct QueuedSegment {
  enum Flag : std::uint8_t {
    kSacked = 1,         // the peer has it
    kLost = 2,           // taken for lost
    kRetransmitted = 4,  // sent again since it was taken for lost
    kSentTwice = 8,      // no round-trip sample from it (Karn)
    kFin = 16,           // no octets: our FIN
    kWholeBuffer = 32,   // all octets of the buffer, never cut nor partly acknowledged
    kLarge = 64,         // in a large buffer
    kSlice = 128,        // and the slot before it holds another part of that
  };

  Buffer* buffer = nullptr;  // one counted reference
  Instant sent_at{};
  Seq sequence{};
  std::uint32_t head = 0;    // of the octets, in the buffer's storage
  std::uint32_t length = 0;  // octets
  std::uint8_t flags = 0;
  std::uint16_t unit_bytes = 0;  // of a run: octets of each segment but the last; 0: it is one segment

  // Of its first segment, which is all of it but for a run.
  std::uint32_t first_bytes() const { return unit_bytes != 0 ? unit_bytes : length; }
  std::uint32_t segments() const { return segments_in(length, unit_bytes); }
  bool has(std::uint8_t flag) const { return (flags & flag) != 0; }
  std::uint32_t sequence_length() const { return length + (has(kFin) ? 1 : 0); }
  Seq end() const { return sequence + sequence_length(); }
  Seq first_end() const { return unit_bytes != 0 ? sequence + unit_bytes : end(); }
  Bytes octets() const { return buffer == nullptr ? Bytes{} : Bytes{buffer->room + head, length}; }
};
static_assert(sizeof(QueuedSegment) == 32, "two fill a cache line");

inline constexpr std::uint32_t kRunSegmentsMax = 64;

class SendQueue {
 public:
  using Index = std::uint32_t;  // only grows; wraps at 2^32

  // `slots`: a power of two. Some are kept back so that a segment can be cut when the queue is
  // full.
  explicit SendQueue(std::uint32_t slots);
  ~SendQueue() { clear(); }
  SendQueue(const SendQueue&) = delete;
  SendQueue& operator=(const SendQueue&) = delete;

  void start(Seq first);  // the sequence number of the stream's first octet
  void clear();           // gives every buffer back
  void give_back_slots() {
    if (empty()) slots_.give_back();
  }

  // There may be so many slots from now on, if these are more.
  void allow(std::uint32_t slots);

  // ---- filling -----------------------------------------------------------------------------
  bool has_slot() const { return used() < usable_; }
  // `unit_bytes` not 0: a run of segments of so many octets.
  bool append(BufferRef payload, std::uint16_t unit_bytes = 0);
  // Whether there are slots enough that a run is a small part of them.
  bool takes_runs() const { return usable_ >= 4 * kRunSegmentsMax; }
  // The last before the FIN: may take a slot that is kept back.
  bool append_last(BufferRef payload);
  void append_fin();
  // The last appended is longer than a segment may be, to see whether it comes through (RFC 4821).
  void mark_probe();

  // ---- where we are ------------------------------------------------------------------------
  Seq una() const { return una_; }
  Seq nxt() const { return nxt_; }
  bool all_acknowledged() const { return una_ == nxt_; }
  bool empty() const { return head_ == tail_; }
  // Buffers held; a small one that was cut counts as two.
  BufferCount held() const { return {tail_ - head_ - large_slots_, large_count_}; }
  bool has_unsent() const { return next_ != tail_; }
  Index first_unsent() const { return next_; }
  Index oldest() const { return head_; }
  // No octets of ours come after it.
  bool is_last(Index i) const { return i + 1 == tail_ || (i + 2 == tail_ && at(i + 1).has(QueuedSegment::kFin)); }
  bool is_sent(Index i) const { return i - head_ < next_ - head_; }
  std::uint32_t sent_count() const { return next_ - head_; }
  std::uint32_t unsent_bytes() const { return unsent_bytes_; }
  std::uint64_t appended() const { return appended_; }
  std::uint64_t acknowledged() const { return acknowledged_; }
  // Octets sent at least once, ever (and the FIN).
  std::uint64_t sent() const { return acknowledged_ + nxt_.since(una_); }
  // The end of the highest that is known to be at the peer (RFC 8985's RACK.fack).
  Seq forward() const { return sacked_count_ == 0 ? una_ : at(highest_sacked_ - 1).end(); }
  std::uint32_t sacked_count() const { return sacked_count_; }  // segments
  // RFC 6675's pipe: octets that are thought to be in the network.
  std::uint32_t pipe_bytes() const { return pipe_bytes_; }
  const QueuedSegment& at(Index i) const { return slots_[i]; }

  // ---- sending -----------------------------------------------------------------------------
  // Makes two of one: the first with `octets`. False when there is no slot for the second; between segments of a run
  // there is one.
  bool cut(Index i, std::uint32_t octets);
  bool can_cut() const { return used() < most_ - 1; }  // the last slot is for a FIN
  void on_sent(Instant now);                           // the first unsent
  void on_retransmitted(Index i, Instant now);
  // The first that is lost and not yet sent again.
  std::optional<Index> first_lost() const {
    if (lost_waiting_ == 0) [[likely]]
      return std::nullopt;
    return find_lost();
  }
  // ---- what the peer says --------------------------------------------------------------------
  // All up to `ack` has arrived.
  void acknowledge(Seq ack, Delivered& delivered);
  // Octets [first, end) are at the peer; whether that is news.
  bool sack(Seq first, Seq end, Delivered& delivered);
  // Applies RACK to all that the peer does not have (RFC 8985 s6.2 step 5). `next`: when to ask
  // again if nothing arrives. The RFC would have that be when the last of those that wait is
  // lost; it is when the first is, which costs no look at the others.
  struct Losses {
    bool found = false;
    Instant next = kNever;
  };
  Losses detect_losses(const Rack::Horizon& horizon, Instant now);
  bool mark_oldest_lost();
  // After a timeout: the oldest, and what was sent `patience` ago or earlier (RFC 8985 s6.3). When
  // the peer has dropped what it had SACKed (the oldest segment is SACKed, yet not acknowledged),
  // nothing that it said counts (RFC 2018 s8).
  void mark_lost_after_timeout(Duration patience, Instant now);
  // What was taken for lost is on its way after all.
  void forgive();
  void mark_lost_from(Seq first);
  void mark_lost_longer_than(std::uint32_t octets);
  bool any_sacked() const { return sacked_count_ != 0; }

  // ---- the probe -----------------------------------------------------------------------------
  // Its loss is told here, and not as a loss: it says nothing about congestion (RFC 4821 s7.6.2).
  enum class Probe : std::uint8_t { none, out, arrived, lost };
  Probe probe() const { return probe_state_; }
  bool is_probe(Index i) const { return probe_state_ == Probe::out && at(i).sequence == probe_; }
  void end_probe() { probe_state_ = Probe::none; }

 private:
  void push(BufferRef payload, std::uint16_t unit_bytes);
  std::uint32_t used() const { return tail_ - head_ + in_runs_; }
  std::uint32_t divide(QueuedSegment& first, QueuedSegment& second, std::uint32_t octets);
  void cut_oldest(std::uint32_t octets);
  void trim(QueuedSegment& s, std::uint32_t octets);
  void cut_apart(Index i, std::uint32_t unit, Seq first, Seq end);
  void let_go_of_large();
  QueuedSegment& slot(Index i) { return slots_[i]; }
  QueuedSegment& new_slot();
  Index find_lost() const;
  Index find(Seq sequence) const;  // the first sent segment that ends after it
  static std::uint32_t pipe_share(const QueuedSegment& s);
  void set_flags(QueuedSegment& s, std::uint8_t set, std::uint8_t cleared);
  bool mark_lost(Index i);
  void forget(const QueuedSegment& s, Delivered& delivered);

  RingSlots<QueuedSegment> slots_;
  std::uint32_t most_;  // slots, and so many of them for what is appended
  std::uint32_t usable_;
  Index head_ = 0;             // oldest not acknowledged
  Index next_ = 0;             // first unsent
  Index tail_ = 0;             // behind the last
  std::uint32_t in_runs_ = 0;  // segments that are the second or a later one of a run
  std::uint32_t large_count_ = 0, large_slots_ = 0;
  Seq una_{};
  Seq nxt_{};
  Seq end_{};  // behind the last octet appended
  std::uint32_t unsent_bytes_ = 0;
  std::uint32_t pipe_bytes_ = 0;
  std::uint32_t sacked_count_ = 0;
  Index judged_ = 0;                // those before it are SACKed or taken for lost
  Index highest_sacked_ = 0;        // behind the last SACKed; meaningful when sacked_count_ is not 0
  mutable Index lost_from_ = 0;     // no segment before it waits to be sent again
  std::uint32_t lost_waiting_ = 0;  // lost and not sent again
  std::uint32_t resent_count_ = 0;  // sent again and not SACKed
  Instant oldest_resent_at_{};      // none of them left before
  Probe probe_state_ = Probe::none;
  Seq probe_{};
  std::uint64_t appended_ = 0;
  std::uint64_t acknowledged_ = 0;
};

}  // namespace rnic::tcp
