#include "port/dpdk_pool.hpp"

#include <vector>

#include "kit/catch.hpp"
#include "port/dpdk_port.hpp"
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

}  // namespace rnic::port
