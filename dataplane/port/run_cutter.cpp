#include "port/run_cutter.hpp"

#include <algorithm>
#include <cstring>

#include "wire/checksum.hpp"
#include "wire/ethernet.hpp"
#include "wire/ipv4.hpp"
#include "wire/ipv6.hpp"
#include "wire/tcp.hpp"

namespace rnic::port {

namespace {
constexpr std::uint32_t kIp = wire::EthernetHeader::kSize;
// Offsets within their headers.
constexpr std::uint32_t kV4Length = 2, kV4Checksum = 10, kV6Length = 4, kTcpSequence = 4, kTcpFlags = 13;
}  // namespace

RunCutter::RunCutter(const Buffer& run)
    : run_(run.bytes()), headers_bytes_(run.headers_bytes), unit_bytes_(run.unit_bytes) {
  RNIC_ASSERT(unit_bytes_ != 0 && run_.size() > headers_bytes_);
  count_ = run.frames();
}

std::uint32_t RunCutter::write(std::uint32_t number, MutableBytes room) const {
  const std::uint32_t at = number * unit_bytes_;
  const Bytes payload = run_.subspan(headers_bytes_ + at);
  const auto octets = static_cast<std::uint32_t>(std::min<std::size_t>(payload.size(), unit_bytes_));
  const MutableBytes frame = room.first(headers_bytes_ + octets);
  std::memcpy(frame.data(), run_.data(), headers_bytes_);
  std::memcpy(frame.data() + headers_bytes_, payload.data(), octets);

  const bool v6 = load_be<std::uint16_t>(frame, kIp - 2) == wire::ether_type::kIpv6;
  const std::uint32_t tcp = kIp + static_cast<std::uint32_t>(v6 ? wire::Ipv6Header::kSize : wire::Ipv4Header::kSize);
  const auto size = static_cast<std::uint16_t>(frame.size());
  if (v6) {
    store_be(frame, kIp + kV6Length, static_cast<std::uint16_t>(size - tcp));
  } else {
    store_be(frame, kIp + kV4Length, static_cast<std::uint16_t>(size - kIp));
    store_be<std::uint16_t>(frame, kIp + kV4Checksum, 0);
    store_be(frame, kIp + kV4Checksum, wire::checksum_of(wire::sum_of(frame.subspan(kIp, wire::Ipv4Header::kSize))));
  }
  store_be(frame, tcp + kTcpSequence, load_be<std::uint32_t>(frame, tcp + kTcpSequence) + at);
  // Congestion window reduced is said by the first alone (RFC 3168 s6.1.2), and what ends something by the last.
  std::byte flags = frame[tcp + kTcpFlags];
  if (number != 0) flags &= ~std::byte{wire::tcp_flags::kCwr};
  if (number + 1 != count_) flags &= ~(std::byte{wire::tcp_flags::kPsh} | std::byte{wire::tcp_flags::kFin});
  frame[tcp + kTcpFlags] = flags;
  store_be<std::uint16_t>(frame, tcp + wire::TcpHeader::kChecksumOffset, 0);
  const wire::IpAddress from =
      v6 ? wire::IpAddress::load_v6(frame, kIp + 8) : wire::IpAddress::load_v4(frame, kIp + 12);
  const wire::IpAddress to = v6 ? wire::IpAddress::load_v6(frame, kIp + 24) : wire::IpAddress::load_v4(frame, kIp + 16);
  store_be(frame, tcp + wire::TcpHeader::kChecksumOffset,
           wire::transport_checksum(from, to, wire::protocol::kTcp, frame.subspan(tcp)));
  return size;
}

}  // namespace rnic::port
