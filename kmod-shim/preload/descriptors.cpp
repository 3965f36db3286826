// The table of descriptors.
#include "descriptors.hpp"

#include <errno.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "libc.hpp"
#include "lock.hpp"

namespace rnic::preload {

std::atomic<Kind> g_kinds[kDescriptorsMax];

namespace {

// Descriptors of our own go just below the usual soft limit.
constexpr rlim_t kHiddenBelow = 1024;
constexpr rlim_t kHiddenRoom = 192;

Mutex g_mutex;
Object* g_objects[kDescriptorsMax];
std::uint64_t g_hidden_cookies[kDescriptorsMax];  // all that is hidden are sockets

bool still_names(int fd, const Object& object) { return object.cookie != 0 && socket_cookie(fd) == object.cookie; }

void unlink_locked(int fd) {
  Object* const object = g_objects[fd];
  g_objects[fd] = nullptr;
  g_kinds[fd].store(Kind::other, std::memory_order_relaxed);
  if (object == nullptr) return;
  --object->descriptors;
  if (object->any_fd != fd || object->descriptors == 0) return;
  for (int other = 0; other < kDescriptorsMax; ++other) {
    if (g_objects[other] == object) object->any_fd = other;
  }
}

// What is to end, with a reference, since no descriptor names it any more; or nothing.
Object* forget_locked(int fd) {
  Object* const object = g_objects[fd];
  unlink_locked(fd);
  if (object == nullptr || object->descriptors != 0) return nullptr;
  ++object->references;
  return object;
}

void end(Object* closed) {
  if (closed == nullptr) return;
  closed->on_close(*closed);
  release(*closed);
}

void link_locked(int fd, Object& object) {
  g_objects[fd] = &object;
  ++object.descriptors;
  object.any_fd = fd;
  g_kinds[fd].store(object.kind, std::memory_order_relaxed);
}

}  // namespace

std::uint64_t socket_cookie(int fd) {
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) != 0) return 0;
  return cookie;
}

bool add_descriptor(int fd, Object& object) {
  if (fd >= kDescriptorsMax) {
    errno = EMFILE;
    return false;
  }
  forget_descriptor(fd);
  const Locked locked(g_mutex);
  link_locked(fd, object);
  return true;
}

// What stood at this number was closed unseen. It is not told so, since a request may be under way.
void add_internal(int fd) {
  if (fd < 0 || fd >= kDescriptorsMax) return;
  const Locked locked(g_mutex);
  unlink_locked(fd);
  g_hidden_cookies[fd] = socket_cookie(fd);
  g_kinds[fd].store(Kind::internal, std::memory_order_relaxed);
}

Object* hold(int fd) {
  {
    const Locked locked(g_mutex);
    Object* const object = g_objects[fd];
    if (object == nullptr) return nullptr;
    if (still_names(fd, *object)) {
      ++object->references;
      return object;
    }
  }
  const int saved = errno;
  forget_descriptor(fd);
  errno = saved;
  return nullptr;
}

void release(Object& object) {
  bool unused = false;
  {
    const Locked locked(g_mutex);
    unused = --object.references == 0 && object.descriptors == 0;
  }
  if (unused) object.on_free(object);
}

bool is_closed(const Object& object) {
  const Locked locked(g_mutex);
  return object.descriptors == 0;
}

void copy_descriptor(int from, int to) {
  if (to < 0 || to == from || to >= kDescriptorsMax) return;
  if (kind_of(to) != Kind::other) forget_descriptor(to);
  const Kind kind = kind_of(from);
  if (kind == Kind::other || kind == Kind::internal) return;
  const Locked locked(g_mutex);
  Object* const object = g_objects[from];
  if (object != nullptr && still_names(to, *object)) link_locked(to, *object);
}

void forget_descriptor(int fd) {
  if (kind_of(fd) == Kind::other) return;
  Object* closed = nullptr;
  {
    const Locked locked(g_mutex);
    closed = forget_locked(fd);
  }
  end(closed);
}

int close_descriptor(int fd) {
  Object* closed = nullptr;
  bool ours = false;
  int result = 0;
  {
    const Locked locked(g_mutex);
    Object* const object = g_objects[fd];
    ours = object != nullptr && still_names(fd, *object);
    if (ours) result = libc().close(fd);
    closed = forget_locked(fd);
  }
  end(closed);
  return ours ? result : libc().close(fd);
}

bool is_hidden(int fd) {
  if (kind_of(fd) != Kind::internal) return false;
  const int saved = errno;
  const Locked locked(g_mutex);
  const std::uint64_t cookie = socket_cookie(fd);
  errno = saved;
  return cookie != 0 && cookie == g_hidden_cookies[fd];
}

int move_hidden(int fd) {
  if (!is_hidden(fd)) return -1;
  int moved = libc().fcntl(fd, F_DUPFD_CLOEXEC, fd + 1);
  if (moved < 0) moved = libc().fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (moved < 0) return -1;
  add_internal(moved);
  g_kinds[fd].store(Kind::other, std::memory_order_relaxed);
  return moved;
}

int hide_descriptor(int fd) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = kHiddenBelow;
  rlim_t floor = limit.rlim_cur < kHiddenBelow ? limit.rlim_cur : kHiddenBelow;
  floor = floor > 2 * kHiddenRoom ? floor - kHiddenRoom : floor / 2;
  const int hidden = libc().fcntl(fd, F_DUPFD_CLOEXEC, static_cast<int>(floor));
  if (hidden < 0) {
    add_internal(fd);
    return fd;
  }
  libc().close(fd);
  add_internal(hidden);
  return hidden;
}

void close_hidden(int fd, std::uint64_t cookie) {
  if (fd < 0) return;
  const int saved = errno;
  if (socket_cookie(fd) == cookie) {
    if (kind_of(fd) == Kind::internal) g_kinds[fd].store(Kind::other, std::memory_order_relaxed);
    libc().close(fd);
  }
  errno = saved;
}

void lock_descriptors() { g_mutex.lock(); }
void unlock_descriptors() { g_mutex.unlock(); }
void renew_descriptors() { g_mutex.renew(); }

}  // namespace rnic::preload
