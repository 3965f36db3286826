// rnicd: the daemon. Reads what is asked for, builds every object, starts the workers, and serves
// until it is told to end.
#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>

#include "base/assert.hpp"
#include "control/build.hpp"
#include "control/configuration.hpp"
#include "control/descriptor.hpp"
#include "control/link_watch.hpp"
#include "control/loop.hpp"
#include "control/network.hpp"
#include "control/privileges.hpp"
#include "control/report.hpp"
#include "control/run_directory.hpp"
#include "control/server.hpp"
#include "control/sysfs_tree.hpp"
#include "shm/mapping.hpp"

namespace {

using rnic::control::Configuration;
using rnic::control::Descriptor;
using rnic::control::DeviceOption;

struct Options {
  Configuration configuration;
  std::string run_directory;
  bool foreground = false;
  int ready_fd = -1;
};

// One sentence for whoever started us, and the end.
int refuse(const std::string& why) {
  std::fprintf(stderr, "rnicd: %s\n", why.c_str());
  if (spdlog::default_logger_raw() != nullptr && spdlog::default_logger_raw()->name() == "rnicd") spdlog::error(why);
  return 1;
}

// An --address or --mtu belongs to the --port before it, or to all devices; so order counts. Empty, or what is wrong.
std::string read_devices(const CLI::App& app, const std::map<const CLI::Option*, DeviceOption>& known,
                         Configuration& configuration) {
  std::map<const CLI::Option*, std::size_t> next;
  for (const CLI::Option* option : app.parse_order()) {
    const auto found = known.find(option);
    if (found == known.end()) continue;
    const std::size_t index = next[option]++;
    if (index >= option->results().size()) continue;
    if (const std::string why = take_option(configuration, found->second, option->results()[index]); !why.empty())
      return why;
  }
  return {};
}

// The pid file, locked for as long as we live. Nothing: another daemon of this name has it.
Descriptor take_name(const std::string& run_directory, std::string& why) {
  const std::string path = rnic::control::pid_file(run_directory);
  Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) {
    why = "cannot open " + path + ": " + std::strerror(errno);
    return {};
  }
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    char text[32] = {};
    [[maybe_unused]] const auto got = pread(file.get(), text, sizeof text - 1, 0);
    text[std::strcspn(text, "\n")] = '\0';
    why = std::string("a daemon of this name is running already (pid ") + text + ")";
    return {};
  }
  const std::string pid = std::to_string(getpid()) + "\n";
  if (ftruncate(file.get(), 0) != 0 ||
      pwrite(file.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    why = "cannot write " + path + ": " + std::strerror(errno);
    return {};
  }
  return file;
}

std::string start_log(const Options& options) {
  const std::string path = rnic::control::log_file(options.run_directory);
  Descriptor probe(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!probe) return "cannot write " + path + ": " + std::strerror(errno);
  std::vector<spdlog::sink_ptr> sinks{std::make_shared<spdlog::sinks::basic_file_sink_mt>(path)};
  if (options.foreground) sinks.push_back(std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  auto logger = std::make_shared<spdlog::logger>("rnicd", sinks.begin(), sinks.end());
  logger->set_level(
      spdlog::level::from_str(options.configuration.log_level == "warn" ? "warning" : options.configuration.log_level));
  // At debug somebody watches.
  logger->flush_on(std::min(logger->level(), spdlog::level::info));
  spdlog::set_default_logger(logger);
  rnic::set_assertion_hook([](const char* condition, const char* file, int line) {
    spdlog::critical("assertion failed: {} ({}:{})", condition, file, line);
    spdlog::default_logger_raw()->flush();
  });
  return {};
}

// Each context of an application takes some ten descriptors.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Blocked in every thread; the control thread reads them.
Descriptor watch_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return Descriptor(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

// A link that is about to come up is waited for, so that what is started right after finds it: an
// interface's carrier, a memif whose server is there. Not for long: the other end may come later.
void wait_for_links(const rnic::control::Machine& machine) {
  for (int tries = 0; tries < 30; ++tries) {
    bool all = true;
    for (const auto& device : machine.devices) {
      all = all && (device->port_facts().peer_comes_later || device->port_is_up());
    }
    if (all) return;
    usleep(50'000);
  }
}

// Addresses that are still being asked for are waited for, too: whoever starts a program right after
// may use them. An IPv4 address takes up to seven seconds (RFC 5227).
void wait_for_addresses(const rnic::control::Machine& machine) {
  for (int tries = 0; tries < 200; ++tries) {
    bool all = true;
    for (const auto& device : machine.devices)
      device->first().worker->call([&](rnic::Instant) { all = all && device->first().device->addresses_settled(); });
    if (all) return;
    usleep(50'000);
  }
}

// The process that started us waits for the end of our output, too: from here on it goes to the log.
void leave_terminal(const Options& options) {
  const Descriptor log(open(rnic::control::log_file(options.run_directory).c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!log) return;
  dup2(log.get(), STDOUT_FILENO);
  dup2(log.get(), STDERR_FILENO);
}

// What is up, closed by an octet of 0.
void say_ready(int fd, const std::string& text) {
  if (fd < 0) return;
  for (std::size_t at = 0; at <= text.size();) {
    const ssize_t written = write(fd, text.c_str() + at, text.size() + 1 - at);
    if (written < 0 && errno != EINTR) break;
    if (written > 0) at += static_cast<std::size_t>(written);
  }
  close(fd);
}

rnic::control::Log connection_log() {
  using rnic::control::LogLevel;
  const auto write = [](LogLevel level, const std::string& line) {
    switch (level) {
      case LogLevel::debug:
        return spdlog::debug("{}", line);
      case LogLevel::info:
        return spdlog::info("{}", line);
      case LogLevel::error:
        return spdlog::error("{}", line);
    }
  };
  return rnic::control::Log(write, spdlog::should_log(spdlog::level::debug));
}

int serve(const Options& options) {
  Descriptor signals = watch_signals();
  raise_descriptor_limit();
  rnic::shm::install_sigbus_handler();
  spdlog::info("rnicd {} starts: \"{}\", pid {}", RNIC_VERSION, options.configuration.name, getpid());

  rnic::control::Machine machine;
  machine.run_directory = options.run_directory;
  const auto log = [](const std::string& line) { spdlog::info("{}", line); };
  std::vector<rnic::port::PortSpec::Kind> kinds;
  for (const auto& device : options.configuration.devices) kinds.push_back(device.port->kind);
  // Before the first thread is started, as each has its own.
  if (const auto why = rnic::control::lay_down_privileges(rnic::control::needed_capabilities(kinds)); !why.empty())
    return refuse(why);
  if (const auto why = rnic::control::build_machine(options.configuration, log, machine); !why.empty())
    return refuse(why);
  if (const auto why = rnic::control::write_sysfs_trees(machine); !why.empty()) return refuse(why);

  rnic::control::Loop loop;
  {
    rnic::control::Server server(machine, loop, machine.generation, connection_log());
    server.on_stop([&] { loop.stop(); });
    loop.add(signals.get(), EPOLLIN, [&](std::uint32_t) {
      signalfd_siginfo info{};
      if (read(signals.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return;
      // A daemon that was started from a terminal goes on when that is closed.
      if (info.ssi_signo == SIGHUP && !options.foreground) return;
      spdlog::info("signal {}", info.ssi_signo);
      loop.stop();
    });
    start_workers(machine);
    if (const auto why = server.listen(); !why.empty()) {
      stop_machine(machine);
      return refuse(why);
    }
    spdlog::info("serves at {}", rnic::control::control_socket(options.run_directory));
    wait_for_links(machine);
    wait_for_addresses(machine);
    server.refresh_networks();
    const rnic::control::LinkWatch links(machine, loop, log);
    if (options.ready_fd >= 0) leave_terminal(options);
    const rnic::control::Report report =
        rnic::control::report_of(rnic::control::views_of(machine), options.configuration.cores);
    for (const std::string& line : report.devices) spdlog::info("{}", line);
    for (const std::string& warning : report.warnings) spdlog::warn("{}", warning);
    say_ready(options.ready_fd, rnic::control::text_of(report));
    loop.run();
    spdlog::info("ends: {} contexts", server.context_count());
    // Nobody new finds us from here on.
    unlink(rnic::control::control_socket(options.run_directory).c_str());
    server.end_all();
  }
  const bool all_back = stop_machine(machine);
  rnic::control::remove_sysfs_trees(options.run_directory);
  spdlog::info("has ended");
  if (!all_back) {
    // The kernel ends a copy that waits for a page with its process. Nothing that it copies into or
    // from may be freed before.
    spdlog::default_logger_raw()->flush();
    unlink(rnic::control::pid_file(options.run_directory).c_str());
    _exit(0);
  }
  return 0;
}

// Streams and queue pairs are made and freed by the thousand, some 80 KiB each. In a thread's own arena glibc grows the
// heap by a system call for each of them, and gives back at once what the next one needs.
void keep_heap_simple() {
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_TOP_PAD, 1 << 20);
  mallopt(M_MMAP_THRESHOLD, 4 << 20);
  mallopt(M_TRIM_THRESHOLD, 16 << 20);
}

}  // namespace

int main(int count, char** words) {
  keep_heap_simple();
  CLI::App app{"rnicd: the data plane of rnic. Usually started by `rnic up`."};
  app.set_version_flag("--version", RNIC_VERSION);
  Options options;
  std::string config, name;
  app.add_option("--name", name, "The daemon's name");
  app.add_option("--config", config, "A TOML file with [[device]] tables");
  std::vector<std::string> words_of_devices;  // CLI11 wants a place for them
  std::map<const CLI::Option*, DeviceOption> of_devices;
  for (const auto& each : rnic::control::kDeviceOptions)
    of_devices[app.add_option(each.name, words_of_devices, each.says)->expected(1)->take_all()] = each.option;
  app.add_option("--run-dir", options.run_directory, "Where its socket, log and trees are");
  app.add_flag("--foreground", options.foreground, "Log to the terminal too");
  app.add_option("--ready-fd", options.ready_fd, "Gets what is up, and an octet of 0, when it serves");
  try {
    app.parse(count, words);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }

  Configuration& configuration = options.configuration;
  if (!config.empty()) {
    if (const auto why = rnic::control::read_configuration(config, configuration); !why.empty()) return refuse(why);
  }
  if (!name.empty()) configuration.name = name;
  if (const auto why = read_devices(app, of_devices, configuration); !why.empty()) return refuse(why);
  if (const auto why = rnic::control::complete(configuration); !why.empty()) return refuse(why);
  if (options.run_directory.empty()) options.run_directory = rnic::control::new_run_directory(configuration.name);
  if (const auto why = rnic::control::make_directory(options.run_directory); !why.empty()) return refuse(why);

  std::string why;
  const Descriptor lock = take_name(options.run_directory, why);
  if (!lock) return refuse(why);
  if (why = start_log(options); !why.empty()) return refuse(why);
  const int code = serve(options);
  unlink(rnic::control::pid_file(options.run_directory).c_str());
  return code;
}
