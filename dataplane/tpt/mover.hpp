// Moving octets between packet buffers and application memory: submit, flush, done
// (architecture.md s4). One interface for every rung; a direct rung is done at once, a remote copy
// is done at flush() or later, and the simulator's is done late and out of turn.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"
#include "tpt/table.hpp"

namespace rnic::tpt {

// Told when what was submitted is done. Called from flush() or from a later turn of the worker,
// never from gather() or place(). It submits nothing itself.
class MoveOwner {
 public:
  virtual void on_moved(std::uint32_t token, bool ok) = 0;

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

class Mover {
 public:
  virtual ~Mover() = default;
  // From application memory into a packet buffer. Both stay valid until done.
  virtual Moved gather(const Access& from, MutableBytes into, MoveTicket ticket) = 0;
  // From a packet buffer into application memory.
  virtual Moved place(Bytes from, const Access& to, Part part, MoveTicket ticket) = 0;
  // At the latest at the end of a burst: starts all that was submitted.
  virtual void flush() = 0;
  // Nothing of this owner is touched or told any more when it returns.
  virtual void cancel(MoveOwner& owner) = 0;
  // An atomic operation on 8 aligned octets of application memory, at once (W-EXT-08).
  // Returns false if the memory cannot be reached.
  virtual bool fetch_add(const Access& at, std::uint64_t add, std::uint64_t mask, std::uint64_t& original) = 0;
  virtual bool compare_swap(const Access& at, std::uint64_t compare, std::uint64_t compare_mask, std::uint64_t swap,
                            std::uint64_t swap_mask, std::uint64_t& original) = 0;
};

}  // namespace rnic::tpt
