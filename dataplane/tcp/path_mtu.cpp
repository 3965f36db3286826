#include "tcp/path_mtu.hpp"

#include <array>

namespace rnic::tcp {

namespace {

// Packets that links are made for, or that tunnels leave of them: worth trying before halving.
constexpr std::array<std::uint32_t, 6> kUsualMtus{9000, 1500, 1492, 1450, 1400, 1280};

// Where a black hole is fallen back to: one that tunnels within tunnels let through, then the least.
constexpr std::uint32_t kSafeMtu = 1280;

}  // namespace

void PathMtu::set_ceiling(std::uint32_t ceiling_bytes) {
  const bool limited = size_ < ceiling_;
  ceiling_ = ceiling_bytes;
  size_ = limited ? std::min(size_, ceiling_) : ceiling_;
  arrived_ = std::min(arrived_, size_);
  if (size_ == ceiling_) probe_at_ = kNever;  // nothing above it to look for
}

void PathMtu::shrink(std::uint32_t size_bytes) {
  size_ = size_bytes;
  arrived_ = std::min(arrived_, size_);
  told_ = named_ = probe_ = tries_ = 0;
}

void PathMtu::rest(Instant now) {
  resting_ = true;
  probe_at_ = now + kRaiseAfter;
}

bool PathMtu::on_packet_too_big(std::uint32_t size_bytes, Seq quoted, Instant now) {
  if (size_bytes < floor_ || size_bytes >= ceiling_) return false;
  if (size_bytes >= size_) {
    if (probe_ > size_bytes) {
      named_ = size_bytes;
      too_large_ = size_bytes + 1;
    }
    return false;
  }
  if (size_bytes < arrived_) {  // larger ones did come through
    told_ = size_bytes;
    told_of_ = quoted;
    return false;
  }
  shrink(size_bytes);
  rest(now);
  return true;
}

bool PathMtu::on_timeout(std::uint32_t nth, std::uint32_t segment_bytes, Instant now) {
  if (told_ != 0 && segment_bytes > told_) {
    shrink(told_);
    rest(now);
    return true;
  }
  const std::uint32_t safe = std::max(kSafeMtu - headers_, floor_);
  const std::uint32_t target = segment_bytes > safe + kGrainBytes ? safe : floor_;
  if (nth < kBlackHoleTimeouts || segment_bytes <= target + kGrainBytes) return false;
  shrink(target);
  resting_ = false;
  too_large_ = 0;
  doubted_ = true;
  probe_at_ = now + kProbePause;
  return true;
}

// Between what comes through and what does not: the whole first, then what a router has named, then
// the usual sizes, then halves. 0: enough is known.
std::uint32_t PathMtu::next_probe() const {
  if (too_large_ == 0 || too_large_ > ceiling_) return ceiling_ > size_ ? ceiling_ : 0;
  if (named_ > size_) return named_;
  if (too_large_ <= size_ + kGrainBytes) return 0;
  for (const std::uint32_t mtu : kUsualMtus) {
    const std::uint32_t size = mtu - headers_;
    if (size < too_large_ && size > size_) return size;
  }
  return size_ + (too_large_ - size_) / 2;
}

void PathMtu::search_on(Instant from) {
  probe_at_ = from;
  if (size_ >= ceiling_)
    probe_at_ = kNever;
  else if (next_probe() == 0)
    rest(from);
}

std::uint32_t PathMtu::wanted_probe(Instant now) {
  if (now < probe_at_) [[likely]]
    return 0;
  if (resting_) {
    resting_ = doubted_ = false;
    too_large_ = named_ = tries_ = 0;
  }
  return next_probe();
}

void PathMtu::on_probe_begun(std::uint32_t size_bytes, Instant now) {
  probe_ = size_bytes;
  handed_ = false;
  probe_at_ = now + kProbePause;
}

void PathMtu::on_probe_arrived(Instant now) {
  if (probe_ <= size_) return;
  size_ = std::min(probe_, ceiling_);
  arrived_ = std::max(arrived_, size_);
  probe_ = tries_ = 0;
  search_on(now);
}

void PathMtu::on_probe_lost(Lost how, Duration pause, Instant now) {
  if (probe_ <= size_) return;
  const bool was_top = probe_ >= ceiling_;
  if (too_large_ != 0 && probe_ >= too_large_) {
    // A router said so, and which size it would take.
    tries_ = 0;
  } else if (how == Lost::alone && ++tries_ >= (was_top && doubted_ ? 1 : kProbesMax)) {
    too_large_ = probe_;
    named_ = tries_ = 0;
  }
  probe_ = 0;
  search_on(now + std::max(kProbePause, pause));
}

}  // namespace rnic::tcp
