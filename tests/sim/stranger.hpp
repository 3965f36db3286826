// Somebody on B's wire who is no RNIC: says whatever segments a test wants, from any address, and
// hears what B answers. It answers ARP for every address that it has spoken from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/world.hpp"
#include "wire/tcp.hpp"

namespace rnic::sim {

class Stranger {
 public:
  static constexpr auto kAddress = wire::IpAddress::v4(10, 0, 0, 66);

  explicit Stranger(World& world);
  ~Stranger() { world_.b_to_a.watch(nullptr); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  // To B, and a moment for it to arrive and be answered. Ports and address can be others.
  void says(wire::TcpHeader header, const std::string& payload = {}) { says(kAddress, header, payload); }
  void says(const wire::IpAddress& from, wire::TcpHeader header, const std::string& payload = {});
  // Only put on the wire.
  void sends(const wire::IpAddress& from, const wire::TcpHeader& header, const std::string& payload = {});
  // An ICMP message of B's interest: type, code and what follows the checksum.
  void sends_icmp(std::uint8_t type, std::uint8_t code, std::uint32_t rest, Bytes quoted);

  struct Heard {
    wire::IpAddress to;
    wire::TcpHeader header;
    std::size_t payload_bytes = 0;
    Instant at;
  };
  std::vector<Heard> heard;          // TCP segments to any address but A's
  bool keeps_silent_in_arp = false;  // addresses of hosts that are not there
  std::uint64_t asked = 0;           // ARP questions for any address but A's
  std::uint16_t source_port = 3000, destination_port = 7471;

  std::vector<Heard> take() { return std::exchange(heard, {}); }

 private:
  void hear(Bytes frame);
  void put(const wire::IpAddress& from, std::uint8_t protocol, Bytes payload);

  World& world_;
  wire::Mac mac_{{2, 0, 0, 0, 0, 0x66}};
};

}  // namespace rnic::sim
