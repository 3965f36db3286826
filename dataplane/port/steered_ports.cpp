#include "port/steered_ports.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "port/steering.hpp"

namespace rnic::port {

namespace {

constexpr unsigned kBurst = 64;          // frames that are received, or sent for others, in one call
constexpr std::uint32_t kShortPart = 8;  // of a class's buffers: with less than such a part left one is short
constexpr std::uint32_t kAwake = 0, kAsleep = 1, kAsleepShort = 2;

// As `like` has them now.
PoolSize size_like(const BufferPool& like) {
  PoolSize size{.count = like.available(), .room_bytes = like.small_room_bytes()};
  if (like.room_bytes() != like.small_room_bytes()) {
    size.large_count = like.large_available();
    size.large_room_bytes = like.room_bytes();
  }
  return size;
}

void close_if_open(int descriptor) {
  if (descriptor >= 0) close(descriptor);
}

bool watch(int epoll, int descriptor) {
  epoll_event wanted{.events = EPOLLIN, .data = {.fd = descriptor}};
  return epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &wanted) == 0;
}

}  // namespace

// Owned by its shard's worker, but for what Port says, and wake().
class SteeredPorts::Shard final : public Port {
 public:
  // `near`: the shard's own queue if `has_queue`, else the one by which it sends; where links are apart all have one.
  Shard(unsigned number, unsigned shards, Port& near, bool has_queue, Port& first);
  ~Shard() override;

  // Before anything is received or sent: frames of ours for `other`, and it of ours.
  void hand_over_to(unsigned number, Shard& other, HandoverRing& ring) { outgoing_[number] = {&ring, &other}; }
  void take_from(Shard& other, HandoverRing& ring) { incoming_.push_back({&ring, &other}); }
  void send_for(Shard& other, HandoverRing& ring) { requests_.push_back({&ring, &other}); }
  void send_by(Shard& other, HandoverRing& ring) {
    by_other_ = &outgoing_.back();
    *by_other_ = {&ring, &other};
  }

  const PortFacts& facts() const override { return facts_; }
  bool link_up() const override { return linked_.link_up(); }
  std::uint32_t link_mtu() const override { return linked_.link_mtu(); }
  bool fills_checksums() const override {
    return linked_.fills_checksums() && (queue_ == nullptr || !queue_->link_up() || queue_->fills_checksums());
  }
  BufferPool& pool() override { return pool_; }
  unsigned receive_burst(Buffer** out, unsigned max) override;
  unsigned take_moved_for_others() override { return std::exchange(moved_for_others_, 0); }
  unsigned send_burst(Buffer* const* frames, unsigned count) override;
  std::uint64_t frames_lost() const override { return lost_ + (queue_ != nullptr ? queue_->frames_lost() : 0); }
  int wake_descriptor() override;
  bool arm() override;
  void disarm() override;
  void tend() override;

 private:
  // To or from another shard.
  struct Way {
    HandoverRing* ring = nullptr;  // none: to ourselves
    Shard* other = nullptr;
    bool filled = false;  // and not pushed yet
  };

  void open_descriptors();
  // From any thread, behind its fence: if it sleeps at least so deep.
  void wake(std::uint32_t least);
  bool take_back();
  bool is_short();
  // What is as long as the port's link takes.
  bool queue_carries() const { return queue_->link_up() && queue_->link_mtu() >= linked_.link_mtu(); }
  bool anything_waits();

  Buffer* copy_of(const HandedFrame& frame);
  unsigned take(Way& way, Buffer** out, unsigned max);
  unsigned poll_queue(Buffer** out, unsigned max);
  bool fill(Way& way, Buffer* frame);
  void give_to_all(Buffer* frame);
  void push();
  void serve_requests();

  const unsigned number_, shards_;
  Port& near_;
  Port& linked_;  // whose link is ours
  Port* const queue_;
  const bool alone_;
  std::unique_ptr<HeapPool> own_pool_;
  BufferPool& pool_;
  std::uint32_t small_all_, large_all_;  // buffers of the pool
  PortFacts facts_;

  // Of one with a queue by shard, and then the way to another's queue; of one without that alone.
  std::vector<Way> outgoing_;
  Way* by_other_ = nullptr;  // of these: to what we send by while our queue has no link, or where we have none
  std::vector<Way> incoming_;
  std::vector<Way> requests_;  // of those that send by our queue
  std::size_t first_in_ = 0;   // who is looked at first: the next one each time
  std::size_t first_request_ = 0;
  bool filled_ = false;  // one of outgoing_
  unsigned moved_for_others_ = 0;

  std::array<Buffer*, kBurst> waiting_{};  // copies for others that the queue has not taken yet
  unsigned waiting_count_ = 0;
  bool waited_ = false;  // since the last tend(), and it has taken none

  int event_ = -1;
  int wake_ = -1;  // event_, or an epoll of it and of the queue's
  bool armed_ = false;
  std::uint64_t lost_ = 0;
  unsigned tends_ = 0;
  alignas(64) std::atomic<std::uint32_t> asleep_{kAwake};
};

// ---- opening -----------------------------------------------------------------------------------

SteeredPorts::Shard::Shard(unsigned number, unsigned shards, Port& near, bool has_queue, Port& first)
    : number_(number),
      shards_(shards),
      near_(near),
      linked_(near.facts().links_apart ? first : near),
      queue_(has_queue ? &near : nullptr),
      alone_(shards == 1),
      own_pool_(has_queue ? nullptr : std::make_unique<HeapPool>(size_like(first.pool()))),
      pool_(has_queue ? near.pool() : *own_pool_),
      small_all_(pool_.available()),
      large_all_(pool_.large_available()),
      facts_(has_queue ? near.facts() : first.facts()),
      outgoing_(has_queue ? shards + 1 : 1) {
  if (alone_) return;
  facts_.needs_wake = true;  // by other workers
  open_descriptors();
}

// Without descriptors, and where the queue has none, it looks again by itself from time to time.
void SteeredPorts::Shard::open_descriptors() {
  const int of_queue = queue_ != nullptr ? queue_->wake_descriptor() : -1;
  if (queue_ != nullptr && of_queue < 0) return;
  event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event_ < 0 || queue_ == nullptr) {
    wake_ = event_;
    return;
  }
  wake_ = epoll_create1(EPOLL_CLOEXEC);
  if (wake_ >= 0 && watch(wake_, of_queue) && watch(wake_, event_)) return;
  close_if_open(std::exchange(wake_, -1));
}

int SteeredPorts::Shard::wake_descriptor() {
  if (alone_) return near_.wake_descriptor();
  // A queue may have one at times.
  return queue_ != nullptr && queue_->wake_descriptor() < 0 ? -1 : wake_;
}

SteeredPorts::Shard::~Shard() {
  for (unsigned i = 0; i < waiting_count_; ++i) BufferRef dropped(waiting_[i]);
  if (wake_ != event_) close_if_open(wake_);
  close_if_open(event_);
}

SteeredPorts::SteeredPorts(std::vector<std::unique_ptr<Port>> queues, unsigned shards) : queues_(std::move(queues)) {
  const auto queue_count = static_cast<unsigned>(queues_.size());
  RNIC_ASSERT(queue_count >= 1 && queue_count <= shards);
  for (unsigned i = 0; i < shards; ++i)
    shards_.push_back(std::make_unique<Shard>(i, shards, *queues_[i % queue_count], i < queue_count, *queues_[0]));
  for (unsigned from = 0; from < queue_count; ++from)
    for (unsigned to = 0; to < shards; ++to) {
      if (to == from) continue;
      HandoverRing& ring = add_ring();
      shards_[from]->hand_over_to(to, *shards_[to], ring);
      shards_[to]->take_from(*shards_[from], ring);
    }
  const auto send_by = [&](unsigned from, unsigned sender) {
    HandoverRing& ring = add_ring();
    shards_[from]->send_by(*shards_[sender], ring);
    shards_[sender]->send_for(*shards_[from], ring);
  };
  const bool links_apart = queues_[0]->facts().links_apart;
  for (unsigned from = links_apart ? 1 : queue_count; from < shards; ++from)
    send_by(from, links_apart ? 0 : from % queue_count);
}

SteeredPorts::~SteeredPorts() = default;

HandoverRing& SteeredPorts::add_ring() { return *rings_.emplace_back(std::make_unique<HandoverRing>()); }

Port& SteeredPorts::of(unsigned shard) {
  RNIC_ASSERT(shard < shards_.size());
  return *shards_[shard];
}

// ---- handing over ------------------------------------------------------------------------------

// False: the ring is full. The frame goes with the next push().
bool SteeredPorts::Shard::fill(Way& way, Buffer* frame) {
  if (!way.ring->fill(frame)) return false;
  filled_ = way.filled = true;
  return true;
}

void SteeredPorts::Shard::push() {
  if (!std::exchange(filled_, false)) return;
  for (Way& way : outgoing_)
    if (way.filled) way.ring->push();
  // Pairs with the one in arm().
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (Way& way : outgoing_)
    if (std::exchange(way.filled, false)) way.other->wake(kAsleep);
}

// Taken back by one waker only, so that it is woken once.
void SteeredPorts::Shard::wake(std::uint32_t least) {
  if (asleep_.load(std::memory_order_relaxed) < least) return;
  if (asleep_.exchange(kAwake, std::memory_order_relaxed) == kAwake) return;
  const std::uint64_t one = 1;
  (void)!write(event_, &one, sizeof one);
}

bool SteeredPorts::Shard::take_back() {
  bool any = false;
  for (Way& way : outgoing_) any |= way.ring != nullptr && way.ring->take_back();
  return any;
}

// In a buffer of ours. Null: there is none, and the frame is lost.
Buffer* SteeredPorts::Shard::copy_of(const HandedFrame& frame) {
  BufferRef copy = BufferRef::take(pool_, frame.length);
  if (!copy || frame.length > copy->room_bytes) [[unlikely]] {
    lost_ += frame.frames();
    return nullptr;
  }
  // What was received may begin before the headroom's end, by headers that are counted there.
  if (frame.length > copy->tailroom()) [[unlikely]]
    copy->head = copy->room_bytes - frame.length;
  std::memcpy(copy->append(frame.length).data(), frame.octets, frame.length);
  copy->checksum_good = frame.checksum_good ? 1 : 0;
  copy->unit_bytes = frame.unit_bytes;
  copy->headers_bytes = frame.headers_bytes;
  return copy.release();
}

// Copies of up to `max` frames of a way.
unsigned SteeredPorts::Shard::take(Way& way, Buffer** out, unsigned max) {
  const std::uint32_t count = std::min(way.ring->waiting(), max);
  if (count == 0) return 0;
  unsigned taken = 0;
  for (std::uint32_t i = 0; i < count; ++i)
    if (Buffer* const copy = copy_of(way.ring->peek(i))) out[taken++] = copy;
  way.ring->move_on(count);
  // Pairs with the one in arm(), of one that waits for its buffers.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  way.other->wake(kAsleepShort);
  return taken;
}

// ---- receiving ---------------------------------------------------------------------------------

// Others' references of it; ours is the caller's.
void SteeredPorts::Shard::give_to_all(Buffer* frame) {
  for (Way& way : outgoing_) {
    if (way.ring == nullptr || &way == by_other_) continue;
    ++frame->refs;
    if (fill(way, frame)) continue;
    --frame->refs;
    lost_ += frame->frames();
  }
}

// What comes to our queue: ours goes out, others' is handed over.
unsigned SteeredPorts::Shard::poll_queue(Buffer** out, unsigned max) {
  Buffer* burst[kBurst];
  const unsigned count = queue_->receive_burst(burst, std::min(max, kBurst));
  unsigned kept = 0;
  for (unsigned i = 0; i < count; ++i) {
    Buffer* const frame = burst[i];
    const Steered steered = steer(frame->bytes(), shards_);
    if (steered.to_all) [[unlikely]]
      give_to_all(frame);
    if (steered.to_all || steered.shard == number_) {
      out[kept++] = frame;
    } else if (!fill(outgoing_[steered.shard], frame)) {
      lost_ += frame->frames();
      BufferRef dropped(frame);
    }
  }
  push();
  moved_for_others_ += count - kept;
  return kept;
}

// What was handed over first, in turn: it came in before what our own queue has, and may tell where the peer is who
// sent that. It leaves half of the burst.
unsigned SteeredPorts::Shard::receive_burst(Buffer** out, unsigned max) {
  if (alone_) return queue_->receive_burst(out, max);
  take_back();
  serve_requests();
  const std::size_t rings = incoming_.size();
  const unsigned most = queue_ != nullptr ? (max + 1) / 2 : max;
  unsigned received = 0;
  for (std::size_t i = 0; i < rings && received < most; ++i)
    received += take(incoming_[(first_in_ + i) % rings], out + received, most - received);
  if (rings != 0) first_in_ = (first_in_ + 1) % rings;
  if (queue_ != nullptr && received < max) received += poll_queue(out + received, max - received);
  return received;
}

// ---- sending -----------------------------------------------------------------------------------

// What others have to send. A queue that is full takes the rest later, in order.
void SteeredPorts::Shard::serve_requests() {
  if (requests_.empty()) return;
  for (std::size_t i = 0; i < requests_.size() && waiting_count_ < kBurst; ++i) {
    Way& way = requests_[(first_request_ + i) % requests_.size()];
    waiting_count_ += take(way, waiting_.data() + waiting_count_, kBurst - waiting_count_);
  }
  first_request_ = (first_request_ + 1) % requests_.size();
  if (waiting_count_ == 0) return;
  const unsigned sent = queue_->send_burst(waiting_.data(), waiting_count_);
  if (sent == 0) return;
  moved_for_others_ += sent;
  waited_ = false;
  std::copy(waiting_.begin() + sent, waiting_.begin() + waiting_count_, waiting_.begin());
  waiting_count_ -= sent;
}

unsigned SteeredPorts::Shard::send_burst(Buffer* const* frames, unsigned count) {
  if (queue_ != nullptr && (by_other_ == nullptr || queue_carries())) return queue_->send_burst(frames, count);
  unsigned accepted = 0;
  while (accepted < count && fill(*by_other_, frames[accepted])) ++accepted;
  push();
  return accepted;
}

// ---- sleeping ----------------------------------------------------------------------------------

// Of buffers that others have, which are to wake us when they come back.
bool SteeredPorts::Shard::is_short() {
  const bool any_out = std::any_of(outgoing_.begin(), outgoing_.end(),
                                   [](const Way& way) { return way.ring != nullptr && way.ring->out() != 0; });
  return any_out && (pool_.available() < small_all_ / kShortPart || pool_.large_available() < large_all_ / kShortPart);
}

bool SteeredPorts::Shard::anything_waits() {
  const auto waits = [](const Way& way) { return way.ring->waiting() != 0; };
  return waiting_count_ != 0 || std::any_of(incoming_.begin(), incoming_.end(), waits) ||
         std::any_of(requests_.begin(), requests_.end(), waits);
}

bool SteeredPorts::Shard::arm() {
  if (alone_) return queue_->arm();
  if (queue_ != nullptr && !queue_->arm()) return false;
  armed_ = true;
  take_back();
  const bool lacking = is_short();
  if (wake_ >= 0) asleep_.store(lacking ? kAsleepShort : kAsleep, std::memory_order_relaxed);
  // Pairs with those in push() and take().
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!anything_waits() && !(lacking && take_back())) return true;
  disarm();
  return false;
}

// A waker may be late, and be heard the next time, for nothing.
void SteeredPorts::Shard::disarm() {
  if (std::exchange(armed_, false) && wake_ >= 0) {
    asleep_.store(kAwake, std::memory_order_relaxed);
    std::uint64_t count = 0;
    (void)!read(event_, &count, sizeof count);
  }
  if (queue_ != nullptr) queue_->disarm();
}

// ---- now and then ------------------------------------------------------------------------------

void SteeredPorts::Shard::tend() {
  if (queue_ == nullptr) {
    if (++tends_ % kTendsPerRelease == 0) own_pool_->release_unused();
    return;
  }
  queue_->tend();
  const bool stuck = std::exchange(waited_, waiting_count_ != 0);
  if (!stuck) return;
  for (unsigned i = 0; i < waiting_count_; ++i) {
    lost_ += waiting_[i]->frames();
    BufferRef dropped(waiting_[i]);
  }
  waiting_count_ = 0;
  waited_ = false;
}

}  // namespace rnic::port
