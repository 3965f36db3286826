// A stream of FPDUs as a sender makes it, for tests of what finds them again.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "kit/catch.hpp"
#include "kit/hex.hpp"
#include "mpa/packer.hpp"

namespace rnic::test {

// A sender's stream, and the ULPDUs that are in it.
struct FpduStream {
  FpduStream(mpa::Crc crc, mpa::Markers markers) : packer(crc, markers) {}
  void add(std::uint32_t ulpdu_size) {
    auto ulpdu = pattern(ulpdu_size, static_cast<unsigned>(ulpdus.size()));
    const std::size_t header_size = std::min<std::size_t>(ulpdu_size, 14);
    const std::size_t start = octets.size();
    octets.resize(start + packer.octets_for(ulpdu_size));
    const MutableBytes room = MutableBytes{octets}.subspan(start);
    const auto pieces = std::make_unique<mpa::PieceList>();
    const auto took = packer.begin(room, Bytes{ulpdu}.first(header_size),
                                   ulpdu_size - static_cast<std::uint32_t>(header_size), *pieces);
    REQUIRE(took == room.size());
    Bytes rest = Bytes{ulpdu}.subspan(header_size);
    for (std::uint32_t i = 0; i < pieces->count; ++i) {
      std::copy_n(rest.begin(), pieces->pieces[i].size(), pieces->pieces[i].begin());
      rest = rest.subspan(pieces->pieces[i].size());
    }
    packer.seal(room);
    ulpdus.push_back(std::move(ulpdu));
    ends.push_back(octets.size());
  }
  mpa::Packer packer;
  std::vector<std::byte> octets;
  std::vector<std::vector<std::byte>> ulpdus;
  std::vector<std::size_t> ends;
};

inline std::vector<Bytes> cut(Bytes octets, std::size_t size) {
  std::vector<Bytes> spans;
  for (std::size_t at = 0; at < octets.size(); at += size)
    spans.push_back(octets.subspan(at, std::min(size, octets.size() - at)));
  return spans;
}

}  // namespace rnic::test
