// One port divided among several workers, with queues that are the test's own.
#pragma once

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
#include "port/steered_ports.hpp"
#include "port/steering.hpp"
#include "wire/rss.hpp"

namespace rnic::port::steered_test {

namespace frames = rnic::test::frames;
using rnic::test::Octets;
using wire::IpAddress;

inline const IpAddress kNear = IpAddress::v4(192, 0, 2, 1), kFar = IpAddress::v4(198, 51, 100, 77);
constexpr PoolSize kPool{.count = 1024, .room_bytes = 1518, .large_count = 64, .large_room_bytes = 65'553};

struct Sent {
  Octets octets;
  bool checksum_good = false;
  std::uint16_t unit_bytes = 0, headers_bytes = 0;
};
inline Sent seen(const Buffer& frame) {
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
  bool fills_checksums() const override { return fills; }
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
  bool up = true, armed = false, mute = false, fills = false;
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
inline Octets segment(unsigned shard, unsigned shards, std::uint32_t number = 0, std::size_t payload_bytes = 20) {
  wire::TcpHeader header;
  header.source_port = 1;
  header.destination_port = 4420;
  while (wire::rss::shard_of(kFar, header.source_port, kNear, 4420, shards) != shard) ++header.source_port;
  Octets payload(std::max<std::size_t>(payload_bytes, 4));
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(number + i);
  store_be(MutableBytes(payload), 0, number);
  return frames::packet({}, wire::protocol::kTcp, kFar, kNear, frames::tcp(header, kFar, kNear, payload));
}
inline std::uint32_t number_of(Bytes frame) { return load_be<std::uint32_t>(frame, 54); }
inline Octets for_all() {
  wire::ArpPacket packet;
  packet.operation = wire::ArpPacket::kReply;
  return frames::arp({}, packet);
}

inline std::vector<BufferRef> receive(Port& port, unsigned max = 64) {
  std::vector<Buffer*> burst(max);
  burst.resize(port.receive_burst(burst.data(), max));
  return {burst.begin(), burst.end()};
}
inline BufferRef made(Port& port, const Octets& octets) {
  BufferRef frame = BufferRef::take(port.pool(), static_cast<std::uint32_t>(octets.size()));
  REQUIRE(frame);
  std::memcpy(frame->append(static_cast<std::uint32_t>(octets.size())).data(), octets.data(), octets.size());
  return frame;
}
// Hands over the caller's one reference.
inline bool send(Port& port, BufferRef frame) {
  Buffer* raw = frame.release();
  if (port.send_burst(&raw, 1) == 1) return true;
  BufferRef back(raw);
  return false;
}
inline bool is(const BufferRef& frame, const Octets& octets) {
  return frame && std::equal(frame->bytes().begin(), frame->bytes().end(), octets.begin(), octets.end());
}
inline bool readable(int descriptor) {
  pollfd waiting{.fd = descriptor, .events = POLLIN, .revents = 0};
  return poll(&waiting, 1, 0) == 1;
}

}  // namespace rnic::port::steered_test
