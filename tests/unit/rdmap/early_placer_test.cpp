// What may be placed before its turn, and where.

#include "rdmap/early_placer.hpp"

#include "kit/catch.hpp"
#include "kit/rdmap_ground.hpp"

using namespace rnic;
using namespace rnic::test;
using rdmap::Fault;

namespace {

constexpr std::uint8_t kWrite = 0, kReadResponse = 2, kSend = 3;

struct Placing : Ground {
  explicit Placing(Moves moves = Moves::direct) : Ground(default_settings(), moves), memory(region(256)) {}
  auto target(const Octets& ulpdu) {
    const std::array<Bytes, 1> spans{Bytes(ulpdu)};
    return placer.target({spans, static_cast<std::uint32_t>(ulpdu.size())});
  }
  std::uint32_t place(const Octets& ulpdu, std::uint64_t position) {
    const Octets& kept = kept_.emplace_back(ulpdu);
    const std::array<Bytes, 1> spans{Bytes(kept)};
    const ddp::Ulpdu given(spans, static_cast<std::uint32_t>(kept.size()));
    return placer.place(given, **placer.target(given), position);
  }
  Region& memory;
  rdmap::Reads reads{4, 4, {}};
  rdmap::Early early;
  rdmap::EarlyPlacer placer{common, reads, early};

 private:
  std::deque<Octets> kept_;
};

}  // namespace

TEST_CASE("V-ORD-09: a Write may be early, but not a message's last octets", "[rdmap][V-ORD-09][W-TCP-09]") {
  Placing p;
  const bool last = GENERATE(false, true);
  const auto to = p.target(tagged(kWrite, last, p.memory.stag, p.memory.at(16), filled(32)));
  REQUIRE((to && *to));
  CHECK((*to)->address == p.memory.at(16));
  CHECK((*to)->length == (last ? 24 : 32));
  const auto little = p.target(tagged(kWrite, last, p.memory.stag, p.memory.at(16), filled(8)));
  REQUIRE(little);
  CHECK(little->has_value() == !last);
}

TEST_CASE("W-TCP-10: what is no placement waits", "[rdmap][W-TCP-10]") {
  Placing p;
  CHECK_FALSE(*p.target(untagged(kSend, true, 0, 1, 0, filled(32))));
  CHECK_FALSE(*p.target(read_request(1, {})));
  CHECK_FALSE(*p.target(tagged(kWrite, false, {0x1234500}, 0)));  // no octets, no memory
}

TEST_CASE("V-STOP-06: what will be refused is not placed, nor complained about", "[rdmap][V-STOP-06]") {
  Placing p;
  SECTION("its form") {
    CHECK(p.target(tagged(9, true, p.memory.stag, p.memory.base, filled(32))).error() == Fault::unexpected_opcode);
  }
  SECTION("its memory") {
    CHECK(p.target(tagged(kWrite, true, p.memory.stag, p.memory.at(225), filled(32))).error() == Fault::tagged_bounds);
  }
  SECTION("the queue pair's enable") {
    p.settings.access = tpt::Rights::remote_read;
    CHECK(p.target(tagged(kWrite, true, p.memory.stag, p.memory.base, filled(32))).error() == Fault::writes_disabled);
  }
}

TEST_CASE("W-RDMAP-14: a Read Response may be early if it answers a Read outstanding", "[rdmap][W-RDMAP-14]") {
  Placing p;
  const auto response = [&](std::uint64_t offset, std::size_t size, Stag stag) {
    return p.target(tagged(kReadResponse, false, stag, p.memory.at(offset), filled(size)));
  };
  CHECK(response(32, 32, p.memory.stag).error() == Fault::tagged_bounds);
  p.reads.ask({.sink = {.stag = {0x77}, .consumers = {0x77}}, .next_to = p.memory.at(32), .left = 64});
  CHECK(response(32, 32, p.memory.stag).error() == Fault::tagged_bounds);
  p.reads.ask({.sink = {.stag = p.memory.stag, .consumers = p.memory.stag}, .next_to = p.memory.at(32), .left = 64});
  CHECK((*response(32, 64, p.memory.stag))->length == 64);
  CHECK((*response(64, 32, p.memory.stag))->length == 32);
  CHECK(response(31, 8, p.memory.stag).error() == Fault::tagged_bounds);
  CHECK(response(65, 32, p.memory.stag).error() == Fault::tagged_bounds);
  CHECK(response(32, 65, p.memory.stag).error() == Fault::tagged_bounds);
}

TEST_CASE("an atomic operation outstanding is no Read", "[rdmap][W-EXT-06]") {
  Placing p;
  p.reads.ask({.sink = {.stag = p.memory.stag, .consumers = p.memory.stag},
               .next_to = p.memory.at(0),
               .left = 8,
               .atomic = true});
  CHECK(p.target(tagged(kReadResponse, false, p.memory.stag, p.memory.at(0), filled(8))).error() ==
        Fault::tagged_bounds);
}

TEST_CASE("W-TCP-09: placed, it is noted, and its moves are the early ones", "[rdmap][W-TCP-09]") {
  const Moves moves = GENERATE(Moves::direct, Moves::at_flush);
  Placing p(moves);
  const std::uint32_t later = p.place(tagged(kWrite, true, p.memory.stag, p.memory.at(16), filled(32)), 5000);
  CHECK(later == (moves == Moves::direct ? 0 : 1));
  CHECK(p.common.moves.places == later);
  REQUIRE(p.early.find(5000) != nullptr);
  CHECK(p.early.find(5000)->moves == later);
  p.mover.flush();
  const Octets payload = filled(32);
  CHECK(std::equal(payload.begin(), payload.begin() + 24, p.memory.memory.begin() + 16));
  CHECK(p.memory.memory[40] == std::byte{0});
  CHECK(p.mover.tails().empty());
  if (later != 0) CHECK(p.moved == std::vector<std::pair<std::uint32_t, bool>>{{rdmap::token::kEarly | 0, true}});
}

TEST_CASE("what could not be reached is placed once more in its turn", "[rdmap][W-TCP-09]") {
  Placing p;
  p.mover.unreachable.insert(p.memory.stag.value);
  CHECK(p.place(tagged(kWrite, false, p.memory.stag, p.memory.at(16), filled(32)), 5000) == 0);
  CHECK(p.early.find(5000)->again);
}
