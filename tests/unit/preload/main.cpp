// The stand-in's sources are linked into this program, so that its open, write, close and the
// rest are the stand-in's, as under LD_PRELOAD; and it talks to a daemon in a thread.
#define CATCH_CONFIG_RUNNER
#include "kit/catch.hpp"

#include "sysfs.hpp"
#include "unit/preload/daemon.hpp"

namespace rnic::test {

TestDaemon& daemon_at_work() {
  static TestDaemon daemon;
  return daemon;
}

}  // namespace rnic::test

int main(int argc, char** argv) {
  rnic::test::daemon_at_work().start();
  rnic::preload::configure();
  const int result = Catch::Session().run(argc, argv);
  rnic::test::daemon_at_work().die();
  return result;
}
