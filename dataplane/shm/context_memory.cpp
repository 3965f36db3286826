#include "shm/context_memory.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "shm/sealed_memory.hpp"

namespace rnic::shm {
namespace {

constexpr std::uint64_t kArenaBytes = std::uint64_t{8} << 20;
constexpr std::uint64_t kPieceMinBytes = 256;

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

}  // namespace

Result<std::unique_ptr<ContextMemory>, int> ContextMemory::create(unsigned worker_count, std::uint32_t generation) {
  RNIC_ASSERT(worker_count >= 1 && worker_count <= RNIC_WORKERS_MAX);
  std::unique_ptr<ContextMemory> memory(new ContextMemory);
  memory->wake_fds_.fill(-1);
  memory->worker_count_ = worker_count;

  auto status = sealed_memory("rnic-status", sizeof(rnic_status_page), F_SEAL_FUTURE_WRITE);
  if (!status) return Failure{status.error()};
  memory->status_fd_ = status->fd;
  memory->status_ = static_cast<rnic_status_page*>(status->base);
  memory->status_->abi_version = RNIC_ABI_VERSION;
  memory->status_->generation = generation;
  memory->status_->worker_count = worker_count;

  auto doorbells = sealed_memory("rnic-doorbells", worker_count * sizeof(rnic_doorbells), 0);
  if (!doorbells) return Failure{doorbells.error()};
  memory->doorbells_fd_ = doorbells->fd;
  memory->doorbells_ = static_cast<rnic_doorbells*>(doorbells->base);

  for (unsigned i = 0; i < worker_count; ++i) {
    memory->wake_fds_[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (memory->wake_fds_[i] < 0) return Failure{errno};
  }
  return memory;
}

ContextMemory::~ContextMemory() {
  for (const Arena& arena : arenas_) {
    munmap(arena.base, arena.size);
    close(arena.fd);
  }
  for (unsigned i = 0; i < worker_count_; ++i)
    if (wake_fds_[i] >= 0) close(wake_fds_[i]);
  if (status_ != nullptr) munmap(status_, sizeof(rnic_status_page));
  if (doorbells_ != nullptr) munmap(doorbells_, worker_count_ * sizeof(rnic_doorbells));
  if (status_fd_ >= 0) close(status_fd_);
  if (doorbells_fd_ >= 0) close(doorbells_fd_);
}

bool ContextMemory::needs_arena(std::uint64_t bytes) const {
  if (bytes > kQuotaBytes) return false;  // it is refused
  const std::uint64_t size = std::bit_ceil(std::max(bytes, kPieceMinBytes));
  if (const auto spots = free_.find(size); spots != free_.end() && !spots->second.empty()) return false;
  return arenas_.empty() || arenas_.back().size - arenas_.back().used < size;
}

Result<ContextMemory::Piece, int> ContextMemory::allocate(std::uint64_t bytes) {
  if (bytes == 0 || bytes > kQuotaBytes) return Failure{ENOMEM};
  // Powers of two, so that what was given back fits the next of its kind.
  const std::uint64_t size = std::bit_ceil(std::max(bytes, kPieceMinBytes));
  if (allocated_bytes_ + size > kQuotaBytes) return Failure{ENOMEM};

  Spot spot{};
  if (auto spots = free_.find(size); spots != free_.end() && !spots->second.empty()) {
    spot = spots->second.back();
    spots->second.pop_back();
    std::memset(arenas_[spot.arena].base + spot.offset, 0, size);  // nothing of the last owner is left (V-SEC-26)
  } else {
    if (arenas_.empty() || arenas_.back().size - arenas_.back().used < size) {
      const std::uint64_t arena_bytes = std::max(kArenaBytes, size);
      auto mapped = sealed_memory("rnic-queues", arena_bytes, 0);
      if (!mapped) return Failure{mapped.error()};
      arenas_.push_back({mapped->fd, static_cast<std::byte*>(mapped->base), arena_bytes, 0});
    }
    spot = {static_cast<std::uint32_t>(arenas_.size() - 1), arenas_.back().used};
    arenas_.back().used += size;
  }
  allocated_bytes_ += size;
  Piece piece;
  piece.memory_ = this;
  piece.base_ = arenas_[spot.arena].base + spot.offset;
  piece.arena_ = spot.arena;
  piece.offset_ = spot.offset;
  piece.length_ = size;
  return piece;
}

void ContextMemory::release(const Piece& piece) {
  RNIC_ASSERT(piece.arena_ < arenas_.size() && allocated_bytes_ >= piece.length_);
  allocated_bytes_ -= piece.length_;
  free_[piece.length_].push_back({piece.arena_, piece.offset_});
}

}  // namespace rnic::shm
