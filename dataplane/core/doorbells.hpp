// What the doorbells of applications mean to one worker, and its answer to those that were rung: so many in a turn, and
// each application that rings has its share of them.
//
// Owned by one worker. The areas are shared (abi/rnic_shm.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/bells.hpp"
#include "core/device.hpp"
#include "core/own_core.hpp"
#include "core/patience.hpp"
#include "shm/context_memory.hpp"

namespace rnic::core {

class Doorbells {
 public:
  explicit Doorbells(unsigned worker_index) : index_(worker_index) {}

  // ---- whose they are ----
  // Its area rings from now on.
  void add(shm::ContextMemory& memory, SpaceId space) { contexts_.push_back({.memory = &memory, .space = space}); }
  void remove(shm::ContextMemory& memory);
  // Contexts move in memory when one is added or removed, and their habits with them.
  template <typename Do>
  void for_each_habit(Do&& each) const {
    for (const Context& context : contexts_) each(context.habit);
  }

  // ---- what they mean: the doorbell of that index of a context ----
  void bind_send(shm::ContextMemory& memory, std::uint32_t doorbell, Device& device, qp::QueuePair& qp);
  void bind_receive(shm::ContextMemory& memory, std::uint32_t doorbell, Device& device, qp::QueuePair& qp);
  // A shared receive queue's tells every QP bound to it.
  void bind_shared_receive(shm::ContextMemory& memory, std::uint32_t doorbell, Device& device, qp::QueuePair& qp);
  void bind_send(shm::ContextMemory& memory, std::uint32_t doorbell, Device& device, ud::QueuePair& qp);
  void bind_receive(shm::ContextMemory& memory, std::uint32_t doorbell, Device& device, ud::QueuePair& qp);
  void unbind(shm::ContextMemory& memory, std::uint32_t doorbell);
  void unbind_shared_receive(shm::ContextMemory& memory, std::uint32_t doorbell, qp::QueuePair& qp);

  // ---- the turn ----
  // Null: none was rung. Else the habit of who rang last; `core` hears from where.
  SourceHabit* answer(OwnCore& core, Instant now);
  bool any_waits() const;
  // Queue pairs of this space have waited for a copy, in no list.
  void touch_all_of(SpaceId space);
  // For who rings: whether it has to wake us.
  void set_asleep(bool asleep);

 private:
  struct Bell {
    enum class Kind : std::uint8_t { none, send, receive, shared } kind = Kind::none;
    Device* device = nullptr;
    qp::QueuePair* qp = nullptr;
    ud::QueuePair* ud = nullptr;  // of one of type UD, in place of that
    std::vector<std::pair<Device*, qp::QueuePair*>> shared{};
    std::size_t untold = 0, next = 0;  // of shared: how many wait to be told, and who is the next
  };
  struct Context {
    shm::ContextMemory* memory = nullptr;
    SpaceId space{};
    std::vector<Bell> bells{};
    Bells doorbells{};
    std::vector<std::uint32_t> untold{};  // bells that have some
    SourceHabit habit{};
  };

  Context* find(shm::ContextMemory& memory);
  Bell& bell_at(shm::ContextMemory& memory, std::uint32_t doorbell);
  bool answer(Context& context, bool rung, int left);
  static void ring(Context& context, std::size_t index, int& left);
  static void tell_shared(Bell& bell, int& left);

  unsigned index_;
  std::vector<Context> contexts_;
};

}  // namespace rnic::core
