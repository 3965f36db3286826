// Which FPDUs beyond a gap were read.

#include "qp/read_ahead.hpp"

#include <memory>

#include "kit/catch.hpp"

using namespace rnic;

namespace {

// Those from `position` on, as pairs.
std::vector<std::pair<std::uint64_t, std::uint64_t>> known(const qp::ReadAhead& ahead) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> out;
  std::uint64_t position = 0;
  while (const auto* interval = ahead.interval_from(position)) {
    out.emplace_back(interval->first, interval->end);
    position = interval->first + 1;
  }
  return out;
}
using Known = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

}  // namespace

TEST_CASE("what is read beyond a gap is remembered in order, and neighbours are one", "[qp][W-MPA-71]") {
  qp::ReadAhead ahead;
  CHECK(ahead.interval_from(0) == nullptr);
  CHECK(ahead.remember(300, 400));
  CHECK(ahead.remember(100, 150));
  CHECK(ahead.remember(500, 600));
  CHECK(known(ahead) == Known{{100, 150}, {300, 400}, {500, 600}});
  SECTION("it joins the one before") {
    CHECK(ahead.remember(150, 160));
    CHECK(known(ahead) == Known{{100, 160}, {300, 400}, {500, 600}});
  }
  SECTION("it joins the one behind") {
    CHECK(ahead.remember(290, 300));
    CHECK(known(ahead) == Known{{100, 150}, {290, 400}, {500, 600}});
  }
  SECTION("it joins both") {
    CHECK(ahead.remember(400, 500));
    CHECK(known(ahead) == Known{{100, 150}, {300, 600}});
  }
  SECTION("from a place on") {
    CHECK(ahead.interval_from(300)->end == 400);
    CHECK(ahead.interval_from(301)->first == 500);
    CHECK(ahead.interval_from(501) == nullptr);
  }
}

TEST_CASE("octets that were read as others are a contradiction", "[qp][W-MPA-71]") {
  qp::ReadAhead ahead;
  CHECK(ahead.remember(100, 200));
  CHECK(ahead.remember(300, 400));
  CHECK_FALSE(ahead.remember(199, 250));
  CHECK_FALSE(ahead.remember(100, 200));
  CHECK_FALSE(ahead.remember(250, 301));
  CHECK_FALSE(ahead.remember(50, 101));
  CHECK(ahead.remember(200, 300));
  CHECK(known(ahead) == Known{{100, 400}});
}

TEST_CASE("64 intervals are remembered, and what joins one even then", "[qp][W-MPA-71]") {
  qp::ReadAhead ahead;
  for (std::uint64_t i = 0; i < 64; ++i) CHECK(ahead.remember(i * 100, i * 100 + 10));
  CHECK_FALSE(ahead.remember(50, 60));
  CHECK_FALSE(ahead.remember(10000, 10010));
  CHECK(known(ahead).size() == 64);
  CHECK(ahead.remember(10, 20));
  CHECK(ahead.remember(90, 100));
  CHECK(ahead.remember(20, 90));
  CHECK(known(ahead).size() == 63);
  CHECK(known(ahead).front() == std::pair<std::uint64_t, std::uint64_t>{0, 110});
  CHECK(ahead.remember(10000, 10010));
}

TEST_CASE("what the stream has gone past is forgotten, and a limit behind it too", "[qp][W-MPA-71]") {
  qp::ReadAhead ahead;
  CHECK(ahead.remember(100, 200));
  CHECK(ahead.remember(300, 400));
  CHECK(ahead.limit == qp::ReadAhead::kNoLimit);
  ahead.limit = 300;
  ahead.forget_before(100);
  CHECK(known(ahead).size() == 2);
  CHECK(ahead.limit == 300);
  ahead.forget_before(300);
  CHECK(known(ahead) == Known{{300, 400}});
  CHECK(ahead.limit == 300);
  ahead.forget_before(301);
  CHECK(known(ahead).empty());
  CHECK(ahead.limit == qp::ReadAhead::kNoLimit);
}
