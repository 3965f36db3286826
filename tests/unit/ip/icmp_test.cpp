// ICMP: echo, and what errors say.
#include "ip/icmp.hpp"

#include <vector>

#include "kit/catch.hpp"
#include "kit/frames.hpp"

using namespace rnic;
namespace frames = test::frames;
using test::hex;
using wire::IpAddress;

namespace {

constexpr auto kOurs = IpAddress::v4(10, 77, 1, 2), kTheirs = IpAddress::v4(10, 77, 1, 1);
const auto kOurs6 = *wire::parse_ip("2001:db8:1::2"), kTheirs6 = *wire::parse_ip("2001:db8:1::1");
constexpr Instant at(std::int64_t ms) { return Instant{0} + milliseconds(1'000'000 + ms); }

// What Linux answers to UDP at a port where nobody listens.
const auto kPortUnreachable =
    hex("0200000000a00200000000b0080045c0003ea81500004001bb4d0a4d01020a4d0101030313b90000000045000022a08f40004011"
        "839f0a4d01010a4d0102c5ea0009000ecb056f6374657473");
const auto kPortUnreachable6 =
    hex("0200000000a00200000000b086dd600d0fd7003e3a3d20010db800010000000000000000000220010db800010000000000000000"
        "00010104c04700000000600d718b000e113d20010db800010000000000000000000120010db800010000000000000000000285f0"
        "0009000ec6256f6374657473");
// The first octets of what a Linux router says of a packet that is too large; the rest is the packet's.
const auto kTooBig6 =
    hex("0200000000a00200000000b086dd6006c2db04d83a3d20010db800010000000000000000000220010db800010000000000000000"
        "00010200cb3900000514600f0c5b05803a3d20010db800010000000000000000000120010db80002000000000000000000038000"
        "aa21434b0001b8f3016b00000000");

// From the IPv6 header on: next header, payload.
std::vector<std::byte> packet6(const IpAddress& from, const IpAddress& to, std::uint8_t next,
                               const std::vector<std::byte>& payload) {
  return frames::ipv6({.next_header = next, .source = from, .destination = to}, payload);
}

// An error message that quotes an IP header and 8 octets of a TCP header.
std::vector<std::byte> error_message(std::uint8_t type, std::uint8_t code, std::uint32_t rest,
                                     std::uint16_t quoted_length = 1500) {
  return frames::icmp({.type = type, .code = code, .rest = rest},
                      frames::quote({.total_length = quoted_length,
                                     .source = IpAddress::v4(10, 0, 0, 1),
                                     .destination = IpAddress::v4(10, 0, 0, 2)},
                                    {.source_port = 50000, .destination_port = 4791, .sequence = 0x12345678}));
}
}  // namespace

TEST_CASE("an echo request is answered with its own octets", "[ip]") {
  std::vector<std::byte> request(20, std::byte{7}), reply(20);
  wire::emit(wire::IcmpHeader{.type = wire::icmp_type::kEchoRequest, .code = 0, .rest = 0xAABBCCDD}, request);
  wire::icmp_set_checksum(request);
  REQUIRE(ip::answer_echo(request, kTheirs, kOurs, reply));
  CHECK(wire::icmp_checksum_is_good(reply));
  CHECK(wire::parse_icmp(reply)->type == wire::icmp_type::kEchoReply);
  CHECK(wire::parse_icmp(reply)->rest == 0xAABBCCDD);
  CHECK(reply[19] == std::byte{7});
}

TEST_CASE("an echo reply is not answered", "[ip]") {
  std::vector<std::byte> message(8), reply(8);
  wire::emit(wire::IcmpHeader{.type = wire::icmp_type::kEchoReply, .code = 0, .rest = 1}, message);
  CHECK_FALSE(ip::answer_echo(message, kTheirs, kOurs, reply));
}

TEST_CASE("an error names the connection that it quotes", "[ip]") {
  const auto error = ip::parse_icmp_error(error_message(3, 1, 0));
  REQUIRE(error);
  CHECK(error->kind == ip::IcmpError::Kind::unreachable);
  CHECK(error->local == IpAddress::v4(10, 0, 0, 1));
  CHECK(error->remote == IpAddress::v4(10, 0, 0, 2));
  CHECK(error->local_port == 50000);
  CHECK(error->remote_port == 4791);
  CHECK(error->sequence == 0x12345678);
}

TEST_CASE("an error that quotes too little, or no TCP, names nothing", "[ip]") {
  auto message = error_message(3, 1, 0);
  CHECK_FALSE(ip::parse_icmp_error(Bytes(message).first(message.size() - 1)));
  message[8 + 9] = std::byte{17};
  CHECK_FALSE(ip::parse_icmp_error(message));
}

TEST_CASE("W-TCP-07: the path MTU goes down to what the message says", "[ip][W-TCP-07]") {
  const auto error = ip::parse_icmp_error(error_message(3, 4, 1400));
  REQUIRE(error);
  CHECK(ip::lowered_path_mtu(*error, 1500) == 1400u);
  CHECK(ip::lowered_path_mtu(*error, 1401) == 1400u);
}

TEST_CASE("W-TCP-07: a path MTU that is not lower, or lower than any link's, is not believed", "[ip][W-TCP-07]") {
  const auto error = ip::parse_icmp_error(error_message(3, 4, 1400));
  CHECK_FALSE(ip::lowered_path_mtu(*error, 1400));
  CHECK_FALSE(ip::lowered_path_mtu(*ip::parse_icmp_error(error_message(3, 4, 551)), 1500));
  CHECK(ip::lowered_path_mtu(*ip::parse_icmp_error(error_message(3, 4, 552)), 1500) == 552u);
}

TEST_CASE("W-TCP-07: an old router's message means the next plateau below what was sent", "[ip][W-TCP-07]") {
  CHECK(ip::lowered_path_mtu(*ip::parse_icmp_error(error_message(3, 4, 0, 1500)), 1500) == 1492u);
  CHECK(ip::lowered_path_mtu(*ip::parse_icmp_error(error_message(3, 4, 0, 1492)), 1500) == 1006u);
  CHECK(ip::lowered_path_mtu(*ip::parse_icmp_error(error_message(3, 4, 0, 9000)), 9000) == 8166u);
}

// ---- IPv6 -------------------------------------------------------------------------------------------

TEST_CASE("an echo request over IPv6 is answered, with a checksum over both addresses", "[ip]") {
  std::vector<std::byte> request(20, std::byte{7}), reply(20);
  wire::emit(wire::IcmpHeader{.type = wire::icmp6_type::kEchoRequest, .code = 0, .rest = 0xAABBCCDD}, request);
  wire::icmp6_set_checksum(request, kTheirs6, kOurs6);
  REQUIRE(ip::answer_echo(request, kTheirs6, kOurs6, reply));
  CHECK(wire::transport_checksum(kOurs6, kTheirs6, wire::protocol::kIcmpV6, reply) == 0);
  CHECK(wire::parse_icmp(reply)->type == wire::icmp6_type::kEchoReply);
  CHECK(wire::parse_icmp(reply)->rest == 0xAABBCCDD);
  // IPv4's request is none here.
  wire::emit(wire::IcmpHeader{.type = wire::icmp_type::kEchoRequest, .code = 0, .rest = 0}, request);
  CHECK_FALSE(ip::answer_echo(request, kTheirs6, kOurs6, reply));
}

TEST_CASE("W-TCP-07: packet too big, as a Linux router says it, names the connection that it quotes",
          "[ip][W-TCP-07]") {
  auto message = test::copy_of(Bytes(kTooBig6).subspan(54));
  // It was a ping that was too large; let it be a TCP segment.
  message[8 + 6] = std::byte{wire::protocol::kTcp};
  const auto ports = hex("c350 12b7 12345678");
  std::copy(ports.begin(), ports.end(), message.begin() + 48);
  const auto error = ip::parse_icmp6_error(message);
  REQUIRE(error);
  CHECK(error->kind == ip::IcmpError::Kind::packet_too_large);
  CHECK(error->next_hop_mtu == 1300);
  CHECK(error->quoted_length == 1448);
  CHECK(error->local == kTheirs6);
  CHECK(error->remote == *wire::parse_ip("2001:db8:2::3"));
  CHECK(error->local_port == 50000);
  CHECK(error->remote_port == 4791);
  CHECK(error->sequence == 0x12345678);
  CHECK(ip::lowered_path_mtu(*error, 1500) == 1300u);
  CHECK_FALSE(ip::lowered_path_mtu(*error, 1300));
  CHECK_FALSE(ip::parse_icmp6_error(Bytes(message).first(48 + 7)));
}

TEST_CASE("W-TCP-07: no IPv6 link is narrower than 1280, and no router silent about it", "[ip][W-TCP-07]") {
  ip::IcmpError error{.kind = ip::IcmpError::Kind::packet_too_large, .local = kTheirs6, .remote = kOurs6};
  error.quoted_length = 1500;
  for (const auto& [said, believed] : {std::pair{1280u, true}, {1279u, false}, {68u, false}, {0u, false}}) {
    error.next_hop_mtu = said;
    CHECK(ip::lowered_path_mtu(error, 1500).has_value() == believed);
  }
}

TEST_CASE("W-TCP-07: a quoted segment is found behind extension headers, not in a later fragment", "[ip][W-TCP-07]") {
  std::vector<std::byte> message(8);
  wire::emit(wire::IcmpHeader{.type = wire::icmp6_type::kUnreachable, .code = 0, .rest = 0}, message);
  auto quoted = packet6(kOurs6, kTheirs6, 60, hex("2c00010400000000 0600000100000009 c35012b712345678"));
  const auto with = [&] {
    auto whole = message;
    test::append(whole, quoted);
    return ip::parse_icmp6_error(whole);
  };
  REQUIRE(with());
  CHECK(with()->kind == ip::IcmpError::Kind::unreachable);
  CHECK(with()->remote_port == 4791);
  quoted[40 + 8 + 3] = std::byte{9};  // not the first fragment
  CHECK_FALSE(with());
}

TEST_CASE("an IPv6 error that quotes no TCP of ours, or is none, names nothing", "[ip]") {
  CHECK_FALSE(ip::parse_icmp6_error(Bytes(kPortUnreachable6).subspan(54)));  // UDP
  std::vector<std::byte> message(8);
  wire::emit(wire::IcmpHeader{.type = wire::icmp6_type::kUnreachable, .code = 0, .rest = 0}, message);
  test::append(message, packet6(kOurs6, kTheirs6, 6, hex("c35012b712345678")));
  REQUIRE(ip::parse_icmp6_error(message));
  message[0] = std::byte{wire::icmp6_type::kEchoReply};
  CHECK_FALSE(ip::parse_icmp6_error(message));
  message[0] = std::byte{wire::icmp6_type::kTimeExceeded};
  CHECK(ip::parse_icmp6_error(message)->kind == ip::IcmpError::Kind::other);
  message[8] = std::byte{0x45};
  CHECK_FALSE(ip::parse_icmp6_error(message));
}

// ---- errors of ours ---------------------------------------------------------------------------------

TEST_CASE("port unreachable, octet for octet as Linux says it", "[ip]") {
  std::vector<std::byte> out(ip::kComplaintMax);
  const auto four = test::copy_of(Bytes(kPortUnreachable).subspan(34));
  out.resize(ip::write_complaint({.kind = ip::Complaint::port_unreachable}, kOurs, kTheirs, Bytes(four).subspan(8), {},
                                 MutableBytes(out)));
  CHECK(out == four);
  out.assign(ip::kComplaintMax, {});
  const auto six = test::copy_of(Bytes(kPortUnreachable6).subspan(54));
  out.resize(ip::write_complaint({.kind = ip::Complaint::port_unreachable}, kOurs6, kTheirs6, Bytes(six).subspan(8), {},
                                 MutableBytes(out)));
  CHECK(out == six);
}

TEST_CASE("an error quotes as much as fits: 576 octets of IPv4, 1280 of IPv6, in two pieces where need be", "[ip]") {
  const auto long_packet = test::pattern(2000), more = test::pattern(2000, 9);
  std::vector<std::byte> out(ip::kComplaintMax);
  CHECK(ip::write_complaint({}, kOurs, kTheirs, long_packet, {}, out) == 576 - 20);
  CHECK(ip::write_complaint({}, kOurs6, kTheirs6, long_packet, {}, out) == 1280 - 40);
  CHECK(ip::write_complaint({}, kOurs6, kTheirs6, Bytes(long_packet).first(48), more, out) == 1280 - 40);
  CHECK(out[8 + 47] == long_packet[47]);
  CHECK(out[8 + 48] == more[0]);
  CHECK(ip::write_complaint({}, kOurs6, kTheirs6, Bytes(long_packet).first(48), Bytes(more).first(2), out) == 58);
}

TEST_CASE("each error has its type and code", "[ip]") {
  const auto quoted = test::pattern(40);
  const auto written = [&](const ip::IcmpComplaint& complaint, bool v6) {
    std::vector<std::byte> out(ip::kComplaintMax);
    (void)ip::write_complaint(complaint, v6 ? kOurs6 : kOurs, v6 ? kTheirs6 : kTheirs, quoted, {}, out);
    return *wire::parse_icmp(out);
  };
  using ip::Complaint;
  CHECK(written({.kind = Complaint::protocol_unreachable, .pointer = 6}, false) ==
        wire::IcmpHeader{.type = 3, .code = 2, .rest = 0});
  CHECK(written({.kind = Complaint::protocol_unreachable, .pointer = 6}, true) ==
        wire::IcmpHeader{.type = 4, .code = 1, .rest = 6});
  CHECK(written({.kind = Complaint::reassembly_timeout}, false) == wire::IcmpHeader{.type = 11, .code = 1, .rest = 0});
  CHECK(written({.kind = Complaint::reassembly_timeout}, true) == wire::IcmpHeader{.type = 3, .code = 1, .rest = 0});
  CHECK(written({.kind = Complaint::parameter_problem, .code = 2, .pointer = 42}, true) ==
        wire::IcmpHeader{.type = 4, .code = 2, .rest = 42});
}

TEST_CASE("no error answers an error, a later fragment, or what was for many or from nobody", "[ip]") {
  const auto udp = hex("450000220000000040110000 0a4d0101 0a4d0102 c5ea0009000e0000");
  CHECK(ip::may_complain_of(udp));
  auto changed = udp;
  const auto with = [&](std::size_t at, std::uint8_t octet) {
    changed = udp;
    changed[at] = std::byte{octet};
    return ip::may_complain_of(changed);
  };
  CHECK(with(6, 0x20));        // the first fragment
  CHECK_FALSE(with(7, 1));     // a later one
  CHECK_FALSE(with(16, 224));  // to a group
  CHECK_FALSE(with(12, 224));
  CHECK_FALSE(ip::may_complain_of(Bytes(udp).first(19)));
  auto broadcast = udp;
  std::fill(broadcast.begin() + 16, broadcast.begin() + 20, std::byte{0xff});
  CHECK_FALSE(ip::may_complain_of(broadcast));
  std::fill(broadcast.begin() + 12, broadcast.begin() + 16, std::byte{0});
  CHECK_FALSE(ip::may_complain_of(broadcast));
  auto icmp = udp;
  icmp[9] = std::byte{wire::protocol::kIcmp};
  for (const auto& [type, may] :
       {std::pair{8, true}, {0, true}, {3, false}, {4, false}, {5, false}, {11, false}, {12, false}}) {
    icmp[20] = static_cast<std::byte>(type);
    CHECK(ip::may_complain_of(icmp) == may);
  }
  // Of one that was reassembled the type is in the second piece.
  icmp[20] = std::byte{8};
  CHECK(ip::may_complain_of(Bytes(icmp).first(20), Bytes(icmp).subspan(20)));
  icmp[20] = std::byte{3};
  CHECK_FALSE(ip::may_complain_of(Bytes(icmp).first(20), Bytes(icmp).subspan(20)));
  CHECK_FALSE(ip::may_complain_of(Bytes(icmp).first(20)));
}

TEST_CASE("no ICMPv6 error answers an error, and one to a group only where it says so", "[ip]") {
  const auto udp = hex("c5ea0009000e0000");
  const auto group = *wire::parse_ip("ff02::1:ff00:2");
  CHECK(ip::may_complain_of(packet6(kTheirs6, kOurs6, 17, udp)));
  CHECK_FALSE(ip::may_complain_of(packet6(kTheirs6, group, 17, udp)));
  CHECK(ip::may_complain_of(packet6(kTheirs6, group, 17, udp), {}, true));
  CHECK_FALSE(ip::may_complain_of(packet6({}, kOurs6, 17, udp)));
  CHECK_FALSE(ip::may_complain_of(packet6(group, kOurs6, 17, udp)));
  CHECK(ip::may_complain_of(packet6(kTheirs6, kOurs6, 58, hex("8000000000000000"))));
  CHECK_FALSE(ip::may_complain_of(packet6(kTheirs6, kOurs6, 58, hex("7f00000000000000"))));
  CHECK_FALSE(ip::may_complain_of(packet6(kTheirs6, kOurs6, 58, hex("8900000000000000"))));
  CHECK_FALSE(ip::may_complain_of(packet6(kTheirs6, kOurs6, 60, hex("3a00010400000000 0100000000000000"))));
  CHECK(ip::may_complain_of(packet6(kTheirs6, kOurs6, 44, hex("1100000100000009 c5ea0009000e0000"))));
  CHECK(ip::may_complain_of(packet6(kTheirs6, kOurs6, 44, hex("1100000900000009 c5ea0009000e0000"))));
  CHECK_FALSE(ip::may_complain_of(packet6(kTheirs6, kOurs6, 44, hex("3a00000900000009 c5ea0009000e0000"))));
}

TEST_CASE("errors are sent ten at once, then as fast as the bucket fills", "[ip]") {
  ip::TokenBucket bucket(10, 100);
  for (int i = 0; i < 10; ++i) CHECK(bucket.take(at(0)));
  CHECK_FALSE(bucket.take(at(0)));
  CHECK_FALSE(bucket.take(at(9)));
  CHECK(bucket.take(at(10)));
  CHECK_FALSE(bucket.take(at(19)));
  CHECK(bucket.take(at(20)));
  for (int i = 0; i < 10; ++i) CHECK(bucket.take(at(10'000)));
  CHECK_FALSE(bucket.take(at(10'000)));
}
