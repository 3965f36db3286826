// What each rank of an MPI run does: ring, all-to-all, allreduce, one-sided; each octet checked. In C++ for an MPI that
// mpi_work.py has no Python for.
//
//   mpi_ranks [ROUNDS]
//
// The last line of rank 0 says how many octets all ranks together gave to others: `N ranks, sent M octets`.
#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

namespace {

using Octets = std::vector<unsigned char>;

int rank = 0, size = 0;
std::uint64_t sent = 0;

// A pattern of its own for each sender and use.
Octets octets(std::size_t length, int seed) {
  Octets all(length);
  for (std::size_t at = 0; at < length; ++at)
    all[at] = static_cast<unsigned char>(static_cast<std::size_t>(seed) * 31 + at * 7 + (at >> 8));
  return all;
}

void check(bool so, const char* what) {
  if (so) return;
  std::printf("rank %d: %s: not what was sent\n", rank, what);
  std::fflush(stdout);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

// Eager and rendezvous, one after the other: from the left, to the right.
void ring() {
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  for (const int length : {1, 64, 4096, 65536, 1 << 20}) {
    const Octets mine = octets(static_cast<std::size_t>(length), rank);
    Octets theirs(mine.size());
    MPI_Sendrecv(mine.data(), length, MPI_BYTE, right, 1, theirs.data(), length, MPI_BYTE, left, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    check(theirs == octets(theirs.size(), left), "ring");
    sent += mine.size();
  }
}

void all_to_all() {
  for (const int length : {8, 4096, 262144}) {
    const auto part = static_cast<std::size_t>(length);
    Octets mine, wanted;
    for (int peer = 0; peer < size; ++peer) {
      const Octets out = octets(part, rank * 16 + peer), in = octets(part, peer * 16 + rank);
      mine.insert(mine.end(), out.begin(), out.end());
      wanted.insert(wanted.end(), in.begin(), in.end());
    }
    Octets theirs(mine.size());
    MPI_Alltoall(mine.data(), length, MPI_BYTE, theirs.data(), length, MPI_BYTE, MPI_COMM_WORLD);
    check(theirs == wanted, "alltoall");
    sent += part * static_cast<std::size_t>(size - 1);
  }
}

void sums() {
  for (const int count : {1, 1000, 100000}) {
    std::vector<std::int64_t> mine(static_cast<std::size_t>(count)), total(mine.size()), wanted(mine.size());
    for (std::size_t at = 0; at < mine.size(); ++at) {
      mine[at] = (rank + 1) * static_cast<std::int64_t>(at + 1);
      wanted[at] = size * (size + 1) / 2 * static_cast<std::int64_t>(at + 1);
    }
    MPI_Allreduce(mine.data(), total.data(), count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    check(total == wanted, "allreduce");
  }
}

// Each puts into its right neighbour's window, gets from it, adds to it with all others, and counts at rank 0.
void one_sided() {
  constexpr int kLength = 1 << 18;
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  unsigned char* window_at = nullptr;
  MPI_Win window;
  // Put's half, Get's half, and behind them the numbers.
  const MPI_Aint bytes = 2 * kLength + 1024 * static_cast<MPI_Aint>(sizeof(std::int64_t));
  MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window_at, &window);
  const Octets own = octets(kLength, 100 + rank);
  std::fill(window_at, window_at + bytes, static_cast<unsigned char>(0));
  std::copy(own.begin(), own.end(), window_at + kLength);
  MPI_Win_fence(0, window);

  const Octets mine = octets(kLength, 200 + rank);
  Octets theirs(kLength);
  MPI_Put(mine.data(), kLength, MPI_BYTE, right, 0, kLength, MPI_BYTE, window);
  MPI_Get(theirs.data(), kLength, MPI_BYTE, right, kLength, kLength, MPI_BYTE, window);
  std::vector<std::int64_t> numbers(1000);
  std::iota(numbers.begin(), numbers.end(), rank);
  MPI_Accumulate(numbers.data(), 1000, MPI_INT64_T, right, 2 * kLength, 1000, MPI_INT64_T, MPI_SUM, window);
  MPI_Win_fence(0, window);
  check(theirs == octets(kLength, 100 + right), "get");
  check(std::equal(window_at, window_at + kLength, octets(kLength, 200 + left).begin()), "put");
  const auto* const sums_at = reinterpret_cast<const std::int64_t*>(window_at + 2 * kLength);
  for (int at = 0; at < 1000; ++at) check(sums_at[at] == left + at, "accumulate");

  // Of all ranks at once: a counter, of which each gets each number once, and a place that is taken and given back.
  constexpr MPI_Aint kCounter = 2 * kLength + 1000 * static_cast<MPI_Aint>(sizeof(std::int64_t));
  constexpr int kTurns = 50;
  const std::int64_t one = 1;
  std::int64_t last = -1;
  MPI_Win_lock_all(0, window);
  for (int turn = 0; turn < kTurns; ++turn) {
    std::int64_t got = -1;
    MPI_Fetch_and_op(&one, &got, MPI_INT64_T, 0, kCounter, MPI_SUM, window);
    MPI_Win_flush(0, window);
    check(got > last, "fetch and add");
    last = got;
  }
  const std::int64_t empty = 0, me = rank + 1;
  for (std::int64_t found = -1; found != 0;) {
    MPI_Compare_and_swap(&me, &empty, &found, MPI_INT64_T, 0, kCounter + 8, window);
    MPI_Win_flush(0, window);
  }
  std::int64_t found = -1;
  MPI_Compare_and_swap(&empty, &me, &found, MPI_INT64_T, 0, kCounter + 8, window);
  MPI_Win_flush(0, window);
  check(found == me, "compare and swap");
  MPI_Win_unlock_all(window);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    check(*reinterpret_cast<const std::int64_t*>(window_at + kCounter) == kTurns * size, "the counter");
    MPI_Win_unlock(0, window);
  }
  MPI_Win_free(&window);
  sent += 2 * kLength + 8000;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  check(size > 1, "one rank alone proves nothing");
  for (int round = argc > 1 ? std::atoi(argv[1]) : 3; round > 0; --round) {
    for (void (*step)() : {ring, all_to_all, sums, one_sided}) {
      step();
      MPI_Barrier(MPI_COMM_WORLD);
    }
  }
  std::uint64_t total = 0;
  MPI_Reduce(&sent, &total, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) std::printf("%d ranks, sent %llu octets\n", size, static_cast<unsigned long long>(total));
  MPI_Finalize();
  return 0;
}
