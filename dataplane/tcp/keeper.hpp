// Keeps received octets in buffers, and counts these by class.
//
// As a rule octets stay where they came. Small pieces may be copied together into a buffer of their own: else a peer
// that sends octet by octet holds a buffer with each, and a wire pads its frames to 60, so there is no room right
// behind the octets.
#pragma once

#include <cstring>

#include "base/buffer.hpp"

namespace rnic::tcp {

class Keeper {
 public:
  static constexpr std::size_t kCopiedMax = 512;  // larger ones are worth a buffer
  // But not a large buffer, of which they fill less than a quarter: what the kernel has merged of two segments.
  static bool wastes(const Buffer& buffer, Bytes octets) {
    return is_large(buffer) && octets.size() < buffer.room_bytes / 4;
  }

  Keeper() = default;
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  // ---- pieces: each is kept, or copied, once and released once --------------------------------
  // One that stays where it came; `copied`: there copy() has put it.
  void keep(Buffer& buffer, bool copied) {
    if (copied) [[unlikely]]
      ++buffer.mark;
    else
      ++count_of(buffer);
  }
  // One behind those copied before. Nothing when there is no buffer; of `pool` one is taken where it needs one. What is
  // in order and what is not yet is not mixed: of either, one piece may follow the other.
  enum class Where : std::uint8_t { in_order, beyond };
  struct Copy {
    BufferRef buffer;
    const std::byte* data = nullptr;
  };
  Copy copy(Where where, Bytes octets, BufferPool& pool) {
    BufferRef& together = together_[static_cast<unsigned>(where)];
    if (!has_room(together, octets.size())) {
      BufferRef fresh = octets.size() > kCopiedMax ? BufferRef(pool.take_large()) : BufferRef::take(pool);
      if (!fresh || fresh->tailroom() < octets.size()) return {};
      ++count_of(*fresh);
      together = std::move(fresh);  // in the one before there is a piece yet, with which it goes
    }
    ++together->mark;
    const std::byte* const place = end(together);
    put(together, octets);
    return {together.share(), place};
  }
  // Octets that follow those of `piece`, which ends at `piece_end`: part of it from now on. False: there is no room, or
  // something else was copied behind it.
  bool extend(Where where, const BufferRef& piece, const std::byte* piece_end, Bytes octets) {
    BufferRef& together = together_[static_cast<unsigned>(where)];
    if (piece.get() != together.get() || !has_room(together, octets.size()) || piece_end != end(together)) return false;
    put(together, octets);
    return true;
  }
  void release(BufferRef& piece, bool copied) {
    if (!copied) [[likely]] {
      --count_of(*piece);
      piece.reset();
      return;
    }
    Buffer& buffer = *piece;
    // The last of it: counted as long as pieces of ours are in it, whoever else reads there yet.
    if (--buffer.mark == 0) {
      --count_of(buffer);
      for (BufferRef& together : together_)
        if (&buffer == together.get()) together.reset();
    }
    piece.reset();
  }

  const BufferCount& kept() const { return kept_; }

 private:
  std::uint32_t& count_of(const Buffer& buffer) { return is_large(buffer) ? kept_.large : kept_.small; }
  static bool has_room(const BufferRef& buffer, std::size_t octets) { return buffer && buffer->tailroom() >= octets; }
  static const std::byte* end(const BufferRef& buffer) { return buffer->room + buffer->head + buffer->length; }
  static void put(const BufferRef& buffer, Bytes octets) {
    std::memcpy(buffer->append(static_cast<std::uint32_t>(octets.size())).data(), octets.data(), octets.size());
  }

  BufferRef together_[2];  // where small pieces are copied to; `mark`: how many are in it
  BufferCount kept_;
};

}  // namespace rnic::tcp
