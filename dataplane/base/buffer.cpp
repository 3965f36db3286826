#include "base/buffer.hpp"

#include <sys/mman.h>

#include <new>

namespace rnic {
namespace {
constexpr std::size_t kLine = 64;
constexpr std::size_t rounded(std::size_t n) { return (n + kLine - 1) / kLine * kLine; }
}  // namespace

HeapPool::HeapPool(std::uint32_t count, std::uint32_t room_bytes)
    : count_(count), room_bytes_(room_bytes), free_(new Buffer*[count]) {
  // An odd number of lines per buffer spreads the buffers over the cache's sets.
  std::size_t stride = rounded(sizeof(Buffer)) + rounded(kHeadroom + room_bytes);
  if ((stride / kLine) % 2 == 0) stride += kLine;
  storage_bytes_ = stride * count;
  void* memory = mmap(nullptr, storage_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  RNIC_ASSERT(memory != MAP_FAILED);
  madvise(memory, storage_bytes_, MADV_HUGEPAGE);
  storage_ = static_cast<std::byte*>(memory);
  for (std::uint32_t i = 0; i < count; ++i) {
    std::byte* at = storage_ + i * stride;
    auto* buffer = new (at) Buffer;
    buffer->room = at + rounded(sizeof(Buffer));
    buffer->room_bytes = kHeadroom + room_bytes;
    buffer->pool = this;
    // The last one taken first: its lines are the likeliest to be in the cache.
    free_[count - 1 - i] = buffer;
  }
  free_count_ = count;
}

HeapPool::~HeapPool() { munmap(storage_, storage_bytes_); }

unsigned HeapPool::take(Buffer** out, unsigned n) {
  const unsigned taken = n < free_count_ ? n : free_count_;
  for (unsigned i = 0; i < taken; ++i) {
    Buffer* buffer = free_[--free_count_];
    buffer->head = kHeadroom;
    buffer->length = 0;
    buffer->refs = 1;
    buffer->next = nullptr;
    buffer->checksum_good = 0;
    buffer->mark = 0;
    out[i] = buffer;
  }
  return taken;
}

void HeapPool::give(Buffer* const* buffers, unsigned n) {
  RNIC_ASSERT(free_count_ + n <= count_);
  for (unsigned i = 0; i < n; ++i) free_[free_count_++] = buffers[i];
}

}  // namespace rnic
