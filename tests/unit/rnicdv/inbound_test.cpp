// What comes from a peer, as the application has it that it is for: Sends and what they take, what waits for a receive
// and what does not, and octets that come before and after their time. Provider, daemon and data plane.
#include "unit/rnicdv/raw_peer.hpp"

using namespace rnic;
using namespace rnic::test;
using namespace rnic::test::raw;

namespace {

std::string part(const RawPeer& t, std::size_t at, std::size_t size) { return {t.memory_a.data() + at, size}; }

}  // namespace

TEST_CASE("V-SR-01: a Send takes one receive and says how long it was, and a Write takes none",
          "[wired][rnicdv][V-SR-01][V-SR-03][V-SR-11][V-RTS-02]") {
  RawPeer t;
  for (std::uint64_t i = 0; i < 4; ++i) REQUIRE(post_receive(t.qp_a, i, {t.sge(64 * i, 64)}) == 0);
  std::uint32_t msn = 0;
  for (const std::uint32_t size : {5u, 0u, 64u}) {
    const std::uint64_t id = msn++;
    // The Write is there when the receive behind it completes.
    t.say_octets(fpdu(tagged(0, t.mr_a->rkey, t.to(1024 + 8 * id), "a Write.")) +
                 fpdu(message(msn, Octets(size, 's'))));
    const ibv_wc wc = poll(t.cq_a, 1)[0];
    CHECK(part(t, 1024 + 8 * id, 8) == "a Write.");
    CHECK(wc.wr_id == id);
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.opcode == IBV_WC_RECV);
    CHECK(wc.byte_len == size);
    CHECK(part(t, 64 * id, 64) == std::string(size, 's') + std::string(64 - size, '\0'));
  }
  // In two segments; and one that is posted when the queue is as good as empty goes to its end.
  REQUIRE(post_receive(t.qp_a, 4, {t.sge(256, 2), t.sge(300, 62)}) == 0);
  t.say_octets(fpdu(untagged(3, 0, 4, "in ", 0, false)) + fpdu(untagged(3, 0, 4, "two", 3)));
  CHECK(poll(t.cq_a, 1)[0].byte_len == 6);
  CHECK(part(t, 192, 7) == std::string("in two\0", 7));
  t.say(message(5, "abc"));
  CHECK(poll(t.cq_a, 1)[0].wr_id == 4);
  CHECK(part(t, 256, 3) == std::string("ab\0", 3));
  CHECK(t.memory_a[300] == 'c');
  CHECK(t.nothing_completes());
}

TEST_CASE("V-SR-06: a Send without a receive is set aside; Writes go on, and Reads and Sends wait behind it",
          "[wired][rnicdv][V-SR-06][V-SEC-15]") {
  RawPeer t;
  std::memcpy(t.memory_a.data() + 512, "read", 4);
  t.say_octets(fpdu(message(1, "first")) + fpdu(read_request(1, 4, t.mr_a->rkey, t.to(512))) +
               fpdu(message(2, "second")) + fpdu(tagged(0, t.mr_a->rkey, t.to(1024), "W")));
  const volatile char& written = t.memory_a[1024];
  REQUIRE(comes_true([&] { return written == 'W'; }));
  REQUIRE(t.hears_nothing());
  CHECK(t.nothing_completes());
  CHECK(t.attr().state == RNICDV_QPS_RTS);
  // What it may still do itself.
  REQUIRE(post(t.qp_a, {9}, {t.sge(512, 4)}) == 0);
  expect(t.cq_a, 9);
  CHECK(t.hear() == message(1, "read"));
  REQUIRE(post_receive(t.qp_a, 1, {t.sge(0, 64)}) == 0);
  CHECK(poll(t.cq_a, 1)[0].byte_len == 5);
  CHECK(part(t, 0, 5) == "first");
  CHECK(t.hear() == tagged(2, 1, 0, "read"));
  CHECK(t.nothing_completes());
  REQUIRE(post_receive(t.qp_a, 2, {t.sge(64, 64)}) == 0);
  CHECK(poll(t.cq_a, 1)[0].byte_len == 6);
  CHECK(part(t, 64, 6) == "second");
}

TEST_CASE("V-CONN-05: what the peer says in iWARP before there is a queue pair is that's, whole and once",
          "[wired][rnicdv][V-CONN-05][V-CONN-07][V-CONN-09]") {
  const std::size_t early =
      GENERATE(std::size_t{1}, std::size_t{2}, std::size_t{19}, std::size_t{40}, std::size_t{500});
  streams::Streamed t;
  t.open();
  const bool by_caller = GENERATE(true, false);
  rnicdv_stream *const ours = by_caller ? t.stream_a : t.stream_b, *const peers = by_caller ? t.stream_b : t.stream_a;
  ibv_qp* const qp = by_caller ? t.qp_a : t.qp_b;
  ibv_cq* const cq = by_caller ? t.cq_a : t.cq_b;
  ibv_mr* const mr = by_caller ? t.mr_a : t.mr_b;
  std::vector<char>& memory = by_caller ? t.memory_a : t.memory_b;
  for (std::uint64_t i = 0; i < 9; ++i) REQUIRE(post_receive(qp, i, {sge_of(mr, memory.data() + 64 * i, 64)}) == 0);
  Octets all;
  for (std::uint32_t msn = 1; msn <= 9; ++msn)
    all += fpdu(message(msn, Octets(20 + msn, static_cast<char>('0' + msn))));
  // Words of its own handshake are in front of that, and are not iWARP's.
  streams::send(peers, "hello" + all.substr(0, early));
  CHECK(streams::receive(ours, 5) == "hello");
  REQUIRE(streams::attach(qp, ours) == 0);
  streams::send(peers, all.substr(std::min(early, all.size())));
  for (std::uint32_t i = 0; i < 9; ++i) {
    const ibv_wc wc = poll(cq, 1)[0];
    CHECK(wc.wr_id == i);
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.byte_len == 21 + i);
    CHECK(memory[64 * i + 20 + i] == static_cast<char>('1' + i));
  }
}

TEST_CASE("V-IDLE-06: what is posted behind a close of the peer's stays, until Error and Idle take it",
          "[wired][rnicdv][V-IDLE-06][V-IDLE-05][V-TDN-01]") {
  RawPeer t;
  t.close_peer();
  REQUIRE(t.comes_to(RNICDV_QPS_IDLE));
  REQUIRE(post(t.qp_a, {1}, {t.sge(0, 8)}) == 0);
  REQUIRE(post_receive(t.qp_a, 2, {t.sge(0, 8)}) == 0);
  usleep(20'000);
  CHECK(t.nothing_completes());
  CHECK(t.attr().state == RNICDV_QPS_IDLE);
  REQUIRE(modify(t.qp_a, RNICDV_QP_STATE, mod_of(RNICDV_QPS_ERROR, 0, 0, 0)) == 0);
  for (const ibv_wc& wc : poll(t.cq_a, 2)) CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
  REQUIRE(comes_true([&] { return modify(t.qp_a, RNICDV_QP_STATE, mod_of(RNICDV_QPS_IDLE, 0, 0, 0)) == 0; }));
  CHECK(t.nothing_completes());
  CHECK(t.no_event());
}
