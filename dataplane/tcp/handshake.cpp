#include "tcp/handshake.hpp"

#include <algorithm>

#include "tcp/options.hpp"

namespace rnic::tcp {

namespace flag = wire::tcp_flags;

namespace {

std::uint32_t first_window(const Options& options) { return std::min(options.receive_window_bytes, 0xFFFFu); }

// The waits that are shorter than rto_initial.
std::uint32_t short_waits(const Options& options) {
  std::uint32_t count = 0;
  if (options.syn_wait_first.ns > 0)
    for (Duration wait = options.syn_wait_first; wait < options.rto_initial; wait = wait * 2) ++count;
  return count;
}

}  // namespace

Duration handshake_wait(const Options& options, std::uint32_t repeats) {
  const std::uint32_t first = short_waits(options);
  const Duration base = repeats < first ? options.syn_wait_first : options.rto_initial;
  const std::uint32_t doublings = repeats < first ? repeats : repeats - first;
  return std::min(base * (std::int64_t{1} << std::min(doublings, 16u)), options.rto_max);
}

std::uint32_t handshake_repeats(const Options& options, std::uint32_t repeats_max) {
  return repeats_max + short_waits(options);
}

std::uint8_t window_shift(std::uint32_t window_bytes) {
  std::uint8_t shift = 0;
  while (shift < 14 && (window_bytes >> shift) > 0xFFFF) ++shift;
  return shift;
}

Handshake agree(const wire::TcpHeader& syn, const Options& options, Seq ours, std::uint32_t timestamp_offset) {
  Handshake made;
  made.ours = ours;
  made.theirs = Seq{syn.sequence};
  const std::uint32_t mss = syn.mss ? *syn.mss : options.mss_default_bytes;
  made.peer_mss = static_cast<std::uint16_t>(std::clamp(mss, kMssMin, 0xFFFFu));
  made.window = syn.window;
  made.sack = options.sack && syn.sack_permitted;
  made.ecn = options.ecn != EcnUse::off && !syn.has(flag::kAck) && Ecn::is_setup_syn(syn.flags);
  if (options.window_scale && syn.window_scale) {
    made.scaling = true;
    made.send_shift = std::min<std::uint8_t>(*syn.window_scale, 14);  // RFC 7323 s2.3
    made.receive_shift = window_shift(options.widest_window_bytes());
  }
  made.timestamp_offset = timestamp_offset;
  if (options.timestamps && syn.timestamps) {
    made.timestamps = true;
    made.timestamp_recent = syn.timestamps->value;
  }
  return made;
}

void on_syn_again(Handshake& handshake, const wire::TcpHeader& syn) {
  if (!Ecn::is_setup_syn(syn.flags)) handshake.ecn = false;
}

bool syn_ack_may_be_marked(const Handshake& handshake, const Options& options) {
  return handshake.ecn && options.congestion == Algorithm::dctcp;
}

wire::TcpHeader syn_ack(const Handshake& handshake, const Options& options, Instant now) {
  wire::TcpHeader header = acknowledge(handshake, options, now);
  header.flags = flag::kSyn | flag::kAck | (handshake.ecn ? Ecn::kSetupSynAck : std::uint8_t{0});
  header.sequence = handshake.ours.value;
  header.mss = static_cast<std::uint16_t>(std::min(options.mss_bytes, 0xFFFFu));
  header.sack_permitted = handshake.sack;
  if (handshake.scaling) header.window_scale = handshake.receive_shift;
  header.window = static_cast<std::uint16_t>(handshake.held ? 0 : first_window(options));  // never scaled in a SYN
  return header;
}

wire::TcpHeader acknowledge(const Handshake& handshake, const Options& options, Instant now) {
  wire::TcpHeader header;
  header.flags = flag::kAck;
  header.sequence = handshake.ours.value + 1;
  header.acknowledgement = handshake.theirs.value + 1;
  if (!handshake.held) header.window = static_cast<std::uint16_t>(first_window(options) >> handshake.receive_shift);
  if (handshake.timestamps)
    header.timestamps = {timestamp_clock(now) + handshake.timestamp_offset, handshake.timestamp_recent};
  return header;
}

wire::TcpHeader third_segment(const Handshake& handshake) {
  wire::TcpHeader header;
  header.flags = flag::kAck;
  header.sequence = handshake.theirs.value + 1;
  header.acknowledgement = handshake.ours.value + 1;
  header.window = static_cast<std::uint16_t>(handshake.window >> handshake.send_shift);
  if (handshake.timestamps) header.timestamps = {handshake.timestamp_recent, 0};
  return header;
}

wire::TcpHeader reset(const Handshake& handshake) {
  wire::TcpHeader header;
  header.flags = flag::kRst | flag::kAck;
  header.sequence = handshake.ours.value + 1;
  header.acknowledgement = handshake.theirs.value + 1;
  return header;
}

// RFC 9293 s3.10.7.4 in its order; RFC 5961 s3 and s4 for RST and SYN; RFC 7323 s5.3 for PAWS.
HalfOpenStep on_half_open(const Handshake& handshake, const Options& options, const wire::TcpHeader& header,
                          std::size_t payload_bytes) {
  const Seq sequence{header.sequence}, next = handshake.theirs + 1;
  const bool in_window = sequence.since(next) < first_window(options);
  if (header.has(flag::kRst)) {
    if (sequence == next) return HalfOpenStep::forget;
    return in_window ? HalfOpenStep::acknowledge : HalfOpenStep::ignore;
  }
  // One with another number may be of a peer that has forgotten the first: its RST, in answer to
  // our acknowledgement, clears the way.
  if (header.has(flag::kSyn)) {
    if (header.has(flag::kAck)) return HalfOpenStep::acknowledge;
    return sequence == handshake.theirs ? HalfOpenStep::answer : HalfOpenStep::acknowledge;
  }
  if (handshake.timestamps) {
    if (!header.timestamps) return HalfOpenStep::ignore;
    if (static_cast<std::int32_t>(header.timestamps->value - handshake.timestamp_recent) < 0)
      return HalfOpenStep::acknowledge;
  }
  // Wholly before the window, or beyond it.
  const auto length = static_cast<std::uint32_t>(payload_bytes) + (header.has(flag::kFin) ? 1 : 0);
  if (!in_window && !(sequence.before(next) && (sequence + length).after(next))) return HalfOpenStep::acknowledge;
  if (!header.has(flag::kAck)) return HalfOpenStep::ignore;
  if (Seq{header.acknowledgement} != handshake.ours + 1) return HalfOpenStep::reset;
  return HalfOpenStep::complete;
}

}  // namespace rnic::tcp
