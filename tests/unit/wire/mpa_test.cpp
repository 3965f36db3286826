// MPA's startup frames, FPDU sizes and markers on the wire.
#include "wire/mpa.hpp"

#include "kit/catch.hpp"
#include "kit/hex.hpp"

namespace {

using namespace rnic;
using test::hex;
using wire::EnhancedBlock;
using wire::StartupHeader;

std::vector<std::byte> octets_of(const StartupHeader& header) {
  std::vector<std::byte> out(StartupHeader::kSize);
  emit(header, out);
  return out;
}

std::vector<std::byte> request_with(unsigned flags, unsigned revision) {
  auto frame = hex("4d504120494420526571204672616d65 00000000");
  frame[16] = static_cast<std::byte>(flags);
  frame[17] = static_cast<std::byte>(revision);
  return frame;
}

}  // namespace

TEST_CASE("W-MPA-01: keys are sent octet for octet", "[wire][W-MPA-01]") {
  CHECK(octets_of({.reply = false}) == hex("4d504120494420526571204672616d65 00010000"));
  CHECK(octets_of({.reply = true}) == hex("4d504120494420526570204672616d65 00010000"));
}

TEST_CASE("W-MPA-01: a frame without either key is not one", "[wire][W-MPA-01]") {
  auto frame = octets_of({});
  CHECK(wire::parse_startup(frame));
  frame[15] = std::byte{'E'};
  CHECK_FALSE(wire::parse_startup(frame));
  CHECK_FALSE(wire::parse_startup(Bytes{octets_of({})}.first(19)));
}

TEST_CASE("W-MPA-03, W-MPA-10: M, C, R and S are the bits of the figure", "[wire][W-MPA-03][W-MPA-10][W-MPA-27]") {
  CHECK(octets_of({.markers = true})[16] == std::byte{0x80});
  CHECK(octets_of({.crc = true})[16] == std::byte{0x40});
  CHECK(octets_of({.rejected = true})[16] == std::byte{0x20});
  CHECK(octets_of({.enhanced = true, .revision = 2})[16] == std::byte{0x10});
  const auto header = *wire::parse_startup(request_with(0xF0, 2));
  CHECK(header.markers);
  CHECK(header.crc);
  CHECK(header.rejected);
  CHECK(header.enhanced);
}

TEST_CASE("W-MPA-11: reserved bits are not looked at and never sent", "[wire][W-MPA-11]") {
  CHECK(*wire::parse_startup(request_with(0x0F, 2)) == *wire::parse_startup(request_with(0, 2)));
  const StartupHeader all{.markers = true, .crc = true, .rejected = true, .enhanced = true, .revision = 2};
  CHECK(octets_of(all)[16] == std::byte{0xF0});
}

TEST_CASE("W-MPA-83: in Revision 1 the bit of S is reserved", "[wire][W-MPA-83]") {
  CHECK_FALSE(wire::parse_startup(request_with(0x10, 1))->enhanced);
  CHECK(wire::parse_startup(request_with(0x10, 2))->enhanced);
  CHECK(octets_of({.enhanced = true, .revision = 1})[16] == std::byte{0});
}

TEST_CASE("W-MPA-27: the enhanced block has A, B, C, D and 14-bit depths", "[wire][W-MPA-27]") {
  const auto emitted = [](const EnhancedBlock& block) {
    std::vector<std::byte> out(EnhancedBlock::kSize);
    emit(block, out);
    return out;
  };
  CHECK(emitted({.peer_to_peer = true}) == hex("80000000"));
  CHECK(emitted({.rtr_send = true}) == hex("40000000"));
  CHECK(emitted({.rtr_write = true}) == hex("00008000"));
  CHECK(emitted({.rtr_read = true}) == hex("00004000"));
  CHECK(emitted({.ird = 0x3FFF, .ord = 0x3FFE}) == hex("3fff3ffe"));
  CHECK(emitted({.ird = 0xFFFF}) == hex("3fff0000"));
  const EnhancedBlock block{.peer_to_peer = true, .rtr_read = true, .ird = 16, .ord = 1};
  CHECK(wire::parse_enhanced(emitted(block)) == block);
  CHECK_FALSE(wire::parse_enhanced(hex("800000")));
}

TEST_CASE("W-MPA-52: the pad makes every FPDU a multiple of 4", "[wire][W-MPA-52]") {
  CHECK(wire::fpdu_pad(14) == 0);
  CHECK(wire::fpdu_pad(15) == 3);
  CHECK(wire::fpdu_pad(16) == 2);
  CHECK(wire::fpdu_pad(17) == 1);
  CHECK(wire::fpdu_pad(18) == 0);
  for (std::uint32_t size = 0; size < 64; ++size) {
    CHECK(wire::fpdu_size(size) % 4 == 0);
    CHECK(wire::fpdu_size(size) >= size + 6);
    CHECK(wire::fpdu_size(size) < size + 10);
  }
}

TEST_CASE("W-MPA-62, W-MPA-65: FPDUPTR's low bits and the reserved half are not looked at",
          "[wire][W-MPA-62][W-MPA-65]") {
  CHECK(wire::parse_marker(hex("ffff0017")) == 0x14);
  std::vector<std::byte> out(4, std::byte{0xEE});
  wire::emit_marker(0x14, out);
  CHECK(out == hex("00000014"));
}
