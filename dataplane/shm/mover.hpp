// Application memory, reached: direct where it is mapped here (rungs 1..3), else by remote copy
// (rung 4, architecture.md s6). One remote copy spans a whole burst: what is submitted is collected
// for each address space, pieces that follow one another in the application become one, and flush()
// moves all of it in as few calls as there are address spaces.
//
// The remote copy is process_vm_readv/writev addressed by the id of a helper thread in the
// application that never calls exec: the kernel ends all other threads before exec gives the process
// a new address space, so that the id cannot come to mean another program. Where that call is refused
// (Yama, a sandbox) it is pread/pwrite on the /proc/self/mem descriptor that the application passed,
// through a staging buffer; that descriptor is bound to the address space, and dies with it.
//
// A copy that waits for a page of the application's is left to its thread (copy.hpp): its space is
// stuck, and what is submitted for it waits, in order, until the copy is back. Other spaces go on, but for
// those of a user who has kStuckOfUserMax stuck.
//
// Owned by one worker. All memory is taken at construction, but for what waits.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shm/copy.hpp"
#include "shm/grace.hpp"
#include "tpt/mover.hpp"

namespace rnic::shm {

struct MoverCounters {
  std::uint64_t calls = 0, pieces = 0, bytes = 0, failures = 0;
  std::uint64_t stuck = 0;    // calls that were taken over
  std::uint64_t refused = 0;  // pieces that failed unbegun, as their user had kStuckOfUserMax of these
};

class ApplicationMover final : public tpt::Mover {
 public:
  // So many of one user's address spaces may be stuck. His other remote copies then fail, until one is back: each has a
  // thread of the crew's, which is everybody's, for as long as the page does not come, even if the application has
  // ended.
  static constexpr unsigned kStuckOfUserMax = 48;

  // `grace`: of several workers with movers of their own, for the same spaces; null: there are none.
  explicit ApplicationMover(Copier& copier = Copier::kernel(), Grace* grace = nullptr);
  ~ApplicationMover();

  void add_space(SpaceId space, const SpaceReach& reach);
  // Nobody has anything to move there any more. False: it is stuck, and goes when the copy is back,
  // which pop_news() tells; until then its number and its descriptors are not to be used again.
  bool remove_space(SpaceId space);

  tpt::Moved gather(const tpt::Access& from, MutableBytes into, tpt::MoveTicket ticket) override;
  tpt::Moved gather(const tpt::Access& from, MutableBytes into, tpt::MoveTicket ticket, tpt::Copying& copying) override;
  tpt::Moved place(Bytes from, const tpt::Access& to, tpt::Part part, tpt::MoveTicket ticket) override;
  tpt::Moved transfer(const tpt::Access& from, const tpt::Access& to, tpt::Part part, tpt::MoveTicket ticket) override;
  void flush() override { (void)carry_out(); }
  tpt::Moved place_word(std::uint64_t word, const tpt::Access& to, tpt::MoveTicket ticket) override;
  tpt::Moved fetch_add(const tpt::Access& at, std::uint64_t add, std::uint64_t mask, std::uint64_t& original,
                       tpt::MoveTicket ticket) override;
  tpt::Moved compare_swap(const tpt::Access& at, std::uint64_t compare, std::uint64_t compare_mask, std::uint64_t swap,
                          std::uint64_t swap_mask, std::uint64_t& original, tpt::MoveTicket ticket) override;
  bool cancel(tpt::MoveOwner& owner) override;
  void forget(tpt::MoveOwner& owner) override;
  bool is_stuck(SpaceId space) const override;
  bool is_pending(SpaceId space) const override;
  std::uint64_t flushes() const override { return flushes_; }
  std::uint64_t mark() override { return grace_ != nullptr ? grace_->begin() : flushes_; }
  bool has_done(SpaceId space, std::uint64_t mark) const override {
    return grace_ != nullptr ? grace_->passed(mark, space) : Mover::has_done(space, mark);
  }
  // In which a copy waits for a page.
  std::span<const SpaceId> stuck_spaces() const { return stuck_; }
  unsigned stuck_of(std::uint32_t user) const;

  // As flush(). False: a copy did not return in time, and another thread has everything that was the
  // caller's, this object too.
  bool carry_out();
  bool has_moves() const { return !touched_.empty(); }
  // That no page is waited for.
  bool has_moves_to_begin() const { return touched_.size() > stuck_.size(); }

  // ---- for whoever takes over (watch().take_over() has succeeded) ----
  CopyWatch& watch() { return watch_; }
  SpaceId copying() const { return copying_; }
  const SpaceReach& reach_of(SpaceId space) const { return spaces_[space.value].reach; }
  // First of all. Then carry_out() goes on where the other was.
  void on_taken_over();

  struct News {
    enum class Kind : std::uint8_t { stuck, back, refused } kind = Kind::stuck;
    SpaceId space;  // refused: the first since one of its user's copies came back
  };
  bool pop_news(News& out);

  const MoverCounters& counters() const { return counters_; }

 private:
  enum class Kind : std::uint8_t { copy, word, atomic, direct };
  // Of a word, or of an atomic operation.
  struct Operand {
    bool swaps = false;  // compare and swap; else fetch and add
    std::uint64_t argument = 0, mask = 0, swap = 0, swap_mask = 0;
    std::uint64_t seen = 0, written = 0;
    std::uint64_t* original = nullptr;
  };
  struct Item {
    std::uint64_t address = 0;  // direct: here
    std::byte* local = nullptr;
    Operand* operand = nullptr;
    std::uint32_t length = 0;
    Kind kind = Kind::copy;
    bool tail = false;
    bool ok = false;
    bool dropped = false;  // cancelled where it could not be taken out
    tpt::MoveTicket ticket;
  };
  // In order of submission; the first `done` are carried out and not told.
  struct Queue {
    std::vector<Item> items;
    std::size_t done = 0;
  };
  // A call that was taken over.
  struct Stuck {
    Way way = Way::gather;
    std::unique_ptr<CopyCall> call;
    std::vector<Item> items;
    std::vector<tpt::MoveOwner*> cancelled;  // to be told that it is over
    tpt::Kept kept;
  };
  struct Space {
    SpaceReach reach;
    bool known = false;
    bool by_thread = false;
    bool leaving = false;
    Queue queues[2];
    std::unique_ptr<Stuck> stuck;

    Queue& queue(Way way) { return queues[static_cast<std::size_t>(way)]; }
    bool empty() const { return queues[0].items.empty() && queues[1].items.empty() && stuck == nullptr; }
  };

  tpt::Moved submit(SpaceId space, Way way, const Item& item);
  tpt::Moved submit_atomic(const tpt::Access& at, const Operand& operand, tpt::MoveTicket ticket);
  bool run(SpaceId id, Way way);
  void prepare_by_thread(Queue& queue);
  void prepare_by_descriptor(Queue& queue, Way way);
  bool run_atomic(Space& space);
  void refuse(SpaceId id, Queue& queue);
  bool execute(const Space& space, Way way);
  std::size_t settle(Space& space, const CopyCall& call, Item* items);
  void take_back();
  void take_back(SpaceId id);
  void tell();
  void tell(Queue& queue);
  void drop(Queue& queue);
  void touch(SpaceId space, const Space& there);
  Space* find(SpaceId space);
  const Space* find(SpaceId space) const { return const_cast<ApplicationMover*>(this)->find(space); }
  Operand& new_operand();
  void free_operand(Item& item);

  Copier& copier_;
  Grace* grace_;
  CopyWatch watch_;
  std::vector<Space> spaces_;  // by SpaceId
  std::vector<SpaceId> touched_;
  std::unique_ptr<CopyCall> call_;
  SpaceId copying_;
  Way copying_way_ = Way::gather;
  std::vector<std::unique_ptr<Operand>> operands_;
  std::vector<Operand*> free_operands_;
  std::vector<tpt::MoveOwner*> let_go_;
  std::vector<News> news_;
  std::vector<SpaceId> stuck_;
  std::uint64_t flushes_ = 0;
  std::vector<std::uint32_t> refused_users_;  // of whom that is told already
  bool telling_ = false;
  bool dropped_ = false;  // while telling
  MoverCounters counters_;
};

}  // namespace rnic::shm
