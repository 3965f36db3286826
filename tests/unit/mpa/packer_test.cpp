// How FPDUs lie in segments, with and without markers.
#include "mpa/packer.hpp"

#include <memory>

#include "kit/catch.hpp"
#include "kit/hex.hpp"

namespace {

using namespace rnic;
using mpa::Crc;
using mpa::MarkedFpdu;
using mpa::Markers;

// A stream that has come to `position`.
mpa::Packer packer_at(std::uint32_t position, Crc crc = Crc::on) {
  mpa::Packer packer(crc, Markers::inserted);
  const auto pieces = std::make_unique<mpa::PieceList>();
  std::vector<std::byte> room(70000);
  const std::byte one[1] = {};
  while (packer.position() < position) {
    const auto left = static_cast<std::uint32_t>(position - packer.position());
    // Never leaves less than an FPDU needs.
    const std::uint32_t size = packer.ulpdu_that_fits(left <= 1024 ? left : left - 512);
    REQUIRE(size != 0);
    packer.begin(room, one, size - 1, *pieces);
  }
  REQUIRE(packer.position() == position);
  return packer;
}

}  // namespace

TEST_CASE("W-MPA-57: MULPDU follows from the EMSS", "[mpa][W-MPA-57]") {
  struct Row {
    std::uint32_t emss, plain, marked;
  };
  for (const Row& row : {Row{536, 530, 522}, Row{1448, 1442, 1430}, Row{1460, 1454, 1442}, Row{8948, 8942, 8870},
                         Row{8960, 8954, 8882}}) {
    CHECK(mpa::mulpdu(row.emss, Markers::none) == row.plain);
    CHECK(mpa::mulpdu(row.emss, Markers::inserted) == row.marked);
  }
  // EMSS mod 4 is left unused.
  CHECK(mpa::mulpdu(1463, Markers::none) == 1454);
}

TEST_CASE("W-MPA-58: MULPDU is never below 128 nor above 64768", "[mpa][W-MPA-58]") {
  CHECK(mpa::mulpdu(140, Markers::none) == 134);
  CHECK(mpa::mulpdu(136, Markers::none) == 130);
  CHECK(mpa::mulpdu(132, Markers::none) == 128);
  CHECK(mpa::mulpdu(0, Markers::none) == 128);
  CHECK(mpa::mulpdu(144, Markers::inserted) == 134);
  CHECK(mpa::mulpdu(140, Markers::inserted) == 130);
  CHECK(mpa::mulpdu(136, Markers::inserted) == 128);
  CHECK(mpa::mulpdu(64774, Markers::none) == 64766);
  CHECK(mpa::mulpdu(64776, Markers::none) == 64768);
  CHECK(mpa::mulpdu(65535, Markers::none) == 64768);
}

TEST_CASE("W-MPA-57: an FPDU of MULPDU fits the EMSS, wherever the markers fall", "[mpa][W-MPA-57]") {
  for (const std::uint32_t emss : {140u, 536u, 1448u, 1460u, 8948u, 8960u}) {
    CHECK(wire::fpdu_size(mpa::mulpdu(emss, Markers::none)) <= emss);
    for (std::uint64_t position = 0; position < 512; position += 4)
      REQUIRE(mpa::marked_fpdu(position, mpa::mulpdu(emss, Markers::inserted)).octets <= emss);
  }
}

TEST_CASE("W-MPA-61, W-MPA-62: markers stand at multiples of 512 and point to ULPDU_Length",
          "[mpa][W-MPA-05][W-MPA-50][W-MPA-61][W-MPA-62][W-MPA-63][W-MPA-64][W-MPA-65]") {
  std::vector<std::byte> room(2000, std::byte{0xEE});
  const auto pieces = std::make_unique<mpa::PieceList>();
  const auto header = test::pattern(18);
  const auto marker = [&room](std::size_t at) { return load_be<std::uint32_t>(room, at); };

  SECTION("three markers, the first before the FPDU") {
    mpa::Packer packer(Crc::on, Markers::inserted);
    CHECK(packer.begin(room, header, 1000, *pieces) == 1036);
    CHECK(marker(0) == 0);
    CHECK(load_be<std::uint16_t>(room, 4) == 1018);
    CHECK(marker(512) == 508);
    CHECK(marker(1024) == 1020);
    REQUIRE(pieces->count == 3);
    CHECK(pieces->pieces[0].data() == room.data() + 24);
    CHECK(pieces->pieces[0].size() == 488);
    CHECK(pieces->pieces[1].data() == room.data() + 516);
    CHECK(pieces->pieces[1].size() == 508);
    CHECK(pieces->pieces[2].data() == room.data() + 1028);
    CHECK(pieces->pieces[2].size() == 4);
  }
  SECTION("one right behind the pad belongs to the FPDU") {
    mpa::Packer packer(Crc::on, Markers::inserted);
    CHECK(packer.begin(room, header, 506 - 18, *pieces) == 520);
    CHECK(marker(512) == 508);
    CHECK(pieces->count == 1);
    packer.seal(MutableBytes{room}.first(520));
    CHECK(wire::load_crc(room, 516) == wire::crc32c(Bytes{room}.first(516)));
  }
  SECTION("one between two FPDUs belongs to the second") {
    auto packer = packer_at(512);
    CHECK(packer.begin(room, header, 4, *pieces) == 32);
    CHECK(marker(0) == 0);
    CHECK(load_be<std::uint16_t>(room, 4) == 22);
  }
  SECTION("one in the middle of the DDP header") {
    auto packer = packer_at(492);
    CHECK(packer.begin(room, test::pattern(42), 0, *pieces) == 52);
    CHECK(load_be<std::uint16_t>(room, 0) == 42);
    CHECK(marker(20) == 20);
    CHECK(pieces->count == 0);
  }
  SECTION("one in the middle of the DDP header, at its closest") {
    auto packer = packer_at(508);
    CHECK(packer.begin(room, header, 2, *pieces) == 32);
    CHECK(marker(4) == 4);
    CHECK(test::copy_of(Bytes{room}.subspan(2, 2)) == test::copy_of(Bytes{header}.first(2)));
    CHECK(test::copy_of(Bytes{room}.subspan(8, 16)) == test::copy_of(Bytes{header}.subspan(2)));
  }
}

TEST_CASE("W-MPA-61: sizes are those of the worked examples", "[mpa][W-MPA-61]") {
  CHECK(mpa::marked_fpdu(0, 42) == MarkedFpdu{4, 1, 52});
  CHECK(mpa::marked_fpdu(492, 42) == MarkedFpdu{0, 1, 52});
  CHECK(mpa::marked_fpdu(0, 1018) == MarkedFpdu{4, 3, 1036});
  CHECK(mpa::marked_fpdu(1036, 714) == MarkedFpdu{0, 1, 724});
  CHECK(mpa::marked_fpdu(0, 506) == MarkedFpdu{4, 2, 520});
  CHECK(mpa::marked_fpdu(0, 502) == MarkedFpdu{4, 1, 512});
  // Positions go on past 2^32, where a multiple of 512 is still one.
  CHECK(mpa::marked_fpdu((std::uint64_t{1} << 32) + 492, 42) == MarkedFpdu{0, 1, 52});
}

TEST_CASE("W-MPA-50: length, header, payload, pad and CRC stand in this order", "[mpa][W-MPA-50][W-MPA-54]") {
  const auto header = test::pattern(14);
  const auto pieces = std::make_unique<mpa::PieceList>();
  std::vector<std::byte> room(100, std::byte{0xEE});
  mpa::Packer packer(Crc::on, Markers::none);
  CHECK(packer.octets_for(14) == 20);
  CHECK(packer.begin(room, header, 0, *pieces) == 20);
  CHECK(load_be<std::uint16_t>(room, 0) == 14);
  CHECK(std::equal(header.begin(), header.end(), room.begin() + 2));
  CHECK(pieces->count == 0);
  CHECK(room[20] == std::byte{0xEE});
  CHECK(packer.position() == 20);
  CHECK(packer.begin(room, header, 9, *pieces) == 32);
  CHECK(load_be<std::uint16_t>(room, 0) == 23);
  REQUIRE(pieces->count == 1);
  CHECK(pieces->pieces[0].data() == room.data() + 16);
  CHECK(pieces->pieces[0].size() == 9);
  packer.seal(MutableBytes{room}.first(32));
  CHECK(wire::load_crc(room, 28) == wire::crc32c(Bytes{room}.first(28)));
  CHECK(packer.position() == 52);
}

TEST_CASE("W-MPA-52, W-MPA-53: pad is sent as 0, and so is the CRC field when it is not in use",
          "[mpa][W-MPA-52][W-MPA-53]") {
  const auto header = test::pattern(14);
  const auto pieces = std::make_unique<mpa::PieceList>();
  for (const Markers markers : {Markers::none, Markers::inserted}) {
    for (std::uint32_t payload = 1; payload <= 4; ++payload) {
      mpa::Packer packer(Crc::off, markers);
      std::vector<std::byte> room(40, std::byte{0xEE});
      const auto octets = packer.begin(room, header, payload, *pieces);
      const auto pad = wire::fpdu_pad(14 + payload);
      packer.seal(MutableBytes{room}.first(octets));
      for (std::uint32_t i = octets - 4 - pad; i < octets; ++i) CHECK(room[i] == std::byte{0});
      CHECK(room[octets] == std::byte{0xEE});
      CHECK(pieces->pieces[0].data() + payload == room.data() + octets - 4 - pad);
    }
  }
}

TEST_CASE("W-MPA-88: what fits in the room left is found exactly", "[mpa][W-MPA-88]") {
  const mpa::Packer plain(Crc::on, Markers::none);
  CHECK(plain.ulpdu_that_fits(7) == 0);
  CHECK(plain.ulpdu_that_fits(8) == 2);
  CHECK(plain.ulpdu_that_fits(1463) == 1454);
  CHECK(plain.ulpdu_that_fits(64776) == 64768);
  CHECK(plain.ulpdu_that_fits(64775) == 64766);
  CHECK(plain.ulpdu_that_fits(70000) == 64768);
  CHECK(packer_at(520).ulpdu_that_fits(65284) == 64768);
  CHECK(packer_at(520).ulpdu_that_fits(65283) == 64766);
  const mpa::Packer marked(Crc::on, Markers::inserted);
  CHECK(marked.ulpdu_that_fits(65288) == 64768);
  CHECK(marked.ulpdu_that_fits(65287) == 64766);
  for (const std::uint32_t position : {0u, 492u, 508u, 512u, 1036u}) {
    const auto packer = packer_at(position);
    for (std::uint32_t room = 0; room < 2200; ++room) {
      const auto size = packer.ulpdu_that_fits(room);
      if (size != 0) REQUIRE(packer.octets_for(size) <= room);
      REQUIRE(packer.octets_for(size + 1) > room);
    }
  }
}

TEST_CASE("W-MPA-51: an FPDU that is taken back leaves the stream as it was", "[mpa][W-MPA-51]") {
  auto packer = packer_at(1036);
  std::vector<std::byte> room(2000);
  const auto pieces = std::make_unique<mpa::PieceList>();
  const auto octets = packer.begin(room, test::pattern(14), 700, *pieces);
  CHECK(packer.position() == 1036 + 724);
  packer.take_back(octets);
  CHECK(packer.position() == 1036);
}

TEST_CASE("W-MPA-67: a CRC that is taken while the payload is copied is the one that seal() writes",
          "[mpa][W-MPA-67]") {
  const std::vector<std::byte> header(14, std::byte{0x41});
  for (const std::uint32_t size : {512u, 513u, 514u, 515u, 1446u, 60'000u}) {
    INFO(size);
    mpa::Packer packer(Crc::on, Markers::none);
    mpa::PieceList pieces;
    std::vector<std::byte> octets(packer.octets_for(14 + size)), payload(size, std::byte{0x77});
    const MutableBytes fpdu{octets};
    packer.begin(fpdu, header, size, pieces);
    REQUIRE(packer.sums_payload(size));
    wire::Crc32c crc = mpa::Packer::sum_before(fpdu, pieces.pieces[0]);
    crc.add_copied(Bytes{payload}.first(100), pieces.pieces[0].first(100));
    crc.add_copied(Bytes{payload}.subspan(100), pieces.pieces[0].subspan(100));
    mpa::Packer::seal(fpdu, pieces.pieces[0], crc);
    const auto summed = octets;
    packer.seal(fpdu);
    CHECK(octets == summed);
    CHECK(wire::load_crc(octets, octets.size() - 4) == wire::crc32c(Bytes{octets}.first(octets.size() - 4)));
  }
  CHECK_FALSE(mpa::Packer(Crc::off, Markers::none).sums_payload(1000));
  CHECK_FALSE(mpa::Packer(Crc::on, Markers::inserted).sums_payload(1000));
}
