// DDP by itself: cutting messages into segments, sequence numbers, and places.

#include "ddp/placer.hpp"
#include "ddp/segmenter.hpp"
#include "ddp/untagged.hpp"
#include "support/catch.hpp"

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

struct Recorder final : tpt::Mover {
  std::vector<Placed> placed;
  tpt::Moved answer = tpt::Moved::done;
  tpt::Moved gather(const tpt::Access&, MutableBytes, tpt::MoveTicket) override { return answer; }
  tpt::Moved place(Bytes from, const tpt::Access& to, tpt::Part part, tpt::MoveTicket) override {
    placed.push_back({from.data(), to.address, static_cast<std::uint32_t>(from.size()), part});
    return answer;
  }
  void flush() override {}
  void cancel(tpt::MoveOwner&) override {}
  bool fetch_add(const tpt::Access&, std::uint64_t, std::uint64_t, std::uint64_t&) override { return false; }
  bool compare_swap(const tpt::Access&, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                    std::uint64_t&) override {
    return false;
  }
};

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

TEST_CASE("W-DDP-09: a message of no octets is one segment", "[ddp][W-DDP-09]") {
  const ddp::Segment segment = ddp::next_segment({.tagged = false, .rdmap_control = 0x43}, 128);
  CHECK(segment.payload == 0);
  CHECK(segment.last);
}

TEST_CASE("W-DDP-04: untagged segments carry the same queue and number, and their offset", "[ddp][W-DDP-04][W-DDP-06]") {
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
  Recorder mover;
  ddp::Placement placement;
  SECTION("in one piece") {
    const std::vector<Bytes> spans{all};
    ddp::Payload payload(spans, 14);
    ddp::place(mover, payload, to, ddp::Ends::message, {}, placement);
    CHECK(mover.placed == std::vector<Placed>{{octets.data() + 14, 1000, 52, tpt::Part::body},
                                              {octets.data() + 66, 1052, 8, tpt::Part::tail}});
  }
  SECTION("in several, of which the last is short") {
    const std::vector<Bytes> spans{all.first(10), all.subspan(10, 60), all.subspan(70)};
    ddp::Payload payload(spans, 14);
    ddp::place(mover, payload, to, ddp::Ends::message, {}, placement);
    CHECK(mover.placed == std::vector<Placed>{{octets.data() + 14, 1000, 56, tpt::Part::body},
                                              {octets.data() + 70, 1056, 4, tpt::Part::tail}});
  }
  SECTION("none where the message goes on") {
    const std::vector<Bytes> spans{all};
    ddp::Payload payload(spans, 14);
    ddp::place(mover, payload, to, ddp::Ends::nothing, {}, placement);
    CHECK(mover.placed == std::vector<Placed>{{octets.data() + 14, 1000, 60, tpt::Part::body}});
  }
  SECTION("and what is done later is counted") {
    mover.answer = tpt::Moved::later;
    const std::vector<Bytes> spans{all};
    ddp::Payload payload(spans, 14);
    ddp::place(mover, payload, to, ddp::Ends::message, {}, placement);
    CHECK(placement.later == 2);
    CHECK_FALSE(placement.failed);
  }
}
