// Memory of the program's allocator is registered, freed, given back and handed out again, whichever allocator it is
// (LD_PRELOAD): calloc's is zeros, and the device sees what the program does, with `rnic run --fast-memory` as without.
//
//   allocators ADDRESS
#include <malloc.h>

#include <deque>
#include <random>
#include <string_view>
#include <thread>

#include "rdma_app.hpp"

// Of jemalloc and of tcmalloc: give back what is free.
extern "C" {
[[gnu::weak]] int mallctl(const char* name, void* old, std::size_t* old_size, void* fresh, std::size_t size);
[[gnu::weak]] void MallocExtension_ReleaseFreeMemory();
}

namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr const char* kPort = "7305";
constexpr std::size_t kLargest = 4 << 20;
constexpr std::size_t kSizes[] = {100, 4096, 20'000, 65'536, 300'000, 1 << 20, kLargest};
constexpr int kRounds = 60;
constexpr std::size_t kAlive = 12;

struct Piece {
  char* memory;
  std::size_t size;
  ibv_mr* mr;
  char octet;
};

// A connection of the program with itself: what is remote to one end is the other's.
struct Loop {
  app::Endpoint here, there;

  explicit Loop(const char* address) {
    rdma_cm_id* listener = app::listen(address, kPort);
    std::thread accepts([&] {
      there = app::next_request(listener);
      there.make_queues(4);
      app::accept(there, {});
    });
    here = app::resolve(address, kPort);
    here.make_queues(4);
    here.make_memory(kLargest, IBV_ACCESS_LOCAL_WRITE);
    app::connect(here);
    accepts.join();
  }
  // All of a piece, as the device has it.
  bool sees(const Piece& piece) {
    std::memset(here.memory, ~piece.octet, piece.size);
    const app::Target target{reinterpret_cast<std::uint64_t>(piece.memory), piece.mr->rkey, 0};
    if (here.post(IBV_WR_RDMA_READ, 0, static_cast<std::uint32_t>(piece.size), &target, 1) != 0) app::fail("a Read");
    if (app::Endpoint::poll(here.send_cq).status != IBV_WC_SUCCESS) app::fail("a Read's completion");
    for (std::size_t i = 0; i < piece.size; ++i)
      if (here.memory[i] != std::byte(piece.octet)) return false;
    return true;
  }
};

bool holds(const Piece& piece) {
  for (std::size_t i = 0; i < piece.size; ++i)
    if (piece.memory[i] != piece.octet) return false;
  return true;
}

void give_back() {
  if (mallctl != nullptr)
    mallctl("arena.4096.purge", nullptr, nullptr, nullptr, 0);  // 4096: all arenas
  else if (MallocExtension_ReleaseFreeMemory != nullptr)
    MallocExtension_ReleaseFreeMemory();
  else
    malloc_trim(0);
}

const char* allocator() {
  return mallctl != nullptr ? "jemalloc" : MallocExtension_ReleaseFreeMemory != nullptr ? "tcmalloc" : "glibc";
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) {
    std::fprintf(stderr, "usage: allocators ADDRESS\n");
    return 2;
  }
  Loop loop(words[1]);
  std::mt19937 random(1);
  std::deque<Piece> alive;
  const auto expect = [](bool right, const char* claim, const Piece& piece) {
    if (right) return;
    std::printf("wrong: %s, of %zu octets\n", claim, piece.size);
    std::exit(1);
  };
  unsigned handed_out = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (const std::size_t size : kSizes) {
      Piece piece{.memory = static_cast<char*>(std::calloc(1, size)), .size = size, .mr = nullptr, .octet = 0};
      if (piece.memory == nullptr) app::fail("calloc");
      expect(holds(piece), "what calloc hands out is zeros", piece);
      piece.mr = ibv_reg_mr(loop.there.pd, piece.memory, size, kAccess);
      if (piece.mr == nullptr) app::fail("ibv_reg_mr");
      expect(loop.sees(piece), "the device sees zeros", piece);
      piece.octet = static_cast<char>('a' + random() % 26);
      std::memset(piece.memory, piece.octet, size);
      expect(loop.sees(piece), "the device sees what is stored", piece);
      alive.push_back(piece);
      ++handed_out;
    }
    while (alive.size() > kAlive) {
      std::swap(alive[random() % alive.size()], alive.back());
      const Piece piece = alive.back();
      alive.pop_back();
      expect(holds(piece) && loop.sees(piece), "it is as it was", piece);
      ibv_dereg_mr(piece.mr);
      std::free(piece.memory);
    }
    if (round % 3 == 0) give_back();
  }
  std::printf("%s: %u pieces, well\n", allocator(), handed_out);
  return 0;
}
