// The blocks of a pcapng file (draft-ietf-opsawg-pcapng) that a capture of rnic devices needs, as
// octets. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.hpp"

namespace rnic::tool::pcapng {

struct Interface {
  std::string name;
  std::string description;
  std::array<std::uint8_t, 6> mac{};
  struct Address {
    bool v6 = false;
    std::array<std::uint8_t, 16> octets{};  // IPv4: the first four
    std::uint8_t prefix_length = 0;
  };
  std::vector<Address> addresses;
};

enum class Direction : std::uint8_t { received = 1, sent = 2 };  // as epb_flags has them

// `application` wrote the file.
std::string section_header(const std::string& application);
// Ethernet, time stamps in nanoseconds. Interfaces are numbered from 0 in the order of these.
std::string interface_description(const Interface& interface);
std::string packet(std::uint32_t interface, std::uint64_t time_ns, Direction direction, Bytes frame);
// At the end: what was seen between these times, and how much of it is not in the file.
std::string interface_statistics(std::uint32_t interface, std::uint64_t start_ns, std::uint64_t end_ns,
                                 std::uint64_t frames, std::uint64_t dropped);

}  // namespace rnic::tool::pcapng
