// The subcommands of `rnic`, a file each. Each takes what the command line said and returns the
// exit code.
#pragma once

#include <string>
#include <vector>

namespace rnic::tool {

struct UpOptions {
  std::string name = "default";
  bool foreground = false;
  std::vector<std::string> for_daemon;  // as they stood on the command line
};
int up(const UpOptions& options);

struct RunOptions {
  std::string name = "default";
  std::string device;
  bool fast_memory = false;
  std::vector<std::string> command;
};
int run(const RunOptions& options);

int down(const std::string& name);

struct ShowOptions {
  std::string name = "default";
  std::string what;
  bool json = false;
};
int show(const ShowOptions& options);

int doctor(const std::string& name);

}  // namespace rnic::tool
