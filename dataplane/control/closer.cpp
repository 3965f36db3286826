#include "control/closer.hpp"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/assert.hpp"

namespace rnic::control {

struct Closer::State {
  struct Open {
    int fd;
    std::uint64_t ticket;
  };
  struct Owner {
    std::deque<Open> open;
    bool being_served = false;
    std::size_t waiting() const { return open.size() + (being_served ? 1 : 0); }
  };
  std::mutex mutex;
  std::condition_variable work_there;
  std::unordered_map<pid_t, Owner> owners;
  std::vector<std::uint64_t> done;
  std::size_t waiting = 0;
  unsigned threads = 0, idle = 0;
  bool ending = false, news_wanted = false;
  int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  ~State() { ::close(event_fd); }

  void tell() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(event_fd, &one, sizeof one);
  }
  std::size_t waiting_of(pid_t owner) const {
    const auto found = owners.find(owner);
    return found == owners.end() ? 0 : found->second.waiting();
  }
  std::unordered_map<pid_t, Owner>::iterator next() {
    for (auto at = owners.begin(); at != owners.end(); ++at)
      if (!at->second.being_served && !at->second.open.empty()) return at;
    return owners.end();
  }
};

Closer::Closer() : state_(std::make_shared<State>()), event_fd_(state_->event_fd) { RNIC_ASSERT(event_fd_ >= 0); }

Closer::~Closer() {
  const std::lock_guard guard(state_->mutex);
  state_->ending = true;
  state_->work_there.notify_all();
}

void Closer::close(int fd, pid_t owner, std::uint64_t ticket) {
  const std::lock_guard guard(state_->mutex);
  state_->owners[owner].open.push_back({fd, ticket});
  ++state_->waiting;
  need_thread(state_);
}

std::size_t Closer::waiting(pid_t owner) const {
  const std::lock_guard guard(state_->mutex);
  return state_->waiting_of(owner);
}

std::size_t Closer::waiting() const {
  const std::lock_guard guard(state_->mutex);
  return state_->waiting;
}

void Closer::want_news(pid_t owner) {
  const std::lock_guard guard(state_->mutex);
  state_->news_wanted = true;
  if (state_->waiting_of(owner) < kShare) state_->tell();
}

std::vector<std::uint64_t> Closer::take_done() {
  const std::lock_guard guard(state_->mutex);
  std::uint64_t count;
  [[maybe_unused]] const ssize_t got = read(event_fd_, &count, sizeof count);
  return std::exchange(state_->done, {});
}

// Under the lock. Who waits may have been called for another already: whoever takes work asks again.
void Closer::need_thread(const std::shared_ptr<State>& state) {
  if (state->idle == 0 && state->threads >= kThreadsMax) return;
  if (state->next() == state->owners.end()) return;
  if (state->idle > 0) return state->work_there.notify_one();
  try {
    std::thread(work, state).detach();
    ++state->threads;
  } catch (const std::system_error&) {
    // With the next one, then.
  }
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
    const State::Open taken = found->second.open.front();
    found->second.open.pop_front();
    found->second.being_served = true;
    need_thread(state);
    guard.unlock();
    ::close(taken.fd);
    guard.lock();
    --state->waiting;
    State::Owner& served = state->owners.at(owner);
    served.being_served = false;
    if (served.open.empty()) state->owners.erase(owner);
    if (taken.ticket != 0) state->done.push_back(taken.ticket);
    if (std::exchange(state->news_wanted, false) || taken.ticket != 0) state->tell();
  }
  --state->threads;
}

}  // namespace rnic::control
