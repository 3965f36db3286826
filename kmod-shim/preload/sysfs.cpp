// The constructor, and the tree that libibverbs looks at. The daemon writes the tree; the
// stand-in points SYSFS_PATH at it, and sends those there who read /sys/class/infiniband directly
// (perftest does).
#include "sysfs.hpp"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <initializer_list>

#include "client.hpp"
#include "libc.hpp"
#include "rnic_run.h"

namespace rnic::preload {
namespace {

constexpr char kDeviceDirectory[] = "/dev/infiniband/";
constexpr char kDeviceNumbers[] = "/dev/char/";
constexpr const char* kSysPrefixes[] = {"/sys/class/infiniband", "/sys/class/misc/rdma_cm"};
constexpr std::size_t kSysLength = 4;  // "/sys"

// misc devices have major 10; librdmacm does not compare this number.
constexpr unsigned kCmMajor = 10;
constexpr unsigned kCmMinor = 58;

Settings g_settings;
bool g_complained = false;

bool starts_with(const char* text, const char* prefix) { return strncmp(text, prefix, strlen(prefix)) == 0; }

// One line of a small file, without its end.
bool read_line(const char* path, char* line, std::size_t size) {
  const int fd = libc().open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t got = ::read(fd, line, size - 1);
  libc().close(fd);
  if (got <= 0) return false;
  line[got] = '\0';
  line[strcspn(line, "\n")] = '\0';
  return true;
}

// Whether the directory there is one that a daemon of ours could have made. One that is missing is no harm.
bool may_be_our_daemons(const char* path) {
  char why[RNIC_WHY_MAX];
  const int directory = rnic_run_open(&libc().for_abi, path, why, sizeof why);
  if (directory >= 0) libc().close(directory);
  if (why[0] != '\0') complain(why);
  return why[0] == '\0';
}

bool default_run_dir(char* path, std::size_t size) {
  struct stat info;
  return rnic_run_directory(&libc().for_abi, "default", path, size) != 0 && libc().stat(path, &info) == 0;
}

bool has_provider(const char* directory) {
  DIR* entries = libc().opendir(directory);
  if (entries == nullptr) return false;
  bool found = false;
  while (const dirent* entry = readdir(entries)) {
    if (starts_with(entry->d_name, "librnic-rdmav")) found = true;
  }
  closedir(entries);
  return found;
}

// In a build tree, or installed beside each other, the provider is found from where we are.
// Elsewhere libibverbs finds it by /etc/libibverbs.d.
void name_provider() {
  if (getenv("RDMAV_DRIVERS") != nullptr) return;
  Dl_info self;
  if (dladdr(reinterpret_cast<const void*>(&configure), &self) == 0) return;
  char here[PATH_MAX];
  if (realpath(self.dli_fname, here) == nullptr) return;
  char* const slash = strrchr(here, '/');
  if (slash == nullptr) return;
  *slash = '\0';
  for (const char* beside : {"", "/../../provider", "/../libibverbs"}) {
    char stem[2 * PATH_MAX];
    snprintf(stem, sizeof stem, "%s%s", here, beside);
    if (!has_provider(stem)) continue;
    strncat(stem, "/librnic", sizeof stem - strlen(stem) - 1);
    setenv("RDMAV_DRIVERS", stem, 0);
    return;
  }
}

bool describe_uverbs(const char* node, NodeInfo& info) {
  char path[PATH_MAX + 128];
  char line[64];
  unsigned major_number = 0;
  unsigned minor_number = 0;
  snprintf(path, sizeof path, "%s/class/infiniband_verbs/%.32s/dev", g_settings.tree, node);
  if (!read_line(path, line, sizeof line)) return false;
  if (sscanf(line, "%u:%u", &major_number, &minor_number) != 2) return false;
  snprintf(path, sizeof path, "%s/class/infiniband_verbs/%.32s/ibdev", g_settings.tree, node);
  if (!read_line(path, info.device, sizeof info.device)) return false;
  info.number = makedev(major_number, minor_number);
  info.node = Node::uverbs;
  return true;
}

// /dev/char/231:192: libibverbs looks there when the usual name did not open.
bool describe_number(const char* text, NodeInfo& info) {
  unsigned wanted_major = 0;
  unsigned wanted_minor = 0;
  if (sscanf(text, "%u:%u", &wanted_major, &wanted_minor) != 2) return false;
  char path[PATH_MAX + 64];
  snprintf(path, sizeof path, "%s/class/infiniband_verbs", g_settings.tree);
  DIR* entries = libc().opendir(path);
  if (entries == nullptr) return false;
  bool found = false;
  while (const dirent* entry = readdir(entries)) {
    if (!starts_with(entry->d_name, "uverbs")) continue;
    found = describe_uverbs(entry->d_name, info) && info.number == makedev(wanted_major, wanted_minor);
    if (found) break;
  }
  closedir(entries);
  if (!found) info = {};
  return found;
}

}  // namespace

const Settings& settings() { return g_settings; }

void configure() {
  g_settings = {};
  g_complained = false;
  // The user's own stays; that of a `rnic run` around this one does not, as its daemon may be another, or none here.
  const char* given = getenv("SYSFS_PATH");
  const char* outer = getenv("RNIC_SYSFS_PATH");
  const bool of_outer = given != nullptr && outer != nullptr && strcmp(given, outer) == 0;
  if (of_outer) unsetenv("SYSFS_PATH");
  const char* run_dir = getenv("RNIC_RUN_DIR");
  if (run_dir != nullptr && *run_dir == '/') {
    snprintf(g_settings.run_dir, sizeof g_settings.run_dir, "%s", run_dir);
  } else if (run_dir != nullptr && *run_dir != '\0') {
    // The application may change its directory.
    if (realpath(run_dir, g_settings.run_dir) == nullptr) return;
  } else if (!default_run_dir(g_settings.run_dir, sizeof g_settings.run_dir)) {
    return;
  }
  if (!may_be_our_daemons(g_settings.run_dir)) return;
  const char* device = getenv("RNIC_DEVICE");
  if (device == nullptr) device = "";
  snprintf(g_settings.device, sizeof g_settings.device, "%s", device);

  char tree[2 * PATH_MAX];
  snprintf(tree, sizeof tree, *device == '\0' ? "%s/sysfs" : "%s/sysfs-%s", g_settings.run_dir, device);
  if (strlen(tree) >= sizeof g_settings.tree) return;
  memcpy(g_settings.tree, tree, strlen(tree) + 1);
  g_settings.active = true;
  const char* fast_memory = getenv("RNIC_FAST_MEMORY");
  g_settings.fast_memory = fast_memory != nullptr && strcmp(fast_memory, "1") == 0;

  if (given == nullptr || of_outer) {
    setenv("SYSFS_PATH", g_settings.tree, 1);
    setenv("RNIC_SYSFS_PATH", g_settings.tree, 1);
  }
  name_provider();
}

NodeInfo find_node(const char* path) {
  NodeInfo info;
  if (path == nullptr || path[0] != '/' || path[1] != 'd' || !g_settings.active) return info;
  if (starts_with(path, kDeviceDirectory)) {
    const char* node = path + sizeof kDeviceDirectory - 1;
    if (strcmp(node, "rdma_cm") == 0) {
      info.node = Node::rdma_cm;
      info.number = makedev(kCmMajor, kCmMinor);
    } else if (starts_with(node, "uverbs")) {
      describe_uverbs(node, info);
    }
  } else if (starts_with(path, kDeviceNumbers)) {
    describe_number(path + sizeof kDeviceNumbers - 1, info);
  }
  return info;
}

const char* translate_path(const char* path, char* room) {
  if (path == nullptr || path[0] != '/' || path[1] != 's' || !g_settings.active) return path;
  for (const char* prefix : kSysPrefixes) {
    if (!starts_with(path, prefix)) continue;
    const int length = snprintf(room, PATH_MAX, "%s%s", g_settings.tree, path + kSysLength);
    return length < PATH_MAX ? room : path;
  }
  return path;
}

bool is_of_empty_gid(const char* path) {
  if (path == nullptr || path[0] != '/' || !g_settings.active) return false;
  char room[PATH_MAX];
  path = translate_path(path, room);
  if (!starts_with(path, g_settings.tree) || strstr(path, "/gid_attrs/") == nullptr) return false;
  struct stat info;
  return libc().stat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == 0;
}

void complain(const char* why) {
  if (g_complained) return;
  g_complained = true;
  char text[RNIC_WHY_MAX + 16];
  const int length = snprintf(text, sizeof text, "rnic: %s\n", why);
  const int saved = errno;
  if (length > 0) {
    [[maybe_unused]] const ssize_t written = libc().write(STDERR_FILENO, text, static_cast<std::size_t>(length));
  }
  errno = saved;
}

void complain_of_no_daemon() {
  char why[PATH_MAX + 128];
  snprintf(why, sizeof why, "no daemon answers at %s/control.sock; start one with `rnic up`.", g_settings.run_dir);
  complain(why);
}

namespace {

[[gnu::constructor]] void start() {
  find_libc();
  configure();
  watch_forks();
}

}  // namespace

}  // namespace rnic::preload
