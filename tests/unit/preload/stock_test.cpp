// Debian's own programs, with the library preloaded and the provider of this build, as far as
// they go without a data plane.
#include "kit/catch.hpp"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "unit/preload/commands.hpp"

using namespace rnic::test;

namespace {

// RNIC_PROVIDER is the plugin's file; libibverbs wants its name without "-rdmavNN.so".
std::string provider_stem() {
  const char* const file = getenv("RNIC_PROVIDER");
  if (file == nullptr) return {};
  const std::string path = file;
  return path.substr(0, path.rfind("-rdmav"));
}

struct Child {
  pid_t pid = -1;
  int output = -1;

  explicit Child(const std::vector<std::string>& arguments) {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    std::vector<char*> words;
    for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    pid = fork();
    if (pid == 0) {
      setenv("LD_PRELOAD", getenv("RNIC_PRELOAD"), 1);
      setenv("RDMAV_DRIVERS", provider_stem().c_str(), 1);
      unsetenv("SYSFS_PATH");
      dup2(ends[1], 1);
      dup2(ends[1], 2);
      execvp(words[0], words.data());
      _exit(127);
    }
    close(ends[1]);
    output = ends[0];
  }
  ~Child() { close(output); }

  std::string read_all() const {
    std::string text;
    char piece[4096];
    for (ssize_t got = 0; (got = read(output, piece, sizeof piece)) > 0;) {
      text.append(piece, static_cast<std::size_t>(got));
    }
    return text;
  }
  bool ended(int& status) const { return waitpid(pid, &status, WNOHANG) == pid; }
};

}  // namespace

TEST_CASE("ibv_devices lists the device", "[preload][stock]") {
  if (provider_stem().empty()) {
    WARN("RNIC_PROVIDER is not set: nothing to load into libibverbs");
    return;
  }
  const Child child({"ibv_devices"});
  const std::string text = child.read_all();
  int status = 0;
  REQUIRE(waitpid(child.pid, &status, 0) == child.pid);
  CHECK(status == 0);
  INFO(text);
  CHECK(text.find("rnic0") != std::string::npos);
  std::string guid;
  std::getline(std::ifstream(daemon_at_work().run_dir() + "/sysfs/class/infiniband/rnic0/node_guid"), guid);
  std::erase(guid, ':');
  REQUIRE(guid.size() == 16);
  CHECK(text.find(guid) != std::string::npos);
}

TEST_CASE("rping -s listens, and hears of the daemon's death", "[preload][stock]") {
  if (provider_stem().empty()) {
    WARN("RNIC_PROVIDER is not set: nothing to load into libibverbs");
    return;
  }
  TestDaemon& daemon = daemon_at_work();
  // rdma_listen() asks once more when it listens, and fails where nobody answers that.
  std::atomic<bool> listens{false}, waits{false};
  daemon.relay().harm(RNIC_CM_LISTEN, [&](const Asked&, Passing&) { listens = true; });
  daemon.relay().harm(
      RNIC_CM_QUERY, [&](const Asked&, Passing&) { waits = listens.load(); }, 0);
  const Child child({"rping", "-s", "-v"});
  int status = 0;
  bool ended = false;
  while (!ended && !waits) {
    ended = child.ended(status);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  INFO((ended ? child.read_all() : std::string()));
  REQUIRE_FALSE(ended);
  // The device's port was bound, and the backlog is what rping asks for.
  CHECK(daemon.last(RNIC_CM_LISTEN).as<rnic_cm_listen>().backlog == 3);

  daemon.relay().no_harm();
  daemon.die();
  const std::string text = child.read_all();
  INFO(text);
  CHECK(text.find("device removal") != std::string::npos);
  kill(child.pid, SIGKILL);
  waitpid(child.pid, &status, 0);
  daemon.start();
}
