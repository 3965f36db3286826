// The device's tables: flows, TIME-WAIT, deadlines, listeners, and the share of buffers.
#include <map>
#include <vector>

#include "core/data_pool.hpp"
#include "core/flow.hpp"
#include "core/flow_table.hpp"
#include "core/listeners.hpp"
#include "core/ring.hpp"
#include "core/time_wait.hpp"
#include "core/timers.hpp"
#include "sim/random.hpp"
#include "support/catch.hpp"

using namespace rnic;
using namespace rnic::core;
using wire::IpAddress;

TEST_CASE("a flow table finds what is in it, and only that, through many changes", "[core]") {
  FlowTable table(300);
  sim::Random random(1);
  std::map<std::uint32_t, std::uint64_t> model;  // value to hash; few hashes, so that chains are long
  for (int i = 0; i < 20'000; ++i) {
    const auto value = static_cast<std::uint32_t>(random.below(400));
    const auto it = model.find(value);
    if (it == model.end() && model.size() < 300) {
      const std::uint64_t hash = random.below(64) * 0x100000001u;
      table.insert(hash, value);
      model[value] = hash;
    } else if (it != model.end()) {
      table.erase(it->second, value);
      model.erase(it);
    }
    const auto probe = static_cast<std::uint32_t>(random.below(400));
    const auto expected = model.find(probe);
    const std::uint64_t hash = expected == model.end() ? random.below(64) * 0x100000001u : expected->second;
    const auto found = table.find(hash, [&](std::uint32_t v) { return v == probe; });
    REQUIRE(found.has_value() == (expected != model.end()));
  }
  CHECK(table.used() == model.size());
}

TEST_CASE("the four names all count, and so does the key", "[core]") {
  const Flow flow{IpAddress::v4(10, 0, 0, 1), IpAddress::v4(10, 0, 0, 2), 1000, 2000};
  const HashKeys keys = HashKeys::from_seed(1);
  const auto hash = hash_of(flow, keys);
  Flow other = flow;
  other.local_port = 1001;
  CHECK(hash_of(other, keys) != hash);
  other = flow, other.remote_port = 2001;
  CHECK(hash_of(other, keys) != hash);
  other = flow, other.remote = IpAddress::v4(10, 0, 0, 3);
  CHECK(hash_of(other, keys) != hash);
  std::swap(other.local, other.remote);
  CHECK(hash_of(other, keys) != hash);
  CHECK(hash_of(flow, HashKeys::from_seed(2)) != hash);
}

TEST_CASE("initial sequence numbers follow a 4 us clock and differ by connection", "[core]") {
  const Flow flow{IpAddress::v4(10, 0, 0, 1), IpAddress::v4(10, 0, 0, 2), 1000, 2000};
  Flow other = flow;
  other.local_port = 1001;
  const HashKeys keys = HashKeys::from_seed(1);
  const Instant now{seconds(50).ns};
  const auto isn = initial_sequence(flow, keys, now);
  CHECK(initial_sequence(flow, keys, now + microseconds(4)).since(isn) == 1);
  CHECK(initial_sequence(flow, keys, now + seconds(1)).since(isn) == 250'000);
  CHECK_FALSE(initial_sequence(other, keys, now) == isn);
}

TEST_CASE("deadlines come due earliest first, whatever was moved", "[core]") {
  constexpr std::size_t kNodes = 200;
  Timers timers;
  timers.reserve(kNodes);
  std::vector<Timers::Node> nodes(kNodes);
  std::vector<Instant> due(kNodes, kNever);
  sim::Random random(3);
  Instant now{0};
  for (int round = 0; round < 20'000; ++round) {
    const std::size_t i = random.below(kNodes);
    if (random.chance(100)) {
      timers.cancel(nodes[i]);
      due[i] = kNever;
    } else {
      due[i] = now + nanoseconds(static_cast<std::int64_t>(random.below(1'000)));
      timers.schedule(nodes[i], due[i]);
    }
    Instant earliest = kNever;
    for (const Instant d : due) earliest = std::min(earliest, d);
    REQUIRE(timers.earliest() <= earliest);
    now = now + nanoseconds(static_cast<std::int64_t>(random.below(10)));
    while (Timers::Node* node = timers.next_due(now)) {
      const auto which = static_cast<std::size_t>(node - nodes.data());
      REQUIRE(due[which] <= now);
      due[which] = kNever;
    }
    for (const Instant d : due) REQUIRE(d > now);
  }
}

TEST_CASE("a deadline that moves later does not come early", "[core]") {
  Timers timers;
  timers.reserve(1);
  Timers::Node node;
  timers.schedule(node, Instant{100});
  timers.schedule(node, Instant{300});
  CHECK(timers.next_due(Instant{200}) == nullptr);
  CHECK(timers.next_due(Instant{299}) == nullptr);
  CHECK(timers.next_due(Instant{300}) == &node);
  CHECK(timers.next_due(Instant{400}) == nullptr);
}

namespace {
Waiting waiting(std::uint64_t hash, std::int64_t until) {
  return {.flow = {}, .hash = hash, .finished = {}, .until = Instant{until}, .used = true};
}
}  // namespace

TEST_CASE("TIME-WAIT ends in the order it began, and a full table gives up the oldest", "[core]") {
  TimeWait table(2);
  const auto first = table.add(waiting(1, 10));
  (void)table.add(waiting(2, 20));
  REQUIRE(table.about_to_lose() != nullptr);
  CHECK(table.about_to_lose()->hash == 1);
  CHECK(table.slot_of(*table.about_to_lose()) == first);
  (void)table.add(waiting(3, 30));
  CHECK_FALSE(table.next_expired(Instant{19}));
  const auto expired = table.next_expired(Instant{20});
  REQUIRE(expired);
  CHECK(table.at(*expired).hash == 2);
  CHECK_FALSE(table.next_expired(Instant{29}));
  CHECK(table.next_expired(Instant{30}));
  CHECK_FALSE(table.next_expired(Instant{1000}));
}

TEST_CASE("one in TIME-WAIT that was taken up again neither expires nor is lost", "[core]") {
  TimeWait table(2);
  const auto slot = table.add(waiting(1, 10));
  table.remove(slot);
  CHECK_FALSE(table.next_expired(Instant{10}));
  CHECK(table.about_to_lose() == nullptr);
}

TEST_CASE("a wildcard listener hears every address, and overlaps with all", "[core]") {
  Listeners listeners;
  const auto here = IpAddress::v4(10, 0, 0, 1), there = IpAddress::v4(10, 0, 0, 2);
  REQUIRE(listeners.open({}, 5, 3, 0) != Listeners::kNone);
  CHECK(listeners.open(here, 5, 3, 0) == Listeners::kNone);
  CHECK(listeners.find(here, 5) == listeners.find(there, 5));
  CHECK(listeners.find(here, 6) == Listeners::kNone);
  listeners.close(listeners.find(here, 5), Instant{0});
  CHECK(listeners.find(here, 5) == Listeners::kNone);
  REQUIRE(listeners.open(here, 5, 3, 0) != Listeners::kNone);
  CHECK(listeners.open({}, 5, 3, 0) == Listeners::kNone);
  CHECK(listeners.open(there, 5, 3, 0) != Listeners::kNone);
  CHECK(listeners.find(there, 5) != listeners.find(here, 5));
}

TEST_CASE("a backlog is as in the kernel: 0 and more than 1,024 mean 1,024, what is between stays", "[core]") {
  Listeners listeners;
  const auto backlog_of = [&](std::uint32_t wanted, std::uint16_t port) {
    return listeners.at(listeners.open({}, port, wanted, 0)).backlog;
  };
  CHECK(backlog_of(0, 1) == 1024);
  CHECK(backlog_of(1, 2) == 1);
  CHECK(backlog_of(128, 3) == 128);
  CHECK(backlog_of(1024, 4) == 1024);
  CHECK(backlog_of(1025, 5) == 1024);
  CHECK(backlog_of(0xFFFFFFFF, 6) == 1024);  // -1 of who calls rdma_listen()
}

TEST_CASE("a closed listener's place is not taken while connections of it are pending", "[core]") {
  Listeners listeners;
  const auto first = listeners.open({}, 5, 3, 0);
  ++listeners.at(first).pending;
  listeners.close(first, Instant{0});
  const auto second = listeners.open({}, 5, 3, 0);
  CHECK(second != first);
  --listeners.at(first).pending;
  CHECK(listeners.open({}, 6, 3, 0) == first);
}

TEST_CASE("transmitted data may hold three quarters of the buffers, and not one more", "[core]") {
  HeapPool whole(100, 256);
  DataPool data(whole);
  std::vector<Buffer*> taken(100);
  CHECK(data.take(taken.data(), 100) == 75);
  CHECK(data.available() == 0);
  CHECK(data.take(taken.data() + 75, 1) == 0);
  CHECK(whole.available() == 25);
  BufferRef{taken[74]}.reset();
  CHECK(data.take(taken.data() + 74, 1) == 0);  // not before the next turn
  data.refresh();
  CHECK(data.take(taken.data() + 74, 2) == 1);
  for (std::size_t i = 0; i < 75; ++i) BufferRef{taken[i]}.reset();
}

TEST_CASE("a ring that is full loses nothing: the rest follows in order when there is room", "[core]") {
  PatientRing<int> ring(4);
  int next = 0;
  for (; next < 4; ++next) ring.push(next);
  CHECK(ring.waiting() == 0);
  ring.push(next++);
  CHECK(ring.waiting() == 1);
  CHECK_FALSE(ring.hand_over());
  int got = -1;
  for (int expected = 0; expected < 2; ++expected) {
    REQUIRE(ring.pop(got));
    CHECK(got == expected);
  }
  // There is room, but what came before goes first.
  ring.push(next++);
  CHECK(ring.waiting() == 2);
  CHECK(ring.hand_over());
  CHECK(ring.waiting() == 0);
  ring.push(next++);
  CHECK(ring.waiting() == 1);
  for (int expected = 2; expected < 7; ++expected) {
    if (!ring.pop(got)) REQUIRE((ring.hand_over() && ring.pop(got)));
    CHECK(got == expected);
  }
  CHECK_FALSE(ring.hand_over());
  CHECK_FALSE(ring.pop(got));
}
