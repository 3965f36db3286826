// Moving octets between packet buffers and application memory: submit, flush, done
// (architecture.md s6). One interface for every rung; a direct rung is done at once, a remote copy
// is done at flush() or later, and the simulator's is done late and out of turn.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/buffer.hpp"
#include "base/bytes.hpp"
#include "tpt/table.hpp"

namespace rnic::tpt {

// What a copy that waits for a page of the application's reads or writes here, whatever becomes of its
// owner: nobody else gets it before the copy is over.
struct Kept {
  std::vector<BufferRef> buffers;
  std::vector<std::shared_ptr<const std::byte[]>> memory;
};

// Told when what was submitted is done. Called from flush() or from a later turn of the worker,
// never from gather() or place(). It submits nothing itself.
class MoveOwner {
 public:
  virtual void on_moved(std::uint32_t token, bool ok) = 0;
  // A copy with moves of this owner's waits for a page: all that its moves are made from or into is
  // added to `kept`.
  virtual void keep(Kept& kept) { (void)kept; }
  // Of cancel(): nothing of the owner is touched from here on.
  virtual void on_let_go() {}

 protected:
  ~MoveOwner() = default;
};

struct MoveTicket {
  MoveOwner* owner = nullptr;
  std::uint32_t token = 0;
};

enum class Moved : std::uint8_t {
  done,    // at once; on_moved is not called
  failed,  // at once: the memory cannot be reached; on_moved is not called
  later,   // on_moved(token, ok) will be called exactly once
};

// V-ORD-09: a poller of a message's last octet must not see it before the rest. `body` items may
// be done in any order; a `tail` item (the last 1..8 octets of a message) is done after every item
// of the same owner that was submitted before it.
enum class Part : std::uint8_t { body, tail };

// For who has something to do with octets while they are copied.
class Copying {
 public:
  // To be done when it returns. What `from` is written meanwhile is copied or not.
  virtual void copy(Bytes from, MutableBytes into) = 0;

 protected:
  ~Copying() = default;
};

class Mover {
 public:
  virtual ~Mover() = default;
  // From application memory into a packet buffer. Both stay valid until done.
  virtual Moved gather(const Access& from, MutableBytes into, MoveTicket ticket) = 0;
  // The same, and what is done at once `copying` has done.
  virtual Moved gather(const Access& from, MutableBytes into, MoveTicket ticket, Copying& copying) = 0;
  // From a packet buffer into application memory.
  virtual Moved place(Bytes from, const Access& to, Part part, MoveTicket ticket) = 0;
  // From one application's memory into another's, of the same size, both of which the daemon has mapped: else it
  // fails. As place(), and `from` is not looked at any more when it returns.
  virtual Moved transfer(const Access& from, const Access& to, Part part, MoveTicket ticket) = 0;
  // At the latest at the end of a burst: starts all that was submitted.
  virtual void flush() = 0;
  // A word, the mover's to keep, as place() of a message's tail.
  virtual Moved place_word(std::uint64_t word, const Access& to, MoveTicket ticket) = 0;
  // An atomic operation on 8 aligned octets of application memory (W-EXT-08), done in the order of
  // places. `original` is written before it is told, and not after cancel().
  virtual Moved fetch_add(const Access& at, std::uint64_t add, std::uint64_t mask, std::uint64_t& original,
                          MoveTicket ticket) = 0;
  virtual Moved compare_swap(const Access& at, std::uint64_t compare, std::uint64_t compare_mask, std::uint64_t swap,
                             std::uint64_t swap_mask, std::uint64_t& original, MoveTicket ticket) = 0;
  // Nothing of this owner is told any more when it returns, and no move of its is begun. True: a copy
  // that has begun goes on as long as a page does not come; on_let_go() is told when it is over.
  virtual bool cancel(MoveOwner& owner) = 0;
  // The owner ends: cancel(), and not even on_let_go() is told.
  virtual void forget(MoveOwner& owner) { (void)cancel(owner); }
  // A copy there waits for a page; what is submitted waits behind it.
  virtual bool is_stuck(SpaceId space) const {
    (void)space;
    return false;
  }
  // Something that was submitted for it is not done, whoever's it is.
  virtual bool is_pending(SpaceId space) const {
    (void)space;
    return false;
  }
  // Flushes that have begun all that was submitted before them.
  virtual std::uint64_t flushes() const { return 0; }
  // A mark of now. By has_done() all that was submitted for the space before it is done, whoever's it is, and of
  // whatever worker. What others submit later is not waited for: they may go on and on.
  virtual std::uint64_t mark() { return flushes(); }
  virtual bool has_done(SpaceId space, std::uint64_t mark) const {
    return !is_pending(space) || (flushes() != mark && !is_stuck(space));
  }
};

}  // namespace rnic::tpt
