// rnic decode: MPA streams as JSON, from hexadecimal digits or from a capture file.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>

#include "commands.hpp"
#include "decode/capture.hpp"
#include "decode/hex_lines.hpp"

namespace rnic::tool {
namespace {

// A stream whose first octets have been read already, as a FILE.
struct Replayed {
  std::string start;
  std::size_t given = 0;
  std::FILE* rest = nullptr;
};
ssize_t read_replayed(void* cookie, char* out, std::size_t size) {
  auto& replayed = *static_cast<Replayed*>(cookie);
  if (replayed.given < replayed.start.size()) {
    const std::size_t n = std::min(size, replayed.start.size() - replayed.given);
    std::memcpy(out, replayed.start.data() + replayed.given, n);
    replayed.given += n;
    return static_cast<ssize_t>(n);
  }
  return static_cast<ssize_t>(std::fread(out, 1, size, replayed.rest));
}
int close_replayed(void* cookie) {
  const std::unique_ptr<Replayed> replayed(static_cast<Replayed*>(cookie));
  return std::fclose(replayed->rest);
}

void complain(const std::string& words) { std::fprintf(stderr, "rnic decode: %s\n", words.c_str()); }

// A reader that has gone (head, for one) wants no more.
void print(Json&& unit) {
  const std::string line = unit.dump() + "\n";
  if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size()) std::exit(1);
}

// The rest of a text file, by lines.
class FileBuffer : public std::streambuf {
 public:
  explicit FileBuffer(std::FILE* file) : file_(file) {}
  ~FileBuffer() override { std::fclose(file_); }

 protected:
  int_type underflow() override {
    const std::size_t got = std::fread(room_, 1, sizeof room_, file_);
    if (got == 0) return traits_type::eof();
    setg(room_, room_, room_ + got);
    return traits_type::to_int_type(room_[0]);
  }

 private:
  std::FILE* file_;
  char room_[65536];
};

}  // namespace

int decode(const DecodeOptions& options) {
  const bool from_stdin = options.file.empty() || options.file == "-";
  const std::string name = from_stdin ? "standard input" : options.file;
  std::FILE* file = from_stdin ? stdin : std::fopen(options.file.c_str(), "rb");
  if (file == nullptr) {
    complain("cannot open " + name + ": " + std::strerror(errno));
    return 1;
  }
  // The first octets tell what it is; a pipe does not go back.
  auto replayed = std::make_unique<Replayed>();
  replayed->rest = file;
  replayed->start.resize(4);
  replayed->start.resize(std::fread(replayed->start.data(), 1, 4, file));
  const bool capture = looks_like_capture(as_bytes(replayed->start.data(), replayed->start.size()));
  std::FILE* whole = fopencookie(replayed.release(), "r", {read_replayed, nullptr, nullptr, close_replayed});
  if (whole == nullptr) {
    complain(std::string("cannot read ") + name + ": " + std::strerror(errno));
    return 1;
  }

  if (capture) {
    if (options.position || options.one_stream) {
      complain("--position and --stream are for hexadecimal lines; " + name +
               " is a capture, which tells positions itself");
      std::fclose(whole);
      return 2;
    }
    Assumed assumed;
    if (options.crc) assumed.crc = *options.crc ? mpa::Crc::on : mpa::Crc::off;
    if (options.markers) assumed.markers = mpa::Markers::expected;
    const std::string why = decode_capture(whole, name, assumed, print, complain);
    if (!why.empty()) complain(why);
    return why.empty() ? 0 : 1;
  }

  const std::uint64_t position = options.position.value_or(0);
  if (position % 4 != 0) {
    complain("--position " + std::to_string(position) +
             ": no FPDU begins there; positions are counted from the first octet behind the startup frame, and are "
             "multiples of 4");
    std::fclose(whole);
    return 2;
  }
  FileBuffer buffer(whole);
  std::istream lines(&buffer);
  const HexOptions hex{.framing = {options.crc.value_or(true) ? mpa::Crc::on : mpa::Crc::off,
                                   options.markers ? mpa::Markers::expected : mpa::Markers::none},
                       .position = position,
                       .one_stream = options.one_stream};
  const bool all_read = decode_hex(lines, hex, print, [&](const std::string& words) { complain(name + ", " + words); });
  return all_read ? 0 : 1;
}

}  // namespace rnic::tool
