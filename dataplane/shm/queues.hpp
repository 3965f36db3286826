// Rings in shared memory to values, with distrust: an entry is copied once, the copy is checked,
// and the copy is used. Sizes, strides and positions are private; what the application scribbles
// is its own affair (V-SEC-08, V-SEC-09).
//
// Atomics and their partners: `produced` is loaded with acquire (pairs with the provider's release
// when it posts); a CQE's `phase` is stored with release (pairs with the provider's acquire when it
// polls). `watched` is abi/rnic_shm.h's pairing of fences.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "base/list.hpp"
#include "qp/work.hpp"
#include "rnic_shm.h"
#include "ud/work.hpp"

namespace rnic::shm {

// What all rings of work requests have: where the application says how far it has posted, and is told whether it has
// to ring for that. Owned by one worker.
class PostRing {
 public:
  void set_worker(std::uint32_t worker);
  // The application's word for it: any number.
  std::uint32_t produced() const { return std::atomic_ref(control_->produced).load(std::memory_order_acquire); }
  // Posts come without a doorbell from now on. False: they do already.
  bool watch();
  // With one again. Those that came before it was seen are there behind a seq_cst fence.
  void unwatch();

 protected:
  explicit PostRing(std::byte* area) : control_(reinterpret_cast<rnic_ring_control*>(area)) {}
  // To another area, where it is not watched.
  void move_to(std::byte* area);
  // Nothing is there, and somebody waits for it: posts are told of again. How far they have come after that.
  std::uint32_t ask_for_doorbell();

  rnic_ring_control* control_;

 private:
  bool watched_ = false;
};

// The send queue's end at its worker. Owned by the QP's worker.
class SendQueue : public PostRing {
 public:
  SendQueue(MutableBytes area, std::uint32_t size, std::uint32_t stride, std::uint32_t sge_max);
  // False: nothing posted, or the application broke the ring (broken()).
  bool take(qp::WorkRequest& out);
  // Of a queue pair of type UD, whose entries have the address behind their headers.
  bool take(ud::WorkRequest& out);
  bool has_work() const;
  bool broken() const { return broken_; }
  std::uint32_t taken() const { return taken_; }
  // Where the data of STAGED entries lies, as long as this lives.
  void set_transmit_memory(Bytes memory) { transmit_memory_ = memory; }
  static std::uint64_t area_bytes(std::uint32_t size, std::uint32_t stride);

 private:
  const std::byte* next_slot();
  void step();

  std::byte* slots_;
  std::uint32_t size_;
  std::uint32_t stride_;
  std::uint32_t sge_max_;
  std::uint32_t taken_ = 0;
  bool broken_ = false;
  Bytes transmit_memory_;
};

class ReceiveQueue : public PostRing {
 public:
  ReceiveQueue(MutableBytes area, std::uint32_t size, std::uint32_t stride, std::uint32_t sge_max);
  // False: nothing posted; then the next post is told of by a doorbell.
  bool take(qp::ReceiveRequest& out);
  // The one taken last is the next again.
  void give_back();
  std::uint32_t taken() const { return taken_; }

 private:
  std::byte* slots_;
  std::uint32_t size_;
  std::uint32_t stride_;
  std::uint32_t sge_max_;
  std::uint32_t taken_ = 0;
};

// All its takers are queue pairs of one device, and so of one worker, which takes for one after the other
// (V-SRQ-12, -13). What else there is to do is done there, too: a lock would have it wait for control.
class SharedReceiveQueue : public PostRing {
 public:
  SharedReceiveQueue(MutableBytes area, std::uint32_t size, std::uint32_t stride, std::uint32_t sge_max);
  bool take(qp::ReceiveRequest& out);
  // As ReceiveQueue's. A limit that it reached stays told.
  void give_back();
  // Sets and arms the limit; 0 disarms (V-LIM-01..03). On the worker, once it has takers.
  void arm_limit(std::uint32_t limit);
  std::uint32_t limit() const { return limit_.load(std::memory_order_relaxed); }  // 0 once fired
  // True once after the available receives fell below the armed limit (V-LIM-02).
  bool take_limit_event();
  std::uint32_t available() const;
  // On the worker, and the application posts nothing meanwhile: what is posted and not taken goes to a new ring, at its
  // index. False if it does not fit there (V-SRZ-02).
  bool resize(MutableBytes area, std::uint32_t size);
  static std::uint64_t area_bytes(std::uint32_t size, std::uint32_t stride);
  std::uint64_t cookie = 0;  // control's name for it in events

 private:
  std::byte* slots_;
  std::uint32_t size_;
  std::uint32_t stride_;
  std::uint32_t sge_max_;
  std::uint32_t taken_ = 0;
  std::atomic<std::uint32_t> limit_{0};
  std::atomic<bool> limit_event_{false};
};

struct DirtyTag {};

// Many producers. The tail is private; `consumed` is a hint for overflow only.
class CompletionQueue : public ListLink<DirtyTag> {
 public:
  CompletionQueue(MutableBytes area, std::uint32_t size, std::uint64_t cookie, bool timed = false);
  // False: full; the queue has overflowed and takes nothing more (V-CQ-06, V-AE-37).
  bool push(const rnic_cqe& entry);
  // push() would take one more now; another producer may be quicker.
  bool has_room() const;
  // After a seq_cst fence that follows push(): does the application wait for what was pushed since
  // the last call? At most once for each arming (V-NTF-02).
  bool take_notification();
  bool overflowed() const { return overflowed_.load(std::memory_order_relaxed); }
  // Control: unpolled entries go to the front of a new ring. Producers stand still at the first step and the last, and
  // run while what waited at the first is copied: that may be millions, as the application alone says what it polled.
  struct Resize {
    MutableBytes area;
    std::uint32_t size;
    std::uint32_t first, end;  // of the unpolled, as the old ring counts
  };
  // Nothing if they do not fit (V-CQ-08).
  std::optional<Resize> begin_resize(MutableBytes area, std::uint32_t size) const;
  void copy(const Resize& resize) const;
  // False if what came meanwhile does not fit: all is as before.
  bool finish_resize(const Resize& resize);
  std::uint32_t size() const { return size_; }
  std::uint64_t cookie() const { return cookie_; }
  bool timed() const { return timed_; }  // its entries are to have their time
  std::uint32_t unpolled() const;
  static std::uint64_t area_bytes(std::uint32_t size) {
    return sizeof(rnic_cq_control) + std::uint64_t{size} * sizeof(rnic_cqe);
  }

 private:
  void copy(const Resize& resize, std::uint32_t begin, std::uint32_t end) const;

  rnic_cq_control* control_;
  rnic_cqe* entries_;
  std::uint32_t size_;
  bool timed_;
  std::uint64_t cookie_;
  std::atomic<std::uint64_t> tail_{0};  // 64 bits: phases go on counting where 32 would begin again
  std::uint32_t fired_ = 0;
  std::atomic<bool> pushed_{false};
  std::atomic<bool> pushed_solicited_{false};
  std::atomic<bool> overflowed_{false};
};

}  // namespace rnic::shm
