// The MPA startup of one stream, from the end of TCP's handshake until a queue pair has the connection: which of
// mpa/startup.hpp's machines it is, what of TCP's octets is for it, and what its outcome means to the consumer and to
// the queue pair. It reads from TCP; what it gives to be said its stream sends.
//
// Before changing this, read wire.md s1.1 and s1.2.
//
// Owned by one worker.
#pragma once

#include <array>
#include <optional>
#include <variant>

#include "base/bytes.hpp"
#include "base/time.hpp"
#include "core/connection.hpp"
#include "core/device_options.hpp"
#include "mpa/startup.hpp"
#include "qp/queue_pair.hpp"
#include "tcp/connection.hpp"

namespace rnic::core {

class Startup {
 public:
  using Outcome = mpa::Fed::Outcome;
  struct Depths {
    std::uint32_t ird = 0, ord = 0;
  };

  // A listener's stream: the peer's Request is due.
  Startup(const DeviceOptions& device, Instant now);
  // A call's: request() is due, unless it has failed already.
  enum class Markers : std::uint8_t { as_configured, not_asked_for };
  Startup(const DeviceOptions& device, const ConnectOptions& wishes, const qp::Config& queue_pair, Markers markers,
          Instant now);

  // ---- its course ----
  Outcome outcome() const;
  // Takes what is its own of what TCP has, and the peer's FIN behind it.
  Outcome feed(tcp::Connection& tcp);
  Outcome on_time(Instant now);
  Instant next_deadline() const;
  Bytes request() const { return initiator().request(); }

  // ---- what the peer said: its Request, or its Reply ----
  void describe_peer(StreamEvent& event) const;
  PrivateData private_data() const;
  // What the consumer of a call hears: what the peer said, though less may hold (W-MPA-38).
  Depths depths_of_reply() const;
  // A Request that we would refuse whatever the consumer said.
  bool acceptable() const { return std::get<mpa::Responder>(machine_).acceptable(); }
  // A rejection that says nothing, not even that it would insert markers.
  bool may_be_for_markers() const;

  // ---- answering a Request: the Reply, valid as long as this; nothing: it cannot be written ----
  std::optional<Bytes> accept(const AcceptOptions& options);
  std::optional<Bytes> reject(const PrivateData& private_data);

  // ---- how it ended ----
  // What holds from now on.
  qp::Start start() const;
  StreamFailure failure() const;
  // The first and only FPDU of a stream whose Reply was not what it had to be (W-MPA-35, -43, -84), or nothing.
  using LastFpdu = std::array<std::byte, 256>;
  Bytes terminate(LastFpdu& room) const;
  // What a caller that greets says behind its Request, once: a Write of no octets.
  Bytes confirmation(LastFpdu& room) const;

 private:
  Bytes pack(Bytes ulpdu, mpa::Markers markers, LastFpdu& room) const;
  const mpa::Initiator& initiator() const { return std::get<mpa::Initiator>(machine_); }
  const mpa::Negotiated& negotiated() const;
  const mpa::StartupVerdict& verdict() const;

  std::variant<mpa::Initiator, mpa::Responder> machine_;
};

}  // namespace rnic::core
