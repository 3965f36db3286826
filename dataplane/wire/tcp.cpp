// Reading and writing TCP options. The layout of those we send is the usual one: each begins
// where its 32-bit words are aligned, with NOPs in front.
#include "wire/tcp.hpp"

namespace rnic::wire {

namespace {

namespace kind {
constexpr std::uint8_t kEnd = 0, kNop = 1, kMss = 2, kWindowScale = 3, kSackPermitted = 4, kSack = 5, kTimestamps = 8;
}

void parse_option(std::uint8_t which, Bytes option, TcpHeader& header) {
  switch (which) {
    case kind::kMss:
      if (option.size() == 4) header.mss = load_be<std::uint16_t>(option, 2);
      break;
    case kind::kWindowScale:
      if (option.size() == 3) header.window_scale = load_be<std::uint8_t>(option, 2);
      break;
    case kind::kSackPermitted:
      if (option.size() == 2) header.sack_permitted = true;
      break;
    case kind::kSack:
      if ((option.size() - 2) % 8 != 0) break;
      for (std::size_t at = 2; at < option.size() && header.sack_count < TcpHeader::kSackBlocksMax; at += 8)
        header.sack[header.sack_count++] = {load_be<std::uint32_t>(option, at), load_be<std::uint32_t>(option, at + 4)};
      break;
    case kind::kTimestamps:
      if (option.size() == 10)
        header.timestamps = {load_be<std::uint32_t>(option, 2), load_be<std::uint32_t>(option, 6)};
      break;
    default:
      break;  // not ours to know (RFC 9293 s3.1: MUST-6)
  }
}

void parse_options(Bytes options, TcpHeader& header) {
  while (!options.empty()) {
    const auto which = load_be<std::uint8_t>(options, 0);
    if (which == kind::kEnd) return;
    if (which == kind::kNop) {
      options = options.subspan(1);
      continue;
    }
    if (options.size() < 2) return;
    const auto size = load_be<std::uint8_t>(options, 1);
    if (size < 2 || size > options.size()) return;
    parse_option(which, options.first(size), header);
    options = options.subspan(size);
  }
}

// Writes one option's octets one after another.
class OptionWriter {
 public:
  explicit OptionWriter(MutableBytes out) : out_(out) {}
  template <typename T>
  void put(T value) {
    store_be(out_, at_, value);
    at_ += sizeof(T);
  }
  void begin(std::uint8_t which, std::uint8_t size) {
    put(which);
    put(size);
  }
  void nop() { put(kind::kNop); }

 private:
  MutableBytes out_;
  std::size_t at_ = TcpHeader::kSize;
};

}  // namespace

std::optional<ParsedTcp> parse_tcp(Bytes segment) {
  if (segment.size() < TcpHeader::kSize) return std::nullopt;
  const std::size_t offset = static_cast<std::size_t>(load_be<std::uint8_t>(segment, 12) >> 4) * 4;
  if (offset < TcpHeader::kSize || offset > segment.size()) return std::nullopt;
  std::optional<ParsedTcp> parsed(std::in_place);
  TcpHeader& header = parsed->header;
  parsed->data_offset = offset;
  header.source_port = load_be<std::uint16_t>(segment, 0);
  header.destination_port = load_be<std::uint16_t>(segment, 2);
  header.sequence = load_be<std::uint32_t>(segment, 4);
  header.acknowledgement = load_be<std::uint32_t>(segment, 8);
  header.flags = load_be<std::uint8_t>(segment, 13);
  header.window = load_be<std::uint16_t>(segment, 14);
  header.urgent = load_be<std::uint16_t>(segment, 18);
  if (offset > TcpHeader::kSize) parse_options(segment.subspan(TcpHeader::kSize, offset - TcpHeader::kSize), header);
  return parsed;
}

std::size_t emit(const TcpHeader& header, MutableBytes out) {
  const std::size_t size = header_size(header);
  emit_plain(header, out);
  if (size == TcpHeader::kSize) return size;
  RNIC_ASSERT(size <= TcpHeader::kSizeMax);
  store_be(out, 12, static_cast<std::uint8_t>(size / 4 << 4));
  OptionWriter options(out.first(size));
  if (header.mss) {
    options.begin(kind::kMss, 4);
    options.put(*header.mss);
  }
  if (header.sack_permitted) {
    if (!header.timestamps) {
      options.nop();
      options.nop();
    }
    options.begin(kind::kSackPermitted, 2);
  }
  if (header.timestamps) {
    if (!header.sack_permitted) {
      options.nop();
      options.nop();
    }
    options.begin(kind::kTimestamps, 10);
    options.put(header.timestamps->value);
    options.put(header.timestamps->echo);
  }
  if (header.window_scale) {
    options.nop();
    options.begin(kind::kWindowScale, 3);
    options.put(*header.window_scale);
  }
  if (const auto blocks = detail::sack_blocks_that_fit(header); blocks > 0) {
    options.nop();
    options.nop();
    options.begin(kind::kSack, static_cast<std::uint8_t>(2 + 8 * blocks));
    for (std::size_t i = 0; i < blocks; ++i) {
      options.put(header.sack[i].first);
      options.put(header.sack[i].end);
    }
  }
  return size;
}

}  // namespace rnic::wire
