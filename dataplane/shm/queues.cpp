#include "shm/queues.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace rnic::shm {
namespace {

// Copies the SGEs behind a header; false if they are more than the queue was made for.
bool copy_sges(const std::byte* at, std::uint32_t count, std::uint32_t count_max, qp::Sge* out) {
  if (count > count_max || count > qp::kSgesMax) return false;
  for (std::uint32_t i = 0; i < count; ++i) {
    rnic_sge sge;
    std::memcpy(&sge, at + i * sizeof sge, sizeof sge);
    out[i] = {sge.address, sge.length, Stag{sge.lkey}};
  }
  return true;
}

bool is_masked(std::uint8_t opcode) {
  return opcode == RNIC_OP_MASKED_FETCH_ADD || opcode == RNIC_OP_MASKED_COMPARE_SWAP;
}

bool known_opcode(std::uint8_t opcode) {
  switch (opcode) {
    case RNIC_OP_SEND:
    case RNIC_OP_SEND_INVALIDATE:
    case RNIC_OP_WRITE:
    case RNIC_OP_READ:
    case RNIC_OP_READ_INVALIDATE:
    case RNIC_OP_BIND:
    case RNIC_OP_LOCAL_INVALIDATE:
    case RNIC_OP_FETCH_ADD:
    case RNIC_OP_COMPARE_SWAP:
    case RNIC_OP_WRITE_IMMEDIATE:
    case RNIC_OP_FAST_REGISTER:  // who may is the queue pair's to say
    case RNIC_OP_SEND_IMMEDIATE:
    case RNIC_OP_MASKED_FETCH_ADD:
    case RNIC_OP_MASKED_COMPARE_SWAP:
      return true;
    default:
      return false;
  }
}

// Of an opcode that is known: what it is to the queue pair.
qp::Opcode opcode_of(std::uint8_t opcode) {
  if (opcode == RNIC_OP_MASKED_FETCH_ADD) return qp::Opcode::fetch_add;
  if (opcode == RNIC_OP_MASKED_COMPARE_SWAP) return qp::Opcode::compare_swap;
  return static_cast<qp::Opcode>(opcode);
}

// What an atomic operation with masks has behind its SGE.
void copy_masks(const std::byte* at, std::size_t room, qp::WorkRequest& out) {
  rnic_atomic_masks masks;
  if (room < sizeof masks) {
    out.malformed = true;
    return;
  }
  std::memcpy(&masks, at, sizeof masks);
  out.swap = masks.swap;
  out.add_mask = out.swap_mask = masks.data;
  out.compare_mask = masks.compare;
}

// What a Fast-Register has behind its header.
void copy_page_list(const std::byte* at, std::size_t room, qp::WorkRequest& out) {
  rnic_fast_register body;
  if (room < sizeof body) {
    out.malformed = true;
    return;
  }
  std::memcpy(&body, at, sizeof body);
  out.list = {};
  out.list.rights = static_cast<tpt::Rights>(body.access);
  out.list.page_bytes = body.page_bytes;
  out.list.first_offset = body.first_offset;
  out.list.addresses = body.addresses;
  out.list.count = body.page_count;
  out.list.view = body.view;
}

// Returns its id, which is the application's affair.
std::uint32_t copy_receive(const std::byte* slot, std::uint32_t sge_max, qp::ReceiveRequest& out) {
  rnic_rqe header;
  std::memcpy(&header, slot, sizeof header);
  out.malformed = !copy_sges(slot + sizeof header, header.sge_count, sge_max, out.sges.data());
  out.sge_count = out.malformed ? std::uint8_t{0} : static_cast<std::uint8_t>(header.sge_count);
  return header.id;
}

void check_area(MutableBytes area, std::uint64_t needed, std::uint32_t size, std::uint32_t stride) {
  RNIC_ASSERT(std::has_single_bit(size) && stride % RNIC_CACHE_LINE == 0 && area.size() >= needed);
}

}  // namespace

// ---- PostRing ----------------------------------------------------------------------------------

void PostRing::set_worker(std::uint32_t worker) {
  std::atomic_ref(control_->worker).store(worker, std::memory_order_release);
}

bool PostRing::watch() {
  if (watched_) return false;
  watched_ = !several_;
  std::atomic_ref(control_->watched).store(1, std::memory_order_relaxed);
  return true;
}

void PostRing::unwatch() {
  if (!watched_ && !several_) return;
  watched_ = false;
  std::atomic_ref(control_->watched).store(0, std::memory_order_relaxed);
}

void PostRing::move_to(std::byte* area) {
  control_ = reinterpret_cast<rnic_ring_control*>(area);
  watched_ = false;
}

std::uint32_t PostRing::ask_for_doorbell() {
  if (watched_ || several_) {
    unwatch();
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  return produced();
}

// ---- SendQueue ---------------------------------------------------------------------------------

SendQueue::SendQueue(MutableBytes area, std::uint32_t size, std::uint32_t stride, std::uint32_t sge_max)
    : PostRing(area.data()),
      slots_(area.data() + sizeof(rnic_ring_control)),
      size_(size),
      stride_(stride),
      sge_max_(sge_max) {
  check_area(area, area_bytes(size, stride), size, stride);
}

std::uint64_t SendQueue::area_bytes(std::uint32_t size, std::uint32_t stride) {
  return sizeof(rnic_ring_control) + std::uint64_t{size} * stride;
}

bool SendQueue::has_work() const { return produced() != taken_; }

// Null: there is none.
inline const std::byte* SendQueue::next_slot() {
  const std::uint32_t produced = this->produced();
  if (produced == taken_) return nullptr;
  if (produced - taken_ > size_) {  // no provider of ours does this
    broken_ = true;
    return nullptr;
  }
  if (produced - taken_ > 1) __builtin_prefetch(slots_ + std::size_t{(taken_ + 1) & (size_ - 1)} * stride_);
  return slots_ + std::size_t{taken_ & (size_ - 1)} * stride_;
}

inline void SendQueue::step() {
  ++taken_;
  std::atomic_ref(control_->taken).store(taken_, std::memory_order_relaxed);
}

bool SendQueue::take(qp::WorkRequest& out) {
  const std::byte* slot = next_slot();
  if (slot == nullptr) return false;
  rnic_sqe header;
  std::memcpy(&header, slot, sizeof header);

  out.slot = taken_;
  out.signaled = (header.flags & RNIC_SQE_SIGNALED) != 0;
  out.fence = (header.flags & RNIC_SQE_FENCE) != 0;
  out.solicited = (header.flags & RNIC_SQE_SOLICITED) != 0;
  const bool staged = (header.flags & RNIC_SQE_STAGED) != 0;
  out.has_data = (header.flags & (RNIC_SQE_INLINE | RNIC_SQE_COPIED | RNIC_SQE_STAGED)) != 0;
  out.malformed =
      !known_opcode(header.opcode) || !copy_sges(slot + sizeof header, header.sge_count, sge_max_, out.sges.data());
  out.opcode = known_opcode(header.opcode) ? opcode_of(header.opcode) : qp::Opcode::send;
  out.sge_count = out.malformed ? std::uint8_t{0} : header.sge_count;
  out.remote_to = header.remote_address;
  out.remote_stag = {header.rkey};
  out.invalidate = {header.invalidate};
  out.immediate = header.invalidate;
  out.argument = header.argument;

  const std::uint32_t after_sges =
      static_cast<std::uint32_t>(sizeof header) + out.sge_count * std::uint32_t{sizeof(rnic_sge)};
  out.data = {};
  if (out.has_data) {
    const Bytes room = staged ? transmit_memory_ : Bytes{slot + after_sges, stride_ - after_sges};
    const std::uint64_t from = staged ? header.argument : 0;
    if (from > room.size() || header.length > room.size() - from)
      out.malformed = true;
    else
      out.data = room.subspan(from, header.length);
  }
  if (out.opcode == qp::Opcode::compare_swap || out.opcode == qp::Opcode::bind) {
    std::uint64_t extra = 0;
    if (after_sges + sizeof extra > stride_)
      out.malformed = true;
    else
      std::memcpy(&extra, slot + after_sges, sizeof extra);
    out.swap = extra;
    out.rights = static_cast<tpt::Rights>(static_cast<std::uint32_t>(extra));
  }
  if (out.opcode == qp::Opcode::fetch_add || out.opcode == qp::Opcode::compare_swap) {
    out.add_mask = 0;
    out.swap_mask = out.compare_mask = UINT64_MAX;
    if (is_masked(header.opcode)) copy_masks(slot + after_sges, stride_ - after_sges, out);
  }
  if (out.opcode == qp::Opcode::fast_register) [[unlikely]]
    copy_page_list(slot + after_sges, stride_ - after_sges, out);
  step();
  return true;
}

bool SendQueue::take(ud::WorkRequest& out) {
  const std::byte* slot = next_slot();
  if (slot == nullptr) return false;
  struct {
    rnic_sqe entry;
    rnic_ud_address address;
  } header;
  static_assert(sizeof header == RNIC_CACHE_LINE);
  std::memcpy(&header, slot, sizeof header);

  out.slot = taken_;
  out.opcode = qp::Opcode::send;
  out.signaled = (header.entry.flags & RNIC_SQE_SIGNALED) != 0;
  out.solicited = (header.entry.flags & RNIC_SQE_SOLICITED) != 0;
  out.has_data = (header.entry.flags & (RNIC_SQE_INLINE | RNIC_SQE_COPIED)) != 0;
  out.has_immediate = (header.entry.flags & RNIC_SQE_IMMEDIATE) != 0;
  out.immediate = header.entry.invalidate;
  out.malformed = header.entry.opcode != RNIC_OP_SEND ||
                  !copy_sges(slot + sizeof header, header.entry.sge_count, sge_max_, out.sges.data());
  out.sge_count = out.malformed ? std::uint8_t{0} : header.entry.sge_count;
  std::array<std::uint8_t, 16> to;
  std::memcpy(to.data(), header.address.gid, to.size());
  out.address = {.to = wire::IpAddress::from_octets(to),
                 .number = {header.address.qp_number & 0xFFFFFF},
                 .q_key = header.address.q_key,
                 .flow_label = header.address.flow_label & 0xFFFFF,
                 .gid_index = header.address.gid_index,
                 .traffic_class = header.address.traffic_class,
                 .hop_limit = header.address.hop_limit};
  out.data = {};
  if (out.has_data) {
    const std::size_t before = sizeof header + out.sge_count * sizeof(rnic_sge);
    if (header.entry.length > stride_ - before)
      out.malformed = true;
    else
      out.data = {slot + before, header.entry.length};
  }
  step();
  return true;
}

// ---- ReceiveQueue ------------------------------------------------------------------------------

ReceiveQueue::ReceiveQueue(MutableBytes area, std::uint32_t size, std::uint32_t stride, std::uint32_t sge_max)
    : PostRing(area.data()),
      slots_(area.data() + sizeof(rnic_ring_control)),
      size_(size),
      stride_(stride),
      sge_max_(sge_max) {
  check_area(area, SendQueue::area_bytes(size, stride), size, stride);
}

bool ReceiveQueue::take(qp::ReceiveRequest& out) {
  std::uint32_t produced = this->produced();
  if (produced == taken_) produced = ask_for_doorbell();
  if (produced == taken_ || produced - taken_ > size_) return false;
  out.slot = taken_;
  out.shared = false;
  copy_receive(slots_ + std::size_t{taken_ & (size_ - 1)} * stride_, sge_max_, out);
  ++taken_;
  std::atomic_ref(control_->taken).store(taken_, std::memory_order_relaxed);
  return true;
}

void ReceiveQueue::give_back() {
  --taken_;
  std::atomic_ref(control_->taken).store(taken_, std::memory_order_relaxed);
}

// ---- SharedReceiveQueue ------------------------------------------------------------------------

SharedReceiveQueue::SharedReceiveQueue(MutableBytes area, std::uint32_t size, std::uint32_t stride,
                                       std::uint32_t sge_max, bool several)
    : PostRing(area.data(), several),
      slots_(area.data() + sizeof(rnic_ring_control)),
      size_(size),
      stride_(stride),
      sge_max_(sge_max) {
  check_area(area, area_bytes(size, stride), size, stride);
}

std::uint64_t SharedReceiveQueue::area_bytes(std::uint32_t size, std::uint32_t stride) {
  return SendQueue::area_bytes(size, stride);
}

bool SharedReceiveQueue::take(qp::ReceiveRequest& out) {
  std::uint32_t at = taken_.load(std::memory_order_acquire);
  std::uint32_t produced = 0;
  for (;;) {
    produced = this->produced();
    if (produced == at) produced = ask_for_doorbell();
    if (produced == at || produced - at > size_) {
      const std::uint32_t now_taken = taken_.load(std::memory_order_acquire);
      if (now_taken == at) return false;
      at = now_taken;  // others have gone on while we looked
      continue;
    }
    out.slot = copy_receive(slots_ + std::size_t{at & (size_ - 1)} * stride_, sge_max_, out);
    if (!several_) {
      taken_.store(at + 1, std::memory_order_relaxed);
      break;
    }
    // Ours, with a copy of what nobody wrote over: it is free to be posted anew only once it is taken.
    if (taken_.compare_exchange_strong(at, at + 1, std::memory_order_acq_rel, std::memory_order_acquire)) break;
  }
  out.shared = true;
  const std::uint32_t taken = at + 1;
  std::atomic_ref(control_->taken).store(taken, std::memory_order_relaxed);
  std::uint32_t limit = limit_.load(std::memory_order_relaxed);
  if (limit != 0 && produced - taken < limit && limit_.compare_exchange_strong(limit, 0, std::memory_order_relaxed))
    limit_event_.store(true, std::memory_order_release);
  return true;
}

void SharedReceiveQueue::give_back() {
  RNIC_ASSERT(!several_);
  taken_.store(taken_ - 1, std::memory_order_relaxed);
  std::atomic_ref(control_->taken).store(taken_, std::memory_order_relaxed);
}

void SharedReceiveQueue::arm_limit(std::uint32_t limit) {
  limit_.store(limit, std::memory_order_relaxed);
  if (limit == 0) limit_event_.store(false, std::memory_order_relaxed);
}

bool SharedReceiveQueue::take_limit_event() {
  if (!limit_event_.load(std::memory_order_acquire)) return false;
  return limit_event_.exchange(false, std::memory_order_acq_rel);
}

std::uint32_t SharedReceiveQueue::available() const {
  const std::uint32_t waiting = produced() - taken_;
  return waiting > size_ ? 0 : waiting;
}

std::optional<SharedReceiveQueue::Resize> SharedReceiveQueue::begin_resize(MutableBytes area,
                                                                           std::uint32_t size) const {
  check_area(area, area_bytes(size, stride_), size, stride_);
  const std::uint32_t end = produced(), taken = taken_;
  if (end - taken > std::min(size, size_)) return std::nullopt;
  // The one that was taken last may be given back meanwhile.
  return Resize{.area = area, .size = size, .first = taken - 1, .end = end};
}

void SharedReceiveQueue::copy(const Resize& resize) const {
  std::byte* slots = resize.area.data() + sizeof(rnic_ring_control);
  for (std::uint32_t index = resize.first; index != resize.end; ++index)
    std::memcpy(slots + std::size_t{index & (resize.size - 1)} * stride_,
                slots_ + std::size_t{index & (size_ - 1)} * stride_, stride_);
}

bool SharedReceiveQueue::finish_resize(const Resize& resize) {
  const std::uint32_t taken = taken_;
  if (resize.end - taken > std::min(resize.size, size_)) return false;
  auto* control = reinterpret_cast<rnic_ring_control*>(resize.area.data());
  control->produced = resize.end;
  control->taken = taken;
  control->worker = std::atomic_ref(control_->worker).load(std::memory_order_relaxed);
  move_to(resize.area.data());
  slots_ = resize.area.data() + sizeof(rnic_ring_control);
  size_ = resize.size;
  return true;
}

// ---- CompletionQueue ---------------------------------------------------------------------------

CompletionQueue::CompletionQueue(MutableBytes area, std::uint32_t size, std::uint64_t cookie, bool timed,
                                 std::uint32_t workers, Producers producers)
    : control_(reinterpret_cast<rnic_cq_control*>(area.data())),
      entries_(reinterpret_cast<rnic_cqe*>(area.data() + sizeof(rnic_cq_control))),
      size_(size),
      timed_(timed),
      workers_(workers),
      cookie_(cookie),
      pushed_by_(new Pushed[workers]),
      held_(producers == Producers::several ? new Held[workers] : nullptr) {
  RNIC_ASSERT(std::has_single_bit(size) && area.size() >= area_bytes(size));
  for (std::uint32_t i = 0; i < workers; ++i) pushed_by_[i].queue = this;
}

// Places up to `wanted` behind `tail`, or behind the last one if others have pushed since it was read. The line that
// the application writes to with each poll is read only when there seem to be too few.
inline std::uint32_t CompletionQueue::room(std::uint64_t& tail, std::uint32_t& consumed, std::uint32_t wanted) const {
  const auto free = [&] {
    const std::uint32_t used = static_cast<std::uint32_t>(tail) - consumed;
    return used < size_ ? size_ - used : 0;
  };
  while (free() < wanted) {
    // The acquire pairs with the provider's release of `consumed`: the slot has been read.
    consumed = std::atomic_ref(control_->consumed).load(std::memory_order_acquire);
    // What was polled may lie behind a tail that is old by now; a newer one is then to be seen.
    const std::uint64_t latest = tail_.load(std::memory_order_acquire);
    if (latest == tail) return std::min(free(), wanted);
    tail = latest;
  }
  return wanted;
}

// What there is no room for is lost, as is all that comes after it.
inline bool CompletionQueue::write(const rnic_cqe* entries, std::uint32_t count, Pushed& own) {
  std::uint64_t tail = tail_.load(std::memory_order_acquire);
  std::uint32_t taken = 0;
  do taken = room(tail, own.consumed, count);
  while (taken != 0 && !tail_.compare_exchange_weak(tail, tail + taken, std::memory_order_acquire));

  for (std::uint32_t i = 0; i < taken; ++i, ++tail) {
    rnic_cqe& at = entries_[tail & (size_ - 1)];
    std::memcpy(&at, entries + i, offsetof(rnic_cqe, phase));
    std::atomic_ref(at.phase).store(phase_of(tail), std::memory_order_release);
  }
  if (held_ != nullptr && !own.solicited) {
    // What another has pushed behind these can be polled only now. It may be solicited, and its worker have looked
    // whether to tell before the arming that saw neither. The fence pairs with the application's, as those behind a
    // turn do.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const std::uint32_t next = std::atomic_ref(entries_[tail & (size_ - 1)].phase).load(std::memory_order_relaxed);
    own.solicited = next == phase_of(tail);
  }
  if (taken == count) [[likely]]
    return true;
  overflowed_.store(true, std::memory_order_relaxed);
  std::atomic_ref(control_->overflowed).store(1u, std::memory_order_release);
  return false;
}

bool CompletionQueue::push(const rnic_cqe& entry, std::uint32_t worker) {
  if (overflowed_.load(std::memory_order_relaxed)) return false;
  Pushed& own = pushed_by_[worker];
  own.any = true;
  own.solicited |= (entry.flags & RNIC_CQE_SOLICITED) != 0 || entry.status != RNIC_WC_SUCCESS;
  if (held_ == nullptr) return write(&entry, 1, own);
  held_[worker].entries[own.held++] = entry;
  return own.held < kHeldMax || publish(worker);
}

bool CompletionQueue::publish(std::uint32_t worker) {
  Pushed& own = pushed_by_[worker];
  const std::uint32_t count = std::exchange(own.held, 0);
  if (count == 0) return true;
  return !overflowed() && write(held_[worker].entries, count, own);
}

bool CompletionQueue::has_room(std::uint32_t worker) const {
  const std::uint32_t wanted = pushed_by_[worker].held + 1;
  std::uint64_t tail = tail_.load(std::memory_order_acquire);
  std::uint32_t consumed = pushed_by_[worker].consumed;
  return !overflowed() && room(tail, consumed, wanted) == wanted;
}

// Each worker answers for its own, which are in front of its fence.
bool CompletionQueue::take_notification(std::uint32_t worker) {
  Pushed& own = pushed_by_[worker];
  const bool any = std::exchange(own.any, false);
  const bool solicited = std::exchange(own.solicited, false);
  if (!any) return false;
  // The arm word is looked at after what has fired, and so is never an older one, which would fire again.
  std::uint32_t fired = fired_.load(std::memory_order_acquire), sequence = 0;
  do {
    const std::uint32_t arm = std::atomic_ref(control_->arm).load(std::memory_order_relaxed);
    sequence = arm >> 2;
    if (sequence == fired) return false;
    const std::uint32_t kind = arm & 3u;
    if (kind != RNIC_ARM_NEXT && !(kind == RNIC_ARM_SOLICITED && solicited)) return false;
  } while (!fired_.compare_exchange_strong(fired, sequence, std::memory_order_acq_rel, std::memory_order_acquire));
  std::atomic_ref(control_->fired).store(sequence, std::memory_order_relaxed);
  return true;
}

std::uint32_t CompletionQueue::unpolled() const {
  // In this order: what is polled meanwhile is not more than what was pushed.
  const std::uint32_t consumed = std::atomic_ref(control_->consumed).load(std::memory_order_acquire);
  const std::uint32_t waiting = static_cast<std::uint32_t>(tail_.load(std::memory_order_relaxed)) - consumed;
  return waiting > size_ ? size_ : waiting;
}

std::optional<CompletionQueue::Resize> CompletionQueue::begin_resize(MutableBytes area, std::uint32_t size) const {
  RNIC_ASSERT(std::has_single_bit(size) && area.size() >= area_bytes(size));
  const std::uint32_t waiting = unpolled();
  if (waiting > size) return {};
  const auto end = static_cast<std::uint32_t>(tail_.load(std::memory_order_relaxed));
  return Resize{area, size, end - waiting, end};
}

void CompletionQueue::copy(const Resize& resize) const { copy(resize, resize.first, resize.end); }

void CompletionQueue::copy(const Resize& resize, std::uint32_t begin, std::uint32_t end) const {
  auto* entries = reinterpret_cast<rnic_cqe*>(resize.area.data() + sizeof(rnic_cq_control));
  for (std::uint32_t index = begin; index != end; ++index) {
    entries[index - resize.first] = entries_[index & (size_ - 1)];
    entries[index - resize.first].phase = 1;
  }
}

bool CompletionQueue::finish_resize(const Resize& resize) {
  const auto tail = static_cast<std::uint32_t>(tail_.load(std::memory_order_relaxed));
  const std::uint32_t waiting = tail - resize.first;
  if (waiting > resize.size) return false;
  copy(resize, resize.end, tail);
  auto* control = reinterpret_cast<rnic_cq_control*>(resize.area.data());
  // An arming that has not fired is carried over.
  control->arm = std::atomic_ref(control_->arm).load(std::memory_order_relaxed);
  control->fired = fired_;
  control_ = control;
  entries_ = reinterpret_cast<rnic_cqe*>(resize.area.data() + sizeof(rnic_cq_control));
  size_ = resize.size;
  // A full new ring would make the next index the second time round; phases follow from the tail.
  tail_.store(waiting, std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < workers_; ++i) pushed_by_[i].consumed = 0;
  return true;
}

}  // namespace rnic::shm
