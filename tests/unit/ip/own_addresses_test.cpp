// A station's own addresses, in time: RFC 5227, RFC 4862, RFC 7217.
#include "ip/own_addresses.hpp"

#include <set>
#include <string>
#include <vector>

#include "kit/catch.hpp"

using namespace rnic;
using ip::AddressOrigin;
using ip::AddressState;
using ip::Claim;
using ip::OwnAddresses;
using wire::IpAddress;

namespace {

constexpr wire::Mac kMac{{0x02, 0, 0, 0, 0, 0xa0}}, kOther{{0x02, 0, 0, 0, 0, 0xb0}};
constexpr auto kOurs = IpAddress::v4(10, 0, 0, 1);
const auto kOurs6 = *wire::parse_ip("2001:db8::1");
const auto kPrefix = *wire::parse_ip("2001:db8:5::");
constexpr Instant at(std::int64_t ms) { return Instant{0} + milliseconds(1'000'000 + ms); }

// Letters for what was sent, each with its time in milliseconds.
struct Sent {
  char what;
  std::int64_t ms;
};
char letter(OwnAddresses::Action::Kind kind) {
  using Kind = OwnAddresses::Action::Kind;
  switch (kind) {
    case Kind::arp_probe:
      return 'p';
    case Kind::arp_announce:
      return 'a';
    case Kind::solicit:
      return 's';
    case Kind::advertise:
      return 'v';
  }
  return '?';
}

struct Ours {
  explicit Ours(bool probe, std::uint64_t seed = 1, bool opaque = false)
      : machine({.mac = kMac, .probe = probe, .opaque = opaque, .seed = seed}) {}

  // Everything that is sent until then.
  std::string run_until(Instant end) {
    std::string letters;
    while (machine.next_deadline() <= end) {
      now = std::max(now, machine.next_deadline());
      while (const auto action = machine.next_action(now)) {
        letters += letter(action->kind);
        sent.push_back({letter(action->kind), (now - at(0)).ns / 1'000'000});
        last = *action;
      }
    }
    now = std::max(now, end);
    return letters;
  }
  AddressState state(const IpAddress& address) const {
    const ip::OwnAddress* own = machine.find(address);
    return own == nullptr ? AddressState::none : own->state;
  }

  OwnAddresses machine;
  Instant now = at(0);
  std::vector<Sent> sent;
  OwnAddresses::Action last;
};

}  // namespace

TEST_CASE("an IPv4 address is probed three times, then announced twice (RFC 5227 s2.1, s2.3)", "[ip]") {
  for (std::uint64_t seed = 1; seed < 40; ++seed) {
    Ours t(true, seed);
    CHECK(t.machine.add(kOurs, 24, AddressOrigin::configured, at(0)));
    t.machine.set_link(true, at(0));
    CHECK(t.state(kOurs) == AddressState::tentative);
    CHECK(t.run_until(at(20'000)) == "pppaa");
    const auto wait = [&](std::size_t i) { return t.sent[i].ms - t.sent[i - 1].ms; };
    CHECK(t.sent[0].ms < 1000);
    for (const std::size_t i : {1u, 2u}) CHECK((wait(i) >= 1000 && wait(i) <= 2000));
    CHECK(wait(3) == 2000);
    CHECK(wait(4) == 2000);
    CHECK(t.state(kOurs) == AddressState::preferred);
    CHECK(t.machine.next_deadline() == kNever);
  }
}

TEST_CASE("an IPv6 address is solicited once, and is ours a second later (RFC 4862 s5.4)", "[ip]") {
  Ours t(true);
  CHECK(t.machine.add(kOurs6, 64, AddressOrigin::configured, at(0)));
  t.machine.set_link(true, at(0));
  CHECK(t.run_until(at(1000)) == "s");
  CHECK(t.last.address == kOurs6);
  CHECK(t.machine.is_our_nonce(kOurs6, t.last.nonce));
  CHECK_FALSE(t.machine.is_our_nonce(kOurs6, t.last.nonce ^ 1));
  CHECK(t.state(kOurs6) == AddressState::tentative);
  CHECK_FALSE(t.machine.settled());
  CHECK(t.run_until(at(2000)) == "v");
  CHECK(t.state(kOurs6) == AddressState::preferred);
  CHECK(t.machine.settled());
}

TEST_CASE("nothing is asked, and nothing used, while the link is down", "[ip]") {
  Ours t(true);
  (void)t.machine.add(kOurs, 24, AddressOrigin::configured, at(0));
  CHECK(t.run_until(at(60'000)) == "");
  CHECK(t.state(kOurs) == AddressState::tentative);
  t.machine.set_link(true, at(60'000));
  CHECK(t.run_until(at(61'000)) == "p");
  t.machine.set_link(false, at(61'000));
  CHECK(t.run_until(at(90'000)) == "");
}

TEST_CASE("where nobody is asked an address is ours at once, and announced once", "[ip]") {
  Ours t(false);
  (void)t.machine.add(kOurs, 24, AddressOrigin::configured, at(0));
  (void)t.machine.add(kOurs6, 64, AddressOrigin::configured, at(0));
  CHECK(t.state(kOurs) == AddressState::preferred);
  t.machine.set_link(true, at(5));
  CHECK(t.run_until(at(10'000)) == "av");
}

TEST_CASE("where it is not asked for, nobody is asked whether he has an address", "[ip]") {
  OwnAddresses machine({.mac = kMac});
  machine.set_link(true, at(0));
  REQUIRE(machine.add(kOurs, 24, AddressOrigin::configured, at(0)));
  CHECK(machine.find(kOurs)->state == AddressState::preferred);
}

TEST_CASE("a link that comes back is told of the addresses that we have", "[ip]") {
  Ours t(true);
  (void)t.machine.add(kOurs, 24, AddressOrigin::configured, at(0));
  t.machine.set_link(true, at(0));
  t.run_until(at(20'000));
  t.machine.set_link(false, at(20'000));
  CHECK(t.state(kOurs) == AddressState::preferred);
  t.machine.set_link(true, at(30'000));
  CHECK(t.state(kOurs) == AddressState::preferred);
  CHECK(t.run_until(at(40'000)) == "aa");
}

TEST_CASE("an address that somebody has is not used, and tried again after a minute", "[ip]") {
  Ours t(true);
  (void)t.machine.add(kOurs, 24, AddressOrigin::configured, at(0));
  t.machine.set_link(true, at(0));
  t.run_until(at(1'500));
  const auto version = t.machine.version();
  t.machine.on_claim(kOurs, kOther, Claim::has, at(1'500));
  CHECK(t.state(kOurs) == AddressState::duplicate);
  CHECK(t.machine.version() != version);
  CHECK(t.machine.find(kOurs)->conflicts == 1);
  CHECK(t.machine.find(kOurs)->conflict_with == kOther);
  CHECK(t.machine.settled());
  CHECK(t.run_until(at(61'499)) == "");
  CHECK(t.run_until(at(80'000)) == "pppaa");
  CHECK(t.state(kOurs) == AddressState::preferred);
}

TEST_CASE("each who takes an address that we ask for is told of, however soon after another", "[ip]") {
  constexpr wire::Mac kAnother{2, 0, 0, 0, 0, 0x99};
  Ours t(true);
  const IpAddress made_up = ip::interface_address(*wire::parse_ip("fe80::"), kMac, false, 0);
  REQUIRE(t.machine.add(made_up, 64, AddressOrigin::link_local, at(0)));
  t.machine.set_link(true, at(0));
  t.machine.on_claim(made_up, kOther, Claim::has, at(100));
  const ip::OwnAddress* own = &t.machine.all()[0];
  CHECK(own->conflicts == 1);
  CHECK(own->state == AddressState::tentative);
  CHECK(own->address != made_up);
  t.machine.on_claim(own->address, kAnother, Claim::has, at(101));
  CHECK(own->conflicts == 2);
  CHECK(own->conflict_with == kAnother);
}

TEST_CASE("who asks for an address while we ask for it has it as little as we", "[ip]") {
  for (const IpAddress& address : {kOurs, kOurs6}) {
    Ours t(true);
    (void)t.machine.add(address, 24, AddressOrigin::configured, at(0));
    t.machine.set_link(true, at(0));
    t.machine.on_claim(address, kOther, Claim::asks, at(1));
    CHECK(t.state(address) == AddressState::duplicate);
  }
}

TEST_CASE("who asks for an address that we use is no conflict", "[ip]") {
  Ours t(false);
  (void)t.machine.add(kOurs, 24, AddressOrigin::configured, at(0));
  t.machine.set_link(true, at(0));
  t.run_until(at(10));
  t.machine.on_claim(kOurs, kOther, Claim::asks, at(20));
  CHECK(t.machine.find(kOurs)->conflicts == 0);
  CHECK(t.run_until(at(100)) == "");
}

TEST_CASE("an address in use is defended once in ten seconds, and told as often (RFC 5227 s2.4)", "[ip]") {
  Ours t(false);
  (void)t.machine.add(kOurs, 24, AddressOrigin::configured, at(0));
  t.machine.set_link(true, at(0));
  t.run_until(at(10));
  t.machine.on_claim(kOurs, kOther, Claim::has, at(1'000));
  CHECK(t.run_until(at(1'001)) == "a");
  CHECK(t.machine.find(kOurs)->conflicts == 1);
  const auto version = t.machine.version();
  for (int ms = 2'000; ms < 11'000; ms += 100) t.machine.on_claim(kOurs, kOther, Claim::has, at(ms));
  CHECK(t.run_until(at(10'999)) == "");
  CHECK(t.machine.version() == version);
  t.machine.on_claim(kOurs, kOther, Claim::has, at(11'000));
  CHECK(t.run_until(at(20'000)) == "a");
  CHECK(t.machine.find(kOurs)->conflicts == 2);
  CHECK(t.state(kOurs) == AddressState::preferred);
}

TEST_CASE("an address that is claimed by ever other names is told once a second", "[ip]") {
  Ours t(false);
  (void)t.machine.add(kOurs, 24, AddressOrigin::configured, at(0));
  t.machine.set_link(true, at(0));
  t.run_until(at(10));
  const auto version = t.machine.version();
  for (int ms = 1'000; ms < 5'000; ++ms)
    t.machine.on_claim(kOurs, wire::Mac{2, 0, 0, 9, static_cast<std::uint8_t>(ms >> 8), static_cast<std::uint8_t>(ms)},
                       Claim::has, at(ms));
  CHECK(t.machine.find(kOurs)->conflicts == 4);
  CHECK(t.machine.version() <= version + 4);
  CHECK(t.state(kOurs) == AddressState::preferred);
}

TEST_CASE("an IPv6 address in use is told of, and not fought for", "[ip]") {
  Ours t(false);
  (void)t.machine.add(kOurs6, 64, AddressOrigin::configured, at(0));
  t.machine.set_link(true, at(0));
  t.run_until(at(10));
  t.machine.on_claim(kOurs6, kOther, Claim::has, at(1'000));
  CHECK(t.machine.find(kOurs6)->conflicts == 1);
  CHECK(t.run_until(at(5'000)) == "");
  CHECK(t.state(kOurs6) == AddressState::preferred);
}

TEST_CASE("a made-up address that is taken is made up anew, three times", "[ip]") {
  Ours t(true);
  const IpAddress network = *wire::parse_ip("fe80::");
  IpAddress address = ip::interface_address(network, kMac, false, 0);
  (void)t.machine.add(address, 64, AddressOrigin::link_local, at(0));
  t.machine.set_link(true, at(0));
  std::set<IpAddress> tried;
  for (unsigned attempt = 0; attempt < 4; ++attempt) {
    const ip::OwnAddress& own = t.machine.all()[0];
    CHECK(own.state == AddressState::tentative);
    CHECK(own.address.is_link_local());
    CHECK(own.address == ip::interface_address(network, kMac, false, attempt));
    tried.insert(own.address);
    t.run_until(t.now + milliseconds(1'000));
    t.machine.on_claim(own.address, kOther, Claim::has, t.now);
  }
  CHECK(tried.size() == 4);
  CHECK(t.machine.all()[0].state == AddressState::duplicate);
}

TEST_CASE("the link-local address of a MAC is the one that Linux makes of it", "[ip]") {
  const IpAddress network = *wire::parse_ip("fe80::");
  CHECK(ip::interface_address(network, kMac, false, 0) == *wire::parse_ip("fe80::ff:fe00:a0"));
  const IpAddress opaque = ip::interface_address(network, kMac, true, 0);
  CHECK(opaque != ip::interface_address(network, kMac, false, 0));
  CHECK(opaque == ip::interface_address(network, kMac, true, 0));
  CHECK(opaque != ip::interface_address(network, kMac, true, 1));
  CHECK(opaque != ip::interface_address(network, kOther, true, 0));
  // Not the same station in another network (RFC 7217 s5).
  const IpAddress global = ip::interface_address(kPrefix, kMac, true, 0);
  CHECK(wire::same_network(global, kPrefix, 64));
  CHECK(std::vector(global.octets().begin() + 8, global.octets().end()) !=
        std::vector(opaque.octets().begin() + 8, opaque.octets().end()));
}

TEST_CASE("there are eight places, and an address keeps its own", "[ip]") {
  Ours t(false);
  for (std::uint8_t i = 1; i <= 8; ++i)
    CHECK(t.machine.add(IpAddress::v4(10, 0, 0, i), 24, AddressOrigin::configured, at(0)));
  CHECK_FALSE(t.machine.add(IpAddress::v4(10, 0, 0, 9), 24, AddressOrigin::configured, at(0)));
  CHECK_FALSE(t.machine.add(IpAddress::v4(10, 0, 0, 1), 24, AddressOrigin::configured, at(0)));
  CHECK(t.machine.all()[6].address == IpAddress::v4(10, 0, 0, 7));
}

TEST_CASE("an advertised prefix makes an address that is deprecated, then gone (RFC 4862 s5.5.4)", "[ip]") {
  Ours t(false);
  t.machine.set_link(true, at(0));
  t.machine.on_prefix(kPrefix, at(9'000'000), at(5'000'000), at(0));
  const IpAddress address = *wire::parse_ip("2001:db8:5::ff:fe00:a0");
  CHECK(t.state(address) == AddressState::preferred);
  t.run_until(at(4'999'999));
  CHECK(t.state(address) == AddressState::preferred);
  t.run_until(at(5'000'000));
  CHECK(t.state(address) == AddressState::deprecated);
  CHECK(t.machine.find(address)->usable());
  t.run_until(at(8'999'999));
  CHECK(t.state(address) == AddressState::deprecated);
  t.run_until(at(9'000'000));
  CHECK(t.state(address) == AddressState::none);
  CHECK(t.machine.next_deadline() == kNever);
}

TEST_CASE("a prefix that is over makes no address", "[ip]") {
  Ours t(false);
  const auto version = t.machine.version();
  t.machine.on_prefix(kPrefix, at(0), at(0), at(0));
  CHECK(t.machine.all()[0].state == AddressState::none);
  CHECK(t.machine.version() == version);  // not for a moment either
}

TEST_CASE("nobody cuts an address's life below two hours; the preferred life he may (RFC 4862 s5.5.3)", "[ip]") {
  constexpr std::int64_t kHour = 3'600'000;
  Ours t(false);
  const IpAddress address = *wire::parse_ip("2001:db8:5::ff:fe00:a0");
  const auto valid = [&] { return t.machine.find(address)->valid_until; };
  t.machine.on_prefix(kPrefix, at(10 * kHour), at(10 * kHour), at(0));
  t.machine.on_prefix(kPrefix, at(1), at(1), at(0));
  CHECK(valid() == at(2 * kHour));
  CHECK(t.machine.find(address)->preferred_until == at(1));
  // With two hours or less to go it is left as it is.
  t.machine.on_prefix(kPrefix, at(kHour), at(kHour), at(1000));
  CHECK(valid() == at(2 * kHour));
  // More than two hours, or more than was left, is believed.
  t.machine.on_prefix(kPrefix, at(3 * kHour), at(3 * kHour), at(1000));
  CHECK(valid() == at(3 * kHour));
  t.machine.on_prefix(kPrefix, kNever, kNever, at(1000));
  CHECK(valid() == kNever);
}

TEST_CASE("an address that is preferred again says so", "[ip]") {
  Ours t(false);
  const IpAddress address = *wire::parse_ip("2001:db8:5::ff:fe00:a0");
  t.machine.on_prefix(kPrefix, kNever, at(1000), at(0));
  t.run_until(at(1000));
  CHECK(t.state(address) == AddressState::deprecated);
  t.machine.on_prefix(kPrefix, kNever, at(5000), at(2000));
  CHECK(t.state(address) == AddressState::preferred);
}
