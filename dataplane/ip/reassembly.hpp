// Packets of both IP versions put together from fragments (RFC 791 s3.2, RFC 1122 s3.3.2, RFC 8200
// s4.5; W-TCP-20). Our peers set DF; what comes in fragments comes from tunnels, and from those who
// would like to use us up.
//
// So all is bounded: so many packets at a time, of which a source has a part; so many octets in a
// packet; so long for each. A packet whose fragments overlap is dropped whole, with all of it that
// is still to come (RFC 5722), in IPv4 too. Exact duplicates are no overlap.
//
// A fragment's octets are copied to their place as they come. What is whole leaves in a buffer of a
// pool of our own, so that a port's buffers are never held by half a packet.
//
// Pure; nothing is allocated after construction. Owned by one worker.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/buffer.hpp"
#include "base/time.hpp"
#include "wire/address.hpp"

namespace rnic::ip {

struct ReassemblyOptions {
  std::uint32_t packets_max = 32;
  std::uint32_t packets_per_source_max = 8;
  std::uint32_t bytes_max = 1500;   // of a packet, without its header
  Duration lifetime = seconds(60);  // RFC 8200 s4.5; within what RFC 1122 s3.3.2 wants
};

struct Fragment {
  wire::IpAddress source, destination;
  std::uint32_t identification = 0;
  std::uint8_t protocol = 0;  // IPv4: part of the packet's name; IPv6: of the first fragment
  std::uint8_t ecn = 0;       // the two bits of RFC 3168 s5
  std::uint32_t offset_bytes = 0;
  bool more = false;
  Bytes header;  // what came before `payload`, from the IP header on
  Bytes payload;
};

// A packet that is whole again.
struct Reassembled {
  BufferRef buffer;  // what follows the IP header (in IPv6: the fragment header)
  std::uint8_t protocol = 0;
  std::uint8_t ecn = 0;
  Bytes header;  // of the first fragment, empty if that was very long; valid until the next call
};

class Reassembly {
 public:
  explicit Reassembly(const ReassemblyOptions& options);

  enum class Outcome : std::uint8_t {
    waiting,     // kept, or a duplicate
    complete,    // `packet`
    dropped,     // overlap, too large for us, no room
    bad_length,  // more are to follow, but it is no multiple of 8 octets
    too_long,    // ends beyond what an IP packet can have
  };
  struct Taken {
    Outcome outcome = Outcome::dropped;
    Reassembled packet{};
  };
  Taken take(const Fragment& fragment, Instant now);

  // A packet whose time is over; until nothing. Its first fragment, if that had come, as it came;
  // valid until the next call.
  struct Expired {
    wire::IpAddress source, destination;
    Bytes header, payload;  // empty: it had not
  };
  std::optional<Expired> next_expired(Instant now);
  // May be early, never late.
  Instant next_deadline() const { return earliest_; }

  std::uint32_t open() const { return open_; }

 private:
  static constexpr std::size_t kHeaderMax = 128;
  enum class State : std::uint8_t { free, filling, spoilt };
  struct Slot {
    State state = State::free;
    wire::IpAddress source, destination;
    std::uint32_t identification = 0;
    std::uint8_t protocol = 0;
    std::uint8_t first_ecn = 0;
    std::uint8_t ecns = 0;  // a bit for each code point seen
    BufferRef buffer;
    std::uint32_t total = 0;  // 0: the last has not come
    std::uint32_t received = 0;
    std::uint32_t farthest = 0;
    std::uint32_t first_size = 0;  // of the first fragment's payload; 0: it has not come
    std::uint32_t header_size = 0;
    Instant started;
    std::array<std::byte, kHeaderMax> header;
    std::vector<std::uint64_t> there;  // a bit for each 8 octets
  };

  Slot* find(const Fragment& fragment);
  Slot* open_slot(const Fragment& fragment, Instant now);
  Outcome place(Slot& slot, const Fragment& fragment);
  void spoil(Slot& slot);
  void close(Slot& slot);
  void find_earliest();

  ReassemblyOptions options_;
  HeapPool pool_;
  std::vector<Slot> slots_;
  std::uint32_t open_ = 0;
  Instant earliest_ = kNever;
};

}  // namespace rnic::ip
