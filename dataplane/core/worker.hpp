// A worker: one thread that polls devices, takes work requests, moves octets and writes
// completions. turn() is the table of contents of the data plane.
//
// When nothing is left to do it sleeps, at once by default (architecture.md s3): doorbells,
// control's calls and ports wake it. In the data plane only this file makes an Instant.
//
// Larger than most: its fields are what one thread has, and each step of the turn is a function.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/list.hpp"
#include "base/time.hpp"
#include "core/crew.hpp"
#include "core/device.hpp"
#include "core/doorbells.hpp"
#include "core/own_core.hpp"
#include "core/patience.hpp"
#include "core/ring.hpp"
#include "core/shared_core.hpp"
#include "core/vacant_place.hpp"
#include "core/wakes.hpp"
#include "shm/context_memory.hpp"
#include "shm/mapping.hpp"
#include "shm/mover.hpp"
#include "shm/queue_host.hpp"

namespace rnic::core {

// A worker's news for control.
struct WorkerEvent {
  enum class Kind : std::uint8_t {
    qp_event,
    qp_state,
    srq_limit,
    cq_overflow,
    cq_notify,
    network_change,
    ended_for_buffers,
    memory_gone,     // what an application shared, of whatever context (shm::take_dead_owners())
    copy_stuck,      // a page of an application's does not come
    copy_back,       // it has, or its application is no more
    copies_refused,  // of a user for whose pages too many wait (shm/mover.hpp)
  } kind = Kind::qp_event;
  qp::Event event = qp::Event::close_complete;
  // Of the QP, SRQ or CQ; network_change, ended_for_buffers: the device's index; copy_…: the address space.
  std::uint64_t cookie = 0;
  qp::Change change;        // qp_state: which
  Instant at{};             // when it was told
  std::uint32_t count = 0;  // ended_for_buffers: streams
};

struct WorkerOptions {
  unsigned index = 0;
  bool poll_always = false;  // does not sleep while its core is its own (core/shared_core.hpp)
  Duration sleep_delay{0};   // stays awake so long after the last work; counts for nothing with poll_always
  int cpu = -1;              // -1: any
  bool realtime = true;      // SCHED_FIFO where allowed
  bool crowded = false;      // no core that this process may run on is without a worker of it
  // Control acts in its place while it sleeps. Not beside other workers: all share packet buffers, and who is in the
  // rings of these keeps the others waiting awake; control, which is not before others, might do so for long.
  bool acted_for = true;
  std::function<void()> on_start;  // on each thread that works, first (DPDK's registration)
  shm::Copier* copier = nullptr;   // null: the kernel's
  shm::Grace* grace = nullptr;     // of all workers, where there are several
  const Wakes* wakes = nullptr;    // the same
};

struct WorkerCounters {
  std::uint64_t turns = 0, busy_turns = 0, sleeps = 0, wakes_by_timer = 0;
  std::uint64_t naps = 0;      // core/nap.hpp
  std::uint64_t calls = 0;     // control's, that were served
  std::uint64_t in_place = 0;  // of those, by control while the worker slept
  std::uint64_t moves = 0;     // to another core than the one that rings
  std::uint64_t replaced = 0;  // threads that were left in a copy
};

class Worker final : public shm::WorkerEvents, public StreamEvents {
 public:
  explicit Worker(const WorkerOptions& options);
  ~Worker();
  void start();
  // False: a thread is still in a copy that waits for a page, and all that it copies into or from must
  // stay where it is. The destructor waits for it.
  bool stop();

  // ---- control's side ----
  // Runs `task` between two turns, and waits: on the worker's thread while it is awake, here in its place while it
  // sleeps. Before start() and after stop() it runs here. What it does must be short.
  void call(const std::function<void(Instant now)>& task);
  int event_fd() const { return event_fd_; }  // readable when there is news; read 8 octets, then pop
  bool pop_event(WorkerEvent& out) { return events_.pop(out); }
  bool pop_stream_event(StreamEvent& out) { return stream_events_.pop(out); }
  const WorkerCounters& counters() const { return counters_; }
  unsigned index() const { return options_.index; }

  // ---- within call() only ----
  shm::ApplicationMover& mover() { return mover_; }
  // From now on each change of a queue pair's state is news, too: the log's at debug, and nobody's else.
  void tell_states() { tells_states_ = true; }
  // 0, or the errno of what the kernel refuses: the watches that a user may have are soon used up, by
  // whatever program of his. What is refused is not served.
  int add_device(Device& device);
  void remove_device(Device& device);
  int add_context(shm::ContextMemory& memory, SpaceId space);
  void remove_context(shm::ContextMemory& memory);
  // The queue will be no more: it is in no list of this worker's.
  void forget(shm::CompletionQueue& cq) { cq.pushed_by(options_.index).unlink(); }
  // What a doorbell index of a context means.
  Doorbells& doorbells() { return doorbells_; }

  // ---- shm::WorkerEvents, StreamEvents: on the worker's thread ----
  void on_qp_event(std::uint64_t qp_cookie, qp::Event event) override;
  void on_qp_state(std::uint64_t qp_cookie, const qp::Change& change) override;
  void on_srq_limit(std::uint64_t srq_cookie) override;
  void on_cq_overflow(std::uint64_t cq_cookie) override;
  void cq_pushed(shm::CompletionQueue& cq) override { dirty_.push_back(cq.pushed_by(options_.index)); }
  Instant clock() const override;
  void on_stream_event(const StreamEvent& event) override;
  void on_network_change(std::uint32_t device_index) override;
  void on_ended_for_buffers(std::uint32_t device_index, std::uint32_t streams) override;

 private:
  struct Call {
    const std::function<void(Instant)>* task = nullptr;
    std::atomic<bool> done{false};
    Call* next = nullptr;
  };

  // The thread that is the worker. What comes behind a flush may be another's, which took over.
  enum class Work : std::uint8_t { idle, busy, replaced };
  enum class Step : std::uint8_t { receive, transmit, send, serve };
  void set_up_thread();
  void set_up_watcher();
  bool work();
  bool loop();
  Work turn();
  bool move();
  void receive();
  void transmit();
  void send();
  void serve();
  void end_stuck_process();
  void publish_completions();
  void notify_completions();
  bool serve_calls(Instant now);
  Acted act_in_place(const std::function<void(Instant)>& task);
  bool sleep(Instant now);
  void await_wake(Instant until, Duration span);
  bool anything_waits() const;
  Instant next_deadline() const;
  void tell(const WorkerEvent& event);
  bool tell_control();
  int watch(int descriptor, std::uint32_t events);
  void unwatch(int descriptor);

  WorkerOptions options_;
  std::atomic<bool> running_{false};
  std::atomic<bool> stopping_{false};
  shm::ApplicationMover mover_;
  Step step_ = Step::receive;
  bool busy_ = false;        // this turn
  bool taken_over_ = false;  // from a thread that is stuck
  bool tells_states_ = false;
  std::vector<Device*> devices_;
  Doorbells doorbells_;
  List<shm::CompletionQueue::Pushed, shm::DirtyTag> dirty_;
  PatientRing<WorkerEvent> events_;
  PatientRing<StreamEvent> stream_events_;
  std::atomic<Call*> calls_{nullptr};
  std::atomic<bool> asleep_{false};
  VacantPlace place_;
  Instant sleeps_until_{0};     // while the place is vacant
  bool to_serve_anew_ = false;  // what there is to serve has changed since it slept
  bool news_ = false;
  Instant now_{0};  // of this turn
  int epoll_fd_ = -1;
  int event_fd_ = -1;  // towards control
  int call_fd_ = -1;   // from control
  std::uint32_t deaths_seen_ = shm::deaths();
  int watch_error_ = 0;  // that the constructor met: told to whoever adds a device
  Duration timed_sleep_{0};
  Instant last_tend_{0};
  Patience patience_;
  SourceHabit wire_habit_;
  SourceHabit* source_ = nullptr;  // who brought the work of the last turns
  bool rested_ = true;             // the last turn found nothing
  unsigned sleepless_ = 0;         // turns that found nothing, and no sleep either: something waits for others
  SharedCoreDetector shared_core_detector_;
  bool polls_ = false;  // does not sleep now
  OwnCore core_;
  WorkerCounters counters_;
  Crew crew_;  // last: its threads use all of this
};

}  // namespace rnic::core
