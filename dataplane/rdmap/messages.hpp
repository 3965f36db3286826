// A row for each RDMAP opcode (RFC 5040 s4.1 figures 4 and 5; RFC 7306 s4): which DDP model it uses,
// which queue, how long its own header is, and what its arrival means. Adding an operation is a row here, and one of
// the packet table, which names the responder's function that takes it (rdmap/responder.cpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "wire/acknowledge.hpp"
#include "wire/atomic.hpp"
#include "wire/ddp.hpp"
#include "wire/rdmap.hpp"

namespace rnic::rdmap {

enum class Model : std::uint8_t { none, tagged, untagged };

// What its arrival means: all Sends are one, and both Immediates.
enum class Operation : std::uint8_t {
  none,
  write,
  read_request,
  read_response,
  send,
  terminate,
  immediate,
  atomic_request,
  atomic_response,
  acknowledge,
  negative_acknowledge,
};
inline constexpr std::size_t kOperations = 11;

// Asks its receiver for something, and is counted where requests are acknowledged.
constexpr bool is_request(Operation operation) {
  return operation == Operation::write || operation == Operation::read_request || operation == Operation::send ||
         operation == Operation::immediate || operation == Operation::atomic_request;
}

// What has to be agreed on beyond RFC 5040 for a message to be known.
namespace known_by {
inline constexpr std::uint8_t kAll = 0;
inline constexpr std::uint8_t kExtension = 1;     // RFC 7306: off unless configured (W-EXT-14)
inline constexpr std::uint8_t kAcknowledged = 2;  // docs/wire.md s8.1
}  // namespace known_by

struct Message {
  Model model = Model::none;
  std::uint8_t queue = 0;         // untagged only
  std::uint8_t header_bytes = 0;  // of RDMAP, after the DDP header
  bool solicited = false;
  bool invalidates = false;  // the word behind the control octets names an STag
  std::uint8_t needs = known_by::kAll;
  Operation operation = Operation::none;
  bool value = false;  // that word is Immediate Data

  constexpr bool known() const { return model != Model::none; }
};

inline constexpr auto kMessages = [] {
  using namespace known_by;
  return std::array<Message, 16>{{
      // model           queue  header  SE     inval  known by   operation
      {Model::tagged, 0, 0, false, false, kAll, Operation::write},                     // RDMA Write
      {Model::untagged, 1, 28, false, false, kAll, Operation::read_request},           // Read Request
      {Model::tagged, 0, 0, false, false, kAll, Operation::read_response},             // Read Response
      {Model::untagged, 0, 0, false, false, kAll, Operation::send},                    // Send
      {Model::untagged, 0, 0, false, true, kAll, Operation::send},                     // Send, Invalidate
      {Model::untagged, 0, 0, true, false, kAll, Operation::send},                     // Send, SE
      {Model::untagged, 0, 0, true, true, kAll, Operation::send},                      // Send, SE, Inv.
      {Model::untagged, 2, 4, false, false, kAll, Operation::terminate},               // Terminate
      {Model::untagged, 0, 8, false, false, kExtension, Operation::immediate},         // Immediate
      {Model::untagged, 0, 8, true, false, kExtension, Operation::immediate},          // Immediate, SE
      {Model::untagged, 1, 52, false, false, kExtension, Operation::atomic_request},   // Atomic Request
      {Model::untagged, 3, 12, false, false, kExtension, Operation::atomic_response},  // Atomic Response
      {Model::untagged, 4, 8, false, false, kAcknowledged, Operation::acknowledge},
      {Model::untagged, 4, 8, false, false, kAcknowledged, Operation::negative_acknowledge},
      {Model::untagged, 0, 0, false, false, kAcknowledged, Operation::send, true},  // Send with Immediate
      {Model::untagged, 0, 0, true, false, kAcknowledged, Operation::send, true},   // Send with Immediate, SE
  }};
}();

constexpr const Message& message(wire::RdmapOpcode opcode) { return kMessages[static_cast<std::size_t>(opcode) & 0xF]; }

static_assert(message(wire::RdmapOpcode::read_request).header_bytes == wire::ReadRequestHeader::kSize);
static_assert(message(wire::RdmapOpcode::immediate).header_bytes == wire::ImmediateHeader::kSize);
static_assert(message(wire::RdmapOpcode::atomic_request).header_bytes == wire::AtomicRequestHeader::kSize);
static_assert(message(wire::RdmapOpcode::atomic_response).header_bytes == wire::AtomicResponseHeader::kSize);
static_assert(message(wire::RdmapOpcode::send_se_invalidate).solicited);
static_assert(message(wire::RdmapOpcode::acknowledge).header_bytes == wire::AcknowledgeHeader::kSize);
static_assert(message(wire::RdmapOpcode::negative_acknowledge).header_bytes == wire::NegativeAcknowledgeHeader::kSize);
static_assert(message(wire::RdmapOpcode{12}).needs != 0, "unassigned (RFC 6580 s3.4)");

// Send types, by what they also do.
constexpr wire::RdmapOpcode send_opcode(bool solicited, bool invalidates) {
  using enum wire::RdmapOpcode;
  if (solicited) return invalidates ? send_se_invalidate : send_se;
  return invalidates ? send_invalidate : send;
}

}  // namespace rnic::rdmap
