// Applications whose pages do not come, as control has to do with them.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "kit/held_copier.hpp"
#include "kit/server_world.hpp"
#include "kit/tpt_move_owner.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

// A context is open, and a copy into its memory waits.
struct Scene {
  Scene() {
    memory.resize(4096);
    region = app->reg(pd, memory.data(), memory.size(), RNIC_ACCESS_LOCAL_WRITE).as<rnic_reg_mr_reply>().mr;
    qp = app->qp(pd, app->cq());
  }
  ~Scene() {
    copier.let_go(0);
    daemon.server.reset();  // before its owners
  }
  // The application's helper is of no use here: it is reached by descriptor.
  void get_stuck() {
    copier.hold(0);
    core::Worker& worker = *daemon.machine.workers[0];
    worker.call([&](Instant) {
      (void)worker.mover().place(octets,
                                 {SpaceId{0}, reinterpret_cast<std::uint64_t>(memory.data()), nullptr, 8, Stag{}},
                                 tpt::Part::tail, {&owner, 0});
    });
    copier.await_held();
    while (worker.counters().replaced == 0) worker.call([](Instant) {});
    daemon.settle();
  }
  void ask(std::uint32_t type, std::uint32_t handle) {
    const rnic_msg header{type, 77, 0, sizeof(rnic_msg) + sizeof(rnic_handle)};
    const rnic_handle body{handle, 0};
    send(header, &body);
  }
  void ask_to_reregister(const rnic_rereg_mr& body) {
    send({RNIC_REREG_MR, 77, 0, sizeof(rnic_msg) + sizeof body}, &body);
  }
  void send(const rnic_msg& header, const void* body) {
    std::vector<std::byte> message(header.length);
    std::memcpy(message.data(), &header, sizeof header);
    std::memcpy(message.data() + sizeof header, body, header.length - sizeof header);
    app->send_octets(message);
  }
  // -1: none has come.
  int answer() {
    for (int i = 0; i < 3; ++i) daemon.settle();
    std::byte octets_in[RNIC_MSG_MAX];
    if (recv(app->socket.get(), octets_in, sizeof octets_in, MSG_DONTWAIT) < static_cast<ssize_t>(sizeof(rnic_msg)))
      return -1;
    rnic_msg header;
    std::memcpy(&header, octets_in, sizeof header);
    CHECK(header.id == 77);
    return header.status;
  }
  int await_answer() {
    for (;;) {
      if (const int status = answer(); status >= 0) return status;
      daemon.loop.turn(10);
    }
  }
  std::size_t lines_with(const std::string& what) const {
    return static_cast<std::size_t>(std::count_if(daemon.log.begin(), daemon.log.end(), [&](const auto& line) {
      return line.second.find(what) != std::string::npos;
    }));
  }

  HeldCopier copier;
  Owner owner;
  std::vector<std::byte> memory;
  std::byte octets[8] = {std::byte{0x77}};
  Daemon daemon{Daemon::kTwoDevices, &copier};
  std::unique_ptr<App> app = std::make_unique<App>(daemon);
  std::uint32_t pd = app->pd(), region = 0, qp = 0;
};

}  // namespace

TEST_CASE("V-MR-20: a deregistration is answered when the copy that waits is over; others at once",
          "[control][stuck][V-MR-20]") {
  Scene scene;
  scene.get_stuck();
  App other(scene.daemon);
  SECTION("of the region") { scene.ask(RNIC_DEREG_MR, scene.region); }
  SECTION("the end of a queue pair, whose buffers it may be") { scene.ask(RNIC_DESTROY_QP, scene.qp); }
  CHECK(scene.answer() == -1);
  const auto pd = other.pd();
  const auto others = other.reg(pd, scene.octets, 8, RNIC_ACCESS_LOCAL_READ).as<rnic_reg_mr_reply>().mr;
  CHECK(other.by_handle(RNIC_DEREG_MR, others).status == 0);
  other.qp(pd, other.cq());
  CHECK(scene.answer() == -1);
  CHECK(scene.memory[0] == std::byte{0});
  scene.copier.let_go(0);
  CHECK(scene.await_answer() == 0);
  CHECK(scene.memory[0] == std::byte{0x77});
  CHECK(scene.app->pd() != 0);  // and is served as before
  CHECK(scene.lines_with("a page of its memory does not come") == 1);
}

TEST_CASE("copies are a user's, and that others of his fail, as too many wait, is said once", "[control][stuck]") {
  constexpr unsigned kMost = shm::ApplicationMover::kStuckOfUserMax;
  Scene scene;
  App other(scene.daemon);
  scene.get_stuck();
  core::Worker& worker = *scene.daemon.machine.workers[0];
  const control::Descriptor memory(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  const auto place = [&](SpaceId space) {
    worker.call([&](Instant) {
      (void)worker.mover().place(scene.octets,
                                 {space, reinterpret_cast<std::uint64_t>(scene.memory.data()), nullptr, 8, Stag{}},
                                 tpt::Part::tail, {&scene.owner, 0});
    });
  };
  // As if of further contexts.
  for (unsigned i = 1; i < kMost; ++i) {
    const SpaceId space{100 + i};
    worker.call([&](Instant) { worker.mover().add_space(space, {.mem_fd = memory.get(), .user = geteuid()}); });
    place(space);
  }
  unsigned stuck = 0;
  while (stuck != kMost) worker.call([&](Instant) { stuck = worker.mover().stuck_of(geteuid()); });
  CHECK(scene.lines_with("its other copies fail") == 0);
  for (int i = 0; i < 3; ++i) {
    place(SpaceId{1});
    scene.daemon.settle();
  }
  CHECK(scene.lines_with("its other copies fail") == 1);
}

TEST_CASE("V-MR-10: a reregistration is answered when the copy that waits is over, and is done once",
          "[control][stuck][V-MR-10]") {
  Scene scene;
  scene.get_stuck();
  std::uint64_t word = 0;
  rnic_rereg_mr body{};
  body.mr = scene.region;
  body.to.pd = scene.pd;
  body.to.access = RNIC_ACCESS_LOCAL_READ;
  body.to.start = body.to.iova = reinterpret_cast<std::uintptr_t>(&word);
  body.to.length = sizeof word;
  const bool good = GENERATE(true, false);
  if (!good) body.to.access = RNIC_ACCESS_REMOTE_READ;
  scene.ask_to_reregister(body);
  CHECK(scene.answer() == -1);
  // The old one is gone already: nothing new is placed in it.
  CHECK(scene.daemon.machine.devices[0]->table->used() == (good ? 1 : 0));
  scene.copier.let_go(0);
  CHECK(scene.await_answer() == (good ? 0 : EINVAL));
  CHECK(scene.app->by_handle(RNIC_DEREG_MR, scene.region).status == 0);
  CHECK(scene.daemon.machine.devices[0]->table->used() == 0);
}

TEST_CASE("a context is closed while a copy of its waits, and its number stays taken until that is over",
          "[control][stuck]") {
  Scene scene;
  scene.get_stuck();
  const bool asked = GENERATE(false, true);
  if (asked) scene.ask(RNIC_DEREG_MR, scene.region);
  CHECK(scene.answer() == -1);
  scene.app.reset();
  scene.daemon.settle();
  CHECK(scene.daemon.server->context_count() == 0);
  CHECK(scene.daemon.machine.leaving.size() == 1);
  App other(scene.daemon);
  CHECK(scene.daemon.machine.new_space() == SpaceId{2});
  scene.copier.let_go(0);
  while (!scene.daemon.machine.leaving.empty()) scene.daemon.loop.turn(10);
  CHECK(scene.daemon.machine.new_space() == SpaceId{0});
}

TEST_CASE("an application whose page does not come for page_wait_s is named and ended", "[control][stuck]") {
  HeldCopier copier;
  Owner owner;
  std::vector<std::byte> memory(64);
  std::byte octets[8] = {};
  Daemon daemon(Daemon::kTwoDevices, &copier);
  daemon.machine.page_wait = milliseconds(200);
  int told[2];
  REQUIRE(pipe2(told, O_CLOEXEC) == 0);
  const pid_t child = fork();
  if (child == 0) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) _exit(1);
    if (write(told[1], ends, sizeof ends) != sizeof ends) _exit(1);
    pause();
    _exit(0);
  }
  // The connection is the child's, as the kernel sees it.
  const control::Descriptor hears(told[0]), tells(told[1]);
  int ends[2];
  REQUIRE(read(hears.get(), ends, sizeof ends) == sizeof ends);
  const control::Descriptor process(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
  const auto take = [&](int theirs) {
    return control::Descriptor(static_cast<int>(syscall(SYS_pidfd_getfd, process.get(), theirs, 0)));
  };
  Client client(daemon, control::Peer{child, getuid(), {}}, take(ends[0]), take(ends[1]));
  REQUIRE(client.hello(RNIC_CLIENT_VERBS).status == 0);
  rnic_open_context body{};
  std::memcpy(body.device, "rnic0", 5);
  const control::Descriptor own(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  REQUIRE(client.ask(RNIC_OPEN_CONTEXT, body, {own.get()}).status == 0);
  copier.hold(0);
  core::Worker& worker = *daemon.machine.workers[0];
  worker.call([&](Instant) {
    (void)worker.mover().place(octets, {SpaceId{0}, reinterpret_cast<std::uint64_t>(memory.data()), nullptr, 8, Stag{}},
                               tpt::Part::tail, {&owner, 0});
  });
  while (daemon.server->context_count() != 0) daemon.loop.turn(10);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  worker.call([&](Instant) { worker.mover().forget(owner); });
  copier.let_go(0);
  while (!daemon.machine.leaving.empty()) daemon.loop.turn(10);
  std::vector<std::string> lines;
  for (const auto& [level, line] : daemon.log)
    if (line.find("a page of its memory") != std::string::npos) lines.push_back(line);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].find("process " + std::to_string(child)) == 0);
  CHECK(lines[1].find("is ended") != std::string::npos);
}
