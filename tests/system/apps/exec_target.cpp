// A process that peers write to becomes another program: the new one must be unharmed.
//
//   exec_target server ADDRESS PORT     registers memory, accepts, waits for the first write, execs
//   exec_target client ADDRESS PORT     writes until an error ends it
//   exec_target victim ADDRESS LENGTH   what the server becomes: the same addresses, watched
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rdma_app.hpp"

namespace {

constexpr std::size_t kSize = 1 << 20;

int serve(char** words) {
  app::Endpoint end = app::listen_one(words[2], words[3]);
  end.make_queues(16);
  end.make_memory(kSize, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  app::accept(end, {reinterpret_cast<std::uint64_t>(end.memory), end.mr->rkey, kSize});
  const volatile std::byte* last = end.memory + kSize - 1;
  while (*last == std::byte{0}) {
  }
  const std::string address = std::to_string(reinterpret_cast<std::uint64_t>(end.memory));
  const std::string length = std::to_string(kSize);
  execl("/proc/self/exe", words[0], "victim", address.c_str(), length.c_str(), nullptr);
  app::fail("exec");
}

int write_on(char** words) {
  app::Endpoint end = app::resolve(words[2], words[3]);
  end.make_queues(16);
  end.make_memory(kSize, IBV_ACCESS_LOCAL_WRITE);
  const app::Target target = app::connect(end);
  std::memset(end.memory, 0x77, kSize);
  for (std::uint64_t i = 0;; ++i) {
    if (end.post(IBV_WR_RDMA_WRITE, 0, kSize, &target, i) != 0) break;
    if (app::Endpoint::poll(end.send_cq).status != IBV_WC_SUCCESS) break;
  }
  pollfd wait{end.channel->fd, POLLIN, 0};
  if (poll(&wait, 1, 10'000) != 1) {
    std::fprintf(stderr, "no event told of the peer's end\n");
    return 1;
  }
  rdma_ack_cm_event(app::expect(end.channel, RDMA_CM_EVENT_DISCONNECTED));
  std::printf("writing ended when the peer became another program\n");
  return 0;
}

int watch(char** words) {
  auto* wanted = reinterpret_cast<void*>(std::strtoull(words[2], nullptr, 10));
  const std::size_t length = std::strtoull(words[3], nullptr, 10);
  auto* memory = static_cast<volatile unsigned char*>(
      mmap(wanted, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
  if (memory == MAP_FAILED)
    memory = static_cast<volatile unsigned char*>(
        mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  for (std::size_t i = 0; i < length; ++i) memory[i] = 0x11;
  for (int round = 0; round < 20; ++round) {
    usleep(50'000);
    for (std::size_t i = 0; i < length; ++i) {
      if (memory[i] != 0x11) {
        std::fprintf(stderr, "the new program's memory was written to\n");
        return 1;
      }
    }
  }
  std::printf("unharmed\n");
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) {
    std::fprintf(stderr, "usage: exec_target server|client ADDRESS PORT | victim ADDRESS LENGTH\n");
    return 2;
  }
  const std::string role = words[1];
  if (role == "server") return serve(words);
  return role == "client" ? write_on(words) : watch(words);
}
