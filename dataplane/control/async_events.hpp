// What an event of the data plane is to an application: verbs.md s8.3, the column of ibverbs.
#pragma once

#include <cstdint>
#include <optional>

#include "base/face.hpp"
#include "qp/work.hpp"

namespace rnic::control {

// Numbers of enum ibv_event_type.
enum class IbvEvent : std::uint32_t {
  cq_error = 0,
  qp_fatal = 1,
  qp_request_error = 2,
  qp_access_error = 3,
  device_fatal = 8,
  port_active = 9,
  port_error = 10,
  srq_error = 14,
  srq_limit_reached = 15,
  qp_last_wqe_reached = 16,
  gid_change = 18,
};

// Access violations are QP_ACCESS_ERR, malformed requests QP_REQ_ERR, loss of the stream and what is
// internal QP_FATAL. A clean end is told by the connection manager alone (V-AE-01). On a RoCE face the end of a peer
// is told by nothing but the requests that it costs, as InfiniBand has it: QP_FATAL is an error of the
// queue pair's own there, and UCX reports it as one.
constexpr std::optional<IbvEvent> ibv_event(qp::Event event, Face face) {
  using enum qp::Event;
  switch (event) {
    case close_complete:
    case peer_gone:
    case receive_limit:  // the direct verbs' (Context::direct_events())
      return std::nullopt;
    case terminate_received:
    case connection_reset:
    case connection_lost:
    case bad_close:
    case bad_llp_close:
      if (face == Face::roce) return std::nullopt;
      return IbvEvent::qp_fatal;
    case segment_size:
    case crc_error:
    case bad_fpdu:
    case cq_sq_error:
    case cq_rq_error:
    case srq_error:
    case local_catastrophic:
      return IbvEvent::qp_fatal;
    case ddp_version:
    case rdmap_version:
    case unexpected_opcode:
    case queue_number:
    case read_request_form:
    case not_last:
    case rq_msn_range:
    case rq_msn_gap:
    case irrq_too_many:
    case irrq_gap:
    case irrq_range:
      return IbvEvent::qp_request_error;
    case reads_disabled:
    case writes_disabled:
    case invalid_stag:
    case base_bounds:
    case access_rights:
    case invalid_pd:
    case wrap:
    case irrq_invalid_stag:
    case irrq_base_bounds:
    case irrq_access:
    case irrq_invalid_pd:
    case irrq_wrap:
      return IbvEvent::qp_access_error;
    case last_wqe_reached:
      return IbvEvent::qp_last_wqe_reached;
  }
  return std::nullopt;
}

}  // namespace rnic::control
