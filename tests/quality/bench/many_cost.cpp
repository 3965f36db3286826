// What a message costs where each is another queue pair's, by the data plane alone: no applications, no processes. Two
// devices of one worker, joined by a pair, with so many connected queue pairs; 8-octet Sends, sixteen under way, each
// of the queue pair that is next in turn. All lines of a connection that a message needs are cold where there are
// thousands of them.
//
//   many-cost wire|direct CONNECTIONS...
//
// CONNECTIONS: a number, or two, 16/10000: messages over 16 of 10,000, evenly apart.
//
// Prints ns a message, the best and the median of rounds that all numbers of connections take in turns, and their ratio
// to the first.
//
// Whoever posts and polls is the worker's own thread and costs next to nothing: all slots of a ring are one request,
// written beforehand.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "core/device.hpp"
#include "kit/tpt_memory.hpp"
#include "port/pair_port.hpp"
#include "qp/queue_pair.hpp"
#include "shm/mover.hpp"
#include "shm/queue_host.hpp"
#include "shm/queues.hpp"

using namespace rnic;

namespace {

constexpr std::uint32_t kMtuBytes = 65535;
constexpr std::uint32_t kBuffers = 8192;  // of the pair
constexpr std::uint16_t kPort = 7471;
constexpr std::uint32_t kSlots = 16;  // of a queue
constexpr std::uint32_t kStride = RNIC_CACHE_LINE;
constexpr std::uint32_t kCompletions = 4096;
constexpr std::size_t kUnderWay = 16, kConnecting = 64;
constexpr std::uint64_t kMessages = 100'000;  // of a round
constexpr int kRounds = 9;
constexpr std::uint32_t kOctets = 8;
constexpr PdId kPd{1};

[[noreturn]] void die(const char* why) {
  std::fprintf(stderr, "many-cost: %s\n", why);
  std::exit(1);
}

// As an arena has it: queues begin on lines.
struct Area {
  explicit Area(std::uint64_t bytes) : lines((bytes + sizeof(Line) - 1) / sizeof(Line)) {}
  MutableBytes bytes() { return {lines.front().octets.data(), lines.size() * sizeof(Line)}; }
  std::byte* at(std::size_t offset) { return bytes().data() + offset; }

  struct alignas(RNIC_CACHE_LINE) Line {
    std::array<std::byte, RNIC_CACHE_LINE> octets{};
  };
  std::vector<Line> lines;
};

void post(Area& ring, std::uint32_t produced) {
  auto* control = reinterpret_cast<rnic_ring_control*>(ring.at(0));
  std::atomic_ref(control->produced).store(produced, std::memory_order_release);
}

template <typename Entry>
void write_slots(Area& ring, const Entry& entry, const rnic_sge& sge) {
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    std::byte* const slot = ring.at(sizeof(rnic_ring_control) + i * kStride);
    std::memcpy(slot, &entry, sizeof entry);
    std::memcpy(slot + sizeof entry, &sge, sizeof sge);
  }
}

// A queue pair with its queues as the daemon has them.
class End final : public qp::Host {
 public:
  // `completed` counts what nobody has polled.
  End(shm::CompletionQueue& completions, std::uint32_t& completed, shm::WorkerEvents& events, QpNumber number)
      : send_area_(shm::SendQueue::area_bytes(kSlots, kStride)),
        receive_area_(shm::SendQueue::area_bytes(kSlots, kStride)),
        sends_(send_area_.bytes(), kSlots, kStride, 1),
        receives_(receive_area_.bytes(), kSlots, kStride, 1),
        host_({.send = &sends_,
               .receive = &receives_,
               .send_cq = &completions,
               .receive_cq = &completions,
               .qp_number = number.value},
              events),
        completed_(completed) {
    host_.set_worker(0, events);
  }

  bool take_send(qp::WorkRequest& out) override { return host_.take_send(out); }
  bool take_receive(qp::ReceiveRequest& out) override { return host_.take_receive(out); }
  bool complete(const qp::Completion& completion) override {
    if (completion.status != qp::Status::success) die("a message failed");
    ++completed_;
    if (!completion.of_send_queue) post_receive();
    return host_.complete(completion);
  }
  bool has_room_for_receive() const override { return host_.has_room_for_receive(); }
  void raise(qp::Event event) override { host_.raise(event); }
  void state_changed(const qp::Change& change) override { host_.state_changed(change); }

  // All slots of both queues.
  void fill(MutableBytes memory, Stag lkey) {
    const rnic_sge sge{reinterpret_cast<std::uintptr_t>(memory.data()), kOctets, lkey.value};
    const rnic_sqe send{.opcode = RNIC_OP_SEND,
                        .flags = RNIC_SQE_SIGNALED,
                        .sge_count = 1,
                        .reserved0 = 0,
                        .length = 0,
                        .remote_address = 0,
                        .rkey = 0,
                        .invalidate = 0,
                        .argument = 0};
    write_slots(send_area_, send, sge);
    write_slots(receive_area_, rnic_rqe{.sge_count = 1, .id = 0, .reserved = {}}, sge);
    for (std::uint32_t i = 0; i < kSlots; ++i) post_receive();
  }
  void post_send() { post(send_area_, ++posted_sends_); }
  void post_receive() { post(receive_area_, ++posted_receives_); }

  std::unique_ptr<qp::QueuePair> qp;

 private:
  Area send_area_, receive_area_;
  shm::SendQueue sends_;
  shm::ReceiveQueue receives_;
  shm::QueueHost host_;
  std::uint32_t& completed_;
  std::uint32_t posted_sends_ = 0, posted_receives_ = 0;
};

class World final : public shm::WorkerEvents, public core::StreamEvents {
 public:
  struct Connections {
    std::size_t all = 0, active = 0;
  };
  World(const Connections& connections, bool direct);
  ~World() {
    for (Side& side : sides_)
      for (auto& end : side.ends) side.device->release(*end->qp, now_);
  }
  World(const World&) = delete;

  // ns a message.
  double run(std::uint64_t messages);

  // ---- shm::WorkerEvents, core::StreamEvents ----
  void on_qp_event(std::uint64_t, qp::Event) override { die("an event of a queue pair"); }
  void on_qp_state(std::uint64_t, const qp::Change&) override {}
  void on_srq_limit(std::uint64_t) override {}
  void on_cq_overflow(std::uint64_t) override { die("a completion queue is full"); }
  void cq_pushed(shm::CompletionQueue& cq) override { dirty_.push_back(cq.pushed_by(0)); }
  Instant clock() const override { return core::clock_now(); }
  void on_stream_event(const core::StreamEvent& event) override;

 private:
  struct Side {
    Side(std::uint8_t number, std::shared_ptr<port::PairWire> wire, bool direct, core::StreamEvents& events)
        : table(256, number),
          memory(64),
          cq_area(shm::CompletionQueue::area_bytes(kCompletions)),
          completions(cq_area.bytes(), kCompletions, 1, false, 1) {
      stag = test::register_memory(table, memory, tpt::Rights::local_read | tpt::Rights::local_write, kPd, 7);
      port::PortOptions of_port;
      of_port.name = number == 0 ? "a" : "b";
      of_port.mtu_bytes = kMtuBytes;
      of_port.mac = wire::Mac{2, 0, 0, 0, 0, static_cast<std::uint8_t>(number + 1)};
      port = std::make_unique<port::PairPort>(wire, number, of_port);
      core::DeviceOptions wanted;
      wanted.name = of_port.name;
      wanted.index = number;
      wanted.addresses = {{wire::IpAddress::v4(10, 0, 0, static_cast<std::uint8_t>(number + 1)), 24}};
      wanted.seed = 11u + number;
      wanted.streams_max = 16384;
      wanted.local_direct = direct;
      device = std::make_unique<core::Device>(wanted, *port, events);
      if (number == 1 && !device->listen({}, kPort, 1024, 0)) die("no listener");
    }

    tpt::Table table;
    std::vector<std::byte> memory;
    Stag stag;
    Area cq_area;
    shm::CompletionQueue completions;
    std::uint32_t completed = 0;  // and not polled
    std::unique_ptr<port::PairPort> port;
    std::unique_ptr<core::Device> device;
    std::vector<std::unique_ptr<End>> ends;
  };

  void add_end(Side& side);
  void turn();
  void post_all();
  void poll();
  void move() {
    if (mover_.has_moves()) mover_.flush();
  }
  void publish();

  shm::ApplicationMover mover_;
  List<shm::CompletionQueue::Pushed, shm::DirtyTag> dirty_;
  std::shared_ptr<port::PairWire> wire_;
  std::array<Side, 2> sides_;
  std::size_t accepted_ = 0, established_ = 0;
  const Connections connections_;
  std::size_t next_ = 0;  // of those that are active
  std::uint64_t wanted_ = 0, posted_ = 0, done_ = 0;
  Instant now_{0};
};

World::World(const Connections& connections, bool direct)
    : mover_(shm::Copier::kernel()),
      wire_(std::make_shared<port::PairWire>("w", kMtuBytes, kBuffers)),
      sides_{Side{0, wire_, direct, *this}, Side{1, wire_, direct, *this}},
      connections_(connections) {
  for (const std::size_t side : {0u, 1u}) sides_[side].device->set_mate(*sides_[1 - side].device);
  for (Side& side : sides_)
    while (side.ends.size() < connections.all) add_end(side);
  const Instant limit = core::clock_now() + seconds(60);
  for (std::size_t called = 0; established_ < 2 * connections.all; turn()) {
    for (; called < connections.all && called < established_ / 2 + kConnecting; ++called)
      if (!sides_[0].device->connect({.local = {},
                                      .remote = sides_[1].device->options().addresses[0].address,
                                      .remote_port = kPort,
                                      .ird = 1,
                                      .ord = 1,
                                      .private_data = {},
                                      .cookie = called,
                                      .meeting = {}},
                                     *sides_[0].ends[called]->qp, now_))
        die("no call");
    if (now_ > limit) die("not all are connected");
  }
}

void World::add_end(Side& side) {
  qp::Config config;
  config.number = {static_cast<std::uint32_t>(side.ends.size() + 1)};
  config.pd = config.receive_pd = kPd;
  config.ird = config.ord = 1;
  config.send_depth = kSlots;
  End& end = *side.ends.emplace_back(std::make_unique<End>(side.completions, side.completed, *this, config.number));
  end.qp = std::make_unique<qp::QueuePair>(config, end, side.table, mover_, side.device->data_pool(),
                                           side.device->scratch());
  end.fill(side.memory, side.stag);
}

// As core::Worker's.
void World::turn() {
  now_ = core::clock_now();
  for (Side& side : sides_) side.device->receive(now_);
  move();
  for (Side& side : sides_) side.device->settle(now_);
  publish();
  post_all();
  for (Side& side : sides_) side.device->transmit(now_);
  move();
  for (Side& side : sides_) side.device->settle(now_);
  publish();
  for (Side& side : sides_)
    if (side.device->next_deadline() <= now_) side.device->run_timers(now_);
  for (Side& side : sides_) side.device->send(now_);
  move();
  publish();
  while (const shm::CompletionQueue::Pushed* pushed = dirty_.pop_front())
    if (pushed->queue->take_notification(0)) die("an arming that nobody made");
  poll();
}

void World::publish() {
  for (shm::CompletionQueue::Pushed* pushed = dirty_.front(); pushed != nullptr; pushed = dirty_.after(*pushed))
    if (!pushed->queue->publish(0)) on_cq_overflow(0);
}

// What the client does in a turn: a message more for each that is complete.
void World::post_all() {
  for (; posted_ < wanted_ && posted_ - done_ < kUnderWay; ++posted_) {
    End& end = *sides_[0].ends[next_ * connections_.all / connections_.active];
    next_ = next_ + 1 == connections_.active ? 0 : next_ + 1;
    end.post_send();
    sides_[0].device->work_posted(*end.qp);
  }
}

// What both do: as the provider does once for a poll.
void World::poll() {
  for (Side& side : sides_) {
    const std::uint32_t count = std::exchange(side.completed, 0);
    auto* control = reinterpret_cast<rnic_cq_control*>(side.cq_area.at(0));
    if (count != 0) std::atomic_ref(control->consumed).fetch_add(count, std::memory_order_release);
    if (&side == &sides_[0]) done_ += count;
  }
}

[[gnu::noinline]] double World::run(std::uint64_t messages) {
  wanted_ += messages;
  const Instant start = core::clock_now();
  while (done_ < wanted_) turn();
  return static_cast<double>((core::clock_now() - start).ns) / static_cast<double>(messages);
}

void World::on_stream_event(const core::StreamEvent& event) {
  switch (event.kind) {
    case core::StreamEvent::Kind::connect_request:
      if (!sides_[1].device->accept(event.stream, {.ird = 1, .ord = 1, .private_data = {}, .cookie = accepted_},
                                    *sides_[1].ends[accepted_]->qp, now_))
        die("not accepted");
      ++accepted_;
      return;
    case core::StreamEvent::Kind::established:
      ++established_;
      return;
    default:
      die("a connection failed");
  }
}

struct Rates {
  std::vector<double> all;
  double best() const { return *std::min_element(all.begin(), all.end()); }
  double median() const {
    std::vector<double> sorted = all;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

}  // namespace

int main(int argc, char** argv) {
  const bool direct = argc > 2 && std::string_view(argv[1]) == "direct";
  const bool wire = argc > 2 && std::string_view(argv[1]) == "wire";
  std::vector<World::Connections> counts;
  for (int i = 2; i < argc; ++i) {
    char* end = nullptr;
    const std::size_t first = std::strtoul(argv[i], &end, 10);
    counts.push_back({.all = *end == '/' ? std::strtoul(end + 1, nullptr, 10) : first, .active = first});
  }
  const auto cannot_be = [](const World::Connections& count) {
    return count.active < 1 || count.active > count.all || count.all > 16384;
  };
  if (!(direct || wire) || std::any_of(counts.begin(), counts.end(), cannot_be)) {
    std::fprintf(stderr, "usage: many-cost wire|direct CONNECTIONS...\n");
    return 2;
  }
  std::vector<std::unique_ptr<World>> worlds;
  for (const World::Connections& count : counts) worlds.push_back(std::make_unique<World>(count, direct));
  std::vector<Rates> rates(counts.size());
  for (int round = 0; round < kRounds; ++round)
    for (std::size_t i = 0; i < worlds.size(); ++i) rates[i].all.push_back(worlds[i]->run(kMessages));
  for (std::size_t i = 0; i < counts.size(); ++i)
    std::printf("%5zu of %5zu connections: best %7.0f ns, median %7.0f; %.2f and %.2f times the first\n",
                counts[i].active, counts[i].all, rates[i].best(), rates[i].median(), rates[i].best() / rates[0].best(),
                rates[i].median() / rates[0].median());
  return 0;
}
