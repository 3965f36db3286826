// Segments as a connection takes and gives them: the header parsed, the octets where they lie.
#pragma once

#include "base/buffer.hpp"
#include "tcp/seq.hpp"
#include "wire/tcp.hpp"

namespace rnic::tcp {

struct SegmentIn {
  wire::TcpHeader header;  // options parsed
  BufferRef buffer;        // holds the payload; kept while it is needed
  Bytes payload;           // within `buffer`
  bool marked = false;     // IP said: congestion experienced
};

// The segment under examination, trimmed as the checks go on.
struct Incoming {
  SegmentIn& segment;
  Seq sequence;
  Bytes payload;
  bool fin;
  bool tells_timestamp = false;  // that is to be echoed, once its acknowledgement is accepted
};

// A segment to put on the wire. The receiver of this value fills in the ports and prepends TCP, IP
// and link headers.
// `payload` empty: `buffer` is null, take a control buffer. `whole`: payload is all of the
// buffer's octets and nobody else holds the buffer, so headers may be put in its headroom;
// otherwise the octets are to be copied into a fresh buffer. `unit_bytes` not 0: they are those of several segments,
// each of so many but for the last, of which this is the first's header (tcp/send_queue.hpp).
struct SegmentOut {
  SegmentOut() {}  // members say their own defaults; zeroing the whole first would cost as much again

  wire::TcpHeader header;
  BufferRef buffer;  // a counted reference; the retransmit queue keeps its own
  Bytes payload;
  std::uint32_t unit_bytes = 0;
  std::uint32_t segments() const { return segments_in(static_cast<std::uint32_t>(payload.size()), unit_bytes); }
  bool whole = false;
  bool may_be_marked = false;  // IP is to say ECT(0)
};

}  // namespace rnic::tcp
