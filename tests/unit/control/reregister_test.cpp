// Regions that become others: what is asked for, what is left when it cannot be had.
#include <sys/mman.h>

#include <optional>

#include "kit/server_world.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

constexpr std::uint32_t kLocal = RNIC_ACCESS_LOCAL_READ | RNIC_ACCESS_LOCAL_WRITE;

struct Scene {
  Daemon daemon;
  App app{daemon};
  std::uint32_t pd = app.pd();
  std::uint64_t words[4] = {};
  rnic_reg_mr_reply region = app.reg(pd, words, sizeof words, kLocal | RNIC_ACCESS_WINDOW_BIND).as<rnic_reg_mr_reply>();
  tpt::Table& table = *daemon.machine.devices[0]->table;

  rnic_rereg_mr to(std::uint32_t access = kLocal) {
    rnic_rereg_mr body{};
    body.mr = region.mr;
    body.to.pd = pd;
    body.to.access = access;
    body.to.start = body.to.iova = reinterpret_cast<std::uintptr_t>(words);
    body.to.length = sizeof words;
    body.to.key = 0x77;
    return body;
  }
  Answer ask(const rnic_rereg_mr& body, const std::vector<int>& fds = {}) { return app.ask(RNIC_REREG_MR, body, fds); }
  std::optional<tpt::StagInfo> info() const { return table.query(Stag{region.stag}); }
};

}  // namespace

TEST_CASE("V-VB-22: a reregistered region is all that was asked for, in its old place",
          "[control][reregister][V-VB-22][V-MR-05][V-STAG-02][V-STAG-03]") {
  Scene s;
  auto body = s.to(kLocal | RNIC_ACCESS_REMOTE_READ);
  body.to.pd = s.app.pd();
  body.to.start += 8;
  body.to.length = 16;
  body.to.iova = 0x5000;
  const auto reply = s.ask(body).as<rnic_reg_mr_reply>();
  CHECK(reply.mr == s.region.mr);
  CHECK(reply.stag == ((s.region.stag & ~0xFFu) | 0x77));
  CHECK(reply.rung == RNIC_RUNG_REMOTE_COPY);
  const auto info = s.info();
  REQUIRE(info);
  CHECK(info->valid);
  CHECK(info->base == 0x5000);
  CHECK(info->size == 16);
  CHECK(info->memory.address == body.to.start);
  CHECK(static_cast<std::uint32_t>(info->rights) == body.to.access);
  // The domains: one is free, the other has it.
  CHECK(s.app.by_handle(RNIC_DEALLOC_PD, s.pd).status == 0);
  CHECK(s.app.by_handle(RNIC_DEALLOC_PD, body.to.pd).status == EBUSY);
  CHECK(s.app.by_handle(RNIC_DEREG_MR, s.region.mr).status == 0);
  CHECK(s.app.by_handle(RNIC_DEALLOC_PD, body.to.pd).status == 0);
  CHECK(s.daemon.machine.devices[0]->stags.used() == 0);
}

TEST_CASE("V-MR-07: a reregistration that fails leaves nothing but the handle",
          "[control][reregister][V-MR-07][V-IS-31][V-IS-30][V-IS-29]") {
  Scene s;
  auto body = s.to();
  SECTION("for its rights") { body.to.access = RNIC_ACCESS_REMOTE_READ; }
  SECTION("for a right that there is not") { body.to.access |= 0x100; }
  SECTION("for its domain") { body.to.pd += 77; }
  SECTION("for its length") { body.to.length = 0; }
  SECTION("for the end of all memory") { body.to.start = ~std::uint64_t{0}; }
  SECTION("for the end of all offsets") { body.to.iova = ~std::uint64_t{0}; }
  SECTION("as its application cannot have it") { body.impossible = 1; }
  CHECK(s.ask(body).status == EINVAL);
  CHECK_FALSE(s.info());
  CHECK(s.table.used() == 0);
  CHECK(s.app.by_handle(RNIC_DEALLOC_PD, s.pd).status == 0);
  // The handle is good for one thing more; until then it counts.
  CHECK(s.daemon.machine.devices[0]->stags.used() == 1);
  s.pd = s.app.pd();
  CHECK(s.ask(s.to()).status == EINVAL);
  CHECK(s.app.by_handle(RNIC_DEREG_MR, s.region.mr).status == 0);
  CHECK(s.app.by_handle(RNIC_DEREG_MR, s.region.mr).status == EINVAL);
  CHECK(s.daemon.machine.devices[0]->stags.used() == 0);
  CHECK(s.daemon.machine.devices[0]->counts.regions == 0);
}

TEST_CASE("V-MR-06: with a window bound nothing is reregistered, whatever else is wrong with it",
          "[control][reregister][V-MR-06][V-MR-07][V-IS-36]") {
  Scene s;
  const auto window = s.app.ask(RNIC_ALLOC_MW, rnic_alloc_mw{s.pd, 0, RNIC_WINDOW_OF_QP, 0}).as<rnic_alloc_mw_reply>();
  const auto before = s.info();
  REQUIRE(before);
  REQUIRE(s.table.bind(Stag{window.stag}, 1, Stag{s.region.stag}, before->pd, QpNumber{5}, tpt::Rights::remote_read,
                       before->base, 8));
  auto body = s.to();
  SECTION("good") {}
  SECTION("to a domain that there is not") { body.to.pd += 77; }
  SECTION("with bad rights") { body.to.access = RNIC_ACCESS_REMOTE_READ; }
  SECTION("impossible") { body.impossible = 1; }
  CHECK(s.ask(body).status == EBUSY);
  const auto after = s.info();
  REQUIRE(after);
  CHECK(after->valid);
  CHECK(after->stag == before->stag);
  CHECK(after->rights == before->rights);
  CHECK(s.app.by_handle(RNIC_DEALLOC_PD, s.pd).status == EBUSY);
  REQUIRE(s.app.by_handle(RNIC_DEALLOC_MW, window.mw).status == 0);
  CHECK(s.ask(s.to()).status == 0);
}

TEST_CASE("V-IS-35: what is no region of the context is not reregistered",
          "[control][reregister][V-IS-35][V-RNIC-01]") {
  Scene s;
  App other(s.daemon);
  for (int i = 0; i < 10; ++i) other.pd();
  auto body = s.to();
  body.to.pd = other.pd();
  CHECK(other.ask(RNIC_REREG_MR, body).status == EINVAL);
  body = s.to();
  body.mr = s.pd;
  CHECK(s.ask(body).status == EINVAL);
  body.mr = s.app.ask(RNIC_ALLOC_MW, rnic_alloc_mw{s.pd, 0, RNIC_WINDOW_OF_QP, 0}).as<rnic_alloc_mw_reply>().mw;
  CHECK(s.ask(body).status == EINVAL);
  CHECK(s.info()->valid);
}

TEST_CASE("a region's file is mapped in its old one's place, and one that cannot be is copied from",
          "[control][reregister]") {
  Scene s;
  const control::Descriptor file(memfd_create("shared", MFD_CLOEXEC));
  REQUIRE(ftruncate(file.get(), 8192) == 0);
  REQUIRE(pwrite(file.get(), "here", 4, 4096) == 4);
  auto body = s.to();
  body.to.length = 4096;
  body.to.shared = RNIC_MEMORY_SHARED;
  body.to.shared_offset = 4096;
  CHECK(s.ask(body, {file.get()}).as<rnic_reg_mr_reply>().rung == RNIC_RUNG_SHARED);
  REQUIRE(s.info()->memory.direct != nullptr);
  CHECK(std::memcmp(s.info()->memory.direct, "here", 4) == 0);
  CHECK(s.daemon.machine.mappings.used() == 1);
  body.to.shared_offset = 0;
  CHECK(s.ask(body, {file.get()}).as<rnic_reg_mr_reply>().rung == RNIC_RUNG_SHARED);
  CHECK(std::memcmp(s.info()->memory.direct, "here", 4) != 0);
  CHECK(s.daemon.machine.mappings.used() == 1);
  // More than there is of it.
  body.to.length = 8193;
  CHECK(s.ask(body, {file.get()}).as<rnic_reg_mr_reply>().rung == RNIC_RUNG_REMOTE_COPY);
  CHECK(s.info()->memory.direct == nullptr);
  CHECK(s.daemon.machine.mappings.used() == 0);
}
