/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#include "pages_aside.hpp"

#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <cerrno>

#include "rnic_control.h"
#include "write_guard.hpp"

namespace rnic::provider {
namespace {

// Not in the headers of older C libraries (linux/userfaultfd.h of Linux 6.8).
struct Move {
  std::uint64_t to;
  std::uint64_t from;
  std::uint64_t length;
  std::uint64_t mode;
  std::int64_t moved;  // octets, or minus an errno
};
constexpr unsigned long kMove = _IOWR(UFFDIO, 0x05, Move);
constexpr std::uint64_t kDontWake = 1;
constexpr std::uint64_t kAllowHoles = 2;
// A page that somebody looks at just now is refused, too. So often one is asked for before it counts as pinned.
constexpr int kTriesMax = 20;

char* aside;  // kAsideBytes; in no child

char* have_aside() {
  if (aside != nullptr) return aside;
  void* made = mmap(nullptr, kAsideBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return nullptr;
  if (madvise(made, kAsideBytes, MADV_DONTFORK) != 0) {
    munmap(made, kAsideBytes);
    return nullptr;
  }
  madvise(made, kAsideBytes, MADV_NOHUGEPAGE);
  return aside = static_cast<char*>(made);
}

std::uintptr_t address_of(const char* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

bool watch_missing(std::uintptr_t start, std::size_t size) {
  uffdio_register registration{};
  registration.range = {start, size};
  registration.mode = UFFDIO_REGISTER_MODE_MISSING;
  return ioctl(guard_descriptor(), UFFDIO_REGISTER, &registration) == 0;
}

// How many octets came to the other place.
std::size_t move(std::uintptr_t from, std::uintptr_t to, std::size_t size) {
  std::size_t done = 0;
  std::size_t most = size;
  for (int left = kTriesMax; done < size;) {
    const std::size_t part = most < size - done ? most : size - done;
    Move request{to + done, from + done, part, kDontWake | kAllowHoles, 0};
    const int error = ioctl(guard_descriptor(), kMove, &request) == 0 ? 0 : errno;
    if (request.moved > 0) {
      done += static_cast<std::size_t>(request.moved);
      left = kTriesMax;
      continue;
    }
    if (error == EINVAL && most != RNIC_SWAP_PAGE_BYTES) {  // they are not of one mapping
      most = RNIC_SWAP_PAGE_BYTES;
      continue;
    }
    if ((error != EAGAIN && error != EBUSY) || --left == 0) break;
    sched_yield();
  }
  return done;
}

// What nobody but us can see is not pinned; where the kernel will not move it all the same, it is copied.
void move_back(std::uintptr_t from, std::uintptr_t to, std::size_t size) {
  for (std::size_t done = 0;;) {
    done += move(from + done, to + done, size - done);
    if (done == size) return;
    uffdio_copy copy{};
    copy.dst = to + done;
    copy.src = from + done;
    copy.len = RNIC_SWAP_PAGE_BYTES;
    copy.mode = UFFDIO_COPY_MODE_DONTWAKE;
    if (ioctl(guard_descriptor(), UFFDIO_COPY, &copy) == 0)
      done += RNIC_SWAP_PAGE_BYTES;
    else if (errno != EAGAIN && errno != ENOMEM)
      return;  // the address space ends, or somebody else has mapped something there
    else
      sched_yield();
  }
}

// Also of pages that were copied back: what is set aside next would find the place taken, as if it were pinned.
void clear_aside(std::size_t size) { madvise(aside, size, MADV_DONTNEED); }

}  // namespace

bool may_set_aside() { return have_guard(false) && guard_moves() && have_aside() != nullptr; }

const void* set_aside(const WholePages& place) {
  if (!watch_missing(address_of(aside), place.size())) return nullptr;
  if (!watch_missing(place.start, place.size())) {
    let_go({address_of(aside), address_of(aside) + place.size()});
    return nullptr;
  }
  const std::size_t moved = move(place.start, address_of(aside), place.size());
  // A page that was not there is not to be waited for by us either: it reads as zeros.
  let_go({address_of(aside), address_of(aside) + place.size()});
  if (moved == place.size()) return aside;
  move_back(address_of(aside), place.start, moved);
  clear_aside(place.size());
  let_go(place);
  return nullptr;
}

void put_back(const WholePages& place) {
  move_back(address_of(aside), place.start, place.size());
  clear_aside(place.size());
  let_go(place);
}

void drop_aside(const WholePages& place) {
  wake(place);
  clear_aside(place.size());
}

void forget_aside() { aside = nullptr; }

}  // namespace rnic::provider
