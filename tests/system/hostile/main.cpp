// hostile ATTACK [--daemon NAME] [--seconds S] [--seed N] [--count N] [--bulk] [--shared]
#include <signal.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "system/hostile/hostile.hpp"

namespace rnic::hostile {

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void attacking() { say("attacking"); }

Seconds now() {
  timespec at{};
  clock_gettime(CLOCK_MONOTONIC, &at);
  return static_cast<Seconds>(at.tv_sec) + static_cast<Seconds>(at.tv_nsec) * 1e-9;
}

Pair::Pair(const std::string& socket, std::uint32_t depth)
    : Bench(socket),
      channel(socket),
      listener(bare::listening(channel, bare::address_of(app.device()))),
      caller(app.queue_pair(pd, cq.handle, cq.handle, depth)),
      called(app.queue_pair(pd, cq.handle, cq.handle, depth)) {
  bare::join(channel, listener, caller, called);
}

namespace {

struct Row {
  const char* name;
  int (*run)(const Options&);
  const char* what;
};

constexpr Row kRows[] = {
    {"bystander", bystander, "no attack: who suffers from them"},
    {"slow-page", slow_page, "the target of a Write is a page that does not come"},
};

int usage() {
  std::fprintf(stderr, "hostile ATTACK [--daemon NAME] [--seconds S] [--seed N] [--count N] [--bulk] [--shared]\n");
  for (const Row& row : kRows) std::fprintf(stderr, "  %-18s %s\n", row.name, row.what);
  return 2;
}

}  // namespace
}  // namespace rnic::hostile

int main(int argc, char** argv) {
  using namespace rnic::hostile;
  if (argc < 2) return usage();
  Options options;
  std::string daemon = "default";
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return i + 1 < argc ? argv[++i] : ""; };
    if (word == "--daemon")
      daemon = value();
    else if (word == "--seconds")
      options.seconds = std::atof(value());
    else if (word == "--seed")
      options.seed = std::strtoull(value(), nullptr, 0);
    else if (word == "--count")
      options.count = static_cast<std::uint32_t>(std::strtoul(value(), nullptr, 0));
    else if (word == "--bulk")
      options.bulk = true;
    else if (word == "--shared")
      options.shared = true;
    else if (word.starts_with("--"))
      return usage();
    else
      options.words.push_back(word);
  }
  options.socket = rnic::bare::socket_of(daemon);
  signal(SIGPIPE, SIG_IGN);
  for (const Row& row : kRows)
    if (std::strcmp(row.name, argv[1]) == 0) return row.run(options);
  return usage();
}
