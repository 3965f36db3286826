// rnic's own mark, octet by octet, and what is no mark.
#include "wire/mark.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "kit/catch.hpp"
#include "kit/hex.hpp"

using namespace rnic;
using wire::Mark;

namespace {

// As docs/wire.md has it.
constexpr const char* kMeeting =
    "726e69632d6d7061 01 01 0044 00000001 00000001"
    "00000000000000000000ffff0a000001 00000000000000000000ffff0a000002"
    "80000112 00000234 00abcdef 00123456";
constexpr const char* kRoceMeeting =
    "726e69632d6d7061 01 01 0044 00000003 00000003"
    "00000000000000000000ffff0a000001 00000000000000000000ffff0a000002"
    "80000112 00000234 00abcdef 00123456";
constexpr const char* kGreeting =
    "726e69632d6d7061 01 03 0030 00000003 00000003"
    "00000000000000000000ffff0a000001 c0000112 03abcdef 10200706";
constexpr const char* kInquiry = "726e69632d6d7061 01 04 001c 00000003 00000003 0111 1c06 9c40 0000";
constexpr const char* kAnswer =
    "726e69632d6d7061 01 05 002c 00000003 00000003"
    "00000000000000000000ffff0a000002 00000112 01234567";
constexpr const char* kFaceRefusal = "726e69632d6d7061 01 02 0018 00000001 00000000 00000006";
constexpr const char* kRefusal = "726e69632d6d7061 01 02 0018 00000001 00000000 00000002";

Mark meeting_mark() {
  Mark mark;
  mark.length = 68;
  mark.capabilities = mark.needed = wire::mark_capability::kOob;
  mark.meeting = {.own_gid = wire::IpAddress::v4(10, 0, 0, 1),
                  .peer_gid = wire::IpAddress::v4(10, 0, 0, 2),
                  .own_number = {0x112},
                  .peer_number = {0x234},
                  .own_psn = 0xABCDEF,
                  .due_psn = 0x123456};
  return mark;
}

std::vector<std::byte> emitted(const Mark& mark) {
  std::vector<std::byte> out(Mark::kSizeMax);
  out.resize(wire::emit(mark, out));
  return out;
}

}  // namespace

TEST_CASE("a mark of a meeting is these 68 octets", "[wire][mark]") {
  CHECK(emitted(meeting_mark()) == test::hex(kMeeting));
  const auto parsed = wire::parse_mark(test::hex(kMeeting));
  REQUIRE(parsed);
  CHECK(*parsed == meeting_mark());
}

TEST_CASE("a mark of a greeting is these 48 octets", "[wire][mark][roce]") {
  Mark mark;
  mark.kind = Mark::Kind::greeting;
  mark.length = 48;
  mark.capabilities = mark.needed = wire::mark_capability::kOob | wire::mark_capability::kRoce;
  mark.greeting = {.gid = wire::IpAddress::v4(10, 0, 0, 1),
                   .number = {0x112},
                   .psn = 0xABCDEF,
                   .path_mtu = 3,
                   .shared_receive = true,
                   .flow_control = true,
                   .responder_resources = 16,
                   .initiator_depth = 32,
                   .retry_count = 7,
                   .rnr_retry_count = 6};
  CHECK(emitted(mark) == test::hex(kGreeting));
  const auto parsed = wire::parse_mark(test::hex(kGreeting));
  REQUIRE(parsed);
  CHECK(*parsed == mark);
  for (const std::uint8_t bit : {std::uint8_t{0x80}, std::uint8_t{0x40}}) {
    auto other = test::hex(kGreeting);
    other[36] ^= std::byte{bit};
    CHECK(wire::parse_mark(other)->greeting.shared_receive == (bit != 0x80));
    CHECK(wire::parse_mark(other)->greeting.flow_control == (bit != 0x40));
  }
}

TEST_CASE("ECE options are eight octets more of a greeting, and none where none are named", "[wire][mark][roce]") {
  Mark mark;
  mark.kind = Mark::Kind::greeting;
  mark.greeting = {.gid = wire::IpAddress::v4(10, 0, 0, 1), .ece_vendor = 0x123456, .ece_options = 0xFEDCBA98};
  auto octets = emitted(mark);
  REQUIRE(octets.size() == 56);
  CHECK(std::vector(octets.begin() + 48, octets.end()) == test::hex("00123456 fedcba98"));
  const auto parsed = wire::parse_mark(octets);
  REQUIRE(parsed);
  CHECK(parsed->length == 56);
  CHECK(parsed->greeting == mark.greeting);
  // Options alone are some as well.
  mark.greeting.ece_vendor = 0;
  CHECK(wire::parse_mark(emitted(mark))->greeting.ece_options == 0xFEDCBA98);
  // What is beyond the mark is the consumer's.
  octets[11] = std::byte{48};
  CHECK_FALSE(wire::parse_mark(octets)->greeting.has_ece());
}

TEST_CASE("a mark of an inquiry is these 28 octets, one of an answer these 44", "[wire][mark][datagrams]") {
  Mark inquiry;
  inquiry.kind = Mark::Kind::inquiry;
  inquiry.length = 28;
  inquiry.capabilities = inquiry.needed = wire::mark_capability::kOob | wire::mark_capability::kRoce;
  inquiry.inquiry = {.port_space = 0x111, .port = 7174, .own_port = 40000};
  CHECK(emitted(inquiry) == test::hex(kInquiry));
  CHECK(wire::parse_mark(test::hex(kInquiry)) == inquiry);

  Mark answer = inquiry;
  answer.kind = Mark::Kind::answer;
  answer.length = 44;
  answer.inquiry = {};
  answer.answer = {.gid = wire::IpAddress::v4(10, 0, 0, 2), .number = {0x112}, .qkey = 0x01234567};
  CHECK(emitted(answer) == test::hex(kAnswer));
  CHECK(wire::parse_mark(test::hex(kAnswer)) == answer);
}

TEST_CASE("a RoCE face is a capability, and another face is a reason of its own", "[wire][mark][roce]") {
  Mark mark = meeting_mark();
  mark.capabilities = mark.needed = wire::mark_capability::kOob | wire::mark_capability::kRoce;
  CHECK(emitted(mark) == test::hex(kRoceMeeting));
  Mark refusal;
  refusal.kind = Mark::Kind::refusal;
  refusal.capabilities = wire::mark_capability::kOob;
  refusal.refusal = wire::MarkRefusal::other_face;
  CHECK(emitted(refusal) == test::hex(kFaceRefusal));
}

TEST_CASE("each reason has words of its own", "[wire][mark]") {
  std::set<std::string> words;
  for (std::uint32_t why = 0; why <= 10; ++why) words.insert(wire::in_words(static_cast<wire::MarkRefusal>(why)));
  CHECK(words.size() == 11);
}

TEST_CASE("a probe is a meeting of another kind", "[wire][mark]") {
  Mark mark = meeting_mark();
  mark.kind = Mark::Kind::probe;
  auto octets = test::hex(kMeeting);
  octets[9] = std::byte{6};
  CHECK(emitted(mark) == octets);
  CHECK(wire::parse_mark(octets)->kind == Mark::Kind::probe);
  CHECK(wire::parse_mark(octets)->meeting == mark.meeting);
}

TEST_CASE("a PSN that has not been named is no PSN", "[wire][mark]") {
  Mark mark = meeting_mark();
  mark.meeting.own_psn.reset();
  const auto octets = emitted(mark);
  CHECK(wire::parse_mark(octets)->meeting.own_psn == std::nullopt);
  // And 0 is one.
  mark.meeting.own_psn = 0;
  CHECK(wire::parse_mark(emitted(mark))->meeting.own_psn == 0u);
  CHECK(emitted(mark) != octets);
}

TEST_CASE("a refusal says why, and what it does not know is unknown", "[wire][mark]") {
  Mark mark;
  mark.kind = Mark::Kind::refusal;
  mark.capabilities = 1;
  mark.refusal = wire::MarkRefusal::not_the_peer;
  CHECK(emitted(mark) == test::hex(kRefusal));
  auto octets = test::hex(kRefusal);
  CHECK(wire::parse_mark(octets)->refusal == wire::MarkRefusal::not_the_peer);
  octets[23] = std::byte{5};
  CHECK(wire::parse_mark(octets)->refusal == wire::MarkRefusal::not_able);
  octets[23] = std::byte{6};
  CHECK(wire::parse_mark(octets)->refusal == wire::MarkRefusal::other_face);
  octets[23] = std::byte{8};
  CHECK(wire::parse_mark(octets)->refusal == wire::MarkRefusal::nobody);
  octets[23] = std::byte{9};
  CHECK(wire::parse_mark(octets)->refusal == wire::MarkRefusal::other_ece);
  octets[23] = std::byte{10};
  CHECK(wire::parse_mark(octets)->refusal == wire::MarkRefusal::there);
  octets[23] = std::byte{11};
  CHECK(wire::parse_mark(octets)->refusal == wire::MarkRefusal::unknown);
}

TEST_CASE("what is cut off, of another version or kind, or too long for its frame is no mark", "[wire][mark]") {
  for (const char* text : {kMeeting, kRefusal, kGreeting, kInquiry, kAnswer}) {
    const auto whole = test::hex(text);
    for (std::size_t size = 0; size < whole.size(); ++size)
      CHECK_FALSE(wire::parse_mark(Bytes(whole).first(size)).has_value());
    CHECK(wire::parse_mark(whole).has_value());
    for (const auto& [at, value] : std::vector<std::pair<std::size_t, unsigned>>{
             {0, 'R'}, {7, 'b'}, {8, 0}, {8, 2}, {9, 0}, {9, 7}, {11, 0x13}, {10, 1}}) {
      auto other = whole;
      other[at] = std::byte(value);
      CHECK_FALSE(wire::parse_mark(other).has_value());
      CHECK(wire::has_mark(other) == (at >= 8));
    }
  }
}

TEST_CASE("a later sender's mark may be longer, and the consumer's octets are behind it", "[wire][mark]") {
  auto longer = test::hex(kMeeting);
  longer[11] = std::byte{0x48};
  CHECK_FALSE(wire::parse_mark(longer).has_value());
  longer.insert(longer.end(), {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}});
  longer.push_back(std::byte{'c'});
  const auto parsed = wire::parse_mark(longer);
  REQUIRE(parsed);
  CHECK(parsed->length == 0x48);
  CHECK(parsed->meeting == meeting_mark().meeting);
}

TEST_CASE("reserved bits of numbers are not looked at", "[wire][mark]") {
  auto octets = test::hex(kMeeting);
  octets[52] = std::byte{0xFF};
  octets[56] = octets[60] = octets[64] = std::byte{0xFF};
  CHECK(wire::parse_mark(octets)->meeting == meeting_mark().meeting);
}
