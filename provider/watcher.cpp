/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// The helper thread of a context.
//
// It waits for the end of the daemon (a hang-up of the control socket, which it never reads) and
// then does what the daemon would have done: completion events for armed CQs, fatal events for the
// device and its QPs. The flushed completions themselves are made where they are polled.
//
// It is also the thread by whose id the daemon reaches our memory: the kernel ends it before an
// exec replaces the address space, so such copies can never hit another program.
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "context.hpp"

namespace rnic::provider {

namespace {

constexpr std::size_t kStackBytes = 256 * 1024;

struct AsyncMessage {  // struct ib_uverbs_async_event_desc
  std::uint64_t element;
  std::uint32_t type;
  std::uint32_t reserved;
};

bool send_async(Context& context, std::uint64_t element, ibv_event_type type) {
  const AsyncMessage message{element, static_cast<std::uint32_t>(type), 0};
  return send_event(context, context.async_writer, &message, sizeof message);
}

std::uint64_t pointer_value(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

struct Tidings {
  bool device_told;
};

// Tells as much as the sockets take. True when everybody has been told.
bool tell(Context& context, Tidings& tidings) {
  bool all = true;
  pthread_mutex_lock(&context.objects);
  for (Link* at = context.cq_list.next; at != &context.cq_list; at = at->next) {
    Cq& cq = *static_cast<Cq*>(at->owner);
    if (cq.told_of_death) continue;
    const SpinGuard guard(cq.lock);
    cq.told_of_death = fire_completion_event(cq);
    all = all && cq.told_of_death;
  }
  if (!tidings.device_told) {
    tidings.device_told = send_async(context, 0, IBV_EVENT_DEVICE_FATAL);
  }
  for (Link* at = context.qp_list.next; at != &context.qp_list; at = at->next) {
    Qp& qp = *static_cast<Qp*>(at->owner);
    if (!qp.told_of_death) {
      qp.told_of_death = send_async(context, pointer_value(&qp.ibv), IBV_EVENT_QP_FATAL);
    }
    // V-LIM-08: whoever drains a shared queue waits for this one, unless the daemon has told him.
    bool told_last_wqe = qp.srq == nullptr || load(qp.told_last_wqe, std::memory_order_relaxed);
    if (qp.told_of_death && !told_last_wqe) {
      told_last_wqe = send_async(context, pointer_value(&qp.ibv), IBV_EVENT_QP_LAST_WQE_REACHED);
      store(qp.told_last_wqe, told_last_wqe, std::memory_order_relaxed);
    }
    const bool told = qp.told_of_death && told_last_wqe;
    all = all && told;
    if (!told) break;
  }
  pthread_mutex_unlock(&context.objects);
  return all && tidings.device_told;
}

bool hung_up(short events) { return (events & (POLLHUP | POLLRDHUP | POLLERR | POLLNVAL)) != 0; }

void* watch(void* argument) {
  Context& context = *static_cast<Context*>(argument);
  prctl(PR_SET_NAME, "rnic-watch", 0, 0, 0);
  context.watcher_tid = static_cast<std::uint32_t>(syscall(SYS_gettid));
  sem_post(&context.watcher_started);

  Tidings tidings{};
  bool told = false;
  constexpr int kRetryMs = 20;
  while (load(context.closing, std::memory_order_acquire) == 0) {
    const bool dead = load(context.dead, std::memory_order_acquire) != 0;
    pollfd waits[2] = {{context.watcher_wake, POLLIN, 0}, {dead ? -1 : context.control.fd, POLLRDHUP, 0}};
    poll(waits, 2, dead && !told ? kRetryMs : -1);
    if (waits[0].revents != 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = read(context.watcher_wake, &count, sizeof count);
    }
    if (hung_up(waits[1].revents)) {
      store(context.control.broken, 1U, std::memory_order_release);
      mark_dead(context);
    }
    if (load(context.closing, std::memory_order_acquire) != 0) break;
    if (load(context.dead, std::memory_order_acquire) != 0 && !told) told = tell(context, tidings);
  }
  return nullptr;
}

void wake(Context& context) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(context.watcher_wake, &one, sizeof one);
}

}  // namespace

bool fire_completion_event(Cq& cq) {
  const std::uint32_t armed = load(cq.control->arm, std::memory_order_seq_cst);
  const std::uint32_t sequence = armed >> 2;
  if (cq.channel_writer < 0 || (armed & 3) == RNIC_ARM_NONE) return true;
  // The data plane's `fired` says that it wanted to tell, not that the event left before the daemon's end: one too many
  // is harmless, one too few is waited for without end.
  if (sequence == cq.fired_here) return true;
  const std::uint64_t message = pointer_value(&cq.ibv);
  if (!send_event(context_of(cq.ibv.context), cq.channel_writer, &message, sizeof message)) return false;
  cq.fired_here = sequence;
  ++cq.events_sent;
  return true;
}

void report_death(Context& context) {
  mark_dead(context);
  wake(context);
}

int start_watcher(Context& context) {
  context.watcher_wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (context.watcher_wake < 0) return errno;
  sem_init(&context.watcher_started, 0, 0);

  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(&context.watcher, &attributes, watch, &context);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (error != 0) return error;

  while (sem_wait(&context.watcher_started) != 0) {
  }
  context.watcher_runs = true;
  return 0;
}

void stop_watcher(Context& context) {
  // In a forked child there is no such thread; what is there is its stack.
  if (context.watcher_runs && !context.control.in_forked_child()) {
    store(context.closing, 1U, std::memory_order_release);
    wake(context);
    pthread_join(context.watcher, nullptr);
  }
  context.watcher_runs = false;
  if (context.watcher_wake >= 0) close(context.watcher_wake);
  context.watcher_wake = -1;
}

}  // namespace rnic::provider
