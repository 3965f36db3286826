// Placement ahead of its turn (RFC 5041 s5.3; W-TCP-09): tagged payloads, as their headers say where they go: RDMA
// Writes, and Read Responses that answer a Read outstanding. The rest waits, and so does all that is not placement:
// every complaint (V-STOP-06), every delivery (W-TCP-10, W-DDP-13), and the last octets of a message, which nobody
// may see before the others (V-ORD-09).
//
// Owned by one queue pair, anew for each stream; only there with a carrier that finds ULPDUs beyond a gap.
#pragma once

#include <cstdint>
#include <optional>

#include "ddp/placer.hpp"
#include "rdmap/common.hpp"
#include "rdmap/early.hpp"
#include "rdmap/reads.hpp"
#include "rdmap/receiver.hpp"

namespace rnic::rdmap {

class EarlyPlacer {
 public:
  EarlyPlacer(Common& common, Reads& reads, Early& early, bool acknowledged = false)
      : common_(common), reads_(reads), early_(early), acknowledged_(acknowledged) {}

  // Where the payload of such a ULPDU may be placed now, all but a message's last octets; nothing if it is none that
  // may be. A failure: it will be refused in its turn.
  Result<std::optional<tpt::Access>, Fault> target(const ddp::Ulpdu& ulpdu);
  // There, and there is room in early(). Returns how many moves are under way.
  std::uint32_t place(const ddp::Ulpdu& ulpdu, const tpt::Access& to, std::uint64_t position);
  Early& early() { return early_; }

 private:
  const OutboundRead* read_answered(const Inbound& in);

  Common& common_;
  Reads& reads_;
  Early& early_;
  bool acknowledged_;
};

}  // namespace rnic::rdmap
