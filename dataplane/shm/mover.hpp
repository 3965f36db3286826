// Application memory, reached: direct where it is mapped here (rungs 1..3), else by remote copy
// (rung 4, architecture.md s4). One remote copy spans a whole burst: what is submitted is collected
// for each address space, pieces that follow one another in the application become one, and flush()
// moves all of it in as few calls as there are address spaces.
//
// The remote copy is process_vm_readv/writev addressed by the id of a helper thread in the
// application that never calls exec: the kernel ends all other threads before exec gives the process
// a new address space, so that the id cannot come to mean another program. Where that call is refused
// (Yama, a sandbox) it is pread/pwrite on the /proc/self/mem descriptor that the application passed,
// through a staging buffer; that descriptor is bound to the address space, and dies with it.
//
// Owned by one worker. All memory is taken at construction.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "tpt/mover.hpp"

namespace rnic::shm {

// How an address space is reached. The descriptor stays the caller's.
struct SpaceReach {
  pid_t helper_tid = 0;  // 0: not by thread id
  int mem_fd = -1;       // -1: not by descriptor
};

struct MoverCounters {
  std::uint64_t calls = 0, pieces = 0, bytes = 0, failures = 0;
};

class ApplicationMover final : public tpt::Mover {
 public:
  ApplicationMover();
  ~ApplicationMover();

  void add_space(SpaceId space, const SpaceReach& reach);
  // What is pending for it is carried out first.
  void remove_space(SpaceId space);

  tpt::Moved gather(const tpt::Access& from, MutableBytes into, tpt::MoveTicket ticket) override;
  tpt::Moved place(Bytes from, const tpt::Access& to, tpt::Part part, tpt::MoveTicket ticket) override;
  void flush() override;
  void cancel(tpt::MoveOwner& owner) override;
  bool fetch_add(const tpt::Access& at, std::uint64_t add, std::uint64_t mask, std::uint64_t& original) override;
  bool compare_swap(const tpt::Access& at, std::uint64_t compare, std::uint64_t compare_mask, std::uint64_t swap,
                    std::uint64_t swap_mask, std::uint64_t& original) override;

  const MoverCounters& counters() const { return counters_; }

 private:
  enum class Way : std::uint8_t { gather, place };
  struct Item {
    SpaceId space;
    std::uint64_t address = 0;
    std::byte* local = nullptr;
    std::uint32_t length = 0;
    bool tail = false;
    bool ok = false;
    tpt::MoveTicket ticket;
  };
  struct Space {
    SpaceReach reach;
    bool known = false;
    bool by_thread = false;
    // Indexes of this flush's items, in order of submission.
    std::vector<std::uint32_t> pending[2];
  };

  tpt::Moved submit(Way way, const Item& item);
  void run(Space& space, Way way);
  void place_pending(SpaceId space);
  void run_by_thread(Space& space, Way way, std::size_t first, std::size_t count);
  void run_by_descriptor(Space& space, Way way, std::size_t first, std::size_t count);
  bool move_now(Space& space, Way way, std::uint64_t address, std::byte* here, std::size_t length);
  bool move_word(const tpt::Access& at, Way way, std::uint64_t& word);
  Space* find(SpaceId space);

  static constexpr std::size_t kItemsMax = 16384;
  static constexpr std::size_t kVectorMax = 1024;  // IOV_MAX
  static constexpr std::size_t kStagingBytes = 256 * 1024;

  std::vector<Space> spaces_;  // by SpaceId
  std::vector<SpaceId> touched_;
  std::unique_ptr<Item[]> items_;
  std::size_t item_count_ = 0;
  bool telling_ = false;
  std::array<iovec, kVectorMax> local_{};
  std::array<iovec, kVectorMax> remote_{};
  std::unique_ptr<std::byte[]> staging_;
  MoverCounters counters_;
};

}  // namespace rnic::shm
