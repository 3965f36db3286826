// Link addresses of neighbours, as a machine: neighbour unreachability detection of RFC 4861 s7.3,
// for IPv6 and, by ARP's packets (RFC 826, RFC 1122 s2.3.2), for IPv4 too. What is sent is made by
// the caller from a Question.
//
//   incomplete --answer--> reachable --time--> stale --use--> delay --time--> probe --silence--> (gone)
//       |                      ^                                 |              |
//    silence                   +----- a stream makes progress ---+--- answer ---+
//       v
//    failed --time--> (asked again at the next use)
//
// From reachable, stale and delay doubt() leads to probe at once.
//
// While an address is asked for, frames to it wait here, a few of them; what waits too long is
// dropped, and TCP sends it again. Of an address that is only in doubt frames go on.
//
// Pure; nothing is allocated after construction. Owned by one worker.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/buffer.hpp"
#include "base/chance.hpp"
#include "base/list.hpp"
#include "base/time.hpp"
#include "wire/address.hpp"

namespace rnic::ip {

struct NeighbourOptions {
  std::uint32_t entries_max = 1024;
  std::uint32_t asked_max = 512;            // of them, for whom there is no answer yet
  std::uint32_t frames_per_entry_max = 16;  // RFC 1122 s2.3.2.2 wants at least one
  std::uint32_t frames_max = 256;
  Duration retransmit = seconds(1);  // RetransTimer; RFC 1122 s2.3.2.1 wants no more than one a second
  std::uint32_t multicast_tries = 3;
  std::uint32_t unicast_tries = 3;
  Duration reachable = seconds(30);  // by chance from half of it to one and a half (RFC 4861 s6.3.2)
  Duration first_probe = seconds(5);
  Duration failed_for = seconds(1);  // how long a failure is believed without asking again
  std::uint64_t seed = 1;
};

class Neighbours {
 public:
  explicit Neighbours(const NeighbourOptions& options = {});
  ~Neighbours();

  struct Hop {
    wire::Mac mac;
    Instant ask_again;      // valid until then, and while generation() is the same
    bool in_doubt = false;  // whoever makes progress by it says so at the next resolve()
  };
  // The link address, or nothing: then it is being asked for, and hold() keeps the frame.
  // `progress`: what was sent by a hop in doubt has arrived (RFC 4861 s7.3.1).
  std::optional<Hop> resolve(const wire::IpAddress& address, Instant now, bool progress = false);
  // A whole Ethernet frame whose destination is still to be filled in.
  void hold(const wire::IpAddress& address, BufferRef frame);

  // A neighbour has said what its link address is while it was about something else: an ARP request,
  // a solicitation, a router's advertisement (RFC 4861 s7.2.3). A new entry is made only of what was for us: it will be
  // answered (RFC 826's merge flag).
  enum class Meant : std::uint8_t { for_us, for_others };
  void heard_from(const wire::IpAddress& address, const wire::Mac& mac, Meant meant);
  // An ARP reply or a neighbour advertisement (RFC 4861 s7.2.5). Makes no entry.
  struct Answer {
    std::optional<wire::Mac> mac{};
    bool solicited = true;       // an ARP reply to us is
    bool override_entry = true;  // ARP's always
  };
  void answered(const wire::IpAddress& address, const Answer& answer, Instant now);
  // What goes by it brings no answer (RFC 1122 s3.3.1.4): it is asked at once whether it is there. One
  // that nobody knows, or that is being asked, is left alone.
  void doubt(const wire::IpAddress& address, Instant now);
  // Forgotten; used by a route that has changed.
  void forget(const wire::IpAddress& address);

  // Asks for `address`: of all, or of the link address that it had.
  struct Question {
    wire::IpAddress address;
    std::optional<wire::Mac> known;
  };
  std::optional<Question> next_question(Instant now);  // until nothing
  // A frame that waited and may go now, destination filled in.
  BufferRef next_released();
  // An address that did not answer; its frames are gone.
  std::optional<wire::IpAddress> next_failed();

  Instant next_deadline() const;  // may be early, never late
  // Changes whenever a link address that somebody may have copied is no longer right.
  std::uint64_t generation() const { return generation_; }
  void change_generation() { ++generation_; }  // a route has changed
  std::uint64_t frames_dropped() const { return frames_dropped_; }
  std::uint32_t entries() const { return used_; }

  // A router says what its link's times are (RFC 4861 s6.3.4); zero: as before.
  void set_times(Duration reachable, Duration retransmit);

 private:
  enum class Phase : std::uint8_t { incomplete, reachable, stale, delay, probe, failed };
  struct UseTag;
  struct TimeTag;
  struct Entry : ListLink<UseTag>, ListLink<TimeTag> {
    wire::IpAddress address;
    wire::Mac mac;
    Phase phase = Phase::stale;
    std::uint32_t asked = 0;
    Instant due;  // incomplete, probe: the next question; delay: the first; reachable, failed: the end
    std::uint32_t next_in_bucket = 0;
    Buffer* first_frame = nullptr;  // a list by Buffer::next, each with one reference
    Buffer* last_frame = nullptr;
    std::uint32_t frame_count = 0;
  };
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  std::uint32_t bucket_of(const wire::IpAddress& address) const;
  Entry* find(const wire::IpAddress& address);
  Entry* make(const wire::IpAddress& address);
  void remove(Entry& entry);
  void drop_frames(Entry& entry);
  void release_frames(Entry& entry);
  void wait_until(Entry& entry, Instant due);
  void be_reachable(Entry& entry, Instant now);
  void be_stale(Entry& entry);
  void set_mac(Entry& entry, const wire::Mac& mac);
  void give_up(Entry& entry, Instant now);
  void ask(Entry& entry, Instant now);
  void set_phase(Entry& entry, Phase phase);

  NeighbourOptions options_;
  Chance chance_;
  std::unique_ptr<Entry[]> entries_;
  std::vector<std::uint32_t> buckets_;
  std::uint32_t bucket_mask_;
  std::uint32_t free_;  // a list by next_in_bucket
  std::uint32_t used_ = 0;
  List<Entry, UseTag> by_use_;  // the longest unused first
  List<Entry, TimeTag> timed_;  // incomplete, delay, probe
  Instant earliest_ = kNever;   // of those; may be early
  List<Entry, TimeTag> believed_failed_;
  std::uint32_t incomplete_ = 0;
  std::vector<wire::IpAddress> failed_;
  Buffer* first_released_ = nullptr;
  Buffer* last_released_ = nullptr;
  std::uint32_t frames_held_ = 0;
  std::uint64_t generation_ = 1;
  std::uint64_t frames_dropped_ = 0;
};

}  // namespace rnic::ip
