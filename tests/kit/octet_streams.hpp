// What runs on plain streams in tests: it sends a pattern, checks one, or gives back what comes. Every
// octet of the pattern follows from its place in the stream, so a peer needs to be told nothing.
//
// Owned by the host's thread, but for plans made before there are streams.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "kit/plain_host.hpp"

namespace rnic::test {

// Octet `i` of a stream is octet i mod kPatternBytes of this. A prime, so that no segment boundary
// falls in with it. tests/system/linux_tcp/run makes the same.
inline constexpr std::size_t kPatternBytes = 65521;
const std::array<std::byte, kPatternBytes>& pattern();

// What is done on a stream.
struct Plan {
  std::uint64_t send_bytes = 0;  // of the pattern
  bool echo = false;             // instead: what comes, unless it is to be read by nobody
  bool check = true;             // what comes is the pattern
  bool read = true;              // false: what comes lies, until resumed
  // FIN: when all is sent; when the peer has closed, too; only when asked for.
  enum class Close : std::uint8_t { sent, peer, never } close = Close::peer;
};

struct Record {
  host::StreamId stream;
  host::Flow flow;
  Plan plan;
  std::uint64_t sent_bytes = 0, received_bytes = 0, wrong_bytes = 0;
  bool opened = false, peer_closed = false, closed = false, ended = false;
  bool close_now = false, abort_now = false;
  bool was_closing = false;  // both FINs were on their way at once (RFC 9293 figure 13)
  tcp::State state = tcp::State::closed;
  tcp::Ended how = tcp::Ended::no;
  tcp::Counters counters;
  std::uint32_t mss_bytes = 0, congestion_window_bytes = 0, in_flight_bytes = 0;
  std::int64_t rtt_us = 0;
};
const char* name(tcp::Ended ended);

class OctetStreams final : public PlainStreams {
 public:
  // Before the first stream.
  void use(PlainHost& host) { host_ = &host; }
  // For streams that come to this port of ours.
  void plan(std::uint16_t port, const Plan& plan) { plans_[port] = plan; }
  // For one that PlainHost::call() has begun.
  void plan(host::StreamId stream, const Plan& plan);

  Record* find(host::StreamId stream);
  const std::map<host::StreamId, Record>& records() const { return records_; }

  void on_open(host::StreamId stream, const host::Flow& flow) override;
  bool on_turn(host::StreamId stream, tcp::Connection& tcp, Instant now) override;
  void on_end(host::StreamId stream, const tcp::Connection& tcp) override;

 private:
  bool send(Record& record, tcp::Connection& tcp);
  bool take(Record& record, tcp::Connection& tcp);
  static void note(Record& record, const tcp::Connection& tcp);

  PlainHost* host_ = nullptr;
  std::map<std::uint16_t, Plan> plans_;
  std::map<host::StreamId, Record> records_;
};

}  // namespace rnic::test
