#include "ip/extensions.hpp"

#include "wire/icmp.hpp"
#include "wire/ipv6.hpp"

namespace rnic::ip {
namespace {

namespace next = wire::ipv6_next;

// RFC 8200 s4.2: the two highest bits of an option say what becomes of a packet whose receiver does
// not know it. Padding and Router Alert we know; of no other does anything follow for a host.
enum class Unknown : std::uint8_t { skip = 0, drop = 1, tell = 2, tell_if_unicast = 3 };

constexpr std::uint8_t kPad1 = 0;
constexpr std::uint8_t kPadN = 1;

Walk problem(std::uint8_t code, std::uint32_t pointer, bool even_if_multicast = true) {
  Walk walk;
  walk.end = Walk::End::problem;
  walk.code = code;
  walk.pointer = pointer;
  walk.even_if_multicast = even_if_multicast;
  return walk;
}

// True: nothing is against the options of this header. Otherwise `bad` says what follows.
bool check_options(Bytes header, std::uint32_t base, Walk& bad) {
  std::size_t at = 2;
  for (int count = 0; at < header.size(); ++count) {
    bad = Walk{};
    if (count == kOptionsMax) return false;
    const auto type = load_be<std::uint8_t>(header, at);
    if (type == kPad1) {
      ++at;
      continue;
    }
    if (header.size() - at < 2) return false;
    const std::size_t size = std::size_t{load_be<std::uint8_t>(header, at + 1)} + 2;
    if (size > header.size() - at) return false;
    if (type != kPadN) {
      const auto pointer = base + static_cast<std::uint32_t>(at);
      switch (static_cast<Unknown>(type >> 6)) {
        case Unknown::skip:
          break;
        case Unknown::drop:
          return false;
        case Unknown::tell:
          bad = problem(wire::icmp6_code::kUnknownOption, pointer);
          return false;
        case Unknown::tell_if_unicast:
          bad = problem(wire::icmp6_code::kUnknownOption, pointer, false);
          return false;
      }
    }
    at += size;
  }
  return true;
}

}  // namespace

Walk walk_extensions(std::uint8_t next_header, Bytes payload, Behind behind, std::uint32_t pointer_base,
                     std::uint32_t next_pointer) {
  Walk walk;
  walk.protocol = next_header;
  walk.pointer = next_pointer;
  for (int count = 0;; ++count, behind = Behind::another_header) {
    const auto here = pointer_base + static_cast<std::uint32_t>(walk.offset);
    const Bytes rest = payload.subspan(walk.offset);
    switch (walk.protocol) {
      case next::kHopByHop:
        // Only the first may be one (RFC 8200 s4.1); s4 says what to answer otherwise.
        if (behind != Behind::ip_header) return problem(wire::icmp6_code::kUnknownNextHeader, walk.pointer, false);
        [[fallthrough]];
      case next::kDestination:
      case next::kRouting: {
        const auto size = wire::extension_size(rest);
        if (!size || count == kExtensionsMax) return Walk{};
        if (walk.protocol == next::kRouting) {
          // RFC 8200 s4.4: no type is known to us. With segments left a route would have to be
          // followed; type 0 most of all must not be (RFC 5095).
          if (load_be<std::uint8_t>(rest, 3) != 0) return problem(wire::icmp6_code::kErroneousField, here + 2, false);
        } else if (Walk bad; !check_options(rest.first(*size), here, bad)) {
          return bad;
        }
        walk.protocol = load_be<std::uint8_t>(rest, 0);
        walk.pointer = here;
        walk.offset += *size;
        break;
      }
      case next::kFragment:
        walk.end = Walk::End::fragment;
        return walk;
      case next::kNothing:
        walk.end = Walk::End::nothing;
        return walk;
      default:
        walk.end = Walk::End::upper;
        return walk;
    }
  }
}

bool find_quoted_upper(std::uint8_t next_header, Bytes payload, std::uint8_t& protocol, std::size_t& offset) {
  protocol = next_header;
  offset = 0;
  for (int count = 0; count <= kExtensionsMax; ++count) {
    const Bytes rest = payload.subspan(offset);
    if (protocol == next::kFragment) {
      const auto fragment = wire::parse_ipv6_fragment(rest);
      if (!fragment) return false;
      protocol = fragment->next_header;
      if (fragment->fragment.offset_bytes != 0) return false;
      offset += wire::Ipv6Fragment::kSize;
    } else if (protocol == next::kHopByHop || protocol == next::kDestination || protocol == next::kRouting) {
      const auto size = wire::extension_size(rest);
      if (!size) return false;
      protocol = load_be<std::uint8_t>(rest, 0);
      offset += *size;
    } else {
      return true;
    }
  }
  return false;
}

}  // namespace rnic::ip
