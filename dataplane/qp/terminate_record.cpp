#include "qp/terminate_record.hpp"

#include <cstring>

#include "base/assert.hpp"
#include "rdmap/describe.hpp"
#include "wire/ddp.hpp"
#include "wire/rdmap.hpp"
#include "wire/terminate_of_siw.hpp"

namespace rnic::qp {

TerminateRecord TerminateRecord::said(const wire::TerminateMessage& message) {
  TerminateRecord record;
  record.origin = Origin::local;
  record.length =
      static_cast<std::uint32_t>(wire::emit(message, as_mutable_bytes(record.octets, sizeof record.octets)));
  return record;
}

TerminateRecord TerminateRecord::heard(Bytes payload) {
  TerminateRecord record;
  RNIC_ASSERT(payload.size() <= sizeof record.octets);
  record.origin = Origin::remote;
  record.length = static_cast<std::uint32_t>(payload.size());
  std::memcpy(record.octets, payload.data(), payload.size());
  return record;
}

std::string describe(const TerminateRecord& record) {
  using Origin = TerminateRecord::Origin;
  if (record.origin == Origin::none) return {};
  return rdmap::describe_terminate(record.bytes(),
                                   record.origin == Origin::remote ? rdmap::Origin::remote : rdmap::Origin::local);
}

bool says_nothing(Bytes payload) {
  const auto message = wire::parse_terminate(payload);
  return message && *message == wire::TerminateMessage{};
}

std::optional<RefusedRead> refused_read(Bytes payload) {
  if (const auto siws = wire::parse_terminate_of_siw(payload)) {
    // The MSN it gives is none, but it answers Reads one by one: it is the oldest.
    return siws->has_read_request ? std::optional(RefusedRead{std::nullopt, siws->code}) : std::nullopt;
  }
  const auto message = wire::parse_terminate(payload);
  if (!message || message->ddp_header_size != wire::UntaggedHeader::kSize) return std::nullopt;
  const auto header = wire::parse_ddp(message->ddp_header);
  if (!header || header->tagged || header->queue != wire::queue_number::kReadRequest) return std::nullopt;
  return RefusedRead{header->msn, message->code};
}

}  // namespace rnic::qp
