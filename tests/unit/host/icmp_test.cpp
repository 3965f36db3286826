// ICMP of a host: what is answered, what is complained of, and how often.
#include "host/icmp.hpp"

#include "kit/catch.hpp"
#include "unit/host/host_parts.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

struct Heard {
  Heard(std::uint8_t protocol, const Octets& payload, const wire::IpAddress& from = kPeer,
        const wire::IpAddress& to = kOurs)
      : octets(frames::ipv4({.protocol = protocol, .source = from, .destination = to}, payload)),
        packet{.from = from, .to = to, .whole = octets} {}
  Bytes payload() const { return packet.whole.subspan(wire::Ipv4Header::kSize); }

  Octets octets;
  host::Packet packet;
};

Octets echo(std::size_t octets) {
  return frames::icmp({.type = wire::icmp_type::kEchoRequest, .rest = 0x12340007}, pattern(octets));
}

}  // namespace

TEST_CASE("an echo comes back as it was, from the address that was asked", "[host]") {
  HostParts host;
  const Heard ping(wire::protocol::kIcmp, echo(56));
  CHECK_FALSE(host.icmp.on_upper(ping.packet, wire::protocol::kIcmp, ping.payload(), 0, kNow));
  const auto sent = host.take_sent();
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].ip.header.source == kOurs);
  CHECK(sent[0].ip.header.destination == kPeer);
  const auto reply = wire::parse_icmp(sent[0].payload());
  CHECK(reply->type == wire::icmp_type::kEchoReply);
  CHECK(reply->rest == 0x12340007);
  CHECK(wire::icmp_checksum_is_good(sent[0].payload()));
  CHECK(copy_of(sent[0].payload().subspan(wire::IcmpHeader::kSize)) == pattern(56));
}

TEST_CASE("an echo that is damaged, or longer than a packet, has no answer", "[host]") {
  HostParts host;
  auto damaged = echo(56);
  damaged.back() ^= std::byte{1};
  const Heard ping(wire::protocol::kIcmp, damaged);
  CHECK_FALSE(host.icmp.on_upper(ping.packet, wire::protocol::kIcmp, ping.payload(), 0, kNow));
  CHECK(host.counters.bad_checksums == 1);
  const Heard most(wire::protocol::kIcmp, echo(1500 - 20 - 8)), more(wire::protocol::kIcmp, echo(1500 - 20 - 8 + 1));
  (void)host.icmp.on_upper(more.packet, wire::protocol::kIcmp, more.payload(), 0, kNow);
  CHECK(host.take_sent().empty());
  (void)host.icmp.on_upper(most.packet, wire::protocol::kIcmp, most.payload(), 0, kNow);
  CHECK(host.take_sent().size() == 1);
}

TEST_CASE("UDP has no port here, and other protocols are unknown: the sender is told, with what it sent", "[host]") {
  HostParts host;
  const Heard datagram(wire::protocol::kUdp, pattern(8));
  CHECK_FALSE(host.icmp.on_upper(datagram.packet, wire::protocol::kUdp, datagram.payload(), 0, kNow));
  const Heard other(99, pattern(8));
  CHECK_FALSE(host.icmp.on_upper(other.packet, 99, other.payload(), 0, kNow));
  const auto sent = host.take_sent();
  REQUIRE(sent.size() == 2);
  const auto port = wire::parse_icmp(sent[0].payload()), protocol = wire::parse_icmp(sent[1].payload());
  CHECK(port->type == wire::icmp_type::kUnreachable);
  CHECK(port->code == wire::icmp_code::kPortUnreachable);
  CHECK(protocol->code == wire::icmp_code::kProtocolUnreachable);
  CHECK(copy_of(sent[0].payload().subspan(wire::IcmpHeader::kSize)) == datagram.octets);
  CHECK(host.counters.icmp_errors_out == 2);
}

TEST_CASE("nobody is complained to of what went to many, or came from nobody's address", "[host]") {
  HostParts host;
  Heard to_all(wire::protocol::kUdp, pattern(8));
  to_all.packet.to_all = true;
  const Heard from_broadcast(wire::protocol::kUdp, pattern(8), wire::IpAddress::v4(10, 0, 0, 255));
  for (const host::Packet& packet : {to_all.packet, from_broadcast.packet})
    host.icmp.complain({.kind = ip::Complaint::port_unreachable}, packet, kNow);
  CHECK(host.take_sent().empty());
  CHECK(host.counters.icmp_errors_out == 0);
}

TEST_CASE("complaints are ten at once, and a hundred a second", "[host]") {
  HostParts host;
  const Heard datagram(wire::protocol::kUdp, pattern(8));
  const auto complain = [&](Instant now) {
    host.begin_turn(now);
    for (int i = 0; i < 20; ++i)
      (void)host.icmp.on_upper(datagram.packet, wire::protocol::kUdp, datagram.payload(), 0, now);
    return host.take_sent(now).size();
  };
  CHECK(complain(kNow) == 10);
  CHECK(complain(kNow + milliseconds(9)) == 0);
  CHECK(complain(kNow + milliseconds(10)) == 1);
}

TEST_CASE("an error about a segment goes back to who asks whose it was", "[host]") {
  HostParts host;
  const auto quoted = frames::quote({.total_length = 1500, .source = kOurs, .destination = kPeer},
                                    {.source_port = 1000, .destination_port = 7000, .sequence = 5});
  const Heard heard(wire::protocol::kIcmp, frames::icmp({.type = wire::icmp_type::kUnreachable, .code = 1}, quoted));
  const auto error = host.icmp.on_upper(heard.packet, wire::protocol::kIcmp, heard.payload(), 0, kNow);
  REQUIRE(error);
  CHECK(error->kind == ip::IcmpError::Kind::unreachable);
  CHECK(error->local == kOurs);
  CHECK(error->remote_port == 7000);
  CHECK(error->sequence == 5);
  CHECK(host.take_sent().empty());
}
