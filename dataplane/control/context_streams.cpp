// What a context answers of streams in streaming mode (provider/rnicdv; core/rdma_streams.hpp): those of its
// application's, and its listeners for such, until a queue pair has them.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "control/addresses.hpp"
#include "control/batches.hpp"
#include "control/context.hpp"
#include "control/limits.hpp"
#include "control/stream_errno.hpp"

namespace rnic::control {
namespace {

constexpr std::uint32_t kBacklogMax = 128;

int errno_of(core::StreamFailure failure) {
  switch (failure) {
    case core::StreamFailure::refused:
      return ECONNREFUSED;
    case core::StreamFailure::unreachable:
      return EHOSTUNREACH;
    case core::StreamFailure::timed_out:
      return ETIMEDOUT;
    case core::StreamFailure::no_resources:
      return ENOMEM;
    case core::StreamFailure::none:
    case core::StreamFailure::reset:
    case core::StreamFailure::protocol:
      break;
  }
  return ECONNRESET;
}

static_assert(RNIC_STREAM_OCTETS_MAX <= core::kLastMessageMax);

}  // namespace

// ---- made and ended ------------------------------------------------------------------------------

Result<std::unique_ptr<DirectStream>, int> Context::new_stream(Share share, std::uint64_t user_pointer) {
  if (!share) return Failure{ENOMEM};
  auto stream = std::make_unique<DirectStream>();
  stream->share = std::move(share);
  stream->handle = new_handle();
  stream->cookie = core::kStreamingCookie | machine_.next_cookie++;
  stream->user_pointer = user_pointer;
  stream->context = this;
  return stream;
}

rnic_handle_reply Context::keep(std::unique_ptr<DirectStream> stream) {
  const rnic_handle_reply reply{stream->handle, 0};
  machine_.streams_by_cookie[stream->cookie] = stream.get();
  streams_[reply.handle] = std::move(stream);
  return reply;
}

// One that a queue pair has cannot be named any more.
DirectStream* Context::find_stream(std::uint32_t handle, DirectStream::Kind kind) const {
  DirectStream* stream = find(streams_, handle);
  return stream != nullptr && stream->kind == kind ? stream : nullptr;
}

void Context::end_on_worker(Shard& shard, DirectStream& stream, core::Disconnect how, Instant now) {
  core::Device& device = *shard.device;
  const auto is_here = [&](core::StreamId id) { return &device_.of(id) == &shard; };
  if (stream.kind == DirectStream::Kind::listener) {
    device.unlisten(stream.address, port_of(stream.local), now);
    for (const auto& caller : stream.callers)
      if (is_here(caller.id)) device.disconnect(caller.id, core::Disconnect::abrupt, now);
  } else if (stream.kind == DirectStream::Kind::streaming && stream.error == 0 && is_here(stream.id)) {
    device.disconnect(stream.id, how, now);
  }
}

void Context::forget(DirectStream& stream) {
  machine_.streams_by_cookie.erase(stream.cookie);
  if (direct_ != nullptr) direct_->forget(stream.events);
}

// The context goes. What has been said is still delivered.
void Context::end_streams() {
  for (Shard& shard : device_.shards)
    in_batches(*shard.worker, streams_,
               [&](auto& entry, Instant now) { end_on_worker(shard, *entry.second, core::Disconnect::graceful, now); });
  for (const auto& [handle, stream] : streams_) stream->events.gone = true;
  if (direct_ != nullptr) direct_->forget_gone();
  for (const auto& [handle, stream] : streams_) machine_.streams_by_cookie.erase(stream->cookie);
}

Reply Context::stream_connect(const rnic_stream_connect& request, Shares& streams) {
  if (device_.face() == Face::roce) return Reply::error(EOPNOTSUPP);
  const auto remote = ip_of(request.remote);
  const auto local = ip_of(request.local);
  if (!remote || port_of(request.remote) == 0 || (request.local.family != 0 && !local)) return Reply::error(EINVAL);
  if (local && local->is_v4() != remote->is_v4()) return Reply::error(EINVAL);
  auto made = new_stream(streams.take(holder_), request.user_pointer);
  if (!made) return Reply::error(made.error());
  DirectStream& stream = **made;
  core::ConnectOptions options;
  if (local) options.local = *local;
  options.local_port = port_of(request.local);
  options.remote = *remote;
  options.remote_port = port_of(request.remote);
  options.traffic_class = static_cast<std::uint8_t>(request.traffic_class);
  options.cookie = stream.cookie;
  Result<core::StreamId, core::StreamError> called = Failure{core::StreamError::wrong_state};
  Shard& shard = device_.of(options);
  shard.worker->call([&](Instant now) { called = shard.device->open(options, now); });
  if (!called) return Reply::error(errno_of(called.error()));
  stream.id = *called;
  stream.open = false;
  stream.local = request.local;
  stream.remote = to_abi(*remote, options.remote_port);
  return Reply::with(keep(std::move(*made)));
}

Reply Context::stream_listen(const rnic_stream_listen& request, Shares& streams) {
  if (device_.face() == Face::roce) return Reply::error(EOPNOTSUPP);
  const auto local = ip_of(request.local);
  if (!local || port_of(request.local) == 0) return Reply::error(EINVAL);
  auto made = new_stream(streams.take(holder_), request.user_pointer);
  if (!made) return Reply::error(made.error());
  DirectStream& stream = **made;
  const std::uint32_t backlog = std::clamp<std::uint32_t>(request.backlog, 1, kBacklogMax);
  const auto listens = device_.listen(*local, port_of(request.local), backlog, stream.cookie, false);
  if (!listens)
    return Reply::error(listens.error() == core::StreamError::no_route ? EADDRNOTAVAIL : errno_of(listens.error()));
  stream.kind = DirectStream::Kind::listener;
  stream.address = *local;
  stream.local = to_abi(*local, port_of(request.local));
  stream.awaits_caller = true;
  return Reply::with(keep(std::move(*made)));
}

Reply Context::stream_accept(const rnic_stream_accept& request) {
  DirectStream* listener = find_stream(request.listener, DirectStream::Kind::listener);
  if (listener == nullptr) return Reply::error(EINVAL);
  while (!listener->callers.empty()) {
    DirectStream::Caller caller = std::move(listener->callers.front());
    listener->callers.pop_front();
    auto made = new_stream(std::move(caller.share), request.user_pointer);
    if (!made) return Reply::error(made.error());
    DirectStream& stream = **made;
    Result<Done, core::StreamError> claimed = Done{};
    Shard& shard = device_.of(caller.id);
    shard.worker->call([&](Instant) { claimed = shard.device->claim(caller.id, stream.cookie); });
    if (!claimed) continue;  // it has gone; this is on its way to be told
    stream.id = caller.id;
    stream.local = caller.local;
    stream.remote = caller.remote;
    return Reply::with(keep(std::move(*made)));
  }
  listener->awaits_caller = true;
  return Reply::error(EAGAIN);
}

Reply Context::stream_close(std::uint32_t handle) {
  DirectStream* stream = find(streams_, handle);
  if (stream == nullptr || stream->kind == DirectStream::Kind::running) return Reply::error(EINVAL);
  device_.on_each([&](Shard& shard, Instant now) { end_on_worker(shard, *stream, core::Disconnect::graceful, now); });
  forget(*stream);
  streams_.erase(handle);
  return {};
}

// ---- octets --------------------------------------------------------------------------------------

Reply Context::stream_send(const rnic_stream_send& request) {
  DirectStream* stream = find_stream(request.stream, DirectStream::Kind::streaming);
  if (stream == nullptr || request.length > sizeof request.octets) return Reply::error(EINVAL);
  if (stream->error != 0) return Reply::error(stream->error);
  Result<std::size_t, core::StreamError> taken = std::size_t{0};
  const Bytes octets = as_bytes(request.octets, request.length);
  Shard& shard = device_.of(stream->id);
  shard.worker->call([&](Instant now) { taken = shard.device->say(stream->id, octets, now); });
  if (!taken) return Reply::error(errno_of(taken.error()));
  if (*taken == 0 && request.length != 0) return Reply::error(EAGAIN);
  return Reply::with(rnic_handle_reply{static_cast<std::uint32_t>(*taken), 0});
}

Reply Context::stream_receive(const rnic_stream_receive& request) {
  DirectStream* stream = find_stream(request.stream, DirectStream::Kind::streaming);
  rnic_stream_received reply{};
  const bool fits = request.length != 0 && request.length <= sizeof reply.octets;  // none would look like an end
  if (stream == nullptr || !fits) return Reply::error(EINVAL);
  if (stream->error != 0) return Reply::error(stream->error);
  Result<core::Heard, core::StreamError> heard = core::Heard{};
  const MutableBytes room(reinterpret_cast<std::byte*>(reply.octets), request.length);
  Shard& shard = device_.of(stream->id);
  shard.worker->call([&](Instant) { heard = shard.device->hear(stream->id, room); });
  if (!heard) return Reply::error(errno_of(heard.error()));
  if (heard->octets == 0 && !heard->ended) return Reply::error(EAGAIN);
  reply.length = static_cast<std::uint32_t>(heard->octets);
  return Reply::with(reply);
}

Reply Context::stream_query(std::uint32_t handle) {
  const DirectStream* stream = find(streams_, handle);
  if (stream == nullptr || stream->kind == DirectStream::Kind::running) return Reply::error(EINVAL);
  rnic_stream_query_reply reply{};
  reply.local = stream->local;
  reply.remote = stream->remote;
  reply.number = stream->id.value;
  reply.error = static_cast<std::uint32_t>(stream->error);
  if (stream->kind == DirectStream::Kind::listener)
    reply.state = RNIC_STREAM_LISTENS;
  else if (stream->error != 0)
    reply.state = RNIC_STREAM_ENDED;
  else
    reply.state = stream->open ? RNIC_STREAM_OPEN : RNIC_STREAM_OPENING;
  return Reply::with(reply);
}

// ---- iWARP ---------------------------------------------------------------------------------------

Reply Context::start_iwarp(const rnic_start_iwarp& request) {
  Qp* qp = find(qps_, request.qp_number);
  const auto given = [&](std::uint32_t attribute) { return (request.mask & attribute) != 0; };
  constexpr std::uint32_t kKnown = RNIC_MODIFY_ORD | RNIC_MODIFY_IRD | RNIC_MODIFY_RECEIVE_LIMIT;
  if (qp == nullptr || qp->ud != nullptr || qp->meets || (request.mask & ~kKnown) != 0) return Reply::error(EINVAL);
  if (request.message_length > sizeof request.message) return Reply::error(EINVAL);
  if (given(RNIC_MODIFY_ORD) && request.ord > kReadDepthMax) return Reply::error(EINVAL);  // V-IS-20
  if (given(RNIC_MODIFY_IRD) && request.ird > kReadDepthMax) return Reply::error(EINVAL);  // V-IS-21
  const bool limits = given(RNIC_MODIFY_RECEIVE_LIMIT);
  if (limits && qp->srq == nullptr) return Reply::error(EOPNOTSUPP);                    // V-MOD-08
  if (limits && request.receive_limit > qp->srq->entries) return Reply::error(EINVAL);  // V-IS-27
  DirectStream* stream = find_stream(request.stream, DirectStream::Kind::streaming);
  int error = 0;
  if (stream != nullptr && stream->error == 0 && !move(*qp, device_.of(stream->id))) return Reply::error(EINVAL);
  core::Device& device = *qp->shard->device;
  qp->shard->worker->call([&](Instant now) {
    qp::QueuePair& machine = *qp->qp;
    if (machine.state() != qp::State::idle || device.has_stream(machine)) {
      error = EINVAL;
      return;
    }
    if (stream == nullptr || stream->error != 0) {
      error = ENOTCONN;  // V-IS-25
      return;
    }
    core::IwarpOptions options;
    options.last_message = as_bytes(request.message, request.message_length);
    // What the peer can do its application knows, and nobody checks (V-IRD-12).
    options.ird = given(RNIC_MODIFY_IRD) ? request.ird : machine.config().ird;
    options.ord = given(RNIC_MODIFY_ORD) ? request.ord : machine.config().ord;
    const auto begun = device.begin_iwarp(stream->id, options, machine, now);
    if (begun) {
      if (limits) (void)machine.set_receive_limit(request.receive_limit);
    } else if (begun.error() == core::StreamError::unknown) {
      error = ENOTCONN;
    } else {
      error = errno_of(begun.error());
    }
  });
  if (error != 0) return Reply::error(error);
  qp->local = stream->local;
  qp->remote = stream->remote;
  stream->kind = DirectStream::Kind::running;
  if (direct_ != nullptr) direct_->forget(stream->events);
  return {};
}

// ---- workers' news -------------------------------------------------------------------------------

// The one event there is, whatever has changed: one that has not been written yet is not repeated.
void Context::tell(DirectStream& stream) {
  if (direct_ != nullptr && stream.events.waiting == 0)
    direct_->send_async(stream.events, stream.user_pointer, RNIC_EVENT_STREAM);
}

void Context::on_stream_event(DirectStream& stream, const core::StreamEvent& event, Shares& streams) {
  using Kind = core::StreamEvent::Kind;
  if (stream.kind == DirectStream::Kind::listener) return on_caller_event(stream, event, streams);
  switch (event.kind) {
    case Kind::established:
      stream.open = true;
      stream.local = to_abi(event.local, event.local_port);
      break;
    case Kind::ready:
      break;
    case Kind::rejected:
    case Kind::failed:
    case Kind::disconnected:
      if (stream.kind == DirectStream::Kind::running) {
        streams_.erase(stream.handle);
        machine_.streams_by_cookie.erase(event.cookie);
        return;
      }
      stream.error = errno_of(event.failure);
      break;
    case Kind::connect_request:
    case Kind::withdrawn:
      return;
  }
  if (stream.kind == DirectStream::Kind::streaming) tell(stream);
}

void Context::on_caller_event(DirectStream& listener, const core::StreamEvent& event, Shares& streams) {
  if (event.kind == core::StreamEvent::Kind::connect_request) {
    Share share = streams.take(holder_);
    if (!share) {
      Shard& shard = device_.of(event.stream);
      shard.worker->call([&](Instant now) { shard.device->disconnect(event.stream, core::Disconnect::abrupt, now); });
      return;
    }
    listener.callers.push_back({.id = event.stream,
                                .share = std::move(share),
                                .local = to_abi(event.local, event.local_port),
                                .remote = to_abi(event.remote, event.remote_port)});
    if (std::exchange(listener.awaits_caller, false)) tell(listener);
    return;
  }
  const auto gone = std::find_if(listener.callers.begin(), listener.callers.end(),
                                 [&](const auto& caller) { return caller.id == event.stream; });
  if (gone != listener.callers.end()) listener.callers.erase(gone);
}

}  // namespace rnic::control
