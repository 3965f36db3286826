#include "shm/mover.hpp"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "tpt/atomic.hpp"

namespace rnic::shm {
namespace {

// The last octets of a message, after everything before them: no compiler or processor moves an
// earlier store behind them (V-ORD-09).
void store_tail(std::byte* to, const std::byte* from, std::size_t length) {
  std::atomic_thread_fence(std::memory_order_release);
  const auto address = reinterpret_cast<std::uintptr_t>(to);
  if (length == 8 && address % 8 == 0) {
    std::uint64_t value;
    std::memcpy(&value, from, sizeof value);
    std::atomic_ref(*reinterpret_cast<std::uint64_t*>(to)).store(value, std::memory_order_release);
    return;
  }
  for (std::size_t i = 0; i < length; ++i) {
    std::atomic_ref(*reinterpret_cast<std::uint8_t*>(to + i))
        .store(std::to_integer<std::uint8_t>(from[i]), std::memory_order_release);
  }
}

// A word that is fetched, changed and written back is nobody else's meanwhile: no other worker's
// (W-EXT-08). The application itself is not kept out.
std::mutex remote_atomics;

}  // namespace

ApplicationMover::ApplicationMover() : items_(new Item[kItemsMax]), staging_(new std::byte[kStagingBytes]) {
  touched_.reserve(256);
}

ApplicationMover::~ApplicationMover() = default;

void ApplicationMover::add_space(SpaceId space, const SpaceReach& reach) {
  if (spaces_.size() <= space.value) spaces_.resize(space.value + 1);
  Space& added = spaces_[space.value];
  RNIC_ASSERT(!added.known);
  added.reach = reach;
  added.known = true;
  added.by_thread = reach.helper_tid != 0;
  for (auto& pending : added.pending) pending.reserve(kItemsMax);
  if (touched_.capacity() < spaces_.size()) touched_.reserve(spaces_.size() * 2);
}

void ApplicationMover::remove_space(SpaceId space) {
  Space* gone = find(space);
  if (gone == nullptr) return;
  flush();
  *gone = Space{};
}

ApplicationMover::Space* ApplicationMover::find(SpaceId space) {
  if (space.value >= spaces_.size() || !spaces_[space.value].known) return nullptr;
  return &spaces_[space.value];
}

tpt::Moved ApplicationMover::gather(const tpt::Access& from, MutableBytes into, tpt::MoveTicket ticket) {
  RNIC_ASSERT(into.size() == from.length);
  if (from.length == 0) return tpt::Moved::done;
  if (from.direct != nullptr) {
    std::memcpy(into.data(), from.direct, into.size());
    return tpt::Moved::done;
  }
  return submit(Way::gather, {from.space, from.address, into.data(), from.length, false, false, ticket});
}

tpt::Moved ApplicationMover::place(Bytes from, const tpt::Access& to, tpt::Part part, tpt::MoveTicket ticket) {
  RNIC_ASSERT(from.size() == to.length);
  if (to.length == 0) return tpt::Moved::done;
  if (to.direct != nullptr) {
    // The rest of this message may wait for a remote copy: the edges of a swapped region (V-ORD-09).
    if (part == tpt::Part::tail && item_count_ != 0) place_pending(to.space);
    if (part == tpt::Part::tail)
      store_tail(to.direct, from.data(), from.size());
    else
      std::memcpy(to.direct, from.data(), from.size());
    return tpt::Moved::done;
  }
  // The octets are only read; one item type serves both ways.
  return submit(Way::place, {to.space, to.address, const_cast<std::byte*>(from.data()), to.length,
                             part == tpt::Part::tail, false, ticket});
}

tpt::Moved ApplicationMover::submit(Way way, const Item& item) {
  Space* space = find(item.space);
  if (space == nullptr) return tpt::Moved::failed;
  if (item_count_ == kItemsMax) {
    // Very many small FPDUs in one burst: everything before it first, so that the order of tails holds,
    // and this one alone.
    for (const SpaceId touched : touched_)
      for (const Way each : {Way::gather, Way::place}) run(spaces_[touched.value], each);
    return move_now(*space, way, item.address, item.local, item.length) ? tpt::Moved::done : tpt::Moved::failed;
  }
  if (space->pending[0].empty() && space->pending[1].empty()) touched_.push_back(item.space);
  items_[item_count_] = item;
  space->pending[static_cast<std::size_t>(way)].push_back(static_cast<std::uint32_t>(item_count_));
  ++item_count_;
  return tpt::Moved::later;
}

// What waits to be placed there, now; it is told at the next flush as ever.
void ApplicationMover::place_pending(SpaceId space) {
  Space* there = find(space);
  if (there != nullptr && !there->pending[static_cast<std::size_t>(Way::place)].empty()) run(*there, Way::place);
}

void ApplicationMover::run(Space& space, Way way) {
  auto& pending = space.pending[static_cast<std::size_t>(way)];
  std::size_t done = 0;
  while (done < pending.size()) {
    const std::size_t count = std::min(pending.size() - done, kVectorMax);
    if (space.by_thread)
      run_by_thread(space, way, done, count);
    else
      run_by_descriptor(space, way, done, count);
    done += count;
  }
  pending.clear();
}

void ApplicationMover::run_by_thread(Space& space, Way way, std::size_t first, std::size_t count) {
  const auto& pending = space.pending[static_cast<std::size_t>(way)];
  std::size_t at = first;
  const std::size_t end = first + count;
  while (at < end) {
    std::size_t locals = 0;
    std::size_t remotes = 0;
    std::size_t wanted = 0;
    for (std::size_t i = at; i < end; ++i) {
      const Item& item = items_[pending[i]];
      // A tail keeps a vector of its own: the kernel copies vector by vector, in order.
      local_[locals++] = {item.local, item.length};
      const auto address = reinterpret_cast<std::byte*>(item.address);
      if (remotes > 0 && static_cast<std::byte*>(remote_[remotes - 1].iov_base) + remote_[remotes - 1].iov_len == address)
        remote_[remotes - 1].iov_len += item.length;
      else
        remote_[remotes++] = {address, item.length};
      wanted += item.length;
    }
    ++counters_.calls;
    const ssize_t moved = way == Way::gather
                              ? process_vm_readv(space.reach.helper_tid, local_.data(), locals, remote_.data(), remotes, 0)
                              : process_vm_writev(space.reach.helper_tid, local_.data(), locals, remote_.data(), remotes, 0);
    if (moved < 0 && (errno == EPERM || errno == ENOSYS) && space.reach.mem_fd >= 0) {
      space.by_thread = false;
      run_by_descriptor(space, way, at, end - at);
      return;
    }
    // A partial result fails the item that it stopped at; the rest is submitted again.
    std::size_t left = moved < 0 ? 0 : static_cast<std::size_t>(moved);
    counters_.bytes += left;
    bool failed = false;
    while (at < end && !failed) {
      Item& item = items_[pending[at]];
      item.ok = left >= item.length;
      failed = !item.ok;
      left -= item.ok ? item.length : left;
      ++at;
      ++counters_.pieces;
    }
    if (failed) {
      ++counters_.failures;
      if (moved < 0 && errno == ESRCH) {  // the process is gone, or became another program
        for (; at < end; ++at) items_[pending[at]].ok = false;
      }
    }
  }
}

void ApplicationMover::run_by_descriptor(Space& space, Way way, std::size_t first, std::size_t count) {
  const auto& pending = space.pending[static_cast<std::size_t>(way)];
  std::size_t at = first;
  const std::size_t end = first + count;
  while (at < end) {
    // A run: items that follow one another in the application, up to a tail, as one call.
    std::size_t run_end = at;
    std::size_t bytes = 0;
    const std::uint64_t start = items_[pending[at]].address;
    while (run_end < end) {
      const Item& item = items_[pending[run_end]];
      if (item.address != start + bytes || bytes + item.length > kStagingBytes) break;
      if (item.tail && run_end != at) break;
      bytes += item.length;
      ++run_end;
      if (item.tail) break;
    }
    ssize_t moved = -1;
    ++counters_.calls;
    if (run_end == at) {  // larger than the staging buffer: by itself
      const Item& item = items_[pending[at]];
      bytes = item.length;
      run_end = at + 1;
      if (space.reach.mem_fd >= 0)
        moved = way == Way::gather ? pread(space.reach.mem_fd, item.local, bytes, static_cast<off_t>(start))
                                   : pwrite(space.reach.mem_fd, item.local, bytes, static_cast<off_t>(start));
    } else if (space.reach.mem_fd >= 0) {
      if (way == Way::place) {
        std::size_t offset = 0;
        for (std::size_t i = at; i < run_end; ++i) {
          std::memcpy(staging_.get() + offset, items_[pending[i]].local, items_[pending[i]].length);
          offset += items_[pending[i]].length;
        }
        moved = pwrite(space.reach.mem_fd, staging_.get(), bytes, static_cast<off_t>(start));
      } else {
        moved = pread(space.reach.mem_fd, staging_.get(), bytes, static_cast<off_t>(start));
        std::size_t offset = 0;
        for (std::size_t i = at; i < run_end && moved > 0; ++i) {
          if (offset + items_[pending[i]].length > static_cast<std::size_t>(moved)) break;
          std::memcpy(items_[pending[i]].local, staging_.get() + offset, items_[pending[i]].length);
          offset += items_[pending[i]].length;
        }
      }
    }
    std::size_t left = moved < 0 ? 0 : static_cast<std::size_t>(moved);
    counters_.bytes += left;
    bool failed = false;
    while (at < run_end && !failed) {
      Item& item = items_[pending[at]];
      item.ok = left >= item.length;
      failed = !item.ok;
      left -= item.ok ? item.length : left;
      ++at;
      ++counters_.pieces;
    }
    if (failed) ++counters_.failures;
  }
}

void ApplicationMover::flush() {
  if (item_count_ == 0 || telling_) return;
  // Reads first: what was asked to be sent before this turn's writes arrived is sent as it was.
  for (const Way way : {Way::gather, Way::place})
    for (const SpaceId touched : touched_) run(spaces_[touched.value], way);
  touched_.clear();
  // Telling may submit more; that waits for the next flush.
  telling_ = true;
  const std::size_t count = item_count_;
  for (std::size_t i = 0; i < count; ++i) {
    const Item& item = items_[i];
    if (item.ticket.owner != nullptr) item.ticket.owner->on_moved(item.ticket.token, item.ok);
  }
  RNIC_ASSERT(item_count_ == count);
  item_count_ = 0;
  telling_ = false;
}

void ApplicationMover::cancel(tpt::MoveOwner& owner) {
  for (std::size_t i = 0; i < item_count_; ++i) {
    if (items_[i].ticket.owner == &owner) items_[i].ticket.owner = nullptr;
  }
  if (telling_) return;
  // What was submitted must not be touched later: leave the items of others, drop the owner's.
  for (const SpaceId touched : touched_) {
    for (auto& pending : spaces_[touched.value].pending)
      std::erase_if(pending, [&](std::uint32_t i) { return items_[i].ticket.owner == nullptr; });
  }
}

// One piece, by itself, at once.
bool ApplicationMover::move_now(Space& space, Way way, std::uint64_t address, std::byte* here, std::size_t length) {
  const auto wanted = static_cast<ssize_t>(length);
  if (space.by_thread) {
    const iovec local{here, length};
    const iovec remote{reinterpret_cast<void*>(address), length};
    const ssize_t moved = way == Way::gather ? process_vm_readv(space.reach.helper_tid, &local, 1, &remote, 1, 0)
                                             : process_vm_writev(space.reach.helper_tid, &local, 1, &remote, 1, 0);
    if (moved >= 0 || (errno != EPERM && errno != ENOSYS)) return moved == wanted;
    space.by_thread = false;
  }
  if (space.reach.mem_fd < 0) return false;
  const auto offset = static_cast<off_t>(address);
  return (way == Way::gather ? pread(space.reach.mem_fd, here, length, offset)
                             : pwrite(space.reach.mem_fd, here, length, offset)) == wanted;
}

bool ApplicationMover::move_word(const tpt::Access& at, Way way, std::uint64_t& word) {
  Space* space = find(at.space);
  if (space == nullptr || at.length != sizeof word) return false;
  return move_now(*space, way, at.address, reinterpret_cast<std::byte*>(&word), sizeof word);
}

bool ApplicationMover::fetch_add(const tpt::Access& at, std::uint64_t add, std::uint64_t mask, std::uint64_t& original) {
  if (at.direct != nullptr) {
    std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(at.direct));
    std::uint64_t seen = word.load(std::memory_order_relaxed);
    while (!word.compare_exchange_weak(seen, tpt::fetch_add_result(seen, add, mask))) {
    }
    original = seen;
    return true;
  }
  const std::lock_guard lock(remote_atomics);
  if (!move_word(at, Way::gather, original)) return false;
  std::uint64_t result = tpt::fetch_add_result(original, add, mask);
  return move_word(at, Way::place, result);
}

bool ApplicationMover::compare_swap(const tpt::Access& at, std::uint64_t compare, std::uint64_t compare_mask,
                                    std::uint64_t swap, std::uint64_t swap_mask, std::uint64_t& original) {
  if (at.direct != nullptr) {
    std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(at.direct));
    std::uint64_t seen = word.load(std::memory_order_relaxed);
    while (tpt::compares_equal(seen, compare, compare_mask) &&
           !word.compare_exchange_weak(seen, tpt::swap_result(seen, swap, swap_mask))) {
    }
    original = seen;
    return true;
  }
  const std::lock_guard lock(remote_atomics);
  if (!move_word(at, Way::gather, original)) return false;
  if (!tpt::compares_equal(original, compare, compare_mask)) return true;
  std::uint64_t result = tpt::swap_result(original, swap, swap_mask);
  return move_word(at, Way::place, result);
}

}  // namespace rnic::shm
