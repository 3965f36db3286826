// The table of GIDs of a device has a place for each of its addresses. Where queue pairs connect by GIDs the first
// address has the first two: programs take 0 or 1 where nobody tells them, as RoCE devices have it.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "ip/own_addresses.hpp"
#include "wire/address.hpp"

namespace rnic::core {

using OwnPlaces = std::array<ip::OwnAddress, ip::OwnAddresses::kMax>;

constexpr std::size_t gid_count(bool by_gids) { return ip::OwnAddresses::kMax + (by_gids ? 1 : 0); }

// None: an empty place, or no place.
inline std::optional<wire::IpAddress> gid_at(const OwnPlaces& own, bool by_gids, std::size_t index) {
  if (index >= gid_count(by_gids)) return std::nullopt;
  const ip::OwnAddress& place = own[by_gids && index > 0 ? index - 1 : index];
  return place.usable() ? std::optional(place.address) : std::nullopt;
}

}  // namespace rnic::core
