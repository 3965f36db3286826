#include "sim/workload_choice.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace rnic::sim {

namespace {
constexpr const char* kSinkNames[] = {"local", "open", "strict"};
constexpr const char* kEndingNames[] = {"graceful", "destroy early", "abrupt", "blackout"};
}  // namespace

Choice choose(Random& random, std::uint64_t seed) {
  Choice c;
  c.world.seed = seed;
  LinkOptions& link = c.world.link;
  link.delay =
      microseconds(static_cast<std::int64_t>(random.chance(700) ? random.between(1, 50) : random.between(50, 20'000)));
  if (random.chance(400))
    link.jitter_max =
        Duration{static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(link.delay.ns) * 2) + 1)};
  if (random.chance(300)) link.per_frame = nanoseconds(static_cast<std::int64_t>(random.between(100, 5'000)));
  if (random.chance(500))
    link.loss_per_1000 = static_cast<std::uint32_t>(random.between(1, random.chance(200) ? 150 : 30));
  if (random.chance(300)) link.repeat_per_1000 = static_cast<std::uint32_t>(random.between(1, 100));
  if (random.chance(150)) link.fragment_per_1000 = static_cast<std::uint32_t>(random.between(1, 200));
  const bool corrupt = random.chance(300);
  if (corrupt) link.corrupt_per_1000 = static_cast<std::uint32_t>(random.between(1, 40));

  constexpr std::array<std::uint32_t, 5> kMtus{576, 1500, 1500, 4096, 9000};
  const bool v6 = random.chance(350);
  const bool link_local = random.chance(300);
  const std::uint32_t mtu = std::max(kMtus[random.below(kMtus.size())], v6 ? 1280u : 0u);
  std::optional<std::uint16_t> vlan;
  if (random.chance(250)) vlan = static_cast<std::uint16_t>(random.between(1, 4094));
  const bool probe = random.chance(100);
  tcp::Options tcp = core::DeviceOptions{}.tcp;
  tcp.timestamps = random.chance(300);
  tcp.sack = random.chance(800);
  tcp.window_scale = random.chance(850);
  tcp.nagle = random.chance(100);
  if (random.chance(300)) tcp.receive_window_bytes = static_cast<std::uint32_t>(random.between(70'000, 300'000));
  if (random.chance(200)) {
    tcp.send_segments_max = 64;
    tcp.window_max_bytes = 0;
  }
  if (random.chance(500)) tcp.congestion = tcp::Options::Congestion::newreno;
  for (RnicOptions* side : {&c.world.a, &c.world.b}) {
    side->mtu_bytes = mtu;
    side->buffers = static_cast<std::uint32_t>(random.chance(150) ? 512 : 2048);
    side->checksums = corrupt || random.chance(500);
    side->late_mover = random.chance(500);
    side->runs = seed / 2 % 2 == 1;
    side->device.tcp = tcp;
    side->device.crc_required = random.chance(850);
    side->device.peer_to_peer = random.chance(750);
    side->device.mpa_revision = random.chance(850) ? 2 : 1;
    if (random.chance(300)) side->device.markers = mpa::MarkerUse::both;
    side->device.orphan_timeout = seconds(2000);  // however bad the wire is
    side->device.vlan = vlan;
    side->device.probe = probe;
    const std::uint8_t last = side == &c.world.a ? 1 : 2;
    if (v6) side->address = link_local ? address_link_local(last) : address_v6(last);
  }
  c.qp_count = static_cast<unsigned>(random.chance(500) ? 1 : random.between(2, 6));
  c.ops_max = static_cast<unsigned>(random.between(1, 40));
  constexpr std::array<std::uint32_t, 5> kSizes{16, 300, 3'000, 20'000, 120'000};
  c.size_max = kSizes[random.below(kSizes.size())];
  if (c.size_max > 10'000) c.ops_max = std::min(c.ops_max, 10u);
  c.sq_depth = static_cast<unsigned>(random.between(1, 24));
  c.rq_depth = static_cast<unsigned>(random.between(1, 16));
  c.hold = random.chance(700);
  c.post_early = !c.hold || random.chance(300);
  const auto end = random.below(10);
  c.ending = end < 5 ? Ending::graceful : end < 7 ? Ending::destroy_early : end < 9 ? Ending::abrupt : Ending::blackout;
  // A Send that finds no receive is lost when the stream ends, however gracefully.
  if (c.ending == Ending::destroy_early) c.post_early = true;
  c.strike = microseconds(static_cast<std::int64_t>(random.below(3'000)));
  if (random.chance(200)) c.short_ring = static_cast<unsigned>(random.between(1, 40));
  // Each side as it likes: ECN asked for, agreed to or not known; with and without DCTCP's exact echo.
  for (RnicOptions* side : {&c.world.a, &c.world.b}) {
    constexpr std::array<tcp::EcnUse, 3> kUses{tcp::EcnUse::on, tcp::EcnUse::passive, tcp::EcnUse::off};
    side->device.tcp.ecn = kUses[random.below(kUses.size())];
    if (random.chance(300)) side->device.tcp.congestion = tcp::Algorithm::dctcp;
  }
  if (random.chance(400))
    link.mark_per_1000 = static_cast<std::uint32_t>(random.between(1, random.chance(300) ? 1000 : 100));
  // Chance of its own: what came here later changes nothing else of any seed's story.
  Random sinks(seed ^ 0x5EAD'0000'0000'0000u);
  for (ReadSinks& each : c.read_sinks)
    each = sinks.chance(600) ? ReadSinks::local : sinks.chance(500) ? ReadSinks::open : ReadSinks::strict;
  Random faces(seed ^ 0xFACE'0000'0000'0000u);
  c.acknowledged = faces.chance(350);
  return c;
}

std::string story_of(const Choice& c) {
  char text[500];
  const auto side = [](const RnicOptions& s) {
    return std::string(s.checksums ? "k" : "-") + (s.late_mover ? "l" : "-") + (s.device.crc_required ? "c" : "-") +
           (s.device.peer_to_peer ? "p" : "-") + (s.device.markers == mpa::MarkerUse::both ? "m" : "-") +
           std::to_string(s.device.mpa_revision);
  };
  std::snprintf(
      text, sizeof text,
      "delay %lld us jitter %lld us mark %u loss %u repeat %u corrupt %u fragment %u, mtu %u, %s vlan %u%s, "
      "tcp%s%s%s, a %s "
      "b %s, %u QPs, ops %u, "
      "size %u, sq %u rq %u%s%s%s, ring %u, sinks %s %s, %s",
      static_cast<long long>(c.world.link.delay.ns / 1000), static_cast<long long>(c.world.link.jitter_max.ns / 1000),
      c.world.link.mark_per_1000, c.world.link.loss_per_1000, c.world.link.repeat_per_1000,
      c.world.link.corrupt_per_1000, c.world.link.fragment_per_1000, c.world.a.mtu_bytes,
      c.world.a.address.is_unspecified()  ? "IPv4"
      : c.world.a.address.is_link_local() ? "link-local"
                                          : "IPv6",
      c.world.a.device.vlan.value_or(0), c.world.a.device.probe ? " probe" : "",
      c.world.a.device.tcp.timestamps ? " ts" : "", c.world.a.device.tcp.sack ? " sack" : "",
      c.world.a.device.tcp.window_scale ? " ws" : "", side(c.world.a).c_str(), side(c.world.b).c_str(), c.qp_count,
      c.ops_max, c.size_max, c.sq_depth, c.rq_depth, c.hold ? " hold" : "", c.post_early ? " early" : "",
      c.acknowledged ? " acknowledged" : "", c.short_ring, kSinkNames[static_cast<int>(c.read_sinks[0])],
      kSinkNames[static_cast<int>(c.read_sinks[1])], kEndingNames[static_cast<int>(c.ending)]);
  return text;
}

Choice with_mtu(Choice choice, std::uint64_t seed, std::uint32_t mtu_bytes) {
  if (mtu_bytes == 0) return choice;
  for (RnicOptions* side : {&choice.world.a, &choice.world.b}) {
    side->mtu_bytes = mtu_bytes;
    if (seed % 2 == 0) side->large_buffers = 1 + static_cast<std::uint32_t>(seed / 2 % 12);
  }
  return choice;
}

Choice by(Way way, Choice choice) {
  if (way == Way::wire) return choice;
  for (RnicOptions* side : {&choice.world.a, &choice.world.b}) side->device.local_direct = true;
  if (choice.ending == Ending::blackout) choice.ending = Ending::abrupt;
  return choice;
}

Choice in_danger(Choice choice, Danger danger) {
  if (danger == Danger::none) return choice;
  for (RnicOptions* side : {&choice.world.a, &choice.world.b}) {
    side->device.crc_required = true;  // octets that somebody forged are told by the CRC alone
    // He speaks IPv4 without tags.
    side->address = {};
    side->device.vlan.reset();
  }
  if (danger == Danger::on_path) choice.ending = Ending::abrupt;
  return choice;
}

}  // namespace rnic::sim
