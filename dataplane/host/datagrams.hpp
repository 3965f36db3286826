// UDP of a host: one port, in and out. What comes to it goes to its user as it came, whole; what comes to other ports,
// or where there is no user, is answered as by any host that serves none. Nothing here answers anybody.
//
// A datagram is one frame: none is sent in fragments, and one that comes in fragments is dropped.
//
// Owned by one worker.
#pragma once

#include <cstdint>
#include <optional>

#include "base/buffer.hpp"
#include "host/link.hpp"
#include "host/packet.hpp"
#include "ip/station.hpp"

namespace rnic::host {

// One that came, to an address of ours or a group that we listen to.
struct Datagram {
  wire::IpAddress from, to;
  std::uint8_t traffic_class = 0, hop_limit = 0;
  std::uint32_t flow_label = 0;  // of IPv6
  Bytes payload;                 // in `frame`
  BufferRef frame;
};

class DatagramUser {
 public:
  virtual void on_datagram(Datagram&& datagram, Instant now) = 0;

 protected:
  ~DatagramUser() = default;
};

class Datagrams {
 public:
  Datagrams(Link& link, ip::Station& station, std::optional<std::uint8_t> hop_limit, Counters& counters)
      : link_(link), station_(station), hop_limit_(hop_limit), counters_(counters) {}

  // What comes to this port is the user's from now on.
  void serve(std::uint16_t port, DatagramUser& user) {
    port_ = port;
    user_ = &user;
  }

  // ---- in ----
  // Of a packet of UDP. False: it is for nobody here. `frame`: what it is in; null: it was in fragments.
  bool take(const Packet& packet, Bytes udp, BufferRef frame, Instant now);

  // ---- out ----
  struct Way {
    wire::IpAddress from, to;
    std::uint8_t traffic_class = 0;  // ECN's two bits in it are not looked at
    std::uint32_t flow_label = 0;    // of IPv6
    std::uint8_t hop_limit = 0;      // 0: ours
  };
  // Octets of payload that fit one frame now, and one buffer of the port's.
  std::uint32_t payload_max() const;
  // Whether one that goes there would find room.
  bool has_room(const wire::IpAddress& to) const;
  // `datagram` has the payload, and room in front of it for all headers. What has no way is counted, and gone, as is
  // what finds no room.
  void send(BufferRef datagram, const Way& way, Instant now);

 private:
  void loop_copy(const Buffer& frame);

  Link& link_;
  ip::Station& station_;
  std::optional<std::uint8_t> hop_limit_;
  Counters& counters_;
  std::uint16_t port_ = 0;
  DatagramUser* user_ = nullptr;
};

}  // namespace rnic::host
