// ICMP: the codecs alone, then a device with a connection that has octets in flight, which errors
// are about. ICMPv6's messages go through the codecs.
#include <algorithm>
#include <array>

#include "fuzz/bench.hpp"
#include "fuzz/input.hpp"
#include "ip/icmp.hpp"
#include "kit/hex.hpp"
#include "wire/icmp.hpp"
#include "wire/ipv4.hpp"
#include "wire/neighbour_discovery.hpp"

namespace rnic::fuzz {

namespace {

void check_codecs(Bytes message, std::uint32_t mtu) {
  for (const auto& error : {ip::parse_icmp_error(message), ip::parse_icmp6_error(message)}) {
    if (!error) continue;
    const auto lowered = ip::lowered_path_mtu(*error, mtu);
    if (lowered) FUZZ_CHECK(*lowered < mtu && *lowered >= (error->local.is_v4() ? ip::kPathMtuMin : ip::kPathMtuMinV6));
  }
  wire::parse_router_advertisement(message);
  if (const auto neighbour = wire::parse_neighbour(message)) {
    Octets out(wire::NeighbourMessage::kSizeMax);
    out.resize(wire::emit(*neighbour, out));
    const auto again = wire::parse_neighbour(out);
    FUZZ_CHECK(again == neighbour);
  }
  const auto v4 = [](unsigned last) { return wire::IpAddress::v4(10, 0, 0, static_cast<std::uint8_t>(last)); };
  Octets out(message.size());
  if (ip::answer_echo(message, v4(1), v4(2), out)) {
    FUZZ_CHECK(wire::icmp_checksum_is_good(out));
    FUZZ_CHECK(std::equal(out.begin() + 4, out.end(), message.begin() + 4));
  }
  std::array<std::byte, 16> address{std::byte{0xFE}, std::byte{0x80}};
  const auto ours = wire::IpAddress::load_v6(address, 0);
  address[15] = std::byte{1};
  const auto theirs = wire::IpAddress::load_v6(address, 0);
  if (ip::answer_echo(message, theirs, ours, out))
    FUZZ_CHECK(std::equal(out.begin() + 4, out.end(), message.begin() + 4));
}

}  // namespace

void run_icmp(Bytes octets) {
  Input input(octets);
  const unsigned choice = input.u8();
  const std::uint32_t mtu = input.u16();
  Bench::Options options;
  options.mtu_bytes = (choice & 1) != 0 ? 1500 : 4000;
  Bench bench(options);
  Peer& peer = bench.peer(0);
  FUZZ_CHECK(bench.connect(peer));
  // A Send of ours that nobody acknowledges.
  if (!bench.endpoints.empty() && (choice & 2) != 0) {
    qp::WorkRequest request;
    request.sge_count = 1;
    request.sges[0] = {bench.memory.address(Memory::local), Memory::kSize, bench.memory.stag(Memory::local)};
    sim::Endpoint& endpoint = *bench.endpoints[0];
    endpoint.host.sends.push_back(request);
    bench.device->work_posted(*endpoint.qp);
    bench.turns();
  }
  for (unsigned n = 0; n < 16 && !input.empty(); ++n) {
    const unsigned what = input.u8();
    const Bytes given = input.take(input.u16() % 1500);
    Octets message(given.begin(), given.end());
    if ((what & 1) != 0 && message.size() >= 4) wire::icmp_set_checksum(message);
    check_codecs(message, mtu);
    // It quotes a segment of the connection's, at a sequence number counted from its first.
    if ((what & 2) != 0 && message.size() >= 8 + 20 + 8) {
      const MutableBytes quoted = MutableBytes(message).subspan(8);
      kOurs.store_v4(quoted, 12);
      kTheirs.store_v4(quoted, 16);
      const std::size_t tcp = (std::to_integer<std::size_t>(quoted[0]) & 0xF) * 4;
      if (tcp >= 20 && quoted.size() >= tcp + 8) {
        store_be(quoted, tcp, peer.device_port);
        store_be(quoted, tcp + 2, peer.port);
        store_be(quoted, tcp + 4, load_be<std::uint32_t>(quoted, tcp + 4) + peer.device_initial + 1);
      }
      if ((what & 1) != 0) wire::icmp_set_checksum(message);
    }
    bench.hears(packet_of(wire::protocol::kIcmp, message));
    if ((what & 4) != 0) bench.pass(milliseconds(1 << (what >> 4)));
  }
  bench.finish();
}

std::vector<Octets> seeds_icmp() {
  std::vector<Octets> messages;
  const std::string_view quoted = "450005dc0000400040060000 0a0000020a000042 1d2f0bb80000000000000000";
  const auto error = [&](unsigned type, unsigned code, std::uint32_t rest) {
    Octets message(8);
    wire::emit(
        wire::IcmpHeader{
            .type = static_cast<std::uint8_t>(type), .code = static_cast<std::uint8_t>(code), .rest = rest},
        message);
    test::append(message, test::hex(quoted));
    messages.push_back(message);
  };
  error(3, 4, 1400);
  error(3, 4, 576);
  error(3, 4, 68);
  error(3, 4, 0);
  error(3, 1, 0);
  error(3, 3, 0);
  error(11, 0, 0);
  error(4, 0, 0);
  error(5, 1, 0x0A000001);
  error(2, 0, 1280);
  Octets echo(8);
  wire::emit(wire::IcmpHeader{.type = 8, .code = 0, .rest = 0x00010002}, echo);
  test::append(echo, test::pattern(56));
  messages.push_back(echo);
  messages.push_back(test::hex("8700000000000000fe8000000000000000000000000000020101020000000066"));
  messages.push_back(test::hex("88000000e0000000fe8000000000000000000000000000020201020000000066"));
  std::vector<Octets> seeds;
  for (const Octets& message : messages)
    for (const unsigned what : {3u, 7u, 0x97u, 1u, 0u})
      seeds.push_back(Program().u8(3).u16(1500).u8(what).sized(message).u8(3).sized(message).octets());
  return seeds;
}

}  // namespace rnic::fuzz
