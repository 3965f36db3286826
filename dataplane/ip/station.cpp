#include "ip/station.hpp"

#include <algorithm>

#include "ip/host_loopback.hpp"
#include "wire/igmp.hpp"
#include "wire/ipv6.hpp"
#include "wire/mld.hpp"

namespace rnic::ip {
namespace {

constexpr std::uint8_t kHopLimit = 255;  // no router can have passed it on (RFC 4861 s3.1)
constexpr std::uint8_t kListenerHopLimit = 1;

NeighbourOptions neighbour_options(std::uint64_t seed) {
  NeighbourOptions options;
  options.seed = seed;
  return options;
}

bool is_configured_gateway(const StationOptions& options) {
  return std::any_of(options.routes.begin(), options.routes.end(),
                     [](const Route& route) { return route.bits == 0 && route.prefix.is_v6(); });
}

}  // namespace

Station::Station(const StationOptions& options)
    : options_(options),
      neighbours_(neighbour_options(options.seed ^ 0x11)),
      own_({.mac = options.mac, .probe = options.probe, .opaque = options.opaque, .seed = options.seed ^ 0x22}),
      routers_({.link_mtu_bytes = options.mtu_bytes,
                .default_routes = !is_configured_gateway(options),
                .seed = options.seed ^ 0x33}),
      groups_(options.seed ^ 0x44) {
  if (options.follows) return;
  bool has_link_local = false;
  for (const StationAddress& each : options.addresses) {
    own_.add(each.address, each.prefix_bits, AddressOrigin::configured, Instant{0});
    has_link_local |= each.address.is_v6() && each.address.is_link_local();
  }
  if (options.link_local && !has_link_local) {
    const wire::IpAddress network = *wire::parse_ip("fe80::");
    own_.add(interface_address(network, options.mac, options.opaque, 0), 64, AddressOrigin::link_local, Instant{0});
  }
  for (const Route& route : options.routes) routes_.add(route);
  follow_addresses(Instant{0});
}

Network Station::network() const {
  return {.own = own_.all(),
          .routes = routes_,
          .mtu_bytes_v6 = routers_.mtu_bytes(),
          .hop_limit_v6 = routers_.hop_limit(),
          .reachable = routers_.reachable(),
          .retransmit = routers_.retransmit()};
}

void Station::adopt(const Network& network) {
  RNIC_ASSERT(options_.follows);
  own_.adopt(network.own);
  routes_ = network.routes;
  routers_.adopt(network.mtu_bytes_v6, network.hop_limit_v6);
  neighbours_.set_times(network.reachable, network.retransmit);
  routes_changed();
}

void Station::routes_changed() {
  neighbours_.change_generation();
  ++version_;
}

// What has become of our addresses, for those who go by it: routes, groups, routers.
void Station::follow_addresses(Instant now) {
  if (options_.follows) return;
  if (own_version_ == own_.version()) return;
  own_version_ = own_.version();
  for (const OwnAddress& own : own_.all()) {
    if (own.usable())
      // That hosts make addresses of a prefix does not mean that they are on this link (RFC 5942 s4).
      routes_.add_own(own.address, own.origin == AddressOrigin::advertised ? 128 : own.prefix_bits,
                      own.state == AddressState::preferred);
    else
      routes_.remove_own(own.address);
  }
  groups_.follow(own_.all(), now);
  if (options_.accept_advertisements && link_up_ && !asked_routers_ && !link_local_source().is_unspecified()) {
    asked_routers_ = true;
    routers_.start(now);
  }
  routes_changed();
}

void Station::set_link(bool up, Instant now) {
  if (up == link_up_) return;
  link_up_ = up;
  if (options_.follows) return;
  asked_routers_ = false;
  own_.set_link(up, now);
  if (up)
    groups_.rejoin(now);
  else
    routers_.stop();
  own_version_ = 0;
  follow_addresses(now);
}

bool Station::listens_to(const wire::IpAddress& group) const {
  if (group.is_v4()) return groups_.any_joined() && (group == wire::kAllSystems || groups_.has(group));
  if (group == wire::kAllNodes || groups_.has(group)) return true;
  // One that follows is in no groups, and hears what comes to those of the other.
  return options_.follows && std::any_of(own_.all().begin(), own_.all().end(), [&](const OwnAddress& own) {
           return own.usable() && own.address.is_v6() && wire::solicited_node(own.address) == group;
         });
}

void Station::on_igmp(Bytes message, Instant now) {
  if (const auto query = wire::parse_member_query(message)) groups_.on_query(*query, now);
}

// ---- in -------------------------------------------------------------------------------------------

void Station::push_reply(const Reply& reply) {
  if (replies_end_ - replies_first_ == kReplies) return;
  replies_[replies_end_++ % kReplies] = reply;
}

// RFC 826's "packet reception", and RFC 5227.
bool Station::on_arp(Bytes packet, bool to_all, Instant now) {
  const auto arp = wire::parse_arp(packet);
  if (!arp) return false;
  if (arp->sender_mac == options_.mac || arp->sender_mac.is_multicast()) return true;  // our own, come back
  if (is_host_loopback(arp->sender_ip) || is_host_loopback(arp->target_ip)) return false;
  const bool request = arp->operation == wire::ArpPacket::kRequest;
  if (options_.follows && own_.find(arp->sender_ip) != nullptr) return true;
  if (options_.follows && request) {  // another answers
    if (!routes_.is_broadcast(arp->sender_ip))
      neighbours_.heard_from(
          arp->sender_ip, arp->sender_mac,
          routes_.is_own(arp->target_ip) ? Neighbours::Meant::for_us : Neighbours::Meant::for_others);
    return true;
  }
  if (arp->sender_ip.is_unspecified()) {
    if (request) own_.on_claim(arp->target_ip, arp->sender_mac, Claim::asks, now);
  } else if (own_.find(arp->sender_ip) != nullptr) {
    own_.on_claim(arp->sender_ip, arp->sender_mac, Claim::has, now);
    follow_addresses(now);
    return true;
  }
  follow_addresses(now);
  const bool for_us = routes_.is_own(arp->target_ip);
  if (!arp->sender_ip.is_unspecified() && !routes_.is_broadcast(arp->sender_ip)) {
    if (request)
      neighbours_.heard_from(arp->sender_ip, arp->sender_mac,
                             for_us ? Neighbours::Meant::for_us : Neighbours::Meant::for_others);
    else
      neighbours_.answered(arp->sender_ip,
                           {.mac = arp->sender_mac, .solicited = for_us && !to_all, .override_entry = true}, now);
  }
  if (for_us && request)
    push_reply({.kind = Reply::Kind::arp, .ours = arp->target_ip, .theirs = arp->sender_ip, .to = arp->sender_mac});
  return true;
}

bool Station::on_icmp6(const Icmp6Envelope& envelope, Bytes message, Instant now) {
  if (message.empty()) return true;
  const auto type = load_be<std::uint8_t>(message, 0);
  switch (type) {
    case wire::icmp6_type::kNeighbourSolicitation:
    case wire::icmp6_type::kNeighbourAdvertisement:
      if (envelope.hop_limit != kHopLimit || routes_.is_own(envelope.source)) return true;
      if (type == wire::icmp6_type::kNeighbourSolicitation)
        on_solicitation(envelope, message, now);
      else
        on_advertisement(envelope, message, now);
      break;
    case wire::icmp6_type::kRouterAdvertisement:
      if (envelope.hop_limit == kHopLimit && options_.accept_advertisements) on_router(envelope, message, now);
      break;
    case wire::icmp6_type::kListenerQuery:
      // RFC 3810 s6.2.
      if (envelope.hop_limit != kListenerHopLimit || !envelope.source.is_link_local()) return true;
      if (const auto query = wire::parse_listener_query(message)) groups_.on_query(*query, now);
      break;
    case wire::icmp6_type::kRouterSolicitation:
    case wire::icmp6_type::kRedirect:
    case wire::icmp6_type::kListenerReport:
      break;
    default:
      return false;
  }
  follow_addresses(now);
  return true;
}

// RFC 4861 s7.1.1, s7.2.3, s7.2.4; RFC 4862 s5.4.3; RFC 7527 s4.2.
void Station::on_solicitation(const Icmp6Envelope& envelope, Bytes message, Instant now) {
  const auto said = wire::parse_neighbour(message);
  if (!said || said->target.is_multicast()) return;
  const bool asks_for_itself = envelope.source.is_unspecified();
  if (options_.follows && asks_for_itself) return;
  if (asks_for_itself && (said->link_address || envelope.destination != wire::solicited_node(said->target))) return;
  const OwnAddress* own = own_.find(said->target);
  if (own == nullptr) return;
  if (asks_for_itself) {
    if (said->nonce ? own_.is_our_nonce(said->target, *said->nonce) : envelope.from == options_.mac) return;
    own_.on_claim(said->target, envelope.from, Claim::asks, now);
    if (own->usable())
      push_reply({.kind = Reply::Kind::advertisement,
                  .ours = said->target,
                  .theirs = wire::kAllNodes,
                  .to = wire::multicast_mac(wire::kAllNodes),
                  .to_all = true});
    return;
  }
  if (!own->usable()) return;
  if (said->link_address) neighbours_.heard_from(envelope.source, *said->link_address, Neighbours::Meant::for_us);
  if (options_.follows) return;  // another answers
  // A solicitation without a link address is from a host that knows ours already; its frame has its address.
  push_reply({.kind = Reply::Kind::advertisement,
              .ours = said->target,
              .theirs = envelope.source,
              .to = said->link_address.value_or(envelope.from)});
}

// RFC 4861 s7.1.2, s7.2.5; RFC 4862 s5.4.4.
void Station::on_advertisement(const Icmp6Envelope& envelope, Bytes message, Instant now) {
  const auto said = wire::parse_neighbour(message);
  if (!said || said->target.is_multicast() || (envelope.destination.is_multicast() && said->solicited)) return;
  if (own_.find(said->target) != nullptr) {
    const wire::Mac by = said->link_address.value_or(envelope.from);
    if (by != options_.mac && !options_.follows) own_.on_claim(said->target, by, Claim::has, now);
    return;
  }
  neighbours_.answered(
      said->target, {.mac = said->link_address, .solicited = said->solicited, .override_entry = said->override_entry},
      now);
  if (!said->router && routers_.on_no_router(said->target, routes_)) routes_changed();
}

// RFC 4861 s6.1.2, s6.3.4.
void Station::on_router(const Icmp6Envelope& envelope, Bytes message, Instant now) {
  if (!envelope.source.is_v6() || !envelope.source.is_link_local()) return;
  if (options_.follows) {  // what it says comes by adopt(), but that it is there
    if (routes_.trust(envelope.source)) routes_changed();
    return;
  }
  const auto said = wire::parse_router_advertisement(message);
  if (!said) return;
  if (said->link_address) neighbours_.heard_from(envelope.source, *said->link_address, Neighbours::Meant::for_us);
  const std::uint32_t mtu_before = routers_.mtu_bytes();
  const bool changed = routers_.on_advertisement(*said, envelope.source, routes_, own_, now);
  neighbours_.set_times(routers_.reachable(), routers_.retransmit());
  if (routers_.retransmit().ns > 0) own_.set_retransmit(routers_.retransmit());
  if (changed || routers_.mtu_bytes() != mtu_before) routes_changed();
}

// ---- out ------------------------------------------------------------------------------------------

wire::IpAddress Station::link_local_source() const {
  for (const OwnAddress& own : own_.all())
    if (own.usable() && own.address.is_v6() && own.address.is_link_local()) return own.address;
  return {};
}

Station::Outgoing Station::write_arp(const wire::ArpPacket& packet, const wire::Mac& to, MutableBytes out) const {
  wire::emit(packet, out);
  return {to, wire::ether_type::kArp, wire::ArpPacket::kSize};
}

Station::Outgoing Station::write_neighbour(const wire::NeighbourMessage& message, const wire::IpAddress& from,
                                           const wire::IpAddress& to, const wire::Mac& mac, MutableBytes out) const {
  const std::size_t size = wire::emit(message, out.subspan(wire::Ipv6Header::kSize));
  wire::icmp6_set_checksum(out.subspan(wire::Ipv6Header::kSize, size), from, to);
  wire::emit(wire::Ipv6Header{.payload_length = static_cast<std::uint16_t>(size),
                              .next_header = wire::protocol::kIcmpV6,
                              .hop_limit = kHopLimit,
                              .source = from,
                              .destination = to},
             out);
  return {mac, wire::ether_type::kIpv6, wire::Ipv6Header::kSize + size};
}

Station::Outgoing Station::write_reply(const Reply& reply, MutableBytes out) const {
  if (reply.kind == Reply::Kind::arp)
    return write_arp({.operation = wire::ArpPacket::kReply,
                      .sender_mac = options_.mac,
                      .sender_ip = reply.ours,
                      .target_mac = reply.to,
                      .target_ip = reply.theirs},
                     reply.to, out);
  wire::NeighbourMessage message{.advertisement = true,
                                 .solicited = !reply.to_all,
                                 .override_entry = true,
                                 .target = reply.ours,
                                 .link_address = options_.mac};
  return write_neighbour(message, reply.ours, reply.theirs, reply.to, out);
}

Station::Outgoing Station::write_action(const OwnAddresses::Action& action, MutableBytes out) const {
  using Kind = OwnAddresses::Action::Kind;
  switch (action.kind) {
    case Kind::arp_probe:
    case Kind::arp_announce:
      // RFC 5227 s1.1: a probe has no sender's address, an announcement ours.
      return write_arp({.operation = wire::ArpPacket::kRequest,
                        .sender_mac = options_.mac,
                        .sender_ip = action.kind == Kind::arp_probe ? wire::IpAddress::v4(0) : action.address,
                        .target_mac = {},
                        .target_ip = action.address},
                       wire::kBroadcastMac, out);
    case Kind::solicit: {
      const wire::IpAddress group = wire::solicited_node(action.address);
      return write_neighbour({.target = action.address, .link_address = {}, .nonce = action.nonce}, {}, group,
                             wire::multicast_mac(group), out);
    }
    case Kind::advertise:
      break;
  }
  // RFC 4861 s7.2.6: whoever knew another link address of it learns anew.
  return write_neighbour(
      {.advertisement = true, .override_entry = true, .target = action.address, .link_address = options_.mac},
      action.address, wire::kAllNodes, wire::multicast_mac(wire::kAllNodes), out);
}

std::optional<Station::Outgoing> Station::write_question(const Neighbours::Question& question, MutableBytes out) const {
  const auto source = routes_.source_for(question.address);
  if (!source) return std::nullopt;
  if (question.address.is_v4())
    return write_arp({.operation = wire::ArpPacket::kRequest,
                      .sender_mac = options_.mac,
                      .sender_ip = *source,
                      .target_mac = {},
                      .target_ip = question.address},
                     question.known.value_or(wire::kBroadcastMac), out);
  const wire::NeighbourMessage message{.target = question.address, .link_address = options_.mac};
  if (question.known) return write_neighbour(message, *source, question.address, *question.known, out);
  const wire::IpAddress group = wire::solicited_node(question.address);
  return write_neighbour(message, *source, group, wire::multicast_mac(group), out);
}

// Before there is one it is none, which switches take as well (RFC 3376 s4.2.13).
wire::IpAddress Station::v4_source() const {
  for (const OwnAddress& own : own_.all())
    if (own.usable() && own.address.is_v4()) return own.address;
  return wire::IpAddress::v4(0);
}

Station::Outgoing Station::write_report(const Groups::Report& report, MutableBytes out) const {
  if (report.group.is_v4()) {
    const wire::MemberReport message{
        .record_type = report.record_type, .group = report.group, .source = v4_source(), .version = report.version};
    const std::size_t size = wire::emit(message, out);
    return {wire::multicast_mac(message.destination()), wire::ether_type::kIpv4, size};
  }
  // Before there is an address to speak from it is none (RFC 3590 s4).
  const wire::IpAddress source = link_local_source();
  wire::emit(wire::ListenerReport{report.record_type, report.group}, source, out.subspan(wire::Ipv6Header::kSize));
  wire::emit(wire::Ipv6Header{.payload_length = wire::ListenerReport::kSize,
                              .next_header = wire::ipv6_next::kHopByHop,
                              .hop_limit = kListenerHopLimit,
                              .source = source,
                              .destination = wire::kListenerReports},
             out);
  return {wire::multicast_mac(wire::kListenerReports), wire::ether_type::kIpv6,
          wire::Ipv6Header::kSize + wire::ListenerReport::kSize};
}

std::optional<Station::Outgoing> Station::write_router_solicitation(MutableBytes out) const {
  const wire::IpAddress source = link_local_source();
  if (source.is_unspecified()) return std::nullopt;
  const std::size_t size = wire::emit_router_solicitation(options_.mac, out.subspan(wire::Ipv6Header::kSize));
  wire::icmp6_set_checksum(out.subspan(wire::Ipv6Header::kSize, size), source, wire::kAllRouters);
  wire::emit(wire::Ipv6Header{.payload_length = static_cast<std::uint16_t>(size),
                              .next_header = wire::protocol::kIcmpV6,
                              .hop_limit = kHopLimit,
                              .source = source,
                              .destination = wire::kAllRouters},
             out);
  return Outgoing{wire::multicast_mac(wire::kAllRouters), wire::ether_type::kIpv6, wire::Ipv6Header::kSize + size};
}

void Station::expire(Instant now) {
  if (routers_.next_deadline() <= now && routers_.expire(routes_, now)) routes_changed();
}

bool Station::has_message(Instant now) const { return replies_first_ != replies_end_ || next_deadline() <= now; }

std::optional<Station::Outgoing> Station::next_message(Instant now, MutableBytes out) {
  if (replies_first_ != replies_end_) return write_reply(replies_[replies_first_++ % kReplies], out);
  if (next_deadline() > now) return std::nullopt;
  expire(now);
  if (const auto action = own_.next_action(now)) {
    follow_addresses(now);
    return write_action(*action, out);
  }
  follow_addresses(now);
  if (const auto report = groups_.next_report(now)) return write_report(*report, out);
  while (routers_.next_solicitation(now))
    if (const auto written = write_router_solicitation(out)) return written;
  while (const auto question = neighbours_.next_question(now))
    if (const auto written = write_question(*question, out)) return written;
  return std::nullopt;
}

// A router that does not answer is used where there is no other (RFC 4861 s6.3.6).
std::optional<wire::IpAddress> Station::next_failed() {
  const auto failed = neighbours_.next_failed();
  if (failed && routes_.suspect(*failed)) routes_changed();
  return failed;
}

Instant Station::next_deadline() const {
  return std::min(
      {neighbours_.next_deadline(), own_.next_deadline(), routers_.next_deadline(), groups_.next_deadline()});
}

}  // namespace rnic::ip
