// The startup frame at the beginning of a direction of a stream, if there is one.
//
// Pure.
#pragma once

#include <string>

#include "base/bytes.hpp"
#include "decode/units.hpp"
#include "wire/mpa.hpp"

namespace rnic::tool {

struct StartupScan {
  enum class Kind : std::uint8_t {
    none,   // the octets begin otherwise
    more,   // so far it could be one, or is one; it is not whole
    frame,  // here it is
    bad,    // a frame that every receiver refuses (2/0/04); `reason` says why
  } kind = Kind::none;
  wire::StartupHeader header{};  // frame, bad
  std::size_t size = 0;          // more: octets that there are to be at least; frame: that it takes
  Json object;                   // frame, bad
  std::string reason;
};

StartupScan scan_startup(Bytes octets);

}  // namespace rnic::tool
