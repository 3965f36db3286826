// Work and messages of RFC 7306, for tests: atomic operations and RDMA Write with Immediate.
#pragma once

#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "kit/qp_world.hpp"
#include "wire/atomic.hpp"

namespace rnic::test {

inline constexpr auto kAtomicRights = kAllRights | tpt::Rights::remote_atomic;

inline void extend(qp::Config& config) {
  config.extensions = true;
  config.access = kAllAccess | tpt::Rights::remote_atomic;
}
inline Options extended(Moves moves = Moves::direct, std::uint64_t seed = 1) {
  Options options;
  options.moves = moves;
  options.seed = seed;
  options.a = options.b = extend;
  return options;
}

// Words in a region: `first` octets in, aligned memory where that is a multiple of 8.
struct Words {
  explicit Words(Side& side, tpt::Rights rights = kAtomicRights, PdId pd = kPd)
      : region(side.region(72, 0, rights, pd)) {
    skew = (8 - region.base % 8) % 8;
  }
  std::uint64_t to(std::size_t word = 0) const { return region.at(skew + word * 8); }
  std::uint64_t get(std::size_t word = 0) const {
    std::uint64_t value;
    std::memcpy(&value, region.memory.data() + skew + word * 8, sizeof value);
    return value;
  }
  void set(std::size_t word, std::uint64_t value) {
    std::memcpy(region.memory.data() + skew + word * 8, &value, sizeof value);
  }
  qp::Sge sge(std::size_t word = 0) const { return {to(word), 8, region.stag}; }
  Region& region;
  std::uint64_t skew = 0;
};

inline qp::WorkRequest fetch_add(qp::Sge into, Stag stag, std::uint64_t to, std::uint64_t add) {
  auto request = work(qp::Opcode::fetch_add, {into});
  request.remote_stag = stag;
  request.remote_to = to;
  request.argument = add;
  return request;
}
inline qp::WorkRequest compare_swap(qp::Sge into, Stag stag, std::uint64_t to, std::uint64_t compare,
                                    std::uint64_t swap) {
  auto request = fetch_add(into, stag, to, compare);
  request.opcode = qp::Opcode::compare_swap;
  request.swap = swap;
  return request;
}
inline qp::WorkRequest masked_fetch_add(qp::Sge into, Stag stag, std::uint64_t to, std::uint64_t add,
                                        std::uint64_t mask) {
  auto request = fetch_add(into, stag, to, add);
  request.add_mask = mask;
  return request;
}
inline qp::WorkRequest masked_compare_swap(qp::Sge into, Stag stag, std::uint64_t to, std::uint64_t compare,
                                           std::uint64_t compare_mask, std::uint64_t swap, std::uint64_t swap_mask) {
  auto request = compare_swap(into, stag, to, compare, swap);
  request.compare_mask = compare_mask;
  request.swap_mask = swap_mask;
  return request;
}
inline qp::WorkRequest write_immediate(std::vector<qp::Sge> sges, Stag stag, std::uint64_t to,
                                       std::uint32_t immediate) {
  auto request = write(std::move(sges), stag, to);
  request.opcode = qp::Opcode::write_immediate;
  request.immediate = immediate;
  return request;
}

inline Octets atomic_request(std::uint32_t msn, const wire::AtomicRequestHeader& header) {
  Octets body(52);
  wire::emit(header, body);
  return untagged(10, true, 1, msn, 0, body);
}
inline Octets atomic_response(std::uint32_t msn, std::uint32_t id, std::uint64_t original) {
  Octets body(12);
  wire::emit(wire::AtomicResponseHeader{.request_id = id, .original = original}, body);
  return untagged(11, true, 3, msn, 0, body);
}
inline Octets immediate(std::uint32_t msn, std::uint64_t value, bool solicited = false) {
  Octets body(8);
  wire::emit(wire::ImmediateHeader{.data = value}, body);
  return untagged(solicited ? 9 : 8, true, 0, msn, 0, body);
}

}  // namespace rnic::test
