// Something that there is only so much of, among processes.
#include "control/shares.hpp"

#include <vector>

#include "kit/catch.hpp"

namespace {

using rnic::control::Holder;
using rnic::control::Share;
using rnic::control::Shares;

// As many as a process gets.
std::size_t take_all(Shares& shares, Holder holder, std::vector<Share>& kept) {
  std::size_t count = 0;
  for (;;) {
    Share share = shares.take(holder);
    if (!share) return count;
    kept.push_back(std::move(share));
    ++count;
  }
}

TEST_CASE("A process alone may have all but an eighth", "[control][shares]") {
  Shares shares("things", 800);
  std::vector<Share> kept;
  CHECK(take_all(shares, 1, kept) == 700);
  CHECK(shares.used_by(1) == 700);
  // Said by the other end: so much for one.
  Shares more = Shares::for_one("things", 65'536);
  std::vector<Share> of_one;
  CHECK(take_all(more, 1, of_one) == 65'536);
  CHECK(more.total() == 74'899);
}

TEST_CASE("Whoever comes last finds something", "[control][shares]") {
  Shares shares("things", 8192);
  std::vector<Share> kept;
  CHECK(take_all(shares, 1, kept) == 7168);
  CHECK(take_all(shares, 2, kept) == 896);
  CHECK(take_all(shares, 3, kept) == 112);
  CHECK(take_all(shares, 4, kept) == 14);
  CHECK(take_all(shares, 1, kept) == 0);
}

TEST_CASE("Who both want as much as they can get have the same", "[control][shares]") {
  Shares shares("things", 1500);
  std::vector<Share> kept;
  for (bool some = true; some;) {
    some = false;
    for (const Holder holder : {1, 2}) {
      Share share = shares.take(holder);
      some |= static_cast<bool>(share);
      if (share) kept.push_back(std::move(share));
    }
  }
  CHECK(shares.used_by(1) == 700);
  CHECK(shares.used_by(2) == 700);
}

TEST_CASE("Nobody is held to a part that nobody else wants", "[control][shares]") {
  Shares shares("things", 1000);
  std::vector<Share> few, many;
  for (Holder holder = 2; holder < 12; ++holder) few.push_back(shares.take(holder));
  CHECK(take_all(shares, 1, many) == 866);  // seven eighths of what the ten have left
}

TEST_CASE("Two processes may have 10,000 queue pairs each", "[control][shares]") {
  Shares shares = Shares::for_one("queue pairs", 65'536);
  std::vector<Share> kept;
  for (int i = 0; i < 10'000; ++i)
    for (const Holder holder : {1, 2}) {
      kept.push_back(shares.take(holder));
      REQUIRE(kept.back());
    }
}

TEST_CASE("What is given back can be had again", "[control][shares]") {
  Shares shares("things", 16);
  {
    std::vector<Share> kept;
    CHECK(take_all(shares, 1, kept) == 14);
    Share moved = std::move(kept.back());
    kept.pop_back();
    CHECK(shares.used() == 14);
    moved = Share();
  }
  CHECK(shares.used() == 0);
  std::vector<Share> kept;
  CHECK(take_all(shares, 2, kept) == 14);
}

TEST_CASE("More than one at a time: all or none", "[control][shares]") {
  Shares shares("octets", 1 << 20);
  CHECK_FALSE(shares.take(1, ~std::uint64_t{0}));
  CHECK_FALSE(shares.take(1, 1 << 20));
  const Share half = shares.take(1, 1 << 19);
  CHECK(half);
  CHECK_FALSE(shares.take(1, 1 << 19));
  CHECK(shares.used() == 1 << 19);
  // Of less than there is in use nobody gets anything.
  shares.set_total(1000);
  CHECK_FALSE(shares.take(2));
}

TEST_CASE("A refusal is told once, and again when there was room in between", "[control][shares]") {
  Shares shares("things", 16);
  std::vector<std::string> lines;
  shares.tell_by([&](Holder holder, const std::string& what) { lines.push_back(std::to_string(holder) + " " + what); });
  std::vector<Share> kept, other;
  take_all(shares, 1, kept);
  for (int i = 0; i < 10; ++i) CHECK_FALSE(shares.take(1));
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] == "1 no more things: it has 14 and others 0 of 16");
  kept.pop_back();
  take_all(shares, 1, kept);
  CHECK(lines.size() == 1);
  while (kept.size() > 5) kept.pop_back();
  take_all(shares, 1, kept);
  CHECK(lines.size() == 2);
  take_all(shares, 2, other);
  CHECK(lines.size() == 3);
}

}  // namespace
