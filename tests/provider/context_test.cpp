// A context's beginning: whom it is opened with.
#include "support/catch.hpp"

#include <unistd.h>

#include "provider/fake_daemon.hpp"

using namespace rnic;
using namespace rnic::test;

TEST_CASE("V-SEC-10: no context is opened with a stranger's daemon", "[provider][context][V-SEC-10]") {
  if (geteuid() != 0) {  // nobody else is here to answer
    FakeDaemon daemon;
    CHECK(Application(daemon).error == 0);
    return;
  }
  REQUIRE(seteuid(61001) == 0);
  FakeDaemon daemon;  // its sockets are that user's
  REQUIRE(seteuid(0) == 0);
  Application app(daemon);
  CHECK(app.error == EPERM);
  const std::lock_guard lock(daemon.mutex);
  CHECK(daemon.helper_tid == 0);  // what it hears of first
}

TEST_CASE("V-SEC-25: a context is ended at the daemon before the helper ends, by which its memory is reached",
          "[provider][context][V-SEC-25]") {
  FakeDaemon daemon;
  {
    const Application app(daemon);
    REQUIRE(app.error == 0);
    REQUIRE(daemon.helper_tid != 0);
    CHECK_FALSE(daemon.helper_outlived_us);
  }
  CHECK(daemon.helper_outlived_us);
  CHECK(access(("/proc/self/task/" + std::to_string(daemon.helper_tid)).c_str(), F_OK) != 0);
}
