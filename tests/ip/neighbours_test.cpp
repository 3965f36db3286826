// The neighbour cache as a conversation in time.
#include "ip/neighbours.hpp"

#include "support/catch.hpp"
#include "wire/ethernet.hpp"

using namespace rnic;
using wire::IpAddress;

namespace {
constexpr auto kPeer = IpAddress::v4(10, 0, 0, 2);
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
};
}  // namespace

TEST_CASE("an unknown address is asked for by broadcast, once, and frames to it wait", "[ip]") {
  OneCache t;
  CHECK_FALSE(t.cache.resolve(kPeer, at(0)));
  t.cache.hold(kPeer, t.frame(1));
  const auto question = t.cache.next_question(at(0));
  REQUIRE(question);
  CHECK(question->address == kPeer);
  CHECK_FALSE(question->known);
  CHECK_FALSE(t.cache.next_question(at(0)));
  CHECK_FALSE(t.cache.next_released());
}

TEST_CASE("an answer lets the frames go, in order, with their destination", "[ip]") {
  OneCache t;
  (void)t.cache.resolve(kPeer, at(0));
  t.cache.hold(kPeer, t.frame(1));
  t.cache.hold(kPeer, t.frame(2));
  t.cache.learn(kPeer, kMac, true, at(3));
  for (const auto tag : {std::uint8_t{1}, std::uint8_t{2}}) {
    const auto frame = t.cache.next_released();
    REQUIRE(frame);
    CHECK(wire::load_mac((*frame)->bytes(), 0) == kMac);
    CHECK((*frame)->bytes()[20] == std::byte{tag});
  }
  CHECK_FALSE(t.cache.next_released());
  REQUIRE(t.cache.resolve(kPeer, at(4)));
  CHECK(t.cache.resolve(kPeer, at(4))->mac == kMac);
}

TEST_CASE("no answer: asked five times, then failed, and the frames are gone", "[ip]") {
  OneCache t;
  (void)t.cache.resolve(kPeer, at(0));
  t.cache.hold(kPeer, t.frame(1));
  int asked = 0;
  while (t.cache.next_deadline() != kNever && asked < 100) {
    const Instant due = std::max(t.cache.next_deadline(), at(0));
    if (t.cache.next_question(due)) ++asked;
    if (t.cache.next_failed() == kPeer) break;
  }
  CHECK(asked == 5);
  CHECK(t.cache.frames_dropped() == 1);
  CHECK(t.pool.available() == 64);
  CHECK(t.cache.next_deadline() == kNever);
}

TEST_CASE("a failure is believed for a second, then it is asked again", "[ip]") {
  OneCache t;
  (void)t.cache.resolve(kPeer, at(0));
  while (t.cache.next_deadline() != kNever) {
    (void)t.cache.next_question(t.cache.next_deadline());
    if (t.cache.next_failed()) break;
  }
  CHECK_FALSE(t.cache.resolve(kPeer, at(5'000)));
  CHECK_FALSE(t.cache.next_question(at(5'000)));
  CHECK_FALSE(t.cache.resolve(kPeer, at(6'000)));
  CHECK(t.cache.next_question(at(6'000)));
}

TEST_CASE("a bounded number of frames waits; the oldest is dropped", "[ip]") {
  OneCache t;
  (void)t.cache.resolve(kPeer, at(0));
  for (std::uint8_t tag = 0; tag < 17; ++tag) t.cache.hold(kPeer, t.frame(tag));
  CHECK(t.cache.frames_dropped() == 1);
  t.cache.learn(kPeer, kMac, true, at(1));
  CHECK((*t.cache.next_released())->bytes()[20] == std::byte{1});
}

TEST_CASE("what nobody asked for, and was not for us, makes no entry", "[ip]") {
  OneCache t;
  t.cache.learn(kPeer, kMac, false, at(0));
  CHECK_FALSE(t.cache.resolve(kPeer, at(1)));
  t.cache.learn(kPeer, wire::kBroadcastMac, true, at(2));
  CHECK_FALSE(t.cache.resolve(kPeer, at(3)));
}

TEST_CASE("a neighbour that moves changes the generation, one that repeats itself does not", "[ip]") {
  OneCache t;
  t.cache.learn(kPeer, kMac, true, at(0));
  const auto before = t.cache.generation();
  t.cache.learn(kPeer, kMac, true, at(1));
  CHECK(t.cache.generation() == before);
  t.cache.learn(kPeer, kOther, false, at(2));
  CHECK(t.cache.generation() != before);
  CHECK(t.cache.resolve(kPeer, at(3))->mac == kOther);
}

TEST_CASE("an old entry is used while it is asked for anew, by unicast; silence ends it", "[ip]") {
  OneCache t;
  t.cache.learn(kPeer, kMac, true, at(0));
  CHECK(t.cache.resolve(kPeer, at(29'999)));
  CHECK_FALSE(t.cache.next_question(at(29'999)));
  CHECK(t.cache.resolve(kPeer, at(30'000)));
  const auto question = t.cache.next_question(at(30'000));
  REQUIRE(question);
  CHECK(question->known == kMac);
  for (int i = 0; i < 10; ++i) (void)t.cache.next_question(at(31'000 + i * 1'000));
  CHECK_FALSE(t.cache.resolve(kPeer, at(60'000)));
}
