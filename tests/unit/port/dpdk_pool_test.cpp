#include "port/dpdk_pool.hpp"

#include <vector>

#include "kit/catch.hpp"
#include "port/dpdk_ethdev.hpp"
#include "port/dpdk_runtime.hpp"

namespace rnic::port {
namespace {

std::unique_ptr<DpdkPool> pool_of(std::uint32_t count, std::uint32_t room = 2048) {
  std::string error;
  REQUIRE(start_dpdk({}, error));
  auto pool = DpdkPool::create(fresh_device_name("test"), count, room, DpdkPool::Memory::own, error);
  INFO(error);
  REQUIRE(pool);
  return pool;
}

}  // namespace

TEST_CASE("a pool's buffer and its mbuf are one another plus a constant, with the same storage", "[port][dpdk]") {
  const auto pool = pool_of(8);
  const BufferRef buffer = BufferRef::take(*pool);
  rte_mbuf* mbuf = DpdkPool::to_mbuf(buffer.get());
  CHECK(DpdkPool::to_buffer(mbuf) == buffer.get());
  CHECK(rte_mbuf_to_priv(mbuf) == static_cast<void*>(buffer.get()));
  CHECK(static_cast<void*>(buffer->room) == mbuf->buf_addr);
  CHECK(buffer->room_bytes == mbuf->buf_len);
  CHECK(buffer->headroom() == kHeadroom);
  CHECK(buffer->tailroom() >= pool->room_bytes());
  CHECK(buffer->pool == pool.get());
}

TEST_CASE("a pool gives what it has, and no more", "[port][dpdk]") {
  const auto pool = pool_of(7);
  std::vector<Buffer*> taken(8);
  CHECK(pool->take(taken.data(), 8) == 7);
  CHECK(pool->available() == 0);
  CHECK(pool->take(&taken[7], 1) == 0);
  pool->give(taken.data(), 7);
  CHECK(pool->available() == 7);
}

TEST_CASE("a buffer that we still refer to outlives the driver's free", "[port][dpdk]") {
  const auto pool = pool_of(8);
  BufferRef kept = BufferRef::take(*pool);
  kept->append(60);
  CHECK_FALSE(pool->shared(*kept));

  rte_mbuf* sent = DpdkPool::lend(kept.share().release());
  CHECK(kept->refs == 1);
  CHECK(pool->shared(*kept));  // the driver reads it

  rte_pktmbuf_free(sent);
  CHECK_FALSE(pool->shared(*kept));
  CHECK(pool->available() == 7);
  kept.reset();
  CHECK(pool->available() == 8);
}

TEST_CASE("a buffer that a driver still sends outlives our last reference", "[port][dpdk]") {
  const auto pool = pool_of(8);
  BufferRef kept = BufferRef::take(*pool);
  rte_mbuf* sent = DpdkPool::lend(kept.share().release());
  kept.reset();
  CHECK(pool->available() == 7);
  rte_pktmbuf_free(sent);
  CHECK(pool->available() == 8);
}

TEST_CASE("a buffer given away whole is the driver's alone", "[port][dpdk]") {
  const auto pool = pool_of(8);
  rte_mbuf* sent = DpdkPool::lend(BufferRef::take(*pool).release());
  CHECK(rte_mbuf_refcnt_read(sent) == 1);
  rte_pktmbuf_free(sent);
  CHECK(pool->available() == 8);
}

TEST_CASE("a buffer sent again while a driver still has it is freed by the last of the three", "[port][dpdk]") {
  const auto pool = pool_of(8);
  BufferRef kept = BufferRef::take(*pool);
  rte_mbuf* once = DpdkPool::lend(kept.share().release());
  rte_mbuf* again = DpdkPool::lend(kept.release());
  CHECK(once == again);
  CHECK(rte_mbuf_refcnt_read(once) == 2);
  rte_pktmbuf_free(once);
  CHECK(pool->available() == 7);
  rte_pktmbuf_free(again);
  CHECK(pool->available() == 8);
}

TEST_CASE("a frame that the driver did not take is ours as before", "[port][dpdk]") {
  const auto pool = pool_of(8);
  BufferRef kept = BufferRef::take(*pool);
  SECTION("the only reference") {
    Buffer* buffer = kept.release();
    DpdkPool::lend(buffer);
    DpdkPool::take_back(buffer);
    kept = BufferRef(buffer);
  }
  SECTION("one of two") {
    Buffer* buffer = kept.share().release();
    DpdkPool::lend(buffer);
    DpdkPool::take_back(buffer);
    CHECK(kept->refs == 2);
    BufferRef other(buffer);
  }
  CHECK(kept->refs == 1);
  CHECK_FALSE(pool->shared(*kept));
  kept.reset();
  CHECK(pool->available() == 8);
}

TEST_CASE("headers taken off after the sending do not change what is sent", "[port][dpdk]") {
  const auto pool = pool_of(8);
  BufferRef kept = BufferRef::take(*pool);
  kept->append(100);
  kept->prepend(54);
  rte_mbuf* sent = DpdkPool::lend(kept.share().release());
  kept->trim_front(54);
  CHECK(sent->data_off == kHeadroom - 54);
  CHECK(sent->pkt_len == 154);
  CHECK(sent->nb_segs == 1);
  rte_pktmbuf_free(sent);
}

TEST_CASE("a received mbuf becomes a buffer with one reference", "[port][dpdk]") {
  const auto pool = pool_of(8);
  rte_mbuf* mbuf = rte_pktmbuf_alloc(pool->mempool());
  rte_pktmbuf_append(mbuf, 77);
  BufferRef received(DpdkPool::adopt(mbuf));
  CHECK(received->length == 77);
  CHECK(received->bytes().data() == rte_pktmbuf_mtod(mbuf, std::byte*));
  CHECK_FALSE(pool->shared(*received));
  received.reset();
  CHECK(pool->available() == 8);
}

TEST_CASE("large buffers are a class of their own, and each goes back to its class", "[port][dpdk]") {
  const auto pool = pool_of(4);
  CHECK(pool->room_bytes() == pool->small_room_bytes());
  REQUIRE(pool->add_large(3, DpdkPool::kRoomBytesMax));
  CHECK(pool->room_bytes() == DpdkPool::kRoomBytesMax);
  CHECK(pool->small_room_bytes() == 2048);
  std::vector<BufferRef> all;
  for (int i = 0; i < 3; ++i) {
    all.emplace_back(pool->take_large());
    REQUIRE(all.back());
    CHECK(all.back()->tailroom() == DpdkPool::kRoomBytesMax);
    CHECK(is_large(*all.back()));
    CHECK(DpdkPool::to_mbuf(all.back().get())->buf_len == all.back()->room_bytes);
  }
  CHECK(pool->take_large() == nullptr);
  CHECK(pool->available() == 4);
  CHECK(pool->large_available() == 0);
  all.pop_back();
  CHECK(pool->large_available() == 1);
  const BufferRef small = BufferRef::take(*pool, 2048), large = BufferRef::take(*pool, 2049);
  CHECK_FALSE(is_large(*small));
  CHECK(is_large(*large));
  CHECK(pool->available() == 3);
  CHECK(pool->large_available() == 0);
  all.clear();
  CHECK(pool->large_available() == 2);
}

TEST_CASE("where there is no memory for large buffers, there is one class as before", "[port][dpdk]") {
  std::string error;
  REQUIRE(start_dpdk({}, error));
  const auto pool = DpdkPool::create(fresh_device_name("test"), 8, 2048, DpdkPool::Memory::eal, error);
  REQUIRE(pool);
  CHECK_FALSE(pool->add_large(1u << 20, DpdkPool::kRoomBytesMax));
  CHECK(pool->room_bytes() == 2048);
  CHECK(pool->large_available() == 8);
  CHECK(pool->add_large(4, DpdkPool::kRoomBytesMax));
}

namespace {
// As a driver makes it of small ones; octet i is i.
rte_mbuf* chain_of(DpdkPool& pool, std::uint32_t octets) {
  rte_mbuf* chain = rte_pktmbuf_alloc(pool.mempool());
  for (std::uint32_t i = 0; i < octets; ++i) {
    auto* at = reinterpret_cast<std::uint8_t*>(rte_pktmbuf_append(chain, 1));
    if (at == nullptr) {
      rte_mbuf* const next = rte_pktmbuf_alloc(pool.mempool());
      REQUIRE(next != nullptr);
      at = reinterpret_cast<std::uint8_t*>(rte_pktmbuf_append(next, 1));
      REQUIRE(rte_pktmbuf_chain(chain, next) == 0);
    }
    *at = static_cast<std::uint8_t>(i);
  }
  return chain;
}
bool counts(const Buffer& buffer, std::uint32_t octets) {
  if (buffer.length != octets) return false;
  for (std::uint32_t i = 0; i < octets; ++i)
    if (buffer.bytes()[i] != std::byte(i & 0xff)) return false;
  return true;
}
}  // namespace

TEST_CASE("a chain is put together, in a large buffer if it is long, and nothing of it is left", "[port][dpdk]") {
  const auto pool = pool_of(40);
  REQUIRE(pool->add_large(2, DpdkPool::kRoomBytesMax));
  for (const std::uint32_t octets : {1u, 2048u, 2049u, 9000u, DpdkPool::kRoomBytesMax, DpdkPool::kRoomBytesMax + 128}) {
    const BufferRef whole(pool->take_in(chain_of(*pool, octets)));
    REQUIRE(whole);
    CHECK(counts(*whole, octets));
    CHECK(is_large(*whole) == (octets > 2048));
    CHECK(pool->available() == (octets > 2048 ? 40u : 39u));
  }
  CHECK(pool->take_in(chain_of(*pool, DpdkPool::kRoomBytesMax + 129)) == nullptr);
  const BufferRef one(pool->take_large()), two(pool->take_large());
  CHECK(pool->take_in(chain_of(*pool, 9000)) == nullptr);
  CHECK(pool->available() == 40);
}

TEST_CASE("a chain that fits the first of it stays there", "[port][dpdk]") {
  const auto pool = pool_of(8);
  rte_mbuf* const chain = chain_of(*pool, 100);
  rte_mbuf* const next = rte_pktmbuf_alloc(pool->mempool());
  *reinterpret_cast<std::uint8_t*>(rte_pktmbuf_append(next, 1)) = 100;
  REQUIRE(rte_pktmbuf_chain(chain, next) == 0);
  const BufferRef whole(pool->take_in(chain));
  REQUIRE(whole);
  CHECK(DpdkPool::to_mbuf(whole.get()) == chain);
  CHECK(counts(*whole, 101));
  CHECK(pool->available() == 7);
}

TEST_CASE("octets that a driver has elsewhere are copied, and where they were is free again", "[port][dpdk]") {
  const auto pool = pool_of(8);
  REQUIRE(pool->add_large(2, DpdkPool::kRoomBytesMax));
  static unsigned freed;
  freed = 0;
  std::vector<std::uint8_t> elsewhere(9000);
  for (std::size_t i = 0; i < elsewhere.size(); ++i) elsewhere[i] = static_cast<std::uint8_t>(i);
  for (const std::uint16_t octets : {std::uint16_t{60}, std::uint16_t{9000}}) {
    rte_mbuf_ext_shared_info info{};
    info.free_cb = [](void*, void*) { ++freed; };
    rte_mbuf_ext_refcnt_set(&info, 1);
    rte_mbuf* const mbuf = rte_pktmbuf_alloc(pool->mempool());
    rte_pktmbuf_attach_extbuf(mbuf, elsewhere.data(), RTE_BAD_IOVA, octets, &info);
    mbuf->data_off = 0;
    mbuf->data_len = octets;
    mbuf->pkt_len = octets;
    const BufferRef whole(pool->take_in(mbuf));
    REQUIRE(whole);
    CHECK(counts(*whole, octets));
  }
  CHECK(freed == 2);
  CHECK(pool->available() == 8);
  CHECK(pool->large_available() == 2);
}

}  // namespace rnic::port
