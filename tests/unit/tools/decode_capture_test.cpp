// `rnic decode` on captures that the tests make: streams put together from segments in any order,
// framing learned from the startup frames, and what is said where the capture is not whole.
#include <algorithm>
#include <random>

#include "kit/catch.hpp"
#include "mpa/markers.hpp"
#include "unit/tools/packets.hpp"

namespace {

using namespace rnic;
using mpa::Crc;
using mpa::Markers;
using test::decode;
using test::DecodedCapture;
using test::FpduWriter;
using test::Octets;
using test::Talk;
using test::operator+;

const wire::StartupHeader kRequest{.crc = true};
const wire::StartupHeader kReply{.reply = true, .crc = true};

struct Started : Talk {
  explicit Started(wire::StartupHeader request = kRequest, wire::StartupHeader reply = kReply) {
    reply.reply = true;
    handshake();
    says(0, test::startup(request, "hello"));
    says(1, test::startup(reply));
  }
};

// What a stream says, without when and where.
std::vector<std::string> contents(const DecodedCapture& decoded, const char* direction) {
  std::vector<std::string> all;
  for (tool::Json unit : decoded.units) {
    if (unit["direction"] != direction) continue;
    for (const char* member : {"time", "frame", "source", "destination"}) unit.erase(member);
    all.push_back(unit.dump());
  }
  return all;
}

// Five FPDUs each way, several to a segment and over several segments.
Talk long_talk(std::size_t segment, Markers to_responder = Markers::none, Markers to_initiator = Markers::none) {
  Started talk({.markers = to_initiator == Markers::expected, .crc = true},
               {.markers = to_responder == Markers::expected, .crc = true});
  FpduWriter a(Crc::on, to_responder), b(Crc::on, to_initiator);
  Octets from_a, from_b;
  for (const std::size_t size : {3u, 5000u, 0u, 600u, 16u}) {
    from_a = from_a + a.send(size);
    from_b = from_b + b.write(size);
  }
  talk.says(0, from_a, segment);
  talk.says(1, from_b, segment);
  talk.acknowledges(0);
  return talk;
}

}  // namespace

TEST_CASE("decode: a capture's units have time, frame, addresses and direction", "[decode][capture]") {
  Started talk;
  FpduWriter a, b;
  talk.says(0, a.send(1));
  talk.says(1, b.write(2));
  const DecodedCapture decoded = decode(talk.packets);
  REQUIRE(decoded.units.size() == 4);
  CHECK(decoded.units[0].dump() ==
        R"({"kind":"mpa","time":"1700000000.000003001","frame":4,"source":"10.0.0.1:40000",)"
        R"("destination":"10.0.0.2:7174","direction":"to_responder","type":"request","rev":1,"m":false,"c":true,)"
        R"("r":false,"s":false,"pd_length":5,"a":null,"b":null,"rtr_write":null,"rtr_read":null,"ird":null,)"
        R"("ord":null,"private_data":"68656c6c6f"})");
  CHECK(decoded.units[1]["type"] == "reply");
  CHECK(decoded.units[1]["direction"] == "to_initiator");
  CHECK(decoded.units[2].dump() ==
        R"({"kind":"fpdu","time":"1700000000.000005001","frame":6,"source":"10.0.0.1:40000",)"
        R"("destination":"10.0.0.2:7174","direction":"to_responder","position":0,"length":28,"ulpdu_length":19,)"
        R"("crc":"good","markers":[],"opcode":3,"name":"Send","tagged":false,"last":true,"qn":0,"msn":1,"mo":0,)"
        R"("invalidate_stag":0,"payload_length":1,"payload":"01"})");
  CHECK(decoded.units[3]["source"] == "10.0.0.2:7174");
  CHECK(decoded.units[3]["direction"] == "to_initiator");
  CHECK(decoded.units[3]["position"] == 0);
}

TEST_CASE("decode: CRC is on if either startup frame says so", "[decode][capture]") {
  for (const bool request : {false, true}) {
    for (const bool reply : {false, true}) {
      Started talk({.crc = request}, {.crc = reply});
      const Crc crc = request || reply ? Crc::on : Crc::off;
      talk.says(0, FpduWriter(crc).send(9));
      talk.says(1, FpduWriter(crc).send(9));
      const DecodedCapture decoded = decode(talk.packets);
      REQUIRE(decoded.units.size() == 4);
      for (const int i : {2, 3}) CHECK(decoded.units[i]["crc"] == (crc == Crc::on ? "good" : "off"));
    }
  }
}

TEST_CASE("decode: each direction has markers if the other's startup frame asks for them", "[decode][capture]") {
  for (const auto to_responder : {Markers::none, Markers::expected}) {
    for (const auto to_initiator : {Markers::none, Markers::expected}) {
      const DecodedCapture decoded = decode(long_talk(1460, to_responder, to_initiator).packets);
      CHECK(decoded.good() == 10);
      CHECK(decoded.errors().empty());
      for (const auto& unit : decoded.units) {
        if (unit["kind"] != "fpdu" || unit["payload_length"] != 5000) continue;
        const bool marked = (unit["direction"] == "to_responder" ? to_responder : to_initiator) == Markers::expected;
        CHECK(unit["markers"].size() == (marked ? mpa::marked_fpdu(unit["position"], 5018).marker_count : 0));
      }
    }
  }
}

TEST_CASE("decode: FPDUs are found however TCP has cut them, over a wrap of the numbers too", "[decode][capture]") {
  for (const auto markers : {Markers::none, Markers::expected}) {
    const DecodedCapture whole = decode(long_talk(60000, markers, markers).packets);
    REQUIRE(whole.good() == 10);
    for (const std::size_t segment : {1u, 2u, 3u, 7u, 100u, 512u, 1448u}) {
      const DecodedCapture cut = decode(long_talk(segment, markers, markers).packets);
      CHECK((contents(cut, "to_responder") == contents(whole, "to_responder")));
      CHECK((contents(cut, "to_initiator") == contents(whole, "to_initiator")));
    }
  }
}

TEST_CASE("decode: segments that come again, in part, or out of order change nothing", "[decode][capture]") {
  const Talk talk = long_talk(500);
  const DecodedCapture right = decode(talk.packets);
  REQUIRE(right.good() == 10);

  // Behind the handshake, in any order within a window of 8; some twice.
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    auto packets = talk.packets;
    for (std::size_t at = 3; at < packets.size(); at += 8) {
      const auto end = packets.begin() + static_cast<std::ptrdiff_t>(std::min(at + 8, packets.size()));
      std::shuffle(packets.begin() + static_cast<std::ptrdiff_t>(at), end, random);
    }
    for (std::size_t i = 3; i < packets.size(); i += 2 + random() % 5)
      packets.insert(packets.begin() + static_cast<std::ptrdiff_t>(i + random() % (packets.size() - i)), packets[i]);
    const DecodedCapture decoded = decode(packets);
    CHECK((contents(decoded, "to_responder") == contents(right, "to_responder")));
    CHECK((contents(decoded, "to_initiator") == contents(right, "to_initiator")));
  }

  // A retransmission in other pieces, whose octets differ: the first copy counts.
  Talk again = talk;
  const std::uint32_t end = again.next[0];
  again.next[0] = end - 700;
  again.says(0, Octets(650));
  again.next[0] = end;
  CHECK((contents(decode(again.packets), "to_responder") == contents(right, "to_responder")));
}

TEST_CASE("decode: a retransmission that overlaps what waits behind a gap fills only the gap", "[decode][capture]") {
  Started talk;
  FpduWriter a;
  const Octets stream = a.sends({100, 100, 100});
  const std::uint32_t first = talk.next[0];
  const auto piece = [&](std::size_t from, std::size_t to, bool real) {
    talk.next[0] = first + static_cast<std::uint32_t>(from);
    talk.says(0, real ? Octets(stream.begin() + static_cast<std::ptrdiff_t>(from),
                               stream.begin() + static_cast<std::ptrdiff_t>(to))
                      : Octets(to - from));
  };
  piece(50, 60, true);
  piece(100, 150, true);
  piece(45, 65, false);  // around what is there: its own octets only count where nothing was
  piece(0, 50, true);
  piece(60, 100, true);
  piece(0, stream.size(), true);
  const DecodedCapture decoded = decode(talk.packets);
  // Octets 45..49 and 60..64 came first as zeros.
  Octets expected = stream;
  for (const std::size_t i : {45u, 46u, 47u, 48u, 49u, 60u, 61u, 62u, 63u, 64u}) expected[i] = std::byte{0};
  REQUIRE(decoded.count("fpdu") >= 1);
  CHECK(decoded.units[2]["crc"] == "bad");
  CHECK(decoded.units[2]["payload"] == tool::to_hex(Bytes(expected).subspan(20, 100)));
  CHECK(decoded.good() == 2);
}

TEST_CASE("decode: IPv6, VLAN tags and other links", "[decode][capture]") {
  Started talk;
  talk.says(0, FpduWriter().send(7));
  const auto expect = [&](const std::vector<test::Packet>& packets, tool::LinkType link, const char* source) {
    const DecodedCapture decoded = decode(packets, {}, link);
    REQUIRE(decoded.units.size() == 3);
    CHECK(decoded.good() == 1);
    CHECK(decoded.units[2]["source"] == source);
  };
  expect(talk.packets, tool::LinkType::ethernet, "10.0.0.1:40000");
  const auto with_front = [&](std::string_view hex_front) {
    auto packets = talk.packets;
    for (auto& packet : packets) {
      packet.octets.erase(packet.octets.begin(), packet.octets.begin() + 14);
      packet.octets = test::hex(hex_front) + packet.octets;
    }
    return packets;
  };
  expect(with_front(""), tool::LinkType::raw_ip, "10.0.0.1:40000");
  expect(with_front("02000000"), tool::LinkType::null, "10.0.0.1:40000");
  expect(with_front("0000 0001 0006 0200 0000 0001 0000 0800"), tool::LinkType::linux_cooked, "10.0.0.1:40000");
  expect(with_front("0800 0000 0000 0001 0001 00 06 0200 0000 0001 0000"), tool::LinkType::linux_cooked_2,
         "10.0.0.1:40000");
  expect(with_front("ffffffffffff 020000000001 88a8 0005 8100 0006 0800"), tool::LinkType::ethernet, "10.0.0.1:40000");

  const auto spoken = [](auto&& set) {
    Talk other;
    set(other);
    other.handshake();
    other.says(0, test::startup(kRequest));
    other.says(1, test::startup(kReply));
    other.says(0, FpduWriter().send(7));
    return other.packets;
  };
  expect(spoken([](Talk& t) { t.tags = {5}; }), tool::LinkType::ethernet, "10.0.0.1:40000");
  expect(spoken([](Talk& t) { t.v6 = true; }), tool::LinkType::ethernet, "[fe80::1]:40000");
  expect(spoken([](Talk& t) { t.v6 = true, t.tags = {5, 6}; }), tool::LinkType::ethernet, "[fe80::1]:40000");
}

TEST_CASE("decode: a segment with a wrong checksum is left out, one without is not", "[decode][capture]") {
  Started talk;
  const Octets fpdu = FpduWriter().send(100);
  talk.says(0, fpdu);
  constexpr std::size_t kChecksum = 14 + 20 + 16;
  const auto with_checksum = [&](std::uint16_t value) {
    auto packets = talk.packets;
    store_be(packets.back().octets, kChecksum, value);
    return decode(packets);
  };
  CHECK(with_checksum(0).good() == 1);  // left to the interface, as on a pair
  // What Linux leaves there for an interface that fills it in: the pseudo-header's sum.
  const auto sum = wire::pseudo_header(wire::IpAddress::v4(10, 0, 0, 1), wire::IpAddress::v4(10, 0, 0, 2), 6,
                                       static_cast<std::uint32_t>(20 + fpdu.size()));
  CHECK(with_checksum(static_cast<std::uint16_t>(~wire::checksum_of(sum))).good() == 1);
  CHECK(with_checksum(0x1234).good() == 0);

  // Its retransmission is what counts.
  auto packets = talk.packets;
  packets.back().octets.back() ^= std::byte{1};
  packets.push_back(talk.packets.back());
  const DecodedCapture decoded = decode(packets);
  CHECK(decoded.good() == 1);
  CHECK(decoded.errors().empty());
}

TEST_CASE("decode: a capture that begins inside a connection says so, and what it found", "[decode][capture]") {
  const std::string kSays = "the capture begins inside this connection, its startup frames are not in it; ";
  const std::string kWhere = "; positions count from here, or from a marker before it";
  for (const auto markers : {Markers::none, Markers::expected}) {
    for (const auto crc : {Crc::on, Crc::off}) {
      if (crc == Crc::off && markers == Markers::expected) continue;
      FpduWriter a(crc, markers);
      const Octets before = a.send(1000), stream = a.sends({700, 90, 1300});
      Talk talk;
      talk.says(0, Bytes(before).last(300));  // inside an FPDU
      talk.says(0, stream, 1000);
      const DecodedCapture decoded = decode(talk.packets);
      INFO(decoded.errors());
      CHECK(decoded.count("fpdu") == 3);
      CHECK(decoded.count("mpa") == 0);
      REQUIRE(decoded.count("error") == 1);
      CHECK(decoded.units[0]["reason"] ==
            kSays + "by the FPDUs that were found from here on " +
                (crc == Crc::on ? "CRCs are in use" : "CRCs are not in use") + " and " +
                (markers == Markers::expected ? "there are markers" : "there are no markers") + kWhere +
                "; 300 octets before it are skipped");
      CHECK(decoded.units[0]["layer"].is_null());
      CHECK(decoded.units[0]["direction"] == "unknown");
      CHECK(decoded.units[1]["msn"] == 2);
      CHECK(decoded.good() == (crc == Crc::on ? 3u : 0u));
    }
  }
}

TEST_CASE("decode: inside a connection of small FPDUs it waits for what tells of markers", "[decode][capture]") {
  for (const auto markers : {Markers::none, Markers::expected}) {
    FpduWriter a(Crc::on, markers);
    const Octets before = a.sends({400, 40});
    Talk talk;
    talk.says(0, Bytes(before).last(10));
    for (int i = 0; i < 20; ++i) talk.says(0, a.send(20));
    const DecodedCapture decoded = decode(talk.packets);
    INFO(decoded.errors());
    REQUIRE(decoded.count("error") == 1);
    const auto reason = decoded.units[0]["reason"].get<std::string>();
    CHECK((reason.find("there are markers;") != std::string::npos) == (markers == Markers::expected));
    CHECK((reason.find("there are no markers;") != std::string::npos) == (markers == Markers::none));
    CHECK(decoded.good() >= 12);
    CHECK(decoded.units.back()["msn"] == 22);
  }
  // Too few to tell: at the end they are shown all the same, and that nothing told.
  FpduWriter a;
  Talk talk;
  talk.says(0, a.sends({20, 20}));
  const DecodedCapture decoded = decode(talk.packets);
  CHECK(decoded.good() == 2);
  CHECK(decoded.units[0]["reason"].get<std::string>().find("there are no markers as far as can be seen;") !=
        std::string::npos);
}

TEST_CASE("decode: inside a connection without CRC but with markers, the options tell", "[decode][capture]") {
  FpduWriter a(Crc::off, Markers::expected);
  Talk talk;
  talk.says(0, a.send(3000), 1000);
  talk.says(0, a.sends({700, 90}), 1000);
  const DecodedCapture told = decode(talk.packets, {Crc::off, Markers::expected});
  CHECK(told.count("fpdu") == 3);
  CHECK(told.count("error") == 1);
}

TEST_CASE("decode: connections that are no MPA say nothing", "[decode][capture]") {
  Talk ssh;
  ssh.handshake();
  ssh.says(1, test::text("SSH-2.0-OpenSSH\r\n"));
  ssh.says(0, test::text("SSH-2.0-client\r\n"));
  CHECK(decode(ssh.packets).units.empty());

  Talk inside;  // of something long, whose beginning was not seen
  for (int i = 0; i < 400; ++i) {
    inside.says(0, test::pattern(1400, static_cast<unsigned>(i)));
    inside.says(1, Octets(1400));
  }
  CHECK(decode(inside.packets).units.empty());
}

TEST_CASE("decode: a capture with one direction only says what it had to find out", "[decode][capture]") {
  for (const auto markers : {Markers::none, Markers::expected}) {
    Started talk({.crc = false}, {.markers = markers == Markers::expected, .crc = true});
    talk.says(0, FpduWriter(Crc::on, markers).send(2000), 1000);
    auto packets = talk.packets;
    std::erase_if(packets, [](const test::Packet& p) { return p.octets[29] == std::byte{2}; });  // from 10.0.0.2
    const DecodedCapture decoded = decode(packets);
    REQUIRE(decoded.units.size() == 3);
    CHECK(decoded.units[0]["type"] == "request");
    CHECK(
        decoded.units[1]["reason"] ==
        std::string(
            "the other direction's startup frame is not in the capture; by the FPDUs that were found from here on CRCs "
            "are in use and ") +
            (markers == Markers::expected ? "there are markers" : "there are no markers"));
    CHECK(decoded.units[2]["crc"] == "good");
    CHECK(decoded.units[2]["position"] == 0);
    CHECK(decoded.units[2]["direction"] == "to_responder");
  }
}

TEST_CASE("decode: octets that the capture lost are told, and decoding goes on behind them", "[decode][capture]") {
  for (const auto markers : {Markers::none, Markers::expected}) {
    Started talk({.crc = true}, {.markers = markers == Markers::expected, .crc = true});
    FpduWriter a(Crc::on, markers);
    const Octets first = a.send(2000), second = a.send(700), third = a.send(5);
    talk.says(0, first + second + third, 1000);
    talk.acknowledges(1);
    auto packets = talk.packets;
    packets.erase(packets.begin() + 6);  // octets 1000..1999 of the FPDUs
    const DecodedCapture decoded = decode(packets);
    REQUIRE(decoded.units.size() == 6);
    CHECK(decoded.units[2]["position"] == 1000);
    CHECK(decoded.units[2]["reason"] == "1000 octets are not in the capture");
    CHECK(decoded.units[3]["reason"] == "decoding goes on here, with the next FPDU that was found; " +
                                            std::to_string(first.size() - 2000) + " octets before it are skipped");
    CHECK(decoded.units[4]["position"] == first.size());
    CHECK(decoded.units[4]["msn"] == 2);
    CHECK(decoded.units[5]["msn"] == 3);
    CHECK(decoded.good() == 2);
  }
}

TEST_CASE("decode: a lost segment that was acknowledged is not waited for until the end", "[decode][capture]") {
  Started talk;
  FpduWriter a;
  for (int i = 0; i < 3; ++i) talk.says(0, a.send(100));
  auto packets = talk.packets;
  packets.erase(packets.begin() + 5);  // the first FPDU
  talk.packets.clear();
  for (int i = 0; i < 40; ++i) talk.acknowledges(1);
  packets.insert(packets.end(), talk.packets.begin(), talk.packets.end());
  const DecodedCapture decoded = decode(packets);
  REQUIRE(decoded.good() == 2);
  CHECK(decoded.units.back()["frame"].get<std::size_t>() < packets.size());
}

TEST_CASE("decode: behind a bad FPDU decoding goes on with the next that is found", "[decode][capture]") {
  Started talk;
  FpduWriter a;
  Octets bad = a.send(300);
  bad[100] ^= std::byte{1};
  talk.says(0, bad + a.sends({20, 30}), 128);
  const DecodedCapture decoded = decode(talk.packets);
  REQUIRE(decoded.units.size() == 7);
  CHECK(decoded.units[2]["crc"] == "bad");
  CHECK(decoded.units[3]["code"] == 2);
  CHECK(decoded.units[4]["reason"].get<std::string>().starts_with("decoding goes on here"));
  CHECK(decoded.units[5]["msn"] == 2);
  CHECK(decoded.units[5]["position"] == bad.size());
  CHECK(decoded.units[6]["msn"] == 3);
}

TEST_CASE("decode: startup frames that do not fit one another", "[decode][capture]") {
  Talk both;
  both.handshake();
  both.says(0, test::startup(kRequest));
  both.says(1, test::startup(kRequest));
  DecodedCapture decoded = decode(both.packets);
  REQUIRE(decoded.units.size() == 3);
  CHECK(decoded.units[2]["reason"] == "a Request where the Reply was due");
  CHECK(decoded.units[2]["code"] == 4);

  Talk nonsense;
  nonsense.handshake();
  nonsense.says(0, test::startup(kRequest));
  nonsense.says(1, test::text("HTTP/1.1 400 Bad Request"));
  decoded = decode(nonsense.packets);
  REQUIRE(decoded.units.size() == 2);
  CHECK(decoded.units[1]["reason"] == "neither a Request nor a Reply, where one was due");

  // Rejected: what follows is no MPA.
  Started rejected(kRequest, {.reply = true, .crc = true, .rejected = true});
  rejected.says(1, test::text("this is not looked at"));
  decoded = decode(rejected.packets);
  CHECK(decoded.count("mpa") == 2);
  CHECK(decoded.count("error") == 0);
}

TEST_CASE("decode: how a stream ends inside an FPDU", "[decode][capture]") {
  const auto ends = [](auto&& how) {
    Started talk;
    const Octets fpdu = FpduWriter().send(100);
    talk.says(0, Bytes(fpdu).first(80));
    how(talk);
    const DecodedCapture decoded = decode(talk.packets);
    REQUIRE(decoded.units.size() == 3);
    return decoded.units[2]["layer"].dump() + "/" + decoded.units[2]["code"].dump() + " " +
           decoded.units[2]["reason"].get<std::string>();
  };
  const std::string there = "the octets end inside an FPDU: 80 of 124 are there";
  CHECK(ends([](Talk&) {}) == "null/null " + there + "; the capture ends before the rest");
  CHECK(ends([](Talk& t) { t.closes(0); }) == "2/1 " + there + "; then the sender closed its direction");
  CHECK(ends([](Talk& t) { t.resets(1); }) == "2/1 " + there + "; then the connection was reset");
  CHECK(ends([](Talk& t) { t.closes(1); }) == "null/null " + there + "; the capture ends before the rest");
}

TEST_CASE("decode: the same ports again are another connection", "[decode][capture]") {
  Started first;
  first.says(0, FpduWriter().send(1));
  first.closes(0);
  Started second;
  for (std::uint32_t& next : second.next) next += 77777;
  second.packets.clear();
  second.handshake();
  second.says(0, test::startup({.crc = false}));
  second.says(1, test::startup({.reply = true, .crc = false}));
  second.says(0, FpduWriter(Crc::off).send(1));
  auto packets = first.packets;
  packets.insert(packets.end(), second.packets.begin(), second.packets.end());
  const DecodedCapture decoded = decode(packets);
  REQUIRE(decoded.units.size() == 6);
  CHECK(decoded.units[2]["crc"] == "good");
  CHECK(decoded.units[5]["crc"] == "off");
  CHECK(decoded.units[5]["position"] == 0);
}
