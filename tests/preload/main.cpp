// The stand-in's sources are linked into this program, so that its open, write, close and the
// rest are the stand-in's, as under LD_PRELOAD; and it talks to a daemon in a thread.
#define CATCH_CONFIG_RUNNER
#include "support/catch.hpp"

#include "preload/fake_daemon.hpp"
#include "sysfs.hpp"

namespace rnic::test {

FakeDaemon& daemon_at_work() {
  static FakeDaemon daemon;
  return daemon;
}

}  // namespace rnic::test

int main(int argc, char** argv) {
  rnic::test::daemon_at_work().start();
  rnic::preload::configure();
  return Catch::Session().run(argc, argv);
}
