// A TCP connection under test, spoken with segment by segment.
//
// Times are milliseconds since the conversation began. Sequence numbers are counted from each
// side's SYN: a stream's first octet is 1, and the peer's and ours never meet in one number.
//
//   auto c = Conversation::established();
//   c.at(0).hears(data(1, "abc"));
//   c.at(0).is_silent();
//   c.at(40).says(ack(4));
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "kit/catch.hpp"
#include "tcp/connection.hpp"

namespace rnic::test {

// What is said or heard. Of what the connection says, everything but what was left open
// (`window_`, and timestamps) is compared.
struct Line {
  std::uint8_t flags = 0;
  std::uint32_t sequence = 0;
  std::optional<std::uint32_t> ack_ = {};
  std::string text = {};
  std::optional<std::uint16_t> window_ = {};
  std::optional<std::uint16_t> mss_ = {};
  std::optional<std::uint8_t> scale_ = {};
  std::optional<bool> sack_permitted_ = {};
  std::optional<wire::TcpTimestamps> timestamps_ = {};
  std::vector<wire::SackBlock> blocks = {};
  bool ce_ = false, ect_ = false;

  Line& seq(std::uint32_t n) { return sequence = n, *this; }
  Line& ack(std::uint32_t n) { return ack_ = n, flags |= wire::tcp_flags::kAck, *this; }
  Line& window(std::uint16_t n) { return window_ = n, *this; }
  Line& mss(std::uint16_t n) { return mss_ = n, *this; }
  Line& scale(std::uint8_t n) { return scale_ = n, *this; }
  Line& sack_permitted(bool yes = true) { return sack_permitted_ = yes, *this; }
  Line& timestamps(std::uint32_t value, std::uint32_t echo) {
    return timestamps_ = wire::TcpTimestamps{value, echo}, *this;
  }
  Line& sack(std::uint32_t first, std::uint32_t end) { return blocks.push_back({first, end}), *this; }
  Line& ece() { return flags |= wire::tcp_flags::kEce, *this; }
  Line& cwr() { return flags |= wire::tcp_flags::kCwr, *this; }
  Line& ce() { return ce_ = true, *this; }    // heard: marked on the way
  Line& ect() { return ect_ = true, *this; }  // said: may be marked
  Line& psh() { return flags |= wire::tcp_flags::kPsh, *this; }
  Line& no_psh() { return flags &= static_cast<std::uint8_t>(~wire::tcp_flags::kPsh), *this; }
};

Line syn();
Line syn_ack();                                    // acknowledges 1
Line ack(std::uint32_t n);                         // at the speaker's next octet
Line data(std::uint32_t first, std::string text);  // with ACK and PSH
Line fin(std::uint32_t sequence);                  // with ACK
Line rst(std::uint32_t sequence);

class Conversation {
 public:
  static constexpr std::uint32_t kOurStart = 0xFFFFFF00;  // both streams wrap soon
  static constexpr std::uint32_t kPeerStart = 0xFFFFFFF0;

  explicit Conversation(const tcp::Options& options = {});

  // The peer called; its window is 65535, not scaled, its MSS 1460, and it knows SACK. It answered
  // our SYN-ACK at 0, which took a round trip.
  static Conversation established(const tcp::Options& options = {}, std::uint16_t window = 65535,
                                  double round_trip_ms = 1);
  static Conversation established_without_sack(const tcp::Options& options = {});

  // We call, or answer the peer's SYN: half open, until it answers.
  Conversation& opens();
  Conversation& answers(Line syn);

  Conversation& at(double milliseconds);
  Conversation& hears(Line line);
  Conversation& says(Line line);
  Conversation& is_silent();
  // Not a word until then; then next_segment() is called again.
  Conversation& is_silent_until(double milliseconds);
  // Goes to the moment at which it wants to speak, and says which that is.
  double wakes();

  Conversation& appends(const std::string& text);
  Conversation& appends(std::size_t count, std::size_t each);  // segments of `each` octets
  std::string reads();                                         // consumes all
  std::string reads(std::size_t octets);

  tcp::Connection& connection() { return *connection_; }
  tcp::Connection* operator->() { return connection_.get(); }
  HeapPool& pool() { return *pool_; }
  Instant now() const { return now_; }
  std::optional<tcp::SegmentOut> next() { return say(); }
  bool half_open() const { return half_open_.has_value(); }
  // Puts a segment in front of the connection as the device would.
  tcp::SegmentIn incoming(const Line& line);

 private:
  std::optional<tcp::SegmentOut> say();

  tcp::Options options_;
  std::unique_ptr<HeapPool> pool_;
  std::unique_ptr<tcp::Connection> connection_;
  std::optional<tcp::Handshake> half_open_;
  std::deque<wire::TcpHeader> replies_;  // of the half-open connection
  Instant start_{seconds(1000).ns};
  Instant now_ = start_;
  std::uint32_t peer_next_ = 0;
  std::uint32_t our_next_ = 0;
  std::uint32_t peer_ack_ = 0;
  std::uint16_t peer_window_ = 65535;
};

// For conversations in which only the retransmission timer is to speak up.
tcp::Options no_tail_probe();

// Octets that differ from place to place.
std::string pattern(std::size_t octets, std::size_t from = 0);

}  // namespace rnic::test
