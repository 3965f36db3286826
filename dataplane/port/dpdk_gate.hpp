// Keeps DPDK's interrupt thread and the workers out of each other's way, for drivers that need it.
//
// The memif driver serves its control socket in EAL's interrupt thread, and there it unmaps the
// rings when the peer goes: under the hands of a worker that polls them just then. It has no lock
// for that. This file gives it one, with public calls only:
//
//   An eventfd that is always readable is one more interrupt source, so EAL's thread calls us in
//   every round of its loop, and there we keep it: we poll the very descriptors that it waits for,
//   take the lock of every gated port when one of them has something to say, and only then let it
//   go its round. In the next round it comes by here again, and the locks are released. So
//   whatever a driver does in that thread is done while no worker is inside a burst.
//
// A worker never waits for the lock: a burst that does not get it moves no frames. A round is rare
// (a peer comes or goes) and short.
//
// One per process. The thread sleeps in poll() while nothing happens.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

namespace rnic::port {

// What a port that needs the gate derives from. The on_ calls are made in EAL's interrupt thread
// with the lock held.
class Gated {
 public:
  virtual ~Gated() = default;

  // A round is over, or one of descriptors() is readable, or (`tick`) a while has passed.
  virtual void on_round(bool tick) = 0;
  // Further descriptors of this port to wait for.
  virtual void descriptors(std::vector<int>& out) const = 0;
  // Does it want ticks (every kTickMs)?
  virtual bool wants_ticks() const = 0;

  static constexpr int kTickMs = 100;

  bool try_lock() {
    return !locked_.load(std::memory_order_relaxed) && !locked_.exchange(true, std::memory_order_acquire);
  }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> locked_{false};
};

// The worker's way to a gated port: `if (Passage p(*this); p) ...`.
class Passage {
 public:
  explicit Passage(Gated& gated) : gated_(gated), open_(gated.try_lock()) {}
  ~Passage() {
    if (open_) gated_.unlock();
  }
  Passage(const Passage&) = delete;
  Passage& operator=(const Passage&) = delete;
  explicit operator bool() const { return open_; }

 private:
  Gated& gated_;
  bool open_;
};

// To be called before the driver of `gated` makes its first descriptor; DPDK is started. False: the
// sentence says why.
bool gate_add(Gated& gated, std::string& error);
// After it, no on_ call is made for it any more. `last` runs while EAL's thread is kept.
void gate_remove(Gated& gated, const std::function<void()>& last);
// The descriptors, or the wish for ticks, have changed outside of on_round().
void gate_look_again();

}  // namespace rnic::port
