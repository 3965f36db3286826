#include "tcp/spurious.hpp"

namespace rnic::tcp {

void SpuriousCheck::begin(After what) {
  watching_ = by_ranges_ = true;
  by_echo_ = false;
  after_ = what;
  frto_ = Frto::off;
  range_count_ = 0;
}

void SpuriousCheck::on_retransmitted(Seq first, Seq end, Instant now) {
  if (!watching_ || !by_ranges_) return;
  if (range_count_ == 0) {
    by_echo_ = true;
    first_end_ = end;
    first_at_ = now;
  }
  for (unsigned i = 0; i < range_count_; ++i) {
    Range& range = ranges_[i];
    if (first.before(range.end) && range.first.before(end)) {  // a second time: who could tell them apart
      by_ranges_ = false;
      return;
    }
    if (range.end == first) {
      range.end = end;
      return;
    }
  }
  if (range_count_ == kRangesMax) {
    by_ranges_ = false;
    return;
  }
  ranges_[range_count_++] = {first, end};
}

bool SpuriousCheck::on_duplicate(Seq first, Seq end) {
  if (!watching_ || !by_ranges_) return false;
  for (unsigned i = 0; i < range_count_; ++i) {
    Range& range = ranges_[i];
    if (first.before(range.first) || end.after(range.end)) continue;
    if (first == range.first)
      range.first = end;
    else if (end == range.end)
      range.end = first;
    else  // out of the middle
      by_ranges_ = false;
    if (range.first == range.end) range = ranges_[--range_count_];
    return by_ranges_ && range_count_ == 0;
  }
  return false;
}

bool SpuriousCheck::on_acknowledgement(Seq ack, Instant echoed_until) {
  if (!watching_ || !by_echo_ || ack.before(first_end_)) return false;
  by_echo_ = false;
  return echoed_until < first_at_;
}

bool SpuriousCheck::frto_decides(const Delivered& delivered) {
  if (!delivered.any() && !delivered.originals) return false;
  frto_ = Frto::off;
  return delivered.originals && !delivered.newest_end.after(out_);
}

}  // namespace rnic::tcp
