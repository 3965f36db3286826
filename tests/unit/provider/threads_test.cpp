// Threads that make, use and let go of objects of one context at a time, as libibverbs lets them. Provider, daemon and
// data plane.
#include <atomic>
#include <string>
#include <thread>

#include "unit/provider/oob.hpp"

using namespace rnic;
using namespace rnic::test;
using namespace rnic::test::oob;

namespace {

constexpr std::uint32_t kThreads = 4, kRounds = 30;

// What a thread found wrong first. Catch's own checks are for one thread.
class Complaint {
 public:
  bool must(bool good, const char* what) {
    const char* none = nullptr;
    if (!good) what_.compare_exchange_strong(none, what);
    return good;
  }
  std::string text() const {
    const char* const what = what_.load();
    return what == nullptr ? "" : what;
  }
  bool any() const { return what_.load() != nullptr; }

 private:
  std::atomic<const char*> what_ = nullptr;
};

// One end of a connection, of objects that are its alone.
struct Own {
  Own(Application& app, std::uint8_t number, std::uint32_t from)
      : context(&app.context->verbs.context), host(number), psn(from) {}

  bool make(Complaint& wrong, bool shares) {
    pd = provider::alloc_pd(context);
    cq = provider::create_cq(context, 8, nullptr, 0);
    if (!wrong.must(pd != nullptr && cq != nullptr, "a PD or a CQ")) return false;
    mr = provider::reg_mr(pd, memory.data(), memory.size(), reinterpret_cast<std::uintptr_t>(memory.data()), kRemote);
    window = provider::alloc_mw(pd, IBV_MW_TYPE_1);
    ibv_srq_init_attr of_srq{};
    of_srq.attr = {4, 1, 0};
    if (shares) srq = provider::create_srq(pd, &of_srq);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.srq = srq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {4, 4, 1, 1, 16};
    qp = provider::create_qp(pd, &init);
    return wrong.must(mr != nullptr && window != nullptr && (srq != nullptr) == shares && qp != nullptr, "an object");
  }
  int modify(ibv_qp_attr attributes, int mask) {
    const int error = provider::modify_qp(qp, &attributes, mask);
    if (error == 0) qp->state = attributes.qp_state;
    return error;
  }
  bool connect(Complaint& wrong, const Own& peer) {
    ibv_qp_attr init{}, rtr{}, rts{};
    init.qp_state = IBV_QPS_INIT;
    init.port_num = 1;
    init.qp_access_flags = kRemote;
    rtr.qp_state = IBV_QPS_RTR;
    rtr.path_mtu = IBV_MTU_1024;
    rtr.dest_qp_num = peer.qp->qp_num;
    rtr.rq_psn = peer.psn;
    rtr.max_dest_rd_atomic = 1;
    rtr.ah_attr.is_global = rtr.ah_attr.port_num = 1;
    rtr.ah_attr.grh.dgid = gid_of(peer.host);
    rtr.ah_attr.grh.hop_limit = 9;
    rts.qp_state = IBV_QPS_RTS;
    rts.sq_psn = psn;
    rts.timeout = 14;
    rts.retry_cnt = rts.rnr_retry = 7;
    rts.max_rd_atomic = 1;
    return wrong.must(modify(init, kInitMask) == 0 && modify(rtr, kRtrMask) == 0 && modify(rts, kRtsMask) == 0,
                      "a Modify");
  }
  int receive(std::uint64_t id) {
    ibv_sge one = sge_of(mr, memory.data() + 512, 64);
    return srq != nullptr ? post_receive(srq, id, {one}) : post_receive(qp, id, {one});
  }
  bool told(Complaint& wrong, std::uint64_t id) {
    ibv_wc wc{};
    const bool came = comes_true([&] { return provider::poll_cq(cq, 1, &wc) != 0; });
    return wrong.must(came, "no completion") && wrong.must(wc.status == IBV_WC_SUCCESS, "a completion's status") &&
           wrong.must(wc.wr_id == id && wc.qp_num == qp->qp_num, "another's completion");
  }
  void let_go(Complaint& wrong) {
    if (qp != nullptr) wrong.must(provider::destroy_qp(qp) == 0, "destroy_qp");
    if (srq != nullptr) wrong.must(provider::destroy_srq(srq) == 0, "destroy_srq");
    if (window != nullptr) wrong.must(provider::dealloc_mw(window) == 0, "dealloc_mw");
    if (mr != nullptr) wrong.must(provider::dereg_mr(mr) == 0, "dereg_mr");
    if (cq != nullptr) wrong.must(provider::destroy_cq(cq) == 0, "destroy_cq");
    if (pd != nullptr) wrong.must(provider::dealloc_pd(pd) == 0, "dealloc_pd");
  }

  ibv_context* context;
  std::uint8_t host;
  std::uint32_t psn;
  std::vector<char> memory = std::vector<char>(4096);
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_srq* srq = nullptr;
  ibv_mr* mr = nullptr;
  ibv_mw* window = nullptr;
  ibv_qp* qp = nullptr;
};

void exchange(Complaint& wrong, Own& from, Own& to, std::uint64_t id) {
  std::memset(from.memory.data(), static_cast<int>('A' + id % 26), 64);
  if (!wrong.must(to.receive(id) == 0, "a receive")) return;
  if (!wrong.must(post(from.qp, {id + 1}, {sge_of(from.mr, from.memory.data(), 64)}) == 0, "a Send")) return;
  if (!from.told(wrong, id + 1) || !to.told(wrong, id)) return;
  wrong.must(std::memcmp(from.memory.data(), to.memory.data() + 512, 64) == 0, "the octets");
}

// A queue pair that reports to a queue that all threads poll, and that goes with what it has to tell.
void pass_by(Complaint& wrong, Application& app, ibv_cq* shared, std::atomic<std::uint32_t>& told) {
  ibv_qp* const qp = app.make_qp(shared, shared, 4);
  if (!wrong.must(qp != nullptr, "a queue pair of the shared CQ")) return;
  wrong.must(to_state(qp, IBV_QPS_INIT, IBV_QP_ACCESS_FLAGS) == 0, "INIT");
  for (std::uint64_t id = 0; id < 4; ++id) wrong.must(post_receive(qp, id) == 0, "a receive of the shared CQ");
  wrong.must(to_state(qp, IBV_QPS_ERR) == 0, "ERR");
  ibv_wc wc{};
  while (provider::poll_cq(shared, 1, &wc) == 1) {
    wrong.must(wc.status == IBV_WC_WR_FLUSH_ERR, "a flush");
    ++told;
  }
  wrong.must(provider::destroy_qp(qp) == 0, "destroy_qp of the shared CQ");
}

}  // namespace

TEST_CASE("threads make, use and let go of objects of one context at a time, each as if it were alone",
          "[wired][threads]") {
  Wired w(kOobDevices);
  Complaint wrong;
  ibv_cq* const shared = w.a.make_cq(256);
  std::atomic<std::uint32_t> told = 0;
  const auto work = [&](std::uint32_t thread) {
    for (std::uint32_t round = 0; round < kRounds && !wrong.any(); ++round) {
      const std::uint32_t number = thread * kRounds + round;
      Own x(w.a, 1, 1000 + number), y(w.b, 2, 2000 + number);
      const bool made = x.make(wrong, round % 2 == 0) && y.make(wrong, round % 3 == 0);
      if (made && x.connect(wrong, y) && y.connect(wrong, x)) {
        exchange(wrong, x, y, 10 * number);
        pass_by(wrong, w.a, shared, told);
        exchange(wrong, y, x, 10 * number + 5);
      }
      x.let_go(wrong);
      y.let_go(wrong);
    }
  };
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& each : threads) each.join();
  CHECK(wrong.text() == "");
  CHECK(told <= 4 * kThreads * kRounds);
  // All that is left are the shared queue, and the domain that each application begins with.
  w.at_daemon([](control::Machine& machine, control::Server&) {
    CHECK(machine.qps_by_cookie.empty());
    CHECK(machine.cqs_by_cookie.size() == 1);
    for (const auto& device : machine.devices) {
      CHECK(device->pds.used() == 1);
      CHECK(device->srqs.used() == 0);
      CHECK(device->stags.used() == 0);
    }
  });
  ibv_wc wc{};
  CHECK(provider::poll_cq(shared, 1, &wc) == 0);
  CHECK(provider::destroy_cq(shared) == 0);
  w.end();
}
