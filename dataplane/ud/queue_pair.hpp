// A queue pair of type UD: Sends in, datagrams out; datagrams in, receives complete. No connection, no order, no
// answer: what does not arrive, or finds no receive, is lost, and counted where it was.
//
// Pure: it takes values, moves octets through a tpt::Mover, and asks and tells a Host and a Network. Owned by one
// worker.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/buffer.hpp"
#include "base/ids.hpp"
#include "base/list.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "ddp/placer.hpp"
#include "tpt/mover.hpp"
#include "tpt/table.hpp"
#include "ud/work.hpp"
#include "wire/datagram.hpp"

namespace rnic::ud {

// InfiniBand's, of this type. In `sqe` a send has failed: what is posted behind it is flushed until a Modify to RTS.
enum class State : std::uint8_t { reset, init, rtr, rts, sqe, error };
const char* name(State state);
inline constexpr std::size_t kStates = 6;

// Row: the state we are in. Column: the state asked for. What is not `ok` changes nothing.
enum class Step : std::uint8_t { refuse, ok, rest };
inline constexpr auto kModify = [] {
  using enum Step;
  return std::array<std::array<Step, kStates>, kStates>{{
      // reset  init    rtr     rts     sqe     error
      {{ok, ok, refuse, refuse, refuse, ok}},        // reset
      {{refuse, ok, ok, refuse, refuse, ok}},        // init
      {{refuse, refuse, refuse, ok, refuse, ok}},    // rtr
      {{refuse, refuse, refuse, ok, refuse, ok}},    // rts
      {{refuse, refuse, refuse, ok, refuse, ok}},    // sqe
      {{rest, refuse, refuse, refuse, refuse, ok}},  // error: when all is flushed
  }};
}();

enum class ModifyError : std::uint8_t { invalid_state, still_flushing };

struct Config {
  QpNumber number;
  PdId pd;
  PdId receive_pd;  // of the shared receive queue, else the queue pair's
  SpaceId space;    // whose memory its work is about
  bool shared_receive = false;
};

struct Counters {
  std::uint64_t sends_out = 0, bytes_out = 0;
  std::uint64_t sends_in = 0, bytes_in = 0;
  // Datagrams to it that were dropped: it was not to receive, another Q_Key; no receive, or one that was too small;
  // too many on their way to memory.
  std::uint64_t refused = 0, without_receive = 0, overrun = 0;
  std::uint64_t errors = 0;  // completions that say one, but for flushes
};

// What is in front of a datagram in its receive: InfiniBand's global route header. Of IPv4 an IPv4 header in its last
// 20 octets, the others 0.
inline constexpr std::size_t kGrhBytes = 40;
using Grh = std::array<std::byte, kGrhBytes>;

struct Inbound {
  const wire::Datagram& header;
  const Grh& grh;
  bool ipv4;  // what `grh` holds, else IPv6
  Bytes payload;
  Buffer* frame;  // where that is
};

// How datagrams leave.
class Network {
 public:
  // The longest message now.
  virtual std::uint32_t message_max() const = 0;
  // Our address of that index; none: there is no such.
  virtual std::optional<wire::IpAddress> source(std::uint8_t gid_index) const = 0;
  // For one datagram, header and payload. Null: there is none now.
  virtual BufferRef take(std::uint32_t octets) = 0;
  // Whether one to there would find room.
  virtual bool has_room(const wire::IpAddress& to) const = 0;
  virtual void send(BufferRef datagram, const wire::IpAddress& from, const Address& address, Instant now) = 0;

 protected:
  ~Network() = default;
};

struct ActiveTag;

// The link is its device's.
class QueuePair final : public tpt::MoveOwner, public ListLink<ActiveTag> {
 public:
  static constexpr std::uint32_t kOutMax = 64;    // sends begun; a power of two, as the next
  static constexpr std::uint32_t kInMax = 512;    // receives that are placed: what a turn can bring
  static constexpr std::uint32_t kFlushMax = 64;  // of a queue and a call

  QueuePair(const Config& config, Host& host, tpt::Table& table, tpt::Mover& mover);
  ~QueuePair();

  Result<Done, ModifyError> modify(std::optional<State> wanted, std::optional<std::uint32_t> q_key);

  // ---- turns; each returns whether it did something ----
  // A datagram to it, or to a group of its.
  void receive(const Inbound& datagram);
  // Begins sends, as many as `frames` allows, which is lowered.
  bool transmit(Network& network, std::uint32_t& frames);
  // After the mover's flush: what was gathered leaves, what was placed is told.
  bool settle(Network& network, Instant now);
  void work_posted() { posted_ = true; }
  void receive_posted() { flushes_receives_ = state_ == State::error; }

  // It waits for room, or for a buffer, which come without a word.
  bool waits_for_room() const { return lacks_buffer_ || lacks_room_; }
  // Buffers of its sends that have not left are counted there too, until this is asked again with another or null.
  void count_held_in(BufferCount* all);
  // Nothing to do until it is touched, or a move is over.
  bool idle() const;

  void on_moved(std::uint32_t token, bool ok) override;
  void keep(tpt::Kept& kept) override;

  State state() const { return state_; }
  const Config& config() const { return config_; }
  const Counters& counters() const { return counters_; }

  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

 private:
  struct Outgoing {
    BufferRef buffer;
    Address address;
    wire::IpAddress from;
    wire::Datagram header;
    rdmap::Status status = rdmap::Status::success;
    std::uint32_t slot = 0;
    std::uint32_t gathers = 0;
    bool signaled = false;
  };
  struct Incoming {
    BufferRef frame;
    rdmap::Completion completion;
    std::uint32_t places = 0;
  };
  enum class Begun : std::uint8_t { yes, failed, waits };

  Begun begin(Network& network);
  rdmap::Status check(const Network& network, std::uint32_t& length, wire::IpAddress& from);
  void fail_send(rdmap::Status status);
  bool finish_sends(Network& network, Instant now);
  bool finish_receives();
  bool flush();
  void complete_send(std::uint32_t slot, rdmap::Status status, bool signaled);
  void take_room();
  void hold(const Buffer& buffer, std::uint32_t by);
  void enter(State state);
  bool flushed() const;
  std::uint32_t capacity_of(const rdmap::ReceiveRequest& request) const;

  Config config_;
  Host& host_;
  tpt::Table& table_;
  tpt::Mover& mover_;
  State state_ = State::reset;
  std::uint32_t q_key_ = 0;
  Counters counters_;

  bool posted_ = false;
  bool has_next_ = false;  // next_ was taken, and is not begun
  bool lacks_buffer_ = false, lacks_room_ = false;
  bool flushes_receives_ = false;
  BufferCount held_;
  BufferCount* held_of_all_ = nullptr;
  WorkRequest next_;
  std::array<tpt::Access, rdmap::kSgesMax> access_{};

  // Rings, from the first Modify to RTR or RTS on. The headers of receives lie apart: a copy that waits for a page
  // keeps them.
  std::unique_ptr<Outgoing[]> out_;
  std::unique_ptr<Incoming[]> in_;
  std::shared_ptr<Grh[]> headers_;
  std::uint32_t out_first_ = 0, out_next_ = 0, in_first_ = 0, in_next_ = 0;
};

}  // namespace rnic::ud
