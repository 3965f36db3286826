// ULPDUs that were accepted, in stream order, until what each brought is placed and everything before it is delivered
// (RFC 5041 s5.3, W-DDP-13). What a delivery then does is the responder's.
//
// Owned by one queue pair, anew for each stream. Bounded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "ddp/placer.hpp"
#include "rdmap/common.hpp"
#include "rdmap/ring.hpp"

namespace rnic::rdmap {

// ULPDUs accepted whose placement, or that of one before, is not done.
inline constexpr std::uint32_t kDeliveriesMax = 1024;

struct Delivery {
  enum class Act : std::uint8_t { nothing, receive, read_response, read_request, terminate, fault };
  std::uint64_t end = 0;        // its carrier may let go of all up to here; 0: it was set aside
  std::uint64_t held_mark = 0;  // what it was held in may be released; 0: nothing
  std::uint32_t moves = 0;      // places to come
  Act act = Act::nothing;
  bool failed = false;  // the memory could not be reached
  bool stored = false;  // it lies in its carrier's store
  bool invalidates = false;
  bool solicited = false;
  bool shared = false;
  bool immediate = false;            // `word`: the value, network order
  bool with_data = false;            // of an immediate
  Status refused = Status::success;  // read_response: why the result of an atomic could not be placed
  std::uint32_t slot = 0;
  std::uint32_t length = 0;
  std::uint32_t word = 0;
  Stag invalidate;
  std::uint32_t msn = 0, offset = 0, ulpdu_size = 0;  // of the last segment, for a Terminate
  // Of acknowledged streams: the request that it is part of, 0: none; whether it is its last; whether it waits
  // elsewhere for a receive, and is not performed with this.
  std::uint32_t number = 0;
  bool ends = false;
  bool aside = false;
};

class Deliveries {
 public:
  explicit Deliveries(Common& common) : common_(common) {}
  // Without it none can be accepted.
  void begin_stream() { ring_.reserve(kDeliveriesMax); }
  void give_back_slots() { ring_.give_back(); }

  // ---- the one that is being accepted: not while full() ----
  Delivery& start() { return next() = Delivery{}; }
  Delivery& next() { return ring_.fresh(); }
  tpt::MoveTicket ticket() { return {&common_.owner, ring_.next() & (ring_.size() - 1)}; }
  void note_places(const ddp::Placement& placement) {
    Delivery& delivery = next();
    delivery.moves = placement.later;
    delivery.failed = placement.failed;
    common_.moves.places += placement.later;
  }
  // True: nothing is before it and all is placed: it is delivered, and is still next(). Else it has its turn; and so it
  // has if it `waits` for something else.
  bool accept(bool waits = false) {
    if (ring_.empty() && next().moves == 0 && !waits) {
      let_go(next());
      return true;
    }
    ring_.push_filled();
    return false;
  }

  // ---- in order ----
  bool open() const { return !ring_.empty(); }
  bool full() const { return ring_.full(); }
  bool deliverable() { return !ring_.empty() && ring_.front().moves == 0; }
  const Delivery& first() { return ring_.front(); }
  // The oldest, which is deliverable().
  Delivery take() {
    const Delivery delivery = ring_.front();
    ring_.pop();
    let_go(delivery);
    return delivery;
  }
  // None of them is delivered any more: each(const Delivery&).
  template <typename Each>
  void give_up(Each&& each) {
    for (; !ring_.empty(); ring_.pop()) each(std::as_const(ring_.front()));
  }
  void on_moved(std::uint32_t token, bool ok) {
    Delivery& delivery = ring_[token];
    RNIC_ASSERT(delivery.moves != 0);
    --delivery.moves;
    if (!ok) delivery.failed = true;
  }

  // ---- what the carrier has again ----
  std::uint64_t delivered_up_to() const { return delivered_up_to_; }
  bool take_stored_done() { return stored_done_ && std::exchange(stored_done_, false); }

 private:
  void let_go(const Delivery& delivery) {
    delivered_up_to_ = std::max(delivered_up_to_, delivery.end);
    if (delivery.stored) stored_done_ = true;
  }

  Common& common_;
  Ring<Delivery> ring_;
  std::uint64_t delivered_up_to_ = 0;
  bool stored_done_ = false;
};

}  // namespace rnic::rdmap
