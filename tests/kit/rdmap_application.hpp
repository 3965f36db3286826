// An application made of vectors, with memory and a mover, and messages as octets: for tests of messages, which need
// no stream, and of queue pairs.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <set>
#include <vector>

#include "rdmap/host.hpp"
#include "tpt/atomic.hpp"
#include "tpt/mover.hpp"
#include "tpt/table.hpp"
#include "wire/ddp.hpp"
#include "wire/rdmap.hpp"

namespace rnic::test {

// ---- an application --------------------------------------------------------------------------------

// `Host`: rdmap::Host, or one that asks for more.
template <typename Host>
class AppOf : public Host {
 public:
  std::deque<rdmap::WorkRequest> sends;
  std::deque<rdmap::ReceiveRequest> receives;
  std::vector<rdmap::Completion> completions;
  std::vector<rdmap::Event> events;
  std::size_t room = ~std::size_t{0};  // of the completion queue

  bool take_send(rdmap::WorkRequest& out) override {
    if (sends.empty()) return false;
    out = sends.front();
    sends.pop_front();
    return true;
  }
  bool take_receive(rdmap::ReceiveRequest& out) override {
    if (receives.empty()) return false;
    out = receives.front();
    receives.pop_front();
    return true;
  }
  bool complete(const rdmap::Completion& completion) override {
    if (completions.size() >= room) return false;
    completions.push_back(completion);
    return true;
  }
  void raise(rdmap::Event event) override { events.push_back(event); }
  std::vector<rdmap::Completion> of_sends() const { return of(true); }
  std::vector<rdmap::Completion> of_receives() const { return of(false); }

 private:
  std::vector<rdmap::Completion> of(bool send_queue) const {
    std::vector<rdmap::Completion> out;
    for (const auto& c : completions)
      if (c.of_send_queue == send_queue) out.push_back(c);
    return out;
  }
};

// ---- memory ----------------------------------------------------------------------------------------

enum class Moves : std::uint8_t {
  direct,    // at once
  at_flush,  // at the flush, in order
  late,      // some flushes later, out of turn by seed
};

// Addresses are this process's own.
class PlainMover final : public tpt::Mover {
 public:
  PlainMover(Moves moves, std::uint64_t seed) : moves_(moves), random_(seed) {}

  std::set<std::uint32_t> unreachable;  // STags whose memory cannot be reached
  bool stalled = false;                 // nothing is done
  bool stuck = false;                   // and all that was submitted is in a copy that has begun
  bool gathers_stalled = false;         // with at_flush: only places are
  bool bottomless = false;              // what is placed goes nowhere: for regions that have no memory
  std::uint64_t tail_places = 0, tail_octets_max = 0;
  std::vector<std::pair<tpt::Part, std::uint32_t>> places;

  tpt::Moved gather(const tpt::Access& from, MutableBytes into, tpt::MoveTicket ticket) override {
    return submit({false, tpt::Part::body, from, into.data(), static_cast<std::uint32_t>(into.size()), ticket, 0, 0});
  }
  tpt::Moved place(Bytes from, const tpt::Access& to, tpt::Part part, tpt::MoveTicket ticket) override {
    if (from.size() != to.length) std::abort();
    places.emplace_back(part, to.length);
    if (part == tpt::Part::tail) {
      ++tail_places;
      tail_octets_max = std::max<std::uint64_t>(tail_octets_max, to.length);
    }
    return submit(
        {true, part, to, const_cast<std::byte*>(from.data()), static_cast<std::uint32_t>(from.size()), ticket, 0, 0});
  }
  void flush() override {
    if (stalled) return;
    if (moves_ == Moves::at_flush) {
      std::vector<Item> now;
      now.swap(items_);
      if (gathers_stalled) std::copy_if(now.begin(), now.end(), std::back_inserter(items_), is_gather);
      if (gathers_stalled) std::erase_if(now, is_gather);
      for (const Item& item : now) finish(item);
      return;
    }
    for (Item& item : items_) {
      if (item.delay == 0) item.delay = 1 + static_cast<std::uint32_t>(random_() % 4);
    }
    std::shuffle(items_.begin(), items_.end(), random_);
    for (std::size_t i = 0; i < items_.size();) {
      if (--items_[i].delay != 0 || held_back(items_[i])) {
        items_[i].delay = std::max(items_[i].delay, 1u);
        ++i;
        continue;
      }
      const Item item = items_[i];
      items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(i));
      finish(item);
      i = 0;
    }
  }
  bool cancel(tpt::MoveOwner& owner) override {
    const bool any = std::erase_if(items_, [&](const Item& item) { return item.ticket.owner == &owner; }) != 0;
    return stuck && any;
  }
  bool is_stuck(SpaceId) const override { return stuck; }
  tpt::Moved place_word(std::uint64_t word, const tpt::Access& to, tpt::MoveTicket ticket) override {
    places.emplace_back(tpt::Part::tail, to.length);
    ++tail_places;
    tail_octets_max = std::max<std::uint64_t>(tail_octets_max, to.length);
    return submit_word(to, ticket, [word](std::uint64_t* there) { *there = word; });
  }
  tpt::Moved fetch_add(const tpt::Access& at, std::uint64_t add, std::uint64_t mask, std::uint64_t& original,
                       tpt::MoveTicket ticket) override {
    return submit_word(at, ticket, [=, &original](std::uint64_t* word) {
      original = *word;
      *word = tpt::fetch_add_result(original, add, mask);
    });
  }
  tpt::Moved compare_swap(const tpt::Access& at, std::uint64_t compare, std::uint64_t compare_mask, std::uint64_t swap,
                          std::uint64_t swap_mask, std::uint64_t& original, tpt::MoveTicket ticket) override {
    return submit_word(at, ticket, [=, &original](std::uint64_t* word) {
      original = *word;
      if (tpt::compares_equal(original, compare, compare_mask)) *word = tpt::swap_result(original, swap, swap_mask);
    });
  }
  bool idle() const {
    return items_.empty() || stalled || (gathers_stalled && std::all_of(items_.begin(), items_.end(), is_gather));
  }

 private:
  struct Item {
    bool is_place;
    tpt::Part part;
    tpt::Access access;
    std::byte* buffer;
    std::uint32_t size;
    tpt::MoveTicket ticket;
    std::uint32_t delay;
    std::uint64_t number;
    std::function<void(std::uint64_t*)> word{};  // what is done to it
  };
  tpt::Moved submit_word(const tpt::Access& at, tpt::MoveTicket ticket, std::function<void(std::uint64_t*)> change) {
    return submit({true, tpt::Part::tail, at, nullptr, sizeof(std::uint64_t), ticket, 0, 0, std::move(change)});
  }
  static bool is_gather(const Item& item) { return !item.is_place; }
  tpt::Moved submit(Item item) {
    if (moves_ == Moves::direct && !stalled) {
      if (unreachable.contains(item.access.stag.value)) return tpt::Moved::failed;
      copy(item);
      return tpt::Moved::done;
    }
    item.number = ++numbers_;
    items_.push_back(item);
    return tpt::Moved::later;
  }
  bool held_back(const Item& item) const {
    if (item.part != tpt::Part::tail) return false;
    return std::any_of(items_.begin(), items_.end(), [&](const Item& other) {
      return other.is_place && other.ticket.owner == item.ticket.owner && other.number < item.number;
    });
  }
  void copy(const Item& item) {
    auto* memory = reinterpret_cast<std::byte*>(item.access.address);
    if (item.word)
      item.word(reinterpret_cast<std::uint64_t*>(memory));
    else if (item.is_place && !bottomless)
      std::memcpy(memory, item.buffer, item.size);
    else if (!item.is_place)
      std::memcpy(item.buffer, memory, item.size);
  }
  void finish(const Item& item) {
    const bool ok = !unreachable.contains(item.access.stag.value);
    if (ok) copy(item);
    item.ticket.owner->on_moved(item.ticket.token, ok);
  }
  Moves moves_;
  std::mt19937_64 random_;
  std::vector<Item> items_;
  std::uint64_t numbers_ = 0;
};

inline constexpr PdId kPd{1};
inline constexpr PdId kOtherPd{2};
inline constexpr auto kAllRights =
    tpt::Rights::local_read | tpt::Rights::local_write | tpt::Rights::remote_read | tpt::Rights::remote_write;
inline constexpr auto kAllAccess = tpt::Rights::remote_read | tpt::Rights::remote_write;

struct Region {
  std::vector<std::byte> memory;
  Stag stag;
  std::uint64_t base = 0;
  std::uint64_t at(std::uint64_t offset) const { return base + offset; }
};

inline std::byte octet_at(std::size_t i, std::uint32_t seed) {
  return static_cast<std::byte>((i * 131 + (i >> 8) * 17 + seed * 29) & 0xFF);
}

// ---- work ----

inline rdmap::WorkRequest work(rdmap::Opcode opcode, std::vector<rdmap::Sge> sges = {}) {
  rdmap::WorkRequest request;
  request.opcode = opcode;
  request.signaled = true;
  request.sge_count = static_cast<std::uint8_t>(sges.size());
  std::copy(sges.begin(), sges.end(), request.sges.begin());
  return request;
}
inline rdmap::WorkRequest send(std::vector<rdmap::Sge> sges = {}) { return work(rdmap::Opcode::send, std::move(sges)); }
inline rdmap::WorkRequest write(std::vector<rdmap::Sge> sges, Stag stag, std::uint64_t to) {
  auto request = work(rdmap::Opcode::write, std::move(sges));
  request.remote_stag = stag;
  request.remote_to = to;
  return request;
}
inline rdmap::WorkRequest read(std::vector<rdmap::Sge> sges, Stag stag, std::uint64_t to) {
  auto request = write(std::move(sges), stag, to);
  request.opcode = rdmap::Opcode::read;
  return request;
}

// ---- messages as octets ----

using Octets = std::vector<std::byte>;

inline Octets operator+(Octets first, const Octets& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}
inline Octets filled(std::size_t size, std::uint32_t seed = 7) {
  Octets out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = octet_at(i, seed);
  return out;
}
inline Octets tagged(std::uint8_t opcode, bool last, Stag stag, std::uint64_t to, const Octets& payload = {}) {
  Octets out(14);
  wire::emit(
      wire::TaggedHeader{
          .last = last, .rdmap_control = static_cast<std::uint8_t>(0x40 | opcode), .stag = stag, .tagged_offset = to},
      out);
  return out + payload;
}
inline Octets untagged(std::uint8_t opcode, bool last, std::uint32_t queue, std::uint32_t msn, std::uint32_t mo,
                       const Octets& payload = {}, Stag invalidate = {}) {
  Octets out(18);
  wire::emit(wire::UntaggedHeader{.last = last,
                                  .rdmap_control = static_cast<std::uint8_t>(0x40 | opcode),
                                  .invalidate = invalidate,
                                  .queue = queue,
                                  .msn = msn,
                                  .message_offset = mo},
             out);
  return out + payload;
}
inline Octets read_request(std::uint32_t msn, wire::ReadRequestHeader header) {
  Octets body(28);
  wire::emit(header, body);
  return untagged(1, true, 1, msn, 0, body);
}

}  // namespace rnic::test
