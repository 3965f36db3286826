// An honest application: two queue pairs of its own, one writing to the other, a control call now and then, and now
// and then a newcomer who asks for `rnic show`. It tells how long it ever waited and how much it got done since it was
// told to begin (SIGUSR1), on one line of JSON, when it is told to end (SIGTERM) or its time is over. What fails ends
// it with 1.
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>

#include "system/hostile/hostile.hpp"

namespace rnic::hostile {
namespace {

constexpr std::uint32_t kWriteBytes = 4096;
constexpr std::uint32_t kBulkBytes = 65536;
constexpr std::uint32_t kBulkDepth = 16;
constexpr long kPaceNs = 1'000'000;
constexpr long kControlPaceMs = 20;
constexpr long kNewcomerPaceMs = 200;
constexpr Seconds kHungAfter = 120;

std::atomic<bool> g_end = false;
std::atomic<int> g_begun = 0;  // how often it was told to begin to count anew, and when
std::atomic<Seconds> g_begun_at = 0;

// How long each of many took.
struct Waits {
  std::uint64_t count = 0;
  std::uint64_t over_10ms = 0;
  Seconds longest = 0;

  void add(Seconds wait) {
    ++count;
    if (wait > 0.010) ++over_10ms;
    longest = std::max(longest, wait);
  }
};

// What was done in each second, for the worst of them.
class Rate {
 public:
  explicit Rate(Seconds start) : second_start_(start) {}
  void add(Seconds at) {
    roll(at);
    ++in_second_;
  }
  std::uint64_t least(Seconds at) {
    roll(at);
    return seconds_ == 0 ? 0 : least_;
  }

 private:
  void roll(Seconds at) {
    for (; at >= second_start_ + 1; second_start_ += 1, in_second_ = 0) {
      least_ = seconds_++ == 0 ? in_second_ : std::min(least_, in_second_);
    }
  }
  Seconds second_start_;
  std::uint64_t in_second_ = 0, least_ = 0, seconds_ = 0;
};

// What is counted, from the last time on that it was told to begin.
struct Work {
  Waits waits;
  Seconds start = now();
  Rate rate{start};
  int begun = 0;

  void add(Seconds from) {
    if (const int told = g_begun; begun != told) *this = {}, begun = told, start = g_begun_at, rate = Rate(start);
    waits.add(now() - from);
    rate.add(now());
  }
};

// Of one thread: its calls of control, or its newcomers.
struct Calls {
  Waits waits;
  std::uint64_t turned_away = 0;
  std::string why;
  int begun = 0;

  void add(Seconds from) {
    if (const int told = g_begun; begun != told) *this = {}, begun = told;
    waits.add(now() - from);
  }
};

struct Bystander : Pair {
  explicit Bystander(const Options& options) : Pair(options.socket, 64) {
    constexpr std::size_t kSize = std::size_t{kBulkBytes} * kBulkDepth;
    bare::Descriptor file;
    from = app.region(pd, bare::private_memory(kSize), kSize, bare::kAllAccess);
    std::byte* at = options.shared ? bare::shared_memory(kSize, file) : bare::private_memory(kSize);
    to = app.region(pd, at, kSize, bare::kAllAccess, file.get());
  }

  void write(std::uint32_t slot, std::uint32_t length) {
    const std::size_t offset = std::size_t{slot} * length;
    app.post_write(caller, from.sge(offset, length), to.sge(offset, length).address, to.stag);
  }
  // One completion, if there is one. Anything but a success is the end.
  bool completed() {
    const auto entry = cq.poll();
    if (!entry) return false;
    if (entry->status != RNIC_WC_SUCCESS)
      bare::fail("the bystander's Write failed, status " + std::to_string(entry->status) + ", detail " +
                 std::to_string(entry->detail));
    return true;
  }
  template <typename Done>
  void wait_for(Done&& done) {
    const Seconds start = now();
    for (std::uint32_t tries = 0; !done(); ++tries) {
      sched_yield();
      if (tries % 1024 == 1023 && now() - start > kHungAfter) bare::fail("the bystander's Write never completed");
    }
  }

  bare::Region from, to;
};

void pause_ms(long ms) {
  const timespec pause{0, ms * 1'000'000};
  nanosleep(&pause, nullptr);
}

// Its connection belongs to this thread once the queue pairs are joined.
void make_calls(Bystander& b, Calls& calls) {
  std::byte* spare = bare::private_memory(kWriteBytes);
  while (!g_end) {
    const auto ask = [&](const char* what, auto&& call) {
      const Seconds start = now();
      bare::Answer answer = call();
      calls.add(start);
      if (!answer.good()) bare::fail(std::string("the bystander's ") + what + ": " + answer.words());
      return answer;
    };
    // Each of these needs the worker's word.
    const auto made = ask("REG_MR", [&] { return b.app.try_region(b.pd, spare, kWriteBytes, bare::kAllAccess); });
    const std::uint32_t region = made.as<rnic_reg_mr_reply>().mr;
    ask("QUERY_QP", [&] { return b.app.control.by_handle(RNIC_QUERY_QP, b.caller.number); });
    ask("DEREG_MR", [&] { return b.app.control.by_handle(RNIC_DEREG_MR, region); });
    pause_ms(kControlPaceMs);
  }
}

void come_anew(const std::string& socket, Calls& newcomers) {
  while (!g_end) {
    const Seconds start = now();
    bare::Connection newcomer(socket);
    bare::Answer shown;
    if (newcomer.connected()) shown = newcomer.hello(RNIC_CLIENT_ADMIN);
    if (shown.good()) shown = newcomer.ask(RNIC_SHOW, rnic_show{"dev"});
    newcomers.add(start);
    if (!shown.good()) {
      ++newcomers.turned_away;
      newcomers.why = shown.words();
    }
    pause_ms(kNewcomerPaceMs);
  }
}

// A Write each ms: how long until its last octet is there and it is completed.
void paced(Bystander& b, Work& work, Seconds end) {
  const auto word = [](std::byte* at) { return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at)); };
  std::byte* sent = b.from.at + kWriteBytes - sizeof(std::uint64_t);
  std::byte* arrived = b.to.at + kWriteBytes - sizeof(std::uint64_t);
  timespec next{};
  clock_gettime(CLOCK_MONOTONIC, &next);
  for (std::uint64_t number = 1; !g_end && now() < end; ++number) {
    word(sent).store(number);
    const Seconds start = now();
    b.write(0, kWriteBytes);
    b.wait_for([&] { return b.completed(); });
    b.wait_for([&] { return word(arrived).load() == number; });
    work.add(start);
    next.tv_nsec += kPaceNs;
    if (next.tv_nsec >= 1'000'000'000) next.tv_nsec -= 1'000'000'000, ++next.tv_sec;
    timespec current{};
    clock_gettime(CLOCK_MONOTONIC, &current);
    if (current.tv_sec > next.tv_sec || (current.tv_sec == next.tv_sec && current.tv_nsec > next.tv_nsec)) {
      next = current;  // what was missed is not made up for
    } else {
      clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, nullptr);
    }
  }
}

// As many as go; how long between two completions.
void bulk(Bystander& b, Work& work, Seconds end) {
  for (std::uint32_t slot = 0; slot < kBulkDepth; ++slot) b.write(slot, kBulkBytes);
  Seconds last = now();
  for (std::uint32_t slot = 0; !g_end && now() < end; slot = (slot + 1) % kBulkDepth) {
    b.wait_for([&] { return b.completed(); });
    work.add(last);
    last = now();
    b.write(slot, kBulkBytes);
  }
  for (std::uint32_t left = 0; left < kBulkDepth; ++left) b.wait_for([&] { return b.completed(); });
}

}  // namespace

int bystander(const Options& options) {
  struct sigaction action {};
  action.sa_handler = [](int) { g_end = true; };
  sigaction(SIGTERM, &action, nullptr);
  action.sa_handler = [](int) {
    g_begun_at = now();
    ++g_begun;
  };
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);

  Bystander b(options);
  b.write(0, kWriteBytes);
  b.wait_for([&] { return b.completed(); });

  Calls calls, newcomers;
  std::thread caller([&] { make_calls(b, calls); }), door([&] { come_anew(options.socket, newcomers); });
  say("ready");
  Work work;
  (options.bulk ? bulk : paced)(b, work, now() + options.seconds);
  const Seconds took = now() - work.start;
  const std::uint64_t least = work.rate.least(now());
  g_end = true;
  caller.join();
  door.join();
  std::printf(
      "{\"seconds\": %.3f, \"writes\": %llu, \"per_second\": %.1f, \"least_in_a_second\": %llu, \"mbit_s\": %.1f, "
      "\"longest_wait_ms\": %.1f, \"waits_over_10ms\": %llu, \"control_calls\": %llu, \"control_calls_per_second\": "
      "%.1f, \"longest_control_ms\": %.1f, "
      "\"newcomers\": %llu, \"longest_newcomer_ms\": %.1f, \"turned_away\": %llu, \"why\": \"%s\"}\n",
      took, static_cast<unsigned long long>(work.waits.count), static_cast<double>(work.waits.count) / took,
      static_cast<unsigned long long>(least),
      static_cast<double>(work.waits.count) * (options.bulk ? kBulkBytes : kWriteBytes) * 8 / took / 1e6,
      work.waits.longest * 1e3, static_cast<unsigned long long>(work.waits.over_10ms),
      static_cast<unsigned long long>(calls.waits.count), static_cast<double>(calls.waits.count) / took,
      calls.waits.longest * 1e3, static_cast<unsigned long long>(newcomers.waits.count), newcomers.waits.longest * 1e3,
      static_cast<unsigned long long>(newcomers.turned_away), newcomers.why.c_str());
  return 0;
}

}  // namespace rnic::hostile
