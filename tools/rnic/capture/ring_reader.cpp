#include "capture/ring_reader.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>

namespace rnic::tool {

std::unique_ptr<RingReader> RingReader::map(int fd, std::string& why) {
  struct stat status {};
  void* memory = MAP_FAILED;
  if (fstat(fd, &status) == 0 && status.st_size > static_cast<off_t>(RNIC_CAPTURE_DATA))
    memory = mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int reason = errno;
  close(fd);
  if (memory == MAP_FAILED) {
    why = std::string("cannot map the daemon's ring: ") + std::strerror(reason);
    return nullptr;
  }
  std::unique_ptr<RingReader> reader(new RingReader);
  reader->mapped_ = static_cast<std::size_t>(status.st_size);
  reader->shared_ = static_cast<rnic_capture_ring*>(memory);
  reader->data_ = static_cast<const std::byte*>(memory) + RNIC_CAPTURE_DATA;
  reader->size_ = reader->shared_->size;
  if (reader->shared_->version != RNIC_CAPTURE_VERSION || !std::has_single_bit(reader->size_) ||
      reader->size_ + RNIC_CAPTURE_DATA > reader->mapped_) {
    why = "the daemon is of another version of rnic; restart it with this one";
    return nullptr;
  }
  return reader;
}

RingReader::~RingReader() { munmap(shared_, mapped_); }

void RingReader::look() {
  // Pairs with the worker's release: what is before it has been written.
  until_ = std::atomic_ref(shared_->produced).load(std::memory_order_acquire);
  if (until_ - consumed_ > size_) broken_ = true;
}

std::uint64_t RingReader::frames() const { return std::atomic_ref(shared_->frames).load(std::memory_order_relaxed); }
std::uint64_t RingReader::dropped() const { return std::atomic_ref(shared_->dropped).load(std::memory_order_relaxed); }

void RingReader::copy(std::uint64_t at, void* out, std::size_t size) const {
  const std::size_t offset = at & (size_ - 1);
  const std::size_t first = std::min<std::size_t>(size, size_ - offset);
  std::memcpy(out, data_ + offset, first);
  std::memcpy(static_cast<std::byte*>(out) + first, data_, size - first);
}

const RingReader::Frame* RingReader::front() {
  if (has_front_) return &front_;
  if (broken_ || consumed_ == until_) return nullptr;
  rnic_capture_record record;
  const std::uint64_t there = until_ - consumed_;
  if (there < sizeof record) {
    broken_ = true;
    return nullptr;
  }
  copy(consumed_, &record, sizeof record);
  const std::uint64_t taken = (sizeof record + std::uint64_t{record.length} + 7) / 8 * 8;
  if (taken > there) {
    broken_ = true;
    return nullptr;
  }
  front_.time_ns = record.time_ns;
  front_.sent = record.direction == RNIC_CAPTURE_SENT;
  front_.octets.resize(record.length);
  copy(consumed_ + sizeof record, front_.octets.data(), record.length);
  consumed_ += taken;
  // Pairs with the worker's acquire: it may write there again.
  std::atomic_ref(shared_->consumed).store(consumed_, std::memory_order_release);
  has_front_ = true;
  return &front_;
}

}  // namespace rnic::tool
