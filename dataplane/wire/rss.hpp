// Receive-side scaling: to which of several a TCP connection's segments belong. The Toeplitz hash that network cards
// have, with the key of 16 bits over and over that gives both directions of a connection the same, and the table of 128
// places that the cards' drivers have, filled in turn.
//
// With that key the hash is linear in the exclusive or of all 16-bit words of addresses and ports.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "wire/address.hpp"

namespace rnic::wire::rss {

inline constexpr std::uint16_t kKey = 0x6D5A;  // network order, repeated
inline constexpr unsigned kTable = 128;        // places; the hash's lower bits name one

// The exclusive or of the words of an address. IPv4's are those of its four octets: what an IpAddress has before them
// is in both ends' and goes.
inline std::uint16_t fold(const IpAddress& address) {
  std::uint64_t half[2];
  std::memcpy(half, address.octets().data(), sizeof half);
  std::uint64_t all = half[0] ^ half[1];
  all ^= all >> 32;
  all ^= all >> 16;
  const auto word = static_cast<std::uint16_t>(all);
  return std::endian::native == std::endian::little ? static_cast<std::uint16_t>(word << 8 | word >> 8) : word;
}

// The hash of each word that has bits in one of its octets only: a word's is the exclusive or of its octets'.
struct Hashes {
  std::array<std::uint16_t, 256> of_first{}, of_second{};
};
inline constexpr Hashes kHashes = [] {
  Hashes hashes;
  for (unsigned octet = 0; octet < 256; ++octet)
    for (int bit = 0; bit < 8; ++bit) {
      if ((octet >> (7 - bit) & 1) == 0) continue;
      hashes.of_first[octet] = static_cast<std::uint16_t>(hashes.of_first[octet] ^ std::rotl(kKey, bit));
      hashes.of_second[octet] = static_cast<std::uint16_t>(hashes.of_second[octet] ^ std::rotl(kKey, bit + 8));
    }
  return hashes;
}();

// Of the exclusive or of all words of addresses and ports.
constexpr std::uint16_t hash(std::uint16_t folded) {
  return static_cast<std::uint16_t>(kHashes.of_first[folded >> 8] ^ kHashes.of_second[folded & 0xFF]);
}

constexpr unsigned place(std::uint16_t folded, unsigned of) { return hash(folded) % kTable % of; }

inline unsigned shard_of(const IpAddress& a, std::uint16_t a_port, const IpAddress& b, std::uint16_t b_port,
                         unsigned shards) {
  return place(static_cast<std::uint16_t>(fold(a) ^ fold(b) ^ a_port ^ b_port), shards);
}

}  // namespace rnic::wire::rss
