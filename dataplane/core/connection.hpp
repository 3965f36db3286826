// What a device and its connection manager say to each other of streams: commands in, events out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "host/stream.hpp"
#include "host/stream_error.hpp"
#include "wire/address.hpp"
#include "wire/mark.hpp"

namespace rnic::core {

using host::StreamError;
using host::StreamId;

struct PrivateData {
  std::uint16_t length = 0;
  std::array<std::byte, 512> octets;
};
inline Bytes bytes_of(const PrivateData& data) {
  return Bytes(data.octets).first(data.length < data.octets.size() ? data.length : data.octets.size());
}

// The upper two bits of the cookies of streams in streaming mode, and of listeners whose callers begin so: an
// application that has a handshake of its own speaks on them, and they are iWARP's when it says so (V-CONN-12).
inline constexpr std::uint64_t kStreamingCookie = std::uint64_t{1} << 62;
constexpr bool is_streaming(std::uint64_t cookie) { return cookie >> 62 == kStreamingCookie >> 62; }

enum class StreamFailure : std::uint8_t {
  none,
  refused,      // RST in answer to our SYN: no listener
  unreachable,  // no route, no neighbour, ICMP
  timed_out,
  reset,
  protocol,  // MPA startup frames that make no sense, or revision or features we cannot have
  no_resources,
};

// How a running stream ends. A clean close is its owner's decision alone: whoever vanishes leaves
// behind a peer that must end in Error, where all that it posts yet is flushed (V-IDLE-06).
enum class Disconnect : std::uint8_t {
  graceful,  // Modify -> Closing
  abrupt,    // Modify -> Terminate: behind all that was completed
};

// What the connection manager hears.
struct StreamEvent {
  enum class Kind : std::uint8_t {
    connect_request,  // a listener's; answer with accept() or reject(). cookie: the listener's
    withdrawn,        // one that has no answer yet: the peer has gone. It keeps its place of the backlog until it is
                      // answered, half a minute at most. cookie: the listener's
    established,      // connect() or accept() came to its end; data may flow. greet(): the Reply; welcome(): confirm()
    rejected,         // the peer's listener said no: private data
    failed,           // connect() or accept() failed: `failure`
    disconnected,     // after established, once: for whatever reason
    ready,            // of a stream in streaming mode: what say() or hear() found wanting may be there now
  } kind = Kind::failed;
  StreamFailure failure = StreamFailure::none;
  std::uint32_t device = 0;  // its index: 127.0.0.1 is on each
  StreamId stream;
  std::uint64_t cookie = 0;
  std::uint32_t qp_number = 0;  // 0: none yet
  wire::IpAddress local, remote;
  std::uint16_t local_port = 0, remote_port = 0;
  std::uint32_t ird = 0, ord = 0;  // what the peer offers, from our side (ird: we answer as many reads; ord: we may
                                   // send as many); established by accept(), or where it says nothing: what holds
  PrivateData private_data;
};

class StreamEvents {
 public:
  virtual void on_stream_event(const StreamEvent& event) = 0;
  // Addresses or routes of this device have changed.
  virtual void on_network_change(std::uint32_t device_index) { (void)device_index; }
  // Streams were reset because they held buffers that others wanted: so many since this was last told, which is not
  // more often than every ten seconds.
  virtual void on_ended_for_buffers(std::uint32_t device_index, std::uint32_t streams) {
    (void)device_index;
    (void)streams;
  }

 protected:
  ~StreamEvents() = default;
};

struct ConnectOptions {
  wire::IpAddress local, remote;
  std::uint16_t local_port = 0;  // 0: an ephemeral one
  std::uint16_t remote_port = 0;
  std::uint32_t ird = 0, ord = 0;
  PrivateData private_data;
  std::uint64_t cookie = 0;
  std::uint8_t traffic_class = 0;  // DSCP, where IP has it; ECN's two bits in it are not looked at
  // The peer is to be a rnic that answers with the mark of the one whom this means; else the call fails.
  std::optional<wire::Meeting> meeting;
  // No queue pair ever has the connection (RdmaStreams::greet(), which sets it).
  bool greets = false;
  // Called by its own queue pair, from the port that it calls: a TCP connection with itself, and no startup frames.
  bool itself = false;
  bool acknowledged = false;  // qp/start.hpp
};

struct AcceptOptions {
  std::uint32_t ird = 0, ord = 0;
  PrivateData private_data;
  std::uint64_t cookie = 0;
  std::uint8_t traffic_class = 0;  // as in ConnectOptions, from the Reply on
  bool outlives_peer = false;      // qp/start.hpp; a call's does where it has a `meeting`
  bool acknowledged = false;       // qp/start.hpp
};

// Of the step from streaming mode to iWARP.
struct IwarpOptions {
  Bytes last_message;  // all of it leaves before the first FPDU (V-CONN-03); at most kLastMessageMax
  std::uint32_t ird = 0, ord = 0;
};
inline constexpr std::size_t kLastMessageMax = 4096;

// What came of the peer's in streaming mode.
struct Heard {
  std::size_t octets = 0;
  bool ended = false;  // it has sent its FIN, and there is no more before that
};

}  // namespace rnic::core
