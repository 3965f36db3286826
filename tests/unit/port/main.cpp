// Runs the port tests that need DPDK. A test that cannot run here says why, and the program's result
// is then 77, "skipped", unless another failed.
#define CATCH_CONFIG_RUNNER
#include <cstdio>

#include "kit/catch.hpp"
#include "unit/port/skip.hpp"

int main(int argc, char** argv) {
  const int failed = Catch::Session().run(argc, argv);
  if (failed != 0) return failed;
  for (const std::string& why : rnic::test::skipped()) std::printf("SKIPPED, not passed: %s\n", why.c_str());
  return rnic::test::skipped().empty() ? 0 : 77;
}
