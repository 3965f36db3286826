#include "host/icmp.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "wire/icmp.hpp"
#include "wire/ipv4.hpp"
#include "wire/ipv6.hpp"

namespace rnic::host {

namespace {

std::uint8_t protocol_of(const Packet& packet) {
  return packet.from.is_v6() ? wire::protocol::kIcmpV6 : wire::protocol::kIcmp;
}
// Octets of ICMP in one packet.
std::size_t room_in(const Link& link, const Packet& packet) {
  return link.mtu_bytes() - (packet.from.is_v6() ? wire::Ipv6Header::kSize : wire::Ipv4Header::kSize);
}

}  // namespace

std::optional<ip::IcmpError> Icmp::on_upper(const Packet& packet, std::uint8_t protocol, Bytes payload,
                                            std::uint32_t next_pointer, Instant now) {
  if (protocol == protocol_of(packet)) return on_message(packet, payload, now);
  if (protocol == wire::protocol::kUdp)
    complain({.kind = ip::Complaint::port_unreachable}, packet, now);
  else
    complain({.kind = ip::Complaint::protocol_unreachable, .pointer = next_pointer}, packet, now);
  return std::nullopt;
}

std::optional<ip::IcmpError> Icmp::on_message(const Packet& packet, Bytes message, Instant now) {
  const bool v6 = packet.from.is_v6();
  const auto header = wire::parse_icmp(message);
  if (!header) return std::nullopt;
  // Looked at even on trusted ports: there is little of it, and it steers us.
  const bool good = v6 ? wire::transport_checksum(packet.from, packet.to, wire::protocol::kIcmpV6, message) == 0
                       : wire::icmp_checksum_is_good(message);
  if (!good) {
    ++counters_.bad_checksums;
    return std::nullopt;
  }
  // Discovery in fragments is not to be believed (RFC 6980 s5).
  if (v6 && packet.rest.empty() &&
      station_.on_icmp6(
          {.source = packet.from, .destination = packet.to, .hop_limit = packet.hop_limit, .from = packet.link_from},
          message, now))
    return std::nullopt;
  if (header->type != (v6 ? wire::icmp6_type::kEchoRequest : wire::icmp_type::kEchoRequest))
    return v6 ? ip::parse_icmp6_error(message) : ip::parse_icmp_error(message);
  answer_echo(packet, message, now);
  return std::nullopt;
}

// A ping to a group is answered from an address of ours (RFC 4443 s4.2).
void Icmp::answer_echo(const Packet& packet, Bytes message, Instant now) {
  if (station_.follows()) return;
  const auto source = packet.to.is_multicast() ? station_.routes().source_for(packet.from) : packet.to;
  if (!source || packet.from.is_unspecified() || message.size() > room_in(link_, packet) || !out_.take_answer()) return;
  BufferRef reply = link_.take_control_for(message.size());
  if (!reply || reply->tailroom() < message.size()) return;
  if (!ip::answer_echo(message, packet.from, *source, reply->append(static_cast<std::uint32_t>(message.size()))))
    return;
  out_.send_packet(std::move(reply), protocol_of(packet), *source, packet.from, now);
}

void Icmp::complain(const ip::IcmpComplaint& complaint, const Packet& packet, Instant now, bool even_if_multicast) {
  if (station_.follows() || (packet.to_all && !even_if_multicast) || !out_.may_answer()) return;
  const ip::Routes& routes = station_.routes();
  if (!ip::may_complain_of(packet.whole, packet.rest, even_if_multicast) || routes.is_broadcast(packet.from)) return;
  const auto source = packet.to.is_multicast() ? routes.source_for(packet.from) : packet.to;
  if (!source || !complaints_.take(now)) return;
  out_.take_answer();
  BufferRef message = link_.take_control();
  if (!message) return;
  std::array<std::byte, ip::kComplaintMax> octets;
  const std::size_t most = std::min<std::size_t>({octets.size(), message->tailroom(), room_in(link_, packet)});
  const std::size_t size =
      ip::write_complaint(complaint, *source, packet.from, packet.whole, packet.rest, MutableBytes(octets).first(most));
  std::memcpy(message->append(static_cast<std::uint32_t>(size)).data(), octets.data(), size);
  ++counters_.icmp_errors_out;
  out_.send_packet(std::move(message), protocol_of(packet), *source, packet.from, now);
}

}  // namespace rnic::host
