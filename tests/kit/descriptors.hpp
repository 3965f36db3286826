// How many descriptors this process has, to be compared with an earlier number.
#pragma once

#include <dirent.h>

#include <cstddef>

namespace rnic::test {

inline std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

}  // namespace rnic::test
