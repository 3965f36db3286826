// Memory that may not be reached: the client writes to it, or reads it, by an rkey that never was, or
// that its own Send with Invalidate has taken away. Before that comes what is allowed, a write and a
// Send each way: a connection in full operation is what ends.
//
//   wrong_key server ADDRESS PORT write|read|invalidate
//   wrong_key client ADDRESS PORT write|read|invalidate
//
// Both print what became of it. The server ends with 1 if its memory was changed.
#include <algorithm>
#include <string_view>

#include "ending.hpp"

namespace {

constexpr std::uint32_t kSize = 3000;  // more than one segment
constexpr std::byte kBefore{0x11}, kRight{0x22}, kWrong{0x33};

// The mailbox is a region of its own: what was invalidated takes no receives either.
struct Open {
  std::vector<std::byte> memory = std::vector<std::byte>(kSize, kBefore);
  ibv_mr* mr = nullptr;
};

bool is_all(const std::vector<std::byte>& memory, std::byte what) {
  return std::all_of(memory.begin(), memory.end(), [&](std::byte octet) { return octet == what; });
}

// A Send with Invalidate, or without where `rkey` is 0.
void say(app::Endpoint& end, std::uint32_t rkey) {
  ibv_sge sge{reinterpret_cast<std::uint64_t>(end.memory), 16, end.mr->lkey};
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = rkey != 0 ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.invalidate_rkey = rkey;
  wr.wr.rdma.rkey = rkey;  // where libsiw looks for it
  ibv_send_wr* bad = nullptr;
  if ((errno = ibv_post_send(end.id->qp, &wr, &bad)) != 0) app::fail("ibv_post_send");
  const ibv_wc wc = app::Endpoint::poll(end.send_cq);
  std::printf("send: %s\n", ibv_wc_status_str(wc.status));
}

int serve(char** words) {
  app::Endpoint end = app::listen_one(words[2], words[3]);
  end.make_queues(8);
  end.make_memory(4096, IBV_ACCESS_LOCAL_WRITE);
  Open open;
  open.mr = ibv_reg_mr(end.pd, open.memory.data(), kSize,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  if (open.mr == nullptr) app::fail("ibv_reg_mr");
  end.post_receive(1024, 64, 1);
  end.post_receive(1088, 64, 2);
  app::accept(end, {reinterpret_cast<std::uint64_t>(open.memory.data()), open.mr->rkey, kSize});

  // The client's Send says that there was something allowed before.
  const ibv_wc wc = app::Endpoint::poll(end.recv_cq);
  std::printf("asked: %s, %u octets, flag %s, key %s\n", ibv_wc_status_str(wc.status), wc.byte_len,
              (wc.wc_flags & IBV_WC_WITH_INV) != 0 ? "yes" : "no",
              wc.invalidated_rkey == open.mr->rkey ? "right" : "wrong");
  if (!is_all(open.memory, kRight)) {
    std::printf("the write before it has not come\n");
    return 1;
  }
  say(end, 0);
  const bool over = app::tell_ending(end, 1);
  std::printf("memory: %s\n", is_all(open.memory, kRight) ? "untouched" : "CHANGED");
  return over && is_all(open.memory, kRight) ? 0 : 1;
}

int ask(char** words) {
  const std::string_view what = words[4];
  app::Endpoint end = app::resolve(words[2], words[3]);
  end.make_queues(8);
  end.make_memory(8192, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  end.post_receive(4096, 64, 1);
  end.post_receive(4160, 64, 2);
  app::Target target = app::connect(end);

  std::fill_n(end.memory, kSize, kRight);
  if ((errno = end.post(IBV_WR_RDMA_WRITE, 0, kSize, &target, 10)) != 0) app::fail("ibv_post_send");
  const ibv_wc wc = app::Endpoint::poll(end.send_cq);
  std::printf("allowed write: %s\n", ibv_wc_status_str(wc.status));
  say(end, what == "invalidate" ? target.rkey : 0);
  const ibv_wc answer = app::Endpoint::poll(end.recv_cq);
  std::printf("answer: %s\n", ibv_wc_status_str(answer.status));

  if (what != "invalidate") target.rkey ^= 0x5a5a5a00;
  std::fill_n(end.memory, kSize, kWrong);
  const ibv_wr_opcode opcode = what == "read" ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
  if ((errno = end.post(opcode, 0, kSize, &target, 11)) != 0) app::fail("ibv_post_send");
  std::printf("forbidden %s: %s\n", what == "read" ? "read" : "write",
              ibv_wc_status_str(app::Endpoint::poll(end.send_cq).status));
  return app::tell_ending(end, 1) ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  if (count != 5) {
    std::fprintf(stderr, "usage: wrong_key server|client ADDRESS PORT write|read|invalidate\n");
    return 2;
  }
  return std::string_view(words[1]) == "server" ? serve(words) : ask(words);
}
