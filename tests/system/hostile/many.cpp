// More of something than there is for all: contexts, and connections that never introduce themselves.
#include <sys/resource.h>
#include <unistd.h>

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

}  // namespace

// Bare ones, without what a libibverbs makes besides, and their descriptors thrown away.
int many_contexts(const Options& options) {
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
    held.push_back(std::move(connection));
  }
  attacking();
  say(std::to_string(held.size()) + " contexts; " + why);
  hold(options);
  return 0;
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
