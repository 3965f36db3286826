// Link addresses of neighbours: ARP's cache (RFC 826, RFC 1122 s2.3.2) as a machine. Neighbour
// discovery for IPv6 (RFC 4861 s7) fits the same entries: only the packets differ, and those are
// made by the caller from a Question.
//
// While an address is asked for, frames to it wait here, a few of them; what waits too long is
// dropped, and TCP sends it again.
//
// Pure. Owned by one worker.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/buffer.hpp"
#include "base/time.hpp"
#include "wire/address.hpp"

namespace rnic::ip {

struct NeighbourOptions {
  std::uint32_t entries_max = 1024;
  std::uint32_t frames_per_entry_max = 16;  // RFC 1122 s2.3.2.2 wants at least one
  std::uint32_t frames_max = 256;
  Duration retry = milliseconds(500);  // doubles up to retry_max
  Duration retry_max = seconds(1);
  std::uint32_t tries = 5;
  Duration fresh = seconds(30);      // a use after this asks again, by unicast, and goes on
  Duration failed_for = seconds(1);  // how long a failure is believed without asking again
};

class Neighbours {
 public:
  explicit Neighbours(const NeighbourOptions& options = {});
  ~Neighbours();

  struct Hop {
    wire::Mac mac;
    Instant ask_again;  // valid until then, and while generation() is the same
  };
  // The link address, or nothing: then it is being asked for, and hold() keeps the frame.
  std::optional<Hop> resolve(const wire::IpAddress& address, Instant now);
  // A whole Ethernet frame whose destination is still to be filled in.
  void hold(const wire::IpAddress& address, BufferRef frame);

  // What an ARP packet or an advertisement says. A new entry is made only when `wanted`: the
  // packet was for us (RFC 826's merge flag).
  void learn(const wire::IpAddress& address, const wire::Mac& mac, bool wanted, Instant now);

  // Asks for `address`: by broadcast, or of the link address that it had.
  struct Question {
    wire::IpAddress address;
    std::optional<wire::Mac> known;
  };
  std::optional<Question> next_question(Instant now);  // until nothing
  // A frame that waited and may go now, destination filled in.
  std::optional<BufferRef> next_released();
  // An address that did not answer; its frames are gone.
  std::optional<wire::IpAddress> next_failed();

  Instant next_deadline() const;
  // Changes whenever a link address that somebody may have copied is no longer right.
  std::uint64_t generation() const { return generation_; }
  std::uint64_t frames_dropped() const { return frames_dropped_; }

 private:
  enum class Phase : std::uint8_t { asking, known, verifying, failed };
  struct Entry {
    wire::IpAddress address;
    wire::Mac mac;
    Phase phase = Phase::asking;
    std::uint32_t asked = 0;
    Instant due;  // asking, verifying: the next question; failed: the end of the belief
    Instant fresh_until;
    Instant used;
    std::vector<BufferRef> frames;
  };

  Entry* find(const wire::IpAddress& address);
  Entry* make(const wire::IpAddress& address, Instant now);
  void drop_frames(Entry& entry);
  void erase(const wire::IpAddress& address);
  void start_asking(Entry& entry, Phase phase, Instant now);
  void stop_asking(Entry& entry);

  NeighbourOptions options_;
  std::unordered_map<wire::IpAddress, Entry> entries_;
  std::vector<wire::IpAddress> asking_;  // in phases asking and verifying
  std::vector<BufferRef> released_;
  std::vector<wire::IpAddress> failed_;
  std::uint32_t frames_held_ = 0;
  std::uint64_t generation_ = 1;
  std::uint64_t frames_dropped_ = 0;
};

}  // namespace rnic::ip
