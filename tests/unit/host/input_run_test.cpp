// Runs of segments in what comes: which frame goes on where the one before ended, and that taking it so changes nothing
// else.
#include "host/input_run.hpp"

#include <set>
#include <string>
#include <tuple>

#include "base/chance.hpp"
#include "kit/catch.hpp"
#include "kit/hex.hpp"
#include "unit/host/host_parts.hpp"

using namespace rnic;
using namespace rnic::test;
using host::InputRun;
namespace flags = wire::tcp_flags;

namespace {

constexpr std::uint32_t kPayload = 100;
const wire::IpAddress kFrom6 = *wire::parse_ip("2001:db8::2"), kTo6 = *wire::parse_ip("2001:db8::1");

struct Kind {
  bool v6 = false, stamps = false;
  std::size_t tcp() const { return v6 ? 54 : 34; }
  std::size_t payload() const { return tcp() + (stamps ? 32 : 20); }
  Octets segment(std::uint32_t sequence, std::uint8_t its_flags = flags::kAck) const {
    wire::TcpHeader header{.source_port = 7000,
                           .destination_port = 1000,
                           .sequence = sequence,
                           .acknowledgement = 5001,
                           .flags = its_flags,
                           .window = 4000};
    if (stamps) header.timestamps = wire::TcpTimestamps{77, 88};
    const Octets octets = pattern(kPayload, sequence);
    return HostParts::segment(header, v6 ? kFrom6 : kPeer, octets, v6 ? kTo6 : kOurs);
  }
};

host::Stream& some_stream() {
  static host::Stream stream({}, {kOurs, kPeer, 1000, 7000});
  return stream;
}

bool begins(const Octets& first) {
  InputRun run;
  run.look_at(first);
  run.begin(some_stream());
  return run.stream() != nullptr;
}

}  // namespace

TEST_CASE("the next of a run says what the one before said, in every bit but its place, its length and PSH", "[host]") {
  for (const Kind kind : {Kind{false, false}, Kind{false, true}, Kind{true, false}, Kind{true, true}}) {
    InputRun run;
    run.look_at(kind.segment(901));
    run.begin(some_stream());
    REQUIRE(run.stream() == &some_stream());
    const Octets second = kind.segment(901 + kPayload, flags::kAck | flags::kPsh);
    const auto next = run.next(second);
    REQUIRE(next);
    CHECK(next->sequence == tcp::Seq{901 + kPayload});
    CHECK(next->payload.data() == second.data() + kind.payload());
    CHECK(next->payload.size() == kPayload);
    CHECK(next->segment.data() == second.data() + kind.tcp());
    CHECK(next->ip_header.size() == kind.tcp() - 14);
    // IPv4's identification and checksum; TCP's sequence number and checksum.
    std::set<std::size_t> free_octets;
    if (!kind.v6) free_octets = {18, 19, 24, 25};
    const auto lengths = kind.v6 ? std::set<std::size_t>{18, 19} : std::set<std::size_t>{16, 17};
    for (const std::size_t at : {4, 5, 6, 7, 16, 17}) free_octets.insert(kind.tcp() + at);
    for (std::size_t at = 0; at < kind.payload(); ++at)
      for (int bit = 0; bit < 8; ++bit) {
        CAPTURE(kind.v6, kind.stamps, at, bit);
        Octets other = second;
        other[at] ^= static_cast<std::byte>(1 << bit);
        const auto taken = run.next(other);
        if (lengths.contains(at)) {
          CHECK((!taken || (!taken->payload.empty() && taken->payload.size() < kPayload)));
          continue;
        }
        const bool is_psh = at == kind.tcp() + 13 && (1 << bit) == flags::kPsh;
        REQUIRE(taken.has_value() == (is_psh || free_octets.contains(at)));
      }
    for (std::size_t size = 0; size < second.size(); ++size) REQUIRE_FALSE(run.next(Bytes(second).first(size)));
    Octets padded = second;
    padded.resize(padded.size() + 7);
    CHECK(run.next(padded)->payload.size() == kPayload);
    run.end();
    CHECK(run.stream() == nullptr);
  }
}

TEST_CASE("what asks for more than its octets to be taken begins no run", "[host]") {
  for (const Kind kind : {Kind{false, false}, Kind{true, true}}) {
    CHECK(begins(kind.segment(901)));
    CHECK(begins(kind.segment(901, flags::kAck | flags::kPsh)));
    for (const std::uint8_t more : {flags::kFin, flags::kSyn, flags::kRst, flags::kUrg, flags::kEce, flags::kCwr})
      CHECK_FALSE(begins(kind.segment(901, flags::kAck | more)));
    CHECK_FALSE(begins(kind.segment(901, 0)));
    const auto changed = [&](std::size_t at, unsigned value) {
      Octets frame = kind.segment(901);
      frame[at] = static_cast<std::byte>(value);
      return begins(frame);
    };
    CHECK_FALSE(changed(12, 0x81));                   // a tag
    CHECK_FALSE(changed(kind.tcp() + 12, 0x60));      // other options
    CHECK_FALSE(changed(15, kind.v6 ? 0x30 : 0x03));  // congestion experienced
    CHECK_FALSE(changed(kind.v6 ? 20 : 23, 17));
    if (kind.stamps) CHECK_FALSE(changed(kind.tcp() + 22, 5));  // as long, but SACK
    if (kind.v6) continue;
    CHECK_FALSE(changed(14, 0x46));
    CHECK_FALSE(changed(20, 0x20));  // a fragment
    CHECK_FALSE(changed(21, 0x01));
  }
  InputRun run;
  run.look_at({});
  run.begin(some_stream());
  CHECK(run.stream() == nullptr);
}

namespace {

struct Ears {
  HostParts host;
  host::Stream& stream = host.connected();

  struct Frame {
    Octets octets;
    bool verified = false;
  };
  void hears(std::span<const Frame> frames) {
    std::vector<Buffer*> batch;
    for (const Frame& frame : frames) {
      const auto size = static_cast<std::uint32_t>(frame.octets.size());
      BufferRef buffer = BufferRef::take(host.port.pool(), size);
      std::copy(frame.octets.begin(), frame.octets.end(), buffer->append(size).begin());
      buffer->checksum_good = frame.verified ? 1 : 0;
      batch.push_back(buffer.release());
    }
    host.in.take(batch, host::PacketsIn::Source::port, kNow);
  }
  Octets heard() {
    Octets all;
    for (std::size_t i = 0; i < stream.tcp.readable_count(); ++i) {
      const Bytes span = stream.tcp.readable(i).span;
      all.insert(all.end(), span.begin(), span.end());
    }
    return all;
  }
  // All that is known of it from outside, and what it says.
  auto told() {
    const tcp::Counters& of_tcp = stream.tcp.counters();
    const host::Counters& of_host = host.counters;
    std::vector<std::tuple<std::uint32_t, std::uint32_t, unsigned, unsigned>> said;
    stream.tcp.end_of_burst();
    while (const auto segment = stream.tcp.next_segment(kNow))
      said.emplace_back(segment->header.acknowledgement, segment->header.sequence, segment->header.window,
                        segment->header.flags);
    return std::tuple(heard(), said, stream.tcp.state(), stream.tcp.heard(), stream.tcp.room_bytes(),
                      of_tcp.segments_in, of_tcp.bytes_in, of_tcp.duplicates, of_tcp.out_of_order, of_tcp.out_of_window,
                      of_host.frames_in, of_host.bytes_in, of_host.bad_frames, of_host.bad_checksums,
                      host.streams.active().empty());
  }
};

}  // namespace

TEST_CASE("segments of a batch that follow each other are taken as one, and others are not", "[host]") {
  static constexpr Kind kKind;
  const auto of = [](std::uint32_t i) { return Ears::Frame{kKind.segment(901 + i * kPayload), i % 2 == 0}; };
  Ears ears;
  std::vector<Ears::Frame> frames;
  for (std::uint32_t i = 0; i < 5; ++i) frames.push_back(of(i));
  ears.hears(frames);
  CHECK(ears.host.counters.continued_in == 4);
  CHECK(ears.stream.tcp.received() == 5 * kPayload);
  CHECK(ears.stream.tcp.counters().segments_in == 6);
  SECTION("in another batch the first is looked at whole") {
    ears.hears(std::vector{of(5)});
    CHECK(ears.host.counters.continued_in == 4);
  }
  SECTION("behind one that brought nothing new") {
    ears.hears(std::vector{of(4), of(5), of(6)});
    CHECK(ears.host.counters.continued_in == 5);
    CHECK(ears.stream.tcp.counters().duplicates == 1);
  }
  SECTION("behind a gap, and what fills it") {
    ears.hears(std::vector{of(6), of(7), of(5), of(8), of(9)});
    CHECK(ears.host.counters.continued_in == 5);
    CHECK(ears.stream.tcp.counters().out_of_order == 2);
  }
  SECTION("one whose checksum is bad") {
    std::vector bad{of(5), of(6)};
    bad[1] = {bad[1].octets, false};
    bad[1].octets.back() ^= std::byte{1};
    ears.hears(bad);
    CHECK(ears.host.counters.continued_in == 4);
    CHECK(ears.host.counters.bad_checksums == 1);
    CHECK(ears.stream.tcp.received() == 6 * kPayload);
    bad[1].verified = true;  // by the port, which is believed
    ears.hears(std::vector{bad[1], of(7)});
    CHECK(ears.host.counters.continued_in == 5);
  }
  SECTION("beyond the window") {
    wire::TcpHeader far{.source_port = 7000, .destination_port = 1000, .acknowledgement = 5001, .flags = flags::kAck};
    far.window = 4000;
    std::vector<Ears::Frame> all;
    const Octets octets = pattern(1400, 3);
    for (std::uint32_t i = 0; i < 60; ++i) {
      far.sequence = 901 + 5 * kPayload + i * 1400;
      all.push_back({HostParts::segment(far, kPeer, octets)});
    }
    ears.hears(all);
    CHECK(ears.stream.tcp.received() <= 65535);
    CHECK(ears.stream.tcp.received() > 64000);
  }
}

TEST_CASE("behind a segment that an ACK has overtaken each is asked for its window (RFC 9293 s3.10.7.4)", "[host]") {
  const auto frame = [](std::uint32_t sequence, std::uint16_t window, std::size_t octets) {
    wire::TcpHeader header{.source_port = 7000, .destination_port = 1000, .sequence = sequence};
    header.acknowledgement = 5001;
    header.flags = flags::kAck;
    header.window = window;
    return Ears::Frame{HostParts::segment(header, kPeer, pattern(octets))};
  };
  Ears ears;
  ears.hears(
      std::vector{frame(901 + kPayload, 0, 0), frame(901, 4000, kPayload), frame(901 + kPayload, 4000, kPayload)});
  CHECK(ears.stream.tcp.received() == 2 * kPayload);
  CHECK(ears.host.counters.continued_in == 0);
  Ears apart;
  apart.hears(std::vector{frame(901, 4000, kPayload), frame(901 + kPayload, 4000, kPayload)});
  CHECK(apart.host.counters.continued_in == 1);
  CHECK(ears.stream.tcp.room_bytes() == apart.stream.tcp.room_bytes());
}

TEST_CASE("whether segments come in one batch or each by itself, the stream and what it says are the same", "[host]") {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    CAPTURE(seed);
    Chance chance(seed);
    Ears together, apart;
    std::vector<Ears::Frame> frames;
    wire::TcpHeader header{.source_port = 7000,
                           .destination_port = 1000,
                           .sequence = 901,
                           .acknowledgement = 5001,
                           .flags = flags::kAck,
                           .window = 4000};
    for (unsigned i = 0; i < 12; ++i) {
      const std::size_t size = chance.below(4) == 0 ? chance.below(200) : kPayload;
      wire::TcpHeader its = header;
      switch (chance.below(24)) {
        case 0:
          its.sequence -= static_cast<std::uint32_t>(chance.below(300));
          break;
        case 1:
          its.sequence += static_cast<std::uint32_t>(chance.below(300));
          break;
        case 2:
          its.acknowledgement += static_cast<std::uint32_t>(chance.below(3));
          break;
        case 3:
          its.window = static_cast<std::uint16_t>(chance.below(5000));
          break;
        case 4:
          its.flags = static_cast<std::uint8_t>(1u << chance.below(8) | (chance.below(2) != 0 ? flags::kAck : 0));
          break;
        case 5:
          its.source_port = 7001;
          break;
        default:
          break;
      }
      Octets octets(size);
      for (auto& octet : octets) octet = static_cast<std::byte>(chance.next());
      Octets frame = HostParts::segment(its, kPeer, octets);
      if (chance.below(24) == 0) frame[chance.below(frame.size())] ^= static_cast<std::byte>(1 + chance.below(255));
      if (chance.below(24) == 0) frame.resize(chance.below(frame.size()) + 1);
      frames.push_back({std::move(frame), chance.below(2) != 0});
      header.sequence += static_cast<std::uint32_t>(size);
      if (chance.below(12) == 0) ++i;  // and the next one is lost
    }
    together.hears(frames);
    for (const Ears::Frame& frame : frames) apart.hears(std::span(&frame, 1));
    REQUIRE(together.told() == apart.told());
    REQUIRE(apart.host.counters.continued_in == 0);
  }
}
