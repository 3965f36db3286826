// One unit of a stream as the JSON object that `rnic decode` prints for it: a startup frame, an
// FPDU, or an error. docs/decode.md describes every member. Numbers are numbers, single bits are
// true or false, strings of octets are hexadecimal digits; null is what this unit does not have.
//
// Pure: values in, values out. What octets mean is said by the data plane's own codecs.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "wire/mpa.hpp"
#include "wire/terminate.hpp"

namespace rnic::tool {

using Json = nlohmann::ordered_json;

std::string to_hex(Bytes octets);

// `private_data` as far as it is there, with the enhanced block where the frame has one; that block
// is shown by its members and left out of the object's private_data.
Json startup_object(const wire::StartupHeader& header, Bytes private_data);

// How one FPDU lies in its stream.
struct FpduPlace {
  std::uint64_t position = 0;          // of its first octet, a leading marker too, from the first of the direction
  std::uint32_t length = 0;            // octets of the stream: markers, pad and CRC counted
  const char* crc = "off";             // "good", "bad" or "off"
  std::vector<std::uint16_t> markers;  // the FPDUPTR of each marker in it
};
// Every member that the ULPDU is long enough for.
Json fpdu_object(const FpduPlace& place, Bytes ulpdu);

// Of a datagram of rnic's own (docs/wire.md s8.2), all that UDP carries; nothing: it does not begin as one.
std::optional<Json> datagram_object(Bytes whole);

// `code` is what a Terminate for it says; without one, null: it is none of the peer's faults.
Json error_object(std::uint64_t position, const std::string& reason,
                  std::optional<wire::TerminateCode> code = std::nullopt);

struct FormError {
  std::string reason;
  wire::TerminateCode code;
};
// What any receiver refuses a ULPDU for, whatever its state is: length, versions, opcode, queue,
// size of the message, in the order of wire.md's "Check order". The first one; nothing if all is
// well. RFC 7306's opcodes are taken for enabled.
std::optional<FormError> form_error(Bytes ulpdu);

}  // namespace rnic::tool
