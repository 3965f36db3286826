// SipHash-2-4 over whole 64-bit words: a keyed pseudorandom function for what others see the result
// of, such as initial sequence numbers (RFC 6528 s3) and SYN cookies (RFC 4987 s3.6).
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace rnic {

struct SipKey {
  std::uint64_t first = 0, second = 0;
};

constexpr std::uint64_t siphash(std::span<const std::uint64_t> words, const SipKey& key) {
  std::uint64_t a = key.first ^ 0x736f6d6570736575u, b = key.second ^ 0x646f72616e646f6du;
  std::uint64_t c = key.first ^ 0x6c7967656e657261u, d = key.second ^ 0x7465646279746573u;
  const auto round = [&] {
    a += b, b = std::rotl(b, 13), b ^= a, a = std::rotl(a, 32);
    c += d, d = std::rotl(d, 16), d ^= c;
    a += d, d = std::rotl(d, 21), d ^= a;
    c += b, b = std::rotl(b, 17), b ^= c, c = std::rotl(c, 32);
  };
  const auto take = [&](std::uint64_t word) {
    d ^= word;
    round(), round();
    a ^= word;
  };
  for (const std::uint64_t word : words) take(word);
  take(std::uint64_t{words.size() * 8} << 56);  // the padding of SipHash
  c ^= 0xff;
  round(), round(), round(), round();
  return a ^ b ^ c ^ d;
}

}  // namespace rnic
