// ICMP of both versions: echoes are answered, the station hears what is for it, packets that nobody wants are
// complained of. What an error says of a segment of ours goes back to the caller. Where the station follows another
// nobody is answered: what comes to every worker of a device one of them answers.
//
// Owned by one worker.
#pragma once

#include <optional>

#include "host/packet.hpp"
#include "host/packets_out.hpp"
#include "ip/icmp.hpp"
#include "ip/station.hpp"

namespace rnic::host {

class Icmp {
 public:
  Icmp(Link& link, ip::Station& station, PacketsOut& out, Counters& counters)
      : link_(link), station_(station), out_(out), counters_(counters) {}

  // What is behind the IP headers, and is not TCP. `next_pointer`: in IPv6, where the octet is that says `protocol`.
  std::optional<ip::IcmpError> on_upper(const Packet& packet, std::uint8_t protocol, Bytes payload,
                                        std::uint32_t next_pointer, Instant now);
  void complain(const ip::IcmpComplaint& complaint, const Packet& packet, Instant now, bool even_if_multicast = false);

 private:
  std::optional<ip::IcmpError> on_message(const Packet& packet, Bytes message, Instant now);
  void answer_echo(const Packet& packet, Bytes message, Instant now);

  Link& link_;
  ip::Station& station_;
  PacketsOut& out_;
  Counters& counters_;
  ip::TokenBucket complaints_{10, 100};
};

}  // namespace rnic::host
