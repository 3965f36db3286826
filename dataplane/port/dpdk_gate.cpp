// DPDK 22.11 lists the calls that make an interrupt source as experimental.
#define ALLOW_EXPERIMENTAL_API
#include "port/dpdk_gate.hpp"

#include <poll.h>
#include <rte_errno.h>
#include <rte_interrupts.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace rnic::port {
namespace {

struct Gate {
  std::mutex mutex;  // guards `ports`; held by EAL's thread through a whole round
  std::vector<Gated*> ports;
  int always = -1;   // the interrupt source: never read, so always readable
  int request = -1;  // gate_look_again()
  int epoll = -1;    // EAL's, as last found
  bool round = false;
  bool tick = false;
};
Gate& gate() {
  static Gate* const the_gate = new Gate;  // EAL's thread outlives statics
  return *the_gate;
}

// The descriptors that epoll descriptor `epoll` waits for, without ours. False if it is not EAL's,
// which is known by waiting for `always` (proc(5), /proc/PID/fdinfo).
bool watched_by(int epoll, int always, std::vector<pollfd>& out) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/fdinfo/%d", epoll);
  FILE* file = std::fopen(path, "re");
  if (file == nullptr) return false;
  out.clear();
  bool found = false;
  char line[256];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    int fd = -1;
    if (std::sscanf(line, "tfd: %d", &fd) != 1) continue;
    if (fd == always) {
      found = true;
    } else {
      out.push_back({.fd = fd, .events = POLLIN | POLLPRI | POLLRDHUP, .revents = 0});
    }
  }
  std::fclose(file);
  return found;
}

// EAL makes its epoll anew when its sources change, so the last one may be gone.
bool watched_by_eal(Gate& g, std::vector<pollfd>& out) {
  if (g.epoll >= 0 && watched_by(g.epoll, g.always, out)) return true;
  const long last = std::min(sysconf(_SC_OPEN_MAX), 1L << 20);
  unsigned missing = 0;
  // Descriptors are given lowest first: a long gap is the end.
  for (int fd = 0; fd < last && missing < 4096; ++fd) {
    char path[64], target[64];
    std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const ssize_t size = readlink(path, target, sizeof target - 1);
    if (size < 0) {
      ++missing;
      continue;
    }
    missing = 0;
    target[size] = '\0';
    if (std::strcmp(target, "anon_inode:[eventpoll]") != 0 || !watched_by(fd, g.always, out)) continue;
    g.epoll = fd;
    return true;
  }
  g.epoll = -1;
  return false;
}

void lock_all(Gate& g) {
  for (Gated* port : g.ports)
    while (!port->try_lock()) sched_yield();  // a burst lasts microseconds
}
void unlock_all(Gate& g) {
  for (Gated* port : g.ports) port->unlock();
}
void rounds_end(Gate& g, bool tick) {
  for (Gated* port : g.ports) port->on_round(tick);
}

// In EAL's interrupt thread, once in each of its rounds.
void pass(void*) {
  Gate& g = gate();
  if (g.round) {
    g.round = false;
    rounds_end(g, g.tick);
    unlock_all(g);
    g.mutex.unlock();
  }
  for (;;) {
    std::vector<pollfd> descriptors;
    const bool found = watched_by_eal(g, descriptors);
    const std::size_t eal_count = descriptors.size();
    bool ticks = !found;  // cannot be, but then we look from time to time
    {
      const std::lock_guard guard(g.mutex);
      std::vector<int> own{g.request};
      for (const Gated* port : g.ports) {
        port->descriptors(own);
        ticks = ticks || port->wants_ticks();
      }
      for (const int fd : own) descriptors.push_back({.fd = fd, .events = POLLIN | POLLRDHUP, .revents = 0});
    }
    const int ready = poll(descriptors.data(), descriptors.size(), ticks ? Gated::kTickMs : -1);
    const auto said_something = [](const pollfd& p) { return (p.revents & ~POLLNVAL) != 0; };
    const bool eal = ready > 0 && std::any_of(descriptors.begin(), descriptors.begin() + static_cast<long>(eal_count),
                                              said_something);
    std::uint64_t count = 0;
    (void)!read(g.request, &count, sizeof count);

    g.mutex.lock();
    lock_all(g);
    if (eal || !found) {
      g.round = true;
      g.tick = ready == 0;
      return;  // EAL goes its round; we end it when it comes by again
    }
    rounds_end(g, ready == 0);
    unlock_all(g);
    g.mutex.unlock();
  }
}

bool open_gate(Gate& g, std::string& error) {
  if (g.always >= 0) return true;
  g.always = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
  g.request = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  rte_intr_handle* handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
  int code = -1;
  if (g.always >= 0 && g.request >= 0 && handle != nullptr && rte_intr_fd_set(handle, g.always) == 0 &&
      rte_intr_type_set(handle, RTE_INTR_HANDLE_EXT) == 0)
    code = rte_intr_callback_register(handle, pass, nullptr);
  if (code < 0) error = "DPDK's interrupt thread cannot be reached";
  rte_intr_instance_free(handle);  // EAL has made its own copy
  return code >= 0;
}

}  // namespace

bool gate_add(Gated& gated, std::string& error) {
  Gate& g = gate();
  {
    const std::lock_guard guard(g.mutex);
    if (!open_gate(g, error)) return false;
    g.ports.push_back(&gated);
  }
  gate_look_again();
  return true;
}

void gate_remove(Gated& gated, const std::function<void()>& last) {
  Gate& g = gate();
  const std::lock_guard guard(g.mutex);
  last();
  std::erase(g.ports, &gated);
}

void gate_look_again() {
  const std::uint64_t one = 1;
  (void)!write(gate().request, &one, sizeof one);
}

}  // namespace rnic::port
