// TCP segments that one hand-over to the kernel can hold: a run of one stream's segments, of equal size but for the
// last, which the kernel or a NIC cuts apart again where they were (segmentation offload). And what the kernel says of
// a frame that it hands to us, in the same header (virtio 1.2 s5.1.6, as packet(7) uses it).
//
// Pure.
#pragma once

#include <array>
#include <cstdint>

#include "base/buffer.hpp"
#include "base/bytes.hpp"

namespace rnic::port {

// In front of a frame: struct virtio_net_hdr of <linux/virtio_net.h>, which no C++ compiler takes. Its numbers are the
// machine's own.
struct OffloadHeader {
  static constexpr std::uint8_t kNeedsChecksum = 1, kChecksumGood = 2;               // flags
  static constexpr std::uint8_t kWhole = 0, kTcpV4 = 1, kTcpV6 = 4, kWithCwr = 128;  // merged

  std::uint8_t flags = 0;
  std::uint8_t merged = kWhole;
  std::uint16_t headers_bytes = 0;
  std::uint16_t segment_bytes = 0;   // of payload, of each but the last
  std::uint16_t checksum_start = 0;  // summed from there on,
  std::uint16_t checksum_at = 0;     //   and stored there, from the start on
};
static_assert(sizeof(OffloadHeader) == 10);

// Of IP, headers and all.
inline constexpr std::uint32_t kRunBytesMax = 65'535;

// Where a frame has its headers.
struct SegmentLayout {
  std::uint32_t ip = 0;       // offset
  std::uint32_t tcp = 0;      // offset; 0: it is no TCP segment
  std::uint32_t headers = 0;  // octets in front of the payload
  std::uint32_t end = 0;      // offset behind it; what is there fills a short frame up
  bool v6 = false;
  bool v4 = false;
  bool tagged = false;
};

// Frames that leave as one. They are ours, with an Ethernet header and perhaps a VLAN tag, their checksums not filled.
class SegmentRun {
 public:
  static constexpr std::uint32_t kSegmentsMax = 64;

  // Begins with this frame, whatever it is: what is no TCP segment is a run of its own. It may be one already.
  void begin(Buffer& frame);
  // False: it does not continue the run, and begins another.
  bool add(const Buffer& frame);
  // All are there. The first frame's headers are made those of the run: lengths, IPv4's checksum, and of TCP's the part
  // that is the pseudo-header's.
  OffloadHeader finish();
  // It was not taken, and its frames come again: the first is what it was, but for checksums.
  void restore();

  std::uint32_t count() const { return count_; }
  // That they are on a wire.
  std::uint32_t frames() const { return made_before_ ? first_->frames() : count_; }
  // What is sent: of the first frame all, of the others what is behind the headers.
  Bytes piece(std::uint32_t index) const { return count_ == 1 ? Bytes(first_->bytes()) : pieces_[index]; }

 private:
  bool continues(Bytes frame) const;

  Buffer* first_ = nullptr;
  SegmentLayout layout_;
  std::array<Bytes, kSegmentsMax> pieces_;
  std::uint32_t count_ = 0;
  std::uint32_t segment_bytes_ = 0;  // payload of each but the last
  std::uint32_t bytes_ = 0;          // of the whole
  std::uint16_t first_length_ = 0;   // as its IP header says
  std::byte first_flags_{};          // of TCP
  bool may_grow_ = false;
  bool made_before_ = false;  // the first frame is a run
};

// What becomes of a frame that the kernel handed over.
enum class Received : std::uint8_t {
  unchecked,  // its checksums are still to be verified
  good,       // they are good, or were never made as it has not left this machine
  unusable,   // several datagrams in one, or nothing that is known
};
Received judge(const OffloadHeader& header, Bytes frame);
// Is it a TCP segment whose sender has left its checksum to hardware: is there the pseudo-header's sum alone (as Linux
// has it, CHECKSUM_PARTIAL)? A spoilt segment passes for one as rarely as for one with a good checksum.
bool is_checksum_undone(Bytes frame);
// Of a frame with an Ethernet header and perhaps a VLAN tag: IPv4's checksum. Good as well where there is none.
bool is_ip_header_good(Bytes frame);

// A frame that came as one, and that whoever merged it, or did not cut it, says to be of segments of `segment_bytes`
// octets of payload: says so of the buffer (Buffer::unit_bytes), which then counts as they do and is shown as they are.
// Only where it has the form that a run of ours has, its segments fit `mtu_bytes` octets of IP, and there are at most
// kReceivedSegmentsMax: the word is a peer's.
void mark_received_run(Buffer& frame, std::uint32_t segment_bytes, std::uint32_t mtu_bytes);
inline constexpr std::uint32_t kReceivedSegmentsMax = 128;

}  // namespace rnic::port
