// The EMSS and the MULPDU that follows from it: as large as can be, and changed under way.
#include <algorithm>

#include "kit/catch.hpp"
#include "kit/qp_world.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

constexpr std::uint32_t kFpduAround = 6;  // length field and CRC, no pad
constexpr std::uint32_t kTagged = 14;
constexpr tcp::Seq kFirst{1001};  // of a's octets

// Payload octets of the segments that a has sent since the last look.
std::vector<std::uint32_t> sizes(Wire& wire) {
  std::vector<std::uint32_t> out;
  for (const auto& [from_a, size] : wire.payload_sizes)
    if (from_a) out.push_back(size);
  wire.payload_sizes.clear();
  return out;
}

}  // namespace

TEST_CASE("W-MPA-60: every segment of a long message is as long as the EMSS lets it be", "[qp][W-MPA-60][W-TCP-02]") {
  const std::uint32_t emss = GENERATE(536u, 1024u, 1460u, 1463u, 8960u);
  Options options;
  options.tcp.mss_bytes = emss;
  Pair pair(options);
  Region& from = pair.a->region(200'000, 3);
  Region& to = pair.b->region(200'000);
  pair.a->post(write({Side::sge(from, 0, 200'000)}, to.stag, to.at(0)));
  pair.run();
  CHECK(from.memory == to.memory);
  const auto sent = sizes(pair.wire);
  const std::uint32_t full = emss / 4 * 4;  // FPDUs are whole words
  const std::uint32_t payload = full - kFpduAround - kTagged;
  REQUIRE(sent.size() == (200'000 + payload - 1) / payload);
  for (std::size_t i = 0; i + 1 < sent.size(); ++i) CHECK(sent[i] == full);
}

TEST_CASE("W-MPA-57: the ULPDUs of a long message are as long as the MULPDU, with markers and without",
          "[qp][W-MPA-57][W-MPA-60]") {
  struct Row {
    std::uint32_t emss, plain, marked;
  };
  const Row row = GENERATE(Row{536, 530, 522}, Row{1460, 1454, 1442}, Row{1463, 1454, 1442}, Row{8960, 8954, 8882});
  qp::Start start = default_start();
  start.markers_out = GENERATE(false, true);
  tcp::Options with;
  with.mss_bytes = row.emss;
  Raw raw(start, {}, Moves::direct, with);
  Region& from = raw.us->region(50'000, 3);
  raw.us->post(write({Side::sge(from, 0, 50'000)}, {9}, 0));
  raw.run();
  REQUIRE(raw.heard.size() > 5);
  for (std::size_t i = 0; i + 1 < raw.heard.size(); ++i)
    CHECK(raw.heard[i].size() == (start.markers_out ? row.marked : row.plain));
}

TEST_CASE("W-MPA-58: below an EMSS of 136 the MULPDU stays 128: an FPDU lies in several segments, and arrives",
          "[qp][W-MPA-58]") {
  const std::uint32_t emss = GENERATE(48u, 100u, 127u, 128u, 135u);
  tcp::Options with;
  with.mss_bytes = emss;
  qp::Start start = default_start();
  start.markers_out = GENERATE(false, true);
  Raw raw(start, {}, Moves::direct, with);
  Region& from = raw.us->region(3000, 3);
  SECTION("at once") {}
  SECTION("after a loss, when the congestion window is smaller than an FPDU") {
    raw.wire.cut_a = true;
    raw.us->post(send());
    raw.pass(seconds(3));
    raw.wire.cut_a = false;
    raw.pass(seconds(10));
    REQUIRE(raw.heard.size() >= 1);
    raw.heard.clear();
  }
  raw.us->post(write({Side::sge(from, 0, 3000)}, {9}, 0));
  raw.run();
  raw.pass(seconds(2));
  for (const std::uint32_t size : sizes(raw.wire)) CHECK(size <= emss);
  std::erase_if(raw.heard, [](const Octets& ulpdu) { return ulpdu.size() == kTagged; });  // nudges
  Octets got;
  REQUIRE(raw.heard.size() == (3000 + 113) / 114);  // 128 less the tagged header
  for (std::size_t i = 0; i < raw.heard.size(); ++i) {
    if (i + 1 < raw.heard.size()) CHECK(raw.heard[i].size() == 128);
    got.insert(got.end(), raw.heard[i].begin() + kTagged, raw.heard[i].end());
  }
  CHECK(got == from.memory);
}

TEST_CASE("W-MPA-59: a smaller EMSS makes later FPDUs smaller; those handed over are sent as they are",
          "[qp][W-MPA-59][W-TCP-04][W-TCP-08]") {
  Raw raw;
  Region& from = raw.us->region(60'000, 3);
  raw.us->post(write({Side::sge(from, 0, 60'000)}, {9}, 0));
  raw.us->qp.transmit(raw.wire.now, 1u << 20);
  raw.us->mover.flush();
  raw.us->qp.settle(raw.wire.now);
  const std::uint64_t handed_over = raw.us->tcp.appended();
  REQUIRE(handed_over == 14'600);  // the initial window: ten full segments
  raw.us->tcp.set_mss(1000);
  raw.run();
  for (const std::uint32_t size : sizes(raw.wire)) CHECK(size <= 1000);
  REQUIRE(raw.heard.size() > 20);
  std::uint64_t octets = 0;
  for (std::size_t i = 0; i < raw.heard.size(); ++i) {
    const std::size_t ulpdu = raw.heard[i].size();
    if (i < 10)
      CHECK(ulpdu == 1460 - kFpduAround);
    else if (i + 1 < raw.heard.size())
      CHECK(ulpdu == 1000 - kFpduAround);
    octets += ulpdu - kTagged;
  }
  CHECK(octets == 60'000);

  SECTION("and a larger one makes them larger") {
    raw.heard.clear();
    raw.us->tcp.set_mss(1460);
    raw.us->post(write({Side::sge(from, 0, 60'000)}, {9}, 0));
    raw.run();
    REQUIRE(raw.heard.size() > 20);
    for (std::size_t i = 0; i + 1 < raw.heard.size(); ++i) CHECK(raw.heard[i].size() == 1460 - kFpduAround);
  }
}

TEST_CASE("W-MPA-59: a queue pair that waits for room for a full FPDU goes on when the EMSS shrinks",
          "[qp][W-MPA-59]") {
  Options options;
  options.tcp.receive_window_bytes = 1300;
  options.tcp.window_scale = false;
  Pair pair(options);
  Region& from = pair.a->region(10'000, 3);
  Region& to = pair.b->region(10'000);
  pair.wire.cut_b = true;
  pair.a->post(write({Side::sge(from, 0, 100)}, to.stag, to.at(0)));
  pair.step();
  pair.a->post(write({Side::sge(from, 0, 10'000)}, to.stag, to.at(0)));
  pair.step();
  REQUIRE(pair.a->qp.idle());  // 1460 octets do not fit behind the 120 in flight
  // The acknowledgement comes; the queue pair has not been asked since.
  pair.wire.cut_b = false;
  pair.wire.now = pair.wire.now + seconds(1);
  for (int i = 0; i < 5; ++i) {
    pair.wire.carry();
    pair.turn(*pair.b);
  }
  REQUIRE(pair.a->tcp.acknowledged() == pair.a->tcp.appended());
  pair.a->tcp.set_mss(1000);
  CHECK_FALSE(pair.a->qp.idle());
  pair.run();
  pair.pass(seconds(10), milliseconds(200));
  CHECK(from.memory == to.memory);
}

TEST_CASE("W-TCP-07: a probe is a segment with one whole FPDU, and when it has arrived all are as large",
          "[qp][W-TCP-07][W-TCP-24]") {
  const auto moves = GENERATE(Moves::direct, Moves::at_flush, Moves::late);
  Options options;
  options.moves = moves;
  Pair pair(options);
  Region& from = pair.a->region(20'000, 3);
  Region& to = pair.b->region(20'000);
  // Who has heard its peer has no need to nudge it.
  pair.b->post(write({Side::sge(to, 0, 4)}, from.stag, from.at(0)));
  pair.run();
  const auto writes = [&] {
    std::fill(to.memory.begin(), to.memory.end(), std::byte{0});
    sizes(pair.wire);
    pair.a->post(write({Side::sge(from, 0, 20'000)}, to.stag, to.at(0)));
    pair.run();
    CHECK(from.memory == to.memory);
    return sizes(pair.wire);
  };
  pair.wire.cut_a = true;
  pair.a->post(write({Side::sge(from, 0, 1400)}, to.stag, to.at(0)));
  pair.run();
  pair.a->tcp.on_packet_too_big(1240, kFirst, pair.wire.now);
  pair.wire.cut_a = false;
  pair.wire.now = pair.wire.now + seconds(1);
  pair.run();
  for (const std::uint32_t size : writes()) CHECK(size <= 1240);
  pair.wire.now = pair.wire.now + seconds(600);
  const auto with_a_probe = writes();
  CHECK(with_a_probe[0] == 1460);
  CHECK(*std::max_element(with_a_probe.begin() + 1, with_a_probe.end()) <= 1460);
  const auto after = writes();
  CHECK(std::count(after.begin(), after.end(), 1460u) + 1 == static_cast<std::ptrdiff_t>(after.size()));
}
