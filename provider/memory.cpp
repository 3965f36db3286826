/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// Memory regions.
//
// A registration faults the range in with the rights it asks for, here, where only the application
// waits: that proves the rights (V-SEC-13). Where the range is a shared mapping of a file in
// memory, the file's descriptor goes along, and the daemon maps it too.
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "huge_pages.hpp"
#include "mappings.hpp"
#include "memcheck.hpp"
#include "page_swap.hpp"
#include "regions.hpp"
#include "verbs_objects.hpp"

namespace rnic::provider {

namespace {

// Not in the headers of older C libraries.
constexpr int kPopulateRead = 22;
constexpr int kPopulateWrite = 23;
constexpr long kTmpfsMagic = 0x01021994;
constexpr long kHugetlbfsMagic = 0x958458f6;

// Below this nothing is gained by looking for a shared file.
constexpr std::size_t kShareBytesMin = 4096;

// The answer where madvise cannot say (an old kernel, a device's memory): by the mappings' rights.
int check_mappings(std::uintptr_t start, std::uintptr_t end, bool write) {
  for (std::uintptr_t at = start; at < end;) {
    Mapping mapping{};
    if (!find_mapping(at, mapping)) return EFAULT;
    if (!(write ? mapping.writable : mapping.readable)) return EFAULT;
    at = mapping.end;
  }
  return 0;
}

int populate(const void* address, std::size_t length, bool write) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t start = first & ~(page - 1);
  const std::uintptr_t end = (first + length + page - 1) & ~(page - 1);
  if (end <= start) return EINVAL;
  for (;;) {
    const int advice = write ? kPopulateWrite : kPopulateRead;
    if (madvise(reinterpret_cast<void*>(start), end - start, advice) == 0) return 0;
    switch (errno) {
      case EAGAIN:
      case EINTR:
        continue;
      case EINVAL:
        return check_mappings(start, end, write);
      case ENOMEM:  // what this call says of a hole; V-IS-29
      case EFAULT:
      case EHWPOISON:
        return EFAULT;
      default:
        return errno;
    }
  }
}

// Is this descriptor the mapping's file, opened for what is needed, and memory?
bool serves(int fd, const Mapping& mapping, bool write) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return false;
  if (!mapping.is_file(status.st_ino, major(status.st_dev), minor(status.st_dev))) return false;
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_PATH) != 0) return false;
  const int mode = flags & O_ACCMODE;
  if (mode == O_WRONLY || (write && mode != O_RDWR)) return false;
  struct statfs filesystem {};
  if (fstatfs(fd, &filesystem) != 0) return false;
  return filesystem.f_type == kTmpfsMagic || filesystem.f_type == kHugetlbfsMagic;
}

// A duplicate of a descriptor this process has of the mapping's file; -1: none.
int find_descriptor(const Mapping& mapping, bool write) {
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return -1;
  int found = -1;
  while (const dirent* entry = readdir(directory)) {
    if (entry->d_name[0] == '.') continue;
    const int fd = std::atoi(entry->d_name);
    if (!serves(fd, mapping, write)) continue;
    // Another thread may have closed it meanwhile: what counts is what we hold.
    found = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (found >= 0 && serves(found, mapping, write)) break;
    if (found >= 0) close(found);
    found = -1;
  }
  closedir(directory);
  return found;
}

// A descriptor of the file in memory that [address, +length) is a shared mapping of; -1: it is not
// one, or no descriptor can be had.
int shared_file(const void* address, std::size_t length, bool write, std::uint64_t& offset) {
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  Mapping mapping{};
  if (length < kShareBytesMin || !find_mapping(start, mapping)) return -1;
  if (!mapping.shared || length > mapping.end - start || mapping.inode == 0) return -1;
  offset = mapping.offset + (start - mapping.start);
  const int fd = find_descriptor(mapping, write);
  if (fd >= 0) return fd;

  constexpr char kDeleted[] = " (deleted)";
  const std::size_t size = std::strlen(mapping.path);
  if (mapping.path[0] != '/') return -1;
  if (size >= sizeof kDeleted && std::strcmp(mapping.path + size - (sizeof kDeleted - 1), kDeleted) == 0) {
    return -1;
  }
  // Only what is surely a file: opening a device or a FIFO by name could do things.
  struct stat status {};
  if (stat(mapping.path, &status) != 0 || !S_ISREG(status.st_mode)) return -1;
  const int opened = open(mapping.path, (write ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK);
  if (opened >= 0 && !serves(opened, mapping, write)) {
    close(opened);
    return -1;
  }
  return opened;
}

constexpr unsigned kKnownAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                                  IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE;

int check_flags(unsigned access) {
  if ((access & IBV_ACCESS_ON_DEMAND) != 0) return EOPNOTSUPP;
  return (access & ~kKnownAccess) != 0 ? EINVAL : 0;
}

int check_registration(const Range& range) {
  if (range.length == 0) return EINVAL;
  if (reinterpret_cast<std::uintptr_t>(range.address) + range.length < range.length) return EINVAL;
  const auto given = [&](std::uint32_t rights) { return (range.access & rights) != 0; };
  constexpr std::uint32_t kWrites = RNIC_ACCESS_REMOTE_WRITE | RNIC_ACCESS_REMOTE_ATOMIC;
  constexpr std::uint32_t kReads = RNIC_ACCESS_REMOTE_READ | RNIC_ACCESS_REMOTE_ATOMIC;
  // V-ACC-01: each remote right needs the local one.
  if (!given(RNIC_ACCESS_LOCAL_READ | RNIC_ACCESS_LOCAL_WRITE)) return EINVAL;
  if (given(kWrites) && !given(RNIC_ACCESS_LOCAL_WRITE)) return EINVAL;
  if (given(kReads) && !given(RNIC_ACCESS_LOCAL_READ)) return EINVAL;
  if (given(RNIC_ACCESS_NO_REMOTE) && given(kReads | kWrites)) return EINVAL;  // V-MR-18
  return 0;
}

// Enters the region into the table that posting and polling look into.
bool remember(Context& context, const rnic_reg_mr& request, const rnic_reg_mr_reply& made) {
  pthread_mutex_lock(&context.objects);
  Region* region = context.regions.make(made.stag >> 8);
  pthread_mutex_unlock(&context.objects);
  if (region == nullptr) return false;
  region->access = request.access;
  region->mapped = made.rung != RNIC_RUNG_REMOTE_COPY;
  region->base = request.iova;
  region->length = request.length;
  region->memory = reinterpret_cast<char*>(request.start);
  store(region->stag, made.stag, std::memory_order_release);
  return true;
}

bool may_swap(Context& context) {
  if (!fast_memory()) return false;
  std::atomic_ref left(context.unswapped_left);
  std::uint32_t seen = left.load(std::memory_order_relaxed);
  while (seen != 0 && !left.compare_exchange_weak(seen, seen - 1, std::memory_order_relaxed)) {
  }
  return seen == 0;
}

void set_unswapped(Context& context, std::uint32_t count) {
  std::atomic_ref(context.unswapped_left).store(count, std::memory_order_relaxed);
}

// As its owner knows it, whom no look of others may have it missed.
Region* region_of(Context& context, std::uint32_t stag) {
  pthread_mutex_lock(&context.objects);
  Region* region = context.regions.find(stag >> 8);
  pthread_mutex_unlock(&context.objects);
  return region;
}

void set_known(Region* region, std::uint32_t stag) {
  if (region != nullptr) store(region->stag, stag, std::memory_order_seq_cst);
}

// As the daemon is asked for it, and by what it may reach the memory.
struct Wish {
  rnic_reg_mr request{};
  SwappedPages swapped{};
  int shared = -1;

  Wish() = default;
  ~Wish() {
    if (shared >= 0) close(shared);
  }
  Wish(const Wish&) = delete;
  Wish& operator=(const Wish&) = delete;

  int descriptor() const {
    if (request.shared == RNIC_MEMORY_APPLICATION) return -1;
    return swapped ? swapped.fd : shared;
  }
  void give_up_file() {
    release_pages(swapped.use);
    swapped = {};
    request.shared = RNIC_MEMORY_APPLICATION;
    request.shared_offset = 0;
  }
};

// Faults the range in, and finds how it can be reached. 0 or an errno.
int prepare(Context& context, const Range& range, Wish& wish) {
  const bool write = (range.access & RNIC_ACCESS_LOCAL_WRITE) != 0;
  int error = check_registration(range);
  if (error == 0) error = populate(range.address, range.length, write);
  if (error != 0) return error;
  if (write) tell_memcheck_written(range.address, range.length);
  rnic_reg_mr& request = wish.request;
  request.pd = range.pd;
  request.access = range.access;
  request.pages = range.pages;
  request.start = reinterpret_cast<std::uintptr_t>(range.address);
  request.length = range.length;
  request.iova = (range.access & RNIC_ACCESS_ZERO_BASED) != 0 ? 0 : range.iova;
  if (range.pages == 0 && may_swap(context)) wish.swapped = swap_pages(range.address, range.length);
  if (wish.swapped) {
    request.shared = RNIC_MEMORY_SWAPPED;
    request.shared_offset = wish.swapped.offset;
  } else {
    wish.shared = shared_file(range.address, range.length, write, request.shared_offset);
    request.shared = wish.shared >= 0 ? RNIC_MEMORY_SHARED : RNIC_MEMORY_APPLICATION;
    if (wish.shared < 0) make_huge(range.address, range.length);
  }
  return 0;
}

void fill_in(Mr& mr, ibv_pd* pd, const Range& range) {
  mr.ibv.context = pd->context;
  mr.ibv.pd = pd;
  mr.ibv.addr = range.address;
  mr.ibv.length = range.length;
}

}  // namespace

std::uint32_t to_rnic_access(unsigned access) {
  std::uint32_t result = RNIC_ACCESS_LOCAL_READ;  // ibverbs always grants it
  if ((access & IBV_ACCESS_LOCAL_WRITE) != 0) result |= RNIC_ACCESS_LOCAL_WRITE;
  if ((access & IBV_ACCESS_REMOTE_READ) != 0) result |= RNIC_ACCESS_REMOTE_READ;
  if ((access & IBV_ACCESS_REMOTE_WRITE) != 0) result |= RNIC_ACCESS_REMOTE_WRITE;
  if ((access & IBV_ACCESS_REMOTE_ATOMIC) != 0) result |= RNIC_ACCESS_REMOTE_ATOMIC;
  if ((access & IBV_ACCESS_MW_BIND) != 0) result |= RNIC_ACCESS_WINDOW_BIND;
  if ((access & IBV_ACCESS_ZERO_BASED) != 0) result |= RNIC_ACCESS_ZERO_BASED;
  return result;
}

unsigned to_ibv_access(std::uint32_t access) {
  unsigned result = 0;
  if ((access & RNIC_ACCESS_LOCAL_WRITE) != 0) result |= IBV_ACCESS_LOCAL_WRITE;
  if ((access & RNIC_ACCESS_REMOTE_READ) != 0) result |= IBV_ACCESS_REMOTE_READ;
  if ((access & RNIC_ACCESS_REMOTE_WRITE) != 0) result |= IBV_ACCESS_REMOTE_WRITE;
  if ((access & RNIC_ACCESS_REMOTE_ATOMIC) != 0) result |= IBV_ACCESS_REMOTE_ATOMIC;
  return result;
}

std::uint8_t new_key(Context& context) {
  return static_cast<std::uint8_t>(std::atomic_ref(context.next_key).fetch_add(1));
}

Mr* adopt_region(ibv_pd* pd, const rnic_reg_mr_reply& made, const Range& range) {
  auto* mr = static_cast<Mr*>(std::calloc(1, sizeof(Mr)));
  if (mr == nullptr) return nullptr;
  rnic_reg_mr known{};
  known.access = range.access;
  known.start = reinterpret_cast<std::uintptr_t>(range.address);
  known.length = range.length;
  known.iova = (range.access & RNIC_ACCESS_ZERO_BASED) != 0 ? 0 : range.iova;
  if (!remember(context_of(pd), known, made)) {
    std::free(mr);
    return nullptr;
  }
  fill_in(*mr, pd, range);
  mr->ibv.handle = made.mr;
  mr->ibv.lkey = mr->ibv.rkey = made.stag;
  mr->access = static_cast<int>(to_ibv_access(range.access));
  mr->pd = pd->handle;
  enter_domain(pd);
  return mr;
}

Mr* register_range(ibv_pd* pd, const Range& range) {
  Context& context = context_of(pd);
  errno = context.control.in_forked_child() ? EPERM : 0;
  if (errno != 0) return nullptr;
  Wish wish;
  int error = prepare(context, range, wish);
  rnic_reg_mr& request = wish.request;
  request.key = range.has_key ? range.key : new_key(context);
  rnic_reg_mr_reply reply{};
  const auto ask = [&] {
    return context.control.call(RNIC_REG_MR, &request, sizeof request, &reply, sizeof reply, wish.descriptor());
  };
  if (error == 0) error = ask();
  if (error != 0 && error != EIO && request.shared != RNIC_MEMORY_APPLICATION) {
    // A file the daemon cannot map (its seals, its size, or one too many) is reached like any other memory.
    const bool no_room = wish.swapped && error == ENOMEM;
    wish.give_up_file();
    error = ask();
    if (no_room && error == 0) set_unswapped(context, kUnswappedAfterRefusal);
  }
  Mr* mr = nullptr;
  if (error == 0) {
    mr = adopt_region(pd, reply, range);
    if (mr == nullptr) {
      context.control.call(RNIC_DEREG_MR, reply.mr);
      error = ENOMEM;
    }
  }
  if (mr == nullptr) {
    release_pages(wish.swapped.use);
    errno = error;
    return nullptr;
  }
  mr->swapped = wish.swapped.use;
  return mr;
}

// What cannot be had, for the application's own reasons, is told to the daemon all the same: but for a region with
// windows, nothing is registered then (V-MR-06, V-MR-07).
int reregister_range(Mr& mr, const Range& range, int impossible) {
  Context& context = context_of(mr.ibv.context);
  Region& now = *region_of(context, mr.ibv.lkey);
  Wish wish;
  if (impossible == 0) impossible = prepare(context, range, wish);
  rnic_rereg_mr request{};
  request.mr = mr.ibv.handle;
  request.impossible = impossible != 0 ? 1 : 0;
  request.to = wish.request;
  request.to.key = range.key;
  set_known(&now, 0);
  rnic_reg_mr_reply reply{};
  const int told =
      context.control.call(RNIC_REREG_MR, &request, sizeof request, &reply, sizeof reply, wish.descriptor());
  if (told == EBUSY || told == EIO) {  // it is as it was
    release_pages(wish.swapped.use);
    set_known(&now, mr.ibv.lkey);
    return told;
  }
  release_pages(mr.swapped);
  mr.swapped = nullptr;
  if (told != 0) {
    release_pages(wish.swapped.use);
    return impossible != 0 ? impossible : told;
  }
  if (wish.swapped && reply.rung != RNIC_RUNG_SWAPPED) {
    wish.give_up_file();
    set_unswapped(context, kUnswappedAfterRefusal);
  }
  mr.ibv.lkey = mr.ibv.rkey = reply.stag;
  mr.access = static_cast<int>(to_ibv_access(range.access));
  mr.pd = range.pd;
  mr.swapped = wish.swapped.use;
  remember(context, request.to, reply);  // where it is known already
  return 0;
}

void change_domain(Mr& mr, ibv_pd* pd) {
  enter_domain(pd);
  leave_domain(mr.ibv.pd);
  mr.ibv.pd = pd;
}

void forget_contents(Mr& mr) {
  Region* const region = region_of(context_of(mr.ibv.context), mr.ibv.lkey);
  set_known(region, 0);
  if (region != nullptr) region->length = 0;
}

Range range_of(const Mr& mr) {
  const Region& now = *region_of(context_of(mr.ibv.context), mr.ibv.lkey);
  Range range{};
  range.pd = mr.pd;
  range.address = now.memory;
  range.length = now.length;
  range.iova = (now.access & RNIC_ACCESS_ZERO_BASED) != 0 ? reinterpret_cast<std::uintptr_t>(now.memory) : now.base;
  range.access = now.access;
  return range;
}

namespace {

// What is not to change is asked for again as it was.
int reregister(ibv_mr* ibv, int flags, ibv_pd* pd, void* address, std::size_t length, int access) {
  auto* mr = reinterpret_cast<Mr*>(ibv);
  Context& context = context_of(ibv->context);
  if (context.control.in_forked_child()) return EPERM;
  if (flags == 0 || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0) return EINVAL;
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  Range to = range_of(*mr);
  if (moves) {
    to.address = address;
    to.length = length;
    to.iova = reinterpret_cast<std::uintptr_t>(address);
  }
  int impossible = 0;
  if ((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) {
    impossible = check_flags(static_cast<unsigned>(access));
    to.access = to_rnic_access(static_cast<unsigned>(access));
  }
  if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) {
    if (pd != nullptr) to.pd = pd->handle;
    if (pd == nullptr || pd->context != ibv->context) impossible = EINVAL;
  }
  // Peers that know its rkey go on with it, by its new rights; to other memory they do not come.
  to.key = static_cast<std::uint8_t>(ibv->rkey);
  while (moves && to.key == static_cast<std::uint8_t>(ibv->rkey)) to.key = new_key(context);
  PageView* const before = mr->views;
  const int error = reregister_range(*mr, to, impossible);
  if (error == 0 && moves && before != nullptr) drop_views(mr->views);
  if (error == 0 && (flags & IBV_REREG_MR_CHANGE_PD) != 0) change_domain(*mr, pd);
  return error;
}

}  // namespace

ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, int access) {
  const auto flags = static_cast<unsigned>(access);
  errno = context_of(pd).control.in_forked_child() ? EPERM : check_flags(flags);
  if (errno != 0) return nullptr;
  Range range{};
  range.pd = pd->handle;
  range.address = address;
  range.length = length;
  range.iova = iova;
  range.access = to_rnic_access(flags);
  Mr* mr = register_range(pd, range);
  if (mr == nullptr) return nullptr;
  mr->access = access;
  return &mr->ibv;
}

int rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length, int access) {
  errno = reregister(mr, flags, pd, address, length, access);  // libibverbs says no more than that it failed
  return errno;
}

int dereg_mr(ibv_mr* mr) {
  Context& context = context_of(mr->context);
  // Out of the table before the daemon gives its index to another.
  pthread_mutex_lock(&context.objects);
  Region* region = context.regions.take(mr->lkey >> 8);
  set_known(region, 0);
  pthread_mutex_unlock(&context.objects);
  const int error = destroyed(context.control.call(RNIC_DEREG_MR, mr->handle));
  pthread_mutex_lock(&context.objects);
  if (region != nullptr && error == 0) context.regions.forget(region);
  if (region != nullptr && error != 0) context.regions.put(region);
  pthread_mutex_unlock(&context.objects);
  if (error != 0) {
    set_known(region, mr->lkey);
    return error;
  }
  auto* own = reinterpret_cast<Mr*>(mr);
  if (own->swapped != nullptr) set_unswapped(context, 0);  // the daemon has room again
  drop_views(own->views);
  release_pages(own->swapped);
  leave_domain(mr->pd);
  std::free(own);
  return 0;
}

}  // namespace rnic::provider
