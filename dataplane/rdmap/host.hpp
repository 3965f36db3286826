// The face of the application's side, as both directions of a stream need it.
#pragma once

#include <cstdint>

#include "rdmap/work.hpp"

namespace rnic::rdmap {

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
  receive_limit = 40,     // V-LIM-06
  last_wqe_reached = 60,  // V-LIM-08
  // terminate_received, of a peer that has merely gone: it said 0x0000, and nothing was under way in
  // either direction but receives, or what was waits for the end of its time (W-ACK-12).
  peer_gone = 61,
};

// What the two directions ask of, and tell, the application's side. All calls on its queue pair's worker.
class Host {
 public:
  // The next work request of the send queue; false: none posted.
  virtual bool take_send(WorkRequest& out) = 0;
  // The next receive (own queue or shared); false: none posted.
  virtual bool take_receive(ReceiveRequest& out) = 0;
  // False: the completion queue is full; the QP goes to Error (V-CQ-06, V-AE-33).
  virtual bool complete(const Completion& completion) = 0;
  // complete() of a receive would be true now.
  virtual bool has_room_for_receive() const = 0;
  virtual void raise(Event event) = 0;

 protected:
  ~Host() = default;
};

}  // namespace rnic::rdmap
