// What waits for a receive to be posted (V-SR-06, hold mode): whole untagged ULPDUs, in order, in
// memory of their own so that the stream they came on can go on. Bounded.
//
// A record is taken by the reader at read_front(), and its octets stay until release(): placements
// out of it may be under way.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "base/assert.hpp"
#include "base/bytes.hpp"

namespace rnic::rdmap {

class HeldSends {
 public:
  // Memory is taken with the first.
  void reserve(std::uint32_t size_bytes) {
    // Somebody shares it: a copy out of it is not over.
    if (size_bytes > size_ || room_.use_count() > 1) room_.reset();
    size_ = std::max(size_, size_bytes);
    clear();
  }
  // And given back while there is none.
  void give_back() {
    if (!anything()) room_.reset();
  }
  const std::shared_ptr<std::byte[]>& memory() const { return room_; }
  void clear() { released_ = read_ = written_ = 0; }

  bool unread() const { return read_ != written_; }
  bool anything() const { return released_ != written_; }

  // False: it does not fit now. A record larger than all of it never fits: see fits_ever().
  // `number`, `written`: to be asked for again, of the oldest unread.
  bool push(std::span<const Bytes> ulpdu, std::uint32_t ulpdu_size, std::uint32_t number = 0,
            std::uint32_t written = 0) {
    const std::uint64_t record = record_bytes(ulpdu_size);
    if (record > size_) return false;
    std::uint64_t at = written_;
    // A record lies in one piece: what is left before the end is skipped if it is too little.
    const std::uint64_t to_end = size_ - at % size_;
    const std::uint64_t skip = record > to_end ? to_end : 0;
    if (written_ + skip + record - released_ > size_) return false;
    if (!room_) room_.reset(new std::byte[size_]);
    if (skip >= kHeader) store(at, kSkip);
    at += skip;
    store(at, ulpdu_size);
    store(at + 4, number);
    store(at + 8, written);
    std::byte* out = room_.get() + at % size_ + kHeader;
    for (const Bytes& span : ulpdu) {
      std::memcpy(out, span.data(), span.size());
      out += span.size();
    }
    written_ = at + record;
    return true;
  }
  bool fits_ever(std::uint32_t ulpdu_size) const { return record_bytes(ulpdu_size) <= size_; }

  // The oldest unread ULPDU; there is one.
  Bytes front() {
    skip_to_front();
    return {room_.get() + read_ % size_ + kHeader, load(read_)};
  }
  std::uint32_t front_number() {
    skip_to_front();
    return load(read_ + 4);
  }
  std::uint32_t front_written() {
    skip_to_front();
    return load(read_ + 8);
  }
  // It is read. Returns the mark to give to release().
  std::uint64_t advance() {
    read_ += record_bytes(load(read_));
    return read_;
  }
  // All that was read up to this mark is done with.
  void release(std::uint64_t mark) {
    released_ = mark;
    if (released_ == written_) clear();
  }
  // Octets held, with what their keeping costs.
  std::uint64_t bytes() const { return written_ - released_; }

 private:
  void skip_to_front() {
    RNIC_ASSERT(unread());
    const std::uint64_t to_end = size_ - read_ % size_;
    if (to_end < kHeader || load(read_) == kSkip) read_ += to_end;
  }
  static constexpr std::uint32_t kHeader = 16;
  static constexpr std::uint32_t kSkip = 0xFFFFFFFF;
  static std::uint64_t record_bytes(std::uint32_t ulpdu_size) { return kHeader + ((ulpdu_size + 7u) & ~7u); }
  std::uint32_t load(std::uint64_t at) const {
    std::uint32_t value;
    std::memcpy(&value, room_.get() + at % size_, sizeof value);
    return value;
  }
  void store(std::uint64_t at, std::uint32_t value) { std::memcpy(room_.get() + at % size_, &value, sizeof value); }

  std::shared_ptr<std::byte[]> room_;
  std::uint32_t size_ = 0;
  std::uint64_t released_ = 0, read_ = 0, written_ = 0;
};

}  // namespace rnic::rdmap
