// What both directions of a queue pair's stream have in common: how it is set up, what it counts, what its
// application and its memory are reached by, and what of its own is on its way there.
#pragma once

#include <cstdint>

#include "base/face.hpp"
#include "base/ids.hpp"
#include "base/time.hpp"
#include "rdmap/host.hpp"
#include "rdmap/terminate.hpp"
#include "tpt/mover.hpp"
#include "tpt/table.hpp"

namespace rnic::rdmap {

// InfiniBand's attributes of patience, as its application sets them by Modify to RTR and RTS: the codes of the
// InfiniBand specification.
struct Patience {
  std::uint8_t timeout = 0;        // 4.096 us * 2^timeout; 0: no end
  std::uint8_t retry_count = 0;    // 0 to 7
  std::uint8_t rnr_retry = 0;      // 0 to 6; 7: no end
  std::uint8_t min_rnr_timer = 0;  // 0 to 31: what this side, as responder, asks the peer to wait

  constexpr bool operator==(const Patience&) const = default;
};

struct Settings {
  Face face = Face::iwarp;
  QpNumber number;
  PdId pd;
  SpaceId space;                           // whose memory its work is about
  PdId receive_pd;                         // of the shared receive queue, else the QP's (V-SRQ-15)
  tpt::Rights access = tpt::Rights::none;  // remote_read, remote_write, remote_atomic, window_bind
  std::uint32_t ird = 0, ord = 0;
  std::uint32_t send_depth = 512;  // work requests begun and not completed: the size of the SQ
  bool shared_receive = false;
  bool privileged = false;        // Fast-Register is let (V-QP-05)
  bool extensions = false;        // RFC 7306 opcodes (W-EXT-14)
  bool strict_read_sink = false;  // read_sink = "strict": a Read's sink needs Remote Write (V-RD-03, -04); else "local"
  bool hold_without_receive = true;  // rnr = "hold" (V-SR-06); else "terminate"
  Duration rnr_timeout = seconds(30);
  Patience patience{};  // of a RoCE face
  std::uint32_t held_bytes_max = 256 * 1024;
};

struct Counters {
  std::uint64_t sends_out = 0, writes_out = 0, reads_out = 0;
  std::uint64_t sends_in = 0, writes_in = 0, reads_in = 0;
  std::uint64_t atomics_out = 0, atomics_in = 0;
  std::uint64_t bytes_out = 0, bytes_in = 0;
};

// Moves under way: what on_moved() is still to be told of.
struct Moves {
  std::uint32_t gathers = 0;
  std::uint32_t response_gathers = 0;  // of these, Read Responses'
  std::uint32_t places = 0;
  bool atomic = false;  // the peer's atomic operation

  bool any() const { return gathers != 0 || places != 0 || atomic; }
};

// The RQ Limit of a queue pair whose receives are shared (V-LIM-05, -06): how many of them it may have in progress,
// taken and not completed, before its application is told; once for each arming.
struct ReceiveLimit {
  std::uint32_t limit = 0;
  bool armed = false;
  std::uint32_t in_progress = 0;

  // Whether it is to be told now.
  bool is_reached() {
    if (!armed || in_progress <= limit) return false;
    armed = false;
    return true;
  }
};

// Flushed in one call at most; more are flushed by the next.
inline constexpr std::uint32_t kFlushMax = 65536;

struct Common {
  const Settings& settings;
  Host& host;
  tpt::Table& table;
  tpt::Mover& mover;
  tpt::MoveOwner& owner;  // of all moves: it hands on_moved() to whose the token is
  Counters& counters;
  std::uint64_t turn = 1;  // Access values are good within one
  Moves moves{};
  std::uint32_t flushed_sends = 0, flushed_receives = 0;  // since RTS was left
  ReceiveLimit receive_limit{};

  void receive_taken() {
    ++receive_limit.in_progress;
    if (receive_limit.is_reached()) [[unlikely]]
      host.raise(Event::receive_limit);
  }
  // False: the completion queue is full.
  bool complete_receive(const Completion& completion) {
    --receive_limit.in_progress;
    return host.complete(completion);
  }
  // A receive that takes no message: nobody is left to tell if the CQ is full.
  void fail_receive(std::uint32_t slot, bool shared, Status status) {
    if (status == Status::flushed) ++flushed_receives;
    (void)complete_receive(
        {.opcode = Opcode::receive, .status = status, .of_send_queue = false, .shared = shared, .slot = slot});
  }
};

// A token names a place (the slot of its delivery), a place that is ahead of its turn (its slot in Early), the atomic
// operation that is executed, or, which is the carrier's, a gather.
namespace token {
inline constexpr std::uint32_t kGather = 0x80000000;
inline constexpr std::uint32_t kEarly = 0x40000000;
inline constexpr std::uint32_t kAtomic = 0x20000000;
}  // namespace token

// What became of a step: nothing for the queue pair's states, or what ends its RTS. `culprit` is good until
// the next call.
struct Verdict {
  enum class Kind : std::uint8_t { go_on, fault, peer_terminated } kind = Kind::go_on;
  Fault fault = Fault::catastrophic;
  const Culprit* culprit = nullptr;

  static constexpr Verdict of(Fault fault, const Culprit* culprit = nullptr) { return {Kind::fault, fault, culprit}; }
  explicit constexpr operator bool() const { return kind != Kind::go_on; }
};

}  // namespace rnic::rdmap
