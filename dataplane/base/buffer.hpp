// Packet buffers: storage with a small header, counted references, and a pool to take them from.
//
// A buffer has room in front of its octets (headroom) for headers that are put on later. Pools:
// HeapPool below (af_packet, pair, loopback, the simulator, tests), memory that the kernel shares (port/xdp_pool), and
// DPDK's mbufs behind port/dpdk_pool, the only place that knows mbufs.
//
// Owned by one worker; references are not atomic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/assert.hpp"
#include "base/bytes.hpp"
#include "base/sanitizer.hpp"

namespace rnic {

class BufferPool;

// Of a run: how many segments `octets` of payload are, each of `unit_bytes` but the last; 0: it is one segment.
constexpr std::uint32_t segments_in(std::uint32_t octets, std::uint32_t unit_bytes) {
  return unit_bytes == 0 ? 1 : (octets + unit_bytes - 1) / unit_bytes;
}

// What a fresh buffer leaves free in front: Ethernet with VLAN 18, IPv6 40, TCP 60, and some.
inline constexpr std::uint32_t kHeadroom = 128;

// One cache line, in front of (or near) the storage.
struct Buffer {
  std::byte* room = nullptr;  // the storage
  std::uint32_t room_bytes = 0;
  std::uint32_t head = 0;    // where the octets begin in the storage
  std::uint32_t length = 0;  // how many they are
  std::uint32_t refs = 0;
  BufferPool* pool = nullptr;
  Buffer* next = nullptr;               // for whoever holds it in a list
  std::uint32_t checksum_good : 1 = 0;  // received, and its checksums are known to be good
  std::uint32_t mark = 0;               // for whoever holds it
  // Of a frame that is a run of TCP segments, which the port cuts apart: octets of payload of each but the last, and of
  // headers in front of the first. 0: it is one frame.
  std::uint16_t unit_bytes = 0;
  std::uint16_t headers_bytes = 0;

  // As whoever takes it from its pool finds it.
  void start() {
    head = kHeadroom;
    length = 0;
    refs = 1;
    next = nullptr;
    checksum_good = 0;
    mark = 0;
    unit_bytes = headers_bytes = 0;
  }

  MutableBytes bytes() { return {room + head, length}; }
  Bytes bytes() const { return {room + head, length}; }
  // That it is on a wire.
  std::uint32_t frames() const { return segments_in(length - headers_bytes, unit_bytes); }
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

// A pool has buffers of one class, or of two where frames can be long: small ones, and large ones
// that hold any frame. So acknowledgements and short messages do not use up what long frames need.
class BufferPool {
 public:
  virtual ~BufferPool() = default;

  // Up to `n` empty buffers (length 0, head kHeadroom, refs 1), the small ones where there are two
  // classes; returns how many. Running out is a value, not a surprise.
  virtual unsigned take(Buffer** out, unsigned n) = 0;
  // A large one, or null. Where there is one class, one of that.
  virtual Buffer* take_large() {
    Buffer* one = nullptr;
    return take(&one, 1) == 1 ? one : nullptr;
  }
  // Buffers with no reference left.
  virtual void give(Buffer* const* buffers, unsigned n) = 0;
  // Somebody besides the caller's one reference holds it (a driver, a receiver on the same pair):
  // its octets and headers must not be changed now.
  virtual bool shared(const Buffer& buffer) const { return buffer.refs > 1; }
  // Octets that fit behind kHeadroom: of any buffer that take_large() gives, and that take() gives.
  virtual std::uint32_t room_bytes() const = 0;
  virtual std::uint32_t small_room_bytes() const { return room_bytes(); }
  // What take() and take_large() could give now.
  virtual std::uint32_t available() const = 0;
  virtual std::uint32_t large_available() const { return available(); }
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

  // One that holds `octets`: a small one if that is enough and there is one. Null: there is none.
  static BufferRef take(BufferPool& pool, std::uint32_t octets = 0) {
    Buffer* buffer = nullptr;
    if (octets <= pool.small_room_bytes() && pool.take(&buffer, 1) == 1) return BufferRef(buffer);
    return BufferRef(pool.take_large());
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

// How many buffers of which room a pool has; `large_count` 0: one class.
struct PoolSize {
  std::uint32_t count = 0;
  std::uint32_t room_bytes = 0;
  std::uint32_t large_count = 0;
  std::uint32_t large_room_bytes = 0;
};
// For `frames` frames of at most `frame_bytes`. Two classes where such a frame is far longer than one of
// Ethernet's usual 1500 octets; of the large ones no more than kLargeBytesMax in all, as who finds
// none can do with small ones.
PoolSize pool_size_for(std::uint32_t frames, std::uint32_t frame_bytes);
// With runs of segments of up to `run_bytes` among them: of large ones no more than kLargeBytesMax in all, or 512 MiB
// where each frame needs one.
PoolSize pool_size_for_runs(std::uint32_t frames, std::uint32_t frame_bytes, std::uint32_t run_bytes);
inline constexpr std::uint32_t kSmallRoom = 1518;
inline constexpr std::uint64_t kLargeBytesMax = std::uint64_t{128} << 20;

// Of two classes the large one: where there is one class, no pool of a usual MTU has such.
inline bool is_large(const Buffer& buffer) { return buffer.room_bytes > kHeadroom + 2 * kSmallRoom; }
// How many of each.
struct BufferCount {
  std::uint32_t small = 0;
  std::uint32_t large = 0;
  std::uint32_t all() const { return small + large; }
  friend BufferCount operator+(BufferCount a, BufferCount b) { return {a.small + b.small, a.large + b.large}; }
};

// Buffers of one class. Addresses are taken at construction, memory when a buffer is first used: those
// given back last are taken first, so as many are touched as were ever in use at a time.
class BufferStock {
 public:
  BufferStock(BufferPool& pool, std::uint32_t count, std::uint32_t room_bytes);
  ~BufferStock();
  BufferStock(const BufferStock&) = delete;
  BufferStock& operator=(const BufferStock&) = delete;

  unsigned take(Buffer** out, unsigned n);
  void give(Buffer* buffer) {
    RNIC_ASSERT(free_count_ < count_);
    free_[free_count_++] = buffer;
  }
  bool owns(const Buffer& buffer) const { return buffer.room_bytes == kHeadroom + room_bytes_; }
  std::uint32_t room_bytes() const { return room_bytes_; }
  std::uint32_t available() const { return free_count_; }
  // Called now and then: memory of large buffers that were not used since the last call goes back to the
  // kernel, some at a time.
  void release_unused();
  // Buffers whose memory was used and not gone back since.
  std::uint32_t touched() const { return count_ - cold_; }

 private:
  struct alignas(64) Header : Buffer {};

  std::uint32_t count_;
  std::uint32_t room_bytes_;
  std::uint32_t free_count_ = 0;
  // The lowest of free_ are those not used for the longest time. free_[0, cold_) have no memory;
  // free_[0, quiet_) were not taken since the last release_unused().
  std::uint32_t cold_ = 0;
  std::uint32_t quiet_ = 0;
  std::size_t stride_ = 0;
  bool own_pages_ = false;
  std::byte* storage_ = nullptr;
  std::unique_ptr<Header[]> headers_;  // apart, so that an unused buffer touches no page
  std::unique_ptr<Buffer*[]> free_;
};

class HeapPool final : public BufferPool {
 public:
  explicit HeapPool(const PoolSize& size);
  HeapPool(std::uint32_t count, std::uint32_t room_bytes) : HeapPool(PoolSize{count, room_bytes, 0, 0}) {}

  unsigned take(Buffer** out, unsigned n) override { return small_.take(out, n); }
  Buffer* take_large() override {
    Buffer* one = nullptr;
    return (large_ ? *large_ : small_).take(&one, 1) == 1 ? one : nullptr;
  }
  void give(Buffer* const* buffers, unsigned n) override {
    for (unsigned i = 0; i < n; ++i) (small_.owns(*buffers[i]) ? small_ : *large_).give(buffers[i]);
  }
  std::uint32_t room_bytes() const override { return (large_ ? *large_ : small_).room_bytes(); }
  std::uint32_t small_room_bytes() const override { return small_.room_bytes(); }
  std::uint32_t available() const override { return small_.available(); }
  std::uint32_t large_available() const override { return (large_ ? *large_ : small_).available(); }
  // As BufferStock's.
  void release_unused();
  std::uint32_t touched() const { return small_.touched() + (large_ ? large_->touched() : 0); }

 private:
  BufferStock small_;
  std::optional<BufferStock> large_;
};

}  // namespace rnic
