#include "tcp/cookies.hpp"

#include <algorithm>
#include <array>

#include "tcp/options.hpp"

namespace rnic::tcp {

namespace {

// The largest that is not above the peer's own. What Ethernet's frames of 1500 and 9000 octets
// leave, with IPv4 and IPv6 and with what tunnels take off, is worth a place; and what frames of 65,535 in
// memory do with IPv6, and with IPv4 but for 20.
constexpr std::array<std::uint16_t, 8> kSizes{kMssMin, 536, 1220, 1400, 1440, 1460, 8900, 65'475};

constexpr std::uint32_t kPeriodBits = 5;
constexpr std::uint32_t kHashMask = 0xFFFFFF;

// In the low bits of a timestamp.
constexpr std::uint32_t kShiftMask = 15, kNoScaling = 15, kSackBit = 16, kOptionsMask = 31;

std::uint32_t period_of(Instant now) {
  return static_cast<std::uint32_t>(now.ns / Cookies::kPeriod.ns) & ((1u << kPeriodBits) - 1);
}

}  // namespace

std::uint32_t Cookies::hash(std::uint64_t name, Seq theirs, std::uint32_t period, std::uint32_t mss_index) const {
  const std::array<std::uint64_t, 2> words{name,
                                           std::uint64_t{theirs.value} << 32 | std::uint64_t{period} << 8 | mss_index};
  return static_cast<std::uint32_t>(siphash(words, key_)) & kHashMask;
}

Handshake Cookies::make(std::uint64_t name, const wire::TcpHeader& syn, const Options& options,
                        std::uint32_t timestamp_offset, Instant now) {
  Handshake made = agree(syn, options, {}, timestamp_offset);
  made.ecn = false;  // there is no place to remember it
  if (!made.timestamps) {
    made.scaling = made.sack = false;
    made.send_shift = made.receive_shift = 0;
  }
  const auto above = std::upper_bound(kSizes.begin(), kSizes.end(), made.peer_mss);
  const auto index = static_cast<std::uint32_t>(above - kSizes.begin()) - 1;
  const std::uint32_t period = period_of(now);
  made.ours = Seq{period << 27 | index << 24 | hash(name, made.theirs, period, index)};
  valid_until_ = now + kPeriod * 2;
  return made;
}

std::optional<Handshake> Cookies::open(std::uint64_t name, const wire::TcpHeader& header, const Options& options,
                                       std::uint32_t timestamp_offset, Instant now) const {
  namespace flag = wire::tcp_flags;
  if (!any_valid(now) || !header.has(flag::kAck) || header.has(flag::kSyn | flag::kRst)) return std::nullopt;
  Handshake found;
  found.ours = Seq{header.acknowledgement} - 1;
  found.theirs = Seq{header.sequence} - 1;
  const std::uint32_t period = found.ours.value >> 27, index = found.ours.value >> 24 & 7;
  const std::uint32_t age = (period_of(now) - period) & ((1u << kPeriodBits) - 1);
  if (age > 1 || hash(name, found.theirs, period, index) != (found.ours.value & kHashMask)) return std::nullopt;
  found.peer_mss = kSizes[index];
  found.window = header.window;
  found.timestamp_offset = timestamp_offset;
  // Agreed on only where the SYN had them, and then every segment has (RFC 7323 s3.2).
  if (!options.timestamps || !header.timestamps) return found;
  found.timestamps = true;
  found.timestamp_recent = header.timestamps->value;
  const std::uint32_t bits = (header.timestamps->echo - timestamp_offset) & kOptionsMask;
  found.sack = options.sack && (bits & kSackBit) != 0;
  if (options.window_scale && (bits & kShiftMask) != kNoScaling) {
    found.scaling = true;
    found.send_shift = static_cast<std::uint8_t>(bits & kShiftMask);
    found.receive_shift = window_shift(options.widest_window_bytes());
  }
  return found;
}

std::uint32_t cookie_timestamp(const Handshake& handshake, Instant now) {
  const std::uint32_t clock = timestamp_clock(now);
  const std::uint32_t bits = (handshake.scaling ? handshake.send_shift : kNoScaling) | (handshake.sack ? kSackBit : 0);
  std::uint32_t value = (clock & ~kOptionsMask) | bits;
  if (value > clock) value -= kOptionsMask + 1;  // a clock's first moments are nobody's concern
  return value + handshake.timestamp_offset;
}

}  // namespace rnic::tcp
