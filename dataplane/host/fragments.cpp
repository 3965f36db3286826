#include "host/fragments.hpp"

#include <algorithm>

#include "ip/extensions.hpp"
#include "wire/icmp.hpp"
#include "wire/ipv4.hpp"
#include "wire/ipv6.hpp"

namespace rnic::host {

namespace {

// At least what every host of IPv6 must take (W-TCP-20).
ip::ReassemblyOptions options_for(std::uint32_t packet_bytes) {
  ip::ReassemblyOptions options;
  options.bytes_max = std::max<std::uint32_t>(packet_bytes, 1500);
  return options;
}

}  // namespace

Fragments::Fragments(std::uint32_t packet_bytes, Icmp& icmp, Counters& counters)
    : icmp_(icmp), counters_(counters), reassembly_(options_for(packet_bytes)) {}

std::optional<Fragments::Whole> Fragments::take_v4(const Packet& packet, std::size_t header_size, Instant now) {
  const auto parsed = wire::parse_ipv4(packet.whole);
  if (!parsed) return std::nullopt;
  const wire::Ipv4Header& header = parsed->header;
  return take(packet,
              {.source = header.source,
               .destination = header.destination,
               .identification = header.identification,
               .protocol = header.protocol,
               .ecn = static_cast<std::uint8_t>(header.traffic_class & 3),
               .offset_bytes = header.fragment_offset_bytes,
               .more = header.more_fragments,
               .header = packet.whole.first(header_size),
               .payload = packet.whole.subspan(header_size)},
              now);
}

std::optional<Fragments::Whole> Fragments::take_v6(const Packet& packet, Bytes payload, std::size_t offset,
                                                   Instant now) {
  const auto parsed = wire::parse_ipv6_fragment(payload.subspan(offset));
  if (!parsed || packet.from.is_unspecified() || packet.to.is_multicast()) {
    ++counters_.bad_frames;
    return std::nullopt;
  }
  const std::size_t before = offset + wire::Ipv6Fragment::kSize;
  const Bytes data = payload.subspan(before);
  if (parsed->fragment.offset_bytes == 0 && parsed->fragment.more) {
    // All headers must be in the first fragment (RFC 8200 s4.5, RFC 7112): nobody can judge them later.
    const ip::Walk walk = ip::walk_extensions(parsed->next_header, data, ip::Behind::another_header);
    if (walk.end == ip::Walk::End::drop ||
        (walk.end == ip::Walk::End::upper && data.size() - walk.offset < wire::IcmpHeader::kSize)) {
      icmp_.complain(
          {.kind = ip::Complaint::parameter_problem, .code = wire::icmp6_code::kIncompleteFirstFragment, .pointer = 0},
          packet, now);
      ++counters_.bad_frames;
      return std::nullopt;
    }
  }
  return take(packet,
              {.source = packet.from,
               .destination = packet.to,
               .identification = parsed->fragment.identification,
               .protocol = parsed->next_header,
               .ecn = static_cast<std::uint8_t>(load_be<std::uint16_t>(packet.whole, 0) >> 4 & 3),
               .offset_bytes = parsed->fragment.offset_bytes,
               .more = parsed->fragment.more,
               .header = packet.whole.first(wire::Ipv6Header::kSize + before),
               .payload = data},
              now);
}

std::optional<Fragments::Whole> Fragments::take(const Packet& packet, const ip::Fragment& fragment, Instant now) {
  using Outcome = ip::Reassembly::Outcome;
  ++counters_.fragments_in;
  ip::Reassembly::Taken taken = reassembly_.take(fragment, now);
  const auto complain_of = [&](std::size_t pointer) {
    if (packet.from.is_v6())
      icmp_.complain({.kind = ip::Complaint::parameter_problem,
                      .code = wire::icmp6_code::kErroneousField,
                      .pointer = static_cast<std::uint32_t>(pointer)},
                     packet, now);
  };
  switch (taken.outcome) {
    case Outcome::waiting:
      return std::nullopt;
    case Outcome::complete:
      ++counters_.reassembled;
      return complete(packet, std::move(taken.packet));
    case Outcome::bad_length:
      complain_of(4);  // the payload's length
      break;
    case Outcome::too_long:
      complain_of(fragment.header.size() - wire::Ipv6Fragment::kSize + 2);  // the fragment's offset
      break;
    case Outcome::dropped:
      break;
  }
  ++counters_.fragments_dropped;
  return std::nullopt;
}

// `packet`: of the fragment that came last.
std::optional<Fragments::Whole> Fragments::complete(const Packet& packet, ip::Reassembled reassembled) {
  Whole whole{.packet = packet,
              .buffer = std::move(reassembled.buffer),
              .payload = {},
              .protocol = reassembled.protocol,
              .ecn = reassembled.ecn};
  whole.packet.whole = reassembled.header;
  whole.packet.rest = whole.payload = whole.buffer->bytes();
  if (packet.from.is_v6()) {
    const ip::Walk walk = ip::walk_extensions(whole.protocol, whole.payload, ip::Behind::another_header);
    if (walk.end != ip::Walk::End::upper) {
      ++counters_.bad_frames;
      return std::nullopt;
    }
    whole.protocol = walk.protocol;
    whole.payload = whole.payload.subspan(walk.offset);
  }
  return whole;
}

// RFC 8200 s4.5, RFC 1122 s3.3.2: the sender hears of it where his first fragment had come.
void Fragments::expire(Instant now) {
  while (const auto expired = reassembly_.next_expired(now)) {
    ++counters_.fragments_dropped;
    if (expired->header.empty()) continue;
    icmp_.complain(
        {.kind = ip::Complaint::reassembly_timeout},
        {.from = expired->source, .to = expired->destination, .whole = expired->header, .rest = expired->payload}, now);
  }
}

}  // namespace rnic::host
