// `rnic capture`: the ring between a worker and the program, from both ends, and the file.
#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "capture/pcapng.hpp"
#include "capture/ring_reader.hpp"
#include "kit/catch.hpp"
#include "port/capture.hpp"
#include "shm/sealed_memory.hpp"
#include "unit/tools/packets.hpp"

namespace {

using namespace rnic;
using port::FrameDirection;
using test::Octets;
using test::operator+;

// Both ends of a ring of `size` octets.
struct Ring {
  explicit Ring(std::uint32_t size) : bytes(RNIC_CAPTURE_DATA + size) {
    auto memory = shm::sealed_memory("test", bytes);
    REQUIRE(memory);
    base = memory->base;
    writer = std::make_unique<port::CaptureRing>(base, size);
    std::string why;
    reader = tool::RingReader::map(memory->fd, why);
    REQUIRE(reader != nullptr);
  }
  ~Ring() { munmap(base, bytes); }
  rnic_capture_ring& shared() { return *static_cast<rnic_capture_ring*>(base); }

  std::uint64_t bytes;
  void* base;
  std::unique_ptr<port::CaptureRing> writer;
  std::unique_ptr<tool::RingReader> reader;
};

}  // namespace

TEST_CASE("capture: frames come out of the ring as they went in", "[capture]") {
  Ring ring(1024);
  std::uint64_t last = 0;
  // Many times around it, in all sizes: every record wraps in its own place.
  for (unsigned i = 0; i < 500; ++i) {
    const Octets frame = test::pattern(1 + i % 400, i);
    ring.writer->on_frame(i % 3 == 0 ? FrameDirection::sent : FrameDirection::received, frame);
    ring.reader->look();
    const auto* read = ring.reader->front();
    REQUIRE(read != nullptr);
    REQUIRE(read->octets == frame);
    REQUIRE(read->sent == (i % 3 == 0));
    REQUIRE(read->time_ns >= last);
    REQUIRE(ring.reader->front() == read);  // until it is popped
    last = read->time_ns;
    ring.reader->pop();
    REQUIRE(ring.reader->front() == nullptr);
  }
  CHECK(last > 1'600'000'000'000'000'000);  // since 1970, not since the machine's start
  CHECK(ring.reader->frames() == 500);
  CHECK(ring.reader->dropped() == 0);
}

TEST_CASE("capture: what finds no room is counted, and the rest goes on behind it", "[capture]") {
  Ring ring(1024);
  // 16 octets of record and 112 of frame: eight fill it to the last octet.
  for (unsigned i = 0; i < 12; ++i) ring.writer->on_frame(FrameDirection::sent, test::pattern(112, i));
  CHECK(ring.reader->frames() == 12);
  CHECK(ring.reader->dropped() == 4);
  ring.reader->look();
  for (unsigned i = 0; i < 8; ++i) {
    REQUIRE(ring.reader->front() != nullptr);
    CHECK(ring.reader->front()->octets == test::pattern(112, i));
    ring.reader->pop();
  }
  CHECK(ring.reader->front() == nullptr);
  // A frame that is longer than the whole ring never fits.
  ring.writer->on_frame(FrameDirection::sent, Octets(1024 - 15));
  CHECK(ring.reader->dropped() == 5);
  ring.writer->on_frame(FrameDirection::sent, Octets(1024 - 16));
  ring.reader->look();
  REQUIRE(ring.reader->front() != nullptr);
  CHECK(ring.reader->front()->octets.size() == 1008);
}

TEST_CASE("capture: a reader that scribbles over the ring loses frames and nothing else", "[capture]") {
  Ring ring(1024);
  // The page behind the ring may not be touched: the ring ends at the end of its mapping.
  for (unsigned i = 0; i < 2000; ++i) {
    std::memset(static_cast<std::byte*>(ring.base) + 8 * (i % 24), static_cast<int>(i * 37), 8);
    ring.shared().consumed = i % 2 == 0 ? 0xFFFFFFFFFFFFFFF0u + i : i * 8;
    ring.writer->on_frame(FrameDirection::received, test::pattern(i % 1100, i));
  }
  ring.shared().consumed = 1u << 30;  // more than was ever written: taken for full
  const std::uint64_t produced = ring.shared().produced;
  ring.writer->on_frame(FrameDirection::received, test::pattern(10));
  CHECK(ring.shared().produced == produced);
  CHECK(ring.shared().frames == 2001);
}

TEST_CASE("capture: a reader does not follow a ring that makes no sense", "[capture]") {
  Ring ring(1024);
  ring.writer->on_frame(FrameDirection::received, test::pattern(100));
  auto* record = reinterpret_cast<rnic_capture_record*>(static_cast<std::byte*>(ring.base) + RNIC_CAPTURE_DATA);
  record->length = 5000;
  ring.reader->look();
  CHECK(ring.reader->front() == nullptr);
  CHECK(ring.reader->broken());

  Ring other(1024);
  other.shared().produced = 4096;
  other.reader->look();
  CHECK(other.reader->front() == nullptr);
  CHECK(other.reader->broken());
}

TEST_CASE("capture: a worker and a reader at the same time lose nothing that is not counted", "[capture]") {
  Ring ring(4096);
  constexpr unsigned kFrames = 200'000;
  std::atomic<bool> done = false;
  std::thread worker([&] {
    Octets frame(200);
    for (unsigned i = 0; i < kFrames; ++i) {
      store_be(frame, 0, i);
      ring.writer->on_frame(FrameDirection::sent, Bytes(frame).first(4 + i % 190));
    }
    done = true;
  });
  std::uint64_t read = 0;
  std::int64_t last = -1;
  bool ordered = true;
  for (bool more = true; more;) {
    more = !done;
    ring.reader->look();
    while (const auto* frame = ring.reader->front()) {
      const auto number = load_be<std::uint32_t>(frame->octets, 0);
      ordered = ordered && number > last && frame->octets.size() == 4 + number % 190;
      last = number;
      ++read;
      ring.reader->pop();
    }
  }
  worker.join();
  CHECK(ordered);
  CHECK_FALSE(ring.reader->broken());
  CHECK(ring.reader->frames() == kFrames);
  CHECK(read + ring.reader->dropped() == kFrames);
  CHECK(read > 0);
}

TEST_CASE("capture: the file is read by libpcap, and by rnic decode", "[capture]") {
  using namespace tool::pcapng;
  test::Talk talk;
  talk.handshake();
  talk.says(0, test::startup({.crc = true}));
  talk.says(1, test::startup({.reply = true, .crc = true}));
  talk.says(0, test::FpduWriter().send(33));
  Interface first{.name = "rnic0", .description = "the first", .mac = {2, 0, 0, 0, 0, 1}, .addresses = {}};
  first.addresses.push_back({.v6 = false, .octets = {10, 0, 0, 1}, .prefix_length = 20});
  first.addresses.push_back({.v6 = true, .octets = {0xfe, 0x80}, .prefix_length = 64});
  std::string text = section_header("rnic test") + interface_description(first) +
                     interface_description({.name = "rnic1", .description = {}, .addresses = {}});
  for (std::size_t i = 0; i < talk.packets.size(); ++i)
    text += packet(i % 2, talk.packets[i].time_ns, Direction::sent, talk.packets[i].octets);
  text += interface_statistics(0, 5, 6, 7, 8);
  const test::DecodedCapture decoded = test::decode_file(test::text(text));
  CHECK(decoded.why.empty());
  CHECK(decoded.count("mpa") == 2);
  CHECK(decoded.good() == 1);
  CHECK(decoded.units[2]["time"] == "1700000000.000005001");
}

TEST_CASE("capture: blocks of the file, octet by octet", "[capture]") {
  using namespace tool::pcapng;
  const auto octets = [](const std::string& block) { return test::text(block); };
  // Of draft-ietf-opsawg-pcapng, sections 4.1 to 4.6, on a little-endian machine.
  CHECK(octets(section_header("rnic")) ==
        test::hex("0a0d0d0a 28000000 4d3c2b1a 0100 0000 ffffffffffffffff 0400 0400 726e6963 00000000 28000000"));
  Interface device{.name = "rnic0", .description = "x", .mac = {2, 0, 0, 0, 0, 1}, .addresses = {}};
  device.addresses.push_back({.v6 = false, .octets = {10, 0, 0, 1}, .prefix_length = 20});
  CHECK(octets(interface_description(device)) ==
        test::hex("01000000 4c000000 0100 0000 00000000 0200 0500 726e696330000000 0300 0100 78000000 "
                  "0400 0800 0a000001 fffff000 0600 0600 0200000000010000 0900 0100 09000000 00000000 4c000000"));
  CHECK(octets(packet(1, 0x0102030405060708, Direction::received, test::hex("aabbccddee"))) ==
        test::hex("06000000 34000000 01000000 04030201 08070605 05000000 05000000 aabbccddee000000 0200 0400 01000000 "
                  "00000000 34000000"));
  CHECK(octets(packet(0, 0, Direction::sent, {})).at(32) == std::byte{2});
  CHECK(
      octets(interface_statistics(1, 0x100000002, 0x300000004, 5, 6)) ==
      test::hex("05000000 4c000000 01000000 03000000 04000000 0200 0800 01000000 02000000 0300 0800 03000000 04000000 "
                "0400 0800 0500000000000000 0500 0800 0600000000000000 00000000 4c000000"));
}

TEST_CASE("capture: frames of 65535 octets of IP behind a VLAN tag go through the ring and the file whole",
          "[capture]") {
  using namespace tool::pcapng;
  test::Talk talk;
  talk.v6 = GENERATE(false, true);
  talk.tags = {100};
  talk.handshake();
  talk.says(0, test::startup({.crc = true}));
  talk.says(1, test::startup({.reply = true, .crc = true}));
  // The longest ULPDU, and what fills the segment behind it to its last octet.
  const std::size_t mss = 65'535 - (talk.v6 ? 60 : 40);
  test::FpduWriter writer;
  test::Octets stream = writer.write(64'768 - 14);
  const std::size_t left = mss - stream.size();
  test::append(stream, writer.write(left / 4 * 4 - 6 - 14));
  test::append(stream, writer.write(100));
  talk.says(0, stream, mss);
  std::size_t longest = 0;
  std::string text =
      section_header("rnic test") + interface_description({.name = "rnic0", .description = {}, .addresses = {}});
  Ring ring(1u << 20);
  for (const test::Packet& each : talk.packets) {
    longest = std::max(longest, each.octets.size());
    ring.writer->on_frame(FrameDirection::sent, each.octets);
    ring.reader->look();
    REQUIRE(ring.reader->front() != nullptr);
    REQUIRE(ring.reader->front()->octets == each.octets);
    text += packet(0, each.time_ns, Direction::sent, ring.reader->front()->octets);
    ring.reader->pop();
  }
  CHECK(ring.reader->dropped() == 0);
  CHECK(longest == 18 + 65'535);
  const test::DecodedCapture decoded = test::decode_file(test::text(text));
  CHECK(decoded.why.empty());
  CHECK(decoded.good() == 3);
}
