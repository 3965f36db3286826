#include "base/assert.hpp"

#include <cstdio>
#include <cstdlib>

namespace rnic {
namespace {
void (*hook_)(const char*, const char*, int) = nullptr;
}

void set_assertion_hook(void (*hook)(const char*, const char*, int)) { hook_ = hook; }

void assertion_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "rnic: assertion failed: %s (%s:%d)\n", condition, file, line);
  if (hook_ != nullptr) {
    const auto hook = hook_;
    hook_ = nullptr;
    hook(condition, file, line);
  }
  std::abort();
}

}  // namespace rnic
