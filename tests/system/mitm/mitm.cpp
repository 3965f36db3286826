// A man in the middle between two interfaces: passes frames from each to the other, and loses,
// repeats or delays-by-one some of them, from one seed. --delay-ms: every frame is on its way for so long.
// For whole processes on kernels without netem.
//
//   mitm IFACE IFACE [--loss-permille N] [--repeat-permille N] [--swap-permille N] [--delay-ms N] [--seed N]
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

namespace {

struct Options {
  unsigned loss_permille = 0;
  unsigned repeat_permille = 0;
  unsigned swap_permille = 0;
  unsigned delay_ms = 0;
  unsigned long seed = 1;
};

int open_interface(const char* name) {
  const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
  const int yes = 1;
  const int room = 4 << 20;
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(if_nametoindex(name));
  if (fd < 0 || address.sll_ifindex == 0 || setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof yes) != 0 ||
      bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    std::fprintf(stderr, "mitm: %s: %s\n", name, std::strerror(errno));
    std::exit(1);
  }
  setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
  setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
  return fd;
}

long now_ms() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000 + time.tv_nsec / 1'000'000;
}

class Direction {
 public:
  Direction(int from, int to, const Options& options, unsigned long seed)
      : from_(from), to_(to), options_(options), chance_(seed), frame_(65536) {}

  // Everything that waits, at most a burst.
  void pass() {
    for (int i = 0; i < 64; ++i) {
      const ssize_t length = recv(from_, frame_.data(), frame_.size(), MSG_DONTWAIT);
      if (length <= 0) return;
      const auto size = static_cast<std::size_t>(length);
      if (happens(options_.loss_permille)) continue;
      if (kept_.empty() && happens(options_.swap_permille)) {
        kept_.assign(frame_.begin(), frame_.begin() + length);
        continue;
      }
      put(frame_.data(), size);
      if (happens(options_.repeat_permille)) put(frame_.data(), size);
      if (!kept_.empty()) {
        put(kept_.data(), kept_.size());
        kept_.clear();
      }
    }
  }
  // Nothing follows: what was kept to be overtaken goes now.
  void quiet() {
    if (kept_.empty()) return;
    put(kept_.data(), kept_.size());
    kept_.clear();
  }
  // What has been on its way for long enough. Says whether more is.
  bool arrive() {
    const long now = delayed_.empty() ? 0 : now_ms();
    for (; !delayed_.empty() && delayed_.front().due_ms <= now; delayed_.pop_front())
      put_now(delayed_.front().frame.data(), delayed_.front().frame.size());
    return !delayed_.empty();
  }

 private:
  struct Delayed {
    long due_ms;
    std::vector<unsigned char> frame;
  };

  bool happens(unsigned permille) { return permille != 0 && chance_() % 1000 < permille; }
  void put(const unsigned char* frame, std::size_t size) {
    if (options_.delay_ms == 0) return put_now(frame, size);
    delayed_.push_back({now_ms() + options_.delay_ms, {frame, frame + size}});
  }
  void put_now(const unsigned char* frame, std::size_t size) {
    [[maybe_unused]] const auto sent = send(to_, frame, size, 0);
  }

  int from_;
  int to_;
  const Options& options_;
  std::mt19937_64 chance_;
  std::vector<unsigned char> frame_;
  std::vector<unsigned char> kept_;
  std::deque<Delayed> delayed_;
};

}  // namespace

int main(int count, char** words) {
  Options options;
  std::vector<const char*> interfaces;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const auto value = [&] { return i + 1 < count ? std::strtoul(words[++i], nullptr, 10) : 0; };
    if (word == "--loss-permille")
      options.loss_permille = static_cast<unsigned>(value());
    else if (word == "--repeat-permille")
      options.repeat_permille = static_cast<unsigned>(value());
    else if (word == "--swap-permille")
      options.swap_permille = static_cast<unsigned>(value());
    else if (word == "--delay-ms")
      options.delay_ms = static_cast<unsigned>(value());
    else if (word == "--seed")
      options.seed = value();
    else
      interfaces.push_back(words[i]);
  }
  if (interfaces.size() != 2) {
    std::fprintf(stderr,
                 "usage: mitm IFACE IFACE [--loss-permille N] [--repeat-permille N] [--swap-permille N] "
                 "[--delay-ms N] [--seed N]\n");
    return 2;
  }
  const int a = open_interface(interfaces[0]);
  const int b = open_interface(interfaces[1]);
  Direction there(a, b, options, options.seed);
  Direction back(b, a, options, options.seed + 1);
  for (;;) {
    pollfd waits[2] = {{a, POLLIN, 0}, {b, POLLIN, 0}};
    const bool more = there.arrive() | back.arrive();
    const int ready = poll(waits, 2, more ? 1 : 20);
    if (ready == 0) {
      there.quiet();
      back.quiet();
    }
    if ((waits[0].revents & POLLIN) != 0) there.pass();
    if ((waits[1].revents & POLLIN) != 0) back.pass();
    if (((waits[0].revents | waits[1].revents) & (POLLERR | POLLNVAL)) != 0) usleep(1000);
  }
}
