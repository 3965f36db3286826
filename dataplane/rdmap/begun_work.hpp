// Work requests that have been begun and not completed, in post order: so they complete, whatever is done first
// (V-ORD-02), successes only if asked for (V-WR-15), errors and flushes always (V-WR-14, V-ERRST-03); at most one
// status of a queue pair is neither Success nor Flushed (V-ERRST-04).
//
// Owned by one queue pair, anew for each stream. Bounded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "rdmap/common.hpp"
#include "rdmap/ring.hpp"

namespace rnic::rdmap {

// Work requests begun and not completed, at most.
inline constexpr std::uint32_t kWorkMax = 4096;

class Acknowledgements;

class BegunWork {
 public:
  // `acknowledgements`: null, or what the peer has acknowledged.
  BegunWork(Common& common, const Acknowledgements* acknowledgements = nullptr)
      : common_(common), acknowledgements_(acknowledgements) {}
  // Without it none can be begun.
  void begin_stream() { ring_.reserve(std::clamp(common_.settings.send_depth, 1u, kWorkMax)); }

  void give_back_slots() { ring_.give_back(); }

  bool empty() const { return ring_.empty(); }
  bool full() const { return ring_.full(); }
  // Gives its number, by which it is known from here on.
  std::uint32_t begin(const WorkRequest& request) {
    const std::uint32_t index = ring_.next();
    ring_.push({.opcode = request.opcode,
                .signaled = request.signaled,
                .slot = request.slot,
                .brought = octets_brought(request)});
    return index;
  }

  // ---- until when it is not complete ----
  // Its last segment is in that one of the carrier's, which is to be on its way: its payload is then copied out
  // (V-ORD-08).
  void until_carried(std::uint32_t index, std::uint64_t carrier) {
    ring_[index].until = Work::Until::carried;
    ring_[index].carrier = carrier;
  }
  // And the peer has acknowledged it.
  void until_acknowledged(std::uint32_t index, std::uint64_t carrier) {
    ring_[index].until = Work::Until::acknowledged;
    ring_[index].carrier = carrier;
  }
  // The last of its messages has that number.
  void has_number(std::uint32_t index, std::uint32_t number) { ring_[index].number = number; }
  void until_read(std::uint32_t index) { ring_[index].until = Work::Until::read; }
  // Nothing that is on its way to memory, or from it, is any more (V-INV-10): of this queue pair, nor of another, whose
  // octets may wait for a page.
  void until_moved(std::uint32_t index) {
    ring_[index].until = common_.moves.any() ? Work::Until::moved : Work::Until::flushed;
    ring_[index].mark = common_.mover.mark();
  }
  void done(std::uint32_t index) { ring_[index].until = Work::Until::nothing; }
  // Carrier's segments below this number are filled and on their way, or dropped.
  void carried_up_to(std::uint64_t carrier) { carried_ = carrier; }

  // ---- what goes wrong ----
  void fail(std::uint32_t index, Status status) { ring_[index].status = status; }
  // The one whose number ends in these 15 bits.
  void fail_low(std::uint32_t low, Status status);
  // Of acknowledged streams: the first that the peer has a part in and that is not complete, of number `from` or later
  // where it is given. False: there is none. True also where one has failed before.
  bool fail_first(Status status, std::optional<std::uint32_t> from = {}, std::uint32_t detail = 0);
  // The oldest has, and is told with the flush.
  bool first_has_failed() { return !ring_.empty() && ring_.front().status != Status::success; }
  // The peer has refused it, unless its Response is there.
  void blame(std::uint32_t index, std::uint32_t detail);

  // ---- completions ----
  // From the head, as far as they are done; says whether any was.
  bool complete(Verdict& verdict);
  // The first of them is done but for what others have submitted to the mover in this turn.
  bool waits_for_flush() const {
    return !ring_.empty() && ring_.front().until == Work::Until::flushed && ring_.front().status == Status::success;
  }
  // All that are left, and a request that was not begun.
  void flush();
  void flush(const WorkRequest& request);

 private:
  struct Work {
    enum class Until : std::uint8_t {
      built,         // not yet: its segments are not all filled
      carried,       // `carrier` is on its way
      acknowledged,  // the same, and the peer has acknowledged `number`
      read,          // its Read or Atomic Response is delivered
      moved,
      flushed,  // what its application's queue pairs had submitted is done
      nothing,  // done
    } until = Until::built;
    Opcode opcode = Opcode::send;
    Status status = Status::success;
    bool signaled = false;
    std::uint32_t slot = 0;
    std::uint32_t brought = 0;  // octets that a Read or an Atomic brings; else 0
    std::uint32_t detail = 0;
    std::uint64_t carrier = 0;  // the number of its last segment's
    std::uint64_t mark = 0;     // the mover's, when it was begun
    std::uint32_t number = 0;   // of its last message, where these are acknowledged; 0: it is not sent yet
  };
  bool is_acknowledged(const Work& work) const;
  static std::uint32_t octets_brought(const WorkRequest& request);

  Common& common_;
  const Acknowledgements* const acknowledgements_;
  Ring<Work> ring_;
  std::uint64_t carried_ = 0;
};

}  // namespace rnic::rdmap
