#include "ip/routers.hpp"

#include <algorithm>

namespace rnic::ip {
namespace {

constexpr unsigned kSolicitationsMax = 3;  // RFC 4861 s10
constexpr Duration kSolicitInterval = seconds(4);
constexpr Duration kSolicitDelay = seconds(1);
constexpr std::uint32_t kMtuMin = 1280;
constexpr std::uint32_t kReachableMaxMs = 3'600'000;  // RFC 4861 s6.2.1
constexpr std::uint32_t kRetransmitMinMs = 100, kRetransmitMaxMs = 60'000;

Instant until(std::uint32_t lifetime_s, Instant now) {
  return lifetime_s == wire::PrefixInformation::kInfinite ? kNever : now + seconds(lifetime_s);
}

Route default_route(const wire::IpAddress& router) {
  return {.prefix = wire::IpAddress(), .bits = 0, .gateway = router, .advertised = true, .suspect = false};
}

}  // namespace

void Routers::start(Instant now) {
  asked_ = 0;
  due_ = now + chance_.between(Duration{0}, kSolicitDelay);
}

bool Routers::next_solicitation(Instant now) {
  if (due_ > now) return false;
  ++asked_;
  due_ = asked_ < kSolicitationsMax ? now + kSolicitInterval : kNever;
  return true;
}

bool Routers::on_no_router(const wire::IpAddress& address, Routes& routes) {
  for (Router& router : routers_) {
    if (!router.used || router.address != address) continue;
    router = {};
    routes.remove(wire::IpAddress(), 0, address);
    find_earliest();
    return true;
  }
  return false;
}

bool Routers::on_advertisement(const wire::RouterAdvertisement& said, const wire::IpAddress& address, Routes& routes,
                               OwnAddresses& own, Instant now) {
  bool changed = false;
  if (said.lifetime_s != 0) due_ = kNever;  // RFC 4861 s6.3.7: no more questions
  if (said.lifetime_s == 0) {
    changed |= on_no_router(address, routes);
  } else if (options_.default_routes) {
    Router* place = nullptr;
    for (Router& router : routers_) {
      if (router.used && router.address == address) {
        place = &router;
        break;
      }
      if (!router.used && place == nullptr) place = &router;
    }
    if (place != nullptr) {
      changed |= !place->used;
      *place = {.address = address, .until = now + seconds(said.lifetime_s), .used = true};
      changed |= routes.trust(address);
      routes.add(default_route(address));
    }
  }
  // Zero says nothing (RFC 4861 s6.3.4).
  if (said.hop_limit != 0) hop_limit_ = said.hop_limit;
  if (said.reachable_ms != 0 && said.reachable_ms <= kReachableMaxMs) reachable_ = milliseconds(said.reachable_ms);
  if (said.retransmit_ms != 0)
    retransmit_ = milliseconds(std::clamp(said.retransmit_ms, kRetransmitMinMs, kRetransmitMaxMs));
  if (said.mtu && *said.mtu >= kMtuMin && *said.mtu <= options_.link_mtu_bytes) mtu_bytes_ = *said.mtu;
  for (std::size_t i = 0; i < said.prefix_count; ++i) changed |= take_prefix(said.prefixes[i], routes, own, now);
  find_earliest();
  return changed;
}

bool Routers::take_prefix(const wire::PrefixInformation& said, Routes& routes, OwnAddresses& own, Instant now) {
  // RFC 4861 s6.3.4, RFC 4862 s5.5.3 (b) and (c).
  if (said.bits > 128 || said.prefix.is_link_local() || said.prefix.is_multicast() || said.prefix.is_v4()) return false;
  bool changed = false;
  if (said.on_link && said.bits != 0) {
    Prefix* place = nullptr;
    for (Prefix& prefix : prefixes_) {
      if (prefix.used && prefix.bits == said.bits && wire::same_network(prefix.prefix, said.prefix, said.bits)) {
        place = &prefix;
        break;
      }
      if (!prefix.used && place == nullptr) place = &prefix;
    }
    if (place != nullptr && said.valid_s != 0) {
      changed = !place->used;
      *place = {.prefix = said.prefix, .bits = said.bits, .until = until(said.valid_s, now), .used = true};
      routes.add({.prefix = said.prefix, .bits = said.bits, .gateway = {}, .advertised = true, .suspect = false});
    } else if (place != nullptr && place->used) {
      *place = {};
      routes.remove(said.prefix, said.bits, {});
      changed = true;
    }
  }
  if (said.autonomous && said.bits == 64 && said.preferred_s <= said.valid_s)
    own.on_prefix(said.prefix, until(said.valid_s, now), until(said.preferred_s, now), now);
  return changed;
}

bool Routers::expire(Routes& routes, Instant now) {
  if (earliest_ > now) return false;
  bool changed = false;
  for (Router& router : routers_) {
    if (!router.used || router.until > now) continue;
    routes.remove(wire::IpAddress(), 0, router.address);
    router = {};
    changed = true;
  }
  for (Prefix& prefix : prefixes_) {
    if (!prefix.used || prefix.until > now) continue;
    routes.remove(prefix.prefix, prefix.bits, {});
    prefix = {};
    changed = true;
  }
  find_earliest();
  return changed;
}

Instant Routers::next_deadline() const { return std::min(due_, earliest_); }

void Routers::find_earliest() {
  earliest_ = kNever;
  for (const Router& router : routers_)
    if (router.used) earliest_ = std::min(earliest_, router.until);
  for (const Prefix& prefix : prefixes_)
    if (prefix.used) earliest_ = std::min(earliest_, prefix.until);
}

}  // namespace rnic::ip
