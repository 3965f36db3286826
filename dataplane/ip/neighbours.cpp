#include "ip/neighbours.hpp"

#include <algorithm>

#include "wire/ethernet.hpp"

namespace rnic::ip {

Neighbours::Neighbours(const NeighbourOptions& options) : options_(options) {
  entries_.reserve(64);
  released_.reserve(options.frames_max);
}
Neighbours::~Neighbours() = default;

Neighbours::Entry* Neighbours::find(const wire::IpAddress& address) {
  const auto found = entries_.find(address);
  return found == entries_.end() ? nullptr : &found->second;
}

// A full table gives up the entry that was used longest ago; one that is being asked for stays, or
// a scan through our network would keep us from ever knowing anybody.
Neighbours::Entry* Neighbours::make(const wire::IpAddress& address, Instant now) {
  if (entries_.size() >= options_.entries_max) {
    const Entry* oldest = nullptr;
    for (const auto& [key, entry] : entries_)
      if (entry.phase != Phase::asking && (oldest == nullptr || entry.used < oldest->used)) oldest = &entry;
    if (oldest == nullptr) return nullptr;
    erase(wire::IpAddress(oldest->address));
  }
  Entry& entry = entries_[address];
  entry.address = address;
  entry.used = now;
  return &entry;
}

void Neighbours::drop_frames(Entry& entry) {
  frames_held_ -= static_cast<std::uint32_t>(entry.frames.size());
  frames_dropped_ += entry.frames.size();
  entry.frames.clear();
}

void Neighbours::erase(const wire::IpAddress& address) {
  Entry* entry = find(address);
  drop_frames(*entry);
  stop_asking(*entry);
  entries_.erase(address);
  ++generation_;
}

void Neighbours::start_asking(Entry& entry, Phase phase, Instant now) {
  entry.phase = phase;
  entry.asked = 0;
  entry.due = now;
  asking_.push_back(entry.address);
}

void Neighbours::stop_asking(Entry& entry) { std::erase(asking_, entry.address); }

std::optional<Neighbours::Hop> Neighbours::resolve(const wire::IpAddress& address, Instant now) {
  Entry* entry = find(address);
  if (entry == nullptr) {
    entry = make(address, now);
    if (entry == nullptr) return std::nullopt;
    start_asking(*entry, Phase::asking, now);
  }
  entry->used = now;
  switch (entry->phase) {
    case Phase::asking:
      return std::nullopt;
    case Phase::failed:
      if (now >= entry->due) start_asking(*entry, Phase::asking, now);
      return std::nullopt;
    case Phase::known:
      if (now >= entry->fresh_until) {
        start_asking(*entry, Phase::verifying, now);
        return Hop{entry->mac, now + options_.retry_max};
      }
      return Hop{entry->mac, entry->fresh_until};
    case Phase::verifying:
      return Hop{entry->mac, now + options_.retry_max};
  }
  return std::nullopt;
}

void Neighbours::hold(const wire::IpAddress& address, BufferRef frame) {
  Entry* entry = find(address);
  if (entry == nullptr || entry->phase != Phase::asking) {
    ++frames_dropped_;
    return;
  }
  // The newest frames are worth more: TCP has the older ones sent again first of all.
  if (entry->frames.size() >= options_.frames_per_entry_max) {
    entry->frames.erase(entry->frames.begin());
    --frames_held_;
    ++frames_dropped_;
  }
  if (frames_held_ >= options_.frames_max) {
    ++frames_dropped_;
    return;
  }
  entry->frames.push_back(std::move(frame));
  ++frames_held_;
}

void Neighbours::learn(const wire::IpAddress& address, const wire::Mac& mac, bool wanted, Instant now) {
  if (mac.is_multicast() || address.is_unspecified()) return;
  Entry* entry = find(address);
  if (entry == nullptr) {
    if (!wanted) return;
    entry = make(address, now);
    if (entry == nullptr) return;
  } else if (entry->phase == Phase::asking || entry->phase == Phase::verifying) {
    stop_asking(*entry);
  }
  if (entry->mac != mac) ++generation_;
  entry->mac = mac;
  entry->phase = Phase::known;
  entry->fresh_until = now + options_.fresh;
  for (BufferRef& frame : entry->frames) {
    wire::store_mac(frame->bytes(), 0, mac);
    released_.push_back(std::move(frame));
  }
  frames_held_ -= static_cast<std::uint32_t>(entry->frames.size());
  entry->frames.clear();
}

std::optional<Neighbours::Question> Neighbours::next_question(Instant now) {
  for (std::size_t i = 0; i < asking_.size(); ++i) {
    Entry& entry = *find(asking_[i]);
    if (entry.due > now) continue;
    if (entry.asked >= options_.tries) {
      // One that we knew and that does not answer any more is forgotten; the next use begins anew
      // by broadcast.
      const bool known = entry.phase == Phase::verifying;
      drop_frames(entry);
      stop_asking(entry);
      --i;
      if (known) {
        erase(wire::IpAddress(entry.address));
      } else {
        failed_.push_back(entry.address);
        entry.phase = Phase::failed;
        entry.due = now + options_.failed_for;
      }
      continue;
    }
    const Duration wait{std::min(options_.retry.ns << std::min(entry.asked, 16u), options_.retry_max.ns)};
    ++entry.asked;
    entry.due = now + wait;
    Question question{entry.address, std::nullopt};
    if (entry.phase == Phase::verifying) question.known = entry.mac;
    return question;
  }
  return std::nullopt;
}

std::optional<BufferRef> Neighbours::next_released() {
  if (released_.empty()) return std::nullopt;
  BufferRef first = std::move(released_.front());
  released_.erase(released_.begin());
  return first;
}

std::optional<wire::IpAddress> Neighbours::next_failed() {
  if (failed_.empty()) return std::nullopt;
  const wire::IpAddress address = failed_.back();
  failed_.pop_back();
  return address;
}

Instant Neighbours::next_deadline() const {
  if (!released_.empty() || !failed_.empty()) return Instant{0};
  Instant earliest = kNever;
  for (const auto& address : asking_) {
    const Instant due = entries_.find(address)->second.due;
    if (due < earliest) earliest = due;
  }
  return earliest;
}

}  // namespace rnic::ip
