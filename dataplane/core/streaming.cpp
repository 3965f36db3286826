// Streams in streaming mode: TCP connections on which an application speaks with its peer as it likes, until it has the
// two change over to iWARP (V-CONN-12). No MPA Request or Reply is ever on them: what those agree on is the
// application's to agree on.
//
// Before changing this, read verbs.md s2.4.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/assert.hpp"
#include "core/rdma_streams.hpp"

namespace rnic::core {

namespace {

// Of one stream, that hold what is said, however few octets each: sayings of one octet take a buffer each.
constexpr std::uint32_t kSaidBuffersMax = 64;
constexpr Duration kAskAgain = milliseconds(1);  // for buffers, where the stream has none that could come back

}  // namespace

// ---- commands ------------------------------------------------------------------------------------

Result<StreamId, StreamError> RdmaStreams::open(const ConnectOptions& options, Instant now) {
  RNIC_ASSERT(is_streaming(options.cookie));
  const auto called = call(options, now);
  if (!called) return Failure{called.error()};
  return (*called)->id();
}

Result<Done, StreamError> RdmaStreams::claim(StreamId id, std::uint64_t cookie) {
  RNIC_ASSERT(is_streaming(cookie));
  Stream* stream = find_streaming(id);
  if (stream == nullptr || !stream->told_request || stream->told_established) return Failure{StreamError::unknown};
  host_.activate(*stream);
  host_.leave_listener(*stream);
  stream->cookie = cookie;
  stream->told_established = true;
  stream->deadline = kNever;
  return Done{};
}

Result<std::size_t, StreamError> RdmaStreams::say(StreamId id, Bytes octets, Instant now) {
  Stream* stream = find_streaming(id);
  if (stream == nullptr) return Failure{StreamError::unknown};
  if (stream->phase() == Stream::Phase::opening) return std::size_t{0};
  host_.activate(*stream);
  const std::size_t room = std::min(room_to_say(*stream), octets.size());
  Bytes left = octets.first(room);
  while (!left.empty() && stream->held_to_send().all() < kSaidBuffersMax) {
    const Bytes before = left;
    BufferRef buffer = take_said(*stream, left);
    if (!buffer || !stream->tcp.append(std::move(buffer))) {
      left = before;
      break;
    }
  }
  const std::size_t taken = room - left.size();
  if (taken < octets.size()) {
    stream->room_awaited = true;
    if (stream->held_to_send().all() == 0) stream->deadline = now + kAskAgain;
  }
  return taken;
}

Result<Heard, StreamError> RdmaStreams::hear(StreamId id, MutableBytes room) {
  Stream* stream = find_streaming(id);
  if (stream == nullptr) return Failure{StreamError::unknown};
  Heard heard;
  if (stream->phase() == Stream::Phase::opening) return heard;
  host_.activate(*stream);
  while (!room.empty() && stream->tcp.readable_count() > 0) {
    const Bytes octets = stream->tcp.readable(0).span;
    const std::size_t size = std::min(octets.size(), room.size());
    std::memcpy(room.data(), octets.data(), size);
    stream->tcp.consume(size);
    room = room.subspan(size);
    heard.octets += size;
  }
  heard.ended = stream->tcp.readable_count() == 0 && stream->tcp.peer_closed();
  stream->input_awaited = heard.octets == 0 && !heard.ended;
  return heard;
}

// In the order of V-CONN-04. Between two turns nothing comes in, so that inbound is paused, and in the next it goes
// where the stream has been attached to: FPDUs that are in TCP already are the queue pair's (V-CONN-05).
Result<Done, StreamError> RdmaStreams::begin_iwarp(StreamId id, const IwarpOptions& options, qp::QueuePair& qp,
                                                   Instant now) {
  if (!may_have_stream(qp, now)) return Failure{StreamError::wrong_state};
  Stream* stream = find_streaming(id);
  if (stream == nullptr || stream->phase() != Stream::Phase::streaming) return Failure{StreamError::unknown};
  if (stream->tcp.state() != tcp::State::established) return Failure{StreamError::unknown};

  // All of the last message, or nothing.
  std::array<BufferRef, kSaidBuffersMax> message;
  std::size_t pieces = 0;
  for (Bytes left = options.last_message; !left.empty(); ++pieces) {
    if (pieces == message.size()) return Failure{StreamError::no_resources};
    message[pieces] = take_said(*stream, left);
    if (!message[pieces]) return Failure{StreamError::no_resources};
  }
  host_.activate(*stream);
  for (std::size_t i = 0; i < pieces; ++i)
    if (!stream->tcp.append(
            std::move(message[i]))) {  // its segments have been cut into many: the path is not what it was
      news_.tell_failed(*stream, StreamFailure::no_resources);
      abort(*stream, now);
      return Failure{StreamError::unknown};
    }
  bind(qp, *stream);
  qp::Start start;
  start.initiator = true;  // who speaks first is the application's to see to (V-CONN-10)
  start.ird = options.ird;
  start.ord = options.ord;
  attach(*stream, start, now);
  stream->enter(Stream::Phase::running);
  stream->deadline = kNever;
  return Done{};
}

// ---- their course --------------------------------------------------------------------------------

// One that is an application's, or is to be.
Stream* RdmaStreams::find_streaming(StreamId id) {
  Stream* stream = find(id);
  if (stream == nullptr || !is_streaming(stream->cookie) || stream->tcp.ended() != tcp::Ended::no) return nullptr;
  const bool calls = stream->phase() == Stream::Phase::opening && stream->initiator;
  return calls || stream->phase() == Stream::Phase::streaming ? stream : nullptr;
}

std::size_t RdmaStreams::room_to_say(const Stream& stream) const {
  const std::uint64_t held = stream.tcp.appended() - stream.tcp.acknowledged();
  return held < kSaidMax ? static_cast<std::size_t>(kSaidMax - held) : 0;
}

// As many octets as a segment holds, taken off the front. Null: the stream has its share of the buffers.
BufferRef RdmaStreams::take_said(Stream& stream, Bytes& octets) {
  host_.data_pool().for_stream(stream.held_to_send());
  const std::size_t wanted = std::min<std::size_t>(octets.size(), std::max(stream.tcp.emss(), 1u));
  BufferRef buffer = BufferRef::take(host_.data_pool(), static_cast<std::uint32_t>(wanted));
  host_.data_pool().for_anybody();
  if (!buffer) return buffer;
  const std::size_t size = std::min<std::size_t>(wanted, buffer->tailroom());
  std::memcpy(buffer->append(static_cast<std::uint32_t>(size)).data(), octets.data(), size);
  octets = octets.subspan(size);
  return buffer;
}

// The handshake is over.
void RdmaStreams::begin_streaming(Stream& stream, Instant now) {
  stream.enter(Stream::Phase::streaming);
  if (stream.initiator) {
    stream.deadline = kNever;
    news_.tell_established(stream);
  } else {
    host_.asked(stream, now);
  }
}

void RdmaStreams::look_at_streaming(Stream& stream, Instant now) {
  if (stream.tcp.ended() != tcp::Ended::no) {
    if (!stream.initiator && !stream.told_request) stream.told_end = true;  // nobody knows of it
    news_.tell_failed(stream, failure_of(stream.tcp.ended()));
    abandon(stream, now);
    return;
  }
  const bool input = stream.input_awaited && (stream.tcp.readable_count() > 0 || stream.tcp.peer_closed());
  bool room =
      stream.room_awaited && room_to_say(stream) >= kSaidMax / 2 && stream.held_to_send().all() <= kSaidBuffersMax / 2;
  if (room && !host_.data_pool().has_some_for(stream.held_to_send())) {  // buffers come back without a word
    stream.deadline = now + kAskAgain;
    room = false;
  }
  if (!input && !room) return;
  stream.input_awaited = stream.room_awaited = false;
  news_.tell_ready(stream);
}

void RdmaStreams::end_streaming(Stream& stream, Disconnect how, Instant now) {
  stream.told_end = true;
  if (how == Disconnect::graceful)
    abandon(stream, now);
  else
    abort(stream, now);
}

void RdmaStreams::on_streaming_deadline(Stream& stream, Instant now) {
  if (!stream.initiator && !stream.told_request) {  // nobody has taken it out of its listener's line
    stream.told_end = true;
    return abort(stream, now);
  }
  look_at_streaming(stream, now);
}

}  // namespace rnic::core
