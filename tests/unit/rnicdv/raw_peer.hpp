// A queue pair whose peer says and hears FPDUs by hand: the far end of its connection stays in streaming mode, and its
// octets are the test's. Provider, daemon and data plane on the near one.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "unit/rnicdv/streamed.hpp"
#include "wire/crc32c.hpp"
#include "wire/ddp.hpp"
#include "wire/mpa.hpp"
#include "wire/rdmap.hpp"
#include "wire/terminate.hpp"

namespace rnic::test::raw {

using Octets = std::string;

template <typename Header>
Octets octets_of(const Header& header, std::size_t size) {
  Octets out(size, '\0');
  wire::emit(header, std::as_writable_bytes(std::span(out)));
  return out;
}
inline Octets tagged(std::uint8_t opcode, std::uint32_t stag, std::uint64_t to, const Octets& payload = {}) {
  return octets_of(wire::TaggedHeader{.last = true,
                                      .rdmap_control = static_cast<std::uint8_t>(0x40 | opcode),
                                      .stag = {stag},
                                      .tagged_offset = to},
                   wire::TaggedHeader::kSize) +
         payload;
}
inline Octets untagged(std::uint8_t opcode, std::uint32_t queue, std::uint32_t msn, const Octets& payload = {},
                       std::uint32_t offset = 0, bool last = true, std::uint32_t invalidate = 0) {
  return octets_of(wire::UntaggedHeader{.last = last,
                                        .rdmap_control = static_cast<std::uint8_t>(0x40 | opcode),
                                        .invalidate = {invalidate},
                                        .queue = queue,
                                        .msn = msn,
                                        .message_offset = offset},
                   wire::UntaggedHeader::kSize) +
         payload;
}
inline Octets message(std::uint32_t msn, const Octets& payload = {}) { return untagged(3, 0, msn, payload); }
inline Octets read_request(std::uint32_t msn, std::uint32_t length, std::uint32_t stag, std::uint64_t from) {
  return untagged(
      1, 1, msn,
      octets_of(
          wire::ReadRequestHeader{
              .sink_stag = {1}, .sink_to = 0, .size_bytes = length, .source_stag = {stag}, .source_to = from},
          wire::ReadRequestHeader::kSize));
}
// Length, ULPDU, pad and CRC.
inline Octets fpdu(const Octets& ulpdu) {
  Octets out{static_cast<char>(ulpdu.size() >> 8), static_cast<char>(ulpdu.size())};
  out += ulpdu;
  out.resize((out.size() + 3) / 4 * 4);
  const std::uint32_t crc = wire::crc32c(std::as_bytes(std::span(out)));
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(crc >> shift);
  return out;
}
inline Bytes bytes_of(const Octets& octets) { return std::as_bytes(std::span(octets)); }

struct RawPeer : streams::Streamed {
  static constexpr std::uint32_t kDepths = RNICDV_QP_ORD | RNICDV_QP_IRD;

  explicit RawPeer(std::uint32_t ord = 4, std::uint32_t ird = 4, unsigned rights = kRemote,
                   const char* devices = kTwoDevices)
      : RawPeer(Unopened::yes, devices, rights) {
    open();
    REQUIRE(streams::attach(qp_a, stream_a, {}, kDepths, 0, ord, ird) == 0);
  }
  static constexpr unsigned kRemote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

  ibv_sge sge(std::size_t offset, std::uint32_t length) const { return sge_of(mr_a, memory_a.data() + offset, length); }
  std::uint64_t to(std::size_t offset = 0) const { return reinterpret_cast<std::uintptr_t>(memory_a.data()) + offset; }

  // ---- what the peer does ----
  void say(const Octets& ulpdu) { say_octets(fpdu(ulpdu)); }
  void say_octets(const Octets& octets) { streams::send(stream_b, octets); }
  // The next ULPDU that it hears, whose CRC is good; nothing: the stream has ended, by FIN or RST.
  std::optional<Octets> hear() {
    const Octets length = take(2);
    if (length.size() < 2) return std::nullopt;
    const std::size_t size = static_cast<std::uint8_t>(length[0]) << 8 | static_cast<std::uint8_t>(length[1]);
    const std::size_t padded = (size + 2 + 3) / 4 * 4 - 2;
    const Octets rest = take(padded + 4);
    REQUIRE(rest.size() == padded + 4);
    REQUIRE(fpdu(rest.substr(0, size)) == length + rest);
    return rest.substr(0, size);
  }
  // Nothing comes, for as long as may be waited for what does not.
  bool hears_nothing() {
    usleep(30'000);
    char octet = 0;
    std::size_t received = 0;
    return rnicdv_stream_receive(stream_b, &octet, 1, &received) == EAGAIN;
  }
  // All that is left until the end is one Terminate; nothing: there was none.
  std::optional<wire::TerminateMessage> hear_terminate() { return ends_with_terminate(hear()); }
  // The same behind this one, which was heard already.
  std::optional<wire::TerminateMessage> ends_with_terminate(const std::optional<Octets>& ulpdu) {
    if (!ulpdu) return std::nullopt;
    const auto header = wire::parse_untagged(bytes_of(*ulpdu));
    REQUIRE(header);
    CHECK(*header == wire::UntaggedHeader{.last = true, .rdmap_control = 0x47, .queue = 2, .msn = 1});
    said_terminate = ulpdu->substr(wire::UntaggedHeader::kSize);
    CHECK_FALSE(hear());
    return wire::parse_terminate(bytes_of(said_terminate));
  }
  void close_peer() {
    REQUIRE(rnicdv_stream_close(stream_b) == 0);
    stream_b = nullptr;
  }

  // ---- what the application sees ----
  rnicdv_qp_attr attr() { return test::direct_of(qp_a); }
  bool comes_to(std::uint32_t state) {
    return comes_true([&] { return attr().state == state; });
  }
  static constexpr std::uint32_t kNoEvent = 0xFFFF;
  // The event that was told of the queue pair.
  std::uint32_t event(int limit_ms = 10'000) {
    const auto told = next_async(a, limit_ms);
    if (!told) return kNoEvent;
    CHECK(told->object == reinterpret_cast<std::uintptr_t>(qp_a));
    return told->type;
  }
  bool no_event() { return !next_async(a, 20); }
  bool nothing_completes() {
    ibv_wc wc{};
    return provider::poll_cq(cq_a, 1, &wc) == 0;
  }

  Octets said_terminate;
  bool reset = false;  // the stream's end was a RST

 protected:
  enum class Unopened : std::uint8_t { yes };
  RawPeer(Unopened, const char* devices, unsigned rights) : Streamed(64, devices) {
    REQUIRE(to_state(qp_a, IBV_QPS_INIT, IBV_QP_ACCESS_FLAGS, rights) == 0);
  }
  Octets take(std::size_t size) {
    Octets all;
    while (all.size() < size) {
      char octets[6000];
      std::size_t received = 0;
      const int error = rnicdv_stream_receive(stream_b, octets, std::min(size - all.size(), sizeof octets), &received);
      if (error == EAGAIN) {
        REQUIRE(streams::wait_for(stream_b));
        continue;
      }
      reset = error != 0;
      if (error != 0 || received == 0) break;
      all.append(octets, received);
    }
    return all;
  }
};

}  // namespace rnic::test::raw
