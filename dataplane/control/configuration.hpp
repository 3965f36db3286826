// What a user asks of a daemon: a TOML file, the command line, or both. Every wrong word is one
// sentence with its line.
//
//   name = "default"            poll = "sleep" | "always"     sleep_delay_us = 0
//   log_level = "info"          cores = [2]                    sched_fifo = true
//   page_wait_s = 2
//
//   [[device]]
//   port = "memif:/run/user/1000/a.sock,role=server"
//   address = ["10.0.0.1/24", "2001:db8::1/64"]               mtu = 1500
//   gateway = "10.0.0.254"      (or a list, one of each version of IP)
//   routes = ["192.168.0.0/16 via 10.0.0.253"]                vlan = 100
//   accept_ra = true            (where it is left out: with IPv6, on a wire of others, without a gateway)
//   probe = true                (ask whether an address is taken; left out: on a wire of others)
//   name = "rnic0"              mode = "own" | "local"         mac = "02:00:00:00:00:01"
//   crc = true                  peer_to_peer = true            markers = "send" | "never" | "both"
//   mpa_revision = 2            congestion = "cubic" | "newreno" | "dctcp"
//   ecn = "passive" | "on" | "off"  (where it is left out: passive; with dctcp: on)
//   rnr = "hold" | "terminate"  rnr_timeout_s = 30             timestamps = true
//                               (where timestamps is left out: on a wire of others)
//   nagle = false               keepalive_s = 0                (0: off; a silent peer is asked so often)
//   buffers = 16384             core = 2                       streams_max = 16384
//   read_sink = "local" | "strict"  (strict: memory that a Read's Response goes to needs Remote Write)
//   extensions = true           (RFC 7306; where it is left out: on loopback, pair and memif ports)
//
// Pure but for reading the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/device.hpp"
#include "ip/routes.hpp"
#include "port/options.hpp"
#include "port/spec.hpp"
#include "wire/address.hpp"

namespace rnic::control {

struct DeviceConfiguration {
  std::string name;  // rnic0, rnic1, ... where none is given
  std::optional<port::PortSpec> port;
  port::PortOptions port_options;
  std::vector<core::DeviceAddress> addresses;
  std::vector<wire::IpAddress> gateways;  // of each version of IP one at most
  std::vector<ip::Route> routes;          // static ones beside them
  std::optional<std::uint16_t> vlan;
  std::optional<bool> accept_ra, probe;
  bool ipv6 = false;  // has addresses of it, or is to make some
  std::optional<core::AddressMode> mode;  // local for addresses of 127.0.0.0/8, otherwise own
  bool crc = true;
  mpa::MarkerUse markers = mpa::MarkerUse::send;
  bool peer_to_peer = true;
  std::uint32_t mpa_revision = 2;
  tcp::Algorithm congestion = tcp::Algorithm::cubic;
  std::optional<tcp::EcnUse> ecn;  // RFC 3168: on where dctcp is, else passive
  std::optional<bool> timestamps;
  bool nagle = false;             // W-TCP-13
  std::uint32_t keepalive_s = 0;  // RFC 9293 s3.8.4; 0: off
  std::uint32_t retransmissions = tcp::Options{}.retransmissions_max;  // s3.8.3, R2
  std::optional<std::uint8_t> hop_limit;
  bool hold_without_receive = true;
  std::uint32_t rnr_timeout_s = 30;
  bool strict_read_sink = false;  // V-RD-03, V-RD-04
  // RFC 7306: by default where both ends are known to be rnic (W-EXT-14).
  std::optional<bool> extensions;
  std::uint32_t streams_max = 16384;
  int core = -1;  // one of the daemon's `cores`; -1: wherever
  bool of_command_line = false;  // from a --port there, not from a file
};

struct Configuration {
  std::string name = "default";
  std::string log_level = "info";
  bool poll_always = false;
  std::uint32_t sleep_delay_us = 0;
  bool sched_fifo = true;
  std::uint32_t page_wait_s = 2;
  std::vector<int> cores;  // a worker for each; none: one worker, on any
  std::vector<DeviceConfiguration> devices;
  DeviceConfiguration for_all;  // what the command line says before its first --port
};

// Adds what the file says. Empty, or what is wrong: "FILE:LINE: ...".
std::string read_configuration(const std::string& path, Configuration& configuration);
std::string parse_configuration(const std::string& text, const std::string& path, Configuration& configuration);

// All keys that a file may have, of the daemon and of a device.
std::vector<std::string_view> configuration_keys();

// Pieces of the command line, in its order: an option of a device is of the --port before it, and before
// the first --port of all devices. Empty, or what is wrong.
std::string add_port(Configuration& configuration, const std::string& spec);
std::string add_address(Configuration& configuration, const std::string& text);
std::string set_mtu(Configuration& configuration, const std::string& text);
std::string set_vlan(Configuration& configuration, const std::string& text);
std::string add_gateway(Configuration& configuration, const std::string& text);
std::string set_mac(Configuration& configuration, const std::string& text);

// Fills in defaults, and says what does not fit together. To be called once, at the end.
std::string complete(Configuration& configuration);

// ADDRESS/LEN of either version of IP; without a length 24, or 64.
std::optional<core::DeviceAddress> parse_cidr(const std::string& text);

}  // namespace rnic::control
