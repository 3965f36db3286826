#include "ip/own_addresses.hpp"

#include <algorithm>

namespace rnic::ip {
namespace {

// RFC 5227 s1.1.
constexpr Duration kProbeWait = seconds(1);
constexpr std::uint8_t kProbes = 3;
constexpr Duration kProbeMin = seconds(1), kProbeMax = seconds(2);
constexpr Duration kAnnounceWait = seconds(2);
constexpr std::uint8_t kAnnouncements = 2;
constexpr Duration kAnnounceInterval = seconds(2);
constexpr Duration kDefendInterval = seconds(10);
constexpr Duration kTellAnother = seconds(1);
constexpr Duration kTryAgain = seconds(60);  // RATE_LIMIT_INTERVAL

// RFC 4862 s5.1, s5.4.2; RFC 7217 s6.
constexpr std::uint8_t kSolicitations = 1;
constexpr Duration kSolicitWait = seconds(1);  // MAX_RTR_SOLICITATION_DELAY
constexpr std::uint8_t kAttempts = 3;

constexpr Duration kTwoHours = seconds(7200);

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  Chance chance(a * 0x9E3779B97F4A7C15u ^ b);
  return chance.next();
}

}  // namespace

const char* name(AddressState state) {
  switch (state) {
    case AddressState::none:
      return "none";
    case AddressState::tentative:
      return "tentative";
    case AddressState::preferred:
      return "preferred";
    case AddressState::deprecated:
      return "deprecated";
    case AddressState::duplicate:
      return "duplicate";
  }
  return "";
}

wire::IpAddress interface_address(const wire::IpAddress& prefix, const wire::Mac& mac, bool opaque, unsigned attempt) {
  std::array<std::uint8_t, 16> octets = prefix.octets();
  const auto& m = mac.octets;
  if (!opaque && attempt == 0) {
    const std::array<std::uint8_t, 8> eui{
        static_cast<std::uint8_t>(m[0] ^ 0x02), m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]};
    std::copy(eui.begin(), eui.end(), octets.begin() + 8);
    return wire::IpAddress::from_octets(octets);
  }
  std::uint64_t network = 0, station = 0;
  for (std::size_t i = 0; i < 8; ++i) network = network << 8 | octets[i];
  for (const std::uint8_t octet : m) station = station << 8 | octet;
  std::uint64_t identifier = mix(mix(network, station), attempt);
  // None of the reserved ones (RFC 5453): zeros are the routers' anycast, those at the end subnets'.
  if (identifier == 0 || identifier >> 8 == 0xfdffffffffffff) identifier ^= 0x1234;
  for (std::size_t i = 0; i < 8; ++i) octets[8 + i] = static_cast<std::uint8_t>(identifier >> (56 - 8 * i));
  return wire::IpAddress::from_octets(octets);
}

OwnAddresses::OwnAddresses(const AddressOptions& options) : options_(options), chance_(options.seed) {}

const OwnAddress* OwnAddresses::find(const wire::IpAddress& address) const {
  for (const OwnAddress& own : addresses_)
    if (own.state != AddressState::none && own.address == address) return &own;
  return nullptr;
}

void OwnAddresses::adopt(const std::array<OwnAddress, kMax>& all) {
  addresses_ = all;
  ++version_;
}

bool OwnAddresses::add(const wire::IpAddress& address, unsigned prefix_bits, AddressOrigin origin, Instant now) {
  if (find(address) != nullptr) return false;
  for (std::size_t at = 0; at < kMax; ++at) {
    if (addresses_[at].state != AddressState::none) continue;
    addresses_[at] = {};
    addresses_[at].address = address;
    addresses_[at].prefix_bits = static_cast<std::uint8_t>(prefix_bits);
    addresses_[at].origin = origin;
    progress_[at] = {};
    begin(at, now);
    return true;
  }
  return false;
}

// RFC 4862 s5.5.3 (d) and (e). Nobody has proved who he is, so a valid lifetime is not cut below two
// hours.
void OwnAddresses::on_prefix(const wire::IpAddress& prefix, Instant valid_until, Instant preferred_until, Instant now) {
  for (std::size_t at = 0; at < kMax; ++at) {
    OwnAddress& own = addresses_[at];
    if (own.state == AddressState::none || own.origin != AddressOrigin::advertised) continue;
    if (!wire::same_network(own.address, prefix, 64)) continue;
    own.preferred_until = preferred_until;
    if (valid_until > now + kTwoHours || valid_until > own.valid_until)
      own.valid_until = valid_until;
    else if (own.valid_until > now + kTwoHours)
      own.valid_until = now + kTwoHours;
    check_lifetime(at, now);
    find_earliest();
    return;
  }
  if (valid_until <= now) return;
  const wire::IpAddress address = interface_address(prefix, options_.mac, options_.opaque, 0);
  if (!add(address, 64, AddressOrigin::advertised, now)) return;
  for (std::size_t at = 0; at < kMax; ++at) {
    if (addresses_[at].address != address || addresses_[at].state == AddressState::none) continue;
    addresses_[at].valid_until = valid_until;
    addresses_[at].preferred_until = preferred_until;
    check_lifetime(at, now);
  }
  find_earliest();
}

// From the beginning: asks, or where nobody is asked goes on at once.
void OwnAddresses::begin(std::size_t at, Instant now) {
  OwnAddress& own = addresses_[at];
  Progress& progress = progress_[at];
  progress.sent = 0;
  progress.phase = Phase::idle;
  progress.due = kNever;
  if (!options_.probe) {
    own.state = AddressState::preferred;
    if (link_up_) announce(at, now);
  } else {
    own.state = AddressState::tentative;
    if (link_up_) {
      progress.phase = Phase::asking;
      progress.due = now + chance_.between(Duration{0}, own.address.is_v4() ? kProbeWait : kSolicitWait);
      // What comes back to us must be ours beyond doubt.
      progress.nonce = chance_.next() & 0xFFFFFFFFFFFF;
    }
  }
  ++version_;
  find_earliest();
}

void OwnAddresses::announce(std::size_t at, Instant now) {
  progress_[at].phase = Phase::announcing;
  progress_[at].sent = 0;
  progress_[at].due = now;
}

void OwnAddresses::set_link(bool up, Instant now) {
  if (up == link_up_) return;
  link_up_ = up;
  for (std::size_t at = 0; at < kMax; ++at) {
    OwnAddress& own = addresses_[at];
    if (own.state == AddressState::none) continue;
    if (!up) {
      progress_[at].phase = Phase::idle;
      progress_[at].due = kNever;
    } else if (own.usable()) {
      // It was ours before; whoever has taken it meanwhile hears of us, and we of him.
      announce(at, now);
    } else {
      begin(at, now);
    }
  }
  find_earliest();
}

std::optional<OwnAddresses::Action> OwnAddresses::next_action(Instant now) {
  if (earliest_ > now) return std::nullopt;
  for (std::size_t at = 0; at < kMax; ++at) {
    OwnAddress& own = addresses_[at];
    Progress& progress = progress_[at];
    if (own.state == AddressState::none) continue;
    check_lifetime(at, now);
    if (own.state == AddressState::none || progress.due > now) continue;
    const bool v4 = own.address.is_v4();
    using Kind = Action::Kind;
    switch (progress.phase) {
      case Phase::idle:
        progress.due = kNever;
        break;
      case Phase::asking:
        if (progress.sent < (v4 ? kProbes : kSolicitations)) {
          ++progress.sent;
          if (v4)
            progress.due = now + (progress.sent < kProbes ? chance_.between(kProbeMin, kProbeMax) : kAnnounceWait);
          else
            progress.due = now + retransmit_;
          find_earliest();
          return Action{v4 ? Kind::arp_probe : Kind::solicit, own.address, progress.nonce};
        }
        own.state = own.preferred_until <= now ? AddressState::deprecated : AddressState::preferred;
        ++version_;
        announce(at, now);
        [[fallthrough]];
      case Phase::announcing: {
        // Where nobody is asked, one will do.
        const std::uint8_t count = options_.probe ? kAnnouncements : 1;
        ++progress.sent;
        if (progress.sent >= count) progress.phase = Phase::idle;
        progress.due = progress.sent < count ? now + kAnnounceInterval : kNever;
        find_earliest();
        return Action{v4 ? Kind::arp_announce : Kind::advertise, own.address, 0};
      }
      case Phase::resting:
        begin(at, now);
        break;
    }
  }
  find_earliest();
  return std::nullopt;
}

// RFC 4862 s5.5.4.
void OwnAddresses::check_lifetime(std::size_t at, Instant now) {
  OwnAddress& own = addresses_[at];
  if (own.valid_until <= now) {
    own.state = AddressState::none;
    progress_[at] = {};
    ++version_;
  } else if (own.state == AddressState::preferred && own.preferred_until <= now) {
    own.state = AddressState::deprecated;
    ++version_;
  } else if (own.state == AddressState::deprecated && own.preferred_until > now) {
    own.state = AddressState::preferred;
    ++version_;
  }
}

void OwnAddresses::on_claim(const wire::IpAddress& address, const wire::Mac& by, Claim claim, Instant now) {
  for (std::size_t at = 0; at < kMax; ++at) {
    OwnAddress& own = addresses_[at];
    Progress& progress = progress_[at];
    if (own.state == AddressState::none || own.address != address) continue;
    if (own.state == AddressState::duplicate) return;
    if (own.usable() && claim == Claim::asks) return;
    // So often is a conflict told, however often it is heard of, and by however many names. One that takes the address
    // from us always is.
    const Duration pause = own.conflict_with != by ? kTellAnother : kDefendInterval;
    if (own.state == AddressState::tentative || progress.told == kNever || now - progress.told >= pause) {
      progress.told = now;
      own.conflict_with = by;
      ++own.conflicts;
      ++version_;
    }
    if (own.state == AddressState::tentative) {
      mark_taken(at, now);
    } else if (own.address.is_v4() && (progress.defended == kNever || now - progress.defended >= kDefendInterval)) {
      progress.defended = now;
      announce(at, now);
      progress.sent = kAnnouncements - 1;  // one is enough
    }
    find_earliest();
    return;
  }
}

// It is somebody else's. What we made up we make up anew; what was configured is tried again later.
void OwnAddresses::mark_taken(std::size_t at, Instant now) {
  OwnAddress& own = addresses_[at];
  Progress& progress = progress_[at];
  ++version_;
  if (own.origin != AddressOrigin::configured && progress.attempt < kAttempts) {
    ++progress.attempt;
    own.address = interface_address(own.address, options_.mac, options_.opaque, progress.attempt);
    begin(at, now);
    return;
  }
  own.state = AddressState::duplicate;
  progress.phase = Phase::resting;
  progress.due = now + kTryAgain;
}

bool OwnAddresses::is_our_nonce(const wire::IpAddress& address, std::uint64_t nonce) const {
  for (std::size_t at = 0; at < kMax; ++at)
    if (addresses_[at].state == AddressState::tentative && addresses_[at].address == address)
      return progress_[at].nonce == nonce;
  return false;
}

bool OwnAddresses::settled() const {
  return std::none_of(addresses_.begin(), addresses_.end(),
                      [](const OwnAddress& own) { return own.state == AddressState::tentative; });
}

void OwnAddresses::find_earliest() {
  earliest_ = kNever;
  for (std::size_t at = 0; at < kMax; ++at) {
    const OwnAddress& own = addresses_[at];
    if (own.state == AddressState::none) continue;
    earliest_ = std::min({earliest_, progress_[at].due, own.valid_until});
    if (own.state == AddressState::preferred) earliest_ = std::min(earliest_, own.preferred_until);
  }
}

}  // namespace rnic::ip
