// What many queue pairs and regions cost, in time and memory: of this process, and of the daemon whose pid is given
// (0: of none). Ordinary librdmacm and libibverbs code; tools/bench --scale runs it.
//
//   scale server ADDRESS PORT COUNT
//   scale client ADDRESS PORT COUNT MESSAGES DAEMON
//     COUNT connections of one process with another; MESSAGES Sends of 8 octets, 16 under way at a time: over 16 of
//     them while there are no others, over 16 among all, over one, over all in turn; then all are ended. The server
//     checks that all came.
//   scale objects ADDRESS QPS REGIONS DAEMON
//     so many queue pairs, of one shared receive queue, and regions, made and destroyed
//
// Each line: what, how many, and then of each: us of the first tenth, of the last tenth; octets here, of the daemon.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cinttypes>
#include <cstring>
#include <fstream>
#include <functional>

#include "system/apps/rdma_app.hpp"

namespace {

constexpr std::uint32_t kDepth = 16;
constexpr std::size_t kConnecting = 64;  // at a time
constexpr std::size_t kActive = 16;      // beside those that are silent
constexpr std::uint32_t kOctets = 8;

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string proc(const std::string& pid, const char* file) { return "/proc/" + pid + "/" + file; }

double resident_octets(const std::string& pid) {
  std::ifstream status(proc(pid, "status"));
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmRSS:", 0) == 0) return std::atof(line.c_str() + 6) * 1024;
  return 0;
}

double cpu_us(const std::string& pid) {
  std::ifstream stat(proc(pid, "stat"));
  std::string line;
  std::getline(stat, line);
  if (line.rfind(')') == std::string::npos) return 0;
  const char* at = line.c_str() + line.rfind(')') + 1;
  std::array<double, 15> words{};  // from the third on: utime and stime are the 14th and 15th
  at += 3;                         // the state
  for (double& word : words) {
    char* end = nullptr;
    word = std::strtod(at, &end);
    at = end;
  }
  return (words[10] + words[11]) * 1e6 / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// From its beginning to its end, so many of something.
class Stage {
 public:
  Stage(const char* what, std::size_t count, std::string daemon)
      : what_(what),
        count_(count),
        daemon_(std::move(daemon)),
        here_(resident_octets("self")),
        there_(resident_octets(daemon_)),
        start_(now_us()) {}
  void done(std::size_t so_many) {
    if (so_many == tenth()) first_ = now_us() - start_;
    if (so_many == count_ - tenth()) last_ = now_us();
  }
  ~Stage() {
    const double end = now_us(), tenth = static_cast<double>(this->tenth()), count = static_cast<double>(count_);
    std::printf("%s: %zu in %.2f s; us each: first tenth %.1f, last %.1f; octets each: here %.0f, daemon %.0f\n", what_,
                count_, (end - start_) / 1e6, first_ / tenth, (end - last_) / tenth,
                (resident_octets("self") - here_) / count, (resident_octets(daemon_) - there_) / count);
    std::fflush(stdout);
  }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

 private:
  std::size_t tenth() const { return count_ < 10 ? 1 : count_ / 10; }

  const char* what_;
  std::size_t count_;
  std::string daemon_;
  double here_, there_, start_, first_ = 0, last_ = 0;
};

// What all connections of a process share.
struct Shared {
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  std::vector<char> memory = std::vector<char>(kOctets * 64);
  ibv_mr* mr = nullptr;

  void make(ibv_context* device, std::size_t entries) {
    if (pd != nullptr) return;
    pd = ibv_alloc_pd(device);
    cq = ibv_create_cq(device, static_cast<int>(entries), nullptr, nullptr, 0);
    if (pd == nullptr || cq == nullptr) app::fail("queues");
    mr = ibv_reg_mr(pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (mr == nullptr) app::fail("ibv_reg_mr");
  }
  ibv_qp_init_attr queues(ibv_srq* srq = nullptr) const {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.srq = srq;
    attributes.cap = {kDepth, kDepth, 1, 1, kOctets};
    attributes.qp_type = IBV_QPT_RC;
    return attributes;
  }
  void make_qp(rdma_cm_id* id) const {
    ibv_qp_init_attr attributes = queues();
    if (rdma_create_qp(id, pd, &attributes) != 0) app::fail("rdma_create_qp");
  }
};

void post_receive(const Shared& shared, ibv_qp* qp) {
  ibv_sge sge{reinterpret_cast<std::uint64_t>(shared.memory.data()), kOctets, shared.mr->lkey};
  ibv_recv_wr wr{};
  wr.wr_id = reinterpret_cast<std::uint64_t>(qp);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  if ((errno = ibv_post_recv(qp, &wr, &bad)) != 0) app::fail("ibv_post_recv");
}

// Where the server is to be written to; in its Reply.
struct Target {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
};

void post_send(ibv_qp* qp, std::uint64_t number, const Target* target) {
  ibv_sge sge{reinterpret_cast<std::uint64_t>(&number), kOctets, 0};
  ibv_send_wr wr{};
  wr.wr_id = number;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = target != nullptr ? IBV_WR_RDMA_WRITE : IBV_WR_SEND;
  if (target != nullptr) {
    wr.wr.rdma.remote_addr = target->address;
    wr.wr.rdma.rkey = target->rkey;
  }
  wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
  ibv_send_wr* bad = nullptr;
  if ((errno = ibv_post_send(qp, &wr, &bad)) != 0) app::fail("ibv_post_send");
}

void expect_good(const ibv_wc& wc) {
  if (wc.status == IBV_WC_SUCCESS) return;
  std::fprintf(stderr, "a completion says %s\n", ibv_wc_status_str(wc.status));
  std::exit(1);
}

// The next event, taken and acknowledged; of a channel that does not block perhaps none.
bool next_event(rdma_event_channel* channel, rdma_cm_event_type& type, rdma_cm_id*& id, Target* target = nullptr) {
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(channel, &event) != 0) {
    if (errno == EAGAIN) return false;
    app::fail("rdma_get_cm_event");
  }
  type = event->event;
  id = event->id;
  if (target != nullptr && type == RDMA_CM_EVENT_ESTABLISHED && event->param.conn.private_data_len >= sizeof *target)
    std::memcpy(target, event->param.conn.private_data, sizeof *target);
  rdma_ack_cm_event(event);
  return true;
}

// ---- server ----

constexpr unsigned kQuiet = 1000;  // looks that found nothing: some milliseconds

struct Server {
  Shared shared;
  std::size_t count, ended = 0;
  std::uint64_t came = 0;

  void take(rdma_cm_event_type type, rdma_cm_id* id) {
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      shared.make(id->verbs, 2 * kDepth * count < 65536 ? 2 * kDepth * count : 65536);
      shared.make_qp(id);
      for (std::uint32_t i = 0; i < kDepth; ++i) post_receive(shared, id->qp);
      const Target target{reinterpret_cast<std::uint64_t>(shared.memory.data()), shared.mr->rkey};
      rdma_conn_param parameters{};
      parameters.private_data = &target;
      parameters.private_data_len = sizeof target;
      if (rdma_accept(id, &parameters) != 0) app::fail("rdma_accept");
    } else if (type == RDMA_CM_EVENT_DISCONNECTED) {
      while (poll() != 0) {  // what came before it is there, and goes with its queue pair
      }
      rdma_destroy_qp(id);
      if (rdma_destroy_id(id) != 0) app::fail("rdma_destroy_id");
      ++ended;
    } else if (type != RDMA_CM_EVENT_ESTABLISHED) {
      std::fprintf(stderr, "the server got %s\n", rdma_event_str(type));
      std::exit(1);
    }
  }
  int poll() {
    std::array<ibv_wc, 16> all;
    const int got = shared.cq == nullptr ? 0 : ibv_poll_cq(shared.cq, all.size(), all.data());
    for (int i = 0; i < got; ++i) {
      const ibv_wc& wc = all[static_cast<std::size_t>(i)];
      if (wc.status == IBV_WC_WR_FLUSH_ERR) continue;  // at the end
      expect_good(wc);
      ++came;
      post_receive(shared, reinterpret_cast<ibv_qp*>(wc.wr_id));
    }
    return got;
  }
};

int serve(const char* address, const char* port, std::size_t count) {
  const rdma_cm_id* listener = app::listen(address, port, 1024);
  fcntl(listener->channel->fd, F_SETFL, fcntl(listener->channel->fd, F_GETFL) | O_NONBLOCK);
  Server server;
  server.count = count;
  for (unsigned quiet = 0; server.ended < count;) {
    rdma_cm_event_type type{};
    rdma_cm_id* id = nullptr;
    ++quiet;
    for (int i = 0; i < 16 && next_event(listener->channel, type, id); ++i) {
      server.take(type, id);
      quiet = 0;
    }
    for (int i = 0; i < 16; ++i)
      if (server.poll() != 0) quiet = 0;
    // Writes need nothing of it; on two cores it would have one of those that they need.
    if (quiet > kQuiet) usleep(1000);
  }
  std::printf("%" PRIu64 " Sends came\n", server.came);
  return 0;
}

// ---- client ----

struct Client {
  Shared shared;
  rdma_event_channel* channel = rdma_create_event_channel();
  std::vector<rdma_cm_id*> ids;
  std::size_t there = 0;  // of them are connected
  Target target;          // the same for all

  void call(const char* address, const char* port) {
    rdma_cm_id* id = nullptr;
    if (rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0) app::fail("rdma_create_id");
    ids.push_back(id);
    sockaddr_storage to = app::address_of(address, port);
    if (rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), 5000) != 0) app::fail("rdma_resolve_addr");
  }
  // Whether a connection is there.
  bool take_event() {
    rdma_cm_event_type type{};
    rdma_cm_id* id = nullptr;
    next_event(channel, type, id, &target);
    rdma_conn_param parameters{};
    switch (type) {
      case RDMA_CM_EVENT_ADDR_RESOLVED:
        if (rdma_resolve_route(id, 5000) != 0) app::fail("rdma_resolve_route");
        return false;
      case RDMA_CM_EVENT_ROUTE_RESOLVED:
        shared.make(id->verbs, 1024);
        shared.make_qp(id);
        parameters.retry_count = 7;
        if (rdma_connect(id, &parameters) != 0) app::fail("rdma_connect");
        return false;
      case RDMA_CM_EVENT_ESTABLISHED:
        return true;
      default:
        std::fprintf(stderr, "the client got %s\n", rdma_event_str(type));
        std::exit(1);
    }
  }
  void connect(const char* address, const char* port, std::size_t count, const std::string& daemon) {
    Stage stage("connected", count - there, daemon);
    const std::size_t before = there;
    while (there < count) {
      while (ids.size() < count && ids.size() - there < kConnecting) call(address, port);
      if (take_event()) stage.done(++there - before);
    }
  }
  void send(const char* what, std::uint64_t messages, std::size_t over, const std::string& daemon,
            bool writes = false) {
    const double start = now_us(), before = cpu_us(daemon);
    std::uint64_t sent = 0, done = 0;
    while (done < messages) {
      for (; sent < messages && sent - done < kDepth; ++sent)
        post_send(ids[sent % over * (ids.size() / over)]->qp, sent, writes ? &target : nullptr);
      std::array<ibv_wc, 16> all;
      const int got = ibv_poll_cq(shared.cq, all.size(), all.data());
      for (int i = 0; i < got; ++i) expect_good(all[static_cast<std::size_t>(i)]);
      done += static_cast<std::uint64_t>(got);
    }
    const auto count = static_cast<double>(messages);
    std::printf("%s: %" PRIu64 " %s over %zu; us each: %.2f, of the daemon's CPU %.2f\n", what, messages,
                writes ? "Writes" : "Sends", over, (now_us() - start) / count, (cpu_us(daemon) - before) / count);
    std::fflush(stdout);
  }
};

int ask(const char* address, const char* port, std::size_t count, std::uint64_t messages, const std::string& daemon) {
  Client client;
  if (count > kActive) {
    client.connect(address, port, kActive, daemon);
    client.send("16 alone", messages, kActive, daemon, true);
    client.send("16 alone again", messages, kActive, daemon, true);
  }
  client.connect(address, port, count, daemon);
  if (count > kActive) {
    client.send("16 among all", messages, kActive, daemon, true);
    client.send("16 among all again", messages, kActive, daemon, true);
  }
  client.send("one", messages, 1, daemon);
  client.send("all in turn", messages, count, daemon);
  client.send("one again", messages, 1, daemon);
  {
    Stage stage("disconnected", count, daemon);
    for (rdma_cm_id* id : client.ids)
      if (rdma_disconnect(id) != 0) app::fail("rdma_disconnect");
    for (std::size_t gone = 0; gone < count;) {
      rdma_cm_event_type type{};
      rdma_cm_id* id = nullptr;
      next_event(client.channel, type, id);
      if (type == RDMA_CM_EVENT_DISCONNECTED) stage.done(++gone);
    }
  }
  Stage stage("destroyed", count, daemon);
  for (std::size_t i = 0; i < count; ++i) {
    rdma_destroy_qp(client.ids[i]);
    if (rdma_destroy_id(client.ids[i]) != 0) app::fail("rdma_destroy_id");
    stage.done(i + 1);
  }
  return 0;
}

// ---- objects ----

int objects(const char* address, std::size_t qps, std::size_t regions, const std::string& daemon) {
  Shared shared;
  shared.make(app::protection_domain(address)->context, 1024);
  ibv_srq_init_attr of_srq{};
  of_srq.attr = {kDepth, 1, 0};
  ibv_srq* srq = ibv_create_srq(shared.pd, &of_srq);
  if (srq == nullptr) app::fail("ibv_create_srq");
  const auto each = [&](const char* what, std::size_t count, const std::function<void(std::size_t)>& make) {
    if (count == 0) return;
    Stage stage(what, count, daemon);
    for (std::size_t i = 0; i < count; ++i) {
      make(i);
      stage.done(i + 1);
    }
  };
  std::vector<ibv_qp*> all_qps(qps);
  each("queue pairs made", qps, [&](std::size_t i) {
    ibv_qp_init_attr attributes = shared.queues(srq);
    if ((all_qps[i] = ibv_create_qp(shared.pd, &attributes)) == nullptr) app::fail("ibv_create_qp");
  });
  each("queue pairs destroyed", qps, [&](std::size_t i) {
    if ((errno = ibv_destroy_qp(all_qps[i])) != 0) app::fail("ibv_destroy_qp");
  });
  std::vector<ibv_mr*> all_regions(regions);
  each("regions made", regions, [&](std::size_t i) {
    if ((all_regions[i] = ibv_reg_mr(shared.pd, shared.memory.data(), 64, IBV_ACCESS_LOCAL_WRITE)) == nullptr)
      app::fail("ibv_reg_mr");
  });
  each("regions destroyed", regions, [&](std::size_t i) {
    if ((errno = ibv_dereg_mr(all_regions[i])) != 0) app::fail("ibv_dereg_mr");
  });
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const std::string what = count > 1 ? words[1] : "";
  if (what == "server" && count == 5) return serve(words[2], words[3], std::strtoul(words[4], nullptr, 10));
  if (what == "client" && count == 7)
    return ask(words[2], words[3], std::strtoul(words[4], nullptr, 10), std::strtoul(words[5], nullptr, 10), words[6]);
  if (what == "objects" && count == 6)
    return objects(words[2], std::strtoul(words[3], nullptr, 10), std::strtoul(words[4], nullptr, 10), words[5]);
  std::fprintf(stderr, "usage: scale server|client|objects ADDRESS ...\n");
  return 2;
}
