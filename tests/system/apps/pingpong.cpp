// Ping-pong in one thread: both ends of a connection in this process, polled in turn. One thread
// and a daemon are two spinners for two cores, so that what is seen is rnic and not the scheduler.
//
//   pingpong ADDRESS PORT SIZE ROUNDS   half a round trip, in microseconds: median and 99 %
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "rdma_app.hpp"

// What is smaller than a page shares it with others, and stays where it is with `rnic run --fast-memory`.
constexpr std::size_t kPage = 4096;

int main(int count, char** words) {
  if (count != 5) {
    std::fprintf(stderr, "usage: pingpong ADDRESS PORT SIZE ROUNDS\n");
    return 2;
  }
  const auto size = static_cast<std::size_t>(std::atoi(words[3]));
  const int rounds = std::atoi(words[4]);
  app::Endpoint passive;
  app::Target of_passive{};
  std::thread accepting([&] {
    passive = app::listen_one(words[1], words[2]);
    passive.make_queues(128);
    passive.make_memory(std::max<std::size_t>(2 * size, kPage), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    of_passive = {reinterpret_cast<std::uint64_t>(passive.memory) + size, passive.mr->rkey,
                  static_cast<std::uint32_t>(size)};
    app::accept(passive, of_passive);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  app::Endpoint active = app::resolve(words[1], words[2]);
  active.make_queues(128);
  active.make_memory(std::max<std::size_t>(2 * size, kPage), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  app::connect(active);
  accepting.join();
  const app::Target of_active{reinterpret_cast<std::uint64_t>(active.memory) + size, active.mr->rkey,
                              static_cast<std::uint32_t>(size)};

  // The first half of each memory is sent from, the second is written to.
  const auto send = [&](app::Endpoint& from, const app::Target& to, std::byte stamp) {
    from.memory[size - 1] = stamp;
    ibv_sge sge{reinterpret_cast<std::uint64_t>(from.memory), static_cast<std::uint32_t>(size), from.mr->lkey};
    ibv_send_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = to.address;
    wr.wr.rdma.rkey = to.rkey;
    ibv_send_wr* bad = nullptr;
    if ((errno = ibv_post_send(from.id->qp, &wr, &bad)) != 0) app::fail("ibv_post_send");
  };
  const auto wait = [&](app::Endpoint& at, std::byte stamp) {
    const volatile std::byte* last = at.memory + 2 * size - 1;
    while (*last != stamp) {
    }
  };
  const auto drain = [&](app::Endpoint& at) {
    if (app::Endpoint::poll(at.send_cq).status != IBV_WC_SUCCESS) app::fail("a write failed");
  };

  std::vector<double> half_us;
  for (int i = 0; i < rounds; ++i) {
    const auto stamp = static_cast<std::byte>(i % 250 + 1);
    const auto start = std::chrono::steady_clock::now();
    send(active, of_passive, stamp);
    wait(passive, stamp);
    send(passive, of_active, stamp);
    wait(active, stamp);
    half_us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / 2);
    drain(active);
    drain(passive);
  }
  std::sort(half_us.begin(), half_us.end());
  std::printf("%zu octets: median %.2f us, 99 %% %.2f us, least %.2f us\n", size, half_us[half_us.size() / 2],
              half_us[half_us.size() * 99 / 100], half_us.front());
  return 0;
}
