// The socket in front of a memif server's driver: who hangs up before the driver has greeted, who sends what memif does
// not have, and what is handed on.
#include "port/memif_door.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

#include "kit/catch.hpp"
#include "kit/descriptors.hpp"
#include "port/unix_messages.hpp"

namespace rnic::port {
namespace {

constexpr std::uint16_t kHello = 2, kInit = 3, kAddRegion = 4, kAddRing = 5, kConnect = 6;
using Message = std::array<std::byte, 128>;

Message message(std::uint16_t type, std::uint16_t index = 0) {
  Message octets{};
  std::memcpy(octets.data(), &type, sizeof type);
  std::memcpy(octets.data() + 2, &index, sizeof index);
  return octets;
}

// Beside a driver that the test plays.
struct Doorway {
  Doorway() {
    char pattern[] = "/tmp/rnic-door-XXXXXX";
    REQUIRE(mkdtemp(pattern) != nullptr);
    path = pattern;
    std::string error;
    door.emplace(path + "/m", *MemifPeer::find({}, error));
    driver = listen_at(door->inner_path(), error);
    REQUIRE(driver >= 0);
    REQUIRE(door->open(error));
  }
  ~Doorway() {
    door.reset();
    close(driver);
    CHECK(rmdir(path.c_str()) == 0);  // nothing is left
  }
  int visit() const {
    const int visitor = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const sockaddr_un address = unix_address(path + "/m");
    REQUIRE(connect(visitor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    return visitor;
  }
  // The driver's end of the next connection; -1: there is none.
  int accepted() const { return accept4(driver, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); }
  // A visitor and the driver, who has greeted.
  struct Both {
    int visitor, driver;
  };
  Both meet() {
    const int visitor = visit();
    door->serve();
    const int served = accepted();
    REQUIRE(served >= 0);
    REQUIRE(send_message(served, message(kHello), {}));
    door->serve();
    Message got{};
    std::vector<int> none;
    REQUIRE(receive_message(visitor, got, none) == 128);
    CHECK(got == message(kHello));
    return {visitor, served};
  }
  bool is_called() const {
    std::vector<int> all;
    door->descriptors(all);
    for (const int fd : all) {
      pollfd it{.fd = fd, .events = POLLIN | POLLRDHUP, .revents = 0};
      if (poll(&it, 1, 0) == 1) return true;
    }
    return false;
  }

  std::string path;
  std::optional<MemifDoor> door;
  int driver = -1;
};

bool has_ended(int socket) {
  Message got{};
  std::vector<int> none;
  return receive_message(socket, got, none) == 0;
}

}  // namespace

TEST_CASE("who hangs up before a memif's driver has greeted is not noticed by it", "[port][memif]") {
  Doorway at;
  close(at.visit());
  at.door->serve();
  const int served = at.accepted();
  REQUIRE(served >= 0);
  at.door->serve();
  CHECK_FALSE(at.is_called());  // nor does the door spin
  // It can greet, and only then it is alone.
  CHECK(send_message(served, message(kHello), {}));
  CHECK(at.is_called());
  at.door->serve();
  CHECK_FALSE(at.is_called());
  Message got{};
  std::vector<int> none;
  CHECK(receive_message(served, got, none) == 0);
  close(served);
}

TEST_CASE("what a memif's two ends say is handed on, with descriptors where memif has them", "[port][memif]") {
  Doorway at;
  const auto [visitor, served] = at.meet();
  const int memory = memfd_create("region", MFD_CLOEXEC);
  REQUIRE(ftruncate(memory, 4096) == 0);
  const std::array<int, 1> region{memory};
  REQUIRE(send_message(visitor, message(kInit), {}));
  REQUIRE(send_message(visitor, message(kAddRegion, 0), region));
  REQUIRE(send_message(visitor, message(kAddRing, 0), region));
  REQUIRE(send_message(visitor, message(kConnect), {}));
  at.door->serve();
  for (const auto& [type, count] : {std::pair{kInit, 0u}, {kAddRegion, 1u}, {kAddRing, 1u}, {kConnect, 0u}}) {
    Message got{};
    std::vector<int> fds;
    REQUIRE(receive_message(served, got, fds) == 128);
    CHECK(got == message(type));
    REQUIRE(fds.size() == count);
    struct stat status {};
    for (int& fd : fds) {
      CHECK((fstat(fd, &status) == 0 && status.st_size == 4096));
      close_and_forget(fd);
    }
  }
  // Either end's end is the other's.
  close(served);
  at.door->serve();
  CHECK(has_ended(visitor));
  close(visitor);
  close(memory);
  CHECK_FALSE(at.is_called());
}

TEST_CASE("what is no memif message ends its sender, and leaves no descriptor", "[port][memif]") {
  Doorway at;
  const int memory = memfd_create("lie", MFD_CLOEXEC);
  const std::array<int, 2> both{memory, memory};
  const std::span one = std::span(both).first(1);
  const Message with_all = message(kAddRegion);
  struct Lie {
    Bytes octets;
    std::span<const int> descriptors;
  };
  const Message of_hello = message(kHello), of_second_region = message(kAddRegion, 1), of_ring = message(kAddRing);
  for (const Lie& lie : {Lie{of_hello, one}, Lie{with_all, both}, Lie{with_all, {}}, Lie{of_second_region, one},
                         Lie{Bytes(with_all).first(127), one}, Lie{of_ring, both}}) {
    const std::size_t before = test::open_descriptors();
    const auto [visitor, served] = at.meet();
    REQUIRE(send_message(visitor, lie.octets, lie.descriptors));
    at.door->serve();
    CHECK(has_ended(visitor));
    CHECK(has_ended(served));
    close(visitor);
    close(served);
    bool all_gone = false;  // some by another thread
    for (int i = 0; i < 1000 && !all_gone; ++i) {
      all_gone = test::open_descriptors() <= before;
      if (!all_gone) usleep(1000);
    }
    CHECK(all_gone);
  }
  close(memory);
}

TEST_CASE("so many may be in a memif's door, and who leaves makes room", "[port][memif]") {
  Doorway at;
  std::vector<int> visitors, served;
  for (int i = 0; i < 70; ++i) {
    const int visitor = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const sockaddr_un address = unix_address(at.path + "/m");
    if (connect(visitor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
      visitors.push_back(visitor);
    else
      close(visitor);
    at.door->serve();
    if (const int next = at.accepted(); next >= 0) served.push_back(next);
  }
  CHECK(served.size() == 64);
  CHECK(visitors.size() > 64);
  for (const int each : served) REQUIRE(send_message(each, message(kHello), {}));
  at.door->serve();
  for (int i = 0; i < 2; ++i) close(visitors[static_cast<std::size_t>(i)]);
  at.door->serve();
  for (int i = 0; i < 2; ++i) {
    const int next = at.accepted();
    CHECK(next >= 0);
    served.push_back(next);
  }
  for (std::size_t i = 2; i < visitors.size(); ++i) close(visitors[i]);
  for (const int each : served) close(each);
}

}  // namespace rnic::port
