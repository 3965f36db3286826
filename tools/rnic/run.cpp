// rnic run: a command under the stand-in for the kernel, with our provider.
#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "client.hpp"
#include "commands.hpp"
#include "control/run_directory.hpp"
#include "places.hpp"
#include "userfault.hpp"

namespace rnic::tool {
namespace {

bool may_run(const std::string& program) {
  struct stat found {};
  return stat(program.c_str(), &found) == 0 && S_ISREG(found.st_mode) && access(program.c_str(), X_OK) == 0;
}

// As execvp would find it.
std::string find_program(const std::string& name) {
  // What is there and may not be run is no missing program.
  if (name.find('/') != std::string::npos)
    return access(name.c_str(), F_OK) == 0 || errno == EACCES ? name : std::string();
  const char* path = std::getenv("PATH");
  std::string rest = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  for (std::size_t start = 0; start <= rest.size();) {
    const auto colon = rest.find(':', start);
    const std::string directory = rest.substr(start, colon == std::string::npos ? colon : colon - start);
    const std::string candidate = (directory.empty() ? "." : directory) + "/" + name;
    if (may_run(candidate)) return candidate;
    if (colon == std::string::npos) break;
    start = colon + 1;
  }
  return {};
}

// Why a program cannot run under a preloaded library; empty if it can.
std::string why_not(const std::string& program) {
  struct stat found {};
  if (stat(program.c_str(), &found) == 0 && (found.st_mode & (S_ISUID | S_ISGID)) != 0 && geteuid() != 0)
    return "is setuid or setgid, and the system loads no library of ours into such programs";
  const int fd = open(program.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  Elf64_Ehdr header{};
  const bool whole = pread(fd, &header, sizeof header, 0) == static_cast<ssize_t>(sizeof header);
  std::string reason;
  if (whole && std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0) {
    if (header.e_ident[EI_CLASS] != ELFCLASS64) {
      reason = "is a 32-bit program; rnic's libraries are 64-bit";
    } else {
      bool interpreter = false;
      for (unsigned i = 0; i < header.e_phnum; ++i) {
        Elf64_Phdr part{};
        if (pread(fd, &part, sizeof part, static_cast<off_t>(header.e_phoff + i * sizeof part)) != sizeof part) break;
        interpreter |= part.p_type == PT_INTERP;
      }
      if (!interpreter) reason = "is statically linked, so no library of ours can be loaded into it";
    }
  }
  close(fd);
  return reason;
}

}  // namespace

int run(const RunOptions& options) {
  const std::string preload = standin_library();
  const std::string provider = provider_stem();
  if (preload.empty() || provider.empty()) {
    std::fprintf(stderr, "rnic run: rnic's libraries are neither beside this program nor installed\n");
    return 126;
  }
  const std::string program = find_program(options.command.front());
  if (program.empty()) {
    std::fprintf(stderr, "rnic run: %s: no such program\n", options.command.front().c_str());
    return 127;
  }
  if (!may_run(program)) {
    std::fprintf(stderr, "rnic run: %s: %s\n", program.c_str(), std::strerror(EACCES));
    return 126;
  }
  if (const std::string reason = why_not(program); !reason.empty()) {
    std::fprintf(stderr, "rnic run: %s %s\n", program.c_str(), reason.c_str());
    return 126;
  }
  {
    Client daemon;
    if (!daemon.connect(options.name)) {
      std::fprintf(stderr, "rnic run: %s\n", daemon.why().c_str());
      return 125;
    }
    if (!options.device.empty()) {
      alignas(8) char reply[RNIC_MSG_MAX];
      std::string names;
      bool found = false;
      if (daemon.ask(RNIC_LIST_DEVICES, nullptr, 0, reply, sizeof reply) == 0) {
        rnic_list_devices_reply list;
        std::memcpy(&list, reply, sizeof list);
        for (std::uint32_t i = 0; i < list.count && sizeof list + (i + 1) * sizeof(rnic_device_info) <= sizeof reply;
             ++i) {
          rnic_device_info device;
          std::memcpy(&device, reply + sizeof list + i * sizeof device, sizeof device);
          device.name[RNIC_NAME_MAX - 1] = '\0';
          found |= options.device == device.name;
          names += std::string(names.empty() ? "" : ", ") + device.name;
        }
      }
      if (!found) {
        std::fprintf(stderr, "rnic run: the daemon \"%s\" has no device %s; it has: %s\n", options.name.c_str(),
                     options.device.c_str(), names.c_str());
        return 125;
      }
    }
  }
  setenv("RNIC_RUN_DIR", control::run_directory(options.name).c_str(), 1);
  if (options.device.empty())
    unsetenv("RNIC_DEVICE");
  else
    setenv("RNIC_DEVICE", options.device.c_str(), 1);
  if (options.fast_memory) {
    setenv("RNIC_FAST_MEMORY", "1", 1);
    if (!may_swap_pages())
      std::fprintf(
          stderr,
          "rnic run: --fast-memory: this user may not use userfaultfd, so buffers are reached by remote copy; "
          "allow it by \"sysctl vm.unprivileged_userfaultfd=1\" or by access to /dev/userfaultfd (by the Debian "
          "package: usermod -aG rnic USER)\n");
  } else {
    unsetenv("RNIC_FAST_MEMORY");
  }
  setenv("RDMAV_DRIVERS", provider.c_str(), 1);
  // One that is set already stays, behind ours.
  const char* before = std::getenv("LD_PRELOAD");
  std::string libraries = preload;
  if (before != nullptr && *before != '\0') libraries += std::string(":") + before;
  setenv("LD_PRELOAD", libraries.c_str(), 1);

  std::vector<char*> arguments;
  for (const std::string& word : options.command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execv(program.c_str(), arguments.data());
  std::fprintf(stderr, "rnic run: %s: %s\n", program.c_str(), std::strerror(errno));
  return 126;
}

}  // namespace rnic::tool
