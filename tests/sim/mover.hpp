// The mover of a simulated host: plain memory. In its late mode nothing is done at once: what was
// submitted is done at a later flush, body items in any order, and only then told, so that a queue
// pair that believes too early is caught.
//
// It is also the checker of V-ORD-09: it watches messages whose last octet may only appear when
// all the others are there.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sim/random.hpp"
#include "tpt/mover.hpp"

namespace rnic::sim {

class SimMover final : public tpt::Mover {
 public:
  SimMover(std::uint64_t seed, bool late) : random_(seed), late_(late) {}

  tpt::Moved gather(const tpt::Access& from, MutableBytes into, tpt::MoveTicket ticket) override;
  tpt::Moved place(Bytes from, const tpt::Access& to, tpt::Part part, tpt::MoveTicket ticket) override;
  void flush() override;
  bool cancel(tpt::MoveOwner& owner) override;
  tpt::Moved place_word(std::uint64_t word, const tpt::Access& to, tpt::MoveTicket ticket) override;
  tpt::Moved fetch_add(const tpt::Access& at, std::uint64_t add, std::uint64_t mask, std::uint64_t& original,
                       tpt::MoveTicket ticket) override;
  tpt::Moved compare_swap(const tpt::Access& at, std::uint64_t compare, std::uint64_t compare_mask, std::uint64_t swap,
                          std::uint64_t swap_mask, std::uint64_t& original, tpt::MoveTicket ticket) override;

  // Items that a flush() or a later one will do.
  bool pending() const { return !items_.empty(); }

  // The message of `expected` will be written to `at`.
  void watch(const std::byte* at, Bytes expected) { watches_.push_back({at, expected}); }
  const std::string& complaint() const { return complaint_; }

 private:
  struct Item {
    bool is_gather;
    Bytes from;
    MutableBytes to;
    tpt::Part part;
    tpt::MoveTicket ticket;
    std::function<void(std::byte*)> word{};  // what is done to it
  };
  struct Watch {
    const std::byte* at;
    Bytes expected;
  };
  tpt::Moved take(Item item);
  void execute(const Item& item);
  void check_order(const Item& item);

  Random random_;
  bool late_;
  std::vector<Item> items_;
  std::vector<tpt::MoveTicket> told_;
  std::vector<Watch> watches_;
  std::string complaint_;
};

}  // namespace rnic::sim
