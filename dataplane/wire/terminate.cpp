#include "wire/terminate.hpp"

#include <algorithm>

namespace rnic::wire {
namespace {
constexpr std::uint8_t kLengthValid = 0x80;  // M
constexpr std::uint8_t kHasDdp = 0x40;       // D
constexpr std::uint8_t kHasRdmap = 0x20;     // R
}  // namespace

std::optional<TerminateMessage> parse_terminate(Bytes payload) {
  if (payload.size() < TerminateMessage::kSizeMin) return std::nullopt;
  const auto kinds = load_be<std::uint8_t>(payload, 0);
  const auto headers = load_be<std::uint8_t>(payload, 2);
  TerminateMessage message{.code = {.layer = static_cast<std::uint8_t>(kinds >> 4),
                                    .type = static_cast<std::uint8_t>(kinds & 0xF),
                                    .code = load_be<std::uint8_t>(payload, 1)}};
  Bytes rest = payload.subspan(TerminateMessage::kSizeMin);
  if ((headers & (kLengthValid | kHasDdp)) != 0) {
    if (rest.size() < 2) return message;
    message.has_length = (headers & kLengthValid) != 0;
    message.segment_length = load_be<std::uint16_t>(rest, 0);
    rest = rest.subspan(2);
  }
  if ((headers & kHasDdp) != 0) {
    if (rest.empty()) return message;
    const bool tagged = (load_be<std::uint8_t>(rest, 0) & ddp_control::kTagged) != 0;
    const std::size_t size = tagged ? TaggedHeader::kSize : UntaggedHeader::kSize;
    if (rest.size() < size) return message;
    std::copy_n(rest.begin(), size, message.ddp_header.begin());
    message.ddp_header_size = static_cast<std::uint8_t>(size);
    rest = rest.subspan(size);
  }
  if ((headers & kHasRdmap) != 0 && rest.size() >= ReadRequestHeader::kSize) {
    std::copy_n(rest.begin(), ReadRequestHeader::kSize, message.read_request.begin());
    message.has_read_request = true;
  }
  return message;
}

std::size_t emit(const TerminateMessage& message, MutableBytes out) {
  const std::size_t size = terminate_size(message);
  RNIC_ASSERT(out.size() >= size && message.ddp_header_size <= message.ddp_header.size());
  const auto& [layer, type, code] = message.code;
  store_be(out, 0, static_cast<std::uint8_t>((layer & 0xF) << 4 | (type & 0xF)));
  store_be(out, 1, code);
  const int headers = (message.has_length ? kLengthValid : 0) | (message.ddp_header_size != 0 ? kHasDdp : 0) |
                      (message.has_read_request ? kHasRdmap : 0);
  store_be(out, 2, static_cast<std::uint8_t>(headers));
  store_be<std::uint8_t>(out, 3, 0);
  std::size_t at = TerminateMessage::kSizeMin;
  if (message.has_length || message.ddp_header_size != 0) {
    store_be(out, at, message.segment_length);
    at += 2;
  }
  std::copy_n(message.ddp_header.begin(), message.ddp_header_size, out.begin() + static_cast<std::ptrdiff_t>(at));
  at += message.ddp_header_size;
  if (message.has_read_request)
    std::copy_n(message.read_request.begin(), message.read_request.size(),
                out.begin() + static_cast<std::ptrdiff_t>(at));
  return size;
}

}  // namespace rnic::wire
