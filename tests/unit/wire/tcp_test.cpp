// TCP headers, against octets that other implementations made.
#include <vector>

#include "kit/catch.hpp"
#include "kit/hex.hpp"
#include "wire/checksum.hpp"
#include "wire/ipv4.hpp"
#include "wire/tcp.hpp"

using namespace rnic;
using namespace rnic::wire;
using test::hex;

namespace {

struct Golden {
  const char* what;
  std::string_view packet;
  TcpHeader header;
};

// Linux talking to Linux over Ethernet; tshark finds every checksum good and reads these values.
const Golden kGolden[] = {
    {"SYN",
     "4500003c751840004006b1070a4d00010a4d0002aec41e61f3b496db00000000a002faf0d80a0000"
     "020405b40402080a23afe4ff000000000103030a",
     {.source_port = 44740,
      .destination_port = 7777,
      .sequence = 4088698587,
      .flags = tcp_flags::kSyn,
      .window = 64240,
      .sack_permitted = true,
      .mss = 1460,
      .window_scale = 10,
      .timestamps = TcpTimestamps{598729983, 0}}},
    {"SYN-ACK",
     "4500003c00004000400626200a4d00020a4d00011e61aec410d39db1f3b496dca012fe88ec700000"
     "020405b40402080a60c7d8a423afe4ff0103030a",
     {.source_port = 7777,
      .destination_port = 44740,
      .sequence = 282303921,
      .acknowledgement = 4088698588,
      .flags = tcp_flags::kSyn | tcp_flags::kAck,
      .window = 65160,
      .sack_permitted = true,
      .mss = 1460,
      .window_scale = 10,
      .timestamps = TcpTimestamps{1623709860, 598729983}}},
    {"data",
     "45000042751a40004006b0ff0a4d00010a4d0002aec41e61f3b496dc10d39db28018003f83cf0000"
     "0101080a23afe4ff60c7d8a4676f6c64656e206f63746574730a",
     {.source_port = 44740,
      .destination_port = 7777,
      .sequence = 4088698588,
      .acknowledgement = 282303922,
      .flags = tcp_flags::kPsh | tcp_flags::kAck,
      .window = 63,
      .timestamps = TcpTimestamps{598729983, 1623709860}}},
    {"two SACK blocks",
     "45000048d00b4000400656080a4d00020a4d00011e61aec410d39db2f3b496ead010004092dd0000"
     "0101080a60c7db6423afe4ff01010512f3b49816f3b49822f3b4974ef3b4975a",
     {.source_port = 7777,
      .destination_port = 44740,
      .sequence = 282303922,
      .acknowledgement = 4088698602,
      .flags = tcp_flags::kAck,
      .window = 64,
      .sack_count = 2,
      .timestamps = TcpTimestamps{1623710564, 598729983},
      .sack = {{{4088698902, 4088698914}, {4088698702, 4088698714}}}}},
};

}  // namespace

TEST_CASE("W-TCP-01: a header without options is twenty octets", "[wire][W-TCP-01]") {
  const TcpHeader header{.source_port = 0x1234,
                         .destination_port = 0x5678,
                         .sequence = 0x9ABCDEF0,
                         .acknowledgement = 0x0FEDCBA9,
                         .flags = tcp_flags::kAck | tcp_flags::kPsh,
                         .window = 0xFEDC};
  std::vector<std::byte> out(20);
  CHECK(header_size(header) == 20);
  CHECK(emit(header, out) == 20);
  CHECK(out == hex("1234 5678 9abcdef0 0fedcba9 5018 fedc 0000 0000"));
  const auto parsed = parse_tcp(out);
  REQUIRE(parsed);
  CHECK(parsed->header == header);
  CHECK(parsed->data_offset == 20);
}

TEST_CASE("W-TCP-12: every option survives the way out and in", "[wire][W-TCP-12]") {
  TcpHeader header{.sequence = 1, .flags = tcp_flags::kSyn};
  std::vector<std::byte> out(60);
  SECTION("of a SYN with all") {
    header.mss = 1460;
    header.window_scale = 7;
    header.sack_permitted = true;
    header.timestamps = {0x01020304, 0x05060708};
    CHECK(header_size(header) == 40);
  }
  SECTION("of a SYN without timestamps") {
    header.mss = 8960;
    header.window_scale = 14;
    header.sack_permitted = true;
    CHECK(header_size(header) == 32);
  }
  SECTION("four blocks") {
    header.sack = {{{1, 2}, {3, 4}, {5, 6}, {0xFFFFFFFF, 8}}};
    header.sack_count = 4;
    CHECK(header_size(header) == 56);
  }
  SECTION("three blocks with timestamps") {
    header.sack = {{{1, 2}, {3, 4}, {5, 6}}};
    header.sack_count = 3;
    header.timestamps = {1, 2};
    CHECK(header_size(header) == 60);
  }
  const auto size = emit(header, out);
  CHECK(size == header_size(header));
  CHECK(size % 4 == 0);
  const auto parsed = parse_tcp(Bytes(out).first(size));
  REQUIRE(parsed);
  CHECK(parsed->header == header);
  CHECK(parsed->data_offset == size);
}

TEST_CASE("W-TCP-25: a fourth block beside timestamps is left out, not written past the end", "[wire][W-TCP-25]") {
  TcpHeader header;
  header.sack_count = 4;
  header.timestamps = {1, 2};
  std::vector<std::byte> out(60);
  CHECK(emit(header, out) == 60);
  CHECK(parse_tcp(out)->header.sack_count == 3);
}

TEST_CASE("W-TCP-01: a header that is cut off is no header", "[wire][W-TCP-01]") {
  auto bytes = hex("1234 5678 9abcdef0 0fedcba9 6018 fedc 0000 0000 01010101");
  CHECK(parse_tcp(bytes));
  CHECK_FALSE(parse_tcp(Bytes(bytes).first(23)));
  CHECK_FALSE(parse_tcp(Bytes(bytes).first(19)));
  CHECK_FALSE(parse_tcp({}));
  bytes[12] = std::byte{0x40};
  CHECK_FALSE(parse_tcp(bytes));
}

TEST_CASE("W-TCP-01: options that are unknown are passed over, impossible ones end the reading", "[wire][W-TCP-01]") {
  const auto with = [](std::string_view options) {
    return parse_tcp(hex("1234 5678 00000000 00000000 7010 0000 0000 0000" + std::string(options)))->header;
  };
  CHECK(with("fd 04 aaaa 02 04 05b4").mss == 1460);                 // unknown, then MSS
  CHECK(with("01 01 01 01 02 04 05b4").mss == 1460);                // NOPs
  CHECK(with("01 02 04 05b4 01 01 00").mss == 1460);                // at an odd place (MUST-64)
  CHECK_FALSE(with("00 000000 02 04 05b4").mss);                    // behind the end
  CHECK_FALSE(with("fd 00 0000 02 04 05b4").mss);                   // length 0
  CHECK_FALSE(with("fd 01 0000 02 04 05b4").mss);                   // length 1
  CHECK_FALSE(with("01 01 01 01 01 02 04 05").mss);                 // reaches beyond the header
  CHECK_FALSE(with("02 03 05 01 01 01 01 01").mss);                 // not an MSS's length
  CHECK(with("05 07 01 02 03 04 05 00").sack_count == 0);           // not a SACK's length
  CHECK(with("01 01 01 01 01 01 01 02").flags == tcp_flags::kAck);  // a kind without a length
}

TEST_CASE("W-TCP-01: what the kernel and tshark agree on is what we read and write", "[wire][W-TCP-01]") {
  for (const Golden& golden : kGolden) {
    INFO(golden.what);
    const auto packet = hex(golden.packet);
    const auto ip = parse_ipv4(packet);
    REQUIRE(ip);
    CHECK(ipv4_checksum_is_good(packet, *ip));
    const Bytes segment = Bytes(packet).subspan(ip->header_size, ip->payload_size());
    CHECK(transport_checksum(ip->header.source, ip->header.destination, protocol::kTcp, segment) == 0);
    const auto parsed = parse_tcp(segment);
    REQUIRE(parsed);
    CHECK(parsed->header == golden.header);
    // Written by us, the same octets.
    std::vector<std::byte> out(packet.size());
    emit(ip->header, out);
    const MutableBytes ours = MutableBytes(out).subspan(20);
    const auto size = emit(parsed->header, ours);
    const Bytes payload = segment.subspan(parsed->data_offset);
    std::copy(payload.begin(), payload.end(), ours.begin() + static_cast<std::ptrdiff_t>(size));
    store_be(ours, TcpHeader::kChecksumOffset,
             transport_checksum(ip->header.source, ip->header.destination, protocol::kTcp, ours));
    CHECK(out == packet);
  }
}
