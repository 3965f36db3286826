// Capture files as libpcap reads them for `rnic decode`; and hostile ones: cut at every octet, scribbled
// over, lying about every length. Whatever they hold, decoding comes to an end.
#include <random>

#include "kit/catch.hpp"
#include "unit/tools/packets.hpp"

namespace {

using namespace rnic;
using mpa::Crc;
using mpa::Markers;
using test::decode_file;
using test::DecodedCapture;
using test::FpduWriter;
using test::Octets;
using test::Talk;
using test::operator+;

std::vector<test::Packet> talk(Markers markers = Markers::none) {
  Talk talk;
  talk.handshake();
  talk.says(0, test::startup({.crc = true}, "hello"));
  talk.says(1, test::startup({.reply = true, .markers = markers == Markers::expected, .crc = true}));
  FpduWriter a(Crc::on, markers), b;
  const Octets send = a.send(600);
  talk.says(0, send + a.write(20), 300);
  talk.says(1, b.send(5));
  talk.closes(0);
  return talk.packets;
}

// A pcapng file: one interface with time stamps in nanoseconds.
Octets pcapng_file(const std::vector<test::Packet>& packets) {
  Octets file;
  const auto put = [&file](std::uint64_t value, int octets = 4) {
    for (int i = 0; i < octets; ++i) file.push_back(static_cast<std::byte>(value >> (8 * i)));
  };
  put(0x0A0D0D0A), put(28), put(0x1A2B3C4D), put(1, 2), put(0, 2), put(UINT64_MAX, 8), put(28);
  put(1), put(32), put(1, 2), put(0, 2), put(0), put(9, 2), put(1, 2), put(9), put(0), put(32);
  for (const auto& packet : packets) {
    const std::size_t padded = (packet.octets.size() + 3) / 4 * 4;
    put(6), put(32 + padded), put(0), put(packet.time_ns >> 32), put(packet.time_ns & 0xFFFFFFFF);
    put(packet.octets.size()), put(packet.wire_length());
    file = std::move(file) + packet.octets;
    file.resize(file.size() + padded - packet.octets.size());
    put(32 + padded);
  }
  return file;
}

}  // namespace

TEST_CASE("decode: pcap and pcapng files, times to the nanosecond where they are there", "[decode][file]") {
  const auto packets = talk();
  for (const auto& file : {test::pcap_file(packets, true), pcapng_file(packets)}) {
    const DecodedCapture decoded = decode_file(file);
    CHECK(decoded.why.empty());
    CHECK(decoded.good() == 3);
    CHECK(decoded.count("error") == 0);
    CHECK(decoded.units[0]["time"] == "1700000000.000003001");
    CHECK(decoded.units[0]["frame"] == 4);
  }
  CHECK(decode_file(test::pcap_file(packets, false)).units[0]["time"] == "1700000000.000003000");
}

TEST_CASE("decode: the first octets tell a capture from text", "[decode][file]") {
  CHECK(tool::looks_like_capture(test::pcap_file({}, true)));
  CHECK(tool::looks_like_capture(test::pcap_file({}, false)));
  CHECK(tool::looks_like_capture(pcapng_file({})));
  CHECK(tool::looks_like_capture(test::hex("a1b2c3d4")));
  CHECK_FALSE(tool::looks_like_capture(test::text("4d50")));
  CHECK_FALSE(tool::looks_like_capture(test::text("\n\n\n\n")));
  CHECK_FALSE(tool::looks_like_capture(test::hex("0a0d0d")));
}

TEST_CASE("decode: a file that cannot be used says why, and what to do", "[decode][file]") {
  CHECK(decode_file(test::pcap_file(talk(), true, 105)).why ==
        "the file was captured on a link of type IEEE802_11, which is not known here; capture on an Ethernet "
        "interface, or on \"any\"");
  CHECK(decode_file(test::hex("d4c3b2a1")).why.starts_with("the file is no capture that can be read: "));

  Octets cut = test::pcap_file(talk(), true);
  cut.resize(cut.size() - 10);
  const DecodedCapture decoded = decode_file(cut);
  CHECK(decoded.why.starts_with("the file cannot be read to its end: "));
  CHECK(decoded.why.ends_with("(after packet 9)"));
  CHECK(decoded.good() == 3);
}

TEST_CASE("decode: packets that were not captured whole, or cannot be used, are counted", "[decode][file]") {
  auto packets = talk();
  for (auto& packet : packets) {
    packet.length = packet.octets.size();
    packet.octets.resize(std::min<std::size_t>(packet.octets.size(), 128));
  }
  DecodedCapture decoded = decode_file(test::pcap_file(packets, true));
  CHECK(decoded.count("mpa") == 2);
  CHECK(decoded.good() == 2);  // those in segments that were short enough
  REQUIRE(decoded.notes.size() == 1);
  CHECK(decoded.notes[0] == "2 packets are cut off in the capture; capture them whole (tcpdump -s 0)");

  packets = talk();
  packets[5].octets[60] ^= std::byte{1};
  store_be<std::uint16_t>(packets[6].octets, 14 + 6, 0x2000);  // the first fragment of more
  decoded = decode_file(test::pcap_file(packets, true));
  REQUIRE(decoded.notes.size() == 2);
  CHECK(decoded.notes[0] == "1 packets with a wrong TCP checksum are left out, as their receiver does");
  CHECK(decoded.notes[1] == "1 IP fragments of TCP are left out");
  CHECK(decoded.errors().find("are not in the capture") != std::string::npos);
}

TEST_CASE("decode: a file cut at any octet gives what is before", "[decode][file][hostile]") {
  for (const Octets& file : {test::pcap_file(talk(), true), pcapng_file(talk())}) {
    std::size_t most = 0;
    for (std::size_t size = 4; size <= file.size(); ++size) {
      const DecodedCapture decoded =
          decode_file(Octets(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size)));
      REQUIRE(decoded.good() >= most);  // more octets never give fewer
      most = decoded.good();
    }
    CHECK(most == 3);
  }
}

TEST_CASE("decode: files with random octets changed do no harm", "[decode][file][hostile]") {
  std::mt19937 random(7);
  std::size_t readable = 0;
  for (int round = 0; round < 6000; ++round) {
    Octets file = (round & 1) != 0 ? pcapng_file(talk(round & 2 ? Markers::expected : Markers::none))
                                   : test::pcap_file(talk(round & 2 ? Markers::expected : Markers::none), true);
    for (unsigned n = 1 + random() % 8; n != 0; --n)
      file[random() % file.size()] = static_cast<std::byte>((random() & 1) != 0 ? random() : 0xFF * (random() & 1));
    const DecodedCapture decoded = decode_file(file);
    readable += decoded.units.empty() ? 0 : 1;
  }
  CHECK(readable > 3000);  // they were not all thrown away at once
}

TEST_CASE("decode: packets with random octets changed do no harm", "[decode][file][hostile]") {
  std::mt19937 random(11);
  std::size_t fpdus = 0;
  for (int round = 0; round < 6000; ++round) {
    auto packets = talk(round & 1 ? Markers::expected : Markers::none);
    for (unsigned n = 1 + random() % 4; n != 0; --n) {
      auto& packet = packets[random() % packets.size()];
      if (packet.octets.size() < 60) continue;
      packet.octets[random() % packet.octets.size()] = static_cast<std::byte>(random());
      store_be<std::uint16_t>(packet.octets, 14 + 20 + 16, 0);  // checksums do not protect us
      if (random() % 8 == 0) packet.octets.resize(random() % packet.octets.size());
      if (random() % 8 == 0) packet.length = random() % 8 == 0 ? 0xFFFFFFFF : random() % 100000;
    }
    fpdus +=
        test::decode(packets, {}, static_cast<tool::LinkType>(random() % 64 == 0 ? random() % 5 : 0)).count("fpdu");
  }
  CHECK(fpdus > 6000);
}

// Every place in it looks like the beginning of a large FPDU, and none is one.
TEST_CASE("decode: a stream full of false beginnings comes to an end", "[decode][file][hostile]") {
  Talk trap;
  Octets bait;
  while (bait.size() < 400'000) bait = std::move(bait) + test::hex("ff00c140");
  for (std::size_t i = 0; i < bait.size(); i += 4) store_be<std::uint16_t>(bait, i, 0xF000);
  trap.says(0, bait, 64);
  CHECK(test::decode(trap.packets).units.empty());

  // Known to be MPA, and scribbled over from there on.
  Talk known;
  known.handshake();
  known.says(0, test::startup({.crc = true}));
  known.says(1, test::startup({.reply = true, .crc = true}));
  known.says(0, bait, 64);
  const DecodedCapture decoded = test::decode(known.packets);
  CHECK(decoded.good() == 0);
  CHECK(decoded.count("error") == 2);
}

TEST_CASE("decode: acknowledgements and numbers that lie do no harm", "[decode][file][hostile]") {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    auto packets = talk();
    for (int i = 0; i < 50; ++i) {
      Talk liar;
      liar.next[0] = static_cast<std::uint32_t>(random());
      liar.next[1] = static_cast<std::uint32_t>(random());
      liar.segment(random() & 1, test::pattern(random() % 200), static_cast<int>(random() & 0x3F));
      packets.insert(packets.begin() + static_cast<std::ptrdiff_t>(random() % packets.size()), liar.packets[0]);
    }
    const DecodedCapture decoded = test::decode(packets);
    REQUIRE(decoded.units.size() < 1000);
  }
}
