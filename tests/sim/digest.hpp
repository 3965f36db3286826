// One number for all that a simulated world has done: two builds that print the same one for a seed have said
// the same frames at the same times and completed the same work in the same order.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/bytes.hpp"
#include "base/time.hpp"
#include "qp/work.hpp"

namespace rnic::sim {

// Not against anybody who wants two runs to look alike.
class Digest {
 public:
  void add(std::uint64_t word) {
    state_ = (state_ ^ word) * 0x9FB21C651E98DF25u;
    state_ ^= state_ >> 29;
  }
  void add(Instant now) { add(static_cast<std::uint64_t>(now.ns)); }
  void add(Bytes octets) {
    add(octets.size());
    for (; octets.size() >= 8; octets = octets.subspan(8)) {
      std::uint64_t word;
      std::memcpy(&word, octets.data(), sizeof word);
      add(word);
    }
    for (const std::byte octet : octets) add(std::to_integer<std::uint64_t>(octet));
  }
  void add(const qp::Completion& completion) {
    const qp::Completion& c = completion;
    for (const bool flag : {c.of_send_queue, c.shared, c.solicited, c.invalidated, c.immediate}) add(flag ? 1u : 0u);
    add(static_cast<std::uint64_t>(c.opcode) << 8 | static_cast<std::uint64_t>(c.status));
    for (const std::uint32_t word : {c.slot, c.length, c.word, c.detail}) add(word);
  }
  void add(const qp::Change& change) {
    add(static_cast<std::uint64_t>(change.from) << 16 | static_cast<std::uint64_t>(change.to) << 8 |
        static_cast<std::uint64_t>(change.cause));
    add(std::uint64_t{change.flushed_sends} << 32 | change.flushed_receives);
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0xD1B54A32D192ED03u;
};

}  // namespace rnic::sim
