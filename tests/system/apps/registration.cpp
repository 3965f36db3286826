// What a registration costs, and what a program with many of them has left: one region after another of
// memory of its own, each size by itself, while others live.
//
//   registration ADDRESS SIZE REGIONS ROUNDS
//     microseconds, the median of ROUNDS: registering fresh memory, registering it again, deregistering;
//     REGIONS others of 8 KiB live meanwhile
//   registration ADDRESS many COUNT
//     COUNT regions of 8 KiB at once; at SIGUSR1 opens files, maps memory, forks
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "rdma_app.hpp"

namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr std::size_t kSmall = 8192;

// Each has a page before it that is not registered, as buffers of a program have headers and neighbours.
char* fresh(std::size_t size) {
  auto* memory = static_cast<char*>(std::aligned_alloc(4096, size + 4096)) + 4096;
  for (std::size_t i = 0; i < size; i += 512) memory[i] = static_cast<char>(i / 512 + 1);
  return memory;
}

bool intact(const char* memory, std::size_t size) {
  for (std::size_t i = 0; i < size; i += 512)
    if (memory[i] != static_cast<char>(i / 512 + 1)) return false;
  return true;
}

ibv_mr* registered(ibv_pd* pd, char* memory, std::size_t size) {
  ibv_mr* mr = ibv_reg_mr(pd, memory, size, kAccess);
  if (mr == nullptr) app::fail("ibv_reg_mr");
  return mr;
}

struct Clock {
  std::vector<double> us;
  template <typename Work>
  void time(Work work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  double median() {
    std::sort(us.begin(), us.end());
    return us[us.size() / 2];
  }
};

int cost(ibv_pd* pd, std::size_t size, int others, int rounds) {
  for (int i = 0; i < others; ++i) registered(pd, fresh(kSmall), kSmall);
  Clock first;
  Clock again;
  Clock gone;
  for (int i = 0; i < rounds + 3; ++i) {
    char* memory = fresh(size);
    ibv_mr* mr = nullptr;
    first.time([&] { mr = registered(pd, memory, size); });
    gone.time([&] { ibv_dereg_mr(mr); });
    again.time([&] { mr = registered(pd, memory, size); });
    ibv_dereg_mr(mr);
    if (i < 3) first.us.clear(), again.us.clear(), gone.us.clear();
  }
  std::printf("%zu octets beside %d regions: register %.1f us, again %.1f us, deregister %.1f us\n", size, others,
              first.median(), again.median(), gone.median());
  return 0;
}

int many(const char* address, int count) {
  sigset_t going_on;
  sigemptyset(&going_on);
  sigaddset(&going_on, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &going_on, nullptr);
  ibv_pd* pd = app::protection_domain(address);
  std::vector<char*> memory;
  std::vector<ibv_mr*> regions;
  for (int i = 0; i < count; ++i) {
    memory.push_back(fresh(kSmall));
    regions.push_back(registered(pd, memory.back(), kSmall));
  }
  std::printf("registered\n");
  std::fflush(stdout);
  int number = 0;  // whoever looks at us and at the daemon says when
  sigwait(&going_on, &number);

  std::vector<int> files;
  while (files.size() < 500) {
    files.push_back(open("/dev/null", O_RDONLY));
    if (files.back() < 0) app::fail("open");
  }
  for (const int fd : files) close(fd);
  for (int i = 0; i < 1000; ++i) {  // neighbours that cannot be one mapping
    const int rights = i % 2 == 0 ? PROT_READ : PROT_READ | PROT_WRITE;
    if (mmap(nullptr, 4096, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) app::fail("mmap");
  }
  const pid_t child = fork();
  if (child < 0) app::fail("fork");
  if (child == 0) {
    for (char* each : memory) {
      if (!intact(each, kSmall)) _exit(1);
      std::memset(each, 'c', kSmall);
    }
    _exit(0);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) app::fail("the child's memory is not as it was");
  for (char* each : memory)
    if (!intact(each, kSmall)) app::fail("the child's stores are here");
  // Every other first.
  for (std::size_t from : {1, 0})
    for (std::size_t i = from; i < regions.size(); i += 2)
      if ((errno = ibv_dereg_mr(regions[i])) != 0) app::fail("ibv_dereg_mr");
  std::printf("well\n");
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count == 4 && std::strcmp(words[2], "many") == 0) return many(words[1], std::atoi(words[3]));
  if (count != 5) {
    std::fprintf(stderr, "usage: registration ADDRESS SIZE REGIONS ROUNDS\n       registration ADDRESS many COUNT\n");
    return 2;
  }
  return cost(app::protection_domain(words[1]), std::strtoul(words[2], nullptr, 10), std::atoi(words[3]),
              std::atoi(words[4]));
}
