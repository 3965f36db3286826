// A message has less than 2^32 octets (RFC 5041 s5.2, W-DDP-08). All of them really arrive: over TCP, in segments
// of nearly 64 KiB, and without CRC, which is not the point. Only the memory they go to is not there.
#include <sys/mman.h>

#include "kit/catch.hpp"
#include "kit/qp_world.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

constexpr std::uint32_t kMss = 65'495;
constexpr std::uint32_t kPayload = wire::kUlpduSizeMax - wire::UntaggedHeader::kSize;
constexpr std::uint32_t kLongest = 0xFFFF'FFFF;
constexpr std::size_t kMessageOffsetAt = 2 + 14;  // behind MPA's length, in the untagged header

qp::Start without_crc() {
  qp::Start start = responder_start();
  start.crc = mpa::Crc::off;
  return start;
}
tcp::Options large_segments() {
  tcp::Options options;
  options.mss_bytes = kMss;
  return options;
}

struct LongMessage {
  Raw raw{without_crc(), {}, Moves::direct, large_segments(), 65'600};
  std::uint32_t slot = 0;

  // A receive of 2^32 + 2^31 octets: its end is not what is met.
  LongMessage() {
    constexpr std::uint64_t kBase = 1ull << 40;
    constexpr std::uint32_t kPart = 1u << 31;
    raw.us->mover.bottomless = true;
    const auto stag = raw.us->table.register_region(
        {.pd = kPd, .rights = kAllRights, .base = kBase, .size = 3ull * kPart, .key = 1, .memory = {}});
    REQUIRE(stag);
    slot = raw.us->post_receive(
        {{kBase, kPart, *stag}, {kBase + kPart, kPart, *stag}, {kBase + 2ull * kPart, kPart, *stag}});
  }
  // All but its end, of the longest there is.
  void say_the_longest() {
    Octets full = raw.fpdu(untagged(3, false, 0, 1, 0, filled(kPayload)));
    REQUIRE(full.size() <= kMss);
    std::uint32_t offset = 0;
    for (unsigned in_flight = 0; kLongest - offset >= kPayload; offset += kPayload) {
      store_be(MutableBytes(full), kMessageOffsetAt, offset);
      raw.say_octets(full);
      if (++in_flight % 8 == 0) raw.run();
    }
    raw.say(untagged(3, false, 0, 1, offset, filled(kLongest - offset)));
    REQUIRE(raw.terminates().empty());
    REQUIRE(raw.us->qp.state() == qp::State::rts);
    REQUIRE(raw.us->qp.counters().bytes_in == kLongest);
  }
};

}  // namespace

TEST_CASE("W-DDP-08: an untagged message has 2^32 - 1 octets at most", "[qp][W-DDP-08]") {
  LongMessage m;
  m.say_the_longest();
  const auto& completions = m.raw.us->app.completions;
  SECTION("no octet more: it is whole") {
    m.raw.say(untagged(3, true, 0, 1, kLongest));
    CHECK(m.raw.terminates().empty());
    REQUIRE(completions.size() == 1);
    CHECK(completions[0].slot == m.slot);
    CHECK(completions[0].status == qp::Status::success);
    CHECK(completions[0].length == kLongest);
  }
  SECTION("one more: it is refused, and nothing of it placed") {
    const std::size_t placed = m.raw.us->mover.places.size();
    m.raw.say(untagged(3, true, 0, 1, kLongest, filled(1)));
    REQUIRE(m.raw.terminates().size() == 1);
    CHECK(m.raw.terminates()[0].code.word() == 0x1205);
    CHECK(m.raw.us->mover.places.size() == placed);
    REQUIRE(completions.size() == 1);
    CHECK(completions[0].slot == m.slot);
    CHECK(completions[0].status == qp::Status::message_too_long);
  }
}

// From end to end, out of memory that reads as zeroes and takes no room. The region it goes to ends with it.
TEST_CASE("V-SR-04: a Send and a Write carry 2^32 - 1 octets", "[.whole][V-SR-04][V-SGL-02]") {
  Options options;
  options.tcp = large_segments();
  options.start = default_start();
  options.start.crc = mpa::Crc::off;
  options.buffer_bytes = 65'600;
  Pair pair(options);
  pair.b->mover.bottomless = true;
  void* const zeroes = mmap(nullptr, kLongest, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(zeroes != MAP_FAILED);
  const auto from = reinterpret_cast<std::uint64_t>(zeroes);
  constexpr std::uint64_t kBase = 1ull << 40;
  const auto source = pair.a->table.register_region(
      {.pd = kPd,
       .rights = tpt::Rights::local_read,
       .base = from,
       .size = kLongest,
       .key = 1,
       .memory = {.space = {}, .address = from, .direct = static_cast<std::byte*>(zeroes)}});
  const auto target = pair.b->table.register_region(
      {.pd = kPd, .rights = kAllRights, .base = kBase, .size = kLongest, .key = 1, .memory = {}});
  REQUIRE(source);
  REQUIRE(target);
  constexpr std::uint32_t kHalf = 1u << 31;
  const std::vector<qp::Sge> sges{{from, kHalf, *source}, {from + kHalf, kLongest - kHalf, *source}};
  const bool sends = GENERATE(true, false);
  pair.b->post_receive({{kBase, kLongest, *target}});
  pair.a->post(sends ? send(sges) : write(sges, *target, kBase));
  std::uint64_t placed = 0;
  const auto count = [&] {
    for (const auto& place : pair.b->mover.places) placed += place.to.length;
    pair.b->mover.places.clear();
    pair.wire.payload_sizes.clear();
  };
  for (std::uint64_t left = 1'000'000; left > 0 && placed < kLongest; --left) {
    if (!pair.step()) pair.wire.now = pair.wire.now + milliseconds(1);
    count();
  }
  pair.run();
  count();
  CHECK(placed == kLongest);
  REQUIRE(pair.a->app.completions.size() == 1);
  CHECK(pair.a->app.completions[0].status == qp::Status::success);
  CHECK(pair.b->app.events.empty());
  REQUIRE(pair.b->app.completions.size() == (sends ? 1u : 0u));
  if (sends) CHECK(pair.b->app.completions[0].length == kLongest);
  munmap(zeroes, kLongest);
}
