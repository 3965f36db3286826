// What routers advertise (RFC 4861 s6.3, RFC 4862 s5.5): default routes, prefixes that are on the
// link or make addresses, the link's MTU and times. And the solicitations by which we ask for it.
// Redirects are ignored by who calls us (RFC 4861 s8 lets a host).
//
// Any host on the link can send all this: so what is believed is bounded in number and size.
//
// Pure; nothing is allocated after construction. Owned by one worker.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/chance.hpp"
#include "base/time.hpp"
#include "ip/own_addresses.hpp"
#include "ip/routes.hpp"
#include "wire/neighbour_discovery.hpp"

namespace rnic::ip {

struct RouterOptions {
  std::uint32_t link_mtu_bytes = 1500;
  bool default_routes = true;  // false: a gateway was configured, routers are not asked
  std::uint64_t seed = 1;
};

class Routers {
 public:
  static constexpr std::size_t kRoutersMax = 4;
  static constexpr std::size_t kPrefixesMax = 8;

  explicit Routers(const RouterOptions& options) : options_(options), chance_(options.seed) {}

  // The link is up and we have a link-local address: ask, up to three times (RFC 4861 s6.3.7).
  void start(Instant now);
  void stop() { due_ = kNever; }
  // True: a solicitation is to be sent now.
  bool next_solicitation(Instant now);

  // An advertisement whose hop limit, checksum and link-local source are good. `routes` and `own` are
  // brought up to date; true: routes have changed.
  bool on_advertisement(const wire::RouterAdvertisement& said, const wire::IpAddress& router, Routes& routes,
                        OwnAddresses& own, Instant now);
  // What another station of ours has heard.
  void adopt(std::uint32_t mtu_bytes, std::uint8_t hop_limit) {
    mtu_bytes_ = mtu_bytes;
    hop_limit_ = hop_limit;
  }
  // It says that it is no router any more (RFC 4861 s7.2.5).
  bool on_no_router(const wire::IpAddress& router, Routes& routes);
  // Takes out what is over; true: routes have changed.
  bool expire(Routes& routes, Instant now);

  Instant next_deadline() const;  // may be early, never late
  // The MTU that routers say the link has: no more than our own, no less than IPv6's least.
  std::uint32_t mtu_bytes() const { return mtu_bytes_ != 0 ? mtu_bytes_ : options_.link_mtu_bytes; }
  std::uint8_t hop_limit() const { return hop_limit_; }
  Duration reachable() const { return reachable_; }  // 0: nothing was said
  Duration retransmit() const { return retransmit_; }

 private:
  struct Router {
    wire::IpAddress address;
    Instant until = kNever;
    bool used = false;
  };
  struct Prefix {
    wire::IpAddress prefix;
    std::uint8_t bits = 0;
    Instant until = kNever;
    bool used = false;
  };

  bool take_prefix(const wire::PrefixInformation& said, Routes& routes, OwnAddresses& own, Instant now);
  void find_earliest();

  RouterOptions options_;
  Chance chance_;
  std::array<Router, kRoutersMax> routers_{};
  std::array<Prefix, kPrefixesMax> prefixes_{};
  unsigned asked_ = 0;
  Instant due_ = kNever;       // the next solicitation
  Instant earliest_ = kNever;  // of what is believed
  std::uint32_t mtu_bytes_ = 0;
  std::uint8_t hop_limit_ = 64;
  Duration reachable_{}, retransmit_{};
};

}  // namespace rnic::ip
