// The peer's atomic operation that is executed now: the front of the requests owed (RFC 7306 s5, W-EXT-16). One at a
// time; the mover may be done with it at once or later.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "rdmap/common.hpp"
#include "wire/atomic.hpp"

namespace rnic::rdmap {

class Early;

inline constexpr std::uint32_t kAtomicBytes = 8;

class Atomics {
 public:
  enum class State : std::uint8_t { nothing, begun, done, failed };

  // `early`: null, or what is placed before its turn.
  Atomics(Common& common, Early* early) : common_(common), early_(early) {}

  // Why it is refused, if it is.
  std::optional<Fault> fault_of(const wire::AtomicRequestHeader& request) const {
    const auto checked = check(request);
    return checked ? std::nullopt : std::optional(checked.error());
  }
  // Begins it, or says why it is refused: then nothing has been touched.
  std::optional<Fault> execute(const wire::AtomicRequestHeader& request);
  State state() const { return state_; }
  // What was there before, or nothing if the memory could not be reached. It is over: the next may begin.
  std::optional<std::uint64_t> take_result() {
    const State was = std::exchange(state_, State::nothing);
    return was == State::done ? std::optional(original_) : std::nullopt;
  }
  void on_moved(bool ok) {
    RNIC_ASSERT(state_ == State::begun);
    set(ok ? State::done : State::failed);
  }
  void forget() { set(State::nothing); }

 private:
  Result<tpt::Access, Fault> check(const wire::AtomicRequestHeader& request) const;
  void set(State state) {
    state_ = state;
    common_.moves.atomic = state == State::begun;
  }

  Common& common_;
  Early* early_;
  State state_ = State::nothing;
  std::uint64_t original_ = 0;
};

}  // namespace rnic::rdmap
