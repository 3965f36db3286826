// The targets under libFuzzer, one chosen by an argument: see tools/fuzz.
//
//   rnic-fuzz --list                          names and what they are
//   rnic-fuzz --write-seeds TARGET DIRECTORY
//   rnic-fuzz --target=TARGET [libFuzzer's own arguments]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "fuzz/target.hpp"

using namespace rnic;

namespace {
const fuzz::Target* chosen = nullptr;

const fuzz::Target& target_or_exit(const char* name) {
  const fuzz::Target* found = fuzz::find(name);
  if (found != nullptr) return *found;
  std::fprintf(stderr, "rnic-fuzz: there is no target %s\n", name);
  std::exit(2);
}

void write_seeds(const fuzz::Target& target, const std::string& directory) {
  unsigned number = 0;
  for (const fuzz::Octets& seed : target.seeds()) {
    std::ofstream file(directory + "/seed-" + std::to_string(number++), std::ios::binary);
    file.write(reinterpret_cast<const char*>(seed.data()), static_cast<std::streamsize>(seed.size()));
    if (!file) {
      std::fprintf(stderr, "rnic-fuzz: cannot write to %s\n", directory.c_str());
      std::exit(1);
    }
  }
}
}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  char** words = *argv;
  if (*argc == 2 && std::strcmp(words[1], "--list") == 0) {
    for (const fuzz::Target& target : fuzz::targets())
      std::printf("%-14s %s\n", std::string(target.name).c_str(), std::string(target.what).c_str());
    std::exit(0);
  }
  if (*argc == 4 && std::strcmp(words[1], "--write-seeds") == 0) {
    write_seeds(target_or_exit(words[2]), words[3]);
    std::exit(0);
  }
  for (int i = 1; i < *argc; ++i)
    if (std::strncmp(words[i], "--target=", 9) == 0) chosen = &target_or_exit(words[i] + 9);
  if (chosen == nullptr) {
    std::fprintf(stderr, "rnic-fuzz: --target=TARGET is missing; see --list\n");
    std::exit(2);
  }
  return 0;  // libFuzzer itself passes over arguments that begin with two dashes
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  chosen->run(as_bytes(data, size));
  return 0;
}
