#include "port/pair_port.hpp"

#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "kit/catch.hpp"
#include "port/loopback_port.hpp"
#include "port/open.hpp"

namespace rnic::port {
namespace {

struct Pair {
  explicit Pair(std::uint32_t buffers = 64, std::uint32_t mtu = 1500) {
    const PortSpec spec{.kind = PortSpec::Kind::pair, .target = "wire", .role = PortSpec::Role::none, .peer = {}};
    PortFactory factory({spec, spec});
    PortOptions options{.name = "rnic0", .mtu_bytes = mtu, .mac = {}, .buffers = buffers};
    a = factory.open(spec, options, error);
    b = factory.open(spec, options, error);
    third = factory.open(spec, options, third_error);
  }
  std::string error, third_error;
  std::unique_ptr<Port> a, b, third;
};

BufferRef frame(Port& port, std::uint8_t fill, std::uint32_t length = 60) {
  BufferRef buffer = BufferRef::take(port.pool(), length);
  REQUIRE(buffer);
  std::memset(buffer->append(length).data(), fill, length);
  return buffer;
}

// Hands over the caller's one reference.
unsigned send(Port& port, BufferRef buffer) {
  Buffer* raw = buffer.release();
  const unsigned sent = port.send_burst(&raw, 1);
  if (sent == 0) BufferRef back(raw);
  return sent;
}

BufferRef receive(Port& port) {
  Buffer* raw = nullptr;
  return port.receive_burst(&raw, 1) == 1 ? BufferRef(raw) : BufferRef();
}

// Whether the page in the middle of a buffer is in memory.
bool resident(const std::byte* middle) {
  const auto page = reinterpret_cast<std::uintptr_t>(middle) / 4096 * 4096;
  unsigned char there = 0;
  REQUIRE(mincore(reinterpret_cast<void*>(page), 4096, &there) == 0);
  return (there & 1) != 0;
}

std::uint8_t first(const BufferRef& buffer) { return std::to_integer<std::uint8_t>(buffer->bytes()[0]); }

}  // namespace

TEST_CASE("a frame crosses a pair both ways, in order, and only to the other end", "[port]") {
  Pair p;
  for (std::uint8_t i = 1; i <= 3; ++i) REQUIRE(send(*p.a, frame(*p.a, i)) == 1);
  REQUIRE(send(*p.b, frame(*p.b, 9)) == 1);
  CHECK(first(receive(*p.a)) == 9);
  CHECK_FALSE(receive(*p.a));
  for (std::uint8_t i = 1; i <= 3; ++i) CHECK(first(receive(*p.b)) == i);
  CHECK_FALSE(receive(*p.b));
}

TEST_CASE("a frame that the sender gives away crosses a pair as the very buffer", "[port]") {
  Pair p;
  BufferRef sent = frame(*p.a, 7);
  const Buffer* const buffer = sent.get();
  send(*p.a, std::move(sent));
  const BufferRef received = receive(*p.b);
  CHECK(received.get() == buffer);
  CHECK(received->checksum_good == 1);
  CHECK_FALSE(p.b->pool().shared(*received));
}

TEST_CASE("a frame that the sender keeps crosses a pair without a copy, and each side has its own view of it",
          "[port]") {
  Pair p;
  BufferRef kept = frame(*p.a, 7);
  const std::byte* const octets = kept->bytes().data();
  send(*p.a, kept.share());

  // The sender takes its headers off again before the frame is received.
  kept->trim_front(14);
  BufferRef received = receive(*p.b);
  CHECK(received->bytes().data() == octets);
  CHECK(received->length == 60);
  CHECK(received->checksum_good == 1);

  // The receiver trims, links and marks; the sender's buffer knows nothing of it.
  received->trim_front(40);
  received->mark = 1;
  received->next = received.get();
  CHECK(kept->length == 46);
  CHECK(kept->mark == 0);
  CHECK(kept->next == nullptr);
}

TEST_CASE("octets that both ends of a pair hold are shared for both, until one lets go", "[port]") {
  Pair p;
  BufferRef kept = frame(*p.a, 7);
  CHECK_FALSE(p.a->pool().shared(*kept));
  send(*p.a, kept.share());
  CHECK(p.a->pool().shared(*kept));
  BufferRef received = receive(*p.b);
  CHECK(p.a->pool().shared(*kept));
  CHECK(p.b->pool().shared(*received));
  received.reset();
  CHECK_FALSE(p.a->pool().shared(*kept));
}

TEST_CASE("what a receiver holds outlives the sender's last reference", "[port]") {
  Pair p;
  const std::uint32_t all = p.a->pool().available();
  BufferRef kept = frame(*p.a, 7);
  send(*p.a, kept.share());
  BufferRef received = receive(*p.b);
  kept.reset();
  CHECK(p.a->pool().available() == all - 1);
  CHECK(first(received) == 7);
  received.reset();
  CHECK(p.a->pool().available() == all);
}

TEST_CASE("the same frame sent twice is received twice", "[port]") {
  Pair p;
  BufferRef kept = frame(*p.a, 7);
  send(*p.a, kept.share());
  send(*p.a, kept.share());
  const BufferRef one = receive(*p.b);
  const BufferRef two = receive(*p.b);
  REQUIRE(one);
  REQUIRE(two);
  CHECK(one.get() != two.get());
  CHECK(one->bytes().data() == two->bytes().data());
}

TEST_CASE("a pair's ring takes as many frames as it has slots, and refuses the next", "[port]") {
  Pair p(PairPort::kRing + 8);
  std::vector<Buffer*> frames;
  for (unsigned i = 0; i < PairPort::kRing + 1; ++i) frames.push_back(frame(*p.a, 1).release());
  CHECK(p.a->send_burst(frames.data(), PairPort::kRing + 1) == PairPort::kRing);
  CHECK(frames.back()->refs == 1);  // still the caller's
  CHECK(receive(*p.b));
  CHECK(p.a->send_burst(&frames.back(), 1) == 1);
}

TEST_CASE("arm() of a pair's end says no while frames wait, and its descriptor never becomes readable", "[port]") {
  Pair p;
  CHECK(p.b->arm());
  send(*p.a, frame(*p.a, 1));
  CHECK_FALSE(p.b->arm());
  CHECK(p.a->arm());
  receive(*p.b);
  CHECK(p.b->arm());
  CHECK(p.b->wake_descriptor() >= 0);
}

TEST_CASE("a pair's link is up while both ends are there; without the other, frames are lost", "[port]") {
  Pair p;
  CHECK(p.a->link_up());
  const std::uint32_t all = p.a->pool().available();
  send(*p.a, frame(*p.a, 1));  // on its way when the end goes
  p.b.reset();
  CHECK_FALSE(p.a->link_up());
  CHECK(p.a->pool().available() == all);
  CHECK(p.a->frames_lost() == 0);
  CHECK(send(*p.a, frame(*p.a, 1)) == 1);
  CHECK(p.a->pool().available() == all);
  CHECK(p.a->frames_lost() == 1);
}

TEST_CASE("a pair's facts: checksums need no work, addresses differ, a buffer holds a frame of its MTU", "[port]") {
  for (const std::uint32_t mtu : {0u, 576u, 1500u, 9000u, 65'535u}) {
    Pair p(64, mtu);
    REQUIRE(p.b);
    CHECK(p.a->facts().mtu_bytes == (mtu == 0 ? 65'535 : mtu));
    CHECK(p.a->facts().verifies_checksums);
    CHECK(p.a->facts().fills_checksums);
    CHECK_FALSE(p.a->facts().needs_wake);  // what it brings the worker itself has sent
    CHECK_FALSE(p.a->facts().peer_comes_later);
    CHECK(p.a->facts().mac != p.b->facts().mac);
    CHECK_FALSE(p.a->facts().mac.is_multicast());
    CHECK(p.a->pool().room_bytes() >= p.a->facts().mtu_bytes + 18);
  }
}

TEST_CASE("a pair has two ends", "[port]") {
  Pair p;
  CHECK(p.third == nullptr);
  CHECK(p.third_error == "port \"pair:wire\": a pair has two ends, and a third device names it");
}

TEST_CASE("ends of a pair may have unequal MTUs: what is too long for the other end is lost, the rest arrives",
          "[port]") {
  const PortSpec spec{.kind = PortSpec::Kind::pair, .target = "w", .role = PortSpec::Role::none, .peer = {}};
  PortFactory factory({});
  std::string error;
  // Whichever is there first.
  const bool small_first = GENERATE(false, true);
  std::unique_ptr<Port> ends[2];
  for (const bool small : {small_first, !small_first})
    ends[small ? 1 : 0] =
        factory.open(spec, {.name = "a", .mtu_bytes = small ? 1500u : 0u, .mac = {}, .buffers = 8}, error);
  Port &large = *ends[0], &small = *ends[1];
  CHECK(large.facts().mtu_bytes == 65'535);
  CHECK(small.facts().mtu_bytes == 1500);
  const std::uint32_t all = small.pool().available(), all_large = small.pool().large_available();
  CHECK(send(large, frame(large, 1, 1518)) == 1);
  if (!small_first) {
    CHECK(send(large, frame(large, 2, 1519)) == 1);
    CHECK(send(small, frame(small, 9, 9000)) == 1);
    CHECK(receive(large)->length == 9000);
    CHECK(large.frames_lost() == 1);
    CHECK(small.frames_lost() == 0);
  }
  CHECK(send(large, frame(large, 3)) == 1);
  CHECK(receive(small)->length == 1518);
  CHECK(first(receive(small)) == 3);
  CHECK_FALSE(receive(small));
  CHECK(small.pool().available() == all);
  CHECK(small.pool().large_available() == all_large);
}

TEST_CASE("W-TCP-24: a run of segments crosses a pair whole, if its segments are as long as the other end takes",
          "[port][runs][W-TCP-24]") {
  Pair pair;
  REQUIRE(pair.a->facts().run_bytes == 65'535);
  const auto run = [&](std::uint16_t unit) {
    BufferRef buffer{pair.a->pool().take_large()};
    std::memset(buffer->append(54 + 30'000).data(), 5, 54 + 30'000);
    buffer->headers_bytes = 54;
    buffer->unit_bytes = unit;
    return buffer;
  };
  BufferRef kept = run(1446);
  CHECK(send(*pair.a, kept.share()) == 1);
  CHECK(send(*pair.a, run(1500)) == 1);
  CHECK(pair.a->frames_lost() == 1);
  const BufferRef came = receive(*pair.b);
  REQUIRE(came);
  CHECK(came->length == 30'054);
  CHECK(came->unit_bytes == 1446);
  CHECK(came->headers_bytes == 54);
  CHECK(came->bytes().data() == kept->bytes().data());
  CHECK_FALSE(receive(*pair.b));
  // Where frames are long runs have nothing to gain.
  CHECK(Pair(64, 65'535).a->facts().run_bytes == 0);
}

TEST_CASE("a long frame crosses a pair without a copy, in a large buffer; a short one takes none of these", "[port]") {
  Pair p(64, 0);
  const std::uint32_t small = p.a->pool().available(), large = p.a->pool().large_available();
  BufferRef kept = frame(*p.a, 7, 65'535 + 18);
  CHECK(p.a->pool().available() == small);
  CHECK(p.a->pool().large_available() == large - 1);
  send(*p.a, kept.share());
  BufferRef received = receive(*p.b);
  CHECK(received->bytes().data() == kept->bytes().data());
  CHECK(received->length == 65'535 + 18);
  CHECK(p.a->pool().shared(*kept));
  BufferRef ack = frame(*p.b, 1);
  CHECK(p.a->pool().large_available() == large - 1);
  received.reset();
  CHECK_FALSE(p.a->pool().shared(*kept));
  kept.reset();
  CHECK(p.a->pool().large_available() == large);
}

TEST_CASE("a pair's buffers stay in memory while either end uses them, and go when neither does", "[port]") {
  Pair p(64, 0);
  const bool one_end = GENERATE(false, true);
  if (one_end) p.a.reset();
  const auto use = [&] {
    const BufferRef busy = frame(*p.b, 7, 65'535);
    return busy->bytes().data() + 32'768;
  };
  // What a worker does between two looks at unused memory: both its ends, in turn.
  const auto tend = [&] {
    for (unsigned i = 0; i < kTendsPerRelease; ++i)
      for (const auto& end : {p.a.get(), p.b.get()})
        if (end != nullptr) end->tend();
  };
  for (int period = 0; period < 3; ++period) {
    const std::byte* const middle = use();
    tend();
    CHECK(resident(middle));
  }
  const std::byte* const middle = use();
  tend();
  tend();
  CHECK_FALSE(resident(middle));
}

TEST_CASE("an MTU is 576 to 65535 in memory, and to 16000 elsewhere", "[port]") {
  PortFactory factory({});
  std::string error;
  const auto mtu = [&](std::uint32_t bytes) {
    return factory.open({}, {.name = "a", .mtu_bytes = bytes, .mac = {}, .buffers = 8}, error) != nullptr;
  };
  CHECK(mtu(576));
  CHECK(mtu(65'535));
  CHECK_FALSE(mtu(575));
  CHECK_FALSE(mtu(65'536));
  CHECK(error == "port \"loopback\": an MTU is between 576 and 65535, not 65536");
  const PortSpec tap{.kind = PortSpec::Kind::tap, .target = "x", .role = PortSpec::Role::none, .peer = {}};
  CHECK(factory.open(tap, {.name = "a", .mtu_bytes = 16'001, .mac = {}, .buffers = 8}, error) == nullptr);
  CHECK(error == "port \"tap:x\": an MTU is between 576 and 16000, not 16001");
}

TEST_CASE("ports whose frames never leave a worker's hands have one worker", "[port][steering]") {
  PortFactory factory({});
  std::string error;
  const PortOptions options{.name = "a", .mtu_bytes = 0, .mac = {}, .buffers = 8};
  const PortSpec pair{.kind = PortSpec::Kind::pair, .target = "w", .role = PortSpec::Role::none, .peer = {}};
  CHECK(factory.open_queues({}, options, 2, error).empty());
  CHECK(error == "port \"loopback\": it has one worker, not 2: its frames never leave that worker's hands");
  CHECK(factory.open_queues(pair, options, 4, error).empty());
  CHECK(error == "port \"pair:w\": it has one worker, not 4: its frames never leave that worker's hands");
  CHECK(factory.open_queues({}, options, 1, error).size() == 1);
  CHECK(factory.open_queues(pair, options, 1, error).size() == 1);
  CHECK(factory.open_queues({}, {.name = "a", .mtu_bytes = 575, .mac = {}, .buffers = 8}, 1, error).empty());
  CHECK(error == "port \"loopback\": an MTU is between 576 and 65535, not 575");
}

TEST_CASE("nothing comes from a loopback port, and what is sent there is given back to its pool", "[port]") {
  LoopbackPort port({.name = "rnic0", .mtu_bytes = 0, .mac = {}, .buffers = 8});
  CHECK(send(port, frame(port, 1)) == 1);
  CHECK_FALSE(receive(port));
  CHECK(port.pool().available() == 8);
  CHECK(port.arm());
  CHECK(port.link_up());
}

}  // namespace rnic::port
