// Looks up libc's own versions of what interpose.cpp takes over.
#include "libc.hpp"

#include <dlfcn.h>

namespace rnic::preload {

Libc g_libc;

namespace {

// dlsym gives an object pointer; POSIX promises that it may be used as a function's.
template <class Function>
void find(Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

void find_libc() {
  // Two threads may do this at once; they store the same values.
  Libc found;
  find(found.open, "open");
  find(found.open64, "open64");
  find(found.openat, "openat");
  find(found.openat64, "openat64");
  find(found.close, "close");
  find(found.write, "write");
  find(found.socket, "socket");
  find(found.send, "send");
  find(found.sendto, "sendto");
  find(found.sendmsg, "sendmsg");
  find(found.recv, "recv");
  find(found.recvfrom, "recvfrom");
  find(found.recvmsg, "recvmsg");
  find(found.dup, "dup");
  find(found.dup2, "dup2");
  find(found.dup3, "dup3");
  find(found.fcntl, "fcntl");
  find(found.fcntl64, "fcntl64");
  find(found.stat, "stat");
  find(found.lstat, "lstat");
  find(found.fstat, "fstat");
  find(found.fstatat, "fstatat");
  find(found.statx, "statx");
  find(found.access, "access");
  find(found.faccessat, "faccessat");
  find(found.readlink, "readlink");
  find(found.readlinkat, "readlinkat");
  find(found.fopen, "fopen");
  find(found.fopen64, "fopen64");
  find(found.opendir, "opendir");
  find(found.getifaddrs, "getifaddrs");
  find(found.freeifaddrs, "freeifaddrs");
  find(found.mremap, "mremap");
  find(found.madvise, "madvise");
  // What is not taken over goes by its name.
  found.for_abi = {found.open,      found.openat,      found.close,   found.stat,    found.fstat,
                   found.faccessat, rnic_libc_connect, found.sendmsg, found.recvmsg, poll};
  g_libc = found;
  __atomic_store_n(&g_libc.found, true, __ATOMIC_RELEASE);
}

}  // namespace rnic::preload
