// `rnic decode` on hexadecimal lines: the object of every kind of unit, and what it says of what is
// wrong. The octets are those of unit/wire/golden_test.cpp, which a packet analyser and a second decoder
// read the same.
#include <sstream>

#include "decode/hex_lines.hpp"
#include "kit/catch.hpp"
#include "kit/hex.hpp"
#include "mpa/packer.hpp"
#include "wire/ddp.hpp"

namespace {

using namespace rnic;
using mpa::Crc;
using mpa::Markers;
using tool::HexOptions;
using tool::Json;

struct Decoded {
  std::vector<Json> units;
  std::vector<std::string> complaints;
  bool all_read = false;
};

Decoded decode(const std::string& text, const HexOptions& options = {}) {
  Decoded result;
  std::istringstream lines(text);
  result.all_read = tool::decode_hex(
      lines, options, [&](Json&& unit) { result.units.push_back(std::move(unit)); },
      [&](const std::string& words) { result.complaints.push_back(words); });
  return result;
}

// The only unit of a line.
std::string unit(const std::string& line, const HexOptions& options = {}) {
  const Decoded decoded = decode(line, options);
  CHECK(decoded.all_read);
  REQUIRE(decoded.units.size() == 1);
  return decoded.units[0].dump();
}

constexpr HexOptions kNoCrc{.framing = {Crc::off, Markers::none}};
constexpr HexOptions kMarkers{.framing = {Crc::on, Markers::expected}};

const std::string kWrite = "001ec1401234567800007f0011223344101112131415161718191a1b1c1d1e1f1787eefc";
const std::string kSend = "001741430000000000000000000000010000000052444d41000000007b2f44ff";

// Octets of one FPDU in use of CRC, around any ULPDU.
std::string fpdu(std::string_view ulpdu, Crc crc = Crc::on) {
  const auto octets = test::hex(ulpdu);
  mpa::Packer packer(crc, Markers::none);
  std::vector<std::byte> room(packer.octets_for(static_cast<std::uint32_t>(octets.size())));
  const auto pieces = std::make_unique<mpa::PieceList>();
  packer.begin(room, octets, 0, *pieces);
  packer.seal(room);
  return tool::to_hex(room);
}

// The error behind the FPDU that it is about: "LAYER/ETYPE/CODE reason".
std::string error_behind(const std::string& line, const HexOptions& options = {}) {
  const Decoded decoded = decode(line, options);
  REQUIRE(decoded.units.size() == 2);
  CHECK(decoded.units[0]["kind"] == "fpdu");
  const Json& error = decoded.units[1];
  REQUIRE(error["kind"] == "error");
  CHECK(error["position"] == decoded.units[0]["position"]);
  return error["layer"].dump() + "/" + error["etype"].dump() + "/" + error["code"].dump() + " " +
         error["reason"].get<std::string>();
}

}  // namespace

TEST_CASE("decode: startup frames of both revisions", "[decode]") {
  CHECK(unit("4d504120494420526571204672616d654001000668656c6c6f21") ==
        R"({"kind":"mpa","type":"request","rev":1,"m":false,"c":true,"r":false,"s":false,"pd_length":6,)"
        R"("a":null,"b":null,"rtr_write":null,"rtr_read":null,"ird":null,"ord":null,"private_data":"68656c6c6f21"})");
  CHECK(unit("4d504120494420526570204672616d6540010000") ==
        R"({"kind":"mpa","type":"reply","rev":1,"m":false,"c":true,"r":false,"s":false,"pd_length":0,)"
        R"("a":null,"b":null,"rtr_write":null,"rtr_read":null,"ird":null,"ord":null,"private_data":""})");
  CHECK(unit("4d504120494420526571204672616d65500200048010c020") ==
        R"({"kind":"mpa","type":"request","rev":2,"m":false,"c":true,"r":false,"s":true,"pd_length":4,)"
        R"("a":true,"b":false,"rtr_write":true,"rtr_read":true,"ird":16,"ord":32,"private_data":""})");
  // Every flag the other way round, and private data behind the block.
  CHECK(unit("4d504120494420526570204672616d65b0020006400a00ffbeef") ==
        R"({"kind":"mpa","type":"reply","rev":2,"m":true,"c":false,"r":true,"s":true,"pd_length":6,)"
        R"("a":false,"b":true,"rtr_write":false,"rtr_read":false,"ird":10,"ord":255,"private_data":"beef"})");
}

TEST_CASE("decode: a tagged FPDU", "[decode]") {
  CHECK(unit(kWrite) ==
        R"({"kind":"fpdu","position":0,"length":36,"ulpdu_length":30,"crc":"good","markers":[],"opcode":0,)"
        R"("name":"RDMA Write","tagged":true,"last":true,"stag":305419896,"to":139638264181572,)"
        R"("payload_length":16,"payload":"101112131415161718191a1b1c1d1e1f"})");
}

TEST_CASE("decode: untagged FPDUs, with each pad", "[decode]") {
  CHECK(unit(kSend) ==
        R"({"kind":"fpdu","position":0,"length":32,"ulpdu_length":23,"crc":"good","markers":[],"opcode":3,)"
        R"("name":"Send","tagged":false,"last":true,"qn":0,"msn":1,"mo":0,"invalidate_stag":0,)"
        R"("payload_length":5,"payload":"52444d4100"})");
  CHECK(unit("00184145000000000000000000000003000005a2303132333435000020fc8a54") ==
        R"({"kind":"fpdu","position":0,"length":32,"ulpdu_length":24,"crc":"good","markers":[],"opcode":5,)"
        R"("name":"Send with SE","tagged":false,"last":true,"qn":0,"msn":3,"mo":1442,"invalidate_stag":0,)"
        R"("payload_length":6,"payload":"303132333435"})");
  CHECK(unit("00194146feedc0de0000000000000004000000004041424344454600f303bc9b") ==
        R"({"kind":"fpdu","position":0,"length":32,"ulpdu_length":25,"crc":"good","markers":[],"opcode":6,)"
        R"("name":"Send with SE and Invalidate","tagged":false,"last":true,"qn":0,"msn":4,"mo":0,)"
        R"("invalidate_stag":4276994270,"payload_length":7,"payload":"40414243444546"})");
}

TEST_CASE("decode: messages with headers of their own", "[decode]") {
  const auto member = [](const std::string& line, const char* name) {
    const Decoded decoded = decode(line);
    REQUIRE(decoded.units.size() == 1);
    REQUIRE(decoded.units[0].contains(name));
    return decoded.units[0]["name"].get<std::string>() + " " + decoded.units[0][name].dump();
  };
  CHECK(
      member("002e414100000000000000010000000100000000cafe0001000000000000100000001000beef0002000000000020000007af6c12",
             "read_request") ==
      R"(RDMA Read Request {"sink_stag":3405643777,"sink_to":4096,"size":4096,"source_stag":3203334146,)"
      R"("source_to":2097152})");
  CHECK(
      member("00264147000000000000000200000001000000001101c000002ec140dead0001000000000000900025256a63", "terminate") ==
      R"(Terminate {"layer":1,"etype":1,"code":1,"m":true,"d":true,"r":false,"segment_length":46})");
  CHECK(member("0016414700000000000000020000000100000000200600006540fb1b", "terminate") ==
        R"(Terminate {"layer":2,"etype":0,"code":6,"m":false,"d":false,"r":false,"segment_length":null})");
  CHECK(member("001a4149000000000000000000000006000000000102030405060708a0a022b9", "immediate") ==
        R"(Immediate Data with SE "0102030405060708")");
  CHECK(
      member("0046414a000000000000000100000002000000000000000001020304abcd004200007f0000001008000000000000000100000000"
             "000000000000000000000000ffffffffffffffff75e07c7d",
             "atomic_request") ==
      R"(Atomic Request {"opcode":0,"request_id":16909060,"stag":2882338882,"to":139637976731656,"data":1,"mask":0,)"
      R"("compare":0,"compare_mask":18446744073709551615})");
  CHECK(member("0046414a000000000000000100000003000000000000000201020305abcd004200007f0000001008000000000000ab00"
               "000000000000ff001100000000000022ff000000000000ff3bd8ea47",
               "atomic_request") ==
        R"(Atomic Request {"opcode":2,"request_id":16909061,"stag":2882338882,"to":139637976731656,"data":43776,)"
        R"("mask":65280,"compare":1224979098644774946,"compare_mask":18374686479671623935})");
  CHECK(member(fpdu("414b 00000000 00000003 00000001 00000000 01020304 0000000000000007"), "atomic_response") ==
        R"(Atomic Response {"request_id":16909060,"original":7})");
  // The Read Request that a Terminate copies is in its payload.
  const Decoded refused =
      decode(fpdu("4147 00000000 00000002 00000001 00000000 0100e000 002e 4141 00000000 00000001 "
                  "00000001 00000000 cafe0001 0000000000001000 00001000 beef0002 0000000000200000"));
  REQUIRE(refused.units.size() == 1);
  CHECK(refused.units[0]["terminate"].dump() ==
        R"({"layer":0,"etype":1,"code":0,"m":true,"d":true,"r":true,"segment_length":46})");
  CHECK(refused.units[0]["payload_length"] == 52);
}

TEST_CASE("decode: without CRC the field is not looked at", "[decode]") {
  const std::string line = "001e414300000000000000000000000100000000000102030405060708090a0b00000000";
  CHECK(unit(line, kNoCrc) ==
        R"({"kind":"fpdu","position":0,"length":36,"ulpdu_length":30,"crc":"off","markers":[],"opcode":3,)"
        R"("name":"Send","tagged":false,"last":true,"qn":0,"msn":1,"mo":0,"invalidate_stag":0,)"
        R"("payload_length":12,"payload":"000102030405060708090a0b"})");
  CHECK(error_behind(line).substr(0, 6) == "2/0/2 ");
}

TEST_CASE("decode: markers, at the beginning and between FPDUs", "[decode]") {
  CHECK(unit("00000000002a41430000000000000000000000010000000000000000000000000000000000000000000000000000000052239983",
             kMarkers) ==
        R"({"kind":"fpdu","position":0,"length":52,"ulpdu_length":42,"crc":"good","markers":[0],"opcode":3,)"
        R"("name":"Send","tagged":false,"last":true,"qn":0,"msn":1,"mo":0,"invalidate_stag":0,)"
        R"("payload_length":24,"payload":"000000000000000000000000000000000000000000000000"})");
  HexOptions at_512 = kMarkers;
  at_512.position = 512;
  CHECK(unit("000000000016414300000000000000000000000200000000000102034d532bb3", at_512) ==
        R"({"kind":"fpdu","position":512,"length":32,"ulpdu_length":22,"crc":"good","markers":[0],"opcode":3,)"
        R"("name":"Send","tagged":false,"last":true,"qn":0,"msn":2,"mo":0,"invalidate_stag":0,)"
        R"("payload_length":4,"payload":"00010203"})");
  // RFC 5044 figure 6: a marker inside, at a position that only the option tells.
  HexOptions at_492 = kMarkers;
  at_492.position = 492;
  CHECK(unit("002a41430000000000000000000000020000000000000014" + std::string(48, '0') + "84925898", at_492) ==
        R"({"kind":"fpdu","position":492,"length":52,"ulpdu_length":42,"crc":"good","markers":[20],"opcode":3,)"
        R"("name":"Send","tagged":false,"last":true,"qn":0,"msn":2,"mo":0,"invalidate_stag":0,)"
        R"("payload_length":24,"payload":"000000000000000000000000000000000000000000000000"})");
}

TEST_CASE("decode: a marker that points elsewhere is told, with the FPDU", "[decode]") {
  // The same, but FPDUPTR 16 and the CRC that fits.
  auto octets = test::hex("002a41430000000000000000000000020000000000000010" + std::string(48, '0') + "00000000");
  wire::store_crc(octets, octets.size() - 4, wire::crc32c(Bytes(octets).first(octets.size() - 4)));
  HexOptions at_492 = kMarkers;
  at_492.position = 492;
  CHECK(error_behind(tool::to_hex(octets), at_492) ==
        "2/0/3 the marker at 512 has FPDUPTR 16; by the lengths it is 20");
  const Decoded decoded = decode(tool::to_hex(octets), at_492);
  CHECK(decoded.units[0]["crc"] == "good");
  CHECK(decoded.units[0]["markers"].dump() == "[16]");
  CHECK(decoded.units[0]["payload"] == std::string(48, '0'));
}

TEST_CASE("decode: several units in a line, positions counted from behind the startup frame", "[decode]") {
  const Decoded decoded = decode("4d504120494420526570204672616d6540010000" + kWrite + kSend + kSend);
  REQUIRE(decoded.units.size() == 4);
  CHECK(decoded.units[0]["kind"] == "mpa");
  CHECK(decoded.units[1]["position"] == 0);
  CHECK(decoded.units[2]["position"] == 36);
  CHECK(decoded.units[3]["position"] == 68);
}

TEST_CASE("decode: lines are runs of their own, or one stream", "[decode]") {
  const std::string two = kWrite + "\n" + kSend;
  Decoded decoded = decode(two);
  REQUIRE(decoded.units.size() == 2);
  CHECK(decoded.units[1]["position"] == 0);
  HexOptions stream;
  stream.one_stream = true;
  decoded = decode(two, stream);
  REQUIRE(decoded.units.size() == 2);
  CHECK(decoded.units[1]["position"] == 36);

  // Cut in every way: the units are the same.
  const std::string whole = "4d504120494420526570204672616d6540010000" + kWrite + kSend;
  const Decoded uncut = decode(whole, stream);
  REQUIRE(uncut.units.size() == 3);
  for (const std::size_t size : {2u, 4u, 6u, 14u, 40u, 50u}) {
    std::string lines;
    for (std::size_t at = 0; at < whole.size(); at += size) lines += whole.substr(at, size) + "\n";
    CHECK(decode(lines, stream).units == uncut.units);
  }
}

TEST_CASE("decode: a line that ends too early says so, and what to do", "[decode]") {
  Decoded decoded = decode(kSend.substr(0, 40));
  REQUIRE(decoded.units.size() == 1);
  CHECK(decoded.units[0].dump() ==
        R"({"kind":"error","position":0,"reason":"the octets end inside an FPDU: 20 of 32 are there; if the next line )"
        R"(continues it, give --stream","layer":null,"etype":null,"code":null})");
  decoded = decode("4d504120494420526571204672616d6540010006");
  REQUIRE(decoded.units.size() == 1);
  CHECK(decoded.units[0]["reason"] ==
        "the octets end inside a startup frame: 20 of 26 are there; if the next line continues it, give --stream");
  decoded = decode("4d50");
  CHECK(decoded.units[0]["reason"] ==
        "the octets end inside a startup frame: 2 of 20 are there; if the next line continues it, give --stream");
}

TEST_CASE("decode: a wrong CRC is told with the FPDU, and ends its run only", "[decode]") {
  std::string bad = kSend;
  bad.back() = '0';
  const Decoded decoded = decode(bad + kSend + "\n" + kSend);
  REQUIRE(decoded.units.size() == 3);
  CHECK(decoded.units[0]["crc"] == "bad");
  CHECK(decoded.units[0]["payload"] == "52444d4100");
  CHECK(decoded.units[1]["reason"] ==
        "the CRC is 7b2f44f0, over these octets it is 7b2f44ff; the length cannot be trusted either, so nothing behind "
        "it is found by it");
  CHECK(decoded.units[1]["code"] == 2);
  CHECK(decoded.units[2]["crc"] == "good");
}

TEST_CASE("decode: what every receiver refuses, with the code of its Terminate", "[decode]") {
  CHECK(error_behind(fpdu("4143 00000000 0000")) ==
        "1/0/0 the ULPDU has 8 octets, fewer than a DDP header (14 if tagged, else 18)");
  CHECK(error_behind(fpdu("c240 00000001 0000000000000000")) == "1/1/4 DDP version 2 where only 1 is known");
  CHECK(error_behind(fpdu("4043 00000000 00000000 00000001 00000000")) == "1/2/6 DDP version 0 where only 1 is known");
  CHECK(error_behind(fpdu("4183 00000000 00000000 00000001 00000000")) ==
        "0/2/5 RDMAP version 2 where only 1 is known");
  CHECK(error_behind(fpdu("414c 00000000 00000000 00000001 00000000")) == "0/2/6 Acknowledge on queue 0");
  CHECK(error_behind(fpdu("c143 00000000 0000000000000000")) == "0/2/6 Send in a tagged segment");
  CHECK(error_behind(fpdu("4143 00000000 00000004 00000001 00000000")) == "1/2/1 queue 4 where 0 to 3 are known");
  CHECK(error_behind(fpdu("4143 00000000 00000001 00000001 00000000")) == "0/2/6 Send on queue 1");
  CHECK(error_behind(fpdu("4141 00000000 00000001 00000001 00000000 00")) ==
        "0/2/7 RDMA Read Request with 1 octet behind the DDP header, not 28");
  CHECK(error_behind(fpdu("4148 00000000 00000000 00000001 00000004 0102030405060708")) ==
        "1/2/4 Immediate Data with message offset 4, not 0");
  CHECK(error_behind(fpdu("0148 00000000 00000000 00000001 00000000 0102030405060708")) ==
        "0/2/7 Immediate Data without the Last flag");
  CHECK(error_behind(fpdu("414a 00000000 00000001 00000001 00000000 0000000f" + std::string(96, '0'))) ==
        "0/2/6 atomic operation 15 is unassigned");
  // A Terminate in any shape ends the connection and is no error of its own.
  CHECK(decode(fpdu("4147 00000000 00000007 00000009 00000000 2006")).units.size() == 1);
}

TEST_CASE("decode: a ULPDU_Length above the largest is refused at once", "[decode]") {
  const Decoded decoded = decode("fd01c140");
  REQUIRE(decoded.units.size() == 1);
  CHECK(
      decoded.units[0].dump() ==
      R"({"kind":"error","position":0,"reason":"ULPDU_Length 64769 is more than 64768","layer":1,"etype":0,"code":0})");
  CHECK(decode("fd00c140").units[0]["layer"].is_null());  // only cut off
}

TEST_CASE("decode: startup frames that every receiver refuses", "[decode]") {
  const auto refused = [](const std::string& line) {
    const Decoded decoded = decode(line + kSend);  // nothing behind it is decoded
    REQUIRE(decoded.units.size() == 2);
    CHECK(decoded.units[0]["kind"] == "mpa");
    CHECK(decoded.units[1]["layer"] == 2);
    CHECK(decoded.units[1]["etype"] == 0);
    CHECK(decoded.units[1]["code"] == 4);
    return decoded.units[1]["reason"].get<std::string>();
  };
  CHECK(refused("4d504120494420526571204672616d6540000000") == "MPA revision 0 where 1 and 2 are known");
  CHECK(refused("4d504120494420526571204672616d6540030000") == "MPA revision 3 where 1 and 2 are known");
  CHECK(refused("4d504120494420526571204672616d6540010201") == "PD_Length 513 is more than 512");
  CHECK(refused("4d504120494420526571204672616d6550020003aabbcc") ==
        "the S flag says that IRD and ORD follow, but PD_Length is 3");
}

TEST_CASE("decode: what is no hexadecimal line is named by line and column", "[decode]") {
  Decoded decoded = decode("00:17 41\t430000 # a comment\n\n  \n0g\n123\n" + kSend);
  CHECK_FALSE(decoded.all_read);
  REQUIRE(decoded.complaints.size() == 2);
  CHECK(decoded.complaints[0] ==
        "line 4: 'g' in column 2 is no hexadecimal digit; give octets as pairs of digits (blanks and colons may stand "
        "between them), or a pcap or pcapng file");
  CHECK(decoded.complaints[1] == "line 5: an odd number of digits: the last octet has only one");
  REQUIRE(decoded.units.size() == 2);  // what could be read
  CHECK(decoded.units[1]["crc"] == "good");

  decoded = decode(std::string("\x7f") + "ELF\0\0", {});
  REQUIRE(decoded.complaints.size() == 1);
  decoded = decode(std::string("ab\0cd\nef\n", 9));
  REQUIRE(decoded.complaints.size() == 1);
  CHECK(decoded.complaints[0] == "line 1: this is neither a capture (pcap, pcapng) nor text");

  std::string prose;
  for (int i = 0; i < 1000; ++i) prose += "what is this?\n";
  CHECK(decode(prose).complaints.size() == 10);
}
