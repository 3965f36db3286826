// rnic doctor: checks this machine and says, in plain words, which ways of running rnic work here
// and what is missing for the others.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "client.hpp"
#include "commands.hpp"
#include "places.hpp"
#include "port/capability.hpp"
#include "rnic_control.h"
#include "userfault.hpp"

namespace rnic::tool {
namespace {

using Kind = port::PortSpec::Kind;

enum class Level { good, note, bad };

void say(Level level, const std::string& what, const std::string& words) {
  const char* mark = level == Level::good ? "ok  " : level == Level::note ? "note" : "BAD ";
  std::printf("%s  %-22s %s\n", mark, what.c_str(), words.c_str());
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// A child of ours is reached as an application is.
void check_remote_copy() {
  int words[2];
  if (pipe(words) != 0) return;
  static volatile char target[16];
  const pid_t child = fork();
  if (child == 0) {
    char wait;
    close(words[1]);
    [[maybe_unused]] const auto got = read(words[0], &wait, 1);
    _exit(0);
  }
  close(words[0]);
  char octets[16] = "reached";
  const iovec local{octets, sizeof octets};
  const iovec remote{const_cast<char*>(target), sizeof target};
  const bool by_call = process_vm_writev(child, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(sizeof octets);
  const int memory = open(("/proc/" + std::to_string(child) + "/mem").c_str(), O_RDWR | O_CLOEXEC);
  const bool by_file = memory >= 0 && pwrite(memory, octets, sizeof octets, reinterpret_cast<off_t>(target)) ==
                                          static_cast<ssize_t>(sizeof octets);
  if (memory >= 0) close(memory);
  close(words[1]);
  waitpid(child, nullptr, 0);
  if (by_call)
    say(Level::good, "application memory", "process_vm_readv/writev work (rung 4, the fast way)");
  else if (by_file)
    say(Level::note, "application memory", "process_vm_* are refused; /proc/PID/mem works (rung 4, slower)");
  else
    say(Level::bad, "application memory",
        "neither process_vm_* nor /proc/PID/mem works here: applications need shared memory buffers, or a container "
        "with ptrace allowed (--cap-add SYS_PTRACE)");
}

void check_memory() {
  const int memory = memfd_create("rnic-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memory < 0) {
    say(Level::bad, "shared queues", std::string("memfd_create: ") + std::strerror(errno));
  } else {
    close(memory);
    say(Level::good, "shared queues", "sealed memfds work");
  }
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  if (limit.rlim_cur == RLIM_INFINITY)
    say(Level::good, "locked memory", "no limit");
  else
    say(Level::note, "locked memory",
        std::to_string(limit.rlim_cur / 1024) +
            " KiB (ulimit -l). rnic locks nothing, but fio and others do and stop at it");
  const std::string pages = first_line("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
  say(Level::good, "huge pages", (pages.empty() ? "0" : pages) + " of 2 MiB (none are needed)");
}

void check_capabilities(Kind kind, const char* remedy) {
  const std::string missing = port::lacks(kind);
  if (missing.empty())
    say(Level::good, port::name(kind), "this user has " + port::needs(kind));
  else
    say(Level::note, port::name(kind), "needs " + port::needs(kind) + "; this user lacks " + missing + ": " + remedy);
}

void check_ports() {
  say(Level::good, "loopback, pair, memif", "need nothing");
  check_capabilities(Kind::af_packet, "run as root, or setcap cap_net_raw,cap_net_admin+ep on rnicd");
  check_capabilities(Kind::af_xdp, "run as root");
  if (access("/dev/net/tun", R_OK | W_OK) == 0)
    check_capabilities(Kind::tap, "run as root");
  else
    say(Level::note, "tap", "needs /dev/net/tun and " + port::needs(Kind::tap));
  if (access("/dev/vfio/vfio", R_OK | W_OK) == 0)
    say(Level::good, "pci", "VFIO is there; bind the NIC with dpdk-devbind.py -b vfio-pci ADDRESS");
  else
    say(Level::note, "pci", "no /dev/vfio/vfio: needs the vfio-pci module, an IOMMU, and the NIC bound to it");
}

void check_bad_checksums(Client& daemon) {
  rnic_show request{};
  std::strncpy(request.what, "port", sizeof request.what - 1);
  rnic_handle_reply reply{};
  int memory = -1;
  if (daemon.ask(RNIC_SHOW, &request, sizeof request, &reply, sizeof reply, &memory) != 0 || memory < 0) return;
  std::string text(reply.handle, '\0');
  const ssize_t got = pread(memory, text.data(), text.size(), 0);
  close(memory);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  const auto document = nlohmann::json::parse(text, nullptr, false);
  if (document.is_discarded() || !document.contains("port")) return;
  for (const auto& row : document["port"]) {
    const std::string kind = row.value("kind", "");
    const auto bad = row.value("bad_checksums", std::uint64_t{0});
    if (bad != 0 && (kind == "af_packet" || kind == "af_xdp"))
      say(Level::bad, row.value("device", ""),
          std::to_string(bad) +
              " segments came with wrong checksums and were dropped: something between their sender"
              " and here damages frames");
    if (row.contains("conflicts") && row["conflicts"].is_array())
      for (const auto& conflict : row["conflicts"])
        say(Level::bad, row.value("device", ""), "another station claims its address: " + conflict.get<std::string>());
  }
}

// libibverbs looks only for plugins of the number that its private interface has.
void check_libibverbs() {
  void* verbs = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (verbs == nullptr) {
    say(Level::note, "libibverbs", "is not in the usual places; applications bring it along (Debian: libibverbs1)");
    return;
  }
  std::string others;
  bool ours = false;
  for (const std::string& number : provider_numbers()) {
    ours |= dlsym(verbs, ("verbs_register_driver_" + number).c_str()) != nullptr;
    others += (others.empty() ? "" : ", ") + number;
  }
  dlclose(verbs);
  if (ours || others.empty())
    say(Level::good, "libibverbs", "is installed");
  else
    say(Level::bad, "libibverbs",
        "has another private interface than the provider, which was built for " + others +
            ": programs see no device; build rnic again, or install the package made for this release");
}

void check_programs() {
  say(daemon_program().empty() ? Level::bad : Level::good, "daemon",
      daemon_program().empty() ? "rnicd is not found" : daemon_program());
  say(provider_stem().empty() ? Level::bad : Level::good, "provider",
      provider_stem().empty() ? "librnic-rdmavNN.so is not found" : provider_stem() + "-rdmavNN.so");
  say(standin_library().empty() ? Level::bad : Level::good, "stand-in",
      standin_library().empty() ? "librnic-preload.so is not found" : standin_library());
  check_libibverbs();
  if (access("/sys/class/infiniband", F_OK) == 0)
    say(Level::note, "kernel RDMA",
        "this kernel has RDMA devices of its own; under `rnic run` programs see rnic's only");
  const std::string scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
  if (!scope.empty() && scope != "0")
    say(Level::note, "Yama",
        "ptrace_scope is " + scope +
            (scope == "1" ? ": applications allow the daemon by name, this works"
                          : ": remote copies may be refused; see `application memory`"));
}

}  // namespace

int doctor(const std::string& name) {
  check_programs();
  check_memory();
  check_remote_copy();
  say(may_swap_pages() ? Level::good : Level::note, "fast memory",
      may_swap_pages() ? "rnic run --fast-memory can share the pages of registered buffers"
                       : "no userfaultfd for this user: rnic run --fast-memory has no effect; allow it by "
                         "\"sysctl vm.unprivileged_userfaultfd=1\", or by access to /dev/userfaultfd (by the "
                         "Debian package: usermod -aG rnic USER)");
  check_ports();
  say(port::has(port::Capability::sys_nice) ? Level::good : Level::note, "scheduling",
      port::has(port::Capability::sys_nice)
          ? "the workers may run with SCHED_FIFO"
          : "no CAP_SYS_NICE: workers are scheduled as everybody else; latencies are higher when all cores are busy");
  Client daemon;
  if (daemon.connect(name)) {
    say(Level::good, "daemon \"" + name + "\"", "is running, pid " + std::to_string(daemon.daemon_pid()));
    check_bad_checksums(daemon);
  } else {
    say(Level::note, "daemon \"" + name + "\"", daemon.why());
  }
  return 0;
}

}  // namespace rnic::tool
