// A context of the provider's with the real server at its other end, in this process. Its workers rest: what they would
// do, the test does, in the memory that both sides see. Between the two is a relay (kit/relay.hpp), which remembers
// what was asked and does harm where a test wants it.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "context.hpp"
#include "kit/live_daemon.hpp"

namespace rnic::test {

// A work queue as the data plane has it, by the application's own mapping of the same memory.
struct QueueView {
  rnic_ring_control* control = nullptr;
  char* slots = nullptr;
  std::uint32_t size = 0;
  std::uint32_t stride = 0;

  QueueView() = default;
  explicit QueueView(const provider::WorkQueue& queue)
      : control(queue.control), slots(reinterpret_cast<char*>(queue.slots)), size(queue.size), stride(queue.stride) {}
  std::uint32_t produced() const { return control->produced; }
  char* slot(std::uint32_t index) const { return slots + (index & (size - 1)) * stride; }
  rnic_sqe& sqe(std::uint32_t index) const { return *reinterpret_cast<rnic_sqe*>(slot(index)); }
};

struct QpView {
  QueueView send;
  QueueView receive;
};

struct SrqView {
  QueueView queue;
  std::uint32_t id(std::uint32_t index) const { return reinterpret_cast<rnic_rqe*>(queue.slot(index))->id; }
};

class TestDaemon {
 public:
  static constexpr const char* kTwoDevices =
      "sched_fifo = false\n"
      "[[device]]\nport = \"pair:t\"\naddress = \"127.0.9.1/24\"\nextensions = false\nmtu = 1500\n"
      "[[device]]\nport = \"pair:t\"\naddress = \"127.0.9.2/24\"\nextensions = false\nmtu = 1500\n";

  TestDaemon() : live_(DataPlane::rests, kTwoDevices) {
    const std::uint32_t mine = next_process_++;
    std::memcpy(process_, &mine, sizeof mine);
    process_[RNIC_PROCESS_TOKEN - 1] = 1;
    // The status page is the daemon's alone to write; this one is the test's, which is the data plane.
    relay().harm(RNIC_OPEN_CONTEXT, [this](const Asked&, Passing& reply) { take_pages(reply); });
    client = introduce();
  }
  ~TestDaemon() {
    if (page_ != nullptr) munmap(page_, sizeof(rnic_status_page));
    if (doorbells_ != nullptr) munmap(doorbells_, sizeof(rnic_doorbells));
  }

  // A connection that opens the device, as the stand-in would make it.
  int introduce() { return connect(RNIC_CLIENT_VERBS); }
  // As by kill -9: the socket closes, and nobody answers any more.
  void die() { relay().cut(); }

  rnic_status_page& page() { return *page_; }
  rnic_doorbells& doorbells() { return *doorbells_; }
  Relay& relay() { return *live_.relay; }
  LiveDaemon& live() { return live_; }

  // A completion channel, as libibverbs would hold it.
  ibv_comp_channel make_channel() {
    rnic_talk talk{rnic_libc_plain(), connect(RNIC_CLIENT_CM), 2, 0};
    rnic_create_channel_reply reply{};
    rnic_question question{};
    question.type = RNIC_CREATE_CHANNEL;
    question.reply = &reply;
    question.reply_room = sizeof reply;
    if (rnic_ask(&talk, &question) != 0) std::abort();
    ibv_comp_channel channel{};
    channel.fd = rnic_fds_take(&question.received);
    return channel;
  }

  // ---- what the data plane would do, on the daemon's threads ----
  // Has its event loop look at whatever there is.
  void settle() {
    for (int i = 0; i < 3; ++i) live_.run([] {});
  }
  control::Cq& server_side(const ibv_cq* cq) {
    return *find(live_.machine.cqs_by_cookie, reinterpret_cast<std::uintptr_t>(cq));
  }
  control::Qp& server_side(const ibv_qp* qp) {
    return *find(live_.machine.qps_by_cookie, reinterpret_cast<std::uintptr_t>(qp));
  }
  void push(const ibv_cq* cq, const rnic_cqe& cqe) {
    live_.run([&] {
      if (!server_side(cq).queue->push(cqe)) std::abort();
    });
  }
  // A completion event, whether the queue is armed or not.
  void fire(const ibv_cq* cq) {
    live_.run([&] {
      control::Cq& served = server_side(cq);
      served.context->on_completions(served);
    });
  }
  // An async event of a queue pair.
  void tell(const ibv_qp* qp, qp::Event event) {
    live_.run([&] {
      control::Qp& served = server_side(qp);
      served.context->on_qp_event(served, event);
    });
  }

  // ---- harm ----
  // From now on the queue pair is said to be in this state.
  void say_state(std::uint32_t state, std::uint32_t idle_name = RNIC_IDLE_RESET) {
    relay().harm(
        RNIC_QUERY_QP,
        [state, idle_name](const Asked&, Passing& reply) {
          auto body = reply.as<rnic_query_qp_reply>();
          body.state = state;
          body.idle_name = idle_name;
          reply.put(body);
        },
        0);
  }
  // The next context is opened with a status page of this version.
  void say_version(std::uint32_t version) { version_ = version; }

  // ---- what it was asked ----
  std::vector<rnic_reg_mr> registrations() { return all<rnic_reg_mr>(RNIC_REG_MR); }
  std::vector<rnic_modify_qp> modifications() { return all<rnic_modify_qp>(RNIC_MODIFY_QP); }
  std::uint32_t helper_tid() { return relay().last(RNIC_OPEN_CONTEXT).as<rnic_open_context>().helper_tid; }
  std::size_t holds() { return relay().count(RNIC_HOLD_EVENTS); }

  int client = -1;
  int worker_eventfd = -1;

 private:
  template <typename T>
  std::vector<T> all(std::uint32_t type) {
    std::vector<T> bodies;
    for (const Asked& each : relay().all(type)) bodies.push_back(each.as<T>());
    return bodies;
  }
  template <typename Object>
  static Object* find(const std::unordered_map<std::uint64_t, Object*>& objects, std::uint64_t user_pointer) {
    for (const auto& [cookie, object] : objects)
      if (object->user_pointer == user_pointer) return object;
    std::abort();
  }
  // Of one process; introduced, as the stand-in would.
  int connect(std::uint32_t kind) {
    const int socket = relay().connect();
    rnic_talk talk{rnic_libc_plain(), socket, 1, 0};
    rnic_hello hello{};
    hello.kind = kind;
    std::memcpy(hello.process, process_, sizeof process_);
    rnic_hello_reply reply;
    if (rnic_talk_hello(&talk, &hello, &reply) != 0) std::abort();
    return socket;
  }
  void take_pages(Passing& reply) {
    if (reply.fds.size() < 5) return;
    control::Descriptor page(memfd_create("page", MFD_CLOEXEC));
    if (ftruncate(page.get(), sizeof(rnic_status_page)) != 0) std::abort();
    page_ = static_cast<rnic_status_page*>(map(page.get(), sizeof(rnic_status_page)));
    if (pread(reply.fds[0].get(), page_, sizeof *page_, 0) != sizeof *page_) std::abort();
    page_->abi_version = version_;
    reply.fds[0] = std::move(page);
    doorbells_ = static_cast<rnic_doorbells*>(map(reply.fds[1].get(), sizeof(rnic_doorbells)));
    worker_eventfd = dup(reply.fds[4].get());
  }
  static void* map(int fd, std::size_t size) {
    void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) std::abort();
    return at;
  }

  inline static std::uint32_t next_process_ = 1;
  LiveDaemon live_;
  std::uint8_t process_[RNIC_PROCESS_TOKEN] = {};
  std::uint32_t version_ = RNIC_ABI_VERSION;
  rnic_status_page* page_ = nullptr;
  rnic_doorbells* doorbells_ = nullptr;
};

// How many messages a SEQPACKET socket holds; they stay there.
inline std::size_t unread(int socket) {
  int at = 0;
  if (setsockopt(socket, SOL_SOCKET, SO_PEEK_OFF, &at, sizeof at) != 0) std::abort();
  std::size_t count = 0;
  char octets[64];
  while (recv(socket, octets, sizeof octets, MSG_PEEK | MSG_DONTWAIT) > 0) ++count;
  at = -1;
  setsockopt(socket, SOL_SOCKET, SO_PEEK_OFF, &at, sizeof at);
  return count;
}

// An application's end: an open context, with a PD. Objects are made by the provider's operations,
// and what libibverbs would do around them is done here.
class Application {
 public:
  explicit Application(TestDaemon& daemon) : Application(daemon.client, "rnic0") {}
  // By a connection that is introduced.
  Application(int client, const char* device) {
    context = static_cast<provider::Context*>(std::calloc(1, sizeof(provider::Context)));
    error = provider::open_context(*context, client, device);
    if (error == 0) pd = provider::alloc_pd(&context->verbs.context);
  }
  ~Application() { end(); }
  // From then on no memory of its regions is written to. Whatever has such memory ends the application first.
  void end() {
    if (context == nullptr) return;
    if (error == 0) {
      provider::close_context(*context);
      close(context->async_fd);
    }
    std::free(context);
    context = nullptr;
  }

  ibv_cq* make_cq(int entries, ibv_comp_channel* channel = nullptr) {
    ibv_cq* cq = provider::create_cq(&context->verbs.context, entries, channel, 0);
    if (cq != nullptr) cq->channel = channel;
    return cq;
  }
  ibv_qp* make_qp(ibv_cq* send, ibv_cq* receive, std::uint32_t depth, ibv_srq* srq = nullptr, int signal_all = 0) {
    ibv_qp_init_attr init{};
    init.send_cq = send;
    init.recv_cq = receive;
    init.srq = srq;
    init.qp_type = IBV_QPT_RC;
    init.sq_sig_all = signal_all;
    init.cap = {depth, depth, 4, 4, 64};
    return provider::create_qp(pd, &init);
  }
  ibv_srq* make_srq(std::uint32_t depth) {
    ibv_srq_init_attr init{};
    init.attr = {depth, 4, 0};
    ibv_srq* srq = provider::create_srq(pd, &init);
    srq->context = &context->verbs.context;
    srq->pd = pd;
    return srq;
  }
  ibv_mr* make_mr(void* at, std::size_t size, int access) {
    ibv_mr* mr = provider::reg_mr(pd, at, size, reinterpret_cast<std::uintptr_t>(at), access);
    if (mr != nullptr) mr->context = &context->verbs.context;
    return mr;
  }

  static rnic_cq_control& control_of(ibv_cq* cq) { return *provider::of(cq).control; }
  static QpView view(ibv_qp* qp) { return {QueueView(provider::of(qp).send), QueueView(provider::of(qp).receive)}; }
  static SrqView view(ibv_srq* srq) { return {QueueView(provider::of(srq).queue)}; }

  provider::Context* context = nullptr;
  ibv_pd* pd = nullptr;
  int error = 0;
};

// A QP with a CQ of its own for each direction, and a registered buffer.
struct OneQp {
  explicit OneQp(std::uint32_t depth = 4, int signal_all = 0) : app(daemon) {
    send_cq = app.make_cq(16);
    receive_cq = app.make_cq(16);
    qp = app.make_qp(send_cq, receive_cq, depth, nullptr, signal_all);
    mr = app.make_mr(buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  }

  ibv_sge sge(std::uint32_t length, std::uint32_t offset = 0) {
    return {reinterpret_cast<std::uintptr_t>(buffer) + offset, length, mr->lkey};
  }
  ibv_send_wr write_of(ibv_sge& one, std::uint64_t wr_id, unsigned flags = IBV_SEND_SIGNALED) {
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = &one;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = flags;
    wr.wr.rdma = {0x1000, 0x77};
    return wr;
  }
  int post(ibv_send_wr& wr) {
    ibv_send_wr* bad = nullptr;
    const int result = provider::post_send(qp, &wr, &bad);
    REQUIRE((bad == &wr) == (result != 0));
    return result;
  }
  int post_write(std::uint64_t wr_id, unsigned flags = IBV_SEND_SIGNALED) {
    ibv_sge one = sge(8);
    ibv_send_wr wr = write_of(one, wr_id, flags);
    return post(wr);
  }
  int post_receive(std::uint64_t wr_id, std::uint32_t length = 64) {
    ibv_sge one = sge(length);
    ibv_recv_wr wr{};
    wr.wr_id = wr_id;
    wr.sg_list = &one;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return provider::post_recv(qp, &wr, &bad);
  }
  void complete_send(std::uint32_t slot, std::uint8_t opcode = RNIC_OP_WRITE, std::uint8_t status = RNIC_WC_SUCCESS) {
    rnic_cqe cqe{};
    cqe.qp_number = qp->qp_num;
    cqe.slot = slot;
    cqe.opcode = opcode;
    cqe.status = status;
    cqe.flags = RNIC_CQE_SEND_QUEUE;
    daemon.push(send_cq, cqe);
  }
  rnic_cqe received(std::uint32_t slot, std::uint32_t length) {
    rnic_cqe cqe{};
    cqe.qp_number = qp->qp_num;
    cqe.slot = slot;
    cqe.length = length;
    cqe.opcode = RNIC_OP_RECEIVE;
    return cqe;
  }

  alignas(64) char buffer[4096] = {};
  TestDaemon daemon;
  Application app;
  ibv_cq* send_cq = nullptr;
  ibv_cq* receive_cq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* mr = nullptr;
};

// Which CQ the event that waits there is of.
inline const void* take_event(const ibv_comp_channel& channel) {
  std::uint64_t named = 0;
  REQUIRE(recv(channel.fd, &named, sizeof named, MSG_DONTWAIT) == sizeof named);
  return reinterpret_cast<const void*>(named);
}

inline bool readable(int fd, int timeout_ms) {
  pollfd one{fd, POLLIN, 0};
  return poll(&one, 1, timeout_ms) == 1;
}

}  // namespace rnic::test
