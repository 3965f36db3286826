// Every row of verbs.md s9 that a peer can cause: the code on the wire, the header that comes with
// it, the event or completion, and the state.

#include "kit/catch.hpp"
#include "kit/qp_world.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

enum class Header { none, ddp, ddp_and_read };

// What the peer hears and our application is told, after the peer has said `ulpdu`.
void expect_terminate(Raw& raw, const Octets& ulpdu, unsigned code, Header header) {
  const auto terminates = raw.terminates();
  REQUIRE(terminates.size() == 1);
  const auto& t = terminates[0];
  CHECK(t.code.word() == code);
  CHECK(t.has_length == (header != Header::none));
  CHECK(t.has_read_request == (header == Header::ddp_and_read));
  if (header != Header::none) {
    const bool is_tagged = (std::to_integer<unsigned>(ulpdu[0]) & 0x80) != 0;
    REQUIRE(t.ddp_header_size == (is_tagged ? 14 : 18));
    CHECK(t.segment_length == ulpdu.size());
    CHECK(std::memcmp(t.ddp_header.data(), ulpdu.data(), t.ddp_header_size) == 0);
  } else {
    CHECK(t.ddp_header_size == 0);
  }
  if (header == Header::ddp_and_read) CHECK(std::memcmp(t.read_request.data(), ulpdu.data() + 18, 28) == 0);
  // The DDP header that irdma verifies to the bit.
  const auto ulpdus = raw.heard_opcode(wire::RdmapOpcode::terminate);
  const auto ddp = wire::parse_untagged(ulpdus.at(0));
  REQUIRE(ddp);
  CHECK(ddp->last);
  CHECK(ddp->queue == 2);
  CHECK(ddp->msn == 1);
  CHECK(ddp->message_offset == 0);
  CHECK(ddp->rdmap_control == 0x47);
  // The record is what went out.
  CHECK(raw.us->qp.terminate_record().origin == qp::TerminateRecord::Origin::local);
  CHECK(raw.us->qp.terminate_record().length == wire::terminate_size(t));
  CHECK(raw.us->qp.state() == qp::State::terminate);
  CHECK(raw.tcp.peer_closed());
}

struct Scene {
  explicit Scene(std::function<void(qp::Config&)> change = {}, Moves moves = Moves::direct)
      : raw(default_start(), std::move(change), moves), region(raw.us->region(4096, 2)) {}
  // Says it, and expects this.
  void is_refused(const Octets& ulpdu, unsigned code, Header header, qp::Event event) {
    const auto before = region.memory;
    raw.say(ulpdu);
    expect_terminate(raw, ulpdu, code, header);
    CHECK(raw.us->app.events == std::vector<qp::Event>{event});
    CHECK(region.memory == before);  // V-ERR-06
  }
  Raw raw;
  Region& region;
};

// A Terminate with siw's bit-fields, which are turned round: RFC 5040 has the layer, M and D at the
// other end of their octets.
Octets siws_terminate(std::uint8_t layer, std::uint8_t type, std::uint8_t headers, const Octets& culprit) {
  const Octets head{static_cast<std::byte>(type << 4 | layer), {}, static_cast<std::byte>(headers), {}, {}, {}};
  return untagged(7, true, 2, 1, 0, head + culprit);
}

}  // namespace

TEST_CASE("V-EH-05: a ULPDU shorter than its header is a local catastrophic error of DDP",
          "[qp][V-EH-05][W-MPA-55][W-RDMAP-28][V-AE-05]") {
  SECTION("tagged, 13 octets") {
    Scene s;
    Octets ulpdu = tagged(0, true, {1}, 0);
    ulpdu.resize(13);
    s.is_refused(ulpdu, 0x1000, Header::none, qp::Event::segment_size);
  }
  SECTION("untagged, 17 octets") {
    Scene s;
    Octets ulpdu = untagged(3, true, 0, 1, 0);
    ulpdu.resize(17);
    s.is_refused(ulpdu, 0x1000, Header::none, qp::Event::segment_size);
  }
  SECTION("longer than 64768: at once") {
    Scene s;
    s.raw.say_octets({std::byte{0xFD}, std::byte{0x01}, std::byte{0xC1}, std::byte{0x40}});
    s.raw.run();
    expect_terminate(s.raw, {}, 0x1000, Header::none);
  }
}

TEST_CASE("V-EH-06: a bad CRC is refused without a header and nothing is placed", "[qp][V-EH-06][W-MPA-68][V-AE-06]") {
  Scene s;
  Octets fpdu = s.raw.fpdu(tagged(0, true, s.region.stag, s.region.base, filled(100)));
  fpdu[40] ^= std::byte{1};
  const auto before = s.region.memory;
  s.raw.say_octets(fpdu);
  s.raw.run();
  expect_terminate(s.raw, {}, 0x2002, Header::none);
  CHECK(s.raw.us->app.events == std::vector<qp::Event>{qp::Event::crc_error});
  CHECK(s.region.memory == before);
}

TEST_CASE("V-EH-07: a marker that disagrees is refused", "[qp][V-EH-07][V-AE-07]") {
  qp::Start start = default_start();
  start.markers_in = mpa::Markers::expected;
  Raw raw(start);
  Octets fpdu = raw.fpdu(untagged(3, true, 0, 1, 0, filled(1000)));
  fpdu[515] ^= std::byte{4};
  raw.packer.seal(fpdu);  // the marker is all that is wrong
  raw.say_octets(fpdu);
  raw.run();
  expect_terminate(raw, {}, 0x2003, Header::none);
  CHECK(raw.us->app.events == std::vector<qp::Event>{qp::Event::bad_fpdu});
}

TEST_CASE("V-EH-08: another DDP version is refused, tagged or not", "[qp][V-EH-08][W-DDP-01][V-AE-08]") {
  SECTION("tagged") {
    Scene s;
    Octets ulpdu = tagged(0, true, s.region.stag, s.region.base, filled(8));
    ulpdu[0] ^= std::byte{3};
    s.is_refused(ulpdu, 0x1104, Header::ddp, qp::Event::ddp_version);
  }
  SECTION("untagged") {
    Scene s;
    Octets ulpdu = untagged(3, true, 0, 1, 0);
    ulpdu[0] ^= std::byte{1};
    s.is_refused(ulpdu, 0x1206, Header::ddp, qp::Event::ddp_version);
  }
}

TEST_CASE("V-EH-21: another RDMAP version is refused", "[qp][V-EH-21][W-RDMAP-01][V-AE-09]") {
  const auto version = GENERATE(0x00, 0x80, 0xC0);
  Scene s;
  Octets ulpdu = untagged(3, true, 0, 1, 0);
  ulpdu[1] = static_cast<std::byte>(version | 3);
  s.is_refused(ulpdu, 0x0205, Header::ddp, qp::Event::rdmap_version);
}

TEST_CASE("W-DDP-02: reserved bits are not looked at", "[qp][W-DDP-02][W-RDMAP-02]") {
  Scene s;
  Octets ulpdu = tagged(0, true, s.region.stag, s.region.base, filled(8));
  ulpdu[0] |= std::byte{0x3C};
  ulpdu[1] |= std::byte{0x30};
  s.raw.say(ulpdu);
  CHECK(s.raw.terminates().empty());
  CHECK(s.region.memory[0] == filled(8)[0]);
}

TEST_CASE("V-EH-22: an opcode that is unknown, switched off, or in the wrong place is refused",
          "[qp][V-EH-22][W-RDMAP-03][W-RDMAP-04][W-EXT-14][V-AE-10]") {
  Scene s;
  SECTION("8 to 15") {
    const auto opcode = GENERATE(8, 9, 10, 11, 12, 13, 14, 15);
    s.is_refused(untagged(static_cast<std::uint8_t>(opcode), true, 0, 1, 0, filled(8)), 0x0206, Header::ddp,
                 qp::Event::unexpected_opcode);
  }
  SECTION("an untagged Write") {
    s.is_refused(untagged(0, true, 0, 1, 0), 0x0206, Header::ddp, qp::Event::unexpected_opcode);
  }
  SECTION("a tagged Send") {
    s.is_refused(tagged(3, true, s.region.stag, s.region.base), 0x0206, Header::ddp, qp::Event::unexpected_opcode);
  }
  SECTION("a Send on queue 1") {
    s.is_refused(untagged(3, true, 1, 1, 0), 0x0206, Header::ddp, qp::Event::unexpected_opcode);
  }
  SECTION("a Read Request on queue 0") {
    s.is_refused(untagged(1, true, 0, 1, 0, filled(28)), 0x0206, Header::ddp, qp::Event::unexpected_opcode);
  }
  SECTION("a Read Response with no Read outstanding") {
    s.is_refused(tagged(2, true, s.region.stag, s.region.base, filled(8)), 0x0206, Header::ddp,
                 qp::Event::unexpected_opcode);
  }
}

TEST_CASE("V-EH-09: a queue that is not there is refused", "[qp][V-EH-09][V-AE-11]") {
  const auto queue = GENERATE(3u, 4u, 0xFFFFFFFFu);
  Scene s;
  s.is_refused(untagged(3, true, queue, 1, 0), 0x1201, Header::ddp, qp::Event::queue_number);
}

TEST_CASE("V-EH-10: a tagged segment is placed only where the STag allows",
          "[qp][W-DDP-18][W-DDP-27][V-EH-11][V-EH-12][V-EH-13][V-EH-14][V-EH-24][V-ACC-08][V-AE-17][V-AE-18]"
          "[V-AE-19][V-AE-20][V-ERR-06][V-AE-13][V-AE-16][V-ACC-09][V-RD-01]") {
  SECTION("V-EH-10: an unknown STag") {
    Scene s;
    s.is_refused(tagged(0, true, {0x7FFFFF00}, s.region.base, filled(8)), 0x1100, Header::ddp, qp::Event::invalid_stag);
  }
  SECTION("V-EH-10: a wrong key") {
    Scene s;
    s.is_refused(tagged(0, true, {s.region.stag.value ^ 1}, s.region.base, filled(8)), 0x1100, Header::ddp,
                 qp::Event::invalid_stag);
  }
  SECTION("V-EH-11: one octet past the end") {
    Scene s;
    s.is_refused(tagged(0, true, s.region.stag, s.region.at(4089), filled(8)), 0x1101, Header::ddp,
                 qp::Event::base_bounds);
  }
  SECTION("V-EH-11: the last octet is not past it") {
    Scene s;
    s.raw.say(tagged(0, true, s.region.stag, s.region.at(4088), filled(8)));
    CHECK(s.raw.terminates().empty());
    CHECK(s.region.memory[4095] == filled(8)[7]);
  }
  SECTION("V-EH-12: another PD") {
    Scene s;
    Region& other = s.raw.us->region(64, 1, kAllRights, kOtherPd);
    s.is_refused(tagged(0, true, other.stag, other.base, filled(8)), 0x1102, Header::ddp, qp::Event::invalid_pd);
  }
  SECTION("V-EH-13: an offset that wraps") {
    Scene s;
    s.is_refused(tagged(0, true, s.region.stag, ~0ull, filled(2)), 0x1103, Header::ddp, qp::Event::wrap);
  }
  SECTION("V-EH-14: no remote write right") {
    Scene s;
    Region& r = s.raw.us->region(64, 1, tpt::Rights::local_read | tpt::Rights::local_write | tpt::Rights::remote_read);
    s.is_refused(tagged(0, true, r.stag, r.base, filled(8)), 0x1102, Header::ddp, qp::Event::access_rights);
  }
  SECTION("V-EH-24: writes are disabled on the queue pair") {
    Scene s([](qp::Config& c) { c.access = tpt::Rights::remote_read; });
    s.is_refused(tagged(0, true, s.region.stag, s.region.base, filled(8)), 0x1102, Header::ddp,
                 qp::Event::writes_disabled);
  }
  SECTION("V-ACC-08: of two errors the first in order is told") {
    Scene s([](qp::Config& c) { c.access = tpt::Rights::remote_read; });
    s.is_refused(tagged(0, true, {0x7FFFFF00}, ~0ull, filled(8)), 0x1100, Header::ddp, qp::Event::invalid_stag);
  }
}

TEST_CASE("V-EH-15: a Send must be the next", "[qp][V-EH-15][V-EH-16][W-DDP-17][V-AE-23][V-AE-24][V-SEC-18]") {
  SECTION("V-EH-15: no buffer, strictly") {
    Scene s([](qp::Config& c) { c.hold_without_receive = false; });
    s.is_refused(untagged(3, true, 0, 1, 0, filled(8)), 0x1202, Header::ddp, qp::Event::rq_msn_range);
  }
  SECTION("V-EH-15: an MSN of the past") {
    Scene s;
    s.is_refused(untagged(3, true, 0, 0, 0, filled(8)), 0x1203, Header::ddp, qp::Event::rq_msn_range);
  }
  SECTION("V-EH-16: an MSN of the future") {
    Scene s;
    s.is_refused(untagged(3, true, 0, 2, 0, filled(8)), 0x1203, Header::ddp, qp::Event::rq_msn_gap);
  }
  SECTION("W-DDP-25: a wrong offset, even with no octets") {
    Scene s;
    s.raw.us->post_receive({Side::sge(s.region, 0, 100)});
    const auto ulpdu = untagged(3, true, 0, 1, 4);
    s.raw.say(ulpdu);
    expect_terminate(s.raw, ulpdu, 0x1204, Header::ddp);
  }
  SECTION("W-DDP-06: a hole in the offsets") {
    Scene s;
    s.raw.us->post_receive({Side::sge(s.region, 0, 100)});
    s.raw.say(untagged(3, false, 0, 1, 0, filled(8)));
    CHECK(s.raw.terminates().empty());
    const auto ulpdu = untagged(3, true, 0, 1, 9, filled(8));
    s.raw.say(ulpdu);
    expect_terminate(s.raw, ulpdu, 0x1204, Header::ddp);
  }
}

TEST_CASE("V-EH-20: a message longer than its receive fails that receive, and is not placed past it",
          "[qp][V-EH-20][V-SR-02][W-RDMAP-15]") {
  Scene s;
  Region& to = s.raw.us->region(100);
  const auto slot = s.raw.us->post_receive({Side::sge(to, 0, 10), Side::sge(to, 10, 10)});
  const auto behind = s.raw.us->post_receive({Side::sge(to, 0, 10)});
  SECTION("20 octets fit") {
    s.raw.say(untagged(3, true, 0, 1, 0, filled(20)));
    CHECK(s.raw.terminates().empty());
    CHECK(s.raw.us->app.completions.at(0).status == qp::Status::success);
  }
  SECTION("21 do not") {
    s.raw.say(untagged(3, false, 0, 1, 0, filled(10)));
    const auto ulpdu = untagged(3, true, 0, 1, 10, filled(11));
    s.raw.say(ulpdu);
    expect_terminate(s.raw, ulpdu, 0x1205, Header::ddp);
    REQUIRE(s.raw.us->app.completions.size() == 2);
    CHECK(s.raw.us->app.completions[0].slot == slot);
    CHECK(s.raw.us->app.completions[0].status == qp::Status::message_too_long);
    CHECK(s.raw.us->app.completions[1].slot == behind);
    CHECK(s.raw.us->app.completions[1].status == qp::Status::flushed);
    CHECK(s.raw.us->app.events.empty());  // V-ERR-01: told by a completion
    CHECK(to.memory[10] == std::byte{0});
  }
}

TEST_CASE("W-RDMAP-15: each Send takes a receive, one of no octets too", "[qp][W-RDMAP-15][V-SR-02]") {
  Scene s;
  Region& to = s.raw.us->region(100);
  std::vector<std::uint32_t> slots;
  for (std::uint32_t i = 0; i < 4; ++i) slots.push_back(s.raw.us->post_receive({Side::sge(to, 10 * i, 10)}));
  std::uint32_t msn = 0;
  for (const std::uint32_t size : {0u, 10u, 0u, 3u}) s.raw.say(untagged(3, true, 0, ++msn, 0, filled(size)));
  CHECK(s.raw.terminates().empty());
  REQUIRE(s.raw.us->app.completions.size() == 4);
  std::uint32_t i = 0;
  for (const std::uint32_t size : {0u, 10u, 0u, 3u}) {
    CHECK(s.raw.us->app.completions[i].status == qp::Status::success);
    CHECK(s.raw.us->app.completions[i].slot == slots[i]);
    CHECK(s.raw.us->app.completions[i].length == size);
    const Octets there(to.memory.begin() + 10 * i, to.memory.begin() + 10 * i + 10);
    CHECK(there == filled(size) + Octets(10 - size));
    ++i;
  }
}

TEST_CASE("V-EH-17: a Read Request beyond IRD is refused", "[qp][V-EH-17][V-IRD-08][W-RDMAP-19][W-RDMAP-20][V-AE-25]") {
  SECTION("IRD + 1") {
    qp::Start start = default_start();
    start.ird = 2;
    Raw raw(start);
    Region& r = raw.us->region(64, 1);
    raw.us->mover.stalled = true;  // nothing is answered
    const auto ask = [&](std::uint32_t msn) { return read_request(msn, {{1}, 0, 8, r.stag, r.base}); };
    raw.say_octets(raw.fpdu(ask(1)) + raw.fpdu(ask(2)) + raw.fpdu(ask(3)));
    raw.us->qp.receive(raw.wire.now);
    while (raw.wire.carry()) {
    }
    raw.us->qp.receive(raw.wire.now);
    CHECK(raw.us->app.events == std::vector<qp::Event>{qp::Event::irrq_too_many});
    raw.us->mover.stalled = false;
    raw.run();
    expect_terminate(raw, ask(3), 0x1203, Header::ddp);
  }
  SECTION("IRD 0: every one") {
    qp::Start start = default_start();
    start.ird = 0;
    Raw raw(start);
    const auto ulpdu = read_request(1, {{1}, 0, 0, {1}, 0});
    raw.say(ulpdu);
    expect_terminate(raw, ulpdu, 0x1203, Header::ddp);
  }
}

TEST_CASE("V-EH-18: a Read Request must be the next", "[qp][V-EH-18][V-EH-19][V-AE-26][V-AE-27]") {
  SECTION("V-EH-18: a gap") {
    Scene s;
    s.is_refused(read_request(2, {{1}, 0, 8, s.region.stag, s.region.base}), 0x1203, Header::ddp, qp::Event::irrq_gap);
  }
  SECTION("V-EH-19: far off") {
    Scene s;
    s.is_refused(read_request(1000, {{1}, 0, 8, s.region.stag, s.region.base}), 0x1203, Header::ddp,
                 qp::Event::irrq_range);
  }
  SECTION("V-EH-19: of the past") {
    Scene s;
    s.is_refused(read_request(0, {{1}, 0, 8, s.region.stag, s.region.base}), 0x1203, Header::ddp,
                 qp::Event::irrq_range);
  }
}

TEST_CASE("V-EH-23: a Read Request while reads are disabled is refused", "[qp][V-EH-23][V-AE-12][V-RD-02]") {
  Scene s([](qp::Config& c) { c.access = tpt::Rights::remote_write; });
  s.is_refused(read_request(1, {{1}, 0, 8, s.region.stag, s.region.base}), 0x1201, Header::ddp,
               qp::Event::reads_disabled);
}

TEST_CASE("V-EH-25: a Read Request has its own form", "[qp][V-EH-25][V-EH-26][W-RDMAP-09][V-AE-14][V-AE-15]") {
  Octets body(28);
  SECTION("V-EH-25: an offset") {
    Scene s;
    s.is_refused(untagged(1, true, 1, 1, 4, body), 0x1204, Header::ddp, qp::Event::read_request_form);
  }
  SECTION("V-EH-25: too short") {
    Scene s;
    body.resize(27);
    s.is_refused(untagged(1, true, 1, 1, 0, body), 0x0207, Header::ddp, qp::Event::read_request_form);
  }
  SECTION("V-EH-25: too long") {
    Scene s;
    body.resize(29);
    s.is_refused(untagged(1, true, 1, 1, 0, body), 0x0207, Header::ddp, qp::Event::read_request_form);
  }
  SECTION("V-EH-26: not the last") {
    Scene s;
    s.is_refused(untagged(1, false, 1, 1, 0, body), 0x0207, Header::ddp, qp::Event::not_last);
  }
}

TEST_CASE("V-EH-27: a Read's source is checked before anything is sent",
          "[qp][V-EH-27][V-EH-28][V-EH-29][V-EH-30][V-EH-31][W-RDMAP-11][W-RDMAP-26][V-STOP-10][V-AE-28][V-AE-29]"
          "[V-AE-30][V-AE-31][V-AE-32][V-ACC-09][V-RD-02]") {
  Scene s;
  const std::uint32_t all = 4096;
  SECTION("V-EH-27: an invalid STag") {
    s.is_refused(read_request(1, {{1}, 5, 8, {0x7FFFFF00}, s.region.base}), 0x0100, Header::ddp_and_read,
                 qp::Event::irrq_invalid_stag);
  }
  SECTION("V-EH-28: one octet too many") {
    s.is_refused(read_request(1, {{1}, 5, all + 1, s.region.stag, s.region.base}), 0x0101, Header::ddp_and_read,
                 qp::Event::irrq_base_bounds);
  }
  SECTION("V-EH-29: no right to read") {
    Region& r = s.raw.us->region(64, 1, tpt::Rights::local_read | tpt::Rights::local_write | tpt::Rights::remote_write);
    s.is_refused(read_request(1, {{1}, 5, 8, r.stag, r.base}), 0x0102, Header::ddp_and_read, qp::Event::irrq_access);
  }
  SECTION("V-EH-30: another PD") {
    Region& r = s.raw.us->region(64, 1, kAllRights, kOtherPd);
    s.is_refused(read_request(1, {{1}, 5, 8, r.stag, r.base}), 0x0103, Header::ddp_and_read,
                 qp::Event::irrq_invalid_pd);
  }
  SECTION("V-EH-31: a wrap") {
    s.is_refused(read_request(1, {{1}, 5, 8, s.region.stag, ~0ull}), 0x0104, Header::ddp_and_read,
                 qp::Event::irrq_wrap);
  }
  SECTION("and all of the region may be read") {
    s.raw.say(read_request(1, {{1}, 5, all, s.region.stag, s.region.base}));
    CHECK(s.raw.terminates().empty());
    std::size_t octets = 0;
    for (const auto& ulpdu : s.raw.heard_opcode(wire::RdmapOpcode::read_response)) {
      const auto header = wire::parse_tagged(ulpdu);
      CHECK(header->stag == Stag{1});
      CHECK(header->tagged_offset == 5 + octets);
      octets += ulpdu.size() - 14;
    }
    CHECK(octets == all);
  }
}

TEST_CASE("V-EH-32: a Send with Invalidate whose STag may not be invalidated fails its receive",
          "[qp][V-EH-32][V-EH-33][V-EH-34][V-EH-35][V-INV-05][V-INV-07][W-RDMAP-16][V-CS-11]") {
  Scene s;
  Region& to = s.raw.us->region(64);
  s.raw.us->post_receive({Side::sge(to, 0, 64)});
  unsigned code = 0;
  Stag stag;
  SECTION("V-EH-32: unknown") {
    code = 0x0100;
    stag = {0x7FFFFF00};
  }
  SECTION("V-EH-33: without any remote right") {
    code = 0x0102;
    stag = s.raw.us->region(64, 1, tpt::Rights::local_read | tpt::Rights::local_write).stag;
  }
  SECTION("V-EH-34: of another PD") {
    code = 0x0109;
    stag = s.raw.us->region(64, 1, kAllRights, kOtherPd).stag;
  }
  tpt::Table& table = s.raw.us->table;
  SECTION("V-EH-35: with a window on it") {
    code = 0x0109;
    Region& region = s.raw.us->region(64, 1, kAllRights | tpt::Rights::window_bind);
    const auto window = table.allocate_window(kPd, 1);
    REQUIRE(window);
    REQUIRE(table.bind(*window, 5, region.stag, kPd, {1}, tpt::Rights::remote_write, region.base, 64));
    stag = region.stag;
  }
  SECTION("V-EH-35: shared") {
    code = 0x0109;
    Region& region = s.raw.us->region(64, 1);
    REQUIRE(table.register_shared(region.stag, {.pd = kPd, .rights = kAllRights, .base = region.base}));
    stag = region.stag;
  }
  const auto ulpdu = untagged(6, true, 0, 1, 0, filled(16), stag);
  s.raw.say(ulpdu);
  expect_terminate(s.raw, ulpdu, code, Header::ddp);
  REQUIRE(s.raw.us->app.completions.size() == 1);
  CHECK(s.raw.us->app.completions[0].status == qp::Status::invalidate_pd_access);
  CHECK(s.raw.us->app.events.empty());
  // The data has come all the same (V-INV-06), and what was to be invalidated is as it was.
  CHECK(std::memcmp(to.memory.data(), filled(16).data(), 16) == 0);
  if (code == 0x0109) CHECK(table.query(stag)->valid);
}

TEST_CASE("V-EH-37: a receive whose SGEs are bad fails when it is used", "[qp][V-EH-37][V-SGL-05]") {
  Scene s;
  Region& readonly = s.raw.us->region(64, 0, tpt::Rights::local_read);
  Region& foreign = s.raw.us->region(64, 0, kAllRights, kOtherPd);
  qp::Status status{};
  SECTION("no right to write") {
    s.raw.us->post_receive({Side::sge(readonly, 0, 64)});
    status = qp::Status::access;
  }
  SECTION("another PD") {
    s.raw.us->post_receive({Side::sge(foreign, 0, 64)});
    status = qp::Status::invalid_pd;
  }
  SECTION("out of bounds") {
    s.raw.us->post_receive({Side::sge(s.region, 4090, 64)});
    status = qp::Status::base_bounds;
  }
  SECTION("a wrap") {
    s.raw.us->post_receive({{~0ull, 64, s.region.stag}});
    status = qp::Status::wrap;
  }
  SECTION("unknown") {
    s.raw.us->post_receive({{s.region.base, 64, {0x7FFFFF00}}});
    status = qp::Status::invalid_stag;
  }
  s.raw.say(untagged(3, true, 0, 1, 0, filled(8)));
  expect_terminate(s.raw, {}, 0x0000, Header::none);
  REQUIRE(s.raw.us->app.completions.size() == 1);
  CHECK(s.raw.us->app.completions[0].status == status);
}

TEST_CASE("V-SRQ-15: receives of a shared queue are checked against its PD", "[qp][V-SRQ-15]") {
  Scene s([](qp::Config& c) {
    c.shared_receive = true;
    c.receive_pd = kOtherPd;
  });
  Region& foreign = s.raw.us->region(64, 0, kAllRights, kOtherPd);
  s.raw.us->post_receive({Side::sge(foreign, 0, 64)}, true);
  s.raw.say(untagged(3, true, 0, 1, 0, filled(8)));
  REQUIRE(s.raw.us->app.completions.size() == 1);
  CHECK(s.raw.us->app.completions[0].status == qp::Status::success);
  CHECK(s.raw.us->app.completions[0].shared);
}

TEST_CASE("V-RD-03: a Read Response is placed only where it was asked for", "[qp][V-RD-03][W-RDMAP-14][V-RD-04]") {
  const bool strict = GENERATE(false, true);
  Scene s([&](qp::Config& c) { c.strict_read_sink = strict; });
  Region& sink = s.raw.us->region(64);
  Region& other = s.raw.us->region(64);
  SECTION("another STag") {
    s.raw.us->post(read({Side::sge(sink, 0, 8)}, {5}, 0));
    s.raw.run();
    s.is_refused(tagged(2, true, other.stag, other.base, filled(8)), 0x1100, Header::ddp, qp::Event::invalid_stag);
  }
  SECTION("another place") {
    s.raw.us->post(read({Side::sge(sink, 0, 8)}, {5}, 0));
    s.raw.run();
    s.is_refused(tagged(2, true, sink.stag, sink.at(1), filled(8)), 0x1101, Header::ddp, qp::Event::base_bounds);
  }
  SECTION("too much") {
    s.raw.us->post(read({Side::sge(sink, 0, 8)}, {5}, 0));
    s.raw.run();
    s.is_refused(tagged(2, true, sink.stag, sink.base, filled(9)), 0x1101, Header::ddp, qp::Event::base_bounds);
    CHECK(sink.memory[0] == std::byte{0});
  }
  SECTION("too little") {
    s.raw.us->post(read({Side::sge(sink, 0, 8)}, {5}, 0));
    s.raw.run();
    s.is_refused(tagged(2, true, sink.stag, sink.base, filled(7)), 0x1101, Header::ddp, qp::Event::base_bounds);
  }
  SECTION("a sink that may not be written remotely is, strictly, found out only now") {
    if (!strict) return;
    Region& local = s.raw.us->region(64, 0, tpt::Rights::local_read | tpt::Rights::local_write);
    s.raw.us->post(read({Side::sge(local, 0, 8)}, {5}, 0));
    s.raw.run();
    REQUIRE(s.raw.heard_opcode(wire::RdmapOpcode::read_request).size() == 1);
    s.is_refused(tagged(2, true, local.stag, local.base, filled(8)), 0x1102, Header::ddp, qp::Event::access_rights);
    REQUIRE(s.raw.us->app.completions.size() == 1);
    CHECK(s.raw.us->app.completions[0].status == qp::Status::flushed);
  }
  SECTION("a Response of no octets: STag and TO are not looked at") {
    s.raw.us->post(read({Side::sge(sink, 0, 0)}, {5}, 0));
    s.raw.run();
    s.raw.say(tagged(2, true, {77}, 99));
    REQUIRE(s.raw.us->app.completions.size() == 1);
    CHECK(s.raw.us->app.completions[0].status == qp::Status::success);
  }
}

TEST_CASE("V-EH-36: a Terminate is told, not answered", "[qp][V-EH-36][V-RTS-10][W-RDMAP-32][V-STOP-11]") {
  Scene s;
  s.raw.us->post_receive({Side::sge(s.region, 0, 8)});
  const Octets body{std::byte{0x02}, std::byte{0x06}, std::byte{0}, std::byte{0}};
  SECTION("as it should be") { s.raw.say(untagged(7, true, 2, 1, 0, body)); }
  SECTION("W-RDMAP-35: with wrong queue, number and offset") { s.raw.say(untagged(7, true, 9, 5, 77, body)); }
  SECTION("W-RDMAP-33: that announces more than it has") {
    s.raw.say(untagged(7, true, 2, 1, 0, {std::byte{0x99}, std::byte{0x99}, std::byte{0xE0}, std::byte{0}}));
  }
  CHECK(s.raw.us->app.events == std::vector<qp::Event>{qp::Event::terminate_received});
  CHECK(s.raw.us->qp.state() == qp::State::terminate);
  CHECK(s.raw.terminates().empty());
  CHECK(s.raw.us->qp.terminate_record().origin == qp::TerminateRecord::Origin::remote);
  CHECK(s.raw.us->qp.terminate_record().length == 4);
  REQUIRE(s.raw.us->app.completions.size() == 1);
  CHECK(s.raw.us->app.completions[0].status == qp::Status::flushed);
  CHECK(s.raw.tcp.peer_closed());
}

TEST_CASE("V-CS-05: a Terminate that names a Read fails that Read", "[qp][V-CS-05]") {
  Scene s;
  Region& sink = s.raw.us->region(64);
  for (int i = 0; i < 3; ++i) s.raw.us->post(read({Side::sge(sink, 0, 8)}, {5}, 0));
  s.raw.run();
  const auto asked = s.raw.heard_opcode(wire::RdmapOpcode::read_request);
  REQUIRE(asked.size() == 3);
  wire::TerminateMessage t;
  t.code = {0, 1, 0};
  t.has_length = true;
  t.ddp_header_size = 18;
  std::copy_n(asked[1].begin(), 18, t.ddp_header.begin());
  Octets body(wire::terminate_size(t));
  wire::emit(t, body);
  s.raw.say(untagged(7, true, 2, 1, 0, body));
  const auto& got = s.raw.us->app.completions;
  REQUIRE(got.size() == 3);
  CHECK(got[0].status == qp::Status::flushed);
  CHECK(got[1].status == qp::Status::remote_termination);
  CHECK(got[1].detail == 0x0100);
  CHECK(got[2].status == qp::Status::flushed);
}

TEST_CASE("V-CS-05: the Terminate in which siw refuses a Read fails the oldest Read", "[qp][V-CS-05][peer]") {
  Scene s;
  Region& sink = s.raw.us->region(64);
  for (int i = 0; i < 2; ++i) s.raw.us->post(read({Side::sge(sink, 0, 8)}, {5}, 0));
  s.raw.run();
  // siw gives the size of the Read where the MSN belongs.
  s.raw.say(siws_terminate(0, 1, 7, read_request(8, {.sink_stag = sink.stag, .size_bytes = 8, .source_stag = {5}})));
  const auto& got = s.raw.us->app.completions;
  REQUIRE(got.size() == 2);
  CHECK(got[0].status == qp::Status::remote_termination);
  CHECK(got[0].detail == 0x0100);
  CHECK(got[1].status == qp::Status::flushed);
}

TEST_CASE("V-CS-05: a Terminate of siw's that names no Read fails none", "[qp][V-CS-05][peer]") {
  Scene s;
  Region& sink = s.raw.us->region(64);
  s.raw.us->post(read({Side::sge(sink, 0, 8)}, {5}, 0));
  s.raw.run();
  s.raw.say(siws_terminate(1, 1, 3, tagged(0, true, {5}, 0)));
  REQUIRE(s.raw.us->app.completions.size() == 1);
  CHECK(s.raw.us->app.completions[0].status == qp::Status::flushed);
}

TEST_CASE("W-RDMAP-29: the first error wins and there is one Terminate", "[qp][W-RDMAP-29][V-STOP-04][V-TERM-07]") {
  const auto moves = GENERATE(Moves::direct, Moves::late);
  Scene s({}, moves);
  const auto first = tagged(0, true, {0x7FFFFF00}, 0, filled(8));
  const auto second = untagged(3, true, 7, 1, 0);
  const auto good = tagged(0, true, s.region.stag, s.region.base, filled(8));
  const auto before = s.region.memory;
  s.raw.say_octets(s.raw.fpdu(first) + s.raw.fpdu(second) + s.raw.fpdu(good));
  s.raw.run();
  s.raw.say(second);
  expect_terminate(s.raw, first, 0x1100, Header::ddp);
  CHECK(s.raw.us->app.events.size() == 1);
  CHECK(s.region.memory == before);
}

TEST_CASE("W-RDMAP-29: a second fault, of our own, says nothing and changes nothing", "[qp][W-RDMAP-29][V-STOP-04]") {
  Scene s({}, Moves::at_flush);
  Region& from = s.raw.us->region(64);
  s.raw.us->mover.stalled = true;  // the Send's octets are still being fetched
  s.raw.us->post(send({Side::sge(from, 0, 8)}));
  s.raw.run();
  const auto first = tagged(0, true, {0x7FFFFF00}, 0, filled(8));
  s.raw.say(first);
  REQUIRE(s.raw.us->qp.state() == qp::State::terminate);
  s.raw.us->app.room = 0;  // its completion finds no room, when the stream is going down already
  s.raw.us->mover.stalled = false;
  s.raw.run();
  expect_terminate(s.raw, first, 0x1100, Header::ddp);
  CHECK(s.raw.us->app.events.size() == 1);
}

TEST_CASE("W-RDMAP-29: two that fail at once say one Terminate each, and answer none",
          "[qp][W-RDMAP-29][V-RTS-10][V-STOP-11][V-TERM-07]") {
  Scene s;
  auto bad = send();
  bad.malformed = true;
  s.raw.us->post(bad);
  // On its way while ours is.
  s.raw.say(untagged(7, true, 2, 1, 0, {std::byte{0x11}, std::byte{0x00}, std::byte{0}, std::byte{0}}));
  s.raw.pass(milliseconds(500));
  expect_terminate(s.raw, {}, 0x0000, Header::none);
  CHECK(s.raw.us->app.events.empty());
  REQUIRE(s.raw.us->app.completions.size() == 1);
  CHECK(s.raw.us->app.completions[0].status == qp::Status::invalid_wqe);
}

namespace {

struct Told {
  const char* what;
  std::function<void(Pair&)> happens;  // a is at fault
  unsigned code;
  std::uint32_t octets;
};
qp::Sge eight_octets(Side& side) { return Side::sge(side.region(8, 1), 0, 8); }
const Told kTold[] = {
    {"Modify QP", [](Pair& p) { REQUIRE(p.a->qp.modify_state(qp::State::terminate, p.wire.now)); }, 0x0000, 4},
    {"a Write",
     [](Pair& p) {
       p.a->post(write({{1, 8, {0xdeadbe00}}}, {1}, 0));
     },
     0x0000, 4},
    {"a Send",
     [](Pair& p) {
       p.a->post(send({{1, 8, {0xdeadbe00}}}));
     },
     0x0000, 4},
    {"a Read Request",
     [](Pair& p) {
       p.a->post(read({{1, 8, {0xdeadbe00}}}, {1}, 0));
     },
     0x0000, 4},
    {"a receive",
     [](Pair& p) {
       p.a->post_receive({{1, 8, {0xdeadbe00}}});
       p.b->post(send({eight_octets(*p.b)}));
     },
     0x0000, 4},
    {"a full completion queue",
     [](Pair& p) {
       p.a->app.room = 0;
       p.a->post(send());
     },
     0x0207, 4},
    {"for comparison, a segment of the peer's",
     [](Pair& p) { p.b->post(write({eight_octets(*p.b)}, {0xdeadbe00}, 0)); }, 0x1100, 4 + 2 + 14},
};

}  // namespace

TEST_CASE("V-STOP-09: a fault that is in no segment of the peer's is told in four octets, and both sides have them",
          "[qp][V-STOP-09][V-TDN-06][V-QQP-10][V-QQP-11][V-ERRST-07]") {
  for (const Told& row : kTold) {
    INFO(row.what);
    Pair pair;
    pair.b->post_receive({});
    pair.a->post(send());
    pair.run();
    row.happens(pair);
    pair.run();
    pair.pass(seconds(1));
    const auto &said = pair.a->qp.terminate_record(), &heard = pair.b->qp.terminate_record();
    CHECK(said.origin == qp::TerminateRecord::Origin::local);
    CHECK(heard.origin == qp::TerminateRecord::Origin::remote);
    CHECK(said.length == row.octets);
    CHECK(std::equal(said.bytes().begin(), said.bytes().end(), heard.bytes().begin(), heard.bytes().end()));
    const auto message = wire::parse_terminate(said.bytes());
    REQUIRE(message);
    CHECK(message->code.word() == row.code);
    CHECK(message->has_length == (row.octets != 4));
    CHECK_FALSE(message->has_read_request);
    for (const Side* side : {pair.a.get(), pair.b.get()}) CHECK(side->qp.state() == qp::State::error);
  }
}

TEST_CASE("V-STOP-06: what came before an error is delivered before it takes effect", "[qp][V-STOP-06][W-DDP-13]") {
  const auto seed = GENERATE(1, 2, 3, 4, 5, 6);
  (void)seed;
  Scene s({}, Moves::late);
  Region& to = s.raw.us->region(4000);
  s.raw.us->post_receive({Side::sge(to, 0, 2000)});
  const auto bad = tagged(0, true, {0x7FFFFF00}, 0, filled(8));
  s.raw.say_octets(s.raw.fpdu(untagged(3, true, 0, 1, 0, filled(1000))) + s.raw.fpdu(bad));
  s.raw.run();
  expect_terminate(s.raw, bad, 0x1100, Header::ddp);
  REQUIRE(s.raw.us->app.completions.size() == 1);
  CHECK(s.raw.us->app.completions[0].status == qp::Status::success);
}

TEST_CASE("W-MPA-79: a responder whose first FPDU is bad for MPA says nothing", "[qp][W-MPA-79]") {
  Raw raw(responder_start());
  SECTION("a bad CRC: no Terminate, a FIN") {
    Octets fpdu = raw.fpdu(untagged(3, true, 0, 1, 0, filled(8)));
    fpdu[20] ^= std::byte{1};
    raw.say_octets(fpdu);
    raw.run();
    CHECK(raw.heard.empty());
    CHECK(raw.us->app.events == std::vector<qp::Event>{qp::Event::crc_error});
    CHECK(raw.tcp.peer_closed());
  }
  SECTION("good for MPA, bad for DDP: a Terminate") {
    const auto ulpdu = untagged(3, true, 7, 1, 0);
    raw.say(ulpdu);
    expect_terminate(raw, ulpdu, 0x1201, Header::ddp);
  }
}
