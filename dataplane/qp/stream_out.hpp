// The stream that leaves: the requester's DDP segments -> FPDUs -> TCP segments -> the connection.
//
// FPDUs that fit share a TCP segment, across work requests of one turn (W-TCP-02, -13), and none lies in two
// (W-TCP-24). Where the port cuts them apart, segments of equal length that follow one another are filled as one, a run
// (tcp/send_queue.hpp). A TCP segment goes to the connection when every gather into it is done; then, and not before,
// its work requests complete (V-ORD-08). Between queue pairs of one worker the FPDUs of a segment that is filled, and
// not sealed, can reach the peer without TCP (local_path.hpp).
//
// Owned by one queue pair; there as long as its stream is. Bounded.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/buffer.hpp"
#include "base/ring_slots.hpp"
#include "mpa/packer.hpp"
#include "qp/counters.hpp"
#include "qp/gate.hpp"
#include "qp/local_path.hpp"
#include "rdmap/requester.hpp"
#include "rdmap/ring.hpp"
#include "tcp/connection.hpp"

namespace rnic::qp {

// Segments being filled or waiting for their gathers. Bounds what one turn has under way.
inline constexpr std::uint32_t kSegmentsMax = 256;
// What a message, or work without one, costs of a turn besides its octets: many that have none are work, too.
inline constexpr std::uint32_t kMessageCost = 256;
// FPDUs whose CRC waits for a gather.
inline constexpr std::uint32_t kUnsealedMax = 1024;

class StreamOut {
 public:
  struct Parts {
    tcp::Connection& connection;
    rdmap::Requester& requester;
    Gate& gate;
    rdmap::Common& common;
    QpCounters& counters;
    BufferPool& pool;
  };
  StreamOut(const Parts& parts, mpa::Crc crc, mpa::Markers markers);

  // ---- turns; each says whether it did something ----
  // Begins messages and fills segments with them while there is some of `budget_bytes`, of which it takes what they
  // cost: what was the last may cost more than there was. Of what goes from memory to memory `beside_per_cost` octets
  // cost one.
  bool fill(Instant now, std::int64_t& budget_bytes, std::uint32_t beside_per_cost, rdmap::Verdict& verdict);
  // Seals what is gathered and hands it to the connection, or without the stream to the peer, in order. Where octets
  // could not be gathered it ends, and says for whom: Requester::gather_failed().
  bool push(Instant now, std::optional<std::uint32_t>& failed_work);
  void on_moved(std::uint32_t token, bool ok);
  // Where messages may go without the stream; null: nowhere, from now on.
  void use(LocalPath* local) {
    local_ = local;
    waits_for_peer_ = false;
  }

  // ---- the way down ----
  // Nothing more is added to the segment that is being filled.
  void close_segment() { open_.segment = nullptr; }
  // Memory that the next message takes anew.
  void give_back_slots() {
    if (!empty()) return;
    segments_.give_back();
    unsealed_.give_back();
  }
  // What is not with TCP is not sent.
  void drop();
  // A message of one FPDU, whose payload is here.
  struct Last {
    ddp::OutboundMessage message;
    Bytes payload;
  };
  static constexpr std::size_t kLastMax = 3;  // in a buffer
  // A buffer for them; none: there is none now.
  BufferRef buffer_for_last();
  // In that one, behind all segments.
  void append_last(std::span<const Last> messages, BufferRef buffer);
  // The same at once, and nothing behind it.
  void append_last_at_once(std::span<const Last> messages, BufferRef buffer);
  // What its moves are made into.
  void keep(tpt::Kept& kept) const;

  // ---- what is known ----
  std::uint32_t filling() const { return static_cast<std::uint32_t>(next_ - first_); }
  bool empty() const { return first_ == next_; }
  // Octets of our stream, with what is not with TCP yet, and with those of FPDUs that went without it.
  std::uint64_t end() const { return connection_.appended() + filling_bytes_ + beside_bytes_; }
  // Those of FPDUs that went without it, and so were acknowledged at once.
  std::uint64_t beside_bytes() const { return beside_bytes_; }
  bool spoken() const { return next_ != 0; }
  bool starved() const { return starved_; }
  // Something is filled, and not known to wait for what comes with a turn of its own: a slot in TCP, or the peer.
  bool can_push() const { return !empty() && !waits_for_slot_ && !waits_for_peer_; }
  // The peer has not let go of a buffer, and wakes us when it does, or parts.
  bool waits_for_peer() const { return waits_for_peer_; }
  void peer_let_go() { waits_for_peer_ = false; }
  // Nothing can be added now, for want of room in TCP.
  bool waits_for_room() const {
    // The EMSS may have shrunk since.
    return connection_.room_bytes() < std::min(needs_room_, connection_.emss());
  }

 private:
  // Whole FPDUs.
  struct Segment {
    BufferRef buffer;
    std::uint32_t gathers = 0;   // to come
    std::uint32_t unsealed = 0;  // FPDUs in `unsealed_` that are its
    std::uint32_t taken = 0;     // octets of the first of these, which went without the stream
    bool failed = false;
    std::uint32_t failed_work = 0;
    std::uint16_t unit_bytes = 0;  // a run of TCP segments of so many octets, but for the last; 0: one
  };
  struct UnsealedFpdu {
    std::uint32_t offset = 0;  // in the segment as it was filled
    std::uint32_t size = 0;
    std::uint32_t more = 0;  // payload of its message behind it
    bool may_go_locally = false;
    bool ends_message = false;
  };

  bool begin_message(rdmap::Verdict& verdict);
  bool add_fpdu(std::int64_t& budget_bytes, Instant now, rdmap::Verdict& verdict);
  bool go_locally(std::int64_t& budget_bytes, Instant now, rdmap::Verdict& verdict);
  // `look_again`: it waits for what is on the stream, and is looked at in the next turn. `until_let_go`: peer_let_go().
  enum class HandedOver : std::uint8_t { all, look_again, until_let_go, not_all };
  HandedOver hand_over(Segment& segment, Instant now);
  bool append(Segment& segment);
  std::uint32_t room_of_buffer() const;
  Segment* room_for(std::uint32_t octets, std::uint32_t emss, std::uint32_t run_bytes);
  bool goes_on(std::uint32_t octets);
  void gather(Segment& segment);
  bool gather_and_seal(Segment& segment, MutableBytes fpdu, std::uint32_t payload_bytes);
  bool gather_summed(Segment& segment, MutableBytes fpdu);
  tpt::MoveTicket ticket(std::uint32_t work) const;
  bool take_moved(tpt::Moved moved, Segment& segment, std::uint32_t work);
  void write_fpdu(const ddp::OutboundMessage& message, Bytes payload, Buffer& into);
  Segment& add_segment(BufferRef buffer);
  Segment& at(std::uint64_t number) { return segments_[static_cast<std::uint32_t>(number)]; }
  const Segment& at(std::uint64_t number) const { return segments_[static_cast<std::uint32_t>(number)]; }

  tcp::Connection& connection_;
  rdmap::Requester& requester_;
  Gate& gate_;
  rdmap::Common& common_;
  QpCounters& counters_;
  BufferPool& pool_;
  LocalPath* local_ = nullptr;
  mpa::Markers markers_;
  mpa::Packer packer_;
  RingSlots<Segment> segments_;
  std::uint64_t first_ = 0, next_ = 0;  // numbers
  // The last, within a turn: FPDUs may be added.
  struct Open {
    Segment* segment = nullptr;
    std::uint32_t room_bytes = 0;  // that it, of a run its last segment, may still take
    std::uint32_t run_bytes = 0;   // what it may grow to as a run; 0: it is none
    std::uint32_t last_at = 0;     // of a run: where its last segment begins
  };
  Open open_;
  std::uint32_t run_bytes_ = 0;  // of a run begun in this turn; 0: none is
  std::uint32_t filling_bytes_ = 0;
  std::uint32_t beside_per_cost_ = 1;
  std::uint64_t beside_bytes_ = 0;
  std::uint32_t room_ = 0;  // in this turn
  rdmap::Ring<UnsealedFpdu> unsealed_;
  mpa::PieceList pieces_;
  bool waits_for_slot_ = false;  // TCP had none for a segment that is filled
  bool waits_for_peer_ = false;
  bool starved_ = false;          // no buffer: to be tried again
  std::uint32_t needs_room_ = 0;  // octets of the FPDU that found none
};

}  // namespace rnic::qp
