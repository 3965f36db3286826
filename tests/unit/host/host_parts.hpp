// The parts of a host, joined as host/host.cpp joins them, over a port that keeps what is sent and under a user that
// notes what it is told: for tests of one part by itself.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "host/buffer_shares.hpp"
#include "host/counters.hpp"
#include "host/datagrams.hpp"
#include "host/doors.hpp"
#include "host/fragments.hpp"
#include "host/icmp.hpp"
#include "host/link.hpp"
#include "host/packets_in.hpp"
#include "host/packets_out.hpp"
#include "host/stream_user.hpp"
#include "host/streams.hpp"
#include "ip/station.hpp"
#include "kit/frames.hpp"

namespace rnic::test {

inline constexpr wire::Mac kOurMac{{2, 0, 0, 0, 0, 1}}, kPeerMac{{2, 0, 0, 0, 0, 2}};
inline constexpr auto kOurs = wire::IpAddress::v4(10, 0, 0, 1), kPeer = wire::IpAddress::v4(10, 0, 0, 2);
inline constexpr Instant kNow{seconds(1000).ns};

class KeepingPort final : public port::Port {
 public:
  KeepingPort() {
    facts_.mac = kOurMac;
    facts_.mtu_bytes = 1500;
  }
  const port::PortFacts& facts() const override { return facts_; }
  bool link_up() const override { return true; }
  bool fills_checksums() const override { return fills; }
  BufferPool& pool() override { return pool_; }
  unsigned receive_burst(Buffer**, unsigned) override {
    ++looks;
    moved = std::min(to_move, 64u);
    to_move -= moved;
    return 0;
  }
  unsigned take_moved_for_others() override { return std::exchange(moved, 0); }
  unsigned send_burst(Buffer* const* frames, unsigned count) override {
    if (full) return 0;
    for (unsigned i = 0; i < count; ++i) {
      const BufferRef frame{frames[i]};
      sent.push_back(copy_of(frame->bytes()));
    }
    return count;
  }
  int wake_descriptor() override { return -1; }
  bool arm() override { return true; }
  void disarm() override {}

  std::vector<Octets> sent;
  bool fills = false, full = false;
  unsigned to_move = 0, moved = 0, looks = 0;  // frames that are other workers'

 private:
  port::PortFacts facts_;
  HeapPool pool_{4096, 2048};
};

class NotingUser final : public host::StreamUser {
 public:
  std::unique_ptr<host::Stream> make_stream(const tcp::Options& options, const host::Flow& flow) override {
    return std::make_unique<host::Stream>(options, flow);
  }
  void on_admitted(host::Stream& stream) override { admitted.push_back(stream.id()); }
  void on_lost(host::Stream& stream, Loss loss, Instant) override {
    (loss == Loss::place ? lost_place : lost_listener).push_back(stream.id());
    if (loss == Loss::place && on_lost_place) on_lost_place(stream);
  }
  void on_unreachable(host::Stream& stream, Instant) override { unreachable.push_back(stream.id()); }
  void on_must_end(host::Stream&, Instant) override {}
  void on_deadline(host::Stream&, Instant) override {}
  void on_network_change() override {}
  void on_ended_for_buffers(std::uint32_t) override {}
  BufferCount held_by(const host::Stream& stream) const override { return stream.tcp.queued(); }

  std::vector<host::StreamId> admitted, lost_place, lost_listener, unreachable;
  std::function<void(host::Stream&)> on_lost_place;
};

struct HostParts {
  explicit HostParts(std::uint32_t streams_max = 1024, std::optional<std::uint8_t> hop_limit = std::nullopt)
      : station({.mac = kOurMac, .addresses = {{kOurs, 24}}}),
        link(port, std::nullopt, 512 * 1024, counters),
        out(link, station, hop_limit, counters),
        streams({}, streams_max, {}, {}, 1, link, station, user),
        buffers(port.pool(), streams, user, counters),
        doors(streams, station.routes(), out, user, counters),
        icmp(link, station, out, counters),
        fragments(1500, icmp, counters),
        datagrams(link, station, hop_limit, counters),
        in(link, station, streams, doors, buffers, icmp, fragments, datagrams, user, counters) {
    station.set_link(true, kNow);
    station.neighbours().heard_from(kPeer, kPeerMac, ip::Neighbours::Meant::for_us);
    begin_turn();
  }

  void begin_turn(Instant now = kNow) {
    out.begin_turn();
    buffers.begin_turn(now);
  }
  // From the port, or from ourselves. `verified`: the port has looked at its checksums.
  void hears(const Octets& frame, host::PacketsIn::Source source = host::PacketsIn::Source::port, bool verified = false,
             Instant now = kNow) {
    BufferRef buffer = BufferRef::take(port.pool(), static_cast<std::uint32_t>(frame.size()));
    std::copy(frame.begin(), frame.end(), buffer->append(static_cast<std::uint32_t>(frame.size())).begin());
    if (verified) buffer->checksum_good = 1;
    Buffer* const one = buffer.release();
    in.take({&one, 1}, source, now);
  }
  void hears_tcp(const wire::TcpHeader& header, const wire::IpAddress& from = kPeer, Bytes payload = {}) {
    hears(segment(header, from, payload));
  }
  static Octets segment(const wire::TcpHeader& header, const wire::IpAddress& from = kPeer, Bytes payload = {},
                        const wire::IpAddress& to = kOurs) {
    return frames::packet({.destination = kOurMac, .source = kPeerMac}, wire::protocol::kTcp, from, to,
                          frames::tcp(header, from, to, payload));
  }

  // What has been sent since this was last asked.
  struct Sent {
    wire::EthernetHeader link;
    wire::ParsedIpv4 ip;
    Octets packet;  // from the IP header on
    Bytes payload() const { return Bytes(packet).subspan(ip.header_size, ip.payload_size()); }
    wire::TcpHeader tcp() const { return wire::parse_tcp(payload())->header; }
  };
  std::vector<Sent> take_sent(Instant now = kNow) {
    link.flush(now);
    std::vector<Sent> sent;
    for (const Octets& frame : std::exchange(port.sent, {})) {
      const auto ethernet = wire::parse_ethernet(frame);
      const Bytes packet = Bytes(frame).subspan(wire::EthernetHeader::kSize);
      if (const auto ip = wire::parse_ipv4(packet); ip && ethernet->type == wire::ether_type::kIpv4)
        sent.push_back({*ethernet, *ip, copy_of(packet)});
    }
    return sent;
  }

  // A call of ours whose SYN is on its way; and one whose handshake is over.
  host::Stream& call(std::uint16_t local_port = 1000, const wire::IpAddress& to = kPeer) {
    host::Stream& stream = *streams.make({kOurs, to, local_port, 7000});
    stream.initiator = true;
    stream.tcp.open_active({5000}, 0);
    unsigned budget = 1;
    out.send_segments(stream, kNow, budget);
    return stream;
  }
  host::Stream& connected(std::uint16_t local_port = 1000) {
    host::Stream& stream = call(local_port);
    hears_tcp(syn_ack(local_port));
    stream.stage = host::Stream::Stage::open;
    unsigned budget = 1;
    out.send_segments(stream, kNow, budget);
    (void)take_sent();
    return stream;
  }
  static wire::TcpHeader syn_ack(std::uint16_t local_port = 1000) {
    return {.source_port = 7000,
            .destination_port = local_port,
            .sequence = 900,
            .acknowledgement = 5001,
            .flags = wire::tcp_flags::kSyn | wire::tcp_flags::kAck,
            .window = 65535,
            .mss = 1460};
  }

  host::Counters counters;
  KeepingPort port;
  NotingUser user;
  ip::Station station;
  host::Link link;
  host::PacketsOut out;
  host::Streams streams;
  host::BufferShares buffers;
  host::Doors doors;
  host::Icmp icmp;
  host::Fragments fragments;
  host::Datagrams datagrams;
  host::PacketsIn in;
};

}  // namespace rnic::test
