// Packets that come in pieces, of both versions: what ip::Reassembly makes of them, and who hears of those that never
// become whole.
//
// Owned by one worker.
#pragma once

#include <optional>

#include "host/icmp.hpp"
#include "host/packet.hpp"
#include "ip/reassembly.hpp"

namespace rnic::host {

class Fragments {
 public:
  // `packet_bytes`: what a packet may have, without its header.
  Fragments(std::uint32_t packet_bytes, Icmp& icmp, Counters& counters);

  // A packet that is whole: what is above IP. No port has looked at its checksum.
  struct Whole {
    Packet packet;
    BufferRef buffer;
    Bytes payload;
    std::uint8_t protocol = 0;
    std::uint8_t ecn = 0;
  };
  // `packet` is a fragment; the packet that it completes, if it does.
  std::optional<Whole> take_v4(const Packet& packet, std::size_t header_size, Instant now);
  // `payload` is behind the IPv6 header; the fragment header is at `offset`.
  std::optional<Whole> take_v6(const Packet& packet, Bytes payload, std::size_t offset, Instant now);

  void expire(Instant now);
  Instant next_deadline() const { return reassembly_.next_deadline(); }

 private:
  std::optional<Whole> take(const Packet& packet, const ip::Fragment& fragment, Instant now);
  std::optional<Whole> complete(const Packet& packet, ip::Reassembled reassembled);

  Icmp& icmp_;
  Counters& counters_;
  ip::Reassembly reassembly_;
};

}  // namespace rnic::host
