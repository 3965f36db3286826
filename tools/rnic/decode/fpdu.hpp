// FPDUs in a run of octets, as JSON objects.
//
// mpa::Framer is the judge of what is an FPDU and whether it is good. What it refuses is shown too,
// as far as the length chain says where it is.
//
// Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/bytes.hpp"
#include "decode/units.hpp"
#include "mpa/framer.hpp"

namespace rnic::tool {

using Sink = std::function<void(Json&&)>;

struct Framing {
  mpa::Crc crc = mpa::Crc::on;
  mpa::Markers markers = mpa::Markers::none;
};

struct Step {
  enum class Kind : std::uint8_t {
    fpdu,    // one was shown
    more,    // it is not there in full
    failed,  // an error was shown: nothing behind is known to begin anywhere (W-MPA-69)
  } kind = Kind::more;
  std::uint32_t octets = 0;  // fpdu: what it took; more: what it will take, 0 where its length is not there yet
};

// The FPDU that begins with the first octet, `position` octets behind the startup frame; a multiple
// of 4, as FPDUs and markers are.
Step decode_fpdu(Bytes octets, Framing framing, std::uint64_t position, const Sink& sink);

// Whether a good FPDU stands there whose ULPDU makes sense, for those who do not know. Without CRC,
// one whose headers leave little doubt.
struct Guess {
  enum class Kind : std::uint8_t { no, perhaps, yes } kind = Kind::no;
  std::uint32_t octets = 0;   // yes: that it takes; perhaps: that have to be there to tell
  std::uint32_t markers = 0;  // yes: in it
};
Guess guess_fpdu(Bytes octets, Framing framing, std::uint64_t position);

// "the octets end inside ...": `have` of `need` octets; `need` 0 where that is not known yet.
std::string cut_off(const char* what, std::size_t have, std::size_t need);

}  // namespace rnic::tool
