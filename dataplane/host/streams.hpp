// Every connection of a host: found by its four names, by its id, or because it is due or has something to do. Streams
// themselves; and the small entries of those that are no stream yet, or no more (host/half_open.hpp,
// host/time_wait.hpp), which host/doors.hpp gives their meaning.
//
// Also what connections share: the secrets of their numbers, and TCP's options for either version of IP, with the MSS
// that follows from the link's MTU now.
//
// Owned by one worker.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/chance.hpp"
#include "base/list.hpp"
#include "host/ephemeral_ports.hpp"
#include "host/flow.hpp"
#include "host/flow_table.hpp"
#include "host/half_open.hpp"
#include "host/link.hpp"
#include "host/served_ports.hpp"
#include "host/stream.hpp"
#include "host/stream_user.hpp"
#include "host/time_wait.hpp"
#include "host/timers.hpp"
#include "ip/station.hpp"

namespace rnic::host {

class Streams {
 public:
  static constexpr std::uint32_t kTimeWaitMax = 16384;
  static constexpr std::uint32_t kPortsKept = 4096;    // of calls, where there is one shard
  static constexpr std::uint32_t kHalfOpenMax = 4096;  // and never more than a quarter of the streams
  static constexpr std::uint32_t kBeyondUnused =
      8;  // segments kept out of order of a stream that nobody uses yet, or any more
  static constexpr std::uint32_t kSequenceStep = 65536;  // of new numbers behind those of the one before

  Streams(const tcp::Options& tcp, std::uint32_t streams_max, const Shard& shard,
          std::shared_ptr<ServedPorts> served_ports, std::uint64_t seed, const Link& link, const ip::Station& station,
          StreamUser& user);

  // ---- by the four names ----
  // What has them: a stream's index, or the slot of an entry.
  class Place {
   public:
    static Place stream(std::uint32_t index) { return Place(index); }
    static Place half_open(std::uint32_t slot) { return Place(kHalfOpenBit | slot); }
    static Place waiting(std::uint32_t slot) { return Place(kTimeWaitBit | slot); }
    bool is_stream() const { return (value_ & (kTimeWaitBit | kHalfOpenBit)) == 0; }
    bool is_half_open() const { return (value_ & kHalfOpenBit) != 0; }
    bool is_waiting() const { return (value_ & kTimeWaitBit) != 0; }
    std::uint32_t index() const { return value_ & ~(kTimeWaitBit | kHalfOpenBit); }

   private:
    friend class Streams;
    static constexpr std::uint32_t kTimeWaitBit = 0x80000000, kHalfOpenBit = 0x40000000;
    explicit Place(std::uint32_t value) : value_(value) {}
    std::uint32_t value_;
  };
  std::uint64_t hash_of(const Flow& flow) const { return host::hash_of(flow, keys_); }
  std::optional<Place> find(const Flow& flow, std::uint64_t hash) const {
    const auto found = flows_.find(hash, [&](std::uint32_t value) { return flow_of(Place(value)) == flow; });
    if (!found) return std::nullopt;
    return Place(*found);
  }
  Stream& at(Place place) { return *streams_[place.index()]; }
  Stream* find_stream(const Flow& flow);

  // ---- streams ----
  Stream* find(StreamId id);
  bool has_room() const { return !free_slots_.empty() || streams_.size() < streams_max_; }
  std::size_t count() const { return count_; }
  std::uint32_t most() const { return streams_max_; }
  // Null: as many as there may be.
  Stream* make(const Flow& flow);
  void free(Stream& stream);
  // Each gets the other's id.
  void swap_places(Stream& a, Stream& b);
  template <typename Do>
  void for_each(Do&& each) const {
    for (const auto& stream : streams_)
      if (stream != nullptr) each(*stream);
  }
  // Its user serves it from now on: a closed listener of its port is worth waiting for. Until it is an orphan, or
  // freed.
  void begin_serving(Stream& stream);
  void stop_serving(Stream& stream);
  // Whether somebody who called there is served, by any shard.
  bool is_served(std::uint16_t port) const { return served_ports_->has(port); }

  // ---- streams with something to do, and those that wait ----
  void activate(Stream& stream) { active_.push_back(stream); }
  List<Stream, ActiveTag>& active() { return active_; }
  const List<Stream, ActiveTag>& active() const { return active_; }
  // It has nothing to do before `due`.
  void rest(Stream& stream, Instant due) {
    timers_.schedule(stream, due);
    stream.ListLink<ActiveTag>::unlink();
  }
  // One that is due, active again; until nothing.
  Stream* next_due(Instant now) {
    auto* stream = static_cast<Stream*>(timers_.next_due(now));
    if (stream != nullptr) activate(*stream);
    return stream;
  }
  Instant earliest() const { return timers_.earliest(); }

  // ---- ports and numbers of calls ----
  // May a call of ours have it? One in TIME-WAIT gives way where both ends used timestamps.
  EphemeralPorts::Use use_of(const Flow& flow, Instant now) const;
  template <typename IsTaken>
  std::optional<std::uint16_t> ephemeral_port(Flow flow, Instant now, IsTaken&& is_taken) {
    return EphemeralPorts::choose(chance_.next(), [&](std::uint16_t port) {
      flow.local_port = port;
      if (!shard_.has(flow) || is_taken(port)) return EphemeralPorts::Use::taken;
      const EphemeralPorts::Use use = use_of(flow, now);
      return use == EphemeralPorts::Use::free && used_lately_.has(port) ? EphemeralPorts::Use::lately : use;
    });
  }
  // Of a TIME-WAIT that gives way to a call of ours: where its numbers ended.
  std::optional<tcp::Seq> take_place_of_waiting(const Flow& flow);
  const HashKeys& keys() const { return keys_; }
  const Shard& shard() const { return shard_; }

  // ---- half-open connections ----
  HalfOpens& half_opens() { return half_opens_; }
  const HalfOpens& half_opens() const { return half_opens_; }
  // Not while all are in use.
  HalfOpen& add_half_open(const Flow& flow, std::uint64_t hash);
  void remove(HalfOpen& half);

  // ---- TIME-WAIT ----
  Waiting& waiting_at(std::uint32_t slot) { return time_wait_.at(slot); }
  void add(const Waiting& waiting);
  void remove_waiting(std::uint32_t slot);
  // A half-open connection takes its place until it is shown again, or its time is over.
  void hide_waiting(std::uint32_t slot);
  void show_waiting(std::uint32_t slot);
  // The one that hid there, if its time is not over.
  Waiting* hidden(std::uint32_t slot, const Flow& flow, Instant now) { return time_wait_.hidden(slot, flow, now); }
  void remove_hidden(std::uint32_t slot) { time_wait_.remove(slot); }
  void expire_waiting(Instant now);

  // ---- what all share ----
  const tcp::Options& tcp_options(const Flow& flow) const { return flow.remote.is_v6() ? tcp_v6_ : tcp_v4_; }
  const tcp::Options& tcp_options() const { return tcp_v4_; }  // but for sizes
  std::uint32_t mtu_towards(const wire::IpAddress& remote) const;
  // The link's MTU, or what a router has advertised of it, has changed. TCP tells its users (W-TCP-08).
  void on_mtu_change();

 private:
  const Flow& flow_of(Place place) const {
    if (place.is_waiting()) return time_wait_.at(place.index()).flow;
    if (place.is_half_open()) return half_opens_.at(place.index()).flow;
    return streams_[place.index()]->flow;
  }

  const Link& link_;
  const ip::Station& station_;
  StreamUser& user_;
  tcp::Options tcp_v4_, tcp_v6_;  // IPv6's headers leave less
  std::uint32_t streams_max_;
  Shard shard_;
  std::shared_ptr<ServedPorts> served_ports_;
  HashKeys keys_;
  Chance chance_;
  PortsUsedLately used_lately_;
  FlowTable flows_;  // of places
  TimeWait time_wait_;
  HalfOpens half_opens_;
  Timers timers_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::uint32_t> generations_;
  std::vector<std::uint32_t> free_slots_;
  std::size_t count_ = 0;
  List<Stream, ActiveTag> active_;
};

}  // namespace rnic::host
