/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// A context's life: what is set up when a device is opened, and given back when it is closed.
#include "context.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "rnic_trust.h"

namespace rnic::provider {

namespace {

constexpr std::size_t kPageBytes = 4096;

// A page that the kernel empties in a forked child: the data path can ask "am I the process that
// opened this?" for the price of a load. Without that service of the kernel (Linux 4.14) nobody can
// tell: nothing is copied on the application's behalf, and a child is not kept from posting.
std::uint32_t* make_fork_mark() {
  void* page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  auto* mark = static_cast<std::uint32_t*>(page);
  *mark = madvise(page, kPageBytes, MADV_WIPEONFORK) == 0 ? kMayPost : kLookTwice;
  return mark;
}

// Is it our daemon that has the other end? What we send it opens our memory.
bool trusted(int command_fd) {
  char why[RNIC_WHY_MAX];
  if (rnic_daemon_answers(rnic_libc_plain(), command_fd, why, sizeof why)) return true;
  std::fprintf(stderr, "rnic: %s\n", why);
  return false;
}

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

bool ended(int pidfd) {
  pollfd one{pidfd, POLLIN, 0};
  return poll(&one, 1, 0) != 0;
}

// Lets the daemon, by number of its process, reach our memory where the Yama module asks for that. Elsewhere prctl
// refuses, and nothing is lost. The number is taken back where it may be another's: where the daemon is not there
// after it was given. (Without SO_PEERPIDFD, before Linux 6.5, nobody can tell.)
void allow_daemon(int command_fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(command_fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0) return;
  prctl(PR_SET_PTRACER, static_cast<unsigned long>(peer.pid), 0, 0, 0);
  int pidfd = -1;
  size = sizeof pidfd;
  if (getsockopt(command_fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) != 0) {
    if (errno != ENOPROTOOPT) prctl(PR_SET_PTRACER, 0, 0, 0, 0);
    return;
  }
  if (ended(pidfd)) prctl(PR_SET_PTRACER, 0, 0, 0, 0);
  close(pidfd);
}

template <typename T>
T* map_shared(int fd, std::size_t size, int protection) {
  void* at = mmap(nullptr, size, protection, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<T*>(at);
}

// OPEN_CONTEXT, and what its reply brings. 0 or an errno.
int introduce(Context& context, const char* device_name) {
  rnic_open_context request{};
  std::strncpy(request.device, device_name, sizeof request.device - 1);
  request.helper_tid = context.watcher_tid;

  const int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
  rnic_open_context_reply reply{};
  Descriptors fds{};
  const int error =
      context.control.call(RNIC_OPEN_CONTEXT, &request, sizeof request, &reply, sizeof reply, memory, &fds);
  if (memory >= 0) close(memory);
  if (error != 0) return error;

  const int status = fds.take();
  const int doorbells = fds.take();
  context.async_fd = fds.take();
  context.async_writer = fds.take();
  const std::uint32_t workers = reply.worker_count;
  context.number = reply.context;
  context.attributes = reply.attributes;
  context.device = reply.device;
  if (status >= 0 && doorbells >= 0 && workers >= 1 && workers <= RNIC_WORKERS_MAX) {
    context.doorbells.status = map_shared<rnic_status_page>(status, sizeof(rnic_status_page), PROT_READ);
    context.doorbells.workers =
        map_shared<rnic_doorbells>(doorbells, workers * sizeof(rnic_doorbells), PROT_READ | PROT_WRITE);
    context.doorbells.worker_count = workers;
    for (std::uint32_t i = 0; i < workers; ++i) context.doorbells.eventfds[i] = fds.take();
  }
  if (status >= 0) close(status);
  if (doorbells >= 0) close(doorbells);
  fds.close_rest();

  if (context.async_writer < 0) return EMFILE;  // the kernel gives what RLIMIT_NOFILE lets it
  if (context.doorbells.status == nullptr || context.doorbells.workers == nullptr) return EPROTO;
  if (context.doorbells.eventfds[workers - 1] < 0) return EMFILE;
  return context.doorbells.status->abi_version == RNIC_ABI_VERSION ? 0 : EPROTO;
}

}  // namespace

void* allocate_zeroed(std::size_t size) {
  const std::size_t rounded = (size + RNIC_CACHE_LINE - 1) / RNIC_CACHE_LINE * RNIC_CACHE_LINE;
  void* memory = std::aligned_alloc(RNIC_CACHE_LINE, rounded);
  if (memory != nullptr) std::memset(memory, 0, rounded);
  return memory;
}

template <typename Entry>
Entry* NumberTable<Entry>::make(std::uint32_t number) {
  if (number >= kPages * kPageEntries) return nullptr;
  Entry*& page = pages[number / kPageEntries];
  if (page == nullptr) {
    auto* fresh = static_cast<Entry*>(std::calloc(kPageEntries, sizeof(Entry)));
    if (fresh == nullptr) return nullptr;
    store(page, fresh, std::memory_order_release);
  }
  return &page[number % kPageEntries];
}

template <typename Entry>
void NumberTable<Entry>::clear() {
  for (Entry*& page : pages) {
    std::free(page);
    page = nullptr;
  }
}

template struct NumberTable<Qp*>;

int why_not_post(const Context& context) {
  if (is_forked_child(context)) return EPERM;
  return load(context.dead, std::memory_order_acquire) != 0 ? EIO : 0;
}

void mark_dead(Context& context) {
  std::uint32_t usual = kMayPost;
  std::atomic_ref(*context.not_forked).compare_exchange_strong(usual, kLookTwice);
  store(context.dead, 1U, std::memory_order_release);
}

int open_context(Context& context, int command_fd, const char* device_name) {
  if (!trusted(command_fd)) return EPERM;
  context.control.open(command_fd);
  context.async_fd = -1;
  context.async_writer = -1;
  context.watcher_wake = -1;
  for (int& fd : context.doorbells.eventfds) fd = -1;
  context.cq_list.make_head();
  context.qp_list.make_head();
  context.stream_list.make_head();
  pthread_mutex_init(&context.objects, nullptr);
  pthread_mutex_init(&context.streams, nullptr);
  pthread_mutex_init(&context.arena_mutex, nullptr);

  // Keys of STags begin anywhere, so that those of an earlier run are unlikely to fit.
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  context.next_key = static_cast<std::uint32_t>(now.tv_nsec >> 10);

  allow_daemon(command_fd);
  context.not_forked = make_fork_mark();
  int error = context.not_forked == nullptr ? ENOMEM : start_watcher(context);
  if (error == 0) error = introduce(context, device_name);
  if (error != 0) {
    if (context.async_fd >= 0) close(context.async_fd);
    context.async_fd = -1;
    close_context(context);
    return error;
  }
  context.verbs.context.async_fd = context.async_fd;
  context.verbs.context.num_comp_vectors = static_cast<int>(context.attributes.completion_vectors);
  return 0;
}

namespace {

// Ends the context at the daemon, and comes back when it is ended there: so long our memory may be reached, and by the
// helper. A daemon that is gone has ended it, too.
void end_at_daemon(Context& context) {
  if (context.control.in_forked_child()) return;
  store(context.closing, 1U, std::memory_order_release);  // the hang-up that follows is no death
  shutdown(context.control.fd, SHUT_WR);
  char octet;
  for (;;) {
    const ssize_t got = recv(context.control.fd, &octet, sizeof octet, 0);
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) return;
    pollfd one{context.control.fd, POLLIN, 0};
    if (got < 0 && errno == EAGAIN) poll(&one, 1, -1);
  }
}

}  // namespace

void close_context(Context& context) {
  end_at_daemon(context);
  stop_watcher(context);
  if (context.async_writer >= 0) close(context.async_writer);
  if (context.direct_events != 0) close(context.direct_events - 1);
  for (const int fd : context.doorbells.eventfds) {
    if (fd >= 0) close(fd);
  }
  if (context.doorbells.status != nullptr) {
    munmap(const_cast<rnic_status_page*>(context.doorbells.status), sizeof(rnic_status_page));
  }
  if (context.doorbells.workers != nullptr) {
    munmap(context.doorbells.workers, context.doorbells.worker_count * sizeof(rnic_doorbells));
  }
  for (std::uint32_t i = 0; i < context.arena_count; ++i) {
    if (context.arenas[i].base != nullptr) munmap(context.arenas[i].base, context.arenas[i].size);
  }
  std::free(context.arenas);
  if (context.not_forked != nullptr) munmap(context.not_forked, kPageBytes);
  context.qps.clear();
  context.regions.clear();
  pthread_mutex_destroy(&context.objects);
  pthread_mutex_destroy(&context.streams);
  pthread_mutex_destroy(&context.arena_mutex);
  context.control.close();
}

namespace {

constexpr std::uint32_t kArenasMax = 65536;

Arena* arena_numbered(Context& context, std::uint32_t number) {
  if (number >= kArenasMax) return nullptr;
  if (number >= context.arena_count) {
    const std::uint32_t count = (number / 16 + 1) * 16;
    auto* grown = static_cast<Arena*>(std::realloc(context.arenas, count * sizeof(Arena)));
    if (grown == nullptr) return nullptr;
    std::memset(grown + context.arena_count, 0, (count - context.arena_count) * sizeof(Arena));
    context.arenas = grown;
    context.arena_count = count;
  }
  return &context.arenas[number];
}

bool is_mapped(const Context& context, std::uint32_t number) {
  return number < context.arena_count && context.arenas[number].base != nullptr;
}

// Takes the descriptor over.
int map_arena(Context& context, std::uint32_t number, std::uint64_t size, int fd) {
  Arena* arena = arena_numbered(context, number);
  if (arena != nullptr && arena->base == nullptr) {
    arena->base = map_shared<char>(fd, size, PROT_READ | PROT_WRITE);
    arena->size = size;
  }
  close(fd);
  return is_mapped(context, number) ? 0 : ENOMEM;
}

// The daemon sends an arena's descriptor once; it was lost if we had as many as we may, or could not map it then.
int ask_for_arena(Context& context, std::uint32_t number) {
  rnic_area area{};
  Descriptors fds{};
  const int error = context.control.call(RNIC_MAP_ARENA, rnic_handle{number, 0}, area, &fds);
  if (error != 0) return error;
  const int fd = fds.take();
  fds.close_rest();
  return fd < 0 ? EMFILE : map_arena(context, number, area.arena_size, fd);
}

}  // namespace

int map_area(Context& context, const rnic_area& area, Descriptors& fds, char*& at) {
  const int fd = area.arena_is_new != 0 ? fds.take() : -1;
  if (area.arena >= context.arenas_told && area.arena < kArenasMax) context.arenas_told = area.arena + 1;
  int error = 0;
  if (fd >= 0) error = map_arena(context, area.arena, area.arena_size, fd);
  if (fd < 0 && !is_mapped(context, area.arena)) error = ask_for_arena(context, area.arena);
  if (error != 0) return error;
  const Arena& arena = context.arenas[area.arena];
  if (area.offset > arena.size || area.length > arena.size - area.offset) return EPROTO;
  at = arena.base + area.offset;
  return 0;
}

int map_missing_arenas(Context& context) {
  if (context.control.in_forked_child()) return EPERM;
  for (std::uint32_t number = 0; number < context.arenas_told; ++number) {
    if (is_mapped(context, number)) continue;
    const int error = ask_for_arena(context, number);
    if (error != 0) return error;
  }
  return 0;
}

}  // namespace rnic::provider
