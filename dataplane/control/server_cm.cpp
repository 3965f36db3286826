// Connection management: the sessions' end of ConnectionManager, and what it asks of devices.
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "control/addresses.hpp"
#include "control/batches.hpp"
#include "control/journal.hpp"
#include "control/limits.hpp"
#include "control/server.hpp"
#include "core/clock.hpp"

namespace rnic::control {
namespace {

template <typename T>
Reply answer(const Result<T, int>& result) {
  return result ? Reply::with(*result) : Reply::error(result.error());
}

}  // namespace

// ---- channels ------------------------------------------------------------------------------------

Reply Server::serve_cm_open(Session& session, Request& request, const rnic_nothing&) {
  rnic_cm_open_reply body{};
  if (request.size > 0) {
    // A channel that another connection of this user made: a child of fork has its token.
    const auto wanted = request.as<rnic_cm_open>();
    if (!wanted) return Reply::error(EINVAL);
    for (auto& [number, channel] : cm_channels_) {
      if (channel.uid != session.peer.uid) continue;
      if (std::memcmp(channel.token.data(), wanted->token, channel.token.size()) != 0) continue;
      session.cm_channels.insert(number);
      channel.users.insert(session.number);
      body.channel = number;
      std::memcpy(body.token, channel.token.data(), sizeof body.token);
      return Reply::with(body);
    }
    return Reply::error(ENOENT);
  }

  CmChannel channel;
  const Holder holder = holder_of(session.peer);
  channel.share = machine_.cm_channels.take(holder);
  if (!channel.share) return Reply::error(ENOMEM);
  channel.descriptors = machine_.descriptors.take(holder, 2);
  if (!channel.descriptors) return Reply::error(EMFILE);
  channel.uid = session.peer.uid;
  channel.events = EventCount::create(loop_);
  int ends[2];
  if (channel.events == nullptr || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return Reply::error(errno);
  channel.lifeline = Descriptor(ends[0]);
  Descriptor theirs(ends[1]);
  if (getrandom(channel.token.data(), channel.token.size(), 0) != static_cast<ssize_t>(channel.token.size()))
    return Reply::error(EIO);

  const std::uint32_t number = cm_.open_channel(holder);
  // Nothing is read of it, and nothing can be sent to it: all it says is that it hung up.
  shutdown(ends[0], SHUT_RD);
  channel.watch = loop_.add(ends[0], 0, [this, number](std::uint32_t) { close_cm_channel(number); });
  if (channel.watch == Loop::kNone) {
    const int error = errno;
    cm_.close_channel(number);
    return Reply::error(error);
  }
  body.channel = number;
  std::memcpy(body.token, channel.token.data(), sizeof body.token);
  Reply reply = Reply::with(body);
  reply.add(channel.events->take_reader());
  reply.add(std::move(theirs));
  session.cm_channels.insert(number);
  channel.users.insert(session.number);
  cm_channels_.emplace(number, std::move(channel));
  return reply;
}

void Server::close_cm_channel(std::uint32_t number) {
  const auto found = cm_channels_.find(number);
  if (found == cm_channels_.end()) return;
  cm_.close_channel(number);
  loop_.remove(found->second.watch);
  for (const std::uint64_t user : found->second.users)
    if (const auto session = sessions_.find(user); session != sessions_.end())
      session->second->cm_channels.erase(number);
  cm_channels_.erase(found);
}

void Server::events_added(std::uint32_t channel, std::uint32_t count) {
  if (const auto found = cm_channels_.find(channel); found != cm_channels_.end()) found->second.events->add(count);
}

Instant Server::now() const { return core::clock_now(); }

// Events of a channel that will not come, of which so many are to be taken off its descriptor by the application.
std::uint32_t Server::withdraw_events(std::uint32_t channel, std::uint32_t count) {
  const auto found = cm_channels_.find(channel);
  return found == cm_channels_.end() ? count : found->second.events->withdraw(count);
}

// ---- commands ------------------------------------------------------------------------------------

bool Server::may_use_id(const Session& session, std::uint32_t id) const {
  const auto channel = cm_.channel_of(id);
  return channel && session.cm_channels.contains(*channel);
}

Reply Server::serve_cm_close(Session& session, Request&, const rnic_handle& body) {
  if (!session.cm_channels.contains(body.handle)) return Reply::error(EINVAL);
  close_cm_channel(body.handle);
  return {};
}

Reply Server::serve_cm_create_id(Session& session, Request&, const rnic_cm_create_id& body) {
  if (!session.cm_channels.contains(body.channel)) return Reply::error(EINVAL);
  const auto id = cm_.create_id(body.channel, body.port_space, body.uid, session.visible);
  if (!id && port_spaces::has_datagrams(body.port_space)) tell_no_datagrams(session);
  if (!id) return Reply::error(id.error());
  return Reply::with(rnic_handle_reply{*id, 0});
}

Reply Server::serve_cm_destroy_id(Session& session, Request&, const rnic_handle& body) {
  if (!may_use_id(session, body.handle)) return Reply::error(ENOENT);
  const std::uint32_t channel = *cm_.channel_of(body.handle);
  // For so long a thread that an event has woken may be on its way to it.
  constexpr Duration kEventPickup = milliseconds(2);
  const bool waits = body.reserved == RNIC_CM_UNLESS_JUST_TOLD;
  if (waits && cm_.was_told_after(body.handle, now() - kEventPickup)) return Reply::error(EAGAIN);
  auto gone = cm_.destroy_id(body.handle);
  if (gone) gone->purged = withdraw_events(channel, gone->purged);
  return answer(gone);
}

Reply Server::serve_cm_bind(Session& session, Request&, const rnic_cm_bind& body) {
  if (!may_use_id(session, body.id)) return Reply::error(ENOENT);
  return Reply::error(cm_.bind(body.id, body.address));
}

Reply Server::serve_cm_resolve_address(Session& session, Request&, const rnic_cm_resolve_address& body) {
  if (!may_use_id(session, body.id)) return Reply::error(ENOENT);
  return Reply::error(cm_.resolve_address(body.id, body.source, body.destination));
}

Reply Server::serve_cm_resolve_route(Session& session, Request&, const rnic_cm_resolve_route& body) {
  if (!may_use_id(session, body.id)) return Reply::error(ENOENT);
  return Reply::error(cm_.resolve_route(body.id));
}

Reply Server::serve_cm_query(Session& session, Request&, const rnic_handle& body) {
  if (!may_use_id(session, body.handle)) return Reply::error(ENOENT);
  return answer(cm_.query(body.handle));
}

Reply Server::serve_cm_connect(Session& session, Request&, const rnic_cm_connect& body) {
  if (!may_use_id(session, body.id)) return Reply::error(ENOENT);
  return Reply::error(cm_.connect(body.id, body.parameters));
}

Reply Server::serve_cm_listen(Session& session, Request&, const rnic_cm_listen& body) {
  if (!may_use_id(session, body.id)) return Reply::error(ENOENT);
  return Reply::error(cm_.listen(body.id, body.backlog));
}

Reply Server::serve_cm_accept(Session& session, Request&, const rnic_cm_connect& body) {
  if (!may_use_id(session, body.id)) return Reply::error(ENOENT);
  return Reply::error(cm_.accept(body.id, body.uid, body.parameters, body.qkey));
}

Reply Server::serve_cm_reject(Session& session, Request&, const rnic_cm_reject& body) {
  if (!may_use_id(session, body.id)) return Reply::error(ENOENT);
  if (body.private_data_length > sizeof body.private_data) return Reply::error(EINVAL);
  return Reply::error(cm_.reject(body.id, as_bytes(body.private_data, body.private_data_length), body.for_ece != 0));
}

Reply Server::serve_cm_disconnect(Session& session, Request&, const rnic_handle& body) {
  if (!may_use_id(session, body.handle)) return Reply::error(ENOENT);
  return Reply::error(cm_.disconnect(body.handle));
}

Reply Server::serve_cm_init_qp_attributes(Session& session, Request&, const rnic_cm_init_qp_attributes& body) {
  if (!may_use_id(session, body.id)) return Reply::error(ENOENT);
  return answer(cm_.init_qp_attributes(body.id, body.state));
}

Reply Server::serve_cm_get_event(Session& session, Request&, const rnic_handle& body) {
  if (!session.cm_channels.contains(body.handle)) return Reply::error(EINVAL);
  if (body.reserved == 0) return answer(cm_.get_event(body.handle));
  if ((body.reserved & RNIC_CM_GIVE_BACK) != 0) {
    const int error = cm_.give_back_events(body.handle, session.number, body.reserved & ~RNIC_CM_GIVE_BACK);
    return error != 0 ? Reply::error(error) : Reply::with(rnic_cm_get_event_reply{});
  }
  const auto told = cm_.get_events(body.handle, session.number, std::min(body.reserved, RNIC_CM_TOLD_MAX));
  if (!told) return Reply::error(told.error());
  Reply reply;
  reply.append(told->data(), told->size() * sizeof(rnic_cm_told));
  return reply;
}

Reply Server::serve_cm_set_option(Session& session, Request&, const rnic_cm_set_option& body) {
  if (!may_use_id(session, body.id)) return Reply::error(ENOENT);
  if (body.length > sizeof body.value) return Reply::error(EINVAL);
  return Reply::error(cm_.set_option(body.id, body.level, body.option, as_bytes(body.value, body.length)));
}

Reply Server::serve_cm_notify(Session& session, Request&, const rnic_cm_notify& body) {
  if (!may_use_id(session, body.id)) return Reply::error(ENOENT);
  return Reply::error(cm_.notify(body.id, body.event));
}

Reply Server::serve_cm_migrate_id(Session& session, Request&, const rnic_cm_migrate_id& body) {
  if (!may_use_id(session, body.id)) return Reply::error(ENOENT);
  if (!session.cm_channels.contains(body.channel)) return Reply::error(EINVAL);
  auto moved = cm_.migrate_id(body.id, body.channel);
  if (moved) moved->purged = withdraw_events(moved->old_channel, moved->purged);
  return answer(moved);
}

Reply Server::serve_cm_join(Session& session, Request&, const rnic_cm_join& body) {
  if (!may_use_id(session, body.id)) return Reply::error(ENOENT);
  const auto membership = cm_.join(body);
  if (!membership) return Reply::error(membership.error());
  return Reply::with(rnic_handle_reply{*membership, 0});
}

Reply Server::serve_cm_leave(Session& session, Request&, const rnic_handle& body) {
  const auto id = cm_.member(body.handle);
  if (!id || !may_use_id(session, *id)) return Reply::error(ENOENT);
  const std::uint32_t channel = *cm_.channel_of(*id);
  auto left = cm_.leave(body.handle);
  if (left) left->purged = withdraw_events(channel, left->purged);
  return answer(left);
}

// ---- what it asks of devices ---------------------------------------------------------------------

// A queue pair is the process's that made it: whoever else knows its number cannot have it connected.
Qp* Server::claimed(std::uint32_t device, const QpClaim& claim) const {
  const auto found = machine_.qps.find(claim.number);
  if (found == machine_.qps.end()) return nullptr;
  Context& context = *found->second->context;
  const bool own = asking_ != nullptr && same_process(context.peer(), asking_->peer);
  // One that has been given its peer otherwise is not the connection manager's.
  const bool connects = found->second->qp != nullptr && !found->second->meets;
  return own && context.device().index == device && connects ? found->second : nullptr;
}

// Who wants it, for the log.
std::string Server::asker() const {
  return asking_ != nullptr ? "process " + std::to_string(asking_->peer.pid)
                            : "rnicd, for an application that is gone,";
}

std::string Server::in_words_of(std::uint32_t device, core::StreamId stream) const {
  const auto id = cm_.info(device, stream);
  if (!id) return "a connection that has no id";
  return in_words(Ends{id->source, id->destination, id->source_port, id->destination_port}) + ", id " +
         std::to_string(id->id);
}

Result<Done, core::StreamError> Server::listen(std::uint32_t device, const wire::IpAddress& address, std::uint16_t port,
                                               std::uint32_t backlog, std::uint64_t cookie, bool v6_only) {
  return machine_.devices[device]->listen(address, port, backlog, cookie, v6_only);
}

void Server::unlisten(std::uint32_t device, const std::vector<Listening>& listeners) {
  ServedDevice& served = *machine_.devices[device];
  for (Shard& shard : served.shards)
    in_batches(*shard.worker, listeners,
               [&](const Listening& each, Instant now) { shard.device->unlisten(each.address, each.port, now); });
}

Result<core::StreamId, core::StreamError> Server::connect(std::uint32_t device, const core::ConnectOptions& options,
                                                          const QpClaim& claim) {
  Qp* qp = claimed(device, claim);
  if (qp == nullptr) return Failure{core::StreamError::wrong_state};
  ServedDevice& served = *machine_.devices[device];
  Result<core::StreamId, core::StreamError> result = Failure{core::StreamError::wrong_state};
  Shard& shard = shard_for(*qp, served, options);
  if (!qp->context->move(*qp, shard)) return Failure{core::StreamError::wrong_state};
  shard.worker->call([&](Instant now) { result = shard.device->connect(options, *qp->qp, now); });
  if (result) {
    qp->local = to_abi(options.local, options.local_port);
    qp->remote = to_abi(options.remote, options.remote_port);
    log_.debug([&] {
      return in_words_of(*qp) + ": " + asker() + " connects, id " +
             std::to_string(static_cast<std::uint32_t>(options.cookie));
    });
  }
  return result;
}

Result<Done, core::StreamError> Server::accept(std::uint32_t device, core::StreamId stream,
                                               const core::AcceptOptions& options, const QpClaim& claim) {
  Qp* qp = claimed(device, claim);
  if (qp == nullptr) return Failure{core::StreamError::wrong_state};
  ServedDevice& served = *machine_.devices[device];
  Result<Done, core::StreamError> result = Done{};
  Shard& shard = served.of(stream);
  if (!qp->context->move(*qp, shard)) return Failure{core::StreamError::wrong_state};
  shard.worker->call([&](Instant now) { result = shard.device->accept(stream, options, *qp->qp, now); });
  if (const auto id = cm_.info(static_cast<std::uint32_t>(options.cookie)); result && id) {
    qp->local = to_abi(id->source, id->source_port);
    qp->remote = to_abi(id->destination, id->destination_port);
    log_.debug([&] { return in_words_of(*qp) + ": " + asker() + " accepts, id " + std::to_string(id->id); });
  }
  return result;
}

// A number that it names is nobody's claim: by it alone no queue pair is connected.
Result<core::StreamId, core::StreamError> Server::greet(std::uint32_t device, const core::ConnectOptions& options) {
  ServedDevice& served = *machine_.devices[device];
  Result<core::StreamId, core::StreamError> result = Failure{core::StreamError::wrong_state};
  Shard& shard = served.of(options);
  shard.worker->call([&](Instant now) { result = shard.device->greet(options, now); });
  if (result)
    log_.debug([&] {
      return in_words(Ends{options.local, options.remote, options.local_port, options.remote_port}) + ": " + asker() +
             " calls, id " + std::to_string(static_cast<std::uint32_t>(options.cookie));
    });
  return result;
}

Result<Done, core::StreamError> Server::welcome(std::uint32_t device, core::StreamId stream,
                                                const core::AcceptOptions& options) {
  ServedDevice& served = *machine_.devices[device];
  Result<Done, core::StreamError> result = Done{};
  served.of_stream(stream, [&](core::Device& its, Instant now) { result = its.welcome(stream, options, now); });
  if (result) log_.debug([&] { return in_words_of(device, stream) + ": " + asker() + " accepts"; });
  return result;
}

Result<Done, core::StreamError> Server::confirm(std::uint32_t device, core::StreamId stream) {
  ServedDevice& served = *machine_.devices[device];
  Result<Done, core::StreamError> result = Done{};
  served.of_stream(stream, [&](core::Device& its, Instant now) { result = its.confirm(stream, now); });
  return result;
}

Result<Done, core::StreamError> Server::answer_inquiry(std::uint32_t device, core::StreamId stream,
                                                       const core::PrivateData& said) {
  ServedDevice& served = *machine_.devices[device];
  Result<Done, core::StreamError> result = Done{};
  log_.debug([&] { return in_words_of(device, stream) + ": " + asker() + " answers"; });
  served.of_stream(stream, [&](core::Device& its, Instant now) { result = its.reject(stream, said, now); });
  return result;
}

void Server::tell_unfit(std::uint32_t device, const wire::IpAddress& peer, const char* words) {
  std::uint64_t left_out = 0;
  if (!unfit_.take(core::clock_now(), left_out)) return;
  log_.info(machine_.devices[device]->name + ": " + wire::to_string(peer) + " " + words);
}

void Server::tell_no_datagrams(const Session& session) {
  std::uint64_t left_out = 0;
  if (!unfit_.take(core::clock_now(), left_out)) return;
  log_.info("process " + std::to_string(session.peer.pid) +
            " asks rdma_cm for datagrams, and sees no device that has them: face = \"roce\"");
}

void Server::set_cm_timer() {
  const Instant next = cm_.next_deadline();
  itimerspec when{};
  if (next != kNever) {
    const std::int64_t ns = std::max<std::int64_t>(next.ns, 1);  // 0 would mean never
    when.it_value.tv_sec = ns / 1'000'000'000;
    when.it_value.tv_nsec = ns % 1'000'000'000;
  }
  timerfd_settime(cm_timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

Result<Done, core::StreamError> Server::reject(std::uint32_t device, core::StreamId stream,
                                               const core::PrivateData& private_data, Rejects who) {
  ServedDevice& served = *machine_.devices[device];
  Result<Done, core::StreamError> result = Done{};
  log_.debug([&] {
    const std::string connection = in_words_of(device, stream) + ": ";
    switch (who) {
      case Rejects::nobody_listens:
        return connection + "rnicd rejects, as nobody listens any more";
      case Rejects::too_many_ids:
        return connection + "rnicd rejects, as there are too many ids";
      case Rejects::too_many_streams:
        return connection + "rnicd rejects, as its listener's process has too many";
      case Rejects::unfit:
        return connection + "rnicd rejects, as the two do not fit";
      case Rejects::gone:
        return connection + "rnicd forgets who asked";
      case Rejects::application:
        break;
    }
    return connection + asker() + " rejects, with " + std::to_string(private_data.length) + " octets of private data";
  });
  served.of_stream(stream, [&](core::Device& its, Instant now) { result = its.reject(stream, private_data, now); });
  return result;
}

void Server::disconnect(std::uint32_t device, core::StreamId stream, core::Disconnect how) {
  ServedDevice& served = *machine_.devices[device];
  log_.debug([&] {
    return in_words_of(device, stream) + ": " + asker() +
           (how == core::Disconnect::graceful ? " disconnects" : " gives the id up without a disconnect");
  });
  served.of_stream(stream, [&](core::Device& its, Instant now) { its.disconnect(stream, how, now); });
}

void Server::abandon(std::uint32_t device, const std::vector<Abandoned>& streams) {
  ServedDevice& served = *machine_.devices[device];
  for (const Abandoned& each : streams)
    log_.debug([&] {
      const IdInfo& id = each.id;
      return in_words(Ends{id.source, id.destination, id.source_port, id.destination_port}) + ", id " +
             std::to_string(id.id) + ": " + asker() +
             (each.unanswered ? " rejects, with 0 octets of private data" : " gives the id up without a disconnect");
    });
  for (Shard& shard : served.shards)
    in_batches(*shard.worker, streams, [&](const Abandoned& each, Instant now) {
      if (&served.of(each.stream) != &shard) return;
      if (each.unanswered)
        (void)shard.device->reject(
            each.stream,
            each.face == Face::roce ? refusal_data(Face::roce, wire::MarkRefusal::its_own_wish) : core::PrivateData{},
            now);
      else
        shard.device->disconnect(each.stream, core::Disconnect::abrupt, now);
    });
}

}  // namespace rnic::control
