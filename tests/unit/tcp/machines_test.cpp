// The small machines inside a connection, each alone: round-trip time, the retransmit queue,
// reassembly, the limit on answers. Congestion windows are in congestion_test.cpp, losses found by
// time in rack_test.cpp.
#include <algorithm>

#include "kit/catch.hpp"
#include "tcp/rate_limit.hpp"
#include "tcp/reassembly.hpp"
#include "tcp/rtt.hpp"
#include "tcp/send_queue.hpp"

using namespace rnic;
using namespace rnic::tcp;

namespace {
constexpr Instant kStart{seconds(10).ns};

RttEstimator estimator() { return {seconds(1), milliseconds(200), seconds(60)}; }

BufferRef octets(HeapPool& pool, std::uint32_t count) {
  BufferRef b = BufferRef::take(pool);
  b->append(count);
  return b;
}

// So many segments of 10 octets, from 0.
void send(SendQueue& queue, HeapPool& pool, int count) {
  queue.start(Seq{0});
  for (int i = 0; i < count; ++i) queue.append(octets(pool, 10));
  for (int i = 0; i < count; ++i) queue.on_sent(kStart);
}

Delivered acknowledged(SendQueue& queue, Seq ack) {
  Delivered delivered;
  queue.acknowledge(ack, delivered);
  return delivered;
}
}  // namespace

TEST_CASE("W-TCP-21: order of sequence numbers survives the wrap", "[tcp][W-TCP-21]") {
  CHECK(Seq{0xFFFFFFFF}.before(Seq{0}));
  CHECK(Seq{0}.after(Seq{0xFFFFFFFF}));
  CHECK(Seq{0x7FFFFFFF}.after(Seq{0}));
  CHECK(Seq{5}.since(Seq{0xFFFFFFFB}) == 10);
  CHECK(Seq{0xFFFFFFFE} + 3 == Seq{1});
  CHECK_FALSE(Seq{7}.before(Seq{7}));
}

TEST_CASE("W-TCP-01: the timeout is one second until something is measured", "[tcp][W-TCP-01]") {
  auto rtt = estimator();
  CHECK(rtt.rto() == seconds(1));
  rtt.sample(milliseconds(500));
  CHECK(rtt.smoothed() == milliseconds(500));
  CHECK(rtt.rto() == milliseconds(1500));  // R + 4 * R/2 (RFC 6298 s2.2)
}

TEST_CASE("W-TCP-01: later samples weigh an eighth and a quarter", "[tcp][W-TCP-01]") {
  auto rtt = estimator();
  rtt.sample(milliseconds(800));
  rtt.sample(milliseconds(400));
  // RTTVAR = 3/4 * 400 + 1/4 * 400 = 400, SRTT = 7/8 * 800 + 1/8 * 400 = 750 (s2.3).
  CHECK(rtt.smoothed() == milliseconds(750));
  CHECK(rtt.rto() == milliseconds(750 + 4 * 400));
}

TEST_CASE("W-TCP-01: the timeout is never below its least nor above its most", "[tcp][W-TCP-01]") {
  auto rtt = estimator();
  for (int i = 0; i < 100; ++i) rtt.sample(microseconds(20));
  CHECK(rtt.rto() == milliseconds(200));
  for (int i = 0; i < 40; ++i) rtt.back_off();
  CHECK(rtt.rto() == seconds(60));
  rtt.sample(microseconds(20));
  CHECK(rtt.rto() == milliseconds(200));
}

TEST_CASE("W-TCP-01: after a lost SYN data begins with three times the timeout", "[tcp][W-TCP-01]") {
  auto rtt = estimator();
  rtt.back_off();
  rtt.on_handshake_loss(seconds(1));
  CHECK(rtt.rto() == seconds(3));
}

TEST_CASE("W-TCP-01: a queue knows its octets in the network", "[tcp][W-TCP-01]") {
  HeapPool pool(64, 2048);
  SendQueue queue(16);
  queue.start(Seq{0xFFFFFFF0});
  for (int i = 0; i < 6; ++i) CHECK(queue.append(octets(pool, 10)));
  CHECK(queue.unsent_bytes() == 60);
  for (int i = 0; i < 6; ++i) queue.on_sent(kStart);
  CHECK(queue.unsent_bytes() == 0);
  CHECK(queue.pipe_bytes() == 60);
  const Seq start{0xFFFFFFF0};
  Delivered delivered;
  CHECK(queue.sack(start + 20, start + 60, delivered));
  CHECK_FALSE(queue.sack(start + 20, start + 60, delivered));
  CHECK(delivered.octets == 40);
  CHECK(delivered.acknowledged == 0);
  CHECK(queue.pipe_bytes() == 20);
  CHECK(queue.detect_losses({kStart, start + 60, Duration{0}}, kStart).found);
  CHECK(queue.pipe_bytes() == 0);
  REQUIRE(queue.first_lost());
  queue.on_retransmitted(*queue.first_lost(), kStart);
  CHECK(queue.pipe_bytes() == 10);
  REQUIRE(queue.first_lost());
  queue.on_retransmitted(*queue.first_lost(), kStart);
  CHECK_FALSE(queue.first_lost());
  Delivered rest;
  queue.acknowledge(start + 60, rest);
  CHECK(rest.acknowledged == 60);
  CHECK(rest.octets == 20);
  CHECK_FALSE(rest.sampled);
  CHECK(queue.pipe_bytes() == 0);
  CHECK(queue.empty());
  CHECK(pool.available() == 64);
}

TEST_CASE("W-TCP-12: a block that covers a part of a segment does not cover the segment", "[tcp][W-TCP-12]") {
  HeapPool pool(64, 2048);
  SendQueue queue(16);
  send(queue, pool, 4);
  Delivered delivered;
  CHECK_FALSE(queue.sack(Seq{11}, Seq{19}, delivered));
  CHECK(queue.pipe_bytes() == 40);
  CHECK(queue.sack(Seq{11}, Seq{35}, delivered));  // the third whole, the second and fourth in part
  CHECK(queue.pipe_bytes() == 30);
}

TEST_CASE("W-TCP-12: the highest octet that is at the peer stays so when lower ones arrive",
          "[tcp][rfc8985][W-TCP-12]") {
  HeapPool pool(64, 2048);
  SendQueue queue(16);
  send(queue, pool, 6);
  CHECK(queue.forward() == Seq{0});
  Delivered delivered;
  CHECK(queue.sack(Seq{30}, Seq{40}, delivered));
  CHECK(queue.forward() == Seq{40});
  CHECK(queue.sack(Seq{10}, Seq{20}, delivered));
  CHECK(queue.forward() == Seq{40});
  CHECK(queue.sack(Seq{40}, Seq{50}, delivered));
  CHECK(queue.forward() == Seq{50});
  CHECK(queue.sacked_count() == 3);
  acknowledged(queue, Seq{50});
  CHECK(queue.forward() == Seq{50});
  CHECK(queue.sacked_count() == 0);
}

TEST_CASE("W-TCP-12: a peer that drops what it had SACKed has nothing of it, however lately it was sent",
          "[tcp][rfc2018][W-TCP-12]") {
  HeapPool pool(64, 2048);
  SendQueue queue(16);
  send(queue, pool, 3);
  Delivered delivered;
  SECTION("it has not acknowledged what it SACKed") {
    REQUIRE(queue.sack(Seq{0}, Seq{20}, delivered));
    queue.mark_lost_after_timeout(seconds(1), kStart);
    CHECK(queue.sacked_count() == 0);
    CHECK(queue.pipe_bytes() == 0);
  }
  SECTION("where it keeps its word patience counts") {
    REQUIRE(queue.sack(Seq{10}, Seq{20}, delivered));
    queue.mark_lost_after_timeout(milliseconds(5), kStart + milliseconds(4));
    CHECK(queue.sacked_count() == 1);
    CHECK(queue.pipe_bytes() == 10);  // the last is out still
    queue.mark_lost_after_timeout(milliseconds(5), kStart + milliseconds(5));
    CHECK(queue.pipe_bytes() == 0);
  }
}

TEST_CASE("W-TCP-27: cutting keeps octets, order and marks", "[tcp][W-TCP-27]") {
  HeapPool pool(64, 2048);
  SendQueue queue(8);
  queue.start(Seq{0});
  for (int i = 0; i < 3; ++i) queue.append(octets(pool, 10));
  for (int i = 0; i < 2; ++i) queue.on_sent(kStart);
  queue.mark_lost_after_timeout(Duration{0}, kStart);
  CHECK(queue.cut(queue.oldest(), 4));
  CHECK(queue.sent_count() == 3);
  CHECK(queue.at(queue.oldest()).length == 4);
  CHECK(queue.at(queue.oldest() + 1).length == 6);
  CHECK(queue.at(queue.oldest() + 1).sequence == Seq{4});
  CHECK(queue.at(queue.oldest() + 2).sequence == Seq{10});
  CHECK(queue.at(queue.oldest() + 3).sequence == Seq{20});
  CHECK(queue.unsent_bytes() == 10);
  for (int i = 0; i < 3; ++i) {
    REQUIRE(queue.first_lost());
    queue.on_retransmitted(*queue.first_lost(), kStart);
  }
  CHECK_FALSE(queue.first_lost());
  CHECK(queue.pipe_bytes() == 20);
  CHECK(acknowledged(queue, Seq{20}).acknowledged == 20);
}

TEST_CASE("W-TCP-27: a cut in front of what was SACKed leaves the highest octet where it is", "[tcp][W-TCP-27]") {
  HeapPool pool(64, 2048);
  SendQueue queue(8);
  send(queue, pool, 3);
  Delivered delivered;
  REQUIRE(queue.sack(Seq{10}, Seq{20}, delivered));
  CHECK(queue.forward() == Seq{20});
  SECTION("before it") { REQUIRE(queue.cut(queue.oldest(), 4)); }
  SECTION("behind it") { REQUIRE(queue.cut(queue.oldest() + 2, 4)); }
  CHECK(queue.forward() == Seq{20});
  CHECK(queue.sacked_count() == 1);
  CHECK(queue.pipe_bytes() == 20);
}

TEST_CASE("W-TCP-27: the last slot is left for a FIN", "[tcp][W-TCP-27]") {
  HeapPool pool(64, 2048);
  SendQueue queue(8);
  queue.start(Seq{0});
  while (queue.has_slot()) queue.append(octets(pool, 10));
  while (queue.cut(queue.first_unsent(), 1)) queue.on_sent(kStart);
  queue.append_fin();
  while (queue.has_unsent()) queue.on_sent(kStart);
  CHECK(acknowledged(queue, queue.nxt()).fin);
}

TEST_CASE("W-TCP-27: a full queue takes one last segment before the FIN", "[tcp][W-TCP-27]") {
  HeapPool pool(64, 2048);
  SendQueue queue(8);
  queue.start(Seq{0});
  while (queue.has_slot()) queue.append(octets(pool, 10));
  CHECK_FALSE(queue.append(octets(pool, 10)));
  CHECK(queue.append_last(octets(pool, 20)));
  SECTION("and the FIN") {}
  SECTION("but never the FIN's slot") {
    while (queue.append_last(octets(pool, 20))) {
    }
    CHECK_FALSE(queue.cut(queue.oldest(), 1));
  }
  queue.append_fin();
  while (queue.has_unsent()) queue.on_sent(kStart);
  CHECK(acknowledged(queue, queue.nxt()).fin);
  CHECK(queue.empty());
}

TEST_CASE("W-TCP-26: reassembly keeps what is new and counts what is not", "[tcp][W-TCP-26]") {
  HeapPool pool(64, 2048);
  Keeper keeper;
  Reassembly reassembly(4, keeper);
  const auto b = octets(pool, 100);
  for (std::size_t i = 0; i < 100; ++i) b->bytes()[i] = static_cast<std::byte>(i);
  const auto part = [&](std::size_t from, std::size_t to) { return Bytes(b->bytes()).subspan(from, to - from); };
  using Added = Reassembly::Added;
  CHECK(reassembly.add(Seq{10}, part(10, 20), b) == Added::kept);
  CHECK(reassembly.add(Seq{30}, part(30, 40), b) == Added::kept);
  CHECK(reassembly.add(Seq{12}, part(12, 18), b) == Added::duplicate);
  CHECK(reassembly.add(Seq{5}, part(5, 45), b) == Added::kept);  // 5..10, 20..30; no room for 40..45
  CHECK(reassembly.count() == 4);
  CHECK(reassembly.add(Seq{40}, part(40, 45), b) == Added::no_room);
  wire::SackBlock blocks[4];
  REQUIRE(reassembly.tell_blocks(blocks, 4) == 1);
  CHECK(blocks[0] == wire::SackBlock{5, 40});
  Seq next{5};
  for (const std::uint32_t length : {5u, 10u, 10u, 10u}) {
    auto* piece = reassembly.front(next);
    REQUIRE(piece != nullptr);
    CHECK(piece->length == length);
    CHECK(std::equal(piece->data, piece->data + length, b->bytes().data() + next.value));
    next = next + length;
    reassembly.pop();
  }
  CHECK(reassembly.empty());
  CHECK(b->refs == 1);
}

TEST_CASE("W-TCP-01: answers are limited by count and period", "[tcp][W-TCP-01]") {
  RateLimit limit(2, seconds(1));
  CHECK(limit.allows(kStart));
  CHECK(limit.allows(kStart + milliseconds(999)));
  CHECK_FALSE(limit.allows(kStart + milliseconds(999)));
  CHECK(limit.allows(kStart + milliseconds(1000)));
}
