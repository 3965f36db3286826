// The stream that comes: TCP's octets -> FPDUs -> the responder. Octets are consumed and acknowledged when what they
// brought is delivered, and not before (RFC 5041 s5.3, W-DDP-13): until then acknowledgements are held back.
//
// Where the peer inserts markers, FPDUs beyond a gap are read too, and their payloads placed before their turn
// (RFC 5044 A.3; W-TCP-09).
//
// Owned by one queue pair; there as long as its stream is.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "mpa/framer.hpp"
#include "qp/counters.hpp"
#include "qp/gate.hpp"
#include "qp/read_ahead.hpp"
#include "qp/scratch.hpp"
#include "rdmap/early_placer.hpp"
#include "rdmap/requester.hpp"
#include "rdmap/responder.hpp"
#include "tcp/connection.hpp"

namespace rnic::qp {

class StreamIn {
 public:
  struct Parts {
    tcp::Connection& connection;
    rdmap::Responder& responder;
    rdmap::Requester& requester;  // told that the gate is open
    rdmap::EarlyPlacer* early;    // with markers toward us, else null
    Gate& gate;
    QpCounters& counters;
    Scratch& scratch;
  };
  // The next octet that the connection gives is the first FPDU's.
  StreamIn(const Parts& parts, mpa::Crc crc, mpa::Markers markers);

  // ---- turns ----
  // Takes what is readable, as far as it goes. Says whether it did anything.
  bool parse(Instant now, rdmap::Verdict& verdict);
  // What is beyond a gap, with markers.
  void place_early();
  // Gives back what is done with. Octets placed late are neither consumed nor acknowledged before.
  void consume();

  // ---- the way down ----
  // In Closing. Writes of no octets bring nothing to anybody, and are no data: an initiator's nudge may
  // cross our FIN. False: what came is something else.
  bool take_empty_writes();
  // All that has come is ignored, but taken, or the peer's FIN could not come. False: there was nothing.
  bool discard();
  void let_acknowledgements_go();
  // What its moves are made from.
  void keep(tpt::Kept& kept) const;

  // ---- what is known ----
  // Exactly so many octets of the peer's stream have come, and all of them have taken effect.
  bool has_taken(std::uint64_t octets) const {
    return connection_.received() == octets && connection_.consumed() == octets;
  }
  // parse() stopped for too many open deliveries, or with a ULPDU that has to wait.
  bool paused() const { return paused_; }
  bool waits() const { return has_ulpdu_; }
  // Octets have come that are no whole FPDU, or were not looked at.
  bool unframed() const { return connection_.received() != base_ + parsed_; }

 private:
  mpa::Cursor cursor();
  void take_store_back() {
    if (responder_.take_stored_done()) [[unlikely]]
      framer_.release_store();
  }
  bool take_fpdu(Instant now, rdmap::Verdict& verdict);
  void look_for_terminate(mpa::Cursor at, rdmap::Verdict& verdict);
  bool place_run_early(std::span<const Bytes> run, std::size_t first, std::uint64_t position);
  bool place_fpdu_early(std::uint64_t position, std::uint32_t octets, std::size_t first);
  static ddp::Ulpdu ulpdu_of(const mpa::SpanList& list) { return {{list.spans.data(), list.count}, list.size}; }

  tcp::Connection& connection_;
  rdmap::Responder& responder_;
  rdmap::Requester& requester_;
  rdmap::EarlyPlacer* const early_;
  Gate& gate_;
  QpCounters& counters_;
  Scratch& scratch_;
  mpa::Crc crc_;
  mpa::Framer framer_;
  std::uint64_t base_;  // the connection's position of the first FPDU octet
  mpa::SpanList ulpdu_;
  std::uint64_t fpdu_position_ = 0;  // of the FPDU in ulpdu_
  std::uint64_t parsed_ = 0;         // octets of the FPDU stream that were framed
  bool has_ulpdu_ = false;           // framed, and has to wait
  bool ulpdu_stored_ = false;
  bool holds_acknowledgements_ = false;
  bool looked_ahead_ = false;         // for a Terminate behind what waits
  bool paused_ = false;               // too many deliveries are open
  std::unique_ptr<ReadAhead> ahead_;  // with markers toward us
};

}  // namespace rnic::qp
