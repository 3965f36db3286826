#include "kit/live_daemon.hpp"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "control/build.hpp"
#include "control/configuration.hpp"
#include "control/sysfs_tree.hpp"

namespace rnic::test {
namespace {

void must_be_empty(const std::string& wrong) {
  if (wrong.empty()) return;
  std::fprintf(stderr, "the daemon of this test does not start: %s\n", wrong.c_str());
  std::abort();
}

}  // namespace

LiveDaemon::LiveDaemon(DataPlane data_plane, const std::string& toml, const std::string& run_directory)
    : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  control::Configuration configuration;
  must_be_empty(control::parse_configuration(toml, "test", configuration));
  must_be_empty(control::complete(configuration));
  must_be_empty(control::build_machine(
      configuration, [](const std::string&) {}, machine));
  server = std::make_unique<control::Server>(machine, loop, 1,
                                             control::Log([](control::LogLevel, const std::string&) {}, false));
  if (data_plane == DataPlane::turns) start_workers(machine);
  loop.add(wake_.get(), EPOLLIN, [this](std::uint32_t) {
    std::uint64_t count = 0;
    if (read(wake_.get(), &count, sizeof count) != sizeof count) return;
    const std::lock_guard guard(mutex_);
    for (const auto* task : tasks_) (*task)();
    tasks_.clear();
    done_.notify_all();
  });
  thread_ = std::thread([this] { loop.run(); });
  relay = std::make_unique<Relay>([this](const control::Peer& peer) { return connect(peer); });
  if (run_directory.empty()) return;
  machine.run_directory = run_directory;
  must_be_empty(control::write_sysfs_trees(machine));
  relay->listen(run_directory);
}

LiveDaemon::~LiveDaemon() {
  relay.reset();
  run([this] { loop.stop(); });
  thread_.join();
  server.reset();
  stop_machine(machine);
}

void LiveDaemon::run(const std::function<void()>& task) {
  std::unique_lock guard(mutex_);
  tasks_.push_back(&task);
  const std::uint64_t one = 1;
  if (write(wake_.get(), &one, sizeof one) != sizeof one) std::abort();
  done_.wait(guard, [&] { return std::find(tasks_.begin(), tasks_.end(), &task) == tasks_.end(); });
}

control::Descriptor LiveDaemon::connect(const control::Peer& peer) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  run([&] { server->adopt(control::Descriptor(ends[1]), peer); });
  return control::Descriptor(ends[0]);
}

}  // namespace rnic::test
