#include "decode/fpdu.hpp"

#include <algorithm>
#include <vector>

#include "mpa/markers.hpp"
#include "rdmap/messages.hpp"

namespace rnic::tool {
namespace {

bool marker_first(Framing framing, std::uint64_t position) {
  return framing.markers == mpa::Markers::expected && mpa::to_next_marker(position) == 0;
}

// Where an FPDU with that ULPDU_Length lies.
mpa::MarkedFpdu lay_out(Framing framing, std::uint64_t position, std::uint32_t ulpdu_size) {
  if (framing.markers == mpa::Markers::expected) return mpa::marked_fpdu(position, ulpdu_size);
  return {.header_at = 0, .marker_count = 0, .octets = wire::fpdu_size(ulpdu_size)};
}

// Offset of ULPDU_Length.
std::size_t header_at(Framing framing, std::uint64_t position) {
  return marker_first(framing, position) ? wire::kMarkerSize : 0;
}

// Of the FPDU that begins there; nothing where its length is not there yet.
std::optional<std::uint32_t> ulpdu_size_at(Bytes octets, Framing framing, std::uint64_t position) {
  const std::size_t at = header_at(framing, position);
  if (octets.size() < at + wire::kFpduHeaderSize) return std::nullopt;
  return load_be<std::uint16_t>(octets, at);
}

// Offsets of an FPDU's markers from its first octet.
std::vector<std::uint32_t> marker_offsets(std::uint64_t position, std::uint32_t count) {
  std::vector<std::uint32_t> offsets(count);
  for (std::uint32_t i = 0; i < count; ++i) offsets[i] = mpa::to_next_marker(position) + i * wire::kMarkerSpacing;
  return offsets;
}

// The ULPDU of an FPDU that the framer refused.
std::vector<std::byte> without_markers(Bytes fpdu, const mpa::MarkedFpdu& layout,
                                       const std::vector<std::uint32_t>& offsets, std::uint32_t ulpdu_size) {
  std::vector<std::byte> ulpdu;
  auto next = offsets.begin();
  for (std::size_t at = layout.header_at + wire::kFpduHeaderSize; ulpdu.size() < ulpdu_size;) {
    while (next != offsets.end() && *next < at) ++next;
    if (next != offsets.end() && *next == at) {
      at += wire::kMarkerSize;
      continue;
    }
    ulpdu.push_back(fpdu[at++]);
  }
  return ulpdu;
}

void show(Bytes fpdu, Framing framing, std::uint64_t position, bool crc_is_good,
          const std::vector<std::uint32_t>& markers, Bytes ulpdu, const Sink& sink) {
  FpduPlace place{.position = position, .length = static_cast<std::uint32_t>(fpdu.size()), .crc = "off", .markers = {}};
  if (framing.crc == mpa::Crc::on) place.crc = crc_is_good ? "good" : "bad";
  for (const std::uint32_t offset : markers) place.markers.push_back(wire::parse_marker(fpdu.subspan(offset)));
  sink(fpdu_object(place, ulpdu));
}

void show_bad_crc(Bytes fpdu, std::uint64_t position, const Sink& sink) {
  const Bytes covered = fpdu.first(fpdu.size() - wire::kCrcSize);
  std::byte right[wire::kCrcSize];
  wire::store_crc(right, 0, wire::crc32c(covered));
  sink(error_object(position,
                    "the CRC is " + to_hex(fpdu.subspan(covered.size())) + ", over these octets it is " +
                        to_hex(right) + "; the length cannot be trusted either, so nothing behind it is found by it",
                    wire::terminate_code::kMpaCrc));
}

void show_bad_marker(Bytes fpdu, std::uint64_t position, const mpa::MarkedFpdu& layout,
                     const std::vector<std::uint32_t>& markers, const Sink& sink) {
  for (const std::uint32_t offset : markers) {
    const std::uint16_t says = wire::parse_marker(fpdu.subspan(offset));
    const std::uint16_t due = mpa::fpdu_pointer(offset, layout.header_at);
    if (says == due) continue;
    sink(error_object(position,
                      "the marker at " + std::to_string(position + offset) + " has FPDUPTR " + std::to_string(says) +
                          "; by the lengths it is " + std::to_string(due),
                      wire::terminate_code::kMpaMarker));
    return;
  }
}

void show_refused(mpa::FramingError error, Bytes octets, Framing framing, std::uint64_t position, const Sink& sink) {
  const std::uint32_t size = *ulpdu_size_at(octets, framing, position);
  if (error == mpa::FramingError::too_long) {
    sink(error_object(position,
                      "ULPDU_Length " + std::to_string(size) + " is more than " + std::to_string(mpa::kUlpduMax),
                      wire::terminate_code::kDdpLocalCatastrophic));
    return;
  }
  const auto layout = lay_out(framing, position, size);
  const Bytes fpdu = octets.first(layout.octets);
  const auto markers = marker_offsets(position, layout.marker_count);
  const bool bad_crc = error == mpa::FramingError::bad_crc;
  show(fpdu, framing, position, !bad_crc, markers, without_markers(fpdu, layout, markers, size), sink);
  if (bad_crc)
    show_bad_crc(fpdu, position, sink);
  else
    show_bad_marker(fpdu, position, layout, markers, sink);
}

// As a sender of today writes them: versions, reserved bits, opcode, model and, if it is there, queue.
bool is_plausible(Bytes ulpdu) {
  const auto ddp = std::to_integer<unsigned>(ulpdu[0]);
  const auto rdmap = std::to_integer<unsigned>(ulpdu[1]);
  if ((ddp & ~0xC0u) != wire::ddp_control::kVersion || (rdmap & ~0x0Fu) != wire::kRdmapVersion << 6) return false;
  const auto& message = rdmap::message(wire::rdmap_opcode(static_cast<std::uint8_t>(rdmap)));
  if (!message.known() || ((ddp & 0x80) != 0) != (message.model == rdmap::Model::tagged)) return false;
  if (message.model == rdmap::Model::tagged || ulpdu.size() < wire::UntaggedHeader::kSize) return true;
  return load_be<std::uint32_t>(ulpdu, 6) == message.queue;
}

}  // namespace

Step decode_fpdu(Bytes octets, Framing framing, std::uint64_t position, const Sink& sink) {
  RNIC_ASSERT(position % 4 == 0);
  mpa::Framer framer(framing.crc, framing.markers, position);
  const Bytes stream[] = {octets};
  mpa::Cursor at(stream);
  mpa::SpanList spans;
  const auto found = framer.next(at, spans);
  if (!found) {
    show_refused(found.error(), octets, framing, position, sink);
    return {Step::Kind::failed, 0};
  }
  if (!*found) {
    const auto size = ulpdu_size_at(octets, framing, position);
    return {Step::Kind::more, size ? lay_out(framing, position, *size).octets : 0};
  }
  std::vector<std::byte> ulpdu(spans.size);
  spans.copy(0, ulpdu);
  show(octets.first((*found)->octets), framing, position, true, marker_offsets(position, (*found)->marker_count), ulpdu,
       sink);
  if (const auto error = form_error(ulpdu)) sink(error_object(position, error->reason, error->code));
  return {Step::Kind::fpdu, (*found)->octets};
}

Guess guess_fpdu(Bytes octets, Framing framing, std::uint64_t position) {
  RNIC_ASSERT(position % 4 == 0);
  // The length and the two control octets tell most places from a beginning. No marker stands
  // between them: markers, and the beginnings of FPDUs, are at multiples of 4.
  const std::size_t control = header_at(framing, position) + wire::kFpduHeaderSize;
  if (octets.size() < control + 2) return {Guess::Kind::perhaps, static_cast<std::uint32_t>(control + 2), 0};
  const std::uint32_t size = *ulpdu_size_at(octets, framing, position);
  if (size < wire::TaggedHeader::kSize || size > mpa::kUlpduMax) return {};
  if (!is_plausible(octets.subspan(control, 2))) return {};
  const std::uint32_t length = lay_out(framing, position, size).octets;
  if (octets.size() < length) return {Guess::Kind::perhaps, length, 0};

  mpa::Framer framer(framing.crc, framing.markers, position);
  const Bytes stream[] = {octets};
  mpa::Cursor at(stream);
  mpa::SpanList spans;
  const auto found = framer.next(at, spans);
  if (!found || !*found) return {};
  std::byte room[wire::kDdpHeaderSizeMax];
  const MutableBytes head = MutableBytes(room).first(std::min<std::size_t>(sizeof room, spans.size));
  spans.copy(0, head);
  if (!is_plausible(head)) return {};
  const Guess yes{Guess::Kind::yes, length, (*found)->marker_count};
  if (framing.crc == mpa::Crc::on) return yes;

  // Nothing proves it. Then its CRC field is empty, and what follows, if it is there, looks right too.
  if (load_be<std::uint32_t>(octets, length - wire::kCrcSize) != 0) return {};
  const Bytes behind = octets.subspan(length);
  const std::size_t next = header_at(framing, position + length) + wire::kFpduHeaderSize;
  if (behind.size() >= next + 2 && !is_plausible(behind.subspan(next, 2))) return {};
  return yes;
}

std::string cut_off(const char* what, std::size_t have, std::size_t need) {
  return "the octets end inside " + std::string(what) + ": " + std::to_string(have) +
         (need != 0 ? " of " + std::to_string(need) : "") + " are there";
}

}  // namespace rnic::tool
