// FPDUs found in a stream, however TCP cut it.
#include "mpa/framer.hpp"

#include <memory>

#include "kit/catch.hpp"
#include "unit/mpa/fpdu_stream.hpp"

namespace {

using namespace rnic;
using mpa::Crc;
using mpa::FramingError;
using mpa::Markers;
using test::cut;
using Stream = test::FpduStream;

struct Receiver {
  Receiver(Crc crc, Markers markers) : framer(crc, markers) {}
  // What is there, but no more than one FPDU.
  Result<std::optional<mpa::Fpdu>, FramingError> next(mpa::Cursor& at) { return framer.next(at, *ulpdu); }
  std::vector<std::byte> octets() const {
    std::vector<std::byte> out(ulpdu->size);
    ulpdu->copy(0, out);
    return out;
  }
  mpa::Framer framer;
  std::unique_ptr<mpa::SpanList> ulpdu = std::make_unique<mpa::SpanList>();
};

// Every ULPDU of the stream, and nothing else, comes out of these spans.
void check_all(const Stream& stream, const std::vector<Bytes>& spans, Crc crc, Markers markers) {
  Receiver r(crc, markers);
  mpa::Cursor at(spans);
  for (std::size_t i = 0; i < stream.ulpdus.size(); ++i) {
    const auto found = r.next(at);
    REQUIRE(found.has_value());
    REQUIRE(found->has_value());
    REQUIRE(r.octets() == stream.ulpdus[i]);
    REQUIRE(r.framer.position() == stream.ends[i]);
    if ((*found)->stored) r.framer.release_store();
  }
  CHECK_FALSE((*r.next(at)).has_value());
  CHECK_FALSE(mpa::Framer::ends_inside(at));
}

constexpr std::uint32_t kSizes[] = {14, 15, 16, 17, 18, 46, 502, 506, 714, 1018, 1442, 1454, 5000};

Stream stream_of(Crc crc, Markers markers) {
  Stream stream(crc, markers);
  for (int round = 0; round < 3; ++round)
    for (const auto size : kSizes) stream.add(size);
  return stream;
}

// One FPDU with a Send of 24 octets; the octet `broken` has one bit flipped.
Result<std::optional<mpa::Fpdu>, FramingError> with_flipped(std::size_t broken, Crc crc) {
  Stream stream(crc, Markers::none);
  stream.add(42);
  stream.octets[broken] ^= std::byte{0x10};
  const std::vector<Bytes> spans{stream.octets};
  Receiver r(crc, Markers::none);
  mpa::Cursor at(spans);
  return r.next(at);
}

}  // namespace

TEST_CASE("W-MPA-72, W-TCP-05: FPDUs are found whatever the segmentation, without markers",
          "[mpa][W-MPA-72][W-MPA-56][W-TCP-05]") {
  for (const Crc crc : {Crc::on, Crc::off}) {
    const auto stream = stream_of(crc, Markers::none);
    for (const std::size_t size : {1u, 2u, 3u, 4u, 7u, 100u, 512u, 1448u, 100000u})
      check_all(stream, cut(stream.octets, size), crc, Markers::none);
  }
}

TEST_CASE("W-MPA-72, W-TCP-05, W-MPA-61: FPDUs are found whatever the segmentation, with markers",
          "[mpa][W-MPA-72][W-TCP-05][W-MPA-56][W-MPA-61][W-MPA-62][W-MPA-63][W-MPA-64]") {
  for (const Crc crc : {Crc::on, Crc::off}) {
    const auto stream = stream_of(crc, Markers::inserted);
    for (const std::size_t size : {1u, 2u, 3u, 4u, 7u, 100u, 512u, 1448u, 100000u})
      check_all(stream, cut(stream.octets, size), crc, Markers::expected);
  }
}

TEST_CASE("W-MPA-56: an FPDU in one piece is handed up where it lies", "[mpa][W-MPA-56][W-MPA-72]") {
  for (const Markers markers : {Markers::none, Markers::expected}) {
    Stream stream(Crc::on, markers);
    stream.add(46);
    stream.add(50);
    const std::vector<Bytes> spans{stream.octets};
    Receiver r(Crc::on, markers);
    mpa::Cursor at(spans);
    std::uint64_t position = 0;
    for (std::size_t i = 0; i < 2; ++i) {
      const auto found = r.next(at);
      REQUIRE(found->has_value());
      CHECK((*found)->position == position);
      CHECK((*found)->octets == stream.ends[i] - position);
      CHECK((*found)->marker_count == (i == 0 && markers == Markers::expected ? 1 : 0));
      CHECK_FALSE((*found)->stored);
      CHECK(r.ulpdu->count == 1);
      CHECK(r.ulpdu->spans[0].data() == stream.octets.data() + position + 2 + 4 * (*found)->marker_count);
      position = stream.ends[i];
    }
  }
}

TEST_CASE("W-MPA-73: an FPDU is not handed up before its last octet is there", "[mpa][W-MPA-73]") {
  for (const Markers markers : {Markers::none, Markers::expected}) {
    Stream stream(Crc::on, markers);
    stream.add(1018);
    Receiver r(Crc::on, markers);
    for (std::size_t size = 0; size < stream.octets.size(); ++size) {
      const auto spans = cut(Bytes{stream.octets}.first(size), 333);
      mpa::Cursor at(spans);
      const auto found = r.next(at);
      REQUIRE(found.has_value());
      REQUIRE_FALSE(found->has_value());
      REQUIRE(mpa::Framer::ends_inside(at) == (size != 0));
    }
    const auto spans = cut(stream.octets, 333);
    mpa::Cursor at(spans);
    CHECK(r.next(at)->has_value());
  }
}

TEST_CASE("W-MPA-72: a cursor passes what was framed but is not consumed yet", "[mpa][W-MPA-72]") {
  const auto stream = stream_of(Crc::on, Markers::none);
  const auto spans = cut(stream.octets, 97);
  Receiver r(Crc::on, Markers::none);
  for (std::size_t i = 0; i < stream.ulpdus.size(); ++i) {
    mpa::Cursor at(spans, static_cast<std::size_t>(r.framer.position()));
    REQUIRE(r.next(at)->has_value());
    REQUIRE(r.octets() == stream.ulpdus[i]);
  }
}

TEST_CASE("W-MPA-68, W-MPA-69: a flipped bit in any octet is a bad CRC, not a ULPDU", "[mpa][W-MPA-68][W-MPA-69]") {
  CHECK(with_flipped(5, Crc::off)->has_value());
  for (std::size_t i = 2; i < 48; ++i) {
    const auto found = with_flipped(i, Crc::on);
    REQUIRE_FALSE(found.has_value());
    REQUIRE(found.error() == FramingError::bad_crc);
  }
}

TEST_CASE("W-MPA-67: pad octets may hold anything, but count in the CRC", "[mpa][W-MPA-52][W-MPA-67]") {
  Stream stream(Crc::on, Markers::none);
  stream.add(15);
  auto octets = stream.octets;
  octets[17] = std::byte{0xEE};  // the first pad octet
  const std::vector<Bytes> spans{octets};
  {
    Receiver r(Crc::on, Markers::none);
    mpa::Cursor at(spans);
    CHECK(r.next(at).error() == FramingError::bad_crc);
  }
  wire::store_crc(octets, 20, wire::crc32c(Bytes{octets}.first(20)));
  Receiver r(Crc::on, Markers::none);
  mpa::Cursor at(spans);
  REQUIRE(r.next(at)->has_value());
  CHECK(r.octets() == stream.ulpdus[0]);
}

TEST_CASE("W-MPA-07: with CRC not in use the field may hold anything", "[mpa][W-MPA-07]") {
  Stream stream(Crc::off, Markers::none);
  stream.add(42);
  for (std::size_t i = stream.octets.size() - 4; i < stream.octets.size(); ++i) stream.octets[i] = std::byte{0xA5};
  check_all(stream, {stream.octets}, Crc::off, Markers::none);
}

TEST_CASE("W-MPA-74: after an error nothing more comes out", "[mpa][W-MPA-74]") {
  Stream stream(Crc::on, Markers::none);
  stream.add(42);
  stream.add(42);
  stream.octets[10] ^= std::byte{1};
  const std::vector<Bytes> spans{stream.octets};
  Receiver r(Crc::on, Markers::none);
  mpa::Cursor at(spans);
  REQUIRE_FALSE(r.next(at).has_value());
  // Even where the next FPDU would begin, and it is good.
  mpa::Cursor behind(spans, 52);
  const auto again = r.next(behind);
  REQUIRE_FALSE(again.has_value());
  CHECK(again.error() == FramingError::bad_crc);
  CHECK(r.framer.position() == 0);
}

TEST_CASE("W-MPA-55: a ULPDU_Length of 64768 is taken, 64769 is refused at once", "[mpa][W-MPA-55]") {
  for (const Markers markers : {Markers::none, Markers::expected}) {
    Stream stream(Crc::on, markers);
    stream.add(64768);
    check_all(stream, cut(stream.octets, 1448), Crc::on, markers);

    std::vector<std::byte> head(stream.octets.begin(), stream.octets.begin() + 8);
    const std::size_t length_at = markers == Markers::none ? 0 : 4;
    store_be<std::uint16_t>(head, length_at, 64769);
    for (const std::size_t size : {1u, 8u}) {
      const auto spans = cut(Bytes{head}.first(length_at + 2), size);
      Receiver r(Crc::on, markers);
      mpa::Cursor at(spans);
      const auto found = r.next(at);
      REQUIRE_FALSE(found.has_value());
      CHECK(found.error() == FramingError::too_long);
    }
  }
}

TEST_CASE("W-MPA-55: a ULPDU too short for DDP is handed up after a good CRC", "[mpa][W-MPA-55]") {
  for (const std::size_t size : {4u, 100u}) {
    std::vector<std::byte> octets(8);  // ULPDU_Length 0
    wire::store_crc(octets, 4, wire::crc32c(Bytes{octets}.first(4)));
    auto spans = cut(octets, size);
    Receiver r(Crc::on, Markers::none);
    mpa::Cursor at(spans);
    REQUIRE(r.next(at)->has_value());
    CHECK(r.ulpdu->size == 0);
    CHECK(r.ulpdu->count == 0);
    octets[7] ^= std::byte{1};
    Receiver other(Crc::on, Markers::none);
    mpa::Cursor start(spans);
    CHECK(other.next(start).error() == FramingError::bad_crc);
  }
}

TEST_CASE("W-MPA-66: every marker is compared with the length chain", "[mpa][W-MPA-66]") {
  Stream good(Crc::on, Markers::inserted);
  good.add(1018);  // markers at 0, 512, 1024 with 0, 508, 1020
  for (const std::size_t marker : {0u, 512u, 1024u}) {
    Stream bad = good;
    const auto pointer = load_be<std::uint16_t>(bad.octets, marker + 2);
    store_be(bad.octets, marker + 2, static_cast<std::uint16_t>(pointer + 4));
    const std::size_t covered = bad.octets.size() - 4;
    const auto spans = cut(bad.octets, 300);
    {
      Receiver r(Crc::on, Markers::expected);
      mpa::Cursor at(spans);
      // The CRC tells first.
      CHECK(r.next(at).error() == FramingError::bad_crc);
    }
    wire::store_crc(bad.octets, covered, wire::crc32c(Bytes{bad.octets}.first(covered)));
    Receiver r(Crc::on, Markers::expected);
    mpa::Cursor at(spans);
    CHECK(r.next(at).error() == FramingError::marker_mismatch);
  }
}

TEST_CASE("W-MPA-65: RESERVED and the low bits of FPDUPTR are ignored but for the CRC", "[mpa][W-MPA-62][W-MPA-65]") {
  Stream stream(Crc::on, Markers::inserted);
  stream.add(1018);
  store_be<std::uint16_t>(stream.octets, 512, 0xFFFF);
  stream.octets[515] |= std::byte{3};
  const std::vector<Bytes> spans{stream.octets};
  {
    Receiver r(Crc::on, Markers::expected);
    mpa::Cursor at(spans);
    CHECK(r.next(at).error() == FramingError::bad_crc);
  }
  const std::size_t covered = stream.octets.size() - 4;
  wire::store_crc(stream.octets, covered, wire::crc32c(Bytes{stream.octets}.first(covered)));
  check_all(stream, spans, Crc::on, Markers::expected);
}

TEST_CASE("W-MPA-72: an FPDU in too many pieces comes out of the framer's store", "[mpa][W-MPA-72]") {
  Stream stream(Crc::on, Markers::none);
  stream.add(64768);
  stream.add(64768);
  stream.add(100);
  const auto fine = cut(stream.octets, 64);
  Receiver r(Crc::on, Markers::none);
  mpa::Cursor at(fine);
  const auto first = r.next(at);
  REQUIRE(first->has_value());
  CHECK((*first)->stored);
  CHECK(r.ulpdu->count == 1);
  CHECK(r.octets() == stream.ulpdus[0]);
  // The next one waits for the store, and loses nothing by it.
  CHECK_FALSE(r.next(at)->has_value());
  CHECK_FALSE(r.next(at)->has_value());
  r.framer.release_store();
  REQUIRE(r.next(at)->has_value());
  CHECK(r.octets() == stream.ulpdus[1]);
  // One that needs no store does not wait.
  const auto third = r.next(at);
  REQUIRE(third->has_value());
  CHECK_FALSE((*third)->stored);
  CHECK(r.octets() == stream.ulpdus[2]);
}

TEST_CASE("W-MPA-56: pieces of a ULPDU are copied and trimmed from any offset", "[mpa][W-MPA-56]") {
  Stream stream(Crc::on, Markers::inserted);
  stream.add(1018);
  const auto spans = cut(stream.octets, 50);
  for (const std::uint32_t from : {0u, 1u, 14u, 44u, 48u, 500u, 1017u, 1018u}) {
    Receiver r(Crc::on, Markers::expected);
    mpa::Cursor at(spans);
    REQUIRE(r.next(at)->has_value());
    const std::vector<std::byte> expected(stream.ulpdus[0].begin() + from, stream.ulpdus[0].end());
    std::vector<std::byte> copied(1018 - from);
    r.ulpdu->copy(from, copied);
    CHECK(copied == expected);
    r.ulpdu->trim_front(from);
    CHECK(r.octets() == expected);
    // Nothing is left of a piece that is gone.
    for (std::uint32_t i = 0; i < r.ulpdu->count; ++i) CHECK_FALSE(r.ulpdu->spans[i].empty());
    r.ulpdu->clear();
    CHECK(r.octets().empty());
    CHECK(r.ulpdu->count == 0);
  }
}
