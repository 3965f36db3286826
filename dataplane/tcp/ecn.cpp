#include "tcp/ecn.hpp"

#include <algorithm>

namespace rnic::tcp {

namespace flag = wire::tcp_flags;

bool EcnEcho::on_data(bool marked, std::uint8_t flags, Seq received, Seq acknowledged) {
  if (tells_ == Tells::nothing) return false;
  if (tells_ == Tells::first_mark) {
    // CWR first: a mark on the very segment that carries it is a new one.
    if ((flags & flag::kCwr) != 0) ack_flags_ = 0;
    if (marked) ack_flags_ = flag::kEce;
    return false;
  }
  if (marked == expected_) return false;
  expected_ = marked;
  if (boundary_count_ > 0 && boundaries_[boundary_count_ - 1] == received) {
    --boundary_count_;  // and back, with no octets between
  } else if (received.after(acknowledged)) {
    if (boundary_count_ == kBoundariesMax)
      --boundary_count_;  // the last run counts as this one
    else
      boundaries_[boundary_count_++] = received;
  }
  update_flags();
  return true;
}

void EcnEcho::on_acknowledged(Seq up_to) {
  unsigned done = 0;
  while (done < boundary_count_ && !boundaries_[done].after(up_to)) ++done;
  if (done == 0) return;
  std::copy(boundaries_.begin() + done, boundaries_.begin() + boundary_count_, boundaries_.begin());
  boundary_count_ = static_cast<std::uint8_t>(boundary_count_ - done);
  update_flags();
}

// What came changes with each boundary; expected_ is what is behind the last.
void EcnEcho::update_flags() {
  const bool marked = expected_ != (boundary_count_ % 2 != 0);
  ack_flags_ = marked ? flag::kEce : std::uint8_t{0};
}

}  // namespace rnic::tcp
