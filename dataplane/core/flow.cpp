#include "core/flow.hpp"

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
  for (SipKey* key : {&keys.isn, &keys.stamps, &keys.cookies, &keys.names}) {
    key->first = next();
    key->second = next();
  }
  return keys;
}

std::uint64_t siphash(const Flow& flow, const SipKey& key) {
  std::uint64_t words[5];
  std::memcpy(&words[0], flow.local.octets().data(), 16);
  std::memcpy(&words[2], flow.remote.octets().data(), 16);
  words[4] = std::uint64_t{flow.local_port} | std::uint64_t{flow.remote_port} << 16;
  return siphash(words, key);
}

tcp::Seq initial_sequence(const Flow& flow, const HashKeys& keys, Instant now) {
  const auto clock = static_cast<std::uint32_t>(now.ns / 4'000);
  return {clock + static_cast<std::uint32_t>(siphash(flow, keys.isn))};
}

std::uint32_t timestamp_offset(const Flow& flow, const HashKeys& keys) {
  return static_cast<std::uint32_t>(siphash(flow, keys.stamps));
}

}  // namespace rnic::core
