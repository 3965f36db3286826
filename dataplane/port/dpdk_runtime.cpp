#include "port/dpdk_runtime.hpp"

#include <bpf/libbpf.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <sched.h>
#include <unistd.h>
#include <xdp/libxdp.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <utility>

namespace rnic::port {
namespace {

// Takes what DPDK writes, cut into lines.
struct Log {
  std::mutex mutex;
  std::function<void(const std::string&)> sink;
  std::string partial;
  std::string first;  // since it was last asked for: the first complaint is the cause, the rest follow from it
};
Log& log() {
  static Log* const the_log = new Log;  // DPDK's threads may still write when statics are destroyed
  return *the_log;
}

ssize_t write_log(void*, const char* text, std::size_t size) {
  Log& l = log();
  const std::lock_guard guard(l.mutex);
  l.partial.append(text, size);
  for (std::size_t end; (end = l.partial.find('\n')) != std::string::npos;) {
    const std::string line = l.partial.substr(0, end);
    l.partial.erase(0, end + 1);
    if (l.first.empty()) l.first = line;
    if (l.sink) l.sink(line);
  }
  return static_cast<ssize_t>(size);
}

// libbpf and libxdp write to stderr on their own. What they warn of goes to the log (they warn of much that does no
// harm, so it is no complaint); the rest is noise.
int hear_library(int level, const char* format, va_list arguments) {
  constexpr int kWarn = 0;  // LIBBPF_WARN, LIBXDP_WARN
  if (level != kWarn) return 0;
  char text[512];
  const int size = std::vsnprintf(text, sizeof text, format, arguments);
  if (size <= 0) return size;
  std::string line(text, std::min(static_cast<std::size_t>(size), sizeof text - 1));
  while (!line.empty() && line.back() == '\n') line.pop_back();
  Log& l = log();
  const std::lock_guard guard(l.mutex);
  if (l.sink) l.sink(line);
  return size;
}
bool started_ = false;

// One logical core that is any of those we may run on: EAL then pins nothing.
std::string floating_core() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::string list;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE && cpu < RTE_MAX_LCORE; ++cpu)
      if (CPU_ISSET(cpu, &set)) list += (list.empty() ? "" : ",") + std::to_string(cpu);
  }
  return "0@(" + (list.empty() ? "0" : list) + ")";
}

bool huge_pages_free() {
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  for (long value = 0; meminfo >> key;) {
    if (key == "HugePages_Free:" && meminfo >> value) return value > 0;
  }
  return false;
}

}  // namespace

bool dpdk_started() { return started_; }

bool start_dpdk(const DpdkOptions& options, std::string& error) {
  if (started_) return true;
  log().sink = options.log;
  cookie_io_functions_t functions{};
  functions.write = write_log;
  if (FILE* stream = fopencookie(nullptr, "w", functions); stream != nullptr) {
    setvbuf(stream, nullptr, _IONBF, 0);
    rte_openlog_stream(stream);
  }

  std::vector<std::string> arguments{"rnicd", "--lcores", floating_core(), "--no-telemetry", "--log-level=error"};
  if (options.pci_addresses.empty()) {
    arguments.insert(arguments.end(), {"--no-pci", "--no-huge", "--no-shconf", "--iova-mode=va", "-m",
                                       std::to_string(options.memory_mib)});
  } else {
    for (const std::string& address : options.pci_addresses) arguments.insert(arguments.end(), {"-a", address});
    // Without an IOMMU a NIC needs physical addresses, and these need huge pages.
    if (huge_pages_free()) {
      arguments.insert(arguments.end(), {"--in-memory"});
    } else {
      arguments.insert(arguments.end(), {"--no-huge", "--no-shconf", "-m", std::to_string(options.memory_mib)});
    }
  }
  arguments.push_back("--file-prefix=rnic-" + std::to_string(getpid()));

  // EAL keeps pointers to its arguments.
  static std::vector<std::string> kept;
  kept = std::move(arguments);
  std::vector<char*> argv;
  for (std::string& argument : kept) argv.push_back(argument.data());
  if (rte_eal_init(static_cast<int>(argv.size()), argv.data()) < 0) {
    const std::string complaint = dpdk_complaint();
    error = "DPDK does not start: " + (complaint.empty() ? std::string(rte_strerror(rte_errno)) : complaint);
    return false;
  }
  // EAL makes a directory for what processes share, which is nothing, and never removes it.
  (void)rmdir(rte_eal_get_runtime_dir());
  // A memif client tries again until its server is there; that is no error each time.
  rte_log_set_level_pattern("pmd.net.memif", RTE_LOG_CRIT);
  libbpf_set_print([](libbpf_print_level level, const char* format, va_list arguments) {
    return hear_library(level, format, arguments);
  });
  libxdp_set_print([](libxdp_print_level level, const char* format, va_list arguments) {
    return hear_library(level, format, arguments);
  });
  started_ = true;
  return true;
}

void dpdk_register_thread() {
  if (started_ && rte_lcore_id() == LCORE_ID_ANY) rte_thread_register();
}

std::string dpdk_complaint() {
  Log& l = log();
  const std::lock_guard guard(l.mutex);
  return std::exchange(l.first, {});
}

}  // namespace rnic::port
