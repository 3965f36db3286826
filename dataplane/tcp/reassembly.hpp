// Octets that came before those in front of them, and what SACK says of them (RFC 2018, RFC 2883).
//
// The first copy of an octet wins, whatever comes later (W-TCP-11), and nothing is let go before
// it is in order: what was SACKed stays (W-TCP-26).
//
// Small pieces are copied together, in the order in which they came. Memory follows what is there.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ring_slots.hpp"
#include "tcp/keeper.hpp"
#include "tcp/seq.hpp"
#include "wire/tcp.hpp"

namespace rnic::tcp {

class Reassembly {
 public:
  Reassembly(std::uint32_t segments_max, Keeper& keeper);
  ~Reassembly() { clear(); }
  Reassembly(const Reassembly&) = delete;
  Reassembly& operator=(const Reassembly&) = delete;

  // No more pieces than these from now on; those that are there stay.
  void limit(std::uint32_t segments_max) { most_ = segments_max; }
  std::uint32_t first_limit() const { return first_limit_; }  // as it was made with

  bool empty() const { return count_ == 0; }
  std::uint32_t count() const { return count_; }
  // Where the first piece begins; nothing sensible when empty().
  Seq first() const { return pieces_[begin_].first; }

  enum class Added : std::uint8_t { kept, duplicate, no_room };
  // Keeps what is new of the octets, which begin at `first`, after all that is in order.
  Added add(Seq first, Bytes octets, const BufferRef& buffer);

  // The piece that begins at `next`, or nothing. It stays until pop().
  struct Piece {
    Seq first{};
    std::uint32_t length : 31 = 0;
    std::uint32_t copied : 1 = 0;
    const std::byte* data = nullptr;
    BufferRef buffer;
  };
  Piece* front(Seq next);
  void pop();
  // The pieces in order of the stream; none of them overlaps another.
  const Piece& piece(std::uint32_t index) const { return pieces_[begin_ + index]; }

  // Blocks for the next SACK option, the one that changed last first; returns how many. Where more have changed than it
  // has room for, as of a burst with many gaps, those come first that changed first: as if it were sent then.
  unsigned tell_blocks(wire::SackBlock* out, unsigned most);
  // Some that changed were in none yet.
  bool has_untold() const { return untold_ > 0; }

  void clear();
  void give_back_slots();

 private:
  struct Run {  // without a gap
    Seq first{};
    Seq end{};
  };
  bool insert(Seq first, Bytes octets, const BufferRef& buffer);
  std::uint32_t place_of(Seq first) const;
  Piece& make_room(std::uint32_t place);
  void join_runs(Seq first, Seq end);
  void remember(Seq first, Seq end);

  static constexpr unsigned kRecentMax = 32;  // what a burst may change
  static constexpr unsigned kGapsMax = 8;     // of one segment

  std::uint32_t first_limit_;
  std::uint32_t most_;
  RingSlots<Piece> pieces_;  // a ring, ordered
  std::vector<Run> runs_;    // ordered; never more than pieces
  std::uint32_t begin_ = 0;
  std::uint32_t count_ = 0;
  Seq recent_[kRecentMax];  // an octet of each of the runs that changed last
  unsigned recent_count_ = 0;
  unsigned untold_ = 0;  // of these, the first
  Keeper& keeper_;
};

}  // namespace rnic::tcp
