// What a device is told when it is made, and keeps.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/face.hpp"
#include "base/time.hpp"
#include "host/flow.hpp"
#include "host/served_ports.hpp"
#include "ip/routes.hpp"
#include "mpa/startup.hpp"
#include "tcp/options.hpp"
#include "wire/address.hpp"

namespace rnic::core {

struct DeviceAddress {
  wire::IpAddress address;
  std::uint8_t prefix_length = 24;
};

enum class AddressMode : std::uint8_t { own = 1, local = 2, shared = 3 };

struct DeviceOptions {
  std::string name;
  std::uint32_t index = 0;
  std::vector<DeviceAddress> addresses;
  std::vector<ip::Route> routes;          // static ones; of no bits: a default route
  std::optional<std::uint16_t> vlan;      // 802.1Q: all frames, in and out; none: untagged
  bool ipv6 = false;                      // has a link-local address, made up where none is among `addresses`
  bool accept_ra = false;                 // believes routers' advertisements
  std::optional<std::uint8_t> hop_limit;  // TTL of what we send; none: 64, or what a router advertises
  bool probe = false;                     // asks whether an address is taken before using it
  bool opaque_addresses = false;          // those made up do not show the MAC: the kernel has it too
  AddressMode mode = AddressMode::own;
  tcp::Options tcp{.window_max_bytes = tcp::Options::kWindowMax};
  std::uint32_t streams_max = 16384;
  Face face = Face::iwarp;
  bool oob_connect = false;  // queue pairs meet without rdma_cm, at this TCP port of every address
  std::uint16_t oob_port = 26580;
  std::uint16_t ud_port = 26581;  // of UDP: where datagrams of queue pairs of type UD go, of a RoCE face
  bool crc_required = true;
  bool crc_trusted = false;  // it is made, and not checked: where frames never leave memory
  bool peer_to_peer = true;  // A=1 in our Requests
  std::uint32_t mpa_revision = 2;
  mpa::MarkerUse markers = mpa::MarkerUse::send;
  Duration request_timeout = seconds(10);
  Duration reply_timeout = seconds(20);
  std::uint64_t seed = 0;  // initial sequence numbers, ports
  Duration orphan_timeout = seconds(30);
  // Messages between queue pairs of the device, or between its and those of the other end of its pair, go without the
  // wire where they can (core/local_peers.cpp); both ends have to have it.
  bool local_direct = false;
  // Where several workers share the device: which part of its connections this is (wire/rss.hpp). The first speaks for
  // its addresses, which the others adopt; control sees to that.
  host::Shard shard{};
  std::shared_ptr<host::ServedPorts> served_ports{};  // of all parts; null: its own
};

}  // namespace rnic::core
