// What the library imports and exports: it lives in other people's processes.
#include "kit/catch.hpp"

#include <cstdio>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>

namespace {

std::string output_of(const std::string& command) {
  std::string text;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  char piece[4096];
  while (const std::size_t got = fread(piece, 1, sizeof piece, pipe)) text.append(piece, got);
  pclose(pipe);
  return text;
}

std::string library() {
  const char* const path = getenv("RNIC_PRELOAD");
  INFO("RNIC_PRELOAD names the library; `meson test` sets it");
  REQUIRE(path != nullptr);
  return path;
}

}  // namespace

TEST_CASE("the stand-in needs nothing but libc", "[preload][library]") {
  const std::string text = output_of("readelf -d '" + library() + "' | grep NEEDED");
  CHECK(text.find("libc.so.6") != std::string::npos);
  CHECK(text.find("libstdc++") == std::string::npos);
  CHECK(text.find("libgcc") == std::string::npos);
}

TEST_CASE("the stand-in exports only the calls that it takes over", "[preload][library]") {
  std::istringstream lines(output_of("nm -D --defined-only '" + library() + "'"));
  std::set<std::string> names;
  std::string address;
  std::string kind;
  std::string name;
  while (lines >> address >> kind >> name) names.insert(name);
  CHECK(names == std::set<std::string>{
                     "__fxstat", "__fxstat64",   "__fxstatat", "__fxstatat64", "__lxstat",  "__lxstat64", "__open64_2",
                     "__open_2", "__openat64_2", "__openat_2", "__xstat",      "__xstat64", "access",     "close",
                     "dup",      "dup2",         "dup3",       "faccessat",    "fcntl",     "fcntl64",    "fopen",
                     "fopen64",  "freeifaddrs",  "fstat",      "fstat64",      "fstatat",   "fstatat64",  "getifaddrs",
                     "lstat",    "lstat64",      "madvise",    "mremap",       "open",      "open64",     "openat",
                     "openat64", "opendir",      "readlink",   "readlinkat",   "recv",      "recvfrom",   "recvmsg",
                     "send",     "sendmsg",      "sendto",     "socket",       "stat",      "stat64",     "statx",
                     "write"});
}
