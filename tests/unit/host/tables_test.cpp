// The device's tables: flows, TIME-WAIT, deadlines, listeners, and the share of buffers.
#include <map>
#include <random>
#include <vector>

#include "host/data_pool.hpp"
#include "host/flow.hpp"
#include "host/flow_table.hpp"
#include "host/listeners.hpp"
#include "host/time_wait.hpp"
#include "host/timers.hpp"
#include "kit/catch.hpp"
#include "sim/random.hpp"

using namespace rnic;
using namespace rnic::host;
using wire::IpAddress;

TEST_CASE("a flow table finds what is in it, and only that, through many changes", "[host]") {
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

TEST_CASE("the four names all count, and so does the key", "[host]") {
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

TEST_CASE("initial sequence numbers follow a 4 us clock and differ by connection", "[host]") {
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

TEST_CASE("deadlines come due earliest first, whatever was moved", "[host]") {
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

TEST_CASE("a deadline that moves later does not come early", "[host]") {
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

TEST_CASE("TIME-WAIT ends in the order it began, and a full table gives up the oldest", "[host]") {
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

TEST_CASE("one in TIME-WAIT that was taken up again neither expires nor is lost", "[host]") {
  TimeWait table(2);
  const auto slot = table.add(waiting(1, 10));
  table.remove(slot);
  CHECK_FALSE(table.next_expired(Instant{10}));
  CHECK(table.about_to_lose() == nullptr);
}

TEST_CASE("a wildcard listener hears every address, and overlaps with all", "[host]") {
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

TEST_CASE("a backlog is as in the kernel: 0 and more than 1,024 mean 1,024, what is between stays", "[host]") {
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

TEST_CASE("a closed listener's place is not taken while connections of it are pending", "[host]") {
  Listeners listeners;
  const auto first = listeners.open({}, 5, 3, 0);
  ++listeners.at(first).pending;
  listeners.close(first, Instant{0});
  const auto second = listeners.open({}, 5, 3, 0);
  CHECK(second != first);
  --listeners.at(first).pending;
  listeners.on_connection_gone(first);
  CHECK(listeners.open({}, 6, 3, 0) == first);
}

// Whoever looks at all of them one by one is the model.
TEST_CASE("listeners are found by address and port, through many that come and go", "[host]") {
  Listeners listeners;
  const std::vector<IpAddress> hosts{IpAddress::v4(10, 0, 0, 1), IpAddress::v4(10, 0, 0, 2), *wire::parse_ip("fe80::1"),
                                     *wire::parse_ip("fe80::2")};
  std::vector<IpAddress> names = hosts;
  names.push_back(IpAddress::v4(0));
  names.push_back({});
  std::vector<std::uint32_t> open;
  std::mt19937 random(3);
  const auto covering = [&](const IpAddress& address, std::uint16_t port) {
    for (const std::uint32_t each : open)
      if (listeners.at(each).port == port && listeners.at(each).covers(address)) return each;
    return Listeners::kNone;
  };
  std::size_t opened = 0, refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    const auto port = static_cast<std::uint16_t>(1 + random() % 8);
    if (random() % 2 == 0 && !open.empty()) {
      const std::size_t which = random() % open.size();
      listeners.close(open[which], Instant{i});
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(which));
    } else {
      Listener wanted{.address = names[random() % names.size()], .port = port};
      wanted.v6_only = wanted.address == IpAddress() && random() % 2 == 0;
      bool meets = false;
      for (const std::uint32_t each : open) {
        const Listener& other = listeners.at(each);
        meets |= other.port == port && (other.covers(wanted.address) || wanted.covers(other.address));
      }
      const std::uint32_t index = listeners.open(wanted.address, port, 3, 0, wanted.v6_only);
      REQUIRE((index == Listeners::kNone) == meets);
      if (index != Listeners::kNone) open.push_back(index);
      ++(meets ? refused : opened);
    }
    for (const IpAddress& host : hosts) REQUIRE(listeners.find(host, port) == covering(host, port));
    bool any = false;
    for (const std::uint32_t each : open) any |= listeners.at(each).port == port;
    REQUIRE(listeners.port_taken(port) == any);
  }
  CHECK(opened > 1000);
  CHECK(refused > 1000);
  CHECK(listeners.size() < 64);  // places are used again
}

TEST_CASE("a port's afterlife is of the address that was listened on", "[host]") {
  Listeners listeners;
  const auto here = IpAddress::v4(10, 0, 0, 1), there = IpAddress::v4(10, 0, 0, 2);
  const auto lives = [&](const IpAddress& address, std::uint16_t port) {
    return listeners.closed_just_now(address, port, Instant{0}, false);
  };
  const auto one = listeners.open(here, 5, 3, 0), any = listeners.open(IpAddress::v4(0), 6, 3, 0);
  CHECK_FALSE(lives(here, 5));
  listeners.close(one, Instant{0});
  listeners.close(any, Instant{0});
  CHECK(lives(here, 5));
  CHECK_FALSE(lives(there, 5));
  CHECK(lives(here, 6));
  CHECK(lives(there, 6));
  CHECK_FALSE(lives(here, 7));
  CHECK_FALSE(listeners.closed_just_now(here, 5, Instant{0} + Listeners::kAfterlife, false));
  CHECK(listeners.closed_just_now(here, 5, Instant{0} + Listeners::kAfterlife, true));
  CHECK_FALSE(listeners.closed_just_now(here, 5, Instant{0} + Listeners::kAfterlifeServing, true));
  // The longest closed is used first, and with its place its afterlife ends.
  REQUIRE(listeners.open(there, 9, 3, 0) == one);
  CHECK_FALSE(lives(here, 5));
  CHECK(lives(here, 6));
}

TEST_CASE("a port's afterlife goes with its place, and with no other's", "[host]") {
  Listeners listeners;
  const auto here = IpAddress::v4(10, 0, 0, 1);
  const auto lives = [&](std::uint16_t port) { return listeners.closed_just_now(here, port, Instant{0}, false); };
  const auto one = listeners.open(here, 5, 3, 0);
  listeners.close(one, Instant{0});
  // The same address, at another port.
  REQUIRE(listeners.open(here, 6, 3, 0) == one);
  CHECK_FALSE(lives(5));
  const auto other = listeners.open(here, 5, 3, 0);
  REQUIRE(other != one);
  listeners.close(one, Instant{0});
  listeners.close(other, Instant{0});
  CHECK(lives(5));
  CHECK(lives(6));
  // `one` once had port 5: its place being used again says nothing of that port now.
  REQUIRE(listeners.open(here, 7, 3, 0) == one);
  CHECK(lives(5));
  CHECK_FALSE(lives(6));
}

TEST_CASE("transmitted data may hold three quarters of the buffers, and not one more", "[host]") {
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

TEST_CASE("what is short of buffers says how many it wants back", "[host]") {
  host::DynamicThreshold shares(1000, 8);  // 250 are the reserve
  CHECK(shares.shortage() == 0);
  shares.refresh(250 + 8 * 8);
  CHECK(shares.shortage() == 0);
  // Tight: so that 8 times the minimum is to spare, and half of the reserve above that.
  shares.refresh(300);
  CHECK(shares.shortage() == 125 + 64 - 50);
  // Pressed: so that three quarters of the reserve are there.
  shares.refresh(100);
  CHECK(shares.pressed());
  CHECK(shares.shortage() == 188 - 100);
}
