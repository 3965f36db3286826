// A run of octets of one direction whose framing is told, not learned: what `rnic decode` does with
// a line of hexadecimal digits. It may begin with a startup frame; FPDUs follow.
//
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "decode/fpdu.hpp"

namespace rnic::tool {

class Run {
 public:
  // Without a startup frame, its first octet is the first of an FPDU at `position`.
  Run(Framing framing, std::uint64_t position, Sink sink);
  void feed(Bytes octets);
  // No more comes: says what was begun and is not whole, with `advice` on what to do.
  void end(const std::string& advice);

 private:
  bool read_startup();

  Framing framing_;
  std::uint64_t position_;
  Sink sink_;
  enum class Phase : std::uint8_t { start, fpdus, over } phase_ = Phase::start;
  std::vector<std::byte> held_;  // not decoded yet
  std::size_t awaited_ = 0;      // what held_ is to be
};

}  // namespace rnic::tool
