// An application's memory under a protection table: four regions of different rights, and a claim
// about what a peer can never have changed.
#pragma once

#include <array>
#include <memory>

#include "fuzz/target.hpp"
#include "kit/hex.hpp"
#include "kit/tpt_memory.hpp"

namespace rnic::fuzz {

inline constexpr PdId kPd{1};

class Memory {
 public:
  static constexpr std::uint32_t kSize = 4096;
  enum Name : unsigned { both, read_only, write_only, local, kCount };

  explicit Memory(tpt::Table& table) {
    using tpt::Rights;
    constexpr auto own = Rights::local_read | Rights::local_write;
    constexpr std::array kRights{own | Rights::remote_read | Rights::remote_write | Rights::remote_atomic,
                                 Rights::local_read | Rights::remote_read, own | Rights::remote_write, own};
    for (unsigned i = 0; i < kCount; ++i) {
      octets_[i] = test::pattern(kSize, i);
      stags_[i] = test::register_memory(table, octets_[i], kRights[i], kPd, static_cast<std::uint8_t>(0x11 * i));
    }
  }

  std::uint64_t address(unsigned i) { return reinterpret_cast<std::uintptr_t>(octets_[i % kCount].data()); }
  Stag stag(unsigned i) const { return stags_[i % kCount]; }
  MutableBytes octets(unsigned i) { return octets_[i % kCount]; }

  // Nobody may write there, whatever the peer says and the application posts.
  void check() const { FUZZ_CHECK(octets_[read_only] == test::pattern(kSize, read_only)); }

 private:
  std::array<Octets, kCount> octets_;
  std::array<Stag, kCount> stags_;
};

}  // namespace rnic::fuzz
