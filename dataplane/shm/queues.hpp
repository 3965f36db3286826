// Rings in shared memory to values, with distrust: an entry is copied once, the copy is checked,
// and the copy is used. Sizes, strides and positions are private; what the application scribbles
// is its own affair (V-SEC-08, V-SEC-09).
//
// Atomics and their partners: `produced` is loaded with acquire (pairs with the provider's release
// when it posts); a CQE's `phase` is stored with release (pairs with the provider's acquire when it
// polls). `watched` is abi/rnic_shm.h's pairing of fences.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/bytes.hpp"
#include "base/list.hpp"
#include "qp/work.hpp"
#include "rnic_shm.h"
#include "ud/work.hpp"

namespace rnic::shm {

// What all rings of work requests have: where the application says how far it has posted, and is told whether it has
// to ring for that. Owned by one worker, or by as many as take from a shared receive queue.
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
  // `several`: workers take from it. The one that doorbells go to watches; each that finds nothing asks for them again,
  // and is told after the next.
  explicit PostRing(std::byte* area, bool several = false)
      : control_(reinterpret_cast<rnic_ring_control*>(area)), several_(several) {}
  // To another area, where it is not watched.
  void move_to(std::byte* area);
  // Nothing is there, and somebody waits for it: posts are told of again. How far they have come after that.
  std::uint32_t ask_for_doorbell();

  rnic_ring_control* control_;
  const bool several_;

 private:
  bool watched_ = false;  // not where there are several
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

// Its takers are queue pairs of one device. Where that is one worker's, it takes for one after the other (V-SRQ-12,
// -13), and what else there is to do is done there, too: a lock would have it wait for control. Where it is several',
// each takes by one compare-exchange of what is taken, after a copy that is nothing if somebody was quicker.
class SharedReceiveQueue : public PostRing {
 public:
  SharedReceiveQueue(MutableBytes area, std::uint32_t size, std::uint32_t stride, std::uint32_t sge_max,
                     bool several = false);
  bool take(qp::ReceiveRequest& out);
  // As ReceiveQueue's. A limit that it reached stays told. Not where several take.
  void give_back();
  // Sets and arms the limit; 0 disarms (V-LIM-01..03). On the worker, or a worker, once it has takers.
  void arm_limit(std::uint32_t limit);
  std::uint32_t limit() const { return limit_.load(std::memory_order_relaxed); }  // 0 once fired
  // True once after the available receives fell below the armed limit (V-LIM-02).
  bool take_limit_event();
  std::uint32_t available() const;
  // Control, while the application posts nothing: what is posted and not taken goes to a new ring, at its index. No
  // worker takes during the last step; while entries are copied all may.
  struct Resize {
    MutableBytes area;
    std::uint32_t size;
    std::uint32_t first, end;  // what is copied
  };
  // Nothing if it does not fit there (V-SRZ-02).
  std::optional<Resize> begin_resize(MutableBytes area, std::uint32_t size) const;
  void copy(const Resize& resize) const;
  // False: it does not fit after all, and all is as before.
  bool finish_resize(const Resize& resize);
  static std::uint64_t area_bytes(std::uint32_t size, std::uint32_t stride);
  std::uint64_t cookie = 0;  // control's name for it in events

 private:
  std::byte* slots_;
  std::uint32_t size_;
  std::uint32_t stride_;
  std::uint32_t sge_max_;
  std::atomic<std::uint32_t> taken_{0};
  std::atomic<std::uint32_t> limit_{0};
  std::atomic<bool> limit_event_{false};
};

struct DirtyTag {};

// Many producers. The tail is private; `consumed` is a hint for overflow only.
class CompletionQueue {
 public:
  // What a worker alone has of it: its place in the worker's list of those that it has pushed to, and what it has
  // pushed and not looked at the arming for. On a line of its own, as others push meanwhile.
  struct alignas(RNIC_CACHE_LINE) Pushed : ListLink<DirtyTag> {
    CompletionQueue* queue = nullptr;

   private:
    friend CompletionQueue;
    bool any = false, solicited = false;
    std::uint32_t consumed = 0;  // at least: as it was last read
    std::uint32_t held = 0;      // entries
  };

  // `workers`: their indexes are below this; `producers`: whether one of them pushes, or several do.
  enum class Producers : std::uint8_t { one, several };
  CompletionQueue(MutableBytes area, std::uint32_t size, std::uint64_t cookie, bool timed = false,
                  std::uint32_t workers = 1, Producers producers = Producers::one);
  Pushed& pushed_by(std::uint32_t worker) { return pushed_by_[worker]; }
  // False: full; the queue has overflowed and takes nothing more (V-CQ-06, V-AE-37). Where several push the
  // entry may be held back until publish(), which a turn does not end without: some places at once cost little more
  // than one, of a line that all write to.
  bool push(const rnic_cqe& entry, std::uint32_t worker = 0);
  // As push(), of what is held back.
  bool publish(std::uint32_t worker);
  // push() would take one more now; another producer may be quicker.
  bool has_room(std::uint32_t worker = 0) const;
  // After a seq_cst fence that follows push(): does the application wait for what the worker has pushed since its last
  // call? At most once for each arming (V-NTF-02).
  bool take_notification(std::uint32_t worker = 0);
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
  static constexpr std::uint32_t kHeldMax = 8;  // of a worker's
  struct alignas(RNIC_CACHE_LINE) Held {
    rnic_cqe entries[kHeldMax];
  };

  // By which the application knows an entry of this round of the ring.
  std::uint32_t phase_of(std::uint64_t index) const {
    return static_cast<std::uint32_t>((index >> std::countr_zero(size_)) + 1);
  }
  std::uint32_t room(std::uint64_t& tail, std::uint32_t& consumed, std::uint32_t wanted) const;
  bool write(const rnic_cqe* entries, std::uint32_t count, Pushed& own);
  void copy(const Resize& resize, std::uint32_t begin, std::uint32_t end) const;

  // What seldom changes.
  rnic_cq_control* control_;
  rnic_cqe* entries_;
  std::uint32_t size_;
  bool timed_;
  std::atomic<bool> overflowed_{false};
  std::atomic<std::uint32_t> fired_{0};
  std::uint32_t workers_;
  std::uint64_t cookie_;
  std::unique_ptr<Pushed[]> pushed_by_;
  std::unique_ptr<Held[]> held_;  // where several push
  // What each push changes. 64 bits: phases go on counting where 32 would begin again.
  alignas(RNIC_CACHE_LINE) std::atomic<std::uint64_t> tail_{0};
};

}  // namespace rnic::shm
