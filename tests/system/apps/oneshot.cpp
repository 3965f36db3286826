// Sends, polls its completions, and exits at once, without disconnecting: the peer must receive it
// all.
//
//   oneshot server ADDRESS PORT COUNT SIZE
//   oneshot client ADDRESS PORT COUNT SIZE
#include <unistd.h>

#include "rdma_app.hpp"

namespace {

std::byte pattern(std::uint32_t message, std::uint32_t octet) {
  return static_cast<std::byte>(message * 31 + octet * 7);
}

int serve(char** words, std::uint32_t count, std::uint32_t size) {
  app::Endpoint end = app::listen_one(words[2], words[3]);
  end.make_queues(count + 1);
  end.make_memory(std::size_t{count} * size, IBV_ACCESS_LOCAL_WRITE);
  for (std::uint32_t i = 0; i < count; ++i) end.post_receive(std::size_t{i} * size, size, i);
  app::accept(end, {});
  for (std::uint32_t i = 0; i < count; ++i) {
    const ibv_wc wc = app::Endpoint::poll(end.recv_cq);
    if (wc.status != IBV_WC_SUCCESS || wc.wr_id != i || wc.byte_len != size) {
      std::fprintf(stderr, "message %u: status %s, wr_id %lu, %u octets\n", i, ibv_wc_status_str(wc.status), wc.wr_id,
                   wc.byte_len);
      return 1;
    }
    for (std::uint32_t k = 0; k < size; ++k) {
      if (end.memory[std::size_t{i} * size + k] != pattern(i, k)) {
        std::fprintf(stderr, "message %u, octet %u is wrong\n", i, k);
        return 1;
      }
    }
  }
  std::printf("all %u messages came\n", count);
  rdma_ack_cm_event(app::expect(end.channel, RDMA_CM_EVENT_DISCONNECTED));
  return 0;
}

int send(char** words, std::uint32_t count, std::uint32_t size) {
  app::Endpoint end = app::resolve(words[2], words[3]);
  end.make_queues(count + 1);
  end.make_memory(std::size_t{count} * size, IBV_ACCESS_LOCAL_WRITE);
  for (std::uint32_t i = 0; i < count; ++i)
    for (std::uint32_t k = 0; k < size; ++k) end.memory[std::size_t{i} * size + k] = pattern(i, k);
  app::connect(end);
  for (std::uint32_t i = 0; i < count; ++i)
    if ((errno = end.post(IBV_WR_SEND, std::size_t{i} * size, size, nullptr, i)) != 0) app::fail("ibv_post_send");
  for (std::uint32_t i = 0; i < count; ++i) {
    const ibv_wc wc = app::Endpoint::poll(end.send_cq);
    if (wc.status != IBV_WC_SUCCESS) {
      std::fprintf(stderr, "send %u: %s\n", i, ibv_wc_status_str(wc.status));
      return 1;
    }
    // What completed is the application's again (V-POLL-06).
    std::memset(end.memory + wc.wr_id * size, 0xee, size);
  }
  _exit(0);
}

}  // namespace

int main(int count, char** words) {
  if (count != 6) {
    std::fprintf(stderr, "usage: oneshot server|client ADDRESS PORT COUNT SIZE\n");
    return 2;
  }
  const auto messages = static_cast<std::uint32_t>(std::atoi(words[4]));
  const auto size = static_cast<std::uint32_t>(std::atoi(words[5]));
  return std::string(words[1]) == "server" ? serve(words, messages, size) : send(words, messages, size);
}
