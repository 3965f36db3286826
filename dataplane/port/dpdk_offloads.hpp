// What a DPDK device does for the frames of a port, and how it is asked to, frame by frame: checksums, and the cutting
// of runs of TCP segments (Buffer::unit_bytes).
//
// Drivers say what they can (their capabilities). What they do not say, or not in one sense, is known here by their
// names: data whose checksum nobody has looked at must not be taken for good, and a driver that cuts wrongly must not
// be asked to.
//
// Owned by whoever owns the port.
#pragma once

#include <rte_mbuf.h>

#include <cstdint>
#include <string_view>

#include "base/buffer.hpp"

namespace rnic::port {

struct DriverHabits {
  bool fills_checksums = false;    // as a virtual device, which else is not asked to
  bool cuts = true;                // as it should, if it says that it can
  bool takes_long_pieces = false;  // a run in one piece of up to 64 KiB
  // What it calls "not correct in the packet data, but verified" has not left memory, and its checksum was never made.
  // Other drivers say so of what they have not looked at.
  bool partial_is_good = false;
  bool merges = false;  // what it receives as one was one (virtio's guest offloads), and it tells of what segments
  // Its descriptor for a wake-up is an epoll of another, which nobody reads: it stays readable from the first on.
  bool wake_stays_readable = false;
  // Who is at its other end says how many of its queues are used, and may say otherwise at any time.
  bool one_queue = false;
};
// By rte_eth_dev_info::driver_name.
DriverHabits habits_of(std::string_view driver);

// Octets of IP in a run for a driver of which it is not known that it takes more in one piece: some have descriptors
// whose lengths are of 14 bits.
inline constexpr std::uint32_t kRunPieceBytes = 16'000;

// What was agreed upon with a device.
struct Offloads {
  bool tcp_sums = false;  // it fills TCP's checksums
  bool ip_sums = false;   // and IPv4's
  bool cuts = false;      // runs
  bool partial_is_good = false;

  // A frame of ours that is lent to the driver: tells it where checksums and cuts go, and fills what it does not. TCP's
  // gets the sum of the pseudo-header, as DPDK asks. Not of TCP: it is sent as it is, but for IPv4's checksum.
  void ask(rte_mbuf& mbuf, const Buffer& frame) const;
  // What the driver said of a frame, `flags` being the mbuf's: that its checksums are good. IPv4's header is summed
  // where the driver speaks of TCP alone.
  bool are_sums_good(std::uint64_t flags, Bytes frame) const;
};

}  // namespace rnic::port
