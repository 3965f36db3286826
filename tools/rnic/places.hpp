// Where rnic's own files are: in the build tree, seen from this program, or installed.
#pragma once

#include <string>
#include <vector>

namespace rnic::tool {

// Empty if it is nowhere.
std::string daemon_program();
std::string provider_stem();                  // what RDMAV_DRIVERS takes: ".../librnic", without -rdmavNN.so
std::vector<std::string> provider_numbers();  // the NN of its files: libibverbs' private interfaces it was built for
std::string standin_library();

}  // namespace rnic::tool
