// Prints docs/goodput.md: see tools/goodput.
#include <cstdio>

#include "sim/goodput.hpp"

int main() {
  std::vector<std::string> broken;
  std::fputs(rnic::sim::goodput_page(broken).c_str(), stdout);
  for (const std::string& line : broken)
    std::fprintf(stderr, "rnic-goodput: overtaken frames cost too much: %s\n", line.c_str());
  return broken.empty() ? 0 : 1;
}
