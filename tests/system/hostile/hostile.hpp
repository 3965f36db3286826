// One program of attacks on a daemon, each by one application that may do whatever its user may, and the bystander
// beside them. `run` starts both and judges.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "system/bare/channel.hpp"

namespace rnic::hostile {

using Seconds = double;

struct Options {
  std::string socket;  // the daemon's
  Seconds seconds = 3;
  std::uint64_t seed = 1;
  std::uint32_t count = 0;  // of what the attack makes; 0: its own
  bool bulk = false;        // the bystander: as much as goes, instead of a Write each ms
  bool shared = false;      // the bystander: memory that the daemon maps
  std::vector<std::string> words;
};

// An attack says what it does on lines of standard output; the first, `attacking`, when all is made ready. Its exit
// code is 1 where it got what it may not have, or where it could not do what it wants to try; 77 where this machine
// does not allow the attack.
int bystander(const Options& options);
int bells(const Options& options);
int block_eventfd(const Options& options);
int busy(const Options& options);
int claim(const Options& options);
int datagrams(const Options& options);
int exec_held(const Options& options);
int greetings(const Options& options);
int groups(const Options& options);
int ids(const Options& options);
int inquiries(const Options& options);
int linger(const Options& options);
int loose(const Options& options);
int many_contexts(const Options& options);
int map_bomb(const Options& options);
int meetings(const Options& options);
int random(const Options& options);
int resizes(const Options& options);
int ringers(const Options& options);
int slow_page(const Options& options);
int silent(const Options& options);
int stale_thread(const Options& options);
int steal_channel(const Options& options);
int streams(const Options& options);
int swell(const Options& options);
int watches(const Options& options);

void say(const std::string& line);  // to standard output, at once
void attacking();

// A clock of our own for the attacks' ends.
Seconds now();

inline constexpr std::uint32_t kQkey = 0x1111;  // of all queue pairs for datagrams

// A context, a queue for completions, a domain: what nearly every attack begins with.
struct Bench {
  explicit Bench(const std::string& socket, std::uint32_t completions = 4096, rnic_face face = RNIC_FACE_IWARP)
      : app(socket, {.device = bare::device_of(socket, face)}),
        pd(app.protection_domain()),
        cq(app.completion_queue(completions)) {}

  bare::Application app;
  std::uint32_t pd;
  bare::CompletionQueue cq;
};

// And two queue pairs of it: connected, or of a RoCE face's two for datagrams.
struct Pair : Bench {
  explicit Pair(const std::string& socket, std::uint32_t depth = 64, rnic_face face = RNIC_FACE_IWARP);

  bare::Channel channel;
  std::uint32_t listener;
  bare::QueuePair caller, called;
};

}  // namespace rnic::hostile
