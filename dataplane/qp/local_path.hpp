// The way of messages between two queue pairs of one worker that have each other for a peer: a requester's DDP segment
// reaches the responder as it is. No frame, no TCP, no CRC. Where the daemon has mapped the memory of both, the payload
// is copied once, from the one application's memory into the other's, in the turn that begins it; else it is gathered
// into a packet buffer as for the stream, and placed from there.
//
// They are connected as all are, and the stream between them stays. What would be refused or held back goes by it; so
// do all errors, Terminates and ends. A segment goes this way only where all that was said on the stream before has
// been taken and has taken effect, so messages of one direction never overtake each other. The other direction has no
// part in that: two directions of a stream have no order between them.
//
// Pure. Each end has one for what it sends, as long as both have their stream.
#pragma once

#include <cstdint>

#include "base/buffer.hpp"
#include "base/time.hpp"
#include "ddp/placer.hpp"

namespace rnic::qp {

// In one piece at most, so that a message of any length leaves turns for others: what the longest frame takes.
inline constexpr std::uint32_t kLocalSegmentMax = 64 * 1024;
// In packet buffers, where TCP's window has no more: what turns gather until the first of it is handed over.
inline constexpr std::uint32_t kLocalFillMin = 512 * 1024;

// The queue pair at the other end, as far as who sends has to do with it.
class LocalPeer {
 public:
  // In RTS, and spoken to before.
  virtual bool is_open() const = 0;
  // The first `octets` of the stream to it, and no more, have come and taken effect.
  virtual bool has_taken(std::uint64_t octets) const = 0;
  // rdmap::Responder::would_take(), now: may take the next receive, which then is this queue pair's.
  virtual bool would_take(const ddp::Ulpdu& ulpdu, std::uint32_t more) = 0;
  // It would. Its octets, but for a header that is no part of `carrier`, lie there until they are placed, or are memory
  // and not looked at any more on return (then there is no carrier). The path may have come to its end then.
  virtual void take(const ddp::Ulpdu& ulpdu, bool ends_message, const BufferRef* carrier, Instant now) = 0;

 protected:
  ~LocalPeer() = default;
};

// What core knows of an end.
class LocalSide {
 public:
  // False: what is said is to be on the wire, as somebody watches it.
  virtual bool is_allowed() const = 0;
  // This end's queue pair has something to do.
  virtual void activate() = 0;
  // So much of a ULPDU has left by here.
  virtual void count(std::uint32_t octets) = 0;

 protected:
  ~LocalSide() = default;
};

// Which way the next message takes. One that could go directly, but for what is still on the stream, may wait for that;
// or nothing would ever go directly behind what had to take the stream. Not for long, and not again and again where
// messages of both kinds follow each other.
class LocalPath {
 public:
  LocalPath(LocalPeer& its_peer, LocalSide& its_side) : peer(its_peer), side(its_side) {}

  LocalPeer& peer;
  LocalSide& side;
  // Of the message under way: nobody watched the wire when it began; and it has begun from memory to memory, and goes
  // on so if it can.
  bool allowed = false, in_message = false;

  // It takes the stream, whatever else.
  void has_to_take_stream() { on_stream_ = kOnStream; }
  // It need not, but the stream is not drained. True: it is looked at again in the next turn.
  bool may_wait() {
    if (on_stream_ == 0 && waited_ < turns_) {
      ++waited_;
      return true;
    }
    if (on_stream_ == 0) on_stream_ = kOnStream;
    waited_ = 0;
    --on_stream_;
    return false;
  }
  void went() { on_stream_ = waited_ = 0; }
  // What comes next will most probably go without it.
  bool is_usual() const { return on_stream_ == 0; }
  // This end goes down: what is filled leaves, and is not looked at again.
  void wait_no_more() { turns_ = 0; }

  static constexpr std::uint32_t kOnStream = 64;  // segments, before one waits
  static constexpr std::uint32_t kTurns = 16;     // that one waits

 private:
  std::uint32_t turns_ = kTurns;
  std::uint32_t on_stream_ = 0;  // segments that still do not wait
  std::uint32_t waited_ = 0;
};

}  // namespace rnic::qp
