// Who has connected to a listener and has no answer yet. A caller is silent until its user says that it has asked;
// then it has a place in the listener's backlog, where its user hears of it, or waits in line for one.
//
//   add()  ->  silent  --asked()-->  pending (on_admitted)  --leave()-->  its user's alone
//                             \-->  in line  --admit_in_line()-->  pending
//
// Whoever only connects takes no place from those who ask: so many are kept, and then the oldest goes.
//
// Owned by one worker.
#pragma once

#include <algorithm>
#include <deque>

#include "base/list.hpp"
#include "host/counters.hpp"
#include "host/listeners.hpp"
#include "host/streams.hpp"

namespace rnic::host {

// A handshake, or a caller who asks, that has found the backlog full waits so long for room in it.
inline constexpr Duration kBacklogWait = seconds(60);

class Callers {
 public:
  Callers(Streams& streams, StreamUser& user, Counters& counters)
      : streams_(streams), user_(user), counters_(counters) {}

  Listeners& listeners() { return listeners_; }
  // Listeners::kNone: somebody listens there already.
  std::uint32_t open(const wire::IpAddress& address, std::uint16_t port, std::uint32_t backlog, std::uint64_t cookie,
                     bool v6_only);
  // Those that its user was not told of end with it; the others are the user's to answer. Whether there were such.
  bool close(std::uint32_t listener, Instant now);

  // May one more connect?
  bool has_room(std::uint32_t listener) {
    const Listener& at = listeners_.at(listener);
    if (!at.has_room() || streams_.count() >= streams_.most()) return false;
    return at.not_admitted < Listeners::kSilentMax || !waiting_[listener].silent.empty();
  }
  // Another silent one is about to be added.
  void make_room_for_silent(std::uint32_t listener, Instant now);
  void end_oldest_silent(std::uint32_t listener, Instant now);
  void add(Stream& stream, std::uint32_t listener);
  void asked(Stream& stream, Instant now);
  // As many as there is room for.
  void admit_in_line(std::uint32_t listener);
  bool any_in_line() const { return in_line_ > 0; }
  // Answered, or gone. False: it was no caller any more.
  bool leave(Stream& stream);

 private:
  void admit(Stream& stream);
  void on_no_longer_silent(Stream& stream);
  std::size_t silent_max() const { return std::max<std::size_t>(streams_.most() / 8, 1); }

  Streams& streams_;
  StreamUser& user_;
  Counters& counters_;
  Listeners listeners_;
  // Of each listener, oldest first.
  struct Waiting {
    List<Stream, ListenerTag> silent, in_line;
  };
  std::deque<Waiting> waiting_;
  List<Stream, SilentTag> silent_;  // of all listeners, oldest first
  std::size_t silent_count_ = 0;
  std::uint32_t in_line_ = 0;
};

}  // namespace rnic::host
