// A capture file (pcap or pcapng) as `rnic decode` reads it: every MPA stream in it, both directions, and every
// datagram of rnic's own.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "decode/conversation.hpp"
#include "decode/packet.hpp"

namespace rnic::tool {

// When and where a packet was seen.
struct Seen {
  std::uint64_t frame = 0;    // its number in the file, from 1
  std::uint64_t time_ns = 0;  // since 1970
};

// Sorts packets into connections. Pure.
class Connections {
 public:
  // Every unit with "time", "frame", "source", "destination" and "direction" behind its kind. A unit
  // has the time of the packet that made it whole.
  Connections(Assumed assumed, Sink sink);
  void on_packet(LinkType link, Bytes captured, std::uint32_t length, const Seen& seen);
  // After the last packet.
  void end();

  struct Counts {
    std::uint64_t packets = 0, fragments = 0, corrupted = 0, cut = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Endpoint {
    wire::IpAddress address;
    std::uint16_t port = 0;
    auto operator<=>(const Endpoint&) const = default;
  };
  using Key = std::pair<Endpoint, Endpoint>;  // the lesser first
  struct Entry {
    std::unique_ptr<Conversation> conversation;
    Seen seen;  // its last packet
  };
  void begin(const Key& key, Entry& entry);
  void on_datagram(const UdpPacket& packet, const Seen& seen);

  Assumed assumed_;
  Sink sink_;
  PacketParser parser_;
  std::map<Key, Entry> entries_;
  Counts counts_;
};

// Whether a file begins as pcap or pcapng files do.
bool looks_like_capture(Bytes start);

// Reads `file` (closing it) to its end. Empty, or a sentence on what is wrong with it; what could be
// read has gone to `sink` then too. `notes` gets sentences on packets that could not be used.
std::string decode_capture(std::FILE* file, const std::string& file_name, Assumed assumed, const Sink& sink,
                           const std::function<void(const std::string&)>& notes);

}  // namespace rnic::tool
