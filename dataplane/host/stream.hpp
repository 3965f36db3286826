// A stream: one TCP connection of a host from its first SYN to its last acknowledgement, as far as TCP/IP goes. Who
// uses the host's streams derives its own from this, and the host has it made by StreamUser::make_stream().
//
//   opening   a call of ours, until its handshake is over; one of a listener's, until its user has seen it
//   open      its user's
//   orphan    nobody's any more; TCP brings to an end what it holds, within a time
//
// Owned by one worker.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/list.hpp"
#include "host/flow.hpp"
#include "host/link.hpp"
#include "host/listeners.hpp"
#include "host/timers.hpp"
#include "tcp/connection.hpp"
#include "wire/checksum.hpp"
#include "wire/ipv6.hpp"

namespace rnic::host {

// Place, shard and generation: a stale one names nothing, nor does one of another shard.
struct StreamId {
  static constexpr unsigned kShardShift = 24;

  std::uint64_t value = 0;
  constexpr unsigned shard() const { return static_cast<unsigned>(value >> kShardShift) & 0xFF; }
  constexpr std::uint32_t place() const { return (static_cast<std::uint32_t>(value) & 0xFFFFFF) - 1; }
  constexpr auto operator<=>(const StreamId&) const = default;
};

struct ActiveTag;
struct ListenerTag;
struct SilentTag;

// What every segment of a stream starts with, but for lengths and checksums, and how long it holds.
struct Front {
  std::array<std::byte, wire::kLinkHeaderMax + wire::Ipv6Header::kSize> octets{};
  std::uint32_t size = 0;
  std::uint32_t ip_offset = 0;
  std::uint8_t traffic_class = 0;  // DSCP
  wire::PartialSum ip_sum;         // of the IPv4 header with lengths left 0
  wire::PartialSum pseudo_sum;     // of the pseudo-header without the length
  // The next hop. `generation` 0: it is made anew.
  std::uint64_t generation = 0;
  Instant until{};
  std::uint64_t progress = 0;  // octets that had arrived, either way, when the hop was told
  bool in_doubt = false;
};

struct Stream : ListLink<ActiveTag>, ListLink<ListenerTag>, ListLink<SilentTag>, Timers::Node {
  enum class Stage : std::uint8_t { opening, open, orphan };

  Stream(const tcp::Options& options, const Flow& with) : flow(with), tcp(options) {}
  virtual ~Stream() = default;

  std::uint32_t index = 0;
  std::uint32_t shard = 0;
  std::uint32_t generation = 0;
  bool initiator = false;
  Stage stage = Stage::opening;
  bool serving = false;  // its user serves it; if it came to us, it is counted (Streams::begin_serving())
  Flow flow;
  std::uint64_t hash = 0;
  tcp::Connection tcp;
  std::uint64_t cookie = 0;           // its user's; at first its listener's
  Instant deadline = kNever;          // its user's; an orphan is given up then
  bool fin_waits = false;             // orphan: our FIN follows when all before it is acknowledged
  std::uint64_t discarded_bytes = 0;  // orphan: octets that nobody wants any more

  std::uint32_t listener = Listeners::kNone;  // that counts us, as pending or as not admitted
  bool pending = false;                       // has asked, and has a place in its backlog
  bool in_line = false;                       // has asked, and waits for one

  Front front;
  bool local_peer = false;   // an address of the same host
  bool hop_failed = false;   // opening: the next hop did not answer, once
  bool hop_doubted = false;  // the peer has not answered for so long that the next hop was asked
  std::uint32_t path_mtu_bytes = 0;
  bool more_segments = false;  // send_segments() stopped at a bound

  // For TIME-WAIT: the peer's initial sequence number; our last timestamp sent.
  tcp::Seq initial_receive;
  std::optional<std::uint32_t> timestamp_sent;

  std::uint64_t input_end = 0;  // received(), when it last had its input taken
  // While the port's buffers are nearly gone: what was acknowledged and consumed, and since when it is less than what
  // it holds.
  std::uint64_t progress = 0;
  Instant stuck_since = kNever;

  StreamId id() const { return {std::uint64_t{generation} << 32 | shard << StreamId::kShardShift | (index + 1)}; }
  // What its user had left unread before what comes now.
  std::uint64_t unread_bytes() const { return input_end > tcp.consumed() ? input_end - tcp.consumed() : 0; }
  tcp::Seq send_next(bool fin) const {
    return tcp.initial() + (1 + static_cast<std::uint32_t>(tcp.appended()) + (fin ? 1 : 0));
  }
  tcp::Seq receive_next(bool fin) const {
    return initial_receive + (1 + static_cast<std::uint32_t>(tcp.received()) + (fin ? 1 : 0));
  }
};

}  // namespace rnic::host
