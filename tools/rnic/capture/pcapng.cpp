#include "capture/pcapng.hpp"

#include <algorithm>
#include <cstring>

namespace rnic::tool::pcapng {
namespace {

// A block in the writer's own byte order, as the section header's magic number tells.
class Block {
 public:
  explicit Block(std::uint32_t type) {
    put(type);
    put(std::uint32_t{0});  // its length, in end()
  }
  template <typename T>
  void put(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put_octets(const void* octets, std::size_t size) {
    text_.append(static_cast<const char*>(octets), size);
    text_.append((4 - size % 4) % 4, '\0');
  }
  void option(std::uint16_t code, const void* octets, std::size_t size) {
    const std::size_t length = std::min<std::size_t>(size, 0xFFFF);
    put(code);
    put(static_cast<std::uint16_t>(length));
    put_octets(octets, length);
  }
  void option(std::uint16_t code, const std::string& words) { option(code, words.data(), words.size()); }
  template <typename T>
  void option_number(std::uint16_t code, T value) {
    option(code, &value, sizeof value);
  }
  void time(std::uint64_t time_ns) {
    put(static_cast<std::uint32_t>(time_ns >> 32));
    put(static_cast<std::uint32_t>(time_ns));
  }
  void option_time(std::uint16_t code, std::uint64_t time_ns) {
    const std::uint32_t halves[] = {static_cast<std::uint32_t>(time_ns >> 32), static_cast<std::uint32_t>(time_ns)};
    option(code, halves, sizeof halves);
  }
  void end_of_options() { put(std::uint32_t{0}); }
  std::string end() {
    const auto length = static_cast<std::uint32_t>(text_.size() + 4);
    put(length);
    std::memcpy(text_.data() + 4, &length, sizeof length);
    return std::move(text_);
  }

 private:
  std::string text_;
};

constexpr std::uint32_t kSectionHeader = 0x0A0D0D0A, kInterfaceDescription = 1, kInterfaceStatistics = 5,
                        kEnhancedPacket = 6;
constexpr std::uint16_t kEthernet = 1;  // LINKTYPE_ETHERNET

}  // namespace

std::string section_header(const std::string& application) {
  Block block(kSectionHeader);
  block.put(std::uint32_t{0x1A2B3C4D});  // which byte order this is
  block.put(std::uint16_t{1});           // version 1.0
  block.put(std::uint16_t{0});
  block.put(std::uint64_t{UINT64_MAX});  // the section's length is not known
  block.option(4, application);          // shb_userappl
  block.end_of_options();
  return block.end();
}

std::string interface_description(const Interface& interface) {
  Block block(kInterfaceDescription);
  block.put(kEthernet);
  block.put(std::uint16_t{0});
  block.put(std::uint32_t{0});             // frames are whole
  block.option(2, interface.name);         // if_name
  block.option(3, interface.description);  // if_description
  for (const Interface::Address& address : interface.addresses) {
    std::uint8_t octets[17];
    if (address.v6) {
      std::memcpy(octets, address.octets.data(), 16);
      octets[16] = address.prefix_length;
      block.option(5, octets, 17);  // if_IPv6addr
      continue;
    }
    std::memcpy(octets, address.octets.data(), 4);
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned bits = std::min(8u, address.prefix_length > 8 * i ? address.prefix_length - 8 * i : 0);
      octets[4 + i] = static_cast<std::uint8_t>(0xFF00u >> bits);
    }
    block.option(4, octets, 8);  // if_IPv4addr, with its mask
  }
  block.option(6, interface.mac.data(), interface.mac.size());  // if_MACaddr
  block.option_number(9, std::uint8_t{9});                      // if_tsresol: 10^-9 s
  block.end_of_options();
  return block.end();
}

std::string packet(std::uint32_t interface, std::uint64_t time_ns, Direction direction, Bytes frame) {
  Block block(kEnhancedPacket);
  block.put(interface);
  block.time(time_ns);
  block.put(static_cast<std::uint32_t>(frame.size()));  // captured, and on the wire
  block.put(static_cast<std::uint32_t>(frame.size()));
  block.put_octets(frame.data(), frame.size());
  block.option_number(2, static_cast<std::uint32_t>(direction));  // epb_flags
  block.end_of_options();
  return block.end();
}

std::string interface_statistics(std::uint32_t interface, std::uint64_t start_ns, std::uint64_t end_ns,
                                 std::uint64_t frames, std::uint64_t dropped) {
  Block block(kInterfaceStatistics);
  block.put(interface);
  block.time(end_ns);
  block.option_time(2, start_ns);   // isb_starttime
  block.option_time(3, end_ns);     // isb_endtime
  block.option_number(4, frames);   // isb_ifrecv
  block.option_number(5, dropped);  // isb_ifdrop
  block.end_of_options();
  return block.end();
}

}  // namespace rnic::tool::pcapng
