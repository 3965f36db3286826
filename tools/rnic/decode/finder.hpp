// Looks for FPDUs in a part of a stream whose beginnings are not known: the startup frames were not
// captured, or octets are missing, or a CRC was bad.
//
// Every place is looked at once, and again when more of the FPDU that may stand there has come.
//
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "decode/fpdu.hpp"

namespace rnic::tool {

class Finder {
 public:
  // Whether there are markers is known, or to be found out: an FPDU too short to hold one is good
  // with and without.
  enum class Markers : std::uint8_t { known, to_be_proved };
  // `base` is where position 0 is; nothing where that is not known. Places ("at") are octets since
  // the stream's first that was seen; nothing in front of `from` is looked at.
  Finder(Framing framing, Markers markers, std::optional<std::int64_t> base, std::int64_t from);

  struct Found {
    std::int64_t at = 0;
    std::uint64_t position = 0;  // where no base is known: one that fits
  };
  // `octets` begin at `at` and end where the stream ends so far.
  std::optional<Found> look(Bytes octets, std::int64_t at);
  // No more octets come: the first good FPDU that look() did not take for want of proof.
  std::optional<Found> unproved() const { return unproved_; }

  const Framing& framing() const { return framing_; }

 private:
  bool consider(Bytes octets, std::int64_t at, const Found& place);
  std::optional<Found> place_at(Bytes octets, std::int64_t at, std::int64_t here) const;

  Framing framing_;
  Markers markers_;
  std::optional<std::int64_t> base_;
  std::int64_t from_;
  std::multimap<std::int64_t, Found> pending_;  // by the end that is needed to tell
  std::optional<Found> unproved_;
};

}  // namespace rnic::tool
