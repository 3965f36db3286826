// RDMA Reads and atomic operations that are not over, of both directions (RFC 5040 s6.1; verbs.md s11): those that
// we asked for and wait for (ORD), and those that the peer asked for and we owe (IRD). Atomics stand among
// Reads: one queue, one count (RFC 7306 s5.2, W-EXT-06). Both queues are served strictly in order
// (W-RDMAP-10, -13, -45).
//
// Owned by one queue pair, anew for each stream.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "rdmap/ring.hpp"
#include "rdmap/terminate.hpp"
#include "tpt/table.hpp"
#include "wire/atomic.hpp"
#include "wire/rdmap.hpp"

namespace rnic::rdmap {

// A Read, or an atomic operation, that we asked for.
struct OutboundRead {
  tpt::ReadSink sink;         // of an atomic: `consumers`
  std::uint64_t next_to = 0;  // where the Response goes on
  std::uint32_t left = 0;
  std::uint32_t msn = 0;    // of its Request
  std::uint32_t work = 0;   // its work request, for whoever keeps these
  bool of_consumer = true;  // else an RTR, which no one waits for (W-MPA-87)
  bool invalidate = false;  // the consumer's STag, when all is there (V-RD-06)
  bool last = true;         // of its work request's
  bool atomic = false;      // its MSN is the Request Identifier too
};

// A Read, or an atomic operation, that the peer asked for.
struct InboundRead {
  wire::ReadRequestHeader request;
  std::optional<wire::AtomicRequestHeader> atomic;  // then `request` says nothing
  Culprit culprit;                                  // its header, should its source be refused (V-STOP-10)
  std::uint32_t number = 0;                         // of acknowledged streams: as a request of the peer's
};

class Reads {
 public:
  // Without a stream: neither has room.
  Reads() = default;
  Reads(std::uint32_t ird, std::uint32_t ord, const tpt::ReadStags& stags) : stags_(stags) {
    asked_.reserve(std::max(ord, 1u));
    owed_.reserve(std::max(ird, 1u));
  }

  // ---- ours, from the Request until the Response is delivered ----
  std::uint32_t outstanding() const { return asked_.count(); }
  void ask(const OutboundRead& read) {
    asked_.push(read);
    ++due_;
  }
  // Those whose Response has not come in full.
  std::uint32_t due() const { return due_; }
  // The nth of them, 0 the oldest.
  OutboundRead& due_at(std::uint32_t n) { return asked_[asked_.next() - due_ + n]; }
  // All of the oldest's Response has come.
  void came_in_full() {
    RNIC_ASSERT(due_ != 0);
    --due_;
  }
  // The oldest of all: its Response is to be delivered; and it was.
  const OutboundRead& oldest() { return asked_.front(); }
  void delivered() { asked_.pop(); }
  // Another value as soon as anything of a Response has come.
  std::uint64_t progress() {
    const std::uint64_t come = asked_.next() - due_;
    return come << 32 | (due_ != 0 ? ~due_at(0).left : 0u);
  }
  template <typename F>
  void for_each_outstanding(F&& f) {
    for (std::uint32_t i = asked_.first(); i != asked_.next(); ++i)
      if (!f(asked_[i])) return;
  }
  void give_up_ours() {
    asked_.clear();
    due_ = 0;
  }
  tpt::ReadStags& stags() { return stags_; }
  void give_back_slots() {
    asked_.give_back();
    owed_.give_back();
  }

  // ---- the peer's, from the Request until the Response is generated (V-IRD-10) ----
  std::uint32_t owed() const { return owed_.count(); }
  InboundRead& owe() { return owed_.push({}); }
  // A Request is delivered, and so is all before it: it may be served (V-ORD-05).
  void request_delivered() { ++ready_; }
  bool ready() const { return ready_ != 0; }
  InboundRead& first_owed() { return owed_.front(); }
  void served() {
    owed_.pop();
    --ready_;
  }
  void give_up_theirs() {
    owed_.clear();
    ready_ = 0;
  }

 private:
  Ring<OutboundRead> asked_;
  std::uint32_t due_ = 0;
  tpt::ReadStags stags_;
  Ring<InboundRead> owed_;
  std::uint32_t ready_ = 0;
};

}  // namespace rnic::rdmap
