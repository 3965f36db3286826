// Queue pairs of type UD of a device: whose a datagram is that came, and whose turn it is to send.
//
// Each that has work begins a share of what a turn takes, and who comes too late for this one is first in the next. Of
// a port's buffers an application's, all together, hold as many as a stream may (host/dynamic_threshold.hpp).
// What a stranger sends takes a look at a table, and where it finds a queue pair that wants it, a receive: nothing is
// kept for it, nothing grows, and nobody is answered.
//
// Owned by one worker.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/list.hpp"
#include "host/datagrams.hpp"
#include "host/host.hpp"
#include "ud/queue_pair.hpp"
#include "wire/address.hpp"

namespace rnic::core {

struct DatagramCounters {
  std::uint64_t in = 0;          // that came, of whatever kind
  std::uint64_t bad = 0;         // of these: cut off, of another kind or version, or damaged
  std::uint64_t unknown = 0;     // for a queue pair that there is not, or a group that nobody is attached to
  std::uint64_t refused = 0;     // another Q_Key, or it was not to receive
  std::uint64_t no_receive = 0;  // none, or one that was too small
  std::uint64_t overrun = 0;     // too many on their way to memory, or to groups in a turn: for each that is attached
};

class Datagrams final : public host::DatagramUser, public ud::Network {
 public:
  static constexpr std::size_t kAttachedMax = 293;  // queue pairs of a group: 256 of one application, and others'
  static constexpr std::uint32_t kTurnFrames = 32;  // begun in a turn; a full one is 4 KiB
  static constexpr std::uint32_t kShareMin = 4;     // of one queue pair
  // Copies of what comes to groups, in a turn: a datagram is one for each that is attached, and a stranger's frame.
  static constexpr std::uint32_t kTurnCopies = 1024;

  // `by_gids`: as in gids.hpp.
  Datagrams(host::Host& host, bool by_gids) : host_(host), by_gids_(by_gids) {}
  // From now on its datagrams are there.
  void serve(std::uint16_t port) { host_.datagrams().serve(port, *this); }

  // ---- whose they are ----
  void add(ud::QueuePair& qp);
  // It is about to go.
  void remove(ud::QueuePair& qp);
  // False: there are too many of either.
  bool attach(ud::QueuePair& qp, const wire::IpAddress& group, Instant now);
  // False: it is not attached.
  bool detach(ud::QueuePair& qp, const wire::IpAddress& group);
  // Who is in which.
  std::vector<std::pair<QpNumber, wire::IpAddress>> attached() const;

  // ---- the turn ----
  void touch(ud::QueuePair& qp) {
    if (qp.waits_for_room()) qp.ListLink<ud::ActiveTag>::unlink();  // it may be among those that wait
    active_.push_back(qp);
  }
  bool transmit(Instant now);
  bool settle(Instant now);
  // Who waits for room has waited.
  bool run_timers(Instant now);
  // Those that have nothing to do leave.
  void end_turn(Instant now);
  Instant next_deadline() const { return waiting_.empty() ? kNever : look_again_; }
  bool idle() const { return active_.empty(); }

  void on_datagram(host::Datagram&& datagram, Instant now) override;
  std::uint32_t message_max() const override;
  std::optional<wire::IpAddress> source(std::uint8_t gid_index) const override;
  BufferRef take(std::uint32_t octets) override;
  bool has_room(const wire::IpAddress& to) const override { return host_.datagrams().has_room(to); }
  void send(BufferRef datagram, const wire::IpAddress& from, const ud::Address& address, Instant now) override;

  // Of queue pairs that are gone as well.
  DatagramCounters counters() const;

 private:
  struct Group {
    wire::IpAddress address;
    std::vector<ud::QueuePair*> attached;
  };
  // Of an application.
  struct Holding {
    BufferCount held;
    std::uint32_t queue_pairs = 0;
  };
  using QueuePairs = List<ud::QueuePair, ud::ActiveTag>;

  void deliver(ud::QueuePair& qp, const ud::Inbound& datagram);
  void count(DatagramCounters& counters, const ud::QueuePair& qp) const;
  std::vector<Group>::iterator find(const wire::IpAddress& group);

  host::Host& host_;
  bool by_gids_;
  std::unordered_map<std::uint32_t, ud::QueuePair*> by_number_;
  std::unordered_map<std::uint32_t, Holding> holdings_;  // by its space
  std::vector<Group> groups_;
  std::uint32_t copies_left_ = kTurnCopies;
  QueuePairs active_, waiting_;
  Instant look_again_ = kNever;
  DatagramCounters counters_;
};

}  // namespace rnic::core
