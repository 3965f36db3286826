// Packet buffers: storage with a small header, counted references, and a pool to take them from.
//
// A buffer has room in front of its octets (headroom) for headers that are put on later. Pools:
// HeapPool below (pair, loopback, the simulator, tests) and DPDK's mbufs behind port/dpdk_pool,
// the only place that knows mbufs.
//
// Owned by one worker; references are not atomic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/assert.hpp"
#include "base/bytes.hpp"
#include "base/sanitizer.hpp"

namespace rnic {

class BufferPool;

// One cache line, in front of (or near) the storage.
struct Buffer {
  std::byte* room = nullptr;  // the storage
  std::uint32_t room_bytes = 0;
  std::uint32_t head = 0;    // where the octets begin in the storage
  std::uint32_t length = 0;  // how many they are
  std::uint32_t refs = 0;
  BufferPool* pool = nullptr;
  Buffer* next = nullptr;  // for whoever holds it in a list
  std::uint32_t checksum_good : 1 = 0;  // received, and its checksums are known to be good
  std::uint32_t mark = 0;               // for whoever holds it

  MutableBytes bytes() { return {room + head, length}; }
  Bytes bytes() const { return {room + head, length}; }
  std::uint32_t headroom() const { return head; }
  std::uint32_t tailroom() const { return room_bytes - head - length; }

  // `n` more octets before the first / after the last; the caller has seen that there is room.
  MutableBytes prepend(std::uint32_t n) {
    RNIC_ASSERT(n <= headroom());
    head -= n;
    length += n;
    return {room + head, n};
  }
  MutableBytes append(std::uint32_t n) {
    RNIC_ASSERT(n <= tailroom());
    const auto at = room + head + length;
    length += n;
    sanitizer::show(at, n);  // behind a received frame's octets nobody looks, until something is put there
    return {at, n};
  }
  void trim_front(std::uint32_t n) {
    RNIC_ASSERT(n <= length);
    head += n;
    length -= n;
  }
};

// What a fresh buffer leaves free in front: Ethernet with VLAN 18, IPv6 40, TCP 60, and some.
inline constexpr std::uint32_t kHeadroom = 128;

class BufferPool {
 public:
  virtual ~BufferPool() = default;

  // Up to `n` empty buffers (length 0, head kHeadroom, refs 1); returns how many. Running out is
  // a value, not a surprise.
  virtual unsigned take(Buffer** out, unsigned n) = 0;
  // Buffers with no reference left.
  virtual void give(Buffer* const* buffers, unsigned n) = 0;
  // Somebody besides the caller's one reference holds it (a driver, a receiver on the same pair):
  // its octets and headers must not be changed now.
  virtual bool shared(const Buffer& buffer) const { return buffer.refs > 1; }
  virtual std::uint32_t room_bytes() const = 0;  // octets that fit behind kHeadroom
  virtual std::uint32_t available() const = 0;
};

// One counted reference. Null, or keeps its buffer.
class BufferRef {
 public:
  BufferRef() = default;
  explicit BufferRef(Buffer* adopted) : buffer_(adopted) {}  // takes over one reference
  BufferRef(BufferRef&& other) noexcept : buffer_(std::exchange(other.buffer_, nullptr)) {}
  BufferRef& operator=(BufferRef&& other) noexcept {
    if (this != &other) {
      reset();
      buffer_ = std::exchange(other.buffer_, nullptr);
    }
    return *this;
  }
  ~BufferRef() { reset(); }

  static BufferRef take(BufferPool& pool) {
    Buffer* buffer = nullptr;
    return pool.take(&buffer, 1) == 1 ? BufferRef(buffer) : BufferRef();
  }

  BufferRef share() const {
    if (buffer_ != nullptr) ++buffer_->refs;
    return BufferRef(buffer_);
  }
  void reset() {
    if (buffer_ == nullptr) return;
    Buffer* gone = std::exchange(buffer_, nullptr);
    RNIC_ASSERT(gone->refs > 0);
    if (--gone->refs == 0) gone->pool->give(&gone, 1);
  }
  Buffer* release() { return std::exchange(buffer_, nullptr); }

  explicit operator bool() const { return buffer_ != nullptr; }
  Buffer* get() const { return buffer_; }
  Buffer& operator*() const { return *buffer_; }
  Buffer* operator->() const { return buffer_; }

 private:
  Buffer* buffer_ = nullptr;
};

// All memory is taken at construction.
class HeapPool final : public BufferPool {
 public:
  HeapPool(std::uint32_t count, std::uint32_t room_bytes);
  ~HeapPool() override;
  unsigned take(Buffer** out, unsigned n) override;
  void give(Buffer* const* buffers, unsigned n) override;
  std::uint32_t room_bytes() const override { return room_bytes_; }
  std::uint32_t available() const override { return free_count_; }

 private:
  std::uint32_t count_;
  std::uint32_t room_bytes_;
  std::uint32_t free_count_ = 0;
  std::byte* storage_ = nullptr;
  std::size_t storage_bytes_ = 0;
  std::unique_ptr<Buffer*[]> free_;
};

}  // namespace rnic
