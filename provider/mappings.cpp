/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "mappings.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "rnic_control.h"

namespace rnic::provider {
namespace {

constexpr std::size_t kPageBytes = RNIC_SWAP_PAGE_BYTES;

// ---- by query ---------------------------------------------------------------------------------------

// PROCMAP_QUERY of linux/fs.h, which the headers of older systems have not got.
struct Query {
  std::uint64_t size;
  std::uint64_t query_flags;  // 0: the mapping that holds the address, or ENOENT
  std::uint64_t query_addr;
  std::uint64_t vma_start;
  std::uint64_t vma_end;
  std::uint64_t vma_flags;
  std::uint64_t vma_page_size;
  std::uint64_t vma_offset;
  std::uint64_t inode;
  std::uint32_t dev_major;
  std::uint32_t dev_minor;
  std::uint32_t vma_name_size;  // in: room; out: octets with the zero, or 0
  std::uint32_t build_id_size;
  std::uint64_t vma_name_addr;
  std::uint64_t build_id_addr;
};
static_assert(sizeof(Query) == 104);
constexpr unsigned long kProcmapQuery = _IOWR('f', 17, Query);
constexpr std::uint64_t kReadable = 1, kWritable = 2, kExecutable = 4, kShared = 8;

std::atomic<bool> may_query{true};

// Opening maps costs ten times a query, so it stays open. A page that the kernel empties in a forked
// child holds its number: there it would tell of the parent.
struct Kept {
  std::atomic<int> number;  // of the descriptor, and one more; 0: none
};
std::atomic<Kept*> kept{nullptr};

Kept* kept_page() {
  Kept* page = kept.load(std::memory_order_acquire);
  if (page != nullptr) return page;
  void* fresh = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return nullptr;
  if (madvise(fresh, kPageBytes, MADV_WIPEONFORK) != 0 ||
      !kept.compare_exchange_strong(page, static_cast<Kept*>(fresh), std::memory_order_acq_rel)) {
    munmap(fresh, kPageBytes);
    return page;
  }
  return static_cast<Kept*>(fresh);
}

// Of this process; `instead_of`: one that is no good (the application closed it, and its number may be
// another file's by now). -1: none.
int maps_descriptor(int instead_of) {
  Kept* page = kept_page();
  if (page == nullptr) return -1;
  int seen = page->number.load(std::memory_order_acquire);
  if (seen != 0 && seen - 1 != instead_of) return seen - 1;
  const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  if (page->number.compare_exchange_strong(seen, fd + 1, std::memory_order_acq_rel)) return fd;
  close(fd);
  return seen - 1;
}

// 0 or an errno; ENOTTY: this is not a kernel for it.
int query(std::uintptr_t address, Mapping& found) {
  Query q;
  int bad = -1;
  for (bool with_name = true;;) {
    const int fd = maps_descriptor(bad);
    if (fd < 0) return ENOTTY;
    q = {};
    q.size = sizeof q;
    q.query_addr = address;
    if (with_name) {
      q.vma_name_size = sizeof found.path;
      q.vma_name_addr = reinterpret_cast<std::uintptr_t>(found.path);
    }
    if (ioctl(fd, kProcmapQuery, &q) == 0) break;
    switch (errno) {
      case EINTR:
        continue;
      case ENOENT:
        return ENOENT;
      case ENAMETOOLONG:
        if (!with_name) return ENOTTY;
        with_name = false;
        continue;
      default:
        if (bad >= 0) return ENOTTY;
        bad = fd;
    }
  }
  if (q.vma_name_size == 0) found.path[0] = '\0';
  found.start = q.vma_start;
  found.end = q.vma_end;
  found.offset = q.vma_offset;
  found.inode = q.inode;
  found.major = q.dev_major;
  found.minor = q.dev_minor;
  found.readable = (q.vma_flags & kReadable) != 0;
  found.writable = (q.vma_flags & kWritable) != 0;
  found.executable = (q.vma_flags & kExecutable) != 0;
  found.shared = (q.vma_flags & kShared) != 0;
  found.huge = q.vma_page_size != kPageBytes;
  return 0;
}

// ---- by reading -------------------------------------------------------------------------------------

// The lines of a file of /proc. The kernel gives at most a page of them a read, whatever is asked for.
class Lines {
 public:
  explicit Lines(const char* path) : fd_(open(path, O_RDONLY | O_CLOEXEC)) {}
  ~Lines() {
    if (fd_ >= 0) close(fd_);
  }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  // Without its end; nothing: there are no more. Good until the next.
  char* next() {
    if (fd_ < 0) return nullptr;
    for (;;) {
      char* line = text_ + at_;
      if (auto* end = static_cast<char*>(std::memchr(line, '\n', filled_ - at_))) {
        *end = '\0';
        at_ = static_cast<std::size_t>(end - text_) + 1;
        return line;
      }
      std::memmove(text_, line, filled_ - at_);
      filled_ -= at_;
      at_ = 0;
      if (filled_ == sizeof text_) filled_ = 0;  // longer than any path
      const ssize_t more = read(fd_, text_ + filled_, sizeof text_ - filled_);
      if (more < 0 && errno == EINTR) continue;
      if (more <= 0) return nullptr;
      filled_ += static_cast<std::size_t>(more);
      octets_ += static_cast<std::size_t>(more);
    }
  }

  // So many were read.
  std::size_t octets() const { return octets_; }

 private:
  int fd_;
  std::size_t at_ = 0;
  std::size_t filled_ = 0;
  std::size_t octets_ = 0;
  char text_[4096 + 512];  // the longest path, and what stands before it
};

bool number(const char*& at, unsigned base, char after, std::uint64_t& value) {
  const char* first = at;
  for (value = 0;; ++at) {
    unsigned digit = 16;
    if (*at >= '0' && *at <= '9')
      digit = static_cast<unsigned>(*at - '0');
    else if (*at >= 'a' && *at <= 'f')
      digit = static_cast<unsigned>(*at - 'a' + 10);
    if (digit >= base) break;
    value = value * base + digit;
  }
  return at != first && *at++ == after;
}

// start-end rwxp offset major:minor inode   path. False: it is no such line.
bool parse(const char* at, Mapping& line) {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::uint64_t major = 0;
  std::uint64_t minor = 0;
  if (!number(at, 16, '-', start) || !number(at, 16, ' ', end)) return false;
  for (int i = 0; i < 4; ++i)
    if (at[i] == '\0') return false;
  line.readable = at[0] == 'r';
  line.writable = at[1] == 'w';
  line.executable = at[2] == 'x';
  line.shared = at[3] == 's';
  at += 4;
  if (*at++ != ' ' || !number(at, 16, ' ', line.offset)) return false;
  if (!number(at, 16, ':', major) || !number(at, 16, ' ', minor)) return false;
  line.inode = 0;
  for (; *at >= '0' && *at <= '9'; ++at) line.inode = line.inode * 10 + static_cast<unsigned>(*at - '0');
  while (*at == ' ') ++at;
  const std::size_t length = std::strlen(at);
  line.path[0] = '\0';
  if (length < sizeof line.path) std::memcpy(line.path, at, length + 1);
  line.start = start;
  line.end = end;
  line.major = static_cast<unsigned>(major);
  line.minor = static_cast<unsigned>(minor);
  line.huge = false;
  return true;
}

bool read_mappings(std::uintptr_t start, std::uintptr_t end, bool (*visit)(const Mapping&, void*), void* context) {
  Lines maps("/proc/self/maps");
  Mapping mapping;
  while (char* line = maps.next()) {
    if (!parse(line, mapping) || mapping.end <= start) continue;
    if (mapping.start > start) return false;
    if (!visit(mapping, context)) return false;
    start = mapping.end;
    if (start >= end) return true;
  }
  return false;
}

// ---- what only smaps tells --------------------------------------------------------------------------

// Before it comes to a page smaps tells of all that lies below: 800 octets a mapping, which the kernel finds by looking
// at its pages, 3 us or more. So a look ends after some of them, and pages from there on are far. Whether they still
// are is looked at again when so many have asked in vain that a look costs next to nothing for each. Guarded as
// forks_of() is.
constexpr std::size_t kSmapsOctets = 32 * 1024;
constexpr unsigned kVainAsks = 256;

std::size_t octets_max = kSmapsOctets;
std::size_t octets_read = 0;
std::uintptr_t far = UINTPTR_MAX;  // pages from here on
unsigned vain_asks = 0;

Forks read_forks(std::uintptr_t page, std::size_t most) {
  Lines smaps("/proc/self/smaps");
  Mapping mapping;
  Forks forks = Forks::unknown;
  bool inside = false;
  while (char* line = smaps.next()) {
    if (parse(line, mapping)) {
      if (inside || mapping.start > page) break;
      inside = page < mapping.end;
      if (!inside && smaps.octets() > most) {
        far = mapping.end;
        forks = Forks::far;
        break;
      }
    } else if (inside && std::strncmp(line, "VmFlags:", 8) == 0) {
      forks = std::strstr(line, " dc") != nullptr ? Forks::kept_back : Forks::inherited;
      break;
    }
  }
  octets_read += smaps.octets();
  return forks;
}

Forks read_near_forks(std::uintptr_t page) {
  if (page >= far) {
    if (++vain_asks < kVainAsks) return Forks::far;
    far = UINTPTR_MAX;
    vain_asks = 0;
  }
  return read_forks(page, octets_max);
}

bool same_bounds(std::uintptr_t page, const Mapping& mapping) {
  Mapping now;
  return find_mapping(page, now) && now.start == mapping.start && now.end == mapping.end;
}

}  // namespace

bool find_mapping(std::uintptr_t address, Mapping& found) {
  const auto take = [](const Mapping& mapping, void* into) {
    *static_cast<Mapping*>(into) = mapping;
    return true;
  };
  if (may_query.load(std::memory_order_relaxed)) {
    const int error = query(address, found);
    if (error != ENOTTY) return error == 0;
  }
  return read_mappings(address, address + 1, take, &found);
}

bool visit_mappings(std::uintptr_t start, std::uintptr_t end, bool (*visit)(const Mapping&, void*), void* context) {
  Mapping mapping;
  for (std::uintptr_t at = start; at < end; at = mapping.end) {
    if (!may_query.load(std::memory_order_relaxed)) return read_mappings(at, end, visit, context);
    const int error = query(at, mapping);
    if (error == ENOTTY) return read_mappings(at, end, visit, context);
    if (error != 0 || !visit(mapping, context)) return false;
  }
  return true;
}

void visit_all_mappings(void (*visit)(const Mapping&, void*), void* context) {
  Lines maps("/proc/self/maps");
  Mapping mapping;
  while (char* line = maps.next())
    if (parse(line, mapping)) visit(mapping, context);
}

// A mapping has one set of flags for all of it. So where a part of it is told to be inherited, and its
// bounds stay as they were, all of it was already; where they change, it was not, which is put right at
// once: then they are again what they were, or somebody else changes what is mapped here meanwhile. That
// is two calls in place of reading what smaps says of all that lies before.
Forks forks_of(std::uintptr_t page, const Mapping& mapping) {
  if (mapping.end - mapping.start <= kPageBytes) return read_near_forks(page);
  void* at = reinterpret_cast<void*>(page);
  if (madvise(at, kPageBytes, MADV_DOFORK) != 0) return Forks::unknown;
  if (same_bounds(page, mapping)) return Forks::inherited;
  if (madvise(at, kPageBytes, MADV_DONTFORK) != 0) return Forks::unknown;
  if (same_bounds(page, mapping)) return Forks::kept_back;
  // What its neighbour is, it was; that is to be put right, however far it is.
  const std::uintptr_t beside = page + kPageBytes < mapping.end ? page + kPageBytes : page - kPageBytes;
  if (read_forks(beside, SIZE_MAX) == Forks::inherited) madvise(at, kPageBytes, MADV_DOFORK);
  return Forks::unknown;
}

int remap_to(std::uintptr_t from, std::size_t size, std::size_t new_size, std::uintptr_t to) {
  const long at = syscall(SYS_mremap, from, size, new_size, MREMAP_MAYMOVE | MREMAP_FIXED, to);
  return at == static_cast<long>(to) ? 0 : errno;
}

std::size_t smaps_octets_read() { return octets_read; }

void limit_smaps(std::size_t octets) {
  octets_max = octets == 0 ? kSmapsOctets : octets;
  far = UINTPTR_MAX;
  vain_asks = 0;
}

void use_mapping_query(bool use) { may_query.store(use, std::memory_order_relaxed); }

}  // namespace rnic::provider
