// A TCP/IP host: one port, its addresses, and the TCP connections that begin and end here. What runs on a connection is
// its user's: a host knows no RDMA.
//
// A turn of its user's, in this order:
//
//   receive()                       frames -> IP -> TCP
//   for each of active()            read, consume, append; take_orphan_input() of one that is an orphan; end_of_burst()
//   begin_send()                    ARP, neighbour discovery; frames that waited
//   for each of active()            send_segments(); then finish() ends it, or rest() until it is due
//   flush()
//
// and run_timers() when next_deadline() is there. A stream is active because something came for it, because it is due,
// or because its user calls activate().
//
// Pure but for the port. Owned by one worker, but for the count of served ports (host/served_ports.hpp).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "host/buffer_shares.hpp"
#include "host/counters.hpp"
#include "host/datagrams.hpp"
#include "host/doors.hpp"
#include "host/fragments.hpp"
#include "host/icmp.hpp"
#include "host/link.hpp"
#include "host/packets_in.hpp"
#include "host/packets_out.hpp"
#include "host/served_ports.hpp"
#include "host/stream_error.hpp"
#include "host/stream_user.hpp"
#include "host/streams.hpp"
#include "ip/station.hpp"

namespace rnic::host {

struct Options {
  std::vector<ip::StationAddress> addresses{};
  std::vector<ip::Route> routes{};          // static ones; of no bits: a default route
  std::optional<std::uint16_t> vlan{};      // 802.1Q: all frames, in and out; none: untagged
  bool link_local = false;                  // has one of IPv6, made up where none is among `addresses`
  bool accept_advertisements = false;       // believes routers
  std::optional<std::uint8_t> hop_limit{};  // TTL of what we send; none: 64, or what a router advertises
  bool probe = false;                       // asks whether an address is taken before using it
  bool opaque_addresses = false;            // those made up do not show the MAC
  tcp::Options tcp{};
  std::uint32_t streams_max = 16384;
  Duration orphan_timeout = seconds(30);
  std::uint64_t seed = 0;                       // initial sequence numbers, ports
  Shard shard{};                                // all but the first have their addresses by adopt()
  std::shared_ptr<ServedPorts> served_ports{};  // of all shards; null: its own
};

struct Call {
  wire::IpAddress local, remote;  // local unspecified: the one that routes say
  std::uint16_t local_port = 0;   // 0: an ephemeral one
  std::uint16_t remote_port = 0;
  std::uint8_t traffic_class = 0;  // DSCP, where IP has it; ECN's two bits in it are not looked at
};

class Host {
 public:
  Host(const Options& options, port::Port& port, StreamUser& user);
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // ---- listeners and calls ----
  // `address` unspecified: every address, with 0.0.0.0 those of IPv4, with :: and `v6_only` those of IPv6.
  std::optional<StreamError> listen(const wire::IpAddress& address, std::uint16_t port, std::uint32_t backlog,
                                    std::uint64_t cookie, bool v6_only);
  void unlisten(const wire::IpAddress& address, std::uint16_t port, Instant now) {
    doors_.unlisten(address, port, now);
  }
  Result<Stream*, StreamError> call(const Call& call, Instant now);
  // The same once more, from another port; the new stream has the id of the one before, and that the new one's. Null:
  // there is no port or no room.
  Stream* call_again(Stream& before, std::uint8_t traffic_class, Instant now);
  // A listener's stream has asked: it is admitted to the backlog, at once or in line.
  void asked(Stream& stream, Instant now) { doors_.asked(stream, now); }
  // And has its answer.
  void leave_listener(Stream& stream) { doors_.leave(stream); }
  void set_traffic_class(Stream& stream, std::uint8_t traffic_class);

  // ---- the turn ----
  bool receive(Instant now);
  void begin_send(Instant now);
  bool send_segments(Stream& stream, Instant now, unsigned& budget) { return out_.send_segments(stream, now, budget); }
  void flush(Instant now) { link_.flush(now); }
  bool run_timers(Instant now);
  Instant next_deadline() const;
  bool idle() const { return streams_.active().empty() && link_.idle() && !doors_.has_room_for_queued(); }

  // ---- streams ----
  Stream* find(StreamId id) { return streams_.find(id); }
  Stream* find(const Flow& flow) { return streams_.find_stream(flow); }
  template <typename Do>
  void for_each(Do&& each) const {
    streams_.for_each(each);
  }
  std::size_t stream_count() const { return streams_.count(); }
  std::size_t half_open_count() const { return streams_.half_opens().used(); }
  List<Stream, ActiveTag>& active() { return streams_.active(); }
  void activate(Stream& stream) { streams_.activate(stream); }
  bool needs_turn(const Stream& stream, Instant now) const {
    return stream.more_segments || stream.tcp.next_deadline() <= now;
  }
  // It has nothing to do before `due`, or a deadline of its own.
  void rest(Stream& stream, Instant due) {
    streams_.rest(stream, std::min({due, stream.deadline, stream.tcp.next_deadline()}));
  }
  // Its user serves it from now on, until it is an orphan.
  void begin_serving(Stream& stream) { streams_.begin_serving(stream); }
  // It has a user from now on, who consumes: what comes out of order is kept in full.
  void keep_beyond(Stream& stream) { stream.tcp.limit_beyond(streams_.tcp_options().out_of_order_segments_max); }
  // Nobody uses it any more. Our FIN follows, at once or when all before it is acknowledged.
  enum class Fin : std::uint8_t { at_once, when_acknowledged };
  void orphan(Stream& stream, Fin fin, Instant now);
  void take_orphan_input(Stream& stream, Instant now);
  // Of an orphan: true: it is no more.
  bool finish(Stream& stream, Instant now);

  // ---- datagrams ----
  Datagrams& datagrams() { return datagrams_; }
  // A group of IP's. False: there are too many.
  bool join(const wire::IpAddress& group, Instant now) { return station_.join(group, now); }
  void leave(const wire::IpAddress& group) { station_.leave(group); }

  // ---- what it is ----
  port::Port& port() const { return link_.port(); }
  bool link_is_up() const { return link_.is_up(); }
  const ip::Station& station() const { return station_; }
  DataPool& data_pool() { return buffers_.pool(); }
  const DataPool& data_pool() const { return buffers_.pool(); }
  const Counters& counters() const { return counters_; }
  void count_direct_in(std::uint32_t octets) { counters_.direct_bytes_in += octets; }
  void count_direct_out(std::uint32_t octets) { counters_.direct_bytes_out += octets; }
  // For a stream's first octets, and the like.
  BufferRef take_control() { return link_.take_control(); }
  void set_link_mtu(std::uint32_t mtu_bytes);
  // Of the first shard, for the others.
  ip::Network network() const { return station_.network(); }
  void adopt(const ip::Network& network) { station_.adopt(network); }
  // Who sees every frame.
  void add_tap(port::Tap& tap) { link_.add_tap(tap); }
  void remove_tap(port::Tap& tap) { link_.remove_tap(tap); }
  bool is_tapped() const { return link_.is_tapped(); }

 private:
  void begin_call(Stream& stream, std::uint8_t traffic_class, std::optional<tcp::Seq> before, Instant now);
  std::optional<std::uint16_t> ephemeral_port(const Flow& flow, Instant now) {
    return streams_.ephemeral_port(flow, now, [&](std::uint16_t port) { return doors_.is_listening_at(port); });
  }
  void discard_input(Stream& stream, Instant now);
  void serve_station(Instant now);
  void give_up_calls_by(const wire::IpAddress& hop, Instant now);
  void on_network_change(Instant now);

  Duration orphan_timeout_;
  StreamUser& user_;
  Counters counters_;
  ip::Station station_;
  Link link_;
  PacketsOut out_;
  Icmp icmp_;
  Fragments fragments_;  // before the streams: one may hold a packet that was made of fragments
  Streams streams_;
  BufferShares buffers_;
  Doors doors_;
  Datagrams datagrams_;
  PacketsIn in_;
  std::uint64_t network_version_ = 0;
  Instant link_looked_at_ = kNever;
};

}  // namespace rnic::host
