#include "mpa/run_reader.hpp"

#include "mpa/reading.hpp"

namespace rnic::mpa {

RunReader::RunReader(Crc crc, std::span<const Bytes> run, std::uint64_t position)
    : crc_(crc), position_(position), cursor_(run) {
  for (const Bytes& span : run) size_ += span.size();
}

Cursor RunReader::cursor_at(std::size_t offset) const {
  Cursor at = cursor_;
  at.advance(offset - passed_);
  return at;
}

std::optional<RunReader::Found> RunReader::find() {
  if (ended_ || (!known_ && !find_by_marker())) return std::nullopt;
  const std::uint32_t header_at = to_next_marker(position_ + passed_) == 0 ? wire::kMarkerSize : 0;
  if (passed_ + header_at + wire::kFpduHeaderSize > size_) return std::nullopt;
  std::byte length[wire::kFpduHeaderSize];
  Cursor header = cursor_at(passed_ + header_at);
  read(header, length);
  ulpdu_size_ = load_be<std::uint16_t>(length, 0);
  if (ulpdu_size_ > kUlpduMax) return std::nullopt;
  fpdu_ = marked_fpdu(position_ + passed_, ulpdu_size_);
  if (passed_ + fpdu_.octets > size_) return std::nullopt;
  return Found{position_ + passed_, fpdu_.octets};
}

// The first FPDU that a marker points to and that begins in the run. Markers in front of it are of
// one whose beginning is missing.
bool RunReader::find_by_marker() {
  for (std::size_t marker_at = to_next_marker(position_); marker_at + wire::kMarkerSize <= size_;
       marker_at += wire::kMarkerSpacing) {
    std::byte marker[wire::kMarkerSize];
    Cursor at = cursor_at(marker_at);
    read(at, marker);
    const std::size_t back = wire::parse_marker(marker);
    if (back > marker_at) continue;
    std::size_t start = marker_at - back;
    // A header right behind a marker: that marker is the FPDU's first octet (W-MPA-63).
    if (back != 0 && to_next_marker(position_ + start - wire::kMarkerSize) == 0) {
      if (start < wire::kMarkerSize) continue;
      start -= wire::kMarkerSize;
    }
    go_on_at(position_ + start);
    return true;
  }
  return false;
}

void RunReader::go_on_at(std::uint64_t position) {
  const auto offset = static_cast<std::size_t>(position - position_);
  cursor_ = cursor_at(offset);
  passed_ = offset;
  known_ = true;
}

RunReader::Taken RunReader::take(SpanList& ulpdu) {
  if (!markers_agree(cursor_, position_ + passed_, fpdu_) ||
      (crc_ == Crc::on && !crc_is_good(cursor_, fpdu_.octets - wire::kCrcSize))) {
    ended_ = true;
    return Taken::invalid;
  }
  ulpdu.clear();
  std::size_t pieces = 0;
  for_each_piece(cursor_, position_ + passed_, fpdu_, ulpdu_size_, [&](Bytes piece) {
    if (pieces < kSpansMax) ulpdu.spans[pieces] = piece;
    ++pieces;
  });
  go_on_at(position_ + passed_ + fpdu_.octets);
  if (pieces > kSpansMax) return Taken::scattered;
  ulpdu.count = static_cast<std::uint32_t>(pieces);
  ulpdu.size = ulpdu_size_;
  return Taken::valid;
}

}  // namespace rnic::mpa
