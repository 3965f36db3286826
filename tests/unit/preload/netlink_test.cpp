// A socket of RDMA netlink: the application's own, which only the stand-in can answer.
#include "kit/catch.hpp"

#include <linux/netlink.h>
#include <poll.h>
#include <rdma/rdma_netlink.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <filesystem>
#include <string>
#include <vector>

#include "descriptors.hpp"
#include "unit/preload/commands.hpp"

using namespace rnic::test;

namespace {

int open_rdma() { return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA); }

sockaddr_nl name_of(int fd) {
  sockaddr_nl name{};
  socklen_t size = sizeof name;
  REQUIRE(getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0);
  return name;
}

nlmsghdr dump_of(std::uint32_t command, std::uint32_t sequence) {
  nlmsghdr head{};
  head.nlmsg_len = sizeof head;
  head.nlmsg_type = static_cast<__u16>(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command));
  head.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  head.nlmsg_seq = sequence;
  return head;
}

// The next message; nlmsg_len 0: none has come.
nlmsghdr receive(int fd, int flags = MSG_DONTWAIT) {
  std::vector<char> octets(8192);
  nlmsghdr head{};
  if (recv(fd, octets.data(), octets.size(), flags) >= static_cast<ssize_t>(sizeof head))
    std::memcpy(&head, octets.data(), sizeof head);
  return head;
}

std::ptrdiff_t open_descriptors() { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); }

}  // namespace

TEST_CASE("a dump of RDMA devices is answered at once, to the asker's address", "[preload][netlink]") {
  const int fd = open_rdma();
  REQUIRE(fd >= 0);
  sockaddr_nl any{};
  any.nl_family = AF_NETLINK;
  REQUIRE(bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0);
  const nlmsghdr request = dump_of(RDMA_NLDEV_CMD_GET, 7);
  // By each call that sends.
  iovec piece{const_cast<nlmsghdr*>(&request), sizeof request};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  for (int way = 0; way < 4; ++way) {
    ssize_t sent = -1;
    if (way == 0) sent = send(fd, &request, sizeof request, 0);
    if (way == 1) sent = sendto(fd, &request, sizeof request, 0, reinterpret_cast<const sockaddr*>(&any), sizeof any);
    if (way == 2) sent = sendmsg(fd, &message, 0);
    if (way == 3) sent = write(fd, &request, sizeof request);
    CHECK(sent == static_cast<ssize_t>(sizeof request));
    const nlmsghdr device = receive(fd), end = receive(fd);
    CHECK(device.nlmsg_type == request.nlmsg_type);
    CHECK(device.nlmsg_seq == 7);
    CHECK(device.nlmsg_pid == name_of(fd).nl_pid);
    CHECK(end.nlmsg_type == NLMSG_DONE);
    CHECK(receive(fd).nlmsg_len == 0);
  }
  close(fd);
}

TEST_CASE("a socket that nobody has bound is bound with the first request", "[preload][netlink]") {
  const int fd = open_rdma();
  const nlmsghdr request = dump_of(RDMA_NLDEV_CMD_GET, 8);
  REQUIRE(send(fd, &request, sizeof request, 0) == static_cast<ssize_t>(sizeof request));
  CHECK(name_of(fd).nl_pid != 0);
  CHECK(receive(fd).nlmsg_pid == name_of(fd).nl_pid);
  close(fd);
}

TEST_CASE("another process cannot answer in the daemon's place, before or after", "[preload][netlink]") {
  const int fd = open_rdma();
  sockaddr_nl any{};
  any.nl_family = AF_NETLINK;
  REQUIRE(bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0);
  // What anybody on the machine may do; by a system call, as another process would.
  const int stranger = static_cast<int>(syscall(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_USERSOCK));
  REQUIRE(stranger >= 0);
  const sockaddr_nl to = name_of(fd);
  nlmsghdr forged = dump_of(RDMA_NLDEV_CMD_GET, 9);
  forged.nlmsg_type = 0x7777;
  const auto forge = [&] {
    return syscall(SYS_sendto, stranger, &forged, sizeof forged, MSG_DONTWAIT, &to, sizeof to) > 0;
  };
  CHECK(forge());  // it waits before the first request is made
  const nlmsghdr request = dump_of(RDMA_NLDEV_CMD_GET, 9);
  REQUIRE(send(fd, &request, sizeof request, 0) == static_cast<ssize_t>(sizeof request));
  CHECK_FALSE(forge());
  CHECK(receive(fd).nlmsg_type == request.nlmsg_type);
  CHECK(receive(fd).nlmsg_type == NLMSG_DONE);
  CHECK(receive(fd).nlmsg_len == 0);
  close(stranger);
  close(fd);
}

namespace {

// Ids bound at the device, whose list is longer than a small socket takes at once.
class ManyIds {
 public:
  static constexpr int kCount = 60;
  ManyIds() : channel_(open_cm()) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(0x7f000101);
    for (int i = 0; i < kCount; ++i) {
      rdma_ucm_bind_ip bind{};
      bind.id = create_id(channel_, 1);
      std::memcpy(&bind.addr, &address, sizeof address);
      REQUIRE(command(channel_, RDMA_USER_CM_CMD_BIND_IP, bind) == 0);
    }
  }
  ~ManyIds() { close(channel_); }
  ManyIds(const ManyIds&) = delete;
  ManyIds& operator=(const ManyIds&) = delete;

 private:
  int channel_;
};

int open_small() {
  const int fd = open_rdma();
  const int small = 1;
  REQUIRE(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
  return fd;
}

ssize_t ask_for_ids(int fd) {
  struct {
    nlmsghdr head = dump_of(RDMA_NLDEV_CMD_RES_CM_ID_GET, 10);
    nlattr attribute{8, RDMA_NLDEV_ATTR_DEV_INDEX};
    std::uint32_t index = 0;
  } request;
  request.head.nlmsg_len = sizeof request;
  return send(fd, &request, sizeof request, 0);
}

// To its end; messages, or -1.
int read_dump(int fd) {
  for (int messages = 0;; ++messages) {
    pollfd entry{fd, POLLIN, 0};
    if (poll(&entry, 1, 2000) != 1) return -1;
    const nlmsghdr head = receive(fd);
    if (head.nlmsg_len == 0 || head.nlmsg_type == NLMSG_ERROR) return -1;
    if (head.nlmsg_type == NLMSG_DONE) return messages;
  }
}

}  // namespace

TEST_CASE("an answer longer than a socket's buffer comes whole, as it is read", "[preload][netlink]") {
  const ManyIds ids;
  const int wide = open_rdma(), small = open_small();
  REQUIRE(ask_for_ids(wide) > 0);
  const int messages = read_dump(wide);
  CHECK(messages > 4);
  REQUIRE(ask_for_ids(small) > 0);
  // Linux's answer to a second dump.
  CHECK(ask_for_ids(small) == -1);
  CHECK(errno == EBUSY);
  CHECK(read_dump(small) == messages);
  CHECK(ask_for_ids(small) > 0);
  CHECK(read_dump(small) == messages);
  close(wide);
  close(small);
}

TEST_CASE("a socket closed while its answer is on the way lets go of all", "[preload][netlink]") {
  const ManyIds ids;
  close(open_rdma());  // the process's connection is there from now on
  const std::ptrdiff_t before = open_descriptors();
  for (int i = 0; i < 20; ++i) {
    const int fd = open_small();
    REQUIRE(ask_for_ids(fd) > 0);
    CHECK(ask_for_ids(fd) == -1);  // there is more of it
    close(fd);
  }
  CHECK(open_descriptors() < before + 10);  // the server in this process has some of its own, now and then
}

TEST_CASE("an application that puts a descriptor at the number of ours gets no answers there", "[preload][netlink]") {
  const ManyIds ids;
  const int fd = open_small();
  REQUIRE(ask_for_ids(fd) > 0);
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  std::vector<int> placed;
  for (int number = 300; number < 1024; ++number)
    if (rnic::preload::kind_of(number) == rnic::preload::Kind::internal && dup2(ends[0], number) == number)
      placed.push_back(number);
  CHECK(placed.size() >= 2);  // the connection, and the sender
  CHECK(read_dump(fd) > 4);
  CHECK_FALSE(recv(ends[1], ends, 1, MSG_DONTWAIT) > 0);
  for (const int number : placed) close(number);
  close(ends[0]);
  close(ends[1]);
  close(fd);
}

TEST_CASE("an application may bind to its own process number", "[preload][netlink]") {
  const int fd = open_rdma();
  sockaddr_nl own{};
  own.nl_family = AF_NETLINK;
  own.nl_pid = static_cast<__u32>(getpid());
  CHECK(bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0);
  close(fd);
}

TEST_CASE("a request longer than any that is known is refused", "[preload][netlink]") {
  const int fd = open_rdma();
  std::vector<char> octets(RNIC_NETLINK_MAX + 4);
  CHECK(send(fd, octets.data(), octets.size(), 0) == -1);
  CHECK(errno == EMSGSIZE);
  close(fd);
}

TEST_CASE("other netlink is the kernel's", "[preload][netlink]") {
  const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  REQUIRE(fd >= 0);
  struct {
    nlmsghdr head{};
    unsigned char family = 0, padding[3] = {};
  } request;
  request.head.nlmsg_len = sizeof request;
  request.head.nlmsg_type = 18;  // RTM_GETLINK
  request.head.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  CHECK(send(fd, &request, sizeof request, 0) == static_cast<ssize_t>(sizeof request));
  CHECK(receive(fd, 0).nlmsg_type == 16);  // RTM_NEWLINK
  close(fd);
}
