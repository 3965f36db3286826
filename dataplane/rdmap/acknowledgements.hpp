// Acknowledged streams (docs/wire.md s8.1), of RoCE faces: both directions' counts of requests, what is owed to the
// peer, and what it owes to us and for how long. A request is a message that asks the peer for something: all but
// responses, acknowledgements and a Terminate. They have numbers, from 1, in the order in which their last segments
// stand in the stream.
//
// Pure. Owned by one queue pair, anew for each stream; without it the stream is as the RFCs have it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "base/time.hpp"
#include "rdmap/common.hpp"
#include "wire/acknowledge.hpp"

namespace rnic::rdmap {

// InfiniBand's codes of how long one waits before a Send that found no receive is tried again.
constexpr Duration rnr_time(std::uint8_t code) {
  // Of 10 us.
  constexpr std::array<std::uint32_t, 32> kTimes{65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
                                                 48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
                                                 2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return microseconds(10) * kTimes[code & 31];
}

// How long requests may stay unanswered while nothing at all of them is done; kForever: for ever.
inline constexpr Duration kForever{INT64_MAX};
inline constexpr Duration kRetryTimeMin = milliseconds(500);  // the stream below has its own retransmissions
constexpr Duration retry_time(const Patience& patience) {
  if (patience.timeout == 0) return kForever;
  const std::int64_t once = std::int64_t{4096} << (patience.timeout & 31);
  return std::max(kRetryTimeMin, Duration{once * (patience.retry_count + 1)});
}
// And a Send without a receive, where the peer's timer has that code.
constexpr Duration receive_time(const Patience& patience, std::uint8_t timer) {
  constexpr std::uint8_t kNoEnd = 7;
  if (patience.rnr_retry >= kNoEnd) return kForever;
  return rnr_time(timer) * (patience.rnr_retry + 1);
}

class Acknowledgements {
 public:
  explicit Acknowledgements(const Patience& patience) : patience_(patience) {}

  // a is behind b; they are less than 2^31 apart.
  static constexpr bool is_after(std::uint32_t a, std::uint32_t b) { return static_cast<std::int32_t>(a - b) > 0; }

  // ---- our requests -----------------------------------------------------------------------------------
  // The last segment of one has its place: its number.
  std::uint32_t sent_one() { return ++sent_; }
  std::uint32_t sent() const { return sent_; }
  std::uint32_t acknowledged() const { return acknowledged_; }
  bool has_acknowledged(std::uint32_t number) const { return !is_after(number, acknowledged_); }
  // The peer's next one of ours waits for a receive: nothing is begun meanwhile.
  bool peer_waits() const { return peer_waits_; }

  // False: it speaks of requests that it was not sent, or takes back what it said.
  bool hear(const wire::AcknowledgeHeader& said, Instant now) {
    if (said.performed - acknowledged_ > sent_ - acknowledged_) return false;
    if (said.waits && (!peer_waits_ || said.performed != acknowledged_)) waits_.start(now);
    if (!said.waits) waits_.stop();
    peer_waits_ = said.waits;
    timer_ = said.timer;
    acknowledged_ = said.performed;
    return true;
  }
  // Of one that may be half sent.
  bool may_refuse(std::uint32_t number) const { return number != 0 && !is_after(number, sent_ + 1); }

  // What shows that the peer does something for us.
  struct Progress {
    std::uint64_t stream = 0;   // octets of ours that it has acknowledged below
    std::uint64_t answers = 0;  // of Reads
    constexpr bool operator==(const Progress&) const = default;
  };
  // What it sends us. An acknowledgement of its waits for the end of its message under way, and with the stream for us.
  struct Inbound {
    std::uint64_t octets = 0;  // that came
    bool mid_message = false;
    bool stands = false;      // what has come has to wait for our own application, or for memory
    std::uint64_t heard = 0;  // how often, be it without octets
  };
  // As often as something may have changed. `awaits`: anything of the peer; `sending`: the stream's last octets, up to
  // `end`, are a request's.
  void look(bool awaits, bool sending, std::uint64_t end, Progress progress, const Inbound& inbound, Instant now) {
    if (sending || sent_ != sent_then_) requests_end_ = end;
    sent_then_ = sent_;
    // That our acknowledgements arrive says nothing of our requests.
    progress.stream = std::min(progress.stream, requests_end_);
    if (!awaits || peer_waits_)
      quiet_.stop();
    else if (quiet_.since == kNever || progress != progress_ || acknowledged_ != acknowledged_then_)
      quiet_.start(now);
    progress_ = progress;
    acknowledged_then_ = acknowledged_;
    look_at_inbound(inbound, now);
    set_probe(awaits && (peer_waits_ || inbound.stands), inbound.heard, now);
  }
  Instant retry_deadline() const { return deadline(quiet_, retry_time(patience_)); }
  Instant receive_deadline() const { return deadline(waits_, receive_time(patience_, timer_)); }
  Instant next_deadline() const { return std::min({retry_deadline(), receive_deadline(), probe_at_}); }
  // That has been told.
  void give_up_waiting() { waits_.stop(); }
  // While the peer waits for a receive, or its stream stands because of us, it owes us nothing that would be late.
  // Its TCP is asked meanwhile whether it is there at all: when it was silent for the retry time, and from then on each
  // eighth of that, until so many have no answer.
  static constexpr unsigned kProbes = 8;
  enum class Liveness : std::uint8_t { assumed, to_probe, none };
  Liveness judge_liveness(Instant now) {
    if (probe_at_ > now) return Liveness::assumed;
    if (probes_ == kProbes) return Liveness::none;
    ++probes_;
    probe_at_ = now + Duration{retry_time(patience_).ns / kProbes};
    return Liveness::to_probe;
  }

  // ---- the peer's -------------------------------------------------------------------------------------
  // Of the request whose segments come now.
  std::uint32_t next_number() const { return accepted_ + 1; }
  // Its last segment was accepted; or set aside, for want of a receive.
  void accept() { ++accepted_; }
  void set_aside() {
    if (!first_aside_) first_aside_ = accepted_;
  }
  // It is delivered, and so is all before it but what was set aside. `aside`: itself was. Else it may have begun so,
  // and has come to its end now.
  void deliver(std::uint32_t number, bool aside) {
    delivered_ = number;
    if (!aside && first_aside_ == number) first_aside_.reset();
  }
  // What was set aside is delivered too, up to this one; `next`: the one that is not, if it is known.
  void deliver_aside(std::uint32_t number, std::optional<std::uint32_t> next, bool more) {
    first_aside_ = next ? next : more ? std::optional(number + 1) : std::nullopt;
  }
  // In order: all up to this one have been performed.
  std::uint32_t performed() const {
    if (first_aside_ && !is_after(*first_aside_, delivered_)) return *first_aside_ - 1;
    return delivered_;
  }
  // `waits`: for a receive.
  bool due(bool waits) const { return performed() != told_ || waits != told_waits_; }
  // What the peer is to be told now.
  wire::AcknowledgeHeader say(bool waits) {
    told_ = performed();
    told_waits_ = waits;
    return {.performed = told_, .waits = waits, .timer = waits ? patience_.min_rnr_timer : std::uint8_t{0}};
  }
  // The first that cannot be performed: the queue pair's end.
  void refuse(std::uint32_t number, std::uint16_t code) {
    if (!refused_) refused_ = {.request = number, .code = code};
  }
  const std::optional<wire::NegativeAcknowledgeHeader>& refused() const { return refused_; }

 private:
  // How long something has lasted that is the peer's to end.
  struct Clock {
    Instant since = kNever;
    // When its time was over, one message of the peer's was under way: with that one it goes on, and with no other, or
    // who keeps the other direction busy would never be late.
    std::optional<std::uint32_t> excused;

    void start(Instant now) { *this = {.since = now, .excused = std::nullopt}; }
    void stop() { *this = {}; }
  };

  void set_probe(bool matters, std::uint64_t heard, Instant now) {
    if (!matters || retry_time(patience_) == kForever) {
      probe_at_ = kNever;
    } else if (probe_at_ == kNever || heard != heard_) {
      probe_at_ = now + retry_time(patience_);  // it has just been heard
      probes_ = 0;
    }
    heard_ = heard;
  }
  Instant deadline(const Clock& clock, Duration time) const {
    if (clock.since == kNever || time == kForever || stood_since_ != kNever) return kNever;
    return clock.since + (clock.excused ? std::max(time, kRetryTimeMin) : time);
  }
  void look_at_inbound(const Inbound& inbound, Instant now) {
    const bool grew = inbound.octets != octets_;
    octets_ = inbound.octets;
    if (grew) grew_at_ = now;
    // Time does not count while the stream stands still because of us.
    if (stood_since_ != kNever) {
      const Duration stood = now - stood_since_;
      for (Clock* const clock : {&quiet_, &waits_})
        if (clock->since != kNever) clock->since = std::min(clock->since + stood, now);
      grew_at_ = now;
    }
    stood_since_ = inbound.stands ? now : kNever;
    for (Clock* const clock : {&quiet_, &waits_}) {
      if (clock->since == kNever) continue;
      // Its last octets count too.
      if (clock->excused && grew && under_way_ == clock->excused) clock->since = now;
      const Duration time = clock == &quiet_ ? retry_time(patience_) : receive_time(patience_, timer_);
      const bool over = deadline(*clock, time) <= now;
      if (!over || clock->excused || !inbound.mid_message) continue;
      clock->excused = next_number();
      clock->since = std::max(clock->since, grew_at_);
    }
    under_way_ = inbound.mid_message ? std::optional(next_number()) : std::nullopt;
  }

  const Patience& patience_;
  std::uint32_t sent_ = 0, acknowledged_ = 0;
  bool peer_waits_ = false;
  std::uint8_t timer_ = 0;
  Clock waits_;  // for a receive
  Clock quiet_;  // without anything that is done for us
  Progress progress_{};
  std::uint32_t acknowledged_then_ = 0, sent_then_ = 0;
  std::uint64_t requests_end_ = 0;  // of the stream, behind the last of them
  std::uint64_t octets_ = 0;        // that came
  Instant grew_at_ = kNever, stood_since_ = kNever;
  Instant probe_at_ = kNever;  // the next probe, or the end of the last one's time
  unsigned probes_ = 0;        // that nothing has answered
  std::uint64_t heard_ = 0;
  std::optional<std::uint32_t> under_way_;  // the peer's message, a part of which has come

  std::uint32_t accepted_ = 0, delivered_ = 0;
  std::optional<std::uint32_t> first_aside_;  // set aside, and not performed
  std::uint32_t told_ = 0;
  bool told_waits_ = false;
  std::optional<wire::NegativeAcknowledgeHeader> refused_;
};

}  // namespace rnic::rdmap
