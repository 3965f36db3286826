// Nothing that an application does to what it shares with the control thread makes that wait.
#include <netinet/in.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "control/sent_file.hpp"
#include "unit/control/cm_app.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

rnic_address first_device(std::uint16_t port) { return control::to_abi(wire::IpAddress::v4(127, 0, 9, 1), port); }

// One event in the channel.
void cause_event(CmApp& app) {
  rnic_cm_resolve_address resolve{};
  resolve.id = app.id();
  resolve.destination = first_device(1);
  REQUIRE(app.ask(RNIC_CM_RESOLVE_ADDRESS, resolve).status == 0);
}

// A connection whose close lasts until somebody lets it end, or an hour.
struct Lingering {
  Lingering() {
    const control::Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* at = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(bind(listener.get(), at, size) == 0);
    REQUIRE(listen(listener.get(), 1) == 0);
    REQUIRE(getsockname(listener.get(), at, &size) == 0);
    near = control::Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(connect(near.get(), at, size) == 0);
    far = control::Descriptor(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const linger hour{1, 3600};
    REQUIRE(setsockopt(near.get(), SOL_SOCKET, SO_LINGER, &hour, sizeof hour) == 0);
    const std::vector<char> octets(1 << 16);
    while (send(near.get(), octets.data(), octets.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
  }
  control::Descriptor near, far;
};

std::vector<std::byte> message(std::uint32_t type) {
  const rnic_msg header{type, 1, 0, sizeof header};
  const auto* first = reinterpret_cast<const std::byte*>(&header);
  return {first, first + sizeof header};
}

// The answer to such a message: its status, or -1 where the connection has ended, or -2: none yet.
int status_of_answer(Daemon& daemon, Client& client) {
  daemon.settle();
  std::array<std::byte, RNIC_MSG_MAX> octets;
  const ssize_t got = recv(client.socket.get(), octets.data(), octets.size(), MSG_DONTWAIT);
  // A connection that is closed with something unread in it ends with ECONNRESET, once the closer has come to it.
  if (got < 0) return errno == EAGAIN ? -2 : -1;
  if (got < static_cast<ssize_t>(sizeof(rnic_msg))) return -1;
  rnic_msg header;
  std::memcpy(&header, octets.data(), sizeof header);
  return header.status;
}

void wait_until_closed(Daemon& daemon) {
  daemon.closes_hang = false;
  daemon.settle();
}

}  // namespace

TEST_CASE("an application that fills its channel's descriptor does not make the control thread wait",
          "[control][blocking]") {
  signal(SIGPIPE, SIG_IGN);
  Daemon daemon;
  CmApp app(daemon);
  fcntl(app.events.get(), F_SETFL, O_NONBLOCK);
  const std::uint64_t most = ~std::uint64_t{1};
  while (write(app.events.get(), &most, sizeof most) == sizeof most) {
  }
  fcntl(app.events.get(), F_SETFL, 0);
  cause_event(app);
  CHECK(app.by_handle(RNIC_CM_GET_EVENT, app.reply.channel).status == 0);
}

TEST_CASE("events of a channel that nobody reads wait, and each is counted once", "[control][blocking]") {
  Daemon daemon;
  auto count = control::EventCount::create(daemon.loop);
  REQUIRE(count != nullptr);
  const control::Descriptor reader = count->take_reader();
  constexpr std::uint32_t kEvents = 100'000;
  const auto read_all = [&] {
    std::uint32_t seen = 0;
    char octets[64];
    ssize_t got;
    while (daemon.settle(), (got = recv(reader.get(), octets, sizeof octets, MSG_DONTWAIT)) > 0)
      seen += static_cast<std::uint32_t>(got);
    return seen;
  };
  // Half of them are withdrawn where they wait; the other half comes as it is read.
  for (std::uint32_t i = 0; i < kEvents; ++i) count->add(1);
  CHECK(count->withdraw(kEvents / 2) == 0);
  CHECK(read_all() == kEvents / 2);
  // More are withdrawn than wait: the rest has been sent, and is to be read.
  for (std::uint32_t i = 0; i < kEvents; ++i) count->add(1);
  const std::uint32_t to_read = count->withdraw(kEvents - 10);
  CHECK(to_read < kEvents - 10);
  CHECK(read_all() == to_read + 10);
}

TEST_CASE("a channel's reader that hangs up is heard of once", "[control][blocking]") {
  control::Loop loop;
  auto count = control::EventCount::create(loop);
  REQUIRE(count != nullptr);
  const auto is_quiet = [&] {
    int turns = 0;
    while (turns < 10 && loop.turn(0)) ++turns;
    return turns < 10;
  };
  count->add(100'000);
  count->take_reader();
  CHECK(is_quiet());
  count->add(1);
  CHECK(is_quiet());
}

TEST_CASE("an application cannot leave anything in the control thread's end of what it was given",
          "[control][blocking]") {
  Daemon daemon;
  CmApp app(daemon);
  App verbs(daemon);
  Answer channel = app.ask(RNIC_CREATE_CHANNEL);
  const int async = verbs.opened.fds.at(2).get();
  for (const int fd : {app.events.get(), app.lifeline.get(), channel.fds.at(0).get(), async})
    CHECK((send(fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == -1 && errno == EPIPE));
}

TEST_CASE("a descriptor whose close lasts does not make the control thread wait", "[control][blocking]") {
  Daemon daemon;
  daemon.closes_hang = true;
  App app(daemon), bystander(daemon);
  Lingering one;
  app.send_octets(message(RNIC_ALLOC_PD), {one.near.get()});
  one.near = {};  // the only reference left travels
  CHECK(bystander.ask(RNIC_ALLOC_PD).status == 0);
  CHECK(status_of_answer(daemon, app) == 0);
  one.far.reset();
  wait_until_closed(daemon);
}

TEST_CASE("what lies unread in a connection that ends is closed elsewhere, and more descriptors than are taken",
          "[control][blocking]") {
  Daemon daemon;
  daemon.closes_hang = true;
  App bystander(daemon);
  Lingering unread, many;
  {
    App app(daemon);
    app.send_octets(std::vector<std::byte>(3));  // nothing that is understood: the connection ends
    app.send_octets(message(RNIC_ALLOC_PD), {unread.near.get()});
    unread.near.reset();
    CHECK(status_of_answer(daemon, app) == -1);
  }
  App app(daemon);
  app.send_octets(message(RNIC_ALLOC_PD), std::vector<int>(60, many.near.get()));
  many.near.reset();
  CHECK(status_of_answer(daemon, app) == EMFILE);
  CHECK(bystander.ask(RNIC_ALLOC_PD).status == 0);
  unread.far.reset();
  many.far.reset();
  wait_until_closed(daemon);
}

TEST_CASE("of a process whose descriptors do not close no more are taken until they do", "[control][blocking]") {
  Daemon daemon;
  daemon.closes_hang = true;
  App app(daemon), bystander(daemon);
  Lingering first;
  app.send_octets(message(RNIC_ALLOC_PD), {first.near.get()});
  first.near.reset();
  REQUIRE(status_of_answer(daemon, app) == 0);
  const control::Descriptor file(open("/dev/null", O_RDWR | O_CLOEXEC));
  std::size_t taken = 0;
  int status = 0;
  for (; status == 0 && taken < 1000; taken += status == 0 ? 8 : 0) {
    app.send_octets(message(RNIC_ALLOC_PD), std::vector<int>(8, file.get()));
    status = status_of_answer(daemon, app);
  }
  CHECK(status == -2);  // it waits
  CHECK(taken <= control::Closer::kShare + 8);
  CHECK(bystander.ask(RNIC_ALLOC_PD).status == 0);
  first.far.reset();
  wait_until_closed(daemon);
  CHECK(status_of_answer(daemon, app) == 0);
}

TEST_CASE("threads that close end with their closer", "[control][blocking]") {
  const auto threads = [] {
    std::size_t count = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::getline(std::ifstream(task.path() / "comm"), name);
      count += name == "rnic-closer" ? 1 : 0;
    }
    return count;
  };
  // The kernel's list ends early where a thread ends while it is read: asked until it is so.
  const auto come_to = [&](bool some) {
    for (int i = 0; i < 5000; ++i, usleep(1000))
      if ((threads() > 0) == some) return true;
    return false;
  };
  REQUIRE(come_to(false));  // those of tests before this one
  {
    control::Closer closer;
    for (pid_t owner = 1; owner <= 3; ++owner) closer.close(open("/dev/null", O_RDONLY | O_CLOEXEC), owner);
    while (closer.waiting() != 0) usleep(1000);
    CHECK(come_to(true));  // one waits for more
  }
  CHECK(come_to(false));
}

TEST_CASE("V-SEC-25: process memory is known without a question to a file system", "[control][blocking][V-SEC-25]") {
  const auto opened = [](const char* path, int flags) { return control::Descriptor(open(path, flags | O_CLOEXEC)); };
  CHECK(control::is_process_memory(opened("/proc/self/mem", O_RDWR).get(), getpid()));
  CHECK_FALSE(control::is_process_memory(opened("/proc/self/mem", O_RDONLY).get(), getpid()));
  char directory[] = "/tmp/rnic-mem-XXXXXX";
  REQUIRE(mkdtemp(directory) != nullptr);
  const std::string path = std::string(directory) + "/mem";  // of that name, elsewhere
  CHECK_FALSE(control::is_process_memory(opened(path.c_str(), O_RDWR | O_CREAT).get(), getpid()));
  unlink(path.c_str());
  rmdir(directory);
  CHECK(control::is_memory_file(control::Descriptor(memfd_create("m", MFD_CLOEXEC)).get()));
  CHECK_FALSE(control::is_memory_file(opened("/proc/self/exe", O_RDONLY).get()));
}

TEST_CASE("a table of mounts is read to a bound, however long an application's is", "[control][blocking]") {
  char directory[] = "/tmp/rnic-mounts-XXXXXX";
  REQUIRE(mkdtemp(directory) != nullptr);
  const std::string top = directory;
  const pid_t child = fork();
  if (child == 0) {  // 1: not allowed here; 2, 3: the wrong answer; 4: not so many
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) _exit(1);
    if (mount("tmpfs", top.c_str(), "tmpfs", 0, nullptr) != 0) _exit(1);
    // A mount of procfs is known by the number of its own, which comes behind those before it.
    const auto is_known = [&](const std::string& name) {
      const std::string at = top + "/" + name;
      if (mkdir(at.c_str(), 0700) != 0 || mount("proc", at.c_str(), "proc", 0, nullptr) != 0) _exit(1);
      const control::Descriptor memory(open((at + "/self/mem").c_str(), O_RDWR | O_CLOEXEC));
      return control::is_process_memory(memory.get(), getpid());
    };
    if (!is_known("first")) _exit(2);
    const std::string far = top + "/" + std::string(250, 'd');
    if (mkdir(far.c_str(), 0700) != 0) _exit(4);
    for (int i = 0; i < 2000; ++i)  // of 500 octets and more each
      if (mount(far.c_str(), far.c_str(), nullptr, MS_BIND, nullptr) != 0) _exit(4);
    _exit(is_known("last") ? 3 : 0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  rmdir(directory);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 1) {
    std::printf("SKIPPED tables of mounts: not allowed here\n");
    return;
  }
  CHECK(WEXITSTATUS(status) == 0);
}
