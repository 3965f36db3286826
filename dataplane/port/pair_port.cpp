#include "port/pair_port.hpp"

#include <algorithm>

#include "wire/vlan.hpp"

namespace rnic::port {

// ---- the pool ----------------------------------------------------------------------------------

// A buffer can be in more than one view: it was sent again while the receiver still held the first.
// As many views as buffers is a bound that honest use does not reach.
PairPool::PairPool(const PoolSize& size)
    : buffers_(size), views_(new View[size.count + size.large_count]), view_count_(size.count + size.large_count) {
  free_views_.reserve(view_count_);
  for (std::uint32_t i = view_count_; i-- > 0;) {
    views_[i].pool = this;
    free_views_.push_back(&views_[i]);
  }
}

PairPool::~PairPool() = default;

Buffer* PairPool::view(Buffer* original) {
  if (free_views_.empty()) return nullptr;
  View* view = free_views_.back();
  free_views_.pop_back();
  view->room = original->room;
  view->room_bytes = original->room_bytes;
  view->head = original->head;
  view->length = original->length;
  view->refs = 1;
  view->next = nullptr;
  view->checksum_good = 1;  // it never left memory
  view->mark = 0;
  view->unit_bytes = original->unit_bytes;
  view->headers_bytes = original->headers_bytes;
  view->original = original;
  return view;
}

// Only views have this pool's address in them: a plain buffer goes straight back to the heap pool.
void PairPool::give(Buffer* const* buffers, unsigned n) {
  for (unsigned i = 0; i < n; ++i) {
    auto* view = static_cast<View*>(buffers[i]);
    RNIC_ASSERT(view->pool == this && free_views_.size() < view_count_);
    BufferRef original(std::exchange(view->original, nullptr));
    free_views_.push_back(view);
  }
}

bool PairPool::shared(const Buffer& buffer) const { return buffer.pool == this || buffer.refs > 1; }

// ---- the wire ----------------------------------------------------------------------------------

PairWire::PairWire(std::string name, std::uint32_t mtu_bytes, std::uint32_t buffers)
    : name_(std::move(name)), pool_(pool_size_in_memory(buffers, mtu_bytes)) {}

PairWire::~PairWire() {
  for (Ring& ring : toward_) ring.drop_all();
}

void PairWire::Ring::drop_all() {
  while (taken != produced) BufferRef dropped(slots[taken++ % PairPort::kRing]);
}

// ---- an end ------------------------------------------------------------------------------------

PairPort::PairPort(std::shared_ptr<PairWire> wire, unsigned end, const PortOptions& options)
    : wire_(std::move(wire)),
      end_(end),
      facts_{.kind = "pair",
             .name = "pair:" + wire_->name(),
             .mac = options.mac ? *options.mac : random_mac(),
             .mtu_bytes = options.mtu_bytes != 0 ? options.mtu_bytes : kMtuMemoryDefault,
             .verifies_checksums = true,
             .fills_checksums = true,
             .run_bytes = run_bytes_in_memory(options.mtu_bytes),
             .speed_mbps = 100'000,
             .netdev = {},
             .needs_wake = false} {
  RNIC_ASSERT(end < 2 && !wire_->attached_[end]);
  wire_->attached_[end] = true;
  wire_->frame_max_[end] = facts_.mtu_bytes + wire::kLinkHeaderMax;
}

PairPort::~PairPort() {
  wire_->toward_[end_].drop_all();
  wire_->attached_[end_] = false;
}

bool PairPort::link_up() const { return wire_->attached_[1 - end_]; }

BufferPool& PairPort::pool() { return wire_->pool_; }

unsigned PairPort::receive_burst(Buffer** out, unsigned max) {
  PairWire::Ring& ring = wire_->toward_[end_];
  const unsigned n = std::min(max, ring.produced - ring.taken);
  for (unsigned i = 0; i < n; ++i) out[i] = ring.slots[ring.taken++ % kRing];
  return n;
}

unsigned PairPort::send_burst(Buffer* const* frames, unsigned count) {
  if (!link_up()) {
    for (unsigned i = 0; i < count; ++i) BufferRef dropped(frames[i]);
    lost_ += count;
    return count;
  }
  PairWire::Ring& ring = wire_->toward_[1 - end_];
  const std::uint32_t longest = wire_->frame_max_[1 - end_];
  const unsigned n = std::min(count, kRing - (ring.produced - ring.taken));
  for (unsigned i = 0; i < n; ++i) {
    Buffer* frame = frames[i];
    const std::uint32_t octets = frame->unit_bytes == 0 ? frame->length : frame->headers_bytes + frame->unit_bytes;
    if (octets > longest) [[unlikely]] {
      BufferRef too_long(frame);
      ++lost_;
      continue;
    }
    if (frame->refs > 1) {
      frame = wire_->pool_.view(frame);
      if (frame == nullptr) return i;
    } else {
      frame->checksum_good = 1;
    }
    ring.slots[ring.produced++ % kRing] = frame;
  }
  return n;
}

void PairPort::tend() {
  // The pool is both ends', and asked twice in a row it would find all unused: one of them counts.
  if (end_ == 1 && wire_->attached_[0]) return;
  if (++tends_ % kTendsPerRelease == 0) wire_->pool_.release_unused();
}

bool PairPort::arm() {
  const PairWire::Ring& ring = wire_->toward_[end_];
  return ring.produced == ring.taken;
}

}  // namespace rnic::port
