#include "rdmap/describe.hpp"

#include <array>
#include <cstdio>
#include <vector>

#include "wire/terminate.hpp"

namespace rnic::rdmap {
namespace {

using namespace wire::terminate_code;

struct Name {
  wire::TerminateCode code;
  const char* words;
};

constexpr std::array kNames{
    Name{kRdmapLocalCatastrophic, "RDMAP: local catastrophic error"},
    Name{kProtectionInvalidStag, "RDMAP protection: invalid STag"},
    Name{kProtectionBaseOrBounds, "RDMAP protection: base or bounds"},
    Name{kProtectionAccessRights, "RDMAP protection: access rights"},
    Name{kProtectionNotAssociated, "RDMAP protection: STag not associated with the stream"},
    Name{kProtectionToWrap, "RDMAP protection: TO wrap"},
    Name{kProtectionCannotInvalidate, "RDMAP protection: STag cannot be invalidated"},
    Name{kProtectionUnspecified, "RDMAP protection: unspecified"},
    Name{kOperationRdmapVersion, "RDMAP operation: invalid RDMAP version"},
    Name{kOperationUnexpectedOpcode, "RDMAP operation: unexpected opcode"},
    Name{kOperationCatastrophicStream, "RDMAP operation: catastrophic, this stream"},
    Name{kOperationCatastrophicGlobal, "RDMAP operation: catastrophic, global"},
    Name{kOperationCannotInvalidate, "RDMAP operation: STag cannot be invalidated"},
    Name{kOperationUnspecified, "RDMAP operation: unspecified"},
    Name{kDdpLocalCatastrophic, "DDP: local catastrophic error"},
    Name{kTaggedInvalidStag, "DDP tagged: invalid STag"},
    Name{kTaggedBaseOrBounds, "DDP tagged: base or bounds"},
    Name{kTaggedNotAssociated, "DDP tagged: STag not associated with the stream"},
    Name{kTaggedToWrap, "DDP tagged: TO wrap"},
    Name{kTaggedDdpVersion, "DDP tagged: invalid DDP version"},
    Name{kUntaggedQueueNumber, "DDP untagged: invalid QN"},
    Name{kUntaggedNoBuffer, "DDP untagged: no buffer available"},
    Name{kUntaggedMsnRange, "DDP untagged: MSN out of range"},
    Name{kUntaggedMessageOffset, "DDP untagged: invalid MO"},
    Name{kUntaggedTooLong, "DDP untagged: message too long"},
    Name{kUntaggedDdpVersion, "DDP untagged: invalid DDP version"},
    Name{kMpaTcpLost, "LLP: TCP connection lost"},
    Name{kMpaCrc, "LLP: CRC mismatch"},
    Name{kMpaMarker, "LLP: marker and length disagree"},
    Name{kMpaStartupFrame, "LLP: invalid MPA Request or Reply"},
    Name{kMpaLocalCatastrophic, "LLP: local catastrophic error"},
    Name{kMpaInsufficientIrd, "LLP: insufficient IRD"},
    Name{kMpaNoMatchingRtr, "LLP: no matching RTR"},
};

std::string in_words(const wire::TerminateMessage& message) {
  char code[16];
  std::snprintf(code, sizeof code, "%u/%u/%02x", message.code.layer, message.code.type, message.code.code);
  std::string out = code;
  out += " (";
  const char* words = "no registered error";
  for (const Name& name : kNames)
    if (name.code == message.code) words = name.words;
  out += words;
  out += ")";
  if (message.has_length) out += ", segment of " + std::to_string(message.segment_length) + " octets";
  if (message.ddp_header_size != 0)
    out += message.ddp_header_size == wire::TaggedHeader::kSize ? ", tagged" : ", untagged";
  if (message.has_read_request) out += ", with its Read Request";
  return out;
}

// Octets 0 and 2 with their fields from the other end.
std::vector<std::byte> swapped(Bytes payload) {
  std::vector<std::byte> out(payload.begin(), payload.end());
  const auto kinds = std::to_integer<unsigned>(out[0]);
  out[0] = static_cast<std::byte>(kinds << 4 | kinds >> 4);
  const auto headers = std::to_integer<unsigned>(out[2]);
  out[2] = static_cast<std::byte>((headers & 1) << 7 | (headers & 2) << 5 | (headers & 4) << 3);
  return out;
}

}  // namespace

std::string describe_terminate(Bytes payload, Origin origin) {
  const auto message = wire::parse_terminate(payload);
  if (!message) return "a Terminate that is cut off";
  std::string out = in_words(*message);
  if (origin == Origin::local) return out;
  const auto other = wire::parse_terminate(swapped(payload));
  if (other && *other != *message) out += "; or, from a little-endian siw, " + in_words(*other);
  return out;
}

}  // namespace rnic::rdmap
