#include "ip/reassembly.hpp"

#include <algorithm>
#include <cstring>

namespace rnic::ip {
namespace {

constexpr std::uint32_t kUnit = 8;
constexpr std::uint32_t kPacketMax = 65535;

constexpr std::uint8_t kNotCapable = 0;  // RFC 3168 s5: Not-ECT, and Congestion Experienced
constexpr std::uint8_t kCongestion = 3;

}  // namespace

// Whole packets are with TCP for a while, so there are more buffers than packets being filled.
Reassembly::Reassembly(const ReassemblyOptions& options)
    : options_(options), pool_(options.packets_max * 2, options.bytes_max), slots_(options.packets_max) {
  for (Slot& slot : slots_) slot.there.resize((options.bytes_max / kUnit + 64) / 64);
}

Reassembly::Slot* Reassembly::find(const Fragment& fragment) {
  for (Slot& slot : slots_) {
    if (slot.state == State::free || slot.identification != fragment.identification) continue;
    if (slot.source != fragment.source || slot.destination != fragment.destination) continue;
    if (fragment.source.is_v4() && slot.protocol != fragment.protocol) continue;
    return &slot;
  }
  return nullptr;
}

void Reassembly::close(Slot& slot) {
  slot.state = State::free;
  slot.buffer.reset();
  --open_;
}

// What is left of it is a name, by which the rest is known and dropped.
void Reassembly::spoil(Slot& slot) {
  slot.state = State::spoilt;
  slot.buffer.reset();
}

// A source with its part in use gives up its own oldest; a full table gives up what is spoilt, then
// the oldest.
Reassembly::Slot* Reassembly::open_slot(const Fragment& fragment, Instant now) {
  Slot* free = nullptr;
  Slot* oldest = nullptr;
  Slot* own_oldest = nullptr;
  std::uint32_t own = 0;
  for (Slot& slot : slots_) {
    if (slot.state == State::free) {
      free = &slot;
      continue;
    }
    const auto older = [](const Slot& a, const Slot* b) {
      if (b == nullptr) return true;
      if ((a.state == State::spoilt) != (b->state == State::spoilt)) return a.state == State::spoilt;
      return a.started < b->started;
    };
    if (older(slot, oldest)) oldest = &slot;
    if (slot.source != fragment.source) continue;
    ++own;
    if (older(slot, own_oldest)) own_oldest = &slot;
  }
  Slot* slot = free;
  if (own >= options_.packets_per_source_max) slot = own_oldest;
  if (slot == nullptr) slot = oldest;
  if (slot->state != State::free) close(*slot);

  slot->buffer = BufferRef::take(pool_);
  if (!slot->buffer) return nullptr;
  slot->state = State::filling;
  slot->source = fragment.source;
  slot->destination = fragment.destination;
  slot->identification = fragment.identification;
  slot->protocol = fragment.protocol;
  slot->ecns = 0;
  slot->total = slot->received = slot->farthest = slot->first_size = slot->header_size = 0;
  slot->started = now;
  std::fill(slot->there.begin(), slot->there.end(), 0);
  ++open_;
  earliest_ = std::min(earliest_, now + options_.lifetime);
  return slot;
}

Reassembly::Outcome Reassembly::place(Slot& slot, const Fragment& fragment) {
  const std::uint32_t first = fragment.offset_bytes;
  const auto size = static_cast<std::uint32_t>(fragment.payload.size());
  const std::uint32_t end = first + size;
  if (end > options_.bytes_max) return Outcome::dropped;
  // The end must be where it was said to be, and nothing behind it.
  if (!fragment.more && ((slot.total != 0 && slot.total != end) || slot.farthest > end)) return Outcome::dropped;
  if (fragment.more && slot.total != 0 && end > slot.total) return Outcome::dropped;

  const MutableBytes storage{slot.buffer->room + slot.buffer->head, options_.bytes_max};
  std::uint32_t known = 0;
  const std::uint32_t last_unit = (end + kUnit - 1) / kUnit;
  for (std::uint32_t unit = first / kUnit; unit < last_unit; ++unit)
    known += static_cast<std::uint32_t>(slot.there[unit / 64] >> (unit % 64) & 1);
  if (known != 0) {
    const bool again = known == last_unit - first / kUnit && end <= slot.farthest &&
                       std::memcmp(storage.data() + first, fragment.payload.data(), size) == 0;
    return again ? Outcome::waiting : Outcome::dropped;
  }
  for (std::uint32_t unit = first / kUnit; unit < last_unit; ++unit)
    slot.there[unit / 64] |= std::uint64_t{1} << (unit % 64);
  std::memcpy(storage.data() + first, fragment.payload.data(), size);
  slot.received += size;
  slot.farthest = std::max(slot.farthest, end);
  slot.ecns = static_cast<std::uint8_t>(slot.ecns | 1u << (fragment.ecn & 3));
  if (!fragment.more) slot.total = end;
  if (first == 0) {
    slot.protocol = fragment.protocol;
    slot.first_ecn = fragment.ecn & 3;
    slot.first_size = size;
    slot.header_size = static_cast<std::uint32_t>(fragment.header.size() <= kHeaderMax ? fragment.header.size() : 0);
    std::copy_n(fragment.header.begin(), slot.header_size, slot.header.begin());
  }
  return slot.total != 0 && slot.received == slot.total ? Outcome::complete : Outcome::waiting;
}

Reassembly::Taken Reassembly::take(const Fragment& fragment, Instant now) {
  Taken taken;
  const std::size_t size = fragment.payload.size();
  if (fragment.more && size % kUnit != 0) {
    taken.outcome = Outcome::bad_length;
    return taken;
  }
  // In IPv6 the fixed header does not count (RFC 8200 s4.5), in IPv4 all of it does.
  constexpr std::size_t kUncounted = 40 + 8;
  const std::size_t before = fragment.source.is_v4()
                                 ? fragment.header.size()
                                 : fragment.header.size() - std::min(fragment.header.size(), kUncounted);
  if (before + fragment.offset_bytes + size > kPacketMax) {
    taken.outcome = Outcome::too_long;
    return taken;
  }
  if (size == 0) return taken;
  if (fragment.offset_bytes == 0 && !fragment.more) {
    // Whole in itself, and no part of any other of the same name (RFC 6946).
    BufferRef buffer = BufferRef::take(pool_);
    if (!buffer || size > options_.bytes_max) return taken;
    std::memcpy(buffer->append(static_cast<std::uint32_t>(size)).data(), fragment.payload.data(), size);
    taken.outcome = Outcome::complete;
    taken.packet = {std::move(buffer), fragment.protocol, fragment.ecn, fragment.header};
    return taken;
  }
  Slot* slot = find(fragment);
  if (slot == nullptr) slot = open_slot(fragment, now);
  if (slot == nullptr || slot->state == State::spoilt) return taken;

  taken.outcome = place(*slot, fragment);
  switch (taken.outcome) {
    case Outcome::complete: {
      const bool congested = (slot->ecns >> kCongestion & 1) != 0;
      // Half of it says that it may be marked, half that it may not: RFC 3168 s5.3.
      if (congested && (slot->ecns >> kNotCapable & 1) != 0) {
        taken.outcome = Outcome::dropped;
      } else {
        taken.packet = {std::move(slot->buffer), slot->protocol, congested ? kCongestion : slot->first_ecn,
                        Bytes(slot->header).first(slot->header_size)};
        taken.packet.buffer->append(slot->total);
      }
      close(*slot);
      break;
    }
    case Outcome::dropped:
      spoil(*slot);
      break;
    case Outcome::waiting:
    case Outcome::bad_length:
    case Outcome::too_long:
      break;
  }
  return taken;
}

void Reassembly::find_earliest() {
  earliest_ = kNever;
  for (const Slot& slot : slots_)
    if (slot.state != State::free) earliest_ = std::min(earliest_, slot.started + options_.lifetime);
}

std::optional<Reassembly::Expired> Reassembly::next_expired(Instant now) {
  if (earliest_ > now) return std::nullopt;
  for (Slot& slot : slots_) {
    if (slot.state == State::free || slot.started + options_.lifetime > now) continue;
    Expired expired{.source = slot.source, .destination = slot.destination, .header = {}, .payload = {}};
    if (slot.state == State::filling && slot.header_size != 0) {
      expired.header = Bytes(slot.header).first(slot.header_size);
      expired.payload = {slot.buffer->room + slot.buffer->head, slot.first_size};
    }
    close(slot);
    return expired;
  }
  find_earliest();
  return std::nullopt;
}

}  // namespace rnic::ip
