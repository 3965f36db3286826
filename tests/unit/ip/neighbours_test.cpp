// The neighbour cache as a conversation in time (RFC 4861 s7.3).
#include "ip/neighbours.hpp"

#include "kit/allocations.hpp"
#include "kit/catch.hpp"
#include "wire/ethernet.hpp"

using namespace rnic;
using Meant = ip::Neighbours::Meant;
using wire::IpAddress;

namespace {
constexpr auto kPeer = IpAddress::v4(10, 0, 0, 2);
const auto kPeer6 = *wire::parse_ip("fe80::2");
constexpr wire::Mac kMac{{2, 0, 0, 0, 0, 2}};
constexpr wire::Mac kOther{{2, 0, 0, 0, 0, 3}};
constexpr Instant at(std::int64_t ms) { return Instant{0} + milliseconds(1'000'000 + ms); }

struct OneCache {
  HeapPool pool{64, 256};
  ip::Neighbours cache;
  BufferRef frame(std::uint8_t tag) {
    BufferRef made = BufferRef::take(pool);
    made->append(60);
    made->bytes()[20] = std::byte{tag};
    return made;
  }
  // Known since at(0), and reachable until the instant that is returned.
  Instant reachable() {
    (void)cache.resolve(kPeer, at(0));
    cache.answered(kPeer, {.mac = kMac}, at(0));
    return cache.resolve(kPeer, at(0))->ask_again;
  }
  std::optional<wire::Mac> mac(Instant now) {
    const auto hop = cache.resolve(kPeer, now);
    if (!hop) return std::nullopt;
    return hop->mac;
  }
};
}  // namespace

TEST_CASE("an unknown address is asked for of all, once a second, and frames to it wait", "[ip]") {
  OneCache t;
  CHECK_FALSE(t.cache.resolve(kPeer, at(0)));
  t.cache.hold(kPeer, t.frame(1));
  const auto question = t.cache.next_question(at(0));
  REQUIRE(question);
  CHECK(question->address == kPeer);
  CHECK_FALSE(question->known);
  CHECK_FALSE(t.cache.next_question(at(999)));
  CHECK_FALSE(t.cache.next_released());
  CHECK(t.cache.next_deadline() == at(1000));
  CHECK(t.cache.next_question(at(1000)));
}

TEST_CASE("an answer lets the frames go, in order, with their destination", "[ip]") {
  OneCache t;
  (void)t.cache.resolve(kPeer, at(0));
  t.cache.hold(kPeer, t.frame(1));
  t.cache.hold(kPeer, t.frame(2));
  t.cache.answered(kPeer, {.mac = kMac}, at(3));
  for (const auto tag : {std::uint8_t{1}, std::uint8_t{2}}) {
    const auto frame = t.cache.next_released();
    REQUIRE(frame);
    CHECK(wire::load_mac(frame->bytes(), 0) == kMac);
    CHECK(frame->bytes()[20] == std::byte{tag});
  }
  CHECK_FALSE(t.cache.next_released());
  CHECK(t.mac(at(4)) == kMac);
  CHECK(t.pool.available() == 64);
}

TEST_CASE("no answer: asked three times, then failed, and the frames are gone", "[ip]") {
  OneCache t;
  (void)t.cache.resolve(kPeer, at(0));
  t.cache.hold(kPeer, t.frame(1));
  int asked = 0;
  for (int second = 0; second < 3; ++second) asked += t.cache.next_question(at(second * 1000)).has_value();
  CHECK(asked == 3);
  CHECK_FALSE(t.cache.next_failed());
  CHECK_FALSE(t.cache.next_question(at(3000)));
  CHECK(t.cache.next_failed() == kPeer);
  CHECK_FALSE(t.cache.next_failed());
  CHECK(t.cache.frames_dropped() == 1);
  CHECK(t.pool.available() == 64);
  CHECK(t.cache.next_deadline() == kNever);
}

TEST_CASE("a failure is believed for a second, then it is asked again", "[ip]") {
  OneCache t;
  (void)t.cache.resolve(kPeer, at(0));
  for (int second = 0; second <= 3; ++second) (void)t.cache.next_question(at(second * 1000));
  REQUIRE(t.cache.next_failed());
  CHECK_FALSE(t.cache.resolve(kPeer, at(3'999)));
  CHECK_FALSE(t.cache.next_question(at(3'999)));
  CHECK_FALSE(t.cache.resolve(kPeer, at(4'000)));
  CHECK(t.cache.next_question(at(4'000)));
}

TEST_CASE("a bounded number of frames waits; the oldest is dropped", "[ip]") {
  OneCache t;
  (void)t.cache.resolve(kPeer, at(0));
  for (std::uint8_t tag = 0; tag < 17; ++tag) t.cache.hold(kPeer, t.frame(tag));
  CHECK(t.cache.frames_dropped() == 1);
  t.cache.answered(kPeer, {.mac = kMac}, at(1));
  CHECK(t.cache.next_released()->bytes()[20] == std::byte{1});
}

TEST_CASE("frames to a neighbour that nobody asks for are dropped", "[ip]") {
  OneCache t;
  t.cache.hold(kPeer, t.frame(1));
  CHECK(t.cache.frames_dropped() == 1);
  CHECK(t.pool.available() == 64);
}

TEST_CASE("what nobody asked for, and was not for us, makes no entry", "[ip]") {
  OneCache t;
  t.cache.heard_from(kPeer, kMac, Meant::for_others);
  t.cache.answered(kPeer, {.mac = kMac}, at(0));
  CHECK(t.cache.entries() == 0);
  t.cache.heard_from(kPeer, wire::kBroadcastMac, Meant::for_us);
  t.cache.heard_from(IpAddress::v4(0), kMac, Meant::for_us);
  t.cache.heard_from(IpAddress::v4(224, 0, 0, 1), kMac, Meant::for_us);
  CHECK(t.cache.entries() == 0);
  t.cache.heard_from(kPeer, kMac, Meant::for_us);
  CHECK(t.cache.entries() == 1);
}

TEST_CASE("a neighbour that moves changes the generation, one that repeats itself does not", "[ip]") {
  OneCache t;
  t.reachable();
  const auto before = t.cache.generation();
  t.cache.heard_from(kPeer, kMac, Meant::for_us);
  t.cache.answered(kPeer, {.mac = kMac}, at(1));
  CHECK(t.cache.generation() == before);
  t.cache.heard_from(kPeer, kOther, Meant::for_others);
  CHECK(t.cache.generation() != before);
  CHECK(t.mac(at(3)) == kOther);
}

TEST_CASE("a neighbour is reachable for half of its time to one and a half", "[ip]") {
  for (std::uint64_t seed = 1; seed < 50; ++seed) {
    ip::NeighbourOptions options;
    options.seed = seed;
    ip::Neighbours cache(options);
    (void)cache.resolve(kPeer, at(0));
    cache.answered(kPeer, {.mac = kMac}, at(0));
    const Instant end = cache.resolve(kPeer, at(0))->ask_again;
    CHECK(end >= at(15'000));
    CHECK(end < at(45'000));
    CHECK_FALSE(cache.resolve(kPeer, end - milliseconds(1))->in_doubt);
    CHECK(cache.resolve(kPeer, end)->in_doubt);
  }
}

TEST_CASE("an old entry is used on; after five seconds it is asked, by unicast; silence ends it", "[ip]") {
  OneCache t;
  const Instant end = t.reachable();
  CHECK(t.mac(end) == kMac);
  CHECK_FALSE(t.cache.next_question(end + milliseconds(4'999)));
  for (int second = 5; second < 8; ++second) {
    const auto question = t.cache.next_question(end + seconds(second));
    REQUIRE(question);
    CHECK(question->known == kMac);
    CHECK(t.mac(end + seconds(second)) == kMac);
  }
  const auto before = t.cache.generation();
  CHECK_FALSE(t.cache.next_question(end + seconds(8)));
  CHECK(t.cache.entries() == 0);
  CHECK(t.cache.generation() != before);
  // No stream fails by it: the next use asks all.
  CHECK_FALSE(t.cache.next_failed());
  CHECK_FALSE(t.cache.resolve(kPeer, end + seconds(9)));
  CHECK_FALSE(t.cache.next_question(end + seconds(9))->known);
}

TEST_CASE("an answer to the probe makes it reachable again", "[ip]") {
  OneCache t;
  const Instant end = t.reachable();
  (void)t.cache.resolve(kPeer, end);
  REQUIRE(t.cache.next_question(end + seconds(5)));
  t.cache.answered(kPeer, {.mac = kMac}, end + seconds(5));
  CHECK_FALSE(t.cache.resolve(kPeer, end + seconds(6))->in_doubt);
  CHECK_FALSE(t.cache.next_question(end + seconds(6)));
}

TEST_CASE("one that is doubted is asked at once by unicast, and stays if it answers", "[ip]") {
  OneCache t;
  t.reachable();
  t.cache.doubt(kPeer, at(1'000));
  CHECK(t.cache.next_deadline() <= at(1'000));
  CHECK(t.cache.next_question(at(1'000))->known == kMac);
  t.cache.doubt(kPeer, at(1'001));  // it is being asked
  CHECK_FALSE(t.cache.next_question(at(1'999)));
  CHECK(t.mac(at(1'999)) == kMac);  // frames go on
  SECTION("an answer") {
    t.cache.answered(kPeer, {.mac = kMac}, at(1'500));
    CHECK_FALSE(t.cache.resolve(kPeer, at(2'000))->in_doubt);
    CHECK_FALSE(t.cache.next_question(at(10'000)));
  }
  SECTION("silence: whoever has the address is looked for anew") {
    CHECK(t.cache.next_question(at(2'000))->known == kMac);
    CHECK(t.cache.next_question(at(3'000))->known == kMac);
    CHECK_FALSE(t.cache.next_question(at(4'000)));
    CHECK_FALSE(t.mac(at(4'000)));
    CHECK_FALSE(t.cache.next_question(at(4'000))->known);
  }
}

TEST_CASE("doubt of a stale neighbour is as good, of one that nobody knows or that did not answer none", "[ip]") {
  OneCache t;
  SECTION("nobody knows it") {
    t.cache.doubt(kPeer, at(0));
    CHECK(t.cache.entries() == 0);
    CHECK_FALSE(t.cache.next_question(at(0)));
  }
  SECTION("stale") {
    t.cache.heard_from(kPeer, kMac, Meant::for_us);
    t.cache.doubt(kPeer, at(0));
    CHECK(t.cache.next_question(at(0))->known == kMac);
  }
  SECTION("it did not answer") {
    (void)t.cache.resolve(kPeer, at(0));
    for (int second = 0; second <= 3; ++second) (void)t.cache.next_question(at(second * 1000));
    REQUIRE(t.cache.next_failed() == kPeer);
    t.cache.doubt(kPeer, at(3'001));
    CHECK_FALSE(t.cache.next_question(at(3'001)));
  }
}

TEST_CASE("a stream that makes progress spares the neighbour the question", "[ip]") {
  OneCache t;
  const Instant end = t.reachable();
  const auto hop = t.cache.resolve(kPeer, end);
  CHECK(hop->in_doubt);
  // It is asked again before the probe would be sent.
  CHECK(hop->ask_again == end + seconds(3));
  CHECK_FALSE(t.cache.resolve(kPeer, end + seconds(3), true)->in_doubt);
  CHECK_FALSE(t.cache.next_question(end + seconds(5)));
}

TEST_CASE("progress is no news of a neighbour that nobody doubts, or nobody knows", "[ip]") {
  OneCache t;
  CHECK_FALSE(t.cache.resolve(kPeer, at(0), true));
  t.cache.answered(kPeer, {.mac = kMac}, at(0));
  const Instant end = t.cache.resolve(kPeer, at(0))->ask_again;
  CHECK(t.cache.resolve(kPeer, at(1), true)->ask_again == end);
}

TEST_CASE("a neighbour that spoke of itself is known, and doubted", "[ip]") {
  OneCache t;
  t.cache.heard_from(kPeer, kMac, Meant::for_us);
  const auto hop = t.cache.resolve(kPeer, at(0));
  REQUIRE(hop);
  CHECK(hop->mac == kMac);
  CHECK(hop->in_doubt);
}

TEST_CASE("a neighbour that speaks while it is asked for gets its frames", "[ip]") {
  OneCache t;
  (void)t.cache.resolve(kPeer, at(0));
  t.cache.hold(kPeer, t.frame(1));
  t.cache.heard_from(kPeer, kMac, Meant::for_others);
  REQUIRE(t.cache.next_released());
  CHECK(t.cache.resolve(kPeer, at(1))->in_doubt);
}

TEST_CASE("an advertisement nobody asked for is not proof that the neighbour is reached", "[ip]") {
  OneCache t;
  (void)t.cache.resolve(kPeer6, at(0));
  t.cache.answered(kPeer6, {.mac = kMac, .solicited = false, .override_entry = false}, at(1));
  REQUIRE(t.cache.resolve(kPeer6, at(2)));
  CHECK(t.cache.resolve(kPeer6, at(2))->in_doubt);
}

TEST_CASE("an answer without a link address does not end the asking", "[ip]") {
  OneCache t;
  (void)t.cache.resolve(kPeer6, at(0));
  t.cache.answered(kPeer6, {.mac = std::nullopt}, at(1));
  CHECK_FALSE(t.cache.resolve(kPeer6, at(2)));
  // Of one that is known it says that he is there.
  t.cache.answered(kPeer6, {.mac = kMac, .solicited = false}, at(3));
  CHECK(t.cache.resolve(kPeer6, at(4))->in_doubt);
  t.cache.answered(kPeer6, {.mac = std::nullopt, .solicited = true}, at(5));
  CHECK_FALSE(t.cache.resolve(kPeer6, at(6))->in_doubt);
}

TEST_CASE("another link address counts only with the override flag; without, a reachable one is doubted", "[ip]") {
  OneCache t;
  t.reachable();
  t.cache.answered(kPeer, {.mac = kOther, .solicited = true, .override_entry = false}, at(1));
  CHECK(t.cache.resolve(kPeer, at(1))->mac == kMac);
  CHECK(t.cache.resolve(kPeer, at(1))->in_doubt);
  t.cache.answered(kPeer, {.mac = kOther, .solicited = true, .override_entry = true}, at(2));
  CHECK(t.cache.resolve(kPeer, at(2))->mac == kOther);
  CHECK_FALSE(t.cache.resolve(kPeer, at(2))->in_doubt);
  t.cache.answered(kPeer, {.mac = kMac, .solicited = false, .override_entry = true}, at(3));
  CHECK(t.cache.resolve(kPeer, at(3))->mac == kMac);
  CHECK(t.cache.resolve(kPeer, at(3))->in_doubt);
}

TEST_CASE("a full table gives up whom it used longest ago, and no more than half of it is asked for", "[ip]") {
  ip::NeighbourOptions options;
  options.entries_max = 4;
  ip::Neighbours cache(options);
  const auto peer = [](std::uint8_t last) { return IpAddress::v4(10, 0, 0, last); };
  for (std::uint8_t i = 1; i <= 4; ++i) cache.heard_from(peer(i), kMac, Meant::for_us);
  (void)cache.resolve(peer(1), at(0));
  cache.heard_from(peer(5), kMac, Meant::for_us);
  CHECK(cache.entries() == 4);
  CHECK(cache.resolve(peer(1), at(1)));
  CHECK_FALSE(cache.resolve(peer(2), at(1)));  // given up, and asked for now
  for (std::uint8_t i = 11; i < 14; ++i) CHECK_FALSE(cache.resolve(peer(i), at(2)));
  // Only the last two are asked for; the others that were have made room.
  CHECK(cache.next_question(at(3))->address == peer(12));
  CHECK(cache.next_question(at(3))->address == peer(13));
  CHECK_FALSE(cache.next_question(at(3)));
  cache.heard_from(peer(20), kMac, Meant::for_us);
  CHECK(cache.resolve(peer(20), at(3)));
  cache.answered(peer(12), {.mac = kMac}, at(4));
  CHECK(cache.resolve(peer(12), at(4)));
  CHECK(cache.entries() <= 4);
}

TEST_CASE("a thousand strangers cost no memory but what was taken at the start", "[ip]") {
  OneCache t;
  const auto before = test::allocations();
  for (std::uint32_t i = 0; i < 5000; ++i) {
    t.cache.heard_from(IpAddress::v4(0x0A000000 + i), kMac, Meant::for_us);
    (void)t.cache.resolve(IpAddress::v4(0x0B000000 + i), at(i));
    while (t.cache.next_question(at(i))) continue;
    while (t.cache.next_failed()) continue;
  }
  CHECK(test::allocations() == before);
  CHECK(t.cache.entries() == 1024);
}

TEST_CASE("a router may say how long its link's neighbours are reachable, and how often to ask", "[ip]") {
  OneCache t;
  t.cache.set_times(seconds(100), milliseconds(300));
  (void)t.cache.resolve(kPeer, at(0));
  CHECK(t.cache.next_question(at(0)));
  CHECK_FALSE(t.cache.next_question(at(299)));
  CHECK(t.cache.next_question(at(300)));
  t.cache.answered(kPeer, {.mac = kMac}, at(300));
  CHECK(t.cache.resolve(kPeer, at(300))->ask_again >= at(50'300));
  t.cache.set_times({}, {});
  t.cache.answered(kPeer, {.mac = kMac}, at(400));
  CHECK(t.cache.resolve(kPeer, at(400))->ask_again >= at(50'400));
}

TEST_CASE("a flood of addresses that nobody has displaces no neighbour that answers", "[ip]") {
  OneCache t;
  t.reachable();
  // Who is known is not asked for again while it lasts, and is the longest unused of all.
  for (std::uint32_t i = 0; i < 5000; ++i) {
    CHECK_FALSE(t.cache.resolve(IpAddress::v4(10, 1, static_cast<std::uint8_t>(i >> 8), static_cast<std::uint8_t>(i)),
                                at(1 + i / 100)));
    while (t.cache.next_question(at(1 + i / 100))) continue;
  }
  CHECK(t.mac(at(60)) == kMac);
  CHECK(t.cache.entries() < 1024);
}

TEST_CASE("in a flood of addresses that nobody has a new neighbour is heard, asked for and known", "[ip]") {
  OneCache t;
  const auto flood = [&](std::uint32_t from, std::uint32_t count, std::int64_t ms) {
    for (std::uint32_t i = from; i < from + count; ++i)
      (void)t.cache.resolve(IpAddress::v4(10, 1, static_cast<std::uint8_t>(i >> 8), static_cast<std::uint8_t>(i)),
                            at(ms));
    while (t.cache.next_question(at(ms))) continue;
  };
  flood(0, 5000, 0);
  t.cache.heard_from(kPeer, kMac, Meant::for_us);
  flood(5000, 5000, 10);
  CHECK(t.mac(at(20)) == kMac);
  // One of ours to ask for; its answer comes when as many as a turn has were asked for behind it.
  CHECK_FALSE(t.cache.resolve(kPeer6, at(20)));
  flood(10'000, 256, 20);
  t.cache.answered(kPeer6, {.mac = kOther}, at(21));
  REQUIRE(t.cache.resolve(kPeer6, at(21)));
}

TEST_CASE("a full table gives up those that did not answer before those that did", "[ip]") {
  OneCache t;
  t.reachable();
  for (std::int64_t round = 0; round < 4; ++round) {
    for (std::uint32_t i = 0; i < 400; ++i)
      (void)t.cache.resolve(
          IpAddress::v4(10, 1, static_cast<std::uint8_t>(round * 2 + (i >> 8)), static_cast<std::uint8_t>(i)),
          at(round * 5000));
    for (std::int64_t second = 0; second < 5; ++second)
      while (t.cache.next_question(at(round * 5000 + second * 1000))) continue;
  }
  CHECK(t.cache.entries() == 1024);
  CHECK(t.mac(at(14'000)) == kMac);
}
