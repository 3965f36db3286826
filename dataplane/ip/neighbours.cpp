#include "ip/neighbours.hpp"

#include <algorithm>
#include <bit>
#include <span>

#include "wire/ethernet.hpp"

namespace rnic::ip {
namespace {

// A hop in doubt is asked for again before its first probe is due, so that progress is heard of
// first.
constexpr Duration kProgressWithin = seconds(3);

}  // namespace

Neighbours::Neighbours(const NeighbourOptions& options)
    : options_(options),
      chance_(options.seed),
      entries_(new Entry[options.entries_max]),
      buckets_(std::bit_ceil(options.entries_max), kNone),
      bucket_mask_(static_cast<std::uint32_t>(buckets_.size()) - 1),
      free_(0) {
  std::uint32_t next = 0;
  for (Entry& entry : std::span(entries_.get(), options.entries_max))
    entry.next_in_bucket = ++next < options.entries_max ? next : kNone;
  failed_.reserve(options.entries_max);
}

Neighbours::~Neighbours() {
  for (Entry* entry = by_use_.front(); entry != nullptr; entry = by_use_.after(*entry)) drop_frames(*entry);
  while (next_released()) continue;
}

// ---- the table ------------------------------------------------------------------------------------

std::uint32_t Neighbours::bucket_of(const wire::IpAddress& address) const {
  return static_cast<std::uint32_t>(std::hash<wire::IpAddress>{}(address)) & bucket_mask_;
}

Neighbours::Entry* Neighbours::find(const wire::IpAddress& address) {
  for (std::uint32_t at = buckets_[bucket_of(address)]; at != kNone; at = entries_[at].next_in_bucket)
    if (entries_[at].address == address) return &entries_[at];
  return nullptr;
}

// A full table gives up one that did not answer, or else the entry that was used longest ago. Those
// that are being asked for are never more than a part of it: a flood in the names of addresses that
// nobody has displaces its own, and not who answers.
Neighbours::Entry* Neighbours::make(const wire::IpAddress& address) {
  if (free_ == kNone) {
    Entry* failed = believed_failed_.front();
    remove(failed != nullptr ? *failed : *by_use_.front());
  }
  const std::uint32_t at = free_;
  Entry& entry = entries_[at];
  free_ = entry.next_in_bucket;
  std::uint32_t& bucket = buckets_[bucket_of(address)];
  entry.address = address;
  entry.mac = {};
  entry.phase = Phase::stale;
  entry.next_in_bucket = bucket;
  bucket = at;
  by_use_.push_back(entry);
  ++used_;
  return &entry;
}

void Neighbours::remove(Entry& entry) {
  drop_frames(entry);
  set_phase(entry, Phase::stale);
  const auto index = static_cast<std::uint32_t>(&entry - entries_.get());
  std::uint32_t* at = &buckets_[bucket_of(entry.address)];
  while (*at != index) at = &entries_[*at].next_in_bucket;
  *at = entry.next_in_bucket;
  entry.next_in_bucket = free_;
  free_ = index;
  entry.ListLink<UseTag>::unlink();
  entry.ListLink<TimeTag>::unlink();
  --used_;
  ++generation_;
}

void Neighbours::forget(const wire::IpAddress& address) {
  if (Entry* entry = find(address)) remove(*entry);
}

// ---- frames that wait -----------------------------------------------------------------------------

void Neighbours::drop_frames(Entry& entry) {
  frames_held_ -= entry.frame_count;
  frames_dropped_ += entry.frame_count;
  entry.frame_count = 0;
  while (entry.first_frame != nullptr) {
    Buffer* frame = entry.first_frame;
    entry.first_frame = frame->next;
    BufferRef{frame}.reset();
  }
  entry.last_frame = nullptr;
}

void Neighbours::release_frames(Entry& entry) {
  for (Buffer* frame = entry.first_frame; frame != nullptr; frame = frame->next)
    wire::store_mac(frame->bytes(), 0, entry.mac);
  if (entry.first_frame != nullptr) {
    (last_released_ != nullptr ? last_released_->next : first_released_) = entry.first_frame;
    last_released_ = entry.last_frame;
  }
  frames_held_ -= entry.frame_count;
  entry.frame_count = 0;
  entry.first_frame = entry.last_frame = nullptr;
}

void Neighbours::hold(const wire::IpAddress& address, BufferRef frame) {
  Entry* entry = find(address);
  if (entry == nullptr || entry->phase != Phase::incomplete) {
    ++frames_dropped_;
    return;
  }
  // The newest frames are worth more: TCP has the older ones sent again first of all.
  if (entry->frame_count >= options_.frames_per_entry_max) {
    Buffer* oldest = entry->first_frame;
    entry->first_frame = oldest->next;
    if (entry->first_frame == nullptr) entry->last_frame = nullptr;
    --entry->frame_count;
    --frames_held_;
    ++frames_dropped_;
    BufferRef{oldest}.reset();
  }
  if (frames_held_ >= options_.frames_max) {
    ++frames_dropped_;
    return;
  }
  Buffer* last = frame.release();
  last->next = nullptr;
  (entry->last_frame != nullptr ? entry->last_frame->next : entry->first_frame) = last;
  entry->last_frame = last;
  ++entry->frame_count;
  ++frames_held_;
}

BufferRef Neighbours::next_released() {
  Buffer* first = first_released_;
  if (first == nullptr) return {};
  first_released_ = first->next;
  if (first_released_ == nullptr) last_released_ = nullptr;
  first->next = nullptr;
  return BufferRef{first};
}

// ---- states ---------------------------------------------------------------------------------------

void Neighbours::wait_until(Entry& entry, Instant due) {
  entry.due = due;
  entry.ListLink<TimeTag>::unlink();
  timed_.push_back(entry);
  earliest_ = std::min(earliest_, due);
}

void Neighbours::set_phase(Entry& entry, Phase phase) {
  incomplete_ -= entry.phase == Phase::incomplete ? 1 : 0;
  incomplete_ += phase == Phase::incomplete ? 1 : 0;
  entry.phase = phase;
}

void Neighbours::ask(Entry& entry, Instant now) {
  if (incomplete_ >= std::min(options_.asked_max, options_.entries_max / 2)) {
    Entry* first = timed_.front();
    while (first->phase != Phase::incomplete) first = timed_.after(*first);
    remove(*first);
  }
  set_phase(entry, Phase::incomplete);
  entry.asked = 0;
  wait_until(entry, now);
}

void Neighbours::be_reachable(Entry& entry, Instant now) {
  set_phase(entry, Phase::reachable);
  entry.due = now + chance_.between(options_.reachable / 2, options_.reachable + options_.reachable / 2);
  entry.ListLink<TimeTag>::unlink();
  release_frames(entry);
}

void Neighbours::be_stale(Entry& entry) {
  set_phase(entry, Phase::stale);
  entry.ListLink<TimeTag>::unlink();
  release_frames(entry);
}

void Neighbours::set_mac(Entry& entry, const wire::Mac& mac) {
  if (entry.mac != mac) ++generation_;
  entry.mac = mac;
}

std::optional<Neighbours::Hop> Neighbours::resolve(const wire::IpAddress& address, Instant now, bool progress) {
  Entry* entry = find(address);
  if (entry == nullptr) {
    entry = make(address);
    ask(*entry, now);
  }
  entry->ListLink<UseTag>::unlink();
  by_use_.push_back(*entry);
  switch (entry->phase) {
    case Phase::incomplete:
      return std::nullopt;
    case Phase::failed:
      if (now < entry->due) return std::nullopt;
      ask(*entry, now);
      return std::nullopt;
    case Phase::reachable:
      if (now < entry->due) return Hop{entry->mac, entry->due, false};
      [[fallthrough]];
    case Phase::stale:
      set_phase(*entry, Phase::delay);
      entry->asked = 0;
      wait_until(*entry, now + options_.first_probe);
      return Hop{entry->mac, now + std::min(kProgressWithin, options_.first_probe), true};
    case Phase::delay:
    case Phase::probe:
      if (progress) {
        be_reachable(*entry, now);
        return Hop{entry->mac, entry->due, false};
      }
      return Hop{entry->mac, std::max(entry->due, now + options_.retransmit / 2), true};
  }
  return std::nullopt;
}

void Neighbours::heard_from(const wire::IpAddress& address, const wire::Mac& mac, Meant meant) {
  if (mac.is_multicast() || address.is_unspecified() || address.is_multicast()) return;
  Entry* entry = find(address);
  if (entry == nullptr) {
    if (meant != Meant::for_us) return;
    entry = make(address);
  } else if (entry->phase != Phase::incomplete && entry->phase != Phase::failed && entry->mac == mac) {
    return;
  }
  set_mac(*entry, mac);
  be_stale(*entry);
}

void Neighbours::answered(const wire::IpAddress& address, const Answer& answer, Instant now) {
  if (answer.mac && answer.mac->is_multicast()) return;
  Entry* entry = find(address);
  if (entry == nullptr || entry->phase == Phase::failed) return;
  if (entry->phase == Phase::incomplete) {
    if (!answer.mac) return;
    set_mac(*entry, *answer.mac);
    if (answer.solicited)
      be_reachable(*entry, now);
    else
      be_stale(*entry);
    return;
  }
  const bool other = answer.mac && *answer.mac != entry->mac;
  if (other && !answer.override_entry) {
    if (entry->phase == Phase::reachable) be_stale(*entry);
    return;
  }
  if (other) set_mac(*entry, *answer.mac);
  if (answer.solicited)
    be_reachable(*entry, now);
  else if (other)
    be_stale(*entry);
}

void Neighbours::doubt(const wire::IpAddress& address, Instant now) {
  Entry* entry = find(address);
  if (entry == nullptr) return;
  switch (entry->phase) {
    case Phase::reachable:
    case Phase::stale:
    case Phase::delay:
      set_phase(*entry, Phase::probe);
      entry->asked = 0;
      wait_until(*entry, now);
      break;
    case Phase::incomplete:
    case Phase::probe:
    case Phase::failed:
      break;
  }
}

// One that we knew and that does not answer any more is forgotten; the next use begins anew by
// asking all.
void Neighbours::give_up(Entry& entry, Instant now) {
  if (entry.phase == Phase::probe) {
    remove(entry);
    return;
  }
  drop_frames(entry);
  entry.ListLink<TimeTag>::unlink();
  if (failed_.size() < failed_.capacity()) failed_.push_back(entry.address);
  set_phase(entry, Phase::failed);
  believed_failed_.push_back(entry);
  entry.due = now + options_.failed_for;
}

std::optional<Neighbours::Question> Neighbours::next_question(Instant now) {
  if (earliest_ > now) return std::nullopt;
  Instant earliest = kNever;
  for (Entry* entry = timed_.front(); entry != nullptr;) {
    Entry* next = timed_.after(*entry);
    if (entry->due > now) {
      earliest = std::min(earliest, entry->due);
      entry = next;
      continue;
    }
    if (entry->phase == Phase::delay) entry->phase = Phase::probe;
    const bool probing = entry->phase == Phase::probe;
    if (entry->asked < (probing ? options_.unicast_tries : options_.multicast_tries)) {
      ++entry->asked;
      wait_until(*entry, now + options_.retransmit);
      Question question{entry->address, std::nullopt};
      if (probing) question.known = entry->mac;
      return question;
    }
    give_up(*entry, now);
    entry = next;
  }
  earliest_ = earliest;
  return std::nullopt;
}

std::optional<wire::IpAddress> Neighbours::next_failed() {
  if (failed_.empty()) return std::nullopt;
  const wire::IpAddress address = failed_.back();
  failed_.pop_back();
  return address;
}

Instant Neighbours::next_deadline() const {
  if (first_released_ != nullptr || !failed_.empty()) return Instant{0};
  return earliest_;
}

void Neighbours::set_times(Duration reachable, Duration retransmit) {
  if (reachable.ns > 0) options_.reachable = reachable;
  if (retransmit.ns > 0) options_.retransmit = retransmit;
}

}  // namespace rnic::ip
