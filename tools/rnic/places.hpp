// Where rnic's own files are: in the build tree, seen from this program, or installed.
#pragma once

#include <string>

namespace rnic::tool {

// Empty if it is nowhere.
std::string daemon_program();
std::string provider_stem();  // what RDMAV_DRIVERS takes: ".../librnic", without -rdmavNN.so
std::string standin_library();

}  // namespace rnic::tool
