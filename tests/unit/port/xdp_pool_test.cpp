// The memory that af_xdp's buffers are in: how it is divided, and what an address of the kernel's means.
#include "port/xdp_pool.hpp"

#include <vector>

#include "kit/catch.hpp"

namespace rnic::port {

TEST_CASE("af_xdp's rings are as long as buffers suffice for, and there are none with too few", "[port][xdp]") {
  CHECK(xdp_layout(1500, 16'384, 1).descriptors == 2048);
  CHECK(xdp_layout(1500, 3 * 2048, 1).descriptors == 2048);
  CHECK(xdp_layout(1500, 3 * 2048 - 1, 1).descriptors == 1024);
  CHECK(xdp_layout(1500, 16'384, 3).descriptors == 1024);
  for (const unsigned queues : {1u, 2u, 3u, 16u}) {
    INFO(queues << " queues");
    CHECK(xdp_layout(1500, xdp_buffers_least(queues), queues).descriptors == kXdpDescriptorsMin);
    CHECK(xdp_layout(1500, xdp_buffers_least(queues) - 1, queues).descriptors == 0);
  }
}

TEST_CASE("af_xdp's chunks hold a frame of the MTU where a page does, and several do where it does not",
          "[port][xdp]") {
  constexpr std::uint32_t kOverhead = XdpPool::kFrontBytes + XDP_PACKET_HEADROOM + 18;
  for (const std::uint32_t mtu : {576u, 1500u, 2048 - kOverhead, 2049 - kOverhead, kXdpChunkMtuMax}) {
    INFO("MTU " << mtu);
    const XdpLayout layout = xdp_layout(mtu, 8192, 1);
    CHECK(layout.chunk_bytes == (mtu <= 2048 - kOverhead ? 2048 : 4096));
    CHECK(layout.count == 8192);
    CHECK_FALSE(layout.has_large());
    CHECK(layout.large_count == 0);
  }
  for (const std::uint32_t mtu : {kXdpChunkMtuMax + 1, 9000u, 12'078u, 12'079u, 16'000u}) {
    INFO("MTU " << mtu);
    const XdpLayout layout = xdp_layout(mtu, 8192, 2);
    CHECK(layout.chunk_bytes == 4096);
    CHECK(layout.large_chunks == (mtu <= 12'078 ? mtu <= 3886 ? 1 : 3 : 4));
    CHECK(layout.large_count == 4096);
    std::string error;
    const auto pool = XdpPool::create(layout, error);
    REQUIRE(pool);
    CHECK(pool->room_bytes() >= mtu + 18);
    CHECK(pool->small_room_bytes() >= kSmallRoom);
  }
  // No more than 4 GiB, which older kernels can count.
  CHECK(xdp_layout(1500, 4'194'304, 1).count < (std::uint64_t{4} << 30) / 2048);
  // Locked memory has an end: 128 MiB of large ones, for all queues together.
  CHECK(xdp_layout(16'000, 1 << 20, 4).large_count == (std::uint32_t{128} << 20) / 4 / 16'384);
}

TEST_CASE("af_xdp's buffers of both classes are found again by any address in them", "[port][xdp]") {
  const XdpLayout layout = xdp_layout(9000, 768, 1);
  std::string error;
  const auto pool = XdpPool::create(layout, error);
  REQUIRE(pool);
  CHECK(pool->bytes() == (768 + 3 * 768) * 4096);
  std::vector<BufferRef> held;
  std::uint64_t highest = 0;
  for (const bool large : {false, true}) {
    const std::uint32_t count = large ? pool->large_available() : pool->available();
    REQUIRE(count == 768);
    for (std::uint32_t i = 0; i < count; ++i) {
      Buffer* one = nullptr;
      if (large) {
        one = pool->take_large();
      } else {
        REQUIRE(pool->take(&one, 1) == 1);
      }
      REQUIRE(one != nullptr);
      CHECK(is_large(*one) == large);
      CHECK(one->headroom() == kHeadroom);
      const std::uint64_t first = pool->address_of(*one) - one->head;
      for (const std::uint64_t address : {first, first + kHeadroom, first + one->room_bytes - 1})
        CHECK(pool->at(address) == one);
      highest = std::max(highest, first + one->room_bytes);
      held.emplace_back(one);
    }
    Buffer* none = nullptr;
    CHECK((large ? pool->take_large() == nullptr : pool->take(&none, 1) == 0));
  }
  CHECK(highest == pool->bytes());
  // What one held of a buffer is nobody's afterwards.
  held.back()->append(9000);
  held.back()->unit_bytes = 7;
  held.clear();
  CHECK(pool->available() == 768);
  CHECK(pool->large_available() == 768);
  for (unsigned i = 0; i < 768; ++i) {
    held.emplace_back(pool->take_large());
    CHECK(held.back()->length == 0);
    CHECK(held.back()->unit_bytes == 0);
  }
}

}  // namespace rnic::port
