// ICMP: echo, and what errors say.
#include "ip/icmp.hpp"

#include <vector>

#include "support/catch.hpp"
#include "wire/icmp.hpp"
#include "wire/ipv4.hpp"

using namespace rnic;
using wire::IpAddress;

namespace {
// An error message that quotes an IP header and 8 octets of a TCP header.
std::vector<std::byte> error_message(std::uint8_t type, std::uint8_t code, std::uint32_t rest,
                                     std::uint16_t quoted_length = 1500) {
  std::vector<std::byte> message(8 + 20 + 8);
  wire::emit(wire::IcmpHeader{.type = type, .code = code, .rest = rest}, message);
  wire::emit(wire::Ipv4Header{.total_length = quoted_length,
                              .protocol = wire::protocol::kTcp,
                              .source = IpAddress::v4(10, 0, 0, 1),
                              .destination = IpAddress::v4(10, 0, 0, 2)},
             MutableBytes(message).subspan(8));
  store_be<std::uint16_t>(message, 28, 50000);
  store_be<std::uint16_t>(message, 30, 4791);
  store_be<std::uint32_t>(message, 32, 0x12345678);
  wire::icmp_set_checksum(message);
  return message;
}
}  // namespace

TEST_CASE("an echo request is answered with its own octets", "[ip]") {
  std::vector<std::byte> request(20, std::byte{7}), reply(20);
  wire::emit(wire::IcmpHeader{.type = wire::icmp_type::kEchoRequest, .code = 0, .rest = 0xAABBCCDD}, request);
  wire::icmp_set_checksum(request);
  REQUIRE(ip::answer_echo(request, reply));
  CHECK(wire::icmp_checksum_is_good(reply));
  CHECK(wire::parse_icmp(reply)->type == wire::icmp_type::kEchoReply);
  CHECK(wire::parse_icmp(reply)->rest == 0xAABBCCDD);
  CHECK(reply[19] == std::byte{7});
}

TEST_CASE("an echo reply is not answered", "[ip]") {
  std::vector<std::byte> message(8), reply(8);
  wire::emit(wire::IcmpHeader{.type = wire::icmp_type::kEchoReply, .code = 0, .rest = 1}, message);
  CHECK_FALSE(ip::answer_echo(message, reply));
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
