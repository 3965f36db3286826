// DPDK's virtio and vhost drivers as the two ends of one wire: runs of segments, what each end says of checksums, and
// frames far longer than a buffer.
#include <poll.h>
#include <rte_ethdev.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "kit/catch.hpp"
#include "kit/frames.hpp"
#include "port/dpdk_port.hpp"
#include "port/dpdk_runtime.hpp"
#include "port/open.hpp"
#include "port/run_cutter.hpp"
#include "port/segment_runs.hpp"
#include "wire/checksum.hpp"

namespace rnic::port {
namespace {

using test::Octets;

// Of a payload at MTU 1500, where IPv6 has the room.
constexpr std::uint32_t kUnit = 1428, kTcp4 = 14 + 20, kTcp6 = 14 + 40, kTcpHeader = 32;

std::uint32_t tcp_of(bool v6) { return v6 ? kTcp6 : kTcp4; }

template <typename Ready>
bool soon(Ready&& ready) {
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
       std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(std::chrono::microseconds(200)))
    if (ready()) return true;
  return false;
}

std::unique_ptr<Port> open(const std::string& text) {
  const auto spec = parse_spec(text);
  REQUIRE(spec);
  // DPDK's memory is what its first ports need.
  static PortFactory factory(std::vector<PortSpec>(4, *spec));
  std::string error;
  auto port = factory.open(*spec, {.name = "rnic0", .mac = {}, .buffers = 2048}, error);
  INFO(error);
  REQUIRE(port);
  dpdk_register_thread();
  return port;
}

struct Ends {
  explicit Ends(const std::string& guest_options) {
    char pattern[] = "/tmp/rnic-vhost-XXXXXX";
    REQUIRE(mkdtemp(pattern) != nullptr);
    const std::string directory = pattern, socket = directory + "/s";
    static int count = 0;
    const std::string number = std::to_string(count++);
    virtio_name = "net_virtio_user" + number;
    vhost = open("vdev:net_vhost" + number + ",iface=" + socket + ",tso=1");
    virtio = open("vdev:" + virtio_name + ",path=" + socket + ",queues=1,mac=02:00:00:00:77:02" + guest_options);
    REQUIRE(soon([&] { return vhost->link_up() && virtio->link_up(); }));
    unlink(socket.c_str());
    rmdir(directory.c_str());
  }
  std::string virtio_name;
  std::unique_ptr<Port> vhost, virtio;
};

// They are never closed: DPDK 22.11's thread for interrupts may still be in a virtio device that is.
const Ends& ends_with_runs() {
  static const Ends* const ends = new Ends({});
  return *ends;
}
const Ends& ends_of_a_plain_guest() {
  static const Ends* const ends = new Ends(",mrg_rxbuf=0");
  return *ends;
}

struct Free {
  explicit Free(Port& port) : small(port.pool().available()), large(port.pool().large_available()) {}
  bool operator==(const Free&) const = default;
  std::uint32_t small, large;
};

void send(Port& port, BufferRef frame) {
  Buffer* const raw = frame.release();
  REQUIRE(soon([&] { return port.send_burst(&raw, 1) == 1; }));
}

BufferRef receive(Port& port) {
  Buffer* frame = nullptr;
  REQUIRE(soon([&] { return port.receive_burst(&frame, 1) == 1; }));
  return BufferRef(frame);
}

// A TCP segment in Ethernet, checksums and all; as long as it likes.
Octets segment(bool v6, std::uint32_t payload_bytes) {
  std::array<std::uint8_t, 16> octets{0x20, 0x01, 0x0d, 0xb8};
  const auto from = v6 ? wire::IpAddress::from_octets(octets) : wire::IpAddress::v4(0x0A4D0001);
  octets[15] = 2;
  const auto to = v6 ? wire::IpAddress::from_octets(octets) : wire::IpAddress::v4(0x0A4D0002);
  wire::TcpHeader header;
  header.source_port = 33333;
  header.destination_port = 4420;
  header.sequence = 1000;
  header.acknowledgement = 77;
  header.flags = wire::tcp_flags::kAck | wire::tcp_flags::kPsh;
  header.window = 500;
  header.timestamps = wire::TcpTimestamps{5, 6};
  Octets payload(payload_bytes);
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i * 7 + i / 251);
  return test::frames::packet({.destination = {{2, 0, 0, 0, 0x77, 2}}, .source = {{2, 0, 0, 0, 0x77, 1}}, .type = 0},
                              wire::protocol::kTcp, from, to, test::frames::tcp(header, from, to, payload));
}

BufferRef buffer_of(Port& port, const Octets& frame, std::uint32_t unit_bytes = 0, std::uint32_t headers_bytes = 0) {
  BufferRef buffer = BufferRef::take(port.pool(), static_cast<std::uint32_t>(frame.size()));
  REQUIRE(buffer);
  std::memcpy(buffer->append(static_cast<std::uint32_t>(frame.size())).data(), frame.data(), frame.size());
  buffer->unit_bytes = static_cast<std::uint16_t>(unit_bytes);
  buffer->headers_bytes = static_cast<std::uint16_t>(headers_bytes);
  return buffer;
}
BufferRef run_of(Port& port, bool v6, std::uint32_t payload_bytes) {
  return buffer_of(port, segment(v6, payload_bytes), kUnit, tcp_of(v6) + kTcpHeader);
}

// But for TCP's checksum, of which only the pseudo-header's part was made.
Octets without_sum(Bytes frame, bool v6) {
  Octets octets(frame.begin(), frame.end());
  octets[tcp_of(v6) + 16] = octets[tcp_of(v6) + 17] = std::byte{0};
  return octets;
}

std::uint16_t pseudo_sum(Bytes frame, bool v6) {
  const auto from = v6 ? wire::IpAddress::load_v6(frame, 22) : wire::IpAddress::load_v4(frame, 26);
  const auto to = v6 ? wire::IpAddress::load_v6(frame, 38) : wire::IpAddress::load_v4(frame, 30);
  const auto octets = static_cast<std::uint32_t>(frame.size() - tcp_of(v6));
  return static_cast<std::uint16_t>(~wire::checksum_of(wire::pseudo_header(from, to, wire::protocol::kTcp, octets)));
}

bool sums_are_good(Bytes frame, bool v6) {
  Octets made(frame.begin(), frame.end());
  test::frames::fix_checksums(made);
  return std::equal(frame.begin(), frame.end(), made.begin(), made.end()) && (v6 || is_ip_header_good(frame));
}

// As it is, with nothing asked of the driver.
void send_raw(const Ends& ends, BufferRef frame) {
  std::uint16_t device = 0;
  REQUIRE(rte_eth_dev_get_port_by_name(ends.virtio_name.c_str(), &device) == 0);
  rte_mbuf* mbuf = DpdkPool::lend(frame.release());
  REQUIRE(rte_eth_tx_burst(device, 0, &mbuf, 1) == 1);
}

}  // namespace

TEST_CASE("runs are for drivers that cut, and large buffers with them", "[port][dpdk][vhost]") {
  const Ends& ends = ends_with_runs();
  for (Port* port : {ends.virtio.get(), ends.vhost.get()}) {
    CHECK(port->facts().run_bytes == DpdkPool::kRoomBytesMax);
    CHECK(port->facts().fills_checksums);
    CHECK(port->pool().room_bytes() == DpdkPool::kRoomBytesMax);
    CHECK(port->pool().small_room_bytes() == 2048);
    CHECK(port->pool().large_available() != 0);
  }
  const auto none = open("vdev:net_null0");
  CHECK(none->facts().run_bytes == 0);
  CHECK_FALSE(none->facts().fills_checksums);
  CHECK(none->pool().room_bytes() == none->pool().small_room_bytes());
}

TEST_CASE("small buffers beside runs have headroom to spare, and never count as large", "[port][dpdk]") {
  CHECK(small_room_with_runs(1500) == 2048);
  CHECK(small_room_with_runs(1902) == 2048);
  CHECK(small_room_with_runs(1903) == 2112);
  CHECK(small_room_with_runs(2862) == 3008);
  CHECK(small_room_with_runs(2863) == 0);
  const Buffer largest{.room_bytes = kHeadroom + small_room_with_runs(2862)};
  CHECK_FALSE(is_large(largest));
}

TEST_CASE("a run crosses as one frame, which counts as its segments, and its checksums are good",
          "[port][dpdk][vhost]") {
  const bool v6 = GENERATE(false, true);
  const bool from_guest = GENERATE(false, true);
  const Ends& ends = ends_with_runs();
  Port& from = from_guest ? *ends.virtio : *ends.vhost;
  Port& to = from_guest ? *ends.vhost : *ends.virtio;
  const Free before(to);
  const std::uint64_t lost = from.frames_lost() + to.frames_lost();
  for (const std::uint32_t payload : {5 * kUnit, 45 * kUnit - 300, 64'000u}) {
    const Octets octets = segment(v6, payload);
    send(from, run_of(from, v6, payload));
    const BufferRef received = receive(to);
    CHECK(received->unit_bytes == kUnit);
    CHECK(received->headers_bytes == tcp_of(v6) + kTcpHeader);
    CHECK(received->frames() == (payload + kUnit - 1) / kUnit);
    CHECK(received->checksum_good != 0);
    CHECK(without_sum(received->bytes(), v6) == without_sum(octets, v6));
    // A guest's with the length, as a kernel has it that sends it on. DPDK's vhost makes it without.
    if (from_guest) CHECK(load_be<std::uint16_t>(received->bytes(), tcp_of(v6) + 16) == pseudo_sum(octets, v6));
  }
  CHECK(Free(to) == before);
  CHECK(from.frames_lost() + to.frames_lost() == lost);
}

TEST_CASE("a guest that has not agreed to runs gets their segments, with checksums", "[port][dpdk][vhost]") {
  const bool v6 = GENERATE(false, true);
  const Ends& ends = ends_of_a_plain_guest();
  const Free before(*ends.vhost);
  BufferRef run = run_of(*ends.vhost, v6, 40 * kUnit - 100);
  std::vector<Octets> expected(40);
  const RunCutter cutter(*run);
  for (std::uint32_t i = 0; i < 40; ++i) {
    expected[i].resize(cutter.frame_bytes_max());
    expected[i].resize(cutter.write(i, expected[i]));
  }
  send(*ends.vhost, std::move(run));
  for (const Octets& each : expected) {
    const BufferRef received = receive(*ends.virtio);
    CHECK(received->unit_bytes == 0);
    CHECK(without_sum(received->bytes(), v6) == without_sum(each, v6));
    CHECK((received->checksum_good != 0 || sums_are_good(received->bytes(), v6)));
  }
  CHECK(Free(*ends.vhost) == before);
}

TEST_CASE("what is no run crosses with checksums that the other end need not look at", "[port][dpdk][vhost]") {
  const bool v6 = GENERATE(false, true);
  const bool from_guest = GENERATE(false, true);
  const Ends& ends = ends_with_runs();
  Port& from = from_guest ? *ends.virtio : *ends.vhost;
  Port& to = from_guest ? *ends.vhost : *ends.virtio;
  Octets frame = segment(v6, 1000);
  // As a host sends it whose port fills them.
  frame[tcp_of(v6) + 16] ^= std::byte{0x55};
  if (!v6) frame[24] ^= std::byte{0x55};
  send(from, buffer_of(from, frame));
  const BufferRef received = receive(to);
  CHECK(received->checksum_good != 0);
  CHECK(received->unit_bytes == 0);
  CHECK((v6 || is_ip_header_good(received->bytes())));
}

TEST_CASE("a checksum that nobody has looked at is not good", "[port][dpdk][vhost]") {
  const bool v6 = GENERATE(false, true);
  const Ends& ends = ends_with_runs();
  Octets frame = segment(v6, 1000);
  frame.back() ^= std::byte{1};
  send_raw(ends, buffer_of(*ends.virtio, frame));
  const BufferRef received = receive(*ends.vhost);
  CHECK(received->checksum_good == 0);
  CHECK(Octets(received->bytes().begin(), received->bytes().end()) == frame);
}

TEST_CASE("a long chain is put together in a large buffer, and lost where there is none", "[port][dpdk][vhost]") {
  const Ends& ends = ends_with_runs();
  const Free before(*ends.vhost);
  const Octets frame = segment(false, 60'000);
  for (int i = 0; i < 100; ++i) {  // more than there would be, did one not come back
    send_raw(ends, buffer_of(*ends.virtio, frame));
    const BufferRef received = receive(*ends.vhost);
    REQUIRE(Octets(received->bytes().begin(), received->bytes().end()) == frame);
    REQUIRE(received->unit_bytes == 0);
  }
  CHECK(Free(*ends.vhost) == before);

  std::vector<BufferRef> all;
  while (BufferRef each{ends.vhost->pool().take_large()}) all.push_back(std::move(each));
  const std::uint64_t lost = ends.vhost->frames_lost();
  send_raw(ends, buffer_of(*ends.virtio, frame));
  Buffer* none = nullptr;
  CHECK(soon([&] {
    CHECK(ends.vhost->receive_burst(&none, 1) == 0);
    return ends.vhost->frames_lost() == lost + 1;
  }));
  all.clear();
  CHECK(Free(*ends.vhost) == before);
}

TEST_CASE("a vhost port wakes its worker for a frame, and lets it sleep again", "[port][dpdk][vhost]") {
  const Ends& ends = ends_with_runs();
  const auto readable = [&](int wait_ms) {
    pollfd at{.fd = ends.vhost->wake_descriptor(), .events = POLLIN, .revents = 0};
    return poll(&at, 1, wait_ms) == 1;
  };
  REQUIRE(ends.vhost->wake_descriptor() >= 0);
  // What the guest has rung for so far.
  ends.vhost->arm();
  ends.vhost->disarm();
  for (int i = 0; i < 3; ++i) {
    REQUIRE(ends.vhost->arm());
    CHECK_FALSE(readable(0));
    send(*ends.virtio, buffer_of(*ends.virtio, segment(false, 100)));
    CHECK(readable(2000));
    ends.vhost->disarm();
    receive(*ends.vhost);
  }
}

TEST_CASE("what a driver says of a checksum is taken in its own sense", "[port][dpdk]") {
  Offloads virtio, other;
  virtio.partial_is_good = habits_of("net_virtio").partial_is_good;
  other.partial_is_good = habits_of("net_tap").partial_is_good;
  const bool v6 = GENERATE(false, true);
  Octets frame = segment(v6, 100);
  CHECK(virtio.are_sums_good(RTE_MBUF_F_RX_L4_CKSUM_NONE, frame));
  CHECK_FALSE(other.are_sums_good(RTE_MBUF_F_RX_L4_CKSUM_NONE, frame));
  for (const Offloads& each : {virtio, other}) {
    CHECK(each.are_sums_good(RTE_MBUF_F_RX_L4_CKSUM_GOOD, frame));
    CHECK(each.are_sums_good(RTE_MBUF_F_RX_L4_CKSUM_GOOD | RTE_MBUF_F_RX_IP_CKSUM_GOOD, frame));
    CHECK_FALSE(each.are_sums_good(0, frame));
    CHECK_FALSE(each.are_sums_good(RTE_MBUF_F_RX_IP_CKSUM_GOOD, frame));
    CHECK_FALSE(each.are_sums_good(RTE_MBUF_F_RX_L4_CKSUM_BAD, frame));
    CHECK_FALSE(each.are_sums_good(RTE_MBUF_F_RX_L4_CKSUM_GOOD | RTE_MBUF_F_RX_IP_CKSUM_BAD, frame));
  }
  if (v6) return;
  frame[22] ^= std::byte{1};  // TTL
  for (const std::uint64_t said : {RTE_MBUF_F_RX_L4_CKSUM_NONE, RTE_MBUF_F_RX_L4_CKSUM_GOOD})
    CHECK_FALSE(virtio.are_sums_good(said, frame));
}

TEST_CASE("of drivers that nobody has seen cut, a run is short; DPDK's tap cuts none", "[port][dpdk]") {
  CHECK(habits_of("net_virtio").takes_long_pieces);
  CHECK_FALSE(habits_of("net_ixgbe").takes_long_pieces);
  CHECK(habits_of("net_ixgbe").cuts);
  CHECK_FALSE(habits_of("net_tap").cuts);
  CHECK(kRunPieceBytes + 18 < 1u << 14);
}

}  // namespace rnic::port
