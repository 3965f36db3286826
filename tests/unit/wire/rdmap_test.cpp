// RDMAP's control octet and Read Request; RFC 7306's headers.
#include "wire/rdmap.hpp"

#include "kit/catch.hpp"
#include "kit/hex.hpp"
#include "wire/atomic.hpp"

namespace {

using namespace rnic;
using test::hex;

template <typename Header>
std::vector<std::byte> octets_of(const Header& header) {
  std::vector<std::byte> out(Header::kSize);
  emit(header, out);
  return out;
}

}  // namespace

TEST_CASE("W-RDMAP-01: all is sent with RDMAP version 1, another one is seen", "[wire][W-RDMAP-01]") {
  CHECK(wire::rdmap_control(wire::RdmapOpcode::write) == 0x40);
  CHECK(wire::rdmap_control(wire::RdmapOpcode::atomic_response) == 0x4B);
  CHECK(wire::rdmap_version(0x43) == 1);
  CHECK(wire::rdmap_version(0x03) == 0);
  CHECK(wire::rdmap_version(0x83) == 2);
  CHECK(wire::rdmap_version(0xC3) == 3);
}

TEST_CASE("W-RDMAP-02: the reserved bits are not looked at", "[wire][W-RDMAP-02]") {
  CHECK(wire::rdmap_version(0x73) == 1);
  CHECK(wire::rdmap_opcode(0x73) == wire::RdmapOpcode::send);
}

TEST_CASE("W-RDMAP-09: a Read Request header is 28 octets in the figure's order", "[wire][W-RDMAP-09]") {
  const wire::ReadRequestHeader header{.sink_stag = {0x01020304},
                                       .sink_to = 0x05060708090A0B0C,
                                       .size_bytes = 0x0D0E0F10,
                                       .source_stag = {0x11121314},
                                       .source_to = 0x15161718191A1B1C};
  const auto octets = hex("01020304 05060708090a0b0c 0d0e0f10 11121314 15161718191a1b1c");
  CHECK(octets_of(header) == octets);
  CHECK(wire::parse_read_request(octets) == header);
  CHECK_FALSE(wire::parse_read_request(Bytes{octets}.first(27)));
}

TEST_CASE("W-EXT-09: an Atomic Request header is 52 octets, a Response's 12", "[wire][W-EXT-09][W-EXT-10]") {
  const wire::AtomicRequestHeader request{.opcode = wire::AtomicOpcode::compare_swap,
                                          .request_id = 0x01020304,
                                          .stag = {0x05060708},
                                          .tagged_offset = 0x1112131415161718,
                                          .data = 0x2122232425262728,
                                          .data_mask = 0x3132333435363738,
                                          .compare = 0x4142434445464748,
                                          .compare_mask = 0x5152535455565758};
  auto octets =
      hex("00000002 01020304 05060708 1112131415161718 2122232425262728 3132333435363738 4142434445464748 "
          "5152535455565758");
  CHECK(octets_of(request) == octets);
  CHECK(wire::parse_atomic_request(octets) == request);
  CHECK_FALSE(wire::parse_atomic_request(Bytes{octets}.first(51)));
  // The 28 bits before the opcode are reserved.
  octets[0] = octets[1] = octets[2] = std::byte{0xFF};
  octets[3] = std::byte{0xF2};
  CHECK(wire::parse_atomic_request(octets) == request);

  const wire::AtomicResponseHeader response{.request_id = 0x01020304, .original = 0x1112131415161718};
  CHECK(octets_of(response) == hex("01020304 1112131415161718"));
  CHECK(wire::parse_atomic_response(hex("01020304 1112131415161718")) == response);
  CHECK_FALSE(wire::parse_atomic_response(hex("01020304 11121314151617")));
}

TEST_CASE("W-EXT-10: a Fetch and Add compares with nothing", "[wire][W-EXT-10]") {
  const auto octets = octets_of(wire::AtomicRequestHeader{.opcode = wire::AtomicOpcode::fetch_add, .data = 1});
  CHECK(test::copy_of(Bytes{octets}.subspan(36)) == hex("0000000000000000 ffffffffffffffff"));
}

TEST_CASE("W-EXT-11: Immediate Data are 8 octets", "[wire][W-EXT-11]") {
  CHECK(octets_of(wire::ImmediateHeader{.data = 0x0102030405060708}) == hex("0102030405060708"));
  CHECK(wire::parse_immediate(hex("0102030405060708"))->data == 0x0102030405060708);
  CHECK_FALSE(wire::parse_immediate(hex("01020304050607")));
}
