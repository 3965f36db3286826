// Hexadecimal digits as `rnic decode` takes them, a run of octets on each line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "decode/fpdu.hpp"

namespace rnic::tool {

// Blanks and colons between octets are skipped, and so is what stands behind a '#'. An error is a
// sentence without the line's number.
Result<std::vector<std::byte>, std::string> parse_hex(std::string_view line);

struct HexOptions {
  Framing framing;
  std::uint64_t position = 0;
  bool one_stream = false;  // each line continues the one before it; else each begins at `position`
};

// Every unit of every line goes to `sink`, every line that cannot be read to `complain` as a
// sentence. False if there was one of those.
bool decode_hex(std::istream& lines, const HexOptions& options, const Sink& sink,
                const std::function<void(const std::string&)>& complain);

}  // namespace rnic::tool
