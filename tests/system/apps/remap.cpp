// Moves, grows and empties memory that is or was registered, with `rnic run --fast-memory` as without: mremap and
// madvise are to do what they do to any other private memory.
//
//   remap ADDRESS
#include <malloc.h>
#include <sys/mman.h>

#include "rdma_app.hpp"

namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr std::size_t kSmall = 8192;
constexpr std::size_t kLarge = 1 << 20;
constexpr std::size_t kManyPieces = (5 << 20) + 4096;  // what is emptied is so piece by piece
constexpr int kRights = PROT_READ | PROT_WRITE;

ibv_pd* pd;
int wrong;

void expect(bool right, const char* claim) {
  if (right) return;
  std::printf("wrong: %s\n", claim);
  ++wrong;
}

bool holds(const char* memory, std::size_t size, char octet) {
  for (std::size_t i = 0; i < size; ++i)
    if (memory[i] != octet) return false;
  return true;
}

char* fresh(std::size_t size, char octet) {
  void* memory = mmap(nullptr, size, kRights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) app::fail("mmap");
  std::memset(memory, octet, size);
  return static_cast<char*>(memory);
}

ibv_mr* registered(char* memory, std::size_t size) {
  ibv_mr* mr = ibv_reg_mr(pd, memory, size, kAccess);
  if (mr == nullptr) app::fail("ibv_reg_mr");
  return mr;
}

// What it has more is zeros.
char* grown(char* memory, std::size_t size, std::size_t to, char octet) {
  auto* moved = static_cast<char*>(mremap(memory, size, to, MREMAP_MAYMOVE));
  if (moved == MAP_FAILED) app::fail("mremap");
  expect(holds(moved, size, octet), "grown memory has what it had");
  expect(holds(moved + size, to - size, 0), "what it has more is zeros");
  return moved;
}

// Of two neighbours one grows; the other is another's memory.
void grow_beside(bool while_registered) {
  char* a = fresh(kSmall, 'a');
  char* b = fresh(kSmall, 'b');
  ibv_mr* of_a = registered(a, kSmall);
  ibv_mr* of_b = registered(b, kSmall);
  if (!while_registered) ibv_dereg_mr(of_a);
  a = grown(a, kSmall, 2 * kSmall, 'a');
  std::memset(a, 'A', 2 * kSmall);
  expect(holds(b, kSmall, 'b'), "its neighbour is as it was");
  a = grown(a, 2 * kSmall, 3 * kSmall, 'A');
  if (while_registered) ibv_dereg_mr(of_a);
  std::memset(a, 'c', 3 * kSmall);
  of_a = registered(a, 3 * kSmall);
  expect(holds(a, 3 * kSmall, 'c'), "it is registered again");
  expect(holds(b, kSmall, 'b'), "its neighbour is as it was, after that");
  ibv_dereg_mr(of_a);
  ibv_dereg_mr(of_b);
  munmap(a, 3 * kSmall);
  munmap(b, kSmall);
}

// There is nothing behind it in its file.
void grow_large() {
  char* memory = fresh(kLarge, 'l');
  ibv_dereg_mr(registered(memory, kLarge));
  memory = grown(memory, kLarge, 2 * kLarge, 'l');
  memory[2 * kLarge - 1] = 'x';
  munmap(memory, 2 * kLarge);
}

// Registered to the bounds of its pages, as middleware does; libc's own call, which nobody sees.
void reallocate() {
  auto* memory = static_cast<char*>(std::malloc(kLarge));
  std::memset(memory, 'r', kLarge);
  const auto first = reinterpret_cast<std::uintptr_t>(memory) & ~std::uintptr_t{4095};
  ibv_dereg_mr(registered(reinterpret_cast<char*>(first), kLarge + 4096));
  memory = static_cast<char*>(std::realloc(memory, 2 * kLarge));
  if (memory == nullptr) app::fail("realloc");
  expect(holds(memory, kLarge, 'r'), "realloc keeps what there was");
  std::memset(memory, 's', 2 * kLarge);
  expect(holds(memory, 2 * kLarge, 's'), "realloc's memory takes what is stored");  // without a look nothing is stored
  std::free(memory);
}

void empty(std::size_t size, int advice, bool while_registered) {
  char* memory = fresh(size, 'd');
  ibv_mr* mr = registered(memory, size);
  if (!while_registered) ibv_dereg_mr(mr);
  if (madvise(memory, size, advice) != 0) app::fail("madvise");
  if (advice == MADV_DONTNEED) expect(holds(memory, size, 0), "memory that is not needed is zeros");
  std::memset(memory, 'e', size);
  expect(holds(memory, size, 'e'), "it takes what is stored after that");
  if (while_registered) ibv_dereg_mr(mr);
  munmap(memory, size);
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) {
    std::fprintf(stderr, "usage: remap ADDRESS\n");
    return 2;
  }
  mallopt(M_MMAP_THRESHOLD, 128 << 10);  // fixed: it would rise with the first free(), and reallocate() have no mapping
  pd = app::protection_domain(words[1]);
  grow_beside(false);
  grow_beside(true);
  for (const bool while_registered : {false, true})
    for (const std::size_t size : {kSmall, kLarge, kManyPieces}) {
      empty(size, MADV_DONTNEED, while_registered);
      empty(size, MADV_FREE, while_registered);
    }
  reallocate();
  grow_large();
  std::printf(wrong == 0 ? "well\n" : "%d wrong\n", wrong);
  return wrong == 0 ? 0 : 1;
}
