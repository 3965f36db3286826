// Which CPU core a worker without a core of its own should run on.
//
// A thread under SCHED_FIFO wakes on the core where it went to sleep, even if that core is busy and others are idle.
// If it is the core of the *ringer*, the application thread that rings the doorbell and then polls, the two take turns
// for ever; on different cores they run in parallel, and the worker hardly sleeps. Only an explicit move helps, and
// after it the worker stays where it is: so it is moved once, and its affinity is left as it was.
//
// If no core is idle, one from which nobody rings will do: whatever runs there gives us no work. Both ends of a
// connection may poll where one posts, and the kernel moves them about.
//
// Pure: the cores of ringers and the idle times of cores go in, a core comes out.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/time.hpp"

namespace rnic::core {

class CpuChoice {
 public:
  static constexpr std::size_t kCpusMax = 1024;
  // Idle times are looked at twice, so far apart: the kernel counts them in hundredths of a second.
  static constexpr Duration kLook = milliseconds(100);
  // A look that is older says nothing of now.
  static constexpr Duration kLookOld = milliseconds(400);
  // A core that was idle for less than three quarters of the time is in use.
  static constexpr std::int64_t kIdleQuarters = 3;
  // Between looks that find no idle core, and between moves that did not last: doubling up to this.
  static constexpr Duration kPauseMax = seconds(3);
  // Where no core is idle: so many rings from the worker's own core, and none from another, are reason to go there.
  static constexpr unsigned kCrowdRings = 1000;
  static constexpr Duration kCrowdPause = milliseconds(20);  // between such moves

  // A ringer woke the worker, and said on which core it runs (any number: it is an application's word); `here`: where
  // the worker does.
  void on_ring(std::uint32_t cpu, bool here, Instant now) {
    if (here)
      ++rings_here_;
    else if (cpu < kCpusMax)
      rung_at_[cpu] = now;
  }

  // After a ring from here. True: time to look; then choose().
  bool wants_look(Instant now) const { return now >= look_at_; }
  // After a ring from here. True: then choose_without_ringer().
  bool is_crowded(Instant now) const {
    return rings_here_ >= kCrowdRings && now < none_idle_until_ && now - crowd_since_ >= kCrowdPause;
  }

  // `idle`: of each core how long it has been idle since some instant, or a negative number for one that is out of
  // question: the worker may not run there, or sits there. The core to move to, or -1.
  int choose(std::span<const Duration> idle, Instant now) {
    const Duration span = now - looked_at_;
    const bool comparable = looked_at_ != kNever && span >= kLook && span <= kLookOld && before_.size() == idle.size();
    if (!comparable) {
      before_.assign(idle.begin(), idle.end());
      looked_at_ = now;
      look_at_ = now + kLook;
      return -1;
    }
    int best = -1;
    Duration longest{};
    for (std::size_t cpu = 0; cpu < idle.size(); ++cpu) {
      if (idle[cpu].ns < 0 || before_[cpu].ns < 0) continue;
      const Duration rested = idle[cpu] - before_[cpu];
      if (rested * 4 < span * kIdleQuarters || rested <= longest) continue;
      longest = rested;
      best = static_cast<int>(cpu);
    }
    const bool lasted = best >= 0 && looked_at_ >= lasted_at_;
    pause_ = lasted ? kLook : pause_ * 2 < kPauseMax ? pause_ * 2 : kPauseMax;
    looked_at_ = kNever;
    look_at_ = now + pause_;
    lasted_at_ = look_at_ + kPauseMax;
    if (best < 0) none_idle_until_ = look_at_ + kLookOld;
    return best;
  }

  // `open`: of each core whether the worker may run there and does not now. The first from which nobody has rung since
  // this was asked last, or -1; -1 too if that was long ago.
  int choose_without_ringer(std::span<const bool> open, Instant now) {
    int found = -1;
    const std::size_t cores = now - crowd_since_ <= kLookOld ? std::min(open.size(), kCpusMax) : 0;
    for (std::size_t cpu = 0; found < 0 && cpu < cores; ++cpu)
      if (open[cpu] && rung_at_[cpu] < crowd_since_) found = static_cast<int>(cpu);
    crowd_since_ = now;
    rings_here_ = 0;
    return found;
  }

 private:
  std::vector<Duration> before_;
  Instant looked_at_ = kNever;
  Instant look_at_{0};
  Instant lasted_at_{0};  // a move lasted if the core is not shared again before this
  Duration pause_ = kLook;
  std::array<Instant, kCpusMax> rung_at_{};  // from which core last
  unsigned rings_here_ = 0;                  // since crowd_since_
  Instant crowd_since_{0}, none_idle_until_{0};
};

// The idle times of /proc/stat (proc(5)), each at its core's place, waits for disks and the time of whoever is nice
// counted; `tick`: the unit that it counts in. Cores that it does not name, or names without sense, get a negative
// number.
inline void read_idle_times(std::string_view stat, Duration tick, std::span<Duration> idle) {
  for (Duration& each : idle) each = Duration{-1};
  const auto number = [&](std::string_view& line) -> std::int64_t {
    while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
    if (line.empty() || line.front() < '0' || line.front() > '9') return -1;
    std::int64_t value = 0;
    for (; !line.empty() && line.front() >= '0' && line.front() <= '9'; line.remove_prefix(1)) {
      if (value > INT64_MAX / 100) return -1;
      value = value * 10 + (line.front() - '0');
    }
    return value;
  };
  while (!stat.empty()) {
    std::string_view line = stat.substr(0, stat.find('\n'));
    stat.remove_prefix(line.size() < stat.size() ? line.size() + 1 : stat.size());
    if (!line.starts_with("cpu") || line.size() < 4 || line[3] == ' ') continue;
    line.remove_prefix(3);
    const std::int64_t cpu = number(line);
    if (cpu < 0 || static_cast<std::size_t>(cpu) >= idle.size()) continue;
    std::int64_t field[5] = {};  // user, nice, system, idle, iowait
    for (std::int64_t& each : field) each = number(line);
    std::int64_t sum = 0;
    bool sense = true;
    for (const std::int64_t each : {field[1], field[3], field[4]}) {
      sense &= each >= 0 && each < INT64_MAX / 4 / tick.ns;
      sum += sense ? each : 0;
    }
    if (sense) idle[static_cast<std::size_t>(cpu)] = tick * sum;
  }
}

}  // namespace rnic::core
