// Who holds a port's buffers, and what becomes of one who holds too many.
#include <algorithm>

#include "core/device_impl.hpp"

namespace rnic::core {

BufferCount Device::Impl::transmit_buffers_of(const Stream& stream) const {
  const std::uint32_t filling = stream.attached() ? stream.qp->filling() : 0;
  return stream.tcp.queued() + BufferCount{filling, filling};  // of which class they are is not looked at
}

// The stream keeps its share. What fills a gap, or carries no octets, is taken all the same: it is what frees buffers.
// What would only be kept is taken for lost. Small pieces take no buffer each where they are put together.
bool Device::Impl::must_refuse(Stream& stream, const tcp::SegmentIn& segment) const {
  if (segment.payload.empty()) return false;
  stream.tcp.join_small_pieces();
  if (segment.payload.size() <= tcp::Keeper::kCopiedMax && !data_pool_.pressed()) return false;
  if (tcp::Seq{segment.header.sequence}.after(stream.receive_next(false))) return true;
  // An FPDU may need more segments than its share to be consumed. But the reserve is for others, too: of it only for
  // those that had consumed everything before this burst came, and will most likely consume this as well.
  const bool may_hold_more =
      !data_pool_.at_reserve(*segment.buffer) || (stream.unread_bytes == 0 && !data_pool_.pressed());
  return stream.tcp.received() - stream.tcp.consumed() > (may_hold_more ? kUnconsumedMax : 0);
}

// Shares did not help: so many streams hold some that nothing is left to spare. Nothing that was acknowledged is dropped
// (W-TCP-26), so those go that hold most of all who have not turned over for a while what they hold. While the reserve
// is there: who has a gap in front of all it holds, which its peer, being there, would have filled. When half of it is gone: all peers that
// vanished, keep silent or take a segment now and then, and queue pairs whose receives do not come.
void Device::Impl::relieve_pool(Instant now) {
  if (pressed_looked_at_ != kNever && now - pressed_looked_at_ < kPressedLook) return;
  const bool first = pressed_looked_at_ == kNever || now - pressed_looked_at_ > kPressedLookLost;
  pressed_looked_at_ = now;
  end_greediest(find_stuck(first, now), now);
}

// `first`: what was seen before is too long ago.
Device::Impl::Greediest Device::Impl::find_stuck(bool first, Instant now) {
  Greediest greediest{};
  streams_.for_each([&](host::Stream& each) {
    Stream& stream = *own(&each);
    const std::uint64_t progress = stream.tcp.acknowledged() + stream.tcp.consumed();
    const std::uint32_t count = data_pool_.wanted_of(stream.tcp.kept() + transmit_buffers_of(stream));
    const bool turned_over = progress - stream.progress >= std::uint64_t{count} * stream.tcp.emss();
    if (first || stream.stuck_since == kNever || turned_over) {
      stream.progress = progress;
      stream.stuck_since = now;
      return;
    }
    if (now - stream.stuck_since < kStuckAfter) return;
    const bool waits_for_peer = stream.tcp.beyond_count() != 0 && stream.unread_bytes == 0;
    if (!waits_for_peer && !data_pool_.pressed()) return;
    Candidate& least = *std::min_element(greediest.begin(), greediest.end(),
                                         [](const Candidate& a, const Candidate& b) { return a.count < b.count; });
    if (count > least.count) least = {&stream, count};
  });
  return greediest;
}

void Device::Impl::end_greediest(Greediest greediest, Instant now) {
  std::sort(greediest.begin(), greediest.end(), [](const Candidate& a, const Candidate& b) { return a.count > b.count; });
  std::uint32_t shortage = data_pool_.shortage();
  for (const Candidate& each : greediest) {
    if (each.stream == nullptr || shortage == 0) break;
    shortage -= std::min(shortage, each.count);
    ++counters_.ended_for_buffers;
    ++ended_untold_;
    kill(each.stream->id(), now);
  }
  if (ended_untold_ > 0 && ended_tells_.allows(now))
    events_.on_ended_for_buffers(options_.index, std::exchange(ended_untold_, 0));
}

}  // namespace rnic::core
