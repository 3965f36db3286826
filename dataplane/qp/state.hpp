// The five states of a queue pair and what may change them: verbs.md s2.1 as two tables. The rules
// that have no event (posting, processing, inbound segments) follow from the state alone.
//
// Lay it beside the matrix before changing a cell.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "qp/work.hpp"

namespace rnic::qp {

inline constexpr std::size_t kStates = 5;

// What Modify QP does. `connect` is QueuePair::attach: it needs a stream.
enum class ModifyStep : std::uint8_t {
  refuse,
  attributes,      // the same state: attributes only
  connect,         // with an LLP stream, else refused (V-CONN-01)
  close_stream,    // FIN; no event for the transition (V-RTS-05)
  send_terminate,  // 0x0000 (V-RTS-08)
  reset_stream,    // RST, no Terminate (V-RTS-11)
  flush,           // nothing on the wire (V-IDLE-05)
  rest,            // -> Idle if all is flushed (V-ERRST-08)
};

// Row: the state we are in. Column: the state asked for.
inline constexpr auto kModify = [] {
  using enum ModifyStep;
  return std::array<std::array<ModifyStep, kStates>, kStates>{{
      // idle        rts         closing       terminate       error
      {{attributes, connect, refuse, refuse, flush}},                      // idle
      {{refuse, attributes, close_stream, send_terminate, reset_stream}},  // rts
      {{refuse, refuse, refuse, refuse, refuse}},                          // closing
      {{refuse, refuse, refuse, refuse, refuse}},                          // terminate
      {{rest, refuse, refuse, refuse, refuse}},                            // error
  }};
}();

constexpr ModifyStep modify_step(State from, State to) {
  return kModify[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
}

static_assert(modify_step(State::idle, State::idle) == ModifyStep::attributes);          // V-IDLE-04
static_assert(modify_step(State::idle, State::closing) == ModifyStep::refuse);           // V-IDLE-03
static_assert(modify_step(State::idle, State::terminate) == ModifyStep::refuse);         // V-IDLE-03
static_assert(modify_step(State::idle, State::error) == ModifyStep::flush);              // V-IDLE-05
static_assert(modify_step(State::rts, State::idle) == ModifyStep::refuse);               // V-RTS-03
static_assert(modify_step(State::rts, State::rts) == ModifyStep::attributes);            // V-RTS-04
static_assert(modify_step(State::rts, State::closing) == ModifyStep::close_stream);      // V-RTS-05
static_assert(modify_step(State::rts, State::terminate) == ModifyStep::send_terminate);  // V-RTS-08
static_assert(modify_step(State::rts, State::error) == ModifyStep::reset_stream);        // V-RTS-11
static_assert(modify_step(State::error, State::idle) == ModifyStep::rest);               // V-ERRST-08
static_assert([] {  // V-CLS-01, V-TERM-04, V-ERRST-02
  for (std::size_t to = 0; to < kStates; ++to) {
    if (kModify[2][to] != ModifyStep::refuse || kModify[3][to] != ModifyStep::refuse) return false;
    if (to != 0 && kModify[4][to] != ModifyStep::refuse) return false;
  }
  return true;
}());

// What happens to a stream or on it.
enum class StreamEvent : std::uint8_t {
  terminate_received,
  closed_quiet,    // FIN, SQ and IRRQ empty
  closed_busy,     // FIN, SQ or IRRQ not empty
  reset,           // RST
  lost,            // timeout, retries; FIN inside an FPDU
  fault,           // an inbound or local error that calls for a Terminate
  late_work,       // a work request on the SQ
  segment,         // stream octets
  close_finished,  // both FINs are through
  timed_out,       // the bound on Closing and Terminate
};
inline constexpr std::size_t kStreamEvents = 10;

enum class StreamStep : std::uint8_t {
  none,
  proceed,  // the ordinary course of RTS, or part of the close
  ignore,
  stop_silently,     // -> Terminate, V-AE-02, nothing is sent back
  close,             // -> Closing
  terminate,         // -> Terminate, with a message
  bad_llp_close,     // -> Terminate with 0x0207, V-AE-22
  connection_reset,  // -> Error, V-AE-03
  connection_lost,   // LLP Reset -> Error, V-AE-04
  bad_close,         // LLP Reset -> Error, V-AE-21
  failed_terminate,  // LLP Reset -> Error; V-AE-21 unless an event told of it (V-TERM-08, -09)
  rest,              // -> Idle, V-AE-01
  error,             // -> Error
};

// Row: the event. Column: the state. Idle and Error have no stream.
inline constexpr auto kStreamEvent = [] {
  using enum StreamStep;
  return std::array<std::array<StreamStep, kStates>, kStreamEvents>{{
      // idle  rts               closing          terminate         error
      {{none, stop_silently, bad_close, ignore, none}},                     // terminate_received
      {{none, close, proceed, proceed, none}},                              // closed_quiet
      {{none, bad_llp_close, bad_close, proceed, none}},                    // closed_busy
      {{none, connection_reset, connection_lost, failed_terminate, none}},  // reset
      {{none, connection_lost, connection_lost, failed_terminate, none}},   // lost
      {{none, terminate, connection_lost, ignore, none}},                   // fault
      {{none, proceed, bad_close, ignore, ignore}},                         // late_work
      {{none, proceed, bad_close, ignore, none}},                           // segment
      {{none, none, rest, error, none}},                                    // close_finished
      {{none, none, connection_lost, failed_terminate, none}},              // timed_out
  }};
}();

constexpr StreamStep stream_step(State state, StreamEvent event) {
  return kStreamEvent[static_cast<std::size_t>(event)][static_cast<std::size_t>(state)];
}

static_assert(stream_step(State::rts, StreamEvent::terminate_received) == StreamStep::stop_silently);  // V-RTS-10
static_assert(stream_step(State::closing, StreamEvent::terminate_received) == StreamStep::bad_close);  // V-CLS-09
static_assert(stream_step(State::rts, StreamEvent::closed_quiet) == StreamStep::close);                // V-RTS-07
static_assert(stream_step(State::rts, StreamEvent::closed_busy) == StreamStep::bad_llp_close);         // V-EH-03
static_assert(stream_step(State::rts, StreamEvent::reset) == StreamStep::connection_reset);            // V-EH-02
static_assert(stream_step(State::closing, StreamEvent::reset) == StreamStep::connection_lost);         // V-CLS-06
static_assert(stream_step(State::closing, StreamEvent::segment) == StreamStep::bad_close);             // V-EH-04
static_assert(stream_step(State::closing, StreamEvent::late_work) == StreamStep::bad_close);           // V-CLS-05
static_assert(stream_step(State::closing, StreamEvent::close_finished) == StreamStep::rest);           // V-CLS-07
static_assert(stream_step(State::terminate, StreamEvent::close_finished) == StreamStep::error);        // V-TERM-10
static_assert(stream_step(State::terminate, StreamEvent::fault) == StreamStep::ignore);                // V-TERM-07

}  // namespace rnic::qp
