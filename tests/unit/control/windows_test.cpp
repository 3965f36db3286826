// Memory windows: how many, whose, and what is shown of them.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "control/limits.hpp"
#include "control/show.hpp"
#include "kit/server_world.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

rnic_alloc_mw window_of(std::uint32_t pd, std::uint32_t scope = RNIC_WINDOW_OF_QP) { return {pd, 0x42, scope, 0}; }

rnic_alloc_mw_reply alloc(App& app, std::uint32_t pd, std::uint32_t scope = RNIC_WINDOW_OF_QP) {
  return app.ask(RNIC_ALLOC_MW, window_of(pd, scope)).as<rnic_alloc_mw_reply>();
}

}  // namespace

TEST_CASE("V-VB-24: a window is allocated Invalid, of its domain, and of a scope that there is",
          "[control][windows][V-VB-24][V-MW-01][V-STAG-06][V-IS-07]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd();
  tpt::Table& table = *daemon.machine.devices[0]->table;
  for (const auto scope : {RNIC_WINDOW_OF_QP, RNIC_WINDOW_OF_PD}) {
    const auto made = alloc(app, pd, scope);
    CHECK((made.stag & 0xFF) == 0x42);
    CHECK(made.stag >> 8 != 0);
    const auto info = table.query(Stag{made.stag});
    REQUIRE(info);
    CHECK(info->window);
    CHECK_FALSE(info->valid);
    CHECK((info->scope == tpt::WindowScope::pd) == (scope == RNIC_WINDOW_OF_PD));
  }
  CHECK(app.ask(RNIC_ALLOC_MW, window_of(pd, RNIC_WINDOW_OF_PD + 1)).status == EINVAL);
  CHECK(app.ask(RNIC_ALLOC_MW, window_of(pd + 77)).status == EINVAL);
  CHECK(table.used() == 2);
  CHECK(app.by_handle(RNIC_DEALLOC_PD, pd).status == EBUSY);
}

TEST_CASE("V-QRN-19: a process alone has as many windows as the device says, and no more",
          "[control][windows][V-QRN-19]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd();
  rnic_open_context_reply opened{};
  std::memcpy(&opened, app.opened.body.data(), sizeof opened);
  const std::uint32_t most = opened.attributes.max_mw;
  REQUIRE(most >= 65'536);
  // By the shares: to ask for each would take long.
  auto& stags = daemon.machine.devices[0]->stags;
  const auto holder = control::holder_of({getpid(), getuid(), {}});
  {
    const control::Share others = stags.take(holder, most - 1);
    REQUIRE(others);
    const auto last = alloc(app, pd).mw;
    CHECK(app.ask(RNIC_ALLOC_MW, window_of(pd)).status == ENOMEM);
    std::uint64_t word = 0;
    CHECK(app.reg(pd, &word, sizeof word, RNIC_ACCESS_LOCAL_READ).status == ENOMEM);
    CHECK(app.by_handle(RNIC_DEALLOC_MW, last).status == 0);
    CHECK(app.ask(RNIC_ALLOC_MW, window_of(pd)).status == 0);
  }
  CHECK(stags.used() == 1);
}

TEST_CASE("V-RNIC-12: thousands of windows go with their process, bound or not, and leave nothing",
          "[control][windows][V-RNIC-12][V-RNIC-09]") {
  Daemon daemon;
  tpt::Table& table = *daemon.machine.devices[0]->table;
  {
    App app(daemon);
    const auto pd = app.pd();
    const QpNumber qp{app.qp(pd, app.cq())};
    std::uint64_t word = 0;
    const Stag region{
        app.reg(pd, &word, sizeof word, RNIC_ACCESS_LOCAL_READ | RNIC_ACCESS_LOCAL_WRITE | RNIC_ACCESS_WINDOW_BIND)
            .as<rnic_reg_mr_reply>()
            .stag};
    const PdId pd_id = table.query(region)->pd;
    for (int i = 0; i < 5000; ++i) {
      const Stag window{alloc(app, pd, i % 2 == 0 ? RNIC_WINDOW_OF_QP : RNIC_WINDOW_OF_PD).stag};
      if (i % 3 == 0) continue;
      REQUIRE(table.bind(window, 1, region, pd_id, qp, tpt::Rights::remote_write,
                         reinterpret_cast<std::uintptr_t>(&word), sizeof word));
    }
    CHECK(table.query(region)->windows_bound == 3333);
    CHECK(daemon.machine.devices[0]->counts.windows == 5000);
  }
  daemon.settle();
  CHECK(table.used() == 0);
  CHECK(daemon.machine.devices[0]->counts.windows == 0);
  CHECK(daemon.machine.devices[0]->counts.regions == 0);
  CHECK(daemon.machine.devices[0]->stags.used() == 0);
}

TEST_CASE("what is shown of a window: where it is bound, and no key", "[control][windows]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd();
  const auto qp = app.qp(pd, app.cq());
  std::uint64_t words[2] = {};
  const auto region =
      app.reg(pd, words, sizeof words, RNIC_ACCESS_LOCAL_READ | RNIC_ACCESS_LOCAL_WRITE | RNIC_ACCESS_WINDOW_BIND)
          .as<rnic_reg_mr_reply>();
  const auto unbound = alloc(app, pd);
  const auto bound = alloc(app, pd);
  const auto domain = alloc(app, pd, RNIC_WINDOW_OF_PD);
  tpt::Table& table = *daemon.machine.devices[0]->table;
  const PdId pd_id = table.query(Stag{region.stag})->pd;
  for (const auto& each : {bound, domain})
    REQUIRE(table.bind(Stag{each.stag}, 1, Stag{region.stag}, pd_id, QpNumber{qp}, tpt::Rights::remote_write,
                       reinterpret_cast<std::uintptr_t>(&words[1]), 8));

  rnic_show what{};
  std::memcpy(what.what, "mw", 2);
  Client admin(daemon, RNIC_CLIENT_ADMIN, "");
  const auto answer = admin.ask(RNIC_SHOW, what);
  std::string text(answer.as<rnic_handle_reply>().handle, ' ');
  REQUIRE(pread(answer.fds.at(0).get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  const auto rows = nlohmann::json::parse(text)["mw"];
  REQUIRE(rows.size() == 3);
  const auto row_of = [&](std::uint32_t mw) {
    for (const auto& row : rows)
      if (row["mw"] == mw) return row;
    return nlohmann::json();
  };
  CHECK(row_of(unbound.mw)["bound"] == false);
  CHECK(row_of(unbound.mw)["mr"].is_null());
  CHECK(row_of(bound.mw)["mr"] == region.mr);
  CHECK(row_of(bound.mw)["qp"] == qp);
  CHECK(row_of(bound.mw)["type"] == 2);
  CHECK(row_of(bound.mw)["length"] == 8);
  CHECK(row_of(bound.mw)["rights"] == "rw");
  CHECK(row_of(domain.mw)["type"] == 1);
  CHECK(row_of(domain.mw)["mr"] == region.mr);
  CHECK(row_of(domain.mw)["qp"].is_null());
  char index[16];
  std::snprintf(index, sizeof index, "0x%x", bound.stag >> 8);
  CHECK(row_of(bound.mw)["stag_index"] == index);
}
