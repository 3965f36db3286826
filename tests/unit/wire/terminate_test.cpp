// The Terminate message.
#include "wire/terminate.hpp"
#include "wire/terminate_of_siw.hpp"

#include <algorithm>
#include <string>
#include <string_view>

#include "kit/catch.hpp"
#include "kit/hex.hpp"

namespace {

using namespace rnic;
using test::hex;
using wire::TerminateMessage;

std::vector<std::byte> octets_of(const TerminateMessage& message) {
  std::vector<std::byte> out(wire::terminate_size(message));
  CHECK(emit(message, out) == out.size());
  return out;
}

TerminateMessage with_header(Bytes header) {
  TerminateMessage message{.code = wire::terminate_code::kTaggedBaseOrBounds,
                           .has_length = true,
                           .segment_length = 46,
                           .ddp_header_size = static_cast<std::uint8_t>(header.size())};
  std::copy(header.begin(), header.end(), message.ddp_header.begin());
  return message;
}

}  // namespace

TEST_CASE("W-RDMAP-24: layer, type, code and the header bits are where the figure has them",
          "[wire][W-RDMAP-24][W-RDMAP-36]") {
  CHECK(octets_of({.code = wire::terminate_code::kMpaInsufficientIrd}) == hex("20060000"));
  CHECK(octets_of({.code = wire::terminate_code::kProtectionToWrap, .has_length = true, .segment_length = 0x1234}) ==
        hex("01048000 1234"));
  CHECK(wire::terminate_code::kUntaggedTooLong.word() == 0x1205);
}

TEST_CASE("W-RDMAP-24: reserved bits of a Terminate are not looked at", "[wire][W-RDMAP-24]") {
  const auto with_bits = [](std::string_view flags) {
    auto octets = hex("2006" + std::string(flags));
    octets.resize(TerminateMessage::kSizeMax);  // room for all headers
    return wire::parse_terminate(octets);
  };
  CHECK(with_bits("0000") == TerminateMessage{.code = wire::terminate_code::kMpaInsufficientIrd});
  for (const std::string_view flags : {"1000", "0800", "0400", "0200", "0100", "00ff", "1fff"})
    CHECK(with_bits(flags) == with_bits("0000"));
}

TEST_CASE("W-RDMAP-25: the terminated header is 14 octets or 18 by its own T bit", "[wire][W-RDMAP-25]") {
  const auto tagged = hex("c140 dead0001 0000000000009000");
  const auto untagged = hex("4143 00000000 00000000 00000001 00000000");
  for (const auto& header : {tagged, untagged}) {
    const auto message = with_header(header);
    const auto octets = octets_of(message);
    CHECK(octets.size() == 6 + header.size());
    CHECK(octets[2] == std::byte{0xC0});
    CHECK(wire::parse_terminate(octets) == message);
  }
}

TEST_CASE("W-RDMAP-26: a refused Read Request is returned with its RDMAP header", "[wire][W-RDMAP-26]") {
  auto message = with_header(hex("4141 00000000 00000001 00000001 00000000"));
  message.code = wire::terminate_code::kProtectionInvalidStag;
  message.has_read_request = true;
  emit(wire::ReadRequestHeader{.sink_stag = {1}, .size_bytes = 2, .source_stag = {3}}, message.read_request);
  const auto octets = octets_of(message);
  CHECK(octets.size() == 52);
  CHECK(octets[2] == std::byte{0xE0});
  CHECK(wire::parse_terminate(octets) == message);
}

TEST_CASE("W-RDMAP-33: any code is taken", "[wire][W-RDMAP-33]") {
  const auto message = wire::parse_terminate(hex("fefd0000"));
  REQUIRE(message);
  CHECK(message->code == wire::TerminateCode{0xF, 0xE, 0xFD});
}

TEST_CASE("W-RDMAP-33: headers that are announced but not there are taken for absent", "[wire][W-RDMAP-33]") {
  const auto full =
      hex("0100e000 002e 4141 00000000 00000001 00000001 00000000"
          "00000001 0000000000000000 00000002 00000003 0000000000000000");
  REQUIRE(full.size() == TerminateMessage::kSizeMax);
  for (std::size_t size = 0; size <= full.size(); ++size) {
    // A copy of just this size, so that a sanitizer sees a read past its end.
    const std::vector<std::byte> cut(full.begin(), full.begin() + static_cast<std::ptrdiff_t>(size));
    const auto message = wire::parse_terminate(cut);
    REQUIRE(message.has_value() == (size >= 4));
    if (!message) continue;
    CHECK(message->code == wire::terminate_code::kProtectionInvalidStag);
    CHECK(message->has_length == (size >= 6));
    CHECK(message->ddp_header_size == (size >= 24 ? 18 : 0));
    CHECK(message->has_read_request == (size >= 52));
  }
  // R alone, right behind the first word; D without M.
  CHECK_FALSE(wire::parse_terminate(hex("01002000"))->has_read_request);
  const auto d_only = wire::parse_terminate(hex("01004000 002e c140 dead0001 0000000000009000"));
  CHECK(d_only->ddp_header_size == 14);
  CHECK_FALSE(d_only->has_length);
}

TEST_CASE("siw's Terminate is read as siw writes it", "[wire][peer]") {
  // From the wire, Linux 6.1: a Read Request refused for its STag, 0/1/00 with M, D and R.
  const auto refused =
      hex("1000070000004141000000000000000100000bb800000000"
          "c9c47233000055d8c1b6e00000000bb81dbc15000000559905cbc010");
  const auto message = wire::parse_terminate_of_siw(refused);
  REQUIRE(message);
  CHECK(message->code == wire::terminate_code::kProtectionInvalidStag);
  CHECK(message->has_length);
  CHECK(message->ddp_header_size == wire::UntaggedHeader::kSize);
  REQUIRE(message->has_read_request);
  const auto request = wire::parse_read_request(message->read_request);
  REQUIRE(request);
  CHECK(request->sink_stag == Stag{0xc9c47233});
  CHECK(request->size_bytes == 3000);

  // What lies as the RFC says, or has no header at all, is not siw's.
  auto other = refused;
  other[2] = std::byte{0x80};
  CHECK_FALSE(wire::parse_terminate_of_siw(other));
  other[2] = std::byte{0x08};
  CHECK_FALSE(wire::parse_terminate_of_siw(other));
  other[2] = std::byte{0};
  CHECK_FALSE(wire::parse_terminate_of_siw(other));
  CHECK_FALSE(wire::parse_terminate_of_siw(Bytes(refused).first(3)));
  // No octet past the end is read.
  const auto cut = wire::parse_terminate_of_siw(Bytes(refused).first(10));
  REQUIRE(cut);
  CHECK(cut->ddp_header_size == 0);
  CHECK_FALSE(cut->has_read_request);
}
