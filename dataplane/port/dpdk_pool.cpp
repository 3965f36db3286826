#include "port/dpdk_pool.hpp"

#include <rte_errno.h>
#include <rte_mempool.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace rnic::port {
namespace {

constexpr std::uint16_t kPrivateBytes = 64;  // keeps the data's line alignment
constexpr unsigned kCacheMax = 256;          // buffers at hand per worker
constexpr std::size_t kHugePage = 2u << 20;

static_assert(sizeof(Buffer) <= kPrivateBytes, "Buffer fits the private area");
static_assert(kHeadroom == RTE_PKTMBUF_HEADROOM, "received frames have the headroom that fresh buffers have");
static_assert(sizeof(rte_mbuf) % 64 == 0);

void unmap(rte_mempool_memhdr* chunk, void*) { munmap(chunk->addr, chunk->len); }

// All objects behind each other in one mapping: `vdev:net_af_xdp` counts on it.
int populate_own(rte_mempool* pool, unsigned count) {
  std::size_t chunk_min = 0;
  std::size_t align = 0;
  const ssize_t needed = rte_mempool_op_calc_mem_size_default(pool, count, 0, &chunk_min, &align);
  if (needed <= 0) return static_cast<int>(needed);
  const std::size_t size = (static_cast<std::size_t>(needed) + kHugePage - 1) / kHugePage * kHugePage;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return -ENOMEM;
  madvise(memory, size, MADV_HUGEPAGE);
  const int populated = rte_mempool_populate_iova(pool, static_cast<char*>(memory), RTE_BAD_IOVA, size, unmap, nullptr);
  if (populated <= 0) munmap(memory, size);
  return populated;
}

void construct(rte_mempool*, void* owner, void* object, unsigned) {
  auto* mbuf = static_cast<rte_mbuf*>(object);
  auto* buffer = new (DpdkPool::to_buffer(mbuf)) Buffer;
  buffer->room = static_cast<std::byte*>(mbuf->buf_addr);
  buffer->room_bytes = mbuf->buf_len;
  buffer->pool = static_cast<DpdkPool*>(owner);
}

// Null: rte_errno says why. Of `handler`, if DPDK has it, the order in which they are taken.
rte_mempool* make_mempool(const std::string& name, std::uint32_t count, std::uint32_t room_bytes,
                          DpdkPool::Memory memory, unsigned cache, const char* handler) {
  rte_pktmbuf_pool_private layout{};
  layout.mbuf_data_room_size = static_cast<std::uint16_t>(kHeadroom + room_bytes);
  layout.mbuf_priv_size = kPrivateBytes;
  const unsigned element = static_cast<unsigned>(sizeof(rte_mbuf)) + kPrivateBytes + layout.mbuf_data_room_size;
  const unsigned flags = memory == DpdkPool::Memory::own ? RTE_MEMPOOL_F_NO_IOVA_CONTIG : 0;
  rte_mempool* pool =
      rte_mempool_create_empty(name.c_str(), count, element, cache, sizeof layout, SOCKET_ID_ANY, flags);
  if (pool == nullptr) return nullptr;
  if (rte_mempool_set_ops_byname(pool, handler, nullptr) != 0) rte_mempool_set_ops_byname(pool, "ring_mp_mc", nullptr);
  rte_pktmbuf_pool_init(pool, &layout);
  const int populated =
      memory == DpdkPool::Memory::own ? populate_own(pool, count) : rte_mempool_populate_default(pool);
  if (populated < static_cast<int>(count)) {
    rte_mempool_free(pool);
    rte_errno = populated < 0 ? -populated : ENOMEM;
    return nullptr;
  }
  rte_mempool_obj_iter(pool, rte_pktmbuf_init, nullptr);
  return pool;
}

}  // namespace

std::unique_ptr<DpdkPool> DpdkPool::create(const std::string& name, std::uint32_t count, std::uint32_t room_bytes,
                                           Memory memory, std::string& error) {
  // A small share of the pool, so that what lies in one worker's cache is not missed by another.
  const unsigned cache = std::min(kCacheMax, count / 16);
  rte_mempool* pool = make_mempool(name, count, room_bytes, memory, cache, "ring_mp_mc");
  if (pool == nullptr) {
    error = "no memory for " + std::to_string(count) + " packet buffers of " + std::to_string(room_bytes) +
            " bytes: " + rte_strerror(rte_errno);
    return nullptr;
  }
  std::unique_ptr<DpdkPool> created(new DpdkPool(pool, name, room_bytes, memory));
  rte_mempool_obj_iter(pool, construct, created.get());
  return created;
}

// Last in, first out, so that as many are touched as were ever in use at a time, and those in use stay in the cache.
bool DpdkPool::add_large(std::uint32_t count, std::uint32_t room_bytes) {
  RNIC_ASSERT(large_ == nullptr && room_bytes <= kRoomBytesMax);
  large_ = make_mempool(name_ + "_large", count, room_bytes, memory_, 0, "stack");
  if (large_ == nullptr) return false;
  large_room_bytes_ = room_bytes;
  rte_mempool_obj_iter(large_, construct, this);
  return true;
}

DpdkPool::~DpdkPool() {
  rte_mempool_free(pool_);
  rte_mempool_free(large_);
}

unsigned DpdkPool::take(Buffer** out, unsigned n) {
  auto** objects = reinterpret_cast<void**>(out);
  unsigned taken = n;
  if (rte_mempool_get_bulk(pool_, objects, n) != 0) {
    // All or nothing is the mempool's rule, not ours.
    taken = 0;
    while (taken < n && rte_mempool_get(pool_, &objects[taken]) == 0) ++taken;
  }
  for (unsigned i = 0; i < taken; ++i) {
    out[i] = to_buffer(reinterpret_cast<rte_mbuf*>(out[i]));
    out[i]->start();
  }
  return taken;
}

Buffer* DpdkPool::take_large() {
  void* object = nullptr;
  if (rte_mempool_get(large_ != nullptr ? large_ : pool_, &object) != 0) return nullptr;
  Buffer* const buffer = to_buffer(static_cast<rte_mbuf*>(object));
  buffer->start();
  return buffer;
}

Buffer* DpdkPool::gather(rte_mbuf* chain) {
  const std::uint32_t octets = chain->pkt_len;
  if (RTE_MBUF_DIRECT(chain) && octets - chain->data_len <= rte_pktmbuf_tailroom(chain))
    if (rte_pktmbuf_linearize(chain) == 0) return adopt(chain);
  BufferRef whole = BufferRef::take(*this, octets);
  // It may be longer than what is behind the headroom: headers are counted there, and received with the rest.
  if (whole && octets <= whole->room_bytes) {
    whole->head = std::min(kHeadroom, whole->room_bytes - octets);
    for (const rte_mbuf* each = chain; each != nullptr; each = each->next)
      std::memcpy(whole->append(each->data_len).data(), rte_pktmbuf_mtod(each, const std::byte*), each->data_len);
  } else {
    whole.reset();
  }
  rte_pktmbuf_free(chain);
  return whole.release();
}

void DpdkPool::give(Buffer* const* buffers, unsigned n) {
  for (unsigned i = 0; i < n; ++i) rte_pktmbuf_free_seg(to_mbuf(buffers[i]));
}

// Walks the workers' caches: not for every packet.
std::uint32_t DpdkPool::available() const { return rte_mempool_avail_count(pool_); }
std::uint32_t DpdkPool::large_available() const { return rte_mempool_avail_count(large_ != nullptr ? large_ : pool_); }

}  // namespace rnic::port
