// The exchange of MPA startup frames (RFC 5044 s7.1, RFC 6581): one machine for each role.
//
// Octets of the stream go in as they come, in any pieces; frames to send and a verdict come out.
// Neither machine touches TCP: where a verdict says that the connection is to be closed, or that a
// Terminate goes out first, the caller does it.
//
// Pure. Owned by one worker. Before changing this file, read RFC 6581 s9.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "mpa/framer.hpp"
#include "wire/mpa.hpp"
#include "wire/terminate.hpp"

namespace rnic::mpa {

// The initiator's first message, with which a peer-to-peer connection becomes ready (W-MPA-45).
enum class Rtr : std::uint8_t { none, write, read, send };

// Emitted in total: siw and cxgb4 refuse more (W-MPA-14).
inline constexpr std::size_t kPrivateDataEmittedMax = 256;
// Of the consumer, in a frame with the enhanced block.
inline constexpr std::size_t kPrivateDataMaxEnhanced = kPrivateDataEmittedMax - wire::EnhancedBlock::kSize;

// How long a responder with a peer-to-peer connection waits for the first FPDU (W-MPA-90).
inline constexpr Duration kFirstFpduTimeout = seconds(10);

// What the administrator allows. RFC 5044 s4.3 has every sender be able to insert them; one that never
// does refuses a peer that asks.
enum class MarkerUse : std::uint8_t {
  never,
  send,  // where the peer asks for them
  both,  // and we ask for them in what comes to us: it is placed out of order too
};

struct StartupOptions {
  bool crc = true;  // C; off only by the administrator's explicit wish (W-MPA-08)
  MarkerUse markers = MarkerUse::send;
  std::uint8_t revision = 2;     // the highest that we speak
  bool peer_to_peer = true;      // A in our Requests
  bool negotiate_depths = true;  // with neither this nor peer_to_peer a Request is Revision 1 (W-MPA-31)
  std::uint16_t ird = 0;         // initiator: our own depths
  std::uint16_t ord = 0;
  std::uint16_t ird_max = 128;  // limits: what negotiation may raise them to (W-MPA-94)
  std::uint16_t ord_max = 128;
  Duration request_timeout = seconds(10);  // W-MPA-23: for the whole of the frame
  Duration reply_timeout = seconds(20);
};

enum class StartupFailure : std::uint8_t {
  none,
  bad_key,                // not the frame that was due
  bad_revision,           // 0, or above 2
  bad_private_data,       // PD_Length > 512, or too short for the enhanced block
  trailing_octets,        // after a Request, before our Reply
  unexpected_enhanced,    // an enhanced Reply to a Request that was not
  not_enhanced,           // an accepting Reply that is not enhanced, to a Request that was
  peer_to_peer_mismatch,  // an accepting Reply with another A
  markers_asked,          // an accepting Reply with M, where we never insert any
  no_matching_rtr,
  insufficient_ird,
  timed_out,
  ended,                  // FIN or RST inside a frame
  private_data_too_long,  // ours; nothing was sent
};

// What a failure leaves to do: send the Terminate as the first and only FPDU, if there is one; then
// close. The framing that it needs is in negotiated().
struct StartupVerdict {
  StartupFailure reason = StartupFailure::none;
  std::optional<wire::TerminateCode> terminate;
};

// What both ends now hold to.
struct Negotiated {
  std::uint8_t revision = 1;
  bool enhanced = false;
  Crc crc = Crc::on;
  Markers markers_out = Markers::none;  // what we insert: the peer's M
  Markers markers_in = Markers::none;   // what we expect: our M
  bool peer_to_peer = false;
  Rtr rtr = Rtr::none;    // initiator: send it first, before any other FPDU; responder: what it asked for
  std::uint16_t ird = 0;  // ours, as they are from now on
  std::uint16_t ord = 0;
  // As the peer sent them: wire::EnhancedBlock::kNotNegotiated means that it did not say. Without
  // `enhanced` it said nothing either.
  std::uint16_t peer_ird = wire::EnhancedBlock::kNotNegotiated;
  std::uint16_t peer_ord = wire::EnhancedBlock::kNotNegotiated;
};

struct Fed {
  enum class Outcome : std::uint8_t {
    more,      // of the frame is to come
    request,   // responder: a good Request is here; accept() or reject() it
    accepted,  // initiator: full operation. Send the RTR first, if there is one
    rejected,  // initiator: by the peer's consumer; close
    failed,    // see verdict()
  } outcome = Outcome::more;
  std::size_t consumed = 0;  // octets of this feed that were the frame's. What follows an accepting
                             // Reply are FPDUs (W-MPA-22)
};

namespace detail {

// A startup frame as it comes in, judged as early as can be.
class FrameReader {
 public:
  explicit FrameReader(bool reply) : reply_(reply) {}
  // Takes what belongs to the frame; returns how many octets that is.
  std::size_t feed(Bytes stream, StartupFailure& failure);
  bool whole() const { return needed() == have_; }
  bool empty() const { return have_ == 0; }
  const wire::StartupHeader& header() const { return header_; }
  const wire::EnhancedBlock& block() const { return block_; }
  // The consumer's, without the enhanced block (W-MPA-82).
  Bytes private_data() const;

 private:
  std::size_t needed() const;
  StartupFailure judge(std::size_t before);

  bool reply_;
  bool parsed_ = false;
  std::size_t have_ = 0;
  wire::StartupHeader header_;
  wire::EnhancedBlock block_;
  std::array<std::byte, wire::StartupHeader::kSize + wire::StartupHeader::kPrivateDataMax> octets_;
};

// A startup frame to go out.
struct FrameOut {
  std::array<std::byte, wire::StartupHeader::kSize + kPrivateDataEmittedMax> octets;
  std::size_t size = 0;
  Bytes bytes() const { return {octets.data(), size}; }
  // False when the private data does not fit.
  bool write(wire::StartupHeader header, const std::optional<wire::EnhancedBlock>& block, Bytes private_data);
};

}  // namespace detail

class Initiator {
 public:
  // On an established connection. Private data that does not fit makes it fail at once
  // (private_data_too_long).
  Initiator(const StartupOptions& options, Bytes private_data, Instant now);

  // The Request: sent once, at once (W-MPA-24), then nothing before the verdict (W-MPA-16).
  Bytes request() const { return request_.bytes(); }

  Fed feed(Bytes stream);
  // The peer's FIN, or the end of the connection, before a verdict.
  Fed::Outcome on_end();
  Fed::Outcome on_time(Instant now);
  Instant next_deadline() const;

  Fed::Outcome outcome() const { return outcome_; }
  const StartupVerdict& verdict() const { return verdict_; }
  // Accepted, or failed with a Terminate to send. After a rejection: only what the peer said.
  const Negotiated& negotiated() const { return negotiated_; }
  // Of the Reply, accepting or rejecting; valid as long as this.
  Bytes private_data() const { return reader_.private_data(); }

 private:
  Fed::Outcome fail(StartupFailure reason, std::optional<wire::TerminateCode> terminate = std::nullopt);
  Fed::Outcome judge_reply();
  Fed::Outcome negotiate(const wire::EnhancedBlock& reply);

  StartupOptions options_;
  bool enhanced_ = false;
  wire::EnhancedBlock offered_;
  Fed::Outcome outcome_ = Fed::Outcome::more;
  StartupVerdict verdict_;
  Negotiated negotiated_;
  Instant deadline_;
  detail::FrameReader reader_{true};
  detail::FrameOut request_;
};

class Responder {
 public:
  Responder(const StartupOptions& options, Instant now);

  // After `request`, any octet before our Reply is the peer's error (W-MPA-17): keep feeding.
  Fed feed(Bytes stream);
  Fed::Outcome on_end();
  Fed::Outcome on_time(Instant now);
  Instant next_deadline() const;

  Fed::Outcome outcome() const { return outcome_; }
  const StartupVerdict& verdict() const { return verdict_; }

  // ---- after `request` ----
  // What was asked: peer_ird, peer_ord, peer_to_peer, revision, enhanced. After accept(): all.
  const Negotiated& negotiated() const { return negotiated_; }
  // Of the Request; valid as long as this.
  Bytes private_data() const { return reader_.private_data(); }
  // False: it asks for markers, and we never insert any. It is to be rejected without asking anybody.
  bool acceptable() const { return options_.markers != MarkerUse::never || !reader_.header().markers; }
  // How much private data a Reply to it may carry.
  std::size_t private_data_max() const;

  // The Reply to send, valid as long as this; negotiated() has what holds from now on. `ird` and
  // `ord` are what our consumer wants and has; ORD is lowered to the initiator's IRD.
  Result<Bytes, StartupFailure> accept(Bytes private_data, std::uint16_t ird, std::uint16_t ord);
  // The Reply to send; then close, with FIN (W-MPA-19). `ord_needed` tells an initiator with too
  // small an IRD what would have been enough (W-MPA-36).
  Result<Bytes, StartupFailure> reject(Bytes private_data, std::uint16_t ird = 0, std::uint16_t ord_needed = 0);

 private:
  Fed::Outcome fail(StartupFailure reason);
  wire::StartupHeader reply_header() const;
  Rtr choose_rtr() const;

  StartupOptions options_;
  bool replied_ = false;
  Fed::Outcome outcome_ = Fed::Outcome::more;
  StartupVerdict verdict_;
  Negotiated negotiated_;
  Instant deadline_;
  detail::FrameReader reader_{false};
  detail::FrameOut reply_;
};

}  // namespace rnic::mpa
