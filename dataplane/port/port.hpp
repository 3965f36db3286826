// What a port does: whole frames in bursts, and one question for who wants to sleep.
#pragma once

#include <cstdint>
#include <string>

#include "base/buffer.hpp"
#include "wire/ethernet.hpp"

namespace rnic::port {

struct PortFacts {
  std::string kind;  // "pair", "loopback", "memif", "af_packet", ...: to be shown, nothing is decided by it
  std::string name;  // as configured
  wire::Mac mac;
  std::uint32_t mtu_bytes = 1500;   // IP octets in one frame
  bool verifies_checksums = false;  // received IP and TCP checksums need no check (or never leave memory)
  bool fills_checksums = false;     // sent frames need no IP and TCP checksums, whoever is at the other end
  // Octets of IP in a frame that is a run of TCP segments (Buffer::unit_bytes), which the port cuts apart, or whose
  // receiver has no need to; 0: it takes none.
  std::uint32_t run_bytes = 0;
  std::uint32_t speed_mbps = 10'000;
  std::string netdev;  // the kernel's interface, if there is one
  // Frames come from outside of the worker that polls it: where there is no wake_descriptor(), its sleep must be short.
  bool needs_wake = true;
  // The other end comes whenever it likes (memif's server): nobody waits for the link.
  bool peer_comes_later = false;
  // Of several queues each has a link of its own, which may be down while another's is up (memif).
  bool links_apart = false;
};

// Calls of tend() between two in which a pool gives back memory that was not used meanwhile: seconds.
inline constexpr unsigned kTendsPerRelease = 20;

// Owned by the worker that polls it, but for link_up() and facts().
class Port {
 public:
  virtual ~Port() = default;
  virtual const PortFacts& facts() const = 0;
  virtual bool link_up() const = 0;
  // IP octets that a frame to the peer may have now; never more than facts().mtu_bytes, which is what we
  // receive. From any thread.
  virtual std::uint32_t link_mtu() const { return facts().mtu_bytes; }
  // Sent segments need no IP and TCP checksums now. From any thread.
  virtual bool fills_checksums() const { return facts().fills_checksums; }
  // Buffers for frames sent and received here.
  virtual BufferPool& pool() = 0;
  // Up to `max` received frames, each with one reference for the caller. buffer->checksum_good
  // says that checksums were verified.
  virtual unsigned receive_burst(Buffer** out, unsigned max) = 0;
  // Frames that it has moved for other workers since this was last asked: work of the caller's that no burst shows.
  virtual unsigned take_moved_for_others() { return 0; }
  // Takes over one reference of each of the frames it accepts (the first n; returns n). The caller
  // may hold other references and then changes nothing while pool().shared(buffer). A frame may be a run of TCP
  // segments where facts().run_bytes says so.
  virtual unsigned send_burst(Buffer* const* frames, unsigned count) = 0;
  // Those that send_burst() accepted, or that came in part, and that the port knows to be lost: nobody was at
  // the other end, it takes none so long, or the rest did not come.
  virtual std::uint64_t frames_lost() const { return 0; }
  // What descriptor becomes readable when frames wait (-1: none now: a timed sleep)? To be asked before each sleep.
  virtual int wake_descriptor() = 0;
  // Before the worker blocks: arm the wake-up. Returns false if frames wait already.
  virtual bool arm() = 0;
  // After it woke up, whoever woke it.
  virtual void disarm() = 0;
  // Housekeeping now and then (a memif link that comes up). Cheap.
  virtual void tend() {}
};

}  // namespace rnic::port
