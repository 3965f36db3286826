// Included in front of everything when tests/quality/mutate builds: RNIC_MUTANT(n) is true where mutant n is to
// be, and notes that somebody came by. A constant expression has no mutants.
#pragma once

#include <type_traits>

namespace rnic::mutation {

inline constexpr int kMutantsMax = 8192;
extern int chosen;  // from the environment; 0: none
extern unsigned char reached[kMutantsMax];

constexpr bool is(int mutant) {
  if (std::is_constant_evaluated()) return false;
  reached[mutant] = 1;
  return chosen == mutant;
}

}  // namespace rnic::mutation

#define RNIC_MUTANT(n) (::rnic::mutation::is(n))
