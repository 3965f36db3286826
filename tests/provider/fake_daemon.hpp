// The daemon's end of a context, in this process: answers the provider's requests on a thread of
// its own, and lets a test see the work it was given and complete it as it likes.
//
// It holds to abi/ and to nothing else: what it makes is what abi/ says, in the simplest way (an
// area is never used again).
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "context.hpp"
#include "rnic_control.h"

namespace rnic::test {

// Memory that both sides see. Its descriptor stays open.
struct SharedMemory {
  int fd = -1;
  char* at = nullptr;
  std::size_t size = 0;

  explicit SharedMemory(std::size_t bytes) : size(bytes) {
    fd = memfd_create("fake", MFD_CLOEXEC);
    if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) std::abort();
    at = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  }
};

struct FakeQueue {
  rnic_ring_control* control = nullptr;
  char* slots = nullptr;
  std::uint32_t size = 0;
  std::uint32_t stride = 0;

  std::uint32_t produced() const { return control->produced; }
  char* slot(std::uint32_t index) const { return slots + (index & (size - 1)) * stride; }
  rnic_sqe& sqe(std::uint32_t index) const { return *reinterpret_cast<rnic_sqe*>(slot(index)); }
  rnic_rqe& rqe(std::uint32_t index) const { return *reinterpret_cast<rnic_rqe*>(slot(index)); }
};

struct FakeCq {
  rnic_cq_control* control = nullptr;
  rnic_cqe* entries = nullptr;
  std::uint32_t size = 0;
  std::uint32_t tail = 0;
  std::uint64_t user_pointer = 0;
  int channel_reader = -1;
  int channel_writer = -1;
  std::uint32_t events_sent = 0;

  void push(rnic_cqe cqe) {
    rnic_cqe& entry = entries[tail & (size - 1)];
    cqe.phase = 0;
    std::memcpy(&entry, &cqe, offsetof(rnic_cqe, phase));
    provider::store(entry.phase, tail / size + 1, std::memory_order_release);
    ++tail;
  }
};

struct FakeQp {
  FakeQueue send;
  FakeQueue receive;
  std::uint32_t state = RNIC_QP_IDLE;
  std::uint32_t idle_name = RNIC_IDLE_RESET;
  std::uint64_t user_pointer = 0;
};

struct FakeSrq {
  FakeQueue queue;
  std::uint32_t* indexes = nullptr;
};

// A socket of events as the daemon keeps it: what does not fit waits, and follows when a test says so, unless the
// provider has asked for a hold. Under the daemon's mutex.
class FakeEvents {
 public:
  struct Message {
    std::uint64_t words[2];
    std::size_t size;
  };

  // The smallest room that a socket can be given, so that a few messages fill it.
  void make_small() const {
    const int least = 1;
    setsockopt(writer, SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
  }
  void send_or_keep(const Message& message) {
    waiting.push_back(message);
    send_waiting();
  }
  void send_waiting() {
    if (held) return;
    while (!waiting.empty() &&
           send(writer, waiting.front().words, waiting.front().size, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
      ++sent[waiting.front().words[0]];
      waiting.pop_front();
    }
  }
  void forget(std::uint64_t element) {
    std::erase_if(waiting, [&](const Message& message) { return message.words[0] == element; });
  }

  int reader = -1;
  int writer = -1;
  bool held = false;
  std::deque<Message> waiting;
  std::map<std::uint64_t, std::uint32_t> sent;  // by element
};

class FakeDaemon {
 public:
  static constexpr std::uint32_t kSendStride = 192;
  static constexpr std::uint32_t kReceiveStride = 128;
  static constexpr std::uint32_t kInlineMax = 128;

  FakeDaemon() : status_(sizeof(rnic_status_page)), doorbells_(sizeof(rnic_doorbells)) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) std::abort();
    async = make_events();
    begin_arena();
    server_ = pair[0];
    client = pair[1];
    page().abi_version = RNIC_ABI_VERSION;
    page().worker_count = 1;
    worker_eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    thread_ = std::thread([this] {
      serve();
      const std::string helper = "/proc/self/task/" + std::to_string(helper_tid);
      helper_outlived_us = helper_tid != 0 && access(helper.c_str(), F_OK) == 0;
      shutdown(server_, SHUT_RDWR);  // as a session's end
    });
  }
  ~FakeDaemon() {
    die();
    for (const FakeArena& arena : arenas_) close(arena.memory.fd);
  }

  // As by kill -9: the socket closes, and nobody answers any more.
  void die() {
    if (!thread_.joinable()) return;
    shutdown(server_, SHUT_RDWR);
    thread_.join();
    close(server_);
  }

  rnic_status_page& page() { return *reinterpret_cast<rnic_status_page*>(status_.at); }
  rnic_doorbells& doorbells() { return *reinterpret_cast<rnic_doorbells*>(doorbells_.at); }

  // A completion channel, as libibverbs would hold it.
  int make_channel() {
    const FakeEvents made = make_events();
    std::uint64_t cookie = 0;
    socklen_t size = sizeof cookie;
    getsockopt(made.reader, SOL_SOCKET, SO_COOKIE, &cookie, &size);
    const std::lock_guard lock(mutex);
    channels[cookie] = made;
    return made.reader;
  }

  // The next area lies in an arena that nobody has heard of. It makes no descriptor then.
  void begin_arena(std::size_t bytes = kArenaBytes) { arenas_.push_back({SharedMemory(bytes), 0, false}); }

  void fire(FakeCq& cq) {
    if (write(cq.channel_writer, &cq.user_pointer, sizeof cq.user_pointer) > 0) ++cq.events_sent;
    cq.control->fired = cq.control->arm >> 2;
  }

  int client = -1;
  int worker_eventfd = -1;
  std::mutex mutex;
  std::map<std::uint32_t, FakeCq> cqs;
  std::map<std::uint32_t, FakeQp> qps;
  std::map<std::uint32_t, FakeSrq> srqs;
  std::vector<rnic_reg_mr> registrations;
  std::vector<rnic_modify_qp> modifications;
  FakeEvents async;
  std::map<std::uint64_t, FakeEvents> channels;  // by cookie
  std::uint32_t holds = 0;
  bool dies_in_hold = false;
  std::uint32_t helper_tid = 0;
  std::atomic<bool> helper_outlived_us = false;  // it was there when the conversation was over
  int refuse_type = 0;  // requests of this type get refuse_status
  int refuse_status = 0;
  bool maps_nothing = false;  // memory is to be reached by remote copy

 private:
  struct Answer {
    char body[4096] = {};
    std::size_t size = 0;
    int status = 0;
    std::vector<int> fds;  // lent

    template <typename T>
    T& as() {
      size = sizeof(T);
      return *reinterpret_cast<T*>(body);
    }
  };

  struct FakeArena {
    SharedMemory memory;
    std::size_t used;
    bool announced;
  };
  static constexpr std::size_t kArenaBytes = 1 << 20;

  char* make_area(rnic_area& area, std::size_t bytes, Answer& answer) {
    bytes = (bytes + RNIC_CACHE_LINE - 1) / RNIC_CACHE_LINE * RNIC_CACHE_LINE;
    if (arenas_.back().memory.size - arenas_.back().used < bytes) begin_arena(std::max(bytes, kArenaBytes));
    FakeArena& arena = arenas_.back();
    const bool is_new = !std::exchange(arena.announced, true);
    area = {static_cast<std::uint32_t>(arenas_.size() - 1), is_new ? 1U : 0U, arena.memory.size, arena.used, bytes};
    if (is_new) answer.fds.push_back(arena.memory.fd);
    arena.used += bytes;
    return arena.memory.at + area.offset;
  }

  void map_arena(std::uint32_t number, Answer& answer) {
    const SharedMemory& memory = arenas_.at(number).memory;
    answer.as<rnic_area>() = {number, 1, memory.size, 0, memory.size};
    answer.fds.push_back(memory.fd);
  }

  static FakeEvents make_events() {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) std::abort();
    FakeEvents made;
    made.reader = pair[0];
    made.writer = pair[1];
    return made;
  }

  void destroy_cq(const FakeCq& cq, Answer& answer) {
    auto& reply = answer.as<rnic_destroy_cq_reply>();
    reply.events_sent = cq.events_sent;
    for (auto& [cookie, channel] : channels) {
      channel.forget(cq.user_pointer);
      reply.events_sent += channel.sent[cq.user_pointer];
    }
  }

  void hold_events(const char* body) {
    const auto cookie = reinterpret_cast<const rnic_hold_events*>(body)->channel_cookie;
    held_ = cookie == 0 ? &async : &channels.at(cookie);
    held_->held = true;
    ++holds;
  }

  void release_events() {
    held_->held = false;
    held_->send_waiting();
  }

  static std::uint32_t round_up(std::uint32_t n) {
    std::uint32_t power = 1;
    while (power < n) power *= 2;
    return power;
  }

  void open_context(const char* body, Answer& answer) {
    helper_tid = reinterpret_cast<const rnic_open_context*>(body)->helper_tid;
    auto& reply = answer.as<rnic_open_context_reply>();
    reply.worker_count = 1;
    reply.attributes.completion_vectors = 1;
    reply.attributes.mtu = 1500;
    reply.attributes.max_qp = 1024;
    reply.attributes.speed_mbps = 10000;
    reply.device.link_up = 1;
    answer.fds = {status_.fd, doorbells_.fd, async.reader, async.writer, worker_eventfd};
  }

  void create_cq(const char* body, Answer& answer) {
    const auto& request = *reinterpret_cast<const rnic_create_cq*>(body);
    auto& reply = answer.as<rnic_create_cq_reply>();
    FakeCq cq;
    cq.size = round_up(request.entries_min);
    cq.user_pointer = request.user_pointer;
    char* at = make_area(reply.area, sizeof(rnic_cq_control) + cq.size * sizeof(rnic_cqe), answer);
    cq.control = reinterpret_cast<rnic_cq_control*>(at);
    cq.entries = reinterpret_cast<rnic_cqe*>(at + sizeof(rnic_cq_control));
    if (request.channel_cookie != 0) {
      if (channels.count(request.channel_cookie) == 0) {
        answer.status = EINVAL;
        return;
      }
      cq.channel_reader = channels[request.channel_cookie].reader;
      cq.channel_writer = channels[request.channel_cookie].writer;
      answer.fds.push_back(cq.channel_writer);
    }
    reply.cq = next_handle_++;
    reply.entries = cq.size;
    cqs[reply.cq] = cq;
  }

  void resize_cq(const char* body, Answer& answer) {
    const auto& request = *reinterpret_cast<const rnic_resize_cq*>(body);
    auto& reply = answer.as<rnic_resize_cq_reply>();
    FakeCq& old = cqs[request.cq];
    FakeCq cq = old;
    cq.size = round_up(request.entries_min);
    cq.tail = 0;
    char* at = make_area(reply.area, sizeof(rnic_cq_control) + cq.size * sizeof(rnic_cqe), answer);
    if (reply.area.arena_is_new != 0) {
      arenas_.back().used = reply.area.offset;
      return;
    }
    cq.control = reinterpret_cast<rnic_cq_control*>(at);
    cq.entries = reinterpret_cast<rnic_cqe*>(at + sizeof(rnic_cq_control));
    for (std::uint32_t i = old.control->consumed; i != old.tail; ++i) {
      cq.push(old.entries[i & (old.size - 1)]);
    }
    reply.entries = cq.size;
    old = cq;
  }

  FakeQueue make_queue(rnic_area& area, std::uint32_t entries, std::uint32_t stride, Answer& answer) {
    char* at = make_area(area, sizeof(rnic_ring_control) + entries * stride, answer);
    return {reinterpret_cast<rnic_ring_control*>(at), at + sizeof(rnic_ring_control), entries, stride};
  }

  void create_qp(const char* body, Answer& answer) {
    const auto& request = *reinterpret_cast<const rnic_create_qp*>(body);
    auto& reply = answer.as<rnic_create_qp_reply>();
    FakeQp qp;
    qp.user_pointer = request.user_pointer;
    reply.qp_number = next_qp_++;
    reply.send_entries = round_up(request.send_wr_min);
    reply.send_stride = kSendStride;
    reply.send_sge_max = 4;
    reply.send_doorbell = reply.qp_number * 2;
    reply.inline_max = kInlineMax;
    qp.send = make_queue(reply.send_area, reply.send_entries, kSendStride, answer);
    if (request.srq == 0) {
      reply.recv_entries = round_up(request.recv_wr_min);
      reply.recv_stride = kReceiveStride;
      reply.recv_sge_max = 4;
      reply.recv_doorbell = reply.qp_number * 2 + 1;
      qp.receive = make_queue(reply.recv_area, reply.recv_entries, kReceiveStride, answer);
    }
    qps[reply.qp_number] = qp;
  }

  void create_srq(const char* body, Answer& answer) {
    const auto& request = *reinterpret_cast<const rnic_create_srq*>(body);
    auto& reply = answer.as<rnic_create_srq_reply>();
    reply.srq = next_handle_++;
    reply.entries = round_up(request.wr_min);
    reply.stride = kReceiveStride;
    reply.sge_max = 4;
    reply.doorbell = 4000;
    const std::size_t indexes = (reply.entries * sizeof(std::uint32_t) + 63) / 64 * 64;
    char* at = make_area(reply.area, sizeof(rnic_ring_control) + indexes + reply.entries * kReceiveStride, answer);
    FakeSrq srq;
    srq.queue = {reinterpret_cast<rnic_ring_control*>(at), at + sizeof(rnic_ring_control) + indexes, reply.entries,
                 kReceiveStride};
    srq.indexes = reinterpret_cast<std::uint32_t*>(at + sizeof(rnic_ring_control));
    srqs[reply.srq] = srq;
  }

  void reg_mr(const char* body, Answer& answer) {
    const auto& request = *reinterpret_cast<const rnic_reg_mr*>(body);
    auto& reply = answer.as<rnic_reg_mr_reply>();
    registrations.push_back(request);
    if (maps_nothing && request.shared != RNIC_MEMORY_APPLICATION) {
      answer.status = ENOMEM;
      return;
    }
    reply.mr = next_handle_++;
    reply.stag = next_stag_++ << 8 | request.key;
  }

  // Only what the tests need of the table of verbs.md s2.1.
  void modify_qp(const char* body, Answer& answer) {
    const auto& request = *reinterpret_cast<const rnic_modify_qp*>(body);
    modifications.push_back(request);
    FakeQp& qp = qps[request.qp_number];
    if ((request.mask & RNIC_MODIFY_STATE) == 0) return;
    const std::uint32_t from = qp.state;
    const std::uint32_t to = request.state;
    const bool allowed = (from == RNIC_QP_IDLE && (to == RNIC_QP_IDLE || to == RNIC_QP_ERROR)) ||
                         (from == RNIC_QP_RTS && to != RNIC_QP_IDLE) || (from == RNIC_QP_ERROR && to == RNIC_QP_IDLE);
    if (!allowed) {
      answer.status = EINVAL;
      return;
    }
    qp.state = to;
    if (to == RNIC_QP_IDLE) qp.idle_name = request.idle_name;
  }

  void answer_to(const rnic_msg& header, const char* body, Answer& answer) {
    const auto handle = reinterpret_cast<const rnic_handle*>(body)->handle;
    if (refuse_status != 0 && static_cast<int>(header.type) == refuse_type) {
      answer.status = refuse_status;
      return;
    }
    switch (header.type) {
      case RNIC_OPEN_CONTEXT:
        return open_context(body, answer);
      case RNIC_ALLOC_PD:
        answer.as<rnic_handle_reply>().handle = next_handle_++;
        return;
      case RNIC_CREATE_CQ:
        return create_cq(body, answer);
      case RNIC_RESIZE_CQ:
        return resize_cq(body, answer);
      case RNIC_DESTROY_CQ:
        return destroy_cq(cqs[handle], answer);
      case RNIC_DESTROY_QP:
        return async.forget(qps[handle].user_pointer);
      case RNIC_CREATE_QP:
        return create_qp(body, answer);
      case RNIC_QUERY_QP:
        answer.as<rnic_query_qp_reply>().state = qps[handle].state;
        answer.as<rnic_query_qp_reply>().idle_name = qps[handle].idle_name;
        return;
      case RNIC_MODIFY_QP:
        return modify_qp(body, answer);
      case RNIC_CREATE_SRQ:
        return create_srq(body, answer);
      case RNIC_REG_MR:
        return reg_mr(body, answer);
      case RNIC_HOLD_EVENTS:
        return hold_events(body);
      case RNIC_RELEASE_EVENTS:
        return release_events();
      case RNIC_MAP_ARENA:
        return map_arena(handle, answer);
      default:
        return;
    }
  }

  void serve() {
    for (;;) {
      rnic_msg header{};
      char body[RNIC_MSG_MAX] = {};
      alignas(cmsghdr) char ancillary[CMSG_SPACE(sizeof(int) * RNIC_FDS_MAX)];
      iovec parts[2] = {{&header, sizeof header}, {body, sizeof body}};
      msghdr message{};
      message.msg_iov = parts;
      message.msg_iovlen = 2;
      message.msg_control = ancillary;
      message.msg_controllen = sizeof ancillary;
      if (recvmsg(server_, &message, MSG_CMSG_CLOEXEC) <= 0) return;
      if (const cmsghdr* rights = CMSG_FIRSTHDR(&message)) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(rights), sizeof fd);
        close(fd);
      }
      Answer answer;
      {
        const std::lock_guard lock(mutex);
        answer_to(header, body, answer);
      }
      reply(header, answer);
      if (dies_in_hold && header.type == RNIC_HOLD_EVENTS) {
        shutdown(server_, SHUT_RDWR);
        return;
      }
    }
  }

  void reply(const rnic_msg& request, const Answer& answer) {
    rnic_msg header{request.type, request.id, answer.status, static_cast<std::uint32_t>(sizeof header + answer.size)};
    iovec parts[2] = {{&header, sizeof header}, {const_cast<char*>(answer.body), answer.size}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    alignas(cmsghdr) char ancillary[CMSG_SPACE(sizeof(int) * RNIC_FDS_MAX)] = {};
    if (!answer.fds.empty()) {
      const std::size_t bytes = answer.fds.size() * sizeof(int);
      message.msg_control = ancillary;
      message.msg_controllen = CMSG_SPACE(bytes);
      cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(bytes);
      std::memcpy(CMSG_DATA(rights), answer.fds.data(), bytes);
    }
    sendmsg(server_, &message, MSG_NOSIGNAL);
  }

  SharedMemory status_;
  SharedMemory doorbells_;
  int server_ = -1;
  std::thread thread_;
  FakeEvents* held_ = nullptr;
  std::uint32_t next_handle_ = 1;
  std::uint32_t next_qp_ = 17;
  std::uint32_t next_stag_ = 1;
  std::vector<FakeArena> arenas_;
};

// An application's end: an open context, with a PD. Objects are made by the provider's operations,
// and what libibverbs would do around them is done here.
class Application {
 public:
  explicit Application(FakeDaemon& daemon) : daemon_(daemon) {
    context = static_cast<provider::Context*>(std::calloc(1, sizeof(provider::Context)));
    error = provider::open_context(*context, daemon.client, "rnic0");
    if (error == 0) pd = provider::alloc_pd(&context->verbs.context);
  }
  ~Application() {
    if (error == 0) {
      provider::close_context(*context);
      close(context->async_fd);
    }
    std::free(context);
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

  FakeCq& fake(ibv_cq* cq) { return daemon_.cqs.at(cq->handle); }
  FakeQp& fake(ibv_qp* qp) { return daemon_.qps.at(qp->qp_num); }
  FakeSrq& fake(ibv_srq* srq) { return daemon_.srqs.at(srq->handle); }

  provider::Context* context = nullptr;
  ibv_pd* pd = nullptr;
  int error = 0;

 private:
  FakeDaemon& daemon_;
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
    app.fake(send_cq).push(cqe);
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
  FakeDaemon daemon;
  Application app;
  ibv_cq* send_cq = nullptr;
  ibv_cq* receive_cq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* mr = nullptr;
};

inline bool readable(int fd, int timeout_ms) {
  pollfd one{fd, POLLIN, 0};
  return poll(&one, 1, timeout_ms) == 1;
}

}  // namespace rnic::test
