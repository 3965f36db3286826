#include "kit/plain_host.hpp"

namespace rnic::test {

namespace {
constexpr unsigned kSegmentsMax = 1024;       // of a turn
constexpr Duration kSoon = microseconds(50);  // until one is asked again that has found no buffer
}  // namespace

Result<host::StreamId, host::StreamError> PlainHost::call(const host::Call& call, Instant now) {
  const auto stream = host_.call(call, now);
  if (!stream) return Failure{stream.error()};
  return (*stream)->id();
}

void PlainHost::wake(host::StreamId stream) {
  if (host::Stream* found = host_.find(stream)) host_.activate(*found);
}

// In the order of the daemon's: core/worker.cpp.
bool PlainHost::turn(Instant now) {
  bool busy = host_.receive(now);
  for (Stream* stream = first(); stream != nullptr; stream = after(*stream)) {
    take_input(*stream, now);
    stream->input_end = stream->tcp.received();
  }
  for (Stream* stream = first(); stream != nullptr; stream = after(*stream)) {
    stream->tcp.end_of_burst();
    busy = true;
  }
  if (host_.next_deadline() <= now) busy |= host_.run_timers(now);
  host_.begin_send(now);
  unsigned budget = kSegmentsMax;
  for (Stream* stream = first(); stream != nullptr;) {
    Stream* next = after(*stream);
    busy |= host_.send_segments(*stream, now, budget);
    const bool news = stream->tcp.ended() != tcp::Ended::no && stream->stage != Stream::Stage::orphan;
    if (!host_.finish(*stream, now) && !news && !host_.needs_turn(*stream, now))
      host_.rest(*stream, stream->again_soon ? now + kSoon : kNever);
    stream = next;
  }
  host_.flush(now);
  return busy;
}

void PlainHost::take_input(Stream& stream, Instant now) {
  switch (stream.stage) {
    case Stream::Stage::opening:
      if (stream.tcp.ended() != tcp::Ended::no) {
        if (stream.initiator) end(stream);
        host_.orphan(stream, host::Host::Fin::at_once, now);
        break;
      }
      if (!stream.tcp.established()) break;
      host_.leave_listener(stream);
      stream.stage = Stream::Stage::open;
      host_.keep_beyond(stream);
      streams_.on_open(stream.id(), stream.flow);
      serve(stream, now);
      break;
    case Stream::Stage::open:
      serve(stream, now);
      break;
    case Stream::Stage::orphan:
      host_.take_orphan_input(stream, now);
      break;
  }
}

void PlainHost::serve(Stream& stream, Instant now) {
  host_.data_pool().for_stream(stream.tcp.queued());
  stream.again_soon = streams_.on_turn(stream.id(), stream.tcp, now);
  host_.data_pool().for_anybody();
  if (stream.tcp.ended() == tcp::Ended::no && stream.tcp.state() != tcp::State::time_wait) return;
  end(stream);
  host_.orphan(stream, host::Host::Fin::at_once, now);
}

void PlainHost::end(Stream& stream) {
  if (stream.told_end) return;
  stream.told_end = true;
  streams_.on_end(stream.id(), stream.tcp);
}

void PlainHost::on_lost(host::Stream& stream, Loss loss, Instant now) {
  static_cast<Stream&>(stream).told_end = true;
  if (loss == Loss::place) host_.orphan(stream, host::Host::Fin::at_once, now);
}

void PlainHost::on_must_end(host::Stream& stream, Instant now) {
  end(static_cast<Stream&>(stream));
  stream.tcp.abort(now);
  host_.orphan(stream, host::Host::Fin::at_once, now);
}

}  // namespace rnic::test
