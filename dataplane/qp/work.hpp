// Work requests and completions as values: what a queue pair sees of an application. Shared memory
// is turned into these, with distrust, by shm/.
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "tpt/table.hpp"

namespace rnic::qp {

inline constexpr std::uint32_t kSgesMax = 16;

// The values are abi/rnic_shm.h's enum rnic_opcode.
enum class Opcode : std::uint8_t {
  send = 0,
  send_invalidate = 1,
  write = 2,
  read = 3,
  read_invalidate = 4,
  bind = 5,
  local_invalidate = 6,
  fetch_add = 7,
  compare_swap = 8,
  write_immediate = 9,
  fast_register = 10,
  receive = 15,
  receive_write_immediate = 16,
};

// The values are abi/rnic_shm.h's enum rnic_status.
enum class Status : std::uint8_t {
  success = 0,
  flushed = 1,
  invalid_wqe = 2,
  local_catastrophic = 3,
  remote_termination = 4,
  invalid_stag = 5,
  base_bounds = 6,
  access = 7,
  invalid_pd = 8,
  wrap = 9,
  invalidate_pd_access = 10,
  zero_read_resources = 11,
  not_privileged = 12,
  stag_not_invalid = 13,
  invalid_region = 22,
  invalid_window = 23,
  invalid_length = 24,
  message_too_long = 25,
};

struct Sge {
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  Stag lkey;
};

struct WorkRequest {
  Opcode opcode = Opcode::send;
  bool signaled = false;
  bool fence = false;
  bool solicited = false;
  bool malformed = false;  // completes with Status::invalid_wqe
  bool has_data = false;   // `data` is the payload; with SGEs (gathered at post) these are still checked
  std::uint8_t sge_count = 0;
  std::uint32_t slot = 0;  // to be given back in the completion
  Bytes data;              // in shared memory: valid until this WR completes; its content may change
  std::uint64_t remote_to = 0;
  Stag remote_stag;
  Stag invalidate;              // Send with Invalidate; bind: the region's STag
  std::uint32_t immediate = 0;  // network order
  std::uint64_t argument = 0;   // add, compare; bind: length
  std::uint64_t swap = 0;
  tpt::Rights rights = tpt::Rights::none;  // bind
  std::array<Sge, kSgesMax> sges;
};

struct ReceiveRequest {
  std::uint32_t slot = 0;
  bool shared = false;
  bool malformed = false;
  std::uint8_t sge_count = 0;
  std::array<Sge, kSgesMax> sges;
};

struct Completion {
  Opcode opcode = Opcode::send;
  Status status = Status::success;
  bool of_send_queue = true;
  bool shared = false;  // `slot` is one of a shared receive queue
  bool solicited = false;
  bool invalidated = false;  // `word`: the STag
  bool immediate = false;    // `word`: the value, network order
  std::uint32_t slot = 0;
  std::uint32_t length = 0;
  std::uint32_t word = 0;
  std::uint32_t detail = 0;  // remote_termination: layer << 12 | type << 8 | code
  Bytes parked{};            // a short message's octets, to be scattered by the provider; else empty
};

// verbs.md s8.3 (V-AE-01..42); the numbers are the rows'.
enum class Event : std::uint8_t {
  close_complete = 1,
  terminate_received = 2,
  connection_reset = 3,
  connection_lost = 4,
  segment_size = 5,
  crc_error = 6,
  bad_fpdu = 7,
  ddp_version = 8,
  rdmap_version = 9,
  unexpected_opcode = 10,
  queue_number = 11,
  reads_disabled = 12,
  writes_disabled = 13,
  read_request_form = 14,
  not_last = 15,
  invalid_stag = 16,
  base_bounds = 17,
  access_rights = 18,
  invalid_pd = 19,
  wrap = 20,
  bad_close = 21,
  bad_llp_close = 22,
  rq_msn_range = 23,
  rq_msn_gap = 24,
  irrq_too_many = 25,
  irrq_gap = 26,
  irrq_range = 27,
  irrq_invalid_stag = 28,
  irrq_base_bounds = 29,
  irrq_access = 30,
  irrq_invalid_pd = 31,
  irrq_wrap = 32,
  cq_sq_error = 33,
  cq_rq_error = 34,
  srq_error = 35,
  local_catastrophic = 36,
  last_wqe_reached = 60,  // V-LIM-08
  // terminate_received, of a peer that has merely gone: it said 0x0000, and nothing was under way in
  // either direction but receives.
  peer_gone = 61,
};

enum class State : std::uint8_t;

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
};

// A change of state, once for each. Flushed: work completed as such since the queue pair left RTS.
struct Change {
  State from{}, to{};
  Cause cause{};
  std::uint32_t flushed_sends = 0, flushed_receives = 0;
};

// What a queue pair asks of, and tells, the application's side. All calls on its worker.
class Host {
 public:
  // The next work request of the send queue; false: none posted.
  virtual bool take_send(WorkRequest& out) = 0;
  // The next receive (own queue or shared); false: none posted.
  virtual bool take_receive(ReceiveRequest& out) = 0;
  // False: the completion queue is full; the QP goes to Error (V-CQ-06, V-AE-33).
  virtual bool complete(const Completion& completion) = 0;
  virtual void raise(Event event) = 0;
  virtual void state_changed(const Change& change) = 0;

 protected:
  ~Host() = default;
};

}  // namespace rnic::qp
