// FPDUs beyond a gap (RFC 5044 s5.2, s6, A.3): the first is found by a marker, those behind it by the
// length chain, and none in any other way (W-MPA-71). Streams with markers only.
//
// It reads a run: octets without a gap between them, the octets in front of which are missing. What
// is wrong with them is no error yet. It is passed over here, and judged when the gap has closed and
// the framer comes to it in order (W-MPA-69, V-STOP-06).
//
// Pure. Lives for one look at one run.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "mpa/framer.hpp"
#include "mpa/markers.hpp"

namespace rnic::mpa {

class RunReader {
 public:
  // The octets of the run, and the place of the first of them in the FPDU stream.
  RunReader(Crc crc, std::span<const Bytes> run, std::uint64_t position);

  // An FPDU that is there in full.
  struct Found {
    std::uint64_t position = 0;  // of its first octet in the FPDU stream (W-MPA-92)
    std::uint32_t octets = 0;
    std::uint64_t end() const { return position + octets; }
  };
  // The next one of the run; nothing when there is none, or what is there cannot be an FPDU. After
  // it either take() or go_on_at() follows.
  std::optional<Found> find();

  enum class Taken : std::uint8_t {
    valid,      // `ulpdu` has its ULPDU: spans within the run's
    scattered,  // valid, but in more than kSpansMax pieces
    invalid,    // a marker or the CRC is wrong: its length is not believed, and nothing is read any more
  };
  Taken take(SpanList& ulpdu);
  // FPDUs up to this place of the run were read before and are valid: the next one begins there.
  void go_on_at(std::uint64_t position);

 private:
  bool find_by_marker();
  Cursor cursor_at(std::size_t offset) const;

  Crc crc_;
  std::uint64_t position_;  // of the run
  std::size_t size_ = 0;    // of the run
  Cursor cursor_;           // stands at passed_
  std::size_t passed_ = 0;  // what is before this is done with
  bool known_ = false;      // an FPDU begins at passed_
  bool ended_ = false;
  std::uint32_t ulpdu_size_ = 0;
  MarkedFpdu fpdu_;
};

}  // namespace rnic::mpa
