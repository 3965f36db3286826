// What the doorbells of applications mean to one worker, and its answer to those that were rung: so many in a turn, and
// each application that rings has its share of them.
//
// Send queues in use are watched in place of that (core/watch_list.hpp). Receives are not rung for, either, until one
// is missing (shm/queues.hpp).
//
// Of thousands of applications few ring at a time. Those that have rung lately are active: they are looked at in each
// turn, all others within kQuietRound. An application that is not active rings as if we slept, so that nothing need be
// written for it when we do: each has pages of its own, which are in its processor's cache. So that somebody with
// thousands that ring now and then costs little more than one with thousands that do not, no more than kActiveMax are
// active, and the more are, the sooner one that is silent is not.
//
// Owned by one worker. The areas are shared (abi/rnic_shm.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/list.hpp"
#include "core/bells.hpp"
#include "core/device.hpp"
#include "core/own_core.hpp"
#include "core/patience.hpp"
#include "core/wakes.hpp"
#include "core/watch_list.hpp"
#include "shm/context_memory.hpp"
#include "shm/queues.hpp"

namespace rnic::core {

class Doorbells {
 public:
  // `wakes`: of all workers, where there are several.
  explicit Doorbells(unsigned worker_index, const Wakes* wakes = nullptr) : index_(worker_index), wakes_(wakes) {}

  // So many applications are looked at in a turn whether they are active or not, one after the other...
  static constexpr std::size_t kQuietLooks = 64;
  // ...or as many more as it takes to come to each in this time.
  static constexpr Duration kQuietRound = milliseconds(2);
  // How long one is active since it was answered or had a queue watched; where more than so many are, as much shorter.
  static constexpr Duration kActive = milliseconds(10);
  static constexpr std::size_t kActiveUsual = 64, kActiveMax = 256;

  // ---- whose they are ----
  // Its area rings from now on.
  void add(shm::ContextMemory& memory, SpaceId space);
  void remove(shm::ContextMemory& memory);
  // As long as it is there; null: it is not.
  const SourceHabit* habit_of(shm::ContextMemory& memory) {
    const Context* const context = find(memory);
    return context != nullptr ? &context->habit : nullptr;
  }

  // ---- what they mean: the doorbell of that index of a context ----
  // The queue stays until it is unbound.
  void bind_send(shm::ContextMemory& memory, std::uint32_t doorbell, Device& device, qp::QueuePair& qp,
                 shm::SendQueue& queue);
  void bind_receive(shm::ContextMemory& memory, std::uint32_t doorbell, Device& device, qp::QueuePair& qp,
                    shm::ReceiveQueue& queue);
  void bind_send(shm::ContextMemory& memory, std::uint32_t doorbell, Device& device, ud::QueuePair& qp,
                 shm::SendQueue& queue);
  void bind_receive(shm::ContextMemory& memory, std::uint32_t doorbell, Device& device, ud::QueuePair& qp,
                    shm::ReceiveQueue& queue);
  // A shared receive queue's, here where it rings. Where queue pairs of several workers take from it, those others are
  // rung for by us.
  void bind_shared(shm::ContextMemory& memory, std::uint32_t doorbell, shm::SharedReceiveQueue& queue);
  void relay_shared(shm::ContextMemory& memory, std::uint32_t doorbell, unsigned worker);
  // It tells every QP bound to it.
  void bind_shared_receive(shm::ContextMemory& memory, std::uint32_t doorbell, Device& device, qp::QueuePair& qp);
  void unbind(shm::ContextMemory& memory, std::uint32_t doorbell);
  void unbind_shared_receive(shm::ContextMemory& memory, std::uint32_t doorbell, qp::QueuePair& qp);

  // ---- the turn ----
  // Null: nobody has rung, nor posted to a queue that is watched. Else the habit of who did last. If we slept `core`
  // hears where those run who rang.
  SourceHabit* answer(OwnCore& core, Instant now);
  // That its answer found, and nobody rang for.
  std::uint32_t posts() const { return posts_; }
  bool any_waits() const;
  // Queue pairs of this space have waited for a copy, in no list.
  void touch_all_of(SpaceId space);
  // For who rings: whether it has to wake us. No send queue is watched while we sleep; a seq_cst fence and any_waits()
  // follow. After a sleep, whoever has rung is answered in the next turn.
  void set_asleep(bool asleep);

 private:
  struct Bell {
    enum class Kind : std::uint8_t { none, send, receive, shared } kind = Kind::none;
    Device* device = nullptr;
    qp::QueuePair* qp = nullptr;
    ud::QueuePair* ud = nullptr;  // of one of type UD, in place of that
    shm::PostRing* queue = nullptr;
    std::vector<std::pair<Device*, qp::QueuePair*>> shared{};
    std::vector<unsigned> relays{};    // of shared: other workers
    std::size_t untold = 0, next = 0;  // of shared: how many wait to be told, and who is the next
  };
  struct RingingTag;
  struct Context : ListLink<RingingTag> {
    shm::ContextMemory* memory = nullptr;
    SpaceId space{};
    std::vector<Bell> bells{};
    Bells doorbells{};
    std::vector<std::uint32_t> untold{};  // bells that have some
    WatchList watched{};
    SourceHabit habit{};
    bool is_active = false;
    Instant seen_at{0};  // when it was answered last, or had a queue that was watched

    bool rings(unsigned worker) const { return Bells::any_rung(memory->doorbells(worker)) || !untold.empty(); }
  };

  Context* find(shm::ContextMemory& memory);
  Bell& bell_at(shm::ContextMemory& memory, std::uint32_t doorbell);
  void look_at_quiet(Instant now);
  void look_at(Context& context);
  SourceHabit* answer_rung(OwnCore& core, Instant now);
  void hear_from(Context& context, OwnCore& core, Instant now);
  std::uint32_t take_rung_from(Context& context);
  void retire(Instant now);
  bool answer(Context& context, int& left);
  void ring(Context& context, std::size_t index, int& left);
  static void tell_posted(const Bell& bell);
  static void tell_shared(Bell& bell, int& left);

  static constexpr std::size_t kWatchedMax = 64;
  unsigned index_;
  const Wakes* wakes_;
  std::size_t watched_ = 0;  // of all applications, or some more
  std::uint32_t posts_ = 0;  // of this turn
  std::vector<std::unique_ptr<Context>> contexts_;
  std::vector<Context*> active_;       // of these; all that have queues that are watched are among them
  List<Context, RingingTag> ringing_;  // those that wait for an answer
  std::size_t ringing_count_ = 0;
  std::size_t next_quiet_ = 0;  // where look_at_quiet() goes on
  Instant looked_at_{0};
  bool slept_ = false;  // and has not answered since
};

}  // namespace rnic::core
