#include "control/rendezvous.hpp"

#include <algorithm>
#include <utility>

namespace rnic::control {
namespace {

using wire::Mark;
using wire::MarkRefusal;

constexpr unsigned kNumberBits = 24;

// One without the face refuses as unable, if it does not know what a face is.
Mark mark_of(const wire::Meeting& meeting, Face face, Mark::Kind kind = Mark::Kind::meeting) {
  Mark mark;
  mark.kind = kind;
  mark.capabilities = mark.needed = mpa::mark_capabilities(face);
  mark.meeting = meeting;
  return mark;
}

bool names_a_queue_pair(const Mark& mark) { return mark.kind == Mark::Kind::meeting || mark.kind == Mark::Kind::probe; }

Duration pause_after(unsigned calls) {
  Duration pause = Rendezvous::kPauseFirst;
  for (unsigned i = 1; i < calls && pause < Rendezvous::kPauseMax; ++i) pause = pause * 2;
  return std::min(pause, Rendezvous::kPauseMax);
}

}  // namespace

Instant Rendezvous::Waiter::due() const {
  return stage == Stage::together ? kNever : std::min({call_at, look_at, give_up_at, unprobe_at});
}

Rendezvous::Waiter* Rendezvous::find(QpNumber qp) {
  const auto found = waiters_.find(qp);
  return found == waiters_.end() ? nullptr : &found->second;
}

Rendezvous::Waiter* Rendezvous::of(std::uint64_t cookie) {
  Waiter* waiter = find(qp_of(cookie));
  return waiter != nullptr && waiter->cookie == cookie ? waiter : nullptr;
}

std::optional<Rendezvous::Stage> Rendezvous::stage(QpNumber qp) const {
  const auto found = waiters_.find(qp);
  return found == waiters_.end() ? std::nullopt : std::optional(found->second.stage);
}

std::uint64_t Rendezvous::next_cookie(QpNumber qp) {
  return kCookieBit | (++attempts_ << kNumberBits & ~kCookieBit) | qp.value;
}

// Changes what the waiter waits for.
template <typename Change>
void Rendezvous::change(Waiter& waiter, Change&& change) {
  const QpNumber number = waiter.meeting.own_number;
  const Instant before = waiter.due();
  change();
  const Instant after = waiter.due();
  if (before == after) return;
  due_.erase({before, number});
  if (after != kNever) due_.insert({after, number});
}

// ---- what applications say -------------------------------------------------------------------------

void Rendezvous::ready(std::uint32_t device, const wire::Meeting& meeting, Instant now, Face face,
                       std::uint64_t holder) {
  forget(meeting.own_number);
  Waiter& waiter = waiters_[meeting.own_number];
  waiter.device = device;
  waiter.holder = holder;
  waiter.face = face;
  waiter.meeting = meeting;
  waiter.role = mpa::role_of(meeting);
  if (waiter.role == mpa::Role::calls) change(waiter, [&] { waiter.call_at = now; });
  look_through_requests(waiter, now);
  // Of its own alone: what others are due for is not done in this one's time.
  if (waiter.due() > now) return;
  Looks looks;
  serve(waiter, now, looks);
  look(std::move(looks));
}

void Rendezvous::count_from(QpNumber qp, std::uint32_t psn, Instant now, std::optional<Duration> patience) {
  Waiter* waiter = find(qp);
  if (waiter == nullptr) return;
  waiter->meeting.own_psn = psn;
  waiter->patience = patience;
  if (waiter->stage == Stage::together) return;
  change(*waiter, [&] { waiter->look_at = now + kLookFirst; });
  if (waiter->stage == Stage::left) return;
  if (waiter->role == mpa::Role::itself) {
    if (psn != waiter->meeting.due_psn) return;
    change(*waiter, [&] { waiter->call_at = kNever; });
    if (waiter->stage == Stage::apart) call(*waiter);
    return;
  }
  look_through_requests(*waiter, now);
}

void Rendezvous::forget(QpNumber qp) {
  Waiter* waiter = find(qp);
  if (waiter == nullptr) return;
  if (waiter->stage == Stage::calling && waiter->call)
    acts_.push_back({.kind = Act::Kind::drop, .qp = qp, .stream = *waiter->call});
  unprobe(*waiter);
  remove(qp);
}

void Rendezvous::remove(QpNumber qp) {
  const auto found = waiters_.find(qp);
  due_.erase({found->second.due(), qp});
  count_failing(found->second, false);
  waiters_.erase(found);
  // Nothing is begun for one that is gone.
  for (Act& act : acts_) std::erase(act.qps, qp);
  std::erase_if(acts_, [&](const Act& act) {
    if (act.kind == Act::Kind::look) return act.qps.empty();
    using Kind = Act::Kind;
    return act.qp == qp && (act.kind == Kind::call || act.kind == Kind::join || act.kind == Kind::probe);
  });
}

// ---- calls and answers -----------------------------------------------------------------------------

void Rendezvous::call(Waiter& waiter) {
  waiter.cookie = next_cookie(waiter.meeting.own_number);
  waiter.stage = Stage::calling;
  waiter.call.reset();
  ++waiter.calls;
  Act act{.kind = Act::Kind::join,
          .qp = waiter.meeting.own_number,
          .stream = {waiter.device, {}},
          .cookie = waiter.cookie,
          .mark = std::nullopt};
  if (waiter.role == mpa::Role::calls) {
    act.kind = Act::Kind::call;
    act.mark = mark_of(waiter.meeting, waiter.face);
  }
  acts_.push_back(act);
}

void Rendezvous::probe(Waiter& waiter, Instant now) {
  unprobe(waiter);
  change(waiter, [&] { waiter.unprobe_at = now + kAnswerMost; });
  waiter.probe = next_cookie(waiter.meeting.own_number);
  acts_.push_back({.kind = Act::Kind::probe,
                   .qp = waiter.meeting.own_number,
                   .stream = {waiter.device, {}},
                   .cookie = waiter.probe,
                   .mark = mark_of(waiter.meeting, waiter.face, Mark::Kind::probe)});
}

// Nobody waits for its answer any more.
void Rendezvous::unprobe(Waiter& waiter) {
  change(waiter, [&] { waiter.unprobe_at = kNever; });
  if (waiter.probe == 0) return;
  acts_.push_back({.kind = Act::Kind::unprobe,
                   .qp = waiter.meeting.own_number,
                   .stream = {waiter.device, {}},
                   .cookie = std::exchange(waiter.probe, 0)});
}

void Rendezvous::answer(Waiter& waiter, const Stream& stream) {
  unprobe(waiter);
  waiter.cookie = next_cookie(waiter.meeting.own_number);
  // Its patience stays as it is: a caller that has gone meanwhile was not there.
  change(waiter, [&] {
    waiter.stage = Stage::together;
    waiter.call_at = waiter.look_at = kNever;
  });
  acts_.push_back({.kind = Act::Kind::answer,
                   .qp = waiter.meeting.own_number,
                   .stream = stream,
                   .cookie = waiter.cookie,
                   .mark = mark_of(waiter.meeting, waiter.face)});
}

void Rendezvous::refuse(const Stream& stream, Face face, MarkRefusal why) {
  Mark mark;
  mark.kind = Mark::Kind::refusal;
  mark.capabilities = mpa::mark_capabilities(face);
  mark.refusal = why;
  acts_.push_back({.kind = Act::Kind::refuse, .qp = {}, .stream = stream, .cookie = 0, .mark = mark});
}

// Those that were too early.
void Rendezvous::look_through_requests(Waiter& waiter, Instant now) {
  // Whoever calls for it last is who is there.
  for (std::size_t i = asked_.size(); i-- > 0;) {
    const Asked asked = asked_[i];
    if (asked.meeting.peer_number != waiter.meeting.own_number || asked.stream.device != waiter.device) continue;
    const mpa::Match fits = mpa::match(waiter.meeting, asked.meeting);
    if (fits == mpa::Match::not_yet && waiter.role == mpa::Role::answers) {
      asked_[i].until = std::min(asked_[i].until, now + kUnprovenKept);
      continue;
    }
    asked_.erase(asked_.begin() + static_cast<std::ptrdiff_t>(i));
    if (fits == mpa::Match::yes && waiter.role == mpa::Role::answers && waiter.stage == Stage::apart)
      answer(waiter, asked.stream);
    else
      refuse(asked.stream, asked.face, MarkRefusal::not_the_peer);
  }
}

// ---- what streams bring ----------------------------------------------------------------------------

std::optional<QpNumber> Rendezvous::number_asked(const Request& request) {
  const auto mark = wire::parse_mark(request.private_data);
  if (!mark || !names_a_queue_pair(*mark)) return std::nullopt;
  return mark->meeting.peer_number;
}

void Rendezvous::on_request(const Request& request, bool exists, Instant now) {
  const auto mark = wire::parse_mark(request.private_data);
  if (!mark || !names_a_queue_pair(*mark)) {
    // Who does not speak our language is answered in his own; who speaks a later one, that we do not.
    if (wire::has_mark(request.private_data)) return refuse(request.stream, request.face, MarkRefusal::not_able);
    acts_.push_back({.kind = Act::Kind::refuse, .qp = {}, .stream = request.stream});
    return;
  }
  if (const auto why = mpa::unfit(request.face, *mark)) return refuse(request.stream, request.face, *why);
  const wire::Meeting& theirs = mark->meeting;
  if (theirs.own_gid != request.from || theirs.peer_gid != request.to)
    return refuse(request.stream, request.face, MarkRefusal::not_the_peer);
  Waiter* waiter = find(theirs.peer_number);
  if (waiter != nullptr && waiter->device != request.stream.device)
    return refuse(request.stream, request.face, MarkRefusal::no_such_queue_pair);
  if (mark->kind == Mark::Kind::probe) return on_probe(request, theirs, exists, now);
  if (waiter == nullptr || waiter->stage == Stage::together || waiter->stage == Stage::left) {
    // Its application may be about to name this peer.
    if (!exists) return refuse(request.stream, request.face, MarkRefusal::no_such_queue_pair);
    return keep(request, theirs, now + kRequestKept);
  }
  const mpa::Match fits = mpa::match(waiter->meeting, theirs);
  if (fits == mpa::Match::no || waiter->role != mpa::Role::answers)
    return refuse(request.stream, request.face, MarkRefusal::not_the_peer);
  if (fits == mpa::Match::not_yet) return keep(request, theirs, now + kUnprovenKept);
  answer(*waiter, request.stream);
}

void Rendezvous::on_probe(const Request& request, const wire::Meeting& theirs, bool exists, Instant now) {
  const auto say = [&](MarkRefusal why) { refuse(request.stream, request.face, why); };
  Waiter* waiter = find(theirs.peer_number);
  if (waiter == nullptr || waiter->stage == Stage::left)
    return say(exists ? MarkRefusal::not_ready : MarkRefusal::no_such_queue_pair);
  const mpa::Match fits = mpa::match(waiter->meeting, theirs);
  if (fits != mpa::Match::yes) return say(fits == mpa::Match::no ? MarkRefusal::not_the_peer : MarkRefusal::not_ready);
  // One that calls may ask this beside its call, which has been answered meanwhile; one that is called asks while it
  // has no connection: then this is another one's, from before.
  if (waiter->stage == Stage::together && waiter->role == mpa::Role::calls) return say(MarkRefusal::not_ready);
  say(MarkRefusal::there);
  call_soon(*waiter, now);
}

// There is more reason to than the end of a pause.
void Rendezvous::call_soon(Waiter& waiter, Instant now) {
  if (waiter.role != mpa::Role::calls) return;
  waiter.calls = 0;
  if (waiter.stage == Stage::calling) {
    waiter.is_wanted = true;
    if (waiter.call)
      acts_.push_back({.kind = Act::Kind::renew, .qp = waiter.meeting.own_number, .stream = *waiter.call});
  }
  if (waiter.stage == Stage::apart) change(waiter, [&] { waiter.call_at = std::min(waiter.call_at, now); });
}

void Rendezvous::keep(const Request& request, const wire::Meeting& theirs, Instant until) {
  std::size_t of_caller = 0, for_one = 0;
  auto oldest_for_one = asked_.end();
  for (auto each = asked_.begin(); each != asked_.end(); ++each) {
    of_caller += each->meeting.own_gid == theirs.own_gid;
    if (each->meeting.peer_number != theirs.peer_number || each->meeting.own_gid != theirs.own_gid) continue;
    if (for_one++ == 0) oldest_for_one = each;
  }
  if (for_one >= kRequestsForOne) {  // who calls again has given up his call before
    refuse(oldest_for_one->stream, oldest_for_one->face, MarkRefusal::busy);
    asked_.erase(oldest_for_one);
  } else if (asked_.size() >= kRequestsMax || of_caller >= kRequestsOfCaller) {
    return refuse(request.stream, request.face, MarkRefusal::busy);
  }
  asked_.push_back({request.stream, request.face, theirs, until});
}

void Rendezvous::on_called(std::uint64_t cookie, Stream stream) {
  if (Waiter* waiter = of(cookie)) waiter->call = stream;
}

void Rendezvous::on_established(std::uint64_t cookie) {
  Waiter* waiter = of(cookie);
  if (waiter == nullptr) return;
  waiter->calls = 0;
  unprobe(*waiter);
  waiter->is_wanted = waiter->patience_is_over = false;
  count_failing(*waiter, false);
  change(*waiter, [&] {
    waiter->stage = Stage::together;
    waiter->call_at = waiter->look_at = waiter->give_up_at = kNever;
  });
  waiter->has_posted = false;
}

bool Rendezvous::on_ended(std::uint64_t cookie, qp::State state, Instant now) {
  Waiter* waiter = of(cookie);
  if (waiter == nullptr) return false;
  if (waiter->stage == Stage::together) {
    if (state != qp::State::idle && state != qp::State::closing) {
      remove(waiter->meeting.own_number);
      return true;
    }
    waiter->look_pause = kLookFirst;
    change(*waiter, [&] {
      waiter->stage = Stage::left;
      if (waiter->meeting.own_psn) waiter->look_at = now;  // it may have left requests unanswered
    });
    return true;
  }
  waiter->stage = Stage::apart;
  waiter->call.reset();
  if (waiter->role == mpa::Role::answers) return true;
  count_failing(*waiter, true);
  const Duration of_all = pause_of_all(*waiter);
  Duration pause = of_all > kPauseMax ? of_all : pause_after(waiter->calls);
  if (std::exchange(waiter->is_wanted, false)) pause = Duration{};
  change(*waiter, [&] { waiter->call_at = now + pause; });
  return true;
}

Duration Rendezvous::pause_of_all(const Waiter& waiter) const {
  const auto found = failing_.find(waiter.holder);
  if (found == failing_.end()) return Duration{};
  return std::min(kPauseOfEach * static_cast<std::int64_t>(found->second), kPauseMost);
}

void Rendezvous::count_failing(Waiter& waiter, bool fails) {
  if (std::exchange(waiter.fails, fails) == fails) return;
  std::size_t& count = failing_[waiter.holder];
  fails ? ++count : --count;
  if (count == 0) failing_.erase(waiter.holder);
}

bool Rendezvous::on_not_answered(std::uint64_t cookie) {
  Waiter* waiter = of(cookie);
  if (waiter == nullptr) return false;
  change(*waiter, [&] {
    waiter->stage = Stage::apart;
    if (waiter->meeting.own_psn) waiter->look_at = Instant{0};
  });
  return true;
}

void Rendezvous::posted(QpNumber qp, bool any, Instant now) {
  Waiter* waiter = find(qp);
  if (waiter == nullptr || waiter->stage == Stage::together) return;
  if (!any || waiter->has_posted) return;
  waiter->has_posted = true;
  change(*waiter, [&] {
    if (waiter->patience) waiter->give_up_at = now + *waiter->patience;
  });
  // The peer may have come in the middle of a pause, or be in one.
  call_soon(*waiter, now);
  if (waiter->stage == Stage::apart && waiter->role == mpa::Role::answers) probe(*waiter, now);
}

void Rendezvous::on_probed(std::uint64_t cookie, Found found, Instant now) {
  Waiter* waiter = find(qp_of(cookie));
  if (waiter == nullptr || waiter->probe != cookie) return;
  waiter->probe = 0;
  change(*waiter, [&] { waiter->unprobe_at = kNever; });
  if (found == Found::not_there && waiter->patience_is_over) return give_up(waiter->meeting.own_number);
  if (found != Found::there) return;
  const Instant comes_by = now + kComesMost;
  if (waiter->give_up_at < comes_by) {
    waiter->patience_is_over = true;
    change(*waiter, [&] { waiter->give_up_at = comes_by; });
  }
  call_soon(*waiter, now);
}

// ---- time ------------------------------------------------------------------------------------------

Instant Rendezvous::next_deadline() const {
  Instant next = due_.empty() ? kNever : due_.begin()->first;
  for (const Asked& each : asked_) next = std::min(next, each.until);
  return next;
}

void Rendezvous::on_time(Instant now) {
  std::erase_if(asked_, [&](const Asked& each) {
    if (each.until > now) return false;
    refuse(each.stream, each.face, MarkRefusal::not_ready);
    return true;
  });
  Looks looks;
  for (std::size_t left = kDueAtOnce; left > 0 && !due_.empty() && due_.begin()->first <= now; --left)
    serve(waiters_.at(due_.begin()->second), now, looks);
  look(std::move(looks));
}

void Rendezvous::serve(Waiter& waiter, Instant now, Looks& looks) {
  const QpNumber number = waiter.meeting.own_number;
  if (waiter.give_up_at <= now) {
    const bool has_nobody = waiter.stage == Stage::left || waiter.role == mpa::Role::itself;
    if (has_nobody || std::exchange(waiter.patience_is_over, true)) return give_up(number);
    change(waiter, [&] { waiter.give_up_at = now + kAnswerMost; });
    probe(waiter, now);
  }
  if (waiter.unprobe_at <= now) unprobe(waiter);
  if (waiter.look_at <= now) {
    // Once something is known to be posted there is nothing more to look for.
    const bool known = waiter.has_posted;
    change(waiter, [&] { waiter.look_at = known ? kNever : now + waiter.look_pause; });
    waiter.look_pause = std::min(waiter.look_pause * 2, kLookMax);
    if (!known) looks[waiter.device].push_back(number);
  }
  if (waiter.call_at <= now) {
    change(waiter, [&] { waiter.call_at = kNever; });
    if (waiter.stage == Stage::apart) call(waiter);
  }
}

void Rendezvous::give_up(QpNumber qp) {
  forget(qp);
  acts_.push_back({.kind = Act::Kind::give_up, .qp = qp});
}

void Rendezvous::look(Looks looks) {
  for (auto& [device, qps] : looks) {
    Act& act = acts_.emplace_back();
    act.stream.device = device;
    act.qps = std::move(qps);
  }
}

std::optional<Rendezvous::Act> Rendezvous::next_act() {
  if (acts_.empty()) return std::nullopt;
  Act first = std::move(acts_.front());
  acts_.pop_front();
  return first;
}

}  // namespace rnic::control
