// The daemon's log, as control sees it: lines with a level. Owned by the control thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "base/time.hpp"

namespace rnic::control {

enum class LogLevel : std::uint8_t { debug, info, error };

class Log {
 public:
  using Write = std::function<void(LogLevel, const std::string&)>;

  // `debug`: whether lines of that level are written at all.
  explicit Log(Write write, bool debug = false) : write_(std::move(write)), debug_(debug) {}

  bool has_debug() const { return debug_; }
  void error(const std::string& line) const { write_(LogLevel::error, line); }
  void info(const std::string& line) const { write_(LogLevel::info, line); }
  // `line` is only asked for where it is written.
  template <typename F>
  void debug(F&& line) const {
    if (debug_) write_(LogLevel::debug, line());
  }

 private:
  Write write_;
  bool debug_;
};

// Lines that strangers can cause: so many at once, then one now and then, however many there are.
class LineLimit {
 public:
  static constexpr std::uint32_t kAtOnce = 64;
  static constexpr Duration kPace = seconds(10);

  // Whether a line may be written. If so, `left_out`: how many were not, since the last that was.
  bool take(Instant now, std::uint64_t& left_out) {
    if (now - since_ >= kPace) {
      const std::int64_t earned = (now - since_).ns / kPace.ns;
      allowed_ = static_cast<std::uint32_t>(earned < kAtOnce - allowed_ ? allowed_ + earned : std::int64_t{kAtOnce});
      since_ = since_ + kPace * earned;
    }
    left_out = 0;
    if (allowed_ == 0) {
      ++left_out_;
      return false;
    }
    --allowed_;
    std::swap(left_out, left_out_);
    return true;
  }

 private:
  std::uint32_t allowed_ = kAtOnce;
  Instant since_{};
  std::uint64_t left_out_ = 0;
};

}  // namespace rnic::control
