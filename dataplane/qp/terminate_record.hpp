// The Terminate that a queue pair has said or heard, as its consumer may ask for it; and what can be read out of one
// that came.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.hpp"
#include "wire/terminate.hpp"

namespace rnic::qp {

struct TerminateRecord {
  enum class Origin : std::uint8_t { none, local, remote } origin = Origin::none;
  std::uint8_t octets[64] = {};
  std::uint32_t length = 0;

  static TerminateRecord said(const wire::TerminateMessage& message);
  // At most as many octets as there is room for: rdmap::kTerminateMax.
  static TerminateRecord heard(Bytes payload);
  Bytes bytes() const { return as_bytes(octets, length); }
};

// In words; of one that came, both readings of its fields (W-RDMAP-34). Empty when there is none.
std::string describe(const TerminateRecord& record);

// ---- the payload of one that came ----

// 0x0000 and no more: its peer exits, or gives its queue pair up.
bool says_nothing(Bytes payload);

// The Read that it refuses (V-CS-05), if it says which: by the number of its Request, or the oldest.
struct RefusedRead {
  std::optional<std::uint32_t> msn;
  wire::TerminateCode code;
};
std::optional<RefusedRead> refused_read(Bytes payload);

}  // namespace rnic::qp
