// Packets out: segments of streams, segments without a stream, and whatever else has an IP header, to the link or to
// ourselves; and how many answers to anybody there may yet be in this turn.
//
// Owned by one worker.
#pragma once

#include <optional>

#include "host/link.hpp"
#include "host/stream.hpp"
#include "ip/station.hpp"
#include "tcp/connection.hpp"
#include "wire/ecn.hpp"
#include "wire/ipv4.hpp"

namespace rnic::host {

class PacketsOut {
 public:
  static constexpr unsigned kAnswersPerTurnMax = 64;     // ICMP, RST, of TIME-WAIT and half-open connections
  static constexpr unsigned kSegmentsPerStreamMax = 64;  // sent in one turn

  // `hop_limit`: none: 64, or what a router advertises.
  PacketsOut(Link& link, ip::Station& station, std::optional<std::uint8_t> hop_limit, Counters& counters)
      : link_(link),
        routes_(station.routes()),
        neighbours_(station.neighbours()),
        station_(station),
        hop_limit_(hop_limit),
        counters_(counters) {}

  // ---- segments of a stream ----
  // As many as there are, `budget` is left, and the link has room for. Whether there was one.
  bool send_segments(Stream& stream, Instant now, unsigned& budget);

  // ---- what has no stream ----
  // `may_be_marked`: as in tcp::SegmentOut.
  void send_bare_segment(const Flow& flow, const wire::TcpHeader& header, Instant now, bool may_be_marked = false);
  // Where there may be an answer yet.
  void send_reset(const Flow& flow, const tcp::SegmentIn& to, Instant now);
  // `packet` has what is behind an IP header: puts IP and link headers in front and sends or holds it.
  void send_packet(BufferRef packet, std::uint8_t protocol, const wire::IpAddress& from, const wire::IpAddress& to,
                   Instant now, std::uint8_t ecn = wire::ecn::kNotCapable);
  // A message of ip::Station's.
  void send_message(const ip::Station::Outgoing& message, Bytes octets, Instant now);

  // ---- answers to anybody ----
  void begin_turn() { answers_left_ = kAnswersPerTurnMax; }
  bool may_answer() const { return answers_left_ > 0; }
  // One is counted. False: there may be none any more.
  bool take_answer() {
    if (answers_left_ == 0) return false;
    --answers_left_;
    return true;
  }

 private:
  void emit_each(Stream& stream, const tcp::SegmentOut& run, Instant now);
  void emit_segment(Stream& stream, tcp::SegmentOut&& segment, Instant now);
  bool refresh_front(Stream& stream, Instant now);
  void doubt_hop(Stream& stream, Instant now);
  std::uint8_t ttl() const { return hop_limit_.value_or(wire::Ipv4Header::kDefaultTtl); }
  std::uint8_t hop_limit() const { return hop_limit_.value_or(station_.hop_limit_v6()); }

  Link& link_;
  const ip::Routes& routes_;
  ip::Neighbours& neighbours_;
  const ip::Station& station_;
  std::optional<std::uint8_t> hop_limit_;
  Counters& counters_;
  unsigned answers_left_ = 0;
};

}  // namespace rnic::host
