#include "fuzz/bench.hpp"

#include <cstdio>

#include "kit/frames.hpp"
#include "wire/mpa.hpp"

namespace rnic::fuzz {

namespace flag = wire::tcp_flags;
namespace frames = test::frames;

Octets packet_of(std::uint8_t protocol, Bytes payload) {
  return frames::packet({.destination = kOurMac, .source = kTheirMac}, protocol, kTheirs, kOurs, payload);
}

// What came waits in `in`; what is sent is looked at once.
class Bench::Wire final : public port::Port {
 public:
  explicit Wire(Bench& bench) : bench_(bench) {
    facts_.kind = facts_.name = "fuzz";
    facts_.mac = kOurMac;
    facts_.mtu_bytes = bench.options.mtu_bytes;
  }
  const port::PortFacts& facts() const override { return facts_; }
  bool link_up() const override { return bench_.link_up; }
  BufferPool& pool() override { return bench_.pool; }
  unsigned receive_burst(Buffer** out, unsigned max) override {
    unsigned count = 0;
    while (count < max && !in.empty()) {
      const Octets& frame = in.front();
      Buffer* buffer = nullptr;
      if (frame.size() <= facts_.mtu_bytes + 64 && bench_.pool.take(&buffer, 1) == 1) {
        std::copy(frame.begin(), frame.end(), buffer->append(static_cast<std::uint32_t>(frame.size())).begin());
        GuardedPool::hide_tail(*buffer);
        out[count++] = buffer;
      }
      in.pop_front();
    }
    return count;
  }
  unsigned send_burst(Buffer* const* frames, unsigned count) override {
    if (!bench_.link_up) return 0;
    const unsigned taken = std::min(count, bench_.accept_max);
    for (unsigned i = 0; i < taken; ++i) {
      out.emplace_back(frames[i]->bytes().begin(), frames[i]->bytes().end());
      BufferRef{frames[i]}.reset();
    }
    return taken;
  }
  int wake_descriptor() override { return -1; }
  bool arm() override { return true; }
  void disarm() override {}

  std::deque<Octets> in, out;

 private:
  Bench& bench_;
  port::PortFacts facts_;
};

namespace {
core::DeviceOptions device_options(const Bench::Options& options) {
  core::DeviceOptions device;
  device.name = "fuzz";
  device.addresses = {{kOurs, 24}};
  device.routes = {{.prefix = wire::IpAddress::v4(0, 0, 0, 0), .gateway = wire::IpAddress::v4(10, 0, 0, 1)}};
  device.tcp = options.tcp;
  device.tcp.send_segments_max = device.tcp.receive_segments_max = 64;
  device.tcp.out_of_order_segments_max = 32;
  device.tcp.receive_window_bytes = 64 * 1024;
  device.streams_max = 16;
  device.crc_required = options.crc_required;
  device.peer_to_peer = options.peer_to_peer;
  device.mpa_revision = options.mpa_revision;
  device.markers = options.markers ? mpa::MarkerUse::both : mpa::MarkerUse::send;
  device.seed = 5;
  return device;
}
}  // namespace

Bench::Bench(const Options& given)
    : pool(given.buffers, given.mtu_bytes + 64),
      mover(given.late_mover ? test::Moves::late : test::Moves::direct, 3),
      options(given) {
  port_ = std::make_unique<Wire>(*this);
  device = std::make_unique<core::Device>(device_options(options), *port_, *this);
  for (unsigned i = 0; i < peers_.size(); ++i) {
    peers_[i].port = static_cast<std::uint16_t>(3000 + i);
    peers_[i].initial = 0xFFFFFF00u + i;
  }
  (void)device->listen({}, kListener, 4, 77);
  turns();
}

Bench::~Bench() {
  for (auto& endpoint : endpoints)
    if (endpoint->qp != nullptr) device->release(*endpoint->qp, clock.now);
}

void Bench::turn() {
  device->receive(clock.now);
  mover.flush();
  device->settle(clock.now);
  device->transmit(clock.now);
  mover.flush();
  device->settle(clock.now);
  if (device->next_deadline() <= clock.now) device->run_timers(clock.now);
  device->send(clock.now);
}

void Bench::turns() {
  for (unsigned n = 0;; ++n) {
    turn();
    bool more = !port_->in.empty() || !port_->out.empty();
    while (!port_->out.empty()) {
      const Octets frame = std::move(port_->out.front());
      port_->out.pop_front();
      on_frame(frame);
    }
    more |= !device->idle() || !mover.idle();
    clock.now = clock.now + microseconds(2);
    // A port that takes nothing, or a full completion queue, may leave a device with work for ever.
    if (!more || n == 500) break;
  }
  memory.check();
}

void Bench::pass(Duration time) {
  const Instant end = clock.now + time;
  unsigned steps = 0;
  while (clock.now < end) {
    const Instant next = std::min(device->next_deadline(), end);
    clock.now = std::max(next, clock.now + microseconds(1));
    turns();
    FUZZ_CHECK(++steps < 20'000);  // a deadline that is never dealt with
  }
}

// ---- what the device says ----

void Bench::on_frame(Bytes frame) {
  const auto link = wire::parse_ethernet(frame);
  FUZZ_CHECK(link.has_value());
  FUZZ_CHECK(link->source == kOurMac);
  FUZZ_CHECK(frame.size() <= 14 + options.mtu_bytes);
  const Bytes packet = frame.subspan(14);
  if (link->type == wire::ether_type::kArp) {
    const auto arp = wire::parse_arp(packet);
    FUZZ_CHECK(arp.has_value());
    FUZZ_CHECK(arp->sender_mac == kOurMac);
    if (arp->operation != wire::ArpPacket::kRequest || arp->target_ip == kOurs || silent_in_arp) return;
    port_->in.push_back(
        frames::arp({.destination = kOurMac, .source = kTheirMac}, {.operation = wire::ArpPacket::kReply,
                                                                    .sender_mac = kTheirMac,
                                                                    .sender_ip = arp->target_ip,
                                                                    .target_mac = kOurMac,
                                                                    .target_ip = kOurs}));
    return;
  }
  if (link->type != wire::ether_type::kIpv4) return;
  const auto ip = wire::parse_ipv4(packet);
  FUZZ_CHECK(ip.has_value());
  FUZZ_CHECK(wire::ipv4_checksum_is_good(packet, *ip));
  FUZZ_CHECK(ip->header.source == kOurs);
  const Bytes payload = packet.subspan(ip->header_size, ip->payload_size());
  if (ip->header.protocol == wire::protocol::kIcmp) FUZZ_CHECK(wire::icmp_checksum_is_good(payload));
  if (ip->header.protocol != wire::protocol::kTcp) return;
  FUZZ_CHECK(wire::transport_checksum(ip->header.source, ip->header.destination, wire::protocol::kTcp, payload) == 0);
  on_segment(payload);
}

void Bench::on_segment(Bytes segment) {
  const auto tcp = wire::parse_tcp(segment);
  FUZZ_CHECK(tcp.has_value());
  const wire::TcpHeader& header = tcp->header;
  for (Peer& peer : peers_) {
    if (peer.port != header.destination_port) continue;
    if (header.has(flag::kRst) || lossy) return;
    if (header.has(flag::kSyn)) {
      peer.device_initial = header.sequence;
      peer.device_port = header.source_port;
      peer.expects = header.sequence + 1;
      peer.connected = true;
      peer.dialled = !header.has(flag::kAck);
      if (peer.dialled) peer.stream.clear();
      return;
    }
    if (!peer.connected || header.source_port != peer.device_port) return;
    const auto end = header.sequence + static_cast<std::uint32_t>(segment.size() - tcp->data_offset) +
                     (header.has(flag::kFin) ? 1 : 0);
    if (!tcp::Seq{header.sequence}.after({peer.expects}) && tcp::Seq{end}.after({peer.expects})) peer.expects = end;
  }
}

// ---- what it hears ----

void Bench::hears(Bytes frame) {
  port_->in.emplace_back(frame.begin(), frame.end());
  turns();
}

void Bench::hears(const Peer& peer, wire::TcpHeader header, Bytes payload) {
  header.source_port = peer.port;
  header.destination_port = peer.device_port;
  if (wire::header_size(header) > wire::TcpHeader::kSizeMax) header.sack_count = 0;
  hears(packet_of(wire::protocol::kTcp, frames::tcp(header, kTheirs, kOurs, payload)));
}

bool Bench::connect(Peer& peer) {
  wire::TcpHeader header;
  header.flags = flag::kSyn;
  header.sequence = peer.initial;
  header.window = 65535;
  header.mss = 1460;
  header.sack_permitted = true;
  header.window_scale = 4;
  hears(peer, header);
  if (!peer.connected) return false;
  wire::TcpHeader third;
  third.flags = flag::kAck;
  third.sequence = peer.initial + 1;
  third.acknowledgement = peer.expects;
  third.window = 65535;
  hears(peer, third);
  peer.stream = test::hex("4d504120494420526571204672616d65500200048010c020");
  peer.packer = std::make_unique<mpa::Packer>(mpa::Crc::on, mpa::Markers::none);
  hears(peer, third, peer.stream);
  return true;
}

// ---- the application ----

sim::Endpoint* Bench::make_qp() {
  if (endpoints.size() >= 12) return nullptr;
  auto& endpoint = *endpoints.emplace_back(std::make_unique<sim::Endpoint>());
  qp::Config config;
  config.number = {next_number_++};
  config.pd = config.receive_pd = kPd;
  config.access = tpt::Rights::remote_read | tpt::Rights::remote_write | tpt::Rights::remote_atomic;
  config.ird = config.ord = 4;
  config.send_depth = 16;
  config.extensions = options.extensions;
  config.hold_without_receive = options.hold;
  config.held_bytes_max = 4096;
  endpoint.qp =
      std::make_unique<qp::QueuePair>(config, endpoint.host, table, mover, device->data_pool(), device->scratch());
  return &endpoint;
}

void Bench::destroy(sim::Endpoint& endpoint) {
  if (endpoint.qp == nullptr) return;
  device->release(*endpoint.qp, clock.now);
  endpoint.qp.reset();
}

void Bench::on_stream_event(const core::StreamEvent& event) {
  if (event.kind != core::StreamEvent::Kind::connect_request) return;
  if (answer == Answer::wait) {
    waiting.push_back(event.stream);
    return;
  }
  sim::Endpoint* endpoint = answer == Answer::accept ? make_qp() : nullptr;
  if (endpoint == nullptr) {
    (void)device->reject(event.stream, {}, clock.now);
    return;
  }
  endpoint->stream = event.stream;
  if (!device->accept(event.stream, {.ird = 4, .ord = 4, .private_data = {}, .cookie = 5}, *endpoint->qp, clock.now))
    destroy(*endpoint);
}

void Bench::finish() {
  link_up = true;
  accept_max = 1000;
  for (auto& endpoint : endpoints) destroy(*endpoint);
  device->unlisten({}, kListener, clock.now);
  // One that asked stays, dead or alive, until it has its answer.
  for (const core::StreamId stream : waiting) (void)device->reject(stream, {}, clock.now);
  turns();
  pass(seconds(3));
  for (const core::StreamInfo& stream : device->streams()) {
    if (!device->kill(stream.stream, clock.now)) device->disconnect(stream.stream, core::Disconnect::abrupt, clock.now);
  }
  pass(seconds(300));
  for (const core::StreamInfo& stream : device->streams())
    std::fprintf(stderr, "a stream that never ends: %s, %s, from port %u to %u\n", stream.phase, stream.tcp_state,
                 stream.local_port, stream.remote_port);
  FUZZ_CHECK(device->stream_count() == 0);
  FUZZ_CHECK(device->half_open_count() == 0);
  FUZZ_CHECK(pool.available() + 32 >= pool.count());  // a device keeps some at hand
  device.reset();
  FUZZ_CHECK(pool.available() == pool.count());
  memory.check();
}

}  // namespace rnic::fuzz
