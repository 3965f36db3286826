// Whether a Write's completion means that its data is there: Write, completion, a word to the peer over the kernel's
// TCP, and the peer looks at its memory. Two processes of InfiniBand's kind, which connect their queue pairs by
// themselves.
//
//   told PORT            waits, and looks
//   told ADDRESS PORT ROUNDS
#include <infiniband/verbs.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}
void need(bool so, const char* what) {
  if (!so) fail(what);
}

int tcp(const char* address, const char* port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_family = AF_INET;
  hints.ai_flags = address == nullptr ? AI_PASSIVE : 0;
  need(getaddrinfo(address, port, &hints, &found) == 0, "getaddrinfo");
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address == nullptr) {
    need(bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 1) == 0, "listen");
    const int peer = accept(fd, nullptr, nullptr);
    close(fd);
    fd = peer;
  } else {
    for (int i = 0; connect(fd, found->ai_addr, found->ai_addrlen) != 0; ++i) {
      need(i < 100, "connect");
      usleep(100'000);
      close(fd);
      fd = socket(AF_INET, SOCK_STREAM, 0);
    }
  }
  freeaddrinfo(found);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}
template <typename T>
void say(int fd, const T& value) {
  need(send(fd, &value, sizeof value, 0) == static_cast<ssize_t>(sizeof value), "send");
}
template <typename T>
bool hear(int fd, T& value) {
  return recv(fd, &value, sizeof value, MSG_WAITALL) == static_cast<ssize_t>(sizeof value);
}

struct Place {
  ibv_gid gid;
  std::uint32_t number, psn, rkey;
  std::uint64_t address;
};

constexpr std::size_t kBytes = 65536;

}  // namespace

int main(int count, char** words) {
  if (count != 2 && count != 4) {
    std::fprintf(stderr, "usage: told PORT | told ADDRESS PORT ROUNDS\n");
    return 2;
  }
  const bool writes = count == 4;
  int devices = 0;
  ibv_device** const list = ibv_get_device_list(&devices);
  need(list != nullptr && devices > 0, "no device");
  ibv_context* const context = ibv_open_device(list[0]);
  need(context != nullptr, "ibv_open_device");
  ibv_pd* const pd = ibv_alloc_pd(context);
  auto* const memory = static_cast<char*>(std::calloc(1, kBytes));
  ibv_mr* const mr = ibv_reg_mr(pd, memory, kBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  need(mr != nullptr, "ibv_reg_mr");
  ibv_cq* const cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.cap = {16, 16, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  ibv_qp* const qp = ibv_create_qp(pd, &init);
  need(qp != nullptr, "ibv_create_qp");

  const int fd = tcp(writes ? words[1] : nullptr, words[writes ? 2 : 1]);
  Place own{{}, qp->qp_num, writes ? 111u : 222u, mr->rkey, reinterpret_cast<std::uintptr_t>(memory)}, peer{};
  need(ibv_query_gid(context, 1, 1, &own.gid) == 0, "ibv_query_gid");
  say(fd, own);
  need(hear(fd, peer), "recv");

  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_INIT;
  to.port_num = 1;
  to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  need(ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0, "INIT");
  to.qp_state = IBV_QPS_RTR;
  to.path_mtu = IBV_MTU_1024;
  to.dest_qp_num = peer.number;
  to.rq_psn = peer.psn;
  to.max_dest_rd_atomic = 1;
  to.min_rnr_timer = 12;
  to.ah_attr.is_global = 1;
  to.ah_attr.port_num = 1;
  to.ah_attr.grh.dgid = peer.gid;
  to.ah_attr.grh.sgid_index = 1;
  to.ah_attr.grh.hop_limit = 64;
  need(ibv_modify_qp(qp, &to,
                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
       "RTR");
  to.qp_state = IBV_QPS_RTS;
  to.sq_psn = own.psn;
  to.timeout = 18;
  to.retry_cnt = 7;
  to.rnr_retry = 7;
  to.max_rd_atomic = 1;
  need(ibv_modify_qp(qp, &to,
                     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                         IBV_QP_MAX_QP_RD_ATOMIC) == 0,
       "RTS");

  std::uint64_t stale = 0, rounds = 0;
  if (!writes) {
    // How long the Write was, and with what number it ends.
    struct Word {
      std::uint32_t length, number;
    } word{};
    while (hear(fd, word)) {
      std::uint32_t there = 0;
      std::memcpy(&there, memory + word.length - sizeof there, sizeof there);
      if (there != word.number) ++stale;
      ++rounds;
      say(fd, stale);
    }
  } else {
    const auto wanted = static_cast<std::uint64_t>(std::atoll(words[3]));
    for (; rounds < wanted; ++rounds) {
      const std::uint32_t number = static_cast<std::uint32_t>(rounds) + 1;
      const std::uint32_t length = rounds % 16 == 0 ? kBytes : 4 + static_cast<std::uint32_t>(rounds % 64) * 8;
      std::memcpy(memory + length - sizeof number, &number, sizeof number);
      ibv_sge sge{own.address, length, mr->lkey};
      ibv_send_wr wr{}, *bad = nullptr;
      wr.sg_list = &sge;
      wr.num_sge = 1;
      wr.opcode = IBV_WR_RDMA_WRITE;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.wr.rdma.remote_addr = peer.address;
      wr.wr.rdma.rkey = peer.rkey;
      need(ibv_post_send(qp, &wr, &bad) == 0, "ibv_post_send");
      ibv_wc wc{};
      while (ibv_poll_cq(cq, 1, &wc) == 0) {
      }
      if (wc.status != IBV_WC_SUCCESS) {
        std::fprintf(stderr, "told: %s\n", ibv_wc_status_str(wc.status));
        return 1;
      }
      const std::uint32_t word[2] = {length, number};
      say(fd, word);
      need(hear(fd, stale), "recv");
    }
  }
  std::printf("%llu rounds, %llu stale\n", static_cast<unsigned long long>(rounds),
              static_cast<unsigned long long>(stale));
  close(fd);
  ibv_destroy_qp(qp);
  ibv_destroy_cq(cq);
  ibv_dereg_mr(mr);
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
  ibv_free_device_list(list);
  return stale == 0 ? 0 : 1;
}
