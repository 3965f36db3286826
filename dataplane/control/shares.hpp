// Something of which there is only so much, among processes that each may ask for all of it.
//
// One rule: a process may have seven times what would then be left for others. So one alone has all but
// an eighth; two that want as much as they can get have seven fifteenths each; and whoever comes when
// another has taken its part finds an eighth, and leaves an eighth of that. What is held is never taken
// away.
//
// Pure. Owned by the control thread; whoever holds a Share gives it back before the Shares go.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>

namespace rnic::control {

// Whoever counts as one: a process (holder_of(), control/context.hpp).
using Holder = std::uint64_t;

class Shares;

// So many of something, until it goes.
class [[nodiscard]] Share {
 public:
  Share() = default;
  Share(Shares& of, Holder holder, std::uint64_t count) : of_(&of), holder_(holder), count_(count) {}
  Share(Share&& other) noexcept
      : of_(std::exchange(other.of_, nullptr)), holder_(other.holder_), count_(std::exchange(other.count_, 0)) {}
  Share& operator=(Share&& other) noexcept {
    std::swap(of_, other.of_);
    std::swap(holder_, other.holder_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~Share();
  // False: refused.
  explicit operator bool() const { return of_ != nullptr; }

 private:
  Shares* of_ = nullptr;
  Holder holder_ = 0;
  std::uint64_t count_ = 0;
};

class Shares {
 public:
  static constexpr std::uint64_t kTimes = 7;
  // Hears of the first refusal to a holder; of the next when it has given back half of what it had.
  using Tell = std::function<void(Holder, const std::string& what)>;

  Shares(std::string name, std::uint64_t total) : name_(std::move(name)), total_(total) {}
  // So much in all that one alone may have `most`.
  static Shares for_one(std::string name, std::uint64_t most) {
    return {std::move(name), (most * (kTimes + 1) + kTimes - 1) / kTimes};
  }
  void tell_by(Tell tell) { tell_ = std::move(tell); }
  void set_total(std::uint64_t total) { total_ = total; }

  // Whether take() would give so much; nobody hears of it.
  bool may_take(Holder holder, std::uint64_t count) const {
    return count <= total_ - std::min(used_, total_) && used_by(holder) + count <= kTimes * (total_ - used_ - count);
  }
  Share take(Holder holder, std::uint64_t count = 1) {
    if (!may_take(holder, count)) {
      refuse(holder, used_by(holder));
      return {};
    }
    used_ += count;
    holders_[holder].used += count;
    return {*this, holder, count};
  }

  std::uint64_t total() const { return total_; }
  std::uint64_t used() const { return used_; }
  std::uint64_t used_by(Holder holder) const {
    const auto found = holders_.find(holder);
    return found == holders_.end() ? 0 : found->second.used;
  }

 private:
  friend class Share;
  struct Of {
    std::uint64_t used = 0;
    std::uint64_t told_at = 0;  // 0: not
  };

  void refuse(Holder holder, std::uint64_t own) {
    // Who has nothing is not remembered.
    const auto found = holders_.find(holder);
    if (found != holders_.end() && found->second.told_at != 0) return;
    if (found != holders_.end()) found->second.told_at = own;
    if (tell_)
      tell_(holder, "no more " + name_ + ": it has " + std::to_string(own) + " and others " +
                        std::to_string(used_ - own) + " of " + std::to_string(total_));
  }
  void give(Holder holder, std::uint64_t count) {
    used_ -= count;
    const auto found = holders_.find(holder);
    found->second.used -= count;
    if (found->second.used <= found->second.told_at / 2) found->second.told_at = 0;
    if (found->second.used == 0) holders_.erase(found);
  }

  std::string name_;
  std::uint64_t total_;
  std::uint64_t used_ = 0;
  std::unordered_map<Holder, Of> holders_;
  Tell tell_;
};

inline Share::~Share() {
  if (of_ != nullptr) of_->give(holder_, count_);
}

}  // namespace rnic::control
