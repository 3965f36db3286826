// Applications on a daemon whose data plane runs: two devices and the wire between them, a context of the provider's on
// each, and queue pairs that are connected. What libibverbs and librdmacm would do is done here.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <vector>

#include "kit/catch.hpp"
#include "system/bare/channel.hpp"
#include "unit/provider/daemon.hpp"

namespace rnic::test {

// Until it is so; false: it never is.
inline bool comes_true(const std::function<bool()>& it, std::chrono::milliseconds limit = std::chrono::seconds(30)) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!it()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    usleep(100);
  }
  return true;
}

inline std::vector<ibv_wc> poll(ibv_cq* cq, std::size_t count) {
  std::vector<ibv_wc> all;
  comes_true([&] {
    ibv_wc wc{};
    while (all.size() < count && provider::poll_cq(cq, 1, &wc) == 1) all.push_back(wc);
    return all.size() == count;
  });
  REQUIRE(all.size() == count);
  return all;
}

// The next completion, which has to be this one.
inline void expect(ibv_cq* cq, std::uint64_t wr_id, ibv_wc_status status = IBV_WC_SUCCESS) {
  const ibv_wc wc = poll(cq, 1)[0];
  CHECK(wc.wr_id == wr_id);
  CHECK(wc.status == status);
}

inline ibv_qp_attr attributes_of(ibv_qp* qp) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  REQUIRE(provider::query_qp(qp, &attributes, IBV_QP_STATE, &init) == 0);
  return attributes;
}

inline ibv_qp_state state_of(ibv_qp* qp) { return attributes_of(qp).qp_state; }

inline int to_state(ibv_qp* qp, ibv_qp_state state, int mask = 0,
                    unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  attributes.qp_access_flags = access;
  return provider::modify_qp(qp, &attributes, IBV_QP_STATE | mask);
}

// ---- what is posted ----

inline ibv_sge sge_of(const ibv_mr* mr, const void* at, std::uint32_t length) {
  return {reinterpret_cast<std::uintptr_t>(at), length, mr->lkey};
}

struct Remote {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
};

struct Work {
  std::uint64_t wr_id = 0;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  unsigned flags = IBV_SEND_SIGNALED;
  Remote remote{};
};

inline int post(ibv_qp* qp, const Work& work, std::vector<ibv_sge> sges = {}) {
  ibv_send_wr wr{};
  wr.wr_id = work.wr_id;
  wr.sg_list = sges.data();
  wr.num_sge = static_cast<int>(sges.size());
  wr.opcode = work.opcode;
  wr.send_flags = work.flags;
  wr.wr.rdma = {work.remote.address, work.remote.rkey};
  ibv_send_wr* bad = nullptr;
  return provider::post_send(qp, &wr, &bad);
}

inline int post_receive(ibv_qp* qp, std::uint64_t wr_id, std::vector<ibv_sge> sges = {}) {
  ibv_recv_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = sges.data();
  wr.num_sge = static_cast<int>(sges.size());
  ibv_recv_wr* bad = nullptr;
  return provider::post_recv(qp, &wr, &bad);
}

inline int post_receive(ibv_srq* srq, std::uint64_t wr_id, std::vector<ibv_sge> sges = {}) {
  ibv_recv_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = sges.data();
  wr.num_sge = static_cast<int>(sges.size());
  ibv_recv_wr* bad = nullptr;
  return provider::post_srq_recv(srq, &wr, &bad);
}

// ---- two applications and a wire ----

class Wired {
 public:
  static constexpr const char* kTwoDevices =
      "sched_fifo = false\n"
      "[[device]]\nport = \"pair:w\"\naddress = \"127.0.9.1/24\"\nmtu = 1500\n"
      "[[device]]\nport = \"pair:w\"\naddress = \"127.0.9.2/24\"\nmtu = 1500\n";
  static constexpr const char* kTwoDirect =
      "sched_fifo = false\n"
      "[[device]]\nport = \"pair:w\"\naddress = \"127.0.9.1/24\"\nmtu = 1500\nlocal = \"direct\"\n"
      "[[device]]\nport = \"pair:w\"\naddress = \"127.0.9.2/24\"\nmtu = 1500\nlocal = \"direct\"\n";

  explicit Wired(const char* devices = kTwoDevices)
      : live_(DataPlane::turns, devices),
        channel_(client(RNIC_CLIENT_CM)),
        a(dup(client(RNIC_CLIENT_VERBS).descriptor()), "rnic0"),
        b(dup(client(RNIC_CLIENT_VERBS).descriptor()), "rnic1") {
    listener_ = bare::listening(channel_, bare::address_of(b.context->device));
  }

  struct Ids {
    std::uint32_t caller = 0, called = 0;
  };
  // From a's device to b's; both are in RTS then.
  Ids join(ibv_qp* caller, ibv_qp* called) {
    for (ibv_qp* qp : {caller, called}) REQUIRE(to_state(qp, IBV_QPS_INIT, IBV_QP_ACCESS_FLAGS) == 0);
    return accept(call(caller), called);
  }
  // The same in two steps, with the states and rights that the queue pairs have.
  Ids call(ibv_qp* caller) {
    Ids ids;
    ids.caller = channel_.create_id();
    REQUIRE(channel_.bind(ids.caller, bare::address_of(a.context->device)).good());
    REQUIRE(channel_.resolve_address(ids.caller, channel_.query(listener_).source).good());
    channel_.expect(RNIC_CM_ADDRESS_RESOLVED);
    REQUIRE(channel_.resolve_route(ids.caller).good());
    channel_.expect(RNIC_CM_ROUTE_RESOLVED);
    REQUIRE(channel_.connect(ids.caller, caller->qp_num).good());
    ids.called = channel_.expect(RNIC_CM_CONNECT_REQUEST).id;
    return ids;
  }
  Ids accept(const Ids& ids, ibv_qp* called) {
    REQUIRE(channel_.accept(ids.called, called->qp_num).good());
    channel_.expect(RNIC_CM_ESTABLISHED);
    channel_.expect(RNIC_CM_ESTABLISHED);
    return ids;
  }
  // Whether rdma_connect takes it, from a's device to where nobody accepts.
  bool may_connect(ibv_qp* caller) {
    const std::uint32_t id = channel_.create_id();
    REQUIRE(channel_.bind(id, bare::address_of(a.context->device)).good());
    REQUIRE(channel_.resolve_address(id, channel_.query(listener_).source).good());
    channel_.expect(RNIC_CM_ADDRESS_RESOLVED);
    REQUIRE(channel_.resolve_route(id).good());
    channel_.expect(RNIC_CM_ROUTE_RESOLVED);
    return channel_.connect(id, caller->qp_num).good();
  }
  // When the connection has ended, however it did.
  void forget(const Ids& ids) {
    for (int i = 0; i < 2; ++i) channel_.expect(RNIC_CM_DISCONNECTED);
    for (const std::uint32_t id : {ids.caller, ids.called}) REQUIRE(channel_.destroy_id(id).good());
  }
  // Of rdma_cm; its ids are of either device.
  bare::Channel& channel() { return channel_; }
  // For another context on one of the devices, beside a or b.
  int another_client() { return dup(client(RNIC_CLIENT_VERBS).descriptor()); }
  // A client of the daemon's, introduced; of another process, which draws its token.
  bare::Connection client(rnic_client_kind kind, const bare::ProcessToken& process) {
    bare::Connection connection{bare::Descriptor(live_.relay->connect())};
    rnic_hello hello{};
    hello.abi_version = RNIC_ABI_VERSION;
    hello.kind = kind;
    std::memcpy(hello.process, process.data(), process.size());
    REQUIRE(connection.ask(RNIC_HELLO, hello).good());
    return connection;
  }
  // Of this one.
  bare::Connection client(rnic_client_kind kind) {
    bare::Connection connection{bare::Descriptor(live_.relay->connect())};
    REQUIRE(connection.hello(kind).good());
    return connection;
  }
  // A completion channel, as libibverbs would hold it; for either end.
  ibv_comp_channel make_channel() {
    channels_.push_back(client(RNIC_CLIENT_CM));  // it lasts as long as its connection
    bare::Answer answer = channels_.back().ask(RNIC_CREATE_CHANNEL);
    REQUIRE(answer.good());
    ibv_comp_channel channel{};
    channel.fd = dup(answer.take(0).get());
    return channel;
  }
  // Before memory goes that the data plane may write to.
  void end() {
    a.end();
    b.end();
  }
  // What the daemon knows, on its control thread.
  template <typename Look>
  void at_daemon(Look&& look) {
    live_.run([&] { look(live_.machine, *live_.server); });
  }
  // From here on no worker turns: what comes next is what the application asks for, and no more.
  void stop_turning() {
    live_.run([&] {
      for (const auto& worker : live_.machine.workers) REQUIRE(worker->stop());
    });
  }

 private:
  LiveDaemon live_;
  bare::Channel channel_;
  std::uint32_t listener_ = 0;
  std::vector<bare::Connection> channels_;

 public:
  Application a, b;
};

// An async event of a context, if one comes in time: whom it is about, and its type.
struct Told {
  std::uint64_t object = 0;
  std::uint32_t type = 0;
};
inline std::optional<Told> next_async(const Application& app, int limit_ms) {
  pollfd one{app.context->async_fd, POLLIN, 0};
  if (::poll(&one, 1, limit_ms) != 1) return std::nullopt;
  std::uint64_t words[2] = {};
  if (recv(app.context->async_fd, words, sizeof words, MSG_DONTWAIT) < static_cast<ssize_t>(sizeof words))
    return std::nullopt;
  return Told{words[0], static_cast<std::uint32_t>(words[1])};
}

// A queue pair of each, connected, with completion queues of their own and memory that the other may reach.
struct WiredPair : Wired {
  static constexpr std::size_t kBytes = 16384;
  static constexpr int kRemote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

  struct End {
    ibv_cq* send_cq = nullptr;
    ibv_cq* receive_cq = nullptr;
    ibv_qp* qp = nullptr;
    std::vector<char> memory = std::vector<char>(kBytes);
    ibv_mr* mr = nullptr;

    ibv_sge sge(std::size_t offset, std::uint32_t length) const { return sge_of(mr, memory.data() + offset, length); }
    Remote remote(std::size_t offset = 0) const {
      return {reinterpret_cast<std::uintptr_t>(memory.data()) + offset, mr->rkey};
    }
  };

  explicit WiredPair(std::uint32_t depth = 64, ibv_srq* (*srq_of)(Application&) = nullptr,
                     const char* devices = kTwoDevices, int rights = kRemote)
      : Wired(devices) {
    set_up(a, end_a, depth, nullptr);
    if (srq_of != nullptr) srq = srq_of(b);
    set_up(b, end_b, depth, srq, rights);
    for (const End* end : {&end_a, &end_b})
      REQUIRE(to_state(end->qp, IBV_QPS_INIT, IBV_QP_ACCESS_FLAGS, static_cast<unsigned>(rights)) == 0);
    ids = accept(call(end_a.qp), end_b.qp);
  }
  ~WiredPair() { end(); }
  static void set_up(Application& app, End& end, std::uint32_t depth, ibv_srq* srq, int rights = kRemote) {
    REQUIRE(app.error == 0);
    end.send_cq = app.make_cq(1024);
    end.receive_cq = app.make_cq(1024);
    end.qp = app.make_qp(end.send_cq, end.receive_cq, depth, srq);
    end.mr = app.make_mr(end.memory.data(), kBytes, rights);
    REQUIRE(end.qp != nullptr);
    REQUIRE(end.mr != nullptr);
  }
  // Both back in RESET after an error, and connected again.
  void join_again() {
    for (End* end : {&end_a, &end_b}) {
      REQUIRE(to_state(end->qp, IBV_QPS_RESET) == 0);
      ibv_wc wc{};
      for (ibv_cq* cq : {end->send_cq, end->receive_cq})
        while (provider::poll_cq(cq, 1, &wc) == 1) {
        }
    }
    forget(ids);
    ids = join(end_a.qp, end_b.qp);
  }

  ibv_srq* srq = nullptr;
  End end_a, end_b;
  Ids ids;
};

}  // namespace rnic::test
