// Complete octet strings that a packet analyser and a second decoder agree with: each is made by
// our codecs from its field values, and read back to them.
#include <memory>

#include "kit/catch.hpp"
#include "kit/hex.hpp"
#include "mpa/framer.hpp"
#include "mpa/packer.hpp"
#include "wire/atomic.hpp"
#include "wire/ddp.hpp"
#include "wire/mpa.hpp"
#include "wire/rdmap.hpp"
#include "wire/terminate.hpp"

namespace {

using namespace rnic;
using mpa::Crc;
using mpa::Markers;
using test::hex;

template <typename Header>
std::vector<std::byte> octets_of(const Header& header) {
  std::vector<std::byte> out(Header::kSize);
  emit(header, out);
  return out;
}

std::vector<std::byte> joined(std::vector<std::byte> first, Bytes second) {
  test::append(first, second);
  return first;
}

// One FPDU, header and payload, as the packer makes it.
std::vector<std::byte> packed(mpa::Packer packer, Bytes header, Bytes payload) {
  const auto size = static_cast<std::uint32_t>(payload.size());
  std::vector<std::byte> room(packer.octets_for(static_cast<std::uint32_t>(header.size()) + size));
  const auto pieces = std::make_unique<mpa::PieceList>();
  REQUIRE(packer.begin(room, header, size, *pieces) == room.size());
  for (std::uint32_t i = 0; i < pieces->count; ++i) {
    std::copy_n(payload.begin(), pieces->pieces[i].size(), pieces->pieces[i].begin());
    payload = payload.subspan(pieces->pieces[i].size());
  }
  CHECK(payload.empty());
  packer.seal(room);
  return room;
}

// The ULPDU of one FPDU, as the framer finds it.
std::vector<std::byte> framed(mpa::Framer framer, Bytes fpdu) {
  const Bytes stream[] = {fpdu};
  mpa::Cursor at(stream);
  const auto ulpdu = std::make_unique<mpa::SpanList>();
  const auto found = framer.next(at, *ulpdu);
  REQUIRE(found.has_value());
  REQUIRE(found->has_value());
  CHECK((*found)->octets == fpdu.size());
  CHECK(at.here().empty());
  std::vector<std::byte> octets(ulpdu->size);
  ulpdu->copy(0, octets);
  return octets;
}

// A golden FPDU is what we make of header and payload, and gives both back.
void check_fpdu(std::string_view golden, Bytes header, Bytes payload, Crc crc = Crc::on,
                Markers markers = Markers::none) {
  CHECK(packed({crc, markers}, header, payload) == hex(golden));
  CHECK(framed({crc, markers}, hex(golden)) == joined(test::copy_of(header), payload));
}

std::vector<std::byte> untagged(std::uint8_t control, std::uint32_t queue, std::uint32_t msn, std::uint32_t offset = 0,
                                std::uint32_t invalidate = 0) {
  const wire::UntaggedHeader header{.last = true,
                                    .rdmap_control = control,
                                    .invalidate = {invalidate},
                                    .queue = queue,
                                    .msn = msn,
                                    .message_offset = offset};
  const auto octets = octets_of(header);
  CHECK(wire::parse_untagged(octets) == header);
  return octets;
}

}  // namespace

TEST_CASE("W-MPA-01, W-MPA-27: the golden startup frames", "[wire][golden][W-MPA-01][W-MPA-27]") {
  const auto request_v1 = hex("4d504120494420526571204672616d654001000668656c6c6f21");
  const wire::StartupHeader v1{.crc = true, .revision = 1, .private_data_length = 6};
  CHECK(joined(octets_of(v1), test::text("hello!")) == request_v1);
  CHECK(wire::parse_startup(request_v1) == v1);

  const auto reply_v1 = hex("4d504120494420526570204672616d6540010000");
  const wire::StartupHeader reply{.reply = true, .crc = true, .revision = 1};
  CHECK(octets_of(reply) == reply_v1);
  CHECK(wire::parse_startup(reply_v1) == reply);

  const auto request_v2 = hex("4d504120494420526571204672616d65500200048010c020");
  const wire::StartupHeader v2{.crc = true, .enhanced = true, .revision = 2, .private_data_length = 4};
  const wire::EnhancedBlock block{.peer_to_peer = true, .rtr_write = true, .rtr_read = true, .ird = 16, .ord = 32};
  CHECK(joined(octets_of(v2), octets_of(block)) == request_v2);
  CHECK(wire::parse_startup(request_v2) == v2);
  CHECK(wire::parse_enhanced(Bytes{request_v2}.subspan(20)) == block);
}

TEST_CASE("W-MPA-50, W-DDP-07: the golden RDMA Write", "[wire][golden][W-MPA-50][W-DDP-07]") {
  const wire::TaggedHeader header{
      .last = true, .rdmap_control = 0x40, .stag = {0x12345678}, .tagged_offset = 0x7F0011223344};
  check_fpdu("001ec1401234567800007f0011223344101112131415161718191a1b1c1d1e1f1787eefc", octets_of(header),
             hex("101112131415161718191a1b1c1d1e1f"));
  CHECK(wire::parse_tagged(octets_of(header)) == header);
}

TEST_CASE("W-RDMAP-09, W-MPA-45: the golden Read Requests", "[wire][golden][W-RDMAP-09][W-MPA-45]") {
  const wire::ReadRequestHeader request{.sink_stag = {0xCAFE0001},
                                        .sink_to = 0x1000,
                                        .size_bytes = 4096,
                                        .source_stag = {0xBEEF0002},
                                        .source_to = 0x200000};
  check_fpdu("002e414100000000000000010000000100000000cafe0001000000000000100000001000beef0002000000000020000007af6c12",
             joined(untagged(0x41, 1, 1), octets_of(request)), {});
  const wire::ReadRequestHeader rtr{.source_stag = {1}};
  check_fpdu("002e41410000000000000001000000010000000000000000000000000000000000000000000000010000000000000000ba10e3c9",
             joined(untagged(0x41, 1, 1), octets_of(rtr)), {});
}

TEST_CASE("W-MPA-52, W-RDMAP-15: the golden Sends, with each pad", "[wire][golden][W-MPA-52][W-RDMAP-15]") {
  check_fpdu("001741430000000000000000000000010000000052444d41000000007b2f44ff", untagged(0x43, 0, 1),
             hex("52444d4100"));
  check_fpdu("00184145000000000000000000000003000005a2303132333435000020fc8a54", untagged(0x45, 0, 3, 1442),
             hex("303132333435"));
  check_fpdu("00194146feedc0de0000000000000004000000004041424344454600f303bc9b", untagged(0x46, 0, 4, 0, 0xFEEDC0DE),
             hex("40414243444546"));
}

TEST_CASE("W-RDMAP-25, W-RDMAP-28: the golden Terminates", "[wire][golden][W-RDMAP-25][W-RDMAP-28]") {
  const auto check = [](std::string_view golden, const wire::TerminateMessage& message) {
    std::vector<std::byte> octets(wire::terminate_size(message));
    emit(message, octets);
    check_fpdu(golden, joined(untagged(0x47, 2, 1), octets), {});
    CHECK(wire::parse_terminate(Bytes{hex(golden)}.subspan(20, octets.size())) == message);
  };
  wire::TerminateMessage of_write{.code = wire::terminate_code::kTaggedBaseOrBounds,
                                  .has_length = true,
                                  .segment_length = 46,
                                  .ddp_header_size = 14};
  emit(wire::TaggedHeader{.last = true, .rdmap_control = 0x40, .stag = {0xDEAD0001}, .tagged_offset = 0x9000},
       of_write.ddp_header);
  check("00264147000000000000000200000001000000001101c000002ec140dead0001000000000000900025256a63", of_write);
  check("0016414700000000000000020000000100000000200600006540fb1b",
        {.code = wire::terminate_code::kMpaInsufficientIrd});
}

TEST_CASE("W-EXT-09, W-EXT-11: the golden Immediate Data and Atomic Request", "[wire][golden][W-EXT-09][W-EXT-11]") {
  check_fpdu("001a4149000000000000000000000006000000000102030405060708a0a022b9",
             joined(untagged(0x49, 0, 6), octets_of(wire::ImmediateHeader{.data = 0x0102030405060708})), {});
  const wire::AtomicRequestHeader add{.opcode = wire::AtomicOpcode::fetch_add,
                                      .request_id = 0x01020304,
                                      .stag = {0xABCD0042},
                                      .tagged_offset = 0x7F0000001008,
                                      .data = 1};
  check_fpdu(
      "0046414a000000000000000100000002000000000000000001020304abcd004200007f0000001008000000000000000100000000000000"
      "000000000000000000ffffffffffffffff75e07c7d",
      joined(untagged(0x4A, 1, 2), octets_of(add)), {});
}

TEST_CASE("W-EXT-09: the golden Atomic Request with masks", "[wire][golden][W-EXT-02][W-EXT-09]") {
  const wire::AtomicRequestHeader swap{.opcode = wire::AtomicOpcode::compare_swap,
                                       .request_id = 0x01020305,
                                       .stag = {0xABCD0042},
                                       .tagged_offset = 0x7F0000001008,
                                       .data = 0xAB00,
                                       .data_mask = 0xFF00,
                                       .compare = 0x1100000000000022,
                                       .compare_mask = 0xFF000000000000FF};
  check_fpdu(
      "0046414a000000000000000100000003000000000000000201020305abcd004200007f0000001008000000000000ab00000000000000ff00"
      "1100000000000022ff000000000000ff3bd8ea47",
      joined(untagged(0x4A, 1, 3), octets_of(swap)), {});
}

TEST_CASE("W-MPA-53: the golden FPDU without CRC ends in zeros", "[wire][golden][W-MPA-53]") {
  check_fpdu("001e414300000000000000000000000100000000000102030405060708090a0b00000000", untagged(0x43, 0, 1),
             hex("000102030405060708090a0b"), Crc::off);
}

TEST_CASE("W-MPA-61, W-MPA-63: the golden FPDUs with markers", "[wire][golden][W-MPA-61][W-MPA-63]") {
  check_fpdu("00000000002a41430000000000000000000000010000000000000000000000000000000000000000000000000000000052239983",
             untagged(0x43, 0, 1), std::vector<std::byte>(24), Crc::on, Markers::inserted);

  // The second one stands at position 512: a first FPDU that ends there, then it.
  mpa::Packer packer(Crc::on, Markers::inserted);
  const auto pieces = std::make_unique<mpa::PieceList>();
  std::vector<std::byte> first(512);
  REQUIRE(packer.begin(first, untagged(0x43, 0, 1), 502 - 18, *pieces) == 512);
  packer.seal(first);
  const auto golden = hex("000000000016414300000000000000000000000200000000000102034d532bb3");
  CHECK(packed(packer, untagged(0x43, 0, 2), hex("00010203")) == golden);

  mpa::Framer framer(Crc::on, Markers::expected);
  const Bytes stream[] = {first, golden};
  mpa::Cursor at(stream);
  const auto ulpdu = std::make_unique<mpa::SpanList>();
  REQUIRE(framer.next(at, *ulpdu)->has_value());
  CHECK(framer.position() == 512);
  const auto second = framer.next(at, *ulpdu);
  REQUIRE(second->has_value());
  CHECK(ulpdu->size == 22);
  CHECK(at.here().empty());
}
