// A target's input as a little program: read from the front, zeros when it is at its end. And the
// other way round, for seeds.
#pragma once

#include <algorithm>

#include "fuzz/target.hpp"

namespace rnic::fuzz {

class Input {
 public:
  explicit Input(Bytes octets) : left_(octets) {}

  bool empty() const { return left_.empty(); }
  std::size_t size() const { return left_.size(); }
  std::uint8_t u8() { return number<std::uint8_t>(); }
  std::uint16_t u16() { return number<std::uint16_t>(); }
  std::uint32_t u32() { return number<std::uint32_t>(); }
  // 0 .. n-1, of one octet.
  std::uint32_t below(std::uint32_t n) { return u8() % n; }
  bool flag() { return (u8() & 1) != 0; }
  // So many octets, or what is left.
  Bytes take(std::size_t n) {
    const Bytes taken = left_.first(std::min(n, left_.size()));
    left_ = left_.subspan(taken.size());
    return taken;
  }
  Bytes rest() { return take(left_.size()); }

 private:
  template <typename T>
  T number() {
    T value = 0;
    for (const std::byte octet : take(sizeof(T)))
      value = static_cast<T>(std::uint64_t{value} << 8 | std::to_integer<unsigned>(octet));
    return value;
  }
  Bytes left_;
};

class Program {
 public:
  Program& u8(unsigned value) { return number(value, 1); }
  Program& u16(unsigned value) { return number(value, 2); }
  Program& u32(std::uint64_t value) { return number(value, 4); }
  Program& bytes(Bytes octets) {
    octets_.insert(octets_.end(), octets.begin(), octets.end());
    return *this;
  }
  // 16 bits of length, then the octets.
  Program& sized(Bytes octets) { return u16(static_cast<unsigned>(octets.size())).bytes(octets); }
  const Octets& octets() const { return octets_; }

 private:
  Program& number(std::uint64_t value, unsigned octets) {
    for (unsigned i = octets; i-- > 0;) octets_.push_back(static_cast<std::byte>(value >> (8 * i)));
    return *this;
  }
  Octets octets_;
};

}  // namespace rnic::fuzz
