#include "control/sent_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace rnic::control {
namespace {

// Octets of a table of mounts that are read: some thousand mounts, 30 ms.
constexpr std::size_t kMountTableBytesMax = 256 * 1024;

// The number of the mount that a descriptor was opened on; empty where procfs does not say.
std::string mount_of(int fd) {
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(fd));
  std::string word, value;
  while (info >> word)
    if (word == "mnt_id:" && info >> value) return value;
  return {};
}

// A mount's number is the kernel's, and so is the type that it gives for it. The table is an application's own where it
// has a mount namespace of its own, and as long as it likes; others wait while it is read.
bool is_procfs(const std::string& mount, const std::string& mount_table) {
  std::ifstream table(mount_table);
  std::string line;
  for (std::size_t read = 0; read < kMountTableBytesMax && std::getline(table, line); read += line.size() + 1) {
    if (!line.starts_with(mount + " ")) continue;
    const auto type = line.find(" - ");
    return type != std::string::npos && std::string_view(line).substr(type).starts_with(" - proc ");
  }
  return false;
}

}  // namespace

bool is_memory_file(int fd) { return fcntl(fd, F_GET_SEALS) >= 0; }

bool is_process_memory(int fd, pid_t peer) {
  if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR) return false;
  char path[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = readlink(link.c_str(), path, sizeof path);
  if (length <= 0 || !std::string_view(path, static_cast<std::size_t>(length)).ends_with("/mem")) return false;
  const std::string mount = mount_of(fd);
  if (mount.empty()) return false;
  if (!is_procfs(mount, "/proc/self/mountinfo") && !is_procfs(mount, "/proc/" + std::to_string(peer) + "/mountinfo"))
    return false;
  struct stat status {};
  return fstat(fd, &status) == 0 && S_ISREG(status.st_mode);  // procfs's own answer
}

}  // namespace rnic::control
