// RFC 8985 s6.2 step 4: how long reordering may take.
#include "tcp/rack.hpp"

namespace rnic::tcp {

namespace {
constexpr std::uint32_t kDuplicateThreshold = 3;  // RFC 8985 s6.2, from RFC 5681
constexpr std::uint8_t kPersist = 16;
constexpr std::uint32_t kMultiplierMax = 1u << 16;  // far beyond a smoothed round trip, which bounds it
}  // namespace

void Rack::on_duplicate(std::uint64_t acknowledged, std::uint64_t sent) {
  on_reordering();
  if (acknowledged < duplicate_round_end_) return;
  duplicate_round_end_ = sent;
  multiplier_ = std::min(multiplier_ + 1, kMultiplierMax);
  persist_ = kPersist;
}

void Rack::on_recovery_end() {
  if (persist_ > 0 && --persist_ == 0) multiplier_ = 1;
}

Duration Rack::reordering_window(bool recovering, std::uint32_t segments_sacked, Duration smoothed) const {
  if (!reordering_seen_ && (recovering || segments_sacked >= kDuplicateThreshold)) return Duration{0};
  return std::min(least_.value() * multiplier_ / 4, smoothed);
}

}  // namespace rnic::tcp
