// Placement of a segment's payload (RFC 5041 s5.4, s7): from where it lies, in receive buffers or in another
// application's memory, to memory that the TPT has permitted. Nothing is checked here: whoever has an Access
// has checked.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/bytes.hpp"
#include "tpt/mover.hpp"

namespace rnic::ddp {

// The last octets of a message, which a poller must not see before the rest (V-ORD-09).
inline constexpr std::uint32_t kTailBytes = 8;

constexpr tpt::Access slice(const tpt::Access& whole, std::uint64_t offset, std::uint32_t length) {
  tpt::Access part = whole;
  part.address += offset;
  if (part.direct != nullptr) part.direct += offset;
  part.length = length;
  return part;
}

// A ULPDU that came in: headers, and a payload that lies behind them in the spans, or is memory of another application
// (of this host: such a message was never a frame). A payload that RDMAP has to read is never memory.
struct Ulpdu {
  std::span<const Bytes> spans;
  std::uint32_t size = 0;               // in all
  const tpt::Access* memory = nullptr;  // the payload, all of it; then the spans have the headers alone

  Ulpdu(std::span<const Bytes> its_spans, std::uint32_t its_size, const tpt::Access* its_memory = nullptr)
      : spans(its_spans), size(its_size), memory(its_memory) {}

  // Its first octets, as many as there is room for; how many they are.
  std::uint32_t copy_head(MutableBytes out) const {
    std::size_t copied = 0;
    for (const Bytes& span : spans) {
      const std::size_t n = std::min(span.size(), out.size() - copied);
      std::memcpy(out.data() + copied, span.data(), n);
      copied += n;
      if (copied == out.size()) break;
    }
    return static_cast<std::uint32_t>(copied);
  }
  // The same, where they lie: nearly always the first span has them all. Else in `room`.
  template <std::size_t kSize>
  Bytes head(std::array<std::byte, kSize>& room) const {
    const Bytes first = !spans.empty() ? spans[0] : Bytes{};
    return first.size() >= kSize ? first.first(kSize) : Bytes(room).first(copy_head(room));
  }
};

// A payload's octets in spans, in order, in as few pieces as they lie in.
class Payload {
 public:
  Payload(std::span<const Bytes> spans, std::size_t skip) : spans_(spans) {
    while (skip != 0) {
      const std::size_t step = std::min(skip, spans_[index_].size());
      skip -= step;
      step_over(step);
    }
  }
  // The next piece, of at most `most` octets; the caller knows that one is left.
  Bytes take(std::size_t most) {
    while (spans_[index_].size() == offset_) ++index_, offset_ = 0;
    const Bytes piece = spans_[index_].subspan(offset_, std::min(most, spans_[index_].size() - offset_));
    step_over(piece.size());
    return piece;
  }

 private:
  void step_over(std::size_t n) {
    offset_ += n;
    if (offset_ == spans_[index_].size()) ++index_, offset_ = 0;
  }
  std::span<const Bytes> spans_;
  std::size_t index_ = 0;
  std::size_t offset_ = 0;
};

// What became of a segment's places so far.
struct Placement {
  std::uint32_t later = 0;  // on_moved calls to come
  bool failed = false;

  void add(const Placement& other) {
    later += other.later;
    failed |= other.failed;
  }
  void add(tpt::Moved moved) {
    switch (moved) {
      case tpt::Moved::done:
        break;
      case tpt::Moved::failed:
        failed = true;
        break;
      case tpt::Moved::later:
        ++later;
        break;
    }
  }
};

enum class Ends : std::uint8_t { nothing, message };

// All of `to` from the next octets of `payload`. With Ends::message the last of them are the
// message's last, and become a place of their own behind all others.
inline void place(tpt::Mover& mover, Payload& payload, const tpt::Access& to, Ends ends, tpt::MoveTicket ticket,
                  Placement& placement) {
  const auto submit = [&](Bytes from, std::uint64_t at, tpt::Part part) {
    placement.add(mover.place(from, slice(to, at, static_cast<std::uint32_t>(from.size())), part, ticket));
  };
  std::uint32_t done = 0;
  while (done < to.length) {
    const Bytes piece = payload.take(to.length - done);
    const auto size = static_cast<std::uint32_t>(piece.size());
    if (ends == Ends::message && done + size == to.length) {
      const std::uint32_t tail = std::min(size, kTailBytes);
      if (size > tail) submit(piece.first(size - tail), done, tpt::Part::body);
      submit(piece.last(tail), done + size - tail, tpt::Part::tail);
    } else {
      submit(piece, done, tpt::Part::body);
    }
    done += size;
  }
}

// All of `to` from another application's memory, of the same size. The last octets as with place().
[[gnu::noinline]] inline Placement transfer(tpt::Mover& mover, const tpt::Access& from, const tpt::Access& to,
                                            Ends ends, tpt::MoveTicket ticket) {
  Placement placement;
  const auto submit = [&](std::uint32_t at, std::uint32_t size, tpt::Part part) {
    if (size != 0) placement.add(mover.transfer(slice(from, at, size), slice(to, at, size), part, ticket));
  };
  const std::uint32_t tail = ends == Ends::message ? std::min(to.length, kTailBytes) : 0;
  submit(0, to.length - tail, tpt::Part::body);
  submit(to.length - tail, tail, tpt::Part::tail);
  return placement;
}

}  // namespace rnic::ddp
