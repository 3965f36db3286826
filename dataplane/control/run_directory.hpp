// Where a daemon of a name lives in the file system: its socket, its pid, its log, the tree that
// stands in for /sys.
#pragma once

#include <string>

namespace rnic::control {

// The rule is abi/rnic_run.h's. Where a daemon of this name is or was, else where one would be.
std::string run_directory(const std::string& name);
// Where one is to be started; its parent is run_base().
std::string new_run_directory(const std::string& name);
std::string run_base();

// A daemon's name: letters, digits, '-', '_', '.', at most 64, not "." or "..". (It is a directory.)
bool good_name(const std::string& name);

inline std::string control_socket(const std::string& directory) { return directory + "/control.sock"; }
inline std::string pid_file(const std::string& directory) { return directory + "/rnicd.pid"; }
inline std::string log_file(const std::string& directory) { return directory + "/rnicd.log"; }

// With its parents. What is missing is made for this user alone (0700); what is ours to make is taken as it is only
// where abi/rnic_trust.h lets it be. Empty, or what is wrong.
std::string make_directory(const std::string& directory);

}  // namespace rnic::control
