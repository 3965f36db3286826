#include "host/callers.hpp"

namespace rnic::host {

std::uint32_t Callers::open(const wire::IpAddress& address, std::uint16_t port, std::uint32_t backlog,
                            std::uint64_t cookie, bool v6_only) {
  const std::uint32_t listener = listeners_.open(address, port, backlog, cookie, v6_only);
  while (waiting_.size() < listeners_.size()) waiting_.emplace_back();
  return listener;
}

bool Callers::close(std::uint32_t listener, Instant now) {
  bool any = false;
  for (List<Stream, ListenerTag>* untold : {&waiting_[listener].silent, &waiting_[listener].in_line})
    while (Stream* stream = untold->front()) {
      any = true;
      stream->tcp.abort(now);
      stream->stage = Stream::Stage::orphan;
      user_.on_lost(*stream, StreamUser::Loss::listener, now);
      leave(*stream);
      streams_.activate(*stream);
    }
  return any;
}

void Callers::end_oldest_silent(std::uint32_t listener, Instant now) {
  Stream* oldest = waiting_[listener].silent.front();
  if (oldest == nullptr) return;
  oldest->tcp.abort(now);
  user_.on_lost(*oldest, StreamUser::Loss::place, now);
}

void Callers::make_room_for_silent(std::uint32_t listener, Instant now) {
  const std::uint32_t own = listeners_.at(listener).not_admitted;
  const bool more_than_a_few = own > std::min<std::size_t>(Listeners::kSilentFew, silent_max() / 4);
  if (own >= Listeners::kSilentMax || (silent_count_ >= silent_max() && more_than_a_few))
    end_oldest_silent(listener, now);
  if (silent_count_ >= silent_max()) end_oldest_silent(silent_.front()->listener, now);
}

void Callers::add(Stream& stream, std::uint32_t listener) {
  Listener& at = listeners_.at(listener);
  ++at.not_admitted;
  waiting_[listener].silent.push_back(stream);
  silent_.push_back(stream);
  ++silent_count_;
  stream.listener = listener;
  stream.cookie = at.cookie;
}

void Callers::on_no_longer_silent(Stream& stream) {
  if (!stream.ListLink<SilentTag>::linked()) return;
  stream.ListLink<SilentTag>::unlink();
  --silent_count_;
}

void Callers::asked(Stream& stream, Instant now) {
  stream.deadline = kNever;
  if (listeners_.at(stream.listener).has_room() && waiting_[stream.listener].in_line.empty()) {
    admit(stream);
    return;
  }
  ++counters_.backlog_waits;
  ++in_line_;
  stream.in_line = true;
  on_no_longer_silent(stream);
  stream.ListLink<ListenerTag>::unlink();
  waiting_[stream.listener].in_line.push_back(stream);
  stream.deadline = now + kBacklogWait;
}

void Callers::admit_in_line(std::uint32_t listener) {
  while (Stream* stream = listeners_.at(listener).has_room() ? waiting_[listener].in_line.front() : nullptr) {
    admit(*stream);
    streams_.activate(*stream);
  }
}

void Callers::admit(Stream& stream) {
  Listener& at = listeners_.at(stream.listener);
  if (stream.in_line) --in_line_;
  stream.in_line = false;
  stream.deadline = kNever;
  on_no_longer_silent(stream);
  stream.ListLink<ListenerTag>::unlink();
  --at.not_admitted;
  ++at.pending;
  stream.pending = true;
  user_.on_admitted(stream);
}

bool Callers::leave(Stream& stream) {
  if (stream.listener == Listeners::kNone) return false;
  if (stream.pending) {
    --listeners_.at(stream.listener).pending;
  } else {
    --listeners_.at(stream.listener).not_admitted;
    if (stream.in_line) --in_line_;
    on_no_longer_silent(stream);
    stream.ListLink<ListenerTag>::unlink();
  }
  listeners_.on_connection_gone(stream.listener);
  stream.pending = stream.in_line = false;
  stream.listener = Listeners::kNone;
  return true;
}

}  // namespace rnic::host
