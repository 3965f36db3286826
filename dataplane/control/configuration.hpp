// What a user asks of a daemon: a TOML file, the command line, or both. Every wrong word is one
// sentence with its line.
//
// The settings with their checks are rows in configuration.cpp. Their values stand where they are used: in the options
// of the device, of its queue pairs, of its port and of a worker. So a new one is a field there, a row, and the row's
// line in docs/configuration.md.
//
// Pure but for reading the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/device_options.hpp"
#include "core/device_options.hpp"
#include "core/worker.hpp"
#include "ip/routes.hpp"
#include "port/options.hpp"
#include "port/spec.hpp"
#include "qp/queue_pair.hpp"
#include "wire/address.hpp"

namespace rnic::control {

struct DeviceConfiguration {
  std::string name;  // rnic0, rnic1, ... where none is given
  std::optional<port::PortSpec> port;
  port::PortOptions port_options;
  std::vector<core::DeviceAddress> addresses;
  std::vector<wire::IpAddress> gateways;  // of each version of IP one at most
  std::vector<ip::Route> routes;          // static ones beside them
  core::DeviceOptions options;
  std::optional<bool> local_direct;  // default by its port
  qp::Config queue_pairs;
  int core = -1;              // one of the daemon's `cores`; -1: wherever
  std::uint32_t workers = 1;  // that share it, from that one on

  // As the user says; what he leaves out complete() decides, and it is in the options then.
  std::optional<core::AddressMode> mode;  // local for addresses of 127.0.0.0/8, otherwise own
  std::optional<bool> accept_ra, probe, timestamps;
  std::optional<bool> oob_connect;  // on a RoCE face always
  std::optional<tcp::EcnUse> ecn;   // RFC 3168: on where dctcp is, else passive
  std::optional<bool> extensions;   // RFC 7306: by default where both ends are known to be rnic (W-EXT-14)
  bool of_command_line = false;     // from a --port there, not from a file
};

struct Configuration {
  std::string name = "default";
  std::string log_level = "info";
  core::WorkerOptions worker;
  Duration page_wait = seconds(2);
  std::vector<int> cores;  // a worker for each; none: one worker, on any
  std::vector<DeviceConfiguration> devices;
  DeviceConfiguration for_all;  // what the command line says before its first --port
};

// Adds what the file says. Empty, or what is wrong: "FILE:LINE: ...".
std::string read_configuration(const std::string& path, Configuration& configuration);
std::string parse_configuration(const std::string& text, const std::string& path, Configuration& configuration);

// All keys that a file may have, of the daemon and of a device, each with its line of docs/configuration.md.
struct Setting {
  std::string_view name;
  std::string_view example;
  std::string_view says;
};
std::vector<Setting> settings();

// A piece of the command line, in its order: an option of a device is of the --port before it, and before the first
// --port of all devices. Empty, or what is wrong.
std::string take_option(Configuration& configuration, DeviceOption option, const std::string& text);

// Fills in defaults, and says what does not fit together. To be called once, at the end.
std::string complete(Configuration& configuration);

// ADDRESS/LEN of either version of IP; without a length 24, or 64.
std::optional<core::DeviceAddress> parse_cidr(const std::string& text);

}  // namespace rnic::control
