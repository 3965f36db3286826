#include "core/worker.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "core/clock.hpp"

namespace rnic::core {
namespace {

constexpr std::size_t kEventsMax = 65536;
constexpr std::size_t kStreamEventsMax = 1024;
constexpr Duration kTendEvery = milliseconds(100);
// What wakes us. Eventfds edge-triggered: their counts need not be read, as the loop looks at everything
// anyway. Ports by level: what waits in a port waits until it is received.
constexpr std::uint32_t kCounter = EPOLLIN | EPOLLET;
constexpr std::uint32_t kPort = EPOLLIN;
// Ports without a descriptor: how long a sleep is at first, and at most (architecture.md s3).
constexpr Duration kTimedSleepMin = microseconds(20);
constexpr Duration kTimedSleepMax = milliseconds(1);
constexpr Duration kSleepMax = milliseconds(500);

void signal_eventfd(int fd) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(fd, &one, sizeof one);
}

// Of the thread that is a worker.
thread_local const void* own_worker = nullptr;

static_assert(shm::Grace::kStuckMax > Crew::kStuckMax + 1);
static_assert(shm::ApplicationMover::kStuckOfUserMax < Crew::kStuckMax);

WorkerEvent::Kind kind_of(shm::ApplicationMover::News::Kind news) {
  switch (news) {
    case shm::ApplicationMover::News::Kind::stuck:
      return WorkerEvent::Kind::copy_stuck;
    case shm::ApplicationMover::News::Kind::back:
      return WorkerEvent::Kind::copy_back;
    case shm::ApplicationMover::News::Kind::refused:
      break;
  }
  return WorkerEvent::Kind::copies_refused;
}

// How long stop() waits for threads that are stuck.
constexpr Duration kStopPatience = milliseconds(100);

}  // namespace

Worker::Worker(const WorkerOptions& options)
    : options_(options),
      mover_(options.copier != nullptr ? *options.copier : shm::Copier::kernel(), options.grace),
      doorbells_(options.index, options.wakes),
      events_(kEventsMax),
      stream_events_(kStreamEventsMax),
      core_(options.cpu, options.realtime, options.crowded),
      crew_(mover_.watch(), {.on_thread = [this] { set_up_thread(); },
                             .on_watcher = [this] { set_up_watcher(); },
                             .work = [this] { return work(); },
                             .on_taken_over = [this] { taken_over_ = true; },
                             .on_nobody_left = [this] { end_stuck_process(); },
                             .is_asleep = [this] { return asleep_.load(std::memory_order_relaxed); }}) {
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  event_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  call_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  RNIC_ASSERT(epoll_fd_ >= 0 && event_fd_ >= 0 && call_fd_ >= 0);
  watch_error_ = watch(call_fd_, kCounter);
  if (options.wakes != nullptr && watch_error_ == 0) watch_error_ = watch(options.wakes->fd(options.index), kCounter);
}

Worker::~Worker() {
  stop();
  crew_.join();
  close(epoll_fd_);
  close(event_fd_);
  close(call_fd_);
}

void Worker::start() {
  RNIC_ASSERT(!running_);
  running_ = true;
  crew_.start();
}

bool Worker::stop() {
  if (!running_) return true;
  call([this](Instant) { stopping_ = true; });
  const bool all_back = crew_.end(kStopPatience);
  running_ = false;
  return all_back;
}

void Worker::call(const std::function<void(Instant)>& task) {
  if (!running_ || own_worker == this) {
    task(clock_now());
    return;
  }
  const Acted acted = options_.acted_for ? place_.act([&] { return act_in_place(task); }) : Acted::not_now;
  if (acted == Acted::leaves_work) signal_eventfd(call_fd_);
  if (acted != Acted::not_now) return;
  Call call;
  call.task = &task;
  Call* head = calls_.load(std::memory_order_relaxed);
  do call.next = head;
  while (!calls_.compare_exchange_weak(head, &call, std::memory_order_release, std::memory_order_relaxed));
  // Pairs with sleep(): the call is seen before it blocks, or asleep_ is seen here.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (asleep_.load(std::memory_order_relaxed)) signal_eventfd(call_fd_);
  call.done.wait(false, std::memory_order_acquire);
}

// All that is the worker's is ours until we return. What an application posted before it asked for something is done
// before the task. (A turn that serves calls has not looked at all doorbells: a task whose answer depends on what was
// posted asks the queues.)
Acted Worker::act_in_place(const std::function<void(Instant)>& task) {
  if (anything_waits()) return Acted::not_now;
  const void* const outer = std::exchange(own_worker, this);
  now_ = clock_now();
  task(now_);
  notify_completions();
  ++counters_.calls;
  ++counters_.in_place;
  const bool untold = tell_control();
  own_worker = outer;
  // Sent by the task to a device of ours, over a pair: nothing wakes for them.
  const bool frames_wait = std::any_of(devices_.begin(), devices_.end(), [](Device* device) {
    return !device->port().facts().needs_wake && !device->port().arm();
  });
  // What a turn has to see to, or what the worker would sleep through.
  return untold || stopping_ || to_serve_anew_ || frames_wait || anything_waits() || next_deadline() < sleeps_until_
             ? Acted::leaves_work
             : Acted::wholly;
}

int Worker::watch(int descriptor, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = descriptor;
  return epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, descriptor, &event) == 0 || errno == EEXIST ? 0 : errno;
}

void Worker::unwatch(int descriptor) { epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, descriptor, nullptr); }

// ---- what it serves ------------------------------------------------------------------------------

int Worker::add_device(Device& device) {
  if (watch_error_ != 0) return watch_error_;
  if (const int descriptor = device.port().wake_descriptor(); descriptor >= 0)
    if (const int error = watch(descriptor, kPort); error != 0) return error;
  devices_.push_back(&device);
  to_serve_anew_ = true;
  return 0;
}

void Worker::remove_device(Device& device) {
  if (const int descriptor = device.port().wake_descriptor(); descriptor >= 0) unwatch(descriptor);
  // Nobody wakes for it any more.
  device.port().disarm();
  std::erase(devices_, &device);
}

int Worker::add_context(shm::ContextMemory& memory, SpaceId space) {
  if (const int error = watch(memory.wake_fd(options_.index), kCounter); error != 0) return error;
  doorbells_.add(memory, space);
  to_serve_anew_ = true;
  return 0;
}

void Worker::remove_context(shm::ContextMemory& memory) {
  unwatch(memory.wake_fd(options_.index));
  if (const SourceHabit* const habit = doorbells_.habit_of(memory)) {
    if (source_ == habit) source_ = nullptr;
    patience_.forget(*habit);
  }
  doorbells_.remove(memory);
}

// ---- news for control ----------------------------------------------------------------------------

void Worker::tell(const WorkerEvent& event) {
  WorkerEvent told = event;
  told.at = now_;
  events_.push(told);
  news_ = true;
}

void Worker::on_qp_event(std::uint64_t cookie, qp::Event event) {
  tell({WorkerEvent::Kind::qp_event, event, cookie, {}, {}});
}
void Worker::on_qp_state(std::uint64_t cookie, const qp::Change& change) {
  if (tells_states_) tell({WorkerEvent::Kind::qp_state, qp::Event::close_complete, cookie, change, {}});
}
void Worker::on_srq_limit(std::uint64_t cookie) {
  tell({WorkerEvent::Kind::srq_limit, qp::Event::close_complete, cookie, {}, {}});
}
void Worker::on_cq_overflow(std::uint64_t cookie) {
  tell({WorkerEvent::Kind::cq_overflow, qp::Event::close_complete, cookie, {}, {}});
}

Instant Worker::clock() const { return clock_now(); }

void Worker::on_stream_event(const StreamEvent& event) {
  stream_events_.push(event);
  news_ = true;
}

void Worker::on_network_change(std::uint32_t device_index) {
  tell({WorkerEvent::Kind::network_change, qp::Event::close_complete, device_index, {}, {}});
}

void Worker::on_ended_for_buffers(std::uint32_t device_index, std::uint32_t streams) {
  WorkerEvent event;
  event.kind = WorkerEvent::Kind::ended_for_buffers;
  event.cookie = device_index;
  event.count = streams;
  tell(event);
}

// True while more waits than the rings can hold: the worker stays awake until control has made room.
bool Worker::tell_control() {
  news_ |= events_.hand_over();
  news_ |= stream_events_.hand_over();
  if (news_) {
    news_ = false;
    signal_eventfd(event_fd_);
  }
  return events_.waiting() + stream_events_.waiting() != 0;
}

// ---- the turn ------------------------------------------------------------------------------------

Worker::Work Worker::turn() {
  // A thread that takes over begins with the flush in which the other is stuck.
  switch (step_) {
    case Step::receive:
      receive();
      step_ = Step::transmit;
      [[fallthrough]];
    case Step::transmit:
      if (!move()) return Work::replaced;
      transmit();
      step_ = Step::send;
      [[fallthrough]];
    case Step::send:
      if (!move()) return Work::replaced;
      send();
      step_ = Step::serve;
      [[fallthrough]];
    case Step::serve:
      // What is submitted late in a turn is on its way before control hears that we passed (V-MR-20).
      if (!move()) return Work::replaced;
      serve();
      step_ = Step::receive;
  }
  rested_ = !busy_;
  return busy_ ? Work::busy : Work::idle;
}

// False: we are in nobody's place any more.
bool Worker::move() {
  if (!mover_.has_moves()) return true;
  crew_.wake_watcher();
  if (!mover_.carry_out()) return false;
  for (shm::ApplicationMover::News news; mover_.pop_news(news);) {
    tell({kind_of(news.kind), qp::Event::close_complete, news.space.value, {}, {}});
    if (news.kind == shm::ApplicationMover::News::Kind::back) doorbells_.touch_all_of(news.space);
    busy_ = true;
  }
  return true;
}

void Worker::receive() {
  busy_ = false;
  for (Device* device : devices_) busy_ |= device->receive(now_);
  // Frames that follow a doorbell are that doorbell's: acknowledgements, or those of a pair.
  if (busy_ && rested_) source_ = &wire_habit_;
}

void Worker::transmit() {
  for (Device* device : devices_) busy_ |= device->settle(now_);
  publish_completions();
  if (SourceHabit* const ringer = doorbells_.answer(core_, now_)) {
    busy_ = true;
    source_ = ringer;
  }
  core_.on_posts(doorbells_.posts(), now_);
  for (Device* device : devices_) busy_ |= device->transmit(now_);
}

void Worker::send() {
  for (Device* device : devices_) busy_ |= device->settle(now_);
  publish_completions();
  for (Device* device : devices_)
    if (device->next_deadline() <= now_) busy_ |= device->run_timers(now_);
  for (Device* device : devices_) busy_ |= device->send(now_);
}

void Worker::serve() {
  notify_completions();
  if (const std::uint32_t deaths = shm::deaths(); deaths != deaths_seen_) [[unlikely]] {
    deaths_seen_ = deaths;
    tell({WorkerEvent::Kind::memory_gone, qp::Event::close_complete, 0, {}, {}});
  }
  busy_ |= serve_calls(now_);
  busy_ |= tell_control();
  if (now_ - last_tend_ > kTendEvery) {
    last_tend_ = now_;
    for (Device* device : devices_) device->port().tend();
  }
}

void Worker::publish_completions() {
  for (shm::CompletionQueue::Pushed* pushed = dirty_.front(); pushed != nullptr; pushed = dirty_.after(*pushed)) {
    shm::CompletionQueue& cq = *pushed->queue;
    const bool overflowed_before = cq.overflowed();
    if (!cq.publish(options_.index) && !overflowed_before) on_cq_overflow(cq.cookie());
  }
}

void Worker::notify_completions() {
  if (dirty_.empty()) return;
  publish_completions();
  // Between the CQEs and the look at the arm words (abi/rnic_shm.h).
  std::atomic_thread_fence(std::memory_order_seq_cst);
  while (const shm::CompletionQueue::Pushed* pushed = dirty_.pop_front()) {
    shm::CompletionQueue* const cq = pushed->queue;
    if (cq->take_notification(options_.index))
      tell({WorkerEvent::Kind::cq_notify, qp::Event::close_complete, cq->cookie(), {}, {}});
  }
}

bool Worker::serve_calls(Instant now) {
  if (calls_.load(std::memory_order_relaxed) == nullptr) return false;
  Call* taken = calls_.exchange(nullptr, std::memory_order_acquire);
  Call* ordered = nullptr;
  while (taken != nullptr) {
    Call* next = taken->next;
    taken->next = ordered;
    ordered = taken;
    taken = next;
  }
  while (ordered != nullptr) {
    Call* next = ordered->next;
    ++counters_.calls;
    (*ordered->task)(now);
    notify_completions();
    ordered->done.store(true, std::memory_order_release);
    ordered->done.notify_one();
    ordered = next;
  }
  return true;
}

// ---- sleep ---------------------------------------------------------------------------------------

bool Worker::anything_waits() const {
  if (calls_.load(std::memory_order_relaxed) != nullptr || mover_.has_moves_to_begin()) return true;
  if (doorbells_.any_waits()) return true;
  for (Device* device : devices_) {
    if (!device->idle()) return true;
  }
  return false;
}

Instant Worker::next_deadline() const {
  Instant next = kNever;
  for (const Device* device : devices_) next = std::min(next, device->next_deadline());
  return next;
}

// False: something waited already.
bool Worker::sleep(Instant now) {
  asleep_.store(true, std::memory_order_relaxed);
  doorbells_.set_asleep(true);
  // Pairs with the fence of whoever rings or calls: its work is seen below, or our sleep there.
  std::atomic_thread_fence(std::memory_order_seq_cst);

  bool wait = !anything_waits();
  bool timed = false;
  std::size_t armed = 0;
  for (; wait && armed < devices_.size(); ++armed) {
    port::Port& port = devices_[armed]->port();
    wait = port.arm();
    if (port.wake_descriptor() < 0 && port.facts().needs_wake) timed = true;
  }
  if (wait) {
    const Instant next = next_deadline();
    Duration span = next == kNever ? kSleepMax : std::min(kSleepMax, next - now);
    if (timed) {
      timed_sleep_ = std::clamp(timed_sleep_ * 2, kTimedSleepMin, kTimedSleepMax);
      span = std::min(span, timed_sleep_);
    }
    if (span.ns > 0)
      await_wake(now + span, span);
    else
      wait = false;
  }
  // Some of them may have gone meanwhile.
  armed = std::min(armed, devices_.size());
  for (std::size_t i = 0; i < armed; ++i) devices_[i]->port().disarm();
  doorbells_.set_asleep(false);
  asleep_.store(false, std::memory_order_relaxed);
  // Pairs with the watcher's, before it sleeps: it sees that we are awake, or we that it sleeps.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return wait;
}

// Control may act in our place until we are back, and wakes us for what it leaves to do.
void Worker::await_wake(Instant until, Duration span) {
  const timespec timeout{span.ns / 1'000'000'000, span.ns % 1'000'000'000};
  epoll_event events[16];
  ++counters_.sleeps;
  to_serve_anew_ = false;
  sleeps_until_ = until;
  if (options_.grace != nullptr) options_.grace->rest(options_.index);
  place_.leave();
  const int woken = epoll_pwait2(epoll_fd_, events, 16, &timeout, nullptr);
  place_.enter();
  if (options_.grace != nullptr) options_.grace->wake(options_.index);
  if (woken == 0) ++counters_.wakes_by_timer;
}

void Worker::set_up_thread() {
  pthread_setname_np(pthread_self(), "rnic-worker");
  core_.set_up_thread();
  if (options_.on_start) options_.on_start();
}

// It does next to nothing, and before all others.
void Worker::set_up_watcher() {
  pthread_setname_np(pthread_self(), "rnic-watcher");
  if (!options_.realtime) return;
  for (const int priority : {2, 1}) {
    sched_param parameter{};
    parameter.sched_priority = priority;
    if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameter) == 0) return;
  }
}

// All threads are in copies that wait. With the application's end one of them is free.
void Worker::end_stuck_process() {
  const int process = mover_.reach_of(mover_.copying()).process;
  if (process >= 0) syscall(SYS_pidfd_send_signal, process, SIGKILL, nullptr, 0);
}

bool Worker::work() {
  own_worker = this;
  if (std::exchange(taken_over_, false)) {
    mover_.on_taken_over();
    ++counters_.replaced;
  } else {
    polls_ = options_.poll_always;
  }
  core_.take(polls_, clock_now());
  const bool over = loop();
  own_worker = nullptr;
  // Back from a copy that waited: whoever is the worker now is to see to it.
  if (!over) signal_eventfd(call_fd_);
  return over;
}

bool Worker::loop() {
  while (!stopping_) {
    if (step_ == Step::receive) {
      now_ = clock_now();
      ++counters_.turns;
      if (options_.grace != nullptr) options_.grace->pass(options_.index, mover_.stuck_spaces());
    }
    const Instant now = now_;
    switch (turn()) {
      case Work::replaced:
        return false;
      case Work::idle:
        break;
      case Work::busy:
        ++counters_.busy_turns;
        sleepless_ = 0;
        patience_.on_work(now, source_);
        shared_core_detector_.on_work();
        timed_sleep_ = {};
        if (core_.leave_ringer(now)) ++counters_.moves;
        if (core_.rest(now)) core_.begin_stretch(clock_now());
        continue;
    }
    if (options_.poll_always) {
      if (shared_core_detector_.polls(now) != polls_) {
        polls_ = !polls_;
        core_.set_polls_always(polls_);
      }
      if (polls_) continue;
    }
    if (!options_.poll_always && now - patience_.last_work() < options_.sleep_delay) {
      // Awake and SCHED_FIFO it is no better to others of its core than one with work.
      if (core_.rest(now)) core_.begin_stretch(clock_now());
      continue;
    }
    if (patience_.waits(now)) continue;
    const bool napped = core_.nap(now);
    sleepless_ = napped || sleep(now) ? 0 : sleepless_ + 1;
    if (sleepless_ > 1) {
      // What waits is for another to do, perhaps of our priority and on our core: a peer that has no room for our
      // frames.
      core_.give_way();
      if (core_.rest(now)) core_.begin_stretch(clock_now());
    }
    shared_core_detector_.on_work();
    const Duration slept = clock_now() - now;
    core_.on_slept(slept);
    if (napped)
      ++counters_.naps;
    else
      patience_.on_slept(slept);
  }
  return true;
}

}  // namespace rnic::core
