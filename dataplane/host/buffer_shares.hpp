// Who may hold how many of a port's buffers (host/data_pool.hpp), and what becomes of streams that hold too many.
//
// Owned by one worker.
#pragma once

#include <array>

#include "host/counters.hpp"
#include "host/data_pool.hpp"
#include "host/streams.hpp"
#include "tcp/rate_limit.hpp"

namespace rnic::host {

class BufferShares {
 public:
  BufferShares(BufferPool& whole, Streams& streams, StreamUser& user, Counters& counters)
      : pool_(whole), streams_(streams), user_(user), counters_(counters) {}

  DataPool& pool() { return pool_; }
  const DataPool& pool() const { return pool_; }

  void begin_turn(Instant now) {
    pool_.refresh();
    if (pool_.tight()) [[unlikely]]
      relieve(now);
  }
  // May the stream keep it? Where many large ones are held, one whose user is late keeps little in large buffers
  // that a little would fill, or some stuck ones would use them all up.
  bool may_take(Stream& stream, const tcp::SegmentIn& segment) const {
    if (pool_.large_are_worth_copies() && stream.unread_bytes() > kUnconsumedMax) [[unlikely]]
      stream.tcp.pack_pieces();
    return pool_.may_keep(stream.tcp.kept(), *segment.buffer) || !must_refuse(stream, segment);
  }
  // It may, and nothing else is to be seen to.
  bool may_take_at_once(const Stream& stream, const Buffer& buffer) const {
    return !pool_.large_are_worth_copies() && pool_.may_keep(stream.tcp.kept(), buffer);
  }

 private:
  static constexpr std::uint64_t kUnconsumedMax = 64 * 1024;  // of a stream, while buffers are nearly gone
  static constexpr unsigned kEndedPerLook = 64;
  struct Candidate {
    Stream* stream;
    std::uint32_t count;  // of buffers that are wanted back
  };
  using Greediest = std::array<Candidate, kEndedPerLook>;

  bool must_refuse(Stream& stream, const tcp::SegmentIn& segment) const;
  void relieve(Instant now);
  Greediest find_stuck(bool first, Instant now);
  void end_greediest(Greediest greediest, Instant now);

  DataPool pool_;
  Streams& streams_;
  StreamUser& user_;
  Counters& counters_;
  Instant looked_at_ = kNever;
  std::uint32_t untold_ = 0;  // streams that were ended
  tcp::RateLimit tells_{1, seconds(10)};
};

}  // namespace rnic::host
