// An application that has a handshake of its own, a line each way, and changes its TCP stream over to iWARP behind it:
// without rdma_cm, and without MPA's Request and Reply (rnicdv(7)).
//
//   streaming server ADDRESS PORT
//   streaming client ADDRESS PORT
//
// The server's line is its last message, and says where the client may write. The client writes, and sends a word
// when all is written; the server looks at what it has then.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "rnicdv.h"

namespace {

constexpr std::size_t kWrites = 100, kSize = 10'007;

[[noreturn]] void fail(const std::string& what, int error = errno) {
  std::fprintf(stderr, "%s: %s\n", what.c_str(), std::strerror(error));
  std::exit(1);
}
void must(int error, const char* what) {
  if (error != 0) fail(what, error);
}

char octet_of(std::size_t i) { return static_cast<char>(i * 131 + (i >> 8)); }

struct End {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* mr = nullptr;
  std::vector<char> memory = std::vector<char>(kWrites * kSize);

  End() {
    ibv_device** list = ibv_get_device_list(nullptr);
    if (list == nullptr || list[0] == nullptr) fail("no device");
    context = rnicdv_open_device(list[0], RNICDV_PAGE_MODE);
    if (context == nullptr) fail("rnicdv_open_device");
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 2 * kWrites, nullptr, nullptr, 0);
    if (pd == nullptr || cq == nullptr) fail("queues");
    mr = ibv_reg_mr(pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.cap = {2 * kWrites, 4, 1, 1, 0};
    init.qp_type = IBV_QPT_RC;
    init.sq_sig_all = 1;
    qp = ibv_create_qp(pd, &init);
    if (mr == nullptr || qp == nullptr) fail("memory and a queue pair");
    ibv_qp_attr enables{};
    enables.qp_state = IBV_QPS_INIT;
    enables.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    must(ibv_modify_qp(qp, &enables, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), "ibv_modify_qp");
  }
  // Until something has changed, on whichever stream.
  void wait() const {
    pollfd one{rnicdv_event_fd(context), POLLIN, 0};
    if (::poll(&one, 1, 30'000) != 1) fail("no event", ETIMEDOUT);
    rnicdv_event event{};
    must(rnicdv_get_event(context, &event), "rnicdv_get_event");
  }
  void send(rnicdv_stream* stream, std::string text) const {
    while (!text.empty()) {
      std::size_t sent = 0;
      const int error = rnicdv_stream_send(stream, text.data(), text.size(), &sent);
      if (error == EAGAIN)
        wait();
      else
        must(error, "rnicdv_stream_send");
      text.erase(0, sent);
    }
  }
  // And not an octet behind it: that is iWARP's.
  std::string line(rnicdv_stream* stream) const {
    std::string text;
    while (text.empty() || text.back() != '\n') {
      char octet = 0;
      std::size_t received = 0;
      const int error = rnicdv_stream_receive(stream, &octet, 1, &received);
      if (error == EAGAIN) {
        wait();
        continue;
      }
      must(error, "rnicdv_stream_receive");
      if (received == 0) fail("the peer has closed", ECONNRESET);
      text += octet;
    }
    return text;
  }
  void change_over(rnicdv_stream* stream, const std::string& last) const {
    rnicdv_qp_mod mod{};
    mod.state = RNICDV_QPS_RTS;
    mod.ord = mod.ird = 4;
    mod.stream = stream;
    mod.message = last.data();
    mod.message_length = static_cast<std::uint32_t>(last.size());
    must(rnicdv_modify_qp(qp, &mod, RNICDV_QP_STATE | RNICDV_QP_STREAM | RNICDV_QP_ORD | RNICDV_QP_IRD), "to RTS");
  }
  void complete(std::size_t count) const {
    while (count > 0) {
      ibv_wc wc{};
      const int got = ibv_poll_cq(cq, 1, &wc);
      if (got < 0) fail("ibv_poll_cq");
      if (got == 0) continue;
      if (wc.status != IBV_WC_SUCCESS) fail(ibv_wc_status_str(wc.status), EIO);
      --count;
    }
  }
  void post(ibv_wr_opcode opcode, std::size_t offset, std::size_t size, std::uint64_t to, std::uint32_t rkey) const {
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(memory.data()) + offset, static_cast<std::uint32_t>(size), mr->lkey};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.wr.rdma = {to, rkey};
    must(ibv_post_send(qp, &wr, &bad), "ibv_post_send");
  }
  void until_idle() const {
    for (int i = 0; i < 3000; ++i, usleep(10'000)) {
      rnicdv_qp_attr attr{};
      must(rnicdv_query_qp(qp, &attr), "rnicdv_query_qp");
      if (attr.state == RNICDV_QPS_IDLE) return;
    }
    fail("the queue pair does not come to Idle", ETIMEDOUT);
  }
};

int serve(const End& end, const sockaddr* at) {
  rnicdv_stream* const listener = rnicdv_stream_listen(end.context, at, 1, nullptr);
  if (listener == nullptr) fail("rnicdv_stream_listen");
  std::puts("listening");
  std::fflush(stdout);
  rnicdv_stream* stream = nullptr;
  while ((stream = rnicdv_stream_accept(listener, nullptr)) == nullptr) {
    if (errno != EAGAIN) fail("rnicdv_stream_accept");
    end.wait();
  }
  must(rnicdv_stream_close(listener), "rnicdv_stream_close");
  if (end.line(stream) != "may I write?\n") fail("another handshake", EPROTO);
  ibv_recv_wr receive{}, *bad = nullptr;
  must(ibv_post_recv(end.qp, &receive, &bad), "ibv_post_recv");
  end.change_over(stream, std::to_string(reinterpret_cast<std::uintptr_t>(end.memory.data())) + " " +
                              std::to_string(end.mr->rkey) + "\n");
  end.complete(1);
  for (std::size_t i = 0; i < end.memory.size(); ++i)
    if (end.memory[i] != octet_of(i)) fail("octets WRONG", EIO);
  end.until_idle();
  std::puts("all octets right");
  return 0;
}

int call(End& end, const sockaddr* to) {
  rnicdv_stream* const stream = rnicdv_stream_connect(end.context, nullptr, to, nullptr);
  if (stream == nullptr) fail("rnicdv_stream_connect");
  end.send(stream, "may I write?\n");
  unsigned long long address = 0;
  unsigned rkey = 0;
  if (std::sscanf(end.line(stream).c_str(), "%llu %u", &address, &rkey) != 2) fail("another handshake", EPROTO);
  for (std::size_t i = 0; i < end.memory.size(); ++i) end.memory[i] = octet_of(i);
  for (std::size_t i = 0; i < kWrites; ++i)
    end.post(IBV_WR_RDMA_WRITE, i * kSize, kSize, address + i * kSize, rkey);  // in Idle
  end.change_over(stream, {});
  end.complete(kWrites);
  end.post(IBV_WR_SEND, 0, 0, 0, 0);
  end.complete(1);
  rnicdv_qp_mod closing{};
  closing.state = RNICDV_QPS_CLOSING;
  must(rnicdv_modify_qp(end.qp, &closing, RNICDV_QP_STATE), "to Closing");
  end.until_idle();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<std::uint16_t>(std::atoi(argv[3])));
  if (inet_pton(AF_INET, argv[2], &at.sin_addr) != 1) return 2;
  End end;
  const auto* address = reinterpret_cast<const sockaddr*>(&at);
  return std::string(argv[1]) == "server" ? serve(end, address) : call(end, address);
}
