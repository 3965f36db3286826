// The walk over IPv6's extension headers (RFC 8200 s4): to the upper layer, to a fragment header, or
// to what is wrong.
//
// Bounded: a packet whose headers are more than a host ever needs is dropped (RFC 8504 s5.3).
//
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"

namespace rnic::ip {

inline constexpr int kExtensionsMax = 8;
inline constexpr int kOptionsMax = 16;  // of one header, padding counted

struct Walk {
  enum class End : std::uint8_t {
    upper,     // `protocol` begins at `offset`
    fragment,  // a fragment header is at `offset`
    nothing,   // there is no upper layer (next header 59)
    drop,      // without a word
    problem,   // to be dropped, and a Parameter Problem told: `code`, `pointer`
  } end = End::drop;
  std::uint8_t protocol = 0;
  std::size_t offset = 0;  // in the payload that was given
  // Where the octet is that names what comes at `offset`: of a problem, or of a protocol that turns
  // out to be nobody's. Counted from the first octet of the IPv6 header.
  std::uint32_t pointer = 0;
  std::uint8_t code = 0;
  bool even_if_multicast = false;  // tell the problem even to the sender of a multicast
};

// A hop-by-hop header may only be the first of all: not what followed the fragment header, after reassembly, nor
// another header that was walked over.
enum class Behind : std::uint8_t { ip_header, another_header };

// `payload` is what follows the header that names `next_header`. `pointer_base`: where
// the payload is, counted from the first octet of the IPv6 header; `next_pointer`: where the octet
// is that named `next_header`.
Walk walk_extensions(std::uint8_t next_header, Bytes payload, Behind behind = Behind::ip_header,
                     std::uint32_t pointer_base = 40, std::uint32_t next_pointer = 6);

// Of the packet quoted in an ICMPv6 error, cut off where it may be: where the upper layer begins, if
// that is there, and only of a packet that is whole or the first fragment. False otherwise; of a later
// fragment `protocol` is what its header says of the first.
bool find_quoted_upper(std::uint8_t next_header, Bytes payload, std::uint8_t& protocol, std::size_t& offset);

}  // namespace rnic::ip
