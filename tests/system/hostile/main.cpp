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

namespace {

bare::QueuePair pair_of(Bench& bench, std::uint32_t depth, rnic_face face) {
  if (face == RNIC_FACE_IWARP) return bench.app.queue_pair(bench.pd, bench.cq.handle, bench.cq.handle, depth);
  bare::QueuePair made = bench.app.adopt(bench.app.try_datagram_pair(bench.pd, bench.cq.handle, depth));
  bench.app.to_rts(made.number, kQkey);
  return made;
}

}  // namespace

Pair::Pair(const std::string& socket, std::uint32_t depth, rnic_face face)
    : Bench(socket, 4096, face),
      channel(socket),
      listener(bare::listening(channel, bare::address_of(app.device()), 128,
                               face == RNIC_FACE_IWARP ? bare::Channel::kTcp : bare::Channel::kUdp)),
      caller(pair_of(*this, depth, face)),
      called(pair_of(*this, depth, face)) {
  if (face == RNIC_FACE_IWARP) bare::join(channel, listener, caller, called);
}

namespace {

struct Row {
  const char* name;
  int (*run)(const Options&);
  const char* what;
};

constexpr Row kRows[] = {
    {"bystander", bystander, "no attack: who suffers from them"},
    {"bells", bells, "all doorbells, all the time"},
    {"block-eventfd", block_eventfd, "the descriptor that tells of a channel's events is full"},
    {"busy", busy, "no attack: long answers, one behind the other"},
    {"claim", claim, "another process's idle queue pair is connected"},
    {"contexts", many_contexts, "as many contexts as go"},
    {"datagrams", datagrams, "datagrams to one that takes none, to a full group, to oneself"},
    {"exec-held", exec_held, "a program is replaced, and a child of fork holds its context"},
    {"greetings", greetings, "calls between RoCE faces that nobody answers, of callers that go"},
    {"groups", groups, "all groups, and all places in them, left and taken again"},
    {"ids", ids, "a process with thousands of resolved ids is killed"},
    {"inquiries", inquiries, "the same for datagrams"},
    {"linger", linger, "descriptors are sent whose close() waits"},
    {"loose", loose, "thousands of queue pairs in Error ring"},
    {"map-bomb", map_bomb, "regions of sparse files fill the daemon's addresses"},
    {"meetings", meetings, "queue pairs of a RoCE face that call each other, and are refused"},
    {"random", random, "messages and ring entries that are nearly right"},
    {"resizes", resizes, "a completion queue of a million entries is resized, with all of them unpolled"},
    {"ringers", ringers, "as many contexts as go, and each rings every 5 ms"},
    {"silent", silent, "connections that never say HELLO"},
    {"slow-page", slow_page, "the target of a Write is a page that does not come"},
    {"stale-thread", stale_thread, "the thread is gone by whose number memory was reached"},
    {"steal-channel", steal_channel, "another process's completion channel, by its cookie"},
    {"streams", streams, "streams in streaming mode: another's, and as many as go that nobody hears"},
    {"swell", swell, "a file is cut short under the daemon, and written to"},
    {"watches", watches, "the user's epoll watches are used up"},
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
