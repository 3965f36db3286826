// A queue pair's way down: Closing and Terminate, the last words, and what is flushed.
#include <utility>

#include "qp/queue_pair_impl.hpp"

namespace rnic::qp {
namespace {

// Of each queue, of what is posted in Error, in a step: it can be posted as fast as it is flushed.
constexpr std::uint32_t kLateFlushMax = 64;

}  // namespace

// Closing and Terminate: what is under way comes to its end, the Terminate and the FIN leave, work is
// flushed. Error: what is posted late is flushed.
bool QueuePair::Impl::go_down(Instant now) {
  if (state_ == State::error) {
    if (still_copied_ || (!requester().may_be_posted() && !receive_hint_)) return false;
    flush(kLateFlushMax);
    return true;
  }
  if (!stream_) return false;
  if (state_ == State::closing) return go_down_closing(now);
  if (state_ != State::terminate) return false;

  bool busy = false;
  const rdmap::Moves& moves = common_.moves;
  if (way_down_.drop_unsent && moves.gathers == 0) {
    stream_->out.drop();
    way_down_.drop_unsent = false;
  }
  if (!way_down_.drop_unsent) busy |= push(now);
  if (stream_->out.empty() && moves.gathers == 0) {
    if (way_down_.terminate_due) {
      send_terminate(now);
      busy |= !way_down_.terminate_due;
    }
    if (!way_down_.terminate_due && way_down_.fin_due && stream_->out.empty()) {
      stream_->connection.close();
      way_down_.fin_due = false;
      busy = true;
    }
  }
  if (moves.places == 0) {
    // Ignored (V-TERM-07), but taken, or the peer's FIN could not come.
    busy |= stream_->in.discard();
    const bool posted = requester().may_be_posted() || receive_hint_;
    if (moves.gathers == 0 && !way_down_.terminate_due && !way_down_.fin_due && (!way_down_.flushed || posted)) {
      complete_work(now);
      flush();
      busy = true;
    }
  }
  return busy;
}

bool QueuePair::Impl::go_down_closing(Instant now) {
  bool busy = deliver_all(now);
  if (state_ != State::closing || closing_is_bad(now)) return true;
  if (!responder().open() && (!way_down_.flushed || receive_hint_)) {
    flush_receives();
    way_down_.flushed = true;
    busy = true;
  }
  requester().nothing_posted();
  return busy;
}

// Of acknowledged streams: what has been performed, and what has not.
void QueuePair::Impl::add_acknowledgements(LastWords& words) {
  rdmap::Acknowledgements* const own = messages_->acknowledgements.get();
  if (own == nullptr) return;
  // Again, where one may have been dropped on its way.
  if (requester().acknowledgement_due() || own->performed() != 0) {
    wire::emit(own->say(requester().holds()), words.acknowledge);
    words.add(requester().sender().acknowledge(), words.acknowledge);
  }
  if (const auto& refused = own->refused()) {
    wire::emit(*refused, words.refuse);
    words.add(requester().sender().negative_acknowledge(), words.refuse);
  }
}

// Behind the last whole FPDU (V-STOP-01).
void QueuePair::Impl::send_terminate(Instant now) {
  BufferRef buffer = stream_->out.buffer_for_last();
  if (!buffer) return;
  LastWords words;
  add_acknowledgements(words);
  words.add(requester().sender().terminate(record_.length), record_.bytes());
  stream_->out.append_last(words.all(), std::move(buffer));
  way_down_.terminate_due = false;
  push(now);
}

// Destroyed, its application perhaps killed, and nobody has closed the stream. A FIN alone would pass
// for a clean close, after which the peer's late work waits for ever (V-IDLE-06). So a Terminate goes
// behind what was completed, and the peer's queue pair ends in Error: all is flushed. The same for one
// that was on its way to a Terminate, and whose segments found no room yet.
void QueuePair::Impl::say_last_words(BufferRef buffer) {
  stream_->out.drop();
  if (!buffer || !stream_->gate.may_terminate()) return;
  if (state_ == State::rts) record_ = TerminateRecord::said(rdmap::terminate_message(rdmap::Fault::by_consumer, {}));
  if (record_.origin != TerminateRecord::Origin::local) return;  // an answer to a Terminate there is not
  LastWords words;
  add_acknowledgements(words);
  words.add(requester().sender().terminate(record_.length), record_.bytes());
  stream_->out.append_last_at_once(words.all(), std::move(buffer));
}

void QueuePair::Impl::flush_receives(std::uint32_t count_max) { receive_hint_ = responder().flush(count_max); }

// Not before the last octet that could still be copied: a flushed request gives its memory back.
void QueuePair::Impl::flush(std::uint32_t count_max) {
  if (still_copied_) {
    requester().posted();
    receive_hint_ = true;
    return;
  }
  // The error before what is flushed for it, also where both queues report to one CQ.
  const bool sends_first = requester().first_has_failed();
  if (!sends_first) flush_receives(count_max);
  requester().flush(count_max);
  if (sends_first) flush_receives(count_max);
  way_down_.flushed = true;
}

}  // namespace rnic::qp
