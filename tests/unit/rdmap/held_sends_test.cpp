// The memory that Sends wait in: order, bound, wrap.

#include "rdmap/held_sends.hpp"

#include <random>
#include <vector>

#include "kit/catch.hpp"

using namespace rnic;

TEST_CASE("V-SR-06: what is held comes out in order, whole, and never exceeds its bound", "[rdmap][V-SR-06]") {
  rdmap::HeldSends held;
  held.reserve(1000);
  std::mt19937 random(3);
  std::vector<std::vector<std::byte>> inside;
  std::size_t next_in = 0, next_out = 0, refused = 0;
  std::vector<std::uint64_t> marks;
  for (int i = 0; i < 20000; ++i) {
    if (random() % 2 == 0) {
      std::vector<std::byte> one(18 + random() % 300);
      for (auto& b : one) b = static_cast<std::byte>(next_in * 7);
      const std::size_t cut = random() % one.size();
      const std::vector<Bytes> spans{Bytes(one).first(cut), Bytes(one).subspan(cut)};
      if (held.push(spans, static_cast<std::uint32_t>(one.size()))) {
        inside.push_back(one);
        ++next_in;
      } else {
        ++refused;
      }
      REQUIRE(held.bytes() <= 1000);
    } else if (held.unread()) {
      const Bytes front = held.front();
      REQUIRE(front.size() == inside[next_out].size());
      REQUIRE(std::memcmp(front.data(), inside[next_out].data(), front.size()) == 0);
      marks.push_back(held.advance());
      ++next_out;
    } else if (!marks.empty()) {
      held.release(marks.back());
      marks.clear();
    }
    if (marks.size() > 2) {
      held.release(marks.back());
      marks.clear();
    }
  }
  CHECK(refused > 100);
  CHECK(next_out > 1000);
}

TEST_CASE("V-SR-06: what is larger than the bound never fits", "[rdmap][V-SR-06]") {
  rdmap::HeldSends held;
  held.reserve(1000);
  CHECK(held.fits_ever(984));
  CHECK_FALSE(held.fits_ever(985));
}
