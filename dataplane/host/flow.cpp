#include "host/flow.hpp"

#include <cstring>

#include "base/chance.hpp"

namespace rnic::host {

HashKeys HashKeys::from_seed(std::uint64_t seed) {
  Chance chance(seed);
  HashKeys keys;
  keys.flow0 = chance.next();
  keys.flow1 = chance.next();
  for (SipKey* key : {&keys.isn, &keys.stamps, &keys.cookies, &keys.names}) {
    key->first = chance.next();
    key->second = chance.next();
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

}  // namespace rnic::host
