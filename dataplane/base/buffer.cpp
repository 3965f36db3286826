#include "base/buffer.hpp"

#include <sys/mman.h>

#include <algorithm>

namespace rnic {
namespace {
constexpr std::size_t kLine = 64;
constexpr std::size_t kPage = 4096;         // where pages are larger, nothing wrong comes of it
constexpr std::size_t kPagesMin = 4;        // buffers of so many have pages of their own
constexpr std::uint32_t kReleasedMax = 32;  // in one call: each costs some microseconds
constexpr std::size_t rounded(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }
}  // namespace

PoolSize pool_size_for(std::uint32_t frames, std::uint32_t frame_bytes) {
  if (frame_bytes <= 2 * kSmallRoom) return {.count = frames, .room_bytes = frame_bytes};
  const auto most = static_cast<std::uint32_t>(kLargeBytesMax / (kHeadroom + frame_bytes));
  return {.count = frames,
          .room_bytes = kSmallRoom,
          .large_count = std::min(frames, most),
          .large_room_bytes = frame_bytes};
}

// Small ones hold a usual frame and its headroom, as who has no large one for a segment takes a small one. Where a
// frame is longer than that each may need a large one.
PoolSize pool_size_for_runs(std::uint32_t frames, std::uint32_t frame_bytes, std::uint32_t run_bytes) {
  constexpr std::uint64_t kLongBytesMax = std::uint64_t{512} << 20;
  const std::uint64_t most = frame_bytes > kSmallRoom ? kLongBytesMax : kLargeBytesMax;
  return {.count = frames,
          .room_bytes = kSmallRoom + kHeadroom,
          .large_count = static_cast<std::uint32_t>(std::min<std::uint64_t>(frames, most / (kHeadroom + run_bytes))),
          .large_room_bytes = run_bytes};
}

BufferStock::BufferStock(BufferPool& pool, std::uint32_t count, std::uint32_t room_bytes)
    : count_(count),
      room_bytes_(room_bytes),
      cold_(count),
      quiet_(count),
      headers_(new Header[count]),
      free_(new Buffer*[count]) {
  // An odd number of lines per buffer spreads the buffers over the cache's sets; what has pages of its
  // own begins at different lines of its first.
  const std::size_t needed = rounded(kHeadroom + room_bytes, kLine);
  own_pages_ = needed >= kPagesMin * kPage;
  stride_ = own_pages_ ? rounded(needed, kPage) : needed;
  if (!own_pages_ && (stride_ / kLine) % 2 == 0) stride_ += kLine;
  const std::size_t starts = (stride_ - needed) / kLine + 1;
  void* memory =
      mmap(nullptr, stride_ * count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  RNIC_ASSERT(memory != MAP_FAILED);
  // A huge page would come whole with the first touch of any of the buffers in it, and go when all have.
  madvise(memory, stride_ * count, own_pages_ ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
  storage_ = static_cast<std::byte*>(memory);
  for (std::uint32_t i = 0; i < count; ++i) {
    Buffer& buffer = headers_[i];
    buffer.room = storage_ + i * stride_ + (own_pages_ ? i % starts * kLine : 0);
    buffer.room_bytes = kHeadroom + room_bytes;
    buffer.pool = &pool;
    // The last one taken first: its lines are the likeliest to be in the cache.
    free_[count - 1 - i] = &buffer;
  }
  free_count_ = count;
}

BufferStock::~BufferStock() { munmap(storage_, stride_ * count_); }

unsigned BufferStock::take(Buffer** out, unsigned n) {
  const unsigned taken = n < free_count_ ? n : free_count_;
  for (unsigned i = 0; i < taken; ++i) {
    Buffer* buffer = free_[--free_count_];
    buffer->start();
    out[i] = buffer;
  }
  if (free_count_ < quiet_) {
    quiet_ = free_count_;
    if (quiet_ < cold_) cold_ = quiet_;
  }
  return taken;
}

void BufferStock::release_unused() {
  if (!own_pages_) return;
  for (std::uint32_t i = 0; i < kReleasedMax && cold_ < quiet_; ++i, ++cold_) {
    const std::size_t number = static_cast<std::size_t>(free_[cold_]->room - storage_) / stride_;
    madvise(storage_ + number * stride_, stride_, MADV_DONTNEED);
  }
  quiet_ = free_count_;
}

HeapPool::HeapPool(const PoolSize& size) : small_(*this, size.count, size.room_bytes) {
  RNIC_ASSERT(size.large_count == 0 || size.large_room_bytes > size.room_bytes);
  if (size.large_count != 0) large_.emplace(*this, size.large_count, size.large_room_bytes);
}

void HeapPool::release_unused() {
  small_.release_unused();
  if (large_) large_->release_unused();
}

}  // namespace rnic
