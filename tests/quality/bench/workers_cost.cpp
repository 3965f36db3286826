// What several workers of one device give, by the data plane alone: no applications, no processes. Two devices, each
// of one or two shards; shard k of one and of the other are joined by pair k of MTU 1500, and belong to thread k on
// processor k, which runs both by turns as core::Worker does. Steering is in the path; the shards of a device share
// its protection table, a region, and one completion queue of all its queue pairs. Messages go from one device to the
// other, by TCP, MPA and CRC.
//
//   workers-cost [rounds [milliseconds of each run]]
//
// Prints messages a second, the best and the median of rounds that all kinds of set-up take in turns:
//   one      one worker that has all queue pairs, and that has half of them
//   half     one of two workers, while the other does nothing: what steering costs
//   two      two workers
//   own CQ   the same, each shard with a completion queue of its own
//   apart    two workers of two devices that have nothing in common: what the machine gives
// and their ratios to one's. A processor where nothing is to run is kept busy with nothing, and what counts is those
// milliseconds in which no other process had one of the two.
//
// Whoever posts and polls costs next to nothing, and is the worker's own thread: all slots of a ring are one request,
// written beforehand, and each turn says that so many more are posted. `consumed` moves on by what a thread has pushed.
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.hpp"
#include "core/device.hpp"
#include "kit/tpt_memory.hpp"
#include "port/pair_port.hpp"
#include "port/steered_ports.hpp"
#include "qp/queue_pair.hpp"
#include "shm/grace.hpp"
#include "shm/mover.hpp"
#include "shm/queue_host.hpp"
#include "shm/queues.hpp"

using namespace rnic;

namespace {

constexpr std::uint32_t kMtuBytes = 1500;
constexpr std::uint32_t kBuffers = 4096;  // of a pair
constexpr std::uint16_t kPort = 7471;
constexpr std::uint32_t kSends = 64, kReceives = 256;  // slots of a queue
constexpr std::uint32_t kStride = RNIC_CACHE_LINE;
constexpr std::uint32_t kCompletions = 8192;
constexpr std::size_t kPairs = 8;               // queue pairs of a worker
constexpr std::size_t kMessageMax = 64 * 1024;  // each queue pair has so much of the region
constexpr unsigned kProcessors = 2;
constexpr Duration kTendEvery = milliseconds(100);
constexpr Duration kTimeLeast = milliseconds(5);  // of a run that counts
constexpr int kTries = 5;                         // where it does not
constexpr PdId kPd{1};

[[noreturn]] void die(const char* why) {
  std::fprintf(stderr, "workers-cost: %s\n", why);
  std::exit(1);
}

struct Mode {
  const char* name;
  std::uint8_t opcode;
  std::uint32_t bytes;
};
constexpr Mode kModes[] = {{"Writes of 64 octets", RNIC_OP_WRITE, 64},
                           {"Sends of 8 octets", RNIC_OP_SEND, 8},
                           {"Writes of 4 KiB", RNIC_OP_WRITE, 4096},
                           {"Writes of 64 KiB", RNIC_OP_WRITE, 64 * 1024}};

// As an arena has it: queues begin on lines.
class Area {
 public:
  explicit Area(std::uint64_t bytes) : lines_((bytes + sizeof(Line) - 1) / sizeof(Line)) {}
  MutableBytes bytes() { return {lines_.front().octets.data(), lines_.size() * sizeof(Line)}; }
  std::byte* at(std::size_t offset) { return bytes().data() + offset; }

 private:
  struct alignas(RNIC_CACHE_LINE) Line {
    std::array<std::byte, RNIC_CACHE_LINE> octets{};
  };
  std::vector<Line> lines_;
};

struct Completions {
  explicit Completions(std::uint32_t workers)
      : area(shm::CompletionQueue::area_bytes(kCompletions)),
        queue(area.bytes(), kCompletions, 1, false, workers,
              workers > 1 ? shm::CompletionQueue::Producers::several : shm::CompletionQueue::Producers::one) {}
  // As the provider does once for a poll, here for what `count` of a thread's pushes were.
  void consume(std::uint32_t count) {
    auto* control = reinterpret_cast<rnic_cq_control*>(area.at(0));
    std::atomic_ref(control->consumed).fetch_add(count, std::memory_order_release);
  }
  Area area;
  shm::CompletionQueue queue;
};

// A queue pair with its queues in shared memory, as the daemon has it.
class End final : public qp::Host {
 public:
  End(Completions& completions, unsigned worker, shm::WorkerEvents& events, QpNumber number, MutableBytes memory)
      : send_area_(shm::SendQueue::area_bytes(kSends, kStride)),
        receive_area_(shm::SendQueue::area_bytes(kReceives, kStride)),
        sends_(send_area_.bytes(), kSends, kStride, 2),
        receives_(receive_area_.bytes(), kReceives, kStride, 2),
        host_({.send = &sends_,
               .receive = &receives_,
               .send_cq = &completions.queue,
               .receive_cq = &completions.queue,
               .qp_number = number.value},
              events),
        memory_(memory) {
    host_.set_worker(worker, events);
  }

  bool take_send(qp::WorkRequest& out) override { return host_.take_send(out); }
  bool take_receive(qp::ReceiveRequest& out) override { return host_.take_receive(out); }
  bool complete(const qp::Completion& completion) override {
    if (completion.status != qp::Status::success) die("a message failed");
    ++(completion.of_send_queue ? sent : received);
    return host_.complete(completion);
  }
  bool has_room_for_receive() const override { return host_.has_room_for_receive(); }
  void raise(qp::Event event) override { host_.raise(event); }
  void state_changed(const qp::Change& change) override { host_.state_changed(change); }

  MutableBytes memory() const { return memory_; }
  // All slots, while none is in use.
  void fill_sends(const Mode& mode, Stag lkey, const End& to, Stag rkey) {
    const rnic_sqe entry{.opcode = mode.opcode,
                         .flags = RNIC_SQE_SIGNALED,
                         .sge_count = 1,
                         .reserved0 = 0,
                         .length = 0,
                         .remote_address = reinterpret_cast<std::uintptr_t>(to.memory_.data()),
                         .rkey = rkey.value,
                         .invalidate = 0,
                         .argument = 0};
    const rnic_sge sge{reinterpret_cast<std::uintptr_t>(memory_.data()), mode.bytes, lkey.value};
    fill(send_area_, kSends, &entry, sizeof entry, sge);
  }
  void fill_receives(Stag lkey) {
    const rnic_rqe entry{.sge_count = 1, .id = 0, .reserved = {}};
    const rnic_sge sge{reinterpret_cast<std::uintptr_t>(memory_.data()), 64, lkey.value};
    fill(receive_area_, kReceives, &entry, sizeof entry, sge);
  }
  void post_sends(std::uint32_t count) { post(send_area_, posted_sends += count); }
  void post_receives(std::uint32_t count) { post(receive_area_, posted_receives += count); }

  std::uint32_t sent = 0, received = 0, posted_sends = 0, posted_receives = 0;
  std::uint32_t posted_messages = 0;  // of posted_sends, those that take a receive
  std::unique_ptr<qp::QueuePair> qp;
  bool established = false;

 private:
  static void fill(Area& area, std::uint32_t slots, const void* entry, std::size_t bytes, const rnic_sge& sge) {
    for (std::uint32_t i = 0; i < slots; ++i) {
      std::byte* const slot = area.at(sizeof(rnic_ring_control) + i * kStride);
      std::memcpy(slot, entry, bytes);
      std::memcpy(slot + bytes, &sge, sizeof sge);
    }
  }
  static void post(Area& area, std::uint32_t produced) {
    auto* control = reinterpret_cast<rnic_ring_control*>(area.at(0));
    std::atomic_ref(control->produced).store(produced, std::memory_order_release);
  }

  Area send_area_, receive_area_;
  shm::SendQueue sends_;
  shm::ReceiveQueue receives_;
  shm::QueueHost host_;
  MutableBytes memory_;
};

// A device, or what its shards have in common.
struct Whole {
  Whole(std::uint64_t seed, unsigned shards, bool own_completions, std::size_t pairs)
      : table(256, seed), memory(shards * pairs * kMessageMax) {
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = test::octet_at(i, static_cast<std::uint32_t>(seed));
    stag = test::register_memory(
        table, memory, tpt::Rights::local_read | tpt::Rights::local_write | tpt::Rights::remote_write, kPd, 7);
    for (unsigned i = 0; i < (own_completions ? shards : 1); ++i)
      completions.push_back(std::make_unique<Completions>(shards));
  }
  Completions& completions_of(unsigned shard) { return *completions[shard % completions.size()]; }

  tpt::Table table;
  std::vector<std::byte> memory;
  Stag stag;
  std::vector<std::unique_ptr<Completions>> completions;
  std::unique_ptr<port::SteeredPorts> ports;
};

struct Options {
  unsigned shards = 1;
  std::size_t pairs = kPairs;  // of queue pairs, for each shard
  bool own_completions = false;
};

// A worker, with its shard of either device.
class Lane final : public shm::WorkerEvents, public core::StreamEvents {
 public:
  Lane(const Options& options, unsigned index, Whole& a, Whole& b, shm::Grace* grace)
      : index_(index),
        grace_(grace),
        mover_(shm::Copier::kernel(), grace),
        sides_{Side{a, options, index, 0, *this}, Side{b, options, index, 1, *this}} {
    for (std::size_t i = 0; i < options.pairs; ++i)
      for (Side& side : sides_) side.add_pair(index * options.pairs + i, index, *this, mover_);
  }
  ~Lane() {
    for (Side& side : sides_)
      for (auto& end : side.ends) side.device->release(*end->qp, now_);
  }
  Lane(const Lane&) = delete;

  core::Device& device(unsigned side) { return *sides_[side].device; }
  // A's call, and B answers in its turns.
  void connect(std::size_t pair) {
    now_ = core::clock_now();
    const auto stream = sides_[0].device->connect({.local = {},
                                                   .remote = sides_[1].device->options().addresses[0].address,
                                                   .remote_port = kPort,
                                                   .ird = 1,
                                                   .ord = 1,
                                                   .private_data = {},
                                                   .cookie = pair,
                                                   .meeting = {}},
                                                  *sides_[0].ends[pair]->qp, now_);
    if (!stream) die("no call");
  }
  bool is_connected(std::size_t pair) const {
    return sides_[0].ends[pair]->established && accepted_ == pair + 1 && sides_[1].ends[pair]->established;
  }

  // While nothing is under way.
  void set_mode(const Mode& mode) {
    mode_ = &mode;
    for (std::size_t i = 0; i < sides_[0].ends.size(); ++i) {
      End &from = *sides_[0].ends[i], &to = *sides_[1].ends[i];
      from.fill_sends(mode, sides_[0].whole->stag, to, sides_[1].whole->stag);
      to.fill_receives(sides_[1].whole->stag);
    }
  }
  // What its application does in a turn.
  void post() {
    for (std::size_t i = 0; i < sides_[0].ends.size(); ++i) {
      End &from = *sides_[0].ends[i], &to = *sides_[1].ends[i];
      std::uint32_t room = kSends - (from.posted_sends - from.sent);
      if (mode_->opcode == RNIC_OP_SEND) {
        to.post_receives(kReceives - (to.posted_receives - to.received));
        // None comes before its receive is there.
        room = std::min(room, to.posted_receives - from.posted_messages);
      }
      if (room < kSends / 2) continue;
      if (mode_->opcode == RNIC_OP_SEND) from.posted_messages += room;
      from.post_sends(room);
      sides_[0].device->work_posted(*from.qp);
    }
  }
  // As core::Worker's. Posts, if there is to be more.
  bool turn(bool posts);
  // Messages that are complete where that is last seen.
  std::uint64_t messages() const {
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < sides_[0].ends.size(); ++i)
      count += mode_->opcode == RNIC_OP_SEND ? sides_[1].ends[i]->received : sides_[0].ends[i]->sent;
    return count;
  }
  // All that was posted has arrived.
  bool is_quiet() const {
    for (std::size_t i = 0; i < sides_[0].ends.size(); ++i) {
      const End &from = *sides_[0].ends[i], &to = *sides_[1].ends[i];
      const qp::QpCounters &out = from.qp->counters(), &in = to.qp->counters();
      // Octets, as Writes of none go to and fro where a stream begins.
      if (from.sent != from.posted_sends || from.posted_messages != to.received || out.bytes_out != in.bytes_in)
        return false;
    }
    return true;
  }
  bool memory_is_equal() const {
    for (std::size_t i = 0; i < sides_[0].ends.size(); ++i)
      if (std::memcmp(sides_[0].ends[i]->memory().data(), sides_[1].ends[i]->memory().data(), mode_->bytes) != 0)
        return false;
    return true;
  }
  bool went_by_wire() const {
    for (const auto& end : sides_[0].ends)
      if (end->qp->counters().direct_out != 0) return false;
    return true;
  }

  // ---- shm::WorkerEvents, core::StreamEvents ----
  void on_qp_event(std::uint64_t, qp::Event) override { die("an event of a queue pair"); }
  void on_qp_state(std::uint64_t, const qp::Change&) override {}
  void on_srq_limit(std::uint64_t) override {}
  void on_cq_overflow(std::uint64_t) override { die("a completion queue is full"); }
  void cq_pushed(shm::CompletionQueue& cq) override { dirty_.push_back(cq.pushed_by(index_)); }
  Instant clock() const override { return core::clock_now(); }
  void on_stream_event(const core::StreamEvent& event) override;

 private:
  struct Side {
    Side(Whole& its_whole, const Options& options, unsigned index, unsigned number, core::StreamEvents& events)
        : whole(&its_whole), completions(&its_whole.completions_of(index)) {
      core::DeviceOptions wanted;
      wanted.name = number == 0 ? "a" : "b";
      wanted.index = number;
      wanted.addresses = {{wire::IpAddress::v4(10, 0, 0, static_cast<std::uint8_t>(number + 1)), 24}};
      wanted.seed = 11 + number;
      wanted.streams_max = 64;
      wanted.shard = {.index = index, .count = options.shards};
      device = std::make_unique<core::Device>(wanted, whole->ports->of(index), events);
      if (number == 1 && !device->listen({}, kPort, 16, 0)) die("no listener");
    }
    void add_pair(std::size_t number, unsigned worker, shm::WorkerEvents& events, tpt::Mover& mover) {
      qp::Config config;
      config.number = {static_cast<std::uint32_t>(number + 1)};
      config.pd = config.receive_pd = kPd;
      config.access = tpt::Rights::remote_write;
      config.ird = config.ord = 1;
      config.send_depth = kSends;
      End& end = *ends.emplace_back(
          std::make_unique<End>(*completions, worker, events, config.number,
                                MutableBytes(whole->memory).subspan(number * kMessageMax, kMessageMax)));
      end.qp =
          std::make_unique<qp::QueuePair>(config, end, whole->table, mover, device->data_pool(), device->scratch());
    }

    Whole* whole;
    Completions* completions;
    std::unique_ptr<core::Device> device;
    std::vector<std::unique_ptr<End>> ends;
    std::uint32_t consumed = 0;
  };

  void move() {
    if (mover_.has_moves()) mover_.flush();
  }
  void publish_completions();
  void notify_completions();
  void consume();

  const unsigned index_;
  shm::Grace* grace_;
  shm::ApplicationMover mover_;
  List<shm::CompletionQueue::Pushed, shm::DirtyTag> dirty_;
  std::array<Side, 2> sides_;
  const Mode* mode_ = &kModes[0];
  std::size_t accepted_ = 0;
  Instant now_{0}, last_tend_{0};
};

bool Lane::turn(bool posts) {
  now_ = core::clock_now();
  if (grace_ != nullptr) grace_->pass(index_, mover_.stuck_spaces());
  bool busy = false;
  for (Side& side : sides_) busy |= side.device->receive(now_);
  move();
  for (Side& side : sides_) busy |= side.device->settle(now_);
  publish_completions();
  if (posts) post();
  for (Side& side : sides_) busy |= side.device->transmit(now_);
  move();
  for (Side& side : sides_) busy |= side.device->settle(now_);
  publish_completions();
  for (Side& side : sides_)
    if (side.device->next_deadline() <= now_) busy |= side.device->run_timers(now_);
  for (Side& side : sides_) busy |= side.device->send(now_);
  move();
  notify_completions();
  consume();
  if (now_ - last_tend_ > kTendEvery) {
    last_tend_ = now_;
    for (Side& side : sides_) side.device->port().tend();
  }
  return busy;
}

void Lane::publish_completions() {
  for (shm::CompletionQueue::Pushed* pushed = dirty_.front(); pushed != nullptr; pushed = dirty_.after(*pushed))
    if (!pushed->queue->publish(index_)) on_cq_overflow(0);
}

void Lane::notify_completions() {
  if (dirty_.empty()) return;
  publish_completions();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  while (const shm::CompletionQueue::Pushed* pushed = dirty_.pop_front())
    if (pushed->queue->take_notification(index_)) die("an arming that nobody made");
}

void Lane::consume() {
  for (Side& side : sides_) {
    std::uint32_t pushed = 0;
    for (const auto& end : side.ends) pushed += end->sent + end->received;
    if (pushed != side.consumed) side.completions->consume(pushed - side.consumed);
    side.consumed = pushed;
  }
}

void Lane::on_stream_event(const core::StreamEvent& event) {
  switch (event.kind) {
    case core::StreamEvent::Kind::connect_request:
      if (!sides_[1].device->accept(event.stream, {.ird = 1, .ord = 1, .private_data = {}, .cookie = accepted_},
                                    *sides_[1].ends[accepted_]->qp, now_))
        die("not accepted");
      ++accepted_;
      return;
    case core::StreamEvent::Kind::established:
      sides_[event.device].ends[event.cookie]->established = true;
      return;
    default:
      die("a connection failed");
  }
}

// Two devices joined, with as many workers as they have shards.
class Machine {
 public:
  explicit Machine(const Options& options)
      : grace_(options.shards),
        a_(1, options.shards, options.own_completions, options.pairs),
        b_(2, options.shards, options.own_completions, options.pairs) {
    std::vector<std::unique_ptr<port::Port>> of_a, of_b;
    for (unsigned i = 0; i < options.shards; ++i) {
      auto wire = std::make_shared<port::PairWire>(std::to_string(i), kMtuBytes, kBuffers);
      of_a.push_back(std::make_unique<port::PairPort>(wire, 0, port_options("a", 1)));
      of_b.push_back(std::make_unique<port::PairPort>(wire, 1, port_options("b", 2)));
    }
    a_.ports = std::make_unique<port::SteeredPorts>(std::move(of_a), options.shards);
    b_.ports = std::make_unique<port::SteeredPorts>(std::move(of_b), options.shards);
    for (unsigned i = 0; i < options.shards; ++i)
      lanes_.push_back(std::make_unique<Lane>(options, i, a_, b_, options.shards > 1 ? &grace_ : nullptr));
    for (unsigned i = 1; i < options.shards; ++i)
      for (const unsigned side : {0u, 1u}) lanes_[i]->device(side).adopt(lanes_[0]->device(side).network());
    for (std::size_t pair = 0; pair < options.pairs; ++pair)
      for (const auto& lane : lanes_) {
        lane->connect(pair);
        const Instant limit = core::clock_now() + seconds(10);
        while (!lane->is_connected(pair)) {
          for (const auto& each : lanes_) each->turn(false);
          if (core::clock_now() > limit) die("no connection");
        }
      }
  }

  Lane& lane(unsigned index) { return *lanes_[index]; }

 private:
  static port::PortOptions port_options(const char* name, std::uint8_t last) {
    port::PortOptions options;
    options.name = name;
    options.mtu_bytes = kMtuBytes;
    options.mac = wire::Mac{2, 0, 0, 0, 0, last};
    return options;
  }

  shm::Grace grace_;
  Whole a_, b_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

std::int64_t processor_time_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

void pin(unsigned number) {
  cpu_set_t allowed, one;
  CPU_ZERO(&one);
  sched_getaffinity(0, sizeof allowed, &allowed);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed) && number-- == 0) CPU_SET(cpu, &one);
  if (pthread_setaffinity_np(pthread_self(), sizeof one, &one) != 0) die("there are not two processors");
}

// What a thread has done when a slice of a run begins.
struct Sample {
  std::int64_t wall_ns = 0, processor_ns = 0;
  std::uint64_t messages = 0;
};

// What the threads of a run have in common. Others run on the machine, too: what counts is slices in which each of the
// threads had its processor to itself, as in the slice before.
struct Run {
  static constexpr std::int64_t kSliceNs = 1'000'000;
  static constexpr double kAlone = 0.98;  // of a slice

  explicit Run(std::size_t its_slices) : slices(its_slices), line(kProcessors) {
    for (auto& own : samples) own.resize(slices + 1);
  }
  bool is_over() const { return over.load(std::memory_order_relaxed); }
  // Now; the first sample, and one for each slice, are those that come behind its beginning.
  void sample(unsigned thread, std::size_t& next, std::uint64_t messages) {
    const std::int64_t now = core::clock_now().ns;
    if (next != 0 && now < samples[thread][0].wall_ns + static_cast<std::int64_t>(next) * kSliceNs) return;
    const Sample taken{now, processor_time_ns(), messages};
    // One that was kept from it for slices has them all as one.
    do samples[thread][next++] = taken;
    while (next <= slices && now >= samples[thread][0].wall_ns + static_cast<std::int64_t>(next) * kSliceNs);
    if (next > slices) over = true;
  }
  bool had_processors(std::size_t slice) const {
    return std::all_of(samples.begin(), samples.end(), [&](const std::vector<Sample>& own) {
      const Sample &from = own[slice], &to = own[slice + 1];
      return to.wall_ns - from.wall_ns > kSliceNs / 2 && static_cast<double>(to.processor_ns - from.processor_ns) >
                                                             kAlone * static_cast<double>(to.wall_ns - from.wall_ns);
    });
  }

  const std::size_t slices;
  std::barrier<> line;
  std::atomic<bool> over{false};
  std::array<std::vector<Sample>, kProcessors> samples;
};

void run_lane(Lane& lane, const Mode& mode, Run& run, unsigned thread) {
  constexpr int kWarmTurns = 200;
  lane.set_mode(mode);
  for (int i = 0; i < kWarmTurns; ++i) lane.turn(true);
  run.line.arrive_and_wait();
  for (std::size_t next = 0; !run.is_over(); lane.turn(true)) run.sample(thread, next, lane.messages());
  const Instant limit = core::clock_now() + seconds(10);
  while (!lane.is_quiet()) {
    lane.turn(false);
    if (core::clock_now() > limit) die("not all has arrived");
  }
  if (!lane.memory_is_equal()) die("the octets are not those that were sent");
  if (!lane.went_by_wire()) die("it did not go by the wire");
}

// Nobody else has this processor meanwhile, so that a lane that is alone has no worse a neighbour than two have.
void run_nothing(Run& run, unsigned thread) {
  run.line.arrive_and_wait();
  for (std::size_t next = 0; !run.is_over(); __builtin_ia32_pause()) run.sample(thread, next, 0);
}

// Messages a second, of all lanes together; nothing: there were few slices that count. `first`: processor of the first
// lane.
std::optional<double> run(const std::vector<Lane*>& lanes, const Mode& mode, unsigned first, std::size_t slices) {
  Run run(slices);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kProcessors; ++i)
    threads.emplace_back([&, i] {
      pin((first + i) % kProcessors);
      if (i < lanes.size())
        run_lane(*lanes[i], mode, run, i);
      else
        run_nothing(run, i);
    });
  for (std::thread& thread : threads) thread.join();
  double rate = 0;
  for (const std::vector<Sample>& own : run.samples) {
    std::uint64_t messages = 0;
    std::int64_t time_ns = 0;
    for (std::size_t i = 1; i < slices; ++i) {
      if (!run.had_processors(i - 1) || !run.had_processors(i)) continue;
      messages += own[i + 1].messages - own[i].messages;
      time_ns += own[i + 1].wall_ns - own[i].wall_ns;
    }
    if (time_ns < kTimeLeast.ns) return std::nullopt;
    rate += static_cast<double>(messages) * 1e9 / static_cast<double>(time_ns);
  }
  return rate;
}

// What many rounds gave.
struct Rates {
  std::vector<double> all;
  double best() const { return all.empty() ? 0 : *std::max_element(all.begin(), all.end()); }
  double median() const {
    if (all.empty()) return 0;
    std::vector<double> sorted = all;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

constexpr const char* kKindNames[] = {"one, 16", "one, 8", "half", "two", "own CQ", "apart"};
enum Kind { kOne, kFew, kHalf, kTwo, kOwn, kApart, kKinds };

void print(const char* what, const Rates (&rates)[kKinds], double (Rates::*of)() const) {
  double values[kKinds];
  std::printf("%-20s", what);
  for (int kind = 0; kind < kKinds; ++kind) std::printf(" %8.3f", (values[kind] = (rates[kind].*of)()) / 1e6);
  // As many queue pairs in all, or, where nothing is shared, for each worker.
  std::printf("  %6.2f %6.2f %6.2f\n", values[kTwo] / values[kOne], values[kOwn] / values[kOne],
              values[kApart] / values[kFew]);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  const int slices = argc > 2 ? std::atoi(argv[2]) : 100;
  if (rounds < 1 || slices < 2) {
    std::fprintf(stderr, "usage: workers-cost [rounds [milliseconds of each run]]\n");
    return 2;
  }

  Machine one({.pairs = 2 * kPairs}), few({}), other({}), two({.shards = 2}),
      own({.shards = 2, .own_completions = true});
  const std::vector<Lane*> lanes[kKinds] = {{&one.lane(0)},
                                            {&few.lane(0)},
                                            {&two.lane(0)},
                                            {&two.lane(0), &two.lane(1)},
                                            {&own.lane(0), &own.lane(1)},
                                            {&few.lane(0), &other.lane(0)}};
  std::printf("%-20s", "M messages/s");
  for (const char* name : kKindNames) std::printf(" %8s", name);
  std::printf("  %6s %6s %6s\n", "two", "own CQ", "apart");
  for (const Mode& mode : kModes) {
    Rates rates[kKinds];
    for (int round = 0; round < rounds; ++round)
      for (int kind = 0; kind < kKinds; ++kind)
        for (int tries = 0; tries < kTries; ++tries) {
          const auto rate = run(lanes[kind], mode, static_cast<unsigned>(round), static_cast<std::size_t>(slices));
          if (!rate) continue;
          rates[kind].all.push_back(*rate);
          break;
        }
    print(mode.name, rates, &Rates::best);
    print("  median", rates, &Rates::median);
    std::fflush(stdout);
  }
  return 0;
}
