// RDMA Read depths (RFC 5040 s6.1; verbs.md s11): the Reads that we asked for and wait for (ORD), and
// those that the peer asked for and we owe (IRD). Atomics stand among them: one queue, one count
// (RFC 7306 s5.2, W-EXT-06). Both are rings whose room is taken when a stream
// begins, and both are served strictly in order (W-RDMAP-10, -13, -45).
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/assert.hpp"
#include "rdmap/terminate.hpp"
#include "tpt/table.hpp"
#include "wire/atomic.hpp"
#include "wire/rdmap.hpp"

namespace rnic::rdmap {

template <typename T>
class Ring {
 public:
  void reserve(std::uint32_t count) {
    const std::uint32_t size = std::bit_ceil(count);  // of 0: 1
    if (size > size_) {
      slots_ = std::make_unique<T[]>(size);
      size_ = size;
    }
    first_ = last_ = 0;
  }
  bool empty() const { return first_ == last_; }
  std::uint32_t count() const { return last_ - first_; }
  std::uint32_t size() const { return size_; }
  bool full() const { return count() == size_; }
  T& front() { return slots_[first_ & (size_ - 1)]; }
  T& operator[](std::uint32_t index) { return slots_[index & (size_ - 1)]; }
  std::uint32_t first() const { return first_; }  // index of the front
  std::uint32_t next() const { return last_; }    // index that push() will fill
  T& push(const T& value) {
    RNIC_ASSERT(!full());
    T& slot = slots_[last_++ & (size_ - 1)];
    slot = value;
    return slot;
  }
  // The slot at next(), filled in place.
  void push_filled() {
    RNIC_ASSERT(!full());
    ++last_;
  }
  void pop() {
    RNIC_ASSERT(!empty());
    ++first_;
  }
  void clear() { first_ = last_ = 0; }

 private:
  std::unique_ptr<T[]> slots_;
  std::uint32_t size_ = 0;
  std::uint32_t first_ = 0, last_ = 0;
};

// A Read, or an atomic operation, that we asked for.
struct OutboundRead {
  tpt::ReadSink sink;         // of an atomic: `consumers`
  std::uint64_t next_to = 0;  // where the Response goes on
  std::uint32_t left = 0;
  std::uint32_t msn = 0;      // of its Request
  std::uint32_t work = 0;     // its work request, for whoever keeps these
  bool of_consumer = true;    // else an RTR, which no one waits for (W-MPA-87)
  bool invalidate = false;    // the consumer's STag, when all is there (V-RD-06)
  bool atomic = false;        // its MSN is the Request Identifier too
};

// A Read, or an atomic operation, that the peer asked for.
struct InboundRead {
  wire::ReadRequestHeader request;
  std::optional<wire::AtomicRequestHeader> atomic;  // then `request` says nothing
  Culprit culprit;  // its header, should its source be refused (V-STOP-10)
};

}  // namespace rnic::rdmap
