// Captures over the control socket: who may, of what, and how they end.
#include <sys/mman.h>
#include <sys/stat.h>

#include "kit/server_world.hpp"
#include "rnic_capture.h"

using namespace rnic;
using namespace rnic::test;

namespace {

Answer capture(Client& client, const std::string& device = {}) {
  rnic_capture body{};
  std::memcpy(body.device, device.data(), std::min<std::size_t>(device.size(), sizeof body.device));
  return client.ask(RNIC_CAPTURE, body);
}

// The daemon's ring, as a client maps it.
struct Ring {
  explicit Ring(const control::Descriptor& fd) {
    struct stat status {};
    REQUIRE(fstat(fd.get(), &status) == 0);
    bytes = static_cast<std::size_t>(status.st_size);
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    REQUIRE(memory != MAP_FAILED);
  }
  ~Ring() { munmap(memory, bytes); }
  rnic_capture_ring& operator*() const { return *static_cast<rnic_capture_ring*>(memory); }
  void* memory;
  std::size_t bytes = 0;
};

// A frame that the first device sends, and so the second receives.
void let_a_frame_pass(Daemon& daemon) {
  auto& served = *daemon.machine.devices[0];
  served.first().worker->call([&](Instant) {
    Buffer* frame = nullptr;
    REQUIRE(served.port->pool().take(&frame, 1) == 1);
    frame->append(60);
    const wire::Mac to = daemon.machine.devices[1]->port->facts().mac;
    wire::store_mac(frame->bytes(), 0, to);
    REQUIRE(served.port->send_burst(&frame, 1) == 1);
  });
  for (int i = 0; i < 2000; ++i) {
    std::uint64_t received = 0;
    daemon.machine.devices[1]->first().worker->call(
        [&](Instant) { received = daemon.machine.devices[1]->first().device->counters().frames_in; });
    if (received != 0) return;
    usleep(1000);
  }
  FAIL("the frame did not arrive");
}

}  // namespace

TEST_CASE("a capture gives a ring for each device, sealed, that its frames go to", "[control][capture]") {
  Daemon daemon;
  Client client(daemon, RNIC_CLIENT_ADMIN, "");
  const Answer answer = capture(client);
  const auto head = answer.as<rnic_list_devices_reply>();
  REQUIRE(head.count == 2);
  REQUIRE(answer.fds.size() == 2);
  rnic_device_info second{};
  std::memcpy(&second, answer.body.data() + sizeof head + sizeof second, sizeof second);
  CHECK(std::string(second.name) == "rnic1");
  CHECK(ftruncate(answer.fds[0].get(), 0) != 0);

  const Ring ring(answer.fds[1]);
  CHECK((*ring).version == RNIC_CAPTURE_VERSION);
  CHECK((*ring).size + RNIC_CAPTURE_DATA == ring.bytes);
  const std::uint64_t before = (*ring).frames;
  let_a_frame_pass(daemon);
  CHECK((*ring).frames > before);
  CHECK((*ring).produced > 0);
}

TEST_CASE("a capture of one device is of that device only", "[control][capture]") {
  Daemon daemon;
  Client client(daemon, RNIC_CLIENT_ADMIN, "");
  const Answer answer = capture(client, "rnic1");
  CHECK(answer.as<rnic_list_devices_reply>().count == 1);
  CHECK(answer.fds.size() == 1);
}

TEST_CASE("who may not capture, and what cannot be", "[control][capture]") {
  Daemon daemon;
  Client application(daemon, RNIC_CLIENT_VERBS, "rnic0");
  CHECK(capture(application).status == EPERM);
  Client manager(daemon, RNIC_CLIENT_CM, "");
  CHECK(capture(manager).status == EPERM);
  Client admin(daemon, RNIC_CLIENT_ADMIN, "");
  CHECK(capture(admin, "rnic7").status == ENODEV);
  CHECK(admin.ask(RNIC_CAPTURE).status == EINVAL);
  REQUIRE(capture(admin).status == 0);
  CHECK(capture(admin).status == EBUSY);
  // Others may at the same time, up to a bound.
  std::vector<std::unique_ptr<Client>> others;
  int last = 0;
  for (std::uint32_t i = 0; i < control::kCapturesMax; ++i) {
    others.push_back(std::make_unique<Client>(daemon, RNIC_CLIENT_ADMIN, ""));
    last = capture(*others.back()).status;
    CHECK(last == (i + 1 < control::kCapturesMax ? 0 : ENOSPC));
  }
}

TEST_CASE("the end of its connection ends a capture, and nothing is left of it", "[control][capture]") {
  Daemon daemon;
  const std::size_t before = open_descriptors();
  {
    Client client(daemon, RNIC_CLIENT_ADMIN, "");
    const Answer answer = capture(client, "rnic1");
    const Ring ring(answer.fds[0]);
    client.socket.reset();
    daemon.settle();
    const std::uint64_t frames = (*ring).frames;
    let_a_frame_pass(daemon);
    CHECK((*ring).frames == frames);
  }
  CHECK(daemon.server->session_count() == 0);
  CHECK(open_descriptors() == before);
}
