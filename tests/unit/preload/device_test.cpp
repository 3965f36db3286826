// /dev/infiniband/uverbsN, /sys/class/infiniband, getifaddrs, and the descriptors and paths of
// others, which must not notice that the stand-in is there.
#include "kit/catch.hpp"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <rdma/ib_user_verbs.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <fstream>

#include "unit/preload/commands.hpp"

using namespace rnic::test;

namespace {

struct ChannelCommand {
  ib_uverbs_cmd_hdr header;
  ib_uverbs_create_comp_channel body;
};

int create_channel(int fd, int& channel) {
  ib_uverbs_create_comp_channel_resp response{};
  ChannelCommand request{};
  request.header.command = IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL;
  request.header.in_words = sizeof request / 4;
  request.header.out_words = sizeof response / 4;
  request.body.response = reinterpret_cast<std::uint64_t>(&response);
  if (write(fd, &request, sizeof request) != sizeof request) return errno;
  channel = static_cast<int>(response.fd);
  return 0;
}

struct Uverbs {
  int fd = open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);
  ~Uverbs() { close(fd); }
};

std::uint64_t cookie_of(int fd) {
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size);
  return cookie;
}

}  // namespace

TEST_CASE("uverbs0 is a character device of the number that sysfs says", "[preload][uverbs]") {
  struct stat by_path {};
  REQUIRE(stat("/dev/infiniband/uverbs0", &by_path) == 0);
  CHECK(S_ISCHR(by_path.st_mode));
  CHECK(by_path.st_rdev == makedev(231, 192));
  Uverbs device;
  REQUIRE(device.fd >= 0);
  struct stat by_descriptor {};
  REQUIRE(fstat(device.fd, &by_descriptor) == 0);
  CHECK(S_ISCHR(by_descriptor.st_mode));
  CHECK(by_descriptor.st_rdev == by_path.st_rdev);
  CHECK(access("/dev/infiniband/uverbs0", R_OK | W_OK) == 0);
}

TEST_CASE("a device that the tree does not have is not there", "[preload][uverbs]") {
  struct stat info {};
  errno = 0;
  CHECK(stat("/dev/infiniband/uverbs1", &info) == -1);
  CHECK(errno == ENOENT);
  CHECK(open("/dev/infiniband/uverbs1", O_RDWR) == -1);
}

TEST_CASE("opening uverbs0 says HELLO for the device that it is", "[preload][uverbs]") {
  Uverbs device;
  const auto hello = daemon_at_work().last(RNIC_HELLO).as<rnic_hello>();
  CHECK(hello.kind == RNIC_CLIENT_VERBS);
  CHECK(std::string(hello.device) == "rnic0");
  CHECK(hello.pid == static_cast<std::uint32_t>(getpid()));
  CHECK((fcntl(device.fd, F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("the device's number opens it too", "[preload][uverbs]") {
  const int fd = open("/dev/char/231:192", O_RDWR | O_CLOEXEC);
  CHECK(fd >= 0);
  close(fd);
  CHECK(open("/dev/char/231:193", O_RDWR | O_CLOEXEC) == -1);
}

TEST_CASE("an ioctl on uverbs fails with ENOTTY, by which libibverbs knows to write", "[preload][uverbs]") {
  Uverbs device;
  CHECK(ioctl(device.fd, _IOWR(0x1b, 1, std::uint64_t), nullptr) == -1);
  CHECK(errno == ENOTTY);
}

TEST_CASE("CREATE_COMP_CHANNEL gives the reading end that the daemon knows by its cookie", "[preload][uverbs]") {
  Uverbs device;
  int channel = -1;
  REQUIRE(create_channel(device.fd, channel) == 0);
  CHECK(cookie_of(channel) == daemon_at_work().last_completion_cookie());
  CHECK((fcntl(channel, F_GETFL) & O_NONBLOCK) == 0);
  pollfd entry{channel, POLLIN, 0};
  CHECK(poll(&entry, 1, 0) == 0);
  daemon_at_work().post_completion(0xabcd);
  std::uint64_t event = 0;
  REQUIRE(read(channel, &event, sizeof event) == sizeof event);
  CHECK(event == 0xabcd);

  const std::size_t before = daemon_at_work().count(RNIC_DESTROY_CHANNEL);
  close(channel);
  CHECK(daemon_at_work().count(RNIC_DESTROY_CHANNEL) == before + 1);
}

TEST_CASE("other commands on uverbs are refused", "[preload][uverbs]") {
  Uverbs device;
  ChannelCommand request{};
  request.header.command = IB_USER_VERBS_CMD_QUERY_DEVICE;
  request.header.in_words = sizeof request / 4;
  CHECK(write(device.fd, &request, sizeof request) == -1);
  CHECK(errno == EOPNOTSUPP);
  request.header.in_words = 1;
  CHECK(write(device.fd, &request, sizeof request) == -1);
  CHECK(errno == EINVAL);
}

TEST_CASE("a copy of a uverbs descriptor takes commands", "[preload][uverbs]") {
  Uverbs device;
  const int copy = dup(device.fd);
  int channel = -1;
  CHECK(create_channel(copy, channel) == 0);
  struct stat info {};
  REQUIRE(fstat(copy, &info) == 0);
  CHECK(S_ISCHR(info.st_mode));
  close(channel);
  close(copy);
}

TEST_CASE("a number that was closed unseen and is another file's now is left alone", "[preload][others]") {
  const int fd = open_cm();
  const std::uint32_t id = create_id(fd, 1);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  REQUIRE(syscall(SYS_dup3, ends[1], fd, 0) == fd);
  // Looks like a command, and is a pipe's payload.
  struct {
    rdma_ucm_cmd_hdr header;
    rdma_ucm_listen body;
  } octets{{RDMA_USER_CM_CMD_LISTEN, sizeof(rdma_ucm_listen), 0}, {id, 1}};
  const std::size_t before = daemon_at_work().count(RNIC_CM_LISTEN);
  REQUIRE(write(fd, &octets, sizeof octets) == sizeof octets);
  CHECK(daemon_at_work().count(RNIC_CM_LISTEN) == before);
  char got[sizeof octets];
  CHECK(read(ends[0], got, sizeof got) == sizeof got);
  struct stat info {};
  REQUIRE(fstat(fd, &info) == 0);
  CHECK(S_ISFIFO(info.st_mode));
  close(fd);
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("an eventfd of the application's own counts what is written to it", "[preload][others]") {
  // At a number that was a channel's, closed unseen.
  const int channel = open_cm();
  const int own = eventfd(0, EFD_CLOEXEC);
  REQUIRE(syscall(SYS_dup3, own, channel, 0) == channel);
  const std::uint64_t five = 5;
  REQUIRE(write(channel, &five, sizeof five) == sizeof five);
  std::uint64_t got = 0;
  REQUIRE(read(own, &got, sizeof got) == sizeof got);
  CHECK(got == 5);
  close(channel);
  close(own);
}

TEST_CASE("dup2 onto a channel's number closes the channel", "[preload][others]") {
  const std::size_t before = daemon_at_work().count(RNIC_CM_CLOSE);
  const int fd = open_cm();
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  REQUIRE(dup2(ends[1], fd) == fd);
  CHECK(daemon_at_work().count(RNIC_CM_CLOSE) == before + 1);
  REQUIRE(write(fd, "x", 1) == 1);
  char got = 0;
  CHECK(read(ends[0], &got, 1) == 1);
  close(fd);
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("a program that closes every descriptor it may have keeps the connection", "[preload][others]") {
  const int fd = open_cm();
  const std::uint32_t id = create_id(fd, 1);
  int refused = 0;
  for (int other = 600; other < 1024; ++other) {
    // Only numbers that are open and not the test's: the stand-in's own.
    if (fcntl(other, F_GETFD) >= 0 && close(other) == -1 && errno == EBADF) ++refused;
  }
  CHECK(refused >= 2);
  CHECK(command(fd, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, 1}) == 0);
  close(fd);
}

TEST_CASE("other files open, stat and close as ever", "[preload][others]") {
  const std::string path = daemon_at_work().run_dir() + "/plain";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0640);
  REQUIRE(fd >= 0);
  struct stat info {};
  REQUIRE(fstat(fd, &info) == 0);
  CHECK(S_ISREG(info.st_mode));
  CHECK((info.st_mode & 0777) == 0640);
  CHECK(write(fd, "abc", 3) == 3);
  CHECK(stat(path.c_str(), &info) == 0);
  CHECK(info.st_size == 3);
  CHECK(close(fd) == 0);
  CHECK(close(fd) == -1);
  CHECK(errno == EBADF);
  CHECK(write(-1, "x", 1) == -1);
  CHECK(errno == EBADF);
}

TEST_CASE("/sys/class/infiniband is the daemon's tree, by every way of opening", "[preload][sysfs]") {
  CHECK(std::string(getenv("SYSFS_PATH")) == daemon_at_work().run_dir() + "/sysfs");
  const char* const path = "/sys/class/infiniband/rnic0/ports/1/state";
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  char text[16] = {};
  REQUIRE(fd >= 0);
  CHECK(read(fd, text, sizeof text - 1) > 0);
  CHECK(std::string(text) == "4: ACTIVE\n");
  close(fd);
  FILE* const file = fopen(path, "r");
  REQUIRE(file != nullptr);
  fclose(file);
  DIR* const directory = opendir("/sys/class/infiniband");
  REQUIRE(directory != nullptr);
  closedir(directory);
  CHECK(access(path, R_OK) == 0);
  CHECK(access("/sys/class/infiniband/other0", R_OK) == -1);
  CHECK(access("/sys/class/net/lo", R_OK) == 0);
}

TEST_CASE("an empty place of the table of GIDs has no attributes that can be read, as with the kernel",
          "[preload][sysfs]") {
  const auto refusal = [](const std::string& path) {
    const std::vector<int> fds{open(path.c_str(), O_RDONLY | O_CLOEXEC), open64(path.c_str(), O_RDONLY | O_CLOEXEC),
                               openat(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC),
                               openat64(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC)};
    const int why = errno;
    for (const int fd : fds) {
      CHECK((fd < 0) == (fds[0] < 0));
      if (fd >= 0) close(fd);
    }
    for (FILE* file : {fopen(path.c_str(), "r"), fopen64(path.c_str(), "r")}) {
      CHECK((file == nullptr) == (fds[0] < 0));
      if (file != nullptr) fclose(file);
    }
    return fds[0] < 0 ? why : 0;
  };
  for (const std::string& root : {std::string("/sys"), daemon_at_work().run_dir() + "/sysfs"}) {
    const std::string port = root + "/class/infiniband/rnic0/ports/1/";
    for (const char* of : {"types", "ndevs"}) {
      CHECK(refusal(port + "gid_attrs/" + of + "/0") == 0);
      CHECK(refusal(port + "gid_attrs/" + of + "/7") == EINVAL);
      CHECK(refusal(port + "gid_attrs/" + of + "/99") == ENOENT);
    }
    CHECK(refusal(port + "gids/7") == 0);
  }
}

TEST_CASE("the bus device behind a device is found by either way to read a link, from wherever", "[preload][sysfs]") {
  const char* const path = "/sys/class/infiniband/rnic0/device";
  const std::string expected = "../../../ffff:00:00.0";
  char target[256];
  const auto text = [&](ssize_t length) {
    return std::string(target, static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
  };
  CHECK(text(readlink(path, target, sizeof target)) == expected);
  CHECK(text(readlinkat(-1, path, target, sizeof target)) == expected);
  CHECK(text(readlinkat(AT_FDCWD, path, target, sizeof target)) == expected);
  const int class_directory = open("/sys/class/infiniband", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  REQUIRE(class_directory >= 0);
  CHECK(text(readlinkat(class_directory, "rnic0/device", target, sizeof target)) == expected);
  close(class_directory);
  CHECK(readlinkat(-1, "/sys/class/infiniband/other0/device", target, sizeof target) == -1);
  CHECK(text(readlinkat(-1, "/proc/self/exe", target, sizeof target)).front() == '/');
}

TEST_CASE("getifaddrs has one more entry for each address of a device", "[preload][ifaddrs]") {
  ifaddrs* list = nullptr;
  REQUIRE(getifaddrs(&list) == 0);
  int found = 0;
  bool loopback = false;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (std::string(entry->ifa_name) == "lo") loopback = true;
    if (std::string(entry->ifa_name) != "rnic0") continue;
    ++found;
    CHECK((entry->ifa_flags & IFF_UP) != 0);
    CHECK((entry->ifa_flags & IFF_RUNNING) != 0);
    CHECK((entry->ifa_flags & IFF_LOOPBACK) == 0);
    if (entry->ifa_addr->sa_family == AF_INET) {
      sockaddr_in address{};
      std::memcpy(&address, entry->ifa_addr, sizeof address);
      CHECK(ntohl(address.sin_addr.s_addr) == 0x7f000101);
      std::memcpy(&address, entry->ifa_netmask, sizeof address);
      CHECK(ntohl(address.sin_addr.s_addr) == 0xff000000);
    } else {
      sockaddr_in6 mask{};
      std::memcpy(&mask, entry->ifa_netmask, sizeof mask);
      CHECK(mask.sin6_addr.s6_addr[7] == 0xff);
      CHECK(mask.sin6_addr.s6_addr[8] == 0);
    }
  }
  CHECK(found == static_cast<int>(daemon_at_work().address_count()));
  CHECK(loopback);
  freeifaddrs(list);
  ifaddrs* first = nullptr;
  ifaddrs* second = nullptr;
  REQUIRE(getifaddrs(&first) == 0);
  REQUIRE(getifaddrs(&second) == 0);
  freeifaddrs(first);
  freeifaddrs(second);
}

TEST_CASE("without a daemon getifaddrs is libc's", "[preload][ifaddrs]") {
  daemon_at_work().die();
  ifaddrs* list = nullptr;
  REQUIRE(getifaddrs(&list) == 0);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    CHECK(std::string(entry->ifa_name) != "rnic0");
  }
  freeifaddrs(list);
  daemon_at_work().start();
}
