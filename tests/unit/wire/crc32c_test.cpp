// CRC32c against values from outside: RFC 3720 B.4, RFC 5044 figures 5 and 6, and a capture checked
// by a packet analyser.
#include "wire/crc32c.hpp"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>
#include <random>
#include <stdexcept>
#include <string_view>

#include "kit/catch.hpp"
#include "kit/hex.hpp"
#include "wire/crc32c_kinds.hpp"

namespace {

using namespace rnic;
using test::hex;

std::vector<std::byte> on_wire(Bytes octets) {
  std::vector<std::byte> field(wire::kCrcSize);
  wire::store_crc(field, 0, wire::crc32c(octets));
  return field;
}

std::uint32_t isal(std::uint32_t running, Bytes octets) {
  auto* at = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(octets.data()));
  return crc32_iscsi(at, static_cast<int>(octets.size()), running);
}

std::vector<std::byte> chance(std::size_t size, std::mt19937& random) {
  std::vector<std::byte> octets(size);
  for (auto& octet : octets) octet = static_cast<std::byte>(random());
  return octets;
}

}  // namespace

TEST_CASE("W-MPA-67: CRC32c has the values of the specifications, least significant octet first", "[wire][W-MPA-67]") {
  CHECK(wire::crc32c(test::text("123456789")) == 0xE3069283);
  CHECK(on_wire(test::text("123456789")) == hex("839206e3"));
  CHECK(on_wire(std::vector<std::byte>(32)) == hex("aa36918a"));
  CHECK(on_wire(std::vector<std::byte>(32, std::byte{0xFF})) == hex("43aba862"));
  std::vector<std::byte> up(32), down(32);
  for (std::size_t i = 0; i < 32; ++i) {
    up[i] = static_cast<std::byte>(i);
    down[i] = static_cast<std::byte>(31 - i);
  }
  CHECK(on_wire(up) == hex("4e79dd46"));
  CHECK(on_wire(down) == hex("5cdb3f11"));
  CHECK(on_wire(hex("000ec140 000000000000000000000000")) == hex("a30572ab"));
  CHECK(on_wire(hex("00124143 00000000 00000000 00000001 00000000")) == hex("587be8c4"));
}

TEST_CASE("W-MPA-67: the CRC covers a leading marker and one inside, as in the figures of RFC 5044",
          "[wire][W-MPA-67]") {
  auto figure5 = hex("00000000 002a4143 00000000 00000000 00000001 00000000");
  figure5.resize(figure5.size() + 24);
  CHECK(on_wire(figure5) == hex("52239983"));
  auto figure6 = hex("002a4143 00000000 00000000 00000002 00000000 00000014");
  figure6.resize(figure6.size() + 24);
  CHECK(on_wire(figure6) == hex("84925898"));
}

TEST_CASE("W-MPA-67: a CRC taken in pieces is that of the whole", "[wire][W-MPA-67]") {
  const auto octets = test::pattern(1448);
  const std::uint32_t whole = wire::crc32c(octets);
  for (const std::size_t cut : {0u, 1u, 3u, 255u, 256u, 1447u, 1448u}) {
    wire::Crc32c crc;
    crc.add(Bytes{octets}.first(cut));
    crc.add(Bytes{octets}.subspan(cut));
    CHECK(crc.value() == whole);
  }
  wire::Crc32c by_octet;
  for (const auto& octet : octets) by_octet.add({&octet, 1});
  CHECK(by_octet.value() == whole);
}

TEST_CASE("W-MPA-67: a CRC field is read as it is written", "[wire][W-MPA-67]") {
  const auto field = hex("00839206e3");
  CHECK(wire::load_crc(field, 1) == 0xE3069283);
}

TEST_CASE("W-MPA-67: each way to take a CRC that this processor has agrees with ISA-L, at every length and alignment",
          "[wire][W-MPA-67]") {
  std::mt19937 random(0x82F63B78);
  const auto octets = chance(70'000, random);
  for (const auto& kind : wire::detail::crc_kinds()) {
    INFO(kind.name);
    if (!kind.runs_here) continue;
    for (std::size_t size = 0; size <= 4'200; ++size) {
      const Bytes piece = Bytes{octets}.subspan(size % 67, size);
      const auto running = static_cast<std::uint32_t>(random());
      INFO(size);
      REQUIRE(kind.update(running, piece) == isal(running, piece));
    }
    for (const std::size_t size : {6'143u, 6'144u, 6'145u, 8'900u, 64'768u, 65'535u, 69'999u}) {
      INFO(size);
      REQUIRE(kind.update(0xFFFFFFFF, Bytes{octets}.last(size)) == isal(0xFFFFFFFF, Bytes{octets}.last(size)));
    }
  }
}

// Whoever writes to memory that is copied: the CRC is of what was copied. Here nobody does, and the copy is whole, and
// nothing around it is touched.
TEST_CASE("W-MPA-67: a CRC that is taken on the way of a copy is that of the octets, and they are there",
          "[wire][W-MPA-67]") {
  std::mt19937 random(0x1EDC6F41);
  const auto octets = chance(70'000, random);
  const auto copies = [&](std::size_t size, const auto& copy) {
    const Bytes piece = Bytes{octets}.subspan(size % 67, size);
    const std::size_t before = 64 + size % 61;
    std::vector<std::byte> into(before + size + 128, std::byte{0x5A});
    INFO(size);
    REQUIRE(copy(piece, MutableBytes{into}.subspan(before, size)) == isal(0x12345678, piece));
    REQUIRE(std::ranges::equal(piece, Bytes{into}.subspan(before, size)));
    const auto untouched = [](std::byte octet) { return octet == std::byte{0x5A}; };
    REQUIRE(std::ranges::all_of(Bytes{into}.first(before), untouched));
    REQUIRE(std::ranges::all_of(Bytes{into}.subspan(before + size), untouched));
  };
  const auto at_all_sizes = [&](const auto& copy) {
    for (std::size_t size = 0; size <= 1'200; ++size) copies(size, copy);
    for (const std::size_t size : {4'095u, 8'900u, 64'768u, 65'535u, 69'900u}) copies(size, copy);
  };
  for (const auto& kind : wire::detail::crc_kinds()) {
    if (!kind.runs_here || kind.copy == nullptr) continue;
    INFO(kind.name);
    at_all_sizes([&](Bytes from, MutableBytes into) { return kind.copy(0x12345678, from, into.data()); });
  }
  at_all_sizes([&](Bytes from, MutableBytes into) { return wire::detail::crc32c_copy(0x12345678, from, into.data()); });
}

TEST_CASE("W-MPA-67: a CRC is taken the fastest way that this processor has, and ISA-L's is always there",
          "[wire][W-MPA-67]") {
  const auto kinds = wire::detail::crc_kinds();
  REQUIRE(!kinds.empty());
  CHECK(kinds.back().runs_here);
  CHECK(kinds.back().update(0xFFFFFFFF, test::text("123456789")) == ~0xE3069283u);
#if defined(__x86_64__)
  CHECK(kinds.size() == 4);
#endif
  const auto fastest = std::ranges::find_if(kinds, &wire::detail::CrcKind::runs_here);
  INFO(fastest->name);
  CHECK(wire::detail::crc_kind_in_use().update == fastest->update);
  CHECK(wire::detail::crc_kind_in_use().copy == fastest->copy);
}

TEST_CASE("W-MPA-67: a way to take a CRC that this processor lacks, or does wrong, is passed over",
          "[wire][W-MPA-67]") {
  using wire::detail::CrcKind;
  const auto wrong = [](std::uint32_t running, Bytes octets) { return isal(running, octets) ^ 1; };
  // Whoever calls it on a processor that lacks its instructions dies of it.
  const auto lacking = [](std::uint32_t, Bytes) -> std::uint32_t { throw std::runtime_error("called"); };
  const auto copies_wrong = [](std::uint32_t running, Bytes from, std::byte* into) {
    std::ranges::copy(from.first(from.size() - 1), into);
    return isal(running, from);
  };
  const std::array<CrcKind, 5> kinds{{{"lacking", false, lacking},
                                      {"wrong", true, wrong},
                                      {"copies wrong", true, isal, copies_wrong},
                                      {"right", true, isal},
                                      {"last", true, isal}}};
  const auto best_of = [](std::span<const CrcKind> some) {
    return std::string_view(wire::detail::best_crc_kind(some).name);
  };
  CHECK(best_of(kinds) == "right");
  CHECK(best_of(std::span(kinds).last(1)) == "last");
  const std::array<CrcKind, 3> none_but_the_last{kinds[1], kinds[0], kinds[4]};
  CHECK(best_of(none_but_the_last) == "last");
}

TEST_CASE("W-MPA-67: where short runs of octets end and long ones begin a CRC is the same", "[wire][W-MPA-67]") {
  std::mt19937 random(5044);
  for (std::size_t size = 100; size <= 300; ++size) {
    const auto octets = chance(size, random);
    INFO(size);
    CHECK(wire::crc32c(octets) == static_cast<std::uint32_t>(~isal(0xFFFFFFFF, octets)));
  }
}
