#include "core/stream_news.hpp"

namespace rnic::core {

StreamNews::StreamNews(StreamEvents& events, std::uint32_t device_index)
    : events_(events), device_index_(device_index) {
  queued_.reserve(16);
  delivering_.reserve(16);
}

StreamEvent& StreamNews::queue(StreamEvent::Kind kind, Stream& stream) {
  StreamEvent& event = queued_.emplace_back();
  event.kind = kind;
  event.device = device_index_;
  event.stream = stream.id();
  event.cookie = stream.cookie;
  if (stream.qp != nullptr) event.qp_number = stream.qp->config().number.value;
  event.local = stream.flow.local;
  event.remote = stream.flow.remote;
  event.local_port = stream.flow.local_port;
  event.remote_port = stream.flow.remote_port;
  return event;
}

void StreamNews::tell_request(Stream& stream) {
  stream.told_request = true;
  StreamEvent& event = queue(StreamEvent::Kind::connect_request, stream);
  if (stream.startup != nullptr) stream.startup->describe_peer(event);  // in streaming mode nothing was asked yet
}

void StreamNews::tell_withdrawn(Stream& stream) { queue(StreamEvent::Kind::withdrawn, stream); }

void StreamNews::tell_established(Stream& stream) {
  if (stream.told_established || stream.told_end) return;
  stream.told_established = true;
  StreamEvent& event = queue(StreamEvent::Kind::established, stream);
  event.ird = stream.established_ird;
  event.ord = stream.established_ord;
  event.private_data = stream.reply_data;
}

void StreamNews::tell_ready(Stream& stream) { queue(StreamEvent::Kind::ready, stream); }

void StreamNews::tell_rejected(Stream& stream) {
  stream.told_end = true;
  stream.startup->describe_peer(queue(StreamEvent::Kind::rejected, stream));
}

void StreamNews::tell_failed(Stream& stream, StreamFailure failure) {
  if (stream.told_end) return;
  stream.told_end = true;
  queue(StreamEvent::Kind::failed, stream).failure = failure;
}

void StreamNews::tell_disconnected(Stream& stream) {
  if (stream.told_end) return;
  stream.told_end = true;
  queue(StreamEvent::Kind::disconnected, stream);
}

void StreamNews::deliver_queued() {
  while (!queued_.empty()) {
    delivering_.swap(queued_);
    for (const StreamEvent& event : delivering_) events_.on_stream_event(event);
    delivering_.clear();
  }
}

}  // namespace rnic::core
