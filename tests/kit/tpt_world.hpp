// A table with regions and windows in a given state, for the tests of tpt/.
#pragma once

#include "kit/catch.hpp"
#include "tpt/table.hpp"

namespace rnic::test {

using tpt::Refusal;
using tpt::RegionOptions;
using tpt::RegisterError;
using tpt::Rights;

inline constexpr PdId kPd{7}, kOtherPd{8};
inline constexpr QpNumber kQp{21}, kOtherQp{22};
inline constexpr std::uint64_t kBase = 0x7000;
inline constexpr std::uint64_t kSize = 64;
inline constexpr std::uint8_t kKey = 0x5A;
inline constexpr Rights kLocal = Rights::local_read | Rights::local_write;
inline constexpr Rights kReadWrite = Rights::remote_read | Rights::remote_write;
inline constexpr Rights kEverything = kLocal | kReadWrite | Rights::remote_atomic | Rights::window_bind;

inline Stag with_key(Stag stag, std::uint8_t key) { return {stag.index() << 8 | key}; }

struct TptWorld {
  tpt::Table table{64, 1};

  static RegionOptions options(Rights rights = kEverything) {
    RegionOptions o;
    o.pd = kPd;
    o.rights = rights;
    o.base = kBase;
    o.size = kSize;
    o.key = kKey;
    o.memory = {.space = {3}, .address = 0x500000, .direct = nullptr};
    return o;
  }
  Stag region(Rights rights = kEverything) { return region(options(rights)); }
  Stag region(const RegionOptions& o) {
    const auto stag = table.register_region(o);
    REQUIRE(stag.has_value());
    return *stag;
  }
  // A window on all of `region`, bound to kQp.
  Stag window(Stag region, Rights rights = kReadWrite) {
    const auto stag = table.allocate_window(kPd, 0);
    REQUIRE(stag.has_value());
    const auto bound = table.bind(*stag, kKey, region, kPd, kQp, rights, kBase, kSize);
    REQUIRE(bound.has_value());
    return with_key(*stag, kKey);
  }
  auto write(Stag stag, std::uint64_t to = kBase, std::uint32_t length = 1, PdId pd = kPd, QpNumber qp = kQp) const {
    return table.check_remote(stag, pd, qp, Rights::remote_write, to, length);
  }
  auto read(Stag stag, std::uint64_t to = kBase, std::uint32_t length = 1, PdId pd = kPd, QpNumber qp = kQp) const {
    return table.check_remote(stag, pd, qp, Rights::remote_read, to, length);
  }
};

// What was refused, and why.
template <typename Checked>
void check_refused(const Checked& checked, Refusal reason) {
  REQUIRE_FALSE(checked.has_value());
  CHECK(checked.error() == reason);
}

}  // namespace rnic::test
