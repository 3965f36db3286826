// Applications whose pages do not come: named, and ended after page_wait. Their own requests wait for
// the page where the answer says that their memory is theirs again; nobody else's do.
#include <sys/timerfd.h>
#include <unistd.h>

#include "control/server.hpp"
#include "core/clock.hpp"

namespace rnic::control {
namespace {

constexpr Duration kLook = milliseconds(100);

void set_timer(int timer, Duration every) {
  const timespec span{every.ns / 1'000'000'000, every.ns % 1'000'000'000};
  const itimerspec spec{span, span};
  timerfd_settime(timer, 0, &spec, nullptr);
}

}  // namespace

Server::Session* Server::session_of(SpaceId space) {
  for (const auto& [number, session] : sessions_)
    if (session->context != nullptr && session->context->space() == space) return session.get();
  return nullptr;
}

void Server::on_copy_stuck(SpaceId space) {
  Session* session = session_of(space);
  if (session == nullptr || session->stuck) return;
  // The news may be old, and of a context that had the number before.
  bool stuck = false;
  session->context->device().on_each([&](Shard& shard, Instant) { stuck |= shard.worker->mover().is_stuck(space); });
  if (!stuck) return;
  session->stuck = true;
  session->stuck_looks = static_cast<unsigned>(machine_.page_wait.ns / kLook.ns);
  if (stuck_sessions_++ == 0) set_timer(page_timer_.get(), kLook);
  // Once: it may be so as often as it likes.
  if (std::exchange(session->told_stuck, true)) return;
  log_.error("process " + std::to_string(session->peer.pid) + " (" + session->context->program() +
             "): a page of its memory does not come; its queue pairs wait for it");
}

void Server::on_copy_back(SpaceId space, const core::Worker& teller) {
  machine_.space_is_free(space);
  Session* session = session_of(space);
  if (session == nullptr) return;
  // With another worker. If the same one waits again its news of that follow, and the time for that page begins then.
  bool still_stuck = false;
  session->context->device().on_each(
      [&](Shard& shard, Instant) { still_stuck |= shard.worker != &teller && shard.worker->mover().is_stuck(space); });
  if (still_stuck) return;
  if (std::exchange(session->stuck, false)) --stuck_sessions_;
  session->context->drop_dead_memory();
  if (session->waiting == nullptr) return;
  const std::unique_ptr<Request> request = std::move(session->waiting);
  const std::uint64_t number = session->number;
  const Reply reply = serve(*session, *request);
  if (reply.later) {
    session->waiting = std::make_unique<Request>(std::move(*request));
    return;
  }
  loop_.change(session->watch, EPOLLIN);
  if (!send_reply(session->socket.get(), request->header, reply)) end(number);
}

void Server::on_copies_refused(SpaceId space) {
  const Session* session = session_of(space);
  std::uint64_t left_out = 0;
  if (session == nullptr || !copies_refused_.take(core::clock_now(), left_out)) return;
  log_.error(
      "user " + std::to_string(session->peer.uid) + ": copies of " +
      std::to_string(shm::ApplicationMover::kStuckOfUserMax) +
      " of its contexts wait for pages, perhaps of processes that have ended; until one is back its other copies "
      "fail, where memory is not mapped. If that lasts, look for a file system that does not answer (FUSE, NFS)");
}

void Server::look_at_stuck() {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto got = read(page_timer_.get(), &count, sizeof count);
  if (stuck_sessions_ == 0) return set_timer(page_timer_.get(), {});
  if (machine_.page_wait.ns == 0) return;
  std::vector<std::uint64_t> over;
  for (const auto& [number, session] : sessions_)
    if (session->stuck && session->stuck_looks-- == 0) over.push_back(number);
  for (const std::uint64_t number : over) {
    Session& session = *sessions_.at(number);
    log_.error("process " + std::to_string(session.peer.pid) + " (" + session.context->program() +
               ") is ended: a page of its memory has not come for " +
               std::to_string(machine_.page_wait.ns / 1'000'000'000) + " s (page_wait_s)");
    // With it the copy ends. Where we may not, its queue pairs end, and the copy keeps its thread.
    session.context->kill_process();
    end(number);
  }
}

}  // namespace rnic::control
