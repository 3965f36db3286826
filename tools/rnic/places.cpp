#include "places.hpp"

#include <glob.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

namespace rnic::tool {
namespace {

// The directory three above this program: build/ in the build tree, where it is build/tools/rnic.
std::string build_directory() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length <= 0) return {};
  std::string directory(path, static_cast<std::size_t>(length));
  for (int up = 0; up < 3; ++up) {
    const auto slash = directory.rfind('/');
    if (slash == std::string::npos) return {};
    directory.resize(slash);
  }
  return directory;
}

std::string first_of(const std::string& in_build, const std::string& installed) {
  const std::string build = build_directory() + in_build;
  if (access(build.c_str(), R_OK) == 0) return build;
  if (access(installed.c_str(), R_OK) == 0) return installed;
  return {};
}

std::vector<std::string> numbers_of(const std::string& stem) {
  const std::string before = stem + "-rdmav";
  std::vector<std::string> numbers;
  glob_t found{};
  if (!stem.empty() && glob((before + "*.so").c_str(), 0, nullptr, &found) == 0) {
    for (std::size_t i = 0; i < found.gl_pathc; ++i) {
      const std::string path = found.gl_pathv[i];
      numbers.push_back(path.substr(before.size(), path.size() - before.size() - 3));
    }
  }
  globfree(&found);
  return numbers;
}

}  // namespace

std::string daemon_program() { return first_of("/dataplane/rnicd", RNIC_LIBEXEC_DIR "/rnicd"); }

std::string provider_stem() {
  for (const std::string& directory : {build_directory() + "/provider", std::string(RNIC_PROVIDER_DIR)})
    if (!numbers_of(directory + "/librnic").empty()) return directory + "/librnic";
  return {};
}

std::vector<std::string> provider_numbers() { return numbers_of(provider_stem()); }

std::string standin_library() {
  return first_of("/kmod-shim/preload/librnic-preload.so", RNIC_LIB_DIR "/librnic-preload.so");
}

}  // namespace rnic::tool
