// tools/rnic/client.cpp: what the command makes of answers that are none.
#include "client.hpp"

#include <cerrno>
#include <filesystem>

#include "control/run_directory.hpp"
#include "kit/alarms.hpp"
#include "kit/catch.hpp"
#include "kit/live_daemon.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

// A daemon of the name "default" in a base of its own.
struct Named {
  explicit Named(const std::string& beneath = "/base") {
    char name[] = "/tmp/rnic-client-test-XXXXXX";
    root = mkdtemp(name);
    setenv("RNIC_RUN_BASE", (root + beneath).c_str(), 1);
    const std::string run = control::run_directory("default");
    REQUIRE(control::make_directory(run).empty());
    daemon = std::make_unique<LiveDaemon>(DataPlane::rests, LiveDaemon::kTwoDevices, run);
  }
  ~Named() {
    daemon.reset();
    unsetenv("RNIC_RUN_BASE");
    std::filesystem::remove_all(root);
  }
  std::string root;
  std::unique_ptr<LiveDaemon> daemon;
};

int show(tool::Client& client, rnic_handle_reply& reply) {
  const rnic_show request{};
  int memory = -1;
  const int status = client.ask(RNIC_SHOW, &request, sizeof request, &reply, sizeof reply, &memory);
  if (memory >= 0) close(memory);
  return status;
}

}  // namespace

TEST_CASE("the command asks and is answered, in a directory of any length", "[tool][client]") {
  const Named named("/" + std::string(150, 'b'));
  tool::Client client;
  REQUIRE(client.connect("default"));
  CHECK(client.daemon_pid() == static_cast<std::uint32_t>(getpid()));
  rnic_handle_reply reply{};
  CHECK(show(client, reply) == 0);
  CHECK(reply.handle > 0);
}

TEST_CASE("the command takes no answer to another question for its own", "[tool][client]") {
  const Named named;
  for (const auto harm : {harm::wrong_id, harm::wrong_type, harm::cut_in_half, harm::close}) {
    tool::Client client;
    REQUIRE(client.connect("default"));
    named.daemon->relay->harm(RNIC_SHOW, harm);
    rnic_handle_reply reply{77, 0};
    CHECK(show(client, reply) == -ECONNRESET);
    CHECK(reply.handle == 77);
  }
}

TEST_CASE("the command takes no answer that is too short", "[tool][client]") {
  const Named named;
  tool::Client client;
  REQUIRE(client.connect("default"));
  named.daemon->relay->harm(RNIC_SHOW, harm::cut_short);
  rnic_handle_reply reply{77, 0};
  CHECK(show(client, reply) == EPROTO);
  CHECK(reply.handle == 77);
}

TEST_CASE("a signal does not keep the command from its answer", "[tool][client]") {
  const Named named;
  tool::Client client;
  REQUIRE(client.connect("default"));
  named.daemon->relay->harm(RNIC_SHOW, harm::delay(60));
  const Alarms alarms;
  rnic_handle_reply reply{};
  CHECK(show(client, reply) == 0);
}

TEST_CASE("the command tells a daemon of another version, and one that does not answer", "[tool][client]") {
  const Named named;
  tool::Client other, silent;
  named.daemon->relay->harm(RNIC_HELLO, harm::status(EPROTONOSUPPORT));
  CHECK_FALSE(other.connect("default"));
  CHECK(other.why().find("another version") != std::string::npos);
  named.daemon->relay->harm(RNIC_HELLO, harm::close);
  CHECK_FALSE(silent.connect("default"));
  CHECK(silent.why().find("does not answer") != std::string::npos);
}
