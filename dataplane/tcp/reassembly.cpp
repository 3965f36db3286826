// An ordered ring of pieces and an ordered list of the runs that they form. Segments nearly always
// come at the end, so both are searched from behind.
#include "tcp/reassembly.hpp"

#include <algorithm>
#include <bit>

namespace rnic::tcp {

namespace {
constexpr std::uint32_t kLengthMax = 0x7FFFFFFF;
}

Reassembly::Reassembly(std::uint32_t segments_max, Keeper& keeper)
    : first_limit_(std::max(segments_max, 1u)), most_(first_limit_), keeper_(keeper) {}

Reassembly::Added Reassembly::add(Seq first, Bytes octets, const BufferRef& buffer) {
  const Seq end = first + static_cast<std::uint32_t>(octets.size());
  bool news = false, full = false;
  // What lies in the gaps between runs is new. `at` walks over the segment.
  Seq at = first;
  // Runs before r end at or before `at`; mostly there is none behind it.
  auto r = static_cast<std::uint32_t>(runs_.size());
  if (r > 0 && at.before(runs_[r - 1].end))
    r = static_cast<std::uint32_t>(
        std::partition_point(runs_.begin(), runs_.end(), [&](const Run& run) { return !at.before(run.end); }) -
        runs_.begin());
  // Gaps are collected first: inserting changes the runs.
  struct Gap {
    Seq first, end;
  } gaps[kGapsMax];
  unsigned gap_count = 0;
  for (; at.before(end) && gap_count < kGapsMax; ++r) {
    const Seq gap_end = r < runs_.size() && runs_[r].first.before(end) ? runs_[r].first : end;
    if (at.before(gap_end)) gaps[gap_count++] = {at, gap_end};
    if (r >= runs_.size() || !runs_[r].first.before(end)) break;
    at = runs_[r].end;
  }
  for (unsigned i = 0; i < gap_count; ++i) {
    const Bytes part = octets.subspan(gaps[i].first.since(first), gaps[i].end.since(gaps[i].first));
    if (insert(gaps[i].first, part, buffer))
      news = true;
    else
      full = true;
  }
  if (count_ > 0 && (news || gap_count == 0)) remember(first, end);
  if (news) return Added::kept;
  return full ? Added::no_room : Added::duplicate;
}

bool Reassembly::insert(Seq first, Bytes octets, const BufferRef& buffer) {
  const bool small = octets.size() <= Keeper::kCopiedMax;
  const std::uint32_t place = place_of(first);
  const Seq end = first + static_cast<std::uint32_t>(octets.size());
  if (small && place > 0) {
    Piece& before = pieces_[begin_ + place - 1];
    if (before.copied && before.first + before.length == first &&
        keeper_.extend(Keeper::Where::beyond, before.buffer, before.data + before.length, octets)) {
      before.length = end.since(before.first) & kLengthMax;
      join_runs(first, end);
      return true;
    }
  }
  // A window that has grown has room for more pieces, but only for long ones, each of which takes a buffer: with short
  // ones a peer would have us look through hundreds of thousands of gaps.
  if (count_ >= (small ? std::min(most_, first_limit_) : most_)) return false;
  Piece& piece = make_room(place);
  Keeper::Copy copy = small ? keeper_.copy(Keeper::Where::beyond, octets, *buffer->pool) : Keeper::Copy{};
  piece.copied = copy.buffer ? 1 : 0;
  if (!copy.buffer) {
    copy = {buffer.share(), octets.data()};
    keeper_.keep(*buffer, false);
  }
  piece.first = first;
  piece.length = static_cast<std::uint32_t>(octets.size()) & kLengthMax;
  piece.data = copy.data;
  piece.buffer = std::move(copy.buffer);
  ++count_;
  join_runs(first, end);
  return true;
}

// How many pieces begin before it: nearly always all.
std::uint32_t Reassembly::place_of(Seq first) const {
  if (count_ == 0 || piece(count_ - 1).first.before(first)) return count_;
  std::uint32_t low = 0, high = count_ - 1;
  while (low != high) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (piece(middle).first.before(first))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// What fills a gap comes in front of nearly all others, what goes on behind a gap behind all.
Reassembly::Piece& Reassembly::make_room(std::uint32_t place) {
  pieces_.need(begin_, begin_ + count_, std::bit_ceil(std::max(most_, count_ + 1)));
  if (place < count_ / 2) {
    --begin_;
    for (std::uint32_t i = 0; i < place; ++i) pieces_[begin_ + i] = std::move(pieces_[begin_ + i + 1]);
  } else {
    for (std::uint32_t i = count_; i > place; --i) pieces_[begin_ + i] = std::move(pieces_[begin_ + i - 1]);
  }
  return pieces_[begin_ + place];
}

// [first, end) overlaps no run; it may touch one on either side.
void Reassembly::join_runs(Seq first, Seq end) {
  auto r = static_cast<std::uint32_t>(runs_.size());
  while (r > 0 && first.before(runs_[r - 1].first)) --r;  // belongs behind run r-1
  const bool touches_before = r > 0 && runs_[r - 1].end == first;
  const bool touches_after = r < runs_.size() && runs_[r].first == end;
  if (touches_before && touches_after) {
    runs_[r - 1].end = runs_[r].end;
    runs_.erase(runs_.begin() + r);
  } else if (touches_before) {
    runs_[r - 1].end = end;
  } else if (touches_after) {
    runs_[r].first = first;
  } else {
    runs_.insert(runs_.begin() + r, {first, end});
  }
}

// The run that holds an octet of [first, end) becomes the most recent.
void Reassembly::remember(Seq first, Seq end) {
  for (auto r = static_cast<std::uint32_t>(runs_.size()); r > 0; --r) {
    const Run& run = runs_[r - 1];
    if (!run.first.before(end) || !first.before(run.end)) continue;
    const auto in_run = [&](Seq s) { return !s.before(run.first) && s.before(run.end); };
    Seq kept[kRecentMax];
    unsigned count = 0, untold = 1;
    kept[count++] = run.first;
    for (unsigned i = 0; i < recent_count_ && count < kRecentMax; ++i) {
      if (in_run(recent_[i])) continue;
      kept[count++] = recent_[i];
      untold += i < untold_ ? 1 : 0;
    }
    std::copy(kept, kept + count, recent_);
    recent_count_ = count;
    untold_ = untold;
    return;
  }
}

Reassembly::Piece* Reassembly::front(Seq next) {
  if (count_ == 0) return nullptr;
  Piece& first = pieces_[begin_];
  return first.first == next ? &first : nullptr;
}

void Reassembly::pop() {
  Piece& first = pieces_[begin_];
  RNIC_ASSERT(count_ > 0 && runs_[0].first == first.first);
  runs_[0].first = first.first + first.length;
  if (runs_[0].first == runs_[0].end) runs_.erase(runs_.begin());
  keeper_.release(first.buffer, first.copied);
  ++begin_;
  if (--count_ == 0) recent_count_ = untold_ = 0;
}

unsigned Reassembly::tell_blocks(wire::SackBlock* out, unsigned most) {
  unsigned found = 0;
  untold_ -= std::min(untold_, most);
  for (unsigned i = untold_; i < recent_count_ && found < most; ++i)
    for (auto r = static_cast<std::uint32_t>(runs_.size()); r > 0; --r) {
      const Run& run = runs_[r - 1];
      if (recent_[i].before(run.first) || !recent_[i].before(run.end)) continue;
      out[found++] = {run.first.value, run.end.value};
      break;
    }
  return found;
}

void Reassembly::clear() {
  for (; count_ > 0; --count_, ++begin_) keeper_.release(pieces_[begin_].buffer, pieces_[begin_].copied);
  runs_.clear();
  recent_count_ = untold_ = 0;
}

void Reassembly::give_back_slots() {
  if (!empty()) return;
  pieces_.give_back();
  runs_ = {};
}

}  // namespace rnic::tcp
