// Which local port a call gets.
#include "host/ephemeral_ports.hpp"

#include <set>
#include <utility>
#include <vector>

#include "kit/catch.hpp"

using rnic::host::EphemeralPorts;
using Use = EphemeralPorts::Use;

TEST_CASE("a call gets a free port of Linux's range, whatever chance says", "[host]") {
  std::set<std::uint16_t> seen;
  for (std::uint64_t chance = 0; chance < 200'000; ++chance) {
    const auto port = EphemeralPorts::choose(chance * 0x9E3779B97F4A7C15u, [](std::uint16_t) { return Use::free; });
    REQUIRE(port);
    REQUIRE(*port >= 32768);
    REQUIRE(*port <= 60999);
    seen.insert(*port);
  }
  CHECK(seen.size() > 28'000);
}

TEST_CASE("for a call some ports are looked at, none of them twice, and never all", "[host]") {
  for (std::uint64_t chance : {std::uint64_t{0}, std::uint64_t{3529} << 32, std::uint64_t{28231} << 32 | 28231,
                               ~std::uint64_t{0}, std::uint64_t{0x123456789ABCDEF0}}) {
    std::set<std::uint16_t> looked_at;
    unsigned looks = 0;
    const auto port = EphemeralPorts::choose(chance, [&](std::uint16_t each) {
      ++looks;
      looked_at.insert(each);
      return Use::taken;
    });
    CHECK_FALSE(port);
    CHECK(looks == EphemeralPorts::kTriesMax);
    CHECK(looked_at.size() == looks);
  }
}

TEST_CASE("what is looked at next is an odd number of ports on, as all the upper bits of chance say", "[host]") {
  for (const auto& [upper, stride] : {std::pair{10u, 11u}, {11u, 11u}, {12u, 13u}, {3528u, 3531u}}) {
    std::vector<std::uint16_t> looked_at;
    EphemeralPorts::choose(std::uint64_t{upper} << 32, [&](std::uint16_t each) {
      looked_at.push_back(each);
      return Use::taken;
    });
    const unsigned second = looked_at[1] - EphemeralPorts::kFirst, first = looked_at[0] - EphemeralPorts::kFirst;
    CHECK((second + EphemeralPorts::kCount - first) % EphemeralPorts::kCount == stride);
  }
}

TEST_CASE("a port in TIME-WAIT is taken only where none that was looked at is free", "[host]") {
  unsigned looks = 0;
  std::uint16_t first = 0;
  const auto waits_till = [&](unsigned free_at) {
    looks = 0;
    return EphemeralPorts::choose(77, [&](std::uint16_t port) {
      if (looks++ == 0) first = port;
      return looks == free_at ? Use::free : Use::may_begin_anew;
    });
  };
  CHECK(waits_till(200) != first);
  CHECK(looks == 200);
  CHECK(waits_till(0) == first);
}
