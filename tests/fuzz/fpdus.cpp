// The framer over any stream, once in one piece and once in many: the FPDUs found and the error at
// the end may not depend on the pieces; and what was found, packed again, is found again.
#include <memory>

#include "fuzz/golden.hpp"
#include "fuzz/input.hpp"
#include "kit/hex.hpp"
#include "mpa/framer.hpp"
#include "mpa/packer.hpp"

namespace rnic::fuzz {

namespace {

struct Found {
  std::uint64_t position = 0;
  std::uint32_t octets = 0;
  Octets ulpdu;
  bool operator==(const Found&) const = default;
};
struct Findings {
  std::vector<Found> fpdus;
  std::optional<mpa::FramingError> error;
  std::uint64_t position = 0;
};

// In one piece, or in pieces of the sizes of `pattern` (of a long stream in larger ones: what has arrived is looked
// through for each); the consumption point moves on now and then.
Findings frame(mpa::Crc crc, mpa::Markers markers, Bytes stream, Bytes pattern) {
  mpa::Framer framer(crc, markers);
  const auto list = std::make_unique<mpa::SpanList>();
  Findings findings;
  std::vector<Bytes> spans;
  std::size_t arrived = 0, consumed = 0, framed = 0, step = 0;
  const std::size_t least = 1 + stream.size() / 256;
  while (arrived < stream.size() && !findings.error) {
    std::size_t piece = stream.size() - arrived;
    if (!pattern.empty())
      piece = std::min<std::size_t>(piece, std::to_integer<unsigned>(pattern[step++ % pattern.size()]) + least);
    spans.push_back(stream.subspan(arrived, piece));
    arrived += piece;
    mpa::Cursor at(spans, framed - consumed);
    for (;;) {
      const auto next = framer.next(at, *list);
      if (!next) {
        findings.error = next.error();
        break;
      }
      if (!next->has_value()) break;
      const mpa::Fpdu& fpdu = **next;
      framed += fpdu.octets;
      FUZZ_CHECK(framed <= arrived && fpdu.octets > 0);
      FUZZ_CHECK(list->size <= mpa::kUlpduMax);
      FUZZ_CHECK(fpdu.octets == wire::fpdu_size(list->size) + fpdu.marker_count * wire::kMarkerSize);
      Found& found = findings.fpdus.emplace_back();
      found.position = fpdu.position;
      found.octets = fpdu.octets;
      found.ulpdu.resize(list->size);
      list->copy(0, found.ulpdu);
      if (fpdu.stored) framer.release_store();
      FUZZ_CHECK(framer.position() == framed);
    }
    if (findings.error) {
      // It stays.
      const auto again = framer.next(at, *list);
      FUZZ_CHECK(!again && again.error() == *findings.error);
      break;
    }
    if (step % 3 == 0) {
      // As TCP would: whole spans that are framed are given back.
      while (!spans.empty() && consumed + spans.front().size() <= framed) {
        consumed += spans.front().size();
        spans.erase(spans.begin());
      }
    }
  }
  findings.position = framed;
  return findings;
}

void check_packed_again(mpa::Crc crc, mpa::Markers markers, const std::vector<Found>& fpdus) {
  mpa::Packer packer(crc, markers);
  const auto pieces = std::make_unique<mpa::PieceList>();
  Octets stream;
  std::vector<Found> kept;
  for (const Found& found : fpdus) {
    if (found.ulpdu.empty()) return;  // no sender of ours
    Octets room(packer.octets_for(static_cast<std::uint32_t>(found.ulpdu.size())));
    FUZZ_CHECK(room.size() == found.octets);
    const Bytes ulpdu = found.ulpdu;
    const std::size_t head = std::min<std::size_t>(ulpdu.size(), 14);
    packer.begin(room, ulpdu.first(head), static_cast<std::uint32_t>(ulpdu.size() - head), *pieces);
    Bytes payload = ulpdu.subspan(head);
    for (std::uint32_t i = 0; i < pieces->count; ++i) {
      std::copy_n(payload.begin(), pieces->pieces[i].size(), pieces->pieces[i].begin());
      payload = payload.subspan(pieces->pieces[i].size());
    }
    FUZZ_CHECK(payload.empty());
    packer.seal(room);
    stream.insert(stream.end(), room.begin(), room.end());
    kept.push_back(found);
  }
  const Findings again = frame(crc, markers, stream, {});
  FUZZ_CHECK(!again.error);
  FUZZ_CHECK(again.fpdus == kept);
}

void run(Bytes octets, mpa::Markers markers) {
  Input input(octets);
  const unsigned choice = input.u8();
  const mpa::Crc crc = (choice & 1) != 0 ? mpa::Crc::on : mpa::Crc::off;
  const Bytes pattern = input.take(1 + input.below(4));
  Octets stream;
  if ((choice & 2) == 0) {
    const Bytes rest = input.rest();
    stream.assign(rest.begin(), rest.end());
  } else {
    // A good stream of these sizes, with single octets spoilt.
    mpa::Packer packer(crc, markers);
    const auto pieces = std::make_unique<mpa::PieceList>();
    const unsigned count = input.below(6) + 1;
    for (unsigned i = 0; i < count; ++i) {
      const std::uint32_t size = input.u16() % 6000 + 1;
      const auto begin = stream.size();
      stream.resize(begin + packer.octets_for(size));
      const MutableBytes room = MutableBytes(stream).subspan(begin);
      const Octets ulpdu = test::pattern(size, i);
      packer.begin(room, Bytes(ulpdu).first(std::min(size, 18u)), size - std::min(size, 18u), *pieces);
      packer.seal(room);
    }
    while (!input.empty()) stream[input.u16() % stream.size()] ^= static_cast<std::byte>(input.u8());
  }
  const Findings whole = frame(crc, markers, stream, {});
  const Findings pieces = frame(crc, markers, stream, pattern);
  FUZZ_CHECK(whole.fpdus == pieces.fpdus);
  FUZZ_CHECK(whole.error == pieces.error);
  FUZZ_CHECK(whole.position == pieces.position);
  check_packed_again(crc, markers, whole.fpdus);
}

std::vector<Octets> seeds(mpa::Markers markers) {
  std::vector<Octets> all;
  Octets joined;
  const auto add = [&](unsigned choice, const Octets& stream) {
    all.push_back(Program().u8(choice).u8(1).u8(6).u8(100).bytes(stream).octets());
    all.push_back(Program().u8(choice).u8(0).u8(0).bytes(stream).octets());
  };
  if (markers == mpa::Markers::none) {
    for (const auto text : kGoldenFpdus) {
      add(1, test::hex(text));
      add(0, test::hex(text));
      test::append(joined, test::hex(text));
    }
    add(1, test::hex(kGoldenAtomic));
    add(0, test::hex(kGoldenWithoutCrc));
    add(1, joined);
  } else {
    add(1, test::hex(kGoldenMarked));
    add(0, test::hex(kGoldenMarked));
  }
  for (const unsigned choice : {2u, 3u}) {
    all.push_back(Program().u8(choice).u8(1).u8(3).u8(90).u8(2).u16(484).u16(14).u16(1500).octets());
    all.push_back(Program().u8(choice).u8(0).u8(0).u8(0).u16(5999).octets());
    all.push_back(Program().u8(choice).u8(0).u8(200).u8(1).u16(700).u16(40).u16(900).u8(1).octets());
  }
  return all;
}

}  // namespace

void run_fpdus(Bytes input) { run(input, mpa::Markers::none); }
void run_marked_fpdus(Bytes input) { run(input, mpa::Markers::expected); }
std::vector<Octets> seeds_fpdus() { return seeds(mpa::Markers::none); }
std::vector<Octets> seeds_marked_fpdus() { return seeds(mpa::Markers::expected); }

}  // namespace rnic::fuzz
