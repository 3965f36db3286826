// A packet that is not a TCP segment in one piece, as it came: addresses, IP header and all, and what the link said.
#pragma once

#include "base/bytes.hpp"
#include "wire/address.hpp"
#include "wire/ethernet.hpp"

namespace rnic::host {

struct Packet {
  wire::IpAddress from, to;
  Bytes whole;   // from the IP header on; of one that was reassembled its first fragment's headers
  Bytes rest{};  // of such a one the octets behind these
  std::uint8_t hop_limit = 0;
  wire::Mac link_from{};
  bool to_all = false;   // it came by a multicast of the link
  bool looped = false;   // from ourselves
  bool trusted = false;  // no checksum need be looked at
};

}  // namespace rnic::host
