// What names a TCP connection on a device, and the keyed hashes over it.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/siphash.hpp"
#include "base/time.hpp"
#include "tcp/seq.hpp"
#include "wire/address.hpp"
#include "wire/rss.hpp"

namespace rnic::host {

struct Flow {
  wire::IpAddress local, remote;
  std::uint16_t local_port = 0, remote_port = 0;
  bool operator==(const Flow& other) const {
    std::uint64_t mine[4], others[4];
    std::memcpy(mine, this, sizeof mine);
    std::memcpy(others, &other, sizeof others);
    return ((mine[0] ^ others[0]) | (mine[1] ^ others[1]) | (mine[2] ^ others[2]) | (mine[3] ^ others[3])) == 0 &&
           local_port == other.local_port && remote_port == other.remote_port;
  }
};
static_assert(sizeof(wire::IpAddress) == 16, "a flow begins with 32 octets of addresses");

// Of a device whose connections are divided among several workers: which of these parts a host has (wire/rss.hpp).
struct Shard {
  unsigned index = 0, count = 1;
  bool has(const Flow& flow) const {
    return count == 1 ||
           wire::rss::shard_of(flow.local, flow.local_port, flow.remote, flow.remote_port, count) == index;
  }
};

// An IPv4 address as it stands in a header. What IpAddress::load_v4 does, in two stores: once per
// segment it counts.
inline wire::IpAddress load_v4_address(const std::byte* at) {
  if constexpr (std::endian::native != std::endian::little) return wire::IpAddress::load_v4({at, 4}, 0);
  std::uint32_t raw;
  std::memcpy(&raw, at, 4);
  const std::uint64_t words[2] = {0, 0xffff0000u | std::uint64_t{raw} << 32};
  wire::IpAddress address;
  std::memcpy(static_cast<void*>(&address), words, sizeof words);
  return address;
}

// An IPv6 address as it stands in a header.
inline wire::IpAddress load_v6_address(const std::byte* at) {
  wire::IpAddress address;
  std::memcpy(static_cast<void*>(&address), at, sizeof address);
  return address;
}

// Secrets of a device, made of its seed at start.
struct HashKeys {
  std::uint64_t flow0 = 0, flow1 = 0;  // of the table: a peer must not be able to choose its chain
  SipKey isn;                          // RFC 6528 s3
  SipKey stamps;                       // where a connection's timestamps begin (RFC 7323 s5.4)
  SipKey cookies, names;               // SYN cookies, and the connection's name in them
  static HashKeys from_seed(std::uint64_t seed);
};

// For the flow table: fast, and not to be foreseen without the keys.
inline std::uint64_t hash_of(const Flow& flow, const HashKeys& keys) {
  const auto fold = [](std::uint64_t a, std::uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  };
  std::uint64_t word[4];
  std::memcpy(&word[0], flow.local.octets().data(), 16);
  std::memcpy(&word[2], flow.remote.octets().data(), 16);
  const std::uint64_t ports = std::uint64_t{flow.local_port} << 16 | flow.remote_port;
  return fold(fold(word[0] ^ word[2] ^ keys.flow0, word[1] ^ keys.flow1) ^ keys.flow1,
              word[3] ^ ports << 32 ^ ports ^ keys.flow0);
}

// SipHash-2-4 of the flow: for what a peer sees the result of.
std::uint64_t siphash(const Flow& flow, const SipKey& key);

// RFC 6437 s3: what spreads streams over paths of equal cost. Another after each retransmission timeout, so that a path
// that has died is left (RFC 6438).
constexpr std::uint32_t flow_label(std::uint64_t hash, std::uint64_t timeouts) {
  return static_cast<std::uint32_t>(hash + timeouts * 0x9E37'79B9'7F4A'7C15) & 0xFFFFF;
}

// RFC 6528 s3: a 4 microsecond clock plus a keyed hash of the connection's name.
tcp::Seq initial_sequence(const Flow& flow, const HashKeys& keys, Instant now);

// What is added to our clock in timestamps: the same for every connection of these four names, so
// that one after another they only grow (RFC 6191 s2), and nobody learns how long we have been up.
std::uint32_t timestamp_offset(const Flow& flow, const HashKeys& keys);

}  // namespace rnic::host
