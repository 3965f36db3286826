// What one ACK tells of octets that have arrived, gathered while the retransmit queue takes it in:
// acknowledged and SACKed together.
#pragma once

#include <cstdint>
#include <limits>

#include "base/time.hpp"
#include "tcp/seq.hpp"

namespace rnic::tcp {

struct Delivered {
  // Retransmissions that left later than this cannot be what is acknowledged: the original is
  // (RFC 8985 s6.2 step 2). Set by the caller.
  Instant believed_until{};
  // The ACK's timestamp echoes one of ours of then or before; kNever: it has none. By the caller.
  Instant echoed_until = kNever;

  std::uint32_t acknowledged = 0;  // octets that SND.UNA moved over
  std::uint32_t octets = 0;        // that are at the peer and were not before (RFC 6937's DeliveredData)
  std::uint32_t segments = 0;      // that SND.UNA moved over, wholly
  std::uint32_t largest = 0;       // of these, in octets
  bool fin = false;                // ours is among them

  bool sampled = false;  // sample_sent_at serves for a round trip (Karn)
  Instant sample_sent_at{};

  // The last sent of what arrived.
  Instant newest_sent_at{std::numeric_limits<std::int64_t>::min()};
  Seq newest_end{};
  // The lowest of what arrived and was never sent twice.
  bool originals = false;
  Seq lowest_original_end{};

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
