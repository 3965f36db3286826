// Every fuzz target over its seeds and some thousand mutations of them, always the same: what
// breaks loudly is found by every run of the tests, without clang. tools/fuzz looks for the rest.
#include <cstdio>

#include "fuzz/target.hpp"
#include "kit/catch.hpp"
#include "sim/random.hpp"

using namespace rnic;

namespace {

Bytes current;

// So that what fails can be kept as a test.
void print_input(const char*, const char*, int) {
  std::fprintf(stderr, "the input was ");
  for (const std::byte octet : current) std::fprintf(stderr, "%02x", std::to_integer<unsigned>(octet));
  std::fprintf(stderr, "\n");
}

fuzz::Octets mutated(const std::vector<fuzz::Octets>& seeds, sim::Random& random) {
  fuzz::Octets octets = seeds[random.below(seeds.size())];
  for (std::uint64_t n = random.between(1, 6); n > 0; --n) {
    if (octets.empty()) octets.resize(8);
    const std::size_t at = random.below(octets.size());
    const auto place = octets.begin() + static_cast<std::ptrdiff_t>(at);
    switch (random.below(7)) {
      case 0:
        octets[at] ^= static_cast<std::byte>(1u << random.below(8));
        break;
      case 1:
        octets[at] = static_cast<std::byte>(random.next());
        break;
      case 2: {
        constexpr std::uint8_t kEdges[] = {0, 1, 0x7F, 0x80, 0xFF};
        octets[at] = static_cast<std::byte>(kEdges[random.below(5)]);
        break;
      }
      case 3:
        octets.insert(place, static_cast<std::byte>(random.next()));
        break;
      case 4:
        octets.erase(
            place, place + static_cast<std::ptrdiff_t>(random.below(std::min<std::size_t>(octets.size() - at, 8)) + 1));
        break;
      case 5:
        octets.resize(at);
        break;
      case 6: {  // the end of another
        const fuzz::Octets& other = seeds[random.below(seeds.size())];
        const std::size_t from = random.below(other.size() + 1);
        octets.resize(at);
        octets.insert(octets.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
        break;
      }
    }
  }
  if (octets.size() > 4096) octets.resize(4096);
  return octets;
}

void smoke(std::string_view name, unsigned mutations) {
  const fuzz::Target* target = fuzz::find(name);
  REQUIRE(target != nullptr);
  set_assertion_hook(print_input);
  const std::vector<fuzz::Octets> seeds = target->seeds();
  CHECK(seeds.size() >= 6);
  for (const fuzz::Octets& seed : seeds) {
    current = seed;
    target->run(seed);
  }
  sim::Random random(2025);
  for (unsigned n = 0; n < mutations; ++n) {
    const fuzz::Octets octets = mutated(seeds, random);
    current = octets;
    target->run(octets);
  }
  current = {};
  set_assertion_hook(nullptr);
}

}  // namespace

TEST_CASE("any frames into a device", "[fuzz][frames]") { smoke("frames", 2000); }
TEST_CASE("any options in a TCP header", "[fuzz][tcp-options]") { smoke("tcp-options", 10000); }
TEST_CASE("any ICMP message", "[fuzz][icmp]") { smoke("icmp", 2000); }
TEST_CASE("any startup frame, in any pieces", "[fuzz][mpa-startup]") { smoke("mpa-startup", 10000); }
TEST_CASE("any stream of FPDUs, in any pieces", "[fuzz][fpdus]") { smoke("fpdus", 2000); }
TEST_CASE("any stream of FPDUs with markers, in any pieces", "[fuzz][marked-fpdus]") { smoke("marked-fpdus", 2000); }
TEST_CASE("any messages into a queue pair", "[fuzz][messages]") { smoke("messages", 5000); }
TEST_CASE("datagrams into a device with queue pairs of type UD", "[fuzz][datagrams]") { smoke("datagrams", 2000); }
TEST_CASE("any conversation with a device", "[fuzz][conversation]") { smoke("conversation", 5000); }
