// Two TCP connections back to back over a wire that does what wires do: loses, repeats, reorders,
// marks, falls silent, holds everything up, and lets through less than one thinks. Both send at once;
// every octet that arrives is looked at. One thread, one seed, simulated time.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/buffer.hpp"
#include "tcp/connection.hpp"

namespace rnic::test {

struct TortureWire {
  std::uint32_t loss_per_1000 = 0;
  std::uint32_t repeat_per_1000 = 0;
  std::uint32_t reorder_per_1000 = 0;
  Duration delay = microseconds(50);
  Duration reorder_by = microseconds(400);  // at most
  std::uint32_t mark_per_1000 = 0;          // of what may be marked
  // Now and then, about every `every`: nothing comes through for up to so long, or all of it is late.
  Duration every{}, silent_for{}, late_by{};
  // The longest segment that comes through, as in the MSS option: one of these, another each `every`.
  std::vector<std::uint32_t> path_sizes{};
  bool routers_tell = false;  // of segments that are too long
  // Who sits on the path writes nearly nothing into the windows of bare ACKs, or lets them be: another each `every`.
  bool takes_windows_back = false;
};

struct TorturePlan {
  tcp::Options options[2];
  TortureWire wire;
  std::uint64_t bytes[2] = {1'000'000, 1'000'000};
  std::uint32_t segment_max = 1460;     // payloads are of 1 to this many octets
  std::uint32_t reads_per_1000 = 1000;  // how often a reader reads
  std::uint32_t holds_per_1000 = 0;     // how often acknowledgements are held back for a turn
  bool mss_changes = false;
  bool both_call = false;
};

class Torture {
 public:
  Torture(const TorturePlan& plan, std::uint64_t seed);

  // Empty when all went well, else what did not.
  std::string run();
  std::string status() const;

  tcp::Connection& end(int side) { return ends_[side]; }
  Instant now() const { return now_; }
  Duration took() const { return now_ - kStart; }
  std::uint32_t buffers_out() const { return kBuffers - pool_.available() + (kRuns - runs_.available()); }
  std::uint64_t runs_sent() const { return runs_sent_; }
  std::uint32_t in_the_air() const { return static_cast<std::uint32_t>(flying_.size()); }

 private:
  struct Flying {
    Instant arrives;
    std::uint64_t order;
    int to;
    wire::TcpHeader header;
    BufferRef buffer;
    Bytes payload;
    bool marked;
    std::uint32_t too_big_for;  // a router's word about `header`; 0: a segment
  };
  static bool later(const Flying& a, const Flying& b);

  bool chance(std::uint32_t per_1000) { return random_() % 1000 < per_1000; }
  Duration up_to(Duration most);
  void turn(int side);
  void write(int side);
  bool write_run(int side);
  void read(int side);
  void send(int side, tcp::SegmentOut&& out);
  void send_one(int side, const tcp::SegmentOut& out);
  void fly(Flying&& flying);
  void weather();
  void deliver();
  bool answer(const tcp::SegmentIn& in);
  void look_at(int side);
  Instant next_event();
  bool finished();

  static constexpr std::uint32_t kBuffers = 8'000, kRuns = 500;
  static constexpr Instant kStart{seconds(100).ns};

  TorturePlan plan_;
  std::mt19937_64 random_;
  HeapPool pool_, runs_;
  tcp::Connection ends_[2];
  Instant now_ = kStart;
  std::vector<Flying> flying_;
  std::uint64_t order_ = 0;
  std::optional<tcp::Handshake> handshake_;
  bool asleep_[2] = {};
  Instant weather_at_ = kNever;
  Instant silent_until_{}, late_until_{};
  std::uint32_t path_size_ = 0;  // 0: whatever the port lets through
  std::optional<std::uint16_t> bare_window_;
  std::uint64_t runs_sent_ = 0;
  std::string complaint_;
};

}  // namespace rnic::test
