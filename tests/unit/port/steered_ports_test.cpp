// One port divided among several workers, with queues that are the test's own: step by step, and by threads.
#include "port/steered_ports.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "kit/catch.hpp"
#include "kit/frames.hpp"
#include "port/steering.hpp"
#include "wire/rss.hpp"

namespace rnic::port {
namespace {

namespace frames = rnic::test::frames;
using rnic::test::Octets;
using wire::IpAddress;

const IpAddress kNear = IpAddress::v4(192, 0, 2, 1), kFar = IpAddress::v4(198, 51, 100, 77);
constexpr PoolSize kPool{.count = 1024, .room_bytes = 1518, .large_count = 64, .large_room_bytes = 65'553};

struct Sent {
  Octets octets;
  bool checksum_good = false;
  std::uint16_t unit_bytes = 0, headers_bytes = 0;
};
Sent seen(const Buffer& frame) {
  return {
      {frame.bytes().begin(), frame.bytes().end()}, frame.checksum_good != 0, frame.unit_bytes, frame.headers_bytes};
}

// One queue of a port: what arrives and what has left are the test's to say and to see. Asserts by itself, as threads
// use it.
class Queue final : public Port {
 public:
  explicit Queue(const PoolSize& size = kPool, bool wakes = true, bool links_apart = false)
      : pool_(size), event_(wakes ? eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) : -1) {
    facts_.kind = "queue";
    facts_.links_apart = links_apart;
    facts_.needs_wake = wakes;
  }
  ~Queue() override {
    while (!arriving.empty()) take_first();
    // Whatever was on its way has come back.
    RNIC_ASSERT(pool_.available() == small_all_ && pool_.large_available() == large_all_);
    if (event_ >= 0) close(event_);
  }

  const PortFacts& facts() const override { return facts_; }
  bool link_up() const override { return up; }
  std::uint32_t link_mtu() const override { return mtu; }
  BufferPool& pool() override { return pool_; }
  unsigned receive_burst(Buffer** out, unsigned max) override {
    if (generate) generate(*this);
    unsigned n = 0;
    while (n < max && !arriving.empty()) out[n++] = take_first().release();
    return n;
  }
  unsigned send_burst(Buffer* const* given, unsigned count) override {
    const unsigned n = std::min(count, accepts);
    accepts -= accepts == kEver ? 0 : n;
    for (unsigned i = 0; i < n; ++i) {
      const BufferRef frame(given[i]);
      RNIC_ASSERT(frame->pool == &pool_);
      if (on_sent)
        on_sent(*frame);
      else
        sent.push_back(seen(*frame));
    }
    return n;
  }
  std::uint64_t frames_lost() const override { return lost; }
  int wake_descriptor() override { return mute ? -1 : event_; }
  bool arm() override {
    if (generate) generate(*this);
    armed = arriving.empty();
    return armed;
  }
  void disarm() override { armed = false; }
  void tend() override { ++tends; }

  void ring() {
    const std::uint64_t one = 1;
    REQUIRE(write(event_, &one, sizeof one) == sizeof one);
  }
  void quiet() {
    std::uint64_t count = 0;
    (void)!read(event_, &count, sizeof count);
  }
  Buffer* arrive(const Octets& octets, std::uint16_t unit_bytes = 0, std::uint16_t headers_bytes = 0) {
    BufferRef frame = BufferRef::take(pool_, static_cast<std::uint32_t>(octets.size()));
    RNIC_ASSERT(frame);
    std::memcpy(frame->append(static_cast<std::uint32_t>(octets.size())).data(), octets.data(), octets.size());
    frame->unit_bytes = unit_bytes;
    frame->headers_bytes = headers_bytes;
    arriving.push_back(frame.release());
    return arriving.back();
  }

  static constexpr unsigned kEver = ~0u;
  std::deque<Buffer*> arriving;
  std::vector<Sent> sent;
  unsigned accepts = kEver;
  bool up = true, armed = false, mute = false;
  std::uint32_t mtu = 1400;
  std::uint64_t lost = 0;
  unsigned tends = 0;
  std::function<void(Queue&)> generate;
  std::function<void(const Buffer&)> on_sent;

 private:
  BufferRef take_first() {
    BufferRef first(arriving.front());
    arriving.pop_front();
    return first;
  }

  PortFacts facts_;
  HeapPool pool_;
  std::uint32_t small_all_ = pool_.available(), large_all_ = pool_.large_available();
  int event_;
};

// `queues` of them among `shards`.
struct Divided {
  Divided(unsigned queue_count, unsigned shards, const PoolSize& size = kPool, bool wakes = true,
          bool links_apart = false) {
    std::vector<std::unique_ptr<Port>> ports;
    for (unsigned i = 0; i < queue_count; ++i) {
      auto queue = std::make_unique<Queue>(size, wakes, links_apart);
      queues.push_back(queue.get());
      ports.push_back(std::move(queue));
    }
    all = std::make_unique<SteeredPorts>(std::move(ports), shards);
    for (unsigned i = 0; i < shards; ++i) {
      small.push_back(all->of(i).pool().available());
      large.push_back(all->of(i).pool().large_available());
    }
  }
  Port& of(unsigned shard) { return all->of(shard); }
  // All that is out comes back, and each pool has what it had.
  void check_pools() {
    for (int round = 0; round < 2; ++round)
      for (unsigned i = 0; i < all->shards(); ++i) REQUIRE(of(i).receive_burst(nullptr, 0) == 0);
    for (unsigned i = 0; i < all->shards(); ++i) {
      CAPTURE(i);
      CHECK(of(i).pool().available() == small[i]);
      CHECK(of(i).pool().large_available() == large[i]);
    }
  }

  std::vector<Queue*> queues;
  std::unique_ptr<SteeredPorts> all;
  std::vector<std::uint32_t> small, large;
};

// A segment of a connection of that shard; `which` of its connections. The payload's first octets say which one it is.
Octets segment(unsigned shard, unsigned shards, std::uint32_t number = 0, std::size_t payload_bytes = 20) {
  wire::TcpHeader header;
  header.source_port = 1;
  header.destination_port = 4420;
  while (wire::rss::shard_of(kFar, header.source_port, kNear, 4420, shards) != shard) ++header.source_port;
  Octets payload(std::max<std::size_t>(payload_bytes, 4));
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(number + i);
  store_be(MutableBytes(payload), 0, number);
  return frames::packet({}, wire::protocol::kTcp, kFar, kNear, frames::tcp(header, kFar, kNear, payload));
}
std::uint32_t number_of(Bytes frame) { return load_be<std::uint32_t>(frame, 54); }
Octets for_all() {
  wire::ArpPacket packet;
  packet.operation = wire::ArpPacket::kReply;
  return frames::arp({}, packet);
}

std::vector<BufferRef> receive(Port& port, unsigned max = 64) {
  std::vector<Buffer*> burst(max);
  burst.resize(port.receive_burst(burst.data(), max));
  return {burst.begin(), burst.end()};
}
BufferRef made(Port& port, const Octets& octets) {
  BufferRef frame = BufferRef::take(port.pool(), static_cast<std::uint32_t>(octets.size()));
  REQUIRE(frame);
  std::memcpy(frame->append(static_cast<std::uint32_t>(octets.size())).data(), octets.data(), octets.size());
  return frame;
}
// Hands over the caller's one reference.
bool send(Port& port, BufferRef frame) {
  Buffer* raw = frame.release();
  if (port.send_burst(&raw, 1) == 1) return true;
  BufferRef back(raw);
  return false;
}
bool is(const BufferRef& frame, const Octets& octets) {
  return frame && std::equal(frame->bytes().begin(), frame->bytes().end(), octets.begin(), octets.end());
}
bool readable(int descriptor) {
  pollfd waiting{.fd = descriptor, .events = POLLIN, .revents = 0};
  return poll(&waiting, 1, 0) == 1;
}

}  // namespace

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
