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
// Spans of one ULPDU at most: every TCP segment may be tiny, but then the framer copies the FPDU
// to its own store and hands out one span.
inline constexpr std::size_t kSpansMax = 192;

struct SpanList {
  std::array<Bytes, kSpansMax> spans;
  std::uint32_t count = 0;
  std::uint32_t size = 0;  // octets in all
  void clear() { count = 0, size = 0; }
  // Copies out.size() octets from `offset` on; the caller has seen that they are there.
  void copy(std::size_t offset, MutableBytes out) const;
  // Drops `n` octets in front; the caller has seen that they are there.
  void trim_front(std::uint32_t n);
};

// A place in the received stream: the spans that the TCP connection has readable, in order, and how
// far in them we are. Made anew for each call of the connection's readable(), whose spans begin at
// its point of consumption: `skip` are the octets that were framed before but not yet consumed.
class Cursor {
 public:
  explicit Cursor(std::span<const Bytes> spans, std::size_t skip = 0) : spans_(spans) { advance(skip); }

  // The rest of the span that it is in; empty only at the end of the stream.
  Bytes here() const { return index_ < spans_.size() ? spans_[index_].subspan(offset_) : Bytes{}; }
  // No further than the end.
  void advance(std::size_t octets) {
    while (index_ < spans_.size()) {
      const std::size_t left = spans_[index_].size() - offset_;
      if (octets < left) {
        offset_ += octets;
        return;
      }
      octets -= left;
      offset_ = 0;
      ++index_;
    }
  }
  // Octets from here to the end, counted up to at least `enough`.
  std::size_t available(std::size_t enough) const {
    std::size_t found = here().size();
    for (std::size_t i = index_ + 1; i < spans_.size() && found < enough; ++i) found += spans_[i].size();
    return found;
  }

 private:
  std::span<const Bytes> spans_;
  std::size_t index_ = 0;
  std::size_t offset_ = 0;
};

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
