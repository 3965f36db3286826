// The link of a host: batches in and out, whose frame it is, and what becomes of frames that a port does not take.
#include "host/link.hpp"

#include <algorithm>
#include <vector>

#include "kit/catch.hpp"

using namespace rnic;
using host::Counters;
using host::Link;

namespace {

constexpr wire::Mac kOurs{{2, 0, 0, 0, 0, 1}}, kTheirs{{2, 0, 0, 0, 0, 2}};
constexpr Instant kBegin{seconds(1).ns};

struct Port final : port::Port {
  Port() {
    facts_.mac = kOurs;
    facts_.mtu_bytes = 1500;
  }
  ~Port() override {
    for (Buffer* frame : in) BufferRef{frame}.reset();
  }
  const port::PortFacts& facts() const override { return facts_; }
  bool link_up() const override { return up; }
  std::uint32_t link_mtu() const override { return mtu; }
  BufferPool& pool() override { return pool_; }
  unsigned receive_burst(Buffer** out, unsigned most) override {
    unsigned count = 0;
    for (; count < most && !in.empty(); ++count) {
      out[count] = in.front();
      in.erase(in.begin());
    }
    return count;
  }
  unsigned send_burst(Buffer* const* frames, unsigned count) override {
    const unsigned taken = std::min(count, takes);
    for (unsigned i = 0; i < taken; ++i) BufferRef{frames[i]}.reset();
    takes -= taken;
    sent += taken;
    return taken;
  }
  int wake_descriptor() override { return -1; }
  bool arm() override { return true; }
  void disarm() override {}

  bool up = true;
  std::uint32_t mtu = 1500;
  unsigned takes = 0xFFFFFFFF, sent = 0;
  std::vector<Buffer*> in;

 private:
  port::PortFacts facts_;
  HeapPool pool_{4300, 512};
};

struct Bench {
  explicit Bench(std::optional<std::uint16_t> vlan = std::nullopt) : link(port, vlan, 512 * 1024, counters) {}
  BufferRef frame(std::uint32_t size = 100) {
    BufferRef buffer = link.take_control();
    buffer->append(size);
    return buffer;
  }
  std::vector<std::byte> header(const wire::Mac& to) {
    std::vector<std::byte> octets(64);
    link.write_header(to, wire::ether_type::kIpv4, octets);
    return octets;
  }

  Port port;
  Counters counters;
  Link link;
};

}  // namespace

TEST_CASE("a link takes frames to it and to many, and no others", "[host]") {
  Bench bench;
  const auto own = bench.link.take_header(bench.header(kOurs));
  REQUIRE(own);
  CHECK(own->type == wire::ether_type::kIpv4);
  CHECK(own->size == 14);
  CHECK_FALSE(own->to_all);
  const auto all = bench.link.take_header(bench.header(wire::Mac{{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}));
  REQUIRE(all);
  CHECK(all->to_all);
  CHECK_FALSE(bench.link.take_header(bench.header(kTheirs)));
  CHECK_FALSE(bench.link.take_header(Bytes{bench.header(kOurs)}.first(13)));
  CHECK(bench.counters.frames_in == 4);
  CHECK(bench.counters.bytes_in == 3 * 64 + 13);
  CHECK(bench.counters.bad_frames == 1);
}

TEST_CASE("a link of a VLAN writes its tag and takes frames that have it; others count", "[host]") {
  Bench of_7(7), of_8(8), of_none;
  const auto tagged = of_7.header(kOurs);
  const auto own = of_7.link.take_header(tagged);
  REQUIRE(own);
  CHECK(own->type == wire::ether_type::kIpv4);
  CHECK(own->size == 18);
  CHECK_FALSE(of_8.link.take_header(tagged));
  CHECK_FALSE(of_none.link.take_header(tagged));
  CHECK_FALSE(of_7.link.take_header(of_none.header(kOurs)));
  CHECK(of_8.counters.other_vlan + of_none.counters.other_vlan + of_7.counters.other_vlan == 3);
  CHECK(Bench(0).link.take_header(Bench(0).header(kOurs)));
  CHECK(of_none.link.take_header(Bench(0).header(kOurs)));  // VLAN 0 is none
}

TEST_CASE("frames of a port come in batches, and a full one says that there may be more", "[host]") {
  Bench bench;
  for (int i = 0; i < 70; ++i) bench.port.in.push_back(bench.frame().release());
  Link::Room room;
  bool more = false;
  const auto give_back = [](Link::Batch batch) {
    for (Buffer* frame : batch) BufferRef{frame}.reset();
    return batch.size();
  };
  CHECK(give_back(bench.link.receive(room, more)) == 64);
  CHECK(more);
  CHECK(give_back(bench.link.receive(room, more)) == 6);
  CHECK_FALSE(more);
}

TEST_CASE("a batch has as many frames as those of the one before leave octets for, 8 to 64", "[host]") {
  Port port;
  Counters counters;
  Link link(port, std::nullopt, 64 * 100, counters);
  const auto batches = [&](std::uint32_t octets) {
    std::vector<std::size_t> sizes;
    for (int i = 0; i < 200; ++i) {
      Buffer* frame = port.pool().take_large();
      frame->append(octets);
      port.in.push_back(frame);
    }
    for (bool more = true; more;) {
      Link::Room room;
      const Link::Batch batch = link.receive(room, more);
      sizes.push_back(batch.size());
      for (Buffer* frame : batch) BufferRef{frame}.reset();
    }
    return sizes;
  };
  // At first they may be as long as they can be.
  CHECK(batches(50) == std::vector<std::size_t>{8, 16, 32, 64, 64, 16});
  CHECK(batches(300) == std::vector<std::size_t>{64, 21, 21, 21, 21, 21, 21, 10});
  CHECK(batches(384) == std::vector<std::size_t>{21, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 3});
}

TEST_CASE("frames to ourselves come back in order, so many and so many octets at a time", "[host]") {
  Bench bench;
  for (std::uint32_t i = 0; i < 10; ++i) bench.link.push_loop(bench.frame(100 + i));
  CHECK(bench.link.looped() == 10);
  CHECK_FALSE(bench.link.idle());
  Link::Room room;
  std::uint64_t bytes = 0;
  std::uint32_t next = 100;
  const auto take = [&](unsigned count, std::uint64_t most) {
    const Link::Batch batch = bench.link.receive_looped(room, count, bytes, most);
    for (Buffer* frame : batch) {
      CHECK(frame->length == next++);
      BufferRef{frame}.reset();
    }
    return batch.size();
  };
  CHECK(take(3, 10'000) == 3);
  CHECK(bytes == 303);
  CHECK(take(10, 304) == 1);  // the one that goes beyond is the last
  CHECK(take(10, 304) == 0);
  CHECK(take(10, 10'000) == 6);
  CHECK(bench.link.idle());
}

TEST_CASE("a full loop loses what comes, and counts it", "[host]") {
  Bench bench;
  for (unsigned i = 0; i < Link::kLoopMax; ++i) bench.link.push_loop(bench.frame());
  CHECK(bench.link.loop_room() == 0);
  CHECK(bench.counters.frames_dropped == 0);
  bench.link.push_loop(bench.frame());
  CHECK(bench.counters.frames_dropped == 1);
  CHECK(bench.counters.frames_out == Link::kLoopMax);
  CHECK(bench.counters.bytes_out == Link::kLoopMax * 100);
}

TEST_CASE("what a port does not take waits, and is lost when it takes nothing for 100 ms, or at once without a link",
          "[host]") {
  Bench bench;
  bench.port.takes = 2;
  for (int i = 0; i < 5; ++i) bench.link.push(bench.frame(), kBegin);
  CHECK(bench.port.sent == 0);  // a batch goes with flush()
  bench.link.flush(kBegin);
  CHECK(bench.port.sent == 2);
  CHECK(bench.counters.frames_out == 2);
  CHECK(bench.counters.bytes_out == 200);
  bench.link.flush(kBegin + milliseconds(99));
  CHECK(bench.counters.frames_dropped == 0);
  bench.port.takes = 1;  // progress: from now on
  bench.link.flush(kBegin + milliseconds(99));
  bench.link.flush(kBegin + milliseconds(198));
  CHECK(bench.counters.frames_dropped == 0);
  bench.link.flush(kBegin + milliseconds(199));
  CHECK(bench.counters.frames_dropped == 2);
  CHECK(bench.link.idle());
  bench.link.push(bench.frame(), kBegin + seconds(1));
  bench.port.up = false;
  bench.link.flush(kBegin + seconds(1));
  CHECK(bench.counters.frames_dropped == 3);
}

TEST_CASE("when 256 frames wait no further one is taken", "[host]") {
  Bench bench;
  bench.port.takes = 0;
  for (unsigned i = 0; i < Link::kTransmitMax; ++i) {
    CHECK(bench.link.has_room());
    bench.link.push(bench.frame(), kBegin);
  }
  CHECK_FALSE(bench.link.has_room());
  bench.link.push(bench.frame(), kBegin);
  CHECK(bench.counters.frames_dropped == 1);
  bench.port.takes = 1000;
  bench.link.flush(kBegin);
  CHECK(bench.port.sent == 256);
  for (unsigned i = 0; i < 100; ++i) bench.link.push(bench.frame(), kBegin);
  bench.link.flush(kBegin);
  CHECK(bench.port.sent == 356);
  CHECK(bench.counters.frames_out == 356);
  CHECK(bench.link.idle());
}

TEST_CASE("a link follows its port's MTU, and is never told more than the port takes", "[host]") {
  Bench bench;
  CHECK_FALSE(bench.link.follow_port());
  bench.port.mtu = 1300;
  CHECK(bench.link.follow_port());
  CHECK(bench.link.mtu_bytes() == 1300);
  CHECK_FALSE(bench.link.follow_port());
  bench.link.set_mtu(9000);
  CHECK(bench.link.mtu_bytes() == 1500);
}
