// Descriptors whose close() waits: TCP sockets with octets that nobody takes, and the wish to linger.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>

#include "system/hostile/hostile.hpp"

namespace rnic::hostile {
namespace {

// One that will linger: connected to `listener`, who does not read.
bare::Descriptor lingering(const sockaddr_in& listener, Seconds linger_s) {
  bare::Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd || connect(fd.get(), reinterpret_cast<const sockaddr*>(&listener), sizeof listener) != 0)
    bare::fail("a TCP connection over loopback", errno);
  const std::vector<char> octets(65536);
  while (send(fd.get(), octets.data(), octets.size(), MSG_DONTWAIT) > 0) {
  }
  const struct linger how { 1, static_cast<int>(std::ceil(linger_s)) };
  setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &how, sizeof how);
  return fd;
}

}  // namespace

int linger(const Options& options) {
  const bare::Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  if (!listener || bind(listener.get(), reinterpret_cast<sockaddr*>(&at), size) != 0 ||
      listen(listener.get(), 64) != 0 || getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &size) != 0)
    bare::fail("a TCP listener", errno);

  Bench bench(options.socket);
  const bare::QueuePair qp = bench.app.queue_pair(bench.pd, bench.cq.handle, bench.cq.handle, 16);
  bare::Connection& control = bench.app.control;
  attacking();
  const Seconds start = now();
  // With a request that takes no descriptor, and with one that looks at it. Behind others: when the daemon comes to
  // it, we have closed ours, and the daemon's is the last.
  constexpr int kBefore = 150;
  std::uint32_t sent = 0;
  for (; sent < 8 && now() - start < options.seconds; ++sent) {
    bare::Descriptor fd = lingering(at, options.seconds);
    const int fds[] = {fd.get()};
    for (int i = 0; i < kBefore; ++i) control.say(RNIC_QUERY_QP, rnic_handle{qp.number, 0});
    if (sent % 2 == 0) {
      control.say_octets(RNIC_LIST_DEVICES, {}, fds);
    } else {
      rnic_reg_mr request{};
      request.pd = bench.pd;
      request.access = bare::kAllAccess;
      request.start = request.iova = 4096;
      request.length = 4096;
      request.shared = RNIC_MEMORY_SHARED;
      control.say(RNIC_REG_MR, request, fds);
    }
    fd.reset();
    for (int i = 0; i <= kBefore; ++i) control.hear();
  }
  while (now() - start < options.seconds) usleep(10'000);
  say(std::to_string(sent) + " sockets that linger");
  return 0;
}

}  // namespace rnic::hostile
