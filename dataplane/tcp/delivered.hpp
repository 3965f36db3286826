// What one ACK tells of octets that have arrived, gathered while the retransmit queue takes it in:
// acknowledged and SACKed together.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "base/time.hpp"
#include "tcp/seq.hpp"

namespace rnic::tcp {

struct Delivered {
  // Retransmissions that left later than this cannot be what is acknowledged: the original is
  // (RFC 8985 s6.2 step 2). Set by the caller.
  Instant believed_until{};
  // The ACK's timestamp echoes one of ours of then or before; kNever: it has none. By the caller.
  Instant echoed_until = kNever;

  // It tells of a duplicate (DSACK): that is what the peer answers. By the caller.
  bool duplicate_told = false;

  std::uint32_t acknowledged = 0;  // octets that SND.UNA moved over
  std::uint32_t octets = 0;        // that are at the peer and were not before (RFC 6937's DeliveredData)
  std::uint32_t segments = 0;      // that SND.UNA moved over, wholly
  std::uint32_t largest = 0;       // of these, in octets
  bool fin = false;                // ours is among them

  bool sampled = false;  // all of it was sent once, and sample_sent_at is when the last of it was
  Instant sample_sent_at{};
  bool sent_twice = false;  // something among them was
  bool late = false;        // and the echo is not that of its retransmission

  // The last sent of what arrived.
  Instant newest_sent_at{std::numeric_limits<std::int64_t>::min()};
  Seq newest_end{};
  // The lowest of what arrived and was never sent twice.
  bool originals = false;
  Seq lowest_original_end{};

  // When that left which the ACK answers; nullopt: nobody knows (RFC 6298 s3). What was sent once may have
  // arrived long ago, its own ACK lost, where the peer answers a retransmission. An echo tells which of
  // the two that was (RFC 7323 s4); an older one than the retransmission's, that the peer had all of it
  // before: its ACK was late if the peer would have told of a duplicate (`tells_duplicates`), else perhaps
  // lost.
  std::optional<Instant> answered_sent_at(bool tells_duplicates) const {
    if (duplicate_told) return std::nullopt;
    if (sampled) return sample_sent_at;
    if (!any() || echoed_until == kNever || (late && !tells_duplicates)) return std::nullopt;
    return newest_sent_at;
  }

  bool any() const { return newest_sent_at.ns != std::numeric_limits<std::int64_t>::min(); }
  void on_original(Seq end) {
    if (originals && !end.before(lowest_original_end)) return;
    originals = true;
    lowest_original_end = end;
  }
  void on_sent_at(Instant sent_at, Seq end) {
    if (sent_at < newest_sent_at || (sent_at == newest_sent_at && !end.after(newest_end))) return;
    newest_sent_at = sent_at;
    newest_end = end;
  }
};

}  // namespace rnic::tcp
