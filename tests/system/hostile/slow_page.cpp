// A Write's target is a page that does not come: userfaultfd holds it for as long as the attack lasts.
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "system/hostile/hostile.hpp"

namespace rnic::hostile {

int slow_page(const Options& options) {
  const bare::Descriptor faults(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC)));
  if (!faults) bare::fail("userfaultfd", errno);
  uffdio_api api{};
  api.api = UFFD_API;
  if (ioctl(faults.get(), UFFDIO_API, &api) != 0) bare::fail("UFFDIO_API", errno);

  Pair pair(options.socket);
  constexpr std::size_t kBytes = 16 * 4096;
  void* at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) bare::fail("memory", errno);
  uffdio_register held{};
  held.range = {reinterpret_cast<std::uintptr_t>(at), kBytes};
  held.mode = UFFDIO_REGISTER_MODE_MISSING;
  if (ioctl(faults.get(), UFFDIO_REGISTER, &held) != 0) bare::fail("UFFDIO_REGISTER", errno);
  const bare::Region slow = pair.app.region(pair.pd, at, kBytes, bare::kAllAccess);
  const bare::Region quick = pair.app.region(pair.pd, bare::private_memory(4096), 4096, bare::kAllAccess);

  attacking();
  const Seconds start = now();
  for (std::size_t page = 0; page < kBytes / 4096; ++page)
    pair.app.post_write(pair.caller, quick.sge(0, 4096), slow.sge(page * 4096, 1).address, slow.stag);
  // Ended by the daemon or not, the pages do not come before the time is over.
  while (now() - start < options.seconds) usleep(10'000);
  say(std::string("held for ") + std::to_string(options.seconds) + " s; the context is " +
      (pair.app.status->dead != 0 ? "dead" : "alive"));
  return 0;
}

}  // namespace rnic::hostile
