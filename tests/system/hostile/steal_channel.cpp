// Another process's completion channel, by its cookie: a number that the kernel counts up, and that the attacker is
// told here, to spare it the guess. It wants events of its own to go there, its writing end, and to hold its events.
#include "system/hostile/victim.hpp"

namespace rnic::hostile {
namespace {

void own_a_channel(const std::string& socket, Victim::Line line) {
  Bench bench(socket);
  bare::Answer made = bench.app.control.ask(RNIC_CREATE_CHANNEL);
  const auto cookie = made.as<rnic_create_channel_reply>("CREATE_CHANNEL").cookie;
  const bare::CompletionQueue cq = bench.app.completion_queue(16, cookie);
  line.tell(cookie);
  std::uint64_t word;
  while (line.hear(word)) {
  }
}

}  // namespace

int steal_channel(const Options& options) {
  const Victim victim([&](Victim::Line line) { own_a_channel(options.socket, line); });
  const std::uint64_t cookie = victim.hear();
  Bench bench(options.socket);
  // A context with a channel of its own, and one without.
  bare::Answer own = bench.app.control.ask(RNIC_CREATE_CHANNEL);
  attacking();
  int got = 0;
  const Seconds start = now();
  do {
    for (std::uint64_t guess = cookie - 2; guess != cookie + 3; ++guess) {
      bare::Answer made = bench.app.try_completion_queue(16, guess);
      if (guess == own.as<rnic_create_channel_reply>().cookie) continue;
      if (made.good()) {
        say("a completion queue with another's channel, and " + std::to_string(made.fds.size()) + " descriptors");
        got = 1;
      }
      if (bench.app.control.ask(RNIC_HOLD_EVENTS, rnic_hold_events{guess}).good()) {
        say("another's events are held");
        got = 1;
      }
    }
  } while (got == 0 && now() - start < options.seconds / 4);
  return got;
}

}  // namespace rnic::hostile
