// More of something than there is for all: contexts, and connections that never introduce themselves.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <deque>

#include "system/hostile/hostile.hpp"

namespace rnic::hostile {
namespace {

void may_have_descriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void hold(const Options& options) {
  const Seconds start = now();
  while (now() - start < options.seconds) usleep(10'000);
}

// Bare ones, without what a libibverbs makes besides. `keep` takes what it wants of their descriptors.
template <typename Keep>
std::deque<bare::Connection> open_contexts(const Options& options, Keep keep) {
  may_have_descriptors();
  std::deque<bare::Connection> held;
  std::string why = "never refused";
  const std::uint32_t most = options.count != 0 ? options.count : 5000;
  rnic_open_context request{};
  {
    const bare::Application first(options.socket);
    std::memcpy(request.device, first.device().name, sizeof request.device);
  }
  while (held.size() < most) {
    bare::Connection connection(options.socket);
    bare::Answer answer;
    if (connection.connected()) answer = connection.hello(RNIC_CLIENT_VERBS);
    if (answer.good()) answer = connection.ask(RNIC_OPEN_CONTEXT, request);
    if (!answer.good()) {
      why = answer.words();
      break;
    }
    keep(answer);
    held.push_back(std::move(connection));
  }
  attacking();
  say(std::to_string(held.size()) + " contexts; " + why);
  return held;
}

}  // namespace

int many_contexts(const Options& options) {
  const auto held = open_contexts(options, [](bare::Answer&) {});
  hold(options);
  return 0;
}

// Each rings often enough to count as active: one store, and no system call.
int ringers(const Options& options) {
  std::vector<rnic_doorbells*> areas;
  const auto held = open_contexts(options, [&](bare::Answer& answer) {
    const bare::Descriptor area = answer.take(1);
    void* const at = mmap(nullptr, sizeof(rnic_doorbells), PROT_READ | PROT_WRITE, MAP_SHARED, area.get(), 0);
    if (at != MAP_FAILED) areas.push_back(static_cast<rnic_doorbells*>(at));
  });
  const Seconds start = now();
  while (now() - start < options.seconds) {
    for (rnic_doorbells* area : areas) std::atomic_ref(area->any).store(1, std::memory_order_relaxed);
    usleep(5'000);
  }
  return areas.size() == held.size() ? 0 : 1;
}

// And again whenever one is let go.
int silent(const Options& options) {
  may_have_descriptors();
  std::deque<bare::Connection> held;
  const std::uint32_t most = options.count != 0 ? options.count : 9000;
  std::uint32_t made = 0;
  const auto fill = [&] {
    // Those that were ended by the other side make room for others.
    std::erase_if(held, [](bare::Connection& each) { return each.hear(0).status == bare::Answer::kEnded; });
    for (std::uint32_t tries = 0; held.size() < most && tries < 1000; ++tries) {
      bare::Connection connection(options.socket);
      if (!connection.connected()) return false;
      held.push_back(std::move(connection));
      ++made;
    }
    return held.size() < most;
  };
  while (fill() && made < 2 * most) {
  }
  attacking();
  const Seconds start = now();
  while (now() - start < options.seconds) {
    fill();
    usleep(200'000);
  }
  say(std::to_string(made) + " connections without a word, " + std::to_string(held.size()) + " of them at the end");
  return 0;
}

}  // namespace rnic::hostile
