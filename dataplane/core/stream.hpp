// A stream: one TCP connection of a device from its first SYN to its last acknowledgement, with
// the MPA startup that begins it and the queue pair that runs on it in between.
//
//            connect()                                SYN to a listener
//                |                                           |
//             opening ---------- TCP handshake ----------- opening
//                |                                           |
//           negotiating: Request, Reply               negotiating: Request
//                |                                           |
//                |                                        waiting: accept() or reject()
//                |                                           |
//            starting: RTR is due                        starting: first FPDU is due
//                |                                           |
//                +---------------- running -----------------+
//                                     |
//                                   orphan: no queue pair and no consumer any more; TCP brings to
//                                           an end what it holds, within a time
// Where the device's streams are plain, `plain` stands for all from negotiating to running.
//
// Owned by one worker.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "base/list.hpp"
#include "core/device.hpp"
#include "host/flow.hpp"
#include "host/listeners.hpp"
#include "host/timers.hpp"
#include "mpa/startup.hpp"
#include "wire/checksum.hpp"
#include "wire/ethernet.hpp"
#include "wire/ipv6.hpp"
#include "wire/vlan.hpp"

namespace rnic::core {

struct ActiveTag;
struct ListenerTag;
struct SilentTag;

struct Stream : ListLink<ActiveTag>, ListLink<ListenerTag>, ListLink<SilentTag>, host::Timers::Node {
  enum class Phase : std::uint8_t { opening, negotiating, waiting, starting, running, plain, orphan };
  using Startup = std::variant<mpa::Initiator, mpa::Responder>;

  Stream(const tcp::Options& options, const host::Flow& with) : flow(with), tcp(options) {}

  std::uint32_t index = 0;
  std::uint32_t generation = 0;
  bool initiator = false;
  Phase phase = Phase::opening;
  host::Flow flow;
  std::uint64_t hash = 0;
  tcp::Connection tcp;
  std::unique_ptr<Startup> startup;  // from the handshake until the QP is attached
  qp::QueuePair* qp = nullptr;
  std::uint32_t listener = host::Listeners::kNone;  // that counts us, as pending or as not admitted
  bool pending = false;                       // has asked, and has a place in its backlog
  bool in_line = false;                       // has asked, and waits for one
  std::uint64_t cookie = 0;
  ConnectOptions wishes;  // of connect()
  bool without_markers = false;  // the peer has rejected a Request that asked for them
  Instant phase_deadline = kNever;

  bool told_request = false;  // the consumer of a listener knows of us
  bool told_established = false;
  bool told_end = false;  // failed, rejected or disconnected: nothing more is told
  bool lost = false;      // while waiting: the peer is gone, accept() comes too late
  bool again_soon = false;  // plain: its user wants another turn
  bool fin_waits = false;   // orphan: our FIN follows when all before it is acknowledged
  std::uint32_t established_ird = 0, established_ord = 0;
  PrivateData reply_data;  // for the established event

  // What a segment of ours starts with, and how long it holds.
  std::array<std::byte, wire::EthernetHeader::kSize + wire::VlanTag::kSize + wire::Ipv6Header::kSize> front{};
  std::uint32_t front_size = 0;
  std::uint32_t ip_offset = 0;  // in it
  std::uint8_t traffic_class = 0;  // of it: DSCP
  wire::PartialSum ip_sum;      // of the IPv4 header with lengths left 0
  wire::PartialSum pseudo_sum;  // of the pseudo-header without the length
  bool local_peer = false;      // an address of the same device
  bool hop_in_doubt = false;
  bool hop_failed = false;  // opening: the next hop did not answer, once
  bool hop_doubted = false;  // the peer has not answered for so long that the next hop was asked
  std::uint64_t hop_generation = 0;
  Instant hop_until{};
  std::uint64_t hop_progress = 0;  // octets that had arrived, either way, when the hop was told
  std::uint32_t path_mtu_bytes = 0;

  // For TIME-WAIT and for judging ICMP: both initial sequence numbers; our last timestamp sent.
  tcp::Seq initial_send, initial_receive;
  std::optional<std::uint32_t> timestamp_sent;

  std::uint64_t unread_bytes = 0;  // in order, and not consumed, when it last had its input taken
  // While the port's buffers are nearly gone: what was acknowledged and consumed, and since when it is less than what
  // it holds.
  std::uint64_t progress = 0;
  Instant stuck_since = kNever;

  std::int64_t deficit_bytes = 0;     // of this stream's share of the transmit turns
  bool more_segments = false;         // send() stopped at a bound
  std::uint64_t discarded_bytes = 0;  // orphan: octets that nobody wants any more

  StreamId id() const { return {std::uint64_t{generation} << 32 | (index + 1)}; }
  tcp::Seq send_next(bool fin) const {
    return initial_send + (1 + static_cast<std::uint32_t>(tcp.appended()) + (fin ? 1 : 0));
  }
  tcp::Seq receive_next(bool fin) const {
    return initial_receive + (1 + static_cast<std::uint32_t>(tcp.received()) + (fin ? 1 : 0));
  }
  bool attached() const { return qp != nullptr && (phase == Phase::starting || phase == Phase::running); }
};

const char* name(Stream::Phase phase);

}  // namespace rnic::core
