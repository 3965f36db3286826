#include "shm/mover.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

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
// (W-EXT-08). The application itself is not kept out. Whoever takes over a copy that waits for a page
// gives this back in its name: nobody waits for an application.
class RemoteAtomics {
 public:
  void take(const void* who) {
    const void* holder = nullptr;
    while (!holder_.compare_exchange_weak(holder, who, std::memory_order_acquire, std::memory_order_relaxed)) {
      if (holder != nullptr) holder_.wait(holder, std::memory_order_relaxed);
      holder = nullptr;
    }
  }
  void give(const void* who) {
    if (holder_.load(std::memory_order_relaxed) != who) return;
    holder_.store(nullptr, std::memory_order_release);
    holder_.notify_one();
  }

 private:
  std::atomic<const void*> holder_{nullptr};
} remote_atomics;

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);

bool is_refused(const CopyCall& call) { return call.error == EPERM || call.error == ENOSYS; }

}  // namespace

ApplicationMover::ApplicationMover(Copier& copier, Grace* grace) : copier_(copier), grace_(grace), call_(new CopyCall) {
  touched_.reserve(256);
}

// What a thread is still in is left to it.
ApplicationMover::~ApplicationMover() {
  for (Space& space : spaces_) {
    if (space.stuck == nullptr || space.stuck->call->returned.load(std::memory_order_acquire)) continue;
    (void)space.stuck.release();
    for (auto& operand : operands_) (void)operand.release();
  }
}

void ApplicationMover::add_space(SpaceId space, const SpaceReach& reach) {
  if (spaces_.size() <= space.value) spaces_.resize(space.value + 1);
  Space& added = spaces_[space.value];
  RNIC_ASSERT(!added.known);
  added.reach = reach;
  added.known = true;
  added.by_thread = reach.helper_tid != 0;
  constexpr std::size_t kItemsUsual = 256;
  for (Queue& queue : added.queues) queue.items.reserve(kItemsUsual);
  if (touched_.capacity() < spaces_.size()) touched_.reserve(spaces_.size() * 2);
}

bool ApplicationMover::remove_space(SpaceId space) {
  Space* gone = find(space);
  if (gone == nullptr) return true;
  gone->leaving = true;
  telling_ = true;
  for (Queue& queue : gone->queues) {
    queue.done = queue.items.size();
    for (Item& item : queue.items) item.ok = false;
    tell(queue);
  }
  telling_ = false;
  if (gone->stuck != nullptr) return false;
  std::erase(touched_, space);
  *gone = Space{};
  return true;
}

ApplicationMover::Space* ApplicationMover::find(SpaceId space) {
  if (space.value >= spaces_.size() || !spaces_[space.value].known) return nullptr;
  return &spaces_[space.value];
}

bool ApplicationMover::is_stuck(SpaceId space) const {
  const Space* there = find(space);
  return there != nullptr && there->stuck != nullptr;
}

unsigned ApplicationMover::stuck_of(std::uint32_t user) const {
  return static_cast<unsigned>(std::count_if(stuck_.begin(), stuck_.end(),
                                             [&](SpaceId space) { return spaces_[space.value].reach.user == user; }));
}

bool ApplicationMover::is_pending(SpaceId space) const {
  if (touched_.empty()) return false;
  const Space* there = find(space);
  return there != nullptr && !there->empty();
}

// ---- what is submitted -----------------------------------------------------------------------------

tpt::Moved ApplicationMover::gather(const tpt::Access& from, MutableBytes into, tpt::MoveTicket ticket) {
  RNIC_ASSERT(into.size() == from.length);
  if (from.length == 0) return tpt::Moved::done;
  if (from.direct != nullptr) {
    std::memcpy(into.data(), from.direct, into.size());
    return tpt::Moved::done;
  }
  return submit(from.space, Way::gather,
                {.address = from.address, .local = into.data(), .length = from.length, .ticket = ticket});
}

tpt::Moved ApplicationMover::gather(const tpt::Access& from, MutableBytes into, tpt::MoveTicket ticket,
                                    tpt::Copying& copying) {
  RNIC_ASSERT(into.size() == from.length);
  if (from.direct == nullptr) return gather(from, into, ticket);
  copying.copy({from.direct, from.length}, into);
  return tpt::Moved::done;
}

tpt::Moved ApplicationMover::place(Bytes from, const tpt::Access& to, tpt::Part part, tpt::MoveTicket ticket) {
  RNIC_ASSERT(from.size() == to.length);
  if (to.length == 0) return tpt::Moved::done;
  // The octets are only read; one item type serves both ways.
  auto* const local = const_cast<std::byte*>(from.data());
  const bool tail = part == tpt::Part::tail;
  if (to.direct != nullptr) {
    // The rest of this message may wait for a remote copy: the edges of a swapped region (V-ORD-09).
    if (tail && !touched_.empty())
      if (Space* there = find(to.space); there != nullptr && !there->empty())
        return submit(to.space, Way::place,
                      {.address = reinterpret_cast<std::uintptr_t>(to.direct),
                       .local = local,
                       .length = to.length,
                       .kind = Kind::direct,
                       .tail = true,
                       .ticket = ticket});
    if (tail)
      store_tail(to.direct, from.data(), from.size());
    else
      std::memcpy(to.direct, from.data(), from.size());
    return tpt::Moved::done;
  }
  return submit(to.space, Way::place,
                {.address = to.address, .local = local, .length = to.length, .tail = tail, .ticket = ticket});
}

tpt::Moved ApplicationMover::transfer(const tpt::Access& from, const tpt::Access& to, tpt::Part part,
                                      tpt::MoveTicket ticket) {
  RNIC_ASSERT(from.length == to.length);
  if (to.length == 0) return tpt::Moved::done;
  if (from.direct == nullptr || to.direct == nullptr) return tpt::Moved::failed;
  if (part == tpt::Part::body) {
    // The two may be one application's, and overlap.
    std::memmove(to.direct, from.direct, to.length);
    return tpt::Moved::done;
  }
  RNIC_ASSERT(to.length <= kWordBytes);
  const Space* const there = touched_.empty() ? nullptr : find(to.space);
  if (there == nullptr || there->empty()) {
    std::byte last[kWordBytes];
    std::memcpy(last, from.direct, to.length);
    store_tail(to.direct, last, to.length);
    return tpt::Moved::done;
  }
  // Behind what waits for a remote copy there (V-ORD-09), out of a place of our own.
  Operand& operand = new_operand();
  std::memcpy(&operand.written, from.direct, to.length);
  Item item{.address = reinterpret_cast<std::uintptr_t>(to.direct),
            .local = reinterpret_cast<std::byte*>(&operand.written),
            .operand = &operand,
            .length = to.length,
            .kind = Kind::direct,
            .tail = true,
            .ticket = ticket};
  const tpt::Moved moved = submit(to.space, Way::place, item);
  if (moved == tpt::Moved::failed) free_operand(item);
  return moved;
}

tpt::Moved ApplicationMover::place_word(std::uint64_t word, const tpt::Access& to, tpt::MoveTicket ticket) {
  RNIC_ASSERT(to.length == kWordBytes);
  if (const Space* there = find(to.space); to.direct != nullptr && (there == nullptr || there->empty())) {
    store_tail(to.direct, as_bytes(&word, sizeof word).data(), sizeof word);
    return tpt::Moved::done;
  }
  Operand& operand = new_operand();
  operand.written = word;
  Item item{.address = to.address,
            .local = reinterpret_cast<std::byte*>(&operand.written),
            .operand = &operand,
            .length = kWordBytes,
            .kind = Kind::word,
            .tail = true,
            .ticket = ticket};
  if (to.direct != nullptr) {
    item.address = reinterpret_cast<std::uintptr_t>(to.direct);
    item.kind = Kind::direct;
  }
  const tpt::Moved moved = submit(to.space, Way::place, item);
  if (moved == tpt::Moved::failed) free_operand(item);
  return moved;
}

tpt::Moved ApplicationMover::submit(SpaceId id, Way way, const Item& item) {
  Space* space = find(id);
  if (space == nullptr || space->leaving) return tpt::Moved::failed;
  if (space->empty()) touched_.push_back(id);
  space->queue(way).items.push_back(item);
  return tpt::Moved::later;
}

tpt::Moved ApplicationMover::fetch_add(const tpt::Access& at, std::uint64_t add, std::uint64_t mask,
                                       std::uint64_t& original, tpt::MoveTicket ticket) {
  if (at.direct == nullptr) {
    return submit_atomic(at, {.argument = add, .mask = mask, .original = &original}, ticket);
  }
  std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(at.direct));
  std::uint64_t seen = word.load(std::memory_order_relaxed);
  while (!word.compare_exchange_weak(seen, tpt::fetch_add_result(seen, add, mask))) {
  }
  original = seen;
  return tpt::Moved::done;
}

tpt::Moved ApplicationMover::compare_swap(const tpt::Access& at, std::uint64_t compare, std::uint64_t compare_mask,
                                          std::uint64_t swap, std::uint64_t swap_mask, std::uint64_t& original,
                                          tpt::MoveTicket ticket) {
  if (at.direct == nullptr) {
    return submit_atomic(at,
                         {.swaps = true,
                          .argument = compare,
                          .mask = compare_mask,
                          .swap = swap,
                          .swap_mask = swap_mask,
                          .original = &original},
                         ticket);
  }
  std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(at.direct));
  std::uint64_t seen = word.load(std::memory_order_relaxed);
  while (tpt::compares_equal(seen, compare, compare_mask) &&
         !word.compare_exchange_weak(seen, tpt::swap_result(seen, swap, swap_mask))) {
  }
  original = seen;
  return tpt::Moved::done;
}

tpt::Moved ApplicationMover::submit_atomic(const tpt::Access& at, const Operand& wanted, tpt::MoveTicket ticket) {
  if (at.length != kWordBytes) return tpt::Moved::failed;
  Operand& operand = new_operand();
  operand = wanted;
  Item item{.address = at.address, .operand = &operand, .length = kWordBytes, .kind = Kind::atomic, .ticket = ticket};
  const tpt::Moved moved = submit(at.space, Way::place, item);
  if (moved == tpt::Moved::failed) free_operand(item);
  return moved;
}

ApplicationMover::Operand& ApplicationMover::new_operand() {
  if (free_operands_.empty()) {
    operands_.push_back(std::make_unique<Operand>());
    free_operands_.push_back(operands_.back().get());
  }
  Operand& operand = *free_operands_.back();
  free_operands_.pop_back();
  operand = {};
  return operand;
}

void ApplicationMover::free_operand(Item& item) {
  if (item.operand != nullptr) free_operands_.push_back(std::exchange(item.operand, nullptr));
}

// ---- carried out -----------------------------------------------------------------------------------

bool ApplicationMover::carry_out() {
  if (touched_.empty() || telling_) return true;
  if (!stuck_.empty()) take_back();
  // Reads first: what was asked to be sent before this turn's writes arrived is sent as it was.
  for (const Way way : {Way::gather, Way::place})
    for (const SpaceId touched : touched_)
      if (!run(touched, way)) return false;
  ++flushes_;
  tell();
  return true;
}

// One call at a time, and none while one is stuck, in order.
bool ApplicationMover::run(SpaceId id, Way way) {
  Space& space = spaces_[id.value];
  Queue& queue = space.queue(way);
  copying_ = id;
  copying_way_ = way;
  if (!stuck_.empty() && space.stuck == nullptr && stuck_of(space.reach.user) >= kStuckOfUserMax) [[unlikely]] {
    refuse(id, queue);
    return true;
  }
  while (space.stuck == nullptr && queue.done != queue.items.size()) {
    Item& next = queue.items[queue.done];
    if (next.kind == Kind::direct) {
      store_tail(reinterpret_cast<std::byte*>(next.address), next.local, next.length);
      next.ok = true;
      ++queue.done;
      continue;
    }
    if (next.kind == Kind::atomic) {
      if (!run_atomic(space)) return false;
      continue;
    }
    if (space.by_thread)
      prepare_by_thread(queue);
    else
      prepare_by_descriptor(queue, way);
    if (!execute(space, way)) return false;
    queue.done += settle(space, *call_, queue.items.data() + queue.done);
  }
  return true;
}

void ApplicationMover::refuse(SpaceId id, Queue& queue) {
  if (queue.done == queue.items.size()) return;
  const std::uint32_t user = spaces_[id.value].reach.user;
  if (std::find(refused_users_.begin(), refused_users_.end(), user) == refused_users_.end()) {
    refused_users_.push_back(user);
    news_.push_back({News::Kind::refused, id});
  }
  for (; queue.done != queue.items.size(); ++queue.done) {
    queue.items[queue.done].ok = false;
    ++counters_.refused;
  }
}

// False: it took too long.
bool ApplicationMover::execute(const Space& space, Way way) {
  CopyCall& call = *call_;
  call.way = way;
  call.by_thread = space.by_thread;
  call.reach = space.reach;
  ++counters_.calls;
  const CopyWatch::Number number = watch_.begin();
  copier_.copy(call);
  if (watch_.end(number)) [[likely]]
    return true;
  call.returned.store(true, std::memory_order_release);
  return false;
}

void ApplicationMover::prepare_by_thread(Queue& queue) {
  CopyCall& call = *call_;
  call.staged = false;
  call.first = queue.done;
  std::size_t locals = 0;
  std::size_t remotes = 0;
  for (std::size_t i = queue.done; i < queue.items.size() && locals < CopyCall::kVectorMax; ++i) {
    const Item& item = queue.items[i];
    if (item.kind >= Kind::atomic) break;
    // A tail keeps a vector of its own: the kernel copies vector by vector, in order.
    call.local[locals++] = {item.local, item.length};
    auto* const address = reinterpret_cast<std::byte*>(item.address);
    if (remotes > 0 &&
        static_cast<std::byte*>(call.remote[remotes - 1].iov_base) + call.remote[remotes - 1].iov_len == address)
      call.remote[remotes - 1].iov_len += item.length;
    else
      call.remote[remotes++] = {address, item.length};
  }
  call.locals = call.count = locals;
  call.remotes = remotes;
}

// A run: items that follow one another in the application, up to a tail, as one call.
void ApplicationMover::prepare_by_descriptor(Queue& queue, Way way) {
  CopyCall& call = *call_;
  const Item* const items = queue.items.data() + queue.done;
  const std::size_t most = std::min(queue.items.size() - queue.done, CopyCall::kVectorMax);
  std::size_t count = 1;
  std::size_t bytes = items[0].length;
  while (count < most && !items[count - 1].tail) {
    const Item& item = items[count];
    if (item.kind >= Kind::atomic || item.tail || item.address != items[0].address + bytes) break;
    if (bytes + item.length > CopyCall::kStagingBytes) break;
    bytes += item.length;
    ++count;
  }
  std::byte* here = items[0].local;
  call.staged = count > 1;
  if (call.staged) {
    if (call.staging == nullptr) call.staging = std::make_unique_for_overwrite<std::byte[]>(CopyCall::kStagingBytes);
    here = call.staging.get();
    if (way == Way::place) {
      for (std::size_t i = 0; i < count; ++i) {
        std::memcpy(here, items[i].local, items[i].length);
        here += items[i].length;
      }
      here = call.staging.get();
    }
  }
  call.local[0] = {here, bytes};
  call.remote[0] = {reinterpret_cast<void*>(items[0].address), bytes};
  call.locals = call.remotes = 1;
  call.first = queue.done;
  call.count = count;
}

// What became of a call's items, and of how many: a partial result fails the item that it stopped at,
// and the rest is submitted again.
std::size_t ApplicationMover::settle(Space& space, const CopyCall& call, Item* items) {
  if (call.by_thread && is_refused(call) && space.reach.mem_fd >= 0) {
    space.by_thread = false;
    return 0;
  }
  auto left = static_cast<std::size_t>(std::max<ssize_t>(call.moved, 0));
  counters_.bytes += left;
  std::size_t offset = 0;
  std::size_t i = 0;
  for (bool failed = false; i < call.count && !failed; ++i) {
    Item& item = items[i];
    item.ok = left >= item.length;
    failed = !item.ok;
    if (failed) {
      ++counters_.failures;
    } else if (call.staged && call.way == Way::gather && !item.dropped) {
      std::memcpy(item.local, call.staging.get() + offset, item.length);
    }
    left -= item.ok ? item.length : left;
    offset += item.length;
    ++counters_.pieces;
  }
  if (call.by_thread && call.error == ESRCH)  // the process is gone, or became another program
    for (; i < call.count; ++i) items[i].ok = false;
  return i;
}

bool ApplicationMover::run_atomic(Space& space) {
  Queue& queue = space.queue(Way::place);
  Item& item = queue.items[queue.done];
  Operand& operand = *item.operand;
  const auto copy_word = [&](Way way, std::uint64_t& word) {
    call_->local[0] = {&word, kWordBytes};
    call_->remote[0] = {reinterpret_cast<void*>(item.address), kWordBytes};
    call_->locals = call_->remotes = call_->count = 1;
    call_->first = queue.done;
    return execute(space, way);
  };
  const auto moved = [&] { return call_->moved == static_cast<ssize_t>(kWordBytes); };
  remote_atomics.take(this);
  if (!copy_word(Way::gather, operand.seen)) return false;
  if (call_->by_thread && is_refused(*call_) && space.reach.mem_fd >= 0) {
    space.by_thread = false;  // and once more
    remote_atomics.give(this);
    return true;
  }
  item.ok = moved();
  const bool writes = item.ok && (!operand.swaps || tpt::compares_equal(operand.seen, operand.argument, operand.mask));
  if (writes) {
    operand.written = operand.swaps ? tpt::swap_result(operand.seen, operand.swap, operand.swap_mask)
                                    : tpt::fetch_add_result(operand.seen, operand.argument, operand.mask);
    if (!copy_word(Way::place, operand.written)) return false;
    item.ok = moved();
  }
  remote_atomics.give(this);
  ++queue.done;
  return true;
}

// ---- told ------------------------------------------------------------------------------------------

// Telling may submit more; that waits for the next flush.
void ApplicationMover::tell() {
  telling_ = true;
  for (const SpaceId touched : touched_)
    for (Queue& queue : spaces_[touched.value].queues) tell(queue);
  for (std::size_t i = 0; i < let_go_.size(); ++i)
    if (let_go_[i] != nullptr) let_go_[i]->on_let_go();
  let_go_.clear();
  telling_ = false;
  if (dropped_) {
    dropped_ = false;
    for (const SpaceId touched : touched_)
      for (Queue& queue : spaces_[touched.value].queues) drop(queue);
  }
  std::erase_if(touched_, [this](SpaceId touched) { return spaces_[touched.value].empty(); });
}

void ApplicationMover::tell(Queue& queue) {
  for (std::size_t i = 0; i < queue.done; ++i) {
    Item& item = queue.items[i];
    const tpt::MoveTicket ticket = item.ticket;
    const bool ok = item.ok;
    if (item.operand != nullptr) [[unlikely]] {
      if (ticket.owner != nullptr && item.kind == Kind::atomic && ok) *item.operand->original = item.operand->seen;
      free_operand(item);
    }
    if (ticket.owner != nullptr) ticket.owner->on_moved(ticket.token, ok);
  }
  if (queue.done == queue.items.size())
    queue.items.clear();
  else
    queue.items.erase(queue.items.begin(), queue.items.begin() + static_cast<std::ptrdiff_t>(queue.done));
  queue.done = 0;
}

void ApplicationMover::drop(Queue& queue) {
  std::erase_if(queue.items, [this](Item& item) {
    if (item.dropped) free_operand(item);
    return item.dropped;
  });
}

bool ApplicationMover::cancel(tpt::MoveOwner& owner) {
  bool copied = false;
  const auto drop_of_owner = [&](std::vector<Item>& items) {
    bool any = false;
    for (Item& item : items) {
      if (item.ticket.owner != &owner) continue;
      item.ticket.owner = nullptr;
      item.dropped = any = true;
    }
    return any;
  };
  for (const SpaceId touched : touched_) {
    Space& space = spaces_[touched.value];
    for (Queue& queue : space.queues) {
      if (!drop_of_owner(queue.items)) continue;
      // What was submitted must not be touched later.
      if (telling_)
        dropped_ = true;
      else
        drop(queue);
    }
    if (space.stuck == nullptr || !drop_of_owner(space.stuck->items)) continue;
    space.stuck->cancelled.push_back(&owner);
    copied = true;
  }
  return copied;
}

void ApplicationMover::forget(tpt::MoveOwner& owner) {
  (void)cancel(owner);
  for (const SpaceId touched : touched_)
    if (Space& space = spaces_[touched.value]; space.stuck != nullptr) std::erase(space.stuck->cancelled, &owner);
  std::replace(let_go_.begin(), let_go_.end(), &owner, static_cast<tpt::MoveOwner*>(nullptr));
}

// ---- taken over ------------------------------------------------------------------------------------

// We are another thread than the one in call_.
void ApplicationMover::on_taken_over() {
  Space& space = spaces_[copying_.value];
  Queue& queue = space.queue(copying_way_);
  auto stuck = std::make_unique<Stuck>();
  stuck->way = copying_way_;
  stuck->call = std::exchange(call_, std::make_unique<CopyCall>());
  const auto first = queue.items.begin() + static_cast<std::ptrdiff_t>(queue.done);
  const auto end = first + static_cast<std::ptrdiff_t>(stuck->call->count);
  stuck->items.assign(first, end);
  queue.items.erase(first, end);
  remote_atomics.give(this);
  std::vector<tpt::MoveOwner*> owners;
  for (const Item& item : stuck->items)
    if (item.ticket.owner != nullptr) owners.push_back(item.ticket.owner);
  std::sort(owners.begin(), owners.end());
  owners.erase(std::unique(owners.begin(), owners.end()), owners.end());
  for (tpt::MoveOwner* owner : owners) owner->keep(stuck->kept);
  space.stuck = std::move(stuck);
  stuck_.push_back(copying_);
  ++counters_.stuck;
  news_.push_back({News::Kind::stuck, copying_});
}

void ApplicationMover::take_back() {
  for (std::size_t i = 0; i < touched_.size(); ++i)
    if (const Space& space = spaces_[touched_[i].value];
        space.stuck != nullptr && space.stuck->call->returned.load(std::memory_order_acquire))
      take_back(touched_[i]);
  std::erase_if(touched_, [this](SpaceId touched) { return !spaces_[touched.value].known; });
}

void ApplicationMover::take_back(SpaceId id) {
  Space& space = spaces_[id.value];
  const std::unique_ptr<Stuck> stuck = std::move(space.stuck);
  std::erase(stuck_, id);
  std::erase(refused_users_, space.reach.user);
  news_.push_back({News::Kind::back, id});
  stuck->kept = {};
  let_go_.insert(let_go_.end(), stuck->cancelled.begin(), stuck->cancelled.end());
  std::vector<Item>& items = stuck->items;
  std::size_t settled = items.size();
  if (space.leaving) {
    for (Item& item : items) free_operand(item);
    space = Space{};
    return;
  }
  if (items.front().kind == Kind::atomic) {
    // What was fetched may have changed meanwhile: once more from the start. What was written is done.
    const bool moved = stuck->call->moved == static_cast<ssize_t>(kWordBytes);
    items.front().ok = moved;
    settled = moved && stuck->call->way == Way::gather ? 0 : 1;
  } else {
    settled = settle(space, *stuck->call, items.data());
  }
  // Before all that came behind them.
  Queue& queue = space.queue(stuck->way);
  queue.items.insert(queue.items.begin() + static_cast<std::ptrdiff_t>(queue.done), items.begin(), items.end());
  queue.done += settled;
  const std::size_t kept =
      queue.done - static_cast<std::size_t>(std::count_if(queue.items.begin(),
                                                          queue.items.begin() + static_cast<std::ptrdiff_t>(queue.done),
                                                          [](const Item& item) { return item.dropped; }));
  drop(queue);
  queue.done = kept;
}

bool ApplicationMover::pop_news(News& out) {
  if (news_.empty()) return false;
  out = news_.front();
  news_.erase(news_.begin());
  return true;
}

}  // namespace rnic::shm
