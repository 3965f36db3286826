// A process whose memory peers write to becomes another program while a child of its has the connection to the daemon
// still, and its helper's number comes to be another process's.
//
//   held target ADDRESS PORT GO    registers memory at a fixed address, forks the child, tells of its helper; when the
//                                  file GO is there it becomes a victim
//   held writer ADDRESS PORT GO    connects; when GO is there it writes and reads once, and tells how that ended
//   held victim GO                 has memory at that address; when GO is there it tells whether it was written to
#include <dirent.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "rdma_app.hpp"

namespace {

constexpr std::size_t kSize = 1 << 16;
void* const kAddress = reinterpret_cast<void*>(0x5f0000000000);

void wait_for(const char* file) {
  while (access(file, F_OK) != 0) usleep(5'000);
}

std::byte* fixed_memory(unsigned char octet) {
  void* at = mmap(kAddress, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (at != kAddress) app::fail("mmap");
  std::memset(at, octet, kSize);
  return static_cast<std::byte*>(at);
}

std::string thread_called(const std::string& name) {
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* task = readdir(tasks)) {
    std::ifstream comm("/proc/self/task/" + std::string(task->d_name) + "/comm");
    std::string found;
    if (std::getline(comm, found) && found == name) return task->d_name;
  }
  app::fail("no thread " + name);
}

void say(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

int target(char** words) {
  app::Endpoint end = app::listen_one(words[2], words[3]);
  end.make_queues(16);
  end.memory = fixed_memory(0x22);
  end.mr =
      ibv_reg_mr(end.pd, end.memory, kSize, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  if (end.mr == nullptr) app::fail("ibv_reg_mr");
  app::accept(end, {reinterpret_cast<std::uint64_t>(end.memory), end.mr->rkey, kSize});
  const pid_t parent = getpid();
  if (fork() == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == parent) usleep(50'000);
    _exit(0);
  }
  say("helper " + thread_called("rnic-watch"));
  wait_for((std::string(words[4]) + ".exec").c_str());
  execl("/proc/self/exe", words[0], "victim", words[4], nullptr);
  app::fail("exec");
}

int writer(char** words) {
  app::Endpoint end = app::resolve(words[2], words[3]);
  end.make_queues(16);
  end.make_memory(kSize, IBV_ACCESS_LOCAL_WRITE);
  const app::Target there = app::connect(end);
  std::memset(end.memory, 0x77, kSize);
  say("connected");
  wait_for(words[4]);
  for (const auto opcode : {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE}) {
    if (end.post(opcode, 0, kSize, &there, 1) != 0) break;
    const ibv_wc wc = app::Endpoint::poll(end.send_cq);
    say(std::string(opcode == IBV_WR_RDMA_READ ? "read: " : "write: ") + ibv_wc_status_str(wc.status));
  }
  say(end.memory[0] == std::byte{0x33} ? "read another's memory" : "nothing of another's");
  return 0;
}

int victim(const char* go) {
  const std::byte* memory = fixed_memory(0x33);
  say("victim");
  wait_for((std::string(go) + ".look").c_str());
  for (std::size_t i = 0; i < kSize; ++i) {
    if (memory[i] == std::byte{0x33}) continue;
    say("was written to");
    return 1;
  }
  say("unharmed");
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const std::string role = count > 1 ? words[1] : "";
  if (role == "target" && count == 5) return target(words);
  if (role == "writer" && count == 5) return writer(words);
  if (role == "victim" && count == 3) return victim(words[2]);
  std::fprintf(stderr, "usage: held target|writer ADDRESS PORT GO | victim GO\n");
  return 2;
}
