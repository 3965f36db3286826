// The reading end of a capture's ring (abi/rnic_capture.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "rnic_capture.h"

namespace rnic::tool {

class RingReader {
 public:
  // Maps the memfd and closes it. Null: `why` says why.
  static std::unique_ptr<RingReader> map(int fd, std::string& why);
  ~RingReader();

  // Notes what has been written until now; front() goes no further.
  void look();

  struct Frame {
    std::uint64_t time_ns = 0;
    bool sent = false;
    std::vector<std::byte> octets;
  };
  // The oldest frame not popped, or null. Its place in the ring is free already.
  const Frame* front();
  void pop() { has_front_ = false; }

  // Until now, by the worker's count.
  std::uint64_t frames() const;
  std::uint64_t dropped() const;
  // What is in the ring makes no sense; nothing more comes out of it.
  bool broken() const { return broken_; }

 private:
  RingReader() = default;
  void copy(std::uint64_t at, void* out, std::size_t size) const;

  rnic_capture_ring* shared_ = nullptr;
  const std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
  std::size_t mapped_ = 0;
  std::uint64_t until_ = 0;
  std::uint64_t consumed_ = 0;
  bool has_front_ = false;
  bool broken_ = false;
  Frame front_;
};

}  // namespace rnic::tool
