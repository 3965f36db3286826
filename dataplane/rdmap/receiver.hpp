// The form of an inbound message: what can be said of a ULPDU from its headers alone, in the order
// of wire.md ("Check order"), so that one error on the wire gives one code. Holds to RFC 5040 s4.1,
// s7 and RFC 5041 s7.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "rdmap/messages.hpp"
#include "rdmap/terminate.hpp"
#include "wire/ddp.hpp"

namespace rnic::rdmap {

struct Inbound {
  wire::DdpHeader ddp;
  const Message& message;
  std::uint32_t payload = 0;  // octets behind the DDP header
};

// Bits of known_by.
enum class Extensions : std::uint8_t {
  off = 0,
  on = known_by::kExtension,
  acknowledged = known_by::kAcknowledged,
  all = 3
};
constexpr Extensions extensions(bool enabled, bool acknowledged = false) {
  return static_cast<Extensions>((enabled ? known_by::kExtension : 0) | (acknowledged ? known_by::kAcknowledged : 0));
}

// Minimum length, DV, RV, opcode known and enabled, opcode fits T, QN known, opcode fits QN.
// `head` are the ULPDU's first octets, at least 18 of them or all.
Result<Inbound, Fault> check_form(Bytes head, std::uint32_t ulpdu_size, Extensions extensions);

}  // namespace rnic::rdmap
