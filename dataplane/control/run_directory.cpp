#include "control/run_directory.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace rnic::control {

std::string run_base() {
  if (const char* given = std::getenv("RNIC_RUN_BASE"); given != nullptr && *given != '\0') return given;
  if (geteuid() == 0) return "/run/rnic";
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime != nullptr && *runtime != '\0') {
    struct stat found {};
    if (stat(runtime, &found) == 0 && S_ISDIR(found.st_mode)) return std::string(runtime) + "/rnic";
  }
  return "/tmp/rnic-" + std::to_string(geteuid());
}

std::string run_directory(const std::string& name) { return run_base() + "/" + name; }

bool good_name(const std::string& name) {
  if (name.empty() || name.size() > 64 || name == "." || name == "..") return false;
  for (const char c : name) {
    const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                      c == '_' || c == '.';
    if (!good) return false;
  }
  return true;
}

std::string make_directory(const std::string& directory) {
  for (std::size_t at = directory.find('/', 1);; at = directory.find('/', at + 1)) {
    const std::string part = directory.substr(0, at);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST)
      return "cannot make the directory " + part + ": " + std::strerror(errno);
    if (at == std::string::npos) break;
  }
  struct stat made {};
  if (lstat(directory.c_str(), &made) != 0 || !S_ISDIR(made.st_mode))
    return directory + " is not a directory";
  if (made.st_uid != geteuid()) return directory + " belongs to another user; set RNIC_RUN_BASE to a directory of yours";
  return {};
}

}  // namespace rnic::control
