// One port divided among several workers, step by step.
#include "unit/port/steered.hpp"

namespace rnic::port {

using namespace steered_test;

// ---- receiving ---------------------------------------------------------------------------------

TEST_CASE("a shard whose queue has no link at the time sends by the first, whose link is the port's",
          "[port][steering]") {
  Divided divided(2, 3, kPool, true, true);
  Queue &first = *divided.queues[0], &second = *divided.queues[1];
  const auto goes_by = [&](unsigned shard) {
    REQUIRE(send(divided.of(shard), made(divided.of(shard), segment(shard, 3, 7))));
    REQUIRE(receive(divided.of(0)).empty());
    REQUIRE(receive(divided.of(1)).empty());
    const std::size_t by_first = first.sent.size(), by_second = second.sent.size();
    REQUIRE(by_first + by_second == 1);
    for (Queue* queue : divided.queues) queue->sent.clear();
    return by_second;
  };
  CHECK(goes_by(0) == 0);
  CHECK(goes_by(1) == 1);
  CHECK(goes_by(2) == 0);
  second.up = false;
  for (unsigned shard = 0; shard < 3; ++shard) {
    CHECK(divided.of(shard).link_up());
    CHECK(goes_by(shard) == 0);
  }
  // What is for all comes once to each.
  for (Queue* queue : divided.queues) {
    queue->arrive(for_all());
    std::size_t came[3] = {};
    for (int round = 0; round < 2; ++round)
      for (unsigned shard = 0; shard < 3; ++shard) came[shard] += receive(divided.of(shard)).size();
    CHECK((came[0] == 1 && came[1] == 1 && came[2] == 1));
    CHECK((first.sent.empty() && second.sent.empty()));
  }
  second.up = true;
  CHECK(goes_by(1) == 1);
  // Its peer is not known yet as the first one's is: what is as long as that takes does not go by it.
  second.mtu = 600;
  CHECK(divided.of(1).link_mtu() == first.mtu);
  CHECK(goes_by(1) == 0);
  second.mtu = first.mtu + 100;
  CHECK(goes_by(1) == 1);
  first.up = false;
  for (unsigned shard = 0; shard < 3; ++shard) CHECK_FALSE(divided.of(shard).link_up());
  divided.check_pools();
}

TEST_CASE("a shard whose queue has no descriptor at the time has none either", "[port][steering]") {
  Divided divided(1, 2);
  CHECK(divided.of(0).wake_descriptor() >= 0);
  divided.queues[0]->mute = true;
  CHECK(divided.of(0).wake_descriptor() == -1);
  CHECK(divided.of(1).wake_descriptor() >= 0);
  divided.queues[0]->mute = false;
  CHECK(divided.of(0).wake_descriptor() >= 0);
}

TEST_CASE("each shard receives its connections' frames, by whatever queue they come, in order", "[port][steering]") {
  const unsigned queues = GENERATE(1u, 2u, 3u), shards = 3;
  CAPTURE(queues);
  Divided port(queues, shards);
  for (std::uint32_t i = 0; i < 30; ++i)
    for (unsigned shard = 0; shard < shards; ++shard)
      port.queues[i % queues]->arrive(segment(shard, shards, i / queues * queues + shard));
  std::vector<std::vector<BufferRef>> got(shards);
  for (int round = 0; round < 3; ++round)
    for (unsigned shard = 0; shard < shards; ++shard)
      for (BufferRef& each : receive(port.of(shard))) got[shard].push_back(std::move(each));
  for (unsigned shard = 0; shard < shards; ++shard) {
    CHECK(got[shard].size() == 30);
    for (const BufferRef& each : got[shard]) {
      CHECK(steer(each->bytes(), shards) == Steered{shard, false});
      CHECK(each->pool == &port.of(shard).pool());
      CHECK(each->refs == 1);
    }
    if (queues == 1)
      CHECK(std::is_sorted(got[shard].begin(), got[shard].end(), [](const BufferRef& a, const BufferRef& b) {
        return number_of(a->bytes()) < number_of(b->bytes());
      }));
    got[shard].clear();
    CHECK(port.of(shard).frames_lost() == 0);
  }
  port.check_pools();
}

TEST_CASE("what a shard moves for others is told once, as no burst shows it", "[port][steering]") {
  Divided port(1, 2);
  for (std::uint32_t i = 0; i < 5; ++i) port.queues[0]->arrive(segment(1, 2, i));
  port.queues[0]->arrive(segment(0, 2, 5));
  CHECK(receive(port.of(0)).size() == 1);
  CHECK(port.of(0).take_moved_for_others() == 5);
  CHECK(port.of(0).take_moved_for_others() == 0);
  CHECK(receive(port.of(1)).size() == 5);
  CHECK(port.of(1).take_moved_for_others() == 0);
  // And sends for them.
  REQUIRE(send(port.of(1), made(port.of(1), segment(1, 2, 7))));
  CHECK(receive(port.of(0)).empty());
  CHECK(port.queues[0]->sent.size() == 1);
  CHECK(port.of(0).take_moved_for_others() == 1);
}

TEST_CASE("a frame that is handed over is another buffer with all that its own said", "[port][steering]") {
  Divided port(1, 2);
  const Octets plain = segment(1, 2, 7, 700), merged = segment(1, 2, 9, 30'000);
  port.queues[0]->arrive(plain)->checksum_good = 1;
  port.queues[0]->arrive(merged, 1446, 54);
  CHECK(receive(port.of(0)).empty());
  CHECK(port.queues[0]->pool().available() == kPool.count - 1);
  const auto got = receive(port.of(1));
  REQUIRE(got.size() == 2);
  CHECK(is(got[0], plain));
  CHECK(got[0]->checksum_good == 1);
  CHECK(got[0]->unit_bytes == 0);
  CHECK(got[0]->headroom() == kHeadroom);
  CHECK_FALSE(is_large(*got[0]));
  CHECK(is(got[1], merged));
  CHECK(got[1]->checksum_good == 0);
  CHECK(got[1]->unit_bytes == 1446);
  CHECK(got[1]->headers_bytes == 54);
  CHECK(got[1]->frames() == 21);
  CHECK(is_large(*got[1]));
  // And its own is its queue's again.
  CHECK(receive(port.of(0)).empty());
  CHECK(port.queues[0]->pool().available() == kPool.count);
  CHECK(port.queues[0]->pool().large_available() == kPool.large_count);
}

TEST_CASE("a frame that is longer than what is behind the headroom is handed over all the same", "[port][steering]") {
  Divided port(1, 2, {.count = 8, .room_bytes = 200});
  const Octets longest = segment(1, 2, 1, 200 - 54 + 100);
  BufferRef frame = BufferRef::take(port.queues[0]->pool());
  frame->head = kHeadroom - 100;
  std::memcpy(frame->append(300).data(), longest.data(), 300);
  port.queues[0]->arriving.push_back(frame.release());
  CHECK(receive(port.of(0)).empty());
  const auto got = receive(port.of(1));
  REQUIRE(got.size() == 1);
  CHECK(is(got[0], longest));
  CHECK(got[0]->headroom() == 28);
}

TEST_CASE("a frame that is longer than any buffer of who is to take it is lost and counted", "[port][steering]") {
  std::vector<std::unique_ptr<Port>> queues;
  auto first = std::make_unique<Queue>();
  first->arrive(segment(1, 2, 1, 300 - 54));
  queues.push_back(std::move(first));
  queues.push_back(std::make_unique<Queue>(PoolSize{.count = 8, .room_bytes = 299 - kHeadroom}));
  SteeredPorts port(std::move(queues), 2);
  receive(port.of(0));
  CHECK(receive(port.of(1)).empty());
  CHECK(port.of(1).frames_lost() == 1);
  CHECK(port.of(1).pool().available() == 8);
}

TEST_CASE("a frame for all comes to each shard, and is shared until each has its copy", "[port][steering]") {
  const unsigned queues = GENERATE(1u, 2u);
  Divided port(queues, 3);
  Queue& by = *port.queues[queues - 1];
  by.arrive(for_all());
  auto own = receive(port.of(queues - 1));
  REQUIRE(own.size() == 1);
  CHECK(is(own[0], for_all()));
  CHECK(by.pool().shared(*own[0]));
  own[0]->trim_front(14);  // its headers are seen to; others see them still
  for (unsigned shard = 0; shard < 3; ++shard) {
    if (shard == queues - 1) continue;
    const auto got = receive(port.of(shard));
    REQUIRE(got.size() == 1);
    CHECK(is(got[0], for_all()));
    CHECK_FALSE(port.of(shard).pool().shared(*got[0]));
  }
  receive(port.of(queues - 1));
  CHECK_FALSE(by.pool().shared(*own[0]));
  own.clear();
  port.check_pools();
}

TEST_CASE("frames that find a full ring on their way in are lost and counted, and the ring is as large as before",
          "[port][steering]") {
  Divided port(1, 2);
  for (int round = 0; round < 3; ++round) {
    for (std::uint32_t i = 0; i < HandoverRing::kSlots + 3; ++i) port.queues[0]->arrive(segment(1, 2, i));
    port.queues[0]->arrive(for_all());
    while (!port.queues[0]->arriving.empty()) receive(port.of(0));
    CHECK(port.of(0).frames_lost() == 4u * static_cast<unsigned>(round + 1));
    std::uint32_t got = 0;
    for (auto burst = receive(port.of(1)); !burst.empty(); burst = receive(port.of(1)))
      for (const BufferRef& each : burst) CHECK(number_of(each->bytes()) == got++);
    CHECK(got == HandoverRing::kSlots);
    CHECK(port.of(1).frames_lost() == 0);
    port.check_pools();
  }
}

TEST_CASE("a run that is lost counts as the frames that it is", "[port][steering]") {
  Divided port(1, 2, {.count = 1024, .room_bytes = 1518, .large_count = 1, .large_room_bytes = 65'553});
  BufferRef only(port.of(1).pool().take_large());
  port.queues[0]->arrive(segment(1, 2, 1, 14'000), 1400, 54);
  receive(port.of(0));
  CHECK(receive(port.of(1)).empty());
  CHECK(port.of(1).frames_lost() == 10);
  only.reset();
  port.check_pools();
}

TEST_CASE("who has no buffer for a frame loses it and counts it, and the frame's own goes back", "[port][steering]") {
  Divided port(1, 2);
  std::vector<BufferRef> held;
  while (BufferRef one = BufferRef::take(port.of(1).pool())) held.push_back(std::move(one));
  port.queues[0]->arrive(segment(1, 2));
  receive(port.of(0));
  CHECK(receive(port.of(1)).empty());
  CHECK(port.of(1).frames_lost() == 1);
  CHECK(port.of(0).frames_lost() == 0);
  held.clear();
  port.check_pools();
}

// A question, and then the SYN of who asked it.
TEST_CASE("what was handed over comes before what came in by the own queue", "[port][steering]") {
  Divided port(2, 2);
  for (std::uint32_t i = 0; i < 4; ++i) {
    port.queues[1]->arrive(segment(1, 2, i));
    port.queues[0]->arrive(segment(1, 2, i, 100));
    receive(port.of(0));
    const auto got = receive(port.of(1));
    REQUIRE(got.size() == 2);
    CHECK(got[0]->length > got[1]->length);
  }
}

TEST_CASE("neither the own queue nor another shard's frames wait for the other's end", "[port][steering]") {
  Divided port(2, 2);
  for (std::uint32_t i = 0; i < 100; ++i)
    for (Queue* queue : port.queues) queue->arrive(segment(0, 2, i));
  receive(port.of(1));
  unsigned of_others = 0, of_own = 0;
  for (int i = 0; i < 20; ++i) {
    const std::size_t before = port.queues[0]->arriving.size();
    REQUIRE(receive(port.of(0), 2).size() == 2);
    const auto own = static_cast<unsigned>(before - port.queues[0]->arriving.size());
    of_own += own;
    of_others += 2 - own;
  }
  CHECK(of_own == 20);
  CHECK(of_others == 20);
}

// ---- sending -----------------------------------------------------------------------------------

TEST_CASE("a shard without a queue sends by another's, which sends a copy of what the frame was", "[port][steering]") {
  Divided port(1, 2);
  const Octets octets = segment(1, 2, 5, 20'000);
  BufferRef kept = made(port.of(1), octets);
  kept->unit_bytes = 1400;
  kept->headers_bytes = 54;
  REQUIRE(send(port.of(1), kept.share()));
  CHECK(port.of(1).pool().shared(*kept));
  // It keeps the payload, until it is acknowledged.
  kept->trim_front(54);
  kept->unit_bytes = 0;
  CHECK(port.queues[0]->sent.empty());
  receive(port.of(0));
  REQUIRE(port.queues[0]->sent.size() == 1);
  CHECK(port.queues[0]->sent[0].octets == octets);
  CHECK(port.queues[0]->sent[0].unit_bytes == 1400);
  CHECK(port.queues[0]->sent[0].headers_bytes == 54);
  CHECK(port.of(1).pool().shared(*kept));
  receive(port.of(1));
  CHECK_FALSE(port.of(1).pool().shared(*kept));
  kept.reset();
  port.check_pools();
}

TEST_CASE("a shard with a queue sends by it, the very buffer; one without by that of its number", "[port][steering]") {
  Divided port(2, 5);
  for (unsigned shard = 0; shard < 5; ++shard) {
    BufferRef frame = made(port.of(shard), segment(shard, 5, shard));
    REQUIRE(send(port.of(shard), std::move(frame)));
  }
  for (unsigned i = 0; i < 2; ++i) receive(port.of(i));
  const auto numbers = [](const Queue& queue) {
    std::vector<std::uint32_t> found;
    for (const Sent& each : queue.sent) found.push_back(number_of(each.octets));
    return found;
  };
  CHECK(numbers(*port.queues[0]) == std::vector<std::uint32_t>{0, 2, 4});
  CHECK(numbers(*port.queues[1]) == std::vector<std::uint32_t>{1, 3});
  port.check_pools();
}

TEST_CASE("a sender whose ring is full has fewer frames accepted, and all of them leave once and in order",
          "[port][steering]") {
  Divided port(1, 2);
  std::vector<Buffer*> all;
  for (std::uint32_t i = 0; i < HandoverRing::kSlots + 8; ++i)
    all.push_back(made(port.of(1), segment(1, 2, i)).release());
  CHECK(port.of(1).send_burst(all.data(), HandoverRing::kSlots + 8) == HandoverRing::kSlots);
  CHECK(all.back()->refs == 1);
  CHECK(port.of(1).send_burst(all.data() + HandoverRing::kSlots, 8) == 0);
  // The queue takes a few at a time.
  port.queues[0]->accepts = 10;
  receive(port.of(0));
  CHECK(port.queues[0]->sent.size() == 10);
  CHECK_FALSE(port.of(0).arm());
  CHECK(port.of(1).send_burst(all.data() + HandoverRing::kSlots, 8) == 8);
  for (int i = 0; i < 200; ++i) {
    port.queues[0]->accepts = 7;
    receive(port.of(0));
  }
  REQUIRE(port.queues[0]->sent.size() == all.size());
  for (std::uint32_t i = 0; i < all.size(); ++i) REQUIRE(number_of(port.queues[0]->sent[i].octets) == i);
  CHECK(port.of(0).frames_lost() == 0);
  port.check_pools();
}

TEST_CASE("what a queue does not take for others is lost in the end, and counted", "[port][steering]") {
  Divided port(1, 2);
  port.queues[0]->accepts = 0;
  REQUIRE(send(port.of(1), made(port.of(1), segment(1, 2, 1))));
  receive(port.of(0));
  port.of(0).tend();
  CHECK(port.of(0).frames_lost() == 0);
  // It has taken some meanwhile: not stuck.
  port.queues[0]->accepts = 1;
  REQUIRE(send(port.of(1), made(port.of(1), segment(1, 2, 2))));
  receive(port.of(0));
  port.of(0).tend();
  CHECK(port.of(0).frames_lost() == 0);
  CHECK_FALSE(port.of(0).arm());
  port.of(0).tend();
  CHECK(port.of(0).frames_lost() == 1);
  CHECK(port.of(0).arm());
  port.check_pools();
}

TEST_CASE("a frame for which the sending shard has no buffer is lost and counted there", "[port][steering]") {
  Divided port(1, 2);
  std::vector<BufferRef> held;
  while (BufferRef one = BufferRef::take(port.of(0).pool())) held.push_back(std::move(one));
  REQUIRE(send(port.of(1), made(port.of(1), segment(1, 2))));
  receive(port.of(0));
  CHECK(port.queues[0]->sent.empty());
  CHECK(port.of(0).frames_lost() == 1);
  held.clear();
  port.check_pools();
}

// ---- sleeping ----------------------------------------------------------------------------------

TEST_CASE("a shard that sleeps is woken for frames that are handed to it, once, and not when it is awake",
          "[port][steering]") {
  Divided port(1, 2);
  const int descriptor = port.of(1).wake_descriptor();
  REQUIRE(descriptor >= 0);
  // Awake: nobody asks the kernel for anything.
  port.queues[0]->arrive(segment(1, 2));
  receive(port.of(0));
  CHECK_FALSE(readable(descriptor));
  CHECK_FALSE(port.of(1).arm());
  CHECK_FALSE(readable(descriptor));
  CHECK(receive(port.of(1)).size() == 1);
  for (int round = 0; round < 2; ++round) {
    REQUIRE(port.of(1).arm());
    CHECK_FALSE(readable(descriptor));
    for (int i = 0; i < 3; ++i) port.queues[0]->arrive(segment(1, 2));
    receive(port.of(0));
    CHECK(readable(descriptor));
    std::uint64_t count = 0;
    REQUIRE(read(descriptor, &count, sizeof count) == sizeof count);
    CHECK(count == 1);
    port.queues[0]->arrive(segment(1, 2));
    receive(port.of(0));
    CHECK_FALSE(readable(descriptor));
    port.of(1).disarm();
    CHECK(receive(port.of(1)).size() == 4);
  }
  // Awake again without having been woken.
  REQUIRE(port.of(1).arm());
  port.of(1).disarm();
  port.queues[0]->arrive(segment(1, 2));
  receive(port.of(0));
  CHECK_FALSE(readable(descriptor));
  CHECK(receive(port.of(1)).size() == 1);
  // What was not read is not heard the next time.
  REQUIRE(port.of(1).arm());
  port.queues[0]->arrive(for_all());
  receive(port.of(0));
  port.of(1).disarm();
  CHECK_FALSE(readable(descriptor));
}

TEST_CASE("a shard with a queue that sleeps is woken by its queue, and by those that send by it or hand over to it",
          "[port][steering]") {
  Divided port(2, 3);
  const int descriptor = port.of(0).wake_descriptor();
  REQUIRE(descriptor >= 0);
  REQUIRE(port.of(0).arm());
  CHECK(port.queues[0]->armed);
  CHECK_FALSE(readable(descriptor));
  port.queues[0]->ring();
  CHECK(readable(descriptor));
  port.queues[0]->quiet();
  CHECK_FALSE(readable(descriptor));
  port.of(0).disarm();
  CHECK_FALSE(port.queues[0]->armed);

  REQUIRE(port.of(0).arm());
  REQUIRE(send(port.of(2), made(port.of(2), segment(2, 3))));
  CHECK(readable(descriptor));
  port.of(0).disarm();
  CHECK_FALSE(readable(descriptor));
  CHECK_FALSE(port.of(0).arm());
  CHECK_FALSE(port.queues[0]->armed);
  receive(port.of(0));

  REQUIRE(port.of(0).arm());
  port.queues[1]->arrive(segment(0, 3));
  receive(port.of(1));
  CHECK(readable(descriptor));
  port.of(0).disarm();
  CHECK_FALSE(port.of(0).arm());
  CHECK(receive(port.of(0)).size() == 1);

  port.queues[0]->arrive(segment(0, 3));
  CHECK_FALSE(port.of(0).arm());
}

TEST_CASE("buffers that come back wake who sleeps only if it has hardly any", "[port][steering]") {
  Divided port(1, 2);
  const int descriptor = port.of(1).wake_descriptor();
  const auto hand_over_and_sleep = [&] {
    REQUIRE(send(port.of(1), made(port.of(1), segment(1, 2))));
    REQUIRE(port.of(1).arm());
    receive(port.of(0));
  };
  hand_over_and_sleep();
  CHECK_FALSE(readable(descriptor));
  port.of(1).disarm();
  receive(port.of(1));
  std::vector<BufferRef> held;
  while (port.of(1).pool().available() > kPool.count / 8) held.push_back(BufferRef::take(port.of(1).pool()));
  hand_over_and_sleep();
  CHECK(readable(descriptor));
  port.of(1).disarm();
  CHECK_FALSE(readable(descriptor));
  // They are back: nothing that it has out may wake it.
  receive(port.of(1));
  REQUIRE(port.of(1).arm());
  receive(port.of(0));
  CHECK_FALSE(readable(descriptor));
  // And of the large ones as well.
  port.of(1).disarm();
  held.clear();
  while (port.of(1).pool().large_available() >= kPool.large_count / 8)
    held.emplace_back(port.of(1).pool().take_large());
  hand_over_and_sleep();
  CHECK(readable(descriptor));
}

TEST_CASE("a shard whose queue has no descriptor has none, and looks again by itself", "[port][steering]") {
  Divided port(1, 2, kPool, false);
  CHECK(port.of(0).wake_descriptor() == -1);
  CHECK(port.of(0).facts().needs_wake);
  CHECK(port.of(1).wake_descriptor() >= 0);
  CHECK(port.of(1).facts().needs_wake);
  CHECK(port.of(0).arm());
  REQUIRE(send(port.of(1), made(port.of(1), segment(1, 2))));
  port.of(0).disarm();
  CHECK_FALSE(port.of(0).arm());
  receive(port.of(0));
  CHECK(port.of(0).arm());
}

// ---- what it is ----------------------------------------------------------------------------------

TEST_CASE("a shard's port says what its queue says, and only its own worker tends the queue", "[port][steering]") {
  Divided port(2, 4);
  port.queues[0]->lost = 5;
  port.queues[1]->mtu = 1300;
  port.queues[0]->up = false;
  CHECK(port.of(0).facts().kind == "queue");
  CHECK(port.of(2).facts().kind == "queue");
  CHECK_FALSE(port.of(0).link_up());
  CHECK(port.of(1).link_up());
  CHECK_FALSE(port.of(2).link_up());
  CHECK(port.of(1).link_mtu() == 1300);
  CHECK(port.of(2).link_mtu() == 1400);
  CHECK(port.of(3).link_mtu() == 1300);
  CHECK(port.of(0).frames_lost() == 5);
  CHECK(port.of(2).frames_lost() == 0);
  port.of(0).tend();
  port.of(2).tend();
  CHECK(port.queues[0]->tends == 1);
  CHECK(&port.of(0).pool() == &port.queues[0]->pool());
  CHECK(&port.of(2).pool() != &port.queues[0]->pool());
  CHECK(port.of(2).pool().available() == kPool.count);
  CHECK(port.of(2).pool().large_available() == kPool.large_count);
  CHECK(port.of(2).pool().room_bytes() == kPool.large_room_bytes);
  CHECK(port.of(2).pool().small_room_bytes() == kPool.room_bytes);
}

TEST_CASE("a shard's segments need no checksums where neither its own link nor the port's wants them",
          "[port][steering]") {
  for (const bool links_apart : {false, true}) {
    CAPTURE(links_apart);
    Divided port(2, 3, kPool, true, links_apart);
    const auto are_filled = [&] {
      return std::array{port.of(0).fills_checksums(), port.of(1).fills_checksums(), port.of(2).fills_checksums()};
    };
    CHECK(are_filled() == std::array{false, false, false});
    port.queues[0]->fills = true;
    CHECK(are_filled() == std::array{true, false, true});
    port.queues[1]->fills = true;
    CHECK(are_filled() == std::array{true, true, true});
    // While it is down, frames go by the first.
    port.queues[1]->fills = port.queues[1]->up = false;
    CHECK(are_filled() == std::array{true, links_apart, true});
    port.queues[0]->fills = false;
    port.queues[1]->fills = port.queues[1]->up = true;
    CHECK(are_filled() == std::array{false, !links_apart, false});
  }
}

TEST_CASE("the only shard of a port has its queue as it is", "[port][steering]") {
  Divided port(1, 1);
  CHECK(port.of(0).wake_descriptor() == port.queues[0]->wake_descriptor());
  Buffer* const arrived = port.queues[0]->arrive(for_all());
  CHECK_FALSE(port.of(0).arm());
  const auto got = receive(port.of(0));
  REQUIRE(got.size() == 1);
  CHECK(got[0].get() == arrived);
  CHECK(got[0]->refs == 1);
  CHECK(port.of(0).arm());
  CHECK(send(port.of(0), made(port.of(0), for_all())));
  CHECK(port.queues[0]->sent.size() == 1);
}

TEST_CASE("frames that nobody has taken go back when a ring ends", "[port][steering]") {
  HeapPool pool(8, 1518);
  {
    HandoverRing ring;
    for (int i = 0; i < 6; ++i) {
      BufferRef frame = BufferRef::take(pool);
      REQUIRE(ring.fill(frame.release()));
      if (i == 2) ring.push();
    }
    REQUIRE(ring.waiting() == 3);
    ring.move_on(2);
    CHECK(pool.available() == 2);
    CHECK(ring.take_back());
    CHECK_FALSE(ring.take_back());
    CHECK(pool.available() == 4);
    CHECK(ring.out() == 4);
  }
  CHECK(pool.available() == 8);
  // What was on its way in all of a port's rings.
  Divided port(2, 4);
  for (Queue* queue : port.queues) {
    for (unsigned shard = 0; shard < 4; ++shard) queue->arrive(segment(shard, 4));
    queue->arrive(for_all());
    queue->accepts = 0;
  }
  for (const unsigned shard : {0u, 1u, 2u, 3u, 0u, 1u})
    REQUIRE(send(port.of(shard), made(port.of(shard), segment(shard, 4))) == (shard >= 2));
  receive(port.of(0));
  receive(port.of(1));
}

// ---- by threads ----------------------------------------------------------------------------------

}  // namespace rnic::port
