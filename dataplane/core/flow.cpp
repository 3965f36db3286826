#include "core/flow.hpp"

#include <bit>
#include <cstring>

namespace rnic::core {

HashKeys HashKeys::from_seed(std::uint64_t seed) {
  // splitmix64: neighbouring seeds give unrelated keys.
  const auto next = [&seed] {
    std::uint64_t z = (seed += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  };
  HashKeys keys;
  keys.flow0 = next();
  keys.flow1 = next();
  keys.isn0 = next();
  keys.isn1 = next();
  return keys;
}

std::uint64_t siphash(const Flow& flow, std::uint64_t key0, std::uint64_t key1) {
  std::uint64_t words[5];
  std::memcpy(&words[0], flow.local.octets().data(), 16);
  std::memcpy(&words[2], flow.remote.octets().data(), 16);
  // The last word holds the length in its highest octet, as SipHash's padding does.
  words[4] = std::uint64_t{flow.local_port} | std::uint64_t{flow.remote_port} << 16 | std::uint64_t{36} << 56;

  std::uint64_t a = key0 ^ 0x736f6d6570736575u, b = key1 ^ 0x646f72616e646f6du;
  std::uint64_t c = key0 ^ 0x6c7967656e657261u, d = key1 ^ 0x7465646279746573u;
  const auto round = [&] {
    a += b, b = std::rotl(b, 13), b ^= a, a = std::rotl(a, 32);
    c += d, d = std::rotl(d, 16), d ^= c;
    a += d, d = std::rotl(d, 21), d ^= a;
    c += b, b = std::rotl(b, 17), b ^= c, c = std::rotl(c, 32);
  };
  for (const std::uint64_t word : words) {
    d ^= word;
    round(), round();
    a ^= word;
  }
  c ^= 0xff;
  round(), round(), round(), round();
  return a ^ b ^ c ^ d;
}

tcp::Seq initial_sequence(const Flow& flow, const HashKeys& keys, Instant now) {
  const auto clock = static_cast<std::uint32_t>(now.ns / 4'000);
  return {clock + static_cast<std::uint32_t>(siphash(flow, keys.isn0, keys.isn1))};
}

}  // namespace rnic::core
