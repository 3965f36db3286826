#include "control/oob.hpp"

#include <sys/timerfd.h>
#include <unistd.h>

#include <ctime>
#include <utility>
#include <vector>

#include "control/addresses.hpp"
#include "control/limits.hpp"
#include "core/clock.hpp"
#include "host/ephemeral_ports.hpp"

namespace rnic::control {
namespace {

using core::clock_now;
using core::StreamEvent;

core::PrivateData to_private_data(const wire::Mark& mark) {
  core::PrivateData data;
  data.length = static_cast<std::uint16_t>(wire::emit(mark, data.octets));
  return data;
}

// For a connection with itself; where it is taken the next attempt has another.
std::uint16_t port_of_itself(std::uint64_t cookie) {
  using host::EphemeralPorts;
  return static_cast<std::uint16_t>(EphemeralPorts::kFirst + (cookie * 7919) % EphemeralPorts::kCount);
}

std::string in_words(const Qp& qp) {
  return "queue pair " + std::to_string(qp.number.value) + " of process " + std::to_string(qp.context->peer().pid);
}

// What it may ask of the peer at once: what its application has said, or, before RTS, as much as there is.
std::uint32_t ord_of(const Qp& qp) { return qp.meets->counts ? qp.qp->config().ord : kReadDepthMax; }

qp::State state_of(const Qp& qp) {
  qp::State state{};
  qp.shard->worker->call([&](Instant) { state = qp.qp->state(); });
  return state;
}

// For a peer that does not come.
std::optional<Duration> patience_of(const Qp& qp) {
  ServedDevice& served = qp.context->device();
  std::optional<Duration> patience = Rendezvous::kPatience;
  if (served.face() == Face::roce) qp.shard->worker->call([&](Instant) { patience = qp.qp->retry_time(); });
  return patience;
}

Rendezvous::Found found_by(const StreamEvent& event) {
  using Found = Rendezvous::Found;
  if (event.kind == StreamEvent::Kind::failed)  // where there is no listener there is no rnic
    return event.failure == core::StreamFailure::refused ? Found::not_there : Found::no_answer;
  const auto mark = wire::parse_mark(bytes_of(event.private_data));
  if (event.kind != StreamEvent::Kind::rejected || !mark || mark->kind != wire::Mark::Kind::refusal)
    return Found::no_answer;
  if (mark->refusal == wire::MarkRefusal::there) return Found::there;
  // One that knows no probes.
  return mark->refusal == wire::MarkRefusal::not_able ? Found::no_answer : Found::not_there;
}

}  // namespace

Oob::Oob(Machine& machine, Loop& loop, ConnectionManager& cm, const Log& log)
    : machine_(machine), loop_(loop), cm_(cm), log_(log) {
  for (const auto& served : machine_.devices) {
    const core::DeviceOptions& options = served->options();
    if (!options.oob_connect) continue;
    (void)served->listen(wire::IpAddress(), options.oob_port, 0, Rendezvous::kCookieBit, false);
  }
  timer_ = Descriptor(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  watch_ = loop_.add(timer_.get(), EPOLLIN, [this](std::uint32_t) {
    std::uint64_t times;
    if (read(timer_.get(), &times, sizeof times) != sizeof times) return;
    timer_at_ = kNever;
    rendezvous_.on_time(clock_now());
    act();
  });
}

Oob::~Oob() {
  if (watch_ != Loop::kNone) loop_.remove(watch_);
}

Qp* Oob::find(QpNumber number) const {
  const auto found = machine_.qps.find(number.value);
  if (found == machine_.qps.end() || found->second->qp == nullptr) return nullptr;  // one of type UD meets nobody
  return found->second;
}

// ---- what is said --------------------------------------------------------------------------------

void Oob::modified(Qp& qp, const rnic_modify_qp& request) {
  if (!qp.context->device().options().oob_connect) return;
  if ((request.mask & RNIC_MODIFY_PEER) != 0)
    rendezvous_.ready(qp.context->device().index, qp.meets->meeting, clock_now(), qp.context->device().face(),
                      holder_of(qp.context->peer()));
  else if ((request.mask & RNIC_MODIFY_PSN) != 0)
    rendezvous_.count_from(qp.number, request.psn, clock_now(), patience_of(qp));
  else if ((request.mask & RNIC_MODIFY_STATE) != 0 && request.state != RNIC_QP_RTS) {
    rendezvous_.forget(qp.number);
    qp.stream_share = {};
  }
  act();
}

void Oob::gone(QpNumber qp) {
  rendezvous_.forget(qp);
  act();
}

void Oob::on_stream_event(const StreamEvent& event) {
  const Instant now = clock_now();
  if (probes_.contains(event.cookie)) {
    on_probe_event(event, now);
    return act();
  }
  switch (event.kind) {
    case StreamEvent::Kind::connect_request: {
      const Rendezvous::Request request{.stream = {event.device, event.stream},
                                        .from = event.remote,
                                        .to = event.local,
                                        .private_data = bytes_of(event.private_data),
                                        .face = machine_.devices[event.device]->face()};
      const auto number = Rendezvous::number_asked(request);
      const Qp* qp = number ? find(*number) : nullptr;
      const bool there = qp != nullptr && qp->qp != nullptr && qp->context->device().index == event.device;
      rendezvous_.on_request(request, there, now);
      break;
    }
    case StreamEvent::Kind::withdrawn:  // the connection manager's (Server::on_worker_news)
      break;
    case StreamEvent::Kind::established:
      rendezvous_.on_established(event.cookie);
      break;
    case StreamEvent::Kind::ready:  // of streams in streaming mode
      break;
    case StreamEvent::Kind::disconnected:
    case StreamEvent::Kind::rejected:
    case StreamEvent::Kind::failed: {
      Qp* qp = find(Rendezvous::qp_of(event.cookie));
      if (event.kind == StreamEvent::Kind::rejected && qp != nullptr) tell_refused(*qp, event);
      // Of a call that came to nothing the queue pair knows nothing.
      const bool was_together = rendezvous_.stage(Rendezvous::qp_of(event.cookie)) == Rendezvous::Stage::together;
      const qp::State state = qp != nullptr && was_together ? state_of(*qp) : qp::State::error;
      // One that was accepted, and then nothing came: nobody was there.
      const bool was_nobody = event.kind == StreamEvent::Kind::failed && was_together && state == qp::State::idle;
      const bool is_over =
          was_nobody ? rendezvous_.on_not_answered(event.cookie) : rendezvous_.on_ended(event.cookie, state, now);
      if (is_over && qp != nullptr) qp->stream_share = {};
      break;
    }
  }
  act();
}

void Oob::tell_no_route(const Qp& qp) {
  std::uint64_t left_out = 0;
  if (!lines_.take(clock_now(), left_out)) return;
  log_.info(in_words(qp) + " (" + qp.context->program() +
            "): RTR without a GRH, or with a DGID of zeros: there are no LIDs here. Have the program use the GID of "
            "index 1 (ibv_rc_pingpong -g 1, perftest -x 1), or connect by rdma_cm (perftest -R, qperf -cm1)");
}

void Oob::tell_not_here(const Qp& qp) {
  std::uint64_t left_out = 0;
  if (qp.context->device().options().oob_connect || !lines_.take(clock_now(), left_out)) return;
  log_.info(in_words(qp) + " (" + qp.context->program() +
            "): RTS by ibv_modify_qp: this device connects by rdma_cm alone (perftest -R, qperf -cm1), or, with other "
            "rnics, with oob_connect = true in its [[device]] table");
}

// Its peer will not come as long as it is what it is; other refusals may pass.
void Oob::tell_refused(const Qp& qp, const StreamEvent& event) {
  const auto mark = wire::parse_mark(bytes_of(event.private_data));
  if (!mark || mark->kind != wire::Mark::Kind::refusal) return;
  const bool for_good = mark->refusal == wire::MarkRefusal::other_face || mark->refusal == wire::MarkRefusal::not_able;
  std::uint64_t left_out = 0;
  if (!for_good || !lines_.take(clock_now(), left_out)) return;
  log_.info(in_words(qp) + ": the rnic at " + wire::to_string(event.remote) +
            " refuses: " + wire::in_words(mark->refusal));
}

// ---- what is done --------------------------------------------------------------------------------

void Oob::act() {
  while (const auto next = rendezvous_.next_act()) {
    using Kind = Rendezvous::Act::Kind;
    switch (next->kind) {
      case Kind::call:
      case Kind::join:
        call(*next);
        break;
      case Kind::answer:
        answer(*next);
        break;
      case Kind::refuse:
        refuse(*next);
        break;
      case Kind::probe:
        probe(*next);
        break;
      case Kind::renew:
        machine_.devices[next->stream.device]->of_stream(
            next->stream.id, [&](core::Device& device, Instant now) { device.renew_call(next->stream.id, now); });
        break;
      case Kind::unprobe:
        unprobe(*next);
        break;
      case Kind::drop:
        disconnect(next->stream.device, next->stream.id);
        break;
      case Kind::look:
        look(*next);
        break;
      case Kind::give_up:
        give_up(next->qp);
        break;
    }
  }
  set_timer();
}

bool Oob::take_share(Qp& qp) {
  qp.stream_share = cm_.streams_of(qp.context->device().index).take(holder_of(qp.context->peer()));
  return static_cast<bool>(qp.stream_share);
}

void Oob::call(const Rendezvous::Act& act) {
  Qp* qp = find(act.qp);
  if (qp == nullptr) return rendezvous_.forget(act.qp);
  const Instant now = clock_now();
  if (!take_share(*qp)) {
    rendezvous_.on_ended(act.cookie, qp::State::idle, now);
    return;
  }
  ServedDevice& served = *machine_.devices[act.stream.device];
  const wire::Meeting& meeting = qp->meets->meeting;
  core::ConnectOptions options;
  options.local = meeting.own_gid;
  options.remote = meeting.peer_gid;
  options.remote_port = served.options().oob_port;
  options.cookie = act.cookie;
  options.traffic_class = qp->meets->traffic_class;
  options.acknowledged = served.face() == Face::roce;
  if (act.mark) {
    options.meeting = act.mark->meeting;
    options.private_data = to_private_data(*act.mark);
  } else {
    options.itself = true;
    options.local_port = options.remote_port = port_of_itself(act.cookie);
  }
  Result<core::StreamId, core::StreamError> called = Failure{core::StreamError::wrong_state};
  Shard& shard = shard_for(*qp, served, options);
  if (qp->context->move(*qp, shard))
    shard.worker->call([&](Instant turn) {
      options.ird = qp->qp->config().ird;
      options.ord = ord_of(*qp);
      called = shard.device->connect(options, *qp->qp, turn);
    });
  if (called) {
    qp->local = to_abi(options.local, 0);
    qp->remote = to_abi(options.remote, options.remote_port);
    rendezvous_.on_called(act.cookie, {act.stream.device, *called});
    return;
  }
  qp->stream_share = {};
  // One that has gone to Error meanwhile calls nobody.
  if (called.error() == core::StreamError::wrong_state)
    rendezvous_.forget(act.qp);
  else
    rendezvous_.on_ended(act.cookie, qp::State::idle, now);
}

void Oob::answer(const Rendezvous::Act& act) {
  Qp* qp = find(act.qp);
  ServedDevice& served = *machine_.devices[act.stream.device];
  if (qp != nullptr && !take_share(*qp)) {  // later there may be one: the peer calls again
    (void)rendezvous_.on_not_answered(act.cookie);
    return refuse({.stream = act.stream});
  }
  Result<Done, core::StreamError> accepted = Failure{core::StreamError::wrong_state};
  if (qp != nullptr) {
    core::AcceptOptions options;
    options.private_data = to_private_data(*act.mark);
    options.cookie = act.cookie;
    options.traffic_class = qp->meets->traffic_class;
    options.outlives_peer = true;
    options.acknowledged = served.face() == Face::roce;
    Shard& shard = served.of(act.stream.id);
    if (qp->context->move(*qp, shard))
      shard.worker->call([&](Instant now) {
        options.ird = qp->qp->config().ird;
        options.ord = ord_of(*qp);
        accepted = shard.device->accept(act.stream.id, options, *qp->qp, now);
      });
  }
  if (accepted) {
    qp->local = to_abi(qp->meets->meeting.own_gid, served.options().oob_port);
    qp->remote = to_abi(qp->meets->meeting.peer_gid, 0);
    return;
  }
  if (qp != nullptr) qp->stream_share = {};
  if (accepted.error() == core::StreamError::wrong_state)
    rendezvous_.forget(act.qp);
  else
    (void)rendezvous_.on_not_answered(act.cookie);
  if (accepted.error() != core::StreamError::unknown) refuse({.stream = act.stream});
}

void Oob::probe(const Rendezvous::Act& act) {
  Qp* qp = find(act.qp);
  if (qp == nullptr) return rendezvous_.forget(act.qp);
  Share share = cm_.streams_of(act.stream.device).take(holder_of(qp->context->peer()));
  if (!share) return rendezvous_.on_probed(act.cookie, Rendezvous::Found::no_answer, clock_now());
  ServedDevice& served = *machine_.devices[act.stream.device];
  core::ConnectOptions options;
  options.local = act.mark->meeting.own_gid;
  options.remote = act.mark->meeting.peer_gid;
  options.remote_port = served.options().oob_port;
  options.cookie = act.cookie;
  options.traffic_class = qp->meets->traffic_class;
  options.private_data = to_private_data(*act.mark);
  Result<core::StreamId, core::StreamError> called = Failure{core::StreamError::wrong_state};
  Shard& shard = served.of(options);
  shard.worker->call([&](Instant now) { called = shard.device->greet(options, now); });
  if (!called) return rendezvous_.on_probed(act.cookie, Rendezvous::Found::no_answer, clock_now());
  probes_.try_emplace(act.cookie, Probe{*called, std::move(share)});
}

void Oob::disconnect(std::uint32_t device, core::StreamId stream) {
  machine_.devices[device]->of_stream(
      stream, [&](core::Device& its, Instant now) { its.disconnect(stream, core::Disconnect::abrupt, now); });
}

void Oob::unprobe(const Rendezvous::Act& act) {
  const auto found = probes_.find(act.cookie);
  if (found == probes_.end()) return;
  disconnect(act.stream.device, found->second.stream);
  probes_.erase(found);
}

void Oob::on_probe_event(const StreamEvent& event, Instant now) {
  if (event.kind == StreamEvent::Kind::established) disconnect(event.device, event.stream);  // no rnic accepts a probe
  probes_.erase(event.cookie);
  rendezvous_.on_probed(event.cookie, found_by(event), now);
}

void Oob::refuse(const Rendezvous::Act& act) {
  ServedDevice& served = *machine_.devices[act.stream.device];
  const core::PrivateData data = act.mark ? to_private_data(*act.mark) : core::PrivateData{};
  const auto words = [&]() -> std::string {
    if (!act.mark) return served.name + ": a Request without a mark is refused";
    if (act.mark->refusal == wire::MarkRefusal::there)
      return served.name + ": another rnic asks for a queue pair that waits for it";
    return served.name + ": a Request of another rnic's queue pair is refused: " + wire::in_words(act.mark->refusal);
  };
  std::uint64_t left_out = 0;
  if (act.mark && act.mark->refusal == wire::MarkRefusal::other_face && lines_.take(clock_now(), left_out))
    log_.info(words());
  else
    log_.debug(words);
  served.of_stream(act.stream.id,
                   [&](core::Device& device, Instant now) { (void)device.reject(act.stream.id, data, now); });
}

void Oob::look(const Rendezvous::Act& act) {
  std::vector<std::pair<Qp*, bool>> looks;
  looks.reserve(act.qps.size());
  for (const QpNumber number : act.qps) {
    if (Qp* qp = find(number))
      looks.push_back({qp, false});
    else
      rendezvous_.forget(number);
  }
  machine_.devices[act.stream.device]->on_each([&](Shard& shard, Instant) {
    for (auto& [qp, any] : looks)
      if (qp->shard == &shard) any = qp->send->has_work() || qp->qp->has_begun_work();
  });
  const Instant now = clock_now();
  for (const auto& [qp, any] : looks) rendezvous_.posted(qp->number, any, now);
}

void Oob::give_up(QpNumber number) {
  Qp* qp = find(number);
  if (qp == nullptr) return;
  ServedDevice& served = qp->context->device();
  core::Device& device = *qp->shard->device;
  bool waited = false;
  qp->shard->worker->call([&](Instant now) {
    waited = qp->qp->state() == qp::State::idle && !device.has_stream(*qp->qp);
    if (!waited) return;
    qp->qp->give_up(now);
    device.touch(*qp->qp);
  });
  std::uint64_t left_out = 0;
  if (!waited || !lines_.take(clock_now(), left_out)) return;
  const wire::Meeting& meeting = qp->meets->meeting;
  log_.info(in_words(*qp) + ": its peer, queue pair " + std::to_string(meeting.peer_number.value) + " at " +
            wire::to_string(meeting.peer_gid) + ", is not there, at port " + std::to_string(served.options().oob_port) +
            "; what it has posted ends with an error");
}

void Oob::set_timer() {
  const Instant next = rendezvous_.next_deadline();
  if (next == timer_at_) return;
  timer_at_ = next;
  itimerspec when{};
  if (next != kNever) {
    const std::int64_t ns = std::max<std::int64_t>(next.ns, 1);  // 0 would mean never
    when.it_value.tv_sec = ns / 1'000'000'000;
    when.it_value.tv_nsec = ns % 1'000'000'000;
  }
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

}  // namespace rnic::control
