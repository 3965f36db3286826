// A buffer pool whose buffers are mbufs, which only port/dpdk_* knows.
//
//   | mempool's header | rte_mbuf, 128 | Buffer, 64 | room: headroom 128, data ... |
//
// Buffer lives in the mbuf's private area, so one is the other plus a constant, both ways. Two
// counts stand for who holds it: Buffer::refs counts our references, and all of these together
// are ONE of the mbuf's own count, the others being drivers'. So what we still refer to outlives a
// driver's free, what a driver still sends outlives ours, and the last of both gives it back.
//
// Large ones, where there are such, are mbufs of a second mempool: a run of segments that the driver cuts, or a chain
// that it received, is one of them.
//
// Owned by one worker (drivers of its ports free in that worker too).
#pragma once

#include <rte_mbuf.h>

#include <memory>
#include <string>
#include <utility>

#include "base/buffer.hpp"

namespace rnic::port {

class DpdkPool final : public BufferPool {
 public:
  enum class Memory : std::uint8_t {
    own,  // pages of ours: transparent huge pages where there are any. No device can reach them
    eal,  // EAL's, which it makes known to PCI devices and to vhost
  };

  // What an mbuf can have behind kHeadroom: its lengths are of 16 bits. And 7 octets less, so that the next one begins
  // where it would anyway.
  static constexpr std::uint32_t kRoomBytesMax = 65'528 - kHeadroom;

  // `room_bytes` behind kHeadroom. Null: the sentence says why.
  static std::unique_ptr<DpdkPool> create(const std::string& name, std::uint32_t count, std::uint32_t room_bytes,
                                          Memory memory, std::string& error);
  ~DpdkPool() override;

  // Before the first buffer is taken: a class of large ones besides, `room_bytes` behind kHeadroom, at most
  // kRoomBytesMax. Drivers receive into small ones, and find large ones in what they are to send. False: there is no
  // memory for them, and all is as before.
  bool add_large(std::uint32_t count, std::uint32_t room_bytes);

  unsigned take(Buffer** out, unsigned n) override;
  Buffer* take_large() override;
  void give(Buffer* const* buffers, unsigned n) override;
  bool shared(const Buffer& buffer) const override {
    return buffer.refs > 1 || rte_mbuf_refcnt_read(to_mbuf(&buffer)) > 1;
  }
  std::uint32_t room_bytes() const override { return large_ != nullptr ? large_room_bytes_ : room_bytes_; }
  std::uint32_t small_room_bytes() const override { return room_bytes_; }
  std::uint32_t available() const override;
  std::uint32_t large_available() const override;

  // Of the small ones.
  rte_mempool* mempool() { return pool_; }

  static rte_mbuf* to_mbuf(const Buffer* buffer) {
    return reinterpret_cast<rte_mbuf*>(reinterpret_cast<std::uintptr_t>(buffer) - sizeof(rte_mbuf));
  }
  static Buffer* to_buffer(rte_mbuf* mbuf) {
    return reinterpret_cast<Buffer*>(reinterpret_cast<std::uintptr_t>(mbuf) + sizeof(rte_mbuf));
  }

  // An mbuf that a driver received, in one piece: ours now, with one reference.
  static Buffer* adopt(rte_mbuf* mbuf) {
    Buffer* buffer = to_buffer(mbuf);
    buffer->head = mbuf->data_off;
    buffer->length = mbuf->data_len;
    buffer->refs = 1;
    buffer->next = nullptr;
    buffer->checksum_good = 0;
    buffer->mark = 0;
    buffer->unit_bytes = 0;
    return buffer;
  }

  // As adopt(), of an mbuf or a chain whose octets may lie anywhere: copied to where they are in one piece, if they are
  // not. Null: no buffer holds so many, or none is free; they are lost.
  Buffer* take_in(rte_mbuf* mbuf) {
    if (mbuf->nb_segs == 1 && RTE_MBUF_DIRECT(mbuf)) [[likely]]
      return adopt(mbuf);
    return gather(mbuf);
  }

  // One reference of `buffer` becomes the driver's; what it is to send is in the mbuf's own fields,
  // so that we may take headers off ours meanwhile.
  static rte_mbuf* lend(Buffer* buffer) {
    rte_mbuf* mbuf = to_mbuf(buffer);
    if (--buffer->refs != 0) rte_mbuf_refcnt_update(mbuf, 1);
    mbuf->data_off = static_cast<std::uint16_t>(buffer->head);
    mbuf->data_len = static_cast<std::uint16_t>(buffer->length);
    mbuf->pkt_len = buffer->length;
    mbuf->nb_segs = 1;
    mbuf->next = nullptr;
    mbuf->ol_flags = 0;
    mbuf->tx_offload = 0;
    return mbuf;
  }
  // The driver did not take it: the reference is ours again.
  static void take_back(Buffer* buffer) {
    if (buffer->refs++ != 0) rte_mbuf_refcnt_update(to_mbuf(buffer), -1);
  }

 private:
  DpdkPool(rte_mempool* pool, std::string name, std::uint32_t room_bytes, Memory memory)
      : pool_(pool), name_(std::move(name)), room_bytes_(room_bytes), memory_(memory) {}
  Buffer* gather(rte_mbuf* chain);

  rte_mempool* pool_;
  rte_mempool* large_ = nullptr;
  std::string name_;
  std::uint32_t room_bytes_;
  std::uint32_t large_room_bytes_ = 0;
  Memory memory_;
};

}  // namespace rnic::port
