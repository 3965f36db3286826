#include "port/capture.hpp"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

namespace rnic::port {
namespace {

std::uint64_t real_time_ns() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(time.tv_nsec);
}

void publish(std::uint64_t& shared, std::uint64_t value, std::memory_order order) {
  std::atomic_ref(shared).store(value, order);
}

}  // namespace

CaptureRing::CaptureRing(void* memory, std::uint32_t size)
    : shared_(*static_cast<rnic_capture_ring*>(memory)),
      data_(static_cast<std::byte*>(memory) + RNIC_CAPTURE_DATA),
      size_(size) {
  RNIC_ASSERT(std::has_single_bit(size));
  shared_.version = RNIC_CAPTURE_VERSION;
  shared_.size = size;
}

void CaptureRing::on_frame(FrameDirection direction, Bytes frame) {
  publish(shared_.frames, ++frames_, std::memory_order_relaxed);
  const std::uint64_t needed = (sizeof(rnic_capture_record) + frame.size() + 7) / 8 * 8;
  // Pairs with the reader's release: what it says it has read, it has.
  const std::uint64_t used = produced_ - std::atomic_ref(shared_.consumed).load(std::memory_order_acquire);
  if (used > size_ || needed > size_ - used) {
    publish(shared_.dropped, ++dropped_, std::memory_order_relaxed);
    return;
  }
  const std::uint64_t end = produced_ + needed;
  const rnic_capture_record record{
      real_time_ns(), static_cast<std::uint32_t>(frame.size()),
      static_cast<std::uint32_t>(direction == FrameDirection::sent ? RNIC_CAPTURE_SENT : RNIC_CAPTURE_RECEIVED)};
  put(as_bytes(&record, sizeof record));
  put(frame);
  produced_ = end;
  publish(shared_.produced, produced_, std::memory_order_release);
}

// There is room. The place comes from our own count, so whatever the other side writes, this stays
// inside.
void CaptureRing::put(Bytes octets) {
  const std::size_t at = produced_ & (size_ - 1);
  const std::size_t first = std::min<std::size_t>(octets.size(), size_ - at);
  std::memcpy(data_ + at, octets.data(), first);
  if (first < octets.size()) std::memcpy(data_, octets.data() + first, octets.size() - first);
  produced_ += octets.size();
}

}  // namespace rnic::port
