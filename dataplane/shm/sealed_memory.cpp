#include "shm/sealed_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace rnic::shm {

Result<SealedMemory, int> sealed_memory(const char* name, std::uint64_t bytes, unsigned extra_seals) {
  const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return Failure{errno};
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    const int reason = errno;
    close(fd);
    return Failure{reason};
  }
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    const int reason = errno;
    close(fd);
    return Failure{reason};
  }
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | extra_seals) != 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL) != 0) {
    const int reason = errno;
    munmap(base, bytes);
    close(fd);
    return Failure{reason};
  }
  return SealedMemory{fd, base};
}

}  // namespace rnic::shm
