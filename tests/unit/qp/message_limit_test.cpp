// A message has less than 2^32 octets (RFC 5041 s5.2, W-DDP-08). All of them really arrive: over TCP, in segments
// of nearly 64 KiB, and without CRC, which is not the point. Only the memory they go to is not there.
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
