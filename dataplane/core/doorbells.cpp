#include "core/doorbells.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

namespace rnic::core {
namespace {

constexpr int kBellsMin = 16;              // of an application and a turn, however many ring
constexpr std::uint32_t kPostsMax = 1024;  // that are counted of a queue in a turn: it is the application's word

}  // namespace

void Doorbells::add(shm::ContextMemory& memory, SpaceId space) {
  contexts_.push_back(std::make_unique<Context>());
  contexts_.back()->memory = &memory;
  contexts_.back()->space = space;
  memory.set_asleep(index_, true);
}

void Doorbells::remove(shm::ContextMemory& memory) {
  if (const Context* const context = find(memory); context != nullptr && context->linked()) --ringing_count_;
  std::erase_if(active_, [&](const Context* context) { return context->memory == &memory; });
  std::erase_if(contexts_, [&](const auto& context) { return context->memory == &memory; });
}

Doorbells::Context* Doorbells::find(shm::ContextMemory& memory) {
  for (const auto& context : contexts_)
    if (context->memory == &memory) return context.get();
  return nullptr;
}

Doorbells::Bell& Doorbells::bell_at(shm::ContextMemory& memory, std::uint32_t doorbell) {
  Context* context = find(memory);
  RNIC_ASSERT(context != nullptr && doorbell < RNIC_DOORBELLS_MAX);
  if (context->bells.size() <= doorbell) context->bells.resize(doorbell + 1);
  return context->bells[doorbell];
}

void Doorbells::bind_send(shm::ContextMemory& memory, std::uint32_t doorbell, Device& device, qp::QueuePair& qp,
                          shm::SendQueue& queue) {
  bell_at(memory, doorbell) = {.kind = Bell::Kind::send, .device = &device, .qp = &qp, .queue = &queue};
}

void Doorbells::bind_send(shm::ContextMemory& memory, std::uint32_t doorbell, Device& device, ud::QueuePair& qp,
                          shm::SendQueue& queue) {
  bell_at(memory, doorbell) = {.kind = Bell::Kind::send, .device = &device, .ud = &qp, .queue = &queue};
}

void Doorbells::bind_receive(shm::ContextMemory& memory, std::uint32_t doorbell, Device& device, qp::QueuePair& qp,
                             shm::ReceiveQueue& queue) {
  bell_at(memory, doorbell) = {.kind = Bell::Kind::receive, .device = &device, .qp = &qp, .queue = &queue};
}

void Doorbells::bind_receive(shm::ContextMemory& memory, std::uint32_t doorbell, Device& device, ud::QueuePair& qp,
                             shm::ReceiveQueue& queue) {
  bell_at(memory, doorbell) = {.kind = Bell::Kind::receive, .device = &device, .ud = &qp, .queue = &queue};
}

void Doorbells::bind_shared_receive(shm::ContextMemory& memory, std::uint32_t doorbell, Device& device,
                                    qp::QueuePair& qp) {
  Bell& bell = bell_at(memory, doorbell);
  bell.kind = Bell::Kind::shared;
  bell.shared.emplace_back(&device, &qp);
}

void Doorbells::bind_shared(shm::ContextMemory& memory, std::uint32_t doorbell, shm::SharedReceiveQueue& queue) {
  bell_at(memory, doorbell) = {.kind = Bell::Kind::shared, .queue = &queue};
}

void Doorbells::relay_shared(shm::ContextMemory& memory, std::uint32_t doorbell, unsigned worker) {
  RNIC_ASSERT(worker == index_ || wakes_ != nullptr);
  std::vector<unsigned>& relays = bell_at(memory, doorbell).relays;
  if (worker != index_ && std::find(relays.begin(), relays.end(), worker) == relays.end()) relays.push_back(worker);
}

void Doorbells::unbind(shm::ContextMemory& memory, std::uint32_t doorbell) {
  Context* const context = find(memory);
  if (context == nullptr) return;
  Bell& bell = bell_at(memory, doorbell);
  if (bell.queue != nullptr) bell.queue->unwatch();
  bell = {};
  context->watched.remove(doorbell);
}

void Doorbells::unbind_shared_receive(shm::ContextMemory& memory, std::uint32_t doorbell, qp::QueuePair& qp) {
  if (find(memory) == nullptr) return;
  Bell& bell = bell_at(memory, doorbell);
  std::erase_if(bell.shared, [&](const auto& entry) { return entry.second == &qp; });
  // Whoever has moved to a place that was told already is told once more.
  if (bell.untold != 0) bell.untold = bell.shared.size();
}

// ---- the turn -----------------------------------------------------------------------------

SourceHabit* Doorbells::answer(OwnCore& core, Instant now) {
  SourceHabit* poster = nullptr;
  posts_ = 0;
  watched_ = 0;
  for (Context* const context : active_) {
    look_at(*context);
    if (context->watched.size() == 0) continue;
    context->seen_at = now;
    context->watched.look([&](std::uint32_t bell, std::uint32_t posts) {
      posts_ += std::min(posts, kPostsMax);
      tell_posted(context->bells[bell]);
      poster = &context->habit;
    });
    watched_ += context->watched.size();
  }
  look_at_quiet(now);
  SourceHabit* const ringer = answer_rung(core, now);
  retire(now);
  return ringer != nullptr ? ringer : poster;
}

// A turn may be long where many ring: then it is these looks that are short beside it.
void Doorbells::look_at_quiet(Instant now) {
  const auto passed = static_cast<std::size_t>(std::clamp(now - looked_at_, Duration{0}, kQuietRound).ns);
  looked_at_ = now;
  const std::size_t due = contexts_.size() * passed / static_cast<std::size_t>(kQuietRound.ns);
  for (std::size_t left = std::min(std::max(kQuietLooks, due), contexts_.size()); left != 0; --left) {
    if (next_quiet_ >= contexts_.size()) next_quiet_ = 0;
    look_at(*contexts_[next_quiet_++]);
  }
}

// If it rings it waits for its answer, and is active if there is room.
void Doorbells::look_at(Context& context) {
  if (context.linked() || !context.rings(index_)) return;
  ringing_.push_back(context);
  ++ringing_count_;
  if (context.is_active || active_.size() >= kActiveMax) return;
  context.is_active = true;
  context.memory->set_asleep(index_, false);
  active_.push_back(&context);
}

// In turn, as one process may have many contexts: what a turn answers is divided by those that wait, and who still
// rings is behind them.
SourceHabit* Doorbells::answer_rung(OwnCore& core, Instant now) {
  SourceHabit* ringer = nullptr;
  const bool slept = std::exchange(slept_, false);
  const int most = std::max(kBellsMin, Bells::kTurnMax / std::max(static_cast<int>(ringing_count_), 1));
  int left = Bells::kTurnMax;
  for (std::size_t waiting = ringing_count_; waiting != 0 && left > 0; --waiting) {
    Context& context = *ringing_.pop_front();
    --ringing_count_;
    context.seen_at = now;
    if (slept) hear_from(context, core, now);
    int bells = most;
    if (answer(context, bells)) ringer = &context.habit;
    left -= 1 + most - bells;
    look_at(context);
  }
  return ringer;
}

// Whoever rings now and does not see that it is active no more is found by the looks at those that are not.
void Doorbells::retire(Instant now) {
  const Duration active{kActive.ns * static_cast<std::int64_t>(kActiveUsual) /
                        static_cast<std::int64_t>(std::max(kActiveUsual, active_.size()))};
  std::erase_if(active_, [&](Context* context) {
    context->is_active = context->linked() || now <= context->seen_at + active;
    if (!context->is_active) context->memory->set_asleep(index_, true);
    return !context->is_active;
  });
}

// Who rings as if we slept says from which processor. What it said while we did not is of another time: set_asleep().
void Doorbells::hear_from(Context& context, OwnCore& core, Instant now) {
  const std::uint32_t from = take_rung_from(context);
  if (from != 0) core.on_rung_from(from - 1, now);
}

std::uint32_t Doorbells::take_rung_from(Context& context) {
  const std::atomic_ref said(context.memory->doorbells(index_).rung_from);
  const std::uint32_t from = said.load(std::memory_order_relaxed);
  if (from != 0) said.store(0, std::memory_order_relaxed);
  return from;
}

bool Doorbells::answer(Context& context, int& left) {
  bool busy = false;
  // Of shared receive queues of many queue pairs: those that were not told in the last turn.
  while (left > 0 && !context.untold.empty()) {
    Bell& bell = context.bells[context.untold.front()];
    tell_shared(bell, left);
    busy = true;
    if (bell.untold == 0) context.untold.erase(context.untold.begin());
  }
  rnic_doorbells& bells = context.memory->doorbells(index_);
  if (!Bells::any_rung(bells)) return busy;
  return context.doorbells.answer(bells, context.bells.size(), left, [&](std::size_t index) {
    if (index < context.bells.size()) ring(context, index, left);
  }) || busy;
}

void Doorbells::ring(Context& context, std::size_t index, int& left) {
  Bell& bell = context.bells[index];
  switch (bell.kind) {
    case Bell::Kind::none:
      break;
    case Bell::Kind::send:
      // Where others have all places it goes on ringing.
      if (context.is_active && watched_ < kWatchedMax &&
          context.watched.add(*bell.queue, static_cast<std::uint32_t>(index)))
        ++watched_;
      tell_posted(bell);
      break;
    case Bell::Kind::receive:
      (void)bell.queue->watch();
      if (bell.ud != nullptr)
        bell.device->receive_posted(*bell.ud);
      else
        bell.device->receive_posted(*bell.qp);
      break;
    case Bell::Kind::shared: {
      // Once it is watched all are told: one may have found nothing before, and asked to be.
      if (bell.queue != nullptr) (void)bell.queue->watch();
      for (const unsigned worker : bell.relays)
        if (context.memory->ring(worker, static_cast<std::uint32_t>(index))) wakes_->wake(worker);
      const bool listed = bell.untold != 0;
      bell.untold = bell.shared.size();  // all: those that were told before this ring, too
      if (listed) break;
      tell_shared(bell, left);
      if (bell.untold != 0) context.untold.push_back(static_cast<std::uint32_t>(index));
      break;
    }
  }
}

void Doorbells::tell_posted(const Bell& bell) {
  if (bell.ud != nullptr)
    bell.device->work_posted(*bell.ud);
  else
    bell.device->work_posted(*bell.qp);
}

void Doorbells::tell_shared(Bell& bell, int& left) {
  if (bell.shared.empty()) bell.untold = 0;
  for (; left > 0 && bell.untold != 0; --left, --bell.untold) {
    if (bell.next >= bell.shared.size()) bell.next = 0;
    const auto& [device, qp] = bell.shared[bell.next++];
    device->receive_posted(*qp);
  }
}

bool Doorbells::any_waits() const {
  return std::any_of(contexts_.begin(), contexts_.end(), [&](const auto& context) {
    return context->rings(index_) || (watched_ != 0 && context->watched.any_posted());
  });
}

void Doorbells::set_asleep(bool asleep) {
  slept_ = !asleep;
  for (Context* const context : active_) {
    if (asleep) {
      context->watched.unwatch();
      (void)take_rung_from(*context);
    } else {
      context->watched.clear([&](std::uint32_t bell, std::uint32_t) { tell_posted(context->bells[bell]); });
    }
    context->memory->set_asleep(index_, asleep);
  }
  if (asleep) return;
  watched_ = 0;
  for (const auto& context : contexts_) look_at(*context);
}

void Doorbells::touch_all_of(SpaceId space) {
  for (const auto& context : contexts_) {
    if (context->space != space) continue;
    for (const Bell& bell : context->bells)
      if (bell.kind == Bell::Kind::send) {
        if (bell.ud != nullptr)
          bell.device->touch(*bell.ud);
        else
          bell.device->touch(*bell.qp);
      }
  }
}

}  // namespace rnic::core
