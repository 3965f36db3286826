// Result<T, E>: a value or the reason why there is none. The names are std::expected's (C++23);
// on the day of C++23 this becomes an alias.
#pragma once

#include <utility>
#include <variant>

#include "base/assert.hpp"

namespace rnic {

template <typename E>
struct Failure {
  E reason;
};
template <typename E>
Failure(E) -> Failure<E>;

template <typename T, typename E>
class [[nodiscard]] Result {
 public:
  constexpr Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  template <typename R>
  constexpr Result(Failure<R> failure) : state_(std::in_place_index<1>, E(failure.reason)) {}

  constexpr bool has_value() const { return state_.index() == 0; }
  constexpr explicit operator bool() const { return has_value(); }

  constexpr T& operator*() { return value(); }
  constexpr const T& operator*() const { return value(); }
  constexpr T* operator->() { return &value(); }
  constexpr const T* operator->() const { return &value(); }
  constexpr const E& error() const {
    RNIC_ASSERT(!has_value());
    return *std::get_if<1>(&state_);
  }

 private:
  constexpr T& value() {
    RNIC_ASSERT(has_value());
    return *std::get_if<0>(&state_);
  }
  constexpr const T& value() const {
    RNIC_ASSERT(has_value());
    return *std::get_if<0>(&state_);
  }
  std::variant<T, E> state_;
};

// What a Result holds when success says nothing more.
struct Done {
  constexpr bool operator==(const Done&) const = default;
};

}  // namespace rnic
