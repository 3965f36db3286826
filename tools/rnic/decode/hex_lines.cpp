#include "decode/hex_lines.hpp"

#include <algorithm>
#include <memory>

#include "decode/run.hpp"
#include "decode/units.hpp"
#include "wire/datagram.hpp"

namespace rnic::tool {
namespace {

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

bool is_text(std::string_view line) {
  return std::none_of(line.begin(), line.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\r'; });
}

constexpr unsigned kUnreadableMax = 10;

}  // namespace

Result<std::vector<std::byte>, std::string> parse_hex(std::string_view line) {
  std::vector<std::byte> octets;
  int high = -1;
  for (std::size_t i = 0; i < line.size() && line[i] != '#'; ++i) {
    const char c = line[i];
    if (c == ' ' || c == '\t' || c == '\r' || c == ':') continue;
    const int value = digit(c);
    if (value < 0)
      return Failure{"'" + std::string(1, c) + "' in column " + std::to_string(i + 1) +
                     " is no hexadecimal digit; give octets as pairs of digits (blanks and colons may stand "
                     "between them), or a pcap or pcapng file"};
    if (high < 0) {
      high = value;
    } else {
      octets.push_back(static_cast<std::byte>(high * 16 + value));
      high = -1;
    }
  }
  if (high >= 0) return Failure{std::string("an odd number of digits: the last octet has only one")};
  return octets;
}

bool decode_hex(std::istream& lines, const HexOptions& options, const Sink& sink,
                const std::function<void(const std::string&)>& complain) {
  unsigned unreadable = 0;
  std::unique_ptr<Run> stream;
  std::string line;
  for (std::size_t number = 1; std::getline(lines, line); ++number) {
    if (!is_text(line)) {
      complain("line " + std::to_string(number) + ": this is neither a capture (pcap, pcapng) nor text");
      ++unreadable;
      break;
    }
    const auto octets = parse_hex(line);
    if (!octets) {
      complain("line " + std::to_string(number) + ": " + octets.error());
      // What follows is no continuation; and who goes on and on is no file for us.
      if (++unreadable == kUnreadableMax || options.one_stream) break;
      continue;
    }
    if (octets->empty()) continue;
    // A line that is a datagram, with its CRC, is nothing else.
    if (!options.one_stream && wire::parse_datagram(*octets)) {
      sink(*datagram_object(*octets));
      continue;
    }
    if (!stream) stream = std::make_unique<Run>(options.framing, options.position, sink);
    stream->feed(*octets);
    if (options.one_stream) continue;
    stream->end("; if the next line continues it, give --stream");
    stream.reset();
  }
  if (stream) stream->end("");
  return unreadable == 0;
}

}  // namespace rnic::tool
