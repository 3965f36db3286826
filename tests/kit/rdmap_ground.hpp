// What a part of rdmap/ stands on: settings, an application, a table, a mover; and memory to register.
#pragma once

#include <deque>
#include <vector>

#include "kit/rdmap_application.hpp"
#include "rdmap/common.hpp"

namespace rnic::test {

inline rdmap::Settings default_settings() {
  rdmap::Settings settings;
  settings.number = {1};
  settings.pd = settings.receive_pd = kPd;
  settings.access = kAllAccess;
  settings.ird = settings.ord = 4;
  return settings;
}
inline rdmap::Settings with(void (*change)(rdmap::Settings&)) {
  rdmap::Settings settings = default_settings();
  change(settings);
  return settings;
}

struct Ground : tpt::MoveOwner {
  explicit Ground(rdmap::Settings given = default_settings(), Moves moves = Moves::direct)
      : settings(given), mover(moves, 1), common{settings, app, table, mover, *this, counters} {}

  rdmap::Settings settings;
  rdmap::Counters counters;
  AppOf<rdmap::Host> app;
  tpt::Table table{256, 1};
  PlainMover mover;
  rdmap::Common common;
  std::deque<Region> regions;
  std::vector<std::pair<std::uint32_t, bool>> moved;  // tokens told, and whether it went well

  Region& region(std::size_t size, std::uint32_t fill = 0, tpt::Rights rights = kAllRights) {
    return regions.emplace_back(table, size, fill, rights, kPd);
  }
  static rdmap::Sge sge(const Region& r, std::uint64_t offset, std::uint32_t length) {
    return {r.at(offset), length, r.stag};
  }
  void on_moved(std::uint32_t token, bool ok) override { moved.emplace_back(token, ok); }
};

}  // namespace rnic::test
