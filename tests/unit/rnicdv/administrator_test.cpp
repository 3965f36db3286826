// What an administrator sees of a peer that does harm, or nothing, and how he ends it: `rnic show` and `rnic kill`.
// Provider, daemon and data plane; the peer says its octets by hand.
#include <nlohmann/json.hpp>

#include "unit/rnicdv/mpa_peer.hpp"

using namespace rnic;
using namespace rnic::test;
using namespace rnic::test::raw;

namespace {

using Json = nlohmann::json;

Json shown(bare::Connection& admin, const std::string& what) {
  rnic_show request{};
  std::memcpy(request.what, what.data(), what.size());
  const bare::Answer answer = admin.ask(RNIC_SHOW, request);
  REQUIRE(answer.good());
  std::string text(answer.as<rnic_handle_reply>().handle, '\0');
  REQUIRE(pread(answer.fds.at(0).get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  return Json::parse(text)[what];
}

// The application's queue pair on a's device, and its connection.
struct Watched : MpaPeer {
  Watched() : MpaPeer(kMarked) {
    connect();
    for (std::uint64_t id = 1; id <= 3; ++id) REQUIRE(post_receive(qp_a, id, {sge(2048, 1024)}) == 0);
  }
  Json row_of(const char* what) {
    for (const Json& row : shown(admin, what))
      if (row["qp"] == qp_a->qp_num && row["device"] == "rnic0") return row;
    FAIL("it is not shown");
    return {};
  }
  std::uint64_t counted(const char* what, const char* counter) { return row_of(what)[counter].get<std::uint64_t>(); }
  rnic_kill addresses() {
    const rnic_cm_query_reply at = channel().query(id);
    return {at.source, at.destination};
  }

  bare::Connection admin = client(RNIC_CLIENT_ADMIN);
};

// Another stream of the same two devices, beside.
struct Bystander {
  explicit Bystander(Watched& t) : near(streams::open_to(t.a, streams::at(2, streams::kPort))) {
    REQUIRE(streams::wait_for(near));
    while ((far = rnicdv_stream_accept(t.listener, nullptr)) == nullptr) REQUIRE(streams::wait_for(t.listener));
  }
  void expect_well() {
    streams::send(far, "as before");
    CHECK(streams::receive(near, 9) == "as before");
  }
  rnicdv_stream *near, *far = nullptr;
};

}  // namespace

TEST_CASE("V-SEC-20: octets, receives held, segments out of order and errors are counted of each queue pair",
          "[wired][rnicdv][V-SEC-20]") {
  Watched t;
  Bystander bystander(t);
  for (const char* counter : {"bytes_in", "bytes_out", "sends_in", "fpdus_in", "receives_held", "errors"})
    CHECK(t.counted("qp", counter) == 0);
  CHECK(t.counted("conn", "out_of_order") == 0);
  SECTION("receives that a message has taken and not filled") {
    Octets begun = message(1, Octets(600, 'm'));
    begun[0] = static_cast<char>(static_cast<std::uint8_t>(begun[0]) & ~0x40u);  // not the last
    t.say(begun);
    REQUIRE(comes_true([&] { return t.counted("qp", "receives_held") == 1; }));
    t.say(untagged(3, 0, 1, Octets(100, 'n'), 600));
    CHECK(poll(t.cq_a, 1)[0].byte_len == 700);
    CHECK(t.counted("qp", "receives_held") == 0);
    CHECK(t.counted("qp", "sends_in") == 1);
    CHECK(t.counted("qp", "fpdus_in") == 2);
    CHECK(t.counted("qp", "bytes_in") == 700);
    REQUIRE(post(t.qp_a, {9}, {t.sge(0, 300)}) == 0);
    expect(t.cq_a, 9);
    CHECK(t.counted("qp", "bytes_out") == 300);
  }
  SECTION("segments that overtake others") {
    const Octets late = t.framed(message(1, "late"));
    Octets rest = t.framed(message(2, "early"));
    rest += t.framed(message(3, "early too"));
    t.overtake(late, rest);
    t.arrive();
    for (const unsigned length : {4u, 5u, 9u}) CHECK(poll(t.cq_a, 1)[0].byte_len == length);
    CHECK(t.counted("conn", "out_of_order") >= 1);
  }
  SECTION("an FPDU whose CRC is wrong") {
    Octets bad = t.framed(message(1, "bad"));
    bad.back() = static_cast<char>(bad.back() ^ 1);
    t.say_octets(bad);
    REQUIRE(t.hear_terminate());
    CHECK(t.counted("qp", "errors") == 1);
    CHECK(t.row_of("qp")["terminate"].get<std::string>().find("CRC") != std::string::npos);
  }
  for (const Json& row : shown(t.admin, "conn"))
    if (row["phase"] == "streaming" && row["qp"].is_null()) CHECK(row["out_of_order"] == 0);
  bystander.expect_well();
}

TEST_CASE("V-SEC-19: a stream in segments of an octet is seen, and one on which nothing passes",
          "[wired][rnicdv][V-SEC-19][V-SEC-20]") {
  Watched t;
  const std::uint64_t before = t.counted("conn", "segments_in");
  const Octets octets = t.framed(message(1, Octets(20, 't')));
  for (const char octet : octets) {
    const std::uint64_t seen = t.counted("conn", "segments_in");
    t.say_octets({octet});
    REQUIRE(comes_true([&] { return t.counted("conn", "segments_in") > seen; }));
  }
  CHECK(poll(t.cq_a, 1)[0].byte_len == 20);
  CHECK(t.counted("conn", "segments_in") - before >= octets.size());
  CHECK(t.counted("qp", "fpdus_in") == 1);
  const Json idle = t.row_of("qp");
  usleep(20'000);
  CHECK(t.row_of("qp") == idle);
}

TEST_CASE("V-SEC-19: an administrator ends the stream that he names, and no other",
          "[wired][rnicdv][V-SEC-19][W-RDMAP-63]") {
  Watched t;
  Bystander bystander(t);
  const rnic_kill one = t.addresses();
  rnic_kill other = one;
  SECTION("it is nobody else's to do") {
    for (const rnic_client_kind kind : {RNIC_CLIENT_VERBS, RNIC_CLIENT_CM}) {
      bare::Connection client = t.client(kind);
      CHECK(client.ask(RNIC_KILL, one).status == EPERM);
    }
  }
  SECTION("another port of the peer's") {
    other.remote.port ^= 1;
    CHECK(t.admin.ask(RNIC_KILL, other).status == ENOENT);
  }
  SECTION("another port here") {
    other.local.port ^= 1;
    CHECK(t.admin.ask(RNIC_KILL, other).status == ENOENT);
  }
  SECTION("another peer") {
    other.remote.octets[3] ^= 1;
    CHECK(t.admin.ask(RNIC_KILL, other).status == ENOENT);
  }
  SECTION("another address here") {
    other.local.octets[3] ^= 2;
    CHECK(t.admin.ask(RNIC_KILL, other).status == ENOENT);
  }
  SECTION("what is no address") {
    other.local = {};
    CHECK(t.admin.ask(RNIC_KILL, other).status == EINVAL);
    CHECK(t.admin.ask(RNIC_KILL).status == EINVAL);
  }
  CHECK(t.attr().state == RNICDV_QPS_RTS);
  REQUIRE(t.admin.ask(RNIC_KILL, one).good());
  t.expect_disconnected();
  for (std::uint64_t id = 1; id <= 3; ++id) expect(t.cq_a, id, IBV_WC_WR_FLUSH_ERR);
  CHECK(t.attr().state == RNICDV_QPS_ERROR);
  CHECK_FALSE(t.hear());
  CHECK(t.reset);
  CHECK(comes_true([&] { return t.admin.ask(RNIC_KILL, one).status == ENOENT; }));
  bystander.expect_well();
}
