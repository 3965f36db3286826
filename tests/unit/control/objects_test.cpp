// Verbs objects: what can be made, what cannot, and what is in use.
#include <sys/stat.h>
#include <sys/syscall.h>

#include <fstream>
#include <string>
#include <vector>

#include "control/async_events.hpp"
#include "control/limits.hpp"
#include "kit/server_world.hpp"

using namespace rnic;
using namespace rnic::test;

// ---- protection domains -----------------------------------------------------------------------

TEST_CASE("V-RD-03: read_sink of a device is its queue pairs'", "[control][V-RD-03]") {
  Daemon daemon(
      "sched_fifo = false\n"
      "[[device]]\nport = \"pair:t\"\naddress = \"127.0.9.1/24\"\nread_sink = \"strict\"\n"
      "[[device]]\nport = \"pair:t\"\naddress = \"127.0.9.2/24\"\n");
  for (const bool strict : {true, false}) {
    App app(daemon, strict ? "rnic0" : "rnic1");
    const auto number = app.qp(app.pd(), app.cq());
    CHECK(daemon.machine.qps.at(number)->qp->config().strict_read_sink == strict);
  }
}

TEST_CASE("V-PD-04: a PD in use cannot be deallocated", "[control][objects][V-PD-04][V-IS-08]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd();
  int word = 0;

  const auto mr = app.reg(pd, &word, sizeof word, RNIC_ACCESS_LOCAL_READ).as<rnic_reg_mr_reply>().mr;
  CHECK(app.by_handle(RNIC_DEALLOC_PD, pd).status == EBUSY);
  REQUIRE(app.by_handle(RNIC_DEREG_MR, mr).status == 0);

  const auto srq = app.try_srq(pd, 1).as<rnic_create_srq_reply>().srq;
  CHECK(app.by_handle(RNIC_DEALLOC_PD, pd).status == EBUSY);
  REQUIRE(app.by_handle(RNIC_DESTROY_SRQ, srq).status == 0);

  const auto number = app.qp(pd, app.cq());
  CHECK(app.by_handle(RNIC_DEALLOC_PD, pd).status == EBUSY);
  REQUIRE(app.by_handle(RNIC_DESTROY_QP, number).status == 0);

  rnic_alloc_mw window{};
  window.pd = pd;
  const auto mw = app.ask(RNIC_ALLOC_MW, window).as<rnic_alloc_mw_reply>().mw;
  CHECK(app.by_handle(RNIC_DEALLOC_PD, pd).status == EBUSY);
  REQUIRE(app.by_handle(RNIC_DEALLOC_MW, mw).status == 0);

  CHECK(app.by_handle(RNIC_DEALLOC_PD, pd).status == 0);
  CHECK(app.by_handle(RNIC_DEALLOC_PD, pd).status == EINVAL);
}

TEST_CASE("V-PD-03: PDs of a device have different ids", "[control][objects][V-PD-03]") {
  Daemon daemon;
  App one(daemon), other(daemon);
  const auto a = one.pd(), b = one.pd(), c = other.pd();
  int word = 0;
  const auto pd_of = [&](App& app, std::uint32_t pd) {
    const Stag stag{app.reg(pd, &word, sizeof word, RNIC_ACCESS_LOCAL_READ).as<rnic_reg_mr_reply>().stag};
    return daemon.machine.devices[0]->table->query(stag)->pd.value;
  };
  const auto first = pd_of(one, a), second = pd_of(one, b), third = pd_of(other, c);
  CHECK(first != second);
  CHECK(first != third);
  CHECK(second != third);
}

// ---- regions ----------------------------------------------------------------------------------

TEST_CASE("V-ACC-01: remote rights need the local right of their kind", "[control][objects][V-ACC-01][V-IS-31]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd();
  std::uint64_t word = 0;
  const auto with = [&](std::uint32_t access) { return app.reg(pd, &word, sizeof word, access).status; };
  constexpr auto lr = RNIC_ACCESS_LOCAL_READ, lw = RNIC_ACCESS_LOCAL_WRITE, rr = RNIC_ACCESS_REMOTE_READ,
                 rw = RNIC_ACCESS_REMOTE_WRITE;
  CHECK(with(0) == EINVAL);
  CHECK(with(rr) == EINVAL);
  CHECK(with(rw) == EINVAL);
  CHECK(with(lr) == 0);
  CHECK(with(lr | rr) == 0);
  CHECK(with(lr | rw) == EINVAL);
  CHECK(with(lr | rr | rw) == EINVAL);
  CHECK(with(lw) == 0);
  CHECK(with(lw | rr) == EINVAL);
  CHECK(with(lw | rw) == 0);
  CHECK(with(lr | lw | rr | rw) == 0);
  CHECK(with(lr | 0x80) == EINVAL);
}

TEST_CASE("V-MR-02: a registration that fails uses nothing", "[control][objects][V-MR-02]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd();
  char octet = 0;
  CHECK(app.reg(pd, &octet, 0, RNIC_ACCESS_LOCAL_READ).status == EINVAL);
  CHECK(app.reg(pd + 1, &octet, 1, RNIC_ACCESS_LOCAL_READ).status == EINVAL);
  CHECK(app.reg(pd, reinterpret_cast<void*>(~std::uintptr_t{0}), 2, RNIC_ACCESS_LOCAL_READ).status == EINVAL);
  CHECK(daemon.machine.devices[0]->table->used() == 0);
  CHECK(app.by_handle(RNIC_DEALLOC_PD, pd).status == 0);
}

TEST_CASE("V-STAG-02: a region has the key that was asked for", "[control][objects][V-STAG-02]") {
  Daemon daemon;
  App app(daemon);
  char octet = 0;
  rnic_reg_mr body{};
  body.pd = app.pd();
  body.access = RNIC_ACCESS_LOCAL_READ;
  body.start = reinterpret_cast<std::uintptr_t>(&octet);
  body.length = 1;
  body.key = 0xA7;
  const auto reply = app.ask(RNIC_REG_MR, body).as<rnic_reg_mr_reply>();
  CHECK((reply.stag & 0xFF) == 0xA7);
  CHECK(reply.stag >> 8 != 0);
  CHECK(reply.rung == RNIC_RUNG_REMOTE_COPY);
}

namespace {
Answer reg_shared(App& app, std::uint32_t pd, int fd, std::uint64_t offset, std::uint64_t length,
                  std::uint32_t access = RNIC_ACCESS_LOCAL_READ | RNIC_ACCESS_LOCAL_WRITE) {
  rnic_reg_mr body{};
  body.pd = pd;
  body.access = access;
  body.start = body.iova = 0x10000;
  body.length = length;
  body.shared = 1;
  body.shared_offset = offset;
  return app.ask(RNIC_REG_MR, body, {fd});
}

// A region that begins and ends in the middle of a page.
Answer reg_swapped(App& app, std::uint32_t pd, int fd, std::uint64_t offset, std::uint64_t length) {
  rnic_reg_mr body{};
  body.pd = pd;
  body.access = RNIC_ACCESS_LOCAL_READ | RNIC_ACCESS_LOCAL_WRITE;
  body.start = body.iova = 0x10800;
  body.length = length;
  body.shared = RNIC_MEMORY_SWAPPED;
  body.shared_offset = offset;
  return app.ask(RNIC_REG_MR, body, {fd});
}

control::Descriptor sealed_file(std::size_t size, int seals) {
  control::Descriptor file(memfd_create("swapped", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(ftruncate(file.get(), static_cast<off_t>(size)) == 0);
  REQUIRE(fcntl(file.get(), F_ADD_SEALS, seals) == 0);
  return file;
}
}  // namespace

TEST_CASE("the whole pages of a swapped region are mapped, and reached there", "[control][objects][swap]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd();
  const auto file = sealed_file(3 * 4096, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  REQUIRE(pwrite(file.get(), "here", 4, 4096) == 4);
  // 0x10800 to 0x14000: the pages from 0x11000 on, the file's from its second.
  const auto reply = reg_swapped(app, pd, file.get(), 4096, 0x2800).as<rnic_reg_mr_reply>();
  CHECK(reply.rung == RNIC_RUNG_SWAPPED);
  const auto info = daemon.machine.devices[0]->table->query(Stag{reply.stag});
  REQUIRE(info);
  CHECK(info->memory.whole_pages);
  CHECK(std::memcmp(info->memory.direct + 0x800, "here", 4) == 0);
  CHECK(app.by_handle(RNIC_DEREG_MR, reply.mr).status == 0);
}

TEST_CASE("swapped pages are taken only from a file that keeps its size and holds them",
          "[control][objects][V-SEC-13]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd();
  const auto good = sealed_file(2 * 4096, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  CHECK(reg_swapped(app, pd, good.get(), 0, 0x2800).status == 0);
  CHECK(reg_swapped(app, pd, good.get(), 0, 0x3800).status == EINVAL);  // one page more than it has
  CHECK(reg_swapped(app, pd, good.get(), 0, 0x700).status == EINVAL);   // no whole page
  const auto shrinks = sealed_file(2 * 4096, F_SEAL_GROW | F_SEAL_SEAL);
  CHECK(reg_swapped(app, pd, shrinks.get(), 0, 0x2800).status == EINVAL);
}

namespace {
std::size_t mappings_of(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:" + name) != std::string::npos ? 1 : 0;
  return count;
}

const std::byte* mapped_at(Daemon& daemon, std::uint32_t stag) {
  const auto info = daemon.machine.devices[0]->table->query(Stag{stag});
  REQUIRE(info);
  return info->memory.direct;
}
}  // namespace

TEST_CASE("swapped regions that share a file share its mapping, until the last is gone", "[control][objects][swap]") {
  Daemon daemon;
  App app(daemon);
  App other(daemon);
  const auto pd = app.pd();
  const auto file = sealed_file(64 * 4096, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  std::vector<rnic_reg_mr_reply> regions;
  for (std::uint64_t page = 0; page < 60; page += 3) {
    REQUIRE(pwrite(file.get(), &page, sizeof page, static_cast<off_t>(page * 4096)) == sizeof page);
    regions.push_back(reg_swapped(app, pd, file.get(), page * 4096, 0x2800).as<rnic_reg_mr_reply>());
    CHECK(regions.back().rung == RNIC_RUNG_SWAPPED);
  }
  CHECK(mappings_of("swapped") == 1);
  for (std::size_t i = 0; i < regions.size(); ++i) {
    const std::uint64_t page = 3 * i;
    CHECK(std::memcmp(mapped_at(daemon, regions[i].stag) + 0x800, &page, sizeof page) == 0);
  }
  // Another application's context has its own.
  const auto others = reg_swapped(other, other.pd(), file.get(), 4096, 0x2800).as<rnic_reg_mr_reply>();
  CHECK(mappings_of("swapped") == 2);
  CHECK(other.by_handle(RNIC_DEREG_MR, others.mr).status == 0);
  CHECK(mappings_of("swapped") == 1);
  while (regions.size() > 1) {
    const std::size_t at = regions.size() * 7 / 13;
    CHECK(app.by_handle(RNIC_DEREG_MR, regions[at].mr).status == 0);
    regions.erase(regions.begin() + static_cast<std::ptrdiff_t>(at));
  }
  CHECK(mappings_of("swapped") == 1);
  CHECK(app.by_handle(RNIC_DEREG_MR, regions[0].mr).status == 0);
  CHECK(mappings_of("swapped") == 0);
  CHECK(reg_swapped(app, pd, file.get(), 0, 0x2800).as<rnic_reg_mr_reply>().rung == RNIC_RUNG_SWAPPED);
  CHECK(mappings_of("swapped") == 1);
}

TEST_CASE("a region that may not be written shares no mapping with one that may", "[control][objects][V-SEC-13]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd();
  const auto file = sealed_file(8 * 4096, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  rnic_reg_mr body{};
  body.pd = pd;
  body.access = RNIC_ACCESS_LOCAL_READ;
  body.start = body.iova = 0x10000;
  body.length = 8192;
  body.shared = RNIC_MEMORY_SWAPPED;
  const auto read = app.ask(RNIC_REG_MR, body, {file.get()}).as<rnic_reg_mr_reply>();
  const auto written = reg_swapped(app, pd, file.get(), 8192, 0x2800).as<rnic_reg_mr_reply>();
  CHECK(mappings_of("swapped") == 2);
  std::ifstream maps("/proc/self/maps");
  std::size_t read_only = 0;
  for (std::string line; std::getline(maps, line);)
    read_only += line.find("memfd:swapped") != std::string::npos && line.find(" r--s ") != std::string::npos ? 1 : 0;
  CHECK(read_only == 1);
  CHECK(read.rung == RNIC_RUNG_SWAPPED);
  CHECK(written.rung == RNIC_RUNG_SWAPPED);
}

TEST_CASE("one process has seven eighths of the mappings that there are, by all its contexts",
          "[control][objects][swap]") {
  Daemon daemon;
  App app(daemon);
  App other(daemon);
  const auto pd = app.pd();
  const auto other_pd = other.pd();
  const control::Descriptor file(memfd_create("shared", MFD_CLOEXEC));
  REQUIRE(ftruncate(file.get(), 4096) == 0);
  const std::size_t most = shm::application_mappings_max() * 7 / 8;
  std::uint32_t last = 0;
  for (std::size_t i = 0; i < most; ++i) {
    if (i % 2 != 0) {
      REQUIRE(reg_shared(other, other_pd, file.get(), 0, 4096).status == 0);
      continue;
    }
    const auto reply = reg_shared(app, pd, file.get(), 0, 4096);
    REQUIRE(reply.status == 0);
    last = reply.as<rnic_reg_mr_reply>().mr;
  }
  CHECK(reg_shared(app, pd, file.get(), 0, 4096).status == ENOMEM);
  CHECK(reg_shared(other, other_pd, file.get(), 0, 4096).status == ENOMEM);
  CHECK(app.by_handle(RNIC_DEREG_MR, last).status == 0);
  CHECK(reg_shared(app, pd, file.get(), 0, 4096).status == 0);
}

TEST_CASE("memory in a memfd is mapped, and reached there", "[control][objects]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd();
  const control::Descriptor file(memfd_create("shared", MFD_CLOEXEC));
  REQUIRE(ftruncate(file.get(), 8192) == 0);
  REQUIRE(pwrite(file.get(), "here", 4, 100) == 4);
  const std::size_t before = open_descriptors();
  const auto reply = reg_shared(app, pd, file.get(), 100, 4).as<rnic_reg_mr_reply>();
  CHECK(reply.rung == RNIC_RUNG_SHARED);
  CHECK(open_descriptors() == before);
  const auto info = daemon.machine.devices[0]->table->query(Stag{reply.stag});
  REQUIRE(info);
  REQUIRE(info->memory.direct != nullptr);
  CHECK(std::memcmp(info->memory.direct, "here", 4) == 0);
  CHECK(app.by_handle(RNIC_DEREG_MR, reply.mr).status == 0);
}

TEST_CASE("a shared file must hold the whole range", "[control][objects][V-SEC-13][W-RDMAP-58]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd();
  const control::Descriptor file(memfd_create("shared", MFD_CLOEXEC));
  REQUIRE(ftruncate(file.get(), 8192) == 0);
  CHECK(reg_shared(app, pd, file.get(), 4096, 4096).status == 0);
  CHECK(reg_shared(app, pd, file.get(), 4096, 4097).status == EINVAL);
  CHECK(reg_shared(app, pd, file.get(), 8193, 1).status == EINVAL);
  CHECK(reg_shared(app, pd, file.get(), ~std::uint64_t{0}, 2).status == EINVAL);
}

TEST_CASE("V-SEC-13: a shared file that cannot be written is no memory for writing",
          "[control][objects][V-SEC-13][W-RDMAP-58]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd();
  const control::Descriptor file(memfd_create("shared", MFD_CLOEXEC));
  REQUIRE(ftruncate(file.get(), 4096) == 0);
  const control::Descriptor reading(
      open(("/proc/self/fd/" + std::to_string(file.get())).c_str(), O_RDONLY | O_CLOEXEC));
  REQUIRE(reading);
  CHECK(reg_shared(app, pd, reading.get(), 0, 4096).status == EACCES);
  CHECK(reg_shared(app, pd, reading.get(), 0, 4096, RNIC_ACCESS_LOCAL_READ).status == 0);
}

TEST_CASE("what is no file in memory is not mapped", "[control][objects]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd();
  const control::Descriptor program(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  CHECK(reg_shared(app, pd, program.get(), 0, 16, RNIC_ACCESS_LOCAL_READ).status == EINVAL);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  CHECK(reg_shared(app, pd, ends[0], 0, 16, RNIC_ACCESS_LOCAL_READ).status == EINVAL);
  close(ends[0]);
  close(ends[1]);
  rnic_reg_mr none{};
  none.pd = pd;
  none.access = RNIC_ACCESS_LOCAL_READ;
  none.length = 1;
  none.shared = 1;
  CHECK(app.ask(RNIC_REG_MR, none).status == EINVAL);
}

// ---- completion queues ------------------------------------------------------------------------

TEST_CASE("V-CQ-01: a CQ has at least the entries asked for, and tells how many",
          "[control][objects][V-CQ-01][V-CQ-02][V-IS-09]") {
  Daemon daemon;
  App app(daemon);
  CHECK(app.try_cq(1).as<rnic_create_cq_reply>().entries == 1);
  CHECK(app.try_cq(100).as<rnic_create_cq_reply>().entries == 128);
  CHECK(app.try_cq(control::kCqesMax).as<rnic_create_cq_reply>().entries == control::kCqesMax);
  CHECK(app.try_cq(control::kCqesMax + 1).status == EINVAL);
  CHECK(app.try_cq(0).status == EINVAL);
}

TEST_CASE("V-CQ-03: an unknown channel or vector is refused", "[control][objects][V-CQ-03][V-IS-14]") {
  Daemon daemon;
  App app(daemon);
  CHECK(app.try_cq(1, 0x1234567).status == EINVAL);
  rnic_create_cq body{};
  body.entries_min = 1;
  body.vector = control::kCompletionVectors;
  CHECK(app.ask(RNIC_CREATE_CQ, body).status == EINVAL);
}

TEST_CASE("V-CQ-09: a CQ in use cannot be destroyed", "[control][objects][V-CQ-09][V-IS-12]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd(), cq = app.cq();
  const auto number = app.qp(pd, cq);
  CHECK(app.by_handle(RNIC_DESTROY_CQ, cq).status == EBUSY);
  REQUIRE(app.by_handle(RNIC_DESTROY_QP, number).status == 0);
  CHECK(app.by_handle(RNIC_DESTROY_CQ, cq).status == 0);
  CHECK(app.by_handle(RNIC_DESTROY_CQ, cq).status == EINVAL);
}

TEST_CASE("V-CQ-08: a CQ is resized, but not below what is in it", "[control][objects][V-CQ-08][V-CQ-07][V-IS-10]") {
  Daemon daemon;
  App app(daemon);
  const auto cq = app.cq(4);
  control::Cq* object = daemon.machine.cqs_by_cookie.begin()->second;
  for (int i = 0; i < 3; ++i) REQUIRE(object->queue->push(rnic_cqe{}));
  rnic_resize_cq body{cq, 2};
  CHECK(app.ask(RNIC_RESIZE_CQ, body).status == EINVAL);
  CHECK(object->queue->unpolled() == 3);
  body.entries_min = 100;
  CHECK(app.ask(RNIC_RESIZE_CQ, body).as<rnic_resize_cq_reply>().entries == 128);
  CHECK(object->queue->unpolled() == 3);
  body.entries_min = control::kCqesMax + 1;
  CHECK(app.ask(RNIC_RESIZE_CQ, body).status == EINVAL);
}

// ---- arenas -----------------------------------------------------------------------------------

namespace {
ino_t file_behind(const Answer& answer) {
  REQUIRE(answer.fds.size() == 1);
  struct stat status {};
  REQUIRE(fstat(answer.fds[0].get(), &status) == 0);
  return status.st_ino;
}
}  // namespace

TEST_CASE("memory that a failed command was the first to take is announced when it is used", "[control][objects]") {
  Daemon daemon;
  App app(daemon);
  // Two queues that fill an arena each, and a descriptor for one.
  auto request = app.qp_request(app.pd(), app.cq());
  request.send_wr_min = request.recv_wr_min = control::kWorkRequestsMax;
  request.inline_max = control::kInlineMax;
  request.recv_sge_max = control::kSgesMax;
  auto& descriptors = daemon.machine.descriptors;
  const auto before = descriptors.used();
  descriptors.set_total(before + 3);  // of which it may not have them all (shares.hpp)
  REQUIRE(app.ask(RNIC_CREATE_QP, request).status == EMFILE);
  REQUIRE(descriptors.used() == before + 1);
  const auto first = app.try_cq(control::kCqesMax);  // as large as the first of the two
  CHECK(first.as<rnic_create_cq_reply>().area.arena_is_new == 1);
  CHECK(first.fds.size() == 1);
  CHECK(descriptors.used() == before + 1);
  REQUIRE(app.by_handle(RNIC_DESTROY_CQ, first.as<rnic_create_cq_reply>().cq).status == 0);
  const auto second = app.try_cq(control::kCqesMax);
  CHECK(second.as<rnic_create_cq_reply>().area.arena_is_new == 0);
  CHECK(second.as<rnic_create_cq_reply>().area.arena == first.as<rnic_create_cq_reply>().area.arena);
  CHECK(second.fds.empty());
}

TEST_CASE("an arena's descriptor that an application lost is sent again when it asks", "[control][objects]") {
  Daemon daemon;
  App app(daemon), other(daemon);
  const auto made = app.try_cq(4);
  const auto area = made.as<rnic_create_cq_reply>().area;
  REQUIRE(area.arena_is_new == 1);
  for (int i = 0; i < 2; ++i) {
    const auto again = app.by_handle(RNIC_MAP_ARENA, area.arena);
    const auto whole = again.as<rnic_area>();
    CHECK(file_behind(again) == file_behind(made));
    CHECK((whole.arena == area.arena && whole.arena_is_new == 1 && whole.arena_size == area.arena_size));
    CHECK((whole.offset == 0 && whole.length == area.arena_size));
  }
  CHECK(app.by_handle(RNIC_MAP_ARENA, area.arena + 1).status == EINVAL);
  CHECK(other.by_handle(RNIC_MAP_ARENA, area.arena).status == EINVAL);  // it has none
}

TEST_CASE("a ring that would go to a new arena stays where it is until the arena is there", "[control][objects]") {
  Daemon daemon;
  App app(daemon);
  const auto cq = app.cq(4);
  control::Cq* object = daemon.machine.cqs_by_cookie.begin()->second;
  for (int i = 0; i < 3; ++i) REQUIRE(object->queue->push(rnic_cqe{}));
  const auto octets = object->piece.offset();
  const rnic_resize_cq body{cq, 131'072};
  const auto first = app.ask(RNIC_RESIZE_CQ, body);
  const auto new_arena = first.as<rnic_resize_cq_reply>();
  CHECK(new_arena.entries == 0);
  CHECK(new_arena.area.arena_is_new == 1);
  CHECK(first.fds.size() == 1);
  CHECK(object->piece.offset() == octets);
  CHECK((object->queue->unpolled() == 3 && object->queue->size() == 4));

  const auto second = app.ask(RNIC_RESIZE_CQ, body);
  const auto resized = second.as<rnic_resize_cq_reply>();
  CHECK(resized.entries == 131'072);
  CHECK((resized.area.arena_is_new == 0 && resized.area.arena == new_arena.area.arena));
  CHECK(second.fds.empty());
  CHECK((object->queue->unpolled() == 3 && object->queue->size() == 131'072));
}

// ---- shared receive queues --------------------------------------------------------------------

TEST_CASE("V-SRQ-02: an SRQ has at least what was asked for", "[control][objects][V-SRQ-02][V-IS-15][V-IS-16]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd();
  const auto made = app.try_srq(pd, 100, 0, 3).as<rnic_create_srq_reply>();
  CHECK(made.entries == 128);
  CHECK(made.sge_max == 3);
  CHECK(made.stride % 64 == 0);
  CHECK(made.stride >= sizeof(rnic_rqe) + 3 * sizeof(rnic_sge));
  CHECK(app.try_srq(pd, control::kSrqWorkRequestsMax).status == 0);
  CHECK(app.try_srq(pd, control::kSrqWorkRequestsMax + 1).status == EINVAL);
  CHECK(app.try_srq(pd, 1, 0, control::kSgesMax).status == 0);
  CHECK(app.try_srq(pd, 1, 0, control::kSgesMax + 1).status == EINVAL);
  CHECK(app.try_srq(pd + 1, 1).status == EINVAL);
}

TEST_CASE("V-LIM-04: a limit above the SRQ's size is refused", "[control][objects][V-LIM-04][V-IS-17]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd();
  CHECK(app.try_srq(pd, 8, 9).status == EINVAL);
  const auto srq = app.try_srq(pd, 8, 8).as<rnic_create_srq_reply>().srq;
  CHECK(app.by_handle(RNIC_QUERY_SRQ, srq).as<rnic_query_srq_reply>().limit == 8);
  CHECK(app.ask(RNIC_MODIFY_SRQ, rnic_modify_srq{srq, 9}).status == EINVAL);
  CHECK(app.by_handle(RNIC_QUERY_SRQ, srq).as<rnic_query_srq_reply>().limit == 8);
  CHECK(app.ask(RNIC_MODIFY_SRQ, rnic_modify_srq{srq, 0}).status == 0);
  CHECK(app.by_handle(RNIC_QUERY_SRQ, srq).as<rnic_query_srq_reply>().limit == 0);
}

TEST_CASE("V-SRQ-21: an SRQ with a QP cannot be destroyed", "[control][objects][V-SRQ-21][V-IS-19]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd(), cq = app.cq();
  const auto srq = app.try_srq(pd, 8).as<rnic_create_srq_reply>().srq;
  const auto number = app.qp(pd, cq, srq);
  CHECK(app.by_handle(RNIC_DESTROY_SRQ, srq).status == EBUSY);
  REQUIRE(app.by_handle(RNIC_DESTROY_QP, number).status == 0);
  CHECK(app.by_handle(RNIC_DESTROY_SRQ, srq).status == 0);
  CHECK(app.by_handle(RNIC_DESTROY_SRQ, srq).status == EINVAL);
}

// ---- queue pairs ------------------------------------------------------------------------------

TEST_CASE("V-QP-02: queues are at least as deep as asked for, each by itself", "[control][objects][V-QP-02][V-QP-13]") {
  Daemon daemon;
  App app(daemon);
  auto body = app.qp_request(app.pd(), app.cq());
  body.send_wr_min = 100;
  body.recv_wr_min = 5;
  body.send_sge_max = 16;
  body.recv_sge_max = 3;
  body.inline_max = 512;
  const auto made = app.ask(RNIC_CREATE_QP, body).as<rnic_create_qp_reply>();
  CHECK(made.send_entries == 128);
  CHECK(made.recv_entries == 8);
  CHECK(made.send_sge_max >= 16);
  CHECK(made.recv_sge_max >= 3);
  CHECK(made.inline_max >= 512);
  CHECK(made.send_stride >= sizeof(rnic_sqe) + 512);
  CHECK(made.recv_stride >= sizeof(rnic_rqe) + 3 * sizeof(rnic_sge));
  CHECK(made.send_doorbell != made.recv_doorbell);
}

TEST_CASE("V-RNIC-08: nothing above what Query RNIC reports can be had",
          "[control][objects][V-RNIC-08][V-QRN-03][V-QRN-05][V-IS-15][V-IS-16]") {
  Daemon daemon;
  App app(daemon);
  const auto told = app.opened.as<rnic_open_context_reply>().attributes;
  const auto pd = app.pd(), cq = app.cq();
  const auto with = [&](std::uint32_t rnic_create_qp::*field, std::uint32_t value) {
    auto body = app.qp_request(pd, cq);
    body.*field = value;
    return app.ask(RNIC_CREATE_QP, body).status;
  };
  CHECK(with(&rnic_create_qp::send_wr_min, told.max_qp_wr) == 0);
  CHECK(with(&rnic_create_qp::send_wr_min, told.max_qp_wr + 1) == EINVAL);
  CHECK(with(&rnic_create_qp::recv_wr_min, told.max_qp_wr) == 0);
  CHECK(with(&rnic_create_qp::recv_wr_min, told.max_qp_wr + 1) == EINVAL);
  CHECK(with(&rnic_create_qp::send_sge_max, told.max_sge) == 0);
  CHECK(with(&rnic_create_qp::send_sge_max, told.max_sge + 1) == EINVAL);
  CHECK(with(&rnic_create_qp::recv_sge_max, told.max_sge) == 0);
  CHECK(with(&rnic_create_qp::recv_sge_max, told.max_sge + 1) == EINVAL);
  CHECK(with(&rnic_create_qp::inline_max, told.max_inline) == 0);
  CHECK(with(&rnic_create_qp::inline_max, told.max_inline + 1) == EINVAL);
}

TEST_CASE("V-QP-01: a QP needs a PD, CQs and an SRQ that exist",
          "[control][objects][V-QP-01][V-IS-07][V-IS-11][V-IS-18]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd(), cq = app.cq();
  const auto with = [&](std::uint32_t rnic_create_qp::*field) {
    auto body = app.qp_request(pd, cq);
    body.*field = 9999;
    return app.ask(RNIC_CREATE_QP, body).status;
  };
  CHECK(with(&rnic_create_qp::pd) == EINVAL);
  CHECK(with(&rnic_create_qp::send_cq) == EINVAL);
  CHECK(with(&rnic_create_qp::recv_cq) == EINVAL);
  CHECK(with(&rnic_create_qp::srq) == EINVAL);
  CHECK(app.by_handle(RNIC_DESTROY_CQ, cq).status == 0);
}

TEST_CASE("V-QP-11: with an SRQ there is no receive queue, and no depth of one is looked at",
          "[control][objects][V-QP-11]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd(), cq = app.cq();
  const auto srq = app.try_srq(pd, 8).as<rnic_create_srq_reply>().srq;
  auto body = app.qp_request(pd, cq, srq);
  body.recv_wr_min = ~0u;
  body.recv_sge_max = ~0u;
  const auto made = app.ask(RNIC_CREATE_QP, body).as<rnic_create_qp_reply>();
  CHECK(made.recv_entries == 0);
  CHECK(made.recv_area.length == 0);
}

TEST_CASE("V-QP-06: QP numbers are unique on the daemon, not 0, and of 24 bits", "[control][objects][V-QP-06]") {
  Daemon daemon;
  App one(daemon), other(daemon, "rnic1");
  std::set<std::uint32_t> numbers;
  for (App* app : {&one, &other}) {
    const auto pd = app->pd(), cq = app->cq();
    for (int i = 0; i < 20; ++i) numbers.insert(app->qp(pd, cq));
  }
  CHECK(numbers.size() == 40);
  CHECK(*numbers.begin() > 1);
  CHECK(*numbers.rbegin() <= 0xFFFFFF);
}

TEST_CASE("V-QP-08: a new QP is in Idle, without a stream", "[control][objects][V-QP-08][V-QP-07]") {
  Daemon daemon;
  App app(daemon);
  const auto number = app.qp(app.pd(), app.cq());
  const auto q = app.by_handle(RNIC_QUERY_QP, number).as<rnic_query_qp_reply>();
  CHECK(q.state == RNIC_QP_IDLE);
  CHECK(q.remote.family == 0);
  CHECK(q.terminate_length == 0);
}

TEST_CASE("V-MOD-01: attributes change in Idle, not on the way to another state",
          "[control][objects][V-MOD-01][V-IMM-01]") {
  Daemon daemon;
  App app(daemon);
  const auto number = app.qp(app.pd(), app.cq());
  rnic_modify_qp body{};
  body.qp_number = number;
  body.mask = RNIC_MODIFY_STATE | RNIC_MODIFY_ACCESS | RNIC_MODIFY_ORD | RNIC_MODIFY_IRD;
  body.state = RNIC_QP_IDLE;
  body.access = RNIC_ACCESS_REMOTE_READ;
  body.ord = 3;
  body.ird = 4;
  REQUIRE(app.ask(RNIC_MODIFY_QP, body).status == 0);
  auto q = app.by_handle(RNIC_QUERY_QP, number).as<rnic_query_qp_reply>();
  CHECK(q.access == RNIC_ACCESS_REMOTE_READ);
  CHECK(q.ord == 3);
  CHECK(q.ird == 4);

  body.state = RNIC_QP_ERROR;
  body.ord = 9;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == EINVAL);
  q = app.by_handle(RNIC_QUERY_QP, number).as<rnic_query_qp_reply>();
  CHECK(q.state == RNIC_QP_IDLE);
  CHECK(q.ord == 3);

  body.mask = RNIC_MODIFY_STATE;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == 0);
  CHECK(app.by_handle(RNIC_QUERY_QP, number).as<rnic_query_qp_reply>().state == RNIC_QP_ERROR);
  body.state = RNIC_QP_IDLE;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == 0);
}

TEST_CASE("V-IDLE-04: what an application calls Idle is kept until the QP is there again",
          "[control][objects][V-IDLE-04]") {
  Daemon daemon;
  App app(daemon);
  const auto number = app.qp(app.pd(), app.cq());
  const auto called = [&] { return app.by_handle(RNIC_QUERY_QP, number).as<rnic_query_qp_reply>().idle_name; };
  CHECK(called() == RNIC_IDLE_RESET);
  rnic_modify_qp body{};
  body.qp_number = number;
  body.mask = RNIC_MODIFY_STATE;
  for (const std::uint32_t name : {RNIC_IDLE_INIT, RNIC_IDLE_RTR, RNIC_IDLE_RESET, RNIC_IDLE_INIT}) {
    body.idle_name = name;
    REQUIRE(app.ask(RNIC_MODIFY_QP, body).status == 0);
    CHECK(called() == name);
  }
  body.idle_name = RNIC_IDLE_RTR + 1;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == EINVAL);
  // V-IMM-01: nor has a Modify that failed, or one of attributes alone, another name for it.
  body.idle_name = RNIC_IDLE_RTR;
  body.mask = RNIC_MODIFY_STATE | RNIC_MODIFY_ORD | RNIC_MODIFY_IRD;
  body.state = RNIC_QP_ERROR;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == EINVAL);
  body.mask = RNIC_MODIFY_ORD;
  body.state = RNIC_QP_IDLE;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == 0);
  CHECK(called() == RNIC_IDLE_INIT);
  body.mask = RNIC_MODIFY_STATE;
  body.state = RNIC_QP_ERROR;
  REQUIRE(app.ask(RNIC_MODIFY_QP, body).status == 0);
  body.state = RNIC_QP_IDLE;
  body.idle_name = RNIC_IDLE_RESET;
  REQUIRE(app.ask(RNIC_MODIFY_QP, body).status == 0);
  CHECK(called() == RNIC_IDLE_RESET);
}

TEST_CASE("V-IS-20: depths above the device's are refused", "[control][objects][V-IS-20][V-IS-21][V-IRD-05]") {
  Daemon daemon;
  App app(daemon);
  const auto number = app.qp(app.pd(), app.cq());
  rnic_modify_qp body{};
  body.qp_number = number;
  body.mask = RNIC_MODIFY_ORD;
  body.ord = control::kReadDepthMax;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == 0);
  body.ord = control::kReadDepthMax + 1;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == EINVAL);
  body.mask = RNIC_MODIFY_IRD;
  body.ird = control::kReadDepthMax;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == 0);
  body.ird = control::kReadDepthMax + 1;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == EINVAL);
}

TEST_CASE("a QP goes to RTS by a connection alone, and to Closing and Terminate only from there",
          "[control][objects][V-IDLE-03]") {
  Daemon daemon;
  App app(daemon);
  const auto number = app.qp(app.pd(), app.cq());
  rnic_modify_qp body{};
  body.qp_number = number;
  body.mask = RNIC_MODIFY_STATE;
  for (const std::uint32_t state : {RNIC_QP_RTS, RNIC_QP_CLOSING, RNIC_QP_TERMINATE}) {
    body.state = state;
    CHECK(app.ask(RNIC_MODIFY_QP, body).status == EINVAL);
  }
  body.state = RNIC_QP_ERROR + 1;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == EINVAL);
  body.mask = 0x10;
  CHECK(app.ask(RNIC_MODIFY_QP, body).status == EINVAL);
  CHECK(app.by_handle(RNIC_QUERY_QP, number).as<rnic_query_qp_reply>().state == RNIC_QP_IDLE);
}

// ---- events -----------------------------------------------------------------------------------

namespace {
struct AsyncMessage {
  std::uint64_t element;
  std::uint32_t type;
  std::uint32_t reserved;
};

// The next message of an event socket, once the worker's news are in.
template <typename T>
std::optional<T> next_message(Daemon& daemon, int fd) {
  for (int i = 0; i < 200; ++i) {
    daemon.settle();
    T message;
    if (recv(fd, &message, sizeof message, MSG_DONTWAIT) == static_cast<ssize_t>(sizeof message)) return message;
    pollfd wait{daemon.machine.workers[0]->event_fd(), POLLIN, 0};
    poll(&wait, 1, 1);
  }
  return std::nullopt;
}

control::Qp& qp_object(Daemon& daemon) { return *daemon.machine.qps.begin()->second; }

void raise(Daemon& daemon, const std::function<void(core::Worker&)>& what) {
  core::Worker& worker = *daemon.machine.workers[0];
  worker.call([&](Instant) { what(worker); });
}
}  // namespace

TEST_CASE("events of a QP come to its context with its user pointer", "[control][objects][V-VBX-04][V-AE-03]") {
  Daemon daemon;
  App app(daemon), other(daemon);
  const auto number = app.qp(app.pd(), app.cq());
  raise(daemon, [&](core::Worker& worker) {
    worker.on_qp_event(qp_object(daemon).cookie, qp::Event::close_complete);
    worker.on_qp_event(qp_object(daemon).cookie, qp::Event::connection_reset);
  });
  const int async = app.opened.fds[2].get();
  const auto message = next_message<AsyncMessage>(daemon, async);
  REQUIRE(message);
  CHECK(message->element == 0x9B);
  CHECK(message->type == 1);  // IBV_EVENT_QP_FATAL
  daemon.settle();
  AsyncMessage more;
  CHECK(recv(async, &more, sizeof more, MSG_DONTWAIT) < 0);
  CHECK(recv(other.opened.fds[2].get(), &more, sizeof more, MSG_DONTWAIT) < 0);
  CHECK(app.by_handle(RNIC_DESTROY_QP, number).status == 0);
}

TEST_CASE("events of a QP that is gone are not told", "[control][objects][V-QP-16]") {
  Daemon daemon;
  App app(daemon);
  const auto number = app.qp(app.pd(), app.cq());
  const auto cookie = qp_object(daemon).cookie;
  REQUIRE(app.by_handle(RNIC_DESTROY_QP, number).status == 0);
  raise(daemon, [&](core::Worker& worker) { worker.on_qp_event(cookie, qp::Event::connection_reset); });
  usleep(2000);
  daemon.settle();
  AsyncMessage more;
  CHECK(recv(app.opened.fds[2].get(), &more, sizeof more, MSG_DONTWAIT) < 0);
}

TEST_CASE("V-AE-39: the SRQ limit is told with the SRQ's user pointer", "[control][objects][V-AE-39]") {
  Daemon daemon;
  App app(daemon);
  REQUIRE(app.try_srq(app.pd(), 8, 4).status == 0);
  raise(daemon, [&](core::Worker& worker) { worker.on_srq_limit(daemon.machine.srqs_by_cookie.begin()->first); });
  const auto message = next_message<AsyncMessage>(daemon, app.opened.fds[2].get());
  REQUIRE(message);
  CHECK(message->element == 0x5A);
  CHECK(message->type == 15);
}

TEST_CASE("V-AE-37: an overflow is told as CQ_ERR, and the CQ's QPs go to Error, no others",
          "[control][objects][V-AE-37][V-SEC-14][V-CQ-06]") {
  Daemon daemon;
  App app(daemon);
  const auto pd = app.pd(), cq = app.cq(), other_cq = app.cq();
  const auto hit = app.qp(pd, cq), spared = app.qp(pd, other_cq);
  const auto cookie = daemon.machine.qps.at(hit)->send_cq->cookie;
  raise(daemon, [&](core::Worker& worker) { worker.on_cq_overflow(cookie); });
  const auto message = next_message<AsyncMessage>(daemon, app.opened.fds[2].get());
  REQUIRE(message);
  CHECK(message->element == 0xC0);
  CHECK(message->type == 0);
  CHECK(app.by_handle(RNIC_QUERY_QP, hit).as<rnic_query_qp_reply>().state == RNIC_QP_ERROR);
  CHECK(app.by_handle(RNIC_QUERY_QP, spared).as<rnic_query_qp_reply>().state == RNIC_QP_IDLE);
}

TEST_CASE("every event of the data plane has its ibverbs type", "[control][objects][V-AE-01][V-AE-16]") {
  using control::ibv_event;
  using control::IbvEvent;
  CHECK_FALSE(ibv_event(qp::Event::close_complete));
  CHECK(ibv_event(qp::Event::terminate_received) == IbvEvent::qp_fatal);
  CHECK_FALSE(ibv_event(qp::Event::peer_gone));
  CHECK(ibv_event(qp::Event::connection_lost) == IbvEvent::qp_fatal);
  CHECK(ibv_event(qp::Event::crc_error) == IbvEvent::qp_fatal);
  CHECK(ibv_event(qp::Event::unexpected_opcode) == IbvEvent::qp_request_error);
  CHECK(ibv_event(qp::Event::irrq_too_many) == IbvEvent::qp_request_error);
  CHECK(ibv_event(qp::Event::invalid_stag) == IbvEvent::qp_access_error);
  CHECK(ibv_event(qp::Event::writes_disabled) == IbvEvent::qp_access_error);
  CHECK(ibv_event(qp::Event::irrq_access) == IbvEvent::qp_access_error);
  CHECK(ibv_event(qp::Event::cq_sq_error) == IbvEvent::qp_fatal);
  CHECK(ibv_event(qp::Event::last_wqe_reached) == IbvEvent::qp_last_wqe_reached);
}

TEST_CASE("a CQ's notification comes to its channel, which is named by its socket's cookie",
          "[control][objects][V-NTF-09]") {
  Daemon daemon;
  Client cm(daemon, RNIC_CLIENT_CM, "");
  App app(daemon);
  auto made = cm.ask(RNIC_CREATE_CHANNEL);
  const auto channel = made.as<rnic_create_channel_reply>();
  REQUIRE(made.fds.size() == 1);
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  REQUIRE(getsockopt(made.fds[0].get(), SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0);
  CHECK(cookie == channel.cookie);

  const auto cq = app.try_cq(4, cookie);
  REQUIRE(cq.as<rnic_create_cq_reply>().area.arena_is_new == 1);
  REQUIRE(cq.fds.size() == 2);  // the arena, the channel's writing end
  control::Cq* object = daemon.machine.cqs_by_cookie.begin()->second;
  object->context->on_completions(*object);
  const auto message = next_message<std::uint64_t>(daemon, made.fds[0].get());
  REQUIRE(message);
  CHECK(*message == 0xC0);
  // It stays the CQ's when its maker lets go of it.
  REQUIRE(cm.by_handle(RNIC_DESTROY_CHANNEL, channel.channel).status == 0);
  CHECK(daemon.server->completion_channel_count() == 0);
  object->context->on_completions(*object);
  CHECK(next_message<std::uint64_t>(daemon, made.fds[0].get()));
  CHECK(app.by_handle(RNIC_DESTROY_CQ, cq.as<rnic_create_cq_reply>().cq).as<rnic_destroy_cq_reply>().events_sent == 2);
}

TEST_CASE("a channel of another user cannot be named", "[control][objects]") {
  Daemon daemon;
  Client cm(daemon, RNIC_CLIENT_CM, "", getuid() + 1);
  App app(daemon);
  const auto made = cm.ask(RNIC_CREATE_CHANNEL);
  CHECK(app.try_cq(4, made.as<rnic_create_channel_reply>().cookie).status == EINVAL);
}

TEST_CASE("what does not fit a channel's socket waits, once for each CQ, and comes when there is room",
          "[control][objects]") {
  control::Loop loop;
  const auto channel = control::EventSocket::create(loop);
  REQUIRE(channel != nullptr);
  control::Descriptor reader = channel->take_reader();
  std::vector<control::EventSocket::Subject> cqs(2000);
  for (std::size_t i = 0; i < cqs.size(); ++i) channel->send_completion(cqs[i], i + 1);
  REQUIRE(channel->waiting() > 0);
  channel->send_completion(cqs.back(), cqs.size());
  CHECK(cqs.back().waiting == 1);
  // One that goes meanwhile is not told of any more.
  channel->forget(cqs[cqs.size() - 2]);
  std::vector<std::uint64_t> got;
  for (int idle = 0; idle < 3;) {
    std::uint64_t pointer;
    if (recv(reader.get(), &pointer, sizeof pointer, MSG_DONTWAIT) == static_cast<ssize_t>(sizeof pointer)) {
      got.push_back(pointer);
      idle = 0;
    } else {
      loop.turn(0);
      ++idle;
    }
  }
  CHECK(channel->waiting() == 0);
  REQUIRE(got.size() == cqs.size() - 1);
  CHECK(std::is_sorted(got.begin(), got.end()));
  CHECK(got.back() == cqs.size());
  CHECK(cqs.back().sent == 1);
}

TEST_CASE("what is put back during a hold comes before what waited", "[control][objects]") {
  control::Loop loop;
  const auto channel = control::EventSocket::create(loop);
  REQUIRE(channel != nullptr);
  control::Descriptor reader = channel->take_reader();
  std::vector<control::EventSocket::Subject> cqs(2000);
  for (std::size_t i = 0; i + 1 < cqs.size(); ++i) channel->send_completion(cqs[i], i + 1);
  const auto read_what_is_there = [&] {
    std::vector<std::uint64_t> got;
    std::uint64_t pointer;
    while (recv(reader.get(), &pointer, sizeof pointer, MSG_DONTWAIT) == static_cast<ssize_t>(sizeof pointer))
      got.push_back(pointer);
    return got;
  };
  channel->hold();
  const std::size_t waited = channel->waiting();
  const auto taken_out = read_what_is_there();
  REQUIRE(taken_out.size() + waited == cqs.size() - 1);
  while (loop.turn(0)) {
  }
  channel->send_completion(cqs.back(), cqs.size());
  CHECK(channel->waiting() == waited + 1);
  CHECK(read_what_is_there().empty());
  for (const std::uint64_t pointer : taken_out)
    REQUIRE(send(channel->writer(), &pointer, sizeof pointer, MSG_DONTWAIT) == static_cast<ssize_t>(sizeof pointer));
  channel->release();
  std::vector<std::uint64_t> got;
  while (got.size() < cqs.size()) {
    loop.turn(0);
    const auto more = read_what_is_there();
    REQUIRE_FALSE(more.empty());
    got.insert(got.end(), more.begin(), more.end());
  }
  CHECK(std::is_sorted(got.begin(), got.end()));
  CHECK(channel->waiting() == 0);
}

TEST_CASE("a context holds one event socket at a time, one that it may name, and none after its end",
          "[control][objects]") {
  Daemon daemon;
  Client cm(daemon, RNIC_CLIENT_CM, "");
  const auto made = cm.ask(RNIC_CREATE_CHANNEL);
  const std::uint64_t cookie = made.as<rnic_create_channel_reply>().cookie;
  App reporter(daemon);
  REQUIRE(reporter.try_cq(4, cookie).status == 0);
  control::Cq* object = daemon.machine.cqs_by_cookie.begin()->second;
  {
    App app(daemon);
    CHECK(app.ask(RNIC_RELEASE_EVENTS).status == EINVAL);
    CHECK(app.ask(RNIC_HOLD_EVENTS, rnic_hold_events{cookie + 1}).status == EINVAL);
    CHECK(app.ask(RNIC_HOLD_EVENTS, rnic_hold_events{0}).status == 0);
    CHECK(app.ask(RNIC_HOLD_EVENTS, rnic_hold_events{cookie}).status == EBUSY);
    CHECK(app.ask(RNIC_RELEASE_EVENTS).status == 0);
    CHECK(app.ask(RNIC_HOLD_EVENTS, rnic_hold_events{cookie}).status == 0);
    object->context->on_completions(*object);
    CHECK_FALSE(next_message<std::uint64_t>(daemon, made.fds[0].get()));
  }
  CHECK(next_message<std::uint64_t>(daemon, made.fds[0].get()));
}

TEST_CASE("a channel that nobody reads any more costs nothing", "[control][objects]") {
  control::Loop loop;
  const auto channel = control::EventSocket::create(loop);
  std::vector<control::EventSocket::Subject> cqs(2000);
  {
    control::Descriptor reader = channel->take_reader();
    for (std::size_t i = 0; i < cqs.size(); ++i) channel->send_completion(cqs[i], i + 1);
    REQUIRE(channel->waiting() > 0);
  }
  while (loop.turn(0)) {
  }
  CHECK(channel->waiting() == 0);
  channel->send_completion(cqs[0], 1);
  CHECK(channel->waiting() == 0);
}
