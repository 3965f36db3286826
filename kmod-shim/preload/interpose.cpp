// The few calls of libc that the stand-in takes over. For any descriptor and any path that is
// not ours each of them is libc's, after one array load or the comparison of an octet or two.
//
// read, poll, epoll, select and ioctl are not here: our descriptors are real ones of the kernel's,
// which answer them truly.
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "client.hpp"
#include "descriptors.hpp"
#include "ifaddrs.hpp"
#include "libc.hpp"
#include "lock.hpp"
#include "netlink.hpp"
#include "swapped.hpp"
#include "sysfs.hpp"
#include "ucma.hpp"
#include "uverbs.hpp"

// The stand-in has one layout of struct stat for both names, and `rnic run` refuses 32-bit programs.
static_assert(sizeof(void*) == 8 && sizeof(struct stat) == sizeof(struct stat64));

#define RNIC_EXPORT extern "C" __attribute__((visibility("default")))

namespace rnic::preload {
namespace {

constexpr int kNotOurs = -2;

// What cannot be read is not opened either: true, and errno.
bool refuses(const char* path) {
  if (!is_of_empty_gid(path)) return false;
  errno = EINVAL;
  return true;
}

// The descriptor of a device node, -1 and errno, or kNotOurs.
int open_node(const char* path, int flags) {
  if (refuses(path)) return -1;
  const NodeInfo node = find_node(path);
  if (node.node == Node::none) return kNotOurs;
  const NoCancel no_cancel;
  return node.node == Node::uverbs ? open_uverbs(node, flags) : open_channel(flags);
}

bool takes_mode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

template <class Open>
int open_path(Open open, const char* path, int flags, mode_t mode) {
  const int fd = open_node(path, flags);
  if (fd != kNotOurs) return fd;
  char room[PATH_MAX];
  return open(translate_path(path, room), flags, mode);
}

template <class OpenAt>
int open_path_at(OpenAt open_at, int directory, const char* path, int flags, mode_t mode) {
  const int fd = open_node(path, flags);
  if (fd != kNotOurs) return fd;
  char room[PATH_MAX];
  return open_at(directory, translate_path(path, room), flags, mode);
}

void describe_node(dev_t number, struct stat& info) {
  info = {};
  info.st_mode = S_IFCHR | 0666;
  info.st_nlink = 1;
  info.st_ino = number;
  info.st_rdev = number;
  info.st_blksize = 4096;
}

// 0, -1 and errno, or kNotOurs. A device whose daemon does not answer is not there: libibverbs
// then passes it over, and does not wait for a node to appear.
int stat_node(const char* path, struct stat& info) {
  const NodeInfo node = find_node(path);
  if (node.node == Node::none) return kNotOurs;
  const NoCancel no_cancel;
  if (!daemon_listens()) {
    if (errno == EMFILE || errno == ENFILE) {
      complain("there is no descriptor left to ask the daemon with (ulimit -n)");
      return -1;
    }
    complain_of_no_daemon();
    errno = ENOENT;
    return -1;
  }
  describe_node(node.number, info);
  return 0;
}

int stat_descriptor(int fd, struct stat* info) {
  const int result = libc().fstat(fd, info);
  const Kind kind = kind_of(fd);
  if (result != 0 || (kind != Kind::uverbs && kind != Kind::cm_channel)) return result;
  const NoCancel no_cancel;
  Object* const object = hold(fd);
  if (object == nullptr) return result;
  info->st_mode = S_IFCHR | 0666;
  info->st_rdev = object->number;
  release(*object);
  return result;
}

int stat_path(const char* path, struct stat* info) {
  const int result = stat_node(path, *info);
  if (result != kNotOurs) return result;
  char room[PATH_MAX];
  return libc().stat(translate_path(path, room), info);
}

int lstat_path(const char* path, struct stat* info) {
  const int result = stat_node(path, *info);
  if (result != kNotOurs) return result;
  char room[PATH_MAX];
  return libc().lstat(translate_path(path, room), info);
}

// Linux 6.11 takes no path at all for an empty one; libc's declarations say that cannot be.
[[gnu::noinline]] bool names_descriptor(const char* path, int flags) {
  return (flags & AT_EMPTY_PATH) != 0 && (path == nullptr || *path == '\0');
}

int stat_path_at(int directory, const char* path, struct stat* info, int flags) {
  if (names_descriptor(path, flags)) {
    if (kind_of(directory) != Kind::other) return stat_descriptor(directory, info);
  } else {
    const int result = stat_node(path, *info);
    if (result != kNotOurs) return result;
  }
  char room[PATH_MAX];
  return libc().fstatat(directory, translate_path(path, room), info, flags);
}

struct stat* as_stat(struct stat64* info) {
  return reinterpret_cast<struct stat*>(info);
}

void release_after(Object& object) {
  const int saved = errno;
  release(object);
  errno = saved;
}

// What write() is to return for a descriptor of ours; false if it is the kernel's after all.
bool write_device(int fd, const void* data, size_t size, ssize_t& result) {
  const Kind kind = kind_of(fd);
  if (kind != Kind::uverbs && kind != Kind::cm_channel) return false;
  Object* const object = hold(fd);
  if (object == nullptr) return false;
  if (object->kind == Kind::cm_channel) {
    result = write_ucma(static_cast<Channel&>(*object), fd, data, size);
  } else {
    result = write_uverbs(data, size);
  }
  release_after(*object);
  return true;
}

// The same of a message to RDMA netlink.
bool write_netlink(int fd, const msghdr& message, ssize_t& result) {
  Object* const object = hold(fd);
  if (object == nullptr) return false;
  result = send_netlink(*object, fd, message);
  release_after(*object);
  return true;
}

void refill(int fd) {
  const int saved = errno;
  Object* const object = hold(fd);
  if (object != nullptr) {
    after_receive(*object);
    release(*object);
  }
  errno = saved;
}

// A child of vfork closes in its own table of descriptors, but sees our memory.
int close_known(int fd) {
  if (!in_this_process()) return libc().close(fd);
  if (is_hidden(fd)) {
    errno = EBADF;
    return -1;
  }
  const NoCancel no_cancel;
  return close_descriptor(fd);
}

// dup2 and dup3 close what is at `to`. A descriptor that is not one fails, and ours stays.
void before_dup(int from, int to) {
  if (from == to || kind_of(to) != Kind::internal || !in_this_process()) return;
  const NoCancel no_cancel;
  const int saved = errno;
  if (libc().fcntl(from, F_GETFD) >= 0) spare_hidden(to);
  errno = saved;
}

int after_dup(int from, int to) {
  if (to < 0 || (kind_of(from) == Kind::other && kind_of(to) == Kind::other)) return to;
  if (!in_this_process()) return to;
  const NoCancel no_cancel;
  const int saved = errno;
  copy_descriptor(from, to);
  errno = saved;
  return to;
}

template <class Fcntl>
int fcntl_known(Fcntl real, int fd, int command, void* argument) {
  const int result = real(fd, command, argument);
  if (command != F_DUPFD && command != F_DUPFD_CLOEXEC) return result;
  return after_dup(fd, result);
}

}  // namespace
}  // namespace rnic::preload

using namespace rnic::preload;

// ---- Opening and closing -----------------------------------------------------------------

#define RNIC_MODE_ARGUMENT(flags, mode) \
  mode_t mode = 0;                      \
  if (takes_mode(flags)) {              \
    va_list arguments;                  \
    va_start(arguments, flags);         \
    mode = va_arg(arguments, mode_t);   \
    va_end(arguments);                  \
  }

RNIC_EXPORT int open(const char* path, int flags, ...) {
  RNIC_MODE_ARGUMENT(flags, mode)
  return open_path(libc().open, path, flags, mode);
}

RNIC_EXPORT int open64(const char* path, int flags, ...) {
  RNIC_MODE_ARGUMENT(flags, mode)
  return open_path(libc().open64, path, flags, mode);
}

RNIC_EXPORT int openat(int directory, const char* path, int flags, ...) {
  RNIC_MODE_ARGUMENT(flags, mode)
  return open_path_at(libc().openat, directory, path, flags, mode);
}

RNIC_EXPORT int openat64(int directory, const char* path, int flags, ...) {
  RNIC_MODE_ARGUMENT(flags, mode)
  return open_path_at(libc().openat64, directory, path, flags, mode);
}

// What -D_FORTIFY_SOURCE makes of an open without a mode.
RNIC_EXPORT int __open_2(const char* path, int flags) { return open_path(libc().open, path, flags, 0); }
RNIC_EXPORT int __open64_2(const char* path, int flags) { return open_path(libc().open64, path, flags, 0); }
RNIC_EXPORT int __openat_2(int directory, const char* path, int flags) {
  return open_path_at(libc().openat, directory, path, flags, 0);
}
RNIC_EXPORT int __openat64_2(int directory, const char* path, int flags) {
  return open_path_at(libc().openat64, directory, path, flags, 0);
}

RNIC_EXPORT FILE* fopen(const char* path, const char* mode) {
  if (refuses(path)) return nullptr;
  char room[PATH_MAX];
  return libc().fopen(translate_path(path, room), mode);
}

RNIC_EXPORT FILE* fopen64(const char* path, const char* mode) {
  if (refuses(path)) return nullptr;
  char room[PATH_MAX];
  return libc().fopen64(translate_path(path, room), mode);
}

RNIC_EXPORT DIR* opendir(const char* path) {
  char room[PATH_MAX];
  return libc().opendir(translate_path(path, room));
}

RNIC_EXPORT int close(int fd) {
  if (kind_of(fd) != Kind::other) [[unlikely]]
    return close_known(fd);
  return libc().close(fd);
}

RNIC_EXPORT int dup(int fd) noexcept { return after_dup(fd, libc().dup(fd)); }

RNIC_EXPORT int dup2(int from, int to) noexcept {
  before_dup(from, to);
  return after_dup(from, libc().dup2(from, to));
}

RNIC_EXPORT int dup3(int from, int to, int flags) noexcept {
  before_dup(from, to);
  return after_dup(from, libc().dup3(from, to, flags));
}

RNIC_EXPORT int fcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return fcntl_known(libc().fcntl, fd, command, argument);
}

RNIC_EXPORT int fcntl64(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return fcntl_known(libc().fcntl64, fd, command, argument);
}

// ---- Commands ----------------------------------------------------------------------------

RNIC_EXPORT ssize_t write(int fd, const void* data, size_t size) {
  if (kind_of(fd) != Kind::other) [[unlikely]] {
    if (kind_of(fd) == Kind::netlink) return send(fd, data, size, 0);
    ssize_t result = 0;
    if (write_device(fd, data, size, result)) return result;
  }
  return libc().write(fd, data, size);
}

// ---- RDMA netlink ------------------------------------------------------------------------

// Where the kernel knows it, its answer would be final for libibverbs, and it knows nothing of our devices.
RNIC_EXPORT int socket(int domain, int type, int protocol) noexcept {
  if (domain == AF_NETLINK && protocol == NETLINK_RDMA && settings().active) return open_netlink(type);
  return libc().socket(domain, type, protocol);
}

RNIC_EXPORT ssize_t send(int fd, const void* data, size_t size, int flags) {
  if (kind_of(fd) == Kind::netlink) [[unlikely]]
    return sendto(fd, data, size, flags, nullptr, 0);
  return libc().send(fd, data, size, flags);
}

RNIC_EXPORT ssize_t sendto(int fd, const void* data, size_t size, int flags, const struct sockaddr* to,
                           socklen_t to_size) {
  if (kind_of(fd) == Kind::netlink) [[unlikely]] {
    iovec piece{const_cast<void*>(data), size};
    msghdr message{};
    message.msg_name = const_cast<struct sockaddr*>(to);
    message.msg_namelen = to_size;
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    return sendmsg(fd, &message, flags);
  }
  return libc().sendto(fd, data, size, flags, to, to_size);
}

RNIC_EXPORT ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  if (kind_of(fd) == Kind::netlink) [[unlikely]] {
    ssize_t result = 0;
    if (write_netlink(fd, *message, result)) return result;
  }
  return libc().sendmsg(fd, message, flags);
}

// Of an answer longer than the socket takes, the next part is put there after each read.
RNIC_EXPORT ssize_t recv(int fd, void* data, size_t size, int flags) {
  const ssize_t got = libc().recv(fd, data, size, flags);
  if (kind_of(fd) == Kind::netlink) [[unlikely]]
    refill(fd);
  return got;
}

RNIC_EXPORT ssize_t recvfrom(int fd, void* data, size_t size, int flags, struct sockaddr* from, socklen_t* from_size) {
  const ssize_t got = libc().recvfrom(fd, data, size, flags, from, from_size);
  if (kind_of(fd) == Kind::netlink) [[unlikely]]
    refill(fd);
  return got;
}

RNIC_EXPORT ssize_t recvmsg(int fd, struct msghdr* message, int flags) {
  const ssize_t got = libc().recvmsg(fd, message, flags);
  if (kind_of(fd) == Kind::netlink) [[unlikely]]
    refill(fd);
  return got;
}

// ---- What is there -----------------------------------------------------------------------

RNIC_EXPORT int stat(const char* path, struct stat* info) noexcept { return stat_path(path, info); }
RNIC_EXPORT int stat64(const char* path, struct stat64* info) noexcept { return stat_path(path, as_stat(info)); }
RNIC_EXPORT int lstat(const char* path, struct stat* info) noexcept { return lstat_path(path, info); }
RNIC_EXPORT int lstat64(const char* path, struct stat64* info) noexcept { return lstat_path(path, as_stat(info)); }
RNIC_EXPORT int fstat(int fd, struct stat* info) noexcept { return stat_descriptor(fd, info); }
RNIC_EXPORT int fstat64(int fd, struct stat64* info) noexcept { return stat_descriptor(fd, as_stat(info)); }
RNIC_EXPORT int fstatat(int directory, const char* path, struct stat* info, int flags) noexcept {
  return stat_path_at(directory, path, info, flags);
}
RNIC_EXPORT int fstatat64(int directory, const char* path, struct stat64* info, int flags) noexcept {
  return stat_path_at(directory, path, as_stat(info), flags);
}

// The names that programs built with a glibc before 2.33 call. The version says which layout of
// struct stat is meant; on 64-bit machines there is one.
RNIC_EXPORT int __xstat(int, const char* path, struct stat* info) noexcept { return stat_path(path, info); }
RNIC_EXPORT int __xstat64(int, const char* path, struct stat64* info) noexcept {
  return stat_path(path, as_stat(info));
}
RNIC_EXPORT int __lxstat(int, const char* path, struct stat* info) noexcept { return lstat_path(path, info); }
RNIC_EXPORT int __lxstat64(int, const char* path, struct stat64* info) noexcept {
  return lstat_path(path, as_stat(info));
}
RNIC_EXPORT int __fxstat(int, int fd, struct stat* info) noexcept { return stat_descriptor(fd, info); }
RNIC_EXPORT int __fxstat64(int, int fd, struct stat64* info) noexcept { return stat_descriptor(fd, as_stat(info)); }
RNIC_EXPORT int __fxstatat(int, int directory, const char* path, struct stat* info, int flags) noexcept {
  return stat_path_at(directory, path, info, flags);
}
RNIC_EXPORT int __fxstatat64(int, int directory, const char* path, struct stat64* info, int flags) noexcept {
  return stat_path_at(directory, path, as_stat(info), flags);
}

RNIC_EXPORT int statx(int directory, const char* path, int flags, unsigned mask, struct statx* info) noexcept {
  struct stat plain {};
  const bool ours =
      names_descriptor(path, flags)
          ? kind_of(directory) != Kind::other && stat_descriptor(directory, &plain) == 0 && S_ISCHR(plain.st_mode)
          : stat_node(path, plain) == 0;
  if (ours) {
    *info = {};
    info->stx_mask = STATX_BASIC_STATS;
    info->stx_mode = static_cast<unsigned short>(plain.st_mode);
    info->stx_nlink = 1;
    info->stx_blksize = 4096;
    info->stx_rdev_major = major(plain.st_rdev);
    info->stx_rdev_minor = minor(plain.st_rdev);
    return 0;
  }
  char room[PATH_MAX];
  return libc().statx(directory, translate_path(path, room), flags, mask, info);
}

RNIC_EXPORT int access(const char* path, int mode) noexcept {
  struct stat info {};
  const int result = stat_node(path, info);
  if (result != kNotOurs) return result;
  char room[PATH_MAX];
  return libc().access(translate_path(path, room), mode);
}

RNIC_EXPORT int faccessat(int directory, const char* path, int mode, int flags) noexcept {
  struct stat info {};
  const int result = stat_node(path, info);
  if (result != kNotOurs) return result;
  char room[PATH_MAX];
  return libc().faccessat(directory, translate_path(path, room), mode, flags);
}

RNIC_EXPORT ssize_t readlink(const char* path, char* target, size_t size) noexcept {
  char room[PATH_MAX];
  return libc().readlink(translate_path(path, room), target, size);
}

// hwloc's.
RNIC_EXPORT ssize_t readlinkat(int directory, const char* path, char* target, size_t size) noexcept {
  char room[PATH_MAX];
  return libc().readlinkat(directory, translate_path(path, room), target, size);
}

// ---- Addresses ---------------------------------------------------------------------------

RNIC_EXPORT int getifaddrs(struct ifaddrs** list) noexcept {
  const int result = libc().getifaddrs(list);
  if (result == 0) append_device_addresses(*list);
  return result;
}

RNIC_EXPORT void freeifaddrs(struct ifaddrs* list) noexcept {
  list = remove_device_addresses(list);
  if (list != nullptr) libc().freeifaddrs(list);
}

// ---- Memory ------------------------------------------------------------------------------

// An allocator that is preloaded, too, may call these before libc's are found; and finding them may allocate.

RNIC_EXPORT void* mremap(void* address, size_t old_size, size_t new_size, int flags, ...) noexcept {
  void* wanted = nullptr;
  constexpr int kDontUnmap = 4;  // not in the headers of older C libraries
  if ((flags & (MREMAP_FIXED | kDontUnmap)) != 0) {
    va_list arguments;
    va_start(arguments, flags);
    wanted = va_arg(arguments, void*);
    va_end(arguments);
  }
  if (!g_libc.found) [[unlikely]]
    return reinterpret_cast<void*>(syscall(SYS_mremap, address, old_size, new_size, flags, wanted));
  if (settings().fast_memory) return remap(address, old_size, new_size, flags, wanted);
  return libc().mremap(address, old_size, new_size, flags, wanted);
}

RNIC_EXPORT int madvise(void* address, size_t length, int advice) noexcept {
  if (!g_libc.found) [[unlikely]]
    return static_cast<int>(syscall(SYS_madvise, address, length, advice));
  if (settings().fast_memory) return advise(address, length, advice);
  return libc().madvise(address, length, advice);
}
