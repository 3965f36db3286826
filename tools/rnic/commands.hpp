// The subcommands of `rnic`, a file each. Each takes what the command line said and returns the
// exit code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rnic::tool {

struct UpOptions {
  std::string name;    // empty: what the configuration file says, or "default"
  std::string config;  // the file; empty: none
  bool foreground = false;
  std::vector<std::string> for_daemon;  // as they stood on the command line
};
int up(UpOptions options);

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

struct KillOptions {
  std::string name = "default";
  std::string local, remote;  // as `show conn` has them
};
int kill(const KillOptions& options);

struct DecodeOptions {
  std::string file;  // a capture or lines of hexadecimal digits; empty or "-": standard input
  std::optional<bool> crc;
  bool markers = false;
  std::optional<std::uint64_t> position;
  bool one_stream = false;  // lines continue one another
};
int decode(const DecodeOptions& options);

struct CaptureOptions {
  std::string name = "default";
  std::string device;  // empty: all
  std::string file;
  std::optional<double> seconds;
};
int capture(const CaptureOptions& options);

int doctor(const std::string& name);

}  // namespace rnic::tool
