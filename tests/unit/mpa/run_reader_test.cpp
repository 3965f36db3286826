// FPDUs found beyond a gap: by markers, and by nothing else.
#include "mpa/run_reader.hpp"

#include <random>

#include "kit/catch.hpp"
#include "unit/mpa/fpdu_stream.hpp"

namespace {

using namespace rnic;
using mpa::Crc;
using mpa::Markers;
using mpa::RunReader;
using test::cut;
using test::FpduStream;
using Taken = RunReader::Taken;

struct Fpdu {
  std::uint64_t position;
  std::vector<std::byte> ulpdu;
  bool operator==(const Fpdu&) const = default;
};

std::vector<std::byte> octets_of(const mpa::SpanList& ulpdu) {
  std::vector<std::byte> out(ulpdu.size);
  ulpdu.copy(0, out);
  return out;
}

// What is found in octets [first, end) of the stream, cut into pieces of so many octets.
std::vector<Fpdu> found(const FpduStream& stream, std::size_t first, std::size_t end, std::size_t piece = 1448,
                        Crc crc = Crc::on) {
  const auto spans = cut(Bytes{stream.octets}.subspan(first, end - first), piece);
  RunReader reader(crc, spans, first);
  const auto ulpdu = std::make_unique<mpa::SpanList>();
  std::vector<Fpdu> out;
  while (const auto fpdu = reader.find()) {
    if (reader.take(*ulpdu) != Taken::valid) break;
    REQUIRE(fpdu->end() <= end);
    out.push_back({fpdu->position, octets_of(*ulpdu)});
  }
  return out;
}

// The FPDUs that lie in [first, end) from the first on to which a marker there points.
std::vector<Fpdu> expected(const FpduStream& stream, std::size_t first, std::size_t end) {
  std::vector<Fpdu> out;
  for (std::size_t i = 0; i < stream.ulpdus.size(); ++i) {
    const std::size_t start = i == 0 ? 0 : stream.ends[i - 1];
    if (start < first || stream.ends[i] > end) continue;
    // Known by a marker of its own, or by the chain from one that was.
    if (out.empty() && (start + 511) / 512 * 512 >= stream.ends[i]) continue;
    out.push_back({start, stream.ulpdus[i]});
  }
  return out;
}

FpduStream small_fpdus(std::size_t count, std::uint32_t ulpdu_size = 78) {
  FpduStream stream(Crc::on, Markers::inserted);
  for (std::size_t i = 0; i < count; ++i) stream.add(ulpdu_size);
  return stream;
}

}  // namespace

TEST_CASE("W-MPA-71: beyond a gap an FPDU is found by a marker in it, and those behind it by their lengths",
          "[mpa][W-MPA-71][W-TCP-09]") {
  const auto stream = small_fpdus(40);
  for (std::size_t first = 1; first < stream.octets.size(); first += 13)
    for (const std::size_t size : {50u, 511u, 600u, 1448u, 5000u}) {
      const std::size_t end = std::min(first + size, stream.octets.size());
      INFO("octets " << first << " to " << end);
      CHECK(found(stream, first, end) == expected(stream, first, end));
    }
}

TEST_CASE("W-MPA-71, W-TCP-05: the start of a segment is not taken for the start of an FPDU",
          "[mpa][W-MPA-71][W-TCP-05]") {
  const auto stream = small_fpdus(12);
  // The second FPDU begins and ends where the run does, and no marker is in it.
  REQUIRE(stream.ends[1] < 512);
  CHECK(found(stream, stream.ends[0], stream.ends[1]).empty());
  CHECK(found(stream, stream.ends[0], stream.ends[4]).empty());
}

TEST_CASE("W-MPA-63: beyond a gap a marker with FPDUPTR 0 opens the FPDU", "[mpa][W-MPA-63][W-MPA-71]") {
  FpduStream stream(Crc::on, Markers::inserted);
  stream.add(502);  // 512 octets: the next marker lies between the two
  stream.add(100);
  stream.add(30);
  CHECK(found(stream, 512, stream.octets.size()) ==
        std::vector<Fpdu>{{512, stream.ulpdus[1]}, {624, stream.ulpdus[2]}});
  // Without that marker its FPDU is not whole, and its header tells nothing.
  CHECK(found(stream, 513, stream.octets.size()).empty());
}

TEST_CASE("W-MPA-64: beyond a gap a marker before the CRC points to the FPDU that it ends",
          "[mpa][W-MPA-64][W-MPA-71]") {
  FpduStream stream(Crc::on, Markers::inserted);
  stream.add(100);  // 112 octets with the leading marker
  stream.add(398);  // 400 octets up to the marker at 512, and behind that the CRC: 112 to 520
  stream.add(30);
  REQUIRE(stream.ends[1] == 520);
  CHECK(found(stream, 112, stream.octets.size()) ==
        std::vector<Fpdu>{{112, stream.ulpdus[1]}, {520, stream.ulpdus[2]}});
}

TEST_CASE("W-MPA-62: beyond a gap FPDUPTR leads back to the FPDU, whatever markers it holds",
          "[mpa][W-MPA-62][W-MPA-71]") {
  FpduStream stream(Crc::on, Markers::inserted);
  stream.add(46);
  stream.add(3000);
  stream.add(46);
  // Any of its markers would do, but it is found only if its first octet is there.
  const auto first = stream.ends[0];
  CHECK(found(stream, first, stream.octets.size()).size() == 2);
  CHECK(found(stream, first + 1, stream.octets.size()).empty());
  CHECK(found(stream, 1024, stream.octets.size()).empty());
}

TEST_CASE("W-MPA-72: beyond a gap FPDUs are found whatever the segmentation", "[mpa][W-MPA-72][W-TCP-09]") {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    FpduStream stream(round % 2 == 0 ? Crc::on : Crc::off, Markers::inserted);
    while (stream.octets.size() < 20'000)
      stream.add(14 + static_cast<std::uint32_t>(random() % (round < 30 ? 300 : 3000)));
    const std::size_t first = 1 + random() % 10'000;
    const std::size_t end = first + random() % (stream.octets.size() - first);
    INFO("round " << round << ", octets " << first << " to " << end);
    const Crc crc = round % 2 == 0 ? Crc::on : Crc::off;
    const auto all = expected(stream, first, end);
    for (const std::size_t piece : {std::size_t{17}, std::size_t{512}, std::size_t{1448}, end - first + 1})
      CHECK(found(stream, first, end, piece, crc) == all);
  }
}

TEST_CASE("W-MPA-69: beyond a gap nothing is found through the length of an FPDU that is not valid",
          "[mpa][W-MPA-69][W-MPA-66]") {
  auto stream = small_fpdus(20);
  const std::size_t first = stream.ends[0];
  const auto all = found(stream, first, stream.octets.size());
  REQUIRE(all.size() > 10);
  SECTION("a bad CRC") { stream.octets[all[3].position + 30] ^= std::byte{1}; }
  SECTION("a marker that points elsewhere") {
    const std::size_t marker = (all[3].position / 512 + 1) * 512;
    const auto holder = std::find_if(all.begin(), all.end(), [&](const Fpdu& f) { return f.position + 88 > marker; });
    stream.octets[marker + 3] ^= std::byte{4};
    stream.packer.seal(MutableBytes{stream.octets}.subspan(holder->position, 92));
    std::vector<Fpdu> before(all.begin(), holder);
    CHECK(found(stream, first, stream.octets.size()) == before);
    return;
  }
  CHECK(found(stream, first, stream.octets.size()) == std::vector<Fpdu>(all.begin(), all.begin() + 3));
}

TEST_CASE("W-MPA-69: after an FPDU that is not valid a run is read no further, though others follow",
          "[mpa][W-MPA-69][W-MPA-66]") {
  auto stream = small_fpdus(20);
  const std::size_t first = stream.ends[0];
  const auto all = found(stream, first, stream.octets.size());
  REQUIRE(all.size() > 10);
  stream.octets[all[3].position + 30] ^= std::byte{1};
  const auto spans = cut(Bytes{stream.octets}.subspan(first), 1448);
  RunReader reader(Crc::on, spans, first);
  const auto ulpdu = std::make_unique<mpa::SpanList>();
  for (int i = 0; i < 3; ++i) {
    REQUIRE(reader.find());
    REQUIRE(reader.take(*ulpdu) == Taken::valid);
  }
  REQUIRE(reader.find()->position == all[3].position);
  REQUIRE(reader.take(*ulpdu) == Taken::invalid);
  CHECK_FALSE(reader.find());
  CHECK_FALSE(reader.find());
}

TEST_CASE("W-MPA-55: beyond a gap a ULPDU_Length above 64768 is none", "[mpa][W-MPA-55]") {
  auto stream = small_fpdus(20);
  const auto all = found(stream, stream.ends[0], stream.octets.size());
  REQUIRE(all.size() > 2);
  store_be<std::uint16_t>(MutableBytes{stream.octets}, all[1].position, 64769);
  CHECK(found(stream, stream.ends[0], stream.octets.size()).size() == 1);
}

TEST_CASE("W-TCP-09: reading a run goes on behind what was read before", "[mpa][W-TCP-09]") {
  const auto stream = small_fpdus(20);
  const auto all = found(stream, 1, stream.octets.size());
  const auto spans = cut(Bytes{stream.octets}.subspan(1), 700);
  RunReader reader(Crc::on, spans, 1);
  REQUIRE(reader.find()->position == all[0].position);
  reader.go_on_at(all[5].position);
  const auto next = reader.find();
  REQUIRE(next);
  CHECK(next->position == all[5].position);
  const auto ulpdu = std::make_unique<mpa::SpanList>();
  CHECK(reader.take(*ulpdu) == Taken::valid);
  CHECK(octets_of(*ulpdu) == all[5].ulpdu);
}

TEST_CASE("W-TCP-09: an FPDU in too many pieces is valid, and left for its turn", "[mpa][W-TCP-09]") {
  FpduStream stream(Crc::on, Markers::inserted);
  stream.add(30);
  stream.add(1000);
  stream.add(30);
  const auto spans = cut(Bytes{stream.octets}.subspan(stream.ends[0]), 4);
  RunReader reader(Crc::on, spans, stream.ends[0]);
  const auto ulpdu = std::make_unique<mpa::SpanList>();
  REQUIRE(reader.find());
  CHECK(reader.take(*ulpdu) == Taken::scattered);
  REQUIRE(reader.find());
  CHECK(reader.take(*ulpdu) == Taken::valid);
  CHECK(octets_of(*ulpdu) == stream.ulpdus[2]);
}

TEST_CASE("W-TCP-21: positions beyond 2^32 change nothing", "[mpa][W-TCP-21]") {
  // The same octets 2^32 octets further on: 512 divides that.
  const auto stream = small_fpdus(20);
  const std::uint64_t far = std::uint64_t{1} << 32;
  const auto spans = cut(Bytes{stream.octets}.subspan(100), 1448);
  RunReader near(Crc::on, spans, 100), beyond(Crc::on, spans, far + 100);
  const auto ulpdu = std::make_unique<mpa::SpanList>();
  int count = 0;
  for (auto fpdu = near.find(); fpdu; fpdu = near.find(), ++count) {
    const auto other = beyond.find();
    REQUIRE(other);
    CHECK(other->position == far + fpdu->position);
    REQUIRE(near.take(*ulpdu) == Taken::valid);
    REQUIRE(beyond.take(*ulpdu) == Taken::valid);
  }
  CHECK(count > 10);
}
