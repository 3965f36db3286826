// Packet buffers each of its own allocation, so that a sanitizer sees who writes past one; poisoned
// while they are free, so that it sees who uses one that was given back.
#pragma once

#include <memory>
#include <vector>

#include "base/buffer.hpp"
#include "base/sanitizer.hpp"

namespace rnic::fuzz {

class GuardedPool final : public BufferPool {
 public:
  GuardedPool(std::uint32_t count, std::uint32_t room_bytes) : room_bytes_(room_bytes), count_(count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      auto& storage = storage_.emplace_back(new std::byte[kHeadroom + room_bytes]);
      auto& buffer = buffers_.emplace_back(std::make_unique<Buffer>());
      buffer->room = storage.get();
      buffer->room_bytes = kHeadroom + room_bytes;
      buffer->pool = this;
      free_.push_back(buffer.get());
      hide(*buffer, 0, buffer->room_bytes);
    }
  }
  ~GuardedPool() override {
    for (const auto& buffer : buffers_) show(*buffer);
  }
  GuardedPool(const GuardedPool&) = delete;
  GuardedPool& operator=(const GuardedPool&) = delete;

  unsigned take(Buffer** out, unsigned n) override {
    unsigned taken = 0;
    for (; taken < n && !free_.empty(); ++taken) {
      Buffer* buffer = free_.back();
      free_.pop_back();
      show(*buffer);
      buffer->head = kHeadroom;
      buffer->length = 0;
      buffer->refs = 1;
      buffer->next = nullptr;
      buffer->checksum_good = 0;
      buffer->mark = 0;
      out[taken] = buffer;
    }
    return taken;
  }
  void give(Buffer* const* buffers, unsigned n) override {
    RNIC_ASSERT(free_.size() + n <= count_);
    for (unsigned i = 0; i < n; ++i) {
      hide(*buffers[i], 0, buffers[i]->room_bytes);
      free_.push_back(buffers[i]);
    }
  }
  std::uint32_t room_bytes() const override { return room_bytes_; }
  std::uint32_t available() const override { return static_cast<std::uint32_t>(free_.size()); }
  std::uint32_t count() const { return count_; }

  // What is behind a received frame's octets is nobody's to look at.
  static void hide_tail(Buffer& buffer) {
    hide(buffer, buffer.head + buffer.length, buffer.room_bytes - buffer.head - buffer.length);
  }

 private:
  static void hide(const Buffer& buffer, std::size_t at, std::size_t size) { sanitizer::hide(buffer.room + at, size); }
  static void show(const Buffer& buffer) { sanitizer::show(buffer.room, buffer.room_bytes); }

  std::uint32_t room_bytes_, count_;
  std::vector<std::unique_ptr<std::byte[]>> storage_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<Buffer*> free_;
};

}  // namespace rnic::fuzz
