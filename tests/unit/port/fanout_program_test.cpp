// What the kernel runs to divide frames among sockets, run here.
#include "port/fanout_program.hpp"

#include <optional>
#include <random>
#include <vector>

#include "base/bytes.hpp"
#include "kit/catch.hpp"
#include "kit/frames.hpp"
#include "port/steering.hpp"
#include "wire/rss.hpp"

namespace rnic::port {
namespace {

namespace frames = rnic::test::frames;
using rnic::test::Octets;
using wire::IpAddress;

// A machine for such programs (the kernel's networking/filter.rst), with as much as ours use. Nothing: the kernel would
// not take the program, or this machine knows too little.
std::optional<std::uint32_t> run(const std::vector<sock_filter>& program, std::uint16_t ether_type, Bytes packet) {
  std::uint32_t a = 0, x = 0;
  for (std::size_t at = 0; at < program.size(); ++at) {
    const auto [code, jt, jf, k] = program[at];
    const auto load = [&](std::uint64_t from, std::size_t size) {
      if (from + size > packet.size()) return false;
      a = 0;
      for (std::size_t i = 0; i < size; ++i) a = a << 8 | std::to_integer<std::uint32_t>(packet[from + i]);
      return true;
    };
    bool there = true;
    switch (code) {
      case BPF_LD | BPF_W | BPF_ABS:
        if (k == static_cast<std::uint32_t>(SKF_AD_OFF + SKF_AD_PROTOCOL))
          a = ether_type;
        else
          there = load(k, 4);
        break;
      case BPF_LD | BPF_H | BPF_ABS:
        there = load(k, 2);
        break;
      case BPF_LD | BPF_B | BPF_ABS:
        there = load(k, 1);
        break;
      case BPF_LD | BPF_W | BPF_IND:
        there = load(std::uint64_t{x} + k, 4);
        break;
      case BPF_LDX | BPF_B | BPF_MSH:
        if (k >= packet.size()) return 0;
        x = 4 * (std::to_integer<std::uint32_t>(packet[k]) & 0xF);
        break;
      case BPF_MISC | BPF_TAX:
        x = a;
        break;
      case BPF_ALU | BPF_XOR | BPF_X:
        a ^= x;
        break;
      case BPF_ALU | BPF_XOR | BPF_K:
        a ^= k;
        break;
      case BPF_ALU | BPF_AND | BPF_K:
        a &= k;
        break;
      case BPF_ALU | BPF_RSH | BPF_K:
        a >>= k;
        break;
      case BPF_ALU | BPF_MOD | BPF_K:
        if (k == 0) return std::nullopt;
        a %= k;
        break;
      case BPF_JMP | BPF_JA:
        at += k;
        break;
      case BPF_JMP | BPF_JEQ | BPF_K:
        at += a == k ? jt : jf;
        break;
      case BPF_JMP | BPF_JGE | BPF_K:
        at += a >= k ? jt : jf;
        break;
      case BPF_JMP | BPF_JGT | BPF_K:
        at += a > k ? jt : jf;
        break;
      case BPF_JMP | BPF_JSET | BPF_K:
        at += (a & k) != 0 ? jt : jf;
        break;
      case BPF_RET | BPF_A:
        return a;
      case BPF_RET | BPF_K:
        return k;
      default:
        return std::nullopt;
    }
    if (!there) return 0;  // as the kernel answers to a load from behind the packet
  }
  return std::nullopt;
}

// A frame as the kernel shows it: the type of what follows the tag that it has taken off, and the packet.
std::optional<std::uint32_t> socket_of(const std::vector<sock_filter>& program, const Octets& frame) {
  std::size_t at = 14;
  if (load_be<std::uint16_t>(frame, 12) == wire::ether_type::kVlan) at = 18;
  return run(program, load_be<std::uint16_t>(frame, at - 2), Bytes(frame).subspan(at));
}

}  // namespace

TEST_CASE("the kernel gives each socket the segments of its shard, and all else to the first", "[port][steering]") {
  std::mt19937 chance(1);
  const auto any = [&](std::uint32_t below) { return static_cast<std::uint32_t>(chance()) % below; };
  constexpr std::uint16_t kTags[] = {5, 6};
  constexpr std::uint8_t kFirsts[] = {0x45, 0x4F, 0x44, 0x40, 0x50, 0x35, 0x60, 0x6F, 0x70};
  constexpr std::uint8_t kProtocols[] = {6, 17, 1, 58, 0, 44, 60};
  for (const unsigned queues : {1u, 2u, 3u, 4u, 8u, 64u}) {
    const auto program = fanout_program(queues);
    REQUIRE(program.size() <= BPF_MAXINSNS);
    unsigned not_first = 0;
    for (unsigned i = 0; i < 20'000; ++i) {
      const bool v4 = any(2) == 0;
      std::array<std::uint8_t, 16> octets[2];
      for (auto& each : octets)
        for (auto& octet : each) octet = static_cast<std::uint8_t>(chance());
      const IpAddress from =
          v4 ? IpAddress::v4(static_cast<std::uint32_t>(chance())) : IpAddress::from_octets(octets[0]);
      const IpAddress to = v4 ? IpAddress::v4(static_cast<std::uint32_t>(chance())) : IpAddress::from_octets(octets[1]);
      Octets payload(any(40));
      for (auto& octet : payload) octet = static_cast<std::byte>(chance());
      const std::size_t tags = any(8) == 0 ? any(3) : 0;
      Octets frame = frames::packet({}, wire::protocol::kTcp, from, to, payload, std::span(kTags).first(tags));
      const std::size_t ip = 14 + 4 * tags;
      // Something is another way than it is with segments.
      switch (any(12)) {
        case 0:
          frame[ip] = static_cast<std::byte>(kFirsts[any(std::size(kFirsts))]);
          break;
        case 1:
          frame[ip + (v4 ? 9 : 6)] = static_cast<std::byte>(kProtocols[any(std::size(kProtocols))]);
          break;
        case 2:
          frame[ip + 6] = static_cast<std::byte>(chance());
          break;
        case 3:
          frame[ip + 7] = static_cast<std::byte>(chance());
          break;
        case 4:
          frame.resize(18 + any(static_cast<std::uint32_t>(frame.size() - 17)));
          break;
        case 5:
          frame[ip - 1] = static_cast<std::byte>(chance());
          break;
        case 6:
          if (!v4) break;
          frame[ip] = static_cast<std::byte>(0x45 + any(11));
          frame.insert(frame.begin() + static_cast<std::ptrdiff_t>(ip) + 20, any(41), std::byte{1});
          break;
        default:
          break;
      }
      const std::optional<std::uint32_t> socket = socket_of(program, frame);
      REQUIRE(socket);
      REQUIRE(*socket == steer(frame, queues).shard);
      not_first += *socket != 0 ? 1 : 0;
    }
    if (queues > 1) CHECK(not_first > 5000);
  }
}

TEST_CASE("what is for all shards comes by the first socket", "[port][steering]") {
  const auto program = fanout_program(4);
  const IpAddress from = IpAddress::v4(1), to = IpAddress::v4(0x01020304);
  for (unsigned i = 0; i < 64; ++i) {
    wire::TcpHeader header;
    header.source_port = static_cast<std::uint16_t>(i);
    const Octets segment = frames::tcp(header, from, to);
    const Octets fragment = frames::ipv4(
        {.more_fragments = true, .protocol = wire::protocol::kTcp, .source = from, .destination = to}, segment);
    CHECK(run(program, wire::ether_type::kIpv4, fragment) == 0u);
  }
}

}  // namespace rnic::port
