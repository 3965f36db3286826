// Two TCP connections and the path between them: a bottleneck with a queue, delay, and what goes
// wrong on the way. One thread, one seed, simulated time; payloads are not looked at.
//
// For what can only be seen over many round trips: goodput, how a window grows and shrinks, what a
// queue does. Single rules are conversations (tcp_conversation.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <vector>

#include "tcp/connection.hpp"

namespace rnic::test {

struct PathOptions {
  double gbit_per_s = 1;                // of the bottleneck, data's direction; ACKs pass freely
  Duration delay = microseconds(50);    // one way
  std::uint32_t queue_bytes = 1 << 20;  // what is more is dropped
  std::uint32_t loss_per_100000 = 0;    // both directions
  std::uint32_t repeat_per_1000 = 0;
  std::uint32_t late_per_1000 = 0;  // data only: that much is overtaken ...
  Duration late_by{};               // ... by what is sent in this time
  // The path stands still for `stall` after each `stall_every`: nothing is lost, all is late.
  Duration stall_every{}, stall{};
  std::uint64_t seed = 1;
};

struct PathReport {
  double goodput_mbit_per_s = 0;
  Duration took;
  std::uint64_t repeated_bytes = 0;  // sent more than once
  tcp::Counters sender, receiver;
};

class TcpPath {
 public:
  TcpPath(const PathOptions& path, const tcp::Options& sender, const tcp::Options& receiver);

  // Carries `bytes` in messages of `message_bytes`, the next when all of the last is acknowledged;
  // 0: one stream. False when it did not end within `limit`.
  bool carry(std::uint64_t bytes, std::uint64_t message_bytes = 0, Duration limit = seconds(3600));
  PathReport report() const;

  tcp::Connection& sender() { return sender_; }
  tcp::Connection& receiver() { return receiver_; }
  Instant now() const { return now_; }
  // Looks on after each step.
  std::function<void()> watch;

 private:
  struct Flying {
    Instant arrives;
    std::uint64_t order;
    bool to_receiver;
    wire::TcpHeader header;
    BufferRef buffer;
    Bytes payload;
    bool operator<(const Flying& other) const {  // the heap's top is the first to arrive
      return arrives != other.arrives ? arrives > other.arrives : order > other.order;
    }
  };
  bool chance(std::uint32_t of, std::uint32_t in) { return of != 0 && random_() % in < of; }
  void write();
  void send(bool to_receiver, tcp::SegmentOut&& out);
  void fly(bool to_receiver, const tcp::SegmentOut& out, Duration after);
  void deliver();
  bool open(const tcp::SegmentIn& in);
  Instant next_event() const;

  PathOptions path_;
  std::mt19937_64 random_;
  HeapPool pool_;
  tcp::Options receiver_options_;
  std::optional<tcp::Handshake> handshake_;
  tcp::Connection sender_, receiver_;
  Instant now_{seconds(100).ns};
  Instant began_{};
  Instant free_at_{};  // when the bottleneck has sent all that it has
  std::vector<Flying> flying_;
  std::uint64_t order_ = 0;
  std::uint64_t message_end_ = 0, done_before_ = 0;
};

}  // namespace rnic::test
