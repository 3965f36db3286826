// Connection without rdma_cm as an application sees it: queue pairs that are told each other's numbers by
// ibv_modify_qp, with the real provider, daemon and data plane.
#include <arpa/inet.h>

#include <cstring>
#include <memory>
#include <string>

#include "unit/provider/oob.hpp"

using namespace rnic;
using namespace rnic::test;
using namespace rnic::test::oob;

TEST_CASE("two queue pairs that are told each other's numbers are connected, and either may send first",
          "[wired][oob]") {
  TwoEnds t;
  const bool lower_first = GENERATE(true, false);
  End& first = lower_first ? t.x : t.y;
  End& second = lower_first ? t.y : t.x;
  first.ready(second);
  CHECK(state_of(first.qp) == IBV_QPS_RTS);
  second.ready(first);
  const bool first_speaks = GENERATE(true, false);
  passes(first_speaks ? first : second, first_speaks ? second : first, 10);
  passes(first_speaks ? second : first, first_speaks ? first : second, 20);
  CHECK(state_of(first.qp) == IBV_QPS_RTS);
  CHECK(state_of(second.qp) == IBV_QPS_RTS);
}

TEST_CASE("in RTR a queue pair receives and completes, and sends once it is in RTS", "[wired][oob]") {
  TwoEnds t;
  End& in_rtr = GENERATE(true, false) ? t.x : t.y;
  End& in_rts = &in_rtr == &t.x ? t.y : t.x;
  REQUIRE(in_rtr.to_init() == 0);
  REQUIRE(in_rtr.to_rtr(in_rts) == 0);
  in_rts.ready(in_rtr);
  passes(in_rts, in_rtr, 1);
  CHECK(state_of(in_rtr.qp) == IBV_QPS_RTR);
  CHECK(state_of(in_rts.qp) == IBV_QPS_RTS);
  REQUIRE(in_rtr.to_rts() == 0);
  CHECK(state_of(in_rtr.qp) == IBV_QPS_RTS);
  passes(in_rtr, in_rts, 3);
}

TEST_CASE("what is posted in RTS waits for a peer that comes later", "[wired][oob]") {
  TwoEnds t;
  End& early = GENERATE(true, false) ? t.x : t.y;
  End& late = &early == &t.x ? t.y : t.x;
  early.ready(late);
  REQUIRE(early.send(1) == 0);
  ibv_wc wc{};
  usleep(50'000);
  CHECK(provider::poll_cq(early.cq, 1, &wc) == 0);
  REQUIRE(late.to_init() == 0);
  REQUIRE(late.receive(2) == 0);
  REQUIRE(late.to_rtr(early) == 0);
  expect(late.cq, 2);
  expect(early.cq, 1);
}

TEST_CASE("InfiniBand's attributes are kept and told", "[wired][oob]") {
  TwoEnds t;
  t.x.ready(t.y);
  const ibv_qp_attr told = t.x.asked();
  CHECK(told.qp_state == IBV_QPS_RTS);
  CHECK(told.pkey_index == 0);
  CHECK(told.port_num == 1);
  CHECK(told.path_mtu == IBV_MTU_1024);
  CHECK(told.dest_qp_num == t.y.qp->qp_num);
  CHECK(told.rq_psn == 0x123456);
  CHECK(told.sq_psn == 0xABCDEF);
  CHECK(told.max_dest_rd_atomic == 3);
  CHECK(told.max_rd_atomic == 2);
  CHECK(told.min_rnr_timer == 12);
  CHECK(told.timeout == 14);
  CHECK(told.retry_cnt == 7);
  CHECK(told.rnr_retry == 6);
  CHECK(told.ah_attr.is_global == 1);
  CHECK(told.ah_attr.sl == 2);
  CHECK(told.ah_attr.grh.sgid_index == 1);
  CHECK(told.ah_attr.grh.hop_limit == 9);
  CHECK(std::memcmp(told.ah_attr.grh.dgid.raw, gid_of(2).raw, 16) == 0);
  CHECK(told.qp_access_flags == kRemote);
  REQUIRE(t.x.reset() == 0);
  CHECK(t.x.asked().dest_qp_num == 0);
  CHECK(t.x.asked().sq_psn == 0);
}

TEST_CASE("a Modify that names no peer, or one that cannot be, changes nothing", "[wired][oob]") {
  TwoEnds t;
  REQUIRE(t.x.reset() == 0);
  CHECK(t.x.to_rtr(t.y) == EINVAL);  // not out of RESET
  REQUIRE(t.x.to_init() == 0);
  CHECK(t.x.to_rts() == EINVAL);
  const auto refused = [&](auto change, int mask = kRtrMask) {
    ibv_qp_attr attributes = t.x.rtr(t.y);
    change(attributes);
    return t.x.modify(attributes, mask) == EINVAL && state_of(t.x.qp) == IBV_QPS_INIT;
  };
  const auto as_it_is = [](ibv_qp_attr&) {};
  CHECK(refused([](ibv_qp_attr& to) { to.ah_attr.is_global = 0; }));
  CHECK(refused([](ibv_qp_attr& to) { to.ah_attr.grh.dgid = {}; }));
  CHECK(refused([](ibv_qp_attr& to) { to.ah_attr.grh.sgid_index = 2; }));  // an empty place
  CHECK(refused([](ibv_qp_attr& to) { to.ah_attr.grh.sgid_index = 200; }));
  CHECK(refused([](ibv_qp_attr& to) { to.dest_qp_num = 1; }));
  CHECK(refused([](ibv_qp_attr& to) { to.dest_qp_num = 0xFFFFFF; }));
  CHECK(refused([](ibv_qp_attr& to) { to.rq_psn = 0x1000000; }));
  CHECK(refused([](ibv_qp_attr& to) { to.path_mtu = static_cast<ibv_mtu>(0); }));
  CHECK(refused(as_it_is, kRtrMask & ~IBV_QP_DEST_QPN));
  CHECK(refused(as_it_is, kRtrMask & ~IBV_QP_RQ_PSN));
  CHECK(refused(as_it_is, kRtrMask & ~IBV_QP_AV));
  REQUIRE(t.x.to_rtr(t.y) == 0);
  CHECK(t.x.to_rtr(t.y) == EINVAL);
  ibv_qp_attr drained{};
  drained.qp_state = IBV_QPS_SQD;
  CHECK(t.x.modify(drained, IBV_QP_STATE) == EINVAL);
  REQUIRE(t.x.to_rts() == 0);
  CHECK(t.x.modify(drained, IBV_QP_STATE) == EINVAL);
  t.y.ready(t.x);
  passes(t.x, t.y, 1);
  CHECK(t.x.modify(drained, IBV_QP_STATE) == EINVAL);
  CHECK(state_of(t.x.qp) == IBV_QPS_RTS);
}

TEST_CASE("one that names another PSN, number or GID is never connected", "[wired][oob]") {
  TwoEnds t;
  End z{t.b, 2, 0x777};
  REQUIRE(t.x.to_init() == 0);
  SECTION("PSN") {
    ibv_qp_attr wrong = t.x.rtr(t.y);
    wrong.rq_psn ^= 1;
    REQUIRE(t.x.modify(wrong, kRtrMask) == 0);
  }
  SECTION("number") {
    ibv_qp_attr wrong = t.x.rtr(t.y);
    wrong.dest_qp_num = z.qp->qp_num;
    REQUIRE(t.x.modify(wrong, kRtrMask) == 0);
  }
  SECTION("GID") {
    ibv_qp_attr wrong = t.x.rtr(t.y);
    wrong.ah_attr.grh.dgid = gid_of(3);
    REQUIRE(t.x.modify(wrong, kRtrMask) == 0);
  }
  REQUIRE(t.x.to_rts() == 0);
  t.y.ready(t.x);
  REQUIRE(t.y.receive(1) == 0);
  REQUIRE(t.x.send(2) == 0);
  usleep(300'000);
  ibv_wc wc{};
  CHECK(provider::poll_cq(t.x.cq, 1, &wc) == 0);
  CHECK(provider::poll_cq(t.y.cq, 1, &wc) == 0);
  // As soon as they mean each other they are.
  REQUIRE(t.x.reset() == 0);
  t.x.drain();
  t.x.ready(t.y);
  REQUIRE(t.x.send(3) == 0);
  expect(t.x.cq, 3);
  expect(t.y.cq, 1);
}

TEST_CASE("one for which its process has no connection left is connected when another ends", "[wired][oob]") {
  // Of 16 connections a process has twelve.
  TwoEnds t((std::string(kOobDevices) + "streams_max = 16\n").c_str());
  t.x.ready(t.y);
  t.y.ready(t.x);
  passes(t.x, t.y, 1);
  std::vector<std::unique_ptr<End>> ends;
  for (std::uint32_t i = 0; i < 12; ++i) {
    ends.push_back(std::make_unique<End>(t.a, 1, 0x100 + i));
    ends.push_back(std::make_unique<End>(t.b, 2, 0x200 + i));
    End &caller = *ends[2 * i], &called = *ends[2 * i + 1];
    caller.ready(called);
    called.ready(caller);
    if (i < 11) passes(caller, called, 10 * i);
  }
  End &caller = *ends[22], &called = *ends[23];
  REQUIRE(called.receive(500) == 0);
  REQUIRE(caller.send(501) == 0);
  usleep(200'000);
  ibv_wc wc{};
  CHECK(provider::poll_cq(caller.cq, 1, &wc) == 0);
  REQUIRE(t.y.reset() == 0);
  expect(caller.cq, 501);
  expect(called.cq, 500);
}

TEST_CASE("two queue pairs of one device, and one with itself", "[wired][oob]") {
  TwoEnds t;
  End z{t.a, 1, 0x42};
  t.x.ready(z);
  z.ready(t.x);
  passes(t.x, z, 1);
  passes(z, t.x, 3);
  End alone{t.a, 1, 0x99};
  alone.ready(alone);
  std::memset(alone.memory.data(), 's', 64);
  REQUIRE(alone.receive(1) == 0);
  REQUIRE(alone.send(2) == 0);
  const auto both = poll(alone.cq, 2);
  CHECK(both[0].status == IBV_WC_SUCCESS);
  CHECK(both[1].status == IBV_WC_SUCCESS);
  CHECK(std::memcmp(alone.memory.data(), alone.memory.data() + 1024, 64) == 0);
  // A Read of its own memory, too.
  alone.memory[2048] = 'r';
  REQUIRE(post(alone.qp,
               {5,
                IBV_WR_RDMA_READ,
                IBV_SEND_SIGNALED,
                {reinterpret_cast<std::uintptr_t>(alone.memory.data()) + 2048, alone.mr->rkey}},
               {sge_of(alone.mr, alone.memory.data() + 3000, 1)}) == 0);
  expect(alone.cq, 5);
  CHECK(alone.memory[3000] == 'r');
}

TEST_CASE("ERR, RESET and RTS, to the same peer and to another, again and again", "[wired][oob]") {
  TwoEnds t;
  End z{t.b, 2, 0x500};
  constexpr int kRounds = 1000;
  for (int i = 0; i < kRounds; ++i) {
    End& peer = i % 3 == 2 ? z : t.y;
    if (i % 2 == 0) t.x.psn = peer.psn = static_cast<std::uint32_t>(i);  // every second time as before
    t.x.ready(peer);
    peer.ready(t.x);
    passes(i % 2 != 0 ? t.x : peer, i % 2 != 0 ? peer : t.x, 10);
    // What is under way when it ends comes late, if at all.
    (void)t.x.send(90);
    (void)peer.send(91);
    // It is under way: the turn that answers the second question comes after one that has looked at what was posted.
    if (i % 5 == 0)
      for (int asked = 0; asked < 2; ++asked) (void)state_of(peer.qp);
    // Both or one after the other's reset.
    if (i % 2 != 0) REQUIRE(t.x.fail() == 0);
    REQUIRE(t.x.reset() == 0);
    if (i % 5 == 0) {
      for (int waited = 0; waited < 20'000 && state_of(peer.qp) == IBV_QPS_RTS; ++waited) usleep(100);
      CHECK(state_of(peer.qp) == IBV_QPS_ERR);
    }
    REQUIRE(peer.reset() == 0);
    for (End* end : {&t.x, &peer}) {
      CHECK(state_of(end->qp) == IBV_QPS_RESET);
      ibv_wc wc{};
      CHECK(provider::poll_cq(end->cq, 1, &wc) == 0);
    }
  }
}

namespace {

// What two devices have said, to be said once more.
class Tape {
 public:
  explicit Tape(Wired& wired) : wired_(wired) {
    on_workers([this](control::ServedDevice& served, Reel& reel) { served.first().device->add_tap(reel); });
  }
  ~Tape() {
    on_workers([this](control::ServedDevice& served, Reel& reel) { served.first().device->remove_tap(reel); });
  }
  // All since it was last asked.
  std::vector<std::vector<std::byte>> take(std::size_t device) {
    std::vector<std::vector<std::byte>> taken;
    on_workers([&](control::ServedDevice&, Reel& reel) {
      if (&reel == &reels_[device]) taken.swap(reel.frames);
    });
    return taken;
  }
  // Returns when the other has heard all of them, and has had turns to answer.
  void say(std::size_t device, const std::vector<std::vector<std::byte>>& frames) {
    const std::uint64_t due = heard(1 - device) + frames.size();
    on_workers([&](control::ServedDevice& served, Reel& reel) {
      if (&reel != &reels_[device]) return;
      for (const auto& frame : frames) {
        BufferRef buffer = BufferRef::take(served.port->pool(), static_cast<std::uint32_t>(frame.size()));
        REQUIRE(buffer);
        std::copy(frame.begin(), frame.end(), buffer->append(static_cast<std::uint32_t>(frame.size())).begin());
        Buffer* const one = buffer.release();
        REQUIRE(served.port->send_burst(&one, 1) == 1);
      }
    });
    REQUIRE(comes_true([&] { return heard(1 - device) >= due; }));
    for (int turns = 0; turns < 4; ++turns) (void)heard(device);
  }

 private:
  std::uint64_t heard(std::size_t device) {
    std::uint64_t frames = 0;
    on_workers([&](control::ServedDevice& served, Reel& reel) {
      if (&reel == &reels_[device]) frames = served.first().device->counters().frames_in;
    });
    return frames;
  }
  struct Reel final : port::Tap {
    void on_frame(port::FrameDirection direction, Bytes frame) override {
      if (direction == port::FrameDirection::sent) frames.emplace_back(frame.begin(), frame.end());
    }
    std::vector<std::vector<std::byte>> frames;
  };
  void on_workers(const std::function<void(control::ServedDevice&, Reel&)>& what) {
    wired_.at_daemon([&](control::Machine& machine, control::Server&) {
      for (std::size_t i = 0; i < 2; ++i)
        machine.devices[i]->first().worker->call([&](Instant) { what(*machine.devices[i], reels_[i]); });
    });
  }

  Wired& wired_;
  Reel reels_[2];
};

}  // namespace

TEST_CASE("frames of the stream before come when it is in RTS again: nothing of them is placed or completes",
          "[wired][oob][late]") {
  TwoEnds t;
  Tape tape(t);
  constexpr int kRounds = 1000;
  std::vector<std::vector<std::byte>> old[2];
  for (int i = 0; i < kRounds; ++i) {
    if (i % 2 == 0) t.x.psn = t.y.psn = static_cast<std::uint32_t>(i);  // every second time as before
    t.x.ready(t.y);
    t.y.ready(t.x);
    passes(t.x, t.y, 10 + static_cast<std::uint64_t>(i));
    for (End* end : {&t.x, &t.y}) {
      std::memset(end->memory.data() + 1024, 0, 128);
      REQUIRE(end->receive(30) == 0);
    }
    (void)tape.take(0);
    (void)tape.take(1);
    for (std::size_t device = 0; device < 2; ++device) tape.say(device, old[device]);
    for (const End* end : {&t.x, &t.y}) {
      ibv_wc wc{};
      REQUIRE(provider::poll_cq(end->cq, 1, &wc) == 0);
      REQUIRE(std::all_of(end->memory.begin() + 1024, end->memory.begin() + 1152, [](char each) { return each == 0; }));
      REQUIRE(state_of(end->qp) == IBV_QPS_RTS);
    }
    // Messages, Writes, and what ends it, in either order.
    for (End* end : {&t.x, &t.y}) {
      End& peer = end == &t.x ? t.y : t.x;
      std::memset(end->memory.data(), 'a' + i % 26, 64);
      REQUIRE(end->send(40) == 0);
      REQUIRE(post(end->qp,
                   {41,
                    IBV_WR_RDMA_WRITE,
                    IBV_SEND_SIGNALED,
                    {reinterpret_cast<std::uintptr_t>(peer.memory.data()) + 1088, peer.mr->rkey}},
                   {sge_of(end->mr, end->memory.data(), 64)}) == 0);
    }
    if (i % 3 != 0) {  // else they end while this is under way
      for (ibv_cq* cq : {t.x.cq, t.y.cq})
        for (const ibv_wc& wc : poll(cq, 3)) REQUIRE(wc.status == IBV_WC_SUCCESS);
    }
    End& first = i % 2 == 0 ? t.x : t.y;
    REQUIRE(first.fail() == 0);
    REQUIRE(first.reset() == 0);
    REQUIRE((&first == &t.x ? t.y : t.x).reset() == 0);
    for (std::size_t device = 0; device < 2; ++device) old[device] = tape.take(device);
    if (i % 3 != 0) REQUIRE(old[0].size() + old[1].size() > 2);
    t.x.drain();
    t.y.drain();
  }
}

TEST_CASE("RESET takes what was posted and what had completed with it, and all places are free", "[wired][oob]") {
  TwoEnds t;
  for (int round = 0; round < 3; ++round) {
    t.x.ready(t.y);
    t.y.ready(t.x);
    for (std::uint64_t i = 0; i < 64; ++i) REQUIRE(t.y.receive(i) == 0);
    CHECK(t.y.receive(64) == ENOMEM);
    for (std::uint64_t i = 0; i < 10; ++i) REQUIRE(t.x.send(i) == 0);
    expect(t.x.cq, 0);
    expect(t.y.cq, 0);
    REQUIRE(t.x.reset() == 0);
    REQUIRE(t.y.reset() == 0);
    for (End* end : {&t.x, &t.y}) {
      ibv_wc wc{};
      CHECK(provider::poll_cq(end->cq, 1, &wc) == 0);
    }
  }
  // Posted before it was ever connected: likewise.
  for (std::uint64_t i = 0; i < 64; ++i) REQUIRE(t.y.receive(i) == 0);
  REQUIRE(t.y.reset() == 0);
  t.x.ready(t.y);
  t.y.ready(t.x);
  for (std::uint64_t i = 0; i < 64; ++i) REQUIRE(t.y.receive(100 + i) == 0);
  REQUIRE(t.x.send(7) == 0);
  expect(t.x.cq, 7);
  expect(t.y.cq, 100);
}

TEST_CASE("a peer that goes when nothing is under way is not noticed", "[wired][oob]") {
  TwoEnds t;
  End& stays = GENERATE(true, false) ? t.x : t.y;
  End& goes = &stays == &t.x ? t.y : t.x;
  const bool in_rtr = GENERATE(true, false);
  goes.ready(stays);
  REQUIRE(stays.to_init() == 0);
  REQUIRE(stays.to_rtr(goes) == 0);
  if (!in_rtr) REQUIRE(stays.to_rts() == 0);
  for (std::uint64_t i = 0; i < 8; ++i) REQUIRE(stays.receive(100 + i) == 0);
  REQUIRE(goes.send(1) == 0);
  expect(goes.cq, 1);
  REQUIRE(provider::destroy_qp(goes.qp) == 0);
  goes.qp = nullptr;
  expect(stays.cq, 100);
  usleep(100'000);
  ibv_wc wc{};
  CHECK(provider::poll_cq(stays.cq, 1, &wc) == 0);
  CHECK(state_of(stays.qp) == (in_rtr ? IBV_QPS_RTR : IBV_QPS_RTS));
  CHECK_FALSE(next_async(stays.app, 0).has_value());
  if (in_rtr) REQUIRE(stays.to_rts() == 0);
  REQUIRE(stays.send(5) == 0);  // waits
  CHECK(provider::poll_cq(stays.cq, 1, &wc) == 0);
  // And the queue pair is as good as before.
  REQUIRE(stays.reset() == 0);
  stays.drain();
  End other{goes.app, goes.host, 0x4242};
  stays.ready(other);
  other.ready(stays);
  passes(other, stays, 7);
}

TEST_CASE("one whose peer says FIN and no more waits for a Modify, and not for ever", "[wired][oob]") {
  TwoEnds t;
  End& stays = GENERATE(true, false) ? t.x : t.y;
  End& goes = &stays == &t.x ? t.y : t.x;
  stays.ready(goes);
  goes.ready(stays);
  passes(stays, goes, 1);
  passes(goes, stays, 3);
  // No application of ours can do so; what calls itself an rnic may.
  t.at_daemon([&](control::Machine& machine, control::Server&) {
    control::Qp& qp = *machine.qps.at(goes.qp->qp_num);
    control::ServedDevice& device = qp.context->device();
    device.first().worker->call([&](Instant now) {
      REQUIRE(qp.qp->modify_state(qp::State::closing, now));
      device.first().device->touch(*qp.qp);
    });
  });
  using Stage = control::Rendezvous::Stage;
  const QpNumber number{stays.qp->qp_num};
  std::optional<Stage> stage;
  const auto left = [&] {
    t.at_daemon([&](control::Machine&, control::Server& server) { stage = server.rendezvous().stage(number); });
    return stage != Stage::together;
  };
  REQUIRE(comes_true(left));
  CHECK(stage == Stage::left);  // so what is posted fails in time
  CHECK(state_of(stays.qp) == IBV_QPS_RTS);
  REQUIRE(stays.reset() == 0);
  stays.drain();
  REQUIRE(goes.reset() == 0);
  stays.ready(goes);
  goes.ready(stays);
  passes(goes, stays, 5);
}

TEST_CASE("rdma_cm does not take a queue pair that has its peer by Modify", "[wired][oob]") {
  TwoEnds t;
  REQUIRE(t.x.to_init() == 0);
  REQUIRE(t.x.to_rtr(t.y) == 0);
  CHECK_FALSE(t.may_connect(t.x.qp));
  REQUIRE(t.x.reset() == 0);
  CHECK(t.may_connect(t.x.qp));
}
