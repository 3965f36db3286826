// One port divided among several workers, each a thread.
#include "unit/port/steered.hpp"

namespace rnic::port {

using namespace steered_test;

namespace {

// Sleeps as a worker does, on nothing but the descriptor. False: nobody woke it for ten seconds.
bool sleep(Port& port) {
  bool woken = true;
  if (port.arm()) {
    pollfd waiting{.fd = port.wake_descriptor(), .events = POLLIN, .revents = 0};
    woken = poll(&waiting, 1, 10'000) == 1;
  }
  port.disarm();
  return woken;
}

std::uint16_t unit_of(std::uint32_t number) { return number % 16 == 3 ? 1446 : 0; }
std::size_t payload_of(std::uint32_t number) { return unit_of(number) != 0 ? 6000 + number % 2000 : 4 + number % 900; }

// Every octet and every word of it.
bool is_intact(const Buffer& frame) {
  const std::uint32_t number = number_of(frame.bytes());
  if (frame.length != 54 + payload_of(number) || frame.unit_bytes != unit_of(number)) return false;
  if (frame.unit_bytes != 0 && frame.headers_bytes != 54) return false;
  for (std::size_t i = 4; i < frame.length - 54; ++i)
    if (frame.bytes()[54 + i] != static_cast<std::byte>(number + i)) return false;
  return true;
}

}  // namespace

// One queue, two workers. What comes for shard 1 it sends back, so it leaves by shard 0; there are never more on their
// way than a ring holds. Both sleep when there is nothing, so a wake-up that is lost is the end of it.
TEST_CASE(
    "two workers exchange a hundred thousand frames: none is lost, changed, or late for a wake-up that was missed",
    "[port][steering][threads]") {
  constexpr std::uint32_t kFrames = 100'000, kWindow = 200;
  Divided port(1, 2);
  Queue& queue = *port.queues[0];
  const std::uint32_t all[] = {queue.pool().available(), port.of(1).pool().available()};
  const Octets templates[] = {segment(0, 2), segment(1, 2)};

  // Of the first worker's thread.
  std::uint32_t generated = 0, came_back = 0, own = 0, own_generated = 0, bad[2] = {}, to_all[2] = {};
  std::mt19937 chance(1);
  queue.generate = [&](Queue& at) {
    for (unsigned burst = 1 + static_cast<unsigned>(chance()) % 48;
         burst != 0 && generated < kFrames && generated - came_back < kWindow; --burst) {
      const unsigned shard = generated % 8 == 0 ? 0 : 1;
      Octets octets(templates[shard].begin(), templates[shard].begin() + 54);
      octets.resize(54 + payload_of(generated));
      for (std::size_t i = 0; i < octets.size() - 54; ++i) octets[54 + i] = static_cast<std::byte>(generated + i);
      store_be(MutableBytes(octets), 54, generated);
      at.arrive(octets, unit_of(generated), 54);
      if (generated % 100 == 99) at.arrive(for_all());
      own_generated += shard == 0 ? 1 : 0;
      came_back += shard == 0 ? 1 : 0;
      ++generated;
    }
  };
  std::uint32_t last_back = 0;
  queue.on_sent = [&](const Buffer& frame) {
    const std::uint32_t number = number_of(frame.bytes());
    bad[0] += !is_intact(frame) || number < last_back ? 1 : 0;
    last_back = number;
    ++came_back;
  };
  std::atomic<bool> failed{false};

  std::uint32_t echoed = 0;
  std::thread second([&] {
    const std::uint32_t expected = kFrames - kFrames / 8;
    std::uint32_t last = 0;
    BufferRef kept;  // of what was sent, as for another transmission
    std::deque<Buffer*> to_send;
    while ((echoed < expected || !to_send.empty()) && !failed) {
      Buffer* burst[32];
      const unsigned count = port.of(1).receive_burst(burst, 32);
      for (unsigned i = 0; i < count; ++i) {
        BufferRef frame(burst[i]);
        if (load_be<std::uint16_t>(frame->bytes(), 12) == wire::ether_type::kArp) {
          ++to_all[1];
          continue;
        }
        const std::uint32_t number = number_of(frame->bytes());
        bad[1] += !is_intact(*frame) || number < last ? 1 : 0;
        last = number;
        ++echoed;
        kept = frame.share();
        to_send.push_back(frame.release());
      }
      while (!to_send.empty() && port.of(1).send_burst(&to_send.front(), 1) == 1) to_send.pop_front();
      if (count == 0 && to_send.empty() && echoed < expected && !sleep(port.of(1))) failed = true;
    }
  });
  while ((came_back < kFrames || own < own_generated) && !failed) {
    Buffer* burst[32];
    const unsigned count = port.of(0).receive_burst(burst, 32);
    for (unsigned i = 0; i < count; ++i) {
      const BufferRef frame(burst[i]);
      if (load_be<std::uint16_t>(frame->bytes(), 12) == wire::ether_type::kArp) {
        ++to_all[0];
        continue;
      }
      bad[0] += is_intact(*frame) ? 0 : 1;
      ++own;
    }
    if (count == 0 && (came_back < kFrames || own < own_generated) && !sleep(port.of(0))) failed = true;
  }
  second.join();
  queue.generate = {};
  queue.on_sent = {};
  CHECK_FALSE(failed);
  CHECK(own == kFrames / 8);
  CHECK(echoed == kFrames - kFrames / 8);
  CHECK(bad[0] == 0);
  CHECK(bad[1] == 0);
  CHECK(to_all[0] == kFrames / 100);
  for (auto rest = receive(port.of(1)); !rest.empty(); rest = receive(port.of(1)))
    to_all[1] += static_cast<std::uint32_t>(rest.size());
  CHECK(to_all[1] == kFrames / 100);
  CHECK(port.of(0).frames_lost() + port.of(1).frames_lost() == 0);
  port.check_pools();
  CHECK(all[0] == queue.pool().available());
  CHECK(all[1] == port.of(1).pool().available());
}

// Two queues, three workers that do not sleep: frames come by either queue for each of them, and each sends what it
// gets.
TEST_CASE("three workers of two queues hand over to each other, and each frame leaves once",
          "[port][steering][threads]") {
  constexpr std::uint32_t kFrames = 20'000, kWindow = 150;  // by each queue
  Divided port(2, 3);
  Octets templates[3];
  for (unsigned shard = 0; shard < 3; ++shard) templates[shard] = segment(shard, 3);
  std::atomic<std::uint32_t> left_of[2] = {};  // by what queue they came
  std::uint32_t generated[2] = {}, wrong[3] = {};
  for (unsigned q = 0; q < 2; ++q) {
    port.queues[q]->generate = [&, q](Queue& at) {
      for (; generated[q] < kFrames && generated[q] - left_of[q] < kWindow; ++generated[q]) {
        Octets octets = templates[generated[q] % 3];
        store_be(MutableBytes(octets), 54, generated[q]);
        octets[58] = static_cast<std::byte>(q);
        at.arrive(octets);
      }
    };
    port.queues[q]->on_sent = [&](const Buffer& frame) { ++left_of[std::to_integer<unsigned>(frame.bytes()[58])]; };
  }
  const auto done = [&] { return left_of[0] == kFrames && left_of[1] == kFrames; };
  const auto work = [&](unsigned shard) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!done() && std::chrono::steady_clock::now() < end) {
      Buffer* burst[64];
      const unsigned count = port.of(shard).receive_burst(burst, 64);
      for (unsigned i = 0; i < count; ++i) {
        wrong[shard] += steer(burst[i]->bytes(), 3).shard == shard ? 0 : 1;
        while (port.of(shard).send_burst(burst + i, 1) == 0) std::this_thread::yield();
      }
      if (count == 0) std::this_thread::yield();
    }
  };
  std::thread one(work, 1), two(work, 2);
  work(0);
  one.join();
  two.join();
  CHECK(done());
  for (unsigned i = 0; i < 3; ++i) {
    CHECK(wrong[i] == 0);
    CHECK(port.of(i).frames_lost() == 0);
  }
  port.check_pools();
}

}  // namespace rnic::port
