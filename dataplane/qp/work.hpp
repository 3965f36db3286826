// What a queue pair has to do with its application: RDMAP's values (rdmap/work.hpp), and what is told of the
// queue pair's states.
#pragma once

#include <cstdint>

#include "rdmap/host.hpp"
#include "rdmap/work.hpp"

namespace rnic::qp {

using rdmap::kSgesMax;
using Opcode = rdmap::Opcode;
using Status = rdmap::Status;
using Sge = rdmap::Sge;
using WorkRequest = rdmap::WorkRequest;
using ReceiveRequest = rdmap::ReceiveRequest;
using Completion = rdmap::Completion;
using Event = rdmap::Event;

// verbs.md s2. The values are abi/rnic_control.h's enum rnic_qp_state.
enum class State : std::uint8_t { idle = 0, rts = 1, closing = 2, terminate = 3, error = 4 };
const char* name(State state);

// Why a queue pair is in another state: who began it.
enum class Cause : std::uint8_t {
  connected,
  consumer,         // Modify, or the connection manager in the consumer's name
  fault,            // what our Terminate says
  peer_closed,      // its FIN
  peer_terminated,  // its Terminate
  peer_reset,       // its RST
  lost,             // TCP gave up, or the stream ended inside of a message
  busy_close,       // there was work of the send queue, or octets came, in Closing
  finished,         // the stream is closed in both directions
  unreached,        // nobody came to connect with
};

// A change of state, once for each. Flushed: work completed as such since the queue pair left RTS.
struct Change {
  State from{}, to{};
  Cause cause{};
  std::uint32_t flushed_sends = 0, flushed_receives = 0;
};

// What a queue pair asks of, and tells, the application's side. All calls on its worker.
class Host : public rdmap::Host {
 public:
  virtual void state_changed(const Change& change) = 0;

 protected:
  ~Host() = default;
};

}  // namespace rnic::qp
