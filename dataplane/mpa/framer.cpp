#include "mpa/framer.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "mpa/reading.hpp"

namespace rnic::mpa {

Result<std::optional<Fpdu>, FramingError> Framer::next(Cursor& at, SpanList& ulpdu) {
  // Nearly always: one whole FPDU in one span, without markers.
  const Bytes here = at.here();
  if (markers_ != Markers::none || failed_ || here.size() < wire::kFpduHeaderSize) return next_slow(at, ulpdu);
  const std::uint32_t size = load_be<std::uint16_t>(here, 0);
  const std::uint32_t octets = wire::fpdu_size(size);
  if (here.size() < octets || size > kUlpduMax) return next_slow(at, ulpdu);
  const std::size_t covered = octets - wire::kCrcSize;
  if (crc_ == Crc::on && wire::crc32c(here.first(covered)) != wire::load_crc(here, covered)) {
    failed_ = FramingError::bad_crc;
    return Failure{FramingError::bad_crc};
  }
  ulpdu.spans[0] = here.subspan(wire::kFpduHeaderSize, size);
  ulpdu.count = size != 0 ? 1 : 0;
  ulpdu.size = size;
  at.advance(octets);
  const Fpdu fpdu{.position = position_, .octets = octets};
  position_ += octets;
  return std::optional<Fpdu>{fpdu};
}

Result<std::optional<Fpdu>, FramingError> Framer::next_slow(Cursor& at, SpanList& ulpdu) {
  const auto fail = [this](FramingError error) {
    failed_ = error;
    return Failure{error};
  };
  const std::optional<Fpdu> not_yet;
  if (failed_) return Failure{*failed_};

  MarkedFpdu fpdu;
  if (markers_ == Markers::expected && to_next_marker(position_) == 0) fpdu.header_at = wire::kMarkerSize;
  const std::size_t to_length = fpdu.header_at + wire::kFpduHeaderSize;
  if (at.available(to_length) < to_length) return not_yet;
  std::byte length[wire::kFpduHeaderSize];
  Cursor header = at;
  header.advance(fpdu.header_at);
  read(header, length);
  const std::uint32_t size = load_be<std::uint16_t>(length, 0);
  // Its octets are not waited for (W-MPA-55).
  if (size > kUlpduMax) return fail(FramingError::too_long);

  if (markers_ == Markers::expected)
    fpdu = marked_fpdu(position_, size);
  else
    fpdu.octets = wire::fpdu_size(size);
  if (at.available(fpdu.octets) < fpdu.octets) return not_yet;

  ulpdu.clear();
  std::size_t pieces = 0;
  for_each_piece(at, position_, fpdu, size, [&](Bytes piece) {
    if (pieces < kSpansMax) ulpdu.spans[pieces] = piece;
    ++pieces;
  });
  const bool stored = pieces > kSpansMax;
  if (stored && store_in_use_) return not_yet;

  if (crc_ == Crc::on && !crc_is_good(at, fpdu.octets - wire::kCrcSize)) return fail(FramingError::bad_crc);
  if (!markers_agree(at, position_, fpdu)) return fail(FramingError::marker_mismatch);

  if (stored) {
    if (!store_) store_.reset(new (std::nothrow) std::byte[kUlpduMax]);
    if (!store_) return not_yet;
    std::size_t filled = 0;
    for_each_piece(at, position_, fpdu, size, [&](Bytes piece) {
      std::memcpy(store_.get() + filled, piece.data(), piece.size());
      filled += piece.size();
    });
    ulpdu.spans[0] = {store_.get(), size};
    pieces = 1;
    store_in_use_ = true;
  }
  ulpdu.count = static_cast<std::uint32_t>(pieces);
  ulpdu.size = size;
  at.advance(fpdu.octets);
  const Fpdu found{.position = position_, .octets = fpdu.octets, .marker_count = fpdu.marker_count, .stored = stored};
  position_ += fpdu.octets;
  return std::optional<Fpdu>{found};
}

}  // namespace rnic::mpa
