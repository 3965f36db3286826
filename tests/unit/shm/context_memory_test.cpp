// What a context shares with the data plane, and how it is sealed.
#include "shm/context_memory.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "kit/catch.hpp"
#include "shm/mapping.hpp"

namespace {

using rnic::shm::ContextMemory;

TEST_CASE("V-SEC-08: the application can neither shrink nor grow what is shared", "[shm][V-SEC-08]") {
  auto memory = ContextMemory::create(1, 1);
  REQUIRE(memory);
  auto piece = (*memory)->allocate(4096);
  REQUIRE(piece);
  for (const int fd : {(*memory)->status_fd(), (*memory)->doorbells_fd(), (*memory)->arena_fd(piece->arena())}) {
    CHECK(ftruncate(fd, 0) == -1);
    CHECK(errno == EPERM);
    CHECK(ftruncate(fd, 1 << 30) == -1);
  }
}

TEST_CASE("V-SEC-11: the status page cannot be mapped writable by an application", "[shm][V-SEC-11]") {
  auto memory = ContextMemory::create(1, 1);
  REQUIRE(memory);
  void* mapped = mmap(nullptr, sizeof(rnic_status_page), PROT_READ | PROT_WRITE, MAP_SHARED, (*memory)->status_fd(), 0);
  CHECK(mapped == MAP_FAILED);
  mapped = mmap(nullptr, sizeof(rnic_status_page), PROT_READ, MAP_SHARED, (*memory)->status_fd(), 0);
  REQUIRE(mapped != MAP_FAILED);
  const auto* page = static_cast<const rnic_status_page*>(mapped);
  CHECK(page->abi_version == RNIC_ABI_VERSION);
  CHECK(page->worker[0].asleep == 0);
  (*memory)->set_asleep(0, true);
  CHECK(page->worker[0].asleep == 1);
  munmap(mapped, sizeof(rnic_status_page));
}

TEST_CASE("V-SEC-26: a piece that was given back comes out as zeros, to one owner at a time", "[shm][V-SEC-26]") {
  auto memory = ContextMemory::create(1, 1);
  REQUIRE(memory);
  auto first = (*memory)->allocate(1000);
  REQUIRE(first);
  std::byte* const base = first->bytes().data();
  std::memset(base, 0xff, 1000);
  const auto other = (*memory)->allocate(1000);
  REQUIRE(other);
  CHECK((other->bytes().data() >= base + 1000 || other->bytes().data() + 1000 <= base));
  *first = {};
  const auto again = (*memory)->allocate(1000);
  REQUIRE(again);
  CHECK(again->bytes().data() == base);
  for (int i = 0; i < 1000; ++i) REQUIRE(again->bytes()[i] == std::byte{0});
}

TEST_CASE("V-SEC-26: a large piece that was given back comes out as zeros, and until then is nowhere",
          "[shm][V-SEC-26]") {
  auto memory = ContextMemory::create(1, 1);
  REQUIRE(memory);
  const auto small = (*memory)->allocate(256);  // so that the next begins within a page
  REQUIRE(small);
  const auto blocks = [&] {
    struct stat status {};
    REQUIRE(fstat((*memory)->arena_fd(0), &status) == 0);
    return status.st_blocks;
  };
  constexpr std::uint64_t kBytes = (std::uint64_t{1} << 20) + 128;
  auto first = (*memory)->allocate(kBytes);
  REQUIRE(first);
  CHECK(first->length() < kBytes + kBytes / 8);
  const std::uint64_t offset = first->offset();
  std::byte* const base = first->bytes().data();
  CHECK(offset % 4096 != 0);
  const auto before = blocks();
  std::memset(base, 0xff, first->length());
  CHECK(blocks() > before + 2000);
  *first = {};
  CHECK(blocks() <= before + 16);    // a page at either end is not its alone
  std::memset(base, 0xff, 100'000);  // its last owner has it mapped still
  const auto again = (*memory)->allocate(kBytes);
  REQUIRE(again);
  REQUIRE(again->offset() == offset);
  for (std::uint64_t i = 0; i < again->length(); ++i)
    if (base[i] != std::byte{0}) FAIL("at " << i);
}

TEST_CASE("V-SEC-26: pieces of 128 KiB and more give their pages back, smaller ones keep them", "[shm][V-SEC-26]") {
  auto memory = ContextMemory::create(1, 1);
  REQUIRE(memory);
  const auto blocks = [&] {
    struct stat status {};
    REQUIRE(fstat((*memory)->arena_fd(0), &status) == 0);
    return status.st_blocks;
  };
  const bool large = GENERATE(true, false);
  auto piece = (*memory)->allocate(large ? 128 << 10 : 120 << 10);
  REQUIRE(piece);
  REQUIRE((piece->length() == 128 << 10) == large);
  std::memset(piece->bytes().data(), 0xff, piece->length());
  const auto filled = blocks();
  *piece = {};
  CHECK((blocks() < filled) == large);
}

TEST_CASE("a piece is given back once, by whoever has it last", "[shm]") {
  auto memory = ContextMemory::create(1, 1);
  REQUIRE(memory);
  auto first = (*memory)->allocate(1000);
  REQUIRE(first);
  const std::uint64_t offset = first->offset();
  ContextMemory::Piece moved = std::move(*first);
  *first = {};  // has nothing
  auto other = (*memory)->allocate(1000);
  REQUIRE(other);
  CHECK(other->offset() != offset);
  moved = std::move(*other);  // what it had before goes with `other`
  *other = {};
  const auto again = (*memory)->allocate(1000);
  REQUIRE(again);
  CHECK(again->offset() == offset);
  CHECK((*memory)->arena_count() == 1);
}

TEST_CASE("V-SEC-08: a context's memory has a bound", "[shm][V-SEC-08]") {
  auto memory = ContextMemory::create(1, 1);
  REQUIRE(memory);
  auto most = (*memory)->allocate(ContextMemory::kQuotaBytes / 2);
  REQUIRE(most);
  const auto rest = (*memory)->allocate(ContextMemory::kQuotaBytes / 2);
  REQUIRE(rest);
  auto more = (*memory)->allocate(64);
  REQUIRE_FALSE(more);
  CHECK(more.error() == ENOMEM);
  *most = {};
  CHECK((*memory)->allocate(64));
}

TEST_CASE("W-RDMAP-59: nothing that an application shares is ever mapped to be executed",
          "[shm][W-RDMAP-59][V-SEC-22]") {
  const int fd = memfd_create("rnic-test", MFD_CLOEXEC);
  REQUIRE(fd >= 0);
  REQUIRE(ftruncate(fd, 8192) == 0);
  const auto memory = ContextMemory::create(1, 1);
  REQUIRE(memory);
  const auto piece = (*memory)->allocate(4096);
  REQUIRE(piece);
  for (const bool writable : {false, true}) {
    const auto mapping = rnic::shm::ApplicationMapping::create(fd, 0, 8192, writable);
    REQUIRE(mapping);
    int seen = 0;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find("rnic-test") == std::string::npos && line.find("memfd:rnic") == std::string::npos) continue;
      ++seen;
      // "address perms offset ...": the third of four letters is x.
      CHECK(line.at(line.find(' ') + 3) == '-');
    }
    CHECK(seen >= 2);
  }
  close(fd);
}

TEST_CASE("V-SEC-11: memory that its application takes away becomes other memory, and its owner is told of once",
          "[shm][swap][V-SEC-11]") {
  using rnic::shm::ApplicationMapping;
  rnic::shm::install_sigbus_handler();
  const int fd = memfd_create("rnic-test", MFD_CLOEXEC);
  REQUIRE(ftruncate(fd, 8192) == 0);
  int one = 0, other = 0;
  auto gone = ApplicationMapping::create(fd, 0, 4096, true), also = ApplicationMapping::create(fd, 0, 8192, true),
       stays = ApplicationMapping::create(fd, 0, 8192, true);
  REQUIRE((gone && also && stays));
  (*gone)->owner = (*also)->owner = &one;
  (*stays)->owner = &other;
  const std::uint32_t before = rnic::shm::deaths();
  CHECK(rnic::shm::take_dead_owners().empty());
  REQUIRE(ftruncate(fd, 0) == 0);
  (*gone)->octets()[4095] = std::byte{1};
  (*also)->octets()[8191] = std::byte{1};
  CHECK(rnic::shm::deaths() == before + 2);
  CHECK((*gone)->dead());
  CHECK((*also)->dead());
  CHECK_FALSE((*stays)->dead());
  CHECK((*gone)->octets()[4095] == std::byte{1});
  CHECK(rnic::shm::take_dead_owners() == std::vector<void*>{&one});
  CHECK(rnic::shm::take_dead_owners().empty());
  gone->reset();
  CHECK(rnic::shm::take_dead_owners().empty());
  // Its place is used again, by one that lives.
  REQUIRE(ftruncate(fd, 4096) == 0);
  const auto next = ApplicationMapping::create(fd, 0, 4096, true);
  REQUIRE(next);
  CHECK_FALSE((*next)->dead());
  CHECK(rnic::shm::take_dead_owners().empty());
  close(fd);
}

TEST_CASE("a worker rings for another as the application does, but by what the application shares it wakes nobody",
          "[shm][shards]") {
  auto memory = ContextMemory::create(3, 1);
  REQUIRE(memory);
  const auto is_woken = [&](unsigned worker) {
    pollfd asked{.fd = (*memory)->wake_fd(worker), .events = POLLIN, .revents = 0};
    return poll(&asked, 1, 0) == 1;
  };
  rnic_doorbells& bells = (*memory)->doorbells(1);
  constexpr std::uint32_t kBell = 64 * 64 + 3 * 64 + 5;
  CHECK_FALSE((*memory)->ring(1, kBell));
  CHECK(bells.any == 1);
  CHECK(bells.summary[1] == 1u << 3);
  CHECK(bells.words[kBell / 64] == 1u << 5);
  CHECK_FALSE((*memory)->ring(1, kBell + 1));
  CHECK_FALSE((*memory)->ring(1, 0));
  CHECK(bells.words[kBell / 64] == 3u << 5);
  CHECK(bells.summary[0] == 1);
  CHECK(bells.words[0] == 1);
  (*memory)->set_asleep(0, true);
  (*memory)->set_asleep(2, true);
  CHECK_FALSE((*memory)->ring(1, 0));
  (*memory)->set_asleep(1, true);
  CHECK((*memory)->ring(1, 0));
  for (const unsigned other : {0u, 2u}) CHECK((*memory)->doorbells(other).any == 0);
  // A write to it waits where the application wants it to.
  for (const unsigned worker : {0u, 1u, 2u}) CHECK_FALSE(is_woken(worker));
}

TEST_CASE("what a context shares is given back, a descriptor 0 too", "[shm]") {
  const int kept = dup(STDIN_FILENO);
  close(STDIN_FILENO);
  {
    auto memory = ContextMemory::create(1, 1);
    REQUIRE(memory);
    REQUIRE((*memory)->status_fd() == STDIN_FILENO);
  }
  CHECK(fcntl(STDIN_FILENO, F_GETFD) == -1);
  if (kept >= 0) {
    dup2(kept, STDIN_FILENO);
    close(kept);
  }
}

TEST_CASE("applications' mappings are a quarter of what the process may have, and a place comes free", "[shm][swap]") {
  unsigned long of_process = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> of_process;
  const std::size_t most = rnic::shm::application_mappings_max();
  CHECK(most == std::min<std::size_t>(16384, of_process / 4));
  const int fd = memfd_create("rnic-test", MFD_CLOEXEC);
  REQUIRE(ftruncate(fd, 4096) == 0);
  std::vector<std::unique_ptr<rnic::shm::ApplicationMapping>> mappings;
  for (;;) {
    auto mapping = rnic::shm::ApplicationMapping::create(fd, 0, 4096, true);
    if (!mapping) {
      CHECK(mapping.error() == ENOMEM);
      break;
    }
    mappings.push_back(std::move(*mapping));
    REQUIRE(mappings.size() <= most);
  }
  CHECK(mappings.size() == most);
  mappings[most / 2].reset();
  mappings[most / 3].reset();
  for (int i = 0; i < 2; ++i) CHECK(rnic::shm::ApplicationMapping::create(fd, 0, 4096, true));
  mappings[most / 2] = std::move(*rnic::shm::ApplicationMapping::create(fd, 0, 4096, true));
  mappings[most / 3] = std::move(*rnic::shm::ApplicationMapping::create(fd, 0, 4096, true));
  CHECK(!rnic::shm::ApplicationMapping::create(fd, 0, 4096, true));
  close(fd);
}

}  // namespace
