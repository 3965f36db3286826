// What there is only so much of: numbers, watches, descriptors, places; and who gets what is left.
#include "control/limits.hpp"

#include <sys/resource.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <memory>
#include <set>

#include "kit/other_process.hpp"
#include "kit/server_world.hpp"
#include "kit/watches.hpp"
#include "shm/mapping.hpp"

using namespace rnic;
using namespace rnic::test;

// ---- watches ----------------------------------------------------------------------------------

TEST_CASE("V-SEC-11: whatever is refused for want of watches, the daemon goes on", "[control][limits][V-SEC-11]") {
  Daemon daemon;
  App before(daemon);
  const std::size_t descriptors = open_descriptors();
  rnic_open_context body{};
  std::memcpy(body.device, "rnic0", 5);
  // One after the other of those that opening a context takes.
  int opened_with = -1;
  for (int watches = 0; watches < 8 && opened_with < 0; ++watches) {
    Client client(daemon, RNIC_CLIENT_VERBS, "");
    const control::Descriptor memory(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
    const WatchesLeft limit(watches);
    const int status = client.ask(RNIC_OPEN_CONTEXT, body, {memory.get()}).status;
    if (status == 0)
      opened_with = watches;
    else
      CHECK(status == ENOSPC);
  }
  CHECK(opened_with == 2);
  daemon.settle();
  CHECK(open_descriptors() == descriptors);
  CHECK(daemon.machine.devices[0]->counts.contexts == 1);

  Client manager(daemon, RNIC_CLIENT_CM, "");
  {
    const WatchesLeft limit(0);
    CHECK(before.ask(RNIC_CREATE_CHANNEL).status == ENOSPC);
    CHECK(manager.ask(RNIC_CM_OPEN).status == ENOSPC);
  }
  CHECK(daemon.server->connection_manager().channel_count() == 0);
  CHECK(before.try_cq(16).status == 0);
  CHECK(manager.ask(RNIC_CM_OPEN).status == 0);
  CHECK(App(daemon).try_cq(16).status == 0);
}

TEST_CASE("An event that waits for its reader needs no watch that may not be there any more", "[control][limits]") {
  control::Loop loop;
  const auto socket = control::EventSocket::create(loop);
  REQUIRE(socket != nullptr);
  const control::Descriptor reader = socket->take_reader();
  const WatchesLeft limit(0);
  CHECK(control::EventSocket::create(loop) == nullptr);
  CHECK(errno == ENOSPC);
  control::EventSocket::Subject subject;
  constexpr std::uint32_t kEvents = 2000;  // more than a socket holds
  for (std::uint32_t i = 0; i < kEvents; ++i) socket->send_async(subject, i, 0);
  CHECK(subject.waiting > 0);
  std::uint32_t read_so_far = 0;
  std::uint64_t event[2];
  for (bool some = true; some;) {
    some = false;
    while (recv(reader.get(), event, sizeof event, MSG_DONTWAIT) > 0) {
      CHECK(event[0] == read_so_far);
      ++read_so_far;
      some = true;
    }
    while (loop.turn(0)) some = true;
  }
  CHECK(read_so_far == kEvents);
}

TEST_CASE("A reader that hangs up is heard of once", "[control][limits]") {
  control::Loop loop;
  const auto socket = control::EventSocket::create(loop);
  REQUIRE(socket != nullptr);
  control::EventSocket::Subject subject;
  for (int i = 0; i < 2000; ++i) socket->send_async(subject, 1, 0);
  socket->take_reader();
  int turns = 0;
  while (turns < 10 && loop.turn(0)) ++turns;
  CHECK(turns < 10);
  socket->send_async(subject, 1, 0);
  CHECK(socket->waiting() == 0);
  turns = 0;
  while (turns < 10 && loop.turn(0)) ++turns;
  CHECK(turns < 10);
}

// ---- multicast --------------------------------------------------------------------------------

namespace {

// One with queue pairs of type UD.
struct Attacher : Client {
  Attacher(Daemon& daemon, pid_t pid) : Client(daemon, control::Peer{pid, getuid(), {}}) {
    REQUIRE(hello(RNIC_CLIENT_VERBS).status == 0);
    rnic_open_context body{};
    std::memcpy(body.device, "rnic0", 5);
    const control::Descriptor memory(open(("/proc/" + std::to_string(pid) + "/mem").c_str(), O_RDWR | O_CLOEXEC));
    REQUIRE(ask(RNIC_OPEN_CONTEXT, body, {memory.get()}).status == 0);
    of = ask(RNIC_ALLOC_PD).as<rnic_handle_reply>().handle;
    rnic_create_cq wishes{};
    wishes.entries_min = 16;
    to = ask(RNIC_CREATE_CQ, wishes).as<rnic_create_cq_reply>().cq;
  }
  std::uint32_t datagrams() {
    rnic_create_qp body{};
    body.pd = of;
    body.send_cq = body.recv_cq = to;
    body.send_wr_min = body.recv_wr_min = body.send_sge_max = body.recv_sge_max = 1;
    body.type = RNIC_QP_UD;
    return ask(RNIC_CREATE_QP, body).as<rnic_create_qp_reply>().qp_number;
  }
  int attach(std::uint32_t qp, std::uint32_t group, std::uint32_t message = RNIC_ATTACH_MCAST) {
    rnic_mcast body{};
    body.qp_number = qp;
    const auto octets = wire::IpAddress::v4(0xEF000000 + group).octets();
    std::copy(octets.begin(), octets.end(), body.gid);
    return ask(message, body).status;
  }
  int detach(std::uint32_t qp, std::uint32_t group) { return attach(qp, group, RNIC_DETACH_MCAST); }
  std::uint32_t of = 0, to = 0;
};
constexpr const char* kRoce =
    "sched_fifo = false\n"
    "[[device]]\nport = \"pair:g\"\naddress = \"127.0.9.1/24\"\nface = \"roce\"\n"
    "[[device]]\nport = \"pair:g\"\naddress = \"127.0.9.2/24\"\nface = \"roce\"\n";

}  // namespace

TEST_CASE("One process may be attached to as many multicast groups as are reported, and leaves some for others",
          "[control][limits][ud]") {
  Daemon daemon(kRoce);
  const OtherProcess process;
  Attacher greedy(daemon, getpid()), again(daemon, getpid()), other(daemon, process.pid());
  const std::uint32_t one = greedy.datagrams(), two = again.datagrams(), neighbour = other.datagrams();
  std::uint32_t groups = 0;
  // Another context of its attaches itself too, and it leaves: that makes none free.
  for (; groups < 100 && greedy.attach(one, groups) == 0; ++groups) {
    REQUIRE(greedy.attach(one, groups) == 0);  // once more is once
    if (groups >= 50) {
      REQUIRE(again.attach(two, groups) == 0);
      REQUIRE(greedy.detach(one, groups) == 0);
    }
  }
  CHECK(groups == control::kGroupsMax);
  CHECK(again.attach(two, 1000) == ENOMEM);
  for (std::uint32_t i = 0; i < 8; ++i) CHECK(other.attach(neighbour, 2000 + i) == 0);
  CHECK(daemon.machine.devices[0]->groups.used() == groups + 8);
  // To those that are there whoever likes: that costs none.
  for (std::uint32_t i = 0; i < groups; ++i) CHECK(other.attach(neighbour, i) == 0);
  // And all comes back.
  CHECK(greedy.by_handle(RNIC_DESTROY_QP, one).status == 0);
  again.socket = {};
  daemon.settle();
  CHECK(daemon.machine.devices[0]->groups.used() == 8);
  other.socket = {};
  daemon.settle();
  CHECK(daemon.machine.devices[0]->groups.used() == 0);
  CHECK(daemon.machine.devices[0]->in_groups.empty());
}

TEST_CASE("One process leaves places in a multicast group to others", "[control][limits][ud]") {
  Daemon daemon(kRoce);
  const OtherProcess process;
  Attacher greedy(daemon, getpid()), other(daemon, process.pid());
  std::uint32_t places = 0;
  while (places < 400 && greedy.attach(greedy.datagrams(), 1) == 0) ++places;
  CHECK(places == control::kGroupPlacesMax);
  for (int i = 0; i < 32; ++i) CHECK(other.attach(other.datagrams(), 1) == 0);
  CHECK(daemon.machine.devices[0]->groups.used() == 1);
}

// ---- numbers ----------------------------------------------------------------------------------

TEST_CASE("V-SEC-11: when all numbers have been given, those that are in use are left out",
          "[control][limits][V-SEC-11][V-PD-03]") {
  Daemon daemon;
  auto& table = *daemon.machine.devices[0]->table;
  std::uint64_t word = 0;
  const auto stag_of = [&](App& app, std::uint32_t pd) {
    return Stag{app.reg(pd, &word, sizeof word, RNIC_ACCESS_LOCAL_READ).as<rnic_reg_mr_reply>().stag};
  };

  SECTION("of protection domains, of whatever application") {
    App victim(daemon), other(daemon);
    const auto taken = table.query(stag_of(victim, victim.pd()))->pd;
    daemon.machine.pds.continue_at(~0u);
    for (int i = 0; i < 5; ++i) {
      const auto pd = other.pd();
      const auto id = table.query(stag_of(other, pd))->pd;
      CHECK(id != taken);
      CHECK(id.value != 0);
    }
    CHECK(daemon.machine.pds.used() == 6);
  }
  SECTION("of an application's own objects") {
    daemon.machine.first_handles = control::Numbers(2, 7);
    App app(daemon);
    const auto pd = app.pd();
    const auto region = app.reg(pd, &word, sizeof word, RNIC_ACCESS_LOCAL_READ).as<rnic_reg_mr_reply>();
    const auto cq = app.cq();
    const auto srq = app.try_srq(pd, 4).as<rnic_create_srq_reply>().srq;
    rnic_alloc_mw window{};
    window.pd = pd;
    const auto mw = app.ask(RNIC_ALLOC_MW, window).as<rnic_alloc_mw_reply>().mw;
    CHECK(std::set<std::uint32_t>{pd, region.mr, cq, srq, mw, 0}.size() == 6);
    for (int i = 0; i < 3; ++i) {  // the same over and over: the others are in use
      const auto again = app.reg(pd, &word, sizeof word, RNIC_ACCESS_LOCAL_READ).as<rnic_reg_mr_reply>().mr;
      CHECK(std::set<std::uint32_t>{pd, region.mr, cq, srq, mw}.count(again) == 0);
      CHECK(app.by_handle(RNIC_DEREG_MR, again).status == 0);
    }
    CHECK(table.used() == 2);
    CHECK(app.by_handle(RNIC_DEREG_MR, region.mr).status == 0);
    CHECK(app.by_handle(RNIC_DEALLOC_MW, mw).status == 0);
    CHECK(table.used() == 0);
  }
  SECTION("whoever goes gives its numbers back") {
    {
      App gone(daemon), other(daemon);
      gone.pd();
      other.by_handle(RNIC_DEALLOC_PD, other.pd());
    }
    daemon.settle();
    CHECK(daemon.machine.pds.used() == 0);
  }
}

TEST_CASE("Numbers go round, and leave out what is in use", "[control][limits]") {
  control::Numbers numbers(~0u - 1);
  const std::set<std::uint32_t> used{~0u, 1, 2};
  const auto next = [&] { return numbers.next([&](std::uint32_t n) { return used.contains(n); }); };
  CHECK(next() == ~0u - 1);
  CHECK(next() == 3);
  CHECK(next() == 4);
}

// ---- shares -----------------------------------------------------------------------------------

namespace {
// As where another process has connected: who it is comes from the kernel, and here from the test.
struct Another : Client {
  Another(Daemon& daemon, pid_t pid) : Client(daemon, {pid, getuid(), {}}, 1) {}
};
std::size_t lines_with(const Daemon& daemon, const std::string& words) {
  return static_cast<std::size_t>(std::count_if(daemon.log.begin(), daemon.log.end(), [&](const auto& line) {
    return line.second.find(words) != std::string::npos;
  }));
}
}  // namespace

TEST_CASE("V-RNIC-08: one application has as many protection domains as are reported, and the next has some, too",
          "[control][limits][V-RNIC-08][V-VB-04][V-IS-02]") {
  Daemon daemon;
  App first(daemon);
  const auto limit = first.opened.as<rnic_open_context_reply>().attributes.max_pd;
  for (std::uint32_t i = 0; i < limit; ++i) REQUIRE(first.ask(RNIC_ALLOC_PD).status == 0);
  for (int i = 0; i < 10; ++i) CHECK(first.ask(RNIC_ALLOC_PD).status == ENOMEM);
  CHECK(lines_with(daemon, "gets no more protection domains") == 1);
  auto& pds = daemon.machine.devices[0]->pds;
  CHECK(pds.used() == limit);
  CHECK(pds.take(4711));
}

TEST_CASE("V-QRN-02: of each kind of object one process may have as many as are reported, and not one more",
          "[control][limits][V-RNIC-08][V-QRN-02][V-QRN-07][V-QRN-10][V-QRN-12][V-QRN-24][V-QRN-26]") {
  Daemon daemon;
  App app(daemon);
  const auto told = app.opened.as<rnic_open_context_reply>().attributes;
  control::ServedDevice& device = *daemon.machine.devices[0];
  const auto holds = [](control::Shares& of, std::uint32_t reported) {
    std::vector<control::Share> all;
    for (control::Share one = of.take(4711); one; one = of.take(4711)) all.push_back(std::move(one));
    return all.size() == reported;
  };
  CHECK(holds(device.qps, told.max_qp));
  CHECK(holds(device.cqs, told.max_cq));
  CHECK(holds(device.srqs, told.max_srq));
  CHECK(holds(device.pds, told.max_pd));
  CHECK(holds(device.stags, told.max_mr));
  CHECK(told.max_srq > 0);
}

TEST_CASE("V-NTF-10: completion channels are handed out, each under a name of its own, until there are no more",
          "[control][limits][V-NTF-10][V-RNIC-08]") {
  Daemon daemon;
  App app(daemon);
  auto& channels = daemon.machine.completion_channels;
  channels.set_total(16);
  std::set<std::uint64_t> cookies;
  std::vector<std::uint32_t> handles;
  int status = 0;
  for (Answer one = app.ask(RNIC_CREATE_CHANNEL); (status = one.status) == 0; one = app.ask(RNIC_CREATE_CHANNEL)) {
    const auto made = one.as<rnic_create_channel_reply>();
    handles.push_back(made.channel);
    cookies.insert(made.cookie);
    REQUIRE(handles.size() <= 16);
  }
  CHECK(status == ENOMEM);
  REQUIRE(handles.size() > 1);
  CHECK(cookies.size() == handles.size());
  CHECK(cookies.count(0) == 0);  // which names none
  CHECK(app.try_cq(4, *cookies.begin()).status == 0);
  REQUIRE(app.by_handle(RNIC_DESTROY_CHANNEL, handles.back()).status == 0);
  CHECK(app.ask(RNIC_CREATE_CHANNEL).status == 0);
  CHECK(app.ask(RNIC_CREATE_CHANNEL).status == ENOMEM);
}

TEST_CASE("Descriptors are shared out, and are back when they are not needed", "[control][limits]") {
  Daemon daemon;
  auto& descriptors = daemon.machine.descriptors;
  {
    std::uint64_t of_client = 0;
    {
      Client client(daemon);
      REQUIRE(client.hello(RNIC_CLIENT_VERBS).status == 0);
      of_client = descriptors.used();
    }
    daemon.settle();
    App app(daemon);
    const std::uint64_t of_app = descriptors.used();
    CHECK(of_app == of_client + 7 + daemon.machine.workers.size());  // context.cpp names them
    // Channels, and memory for queues.
    REQUIRE(app.ask(RNIC_CREATE_CHANNEL).status == 0);
    CHECK(descriptors.used() == of_app + 1);
    app.cq();
    CHECK(descriptors.used() == of_app + 2);
    app.cq();
    CHECK(descriptors.used() == of_app + 2);

    descriptors.set_total(descriptors.used() + 1);
    CHECK(app.ask(RNIC_CREATE_CHANNEL).status == EMFILE);
    CHECK(app.try_cq(control::kCqesMax).status == EMFILE);
    CHECK(app.try_cq(16).status == 0);
    CHECK(Client(daemon).hello(RNIC_CLIENT_VERBS).status == EMFILE);
    CHECK(lines_with(daemon, "gets no more descriptors") == 1);
    descriptors.set_total(10'000);
    CHECK(app.ask(RNIC_CREATE_CHANNEL).status == 0);
  }
  daemon.settle();
  CHECK(descriptors.used() == 0);
  CHECK(daemon.machine.sessions.used() == 0);
  CHECK(daemon.machine.completion_channels.used() == 0);
}

// ---- sessions ---------------------------------------------------------------------------------

TEST_CASE("A connection that says nothing ends", "[control][limits]") {
  Daemon daemon;
  daemon.server->set_patience(milliseconds(1));
  const Client silent(daemon);
  char octet;
  ssize_t got = -1;
  while ((got = recv(silent.socket.get(), &octet, 1, MSG_DONTWAIT)) < 0) daemon.loop.turn(100);
  CHECK(got == 0);
  CHECK(daemon.server->session_count() == 0);
  // Who has said HELLO may be silent for as long as it likes.
  daemon.server->set_patience(seconds(3600));
  Client spoken(daemon, RNIC_CLIENT_VERBS, "");
  daemon.server->set_patience(milliseconds(1));
  {
    const Client other(daemon);
    while (daemon.server->session_count() == 2) daemon.loop.turn(100);
  }
  CHECK(spoken.ask(RNIC_LIST_DEVICES).status == 0);
}

TEST_CASE("Whoever fills all places with connections that say nothing locks nobody out", "[control][limits]") {
  Daemon daemon;
  daemon.machine.sessions.set_total(64);
  std::vector<std::unique_ptr<Client>> silent;
  // Many processes, as a program that forks.
  for (pid_t pid = 100'000; pid < 100'200; ++pid) silent.push_back(std::make_unique<Another>(daemon, pid));
  Another application(daemon, 200'000);
  CHECK(application.hello(RNIC_CLIENT_VERBS).status == 0);
  Another command(daemon, 200'001);
  CHECK(command.hello(RNIC_CLIENT_ADMIN).status == 0);
}

TEST_CASE("Where all places are taken by those that have said HELLO there are some for the rnic command",
          "[control][limits]") {
  Daemon daemon;
  daemon.machine.sessions.set_total(32);
  std::vector<std::unique_ptr<Client>> all;
  int refused = 0;
  for (pid_t pid = 100'000; pid < 100'100; ++pid) {
    all.push_back(std::make_unique<Another>(daemon, pid));
    const int status = all.back()->hello(RNIC_CLIENT_VERBS).status;
    if (status != 0) {
      CHECK(status == EMFILE);
      ++refused;
    }
  }
  CHECK(refused == 100 - 31);
  Another command(daemon, 200'001);
  CHECK(command.hello(RNIC_CLIENT_ADMIN).status == 0);
  rnic_show show{};
  std::memcpy(show.what, "qp", 2);
  CHECK(command.ask(RNIC_SHOW, show).status == 0);
}

namespace {
// No more descriptors than are open, and `more`.
struct DescriptorLimit {
  explicit DescriptorLimit(int more) {
    getrlimit(RLIMIT_NOFILE, &before);
    const control::Descriptor next(open("/dev/null", O_RDONLY | O_CLOEXEC));
    rlimit now = before;
    now.rlim_cur = static_cast<rlim_t>(next.get() + more);
    setrlimit(RLIMIT_NOFILE, &now);
  }
  ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before); }
  rlimit before{};
};
}  // namespace

TEST_CASE("Without a descriptor left the daemon does not spin, and who comes hears why", "[control][limits]") {
  char directory[] = "/tmp/rnic-limits-XXXXXX";
  REQUIRE(mkdtemp(directory) != nullptr);
  Daemon daemon;
  daemon.machine.run_directory = directory;
  REQUIRE(daemon.server->listen().empty());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, (std::string(directory) + "/control.sock").c_str());
  std::vector<control::Descriptor> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    REQUIRE(connect(clients.back().get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  }
  const auto say_hello = [&](int fd, std::uint32_t kind) {
    struct {
      rnic_msg header;
      rnic_hello hello;
    } message{};
    message.header = {RNIC_HELLO, 1, 0, sizeof message};
    message.hello.abi_version = RNIC_ABI_VERSION;
    message.hello.kind = kind;
    REQUIRE(send(fd, &message, sizeof message, MSG_NOSIGNAL) == sizeof message);
    rnic_msg answer{};
    for (int i = 0; i < 100 && recv(fd, &answer, sizeof answer, MSG_DONTWAIT) < 0; ++i) daemon.settle();
    return answer.type == RNIC_HELLO ? answer.status : -1;
  };
  {
    const DescriptorLimit none(0);
    int turns = 0;
    while (turns < 100 && daemon.loop.turn(0)) ++turns;
    CHECK(turns < 100);
    CHECK(daemon.server->session_count() == 1);
    CHECK(say_hello(clients[0].get(), RNIC_CLIENT_VERBS) == EMFILE);
    CHECK(say_hello(clients[1].get(), RNIC_CLIENT_ADMIN) == 0);
    turns = 0;
    while (turns < 100 && daemon.loop.turn(0)) ++turns;
    CHECK(turns < 100);
  }
  clients.erase(clients.begin(), clients.begin() + 2);
  daemon.settle();
  CHECK(say_hello(clients[0].get(), RNIC_CLIENT_VERBS) == 0);
  daemon.server->end_all();
  unlink(address.sun_path);
  rmdir(directory);
}

// ---- memory that an application shares and takes away --------------------------------------------

namespace {
std::uint32_t register_file(App& app, std::uint32_t pd, int fd, std::uint64_t length, int& status,
                            Stag* stag = nullptr) {
  rnic_reg_mr body{};
  body.pd = pd;
  body.access = RNIC_ACCESS_LOCAL_READ | RNIC_ACCESS_LOCAL_WRITE | RNIC_ACCESS_REMOTE_WRITE | RNIC_ACCESS_WINDOW_BIND;
  body.start = body.iova = 0x10000;
  body.length = length;
  body.shared = RNIC_MEMORY_SHARED;
  Answer answer = app.ask(RNIC_REG_MR, body, {fd});
  status = answer.status;
  if (status != 0) return 0;
  if (stag != nullptr) *stag = Stag{answer.as<rnic_reg_mr_reply>().stag};
  return answer.as<rnic_reg_mr_reply>().mr;
}
}  // namespace

TEST_CASE("Shared files can be larger than memory, and what is mapped of them cannot", "[control][limits]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd();
  const control::Descriptor file(memfd_create("sparse", MFD_CLOEXEC));
  constexpr std::uint64_t kSize = std::uint64_t{1} << 44;
  REQUIRE(ftruncate(file.get(), kSize) == 0);
  int status = 0;
  for (int i = 0; i < 3; ++i) {
    register_file(app, pd, file.get(), kSize, status);
    CHECK(status == ENOMEM);
  }
  CHECK(lines_with(daemon, "gets no more octets of shared memory") == 1);
  // As much as there is memory, in whatever pieces.
  const auto memory =
      static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  std::vector<std::uint32_t> regions;
  for (int i = 0; i < 4; ++i) {
    regions.push_back(register_file(app, pd, file.get(), memory / 4, status));
    CHECK(status == 0);
  }
  register_file(app, pd, file.get(), memory / 4, status);
  CHECK(status == ENOMEM);
  REQUIRE(app.by_handle(RNIC_DEREG_MR, regions[0]).status == 0);
  register_file(app, pd, file.get(), memory / 4, status);
  CHECK(status == 0);
}

TEST_CASE("Memory that was taken away leaves the table, and does not become the daemon's", "[control][limits]") {
  shm::install_sigbus_handler();
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd();
  constexpr std::uint64_t kSize = 64 << 20;
  const control::Descriptor file(memfd_create("shrinks", MFD_CLOEXEC)), other(memfd_create("stays", MFD_CLOEXEC));
  REQUIRE((ftruncate(file.get(), kSize) == 0 && ftruncate(other.get(), kSize) == 0));
  int status = 0;
  Stag stag, kept;
  const auto region = register_file(app, pd, file.get(), kSize, status, &stag);
  register_file(app, pd, other.get(), kSize, status, &kept);
  auto& table = *daemon.machine.devices[0]->table;
  rnic_alloc_mw alloc{};
  alloc.pd = pd;
  const auto window = app.ask(RNIC_ALLOC_MW, alloc).as<rnic_alloc_mw_reply>();
  const auto elsewhere = app.ask(RNIC_ALLOC_MW, alloc).as<rnic_alloc_mw_reply>();
  const PdId pd_id = table.query(stag)->pd;
  const QpNumber qp{5};
  REQUIRE(table.bind(Stag{window.stag}, 1, stag, pd_id, qp, tpt::Rights::remote_write, 0x10000, 4096));
  REQUIRE(table.bind(Stag{elsewhere.stag}, 1, kept, pd_id, qp, tpt::Rights::remote_write, 0x10000, 4096));
  std::byte* const octets = table.query(stag)->memory.direct;

  REQUIRE(ftruncate(file.get(), 0) == 0);
  daemon.machine.workers[0]->call([&](Instant) { std::memset(octets, 1, kSize); });
  const auto resident = [&] {
    std::ifstream maps("/proc/self/smaps");
    std::string line;
    const auto at = reinterpret_cast<std::uintptr_t>(octets);
    for (bool inside = false; std::getline(maps, line);) {
      unsigned long from = 0, to = 0;
      unsigned long kilobytes = 0;
      if (std::sscanf(line.c_str(), "%lx-%lx ", &from, &to) == 2) inside = from <= at && at < to;
      if (inside && std::sscanf(line.c_str(), "Anonymous: %lu kB", &kilobytes) == 1) return kilobytes * 1024;
    }
    return 0ul;
  };
  // The worker has noticed at the end of its turn, and control hears of it.
  for (int i = 0; i < 1000 && table.query(stag)->valid; ++i) {
    daemon.loop.turn(10);
    daemon.machine.workers[0]->call([](Instant) {});
  }
  CHECK_FALSE(table.query(stag)->valid);
  CHECK_FALSE(table.query(Stag{window.stag})->valid);
  CHECK_FALSE(table.check_remote(stag, pd_id, qp, tpt::Rights::remote_write, 0x10000, 8));
  CHECK(resident() == 0);
  CHECK(table.query(kept)->valid);
  CHECK(table.query(Stag{elsewhere.stag})->valid);
  CHECK(lines_with(daemon, "has taken away memory") == 1);
  // The application's business with it goes on as with any other.
  CHECK(app.by_handle(RNIC_DEREG_MR, region).status == 0);
  CHECK(app.by_handle(RNIC_DEALLOC_MW, window.mw).status == 0);
}

// ---- many of something ----------------------------------------------------------------------------

TEST_CASE("A worker serves others between the many queue pairs of an application that ends", "[control][limits]") {
  Daemon daemon;
  const auto& counters = daemon.machine.workers[0]->counters();
  std::uint64_t before = 0;
  {
    App app(daemon);
    const auto pd = app.pd(), cq = app.cq();
    for (int i = 0; i < 640; ++i) app.qp(pd, cq);
    before = counters.calls;
  }
  daemon.settle();
  CHECK(daemon.machine.devices[0]->counts.qps == 0);
  CHECK(counters.calls - before >= 10);
}

TEST_CASE("V-LIM-03: a limit is armed where receives are taken, so that nobody waits for a lock",
          "[control][limits][V-LIM-03]") {
  Daemon daemon;
  App app(daemon);
  const auto srq = app.try_srq(app.pd(), 8).as<rnic_create_srq_reply>().srq;
  const std::uint64_t before = daemon.machine.workers[0]->counters().calls;
  CHECK(app.ask(RNIC_MODIFY_SRQ, rnic_modify_srq{srq, RNIC_SRQ_LIMIT, 4, 0, 0, 0}).status == 0);
  CHECK(daemon.machine.workers[0]->counters().calls == before + 1);
  CHECK(app.by_handle(RNIC_QUERY_SRQ, srq).as<rnic_query_srq_reply>().limit == 4);
}
