// Pools of two classes, and what of them is in memory.
#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "base/buffer.hpp"
#include "host/data_pool.hpp"
#include "kit/catch.hpp"

namespace rnic {
namespace {

constexpr std::uint32_t kLongFrame = 65'535 + 18;

// Octets of a buffer's room that are in memory, in whole pages.
std::size_t resident(const Buffer& buffer) {
  const auto first = reinterpret_cast<std::uintptr_t>(buffer.room) / 4096 * 4096;
  const auto end = (reinterpret_cast<std::uintptr_t>(buffer.room) + buffer.room_bytes) / 4096 * 4096;
  std::vector<unsigned char> pages((end - first) / 4096);
  REQUIRE(mincore(reinterpret_cast<void*>(first), end - first, pages.data()) == 0);
  std::size_t there = 0;
  for (const unsigned char page : pages) there += (page & 1) != 0 ? 4096 : 0;
  return there;
}

void fill(Buffer& buffer) { std::memset(buffer.append(buffer.tailroom()).data(), 1, buffer.tailroom()); }

}  // namespace

TEST_CASE("where frames are long a pool has two classes of buffers, and each gets its own back", "[buffers]") {
  HeapPool pool(pool_size_for(64, kLongFrame));
  REQUIRE(pool.available() == 64);
  REQUIRE(pool.large_available() == 64);
  CHECK(pool.room_bytes() == kLongFrame);
  CHECK(pool.small_room_bytes() == 1518);
  BufferRef ack = BufferRef::take(pool, 0), usual = BufferRef::take(pool, 1518), over = BufferRef::take(pool, 1519),
            longest = BufferRef::take(pool, kLongFrame);
  CHECK(pool.available() == 62);
  CHECK(pool.large_available() == 62);
  CHECK(ack->tailroom() == 1518);
  CHECK(usual->tailroom() >= 1518);
  CHECK(over->tailroom() == kLongFrame);
  CHECK(longest->tailroom() == kLongFrame);
  usual.reset();
  longest.reset();
  CHECK(pool.available() == 63);
  CHECK(pool.large_available() == 63);
}

TEST_CASE("a short frame takes a large buffer when there is no small one; a long one takes no small one", "[buffers]") {
  HeapPool pool(PoolSize{.count = 2, .room_bytes = 1518, .large_count = 2, .large_room_bytes = 9000});
  std::vector<BufferRef> held;
  for (int i = 0; i < 3; ++i) held.push_back(BufferRef::take(pool, 100));
  CHECK(held.back());
  CHECK(pool.available() == 0);
  CHECK(pool.large_available() == 1);
  held.push_back(BufferRef::take(pool, 9000));
  CHECK_FALSE(BufferRef::take(pool, 9000));
  CHECK_FALSE(BufferRef::take(pool, 100));
  held.clear();
  held.push_back(BufferRef::take(pool, 9000));
  held.push_back(BufferRef::take(pool, 9000));
  CHECK_FALSE(BufferRef::take(pool, 9000));
  CHECK(pool.available() == 2);
}

TEST_CASE("where frames are short a pool has one class", "[buffers]") {
  HeapPool pool(pool_size_for(8, 1518));
  std::vector<BufferRef> held;
  for (int i = 0; i < 4; ++i) held.push_back(BufferRef::take(pool, 1518));
  for (int i = 0; i < 4; ++i) held.push_back(BufferRef(pool.take_large()));
  CHECK(held.back());
  CHECK(pool.available() == 0);
  CHECK(pool.large_available() == 0);
  CHECK_FALSE(BufferRef::take(pool));
}

TEST_CASE("large buffers are bounded by their octets, whatever the number of frames", "[buffers]") {
  const PoolSize size = pool_size_for(16'384, kLongFrame);
  CHECK(size.count == 16'384);
  CHECK(size.large_count < 16'384);
  CHECK(std::uint64_t{size.large_count} * kLongFrame <= kLargeBytesMax);
  CHECK(std::uint64_t{size.large_count + 1} * (kLongFrame + kHeadroom) > kLargeBytesMax);
}

TEST_CASE("a pool's memory follows use: what was never used is not there, what is not used any more goes",
          "[buffers]") {
  HeapPool pool(pool_size_for(16'384, kLongFrame));
  const std::uint32_t all = pool.large_available();
  std::vector<BufferRef> used;
  for (int i = 0; i < 8; ++i) {
    used.push_back(BufferRef::take(pool, kLongFrame));
    fill(*used.back());
  }
  CHECK(pool.touched() == 8);
  std::vector<const Buffer*> buffers;
  for (const BufferRef& each : used) {
    CHECK(resident(*each) >= 60'000);
    buffers.push_back(each.get());
  }
  used.clear();
  // One at a time is always the same one.
  for (int i = 0; i < 100; ++i) BufferRef::take(pool, kLongFrame).reset();
  CHECK(pool.touched() == 8);

  pool.release_unused();  // all were used since the call before this
  CHECK(pool.touched() == 8);
  BufferRef busy = BufferRef::take(pool, kLongFrame);
  pool.release_unused();
  CHECK(pool.touched() == 1);
  std::size_t there = 0;
  for (const Buffer* each : buffers) there += each == busy.get() ? 0 : resident(*each);
  CHECK(there == 0);
  CHECK(resident(*busy) >= 60'000);
  CHECK(pool.large_available() == all - 1);
  // They can be used again.
  for (int i = 0; i < 8; ++i) {
    used.push_back(BufferRef::take(pool, kLongFrame));
    fill(*used.back());
  }
  CHECK(pool.touched() == 9);
}

TEST_CASE("who touches a large buffer brings no other into memory", "[buffers]") {
  HeapPool pool(pool_size_for(16'384, kLongFrame));
  std::vector<BufferRef> others;
  for (int i = 0; i < 64; ++i) others.push_back(BufferRef::take(pool, kLongFrame));
  fill(*others[32]);
  std::size_t there = 0;
  for (int i = 0; i < 64; ++i) there += i == 32 ? 0 : resident(*others[static_cast<std::size_t>(i)]);
  CHECK(there == 0);
  CHECK(resident(*others[32]) >= 60'000);
}

TEST_CASE("transmitted data may hold three quarters of each class, and what is short of one is told of it alone",
          "[buffers][core]") {
  HeapPool whole(PoolSize{.count = 100, .room_bytes = 1518, .large_count = 8, .large_room_bytes = 9000});
  host::DataPool data(whole);
  BufferRef small = BufferRef::take(whole, 100), large = BufferRef::take(whole, 9000);
  data.refresh();
  std::vector<BufferRef> held;
  while (BufferRef one = BufferRef(data.take_large())) held.push_back(std::move(one));
  CHECK(held.size() == 5);  // of 8 less 1, 2 are kept back
  CHECK(data.large_available() == 0);
  CHECK_FALSE(data.may_keep({.small = 8, .large = 3}, *large));
  CHECK(data.may_keep({.small = 8, .large = 3}, *small));
  CHECK(data.has_some_for({.small = 8, .large = 3}));
  CHECK_FALSE(BufferRef::take(data, 9000));
  CHECK(BufferRef::take(data, 1518));
  data.refresh();
  for (int i = 0; i < 74; ++i) held.push_back(BufferRef::take(data, 100));
  CHECK(held.back());
  CHECK_FALSE(BufferRef::take(data, 100));
  CHECK_FALSE(data.has_some_for({.small = 8, .large = 3}));
  CHECK(whole.available() == 25);
  CHECK(whole.large_available() == 2);
}

}  // namespace rnic
