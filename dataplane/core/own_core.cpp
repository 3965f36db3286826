#include "core/own_core.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace rnic::core {
namespace {

// Under SCHED_FIFO nobody else gets our core while we are busy, and with as many busy workers as cores
// the applications would not run at all until the kernel throttles us, after most of a second. So a
// worker leaves its core for at least kRest of every kRestEvery, sleeps counted.
constexpr Duration kRestEvery = milliseconds(1);
constexpr Duration kRest = microseconds(100);

// True: it is so now. Refused to ordinary users: then as everybody else.
bool set_realtime(bool on) {
  sched_param parameter{};
  parameter.sched_priority = on ? 1 : 0;
  return pthread_setschedparam(pthread_self(), on ? SCHED_FIFO : SCHED_OTHER, &parameter) == 0 && on;
}

}  // namespace

OwnCore::OwnCore(int cpu, bool realtime, bool crowded)
    : cpu_(cpu), wants_realtime_(realtime), nap_(crowded), stat_fd_(open("/proc/stat", O_RDONLY | O_CLOEXEC)) {}

OwnCore::~OwnCore() {
  if (stat_fd_ >= 0) close(stat_fd_);
}

void OwnCore::set_up_thread() const {
  if (cpu_ >= 0) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(static_cast<std::size_t>(cpu_), &cpus);
    pthread_setaffinity_np(pthread_self(), sizeof cpus, &cpus);
  }
  // Also while it waits: it is to go on at once.
  if (wants_realtime_) set_realtime(true);
}

void OwnCore::take(bool polls_always, Instant now) {
  set_polls_always(polls_always);
  begin_stretch(now);
}

void OwnCore::set_polls_always(bool polls) {
  realtime_ = set_realtime(wants_realtime_ && !polls);
  // Others are put on idle cores by the scheduler itself.
  movable_ = realtime_ && cpu_ < 0 && stat_fd_ >= 0;
}

void OwnCore::begin_stretch(Instant now) {
  stretch_began_ = now;
  rested_ = {};
}

void OwnCore::give_way() const {
  if (realtime_) sched_yield();
}

bool OwnCore::rest(Instant now) {
  if (!realtime_ || now - stretch_began_ <= kRestEvery) return false;
  if (rested_ < kRest) {
    timespec left{0, (kRest - rested_).ns};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {  // a tap's frames are signals
    }
  }
  return true;
}

void OwnCore::on_rung_from(std::uint32_t cpu, Instant now) {
  const bool here = static_cast<int>(cpu) == sched_getcpu();
  nap_.on_rung(here, now);
  if (!movable_) return;
  choice_.on_ring(cpu, here, now);
  ringer_on_our_core_ |= here;
}

bool OwnCore::leave_ringer(Instant now) {
  if (!std::exchange(ringer_on_our_core_, false) || !move_from(now)) return false;
  nap_.on_rung(false, now);
  return true;
}

bool OwnCore::nap(Instant now) {
  if (!realtime_ || !nap_.pays(now)) return false;
  const timespec span{0, nap_.length().ns};
  nanosleep(&span, nullptr);
  nap_.begin();
  return true;
}

// The ringer is on our core, and cannot go on while we work there. Where another is better we move to it, once: under
// SCHED_FIFO a thread wakes where it slept. All cores stay open to us, as whoever set our affinity wants it.
bool OwnCore::move_from(Instant now) {
  if (!choice_.wants_look(now) && !choice_.is_crowded(now)) return false;
  cpu_set_t allowed;
  const int own = sched_getcpu();
  if (own < 0 || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  static_assert(CpuChoice::kCpusMax == CPU_SETSIZE);
  std::array<bool, CpuChoice::kCpusMax> open;
  for (std::size_t cpu = 0; cpu < open.size(); ++cpu)
    open[cpu] = CPU_ISSET(cpu, &allowed) && static_cast<int>(cpu) != own;
  int to = choice_.wants_look(now) ? find_idle(open, now) : -1;
  if (to < 0 && choice_.is_crowded(now)) to = choice_.choose_without_ringer(open, now);
  if (to < 0) return false;
  cpu_set_t there;
  CPU_ZERO(&there);
  CPU_SET(static_cast<std::size_t>(to), &there);
  if (sched_setaffinity(0, sizeof there, &there) != 0) return false;
  sched_setaffinity(0, sizeof allowed, &allowed);
  return true;
}

int OwnCore::find_idle(std::span<const bool> open, Instant now) {
  const ssize_t size = pread(stat_fd_, stat_text_.data(), stat_text_.size(), 0);
  if (size <= 0) return -1;
  const Duration tick{1'000'000'000 / std::max(sysconf(_SC_CLK_TCK), 1L)};
  read_idle_times({stat_text_.data(), static_cast<std::size_t>(size)}, tick, idle_times_);
  for (std::size_t cpu = 0; cpu < idle_times_.size(); ++cpu)
    if (!open[cpu]) idle_times_[cpu] = Duration{-1};
  return choice_.choose(idle_times_, now);
}

}  // namespace rnic::core
