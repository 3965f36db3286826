// Packets in: from a batch of frames to the connections that they are for.
//
// Owned by one worker.
#pragma once

#include <optional>

#include "host/buffer_shares.hpp"
#include "host/datagrams.hpp"
#include "host/doors.hpp"
#include "host/fragments.hpp"
#include "host/icmp.hpp"
#include "host/input_run.hpp"
#include "host/link.hpp"
#include "host/streams.hpp"
#include "ip/station.hpp"

namespace rnic::host {

class PacketsIn {
 public:
  PacketsIn(Link& link, ip::Station& station, Streams& streams, Doors& doors, BufferShares& buffers, Icmp& icmp,
            Fragments& fragments, Datagrams& datagrams, StreamUser& user, Counters& counters)
      : link_(link),
        station_(station),
        routes_(station.routes()),
        streams_(streams),
        doors_(doors),
        buffers_(buffers),
        icmp_(icmp),
        fragments_(fragments),
        datagrams_(datagrams),
        user_(user),
        counters_(counters) {}

  enum class Source : std::uint8_t { port, ourselves };
  // Takes over the references.
  void take(Link::Batch batch, Source source, Instant now);

 private:
  // What is known of a frame when its IP header is looked at.
  struct Arrival {
    std::size_t offset = 0;  // of that
    bool trusted = false;    // no checksum need be looked at
    bool to_all = false;     // a multicast of the link
    bool looped = false;     // from ourselves
  };

  bool is_trusted(const Buffer& frame, Source source) const {
    return source == Source::ourselves || frame.checksum_good != 0 || !link_.checks_in();
  }
  bool continue_run(BufferRef& frame, Source source, Instant now);
  void on_frame(BufferRef frame, Source source, Instant now);
  void on_ipv4(BufferRef frame, const Arrival& arrival, Instant now);
  void on_ipv6(BufferRef frame, const Arrival& arrival, Instant now);
  // `ecn`: what IP said (wire/ecn.hpp).
  void on_tcp(BufferRef frame, Bytes segment, const wire::IpAddress& from, const wire::IpAddress& to, bool trusted,
              std::uint8_t ecn, Instant now);
  void on_ipv6_headers(BufferRef frame, const Packet& packet, std::uint8_t next_header, Bytes payload, bool trusted,
                       Instant now);
  void on_whole(std::optional<Fragments::Whole> whole, Instant now);
  void on_upper(const Packet& packet, std::uint8_t protocol, Bytes payload, std::uint32_t next_pointer, BufferRef frame,
                Instant now);
  void on_ipv4_group(const Packet& packet, std::uint8_t protocol, Bytes payload, BufferRef frame, Instant now);
  void on_icmp_error(const ip::IcmpError& error, bool looped, Instant now);
  bool is_for_us(const wire::IpAddress& from, const wire::IpAddress& to) const;
  bool can_send(const wire::IpAddress& from) const;

  Link& link_;
  ip::Station& station_;
  const ip::Routes& routes_;
  Streams& streams_;
  Doors& doors_;
  BufferShares& buffers_;
  Icmp& icmp_;
  Fragments& fragments_;
  Datagrams& datagrams_;
  StreamUser& user_;
  Counters& counters_;
  InputRun run_;  // of the batch that is being taken
};

}  // namespace rnic::host
