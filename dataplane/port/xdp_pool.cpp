#include "port/xdp_pool.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "wire/vlan.hpp"

namespace rnic::port {

namespace {

constexpr std::uint32_t kChunkMin = 2048, kPage = 4096;  // a chunk is no smaller, and no larger
constexpr std::uint32_t kBufferBytes = 64;
constexpr std::uint32_t kReceivedFrom = XdpPool::kFrontBytes + XDP_PACKET_HEADROOM;
constexpr std::size_t kHugePage = 2u << 20;
// Of one: older kernels count a pool's octets in 32 bits.
constexpr std::uint64_t kBytesMax = std::uint64_t{4} << 30;

// With the headroom: no more than is_large() lets a small one have.
constexpr std::uint32_t kSmallRoomMax = (kHeadroom + 2 * kSmallRoom) / 64 * 64;

}  // namespace

XdpLayout xdp_layout(std::uint32_t mtu_bytes, std::uint32_t buffers, unsigned queues) {
  const std::uint32_t frame_bytes = mtu_bytes + wire::kLinkHeaderMax;
  XdpLayout layout;
  layout.chunk_bytes = kReceivedFrom + frame_bytes <= kChunkMin ? kChunkMin : kPage;
  layout.count = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(buffers / queues, (kBytesMax - kLargeBytesMax) / layout.chunk_bytes));
  if (mtu_bytes > kXdpChunkMtuMax) {
    layout.large_chunks = (kBufferBytes + kHeadroom + frame_bytes + kPage - 1) / kPage;
    const std::uint64_t most = kLargeBytesMax / queues / (layout.large_chunks * kPage);
    layout.large_count = static_cast<std::uint32_t>(std::min<std::uint64_t>(layout.count, most));
  }
  for (std::uint32_t n = kXdpDescriptorsMax; n >= kXdpDescriptorsMin && layout.descriptors == 0; n /= 2)
    if (3 * n <= layout.count) layout.descriptors = n;
  return layout;
}

XdpPool::XdpPool(const XdpLayout& layout)
    : layout_(layout),
      bytes_((layout.count + std::uint64_t{layout.large_chunks} * layout.large_count) * layout.chunk_bytes),
      large_from_(std::uint64_t{layout.count} * layout.chunk_bytes),
      small_room_bytes_(layout.chunk_bytes - kBufferBytes),
      large_room_bytes_(small_room_bytes_) {
  if (!layout.has_large()) return;
  small_room_bytes_ = std::min(small_room_bytes_, kSmallRoomMax);
  large_room_bytes_ = layout.large_chunks * layout.chunk_bytes - kBufferBytes;
}

std::unique_ptr<XdpPool> XdpPool::create(const XdpLayout& layout, std::string& error) {
  std::unique_ptr<XdpPool> pool(new XdpPool(layout));
  void* const memory = mmap(nullptr, pool->bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    error = "no memory for " + std::to_string(pool->bytes_ >> 20) + " MiB of packet buffers: " + std::strerror(errno);
    return nullptr;
  }
  pool->memory_ = static_cast<std::byte*>(memory);
  if (pool->bytes_ >= kHugePage) madvise(memory, pool->bytes_, MADV_HUGEPAGE);
  pool->small_.reserve(layout.count);
  pool->large_.reserve(layout.large_count);
  // Those with the lowest addresses are taken first.
  const std::uint64_t large_bytes = std::uint64_t{layout.large_chunks} * layout.chunk_bytes;
  for (std::uint32_t i = layout.count; i-- != 0;)
    pool->construct(std::uint64_t{i} * layout.chunk_bytes, pool->small_room_bytes_, pool->small_);
  for (std::uint32_t i = layout.large_count; i-- != 0;)
    pool->construct(pool->large_from_ + i * large_bytes, pool->large_room_bytes_, pool->large_);
  return pool;
}

void XdpPool::construct(std::uint64_t address, std::uint32_t room_bytes, std::vector<Buffer*>& free) {
  auto* const buffer = new (memory_ + address) Buffer;
  buffer->room = memory_ + address + kBufferBytes;
  buffer->room_bytes = room_bytes;
  buffer->pool = this;
  free.push_back(buffer);
}

XdpPool::~XdpPool() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

unsigned XdpPool::take(Buffer** out, unsigned n) {
  const auto taken = static_cast<unsigned>(std::min<std::size_t>(n, small_.size()));
  for (unsigned i = 0; i < taken; ++i) {
    out[i] = small_.back();
    small_.pop_back();
    out[i]->start();
  }
  return taken;
}

Buffer* XdpPool::take_large() {
  std::vector<Buffer*>& free = layout_.has_large() ? large_ : small_;
  if (free.empty()) return nullptr;
  Buffer* const buffer = free.back();
  free.pop_back();
  buffer->start();
  return buffer;
}

void XdpPool::give(Buffer* const* buffers, unsigned n) {
  for (unsigned i = 0; i < n; ++i) {
    const bool is_small = buffers[i]->room < memory_ + large_from_;
    std::vector<Buffer*>& free = is_small ? small_ : large_;
    RNIC_ASSERT(free.size() < (is_small ? layout_.count : layout_.large_count));
    free.push_back(buffers[i]);
  }
}

Buffer* XdpPool::at(std::uint64_t address) const {
  RNIC_ASSERT(address < bytes_);
  std::uint64_t into = layout_.place_in_chunk(address);
  if (address >= large_from_) into = (address - large_from_) % (layout_.large_chunks * layout_.chunk_bytes);
  return std::launder(reinterpret_cast<Buffer*>(memory_ + address - into));
}

}  // namespace rnic::port
