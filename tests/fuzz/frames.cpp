// Raw frames into a device that listens and has a connection: nothing about them need be right.
#include "kit/frames.hpp"
#include "fuzz/bench.hpp"
#include "fuzz/input.hpp"

namespace rnic::fuzz {

namespace {

// What is done to a frame before it is put on the wire.
constexpr unsigned kFixChecksums = 1;
constexpr unsigned kOfTheConnection = 2;  // ports of the connection, numbers counted from its own
constexpr unsigned kTimePasses = 4;
constexpr unsigned kFixIpLength = 8;

void prepare(MutableBytes frame, unsigned choice, const Peer& peer) {
  if (frame.size() >= 34 && load_be<std::uint16_t>(frame, 12) == wire::ether_type::kIpv4) {
    if ((choice & kFixIpLength) != 0) store_be(frame, 16, static_cast<std::uint16_t>(frame.size() - 14));
    const std::size_t tcp = 14 + (std::to_integer<std::size_t>(frame[14]) & 0xF) * 4;
    if ((choice & kOfTheConnection) != 0 && tcp + 20 <= frame.size()) {
      store_be(frame, tcp, peer.port);
      store_be(frame, tcp + 2, peer.device_port);
      store_be(frame, tcp + 4, load_be<std::uint32_t>(frame, tcp + 4) + peer.next());
      store_be(frame, tcp + 8, load_be<std::uint32_t>(frame, tcp + 8) + peer.expects);
    }
  }
  if ((choice & kFixChecksums) != 0) test::frames::fix_checksums(frame);
}

}  // namespace

void run_frames(Bytes octets) {
  Input input(octets);
  Bench::Options options;
  const unsigned bits = input.u8();
  options.tcp.timestamps = (bits & 1) != 0;
  options.late_mover = (bits & 2) != 0;
  Bench bench(options);
  FUZZ_CHECK(bench.connect(bench.peer(0)));
  for (unsigned n = 0; n < 64 && !input.empty(); ++n) {
    const unsigned choice = input.u8();
    const Bytes given = input.take(input.u16() % 1600);
    Octets frame(given.begin(), given.end());
    prepare(frame, choice, bench.peer(0));
    bench.hears(frame);
    if ((choice & kTimePasses) != 0) bench.pass(milliseconds(1 << (choice >> 4)));
  }
  bench.finish();
}

std::vector<Octets> seeds_frames() {
  std::vector<Octets> frames;
  const auto segment = [&](unsigned flags, std::uint32_t sequence, std::string_view options, Bytes payload) {
    Octets tcp(20);
    wire::emit_plain(wire::TcpHeader{.source_port = 3001,
                                     .destination_port = kListener,
                                     .sequence = sequence,
                                     .flags = static_cast<std::uint8_t>(flags),
                                     .window = 1000},
                     tcp);
    test::append(tcp, test::hex(options));
    tcp[12] = static_cast<std::byte>(tcp.size() / 4 << 4);
    test::append(tcp, payload);
    frames.push_back(packet_of(wire::protocol::kTcp, tcp));
  };
  segment(0x02, 0, "020405b40402080a00000001000000000103030a", {});  // SYN
  segment(0x10, 0, "", test::pattern(30));
  segment(0x10, 100, "", test::pattern(30));           // a gap
  segment(0x10, 0xFFFFFFF0, "", test::pattern(1000));  // old and new octets
  segment(0x10, 0, "0101050a0000000a0000001400000000", {});
  segment(0x11, 0, "", {});
  segment(0x04, 0, "", {});
  segment(0x14, 7, "", {});
  segment(0x12, 0, "020405b4", {});
  segment(0x30, 0, "", test::hex("001741430000000000000000000000010000000052444d41000000007b2f44ff"));
  Octets echo(16);
  wire::emit(wire::IcmpHeader{.type = 8, .code = 0, .rest = 0x00010002}, echo);
  frames.push_back(packet_of(wire::protocol::kIcmp, echo));
  Octets too_large(8);
  wire::emit(wire::IcmpHeader{.type = 3, .code = 4, .rest = 576}, too_large);
  test::append(too_large, test::hex("450005dc000040004006000 0 0a0000020a00004 2 1d2f0bb80000000000000000"));
  frames.push_back(packet_of(wire::protocol::kIcmp, too_large));
  for (const std::uint16_t operation : {wire::ArpPacket::kRequest, wire::ArpPacket::kReply})
    frames.push_back(test::frames::arp({.destination = kOurMac, .source = kTheirMac}, {.operation = operation,
                                                                                       .sender_mac = kTheirMac,
                                                                                       .sender_ip = kTheirs,
                                                                                       .target_mac = kOurMac,
                                                                                       .target_ip = kOurs}));
  // IPv4 with options, a fragment, IPv6 with a neighbour solicitation, a VLAN tag.
  frames.push_back(test::hex(
      "020000000002020000000066080046000020000000004006 0000 0a0000420a0000020101010 00bb81d2f00000000000000005010ffff"
      "00000000"));
  frames.push_back(
      test::hex("020000000002020000000066080045000024000120004006 0000 "
                "0a0000420a0000020bb81d2f00000000000000005010ffff00000000"));
  frames.push_back(test::hex(
      "02000000000202000000006686dd6000000000203aff fe800000000000000000000000000066ff0200000000000000000001ff000002"
      "870000000000 0000fe8000000000000000000000000000020101020000000066"));
  frames.push_back(test::hex(
      "0200000000020200000000668100000508004500002800000000400600000a0000420a0000020bb81d2f00000000000000005010ffff"
      "00000000"));

  std::vector<Octets> seeds;
  Program all;
  all.u8(0);
  for (const Octets& frame : frames) {
    seeds.push_back(Program().u8(1).u8(kFixChecksums).sized(frame).octets());
    seeds.push_back(Program().u8(2).u8(kFixChecksums | kOfTheConnection | kFixIpLength).sized(frame).octets());
    all.u8(kFixChecksums | kOfTheConnection | kTimePasses).sized(frame);
  }
  seeds.push_back(all.octets());
  return seeds;
}

}  // namespace rnic::fuzz
