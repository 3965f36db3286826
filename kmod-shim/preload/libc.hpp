// The calls of libc that the stand-in takes over, as libc (or the next preloaded library) has
// them. Everything in this folder that needs one of these calls uses it through here: the plain
// name would come back to interpose.cpp.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rnic_libc.h"

namespace rnic::preload {

struct Libc {
  bool found = false;
  int (*open)(const char*, int, ...) = nullptr;
  int (*open64)(const char*, int, ...) = nullptr;
  int (*openat)(int, const char*, int, ...) = nullptr;
  int (*openat64)(int, const char*, int, ...) = nullptr;
  int (*close)(int) = nullptr;
  ssize_t (*write)(int, const void*, size_t) = nullptr;
  int (*socket)(int, int, int) = nullptr;
  ssize_t (*send)(int, const void*, size_t, int) = nullptr;
  ssize_t (*sendto)(int, const void*, size_t, int, const struct sockaddr*, socklen_t) = nullptr;
  ssize_t (*sendmsg)(int, const struct msghdr*, int) = nullptr;
  ssize_t (*recv)(int, void*, size_t, int) = nullptr;
  ssize_t (*recvfrom)(int, void*, size_t, int, struct sockaddr*, socklen_t*) = nullptr;
  ssize_t (*recvmsg)(int, struct msghdr*, int) = nullptr;
  int (*dup)(int) = nullptr;
  int (*dup2)(int, int) = nullptr;
  int (*dup3)(int, int, int) = nullptr;
  int (*fcntl)(int, int, ...) = nullptr;
  int (*fcntl64)(int, int, ...) = nullptr;
  int (*stat)(const char*, struct stat*) = nullptr;
  int (*lstat)(const char*, struct stat*) = nullptr;
  int (*fstat)(int, struct stat*) = nullptr;
  int (*fstatat)(int, const char*, struct stat*, int) = nullptr;
  int (*statx)(int, const char*, int, unsigned, struct statx*) = nullptr;
  int (*access)(const char*, int) = nullptr;
  int (*faccessat)(int, const char*, int, int) = nullptr;
  ssize_t (*readlink)(const char*, char*, size_t) = nullptr;
  ssize_t (*readlinkat)(int, const char*, char*, size_t) = nullptr;
  FILE* (*fopen)(const char*, const char*) = nullptr;
  FILE* (*fopen64)(const char*, const char*) = nullptr;
  DIR* (*opendir)(const char*) = nullptr;
  int (*getifaddrs)(struct ifaddrs**) = nullptr;
  void (*freeifaddrs)(struct ifaddrs*) = nullptr;
  void* (*mremap)(void*, size_t, size_t, int, ...) = nullptr;
  int (*madvise)(void*, size_t, int) = nullptr;
  rnic_libc for_abi{};  // the same, as functions of abi/ take them
};

extern Libc g_libc;
void find_libc();

// Other libraries' constructors may call us before ours has run.
inline const Libc& libc() {
  if (!g_libc.found) [[unlikely]]
    find_libc();
  return g_libc;
}

}  // namespace rnic::preload
