// What flows in both directions, and where it stops: Read Responses that wait for the peer to take them, the places of
// Reads, and the octets in front of a Terminate. Provider, daemon and data plane; the peer says its octets by hand.
#include <fcntl.h>
#include <sys/mman.h>

#include "unit/rnicdv/raw_peer.hpp"

using namespace rnic;
using namespace rnic::test;
using namespace rnic::test::raw;

namespace {

// More than any window of a stream whose octets nobody takes.
constexpr std::uint32_t kMuch = 8u << 20;

std::vector<char> pattern(std::size_t size) {
  std::vector<char> octets(size);
  for (std::size_t i = 0; i < size; ++i) octets[i] = static_cast<char>(i * 7 + i / 1000);
  return octets;
}

// Of a region that the near end's application has besides.
std::uint64_t start_of(const ibv_mr* mr) { return reinterpret_cast<std::uintptr_t>(mr->addr); }

Octets not_last(Octets ulpdu) {
  ulpdu[0] = static_cast<char>(static_cast<std::uint8_t>(ulpdu[0]) & ~0x40u);
  return ulpdu;
}

// The segments of one tagged message as they are heard, one behind the other: until its last, or until something else.
struct Tagged {
  Octets payload;
  bool whole = false;
  std::optional<Octets> next;  // the ULPDU that was none of them
};
Tagged hear_message(RawPeer& t, std::uint8_t opcode, std::uint64_t at) {
  Tagged message;
  while (!message.whole) {
    const auto ulpdu = t.hear();
    const auto header = ulpdu ? wire::parse_tagged(bytes_of(*ulpdu)) : std::nullopt;
    if (!header) {
      message.next = ulpdu;
      break;
    }
    REQUIRE(header->rdmap_control == (0x40 | opcode));
    REQUIRE(header->tagged_offset == at + message.payload.size());
    message.payload += ulpdu->substr(wire::TaggedHeader::kSize);
    message.whole = header->last;
  }
  return message;
}

wire::ReadRequestHeader request_in(const std::optional<Octets>& ulpdu, std::uint32_t msn) {
  REQUIRE(ulpdu);
  const auto header = wire::parse_untagged(bytes_of(*ulpdu));
  REQUIRE(header);
  CHECK(*header == wire::UntaggedHeader{.last = true, .rdmap_control = 0x41, .queue = 1, .msn = msn});
  const auto request = wire::parse_read_request(bytes_of(*ulpdu).subspan(wire::UntaggedHeader::kSize));
  REQUIRE(request);
  return *request;
}

}  // namespace

TEST_CASE("V-IRD-11: while a Read Response waits for the peer to take it, the peer's Sends and Writes are taken",
          "[wired][rnicdv][V-IRD-11][V-ORD-06]") {
  std::vector<char> much = pattern(kMuch);
  RawPeer t;
  ibv_mr* const source = t.a.make_mr(much.data(), much.size(), RawPeer::kAll);
  REQUIRE(post_receive(t.qp_a, 1, {t.sge(0, 64)}) == 0);
  t.say(read_request(1, kMuch, source->rkey, start_of(source)));
  t.say_octets(fpdu(tagged(0, t.mr_a->rkey, t.to(1024), "a Write.")) + fpdu(message(1, "a Send")));
  CHECK(poll(t.cq_a, 1)[0].byte_len == 6);
  CHECK(std::memcmp(t.memory_a.data(), "a Send", 6) == 0);
  CHECK(std::memcmp(t.memory_a.data() + 1024, "a Write.", 8) == 0);
  const Tagged response = hear_message(t, 2, 0);
  CHECK(response.whole);
  CHECK((response.payload == Octets(much.data(), much.size())));
}

TEST_CASE("V-IRD-10: a Read of the peer's has its place until all of its Response is generated",
          "[wired][rnicdv][V-IRD-10][V-EH-17][V-IRD-08][V-STOP-01]") {
  std::vector<char> much = pattern(kMuch);
  RawPeer t(4, 1);
  ibv_mr* const source = t.a.make_mr(much.data(), much.size(), RawPeer::kAll);
  // One behind the other there may be any number.
  for (std::uint32_t msn = 1; msn <= 3; ++msn) {
    t.say(read_request(msn, 5000, source->rkey, start_of(source)));
    REQUIRE(hear_message(t, 2, 0).whole);
  }
  t.say(read_request(4, kMuch, source->rkey, start_of(source)));
  const auto begun = t.hear();
  REQUIRE(begun);
  t.say(read_request(5, 8, source->rkey, start_of(source)));
  const Tagged rest = hear_message(t, 2, begun->size() - wire::TaggedHeader::kSize);
  CHECK_FALSE(rest.whole);
  CHECK(rest.payload.size() + begun->size() < kMuch);
  const auto terminate = t.ends_with_terminate(rest.next);
  REQUIRE(terminate);
  CHECK(terminate->code.word() == 0x1203);
  CHECK(t.event() == IBV_EVENT_QP_REQ_ERR);
}

TEST_CASE("V-IRD-10: a Read of ours has its place until it completes here", "[wired][rnicdv][V-IRD-10][V-IRD-06]") {
  RawPeer t(1, 4);
  for (const std::uint64_t id : {1u, 2u})
    REQUIRE(post(t.qp_a, {id, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, {0x1000, 5}}, {t.sge(0, 200)}) == 0);
  const wire::ReadRequestHeader asked = request_in(t.hear(), 1);
  CHECK(t.hears_nothing());
  t.say(not_last(tagged(2, asked.sink_stag.value, asked.sink_to, Octets(100, 'x'))));
  const volatile char& placed = t.memory_a[99];
  REQUIRE(comes_true([&] { return placed == 'x'; }));
  CHECK(t.hears_nothing());
  CHECK(t.nothing_completes());
  t.say(tagged(2, asked.sink_stag.value, asked.sink_to + 100, Octets(100, 'y')));
  expect(t.cq_a, 1);
  request_in(t.hear(), 2);
  CHECK(t.nothing_completes());
}

TEST_CASE("V-STOP-01: a Terminate follows the last whole segment of what was on its way",
          "[wired][rnicdv][V-STOP-01][V-STOP-05][V-TDN-05]") {
  std::vector<char> much = pattern(kMuch);
  RawPeer t;
  ibv_mr* const source = t.a.make_mr(much.data(), much.size(), RawPeer::kAll);
  for (const std::uint64_t id : {1u, 2u})
    REQUIRE(post(t.qp_a, {id, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, {0, 5}}, {sge_of(source, much.data(), kMuch)}) ==
            0);
  const auto begun = t.hear();
  REQUIRE(begun);
  unsigned code = 0;
  std::uint32_t event = RawPeer::kNoEvent;
  SECTION("for what the peer did wrong") {
    t.say(message(2, "there was none before"));
    code = 0x1203;
    event = IBV_EVENT_QP_REQ_ERR;
    CHECK(t.event() == event);
  }
  SECTION("by Modify QP, and the message that has begun is not sent to its end") {
    REQUIRE(modify(t.qp_a, RNICDV_QP_STATE, mod_of(RNICDV_QPS_TERMINATE, 0, 0, 0)) == 0);
  }
  const Tagged rest = hear_message(t, 0, begun->size() - wire::TaggedHeader::kSize);
  CHECK_FALSE(rest.whole);
  const Octets heard = begun->substr(wire::TaggedHeader::kSize) + rest.payload;
  CHECK(heard.size() < kMuch);
  CHECK(std::memcmp(heard.data(), much.data(), heard.size()) == 0);
  const auto terminate = t.ends_with_terminate(rest.next);
  REQUIRE(terminate);
  CHECK(terminate->code.word() == code);
  t.close_peer();
  expect(t.cq_a, 1, IBV_WC_WR_FLUSH_ERR);
  expect(t.cq_a, 2, IBV_WC_WR_FLUSH_ERR);
  REQUIRE(t.comes_to(RNICDV_QPS_ERROR));
  CHECK(t.no_event());
}

TEST_CASE("V-EH-41: memory of the application's that is gone ends the stream, and the peer hears 0x0207",
          "[wired][rnicdv][V-EH-41][V-AE-36][V-STOP-09]") {
  constexpr std::size_t kBytes = 8192;
  void* const at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(at != MAP_FAILED);
  {
    RawPeer t;
    ibv_mr* const gone = t.a.make_mr(at, kBytes, RawPeer::kAll);
    REQUIRE(post_receive(t.qp_a, 1, {t.sge(0, 8)}) == 0);
    t.say(tagged(0, gone->rkey, start_of(gone), "still there"));
    const volatile char& placed = *static_cast<char*>(at);
    REQUIRE(comes_true([&] { return placed == 's'; }));
    // Nobody's pages, and nobody else's instead.
    const int program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    REQUIRE(mmap(at, kBytes, PROT_NONE, MAP_SHARED | MAP_FIXED, program, 0) == at);
    close(program);
    t.say_octets(fpdu(tagged(0, gone->rkey, start_of(gone), "gone")) + fpdu(message(1, "late")));
    const auto terminate = t.hear_terminate();
    REQUIRE(terminate);
    CHECK(terminate->code.word() == 0x0207);
    CHECK(terminate->ddp_header_size == 0);
    CHECK_FALSE(terminate->has_length);
    CHECK(t.event() == IBV_EVENT_QP_FATAL);
    expect(t.cq_a, 1, IBV_WC_WR_FLUSH_ERR);
    t.close_peer();
    REQUIRE(t.comes_to(RNICDV_QPS_ERROR));
    CHECK(t.attr().terminate_origin == 1);
    CHECK(t.no_event());
  }
  munmap(at, kBytes);
}
