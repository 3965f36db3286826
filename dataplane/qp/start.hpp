// What the MPA startup negotiated, for the start of full operation.
#pragma once

#include <cstdint>

#include "mpa/framer.hpp"

namespace rnic::qp {

struct Start {
  bool initiator = false;
  mpa::Crc crc = mpa::Crc::on;
  bool checks_crc = true;  // of what comes, where it is on
  bool markers_out = false;
  mpa::Markers markers_in = mpa::Markers::none;
  enum class Rtr : std::uint8_t { none, write, read, send } rtr = Rtr::none;
  bool peer_to_peer = false;  // responder: a first FPDU is due in time (W-MPA-90)
  std::uint32_t ird = 0, ord = 0;
  // A peer that goes with nothing under way is no error: the queue pair is in Idle then, and what is posted stays
  // (InfiniBand's RC notices nothing).
  bool outlives_peer = false;
  // Requests are complete when the peer says that it has performed them (docs/wire.md s8.1): of RoCE faces. So it
  // outlives its peer, and what is under way stays, too, until its time is over.
  bool acknowledged = false;
};

}  // namespace rnic::qp
