#include "control/run_directory.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

#include "rnic_run.h"

namespace rnic::control {

std::string run_base() {
  char base[PATH_MAX];
  return rnic_run_base(base, sizeof base) != 0 ? base : std::string();
}

std::string run_directory(const std::string& name) {
  char path[PATH_MAX];
  return rnic_run_directory(name.c_str(), path, sizeof path) != 0 ? path : std::string();
}

std::string new_run_directory(const std::string& name) {
  const std::string base = run_base();
  return base.empty() ? base : base + "/" + name;
}

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
