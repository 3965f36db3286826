// DDP by itself: cutting messages into segments, sequence numbers, and places.

#include "ddp/placer.hpp"
#include "ddp/segmenter.hpp"
#include "ddp/untagged.hpp"
#include "kit/catch.hpp"
#include "kit/tpt_mover.hpp"

#include <algorithm>
#include <vector>

using namespace rnic;

namespace {

struct Placed {
  const std::byte* from;
  std::uint64_t to;
  std::uint32_t size;
  tpt::Part part;
  bool operator==(const Placed&) const = default;
};

std::vector<Placed> placed(const test::PlainMover& mover) {
  CHECK(mover.complaint().empty());
  std::vector<Placed> out;
  for (const auto& [from, to, part] : mover.places) out.push_back({from, to.address, to.length, part});
  return out;
}

}  // namespace

TEST_CASE("W-DDP-03: L is on the last segment of a message and on no other", "[ddp][W-DDP-03][W-DDP-07][W-DDP-08]") {
  ddp::OutboundMessage message{.tagged = true, .rdmap_control = 0x40, .stag = {5}, .to = 0xFFFF'FFFF'0000'0000};
  message.length = 3000;
  std::vector<std::uint32_t> sizes;
  std::uint64_t to = message.to;
  for (;;) {
    const ddp::Segment segment = ddp::next_segment(message, 1014);
    std::byte header[14];
    ddp::write_header(message, segment, header);
    const auto parsed = wire::parse_tagged(header);
    REQUIRE(parsed);
    CHECK(parsed->tagged_offset == to);
    CHECK(parsed->stag == Stag{5});
    CHECK(parsed->last == (sizes.size() == 2));
    sizes.push_back(segment.payload);
    to += segment.payload;
    message.done += segment.payload;
    if (segment.last) break;
  }
  CHECK(sizes == std::vector<std::uint32_t>{1000, 1000, 1000});
}

TEST_CASE("W-DDP-06: a message begins with its first octet, and says nothing that it was not told",
          "[ddp][W-DDP-06][W-DDP-02]") {
  const ddp::OutboundMessage message;
  CHECK_FALSE(message.tagged);
  CHECK(message.done == 0);
  CHECK(message.left() == 0);
  std::byte header[18];
  ddp::write_header(message, {}, header);
  // DV alone.
  CHECK(header[0] == std::byte{1});
  CHECK(std::all_of(header + 1, header + 18, [](std::byte b) { return b == std::byte{0}; }));
  std::byte tagged[14];
  ddp::write_header({.tagged = true}, {}, tagged);
  CHECK(tagged[0] == std::byte{0x81});
  CHECK(std::all_of(tagged + 1, tagged + 14, [](std::byte b) { return b == std::byte{0}; }));
  CHECK(ddp::Segment{}.payload == 0);
}

TEST_CASE("W-DDP-09: a message of no octets is one segment", "[ddp][W-DDP-09]") {
  const ddp::Segment segment = ddp::next_segment({.tagged = false, .rdmap_control = 0x43}, 128);
  CHECK(segment.payload == 0);
  CHECK(segment.last);
}

TEST_CASE("W-DDP-04: untagged segments carry the same queue and number, and their offset",
          "[ddp][W-DDP-04][W-DDP-06]") {
  ddp::OutboundMessage message{.tagged = false, .rdmap_control = 0x44, .stag = {9}};
  message.queue = 0;
  message.msn = 0xFFFFFFFF;
  message.length = 200;
  message.done = 110;
  std::byte header[18];
  ddp::write_header(message, ddp::next_segment(message, 128), header);
  const auto parsed = wire::parse_untagged(header);
  REQUIRE(parsed);
  CHECK(parsed->message_offset == 110);
  CHECK(parsed->msn == 0xFFFFFFFF);
  CHECK(parsed->invalidate == Stag{9});
  CHECK(parsed->last);
}

TEST_CASE("W-DDP-05: sequence numbers begin at 1 and go on by one a message", "[ddp][W-DDP-05]") {
  ddp::InboundQueue queue;
  CHECK(queue.check(1, 100) == ddp::MsnCheck::expected);
  queue.accept(10, false);
  CHECK(queue.check(1, 100) == ddp::MsnCheck::expected);
  CHECK(queue.offset() == 10);
  CHECK(queue.mid_message());
  queue.accept(5, true);
  CHECK(queue.offset() == 0);
  CHECK_FALSE(queue.mid_message());
  CHECK(queue.check(2, 100) == ddp::MsnCheck::expected);
  CHECK(queue.check(1, 100) == ddp::MsnCheck::range);
  CHECK(queue.check(101, 100) == ddp::MsnCheck::gap);
  CHECK(queue.check(102, 100) == ddp::MsnCheck::range);
}

TEST_CASE("V-ORD-09: only the last octets of a message's last place are a tail", "[ddp][V-ORD-09]") {
  const std::vector<std::byte> octets(100);
  const Bytes all(octets);
  const tpt::Access to{.space = {}, .address = 1000, .direct = nullptr, .length = 60, .stag = {}};
  test::PlainMover mover(test::Moves::direct, 1);
  mover.bottomless = true;
  ddp::Placement placement;
  SECTION("in one piece") {
    const std::vector<Bytes> spans{all};
    ddp::Payload payload(spans, 14);
    ddp::place(mover, payload, to, ddp::Ends::message, {}, placement);
    CHECK(placed(mover) == std::vector<Placed>{{octets.data() + 14, 1000, 52, tpt::Part::body},
                                               {octets.data() + 66, 1052, 8, tpt::Part::tail}});
  }
  SECTION("in several, of which the last is short") {
    const std::vector<Bytes> spans{all.first(10), all.subspan(10, 60), all.subspan(70)};
    ddp::Payload payload(spans, 14);
    ddp::place(mover, payload, to, ddp::Ends::message, {}, placement);
    CHECK(placed(mover) == std::vector<Placed>{{octets.data() + 14, 1000, 56, tpt::Part::body},
                                               {octets.data() + 70, 1056, 4, tpt::Part::tail}});
  }
  SECTION("none where the message goes on") {
    const std::vector<Bytes> spans{all};
    ddp::Payload payload(spans, 14);
    ddp::place(mover, payload, to, ddp::Ends::nothing, {}, placement);
    CHECK(placed(mover) == std::vector<Placed>{{octets.data() + 14, 1000, 60, tpt::Part::body}});
  }
  SECTION("whole when it is no longer than a tail") {
    const std::vector<Bytes> spans{all.first(52), all.subspan(52, 8), all.subspan(60)};
    ddp::Payload payload(spans, 0);
    ddp::place(mover, payload, to, ddp::Ends::message, {}, placement);
    CHECK(placed(mover) == std::vector<Placed>{{octets.data(), 1000, 52, tpt::Part::body},
                                               {octets.data() + 52, 1052, 8, tpt::Part::tail}});
  }
  SECTION("one octet longer than a tail") {
    const std::vector<Bytes> spans{all.first(51), all.subspan(51)};
    ddp::Payload payload(spans, 0);
    ddp::place(mover, payload, to, ddp::Ends::message, {}, placement);
    CHECK(placed(mover) == std::vector<Placed>{{octets.data(), 1000, 51, tpt::Part::body},
                                               {octets.data() + 51, 1051, 1, tpt::Part::body},
                                               {octets.data() + 52, 1052, 8, tpt::Part::tail}});
  }
  SECTION("what failed is told") {
    mover.unreachable.insert(to.stag.value);
    const std::vector<Bytes> spans{all};
    ddp::Payload payload(spans, 0);
    ddp::place(mover, payload, to, ddp::Ends::nothing, {}, placement);
    CHECK(placement.failed);
    CHECK(placement.later == 0);
  }
  SECTION("and what is done later is counted") {
    mover.stalled = true;
    const std::vector<Bytes> spans{all};
    ddp::Payload payload(spans, 14);
    ddp::place(mover, payload, to, ddp::Ends::message, {}, placement);
    CHECK(placement.later == 2);
    CHECK_FALSE(placement.failed);
  }
}

TEST_CASE("W-DDP-08: a segment is no larger than the MULPDU, header and all", "[ddp][W-DDP-08][W-DDP-03][W-MPA-60]") {
  for (const bool tagged : {true, false}) {
    ddp::OutboundMessage message{.tagged = tagged};
    const std::uint32_t header = tagged ? 14 : 18;
    CHECK(message.header_bytes() == header);
    message.length = 1000 - header;
    CHECK(ddp::next_segment(message, 1000).payload == 1000 - header);
    CHECK(ddp::next_segment(message, 1000).last);
    message.length = 1001 - header;
    CHECK(ddp::next_segment(message, 1000).payload == 1000 - header);
    CHECK_FALSE(ddp::next_segment(message, 1000).last);
    message.done = 1000 - header;
    CHECK(message.left() == 1);
    CHECK(ddp::next_segment(message, 1000).payload == 1);
    CHECK(ddp::next_segment(message, 1000).last);
  }
}

TEST_CASE("W-DDP-04: the header says queue, number and RDMAP's control octet", "[ddp][W-DDP-04][W-DDP-01][W-DDP-02]") {
  const ddp::OutboundMessage message{
      .tagged = false, .rdmap_control = 0x41, .stag = {}, .queue = 1, .msn = 0x01020304, .length = 28};
  std::byte untagged[18];
  ddp::write_header(message, {.payload = 28, .last = false}, untagged);
  CHECK(load_be<std::uint16_t>(untagged, 0) == 0x0141);
  CHECK(load_be<std::uint32_t>(untagged, 2) == 0);
  CHECK(load_be<std::uint32_t>(untagged, 6) == 1);
  CHECK(load_be<std::uint32_t>(untagged, 10) == 0x01020304);
  CHECK(load_be<std::uint32_t>(untagged, 14) == 0);
  ddp::OutboundMessage write{.tagged = true, .rdmap_control = 0x40, .stag = {0xBEEF}, .to = 0x100, .length = 50};
  write.done = 20;
  std::byte tagged[14];
  ddp::write_header(write, {.payload = 30, .last = true}, tagged);
  CHECK(load_be<std::uint16_t>(tagged, 0) == 0xC140);
  CHECK(load_be<std::uint32_t>(tagged, 2) == 0xBEEF);
  CHECK(load_be<std::uint64_t>(tagged, 6) == 0x114);
}

TEST_CASE("W-DDP-05: numbers wrap from the highest to 0, and behind is out of range", "[ddp][W-DDP-05][W-DDP-17]") {
  ddp::InboundQueue queue;
  CHECK(queue.msn() == 1);
  CHECK(queue.offset() == 0);
  CHECK_FALSE(queue.mid_message());
  CHECK(queue.check(0, 10) == ddp::MsnCheck::range);
  CHECK(queue.check(2, 1) == ddp::MsnCheck::range);
  CHECK(queue.check(2, 2) == ddp::MsnCheck::gap);
  CHECK(queue.check(0xFFFFFFFF, 0xFFFFFFFF) == ddp::MsnCheck::gap);
  queue.accept(10, false);
  queue.accept(20, false);
  CHECK(queue.offset() == 30);
  CHECK(queue.msn() == 1);
  CHECK(queue.mid_message());
  queue.accept(0, true);
  CHECK(queue.msn() == 2);
}

TEST_CASE("V-ACC-05: a piece of an access begins and ends where it is said", "[ddp][V-ACC-05]") {
  std::byte here[64];
  const tpt::Access whole{.space = {4}, .address = 0x1000, .direct = here, .length = 64, .stag = {9}};
  const tpt::Access part = ddp::slice(whole, 10, 20);
  CHECK(part.address == 0x100A);
  CHECK(part.direct == here + 10);
  CHECK(part.length == 20);
  CHECK(part.space == SpaceId{4});
  CHECK(part.stag == Stag{9});
  CHECK(ddp::slice({.address = 0x1000, .length = 64}, 10, 20).direct == nullptr);
}

TEST_CASE("W-MPA-72: a payload is found in whatever pieces it lies", "[ddp][W-MPA-72][W-DDP-14]") {
  const std::vector<std::byte> octets(100);
  const Bytes all(octets);
  const auto places = [&](const std::vector<Bytes>& spans, std::size_t skip, std::vector<std::size_t> most) {
    ddp::Payload payload(spans, skip);
    std::vector<std::pair<std::ptrdiff_t, std::size_t>> out;
    for (const std::size_t n : most) {
      const Bytes piece = payload.take(n);
      out.emplace_back(piece.data() - octets.data(), piece.size());
    }
    return out;
  };
  using Pieces = std::vector<std::pair<std::ptrdiff_t, std::size_t>>;
  // The header in one span, in two, and in one of its own.
  CHECK(places({all}, 14, {30, 100}) == Pieces{{14, 30}, {44, 56}});
  CHECK(places({all.first(10), all.subspan(10)}, 14, {30, 100}) == Pieces{{14, 30}, {44, 56}});
  CHECK(places({all.first(14), all.subspan(14)}, 14, {30, 100}) == Pieces{{14, 30}, {44, 56}});
  CHECK(places({all}, 0, {100}) == Pieces{{0, 100}});
  // Spans of nothing are passed over.
  CHECK(places({all.first(0), all.first(20), all.subspan(20, 0), all.subspan(20)}, 0, {50, 30}) ==
        Pieces{{0, 20}, {20, 30}});
  CHECK(places({all.first(5), all.subspan(5, 0), all.subspan(5)}, 14, {6}) == Pieces{{14, 6}});
}
