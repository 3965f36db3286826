// One direction of a wire that delays, loses, repeats, reorders, corrupts and fragments, all from one
// seed.
// It has no clock of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/time.hpp"
#include "sim/random.hpp"

namespace rnic::sim {

struct LinkOptions {
  Duration delay = microseconds(5);
  Duration jitter_max;  // frames overtake each other when this is not zero
  Duration per_frame;   // what a frame occupies the wire for; 0: no limit
  std::uint32_t loss_per_1000 = 0;
  std::uint32_t repeat_per_1000 = 0;
  std::uint32_t corrupt_per_1000 = 0;   // one flipped bit
  std::uint32_t fragment_per_1000 = 0;  // an IP packet goes on in two fragments, as behind a careless router
  std::uint32_t mark_per_1000 = 0;      // what may be marked (ECT) is: congestion experienced
  std::uint64_t loss_pattern = 0;       // bit n drops frame n: for tests that lose one frame on purpose
  // ---- for the goodput table and scenarios; as they are, nothing of chance is drawn for them ----
  Duration per_octet;               // what an octet occupies the wire for
  double line_mbps = 0;             // the same, of faster wires; 0: no limit
  Duration queue_max;               // a frame that would wait longer for the wire is dropped; 0: none is
  Duration mark_above;              // a frame that will wait longer for the wire is marked, if it may be; 0: none is
  std::uint32_t late_per_1000 = 0;  // frames that are overtaken: `late` is added to their delay
  Duration late;
  std::uint32_t frame_max_bytes = 0;  // larger ones are dropped; 0: none is
};

using Frame = std::vector<std::byte>;

// A line about a frame: for rnic-replay.
std::string describe(Bytes frame);

class Link {
 public:
  enum class Fate : std::uint8_t { sent, lost, repeated, corrupted };
  using Watcher = std::function<void(Bytes frame, Instant now, Fate fate)>;

  Link(const LinkOptions& options, std::uint64_t seed) : options_(options), random_(seed) {}

  void send(Bytes frame, Instant now);
  Instant next_arrival() const { return in_flight_.empty() ? kNever : in_flight_.top().arrival; }
  std::optional<Frame> receive(Instant now);

  void set_options(const LinkOptions& options) { options_ = options; }
  const LinkOptions& options() const { return options_; }
  // Sees every frame as it is handed over, whatever becomes of it; for an attacker, a router.
  using Tap = std::function<void(Bytes frame)>;
  void tap(Tap tap) { tap_ = std::move(tap); }
  // Sees frames dropped for their size.
  void on_too_large(Tap tap) { too_large_ = std::move(tap); }
  // Sees every frame as it is handed over.
  void watch(Watcher watcher) { watcher_ = std::move(watcher); }
  // May change every frame before anything else happens to it: a peer that says what ours never does.
  // Checksums are not made right: both sides need checksums = false.
  void edit(std::function<void(Frame&)> editor) { editor_ = std::move(editor); }
  std::uint64_t frames() const { return frames_; }
  std::uint64_t dropped() const { return dropped_; }  // as the queue was full

 private:
  struct InFlight {
    Instant arrival;
    std::uint64_t order;
    std::shared_ptr<Frame> frame;
    bool operator>(const InFlight& other) const {
      return arrival != other.arrival ? arrival > other.arrival : order > other.order;
    }
  };
  bool carry(Bytes frame, Instant now, bool spare);
  void deliver(Frame frame, Instant now);

  LinkOptions options_;
  Random random_;
  Watcher watcher_;
  Tap tap_, too_large_;
  std::function<void(Frame&)> editor_;
  std::uint64_t frames_ = 0, dropped_ = 0;
  std::uint64_t order_ = 0;
  std::uint16_t fragmented_ = 0;
  Instant free_at_{};
  std::priority_queue<InFlight, std::vector<InFlight>, std::greater<>> in_flight_;
};

}  // namespace rnic::sim
