// Octets of a stream where they lie: the spans that hold them, and a place in these.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.hpp"

namespace rnic::mpa {

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

}  // namespace rnic::mpa
