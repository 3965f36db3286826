// Assertions: for our own mistakes only, never for what comes from a peer or an application.
// Always on.
#pragma once

namespace rnic {

[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);

// Called once before an assertion ends the process: the place to write a flight record.
void set_assertion_hook(void (*hook)(const char* condition, const char* file, int line));

}  // namespace rnic

#define RNIC_ASSERT(condition) \
  (__builtin_expect(!!(condition), 1) ? (void)0 : ::rnic::assertion_failed(#condition, __FILE__, __LINE__))
