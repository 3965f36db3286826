// Work requests and completions as values: what RDMAP sees of an application. Shared memory is turned into
// these, with distrust, by shm/.
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "tpt/table.hpp"

namespace rnic::rdmap {

inline constexpr std::uint32_t kSgesMax = 16;

// The values are abi/rnic_shm.h's enum rnic_opcode.
enum class Opcode : std::uint8_t {
  send = 0,
  send_invalidate = 1,
  write = 2,
  read = 3,
  read_invalidate = 4,
  bind = 5,
  local_invalidate = 6,
  fetch_add = 7,
  compare_swap = 8,
  write_immediate = 9,
  fast_register = 10,
  send_immediate = 11,  // of acknowledged streams
  receive = 15,
  receive_write_immediate = 16,
};

// The values are abi/rnic_shm.h's enum rnic_status.
enum class Status : std::uint8_t {
  success = 0,
  flushed = 1,
  invalid_wqe = 2,
  local_catastrophic = 3,
  remote_termination = 4,
  invalid_stag = 5,
  base_bounds = 6,
  access = 7,
  invalid_pd = 8,
  wrap = 9,
  invalidate_pd_access = 10,
  zero_read_resources = 11,
  not_privileged = 12,
  stag_not_invalid = 13,
  invalid_page_size = 14,
  invalid_list_entry = 16,
  invalid_first_offset = 17,
  invalid_list_length = 18,
  invalid_list_access = 19,
  list_too_long = 20,
  invalid_list_address = 21,
  invalid_region = 22,
  invalid_window = 23,
  invalid_length = 24,
  message_too_long = 25,
  retry_exceeded = 26,
  rnr_retry_exceeded = 27,
};

struct Sge {
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  Stag lkey;
};

struct WorkRequest {
  Opcode opcode = Opcode::send;
  bool signaled = false;
  bool fence = false;
  bool solicited = false;
  bool malformed = false;  // completes with Status::invalid_wqe
  bool has_data = false;   // `data` is the payload; with SGEs (gathered at post) these are still checked
  std::uint8_t sge_count = 0;
  std::uint32_t slot = 0;  // to be given back in the completion
  Bytes data;              // in shared memory: valid until this WR completes; its content may change
  std::uint64_t remote_to = 0;
  Stag remote_stag;
  Stag invalidate;              // Send with Invalidate; bind: the region's STag
  std::uint32_t immediate = 0;  // network order
  std::uint64_t argument = 0;   // add, compare; bind: length
  std::uint64_t swap = 0;
  std::uint64_t add_mask = 0;  // fetch_add: a set bit ends a field (RFC 7306 s5.1.1)
  std::uint64_t swap_mask = UINT64_MAX, compare_mask = UINT64_MAX;  // compare_swap
  tpt::Rights rights = tpt::Rights::none;                           // bind
  tpt::PageList list;  // fast_register; its base and size are remote_to and argument
  std::array<Sge, kSgesMax> sges;
};

struct ReceiveRequest {
  std::uint32_t slot = 0;
  bool shared = false;
  bool malformed = false;
  std::uint8_t sge_count = 0;
  std::array<Sge, kSgesMax> sges;
};

struct Completion {
  Opcode opcode = Opcode::send;
  Status status = Status::success;
  bool of_send_queue = true;
  bool shared = false;  // `slot` is one of a shared receive queue
  bool solicited = false;
  bool invalidated = false;  // `word`: the STag
  bool immediate = false;    // `word`: the value, network order
  std::uint32_t slot = 0;
  std::uint32_t length = 0;
  std::uint32_t word = 0;
  std::uint32_t detail = 0;  // remote_termination: layer << 12 | type << 8 | code
  bool datagram = false;     // it came by a datagram, whose header is in front of it
  bool ipv4 = false;         // of a datagram: that header is one of IPv4, else of IPv6
  QpNumber source{};         // of a datagram: who has sent it
};

}  // namespace rnic::rdmap
