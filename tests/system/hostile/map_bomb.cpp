// Regions of a file that has no octets but much length: the daemon's addresses are to be used up.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "system/hostile/hostile.hpp"

namespace rnic::hostile {

int map_bomb(const Options& options) {
  constexpr std::size_t kFile = std::size_t{1} << 40;
  Bench bench(options.socket);
  const bare::Descriptor file(memfd_create("bomb", MFD_CLOEXEC));
  std::size_t size = kFile;
  if (!file || ftruncate(file.get(), static_cast<off_t>(size)) != 0) bare::fail("memfd", errno);
  std::uint32_t regions = 0;
  const std::uint32_t most = options.count != 0 ? options.count : 400;
  std::string why = "never refused";
  // Down to small ones, until nothing fits.
  for (; size >= 4096 && regions < most; size /= 2)
    while (regions < most) {
      const bare::Answer made =
          bench.app.try_region(bench.pd, reinterpret_cast<void*>(0x100000000), size, bare::kAllAccess, file.get());
      if (!made.good()) {
        why = made.words();
        break;
      }
      if (made.as<rnic_reg_mr_reply>().rung != 2) break;
      ++regions;
    }
  attacking();
  say(std::to_string(regions) + " regions; " + why);
  const Seconds start = now();
  while (now() - start < options.seconds) usleep(10'000);
  return 0;
}

}  // namespace rnic::hostile
