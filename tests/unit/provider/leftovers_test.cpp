// What those leave who have gone: streams that are not over yet, and places that others get. Provider, daemon and data
// plane.
#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <set>
#include <span>

#include "unit/provider/wired.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

constexpr int kRemote = WiredPair::kRemote;

bool nothing_completes(ibv_cq* cq) {
  ibv_wc wc{};
  return provider::poll_cq(cq, 1, &wc) == 0;
}

bool are_all(std::span<const char> octets, char one) {
  return std::all_of(octets.begin(), octets.end(), [one](char octet) { return octet == one; });
}
bool is_zeros(const QueueView& queue) { return are_all({queue.slots, std::size_t{queue.size} * queue.stride}, 0); }

ibv_qp* with_receives(Application& app, ibv_cq* cq, std::uint64_t count) {
  ibv_qp* qp = app.make_qp(cq, cq, 8);
  REQUIRE(qp != nullptr);
  REQUIRE(to_state(qp, IBV_QPS_INIT, IBV_QP_ACCESS_FLAGS) == 0);
  for (std::uint64_t id = 0; id < count; ++id) REQUIRE(post_receive(qp, id) == 0);
  return qp;
}

// Of the table, by the bits of an STag's index that say which it is.
std::uint32_t entry_of(std::uint32_t stag) {
  const std::uint64_t entries = control::Shares::for_one("", control::kRegionsMax).total();
  return stag >> 8 & (std::uint32_t{std::bit_ceil(static_cast<std::uint32_t>(entries + 1))} - 1);
}

// On the worker of a's device.
template <typename Look>
void at_device(Wired& t, const Look& look) {
  t.at_daemon([&](control::Machine& machine, control::Server&) {
    control::ServedDevice& device = *machine.devices[0];
    device.first().worker->call([&](Instant) { look(device); });
  });
}

std::size_t streams_of_a(Wired& t) {
  std::size_t count = 0;
  at_device(t, [&](control::ServedDevice& device) { count = device.first().device->streams().size(); });
  return count;
}

void b_turns(Wired& t, bool does) {
  t.at_daemon([does](control::Machine& machine, control::Server&) {
    control::ServedDevice& device = *machine.devices[1];
    device.first().worker->call([&](Instant) {
      device.first().worker->remove_device(*device.first().device);
      if (does) REQUIRE(device.first().worker->add_device(*device.first().device) == 0);
    });
  });
}

// One on a's device that is not that of a and b, and calls b by itself.
struct Process {
  Process(Wired& wired, const bare::ProcessToken& token)
      : t(wired),
        channel(t.client(RNIC_CLIENT_CM, token)),
        app(dup(t.client(RNIC_CLIENT_VERBS, token).descriptor()), "rnic0") {
    REQUIRE(app.error == 0);
    cq = app.make_cq(64);
    qp = app.make_qp(cq, cq, 8);
    REQUIRE(qp != nullptr);
  }
  void join(std::uint32_t listener, ibv_qp* far) {
    for (ibv_qp* each : {qp, far}) REQUIRE(to_state(each, IBV_QPS_INIT, IBV_QP_ACCESS_FLAGS) == 0);
    const std::uint32_t id = channel.create_id();
    REQUIRE(channel.bind(id, bare::address_of(app.context->device)).good());
    REQUIRE(channel.resolve_address(id, t.channel().query(listener).source).good());
    channel.expect(RNIC_CM_ADDRESS_RESOLVED);
    REQUIRE(channel.resolve_route(id).good());
    channel.expect(RNIC_CM_ROUTE_RESOLVED);
    REQUIRE(channel.connect(id, qp->qp_num).good());
    REQUIRE(t.channel().accept(t.channel().expect(RNIC_CM_CONNECT_REQUEST).id, far->qp_num).good());
    t.channel().expect(RNIC_CM_ESTABLISHED);
    channel.expect(RNIC_CM_ESTABLISHED);
  }

  Wired& t;
  bare::Channel channel;
  Application app;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
};

// From here on a's device has so many queue pairs for one process.
void let_have(Wired& t, std::uint64_t count) {
  t.at_daemon([count](control::Machine& machine, control::Server&) {
    REQUIRE(machine.devices[0]->qps.used() == 0);
    machine.devices[0]->qps.set_total(control::Shares::for_one("", count).total());
  });
}

}  // namespace

TEST_CASE("V-SEC-24: streams whose peers do not close keep no queue pair from being destroyed and made again",
          "[wired][V-SEC-24]") {
  constexpr std::size_t kCount = 40;
  Wired t;
  let_have(t, kCount);
  ibv_cq *const cq_a = t.a.make_cq(64), *const cq_b = t.b.make_cq(64);
  const auto make_all = [&] {
    std::vector<ibv_qp*> all;
    while (ibv_qp* qp = t.a.make_qp(cq_a, cq_a, 1)) all.push_back(qp);
    CHECK(errno == ENOMEM);
    REQUIRE(all.size() == kCount);
    return all;
  };
  std::vector<ibv_qp*> own = make_all();
  std::vector<Wired::Ids> ids;
  for (ibv_qp* qp : own) ids.push_back(t.join(qp, t.b.make_qp(cq_b, cq_b, 1)));
  b_turns(t, false);
  for (const Wired::Ids& each : ids) REQUIRE(t.channel().disconnect(each.caller).good());
  for (ibv_qp* qp : own) REQUIRE(provider::destroy_qp(qp) == 0);
  CHECK(streams_of_a(t) == kCount);
  own = make_all();
  CHECK(streams_of_a(t) == kCount);
  b_turns(t, true);
}

TEST_CASE("V-SEC-24: a queue pair whose stream is in TIME-WAIT is there for the next, as often as is wanted",
          "[wired][V-SEC-24][V-CLS-11]") {
  Wired t;
  let_have(t, 1);
  ibv_cq *const cq_a = t.a.make_cq(64), *const cq_b = t.b.make_cq(64);
  ibv_qp* const far = t.b.make_qp(cq_b, cq_b, 1);
  // Who closes first has the TIME-WAIT.
  const auto connect_and_close = [&](ibv_qp* qp) {
    const Wired::Ids ids = t.join(qp, far);
    REQUIRE(t.channel().disconnect(ids.caller).good());
    t.forget(ids);
    for (ibv_qp* each : {qp, far}) REQUIRE(comes_true([&] { return to_state(each, IBV_QPS_RESET) == 0; }));
  };
  for (int round = 0; round < 40; ++round) {
    ibv_qp* const qp = t.a.make_qp(cq_a, cq_a, 1);
    REQUIRE(qp != nullptr);
    connect_and_close(qp);
    connect_and_close(qp);
    REQUIRE(provider::destroy_qp(qp) == 0);
  }
  CHECK(comes_true([&] { return streams_of_a(t) == 0; }));
}

TEST_CASE("V-SEC-26: a completion queue in the place of another has none of its completions", "[wired][V-SEC-26]") {
  Wired t;
  ibv_cq* cq = t.a.make_cq(16);
  const void* const place = provider::of(cq).control;
  ibv_qp* qp = with_receives(t.a, cq, 8);
  REQUIRE(to_state(qp, IBV_QPS_ERR) == 0);
  REQUIRE(comes_true([&] {
    std::uint32_t unpolled = 0;
    t.at_daemon([&](control::Machine& machine, control::Server&) {
      unpolled = machine.cqs_by_cookie.begin()->second->queue->unpolled();
    });
    return unpolled == 8;
  }));
  REQUIRE(provider::destroy_qp(qp) == 0);
  REQUIRE(provider::destroy_cq(cq) == 0);
  cq = t.a.make_cq(16);
  REQUIRE(provider::of(cq).control == place);
  CHECK(nothing_completes(cq));
  qp = with_receives(t.a, cq, 0);
  REQUIRE(post_receive(qp, 77) == 0);
  REQUIRE(to_state(qp, IBV_QPS_ERR) == 0);
  expect(cq, 77, IBV_WC_WR_FLUSH_ERR);
  CHECK(nothing_completes(cq));
}

TEST_CASE("V-SEC-26: a queue pair in the place of another has none of its receives", "[wired][V-SEC-26]") {
  Wired t;
  ibv_cq* const cq = t.a.make_cq(64);
  ibv_qp* qp = with_receives(t.a, cq, 8);
  const void *const send = Application::view(qp).send.slots, *const receive = Application::view(qp).receive.slots;
  REQUIRE(provider::destroy_qp(qp) == 0);
  qp = t.a.make_qp(cq, cq, 8);
  const QpView view = Application::view(qp);
  REQUIRE((view.send.slots == send && view.receive.slots == receive));
  CHECK(is_zeros(view.send));
  CHECK(is_zeros(view.receive));
  REQUIRE(to_state(qp, IBV_QPS_INIT, IBV_QP_ACCESS_FLAGS) == 0);
  REQUIRE(to_state(qp, IBV_QPS_ERR) == 0);
  usleep(20'000);  // what was to be flushed would be by now
  CHECK(nothing_completes(cq));
  REQUIRE(post_receive(qp, 77) == 0);
  expect(cq, 77, IBV_WC_WR_FLUSH_ERR);
  CHECK(nothing_completes(cq));
}

TEST_CASE("V-SEC-26: a shared receive queue in the place of another has none of its receives", "[wired][V-SEC-26]") {
  Wired t;
  std::vector<char> memory(64), sent(64, 's');
  ibv_mr* const mr = t.b.make_mr(memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
  ibv_mr* const source = t.a.make_mr(sent.data(), sent.size(), IBV_ACCESS_LOCAL_WRITE);
  ibv_cq *const cq_a = t.a.make_cq(16), *const cq_b = t.b.make_cq(16);
  ibv_srq* srq = t.b.make_srq(8);
  const void* const place = Application::view(srq).queue.slots;
  for (std::uint64_t id = 0; id < 8; ++id) REQUIRE(post_receive(srq, id, {sge_of(mr, memory.data(), 64)}) == 0);
  REQUIRE(provider::destroy_srq(srq) == 0);
  srq = t.b.make_srq(8);
  REQUIRE(Application::view(srq).queue.slots == place);
  ibv_qp *const qp = t.a.make_qp(cq_a, cq_a, 8), *const far = t.b.make_qp(cq_b, cq_b, 8, srq);
  t.join(qp, far);
  REQUIRE(post(qp, {1, IBV_WR_SEND, 0}, {sge_of(source, sent.data(), 64)}) == 0);
  usleep(20'000);
  CHECK(nothing_completes(cq_b));
  CHECK(are_all(memory, 0));
  t.end();
}

TEST_CASE("V-SEC-26: a process that comes after another has neither its rights nor its numbers nor its octets",
          "[wired][V-SEC-26][V-SEC-25][V-MR-19]") {
  constexpr std::size_t kBytes = 4096;
  const bool reads = GENERATE(false, true);
  std::vector<char> memory(kBytes), far_memory(kBytes, 'f');
  Wired t;
  ibv_cq* const far_cq = t.b.make_cq(64);
  ibv_mr* const far_mr = t.b.make_mr(far_memory.data(), kBytes, kRemote);
  const auto asks = [&](ibv_qp* far, std::uint64_t id, const Remote& at) {
    const ibv_wr_opcode opcode = reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
    REQUIRE(post(far, {id, opcode, IBV_SEND_SIGNALED, at}, {sge_of(far_mr, far_memory.data(), 64)}) == 0);
  };
  Remote old{reinterpret_cast<std::uintptr_t>(memory.data()), 0};
  std::set<std::uint32_t> numbers;
  const std::uint32_t listener = bare::listening(t.channel(), bare::address_of(t.b.context->device));
  {
    Process first(t, {1});
    numbers.insert(first.qp->qp_num);
    old.rkey = first.app.make_mr(memory.data(), kBytes, kRemote)->rkey;
    ibv_qp* const far = t.b.make_qp(far_cq, far_cq, 8);
    first.join(listener, far);
    REQUIRE(post(first.qp, {1}) == 0);  // who was called speaks second
    std::memset(memory.data(), 'o', kBytes);
    asks(far, 2, old);
    expect(far_cq, 2);
    CHECK(far_memory[63] == (reads ? 'o' : 'f'));
    for (std::uint64_t id = 0; id < 8; ++id) REQUIRE(post_receive(first.qp, id) == 0);
  }
  std::memset(memory.data(), 's', kBytes);
  std::memset(far_memory.data(), 'f', kBytes);
  t.channel().expect(RNIC_CM_DISCONNECTED);
  // Nobody else has a domain of that number, but it does not stand on that alone.
  t.at_daemon([&](control::Machine& machine, control::Server&) {
    CHECK_FALSE(machine.devices[0]->table->query(Stag{old.rkey}));
    CHECK(machine.devices[0]->table->used() == 0);
  });
  Process second(t, {2});
  const QpView view = Application::view(second.qp);
  CHECK(is_zeros(view.send));
  CHECK(is_zeros(view.receive));
  CHECK(nothing_completes(second.cq));
  CHECK(numbers.insert(second.qp->qp_num).second);
  for (int i = 0; i < 300; ++i) {
    ibv_qp* const other = second.app.make_qp(second.cq, second.cq, 1);
    CHECK(numbers.insert(other->qp_num).second);
    REQUIRE(provider::destroy_qp(other) == 0);
  }
  // The same octets, and nobody else is to reach them.
  for (int i = 0; i < 300; ++i) {
    const ibv_mr* const mr = second.app.make_mr(memory.data(), kBytes, IBV_ACCESS_LOCAL_WRITE);
    CHECK(entry_of(mr->rkey) != entry_of(old.rkey));
  }
  ibv_qp* const far = t.b.make_qp(far_cq, far_cq, 8);
  second.join(listener, far);
  REQUIRE(post(second.qp, {1}) == 0);
  asks(far, 3, old);
  const auto told = next_async(second.app, 10'000);
  REQUIRE(told);
  CHECK(told->type == IBV_EVENT_QP_ACCESS_ERR);
  if (reads) expect(far_cq, 3, IBV_WC_REM_ACCESS_ERR);
  CHECK(are_all(memory, 's'));
  CHECK(are_all(far_memory, 'f'));
  second.app.end();
  t.end();
}
