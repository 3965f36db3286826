// Frames in pieces, as they cross a memif.
#include "port/pieces.hpp"

#include <vector>

#include "kit/catch.hpp"

namespace rnic::port {
namespace {

using Octets = std::vector<std::byte>;

Octets frame_of(std::size_t size) {
  Octets octets(size);
  for (std::size_t i = 0; i < size; ++i) octets[i] = static_cast<std::byte>(i * 7 + (i >> 8));
  return octets;
}

std::vector<Octets> cut(const Octets& frame, std::uint32_t number, std::size_t slot) {
  std::vector<Octets> pieces;
  for (std::uint32_t at = 0; at < frame.size();) {
    Octets piece(slot);
    const auto size =
        write_piece(frame, {.number = number, .total = static_cast<std::uint32_t>(frame.size()), .at = at}, piece);
    piece.resize(PieceHeader::kSize + size);
    at += size;
    pieces.push_back(piece);
  }
  return pieces;
}

}  // namespace

TEST_CASE("a frame in pieces is joined to the same frame, whatever the slot holds", "[port][pieces]") {
  HeapPool pool(pool_size_for(8, 65'553));
  FrameReassembler reassembler;
  std::uint32_t number = 0;
  for (const std::size_t size : {2049u, 9018u, 65'535u, 65'553u})
    for (const std::size_t slot : {2048u, 4096u, 27u}) {
      const Octets frame = frame_of(size);
      const auto pieces = cut(frame, ++number, slot);
      REQUIRE(pieces.size() == (size + slot - 26 - 1) / (slot - 26));
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        REQUIRE(is_piece(pieces[i]));
        const BufferRef whole = reassembler.take(pieces[i], pool);
        REQUIRE((whole.get() != nullptr) == (i + 1 == pieces.size()));
        if (whole) CHECK(std::equal(frame.begin(), frame.end(), whole->bytes().begin(), whole->bytes().end()));
      }
    }
  CHECK(reassembler.lost() == 0);
  CHECK(pool.large_available() == 8);
}

TEST_CASE("pieces that do not follow one another make no frame, and the next frame is whole again", "[port][pieces]") {
  HeapPool pool(pool_size_for(8, 65'553));
  FrameReassembler reassembler;
  const Octets frame = frame_of(10'000);
  const auto first = cut(frame, 1, 2048), second = cut(frame, 2, 2048);
  SECTION("one is missing") {
    for (const std::size_t i : {0u, 2u, 3u, 4u}) CHECK_FALSE(reassembler.take(first[i], pool));
  }
  SECTION("one comes twice") {
    for (const std::size_t i : {0u, 1u, 1u, 2u, 3u, 4u}) CHECK_FALSE(reassembler.take(first[i], pool));
  }
  SECTION("one comes in the place of another") {
    for (const std::size_t i : {0u, 1u, 1u, 3u, 4u}) CHECK_FALSE(reassembler.take(first[i], pool));
  }
  SECTION("two have changed places") {
    for (const std::size_t i : {0u, 2u, 1u, 3u, 4u}) CHECK_FALSE(reassembler.take(first[i], pool));
  }
  SECTION("the beginning is missing") {
    for (const std::size_t i : {1u, 2u, 3u, 4u}) CHECK_FALSE(reassembler.take(first[i], pool));
  }
  SECTION("of another frame") {
    CHECK_FALSE(reassembler.take(first[0], pool));
    CHECK_FALSE(reassembler.take(second[1], pool));
    for (const std::size_t i : {1u, 2u, 3u, 4u}) CHECK_FALSE(reassembler.take(first[i], pool));
  }
  SECTION("all but the first of another frame") {
    const auto third = cut(frame, 3, 2048);
    for (const std::size_t i : {0u, 1u, 2u, 3u, 4u}) CHECK_FALSE(reassembler.take((i == 0 ? first : third)[i], pool));
  }
  SECTION("another frame begins") {
    for (const std::size_t i : {0u, 1u}) CHECK_FALSE(reassembler.take(first[i], pool));
  }
  SECTION("the rest does not come") {
    for (const std::size_t i : {0u, 1u}) CHECK_FALSE(reassembler.take(first[i], pool));
    CHECK(pool.large_available() == 7);
    reassembler.clear();
    CHECK(pool.large_available() == 8);
    CHECK(reassembler.lost() == 1);
    reassembler.clear();
    CHECK(reassembler.lost() == 1);
  }
  for (std::size_t i = 0; i < second.size(); ++i)
    CHECK((reassembler.take(second[i], pool).get() != nullptr) == (i + 1 == second.size()));
  CHECK(pool.large_available() == 8);
}

TEST_CASE("what a piece says of its frame is not trusted", "[port][pieces]") {
  HeapPool pool(pool_size_for(8, 65'553));
  FrameReassembler reassembler;
  const auto piece = [](std::uint32_t total, std::uint32_t at, std::size_t octets) {
    Octets out(PieceHeader::kSize + octets);
    store_be(out, 12, PieceHeader::kType);
    store_be<std::uint32_t>(out, 14, 1);
    store_be(out, 18, total);
    store_be(out, 22, at);
    return out;
  };
  const auto is_lost = [&](const Octets& octets) {
    const auto before = reassembler.lost();
    CHECK_FALSE(reassembler.take(octets, pool));
    CHECK(reassembler.lost() == before + 1);
  };
  CHECK_FALSE(is_piece(piece(10, 0, 0)));
  is_lost(piece(0xFFFFFFFF, 0, 2000));
  is_lost(piece(65'554, 0, 2000));
  is_lost(piece(0, 0, 2000));
  is_lost(piece(1999, 0, 2000));
  for (const Octets& second : {piece(4000, 2000, 2001), piece(4001, 2000, 2000), piece(3999, 2000, 1999)}) {
    CHECK_FALSE(reassembler.take(piece(4000, 0, 2000), pool));
    is_lost(second);
  }
  CHECK(pool.available() == 8);
  CHECK(pool.large_available() == 8);
}

TEST_CASE("without a large buffer a long frame is lost, and those after it are not", "[port][pieces]") {
  HeapPool pool(PoolSize{.count = 4, .room_bytes = 1518, .large_count = 1, .large_room_bytes = 65'553});
  FrameReassembler reassembler;
  const auto pieces = cut(frame_of(9000), 1, 2048), again = cut(frame_of(9000), 2, 2048);
  BufferRef only(pool.take_large());
  for (const Octets& piece : pieces) CHECK_FALSE(reassembler.take(piece, pool));
  CHECK(reassembler.lost() == 1);
  only.reset();
  for (std::size_t i = 0; i < again.size(); ++i)
    CHECK((reassembler.take(again[i], pool).get() != nullptr) == (i + 1 == again.size()));
}

}  // namespace rnic::port
