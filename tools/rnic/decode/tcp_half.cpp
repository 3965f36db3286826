#include "decode/tcp_half.hpp"

#include <algorithm>

namespace rnic::tool {

void TcpHalf::add(tcp::Seq first, Bytes octets) {
  RNIC_ASSERT(begun_);
  std::int64_t from = at(first);
  std::int64_t end = from + static_cast<std::int64_t>(octets.size());
  if (from < next_at_) {
    if (end <= next_at_) return;
    octets = octets.subspan(static_cast<std::size_t>(next_at_ - from));
    from = next_at_;
  }
  // What lies between the pieces that are here already.
  auto piece = pieces_.upper_bound(from);
  if (piece != pieces_.begin()) {
    const auto before = std::prev(piece);
    from = std::max(from, before->first + static_cast<std::int64_t>(before->second.size()));
  }
  while (from < end) {
    const std::int64_t until = piece == pieces_.end() ? end : std::min(end, piece->first);
    if (until > from)
      insert(from, octets.last(static_cast<std::size_t>(end - from)).first(static_cast<std::size_t>(until - from)));
    if (piece == pieces_.end()) break;
    from = std::max(until, piece->first + static_cast<std::int64_t>(piece->second.size()));
    ++piece;
  }
}

void TcpHalf::insert(std::int64_t at, Bytes octets) {
  pieces_.emplace(at, std::vector<std::byte>(octets.begin(), octets.end()));
  kept_ += octets.size();
}

void TcpHalf::advance(std::int64_t octets) {
  next_at_ += octets;
  next_seq_ = next_seq_ + static_cast<std::uint32_t>(octets);
}

std::vector<std::byte> TcpHalf::take() {
  if (pieces_.empty() || pieces_.begin()->first != next_at_) return {};
  std::vector<std::byte> octets = std::move(pieces_.begin()->second);
  pieces_.erase(pieces_.begin());
  kept_ -= octets.size();
  advance(static_cast<std::int64_t>(octets.size()));
  return octets;
}

std::int64_t TcpHalf::skip_gap() {
  RNIC_ASSERT(has_gap());
  const std::int64_t missing = pieces_.begin()->first - next_at_;
  advance(missing);
  return missing;
}

}  // namespace rnic::tool
