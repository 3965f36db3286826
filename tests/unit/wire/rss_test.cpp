// Which of several a connection belongs to.
#include "wire/rss.hpp"

#include <array>
#include <random>
#include <vector>

#include "kit/catch.hpp"

namespace rnic::wire {
namespace {

// As network cards are described: for each bit of the input that is set, the 32 bits of the key that begin there.
std::uint32_t toeplitz(const std::vector<std::uint8_t>& key, const std::vector<std::uint8_t>& input) {
  const auto key_bit = [&](std::size_t at) { return std::uint32_t{key[at / 8]} >> (7 - at % 8) & 1; };
  std::uint32_t hash = 0;
  for (std::size_t bit = 0; bit < 8 * input.size(); ++bit) {
    if ((input[bit / 8] >> (7 - bit % 8) & 1) == 0) continue;
    std::uint32_t window = 0;
    for (std::size_t i = 0; i < 32; ++i) window = window << 1 | key_bit(bit + i);
    hash ^= window;
  }
  return hash;
}

void put(std::vector<std::uint8_t>& input, const IpAddress& address) {
  const auto& octets = address.octets();
  input.insert(input.end(), octets.begin() + (address.is_v4() ? 12 : 0), octets.end());
}
void put(std::vector<std::uint8_t>& input, std::uint16_t port) {
  input.push_back(static_cast<std::uint8_t>(port >> 8));
  input.push_back(static_cast<std::uint8_t>(port));
}
std::vector<std::uint8_t> input_of(const IpAddress& from, std::uint16_t from_port, const IpAddress& to,
                                   std::uint16_t to_port) {
  std::vector<std::uint8_t> input;
  put(input, from);
  put(input, to);
  put(input, from_port);
  put(input, to_port);
  return input;
}

std::vector<std::uint8_t> symmetric_key() {
  std::vector<std::uint8_t> key;
  while (key.size() < 52) key.insert(key.end(), {0x6D, 0x5A});
  return key;
}

IpAddress random_v6(std::mt19937& chance) {
  std::array<std::uint8_t, 16> octets;
  for (auto& octet : octets) octet = static_cast<std::uint8_t>(chance());
  return IpAddress::from_octets(octets);
}

}  // namespace

// The two are in Microsoft's "Verifying the RSS Hash Calculation".
TEST_CASE("the hash that this test compares with is network cards' own", "[rss]") {
  const std::vector<std::uint8_t> key{0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67,
                                      0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
                                      0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
                                      0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};
  const auto hash = [&](const char* from, std::uint16_t from_port, const char* to, std::uint16_t to_port) {
    return toeplitz(key, input_of(*parse_ip(from), from_port, *parse_ip(to), to_port));
  };
  CHECK(hash("66.9.149.187", 2794, "161.142.100.80", 1766) == 0x51ccc178);
  CHECK(hash("199.92.111.2", 14230, "65.69.140.83", 4739) == 0xc626b0ea);
}

TEST_CASE("a connection's shard is what a network card with the key 6d5a and 128 places would choose, from either end",
          "[rss]") {
  std::mt19937 chance(1);
  const auto key = symmetric_key();
  for (int i = 0; i < 2000; ++i) {
    const bool v4 = i % 2 == 0;
    const IpAddress a = v4 ? IpAddress::v4(static_cast<std::uint32_t>(chance())) : random_v6(chance);
    const IpAddress b = v4 ? IpAddress::v4(static_cast<std::uint32_t>(chance())) : random_v6(chance);
    const auto a_port = static_cast<std::uint16_t>(chance()), b_port = static_cast<std::uint16_t>(chance());
    const unsigned shards = 1 + static_cast<unsigned>(chance()) % 16;
    const std::uint32_t hash = toeplitz(key, input_of(a, a_port, b, b_port));
    REQUIRE(rss::shard_of(a, a_port, b, b_port, shards) == hash % 128 % shards);
    REQUIRE(rss::shard_of(b, b_port, a, a_port, shards) == hash % 128 % shards);
  }
}

TEST_CASE("connections of consecutive ports are divided about evenly", "[rss]") {
  const IpAddress a = IpAddress::v4(10, 0, 0, 1), b = IpAddress::v4(10, 0, 0, 2);
  for (const unsigned shards : {2u, 3u, 4u, 8u}) {
    std::vector<unsigned> count(shards);
    constexpr unsigned kConnections = 1024;
    for (unsigned i = 0; i < kConnections; ++i)
      ++count[rss::shard_of(a, static_cast<std::uint16_t>(49'152 + i), b, 4420, shards)];
    for (const unsigned each : count) {
      CAPTURE(shards, each);
      CHECK(each >= kConnections / shards * 3 / 4);
      CHECK(each <= kConnections / shards * 5 / 4 + 1);
    }
  }
}

}  // namespace rnic::wire
