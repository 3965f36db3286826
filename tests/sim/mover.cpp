#include "sim/mover.hpp"

#include <algorithm>

#include "tpt/atomic.hpp"

namespace rnic::sim {

tpt::Moved SimMover::take(Item item) {
  if (item.from.size() != item.to.size()) {
    complaint_ = "a move whose two sides differ in size";
    return tpt::Moved::failed;
  }
  if (late_ && random_.chance(800)) {
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
  execute(item);
  return tpt::Moved::done;
}

tpt::Moved SimMover::gather(const tpt::Access& from, MutableBytes into, tpt::MoveTicket ticket) {
  return take({true, {from.direct, from.length}, into, tpt::Part::body, ticket});
}

tpt::Moved SimMover::place(Bytes from, const tpt::Access& to, tpt::Part part, tpt::MoveTicket ticket) {
  return take({false, from, {to.direct, to.length}, part, ticket});
}

void SimMover::execute(const Item& item) {
  if (item.word) {
    item.word(item.to.data());
    return;
  }
  std::memmove(item.to.data(), item.from.data(), item.from.size());
  if (!item.is_gather) check_order(item);
}

void SimMover::check_order(const Item& item) {
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

void SimMover::flush() {
  if (items_.empty()) return;
  // A late mover leaves some for the next flush. Bodies in any order; a tail only when nothing of
  // its owner that came before it is left.
  std::vector<Item> now;
  now.swap(items_);
  std::vector<Item> left;
  std::vector<std::size_t> order(now.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (late_)
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_.below(i)]);
  std::vector<char> done(now.size(), 0), postponed(now.size(), 0);
  for (std::size_t i = 0; i < now.size(); ++i) postponed[i] = late_ && random_.chance(300);
  told_.clear();
  const auto run = [&](std::size_t i) {
    execute(now[i]);
    done[i] = 1;
    told_.push_back(now[i].ticket);
  };
  for (const std::size_t i : order)
    if (now[i].part == tpt::Part::body && !postponed[i]) run(i);
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i].part != tpt::Part::tail || postponed[i]) continue;
    bool free = true;
    for (std::size_t j = 0; j < i; ++j)
      if (done[j] == 0 && now[j].ticket.owner == now[i].ticket.owner) free = false;
    if (free) run(i);
  }
  for (std::size_t i = 0; i < now.size(); ++i)
    if (done[i] == 0) left.push_back(now[i]);
  items_.insert(items_.begin(), left.begin(), left.end());
  // Whoever hears of it may cancel others.
  for (std::size_t i = 0; i < told_.size(); ++i)
    if (told_[i].owner != nullptr) told_[i].owner->on_moved(told_[i].token, true);
}

bool SimMover::cancel(tpt::MoveOwner& owner) {
  std::erase_if(items_, [&](const Item& item) { return item.ticket.owner == &owner; });
  for (tpt::MoveTicket& ticket : told_)
    if (ticket.owner == &owner) ticket.owner = nullptr;
  return false;
}

tpt::Moved SimMover::place_word(std::uint64_t word, const tpt::Access& to, tpt::MoveTicket ticket) {
  const MutableBytes there{to.direct, to.length};
  return take(
      {false, there, there, tpt::Part::tail, ticket, [word](std::byte* at) { std::memcpy(at, &word, sizeof word); }});
}

tpt::Moved SimMover::fetch_add(const tpt::Access& at, std::uint64_t add, std::uint64_t mask, std::uint64_t& original,
                               tpt::MoveTicket ticket) {
  const MutableBytes there{at.direct, at.length};
  return take({false, there, there, tpt::Part::tail, ticket, [=, &original](std::byte* word) {
                 std::memcpy(&original, word, sizeof original);
                 const std::uint64_t result = tpt::fetch_add_result(original, add, mask);
                 std::memcpy(word, &result, sizeof result);
               }});
}

tpt::Moved SimMover::compare_swap(const tpt::Access& at, std::uint64_t compare, std::uint64_t compare_mask,
                                  std::uint64_t swap, std::uint64_t swap_mask, std::uint64_t& original,
                                  tpt::MoveTicket ticket) {
  const MutableBytes there{at.direct, at.length};
  return take({false, there, there, tpt::Part::tail, ticket, [=, &original](std::byte* word) {
                 std::memcpy(&original, word, sizeof original);
                 if (!tpt::compares_equal(original, compare, compare_mask)) return;
                 const std::uint64_t result = tpt::swap_result(original, swap, swap_mask);
                 std::memcpy(word, &result, sizeof result);
               }});
}

}  // namespace rnic::sim
