// What an application posts, and messages as octets: for tests of messages, which need no stream, and of queue
// pairs.
#pragma once

#include <algorithm>
#include <vector>

#include "kit/rdmap_host.hpp"
#include "kit/tpt_memory.hpp"
#include "kit/tpt_mover.hpp"
#include "wire/ddp.hpp"
#include "wire/rdmap.hpp"

namespace rnic::test {

inline constexpr PdId kPd{1};
inline constexpr PdId kOtherPd{2};
inline constexpr auto kAllRights =
    tpt::Rights::local_read | tpt::Rights::local_write | tpt::Rights::remote_read | tpt::Rights::remote_write;
inline constexpr auto kAllAccess = tpt::Rights::remote_read | tpt::Rights::remote_write;

// ---- work ----

inline rdmap::WorkRequest work(rdmap::Opcode opcode, std::vector<rdmap::Sge> sges = {}) {
  rdmap::WorkRequest request;
  request.opcode = opcode;
  request.signaled = true;
  request.sge_count = static_cast<std::uint8_t>(sges.size());
  std::copy(sges.begin(), sges.end(), request.sges.begin());
  return request;
}
inline rdmap::WorkRequest send(std::vector<rdmap::Sge> sges = {}) { return work(rdmap::Opcode::send, std::move(sges)); }
inline rdmap::WorkRequest write(std::vector<rdmap::Sge> sges, Stag stag, std::uint64_t to) {
  auto request = work(rdmap::Opcode::write, std::move(sges));
  request.remote_stag = stag;
  request.remote_to = to;
  return request;
}
inline rdmap::WorkRequest read(std::vector<rdmap::Sge> sges, Stag stag, std::uint64_t to) {
  auto request = write(std::move(sges), stag, to);
  request.opcode = rdmap::Opcode::read;
  return request;
}

// ---- messages as octets ----

using Octets = std::vector<std::byte>;

inline Octets operator+(Octets first, const Octets& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}
inline Octets filled(std::size_t size, std::uint32_t seed = 7) {
  Octets out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = octet_at(i, seed);
  return out;
}
inline Octets tagged(std::uint8_t opcode, bool last, Stag stag, std::uint64_t to, const Octets& payload = {}) {
  Octets out(14);
  wire::emit(
      wire::TaggedHeader{
          .last = last, .rdmap_control = static_cast<std::uint8_t>(0x40 | opcode), .stag = stag, .tagged_offset = to},
      out);
  return out + payload;
}
inline Octets untagged(std::uint8_t opcode, bool last, std::uint32_t queue, std::uint32_t msn, std::uint32_t mo,
                       const Octets& payload = {}, Stag invalidate = {}) {
  Octets out(18);
  wire::emit(wire::UntaggedHeader{.last = last,
                                  .rdmap_control = static_cast<std::uint8_t>(0x40 | opcode),
                                  .invalidate = invalidate,
                                  .queue = queue,
                                  .msn = msn,
                                  .message_offset = mo},
             out);
  return out + payload;
}
inline Octets read_request(std::uint32_t msn, wire::ReadRequestHeader header) {
  Octets body(28);
  wire::emit(header, body);
  return untagged(1, true, 1, msn, 0, body);
}

}  // namespace rnic::test
