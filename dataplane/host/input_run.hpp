// Frames of a batch that are one run of a stream: each says what the one before said, but for its place in the stream,
// its octets and PSH (same link, IP and TCP headers, acknowledgement, window and timestamps). What ports join into one
// long frame where they can (Buffer::unit_bytes), seen where they cannot: the first is looked at whole, and of those
// behind it only that (PacketsIn::take()).
//
// Pure: frames as they lie.
#pragma once

#include <array>
#include <cstring>
#include <optional>

#include "base/bytes.hpp"
#include "tcp/seq.hpp"
#include "wire/checksum.hpp"
#include "wire/ecn.hpp"
#include "wire/ethernet.hpp"
#include "wire/ipv4.hpp"
#include "wire/ipv6.hpp"
#include "wire/tcp.hpp"

namespace rnic::host {

struct Stream;

class InputRun {
 public:
  // The frame that is looked at whole next. Empty: none may follow it.
  void look_at(Bytes frame) {
    stream_ = nullptr;
    is_known_ = frame.size() >= headers_.size();
    if (is_known_) std::memcpy(headers_.data(), frame.data(), headers_.size());
  }
  // All of its octets were taken, as the next of that stream: others may follow it, if it says nothing else. Until
  // look_at() or end().
  void begin(Stream& stream);
  void end() { stream_ = nullptr; }
  Stream* stream() const { return stream_; }

  struct Next {
    tcp::Seq sequence{};
    Bytes ip_header, segment, payload;
  };
  // Nothing: this frame says something else than the run's, or is none.
  std::optional<Next> next(Bytes frame) const;

 private:
  static constexpr std::size_t kIp = wire::EthernetHeader::kSize, kStamps = 12;
  // A frame that carries fewer octets than this has is no part of a run.
  static constexpr std::size_t kHeadersMax = kIp + wire::Ipv6Header::kSize + wire::TcpHeader::kSize + kStamps;

  const std::byte* at(std::size_t offset) const { return headers_.data() + offset; }
  unsigned octet(std::size_t offset) const { return std::to_integer<unsigned>(headers_[offset]); }
  template <std::size_t kSize>
  bool is_same(Bytes frame, std::size_t offset) const {
    return std::memcmp(frame.data() + offset, at(offset), kSize) == 0;
  }

  Stream* stream_ = nullptr;
  bool is_known_ = false;
  std::size_t tcp_ = 0, payload_ = 0;  // where these begin in each frame
  std::array<std::byte, kHeadersMax> headers_{};
};

inline void InputRun::begin(Stream& stream) {
  if (!is_known_) return;
  const Bytes first(headers_);
  unsigned ecn = 0;
  switch (load_be<std::uint16_t>(first, kIp - 2)) {
    case wire::ether_type::kIpv4:  // no options, no fragment
      if (octet(kIp) != 0x45 || (load_be<std::uint16_t>(first, kIp + 6) & 0x3FFF) != 0 ||
          octet(kIp + 9) != wire::protocol::kTcp)
        return;
      ecn = wire::ecn::of(headers_[kIp + 1], wire::ecn::kShiftV4);
      tcp_ = kIp + wire::Ipv4Header::kSize;
      break;
    case wire::ether_type::kIpv6:
      if (octet(kIp + 6) != wire::protocol::kTcp) return;
      ecn = wire::ecn::of(headers_[kIp + 1], wire::ecn::kShiftV6);
      tcp_ = kIp + wire::Ipv6Header::kSize;
      break;
    default:
      return;
  }
  const unsigned words = octet(tcp_ + 12) >> 4;
  const bool plain = (octet(tcp_ + 13) & ~unsigned{wire::tcp_flags::kPsh}) == wire::tcp_flags::kAck &&
                     (octet(tcp_ + 12) & 0xF) == 0 && (words == 5 || words == 8);
  if (!plain || ecn == wire::ecn::kCongestion) return;
  constexpr std::uint32_t kStampsAlone = 0x0101080A;  // RFC 7323 appendix A
  if (words == 8 && load_be<std::uint32_t>(first, tcp_ + wire::TcpHeader::kSize) != kStampsAlone) return;
  payload_ = tcp_ + std::size_t{words} * 4;
  stream_ = &stream;
}

inline std::optional<InputRun::Next> InputRun::next(Bytes frame) const {
  if (frame.size() < headers_.size()) return std::nullopt;
  const bool v4 = tcp_ == kIp + wire::Ipv4Header::kSize;
  // Behind the headers of IP, that is behind what its length counts for IPv6.
  const std::size_t end =
      v4 ? kIp + load_be<std::uint16_t>(frame, kIp + 2) : tcp_ + load_be<std::uint16_t>(frame, kIp + 4);
  if (end <= payload_ || end > frame.size()) return std::nullopt;
  // Not IPv4's identification and checksum.
  const bool same_ip = v4 ? is_same<kIp + 2>(frame, 0) && is_same<4>(frame, kIp + 6) && is_same<8>(frame, kIp + 12)
                          : is_same<kIp + 4>(frame, 0) && is_same<34>(frame, kIp + 6);
  if (!same_ip || !is_same<4>(frame, tcp_) || !is_same<5>(frame, tcp_ + 8) || !is_same<2>(frame, tcp_ + 14) ||
      !is_same<2>(frame, tcp_ + 18))
    return std::nullopt;
  const auto flags = std::to_integer<unsigned>(frame[tcp_ + 13]) | wire::tcp_flags::kPsh;
  if (flags != (octet(tcp_ + 13) | wire::tcp_flags::kPsh)) return std::nullopt;
  if (payload_ - tcp_ > wire::TcpHeader::kSize && !is_same<kStamps>(frame, tcp_ + wire::TcpHeader::kSize))
    return std::nullopt;
  return Next{.sequence = {load_be<std::uint32_t>(frame, tcp_ + 4)},
              .ip_header = frame.subspan(kIp, tcp_ - kIp),
              .segment = frame.subspan(tcp_, end - tcp_),
              .payload = frame.subspan(payload_, end - payload_)};
}

}  // namespace rnic::host
