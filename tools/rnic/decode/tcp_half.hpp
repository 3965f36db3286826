// One direction of a TCP connection as a capture shows it: segments in any order, again, in part or
// never, put into the stream that its receiver read.
//
// Positions ("at") are octets since the direction's first; they do not wrap as sequence numbers do.
// Of octets that come twice the first copy counts, as in tcp/reassembly.hpp.
//
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/bytes.hpp"
#include "tcp/seq.hpp"

namespace rnic::tool {

class TcpHalf {
 public:
  bool begun() const { return begun_; }
  // `first` is the sequence number of the octet at 0.
  void begin(tcp::Seq first) {
    begun_ = true;
    next_seq_ = first;
  }

  // After begin().
  void add(tcp::Seq first, Bytes octets);
  // The next octets in order, removed; empty when there are none now.
  std::vector<std::byte> take();

  std::int64_t next_at() const { return next_at_; }  // of the octet that take() begins with
  std::int64_t at(tcp::Seq seq) const { return next_at_ + static_cast<std::int32_t>(seq.since(next_seq_)); }

  // Octets that wait behind octets that are missing.
  std::size_t kept() const { return kept_; }
  bool has_gap() const { return !pieces_.empty() && pieces_.begin()->first > next_at_; }
  // How many octets are missing in front of what is kept; they are given up. Only with has_gap().
  std::int64_t skip_gap();

 private:
  void insert(std::int64_t at, Bytes octets);
  void advance(std::int64_t octets);

  bool begun_ = false;
  tcp::Seq next_seq_{};
  std::int64_t next_at_ = 0;
  std::map<std::int64_t, std::vector<std::byte>> pieces_;  // without overlaps
  std::size_t kept_ = 0;
};

}  // namespace rnic::tool
