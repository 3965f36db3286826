#include "places.hpp"

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

std::string first_of(const std::string& in_build, const std::string& installed, const std::string& suffix) {
  const std::string build = build_directory() + in_build;
  if (access((build + suffix).c_str(), R_OK) == 0) return build;
  if (access((installed + suffix).c_str(), R_OK) == 0) return installed;
  return {};
}

}  // namespace

std::string daemon_program() { return first_of("/dataplane/rnicd", RNIC_LIBEXEC_DIR "/rnicd", ""); }

std::string provider_stem() {
  // Any one of the libibverbs versions that it was built for.
  for (const char* version : {"-rdmav34.so", "-rdmav57.so", "-rdmav59.so", "-rdmav64.so"}) {
    if (auto stem = first_of("/provider/librnic", RNIC_PROVIDER_DIR "/librnic", version); !stem.empty()) return stem;
  }
  return {};
}

std::string standin_library() {
  return first_of("/kmod-shim/preload/librnic-preload.so", RNIC_LIB_DIR "/librnic-preload.so", "");
}

}  // namespace rnic::tool
