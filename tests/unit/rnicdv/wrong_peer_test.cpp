// Every row of verbs.md s9 that a peer can cause, as the application that it happens to is told of it: by an event or a
// completion, by the Terminate that Query QP has, and by nothing in its memory. Provider, daemon and data plane; the
// peer says its octets by hand.
#include <functional>

#include "unit/rnicdv/raw_peer.hpp"

using namespace rnic;
using namespace rnic::test;
using namespace rnic::test::raw;

namespace {

constexpr std::uint32_t kMissing = 0x7FFFFF00;
constexpr std::uint32_t kFatal = IBV_EVENT_QP_FATAL, kMalformed = IBV_EVENT_QP_REQ_ERR,
                        kAccess = IBV_EVENT_QP_ACCESS_ERR;

enum class Copy { nothing, ddp, ddp_and_read };

struct Row {
  const char* what;
  std::function<Octets(RawPeer&)> ulpdu;
  unsigned code;
  Copy copy;
  std::uint32_t event;
  unsigned rights = RawPeer::kRemote;
  std::uint32_t ird = 4;
};

Octets changed(Octets octets, std::size_t at, unsigned bits) {
  octets[at] = static_cast<char>(static_cast<std::uint8_t>(octets[at]) ^ bits);
  return octets;
}

ibv_mr* region(RawPeer& t, int rights, bool of_another_domain = false) {
  ibv_pd* const own = t.a.pd;
  if (of_another_domain) t.a.pd = provider::alloc_pd(context_of(t.a));
  ibv_mr* mr = t.a.make_mr(t.memory_a.data(), 64, rights);
  t.a.pd = own;
  REQUIRE(mr != nullptr);
  return mr;
}

const Row kRows[] = {
    {"V-EH-05: a tagged segment of 13 octets", [](RawPeer& t) { return tagged(0, t.mr_a->rkey, t.to()).substr(0, 13); },
     0x1000, Copy::nothing, kFatal},
    {"V-EH-05: an untagged one of 17", [](RawPeer&) { return message(1).substr(0, 17); }, 0x1000, Copy::nothing,
     kFatal},
    {"V-EH-08: a DDP version, tagged", [](RawPeer& t) { return changed(tagged(0, t.mr_a->rkey, t.to(), "x"), 0, 3); },
     0x1104, Copy::ddp, kMalformed},
    {"V-EH-08: a DDP version, untagged", [](RawPeer&) { return changed(message(1), 0, 1); }, 0x1206, Copy::ddp,
     kMalformed},
    {"V-EH-09: a queue", [](RawPeer&) { return untagged(3, 4, 1); }, 0x1201, Copy::ddp, kMalformed},
    {"V-EH-10: an STag", [](RawPeer& t) { return tagged(0, kMissing, t.to(), "x"); }, 0x1100, Copy::ddp, kAccess},
    {"V-EH-10: a key", [](RawPeer& t) { return tagged(0, t.mr_a->rkey ^ 1, t.to(), "x"); }, 0x1100, Copy::ddp, kAccess},
    {"V-EH-11: an octet behind the region",
     [](RawPeer& t) { return tagged(0, t.mr_a->rkey, t.to(t.memory_a.size() - 1), "xy"); }, 0x1101, Copy::ddp, kAccess},
    {"V-EH-11: an octet in front of it", [](RawPeer& t) { return tagged(0, t.mr_a->rkey, t.to() - 1, "xy"); }, 0x1101,
     Copy::ddp, kAccess},
    {"V-EH-12: another domain's region",
     [](RawPeer& t) { return tagged(0, region(t, RawPeer::kAll, true)->rkey, t.to(), "x"); }, 0x1102, Copy::ddp,
     kAccess},
    {"V-EH-13: a wrap", [](RawPeer& t) { return tagged(0, t.mr_a->rkey, ~0ull, "xy"); }, 0x1103, Copy::ddp, kAccess},
    {"V-EH-14: a region that may not be written",
     [](RawPeer& t) { return tagged(0, region(t, IBV_ACCESS_REMOTE_READ)->rkey, t.to(), "x"); }, 0x1102, Copy::ddp,
     kAccess},
    {"V-EH-15: an MSN of the past", [](RawPeer&) { return message(0); }, 0x1203, Copy::ddp, kMalformed},
    {"V-EH-16: an MSN of the future", [](RawPeer&) { return message(2); }, 0x1203, Copy::ddp, kMalformed},
    {"V-EH-17: a Read where none may be", [](RawPeer& t) { return read_request(1, 8, t.mr_a->rkey, t.to()); }, 0x1203,
     Copy::ddp, kMalformed, RawPeer::kRemote, 0},
    {"V-EH-18: a Read behind the next", [](RawPeer& t) { return read_request(2, 8, t.mr_a->rkey, t.to()); }, 0x1203,
     Copy::ddp, kMalformed},
    {"V-EH-19: a Read far behind it", [](RawPeer& t) { return read_request(1000, 8, t.mr_a->rkey, t.to()); }, 0x1203,
     Copy::ddp, kMalformed},
    {"V-EH-21: an RDMAP version", [](RawPeer&) { return changed(message(1), 1, 0x80); }, 0x0205, Copy::ddp, kMalformed},
    {"V-EH-22: an opcode", [](RawPeer&) { return untagged(13, 0, 1); }, 0x0206, Copy::ddp, kMalformed},
    {"V-EH-22: a Read Response that nobody asked for", [](RawPeer& t) { return tagged(2, t.mr_a->rkey, t.to(), "x"); },
     0x0206, Copy::ddp, kMalformed},
    {"V-EH-23: a Read, and Reads are disabled", [](RawPeer& t) { return read_request(1, 8, t.mr_a->rkey, t.to()); },
     0x1201, Copy::ddp, kAccess, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE},
    {"V-EH-24: a Write, and Writes are disabled", [](RawPeer& t) { return tagged(0, t.mr_a->rkey, t.to(), "x"); },
     0x1102, Copy::ddp, kAccess, IBV_ACCESS_REMOTE_READ},
    {"V-EH-25: a Read Request at an offset", [](RawPeer&) { return untagged(1, 1, 1, Octets(28, '\0'), 4); }, 0x1204,
     Copy::ddp, kMalformed},
    {"V-EH-25: a Read Request of 27 octets", [](RawPeer&) { return untagged(1, 1, 1, Octets(27, '\0')); }, 0x0207,
     Copy::ddp, kMalformed},
    {"V-EH-26: a Read Request that is not the last",
     [](RawPeer&) { return untagged(1, 1, 1, Octets(28, '\0'), 0, false); }, 0x0207, Copy::ddp, kMalformed},
    {"V-EH-27: a Read of no STag", [](RawPeer& t) { return read_request(1, 8, kMissing, t.to()); }, 0x0100,
     Copy::ddp_and_read, kAccess},
    {"V-EH-28: a Read of an octet too many",
     [](RawPeer& t) {
       return read_request(1, static_cast<std::uint32_t>(t.memory_a.size() + 1), t.mr_a->rkey, t.to());
     },
     0x0101, Copy::ddp_and_read, kAccess},
    {"V-EH-29: a Read of a region that may not be read",
     [](RawPeer& t) {
       return read_request(1, 8, region(t, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)->rkey, t.to());
     },
     0x0102, Copy::ddp_and_read, kAccess},
    {"V-EH-30: a Read of another domain's region",
     [](RawPeer& t) { return read_request(1, 8, region(t, RawPeer::kAll, true)->rkey, t.to()); }, 0x0103,
     Copy::ddp_and_read, kAccess},
    {"V-EH-31: a Read that wraps", [](RawPeer& t) { return read_request(1, 8, t.mr_a->rkey, ~0ull); }, 0x0104,
     Copy::ddp_and_read, kAccess},
};

// The Terminate that the peer hears: this code, and of what was wrong so much.
void expect_terminate(RawPeer& t, unsigned code, Copy copy, const Octets& ulpdu) {
  const auto heard = t.hear_terminate();
  REQUIRE(heard);
  CHECK(heard->code.word() == code);
  CHECK(heard->has_length == (copy != Copy::nothing));
  CHECK(heard->has_read_request == (copy == Copy::ddp_and_read));
  const std::size_t header = static_cast<std::uint8_t>(ulpdu[0]) & 0x80 ? 14 : 18;
  REQUIRE(heard->ddp_header_size == (copy == Copy::nothing ? 0 : header));
  if (copy == Copy::nothing) {
    CHECK(t.said_terminate.substr(2) == Octets(2, '\0'));  // V-STOP-09
    return;
  }
  CHECK(heard->segment_length == ulpdu.size());  // V-STOP-08
  CHECK(std::memcmp(heard->ddp_header.data(), ulpdu.data(), header) == 0);
  if (copy == Copy::ddp_and_read)
    CHECK(std::memcmp(heard->read_request.data(), ulpdu.data() + 18, wire::ReadRequestHeader::kSize) == 0);
}

// Query QP has it, as whoever sent it.
void expect_record(RawPeer& t, std::uint32_t origin) {
  const rnicdv_qp_attr is = t.attr();
  CHECK(is.terminate_origin == origin);
  CHECK(Octets(reinterpret_cast<const char*>(is.terminate), is.terminate_length) == t.said_terminate);
}

}  // namespace

TEST_CASE("V-EH-08: what a peer says wrong is told to its application, once, and by Query QP",
          "[wired][rnicdv][V-EH-05][V-EH-09][V-EH-10][V-EH-11][V-EH-12][V-EH-13][V-EH-14][V-EH-15][V-EH-16][V-EH-17]"
          "[V-EH-18][V-EH-19][V-EH-21][V-EH-22][V-EH-23][V-EH-24][V-EH-25][V-EH-26][V-EH-27][V-EH-28][V-EH-29][V-EH-30]"
          "[V-EH-31][V-AE-05][V-AE-08][V-AE-09][V-AE-10][V-AE-11][V-AE-14][V-AE-15][V-AE-23][V-AE-24][V-AE-25][V-AE-26]"
          "[V-AE-27][V-STOP-04][V-STOP-08][V-STOP-10][V-IRD-08][V-SEC-18][V-TDN-05][V-TDN-06][V-ERRST-07][V-TERM-10]") {
  for (const Row& row : kRows) {
    INFO(row.what);
    RawPeer t(4, row.ird, row.rights);
    REQUIRE(post_receive(t.qp_a, 1, {t.sge(0, 8)}) == 0);
    REQUIRE(post_receive(t.qp_a, 2, {t.sge(0, 8)}) == 0);
    const Octets ulpdu = row.ulpdu(t);
    const std::vector<char> before = t.memory_a;
    // What follows it, of which nothing is wrong, is not looked at. What is wrong with a Read's source is found when
    // its Response is made, by when more may have come.
    const Octets late = fpdu(message(1, "late")) + fpdu(tagged(0, t.mr_a->rkey, t.to(), "late"));
    t.say_octets(fpdu(ulpdu) + (row.copy == Copy::ddp_and_read ? Octets() : late));
    expect_terminate(t, row.code, row.copy, ulpdu);
    CHECK(t.event() == row.event);
    t.close_peer();
    expect(t.cq_a, 1, IBV_WC_WR_FLUSH_ERR);
    expect(t.cq_a, 2, IBV_WC_WR_FLUSH_ERR);
    REQUIRE(t.comes_to(RNICDV_QPS_ERROR));
    expect_record(t, 1);
    CHECK(t.no_event());
    CHECK(t.nothing_completes());
    CHECK((t.memory_a == before));
  }
}

TEST_CASE("V-EH-06: an FPDU whose CRC is bad is told as such, and nothing of it is placed",
          "[wired][rnicdv][V-EH-06][V-AE-06][V-STOP-04][V-STOP-09]") {
  RawPeer t;
  REQUIRE(post_receive(t.qp_a, 1, {t.sge(0, 8)}) == 0);
  const Octets write = tagged(0, t.mr_a->rkey, t.to(), Octets(100, 'x'));
  Octets octets = fpdu(write);
  octets[40] = static_cast<char>(octets[40] ^ 1);
  t.say_octets(octets + fpdu(write));
  expect_terminate(t, 0x2002, Copy::nothing, write);
  CHECK(t.event() == kFatal);
  expect(t.cq_a, 1, IBV_WC_WR_FLUSH_ERR);
  expect_record(t, 1);
  CHECK((t.memory_a == std::vector<char>(t.memory_a.size())));
}

TEST_CASE("V-EH-34: what is wrong with a Send is told by the receive that it took, and by no event",
          "[wired][rnicdv][V-EH-20][V-EH-32][V-EH-33][V-EH-35][V-EH-37][V-CS-07][V-CS-11][V-ERR-01][V-INV-07]") {
  RawPeer t;
  Octets ulpdu;
  unsigned code = 0;
  ibv_wc_status status = IBV_WC_LOC_ACCESS_ERR;
  Copy copy = Copy::ddp;
  ibv_sge into = t.sge(0, 8);
  const auto invalidates = [](std::uint32_t stag) { return untagged(4, 0, 1, "x", 0, true, stag); };
  SECTION("V-EH-20: longer than the receive") {
    ulpdu = message(1, "nine char");
    code = 0x1205;
    status = IBV_WC_LOC_LEN_ERR;
  }
  SECTION("V-EH-32: no such STag to be invalidated") {
    ulpdu = invalidates(kMissing);
    code = 0x0100;
  }
  SECTION("V-EH-33: an STag without a remote right") {
    ulpdu = invalidates(region(t, IBV_ACCESS_LOCAL_WRITE)->rkey);
    code = 0x0102;
  }
  SECTION("V-EH-34: another domain's") {
    ulpdu = invalidates(region(t, RawPeer::kAll, true)->rkey);
    code = 0x0109;
  }
  SECTION("V-EH-35: a shared region") {
    ibv_mr* mr = region(t, RawPeer::kAll);
    const rnicdv_mr_init again{
        .iova = t.to(), .access = RNICDV_LOCAL_READ | RNICDV_LOCAL_WRITE | RNICDV_REMOTE_WRITE, .key = 1};
    REQUIRE(rnicdv_reg_shared_mr(mr, t.a.pd, &again) != nullptr);
    ulpdu = invalidates(mr->rkey);
    code = 0x0109;
  }
  SECTION("V-EH-37: a receive of no STag") {
    ulpdu = message(1, "x");
    into.lkey = kMissing;
    code = 0x0000;
    status = IBV_WC_LOC_PROT_ERR;
    copy = Copy::nothing;
  }
  REQUIRE(post_receive(t.qp_a, 1, {into}) == 0);
  REQUIRE(post_receive(t.qp_a, 2, {t.sge(0, 8)}) == 0);
  t.say_octets(fpdu(ulpdu) + fpdu(message(2, "late")));
  expect_terminate(t, code, copy, ulpdu);
  expect(t.cq_a, 1, status);
  expect(t.cq_a, 2, IBV_WC_WR_FLUSH_ERR);
  CHECK(t.no_event());
  expect_record(t, 1);
}

TEST_CASE("V-EH-38: what is wrong with work of the send queue is told by its completion, and the peer hears 0x0000",
          "[wired][rnicdv][V-EH-38][V-STOP-03][V-STOP-09][V-RTS-09][V-TDN-05]") {
  RawPeer t;
  REQUIRE(post(t.qp_a, {1}, {t.sge(0, 8)}) == 0);
  REQUIRE(post(t.qp_a, {2}, {{t.to(), 8, kMissing}}) == 0);
  REQUIRE(post(t.qp_a, {3}, {t.sge(0, 8)}) == 0);
  expect(t.cq_a, 1);
  expect(t.cq_a, 2, IBV_WC_LOC_PROT_ERR);
  expect(t.cq_a, 3, IBV_WC_WR_FLUSH_ERR);
  CHECK(t.hear() == message(1, Octets(8, '\0')));
  expect_terminate(t, 0, Copy::nothing, message(1));
  CHECK(t.no_event());
  expect_record(t, 1);
}

TEST_CASE("V-EH-36: a Terminate is told, kept for Query QP, and not answered",
          "[wired][rnicdv][V-EH-36][V-RTS-10][V-AE-02][V-TDN-04][V-STOP-11][V-TERM-07][V-QQP-10][V-QQP-11]") {
  RawPeer t;
  REQUIRE(post_receive(t.qp_a, 1, {t.sge(0, 8)}) == 0);
  REQUIRE(post(t.qp_a, {2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, {0x1000, 5}}, {t.sge(0, 8)}) == 0);
  REQUIRE(t.hear());
  t.said_terminate = Octets("\x02\x06\0\0", 4);
  // What it says behind that is not looked at, right or wrong.
  t.say_octets(fpdu(untagged(7, 2, 1, t.said_terminate)) + fpdu(message(1, "late")) + fpdu(message(9)));
  CHECK(t.event() == kFatal);
  CHECK_FALSE(t.hear());
  CHECK(t.attr().state == RNICDV_QPS_TERMINATE);
  expect_record(t, 2);
  t.close_peer();
  REQUIRE(t.comes_to(RNICDV_QPS_ERROR));
  expect_record(t, 2);
  CHECK(t.no_event());
  for (const ibv_wc& wc : poll(t.cq_a, 2)) CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
  CHECK(t.nothing_completes());
  CHECK((t.memory_a == std::vector<char>(t.memory_a.size())));
}

TEST_CASE("V-EH-03: a peer that closes while a Read is outstanding is told of, and hears 0x0207",
          "[wired][rnicdv][V-EH-03][V-AE-22][V-TDN-07]") {
  RawPeer t;
  REQUIRE(post(t.qp_a, {2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, {0x1000, 5}}, {t.sge(0, 8)}) == 0);
  REQUIRE(t.hear());
  t.close_peer();
  CHECK(t.event() == kFatal);
  expect(t.cq_a, 2, IBV_WC_WR_FLUSH_ERR);
  REQUIRE(t.comes_to(RNICDV_QPS_ERROR));
  const rnicdv_qp_attr is = t.attr();
  CHECK(is.terminate_origin == 1);
  REQUIRE(is.terminate_length == 4);
  CHECK((is.terminate[0] == 0x02 && is.terminate[1] == 0x07));
}
