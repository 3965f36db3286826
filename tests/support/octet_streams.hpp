// What runs on plain streams in tests: it sends a pattern, checks one, or gives back what comes. Every
// octet of the pattern follows from its place in the stream, so a peer needs to be told nothing.
//
// Owned by the device's worker, but for plans made before there are streams.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "core/device.hpp"
#include "host/flow.hpp"

namespace rnic::test {

// Octet `i` of a stream is octet i mod kPatternBytes of this. A prime, so that no segment boundary
// falls in with it. tests/linux_tcp/run makes the same.
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
  core::StreamId stream;
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

class OctetStreams final : public core::PlainStreams {
 public:
  // Before the first stream.
  void use(core::Device& device) { device_ = &device; }
  // For streams that come to this port of ours.
  void plan(std::uint16_t port, const Plan& plan) { plans_[port] = plan; }
  // For one that connect_plain() has begun.
  void plan(core::StreamId stream, const Plan& plan);

  Record* find(core::StreamId stream);
  const std::map<core::StreamId, Record>& records() const { return records_; }

  void on_open(core::StreamId stream, const host::Flow& flow) override;
  bool on_turn(core::StreamId stream, tcp::Connection& tcp, Instant now) override;
  void on_end(core::StreamId stream, const tcp::Connection& tcp) override;

 private:
  bool send(Record& record, tcp::Connection& tcp);
  bool take(Record& record, tcp::Connection& tcp);
  static void note(Record& record, const tcp::Connection& tcp);

  core::Device* device_ = nullptr;
  std::map<std::uint16_t, Plan> plans_;
  std::map<core::StreamId, Record> records_;
};

}  // namespace rnic::test
