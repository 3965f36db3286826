// A test that this machine does not allow: it is not passed, and says why.
#pragma once

#include <string>
#include <vector>

namespace rnic::test {
inline std::vector<std::string>& skipped() {
  static std::vector<std::string> reasons;
  return reasons;
}
}  // namespace rnic::test

#define SKIP_BECAUSE(why)                   \
  do {                                      \
    ::rnic::test::skipped().push_back(why); \
    return;                                 \
  } while (false)
