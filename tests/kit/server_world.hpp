// A whole daemon but for its main(): devices on a started worker, the server, and clients at the
// other ends of socket pairs. One thread is client and control thread in turn.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "control/addresses.hpp"
#include "control/build.hpp"
#include "control/server.hpp"
#include "kit/catch.hpp"
#include "kit/descriptors.hpp"
#include "rnic_talk.h"

namespace rnic::test {

struct Answer {
  int status = -1;  // -1: the connection ended
  std::vector<std::byte> body;
  std::vector<control::Descriptor> fds;

  template <typename T>
  T as() const {
    REQUIRE(status == 0);
    REQUIRE(body.size() >= sizeof(T));
    T value;
    std::memcpy(&value, body.data(), sizeof value);
    return value;
  }
};

struct Daemon {
  static constexpr const char* kTwoDevices =
      "sched_fifo = false\n"
      "[[device]]\nport = \"pair:t\"\naddress = \"127.0.9.1/24\"\n"
      "[[device]]\nport = \"pair:t\"\naddress = \"127.0.9.2/24\"\n";
  explicit Daemon(const std::string& toml = kTwoDevices, shm::Copier* copier = nullptr) {
    machine.copier = copier;
    control::Configuration configuration;
    REQUIRE(control::parse_configuration(toml, "test", configuration).empty());
    REQUIRE(control::complete(configuration).empty());
    REQUIRE(control::build_machine(
                configuration, [](const std::string&) {}, machine)
                .empty());
    const auto write = [this](control::LogLevel level, const std::string& line) { log.emplace_back(level, line); };
    server = std::make_unique<control::Server>(machine, loop, 1, control::Log(write, true));
    start_workers(machine);
  }
  ~Daemon() {
    server.reset();
    stop_machine(machine);
  }
  void settle() {
    bool more = true;
    while (more) {
      const bool closing = !closes_hang && server != nullptr && server->closing_count() != 0;
      more = loop.turn(0) || closing;
    }
  }

  bool closes_hang = false;  // descriptors of a test's last as long as it likes

  std::vector<std::pair<control::LogLevel, std::string>> log;  // all lines, those of debug too
  control::Machine machine;
  control::Loop loop;
  std::unique_ptr<control::Server> server;
};

class Client {
 public:
  // `process`: those of one number say that they are of one process.
  explicit Client(Daemon& daemon, std::uint32_t uid = getuid(), std::uint8_t process = 1)
      : Client(daemon, control::Peer{getpid(), uid, {}}, process) {}
  Client(Daemon& daemon, const control::Peer& peer, std::uint8_t process = 1) : daemon_(daemon), process_(process) {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    socket = control::Descriptor(ends[0]);
    daemon_.server->adopt(control::Descriptor(ends[1]), peer);
  }
  // Of another process, which made this connection.
  Client(Daemon& daemon, const control::Peer& peer, control::Descriptor own, control::Descriptor daemons)
      : socket(std::move(own)), daemon_(daemon) {
    daemon_.server->adopt(std::move(daemons), peer);
  }
  // One that has introduced itself.
  Client(Daemon& daemon, std::uint32_t kind, const std::string& device, std::uint32_t uid = getuid(),
         std::uint8_t process = 1)
      : Client(daemon, uid, process) {
    REQUIRE(hello(kind, device).status == 0);
  }

  Answer hello(std::uint32_t kind, const std::string& device = {}, std::uint32_t version = RNIC_ABI_VERSION) {
    rnic_hello body{};
    body.abi_version = version;
    body.kind = kind;
    body.process[0] = process_;
    std::memcpy(body.device, device.data(), std::min<std::size_t>(device.size(), sizeof body.device));
    return ask(RNIC_HELLO, body);
  }
  template <typename T>
  Answer ask(std::uint32_t type, const T& body, const std::vector<int>& fds = {}) {
    return ask_octets(type, &body, sizeof body, fds);
  }
  Answer ask(std::uint32_t type) { return ask_octets(type, nullptr, 0, {}); }
  Answer by_handle(std::uint32_t type, std::uint32_t handle) { return ask(type, rnic_handle{handle, 0}); }

  Answer ask_octets(std::uint32_t type, const void* body, std::size_t size, const std::vector<int>& fds) {
    rnic_msg header{type, ++id_, 0, static_cast<std::uint32_t>(sizeof header + size)};
    std::vector<std::byte> octets(sizeof header + size);
    std::memcpy(octets.data(), &header, sizeof header);
    if (size > 0) std::memcpy(octets.data() + sizeof header, body, size);
    send_octets(octets, fds);
    return receive();
  }
  void send_octets(const std::vector<std::byte>& octets, const std::vector<int>& fds = {}) {
    iovec part{const_cast<std::byte*>(octets.data()), octets.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 64)] = {};
    if (!fds.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
      cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
      std::memcpy(CMSG_DATA(rights), fds.data(), sizeof(int) * fds.size());
    }
    REQUIRE(sendmsg(socket.get(), &message, MSG_NOSIGNAL) >= 0);
  }
  Answer receive() {
    Answer answer;
    rnic_msg header{};
    rnic_fds fds{};
    std::size_t size = 0;
    answer.body.resize(RNIC_MSG_MAX);
    rnic_heard heard = RNIC_HEARD_NOTHING;
    for (int i = 0; i < 1000 && heard == RNIC_HEARD_NOTHING; ++i) {
      daemon_.settle();
      heard = rnic_hear(rnic_libc_plain(), socket.get(), MSG_DONTWAIT, &header, answer.body.data(), answer.body.size(),
                        &size, &fds);
    }
    answer.body.resize(size);
    CHECK(heard != RNIC_HEARD_MALFORMED);
    if (heard != RNIC_HEARD_MESSAGE) return answer;
    for (int fd; (fd = rnic_fds_take(&fds)) >= 0;) answer.fds.emplace_back(fd);
    CHECK(header.id == id_);
    answer.status = header.status;
    return answer;
  }

  control::Descriptor socket;

 protected:
  Daemon& daemon_;
  std::uint32_t id_ = 0;
  std::uint8_t process_ = 1;
};

// An application with an open context.
class App : public Client {
 public:
  explicit App(Daemon& daemon, const std::string& device = "rnic0", std::uint32_t uid = getuid(),
               std::uint8_t process = 1)
      : Client(daemon, RNIC_CLIENT_VERBS, "", uid, process) {
    rnic_open_context body{};
    std::memcpy(body.device, device.data(), device.size());
    const control::Descriptor memory(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
    opened = ask(RNIC_OPEN_CONTEXT, body, {memory.get()});
    REQUIRE(opened.status == 0);
  }

  std::uint32_t pd() { return ask(RNIC_ALLOC_PD).as<rnic_handle_reply>().handle; }
  Answer try_cq(std::uint32_t entries, std::uint64_t cookie = 0) {
    rnic_create_cq body{};
    body.entries_min = entries;
    body.user_pointer = 0xC0;
    body.channel_cookie = cookie;
    return ask(RNIC_CREATE_CQ, body);
  }
  std::uint32_t cq(std::uint32_t entries = 16) { return try_cq(entries).as<rnic_create_cq_reply>().cq; }
  Answer try_srq(std::uint32_t pd, std::uint32_t entries, std::uint32_t limit = 0, std::uint32_t sges = 1) {
    rnic_create_srq body{};
    body.pd = pd;
    body.wr_min = entries;
    body.sge_max = sges;
    body.limit = limit;
    body.user_pointer = 0x5A;
    return ask(RNIC_CREATE_SRQ, body);
  }
  rnic_create_qp qp_request(std::uint32_t pd, std::uint32_t cq, std::uint32_t srq = 0) {
    rnic_create_qp body{};
    body.pd = pd;
    body.send_cq = body.recv_cq = cq;
    body.srq = srq;
    body.send_wr_min = body.recv_wr_min = 8;
    body.send_sge_max = body.recv_sge_max = 2;
    body.user_pointer = 0x9B;
    return body;
  }
  std::uint32_t qp(std::uint32_t pd, std::uint32_t cq, std::uint32_t srq = 0) {
    return ask(RNIC_CREATE_QP, qp_request(pd, cq, srq)).as<rnic_create_qp_reply>().qp_number;
  }
  Answer reg(std::uint32_t pd, void* at, std::size_t length, std::uint32_t access) {
    rnic_reg_mr body{};
    body.pd = pd;
    body.access = access;
    body.start = body.iova = reinterpret_cast<std::uintptr_t>(at);
    body.length = length;
    return ask(RNIC_REG_MR, body);
  }

  Answer opened;
};

}  // namespace rnic::test
