// Prints docs/goodput.md: see tools/goodput.
#include <cstdio>

#include "sim/goodput.hpp"

int main() { std::fputs(rnic::sim::goodput_page().c_str(), stdout); }
