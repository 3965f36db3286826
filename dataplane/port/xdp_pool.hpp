// A buffer pool in memory that an AF_XDP socket shares with the kernel (UMEM): both receive into it, and send from it,
// without a copy of ours. The kernel knows it as chunks of equal size; a small buffer is one, a large one several that
// follow each other, of which each chunk's part is sent by a descriptor of its own.
//
//   | Buffer, 64 | headroom 128 | spare, 64 | the kernel's, for XDP programs, 256 | what is received ... |
//
// What we write ourselves begins behind the headroom, as everywhere.
//
// Its memory is locked. Owned by one worker; what the kernel holds of it counts as references.
#pragma once

#include <linux/bpf.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/buffer.hpp"

namespace rnic::port {

// Of one queue of an interface.
struct XdpLayout {
  std::uint32_t chunk_bytes = 0;
  std::uint32_t count = 0;         // small buffers
  std::uint32_t large_chunks = 0;  // that a large buffer has; 0: there are none, as any frame fits a chunk
  std::uint32_t large_count = 0;
  std::uint32_t descriptors = 0;  // that each ring has: a power of two. 0: there are too few buffers

  bool has_large() const { return large_chunks != 0; }
  // A chunk's octets are a power of two.
  std::uint32_t place_in_chunk(std::uint64_t address) const {
    return static_cast<std::uint32_t>(address) & (chunk_bytes - 1);
  }
};

inline constexpr std::uint32_t kXdpDescriptorsMin = 256, kXdpDescriptorsMax = 2048;
// The longest IP packet that every driver takes in one chunk: a page, less the kernel's headroom, what it keeps behind
// (skb_shared_info), Ethernet with a tag, and some.
inline constexpr std::uint32_t kXdpChunkMtuMax = 4096 - XDP_PACKET_HEADROOM - 320 - 18 - 128;

// Of one of `queues` that share `buffers`. A queue's rings may both be full, and as many buffers as one has are wanted
// for what is under way.
XdpLayout xdp_layout(std::uint32_t mtu_bytes, std::uint32_t buffers, unsigned queues);
constexpr std::uint32_t xdp_buffers_least(unsigned queues) { return queues * 3 * kXdpDescriptorsMin; }

class XdpPool final : public BufferPool {
 public:
  // That the kernel is to leave free in front of what it receives, beside XDP_PACKET_HEADROOM. Cards of Intel write in
  // steps of 128 octets (i40e, ice), and where what is left of a chunk is no multiple of that, behind its end.
  static constexpr std::uint32_t kFrontBytes = 256;
  static_assert(sizeof(Buffer) <= 64 && 64 + kHeadroom <= kFrontBytes);
  static_assert((2048 - kFrontBytes - XDP_PACKET_HEADROOM) % 128 == 0);

  // Null: the sentence says why.
  static std::unique_ptr<XdpPool> create(const XdpLayout& layout, std::string& error);
  ~XdpPool() override;
  XdpPool(const XdpPool&) = delete;
  XdpPool& operator=(const XdpPool&) = delete;

  unsigned take(Buffer** out, unsigned n) override;
  Buffer* take_large() override;
  void give(Buffer* const* buffers, unsigned n) override;
  std::uint32_t room_bytes() const override { return large_room_bytes_ - kHeadroom; }
  std::uint32_t small_room_bytes() const override { return small_room_bytes_ - kHeadroom; }
  std::uint32_t available() const override { return static_cast<std::uint32_t>(small_.size()); }
  std::uint32_t large_available() const override {
    return static_cast<std::uint32_t>((layout_.has_large() ? large_ : small_).size());
  }

  std::byte* memory() const { return memory_; }
  std::uint64_t bytes() const { return bytes_; }
  const XdpLayout& layout() const { return layout_; }
  // The buffer that an address of the kernel's, an offset into the memory, lies in.
  Buffer* at(std::uint64_t address) const;
  // Of a buffer's first octet.
  std::uint64_t address_of(const Buffer& buffer) const {
    return static_cast<std::uint64_t>(buffer.room - memory_) + buffer.head;
  }

 private:
  explicit XdpPool(const XdpLayout& layout);
  void construct(std::uint64_t address, std::uint32_t room_bytes, std::vector<Buffer*>& free);

  XdpLayout layout_;
  std::uint64_t bytes_, large_from_;                   // of the memory; where in it large buffers begin
  std::uint32_t small_room_bytes_, large_room_bytes_;  // with the headroom
  std::byte* memory_ = nullptr;
  std::vector<Buffer*> small_, large_;  // free ones
};

}  // namespace rnic::port
