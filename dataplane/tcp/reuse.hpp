// A SYN for a connection in TIME-WAIT: whether it begins a new one that cannot be confused with the
// old (RFC 9293 s3.6.1 and s3.10.7.4, RFC 6191 s2).
//
// Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "tcp/seq.hpp"
#include "wire/tcp.hpp"

namespace rnic::tcp {

// What is left of a connection whose two ends have closed.
struct Finished {
  Seq send_next{}, receive_next{};
  // Where timestamps were in use: our last, and the peer's.
  std::optional<wire::TcpTimestamps> timestamps{};
};

// Is it the FIN that the peer ended with?
inline bool is_last_fin(const Finished& finished, const wire::TcpHeader& header, std::size_t payload_bytes) {
  const Seq end = Seq{header.sequence} + static_cast<std::uint32_t>(payload_bytes) + 1;
  return header.has(wire::tcp_flags::kFin) && end == finished.receive_next;
}

// `timestamps`: the new connection would use them if the SYN has them.
inline bool may_begin_anew(const Finished& finished, const wire::TcpHeader& syn, bool timestamps) {
  const bool sequence_is_new = Seq{syn.sequence}.after(finished.receive_next);
  if (!syn.timestamps) return sequence_is_new;
  if (!finished.timestamps) return timestamps || sequence_is_new;
  const auto later = static_cast<std::int32_t>(syn.timestamps->value - finished.timestamps->echo);
  return later > 0 || (later == 0 && sequence_is_new);
}

}  // namespace rnic::tcp
