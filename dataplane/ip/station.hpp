// A station on an Ethernet link: everything of IP that is not about one packet of somebody's. It
// answers for its addresses by ARP (RFC 826) and neighbour discovery (RFC 4861), finds others' link
// addresses, sees to it that its addresses are its own (RFC 5227, RFC 4862), listens to routers, and
// knows the way to everywhere.
//
// ARP packets and ICMPv6 messages go in, and come out as packets without the Ethernet header: the
// caller knows of VLANs and buffers.
//
// Pure; nothing is allocated after construction. Owned by one worker.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/buffer.hpp"
#include "base/bytes.hpp"
#include "base/time.hpp"
#include "ip/groups.hpp"
#include "ip/neighbours.hpp"
#include "ip/own_addresses.hpp"
#include "ip/routers.hpp"
#include "ip/routes.hpp"
#include "wire/arp.hpp"
#include "wire/neighbour_discovery.hpp"

namespace rnic::ip {

struct StationAddress {
  wire::IpAddress address;
  std::uint8_t prefix_bits = 0;
};

struct StationOptions {
  wire::Mac mac{};
  std::uint32_t mtu_bytes = 1500;
  std::vector<StationAddress> addresses{};
  std::vector<Route> routes{};
  bool link_local = false;  // make a link-local IPv6 address; one among `addresses` will do
  bool accept_advertisements = false;
  bool probe = false;   // ask whether an address is taken before using it
  bool opaque = false;  // made-up addresses do not show the MAC
  std::uint64_t seed = 1;
  bool follows = false;  // has no addresses or routes but those that it adopts, and answers for none: another does
};

// What the stations of one port have in common, where it is divided among several workers.
struct Network {
  std::array<OwnAddress, OwnAddresses::kMax> own{};
  Routes routes{};
  std::uint32_t mtu_bytes_v6 = 0;
  std::uint8_t hop_limit_v6 = 0;
  Duration reachable{}, retransmit{};
};

// What the IPv6 header of an ICMPv6 message said, and the frame.
struct Icmp6Envelope {
  wire::IpAddress source, destination;
  std::uint8_t hop_limit = 0;
  wire::Mac from;
};

class Station {
 public:
  // The link is down until set_link().
  explicit Station(const StationOptions& options);

  // ---- in ------------------------------------------------------------------------------------
  // False: it is no ARP packet that makes sense.
  bool on_arp(Bytes packet, bool to_all, Instant now);
  // A message of discovery or of multicast listeners, with a good checksum; false: it is of another
  // kind. What is not valid is taken and ignored.
  bool on_icmp6(const Icmp6Envelope& envelope, Bytes message, Instant now);
  // What an IPv4 packet of group management holds.
  void on_igmp(Bytes message, Instant now);
  void set_link(bool up, Instant now);

  // ---- out -----------------------------------------------------------------------------------
  static constexpr std::size_t kMessageMax = 128;
  struct Outgoing {
    wire::Mac destination;
    std::uint16_t type = 0;  // EtherType
    std::size_t size = 0;
  };
  // Writes the next message into `out`, which has room for kMessageMax; until nothing.
  std::optional<Outgoing> next_message(Instant now, MutableBytes out);
  // Before next_message() is asked without a buffer for it: is there one?
  bool has_message(Instant now) const;
  BufferRef next_released() { return neighbours_.next_released(); }
  // A next hop that did not answer.
  std::optional<wire::IpAddress> next_failed();
  Instant next_deadline() const;  // may be early, never late

  // ---- packets of others ---------------------------------------------------------------------
  const Routes& routes() const { return routes_; }
  Neighbours& neighbours() { return neighbours_; }
  const Neighbours& neighbours() const { return neighbours_; }
  const OwnAddresses& own() const { return own_; }
  // A multicast group whose packets are for us.
  bool listens_to(const wire::IpAddress& group) const;
  // As Groups'.
  bool join(const wire::IpAddress& group, Instant now) { return groups_.join(group, now); }
  void leave(const wire::IpAddress& group) { groups_.leave(group); }
  std::uint32_t mtu_bytes_v6() const { return routers_.mtu_bytes(); }
  std::uint8_t hop_limit_v6() const { return routers_.hop_limit(); }
  // Changes with everything that control has a copy of: addresses and routes.
  std::uint64_t version() const { return version_; }

  // ---- one station of several workers ---------------------------------------------------------
  bool follows() const { return options_.follows; }
  Network network() const;
  // Of one that follows: what another has now.
  void adopt(const Network& network);

 private:
  struct Reply {
    enum class Kind : std::uint8_t { arp, advertisement } kind = Kind::arp;
    wire::IpAddress ours, theirs;
    wire::Mac to;
    bool to_all = false;  // of an advertisement: who asked has no address
  };
  static constexpr std::uint32_t kReplies = 64;  // that wait; more are dropped, and asked for again

  void on_solicitation(const Icmp6Envelope& envelope, Bytes message, Instant now);
  void on_advertisement(const Icmp6Envelope& envelope, Bytes message, Instant now);
  void on_router(const Icmp6Envelope& envelope, Bytes message, Instant now);
  void push_reply(const Reply& reply);
  void follow_addresses(Instant now);
  void routes_changed();
  void expire(Instant now);

  Outgoing write_reply(const Reply& reply, MutableBytes out) const;
  Outgoing write_action(const OwnAddresses::Action& action, MutableBytes out) const;
  std::optional<Outgoing> write_question(const Neighbours::Question& question, MutableBytes out) const;
  Outgoing write_report(const Groups::Report& report, MutableBytes out) const;
  std::optional<Outgoing> write_router_solicitation(MutableBytes out) const;
  Outgoing write_arp(const wire::ArpPacket& packet, const wire::Mac& to, MutableBytes out) const;
  Outgoing write_neighbour(const wire::NeighbourMessage& message, const wire::IpAddress& from,
                           const wire::IpAddress& to, const wire::Mac& mac, MutableBytes out) const;
  wire::IpAddress link_local_source() const;  // ::, where there is none yet
  wire::IpAddress v4_source() const;

  StationOptions options_;
  Routes routes_;
  Neighbours neighbours_;
  OwnAddresses own_;
  Routers routers_;
  Groups groups_;
  std::array<Reply, kReplies> replies_{};
  std::uint32_t replies_first_ = 0, replies_end_ = 0;
  bool link_up_ = false;
  bool asked_routers_ = false;
  std::uint64_t own_version_ = 0;
  std::uint64_t version_ = 1;
};

}  // namespace rnic::ip
