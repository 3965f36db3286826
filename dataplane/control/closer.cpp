#include "control/closer.hpp"

#include <pthread.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>

namespace rnic::control {

struct Closer::State {
  struct Owner {
    std::deque<int> open;
    bool being_served = false;
  };
  std::mutex mutex;
  std::condition_variable work_there;
  std::unordered_map<pid_t, Owner> owners;
  std::size_t waiting = 0;
  unsigned threads = 0, idle = 0;
  bool ending = false;

  std::unordered_map<pid_t, Owner>::iterator next() {
    for (auto at = owners.begin(); at != owners.end(); ++at)
      if (!at->second.being_served && !at->second.open.empty()) return at;
    return owners.end();
  }
};

Closer::Closer() : state_(std::make_shared<State>()) {}

Closer::~Closer() {
  const std::lock_guard guard(state_->mutex);
  state_->ending = true;
  state_->work_there.notify_all();
}

void Closer::close(int fd, pid_t owner) {
  const std::lock_guard guard(state_->mutex);
  state_->owners[owner].open.push_back(fd);
  ++state_->waiting;
  if (state_->idle > 0) {
    state_->work_there.notify_one();
    return;
  }
  if (state_->threads >= kThreadsMax) return;
  try {
    std::thread(work, state_).detach();
    ++state_->threads;
  } catch (const std::system_error&) {
    // With the next one, then.
  }
}

std::size_t Closer::waiting(pid_t owner) const {
  const std::lock_guard guard(state_->mutex);
  const auto found = state_->owners.find(owner);
  return found == state_->owners.end() ? 0 : found->second.open.size() + (found->second.being_served ? 1 : 0);
}

std::size_t Closer::waiting() const {
  const std::lock_guard guard(state_->mutex);
  return state_->waiting;
}

void Closer::work(std::shared_ptr<State> state) {
  pthread_setname_np(pthread_self(), "rnic-closer");
  std::unique_lock guard(state->mutex);
  for (;;) {
    const auto found = state->next();
    if (found == state->owners.end()) {
      if (state->ending || state->idle > 0) break;  // one waits for more
      ++state->idle;
      state->work_there.wait(guard);
      --state->idle;
      continue;
    }
    const pid_t owner = found->first;
    const int fd = found->second.open.front();
    found->second.open.pop_front();
    found->second.being_served = true;
    guard.unlock();
    ::close(fd);
    guard.lock();
    --state->waiting;
    State::Owner& served = state->owners.at(owner);
    served.being_served = false;
    if (served.open.empty()) state->owners.erase(owner);
  }
  --state->threads;
}

}  // namespace rnic::control
