// Octets one by one, as a wire brings them: Ethernet pads a frame to 60 octets, so other octets lie behind them.
#include <algorithm>
#include <numeric>

#include "kit/catch.hpp"
#include "kit/tcp_conversation.hpp"
#include "tcp/keeper.hpp"
#include "tcp/receive_queue.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

constexpr std::uint32_t kAll = 4096;  // buffers of a conversation

void hears_padded(Conversation& c, std::uint32_t sequence, const std::string& text) {
  tcp::SegmentIn in = c.incoming(data(sequence, text));
  if (text.size() < 6) std::memset(in.buffer->append(6 - static_cast<std::uint32_t>(text.size())).data(), 0x5A, 1);
  c->on_segment(std::move(in), c.now());
  c->end_of_burst();
  while (c.next()) {
  }
}

std::uint32_t held(Conversation& c) { return kAll - c.pool().available(); }

}  // namespace

TEST_CASE("W-TCP-06: the largest FPDU octet by octet in padded frames does not use up the slots", "[tcp][W-TCP-06]") {
  tcp::Options options;
  options.receive_segments_max = 128;
  auto c = Conversation::established(options);
  const std::string fpdu = pattern(64776);
  for (std::uint32_t i = 0; i < fpdu.size(); ++i) hears_padded(c, 1 + i, fpdu.substr(i, 1));
  CHECK(c->received() == fpdu.size());
  CHECK(c->counters().dropped_no_room == 0);
  CHECK(c->kept().all() == held(c));
  CHECK(held(c) < 128);
  CHECK(c.reads() == fpdu);
  CHECK(c->kept().all() == 0);
  CHECK(held(c) == 0);
}

TEST_CASE("W-TCP-09: small pieces beyond a gap lie together, in whatever order they come",
          "[tcp][W-TCP-09][W-TCP-26]") {
  const bool padded = GENERATE(true, false);
  const std::string text = pattern(1000);
  std::vector<std::uint32_t> order(text.size() - 1);
  std::iota(order.begin(), order.end(), 1);
  SECTION("in order") {}
  SECTION("backwards") { std::reverse(order.begin(), order.end()); }
  SECTION("every other first") {
    std::stable_partition(order.begin(), order.end(), [](std::uint32_t i) { return i % 2 == 0; });
  }
  SECTION("any") {
    std::uint32_t chance = 1;
    for (std::size_t i = order.size() - 1; i > 0; --i) {
      chance = chance * 1664525 + 1013904223;
      std::swap(order[i], order[(chance >> 8) % (i + 1)]);
    }
  }
  auto c = Conversation::established();
  for (const std::uint32_t i : order) {
    if (padded)
      hears_padded(c, 1 + i, text.substr(i, 1));
    else
      c.hears(data(1 + i, text.substr(i, 1)));
  }
  CHECK(c->received() == 0);
  CHECK(c->kept().all() == held(c));
  CHECK(held(c) == 1);
  hears_padded(c, 1, text.substr(0, 1));
  CHECK(c->received() == text.size());
  CHECK(c->kept().all() == held(c));
  CHECK(held(c) <= 3);
  CHECK(c.reads() == text);
  CHECK(c->kept().all() == 0);
  CHECK(held(c) == 0);
}

TEST_CASE("W-TCP-09: more small pieces than there are slots are kept where they follow each other", "[tcp][W-TCP-09]") {
  tcp::Options options;
  options.out_of_order_segments_max = 8;
  auto c = Conversation::established(options);
  const std::string text = pattern(30'000);
  // The buffers in which they lie are cut at 2,048: so many pieces of 10 octets are in each.
  for (std::uint32_t i = 10; i < 15'000; i += 10) hears_padded(c, 1 + i, text.substr(i, 10));
  CHECK(c->counters().dropped_no_room == 0);
  CHECK(held(c) == 8);
  CHECK(c->kept().all() == 8);
  hears_padded(c, 1, text.substr(0, 10));
  CHECK(c->received() == 15'000);
  CHECK(c.reads() == text.substr(0, 15'000));
  CHECK(held(c) == 0);
}

TEST_CASE("W-TCP-26: where buffers are scarce small pieces in order lie together from the first on",
          "[tcp][W-TCP-26]") {
  auto c = Conversation::established();
  const std::string text = pattern(300);
  for (std::uint32_t i = 0; i < 100; ++i) hears_padded(c, 1 + i, text.substr(i, 1));
  CHECK(held(c) == 100);
  c->join_small_pieces();
  for (std::uint32_t i = 100; i < 300; ++i) hears_padded(c, 1 + i, text.substr(i, 1));
  CHECK(held(c) == 101);
  CHECK(c->kept().all() == 101);
  CHECK(c.reads() == text);
  CHECK(held(c) == 0);
}

TEST_CASE("W-TCP-26: pieces that fill little of a large buffer lie together until all is consumed", "[tcp][W-TCP-26]") {
  HeapPool pool(PoolSize{.count = 64, .room_bytes = 1518, .large_count = 64, .large_room_bytes = 65'000});
  tcp::Keeper keeper;
  tcp::ReceiveQueue queue(256, keeper);
  std::uint8_t next = 0;
  const auto comes = [&](std::uint32_t octets) {
    BufferRef buffer(pool.take_large());
    const MutableBytes room = buffer->append(octets);
    for (auto& octet : room) octet = static_cast<std::byte>(next++);
    REQUIRE(queue.push(std::move(buffer), room));
  };
  const auto is_right = [&] {
    std::uint8_t expected = 0;
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < queue.count(); ++i)
      for (const std::byte octet : queue.span(i)) wrong += octet != static_cast<std::byte>(expected++);
    return wrong == 0 && expected == next;
  };
  for (int i = 0; i < 4; ++i) comes(2896);
  CHECK(keeper.kept().large == 4);
  queue.pack();
  for (int i = 0; i < 22; ++i) comes(2896);  // as many as fit
  CHECK(keeper.kept().large == 5);
  CHECK(queue.count() == 5);
  CHECK(is_right());
  SECTION("one that would not fit begins another, and one that fills more than a quarter is kept as it came") {
    comes(2896);
    CHECK(keeper.kept().large == 6);
    comes(17'000);
    CHECK(keeper.kept().large == 7);
    comes(2896);
    CHECK(keeper.kept().large == 7);
    CHECK(is_right());
  }
  SECTION("when all is consumed they stay where they come again") {
    queue.consume(26 * 2896);
    CHECK(keeper.kept().all() == 0);
    next = 0;
    for (int i = 0; i < 3; ++i) comes(2896);
    CHECK(keeper.kept().large == 3);
    CHECK(is_right());
  }
  queue.clear();
  CHECK(keeper.kept().all() == 0);
}

TEST_CASE("W-TCP-09: so many pieces beyond a gap as are allowed are kept, and those that were stay",
          "[tcp][W-TCP-09][W-TCP-26]") {
  auto c = Conversation::established();
  for (std::uint32_t i = 1; i <= 10; ++i) c.hears(data(1 + 1000 * i, pattern(600, 1000 * i)));
  c->limit_beyond(4);
  c.hears(data(11'001, pattern(600)));
  CHECK(c->beyond_count() == 10);
  CHECK(c->counters().dropped_no_room == 1);
  c.hears(data(1, pattern(1000)));  // up to 1600
  CHECK(c->received() == 1600);
  CHECK(c->beyond_count() == 9);
  c->limit_beyond(10);
  c.hears(data(11'001, pattern(600)));
  CHECK(c->beyond_count() == 10);
}

TEST_CASE("a buffer of copied pieces is counted until the last of them is released, in whatever order", "[tcp]") {
  HeapPool pool(16, 2048);
  tcp::Keeper keeper;
  const std::string text = pattern(512);
  const Bytes octets = std::as_bytes(std::span(text));
  std::vector<tcp::Keeper::Copy> copies;
  for (int i = 0; i < 8; ++i)
    copies.push_back(keeper.copy(tcp::Keeper::Where::beyond, octets, pool));  // four to a buffer
  CHECK(keeper.kept().small == 2);
  CHECK(pool.available() == 14);
  const BufferRef reader = copies[1].buffer.share();  // somebody who still reads there
  for (const std::size_t i : {2u, 0u, 5u, 6u, 7u, 1u}) keeper.release(copies[i].buffer, true);
  CHECK(keeper.kept().small == 2);
  keeper.release(copies[3].buffer, true);
  CHECK(keeper.kept().small == 1);
  keeper.release(copies[4].buffer, true);
  CHECK(keeper.kept().small == 0);
  CHECK(pool.available() == 15);
}

TEST_CASE("where no buffer is to be had a small piece stays where it came", "[tcp]") {
  HeapPool pool(2, 2048);
  tcp::Keeper keeper;
  const BufferRef one = BufferRef::take(pool), other = BufferRef::take(pool);
  const std::string text = "abc";
  CHECK_FALSE(keeper.copy(tcp::Keeper::Where::in_order, std::as_bytes(std::span(text)), pool).buffer);
  CHECK(keeper.kept().all() == 0);
}
