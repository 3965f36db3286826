#include "control/run_directory.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "control/descriptor.hpp"
#include "rnic_run.h"

namespace rnic::control {

std::string run_base() {
  char base[PATH_MAX];
  return rnic_run_base(rnic_libc_plain(), base, sizeof base) != 0 ? base : std::string();
}

std::string run_directory(const std::string& name) {
  char path[PATH_MAX];
  return rnic_run_directory(rnic_libc_plain(), name.c_str(), path, sizeof path) != 0 ? path : std::string();
}

std::string new_run_directory(const std::string& name) {
  const std::string base = run_base();
  return base.empty() ? base : base + "/" + name;
}

bool good_name(const std::string& name) {
  if (name.empty() || name.size() > 64 || name == "." || name == "..") return false;
  for (const char c : name) {
    const bool good =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    if (!good) return false;
  }
  return true;
}

std::string make_directory(const std::string& path_of_it) {
  const std::string directory = path_of_it.substr(0, path_of_it.find_last_not_of('/') + 1);
  char why[RNIC_WHY_MAX] = {};
  Descriptor at(open(directory.starts_with('/') ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  const auto base_at = directory.find_last_of('/');
  bool ours = false;  // one that was missing is ours to make, and so is all below it
  for (std::size_t from = 0, to = 0; to < directory.size(); from = to + 1) {
    to = std::min(directory.find('/', from), directory.size());
    if (from == to) continue;
    const std::string name = directory.substr(from, to - from), path = directory.substr(0, to);
    const bool last = to == directory.size();
    ours = ours || last || to == base_at;
    if (mkdirat(at.get(), name.c_str(), 0700) == 0)
      ours = true;
    else if (errno != EEXIST)
      return "cannot make the directory " + path + ": " + std::strerror(errno) +
             (errno == EACCES ? "; set RNIC_RUN_BASE to a directory of yours" : "");
    const int next =
        ours ? rnic_directory_enter(rnic_libc_plain(), at.get(), name.c_str(), path.c_str(), !last, why, sizeof why)
             : openat(at.get(), name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (next < 0) return *why != '\0' ? why : "cannot open the directory " + path + ": " + std::strerror(errno);
    at = Descriptor(next);
  }
  struct stat made {};
  if (fstat(at.get(), &made) != 0 || !rnic_same_user(rnic_libc_plain(), made.st_uid, geteuid()))
    return directory + " belongs to another user; set RNIC_RUN_BASE to a directory of yours";
  return {};
}

}  // namespace rnic::control
