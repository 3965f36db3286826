// Throws TCP segments at somebody: floods and scans. By a raw socket, so that the kernel finds the way
// and nobody on this host knows of the connections.
//
//   spray FROM TO --count N [--flags SYN+FIN+…] [--ports FIRST-LAST] [--from-bits B] [--rate N] [--seed N]
//
// FROM and TO are IPv4 addresses. --from-bits: so many low bits of FROM are by chance. --ports: the
// destination's, one after the other. Sequence numbers and source ports are by chance.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>

namespace {

struct Segment {
  iphdr ip;
  tcphdr tcp;
  std::array<std::uint8_t, 4> mss;  // of a SYN
};
static_assert(sizeof(Segment) == 44);

std::uint32_t sum(const void* octets, std::size_t size) {
  std::uint32_t total = 0;
  for (std::size_t i = 0; i + 1 < size; i += 2) {
    std::uint16_t word;
    std::memcpy(&word, static_cast<const char*>(octets) + i, 2);
    total += word;
  }
  return total;
}

std::uint16_t fold(std::uint32_t total) {
  while (total >> 16) total = (total & 0xFFFF) + (total >> 16);
  return static_cast<std::uint16_t>(~total);
}

std::uint8_t flags_of(const std::string& text) {
  static const std::map<std::string, std::uint8_t> known{{"FIN", 1}, {"SYN", 2},  {"RST", 4},
                                                         {"PSH", 8}, {"ACK", 16}, {"URG", 32}};
  std::uint8_t flags = 0;
  for (const auto& [name, bit] : known)
    if (text.find(name) != std::string::npos) flags = static_cast<std::uint8_t>(flags | bit);
  return flags;
}

}  // namespace

int main(int count, char** words) {
  in_addr from{}, to{};
  if (count < 3 || inet_pton(AF_INET, words[1], &from) != 1 || inet_pton(AF_INET, words[2], &to) != 1) {
    std::fprintf(stderr,
                 "usage: spray FROM TO --count N [--flags F] [--ports A-B] [--from-bits B] [--rate N] [--seed N]\n");
    return 2;
  }
  unsigned long segments = 1, rate = 0, seed = 1, from_bits = 0, first = 1, last = 1;
  std::uint8_t flags = 2;
  for (int i = 3; i + 1 < count; i += 2) {
    const std::string word = words[i], value = words[i + 1];
    if (word == "--count") segments = std::stoul(value);
    if (word == "--flags") flags = flags_of(value);
    if (word == "--rate") rate = std::stoul(value);
    if (word == "--seed") seed = std::stoul(value);
    if (word == "--from-bits") from_bits = std::stoul(value);
    if (word == "--ports") {
      first = last = std::stoul(value);
      if (const auto dash = value.find('-'); dash != std::string::npos) last = std::stoul(value.substr(dash + 1));
    }
  }
  const int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
  const int room = 8 << 20;
  if (fd < 0) return std::perror("spray"), 1;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);

  std::mt19937_64 chance(seed);
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_addr = to;
  timespec begin{};
  clock_gettime(CLOCK_MONOTONIC, &begin);
  unsigned long sent = 0;
  for (unsigned long i = 0; i < segments; ++i) {
    Segment segment{};
    const bool syn = (flags & 2) != 0;
    const std::size_t size = syn ? sizeof segment : sizeof segment - segment.mss.size();
    segment.ip.version = 4;
    segment.ip.ihl = 5;
    segment.ip.ttl = 64;
    segment.ip.protocol = IPPROTO_TCP;
    segment.ip.tot_len = htons(static_cast<std::uint16_t>(size));
    const auto by_chance = static_cast<std::uint32_t>(chance() & ((1ul << from_bits) - 1));
    segment.ip.saddr = htonl(ntohl(from.s_addr) ^ by_chance);
    segment.ip.daddr = to.s_addr;
    segment.tcp.source = htons(static_cast<std::uint16_t>(1024 + chance() % 60000));
    segment.tcp.dest = htons(static_cast<std::uint16_t>(first + i % (last - first + 1)));
    segment.tcp.seq = static_cast<std::uint32_t>(chance());
    if ((flags & 16) != 0) segment.tcp.ack_seq = static_cast<std::uint32_t>(chance());
    segment.tcp.doff = static_cast<std::uint16_t>((size - sizeof(iphdr)) / 4) & 0xF;
    reinterpret_cast<std::uint8_t*>(&segment.tcp)[13] = flags;
    segment.tcp.window = htons(64240);
    segment.mss = {2, 4, 0x05, 0xB4};
    const std::uint32_t pseudo =
        sum(&segment.ip.saddr, 8) + htons(IPPROTO_TCP) + htons(static_cast<std::uint16_t>(size - sizeof(iphdr)));
    segment.tcp.check = fold(pseudo + sum(&segment.tcp, size - sizeof(iphdr)));
    while (sendto(fd, &segment, size, 0, reinterpret_cast<sockaddr*>(&target), sizeof target) < 0) {
      if (errno != ENOBUFS && errno != EAGAIN) return std::perror("spray"), 1;
      usleep(100);
    }
    ++sent;
    if (rate != 0 && i % 32 == 31) {  // no faster than asked for
      timespec due = begin;
      const unsigned long ns = (i + 1) * 1'000'000'000ul / rate + static_cast<unsigned long>(begin.tv_nsec);
      due.tv_sec += static_cast<time_t>(ns / 1'000'000'000ul);
      due.tv_nsec = static_cast<long>(ns % 1'000'000'000ul);
      clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, nullptr);
    }
  }
  timespec end{};
  clock_gettime(CLOCK_MONOTONIC, &end);
  const double seconds =
      static_cast<double>(end.tv_sec - begin.tv_sec) + static_cast<double>(end.tv_nsec - begin.tv_nsec) / 1e9;
  std::printf("{\"sent\": %lu, \"seconds\": %.3f}\n", sent, seconds);
}
