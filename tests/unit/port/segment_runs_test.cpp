// Segments of a stream that leave as one, and are cut apart where they were.
#include "port/segment_runs.hpp"

#include <functional>
#include <vector>

#include "kit/catch.hpp"
#include "kit/frames.hpp"

using namespace rnic;
using namespace rnic::test;
using port::SegmentRun;

namespace {

Octets octets_of(Bytes bytes) { return Octets(bytes.begin(), bytes.end()); }

constexpr std::uint32_t kEthernet = 14;
constexpr std::uint32_t kTcpAt4 = kEthernet + 20, kTcpAt6 = kEthernet + 40;

struct Segment {
  bool v6 = false;
  std::uint32_t sequence = 1000;
  std::uint32_t payload = 1448;
  std::uint8_t flags = wire::tcp_flags::kAck;
  std::uint32_t acknowledgement = 77;
  std::uint16_t window = 500;
  std::uint16_t destination_port = 4420;
  std::uint8_t ecn = 0;
  std::uint32_t timestamp = 5;
  std::uint16_t vlan = 0;
  std::uint32_t fill_up_to = 0;
};

const wire::IpAddress kFrom4 = wire::IpAddress::v4(0x0A000001), kTo4 = wire::IpAddress::v4(0x0A000002);

wire::IpAddress v6_of(std::uint8_t last) {
  std::array<std::uint8_t, 16> octets{0x20, 0x01, 0x0d, 0xb8};
  octets[15] = last;
  return wire::IpAddress::from_octets(octets);
}

// As it is on the wire.
Octets frame_of(const Segment& it) {
  const wire::IpAddress from = it.v6 ? v6_of(1) : kFrom4, to = it.v6 ? v6_of(2) : kTo4;
  wire::TcpHeader header;
  header.source_port = 33333;
  header.destination_port = it.destination_port;
  header.sequence = it.sequence;
  header.acknowledgement = it.acknowledgement;
  header.flags = it.flags;
  header.window = it.window;
  header.timestamps = wire::TcpTimestamps{it.timestamp, 6};
  Octets payload(it.payload);
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(it.sequence + i);
  const Octets tcp = frames::tcp(header, from, to, payload);
  constexpr std::uint8_t kTcp = wire::protocol::kTcp;
  const Octets packet =
      it.v6 ? frames::ipv6({.traffic_class = it.ecn, .next_header = kTcp, .source = from, .destination = to}, tcp)
            : frames::ipv4({.traffic_class = it.ecn, .protocol = kTcp, .source = from, .destination = to}, tcp);
  std::vector<std::uint16_t> tags;
  if (it.vlan != 0) tags.push_back(it.vlan);
  return frames::ethernet(
      {.destination = {}, .source = {}, .type = it.v6 ? wire::ether_type::kIpv6 : wire::ether_type::kIpv4}, packet,
      tags);
}

Octets finished(Octets frame) {
  frames::fix_checksums(frame);
  return frame;
}

// What an interface does with a hand-over: cuts it every segment_bytes octets, FIN and PSH on the last alone, and
// completes the checksum from checksum_start on.
std::vector<Octets> cut(const port::OffloadHeader& said, const Octets& whole) {
  std::vector<Octets> frames;
  const std::uint32_t tcp = said.checksum_start;
  const bool v6 = tcp == kTcpAt6;
  const std::size_t headers = tcp + 4 * (std::to_integer<std::size_t>(whole[tcp + 12]) >> 4);
  const std::size_t size = said.merged != port::OffloadHeader::kWhole ? said.segment_bytes : whole.size() - headers;
  for (std::size_t at = headers; at < whole.size() || at == headers; at += size) {
    const std::size_t end = std::min(at + size, whole.size());
    Octets frame(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(headers));
    frame.insert(frame.end(), whole.begin() + static_cast<std::ptrdiff_t>(at),
                 whole.begin() + static_cast<std::ptrdiff_t>(end));
    const MutableBytes bytes(frame);
    if (v6)
      store_be(bytes, kEthernet + 4, static_cast<std::uint16_t>(frame.size() - tcp));
    else
      store_be(bytes, kEthernet + 2, static_cast<std::uint16_t>(frame.size() - kEthernet));
    store_be(bytes, tcp + 4, load_be<std::uint32_t>(bytes, tcp + 4) + static_cast<std::uint32_t>(at - headers));
    if (end != whole.size()) bytes[tcp + 13] &= ~std::byte{wire::tcp_flags::kPsh};
    frames.push_back(finished(std::move(frame)));
    if (size == 0) break;
  }
  return frames;
}

struct Sending {
  HeapPool pool{128, 2048};
  std::vector<BufferRef> frames;
  SegmentRun run;

  void add(const Segment& segment) {
    const Octets octets = frame_of(segment);
    BufferRef& frame = frames.emplace_back(BufferRef::take(pool));
    std::memcpy(frame->append(static_cast<std::uint32_t>(octets.size())).data(), octets.data(), octets.size());
    if (segment.fill_up_to > frame->length) frame->append(segment.fill_up_to - frame->length);
  }
  // How many of them leave as one, and what leaves.
  std::uint32_t take(Octets& whole, port::OffloadHeader& said) {
    run.begin(*frames[0]);
    std::uint32_t taken = 1;
    while (taken < frames.size() && run.add(*frames[taken])) ++taken;
    said = run.finish();
    REQUIRE(run.count() == taken);
    whole.clear();
    for (std::uint32_t i = 0; i < taken; ++i) whole.insert(whole.end(), run.piece(i).begin(), run.piece(i).end());
    return taken;
  }
};

std::uint32_t taken_of(const std::vector<Segment>& segments) {
  Sending s;
  for (const Segment& each : segments) s.add(each);
  Octets whole;
  port::OffloadHeader said{};
  return s.take(whole, said);
}

// The second follows the first, with something else about it.
std::uint32_t with_second(const std::function<void(Segment&)>& change, bool v6 = false) {
  Segment first{.v6 = v6};
  Segment second = first;
  second.sequence += first.payload;
  change(second);
  return taken_of({first, second});
}

}  // namespace

TEST_CASE("W-TCP-24: segments of a stream leave as one, and are cut where they were", "[port][runs][W-TCP-24]") {
  const bool v6 = GENERATE(false, true);
  const std::uint32_t tcp = v6 ? kTcpAt6 : kTcpAt4;
  const std::uint32_t last = GENERATE(1u, 700u, 1448u);
  const std::uint8_t ece = GENERATE(std::uint8_t{0}, wire::tcp_flags::kEce);
  Sending s;
  std::vector<Octets> wanted;
  Segment segment{.v6 = v6, .sequence = 0xFFFFF000, .flags = static_cast<std::uint8_t>(wire::tcp_flags::kAck | ece)};
  for (int i = 0; i < 20; ++i) {
    if (i == 19) {
      segment.payload = last;
      segment.flags |= wire::tcp_flags::kPsh;
    }
    s.add(segment);
    wanted.push_back(frame_of(segment));
    segment.sequence += segment.payload;
  }
  Octets whole;
  port::OffloadHeader said{};
  REQUIRE(s.take(whole, said) == 20);
  CHECK(said.merged == (v6 ? port::OffloadHeader::kTcpV6 : port::OffloadHeader::kTcpV4));
  CHECK(said.segment_bytes == 1448);
  CHECK(said.flags == port::OffloadHeader::kNeedsChecksum);
  CHECK(said.checksum_start == tcp);
  CHECK(said.checksum_at == 16);
  CHECK(said.headers_bytes == tcp + 32);
  CHECK(cut(said, whole) == wanted);
  // The checksum is that of the pseudo-header alone, for all of it: whoever completes it sums from there on.
  CHECK(wire::checksum_of(wire::sum_of(Bytes(whole).subspan(tcp))) ==
        load_be<std::uint16_t>(finished(whole), tcp + 16));
  if (!v6) CHECK(wire::checksum_of(Bytes(whole).subspan(kEthernet, 20)) == 0);
}

TEST_CASE("W-TCP-24: a run that TCP has made leaves as it is, and is cut where its segments end",
          "[port][runs][W-TCP-24]") {
  const bool v6 = GENERATE(false, true);
  const std::uint32_t octets = GENERATE(2 * 1448u, 5 * 1448u + 1);
  HeapPool pool(2, 16'384);
  const BufferRef made = BufferRef::take(pool), next = BufferRef::take(pool);
  Segment segment{.v6 = v6, .sequence = 0xFFFFFF00, .payload = octets};
  const auto put = [](const BufferRef& buffer, const Octets& frame) {
    std::memcpy(buffer->append(static_cast<std::uint32_t>(frame.size())).data(), frame.data(), frame.size());
  };
  put(made, frame_of(segment));
  made->headers_bytes = static_cast<std::uint16_t>(made->length - octets);
  made->unit_bytes = 1448;
  SegmentRun run;
  run.begin(*made);
  Segment behind = segment;
  behind.sequence += octets;
  behind.payload = 1448;
  put(next, frame_of(behind));
  CHECK_FALSE(run.add(*next));
  const port::OffloadHeader said = run.finish();
  REQUIRE(run.count() == 1);
  CHECK(said.segment_bytes == 1448);
  CHECK(said.headers_bytes == made->headers_bytes);
  std::vector<Octets> wanted;
  for (std::uint32_t at = 0; at < octets; at += 1448) {
    Segment each = segment;
    each.sequence += at;
    each.payload = std::min(1448u, octets - at);
    Octets frame = frame_of(each);
    // The octets are those of the whole.
    std::memcpy(frame.data() + made->headers_bytes, made->bytes().data() + made->headers_bytes + at, each.payload);
    wanted.push_back(finished(std::move(frame)));
  }
  CHECK(cut(said, octets_of(run.piece(0))) == wanted);
}

TEST_CASE("W-TCP-24: a run that TCP has made leaves by itself, also behind a longer segment",
          "[port][runs][W-TCP-24]") {
  // A probe of the path's MTU in front of it: as one with that, the run would be a segment that the path does not take.
  HeapPool pool(2, 16'384);
  const BufferRef probe = BufferRef::take(pool), made = BufferRef::take(pool);
  Segment segment{.payload = 8900};
  const auto put = [](const BufferRef& buffer, const Octets& frame) {
    std::memcpy(buffer->append(static_cast<std::uint32_t>(frame.size())).data(), frame.data(), frame.size());
  };
  put(probe, frame_of(segment));
  segment.sequence += segment.payload;
  segment.payload = 5 * 1448;
  put(made, frame_of(segment));
  SegmentRun run;
  run.begin(*probe);
  made->headers_bytes = static_cast<std::uint16_t>(made->length - segment.payload);
  made->unit_bytes = 1448;
  CHECK_FALSE(run.add(*made));
  CHECK(run.finish().merged == port::OffloadHeader::kWhole);
  // As one segment it goes with it.
  made->unit_bytes = made->headers_bytes = 0;
  run.begin(*probe);
  CHECK(run.add(*made));
}

TEST_CASE("a frame by itself keeps what it is, and its TCP checksum is begun", "[port][runs]") {
  Octets whole;
  port::OffloadHeader said{};
  SECTION("an acknowledgement that is filled up") {
    Sending s;
    s.add({.payload = 0, .fill_up_to = 70});
    const Octets wanted = frame_of({.payload = 0});
    REQUIRE(s.take(whole, said) == 1);
    CHECK(whole.size() == 70);
    CHECK(load_be<std::uint16_t>(whole, kEthernet + 2) == 52);
    CHECK(said.merged == port::OffloadHeader::kWhole);
    CHECK(cut(said, Octets(whole.begin(), whole.begin() + 66)) == std::vector<Octets>{wanted});
  }
  SECTION("of a VLAN") {
    Sending s;
    s.add({.vlan = 5});
    s.add({.sequence = 2448, .vlan = 5});
    REQUIRE(s.take(whole, said) == 1);
    CHECK(said.flags == port::OffloadHeader::kNeedsChecksum);
    CHECK(said.checksum_start == kTcpAt4 + 4);
    CHECK(wire::checksum_of(Bytes(whole).subspan(kEthernet + 4, 20)) == 0);
  }
  SECTION("no TCP: IPv4 has its checksum, and the rest is the sender's") {
    Sending s;
    s.add({});
    s.frames[0]->bytes()[kEthernet + 9] = std::byte{wire::protocol::kUdp};
    const Octets before = octets_of(s.frames[0]->bytes());
    REQUIRE(s.take(whole, said) == 1);
    CHECK(said.flags == 0);
    CHECK(wire::checksum_of(Bytes(whole).subspan(kEthernet, 20)) == 0);
    CHECK(std::equal(whole.begin() + kTcpAt4, whole.end(), before.begin() + kTcpAt4, before.end()));
  }
  SECTION("no IP") {
    Sending s;
    s.add({});
    store_be(s.frames[0]->bytes(), 12, wire::ether_type::kArp);
    const Octets before = octets_of(s.frames[0]->bytes());
    REQUIRE(s.take(whole, said) == 1);
    CHECK(said.flags == 0);
    CHECK(whole == before);
  }
}

TEST_CASE("only what is the same but for its place continues a run", "[port][runs]") {
  const bool v6 = GENERATE(false, true);
  CHECK(with_second([](Segment&) {}, v6) == 2);
  CHECK(with_second([](Segment& s) { s.payload = 1; }, v6) == 2);
  CHECK(with_second([](Segment& s) { s.flags |= wire::tcp_flags::kPsh; }, v6) == 2);
  CHECK(with_second([](Segment& s) { ++s.payload; }, v6) == 1);
  CHECK(with_second([](Segment& s) { s.payload = 0; }, v6) == 1);
  CHECK(with_second([](Segment& s) { ++s.sequence; }, v6) == 1);
  CHECK(with_second([](Segment& s) { ++s.acknowledgement; }, v6) == 1);
  CHECK(with_second([](Segment& s) { ++s.window; }, v6) == 1);
  CHECK(with_second([](Segment& s) { ++s.destination_port; }, v6) == 1);
  CHECK(with_second([](Segment& s) { ++s.timestamp; }, v6) == 1);
  CHECK(with_second([](Segment& s) { s.ecn = 2; }, v6) == 1);
  CHECK(with_second([](Segment& s) { s.v6 = !s.v6; }, v6) == 1);
  for (const std::uint8_t flag : {wire::tcp_flags::kFin, wire::tcp_flags::kRst, wire::tcp_flags::kUrg,
                                  wire::tcp_flags::kCwr, wire::tcp_flags::kEce})
    CHECK(with_second([&](Segment& s) { s.flags |= flag; }, v6) == 1);
}

TEST_CASE("what has flags of its own begins no run, and a shorter or a pushed one ends it", "[port][runs]") {
  for (const std::uint8_t flag :
       {wire::tcp_flags::kPsh, wire::tcp_flags::kFin, wire::tcp_flags::kRst, wire::tcp_flags::kCwr}) {
    const auto flags = static_cast<std::uint8_t>(wire::tcp_flags::kAck | flag);
    CHECK(taken_of({{.flags = flags}, {.sequence = 2448, .flags = flags}}) == 1);
  }
  CHECK(taken_of({{}, {.sequence = 2448, .payload = 100}, {.sequence = 2548, .payload = 100}}) == 2);
  const std::uint8_t pushed = wire::tcp_flags::kAck | wire::tcp_flags::kPsh;
  CHECK(taken_of({{}, {.sequence = 2448, .flags = pushed}, {.sequence = 3896}}) == 2);
}

TEST_CASE("a run is no longer than a packet of IP can be, nor of more segments than there is room for",
          "[port][runs]") {
  std::vector<Segment> segments;
  const auto fill = [&](std::uint32_t payload, std::uint32_t count) {
    segments.clear();
    for (std::uint32_t i = 0; i < count; ++i) segments.push_back({.sequence = 1000 + i * payload, .payload = payload});
  };
  fill(1448, 60);
  CHECK(taken_of(segments) == (65'535 - 52) / 1448);
  fill(8, 100);
  CHECK(taken_of(segments) == SegmentRun::kSegmentsMax);
}

TEST_CASE("a run that found no room is made anew, of as many as there are then", "[port][runs]") {
  const bool v6 = GENERATE(false, true);
  Sending s;
  for (std::uint32_t i = 0; i < 5; ++i) s.add({.v6 = v6, .sequence = 1000 + i * 1448});
  Octets whole, again;
  port::OffloadHeader said{};
  REQUIRE(s.take(whole, said) == 5);
  s.run.restore();
  REQUIRE(s.take(again, said) == 5);
  CHECK(again == whole);
  s.run.restore();
  s.frames.resize(1);
  REQUIRE(s.take(again, said) == 1);
  CHECK(again.size() == 14 + (v6 ? 40 : 20) + 32 + 1448);
  CHECK(cut(said, again).size() == 1);
  CHECK(load_be<std::uint16_t>(again, v6 ? 18 : 16) == again.size() - (v6 ? 54 : 14));
}

TEST_CASE("a run of frames that are filled up, and whose last is pushed, is made anew as it was", "[port][runs]") {
  Sending s;
  for (std::uint32_t i = 0; i < 5; ++i)
    s.add({.sequence = 1000 + i,
           .payload = 1,
           .flags = static_cast<std::uint8_t>(wire::tcp_flags::kAck | (i == 4 ? wire::tcp_flags::kPsh : 0)),
           .fill_up_to = 80});
  Octets whole, again;
  port::OffloadHeader said{};
  REQUIRE(s.take(whole, said) == 5);
  CHECK(whole.size() == 14 + 20 + 32 + 5);
  s.run.restore();
  REQUIRE(s.take(again, said) == 5);
  CHECK(again == whole);
}

TEST_CASE("what the kernel says of a frame", "[port][runs]") {
  Sending s;
  s.add({});
  const MutableBytes frame = s.frames[0]->bytes();
  port::OffloadHeader said{};
  CHECK(port::judge(said, frame) == port::Received::unchecked);
  using port::OffloadHeader;
  for (const std::uint8_t flag : {OffloadHeader::kNeedsChecksum, OffloadHeader::kChecksumGood}) {
    said.flags = flag;
    CHECK(port::judge(said, frame) == port::Received::good);
  }
  for (const int type :
       {+OffloadHeader::kTcpV4, +OffloadHeader::kTcpV6, OffloadHeader::kTcpV4 | OffloadHeader::kWithCwr}) {
    said.merged = static_cast<std::uint8_t>(type);
    CHECK(port::judge(said, frame) == port::Received::good);
  }
  constexpr int kUdpFragments = 3, kDatagrams = 5;
  for (const int type : {kUdpFragments, kDatagrams, 0x7F}) {
    said.merged = static_cast<std::uint8_t>(type);
    CHECK(port::judge(said, frame) == port::Received::unusable);
  }
  // Of IPv4's own checksum it says nothing.
  said.merged = port::OffloadHeader::kWhole;
  frame[kEthernet + 8] ^= std::byte{1};
  CHECK(port::judge(said, frame) == port::Received::unchecked);
  frame[kEthernet] = std::byte{0x4F};
  CHECK(port::judge(said, frame.first(kEthernet + 20)) == port::Received::unchecked);
}

TEST_CASE("IPv4's own checksum is looked at behind a VLAN tag, too, and IPv6 has none", "[port][runs]") {
  for (const std::uint16_t vlan : {std::uint16_t{0}, std::uint16_t{5}}) {
    const std::size_t ttl = kEthernet + (vlan != 0 ? 4u : 0u) + 8;
    Octets frame = frame_of({.vlan = vlan});
    CHECK(port::is_ip_header_good(frame));
    frame[ttl] ^= std::byte{1};
    CHECK_FALSE(port::is_ip_header_good(frame));
    frame = frame_of({.v6 = true, .vlan = vlan});
    frame[ttl] ^= std::byte{1};
    CHECK(port::is_ip_header_good(frame));
  }
}

namespace {
// What mark_received_run() says of a frame: its segments' octets, 0: none.
std::uint16_t marked(const Octets& frame, std::uint32_t segment_bytes, std::uint32_t mtu = 1520) {
  HeapPool pool(1, 65'535);
  const BufferRef buffer = BufferRef::take(pool);
  std::memcpy(buffer->append(static_cast<std::uint32_t>(frame.size())).data(), frame.data(), frame.size());
  port::mark_received_run(*buffer, segment_bytes, mtu);
  if (buffer->unit_bytes != 0) CHECK(buffer->headers_bytes == frame.size() - (buffer->frames() - 1) * 1448 - 100);
  return buffer->unit_bytes;
}
}  // namespace

TEST_CASE("a checksum is undone where the pseudo-header's sum alone is in its place, and nowhere else",
          "[port][runs]") {
  for (const Segment& it : {Segment{}, Segment{.v6 = true}, Segment{.vlan = 5}, Segment{.payload = 3, .fill_up_to = 60},
                            Segment{.v6 = true, .payload = 0, .vlan = 7}}) {
    CAPTURE(it.v6, it.vlan, it.payload);
    Octets frame = frame_of(it);
    if (frame.size() < it.fill_up_to) frame.resize(it.fill_up_to);
    const std::size_t tcp = (it.v6 ? kTcpAt6 : kTcpAt4) + (it.vlan != 0 ? 4 : 0);
    const std::size_t segment = tcp + 32 + it.payload;  // its end: timestamps
    // By hand, RFC 9293 s3.1: addresses, protocol, length.
    std::uint64_t sum = wire::protocol::kTcp + (segment - tcp);
    for (std::size_t at = tcp - (it.v6 ? 32 : 8); at < tcp; at += 2) sum += load_be<std::uint16_t>(Bytes(frame), at);
    while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
    CHECK_FALSE(port::is_checksum_undone(finished(frame)));
    store_be(MutableBytes(frame), tcp + 16, static_cast<std::uint16_t>(sum));
    CHECK(port::is_checksum_undone(frame));
    for (std::size_t bit = 0; bit < 16; ++bit) {
      store_be(MutableBytes(frame), tcp + 16, static_cast<std::uint16_t>(sum ^ 1u << bit));
      CHECK_FALSE(port::is_checksum_undone(frame));
    }
    // Cut off anywhere, it is no segment.
    store_be(MutableBytes(frame), tcp + 16, static_cast<std::uint16_t>(sum));
    for (std::size_t octets = 0; octets < tcp + 20; ++octets)
      CHECK_FALSE(port::is_checksum_undone(Bytes(frame).first(octets)));
  }
}

TEST_CASE("a frame that came as one is marked as the segments that it was", "[port][runs]") {
  const bool v6 = GENERATE(false, true);
  const Octets frame = frame_of({.v6 = v6, .payload = 7 * 1448 + 100});
  CHECK(marked(frame, 1448) == 1448);
  CHECK(marked(frame, 1448, v6 ? 1520 : 1500) == 1448);  // such a segment has so much of IP
  CHECK(marked(frame, 1448, v6 ? 1519 : 1499) == 0);
  CHECK(marked(frame, 0) == 0);
}

TEST_CASE("what has not the form of a run of ours is not marked, whoever says so", "[port][runs]") {
  const bool v6 = GENERATE(false, true);
  const Octets good = frame_of({.v6 = v6, .payload = 7 * 1448 + 100});
  const std::size_t tcp = v6 ? kTcpAt6 : kTcpAt4;
  Octets frame = good;
  SECTION("its segments are far too many") {
    CHECK(marked(frame, 1) == 0);
    CHECK(marked(frame, static_cast<std::uint32_t>((good.size() - tcp) / (port::kReceivedSegmentsMax + 1))) == 0);
  }
  SECTION("it is one") {
    frame = frame_of({.v6 = v6, .payload = 1448});
    CHECK(marked(frame, 1448) == 0);
  }
  SECTION("of a VLAN") {
    frame = frame_of({.v6 = v6, .payload = 7 * 1448 + 100, .vlan = 5});
    CHECK(marked(frame, 1448) == 0);
  }
  SECTION("something is behind it") {
    frame.push_back(std::byte{0});
    CHECK(marked(frame, 1448) == 0);
  }
  SECTION("it is cut off, down to nothing") {
    for (std::size_t size = 0; size < 80; ++size)
      CHECK(marked(Octets(good.begin(), good.begin() + long(size)), 8) == 0);
  }
  SECTION("UDP") {
    frame[v6 ? 20 : 23] = std::byte{17};
    CHECK(marked(frame, 1448) == 0);
  }
  SECTION("a fragment, or options of IP") {
    if (v6) return;
    frame[20] = std::byte{0x20};
    CHECK(marked(frame, 1448) == 0);
    frame = good;
    frame[14] = std::byte{0x46};
    CHECK(marked(frame, 1448) == 0);
  }
  SECTION("TCP's header has no such length") {
    frame[tcp + 12] = std::byte{0x40};
    CHECK(marked(frame, 1448) == 0);
  }
}
