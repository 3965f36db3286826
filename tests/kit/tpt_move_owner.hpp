// Who submits moves, and notes what it is told of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tpt/mover.hpp"

namespace rnic::test {

struct Owner : tpt::MoveOwner {
  std::vector<std::pair<std::uint32_t, bool>> told;  // tokens, and whether it went well
  unsigned keeps = 0, let_goes = 0;
  std::shared_ptr<std::byte[]> memory;  // what its moves are made from or into, if it is to be kept

  void on_moved(std::uint32_t token, bool ok) override { told.emplace_back(token, ok); }
  void keep(tpt::Kept& kept) override {
    ++keeps;
    if (memory != nullptr) kept.memory.push_back(memory);
  }
  void on_let_go() override { ++let_goes; }
};

}  // namespace rnic::test
