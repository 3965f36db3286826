#include "decode/capture.hpp"

#include <pcap/pcap.h>

#include <optional>

namespace rnic::tool {
namespace {

std::string text(const wire::IpAddress& address, std::uint16_t port) {
  const std::string host = wire::to_string(address);
  return (address.is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

// Seconds and nanoseconds, as a number with a point would stand here: no JSON number holds all of it.
std::string text(std::uint64_t time_ns) {
  const std::string fraction = std::to_string(time_ns % 1'000'000'000);
  return std::to_string(time_ns / 1'000'000'000) + "." + std::string(9 - fraction.size(), '0') + fraction;
}

std::optional<LinkType> link_type(int dlt) {
  switch (dlt) {
    case DLT_EN10MB:
      return LinkType::ethernet;
    case DLT_LINUX_SLL:
      return LinkType::linux_cooked;
    case DLT_LINUX_SLL2:
      return LinkType::linux_cooked_2;
    case DLT_RAW:
    case DLT_IPV4:
    case DLT_IPV6:
      return LinkType::raw_ip;
    case DLT_NULL:
    case DLT_LOOP:
      return LinkType::null;
    default:
      return std::nullopt;
  }
}

}  // namespace

// ---- connections -------------------------------------------------------------------------------

Connections::Connections(Assumed assumed, Sink sink) : assumed_(assumed), sink_(std::move(sink)) {}

namespace {
// What stands behind a unit's kind, and then the unit.
Json placed(Json&& unit, const Seen& seen, const std::string& source, const std::string& destination,
            const char* direction) {
  Json object;
  object["kind"] = unit["kind"];
  object["time"] = text(seen.time_ns);
  object["frame"] = seen.frame;
  object["source"] = source;
  object["destination"] = destination;
  if (direction != nullptr) object["direction"] = direction;
  for (auto& [member, value] : unit.items())
    if (member != "kind") object[member] = std::move(value);
  return object;
}
}  // namespace

void Connections::on_datagram(const UdpPacket& packet, const Seen& seen) {
  if (auto unit = datagram_object(packet.payload))
    sink_(placed(std::move(*unit), seen, text(packet.source, packet.header.source_port),
                 text(packet.destination, packet.header.destination_port), nullptr));
}

void Connections::begin(const Key& key, Entry& entry) {
  entry.conversation = std::make_unique<Conversation>(
      assumed_, [this, key, &entry](unsigned side, Conversation::Direction direction, Json&& unit) {
        const Endpoint& from = side == 0 ? key.first : key.second;
        const Endpoint& to = side == 0 ? key.second : key.first;
        sink_(placed(std::move(unit), entry.seen, text(from.address, from.port), text(to.address, to.port),
                     name(direction)));
      });
}

void Connections::on_packet(LinkType link, Bytes captured, std::uint32_t length, const Seen& seen) {
  ++counts_.packets;
  switch (parser_.parse(link, captured, length)) {
    case PacketParser::Outcome::tcp:
      break;
    case PacketParser::Outcome::udp:
      return on_datagram(parser_.datagram(), seen);
    case PacketParser::Outcome::fragment:
      ++counts_.fragments;
      return;
    case PacketParser::Outcome::corrupted:
      ++counts_.corrupted;
      return;
    case PacketParser::Outcome::other:
    case PacketParser::Outcome::malformed:
      return;
  }
  const TcpPacket& packet = parser_.packet();
  if (packet.cut != 0) ++counts_.cut;
  const Endpoint source{packet.source, packet.header.source_port};
  const Endpoint destination{packet.destination, packet.header.destination_port};
  const unsigned side = source <= destination ? 0 : 1;
  const Key key = side == 0 ? Key{source, destination} : Key{destination, source};
  // A std::map's entries stay where they are.
  Entry& entry = entries_[key];
  if (entry.conversation && entry.conversation->is_succeeded_by(side, packet.header)) {
    entry.conversation->end();
    entry.conversation.reset();
  }
  if (!entry.conversation) begin(key, entry);
  entry.seen = seen;
  entry.conversation->on_segment(side, packet.header, packet.payload, packet.cut);
}

void Connections::end() {
  for (auto& [key, entry] : entries_) entry.conversation->end();
}

// ---- the file ----------------------------------------------------------------------------------

bool looks_like_capture(Bytes start) {
  if (start.size() < 4) return false;
  switch (load_be<std::uint32_t>(start, 0)) {
    case 0xA1B2C3D4:  // pcap, microseconds
    case 0xD4C3B2A1:
    case 0xA1B23C4D:  // nanoseconds
    case 0x4D3CB2A1:
    case 0xA1B2CD34:  // a variant that libpcap reads
    case 0x34CDB2A1:
    case 0x0A0D0D0A:  // pcapng
      return true;
    default:
      return false;
  }
}

std::string decode_capture(std::FILE* file, const std::string& file_name, Assumed assumed, const Sink& sink,
                           const std::function<void(const std::string&)>& notes) {
  char why[PCAP_ERRBUF_SIZE] = "";
  pcap_t* capture = pcap_fopen_offline_with_tstamp_precision(file, PCAP_TSTAMP_PRECISION_NANO, why);
  if (capture == nullptr) {
    std::fclose(file);
    return file_name + " is no capture that can be read: " + why;
  }
  const std::unique_ptr<pcap_t, void (*)(pcap_t*)> closing(capture, pcap_close);
  const int dlt = pcap_datalink(capture);
  const auto link = link_type(dlt);
  if (!link) {
    const char* known = pcap_datalink_val_to_name(dlt);
    return file_name + " was captured on a link of type " + (known != nullptr ? known : std::to_string(dlt)) +
           ", which is not known here; capture on an Ethernet interface, or on \"any\"";
  }

  Connections connections(assumed, sink);
  pcap_pkthdr* header = nullptr;
  const u_char* octets = nullptr;
  Seen seen;
  int got = 0;
  while ((got = pcap_next_ex(capture, &header, &octets)) == 1) {
    ++seen.frame;
    // With that precision tv_usec holds nanoseconds.
    seen.time_ns =
        static_cast<std::uint64_t>(header->ts.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(header->ts.tv_usec);
    connections.on_packet(*link, as_bytes(octets, header->caplen), header->len, seen);
  }
  connections.end();
  const auto note = [&](std::uint64_t count, const char* words) {
    if (count != 0) notes(std::to_string(count) + " " + words);
  };
  note(connections.counts().cut, "packets are cut off in the capture; capture them whole (tcpdump -s 0)");
  note(connections.counts().corrupted, "packets with a wrong TCP checksum are left out, as their receiver does");
  note(connections.counts().fragments, "IP fragments of TCP are left out");
  if (got == PCAP_ERROR)
    return file_name + " cannot be read to its end: " + pcap_geterr(capture) + " (after packet " +
           std::to_string(seen.frame) + ")";
  return {};
}

}  // namespace rnic::tool
