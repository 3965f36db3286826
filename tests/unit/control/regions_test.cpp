// Regions: their rights and keys, and which of their memory is mapped.
#include <sys/stat.h>
#include <sys/syscall.h>

#include <fstream>
#include <string>
#include <vector>

#include "control/limits.hpp"
#include "kit/server_world.hpp"

using namespace rnic;
using namespace rnic::test;

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
  CHECK(with(lr | RNIC_ACCESS_NO_REMOTE) == 0);
  CHECK(with(lr | rr | RNIC_ACCESS_NO_REMOTE) == EINVAL);  // V-MR-18
  CHECK(with(lr | 0x100) == EINVAL);
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
  CHECK(reg_swapped(app, pd, good.get(), 0, 0x1000).status == EINVAL);  // nor here: the half of two
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
