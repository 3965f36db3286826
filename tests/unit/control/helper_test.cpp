// By what number an application's memory may be reached, and when that ends (control/helper, control/credentials,
// control/privileges).
#include "control/helper.hpp"

#include <linux/capability.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "control/credentials.hpp"
#include "control/privileges.hpp"
#include "kit/process.hpp"
#include "kit/server_world.hpp"
#include "kit/tpt_move_owner.hpp"
#include "shm/mover.hpp"

using namespace rnic;
using namespace rnic::control;
using namespace rnic::test;

namespace {

constexpr uid_t kUser = 61000;

// Both ways to notice a thread's end.
enum class Way { pidfd, looking };
struct Forced {
  explicit Forced(Way way) {
    way == Way::looking ? setenv("RNIC_NO_THREAD_PIDFD", "1", 1) : unsetenv("RNIC_NO_THREAD_PIDFD");
  }
  ~Forced() { unsetenv("RNIC_NO_THREAD_PIDFD"); }
};

void become(uid_t uid) {
  if (setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0) _exit(90);
}

void lose_all_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capset, &header, data) != 0) _exit(91);
}

// A process with a second thread. `prepares` runs before that is there.
class Process {
 public:
  explicit Process(
      const std::function<void()>& prepares = [] {}, const char* then_exec = nullptr) {
    int told[2], go[2];
    REQUIRE(pipe2(told, O_CLOEXEC) == 0);
    REQUIRE(pipe2(go, O_CLOEXEC) == 0);
    child_ = std::make_unique<Child>([&] {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      prctl(PR_SET_DUMPABLE, 1);  // a test before us may have been another user for a moment
      prepares();
      std::thread([&] {
        const auto tid_here = static_cast<std::uint32_t>(syscall(SYS_gettid));
        if (write(told[1], &tid_here, sizeof tid_here) < 0) _exit(92);
        for (;;) pause();
      }).detach();
      char octet;
      close(go[1]);
      if (read(go[0], &octet, 1) == 1 && then_exec != nullptr) execl(then_exec, then_exec, "60", nullptr);
    });
    close(told[1]);
    close(go[0]);
    go_ = Descriptor(go[1]);
    const Descriptor hears(told[0]);
    REQUIRE(read(hears.get(), &tid, sizeof tid) == sizeof tid);
  }
  void exec() { REQUIRE(write(go_.get(), "x", 1) == 1); }
  void end() { child_->end(); }
  pid_t pid() const { return child_->pid(); }
  int pidfd() const { return child_->pidfd(); }

  std::uint32_t tid = 0;

 private:
  std::unique_ptr<Child> child_;
  Descriptor go_;
};

std::unique_ptr<Helper> helper_of(
    Loop& loop, const Process& process, std::function<void()> on_end = [] {}) {
  auto found = Helper::find(loop, process.pidfd(), process.pid(), process.tid, std::move(on_end));
  REQUIRE(found);
  return std::move(*found);
}

Credentials credentials_of_process(const Process& process) {
  const Descriptor directory(
      open(("/proc/" + std::to_string(process.pid())).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const auto credentials = credentials_of(directory.get());
  REQUIRE(credentials);
  return *credentials;
}

// What a process of its own finds; it may lay down what this one needs.
bool in_child(const std::function<bool()>& finds) {
  const pid_t child = fork();
  if (child == 0) _exit(finds() ? 0 : 1);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status) == 0;
}

Credentials somebody() {
  Credentials credentials;
  credentials.uids = credentials.gids = {61000, 61000, 61000, 61000};
  credentials.pid_namespaces = 1;
  credentials.user_namespace = 7;
  credentials.id_maps = "all;";
  return credentials;
}

}  // namespace

TEST_CASE("what /proc says of a thread is read", "[control][helper]") {
  constexpr std::string_view kText =
      "Name:\trping\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \nNSpid:\t300\t2\n"
      "CapInh:\t0000000000000001\nCapPrm:\t000001ffffffffff\nCapEff:\t0000000000000002\n";
  const auto read = parse_status(kText);
  REQUIRE(read);
  CHECK(read->uids == std::array<std::uint32_t, 4>{1, 2, 3, 4});
  CHECK(read->gids == std::array<std::uint32_t, 4>{5, 6, 7, 8});
  CHECK(read->permitted == 0x1ffffffffff);
  CHECK(read->pid_namespaces == 2);
  for (const std::string_view missing : {"Uid:", "Gid:", "NSpid:", "CapPrm:"}) {
    std::string text(kText);
    text.replace(text.find(missing), missing.size(), "other");
    CHECK_FALSE(parse_status(text));
  }
  CHECK_FALSE(parse_status(""));
  CHECK_FALSE(parse_status("Uid:\t1\t2\t3\nGid:\t5\t6\t7\t8\nNSpid:\t3\nCapPrm:\t0\n"));
  CHECK_FALSE(parse_status("Uid:\t1\t2\t3\tx\nGid:\t5\t6\t7\t8\nNSpid:\t3\nCapPrm:\t0\n"));
}

TEST_CASE("V-SEC-25: who is the same and may do as much is reached by number, and nobody else",
          "[control][helper][V-SEC-25]") {
  const Credentials ours = somebody();
  CHECK(reaches_no_more(ours, somebody()));
  const auto differs = [&](const std::function<void(Credentials&)>& change) {
    Credentials theirs = somebody();
    change(theirs);
    return !reaches_no_more(ours, theirs);
  };
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(differs([&](Credentials& c) { c.uids[i] = 61001; }));
    CHECK(differs([&](Credentials& c) { c.gids[i] = 61001; }));
    Credentials mixed = somebody();
    mixed.uids[i] = 0;
    CHECK_FALSE(reaches_no_more(mixed, mixed));
    mixed = somebody();
    mixed.gids[i] = 0;
    CHECK_FALSE(reaches_no_more(mixed, mixed));
  }
  CHECK(differs([](Credentials& c) { c.pid_namespaces = 2; }));
  CHECK(differs([](Credentials& c) { c.user_namespace = 8; }));
  // Where a namespace may not be looked at, by its maps.
  CHECK_FALSE(differs([](Credentials& c) { c.user_namespace = 0; }));
  CHECK(differs([](Credentials& c) { c.user_namespace = 0, c.id_maps = "0 61000 1;"; }));
  CHECK(differs([](Credentials& c) { c.user_namespace = 0, c.id_maps.clear(); }));
  // More of theirs is no harm; more of ours is.
  CHECK_FALSE(differs([](Credentials& c) { c.permitted = 1; }));
  Credentials stronger = somebody();
  stronger.permitted = 3;
  Credentials weaker = somebody();
  CHECK_FALSE(reaches_no_more(stronger, weaker));
  weaker.permitted = 1;
  CHECK_FALSE(reaches_no_more(stronger, weaker));
  weaker.permitted = 7;
  CHECK(reaches_no_more(stronger, weaker));
  // The number of all strangers is nobody's.
  Credentials stranger = somebody();
  stranger.uids.fill(65534);
  CHECK_FALSE(reaches_no_more(stranger, stranger));
}

TEST_CASE("V-SEC-25: a helper is a thread of the very process, and not its first", "[control][helper][V-SEC-25]") {
  for (const Way way : {Way::pidfd, Way::looking}) {
    const Forced forced(way);
    Loop loop;
    Process process;
    Process other;
    CHECK(helper_of(loop, process)->for_copies() == static_cast<pid_t>(process.tid));
    const auto none = [&](int pidfd, pid_t pid, std::uint32_t tid) {
      const auto found = Helper::find(loop, pidfd, pid, tid, [] {});
      REQUIRE(found);
      return *found == nullptr;
    };
    CHECK(none(process.pidfd(), process.pid(), static_cast<std::uint32_t>(process.pid())));
    CHECK(none(process.pidfd(), process.pid(), 0));
    CHECK(none(process.pidfd(), process.pid(), other.tid));
    CHECK(none(process.pidfd(), process.pid(), static_cast<std::uint32_t>(other.pid())));
    CHECK(none(-1, process.pid(), process.tid));
    CHECK(none(process.pidfd(), 0, process.tid));  // of another pid namespace
    // The number belongs to another process by now.
    process.end();
    CHECK(none(process.pidfd(), other.pid(), other.tid));
  }
}

TEST_CASE("V-SEC-25: of a process that may do less than we only the descriptor is used",
          "[control][helper][V-SEC-25]") {
  if (geteuid() != 0) {
    CHECK(reaches_no_more(*own_credentials(), credentials_of_process(Process())));
    return;
  }
  Loop loop;
  CHECK(helper_of(loop, Process([] { become(kUser); }))->for_copies() == 0);
  CHECK(helper_of(loop, Process(lose_all_capabilities))->for_copies() == 0);
  if (!in_child([] { return unshare(CLONE_NEWUSER) == 0; })) {
    std::printf("SKIPPED root of a user namespace: there is none to be had, as in a chroot\n");
    return;
  }
  // Root of a user namespace, by the namespace and, where that may not be looked at, by its maps.
  const Process confined([] {
    if (unshare(CLONE_NEWUSER) != 0) _exit(93);
    std::ofstream("/proc/self/uid_map") << "0 0 1";
    std::ofstream("/proc/self/gid_map") << "0 0 1";
  });
  CHECK(helper_of(loop, confined)->for_copies() == 0);
  Credentials theirs = credentials_of_process(confined);
  CHECK(theirs.uids[0] == 0);
  theirs.user_namespace = 0;
  CHECK_FALSE(reaches_no_more(*own_credentials(), theirs));
}

TEST_CASE("V-SEC-25: a helper's end is told, by an exec or a kill", "[control][helper][V-SEC-25]") {
  for (const Way way : {Way::pidfd, Way::looking}) {
    const Forced forced(way);
    for (const bool by_exec : {true, false}) {
      Loop loop;
      Process process([] {}, "/bin/sleep");
      bool ended = false;
      std::unique_ptr<Helper> helper;
      helper = helper_of(loop, process, [&] {
        ended = true;
        helper.reset();
      });
      while (loop.turn(0)) {
      }
      CHECK_FALSE(ended);
      by_exec ? process.exec() : process.end();
      while (!ended) loop.turn(10'000);
      CHECK(helper == nullptr);
    }
  }
}

TEST_CASE("V-SEC-25: a context ends with its helper", "[control][helper][V-SEC-25]") {
  for (const Way way : {Way::pidfd, Way::looking}) {
    const Forced forced(way);
    Daemon daemon;
    Client client(daemon, RNIC_CLIENT_VERBS, "");
    int stop[2];
    REQUIRE(pipe2(stop, O_CLOEXEC) == 0);
    std::uint32_t tid = 0;
    Descriptor wakes(stop[1]);
    std::thread helper([&] {
      __atomic_store_n(&tid, static_cast<std::uint32_t>(syscall(SYS_gettid)), __ATOMIC_RELEASE);
      char octet;
      [[maybe_unused]] const auto got = read(stop[0], &octet, 1);
    });
    while (__atomic_load_n(&tid, __ATOMIC_ACQUIRE) == 0) sched_yield();
    rnic_open_context body{};
    std::strcpy(body.device, "rnic0");
    body.helper_tid = tid;
    const Descriptor memory(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
    REQUIRE(client.ask(RNIC_OPEN_CONTEXT, body, {memory.get()}).status == 0);
    daemon.settle();
    CHECK(daemon.server->context_count() == 1);
    wakes.reset();
    helper.join();
    close(stop[0]);
    while (daemon.server->context_count() != 0) REQUIRE(daemon.loop.turn(10'000));
    char octet;
    CHECK(recv(client.socket.get(), &octet, 1, 0) == 0);  // the conversation is over
  }
}

TEST_CASE("V-SEC-13: a daemon keeps what its ports need, and permitted what root's applications have",
          "[control][privileges][V-SEC-13]") {
  using Kind = port::PortSpec::Kind;
  constexpr auto kBit = [](unsigned capability) { return std::uint64_t{1} << capability; };
  for (const Kind kind : {Kind::loopback, Kind::pair, Kind::memif})
    CHECK(needed_capabilities({kind}) == kBit(CAP_SYS_NICE));
  CHECK(needed_capabilities({Kind::pair, Kind::af_packet, Kind::tap}) ==
        (kBit(CAP_SYS_NICE) | kBit(CAP_NET_RAW) | kBit(CAP_NET_ADMIN)));
  for (const Kind kind : {Kind::af_xdp, Kind::pci, Kind::vdev})
    for (const unsigned never :
         {CAP_SYS_PTRACE, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SETUID, CAP_KILL, CAP_SYS_MODULE})
      CHECK((needed_capabilities({kind}) & kBit(never)) == 0);
  const auto effective = [] {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
    syscall(SYS_capget, &header, data);
    return std::uint64_t{data[1].effective} << 32 | data[0].effective;
  };
  CHECK(in_child([&] {
    const std::uint64_t before = own_credentials()->permitted;
    const bool laid_down = lay_down_privileges(~std::uint64_t{0}).empty();
    return laid_down && (effective() & kBit(CAP_SYS_PTRACE)) == 0 &&
           own_credentials()->permitted == (geteuid() == 0 ? before : before & ~kBit(CAP_SYS_PTRACE));
  }));
  CHECK(in_child(
      [&] { return lay_down_privileges(kBit(CAP_SYS_NICE)).empty() && (effective() & ~kBit(CAP_SYS_NICE)) == 0; }));
  if (geteuid() != 0) {
    WARN("another user: needs root");
    return;
  }
  // Started by another user with rights of its ports, such as file capabilities give.
  CHECK(in_child([&] {
    prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
    become(kUser);
    return lay_down_privileges(kBit(CAP_NET_RAW)).empty() && own_credentials()->permitted == kBit(CAP_NET_RAW);
  }));
}

TEST_CASE("V-SEC-25: whoever has a helper's number by now, only a process that we might serve is reached by it",
          "[control][privileges][V-SEC-25]") {
  constexpr std::size_t kSize = 4096;
  auto* const memory =
      static_cast<std::byte*>(mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::memset(memory, 0x11, kSize);
  // As a daemon does it that has laid down its privileges: moved, both ways?
  const auto reaches = [&](const Process& process) {
    return in_child([&] {
      if (!lay_down_privileges(needed_capabilities({})).empty()) _exit(94);
      shm::ApplicationMover mover;
      mover.add_space(SpaceId{1}, {static_cast<pid_t>(process.tid), -1});
      Owner owner;
      std::byte seen[64] = {}, put[64] = {};
      const tpt::Access at{SpaceId{1}, reinterpret_cast<std::uint64_t>(memory), nullptr, 64, Stag{}};
      (void)mover.gather(at, seen, {&owner, 1});
      (void)mover.place(put, at, tpt::Part::body, {&owner, 2});
      mover.flush();
      return owner.told == std::vector<std::pair<std::uint32_t, bool>>{{1, true}, {2, true}} &&
             seen[0] == std::byte{0x11};
    });
  };
  const auto untouched = [&](const Process& process) {
    std::byte seen[kSize] = {};
    const Descriptor theirs(open(("/proc/" + std::to_string(process.pid()) + "/mem").c_str(), O_RDONLY | O_CLOEXEC));
    REQUIRE(pread(theirs.get(), seen, kSize, reinterpret_cast<off_t>(memory)) == static_cast<ssize_t>(kSize));
    return std::memcmp(seen, memory, kSize) == 0;
  };
  const Process same;  // root/root, or user/user
  CHECK(reaches(same));
  CHECK_FALSE(untouched(same));
  if (geteuid() == 0) {
    const Process other([] { become(kUser); });
    CHECK_FALSE(reaches(other));
    CHECK(untouched(other));
  }
  munmap(memory, kSize);
}
