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
