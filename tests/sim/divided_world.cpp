#include "sim/divided_world.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <numeric>

#include "port/steering.hpp"

namespace rnic::sim {

namespace {

constexpr Duration kTurnCost = microseconds(2);
constexpr Duration kTend = milliseconds(10);
constexpr Duration kRestless = seconds(1);  // sleeps are short for so long behind a change of the link

RnicOptions with(RnicOptions options, const wire::IpAddress& address, std::uint8_t last, std::uint64_t seed) {
  if (options.address.is_unspecified()) options.address = address;
  if (options.mac == wire::Mac{}) options.mac = wire::Mac{{2, 0, 0, 0, 0, last}};
  options.seed = seed;
  return options;
}

port::PortFacts facts_of(const RnicOptions& options) {
  port::PortFacts facts;
  facts.kind = facts.name = "sim";
  facts.mac = options.mac;
  facts.mtu_bytes = options.mtu_bytes;
  if (options.runs) facts.run_bytes = 65'535;
  return facts;
}

bool is_readable(int descriptor) {
  pollfd asked{.fd = descriptor, .events = POLLIN, .revents = 0};
  return poll(&asked, 1, 0) == 1;
}

}  // namespace

// One of several of a port. What comes to it the world says.
class DividedWorld::Queue final : public port::Port {
 public:
  Queue(const port::PortFacts& facts, const PoolSize& buffers, Clock& clock, Link& out)
      : facts_(facts), pool_(buffers), clock_(clock), out_(out), event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Queue() override { close(event_); }

  const port::PortFacts& facts() const override { return facts_; }
  bool link_up() const override { return up; }
  BufferPool& pool() override { return pool_; }
  unsigned receive_burst(Buffer** out, unsigned max) override {
    unsigned count = 0;
    for (; count < max && !waiting_.empty(); waiting_.pop_front()) {
      BufferRef buffer = BufferRef::take(pool_, static_cast<std::uint32_t>(waiting_.front().size()));
      if (!buffer) break;
      std::copy(waiting_.front().begin(), waiting_.front().end(), buffer->append(buffer_size()).begin());
      out[count++] = buffer.release();
    }
    return count;
  }
  unsigned send_burst(Buffer* const* frames, unsigned count) override {
    if (!up) return 0;
    for (unsigned i = 0; i < count; ++i) {
      const BufferRef frame(frames[i]);
      out_.send(frame->bytes(), clock_.now);
    }
    return count;
  }
  int wake_descriptor() override { return event_; }
  bool arm() override {
    armed_ = waiting_.empty();
    return armed_;
  }
  void disarm() override {
    armed_ = false;
    std::uint64_t count = 0;
    [[maybe_unused]] const auto taken = read(event_, &count, sizeof count);
  }

  void arrive(Frame frame) {
    waiting_.push_back(std::move(frame));
    const std::uint64_t one = 1;
    if (std::exchange(armed_, false)) [[maybe_unused]]
      const auto rung = write(event_, &one, sizeof one);
  }

  bool up = true;

 private:
  std::uint32_t buffer_size() const { return static_cast<std::uint32_t>(waiting_.front().size()); }

  port::PortFacts facts_;
  HeapPool pool_;
  Clock& clock_;
  Link& out_;
  int event_;
  bool armed_ = false;
  std::deque<Frame> waiting_;
};

DividedWorld::DividedWorld(const DividedOptions& options)
    : to_peer(options.link, options.seed * 4 + 1),
      from_peer(options.link, options.seed * 4 + 2),
      options_(options),
      random_(options.seed * 8 + 5) {
  options_.device = with(options.device, kAddressA, 1, options.seed * 4 + 3);
  options_.peer = with(options.peer, kAddressB, 2, options.seed * 4 + 4);
  peer = std::make_unique<Rnic>(options_.peer, clock, from_peer, to_peer);
  options_.device.device.served_ports = std::make_shared<host::ServedPorts>();
  ports_ = std::make_unique<port::SteeredPorts>(make_queues(), options.shards);
  for (unsigned i = 0; i < options.shards; ++i) {
    RnicOptions shard = options_.device;
    shard.buffers = 1;  // of a port that it does not use
    shard.device.shard = {.index = i, .count = options.shards};
    buffers_.push_back(ports_->of(i).pool().available());
    shards.push_back(std::make_unique<Rnic>(shard, clock, nowhere_, nowhere_, &ports_->of(i)));
  }
  sleeps_.resize(options.shards);
  order_.resize(options.shards + 1);
  std::iota(order_.begin(), order_.end(), 0);
  adopt();
}

DividedWorld::~DividedWorld() { shards.clear(); }

std::vector<std::unique_ptr<port::Port>> DividedWorld::make_queues() {
  std::vector<std::unique_ptr<port::Port>> queues;
  const port::PortFacts facts = facts_of(options_.device);
  if (options_.queues == Queues::one) {
    auto only = std::make_unique<SimPort>(facts, buffers_of(options_.device), clock, to_peer, from_peer);
    only_queue_ = only.get();
    queues.push_back(std::move(only));
    return queues;
  }
  for (unsigned i = 0; i < options_.shards; ++i) {
    auto queue = std::make_unique<Queue>(facts, buffers_of(options_.device), clock, to_peer);
    queues_.push_back(queue.get());
    queues.push_back(std::move(queue));
  }
  return queues;
}

// As a card does, of itself.
void DividedWorld::take_in() {
  if (queues_.empty()) return;
  while (auto frame = from_peer.receive(clock.now)) {
    const std::uint64_t queue =
        options_.queues == Queues::steered ? port::steer(*frame, options_.shards).shard : random_.below(queues_.size());
    queues_[queue]->arrive(std::move(*frame));
  }
}

// As control does, when the first shard has told of a change.
void DividedWorld::adopt() {
  network_changes_ = shards[0]->network_changes;
  for (std::size_t i = 1; i < shards.size(); ++i) {
    wake(*shards[i]);
    shards[i]->device.adopt(shards[0]->device.network());
  }
}

void DividedWorld::wake(Rnic& shard) {
  for (std::size_t i = 0; i < shards.size(); ++i)
    if (shards[i].get() == &shard && std::exchange(sleeps_[i].armed, false))
      ports_->of(static_cast<unsigned>(i)).disarm();
}

void DividedWorld::set_link_up(bool up) {
  if (only_queue_ != nullptr) only_queue_->set_link_up(up);
  for (Queue* queue : queues_) queue->up = up;
  restless_until_ = clock.now + kRestless;
}

std::uint64_t DividedWorld::frames_lost() const {
  std::uint64_t lost = 0;
  for (unsigned i = 0; i < options_.shards; ++i) lost += ports_->of(i).frames_lost();
  return lost;
}

bool DividedWorld::ends_with_all_buffers() {
  shards.clear();
  for (int round = 0; round < 2; ++round)
    for (unsigned i = 0; i < options_.shards; ++i) {
      std::array<Buffer*, 64> frames;
      while (const unsigned count = ports_->of(i).receive_burst(frames.data(), frames.size()))
        for (unsigned k = 0; k < count; ++k) BufferRef dropped(frames[k]);
    }
  for (unsigned i = 0; i < options_.shards; ++i)
    if (ports_->of(i).pool().available() != buffers_[i]) return false;
  return true;
}

// ---- turns and sleeps --------------------------------------------------------------------------

bool DividedWorld::is_woken(std::size_t shard) {
  const Sleep& sleep = sleeps_[shard];
  if (!sleep.armed || !sleep.dozes || clock.now < restless_until_) return true;
  if (shards[shard]->device.next_deadline() <= clock.now) return true;
  return is_readable(ports_->of(static_cast<unsigned>(shard)).wake_descriptor());
}

void DividedWorld::turn(std::size_t shard) {
  if (!is_woken(shard)) return;
  wake(*shards[shard]);
  if (random_.chance(options_.skip_per_1000)) return;
  shards[shard]->turn();
}

// It has nothing to do, and sleeps from now on.
bool DividedWorld::rests(std::size_t shard) {
  Sleep& sleep = sleeps_[shard];
  if (sleep.armed) return !sleep.dozes || !is_readable(ports_->of(static_cast<unsigned>(shard)).wake_descriptor());
  Rnic& rnic = *shards[shard];
  if (!rnic.device.idle() || !rnic.mover.idle()) return false;
  port::Port& port = ports_->of(static_cast<unsigned>(shard));
  sleep.armed = port.arm();
  sleep.dozes = port.wake_descriptor() >= 0;
  return sleep.armed;
}

// Who sleeps without having been woken has nothing waiting.
void DividedWorld::check_sleep(std::size_t shard) {
  if (sleeps_[shard].armed && !is_woken(shard) && !ports_->of(static_cast<unsigned>(shard)).arm())
    complaint = "shard " + std::to_string(shard) + " sleeps, and frames wait";
}

bool DividedWorld::step(Instant not_beyond) {
  take_in();
  for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random_.below(i)]);
  for (const std::size_t who : order_) {
    if (who == shards.size())
      peer->turn();
    else
      turn(who);
    if (network_changes_ != shards[0]->network_changes) adopt();
  }
  if (clock.now - tended_ >= kTend) {
    tended_ = clock.now;
    for (unsigned i = 0; i < options_.shards; ++i) ports_->of(i).tend();
  }
  if (application) application();
  Instant next = peer->idle() ? kNever : clock.now + kTurnCost;
  next = std::min({next, peer->next_deadline(), from_peer.next_arrival()});
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (!rests(i)) next = std::min(next, clock.now + kTurnCost);
    next = std::min(next, shards[i]->device.next_deadline());
  }
  for (std::size_t i = 0; i < shards.size(); ++i) check_sleep(i);
  if (clock.now < restless_until_) next = std::min(next, clock.now + kTend);
  if (next == kNever && not_beyond == kNever) return false;
  clock.now = std::min(std::max(next, clock.now + nanoseconds(100)), not_beyond);
  return true;
}

bool DividedWorld::run_until(const std::function<bool()>& done, Duration limit) {
  const Instant end = clock.now + limit;
  while (!done()) {
    if (clock.now > end) return false;
    if (!step()) return done();
  }
  return true;
}

void DividedWorld::run_for(Duration time) {
  const Instant end = clock.now + time;
  while (clock.now < end) step(end);
}

}  // namespace rnic::sim
