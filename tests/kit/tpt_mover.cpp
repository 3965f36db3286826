#include "kit/tpt_mover.hpp"

#include <algorithm>

#include "tpt/atomic.hpp"

namespace rnic::test {

namespace {
MutableBytes memory_of(const tpt::Access& access) {
  return {reinterpret_cast<std::byte*>(access.address), access.length};
}
}  // namespace

tpt::Moved PlainMover::take(Item item) {
  if (item.from.size() != item.to.size()) {
    complaint_ = "a move whose two sides differ in size";
    return tpt::Moved::failed;
  }
  if (stalled || moves_ == Moves::at_flush || (moves_ == Moves::late && random_.chance(800))) {
    items_.push_back(item);
    return tpt::Moved::later;
  }
  // Done at once only if nothing that must come before it waits.
  if (item.part == tpt::Part::tail)
    for (const Item& other : items_)
      if (other.ticket.owner == item.ticket.owner) {
        items_.push_back(item);
        return tpt::Moved::later;
      }
  if (!reaches(item)) return tpt::Moved::failed;
  execute(item);
  return tpt::Moved::done;
}

void PlainMover::note(const std::byte* from, const tpt::Access& to, tpt::Part part) {
  if (notes_places) places.push_back({from, to, part});
}

std::vector<std::pair<tpt::Part, std::uint32_t>> PlainMover::parts() const {
  std::vector<std::pair<tpt::Part, std::uint32_t>> out;
  for (const Placed& placed : places) out.emplace_back(placed.part, placed.to.length);
  return out;
}

std::vector<std::uint32_t> PlainMover::tails() const {
  std::vector<std::uint32_t> out;
  for (const Placed& placed : places)
    if (placed.part == tpt::Part::tail) out.push_back(placed.to.length);
  return out;
}

bool PlainMover::idle() const {
  const auto waits = [&](const Item& item) { return !gathers_stalled || !item.is_gather; };
  return stalled || std::none_of(items_.begin(), items_.end(), waits);
}

// ---- what is submitted ----

tpt::Moved PlainMover::gather(const tpt::Access& from, MutableBytes into, tpt::MoveTicket ticket) {
  if (at_once() && from.length == into.size()) {
    std::memmove(into.data(), memory_of(from).data(), into.size());
    return tpt::Moved::done;
  }
  return take({true, memory_of(from), into, from.stag, tpt::Part::body, ticket});
}

// What take() does at once, `copying` does once more.
tpt::Moved PlainMover::gather(const tpt::Access& from, MutableBytes into, tpt::MoveTicket ticket,
                              tpt::Copying& copying) {
  const tpt::Moved moved = gather(from, into, ticket);
  if (moved == tpt::Moved::done) copying.copy(memory_of(from), into);
  return moved;
}

tpt::Moved PlainMover::place(Bytes from, const tpt::Access& to, tpt::Part part, tpt::MoveTicket ticket) {
  note(from.data(), to, part);
  if (at_once() && watches_.empty() && from.size() == to.length) {
    std::memmove(memory_of(to).data(), from.data(), from.size());
    return tpt::Moved::done;
  }
  return take({false, from, memory_of(to), to.stag, part, ticket});
}

tpt::Moved PlainMover::transfer(const tpt::Access& from, const tpt::Access& to, tpt::Part part,
                                tpt::MoveTicket ticket) {
  if (from.direct == nullptr || to.direct == nullptr || from.length != to.length) return tpt::Moved::failed;
  note(from.direct, to, part);
  if (at_once() && watches_.empty()) {
    std::memmove(memory_of(to).data(), from.direct, from.length);
    return tpt::Moved::done;
  }
  const auto kept = std::make_shared<const std::vector<std::byte>>(from.direct, from.direct + from.length);
  return take({false, *kept, memory_of(to), to.stag, part, ticket, {}, kept});
}

tpt::Moved PlainMover::place_word(std::uint64_t word, const tpt::Access& to, tpt::MoveTicket ticket) {
  note(nullptr, to, tpt::Part::tail);
  const MutableBytes there = memory_of(to);
  return take({false, there, there, to.stag, tpt::Part::tail, ticket,
               [word](std::byte* at) { std::memcpy(at, &word, sizeof word); }});
}

tpt::Moved PlainMover::fetch_add(const tpt::Access& at, std::uint64_t add, std::uint64_t mask, std::uint64_t& original,
                                 tpt::MoveTicket ticket) {
  const MutableBytes there = memory_of(at);
  return take({false, there, there, at.stag, tpt::Part::tail, ticket, [=, &original](std::byte* word) {
                 std::memcpy(&original, word, sizeof original);
                 const std::uint64_t result = tpt::fetch_add_result(original, add, mask);
                 std::memcpy(word, &result, sizeof result);
               }});
}

tpt::Moved PlainMover::compare_swap(const tpt::Access& at, std::uint64_t compare, std::uint64_t compare_mask,
                                    std::uint64_t swap, std::uint64_t swap_mask, std::uint64_t& original,
                                    tpt::MoveTicket ticket) {
  const MutableBytes there = memory_of(at);
  return take({false, there, there, at.stag, tpt::Part::tail, ticket, [=, &original](std::byte* word) {
                 std::memcpy(&original, word, sizeof original);
                 if (!tpt::compares_equal(original, compare, compare_mask)) return;
                 const std::uint64_t result = tpt::swap_result(original, swap, swap_mask);
                 std::memcpy(word, &result, sizeof result);
               }});
}

bool PlainMover::cancel(tpt::MoveOwner& owner) {
  const bool any = std::erase_if(items_, [&](const Item& item) { return item.ticket.owner == &owner; }) != 0;
  for (Told& told : told_)
    if (told.ticket.owner == &owner) told.ticket.owner = nullptr;
  return stuck && any;
}

// ---- what is done ----

void PlainMover::execute(const Item& item) {
  if (item.word) {
    item.word(item.to.data());
    return;
  }
  if (bottomless && !item.is_gather) return;
  std::memmove(item.to.data(), item.from.data(), item.from.size());
  if (!item.is_gather) check_order(item);
}

void PlainMover::run(const Item& item) {
  const bool ok = reaches(item);
  if (ok) execute(item);
  told_.push_back({item.ticket, ok});
}

void PlainMover::check_order(const Item& item) {
  for (std::size_t i = 0; i < watches_.size();) {
    const Watch& watch = watches_[i];
    const std::byte* last = watch.at + watch.expected.size() - 1;
    if (last < item.to.data() || last >= item.to.data() + item.to.size()) {
      ++i;
      continue;
    }
    if (*last == watch.expected.back() && !std::equal(watch.expected.begin(), watch.expected.end(), watch.at))
      complaint_ = "V-ORD-09: the last octet of a message of " + std::to_string(watch.expected.size()) +
                   " octets is there before the rest";
    watches_.erase(watches_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void PlainMover::flush() {
  if (stalled || items_.empty()) return;
  told_.clear();
  moves_ == Moves::late ? run_some() : run_in_order();
  // Whoever hears of it may cancel others.
  for (std::size_t i = 0; i < told_.size(); ++i)
    if (told_[i].ticket.owner != nullptr) told_[i].ticket.owner->on_moved(told_[i].ticket.token, told_[i].ok);
}

void PlainMover::run_in_order() {
  std::vector<Item> now;
  now.swap(items_);
  for (const Item& item : now) {
    if (gathers_stalled && item.is_gather)
      items_.push_back(item);
    else
      run(item);
  }
}

// Leaves some for the next flush. Bodies in any order; a tail only when nothing of its owner that came before it is
// left.
void PlainMover::run_some() {
  std::vector<Item> now;
  now.swap(items_);
  std::vector<Item> left;
  std::vector<std::size_t> order(now.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_.below(i)]);
  std::vector<char> done(now.size(), 0), postponed(now.size(), 0);
  for (std::size_t i = 0; i < now.size(); ++i) postponed[i] = random_.chance(300);
  for (const std::size_t i : order)
    if (now[i].part == tpt::Part::body && !postponed[i]) {
      run(now[i]);
      done[i] = 1;
    }
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i].part != tpt::Part::tail || postponed[i]) continue;
    bool free = true;
    for (std::size_t j = 0; j < i; ++j)
      if (done[j] == 0 && now[j].ticket.owner == now[i].ticket.owner) free = false;
    if (!free) continue;
    run(now[i]);
    done[i] = 1;
  }
  for (std::size_t i = 0; i < now.size(); ++i)
    if (done[i] == 0) left.push_back(now[i]);
  items_.insert(items_.begin(), left.begin(), left.end());
}

}  // namespace rnic::test
