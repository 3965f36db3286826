// Two ends of a TCP connection that a test lets speak, as the packets that a capture has of them; and
// MPA streams to say.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "decode/capture.hpp"
#include "kit/frames.hpp"
#include "mpa/packer.hpp"
#include "wire/ddp.hpp"
#include "wire/mpa.hpp"

namespace rnic::test {

inline Octets operator+(Octets first, Bytes second) {
  append(first, second);
  return first;
}

struct Packet {
  Octets octets;
  std::uint64_t time_ns = 0;
  std::size_t length = 0;  // on the wire, where not all was captured
  std::size_t wire_length() const { return length != 0 ? length : octets.size(); }
};

// Both ends; side 0 opens the connection.
class Talk {
 public:
  bool v6 = false;
  std::vector<std::uint16_t> tags;  // VLAN ids, the outer first
  std::uint16_t ports[2] = {40000, 7174};
  std::uint32_t next[2] = {1000, 0xFFFFFF00};  // the second direction's numbers wrap soon
  std::uint64_t now_ns = 1'700'000'000'000'000'001;
  std::vector<Packet> packets;

  void handshake() {
    segment(0, {}, wire::tcp_flags::kSyn);
    segment(1, {}, wire::tcp_flags::kSyn | wire::tcp_flags::kAck);
    segment(0, {}, wire::tcp_flags::kAck);
  }
  // One segment.
  void says(unsigned side, Bytes octets) { segment(side, octets, wire::tcp_flags::kAck); }
  // In segments of `size`.
  void says(unsigned side, Bytes octets, std::size_t size) {
    for (std::size_t at = 0; at < octets.size(); at += size)
      says(side, octets.subspan(at, std::min(size, octets.size() - at)));
  }
  void acknowledges(unsigned side) { segment(side, {}, wire::tcp_flags::kAck); }
  void closes(unsigned side) { segment(side, {}, wire::tcp_flags::kAck | wire::tcp_flags::kFin); }
  void resets(unsigned side) { segment(side, {}, wire::tcp_flags::kRst); }

  void segment(unsigned side, Bytes payload, int flags) {
    const wire::TcpHeader header{.source_port = ports[side],
                                 .destination_port = ports[1 - side],
                                 .sequence = next[side],
                                 .acknowledgement = next[1 - side],
                                 .flags = static_cast<std::uint8_t>(flags),
                                 .window = 65535};
    const auto from = address(side), to = address(1 - side);
    packets.push_back(
        {frames::packet({}, wire::protocol::kTcp, from, to, frames::tcp(header, from, to, payload), tags), now_ns, 0});
    now_ns += 1000;
    next[side] += static_cast<std::uint32_t>(payload.size());
    if ((flags & (wire::tcp_flags::kSyn | wire::tcp_flags::kFin)) != 0) ++next[side];
  }

 private:
  wire::IpAddress address(unsigned side) const {
    if (!v6) return wire::IpAddress::v4(10, 0, 0, static_cast<std::uint8_t>(side + 1));
    return *wire::parse_ip(side == 0 ? "fe80::1" : "fe80::2");
  }
};

inline Octets startup(const wire::StartupHeader& header, std::string_view private_data = "") {
  Octets octets(wire::StartupHeader::kSize);
  wire::StartupHeader sized = header;
  sized.private_data_length = static_cast<std::uint16_t>(private_data.size());
  wire::emit(sized, octets);
  return octets + text(private_data);
}

// A direction's FPDUs, one after another.
class FpduWriter {
 public:
  explicit FpduWriter(mpa::Crc crc = mpa::Crc::on, mpa::Markers markers = mpa::Markers::none) : packer_(crc, markers) {}
  // A Send with the next MSN, or an RDMA Write.
  Octets send(std::size_t payload_size) {
    Octets header(wire::UntaggedHeader::kSize);
    wire::emit(wire::UntaggedHeader{.last = true, .rdmap_control = 0x43, .msn = ++msn_}, header);
    return fpdu(header, pattern(payload_size, msn_));
  }
  Octets sends(std::initializer_list<std::size_t> payload_sizes) {
    Octets all;
    for (const std::size_t size : payload_sizes) append(all, send(size));
    return all;
  }
  Octets write(std::size_t payload_size) {
    Octets header(wire::TaggedHeader::kSize);
    wire::emit(wire::TaggedHeader{.last = true, .rdmap_control = 0x40, .stag = {7}, .tagged_offset = 64}, header);
    return fpdu(header, pattern(payload_size));
  }

 private:
  Octets fpdu(Bytes header, Bytes payload) {
    const auto size = static_cast<std::uint32_t>(payload.size());
    Octets room(packer_.octets_for(static_cast<std::uint32_t>(header.size()) + size));
    const auto pieces = std::make_unique<mpa::PieceList>();
    packer_.begin(room, header, size, *pieces);
    for (std::uint32_t i = 0; i < pieces->count; ++i) {
      std::copy_n(payload.begin(), pieces->pieces[i].size(), pieces->pieces[i].begin());
      payload = payload.subspan(pieces->pieces[i].size());
    }
    packer_.seal(room);
    return room;
  }
  mpa::Packer packer_;
  std::uint32_t msn_ = 0;
};

// ---- what comes of it ----

struct DecodedCapture {
  std::vector<tool::Json> units;
  std::vector<std::string> notes;
  std::string why;

  std::size_t count(std::string_view kind) const {
    std::size_t n = 0;
    for (const auto& unit : units) n += unit["kind"] == kind ? 1 : 0;
    return n;
  }
  std::size_t good() const {
    std::size_t n = 0;
    for (const auto& unit : units) n += unit["kind"] == "fpdu" && unit["crc"] == "good" ? 1 : 0;
    return n;
  }
  // The reasons of all errors, a line each.
  std::string errors() const {
    std::string all;
    for (const auto& unit : units)
      if (unit["kind"] == "error") all += unit["reason"].get<std::string>() + "\n";
    return all;
  }
};

inline DecodedCapture decode(const std::vector<Packet>& packets, tool::Assumed assumed = {},
                             tool::LinkType link = tool::LinkType::ethernet) {
  DecodedCapture decoded;
  tool::Connections connections(assumed, [&](tool::Json&& unit) { decoded.units.push_back(std::move(unit)); });
  std::uint64_t frame = 0;
  for (const Packet& packet : packets)
    connections.on_packet(link, packet.octets, static_cast<std::uint32_t>(packet.wire_length()),
                          {++frame, packet.time_ns});
  connections.end();
  return decoded;
}

// ---- files ----

// A pcap file; nanoseconds or microseconds.
inline Octets pcap_file(const std::vector<Packet>& packets, bool nanoseconds, std::uint32_t link_type = 1) {
  Octets file;
  const auto put = [&file](std::uint32_t value, int octets = 4) {
    for (int i = 0; i < octets; ++i) file.push_back(static_cast<std::byte>(value >> (8 * i)));
  };
  put(nanoseconds ? 0xA1B23C4D : 0xA1B2C3D4);
  put(2, 2), put(4, 2), put(0), put(0), put(262144), put(link_type);
  for (const Packet& packet : packets) {
    put(static_cast<std::uint32_t>(packet.time_ns / 1'000'000'000));
    put(static_cast<std::uint32_t>(packet.time_ns % 1'000'000'000 / (nanoseconds ? 1 : 1000)));
    put(static_cast<std::uint32_t>(packet.octets.size()));
    put(static_cast<std::uint32_t>(packet.wire_length()));
    append(file, packet.octets);
  }
  return file;
}

inline DecodedCapture decode_file(Octets file, tool::Assumed assumed = {}) {
  DecodedCapture decoded;
  std::FILE* stream = ::fmemopen(file.data(), file.size(), "rb");
  RNIC_ASSERT(stream != nullptr);
  decoded.why = tool::decode_capture(
      stream, "the file", assumed, [&](tool::Json&& unit) { decoded.units.push_back(std::move(unit)); },
      [&](const std::string& words) { decoded.notes.push_back(words); });
  return decoded;
}

}  // namespace rnic::test
