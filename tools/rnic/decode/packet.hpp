// From a captured packet to its TCP segment or UDP datagram: link layers, VLAN tags, IPv4 and IPv6, by the data
// plane's codecs.
//
// Pure; nothing here trusts a length.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.hpp"
#include "wire/address.hpp"
#include "wire/tcp.hpp"
#include "wire/udp.hpp"

namespace rnic::tool {

// What a packet begins with.
enum class LinkType : std::uint8_t { ethernet, linux_cooked, linux_cooked_2, raw_ip, null };

struct TcpPacket {
  wire::IpAddress source, destination;
  wire::TcpHeader header;
  Bytes payload;        // as far as it was captured
  std::size_t cut = 0;  // octets of payload that were not captured
};

struct UdpPacket {
  wire::IpAddress source, destination;
  wire::UdpHeader header;
  Bytes payload;  // whole
};

// The octets of the last packet parsed stay valid until the next one.
class PacketParser {
 public:
  enum class Outcome : std::uint8_t {
    tcp,        // see packet()
    udp,        // see datagram()
    other,      // neither
    fragment,   // of an IP packet with TCP in it: not put together
    corrupted,  // its checksum is wrong, and not for being left to the interface: no receiver took it
    malformed,  // a header that makes no sense, or too little of it captured
  };

  // `captured` is the beginning of a packet of `length` octets.
  Outcome parse(LinkType link, Bytes captured, std::uint32_t length);
  const TcpPacket& packet() const { return packet_; }
  const UdpPacket& datagram() const { return datagram_; }

 private:
  Outcome on_ip(Bytes packet);
  Outcome on_ipv6_fragment(const wire::IpAddress& source, const wire::IpAddress& destination, Bytes rest);
  Outcome on_tcp(const wire::IpAddress& source, const wire::IpAddress& destination, Bytes segment);
  Outcome on_udp(const wire::IpAddress& source, const wire::IpAddress& destination, Bytes whole);
  std::size_t missing_behind(Bytes octets) const;

  TcpPacket packet_;
  UdpPacket datagram_;
  std::vector<std::byte> whole_;  // the packet at its full length
  std::size_t captured_ = 0;      // how much of that is real
};

}  // namespace rnic::tool
