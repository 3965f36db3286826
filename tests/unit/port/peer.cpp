#include "unit/port/peer.hpp"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "kit/catch.hpp"
#include "port/dpdk_runtime.hpp"
#include "port/open.hpp"
#include "port/pieces.hpp"

namespace rnic::port::test {
namespace {

constexpr char kPeerTest[] = "the peer's process";
constexpr std::uint16_t kEtherType = 0x88b5;
constexpr std::size_t kNumber = 14, kSleeps = 18, kIsAnswer = 22, kFill = 23;
constexpr auto kPatience = std::chrono::seconds(10);

std::byte fill(std::uint32_t number, std::size_t at) { return static_cast<std::byte>(number * 31 + at); }

bool is_ours(const Buffer& frame) {
  return frame.length > kFill && load_be<std::uint16_t>(frame.bytes(), 12) == kEtherType;
}
bool is_answer(const Buffer& frame) { return frame.bytes()[kIsAnswer] == std::byte{1}; }
bool asks_for_torn(const Buffer& frame) { return frame.bytes()[kIsAnswer] == std::byte{2}; }

void send_frame(Port& port, const std::function<void(MutableBytes)>& write, std::uint32_t bytes) {
  BufferRef buffer = BufferRef::take(port.pool(), bytes);
  REQUIRE(buffer);
  const MutableBytes octets = buffer->append(bytes);
  std::memset(octets.data(), 0xff, 6);
  wire::store_mac(octets, 6, port.facts().mac);
  store_be(octets, 12, kEtherType);
  write(octets);
  Buffer* raw = buffer.release();
  while (port.send_burst(&raw, 1) == 0) std::this_thread::yield();
}

void sleep_until_woken(Port& port, int timeout_ms) {
  if (!port.arm()) return;
  pollfd waiting{.fd = port.wake_descriptor(), .events = POLLIN, .revents = 0};
  // Without a descriptor: a timed sleep, as a worker's.
  poll(&waiting, 1, waiting.fd < 0 ? 1 : timeout_ms);
  port.disarm();
}

}  // namespace

void send_question(Port& port, std::uint32_t number, std::uint32_t frame_bytes) {
  send_frame(
      port,
      [&](MutableBytes octets) {
        store_be(octets, kNumber, number);
        store_be<std::uint32_t>(octets, kSleeps, 0);
        octets[kIsAnswer] = std::byte{0};
        for (std::size_t i = kFill; i < octets.size(); ++i) octets[i] = fill(number, i);
      },
      frame_bytes);
}

void ask_for_torn_frame(Port& port) {
  send_frame(
      port, [](MutableBytes octets) { octets[kIsAnswer] = std::byte{2}; }, 64);
}

std::optional<Answer> await_answer(Port& port) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < end) {
    Buffer* raw = nullptr;
    if (port.receive_burst(&raw, 1) == 0) {
      sleep_until_woken(port, 10'000);
      continue;
    }
    const BufferRef frame(raw);
    if (!is_ours(*frame) || !is_answer(*frame)) continue;  // the kernel says things of its own on a veth
    Answer answer{.number = load_be<std::uint32_t>(frame->bytes(), kNumber),
                  .sleeps = load_be<std::uint32_t>(frame->bytes(), kSleeps),
                  .intact = true};
    for (std::size_t i = kFill; i < frame->length; ++i)
      answer.intact = answer.intact && frame->bytes()[i] == fill(answer.number, i);
    return answer;
  }
  return std::nullopt;
}

bool peer_answers(Port& port) {
  return eventually([&] {
    send_question(port, kHello);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    bool answered = false;
    Buffer* raw = nullptr;
    while (port.receive_burst(&raw, 1) == 1) {
      const BufferRef frame(raw);
      answered = answered || (is_ours(*frame) && is_answer(*frame));
    }
    return answered;
  });
}

bool eventually(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

Peer::Peer(const std::string& spec, std::uint32_t mtu_bytes, Network network, uid_t user) {
  int ready[2], gate[2];
  REQUIRE(pipe2(ready, O_CLOEXEC) == 0);
  REQUIRE(pipe2(gate, O_CLOEXEC) == 0);
  pid_ = fork();
  REQUIRE(pid_ >= 0);
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (network == Network::own && unshare(CLONE_NEWNET) != 0) _exit(1);
    char byte = 0;
    close(gate[1]);
    (void)!write(ready[1], &byte, 1);
    (void)!read(gate[0], &byte, 1);
    setenv("RNIC_TEST_PEER", spec.c_str(), 1);
    setenv("RNIC_TEST_MTU", std::to_string(mtu_bytes).c_str(), 1);
    if (user != 0 && (setgroups(0, nullptr) != 0 || setgid(user) != 0 || setuid(user) != 0)) _exit(1);
    execl("/proc/self/exe", "peer", kPeerTest, nullptr);
    _exit(1);
  }
  close(ready[1]);
  close(gate[0]);
  char byte = 0;
  const bool there = read(ready[0], &byte, 1) == 1;
  close(ready[0]);
  gate_ = gate[1];
  REQUIRE(there);
  if (network == Network::same) go();
}

void Peer::go() {
  if (gate_ >= 0) close(gate_);
  gate_ = -1;
}

void Peer::kill_now() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
  go();
}

Peer::~Peer() { kill_now(); }

// Not a test: what Peer starts. Answers until it is killed.
TEST_CASE("the peer's process", "[.]") {
  const char* const text = std::getenv("RNIC_TEST_PEER");
  if (text == nullptr) return;
  const auto spec = parse_spec(text);
  REQUIRE(spec);
  PortFactory factory({*spec});
  std::string error;
  const auto mtu = static_cast<std::uint32_t>(std::atoi(std::getenv("RNIC_TEST_MTU")));
  const auto port = factory.open(*spec, {.name = "peer", .mtu_bytes = mtu, .mac = {}, .buffers = 4096}, error);
  INFO(error);
  REQUIRE(port);
  dpdk_register_thread();
  std::uint32_t sleeps = 0;
  for (;;) {
    Buffer* raw = nullptr;
    if (port->receive_burst(&raw, 1) == 0) {
      ++sleeps;
      sleep_until_woken(*port, -1);
      continue;
    }
    const BufferRef frame(raw);
    if (!is_ours(*frame) || is_answer(*frame)) continue;
    if (asks_for_torn(*frame)) {
      const std::vector<std::byte> whole(40'000);
      send_frame(
          *port, [&](MutableBytes octets) { write_piece(whole, {.number = 1, .total = 40'000, .at = 0}, octets); },
          1400);
      continue;
    }
    send_frame(
        *port,
        [&](MutableBytes octets) {
          std::memcpy(octets.data() + kNumber, frame->bytes().data() + kNumber, octets.size() - kNumber);
          store_be(octets, kSleeps, sleeps);
          octets[kIsAnswer] = std::byte{1};
        },
        frame->length);
  }
}

}  // namespace rnic::port::test
