// A file that the daemon maps is cut short, and written to all the same: what stands in for it must not become
// memory of the daemon, as much as the attacker likes. `run` looks at the daemon's memory.
#include <unistd.h>

#include <cerrno>

#include "system/hostile/hostile.hpp"

namespace rnic::hostile {

int swell(const Options& options) {
  constexpr std::size_t kFile = std::size_t{1} << 30;
  constexpr std::uint32_t kPiece = 1 << 20;
  attacking();
  const Seconds start = now();
  std::uint64_t written = 0;
  std::uint32_t rounds = 0;
  // Where its queue pairs fail, it makes others.
  for (; now() - start < options.seconds; ++rounds) {
    Pair pair(options.socket);
    bare::Descriptor file;
    std::byte* at = bare::shared_memory(kFile, file);
    const bare::Region target = pair.app.region(pair.pd, at, kFile, bare::kAllAccess, file.get());
    const bare::Region source = pair.app.region(pair.pd, bare::private_memory(kPiece), kPiece, bare::kAllAccess);
    if (ftruncate(file.get(), 0) != 0) bare::fail("ftruncate", errno);
    bool failed = false;
    std::uint64_t under_way = 0;
    std::size_t next = 0;
    while (!failed && now() - start < options.seconds && next < kFile) {
      for (; under_way < 16 && next < kFile; ++under_way, next += kPiece)
        pair.app.post_write(pair.caller, source.sge(0, kPiece), target.sge(next, 1).address, target.stag);
      while (const auto entry = pair.cq.poll()) {
        --under_way;
        if (entry->status != RNIC_WC_SUCCESS)
          failed = true;
        else
          written += kPiece;
      }
    }
    if (!failed)
      while (now() - start < options.seconds) usleep(10'000);
  }
  say(std::to_string(written >> 20) + " MiB of Writes in " + std::to_string(rounds) + " rounds");
  return 0;
}

}  // namespace rnic::hostile
