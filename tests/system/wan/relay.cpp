// A long way between two interfaces, both directions alike: a queue, a line of a rate, a delay, and loss by chance from
// a seed. For kernels without netem.
//
//   relay IFACE IFACE [--delay-us N] [--mbps N] [--queue OCTETS] [--loss-ppm N] [--seed N]
//
// The line is reckoned, not kept: the kernel says when a frame came, from which follows when the line is done with it,
// and how much of what came before still waits for the line. So a relay that is woken late changes nothing of what is
// dropped, and gives on in time what has a delay before it. Octets are those of frames, with Ethernet's header. What
// comes must be as it would be on a cable: no offloads at the other ends (ethtool -K … tx off tso off gso off), no
// VLANs.
//
// At SIGINT or SIGTERM it says as JSON what became of the frames, and ends. `missed` were never seen, as its own room
// was full; `late` are those given on more than a millisecond after they were due.
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
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

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kTick = 50'000;  // the least time from one look to the next: many frames in one
constexpr std::int64_t kLate = 1'000'000;
constexpr std::size_t kBurst = 64;
constexpr std::size_t kFrameMax = 65'536;

volatile std::sig_atomic_t ended = 0;

struct Options {
  std::int64_t delay_ns = 0;
  std::int64_t mbps = 0;         // 0: no line, and no queue before it
  std::int64_t queue_bytes = 0;  // 0: endless
  std::uint64_t loss_ppm = 0;
  std::uint64_t seed = 1;
};

std::int64_t in_ns(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }

// The clock of the kernel's timestamps.
std::int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return in_ns(time);
}

int open_interface(const char* name) {
  const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
  const int yes = 1;
  const int room = 256 << 20;
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(if_nametoindex(name));
  if (fd < 0 || address.sll_ifindex == 0 || setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof yes) != 0 ||
      setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &yes, sizeof yes) != 0 ||
      setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) != 0 ||
      setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room) != 0 ||
      bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    std::fprintf(stderr, "relay: %s: %s\n", name, std::strerror(errno));
    std::exit(1);
  }
  return fd;
}

// Room for a burst of frames, and for when each came.
class Burst {
 public:
  Burst() : octets_(kBurst * kFrameMax) {}

  // How many were there.
  std::size_t receive(int fd) {
    for (std::size_t i = 0; i < kBurst; ++i) {
      pieces_[i] = {octets_.data() + i * kFrameMax, kFrameMax};
      messages_[i].msg_hdr = {};
      messages_[i].msg_hdr.msg_iov = &pieces_[i];
      messages_[i].msg_hdr.msg_iovlen = 1;
      messages_[i].msg_hdr.msg_control = control_[i].octets.data();
      messages_[i].msg_hdr.msg_controllen = control_[i].octets.size();
    }
    const int count = recvmmsg(fd, messages_.data(), kBurst, MSG_DONTWAIT, nullptr);
    return count < 0 ? 0 : static_cast<std::size_t>(count);
  }
  const std::byte* frame(std::size_t i) const { return octets_.data() + i * kFrameMax; }
  std::size_t size(std::size_t i) const { return messages_[i].msg_len; }
  std::int64_t came_at(std::size_t i) {
    for (cmsghdr* it = CMSG_FIRSTHDR(&messages_[i].msg_hdr); it != nullptr;
         it = CMSG_NXTHDR(&messages_[i].msg_hdr, it)) {
      if (it->cmsg_level != SOL_SOCKET || it->cmsg_type != SCM_TIMESTAMPNS) continue;
      timespec time{};
      std::memcpy(&time, CMSG_DATA(it), sizeof time);
      return in_ns(time);
    }
    return now_ns();
  }

 private:
  struct Control {
    alignas(cmsghdr) std::array<std::byte, 128> octets;
  };
  std::vector<std::byte> octets_;
  std::array<iovec, kBurst> pieces_{};
  std::array<Control, kBurst> control_{};
  std::array<mmsghdr, kBurst> messages_{};
};

class Direction {
 public:
  Direction(int from, int to, const Options& options, std::uint64_t seed)
      : from_(from), to_(to), options_(options), chance_(seed) {}

  // All that has come.
  void take(Burst& burst) {
    for (;;) {
      const std::size_t count = burst.receive(from_);
      for (std::size_t i = 0; i < count; ++i) take(burst.frame(i), burst.size(i), burst.came_at(i));
      if (count < kBurst) return;
    }
  }
  // All that is due.
  void give() {
    while (!on_way_.empty() && on_way_.front().due <= now_ns()) give_burst(now_ns());
  }
  // When there is something to give; the largest number: never.
  std::int64_t next_due() const { return on_way_.empty() ? INT64_MAX : on_way_.front().due; }

  void say(const char* name, const char* behind) {
    tpacket_stats missed{};
    socklen_t size = sizeof missed;
    getsockopt(from_, SOL_PACKET, PACKET_STATISTICS, &missed, &size);
    std::printf(
        "\"%s\": {\"frames\": %llu, \"octets\": %llu, \"queue_full\": %llu, \"lost\": %llu, \"missed\": %u, "
        "\"refused\": %llu, \"late\": %llu, \"latest_us\": %lld, \"queue_most\": %lld}%s",
        name, frames_, octets_, queue_full_, lost_, missed.tp_drops, refused_, late_,
        static_cast<long long>(latest_ns_ / 1000), static_cast<long long>(queue_most_), behind);
  }

 private:
  struct Frame {
    std::int64_t due;
    std::vector<std::byte> octets;
  };

  void take(const std::byte* frame, std::size_t size, std::int64_t came_at) {
    if (options_.loss_ppm != 0 && chance_() % 1'000'000 < options_.loss_ppm) {
      ++lost_;
      return;
    }
    std::int64_t done_at = std::max(came_at, done_at_);  // of two frames none overtakes the other
    if (options_.mbps != 0) {
      const auto octets = static_cast<std::int64_t>(size);
      const std::int64_t queue = (done_at - came_at) * options_.mbps / 8000;
      if (options_.queue_bytes != 0 && queue != 0 && queue + octets > options_.queue_bytes) {
        ++queue_full_;
        return;
      }
      queue_most_ = std::max(queue_most_, queue + octets);
      done_at += octets * 8000 / options_.mbps;
    }
    done_at_ = done_at;
    on_way_.push_back({done_at + options_.delay_ns, {frame, frame + size}});
  }

  void give_burst(std::int64_t now) {
    std::array<iovec, kBurst> pieces{};
    std::array<mmsghdr, kBurst> messages{};
    unsigned count = 0;
    for (; count < kBurst && count < on_way_.size() && on_way_[count].due <= now; ++count) {
      pieces[count] = {on_way_[count].octets.data(), on_way_[count].octets.size()};
      messages[count].msg_hdr.msg_iov = &pieces[count];
      messages[count].msg_hdr.msg_iovlen = 1;
    }
    const int sent = sendmmsg(to_, messages.data(), count, 0);
    if (sent <= 0) {  // the first of them
      ++refused_;
      on_way_.pop_front();
      return;
    }
    for (int i = 0; i < sent; ++i) {
      const Frame& frame = on_way_.front();
      ++frames_;
      octets_ += frame.octets.size();
      latest_ns_ = std::max(latest_ns_, now - frame.due);
      if (now - frame.due > kLate) ++late_;
      on_way_.pop_front();
    }
  }

  int from_;
  int to_;
  const Options& options_;
  std::mt19937_64 chance_;
  std::deque<Frame> on_way_;  // and before the line
  std::int64_t done_at_ = 0;  // the line, with all that has come
  unsigned long long frames_ = 0, octets_ = 0, queue_full_ = 0, lost_ = 0, refused_ = 0, late_ = 0;
  std::int64_t latest_ns_ = 0, queue_most_ = 0;
};

void sleep_for(std::int64_t ns) {
  const timespec time{ns / kSecond, ns % kSecond};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &time, nullptr);
}

}  // namespace

int main(int count, char** words) {
  Options options;
  std::vector<const char*> interfaces;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const auto value = [&] { return i + 1 < count ? std::strtoll(words[++i], nullptr, 10) : 0; };
    if (word == "--delay-us")
      options.delay_ns = value() * 1000;
    else if (word == "--mbps")
      options.mbps = value();
    else if (word == "--queue")
      options.queue_bytes = value();
    else if (word == "--loss-ppm")
      options.loss_ppm = static_cast<std::uint64_t>(value());
    else if (word == "--seed")
      options.seed = static_cast<std::uint64_t>(value());
    else
      interfaces.push_back(words[i]);
  }
  if (interfaces.size() != 2) {
    std::fprintf(stderr,
                 "usage: relay IFACE IFACE [--delay-us N] [--mbps N] [--queue OCTETS] [--loss-ppm N] [--seed N]\n");
    return 2;
  }
  struct sigaction end {};
  end.sa_handler = [](int) { ended = 1; };
  sigaction(SIGINT, &end, nullptr);
  sigaction(SIGTERM, &end, nullptr);
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);

  const int a = open_interface(interfaces[0]);
  const int b = open_interface(interfaces[1]);
  Direction there(a, b, options, options.seed);
  Direction back(b, a, options, options.seed + 1);
  Burst burst;
  while (ended == 0) {
    const std::int64_t looked_at = now_ns();
    there.take(burst);
    back.take(burst);
    there.give();
    back.give();
    pollfd waits[2] = {{a, POLLIN, 0}, {b, POLLIN, 0}};
    const std::int64_t wait =
        std::clamp<std::int64_t>(std::min(there.next_due(), back.next_due()) - now_ns(), 0, kSecond / 10);
    const timespec time{0, wait};
    ppoll(waits, 2, &time, nullptr);
    const std::int64_t early = kTick - (now_ns() - looked_at);
    if (early > 0) sleep_for(std::min(early, kTick));
    if (((waits[0].revents | waits[1].revents) & (POLLERR | POLLNVAL)) != 0) sleep_for(kSecond / 1000);
  }
  std::printf("{");
  there.say("there", ", ");
  back.say("back", "}\n");
  return 0;
}
