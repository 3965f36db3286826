// Forks and threads beside live connections: for each kind of memory and each thing that a child does, data goes both
// ways before the fork and after it, and each end has what it should, as the child has what was there when it forked.
//
//   forks server|client ADDRESS PORT [--fork-init]
#include <pthread.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>
#include <thread>

#include "rdma_app.hpp"

extern char** environ;

namespace {

constexpr std::size_t kSize = 3 * 4096 + 100;
constexpr std::size_t kHuge = 2 << 20;
constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

enum class Kind { plain, shared, huge, transparent };
enum class Child { idles, writes, execs, exits, spawned, none };
constexpr const char* kKinds[] = {"plain memory", "shared memory", "huge pages", "transparent huge pages"};
constexpr const char* kChildren[] = {"a child that idles", "a child that writes", "a child that execs",
                                     "a child that exits", "posix_spawn",         "no child"};

struct Case {
  Kind kind;
  Child child;
  bool before = false;  // the connection is made by a child that was forked before

  std::string title() const {
    return std::string(kKinds[static_cast<int>(kind)]) + ", " + kChildren[static_cast<int>(child)] +
           (before ? ", of a child that connects" : "");
  }
};

// What librdmacm has opened is its process's: those that fork before come first.
std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (const Kind kind : {Kind::plain, Kind::transparent})
    for (const Child child : {Child::none, Child::writes, Child::execs}) all.push_back({kind, child, true});
  for (const Kind kind : {Kind::plain, Kind::shared, Kind::huge, Kind::transparent})
    for (const Child child : {Child::idles, Child::writes, Child::execs, Child::exits, Child::spawned})
      all.push_back({kind, child});
  return all;
}

bool g_fork_init = false;

[[noreturn]] void wrong(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

// Of this process, in huge pages that nobody asked for by name.
long transparent_kib() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);)
    if (line.rfind("AnonHugePages:", 0) == 0) return std::atol(line.c_str() + sizeof "AnonHugePages:");
  return 0;
}

void say_plain(Kind kind) {
  std::printf("(no %s here: plain memory in their place)\n", kKinds[static_cast<int>(kind)]);
}

std::byte* transparent_memory() {
  void* room = mmap(nullptr, 2 * kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) app::fail("mmap");
  auto* memory = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(room) + kHuge - 1) / kHuge * kHuge);
  madvise(memory, kHuge, MADV_HUGEPAGE);
  const long before = transparent_kib();
  *memory = std::byte{1};
  if (transparent_kib() < before + static_cast<long>(kHuge >> 10)) say_plain(Kind::transparent);
  return memory;
}

// Where there are no huge pages, plain ones: the peer may have some.
std::byte* memory_of(Kind kind) {
  if (kind == Kind::transparent) return transparent_memory();
  void* memory = MAP_FAILED;
  if (kind == Kind::huge) {
    memory = mmap(nullptr, kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (memory == MAP_FAILED) say_plain(kind);
  }
  if (memory == MAP_FAILED) {
    const int sharing = kind == Kind::shared ? MAP_SHARED : MAP_PRIVATE;
    memory = mmap(nullptr, 2 * kSize, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);
  }
  if (memory == MAP_FAILED) app::fail("mmap");
  return static_cast<std::byte*>(memory);
}

void take_memory(app::Endpoint& end, Kind kind) {
  end.size = kSize;
  end.memory = memory_of(kind);
  end.mr = ibv_reg_mr(end.pd, end.memory, kSize, kAll);
  if (end.mr == nullptr) app::fail("ibv_reg_mr");
}

void fill(const app::Endpoint& end, unsigned char with) { std::memset(end.memory, with, kSize); }

bool is(const app::Endpoint& end, unsigned char with) {
  for (std::size_t i = 0; i < kSize; ++i)
    if (end.memory[i] != std::byte{with}) return false;
  return true;
}

void expect_all(const app::Endpoint& end, unsigned char with, const char* when) {
  if (!is(end, with)) wrong(std::string("wrong data ") + when);
}

void completes(ibv_cq* cq, const char* what) {
  const ibv_wc wc = app::Endpoint::poll(cq);
  if (wc.status != IBV_WC_SUCCESS) wrong(std::string(what) + ": " + ibv_wc_status_str(wc.status));
}

// What the children are for: `end` holds `with` now. Each is over when its parent closes the pipe.
class Children {
 public:
  Children(const app::Endpoint& end, Kind kind, Child child, unsigned char with) {
    if (child == Child::none) return;
    if (child == Child::spawned) {
      spawn();
      return;
    }
    if (pipe(pipe_) != 0) app::fail("pipe");
    pid_ = fork();
    if (pid_ < 0) app::fail("fork");
    if (pid_ == 0) live(end, kind, child, with);
    close(pipe_[0]);
    pipe_[0] = -1;
  }
  void end() {
    if (pid_ <= 0) return;
    if (pipe_[1] >= 0) close(pipe_[1]);
    int status = 0;
    if (waitpid(pid_, &status, 0) != pid_) app::fail("waitpid");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) wrong("a child ended with " + std::to_string(status));
    pid_ = 0;
  }

 private:
  void spawn() {
    const char* words[] = {"true", nullptr};
    if ((errno = posix_spawnp(&pid_, "true", nullptr, nullptr, const_cast<char**>(words), environ)) != 0)
      app::fail("posix_spawn");
    if (std::system("true") != 0) wrong("system(\"true\") failed");
  }

  [[noreturn]] void live(const app::Endpoint& end, Kind kind, Child child, unsigned char with) {
    close(pipe_[1]);
    if (child == Child::execs) {
      execlp("true", "true", nullptr);
      _exit(9);
    }
    if (child == Child::exits) std::exit(0);
    // After ibv_fork_init() a child has none of the registered pages: whoever touches them dies of it.
    const bool has_it = !g_fork_init;
    if (child == Child::writes && kind == Kind::shared) end.memory[2 * kSize - 1] = std::byte{0x77};
    const bool has_own = child == Child::writes && kind != Kind::shared && has_it;
    if (has_own && !is(end, with)) _exit(4);
    if (has_own) fill(end, 0xEE);
    char octet;
    while (read(pipe_[0], &octet, 1) < 0 && errno == EINTR) {
    }
    // What peers have placed meanwhile is the parent's.
    if (has_own && !is(end, 0xEE)) _exit(5);
    _exit(0);
  }

  pid_t pid_ = 0;
  int pipe_[2] = {-1, -1};
};

void serve_one(const rdma_cm_id* listener, const Case& one) {
  app::Endpoint end = app::next_request(listener);
  end.make_queues(16);
  take_memory(end, one.kind);
  for (std::uint64_t i = 0; i < 3; ++i) end.post_receive(0, 0, i);
  app::accept(end, {reinterpret_cast<std::uint64_t>(end.memory), end.mr->rkey, kSize});
  completes(end.recv_cq, "the first word");
  expect_all(end, 0x11, "before the fork");

  Children children(end, one.kind, one.child, 0x11);
  fill(end, 0x22);  // a page that both have is copied now
  if (end.post(IBV_WR_SEND, 0, 0, nullptr, 1) != 0) app::fail("ibv_post_send");
  completes(end.send_cq, "the server's word");
  completes(end.recv_cq, "the second word");
  expect_all(end, 0x33, "written by the peer after the fork");
  fill(end, 0x44);
  if (end.post(IBV_WR_SEND, 0, 0, nullptr, 2) != 0) app::fail("ibv_post_send");
  completes(end.send_cq, "the server's second word");
  completes(end.recv_cq, "the last word");
  children.end();
  expect_all(end, 0x44, "after the child's end");
  rdma_disconnect(end.id);
  rdma_ack_cm_event(app::expect(end.channel, RDMA_CM_EVENT_DISCONNECTED));
}

void write_and_tell(app::Endpoint& end, const app::Target& target) {
  if (end.post(IBV_WR_RDMA_WRITE, 0, kSize, &target, 1) != 0) app::fail("ibv_post_send");
  completes(end.send_cq, "a Write");
  if (end.post(IBV_WR_SEND, 0, 0, nullptr, 2) != 0) app::fail("ibv_post_send");
  completes(end.send_cq, "a Send");
}

void call_one(char** words, const Case& one) {
  app::Endpoint end = app::resolve(words[2], words[3]);
  end.make_queues(16);
  take_memory(end, one.kind);
  for (std::uint64_t i = 0; i < 2; ++i) end.post_receive(0, 0, i);
  const app::Target target = app::connect(end);
  fill(end, 0x11);
  write_and_tell(end, target);

  Children children(end, one.kind, one.child, 0x11);
  completes(end.recv_cq, "the server's word");
  if (end.post(IBV_WR_RDMA_READ, 0, kSize, &target, 3) != 0) app::fail("ibv_post_send");
  completes(end.send_cq, "a Read");
  expect_all(end, 0x22, "read after the fork");
  fill(end, 0x33);
  write_and_tell(end, target);
  completes(end.recv_cq, "the server's second word");
  children.end();
  if (end.post(IBV_WR_RDMA_READ, 0, kSize, &target, 4) != 0) app::fail("ibv_post_send");
  completes(end.send_cq, "a Read");
  expect_all(end, 0x44, "read after the child's end");
  if (end.post(IBV_WR_SEND, 0, 0, nullptr, 5) != 0) app::fail("ibv_post_send");
  completes(end.send_cq, "the last Send");
  rdma_ack_cm_event(app::expect(end.channel, RDMA_CM_EVENT_DISCONNECTED));
  rdma_disconnect(end.id);
}

// In a child that was forked before anything of it, or here.
template <typename F>
void in_its_process(bool before, F&& f) {
  if (!before) return f();
  const pid_t pid = fork();
  if (pid < 0) app::fail("fork");
  if (pid == 0) {
    f();
    std::exit(0);
  }
  int status = 0;
  if (waitpid(pid, &status, 0) != pid || status != 0) wrong("the child ended with " + std::to_string(status));
}

// ---- Threads: each has a connection, and all post and poll while another forks ----

constexpr int kThreads = 4;
constexpr std::uint32_t kTurns = 300;

void play(app::Endpoint& end, bool begins) {
  for (std::uint32_t i = 0; i < kTurns; ++i) {
    if (begins && end.post(IBV_WR_SEND, 0, 64, nullptr, i) != 0) app::fail("ibv_post_send");
    completes(end.recv_cq, "a turn");
    if (i + 8 < kTurns) end.post_receive(0, 64, i);
    if (!begins && end.post(IBV_WR_SEND, 0, 64, nullptr, i) != 0) app::fail("ibv_post_send");
    completes(end.send_cq, "a Send of a turn");
  }
}

void threads(std::array<app::Endpoint, kThreads>& ends, bool begins) {
  std::atomic<int> playing{kThreads};
  std::array<std::thread, kThreads> players;
  for (int i = 0; i < kThreads; ++i)
    players[static_cast<std::size_t>(i)] = std::thread([&, i] {
      play(ends[static_cast<std::size_t>(i)], begins);
      --playing;
    });
  int forked = 0;
  while (playing > 0 || forked < 5) {
    Children child(ends[0], Kind::plain, forked % 2 == 0 ? Child::execs : Child::exits, 0);
    child.end();
    ++forked;
  }
  for (std::thread& each : players) each.join();
}

void ready(app::Endpoint& end) {
  end.make_queues(16);
  take_memory(end, Kind::plain);
  for (std::uint64_t i = 0; i < 8; ++i) end.post_receive(0, 64, i);
}

int serve(char** words) {
  const rdma_cm_id* listener = app::listen(words[2], words[3]);
  std::printf("listening\n");
  std::fflush(stdout);
  std::array<app::Endpoint, kThreads> ends;
  for (const Case& one : all_cases()) serve_one(listener, one);
  for (app::Endpoint& end : ends) {
    end = app::next_request(listener);
    ready(end);
    app::accept(end, {});
  }
  threads(ends, false);
  for (app::Endpoint& end : ends) rdma_ack_cm_event(app::expect(end.channel, RDMA_CM_EVENT_DISCONNECTED));
  std::printf("all as it should be\n");
  return 0;
}

int call(char** words) {
  for (const Case& one : all_cases()) {
    in_its_process(one.before, [&] { call_one(words, one); });
    std::printf("%s\n", one.title().c_str());
    std::fflush(stdout);
  }
  std::array<app::Endpoint, kThreads> ends;
  for (app::Endpoint& end : ends) {
    end = app::resolve(words[2], words[3]);
    ready(end);
    app::connect(end);
  }
  threads(ends, true);
  for (app::Endpoint& end : ends) rdma_disconnect(end.id);
  std::printf("all as it should be\n");
  return 0;
}

}  // namespace

int main(int count, char** words) {
  g_fork_init = count == 5 && std::string(words[4]) == "--fork-init";
  if (count < 4 || (count == 5 && !g_fork_init)) {
    std::fprintf(stderr, "usage: forks server|client ADDRESS PORT [--fork-init]\n");
    return 2;
  }
  setenv("RDMAV_HUGEPAGES_SAFE", "1", 1);  // ibv_fork_init(3) asks for it of who has huge pages
  if (g_fork_init && (errno = ibv_fork_init()) != 0) app::fail("ibv_fork_init");
  return std::string(words[1]) == "server" ? serve(words) : call(words);
}
