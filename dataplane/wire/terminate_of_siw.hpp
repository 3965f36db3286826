// A Terminate as siw writes it on a little-endian machine: its bit-fields lie the other way round
// than in RFC 5040 s4.8.
//
//  0     |EType(4)|Layer(4)|
//  2     |Rsvd(5)|R|D|M|
#pragma once

#include <algorithm>

#include "wire/terminate.hpp"

namespace rnic::wire {

// Nothing where M, D and R do not lie as siw has them: then it is to be read as the RFC says, or
// bears no header, and says the same to whoever looks for one.
inline std::optional<TerminateMessage> parse_terminate_of_siw(Bytes payload) {
  if (payload.size() < TerminateMessage::kSizeMin) return std::nullopt;
  const auto kinds = load_be<std::uint8_t>(payload, 0);
  const auto headers = load_be<std::uint8_t>(payload, 2);
  if ((headers & 0xF8) != 0 || headers == 0) return std::nullopt;
  std::array<std::byte, TerminateMessage::kSizeMax> turned;
  const std::size_t size = std::min(payload.size(), turned.size());
  std::copy_n(payload.begin(), size, turned.begin());
  turned[0] = static_cast<std::byte>((kinds << 4 | kinds >> 4) & 0xFF);
  turned[2] = static_cast<std::byte>((headers & 1) << 7 | (headers & 2) << 5 | (headers & 4) << 3);
  return parse_terminate(Bytes(turned).first(size));
}

}  // namespace rnic::wire
