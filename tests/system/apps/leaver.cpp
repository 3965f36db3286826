// A client that leaves by exit, without a disconnect, and a server that tells how it heard of that.
//
//   leaver server ADDRESS PORT idle|busy     idle: nothing is under way but receives that are posted;
//                                            busy: Reads of the client's memory, one after another
//   leaver client ADDRESS PORT
//
// The server prints what it is told, line by line (ending.hpp).
#include <unistd.h>

#include <chrono>
#include <string_view>

#include "ending.hpp"

namespace {

constexpr std::size_t kBytes = 8 << 20;
constexpr std::uint32_t kReads = 16;
constexpr int kReceives = 2;

// A message that opens the conversation, so that both directions have been used.
void greet(app::Endpoint& end) {
  if (end.post(IBV_WR_SEND, 0, 8, nullptr, 1) != 0) app::fail("ibv_post_send");
  if (app::Endpoint::poll(end.send_cq).status != IBV_WC_SUCCESS) app::fail("the greeting was not sent");
}

int leave(char** words) {
  app::Endpoint end = app::resolve(words[2], words[3]);
  end.make_queues(kReads);
  end.make_memory(kBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  // Where the server may read, in its first message.
  const app::Target own{reinterpret_cast<std::uint64_t>(end.memory), end.mr->rkey, kBytes};
  std::memcpy(end.memory, &own, sizeof own);
  end.post_receive(64, 8, 1);
  app::connect(end);
  if (end.post(IBV_WR_SEND, 0, sizeof own, nullptr, 1) != 0) app::fail("ibv_post_send");
  if (app::Endpoint::poll(end.send_cq).status != IBV_WC_SUCCESS) app::fail("the first message was not sent");
  if (app::Endpoint::poll(end.recv_cq).status != IBV_WC_SUCCESS) app::fail("no greeting came");
  poll(nullptr, 0, 300);
  _exit(0);
}

int serve(char** words) {
  const bool busy = std::string_view(words[4]) == "busy";
  app::Endpoint end = app::listen_one(words[2], words[3]);
  end.make_queues(kReads);
  end.make_memory(kBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  end.post_receive(0, sizeof(app::Target), 1);
  app::accept(end, {});
  if (app::Endpoint::poll(end.recv_cq).status != IBV_WC_SUCCESS) app::fail("no message came");
  app::Target target{};
  std::memcpy(&target, end.memory, sizeof target);
  for (int i = 0; i < kReceives; ++i) end.post_receive(0, 64, 2);
  greet(end);
  if (busy) {
    for (std::uint32_t i = 0; i < kReads / 2; ++i)
      if (end.post(IBV_WR_RDMA_READ, 0, target.length, &target, 3) != 0) app::fail("ibv_post_send");
    while (app::Endpoint::poll(end.send_cq).status == IBV_WC_SUCCESS &&
           end.post(IBV_WR_RDMA_READ, 0, target.length, &target, 3) == 0) {
    }
  }
  return app::tell_ending(end, kReceives) ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  const bool client = count == 4 && std::string_view(words[1]) == "client";
  if (!client && !(count == 5 && std::string_view(words[1]) == "server")) {
    std::fprintf(stderr, "usage: leaver server ADDRESS PORT idle|busy\n       leaver client ADDRESS PORT\n");
    return 2;
  }
  return client ? leave(words) : serve(words);
}
