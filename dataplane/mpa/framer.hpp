// From a TCP stream to FPDUs (RFC 5044 s4, s5.2, s6, s8): finds each FPDU in ordered data by the
// length chain, takes markers out, checks the CRC before anything is handed up (W-MPA-68), and
// knows nothing of what an FPDU carries.
//
// Framing works for any TCP segmentation (W-MPA-72). What comes in is a list of spans; what comes
// out is a list of spans within them: no octet is copied, but for an FPDU in more than kSpansMax
// pieces.
//
// Pure. Owned by one worker.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "mpa/cursor.hpp"
#include "wire/mpa.hpp"

namespace rnic::mpa {

enum class Crc : std::uint8_t { off, on };
// In one direction of the stream. `inserted` is what a sender calls what a receiver expects.
enum class Markers : std::uint8_t { none, expected, inserted = expected };

enum class FramingError : std::uint8_t {
  bad_crc,          // 2/0/02
  marker_mismatch,  // 2/0/03
  too_long,         // ULPDU_Length > 64768: 1/0/00 at once (W-MPA-55)
};

inline constexpr std::size_t kUlpduMax = wire::kUlpduSizeMax;

// A whole FPDU, valid.
struct Fpdu {
  std::uint64_t position = 0;  // of its first octet in the direction's FPDU stream
  std::uint32_t octets = 0;    // of the stream that it took: header, markers, pad, CRC
  std::uint32_t marker_count = 0;
  bool stored = false;  // its ULPDU is in the framer's store: see release_store()
};

class Framer {
 public:
  // The next octet given is the first of an FPDU, `position` octets behind the direction's startup
  // frame (W-MPA-25).
  Framer(Crc crc, Markers markers, std::uint64_t position = 0) : crc_(crc), markers_(markers), position_(position) {}

  // The next FPDU, or nothing when it is not there in full. With an FPDU `at` stands after it and
  // `ulpdu` has its ULPDU: spans within the stream's, valid as long as these are. With nothing
  // `at` stands where it stood; asking again is cheap, no CRC is begun twice. A ULPDU may be of any
  // size up to kUlpduMax, 0 too; what is too short for DDP is DDP's to judge (W-MPA-55).
  //
  // After an error nothing more comes out: the same error again (W-MPA-74).
  Result<std::optional<Fpdu>, FramingError> next(Cursor& at, SpanList& ulpdu);

  // Octets of the FPDU stream before the next FPDU.
  std::uint64_t position() const { return position_; }
  // Another one at the same place, to look at what is behind it without taking it.
  Framer ahead() const {
    Framer other(crc_, markers_);
    other.position_ = position_;
    return other;
  }
  // The stream ends inside an FPDU if it ends where `at`, left by next(), stands (W-MPA-77).
  static bool ends_inside(const Cursor& at) { return !at.here().empty(); }

  // An FPDU with `stored` is done with, its octets are not needed any more. Until then another one
  // that would need the store is held back: next() says nothing, as if it was not there in full.
  void release_store() { store_in_use_ = false; }
  // Null, or what such octets are in. Whoever shares it keeps them as they are, if the framer ends too.
  const std::shared_ptr<std::byte[]>& store() const { return store_; }

 private:
  Result<std::optional<Fpdu>, FramingError> next_slow(Cursor& at, SpanList& ulpdu);

  Crc crc_;
  Markers markers_;
  bool store_in_use_ = false;
  std::optional<FramingError> failed_;
  std::uint64_t position_;
  std::shared_ptr<std::byte[]> store_;  // taken when it is needed for the first time
};

}  // namespace rnic::mpa
