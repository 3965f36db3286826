// The mover of tests: plain memory, at this process's own addresses. What is moved is done at once, at the flush, or
// some flushes later and only then told, so that who believes too early is caught.
//
// It is also the checker of V-ORD-09: it watches messages whose last octet may only appear when all the others are
// there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/random.hpp"
#include "tpt/mover.hpp"

namespace rnic::test {

enum class Moves : std::uint8_t {
  direct,    // at once
  at_flush,  // at the flush, in order
  late,      // some at once, most at this flush or a later one, bodies in any order
};

class PlainMover final : public tpt::Mover {
 public:
  PlainMover(Moves moves, std::uint64_t seed) : moves_(moves), random_(seed) {}

  // ---- how the application's memory is, for tests to say ----
  std::set<std::uint32_t> unreachable;  // STags whose memory cannot be reached
  bool stalled = false;                 // nothing is done
  bool stuck = false;                   // and all that was submitted is in a copy that has begun
  bool gathers_stalled = false;         // with at_flush: only places are done
  bool pending = false;                 // others have something submitted
  std::uint64_t flushed = 0;            // flushes that have left nothing of what was submitted before
  bool bottomless = false;              // what is placed goes nowhere: for regions that have no memory

  // ---- what was placed ----
  struct Placed {
    const std::byte* from;  // null: a word
    tpt::Access to;
    tpt::Part part;
  };
  bool notes_places = true;
  std::vector<Placed> places;
  // The parts and sizes of `places`; the sizes of those that are tails.
  std::vector<std::pair<tpt::Part, std::uint32_t>> parts() const;
  std::vector<std::uint32_t> tails() const;

  // The message of `expected` will be written to `at`.
  void watch(const std::byte* at, Bytes expected) { watches_.push_back({at, expected}); }
  // What was wrong; empty: nothing.
  const std::string& complaint() const { return complaint_; }

  // Nothing is left that a flush() or a later one would do.
  bool idle() const;

  tpt::Moved gather(const tpt::Access& from, MutableBytes into, tpt::MoveTicket ticket) override;
  tpt::Moved gather(const tpt::Access& from, MutableBytes into, tpt::MoveTicket ticket, tpt::Copying& copying) override;
  tpt::Moved place(Bytes from, const tpt::Access& to, tpt::Part part, tpt::MoveTicket ticket) override;
  tpt::Moved place_word(std::uint64_t word, const tpt::Access& to, tpt::MoveTicket ticket) override;
  tpt::Moved fetch_add(const tpt::Access& at, std::uint64_t add, std::uint64_t mask, std::uint64_t& original,
                       tpt::MoveTicket ticket) override;
  tpt::Moved compare_swap(const tpt::Access& at, std::uint64_t compare, std::uint64_t compare_mask, std::uint64_t swap,
                          std::uint64_t swap_mask, std::uint64_t& original, tpt::MoveTicket ticket) override;
  tpt::Moved transfer(const tpt::Access& from, const tpt::Access& to, tpt::Part part, tpt::MoveTicket ticket) override;
  void flush() override;
  bool cancel(tpt::MoveOwner& owner) override;
  bool is_stuck(SpaceId) const override { return stuck; }
  bool is_pending(SpaceId) const override { return pending || stuck || !items_.empty(); }
  std::uint64_t flushes() const override { return flushed; }

 private:
  struct Item {
    bool is_gather;
    Bytes from;
    MutableBytes to;
    Stag stag;
    tpt::Part part;
    tpt::MoveTicket ticket;
    std::function<void(std::byte*)> word{};                // what is done to it
    std::shared_ptr<const std::vector<std::byte>> kept{};  // what `from` is, of a transfer
  };
  struct Told {
    tpt::MoveTicket ticket;
    bool ok;
  };
  struct Watch {
    const std::byte* at;
    Bytes expected;
  };
  tpt::Moved take(Item item);
  // Nothing is said of the memory, and nothing waits: what is submitted now is done now.
  bool at_once() const {
    return moves_ == Moves::direct && !stalled && !bottomless && items_.empty() && unreachable.empty();
  }
  bool reaches(const Item& item) const { return unreachable.empty() || !unreachable.contains(item.stag.value); }
  void note(const std::byte* from, const tpt::Access& to, tpt::Part part);
  void execute(const Item& item);
  void run(const Item& item);
  void run_in_order();
  void run_some();
  void check_order(const Item& item);

  Moves moves_;
  sim::Random random_;
  std::vector<Item> items_;
  std::vector<Told> told_;
  std::vector<Watch> watches_;
  std::string complaint_;
};

}  // namespace rnic::test
