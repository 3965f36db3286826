#include "decode/finder.hpp"

#include <algorithm>

namespace rnic::tool {

Finder::Finder(Framing framing, Markers markers, std::optional<std::int64_t> base, std::int64_t from)
    : framing_(framing), markers_(markers), base_(base), from_(from) {}

// The FPDU that the octets at `here` tell of, if any can be there.
std::optional<Finder::Found> Finder::place_at(Bytes octets, std::int64_t at, std::int64_t here) const {
  if (base_) {
    const std::int64_t position = here - *base_;
    if (position < 0 || position % 4 != 0) return std::nullopt;
    return Found{here, static_cast<std::uint64_t>(position)};
  }
  if (framing_.markers == mpa::Markers::none) return Found{here, 0};
  // Any four octets may be a marker, and say where the FPDU's header is (RFC 5044 s4.3).
  const Bytes marker = octets.subspan(static_cast<std::size_t>(here - at), wire::kMarkerSize);
  if (load_be<std::uint16_t>(marker, 0) != 0) return std::nullopt;
  const std::uint32_t pointer = wire::parse_marker(marker);
  const std::uint32_t position = (0u - pointer) % wire::kMarkerSpacing;  // the header's
  // A header right behind a marker begins with it.
  if (pointer == 0) return Found{here, 0};
  if (position == wire::kMarkerSize) return Found{here - pointer - wire::kMarkerSize, 0};
  return Found{here - pointer, position};
}

bool Finder::consider(Bytes octets, std::int64_t at, const Found& place) {
  if (place.at < at) return false;
  octets = octets.subspan(static_cast<std::size_t>(place.at - at));
  // With markers, one of them must be in it. Without, FPDU must follow FPDU for as long as there is
  // one for sure.
  std::uint64_t good = 0;
  do {
    const Guess guess = guess_fpdu(octets.subspan(good), framing_, place.position + good);
    if (guess.kind == Guess::Kind::perhaps)
      pending_.emplace(place.at + static_cast<std::int64_t>(good + guess.octets), place);
    if (guess.kind != Guess::Kind::yes) return false;
    if (markers_ == Markers::known || guess.markers != 0) return true;
    if (framing_.markers == mpa::Markers::expected) return false;
    if (!unproved_) unproved_ = place;
    good += guess.octets;
  } while (good < wire::kMarkerSpacing + wire::kMarkerSize);
  return true;
}

std::optional<Finder::Found> Finder::look(Bytes octets, std::int64_t at) {
  const std::int64_t end = at + static_cast<std::int64_t>(octets.size());
  while (!pending_.empty() && pending_.begin()->first <= end) {
    const Found place = pending_.begin()->second;
    pending_.erase(pending_.begin());
    if (consider(octets, at, place)) return place;
  }
  for (from_ = std::max(from_, at); from_ + wire::kMarkerSize <= end; ++from_) {
    const auto place = place_at(octets, at, from_);
    if (!place || !consider(octets, at, *place)) continue;
    ++from_;
    return place;
  }
  return std::nullopt;
}

}  // namespace rnic::tool
