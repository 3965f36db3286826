// A stream: one TCP connection of a device from its first SYN to its last acknowledgement, with
// the MPA startup that begins it and the queue pair that runs on it in between.
//
//            connect()                                SYN to a listener
//                |                                           |
//             opening ---------- TCP handshake ----------- opening
//                |                                           |
//           negotiating: Request, Reply               negotiating: Request
//                |                                           |
//                |                                        waiting: accept(), welcome() or reject()
//                |                                           |
//            starting: RTR is due                        starting: first FPDU is due
//                |                                           |
//                +---------------- running -----------------+
//                |                    |                    |
//                |                    |                  held: of greet() and welcome(), with no queue pair ever;
//                |                    |                    |   the caller confirms once, and there is no more to say
//                |                    |                    |
//                +----------------- orphan ----------------+
//
//      open() or a SYN to a listener with a streaming cookie  ->  streaming: its application's octets, until
//      begin_iwarp()  ->  running
//
//                                   orphan: no queue pair and no consumer any more; TCP brings to
//                                           an end what it holds, within a time
//
// Owned by one worker.
#pragma once

#include <cstdint>
#include <memory>

#include "core/connection.hpp"
#include "core/local_side.hpp"
#include "core/startup.hpp"
#include "host/stream.hpp"
#include "qp/queue_pair.hpp"

namespace rnic::core {

struct Stream : host::Stream, qp::BoundTo {
  // Opening and orphan are TCP/IP's to know (host/stream.hpp); what is between them is ours.
  enum class Phase : std::uint8_t { opening, negotiating, waiting, starting, running, held, streaming, orphan };

  using host::Stream::Stream;

  std::unique_ptr<Startup> startup;  // from the handshake until the QP is attached, and while it is held
  qp::QueuePair* qp = nullptr;
  std::unique_ptr<StreamSide> side;  // of a queue pair that is joined to its peer
  ConnectOptions wishes;             // of connect()
  bool without_markers = false;      // the peer has rejected a Request that asked for them

  bool told_request = false;  // the consumer of a listener knows of us
  bool told_established = false;
  bool told_end = false;  // failed, rejected or disconnected: nothing more is told
  bool lost = false;      // while waiting: the peer is gone, accept() comes too late
  std::uint32_t established_ird = 0, established_ord = 0;
  PrivateData reply_data;          // for the established event
  bool confirmed = false;          // held
  std::uint32_t heard_octets = 0;  // held: of the confirmation
  bool input_awaited = false;      // streaming: hear() found nothing,
  bool room_awaited = false;       //   say() no room

  std::int64_t deficit_bytes = 0;  // of this stream's share of the transmit turns

  // Octets of both directions when it last had any, and when that was; kNever: its queues' memory is given back.
  std::uint64_t last_progress = 0;
  Instant quiet_since = kNever;

  Phase phase() const {
    if (stage == Stage::open) [[likely]]
      return phase_;
    return stage == Stage::opening ? Phase::opening : Phase::orphan;
  }
  void enter(Phase phase) {
    stage = Stage::open;
    phase_ = phase;
  }
  // The queue pair has the connection: starting, running.
  bool attached() const { return qp != nullptr && serving; }
  // Buffers that it holds of what it sends.
  BufferCount held_to_send() const {
    const std::uint32_t filling = attached() ? qp->filling() : 0;
    return tcp.queued() + BufferCount{filling, filling};  // of which class they are is not looked at
  }

 private:
  Phase phase_ = Phase::negotiating;
};

const char* name(Stream::Phase phase);
// What it means to a consumer.
StreamFailure failure_of(tcp::Ended ended);

}  // namespace rnic::core
