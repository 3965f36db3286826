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
#include <sys/un.h>

#include "channel.hpp"
#include "descriptors.hpp"
#include "libc.hpp"
#include "lock.hpp"
#include "rnic_trust.h"
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
// a fork, which takes the second only, waits for no answer.
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

void close_all(Received& received) {
  for (std::size_t i = 0; i < received.count; ++i) libc().close(received.fds[i]);
  received.count = 0;
}

bool send_request(int socket, const rnic_msg& header, const Call& call) {
  iovec parts[2] = {{const_cast<rnic_msg*>(&header), sizeof header},
                    {const_cast<void*>(call.request), call.request_size}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = call.request_size == 0 ? 1 : 2;
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(header.length);
}

// The size of what came, or a value less than a header.
std::size_t receive_reply(int socket, char* octets, std::size_t size, Received& received) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * RNIC_FDS_MAX)];
  iovec part{octets, size};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got = 0;
  do {
    got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(received.fds, CMSG_DATA(c), count * sizeof(int));
    received.count = count;
  }
  return static_cast<std::size_t>(got);
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
  char why[RNIC_WHY_MAX];
  const int directory = rnic_run_open(&libc().for_abi, settings().run_dir, why, sizeof why);
  if (directory < 0) {
    if (why[0] == '\0') return -1;
    complain(why);
    errno = EPERM;
    return -1;
  }
  const int fd = make_socket(for_process);
  int result = -1;
  if (fd >= 0) {
    // The directory that was looked at, whatever has its name by now; and no name is too long.
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/control.sock", directory);
    do {
      result = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    } while (result != 0 && errno == EINTR);
    if (result == 0 && !rnic_daemon_answers(&libc().for_abi, fd, why, sizeof why)) {
      complain(why);
      result = -1;
      errno = EPERM;
    }
  }
  const int saved = errno;
  libc().close(directory);
  if (fd >= 0 && result != 0) libc().close(fd);
  errno = saved;
  return result == 0 ? fd : -1;
}

void say_version_mismatch(std::uint32_t theirs) {
  char text[128];
  const int length =
      snprintf(text, sizeof text,
               "rnic: the daemon speaks version %u of the control protocol, this library %u.\n",
               theirs, RNIC_ABI_VERSION);
  [[maybe_unused]] const ssize_t written =
      libc().write(STDERR_FILENO, text, static_cast<std::size_t>(length));
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
  rnic_msg header{};
  header.type = call.type;
  header.id = __atomic_fetch_add(&g_next_id, 1, __ATOMIC_RELAXED);
  header.length = static_cast<std::uint32_t>(sizeof header + call.request_size);
  if (!send_request(socket, header, call)) return kDisconnected;

  alignas(8) char octets[RNIC_MSG_MAX];
  Received received;
  const std::size_t size = receive_reply(socket, octets, sizeof octets, received);
  rnic_msg answer{};
  if (size >= sizeof answer) memcpy(&answer, octets, sizeof answer);
  if (answer.type != header.type || answer.id != header.id) {
    close_all(received);
    return kDisconnected;
  }
  const std::size_t body = size - sizeof answer;
  if (answer.status != 0 || body < call.reply_min) {
    close_all(received);
    return answer.status != 0 ? answer.status : EPROTO;
  }
  call.reply_size = body < call.reply_max ? body : call.reply_max;
  if (call.reply_size > 0) memcpy(call.reply, octets + sizeof answer, call.reply_size);
  if (call.received == nullptr) {
    close_all(received);
  } else {
    *call.received = received;
  }
  return 0;
}

Connected connect_to_daemon(std::uint32_t kind, const char* device) {
  if (!settings().active) return {-1, kNoDaemon};
  const int fd = connect_socket(kind == RNIC_CLIENT_CM);
  if (fd < 0) {
    const bool absent = errno == ENOENT || errno == ECONNREFUSED || errno == ENOTDIR;
    return {-1, absent ? kNoDaemon : errno};
  }
  rnic_hello hello{};
  hello.abi_version = RNIC_ABI_VERSION;
  hello.kind = kind;
  hello.pid = static_cast<std::uint32_t>(getpid());
  put_token(hello.process);
  snprintf(hello.device, sizeof hello.device, "%s", device);
  rnic_hello_reply reply{};
  Call call{.type = RNIC_HELLO, .request = &hello, .request_size = sizeof hello, .reply = &reply,
            .reply_min = sizeof reply, .reply_max = sizeof reply};
  int error = exchange(fd, call);
  if (error == 0 && reply.abi_version != RNIC_ABI_VERSION) {
    say_version_mismatch(reply.abi_version);
    error = EPROTO;
  }
  if (error == 0) return {fd, 0};
  libc().close(fd);
  return {-1, error == kDisconnected ? kNoDaemon : error};
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
    const bool usable = g_connection.fd >= 0 && g_connection.pid == getpid() &&
                        socket_cookie(g_connection.fd) == g_connection.cookie;
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
}

bool in_this_process() { return g_pid == getpid(); }

std::uint64_t forks_so_far() { return g_forks; }

namespace {

// Locks in the order in which they are taken elsewhere.
void before_fork() {
  g_mutex.lock();
  lock_channels();
  lock_descriptors();
}

void after_fork_in_parent() {
  ++g_forks;
  unlock_descriptors();
  unlock_channels();
  g_mutex.unlock();
}

void after_fork_in_child() {
  g_pid = getpid();
  renew_descriptors();
  renew_channels();
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
