// A run of segments, and the frames that it is on a wire.
#include "port/run_cutter.hpp"

#include <vector>

#include "kit/catch.hpp"
#include "kit/frames.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

wire::IpAddress address(bool v6, std::uint8_t last) {
  if (!v6) return wire::IpAddress::v4(0x0A000000u + last);
  std::array<std::uint8_t, 16> octets{0x20, 0x01, 0x0d, 0xb8};
  octets[15] = last;
  return wire::IpAddress::from_octets(octets);
}

Octets frame_of(bool v6, std::uint32_t sequence, std::uint8_t flags, Bytes payload) {
  wire::TcpHeader header;
  header.source_port = 33333;
  header.destination_port = 4420;
  header.sequence = sequence;
  header.acknowledgement = 77;
  header.flags = flags;
  header.window = 500;
  header.timestamps = wire::TcpTimestamps{5, 6};
  const wire::IpAddress from = address(v6, 1), to = address(v6, 2);
  const Octets tcp = frames::tcp(header, from, to, payload);
  const Octets packet = v6 ? frames::ipv6({.next_header = wire::protocol::kTcp, .source = from, .destination = to}, tcp)
                           : frames::ipv4({.protocol = wire::protocol::kTcp, .source = from, .destination = to}, tcp);
  return frames::ethernet(
      {.destination = {}, .source = {}, .type = v6 ? wire::ether_type::kIpv6 : wire::ether_type::kIpv4}, packet, {});
}

}  // namespace

TEST_CASE("W-TCP-24: a run is cut into the frames that its segments are", "[port][runs][W-TCP-24]") {
  namespace flag = wire::tcp_flags;
  const bool v6 = GENERATE(false, true);
  const std::uint32_t octets = GENERATE(2001u, 3000u, 2999u);
  constexpr std::uint32_t kUnit = 1000, kFirst = 0xFFFFFC00;  // it wraps within
  Octets payload(octets);
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i * 7);

  HeapPool pool(1, 65'600);
  const BufferRef run = BufferRef::take(pool);
  const Octets whole = frame_of(v6, kFirst, flag::kAck | flag::kPsh | flag::kCwr, payload);
  std::memcpy(run->append(static_cast<std::uint32_t>(whole.size())).data(), whole.data(), whole.size());
  run->unit_bytes = kUnit;
  run->headers_bytes = static_cast<std::uint16_t>(whole.size() - octets);

  const port::RunCutter cutter(*run);
  REQUIRE(cutter.count() == 3);
  Octets room(cutter.frame_bytes_max());
  for (std::uint32_t i = 0; i < 3; ++i) {
    const Bytes part = Bytes(payload).subspan(i * kUnit).first(std::min(kUnit, octets - i * kUnit));
    const std::uint8_t flags = flag::kAck | (i == 0 ? flag::kCwr : 0) | (i == 2 ? flag::kPsh : 0);
    const std::uint32_t size = cutter.write(i, room);
    CHECK(Octets(room.begin(), room.begin() + size) == frame_of(v6, kFirst + i * kUnit, flags, part));
  }
  CHECK(Octets(run->bytes().begin(), run->bytes().end()) == whole);
}
