#include "host/buffer_shares.hpp"

#include <algorithm>
#include <utility>

namespace rnic::host {

namespace {
constexpr Duration kPressedLook = milliseconds(100);  // between looks for who holds buffers
constexpr Duration kPressedLookLost = seconds(1);     // what was seen longer ago is forgotten
constexpr Duration kStuckAfter = seconds(3);          // and gives back, or has consumed, less than it holds
}  // namespace

// The stream keeps its share. What fills a gap, or carries no octets, is taken all the same: it is what frees buffers.
// What would only be kept is taken for lost. Small pieces take no buffer each where they are put together.
bool BufferShares::must_refuse(Stream& stream, const tcp::SegmentIn& segment) const {
  if (segment.payload.empty()) return false;
  stream.tcp.join_small_pieces();
  if (segment.payload.size() <= tcp::Keeper::kCopiedMax && !pool_.pressed()) return false;
  if (tcp::Seq{segment.header.sequence}.after(stream.receive_next(false))) return true;
  // Its user may need more segments than its share before it can consume any. But the reserve is for others, too: of it
  // only for those that had consumed everything before this burst came, and will most likely consume this as well.
  const bool may_hold_more = !pool_.at_reserve(*segment.buffer) || (stream.unread_bytes() == 0 && !pool_.pressed());
  return stream.tcp.received() - stream.tcp.consumed() > (may_hold_more ? kUnconsumedMax : 0);
}

// Shares did not help: so many streams hold some that nothing is left to spare. Nothing that was acknowledged is
// dropped (W-TCP-26), so those go that hold most of all who have not turned over for a while what they hold. While the
// reserve is there: who has a gap in front of all it holds, which its peer, being there, would have filled. When half
// of it is gone: all peers that vanished, keep silent or take a segment now and then, and users that do not consume.
void BufferShares::relieve(Instant now) {
  if (looked_at_ != kNever && now - looked_at_ < kPressedLook) return;
  const bool first = looked_at_ == kNever || now - looked_at_ > kPressedLookLost;
  looked_at_ = now;
  end_greediest(find_stuck(first, now), now);
}

// `first`: what was seen before is too long ago.
BufferShares::Greediest BufferShares::find_stuck(bool first, Instant now) {
  Greediest greediest{};
  streams_.for_each([&](Stream& stream) {
    const std::uint64_t progress = stream.tcp.acknowledged() + stream.tcp.consumed();
    const std::uint32_t count = pool_.wanted_of(stream.tcp.kept() + user_.held_by(stream));
    const bool turned_over = progress - stream.progress >= std::uint64_t{count} * stream.tcp.emss();
    if (first || stream.stuck_since == kNever || turned_over) {
      stream.progress = progress;
      stream.stuck_since = now;
      return;
    }
    if (now - stream.stuck_since < kStuckAfter) return;
    const bool waits_for_peer = stream.tcp.beyond_count() != 0 && stream.unread_bytes() == 0;
    if (!waits_for_peer && !pool_.pressed()) return;
    Candidate& least = *std::min_element(greediest.begin(), greediest.end(),
                                         [](const Candidate& a, const Candidate& b) { return a.count < b.count; });
    if (count > least.count) least = {&stream, count};
  });
  return greediest;
}

void BufferShares::end_greediest(Greediest greediest, Instant now) {
  std::sort(greediest.begin(), greediest.end(),
            [](const Candidate& a, const Candidate& b) { return a.count > b.count; });
  std::uint32_t shortage = pool_.shortage();
  for (const Candidate& each : greediest) {
    if (each.stream == nullptr || shortage == 0) break;
    shortage -= std::min(shortage, each.count);
    ++counters_.ended_for_buffers;
    ++untold_;
    user_.on_must_end(*each.stream, now);
  }
  if (untold_ > 0 && tells_.allows(now)) user_.on_ended_for_buffers(std::exchange(untold_, 0));
}

}  // namespace rnic::host
