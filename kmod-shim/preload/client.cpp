// The connection to the daemon: one request, one reply, and the noticing of its end.
#include "client.hpp"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "channel.hpp"
#include "descriptors.hpp"
#include "libc.hpp"
#include "lock.hpp"
#include "netlink.hpp"
#include "sysfs.hpp"

namespace rnic::preload {
namespace {

struct Connection {
  int fd = -1;
  std::uint64_t cookie = 0;
  pid_t pid = 0;
  std::uint64_t epoch = 0;
  std::uint64_t watched_epoch = 0;
};

// One request at a time. What the connection is, changes under both locks and is read under either; so
// a fork, which takes the second only, waits for no answer but that to a fetch of events (end_lending()).
Mutex g_request_mutex;
Mutex g_mutex;
Connection g_connection;
struct Connecting {
  int fd = -1;
  std::uint64_t cookie = 0;
} g_connecting;  // the socket that is to be the connection
std::uint64_t g_epochs = 0;
std::uint64_t g_forks = 0;
pid_t g_pid = 0;
std::uint32_t g_next_id = 1;

Mutex g_token_mutex;
bool g_token_drawn = false;
std::uint8_t g_token[RNIC_PROCESS_TOKEN];

// What the daemon knows our connections by for those of one process.
void put_token(std::uint8_t (&place)[RNIC_PROCESS_TOKEN]) {
  const Locked locked(g_token_mutex);
  if (!g_token_drawn) {
    g_token_drawn = getrandom(g_token, sizeof g_token, 0) == static_cast<ssize_t>(sizeof g_token);
  }
  if (g_token_drawn) memcpy(place, g_token, sizeof g_token);
}

// A descriptor, or -1 and errno: EPERM where somebody answers, or could, whom we do not trust, and that has been said.
// `for_process`: where a child of fork is to find it, and let go of it.
int make_socket(bool for_process) {
  const Locked locked(g_mutex);
  const int fd = libc().socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (for_process) g_connecting = {fd, socket_cookie(fd)};
  return fd;
}

int connect_socket(bool for_process = false) {
  const int fd = make_socket(for_process);
  if (fd < 0) return -1;
  char why[RNIC_WHY_MAX];
  const int error = rnic_talk_connect(&libc().for_abi, fd, settings().run_dir, why, sizeof why);
  if (error == 0) return fd;
  if (why[0] != '\0') complain(why);
  libc().close(fd);
  errno = error == RNIC_TALK_ABSENT ? ENOENT : error;
  return -1;
}

void say_version_mismatch() {
  char why[128];
  snprintf(why, sizeof why, "the daemon speaks another version of the control protocol than this library, which has %u",
           RNIC_ABI_VERSION);
  complain(why);
}

void drop_connection_locked() {
  if (g_connection.fd < 0) return;
  if (socket_cookie(g_connection.fd) == g_connection.cookie) {
    // In a child of fork the connection is its parent's; there we only let go of it.
    if (g_connection.pid == getpid()) shutdown(g_connection.fd, SHUT_RDWR);
    close_hidden(g_connection.fd, g_connection.cookie);
  }
  g_connection.fd = -1;
}

void drop_connection() {
  const Locked locked(g_mutex);
  drop_connection_locked();
}

// 0, kNoDaemon or an errno.
int connect_process() {
  const Connected made = connect_to_daemon(RNIC_CLIENT_CM, settings().device);
  const Locked locked(g_mutex);
  g_connecting.fd = -1;
  if (made.error != 0) return made.error;
  g_connection.fd = hide_descriptor(made.fd);
  g_connection.cookie = socket_cookie(g_connection.fd);
  g_connection.pid = getpid();
  g_connection.epoch = ++g_epochs;
  return 0;
}

void* watch(void* argument) {
  const auto epoch = reinterpret_cast<std::uint64_t>(argument);
  pollfd entry{};
  {
    const Locked locked(g_mutex);
    if (g_connection.epoch != epoch) return nullptr;
    entry.fd = g_connection.fd;
  }
  entry.events = POLLRDHUP;
  while (entry.fd >= 0 && poll(&entry, 1, -1) < 0 && errno == EINTR) {
  }
  {
    const Locked one_at_a_time(g_request_mutex);
    if (g_connection.epoch == epoch) drop_connection();
  }
  on_connection_lost(epoch);
  return nullptr;
}

}  // namespace

int exchange(int socket, Call& call) {
  rnic_question question{};
  question.type = call.type;
  question.request = call.request;
  question.request_size = call.request_size;
  question.reply = call.reply;
  question.reply_room = call.reply_room;
  rnic_talk talk{&libc().for_abi, socket, __atomic_fetch_add(&g_next_id, 1, __ATOMIC_RELAXED), 0};
  const int error = rnic_ask(&talk, &question);
  call.reply_size = question.reply_size;
  if (call.received != nullptr) {
    *call.received = question.received;
  } else {
    rnic_fds_close(talk.libc, &question.received);
  }
  return error < 0 ? kDisconnected : error;
}

Connected connect_to_daemon(std::uint32_t kind, const char* device) {
  if (!settings().active) return {-1, kNoDaemon};
  const int fd = connect_socket(kind == RNIC_CLIENT_CM);
  if (fd < 0) return {-1, errno == ENOENT ? kNoDaemon : errno};
  rnic_hello hello{};
  hello.kind = kind;
  put_token(hello.process);
  snprintf(hello.device, sizeof hello.device, "%s", device);
  rnic_hello_reply reply{};
  rnic_talk talk{&libc().for_abi, fd, __atomic_fetch_add(&g_next_id, 1, __ATOMIC_RELAXED), 0};
  const int error = rnic_talk_hello(&talk, &hello, &reply);
  if (error == 0) return {fd, 0};
  if (error == EPROTONOSUPPORT) say_version_mismatch();
  libc().close(fd);
  return {-1, error < 0 ? kNoDaemon : error};
}

bool daemon_listens() {
  const int fd = connect_socket();
  if (fd < 0) return false;
  libc().close(fd);
  return true;
}

int process_call(Call& call) {
  std::uint64_t lost_epoch = 0;
  int error = 0;
  {
    const Locked one_at_a_time(g_request_mutex);
    const bool usable =
        g_connection.fd >= 0 && g_connection.pid == getpid() && socket_cookie(g_connection.fd) == g_connection.cookie;
    if (!usable && g_connection.fd >= 0) {
      if (g_connection.pid == getpid()) lost_epoch = g_connection.epoch;
      drop_connection();
    }
    if (call.epoch == 0) {
      // A restarted daemon shows only when the old connection is tried: then once more.
      for (int attempt = 0; attempt < 2; ++attempt) {
        if (g_connection.fd < 0) error = connect_process();
        if (error != 0) break;
        error = exchange(g_connection.fd, call);
        if (error != kDisconnected) break;
        lost_epoch = g_connection.epoch;
        drop_connection();
        error = attempt == 0 ? 0 : kDisconnected;
      }
      call.epoch = g_connection.epoch;
    } else if (g_connection.fd < 0 || g_connection.epoch != call.epoch) {
      error = kDisconnected;
    } else {
      error = exchange(g_connection.fd, call);
      if (error == kDisconnected) {
        lost_epoch = call.epoch;
        drop_connection();
      }
    }
  }
  if (lost_epoch != 0) on_connection_lost(lost_epoch);
  return error;
}

void watch_connection(std::uint64_t epoch) {
  {
    const Locked locked(g_mutex);
    if (g_connection.epoch != epoch || g_connection.watched_epoch == epoch) return;
    g_connection.watched_epoch = epoch;
  }
  // The application's signals are not for this thread.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, 128 * 1024);
  pthread_t thread;
  pthread_create(&thread, &attributes, watch, reinterpret_cast<void*>(epoch));
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void spare_hidden(int fd) {
  if (kind_of(fd) != Kind::internal) return;
  const Locked one_at_a_time(g_request_mutex);
  const Locked locked(g_mutex);
  const int moved = move_hidden(fd);
  if (moved >= 0 && g_connection.fd == fd) g_connection.fd = moved;
  if (moved >= 0) move_lifeline(fd, moved);
  if (moved >= 0) move_sender(fd, moved);
}

bool in_this_process() { return g_pid == getpid(); }

std::uint64_t forks_so_far() { return g_forks; }

namespace {

// Locks in the order in which they are taken elsewhere.
void before_fork() {
  end_lending();
  g_mutex.lock();
  lock_channels();
  lock_netlinks();
  lock_descriptors();
}

void after_fork_in_parent() {
  ++g_forks;
  unlock_descriptors();
  unlock_netlinks();
  unlock_channels();
  g_mutex.unlock();
  allow_lending();
}

void after_fork_in_child() {
  g_pid = getpid();
  renew_descriptors();
  renew_channels();
  renew_netlinks();
  g_request_mutex.renew();
  g_mutex.renew();
  // What it makes is its own, and of its parent's it has only channels of rdma_cm, by their tokens.
  g_token_mutex.renew();
  g_token_drawn = false;
  // Held open here, the parent's connection would outlive the parent.
  drop_connection_locked();
  const bool ours = g_connecting.fd >= 0 && socket_cookie(g_connecting.fd) == g_connecting.cookie;
  if (ours) libc().close(g_connecting.fd);
  g_connecting.fd = -1;
}

}  // namespace

void watch_forks() {
  if (g_pid == 0) pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  g_pid = getpid();
}

}  // namespace rnic::preload
