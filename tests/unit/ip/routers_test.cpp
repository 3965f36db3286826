// What is believed of what routers say, message by message.
#include "ip/routers.hpp"

#include "kit/catch.hpp"

using namespace rnic;
using wire::IpAddress;

namespace {

constexpr Instant at(std::int64_t ms) { return Instant{0} + milliseconds(1'000'000 + ms); }

const IpAddress kRouter = *wire::parse_ip("fe80::1"), kPrefix = *wire::parse_ip("2001:db8:5::"),
                kFar = *wire::parse_ip("2001:db8:77::1");

struct Link {
  bool hears(const wire::RouterAdvertisement& said, std::int64_t ms = 0) {
    return routers.on_advertisement(said, kRouter, routes, own, at(ms));
  }
  static wire::RouterAdvertisement with(const wire::PrefixInformation& prefix) {
    wire::RouterAdvertisement said;
    said.prefixes[0] = prefix;
    said.prefix_count = 1;
    return said;
  }

  ip::Routes routes;
  ip::OwnAddresses own{{.mac = wire::Mac{{2, 0, 0, 0, 0, 1}}}};
  ip::Routers routers{{}};
};

}  // namespace

TEST_CASE("a default router is one as long as it says, and none from the message on that says so", "[ip]") {
  Link link;
  CHECK(link.hears({.lifetime_s = 1}));
  CHECK(link.routes.next_hop(kFar) == kRouter);
  CHECK_FALSE(link.hears({.lifetime_s = 1}));  // no news
  CHECK_FALSE(link.routers.expire(link.routes, at(999)));
  CHECK(link.routers.next_deadline() == at(1000));
  CHECK(link.routers.expire(link.routes, at(1000)));
  CHECK_FALSE(link.routes.next_hop(kFar));
  CHECK_FALSE(link.hears({.lifetime_s = 0}));
  CHECK(link.hears({.lifetime_s = 1800}, 1000));
  CHECK(link.hears({.lifetime_s = 0}, 1000));
  CHECK_FALSE(link.routes.next_hop(kFar));
  CHECK(link.routers.next_deadline() == kNever);
}

TEST_CASE("of a router's times zero says nothing, and what is out of range is not believed, or bent", "[ip]") {
  Link link;
  CHECK(link.routers.reachable() == Duration{0});
  CHECK(link.routers.hop_limit() == 64);
  link.hears({.hop_limit = 5, .reachable_ms = 3'600'000, .retransmit_ms = 100});
  CHECK(link.routers.hop_limit() == 5);
  CHECK(link.routers.reachable() == seconds(3600));
  CHECK(link.routers.retransmit() == milliseconds(100));
  link.hears({.hop_limit = 0, .reachable_ms = 3'600'001, .retransmit_ms = 0});
  CHECK(link.routers.hop_limit() == 5);
  CHECK(link.routers.reachable() == seconds(3600));
  CHECK(link.routers.retransmit() == milliseconds(100));
  link.hears({.reachable_ms = 1, .retransmit_ms = 99});
  CHECK(link.routers.reachable() == milliseconds(1));
  CHECK(link.routers.retransmit() == milliseconds(100));
  link.hears({.retransmit_ms = 60'001});
  CHECK(link.routers.reachable() == milliseconds(1));
  CHECK(link.routers.retransmit() == seconds(60));
}

TEST_CASE("a router's MTU is IPv6's least to the link's own", "[ip]") {
  Link link;
  CHECK(link.routers.mtu_bytes() == 1500);
  for (const auto& [said, believed] : {std::pair{1279u, 1500u}, {1280u, 1280u}, {1500u, 1500u}, {1501u, 1500u}}) {
    link.hears({.mtu = said});
    CHECK(link.routers.mtu_bytes() == believed);
  }
}

TEST_CASE("a prefix on the link is there as long as it is said to be", "[ip]") {
  Link link;
  const IpAddress on_link = *wire::parse_ip("2001:db8:5::77");
  const auto prefix = [](std::uint32_t valid_s) {
    return Link::with({.prefix = kPrefix, .bits = 64, .on_link = true, .valid_s = valid_s, .preferred_s = 0});
  };
  CHECK_FALSE(link.hears(prefix(0)));  // that it is none is no news
  CHECK_FALSE(link.routes.next_hop(on_link));
  CHECK(link.hears(prefix(10)));
  CHECK(link.routes.next_hop(on_link) == on_link);
  CHECK_FALSE(link.hears(prefix(20)));
  CHECK_FALSE(link.routers.expire(link.routes, at(19'999)));
  CHECK(link.routers.expire(link.routes, at(20'000)));
  CHECK_FALSE(link.routes.next_hop(on_link));
  CHECK(link.hears(prefix(wire::PrefixInformation::kInfinite), 20'000));
  CHECK(link.routers.next_deadline() == kNever);
  CHECK(link.hears(prefix(0), 20'000));
  CHECK_FALSE(link.routes.next_hop(on_link));
  CHECK_FALSE(link.own.find(*wire::parse_ip("2001:db8:5::ff:fe00:1")));  // it was not said to make addresses of
}

TEST_CASE("routers are asked three times, or until one has said that it is one", "[ip]") {
  Link link;
  CHECK(link.routers.next_deadline() == kNever);
  const auto questions = [&](std::int64_t begin) {
    link.routers.start(at(begin));
    CHECK(link.routers.next_deadline() <= at(begin + 1000));
    int count = 0;
    for (std::int64_t ms = begin; ms < begin + 30'000; ms += 100) {
      count += link.routers.next_solicitation(at(ms)) ? 1 : 0;
      if (count == 1) link.hears({.lifetime_s = 0}, ms);
    }
    return count;
  };
  CHECK(questions(0) == 3);
  CHECK(link.routers.next_deadline() == kNever);
  CHECK(questions(100'000) == 3);
  link.routers.start(at(200'000));
  link.hears({.lifetime_s = 9000}, 200'000);
  CHECK_FALSE(link.routers.next_solicitation(at(201'000)));
}
