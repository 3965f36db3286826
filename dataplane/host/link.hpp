// The link under a host: frames of one port in and out, in batches, and those to ourselves, which no port sees.
//
//   in     receive(), receive_looped()  ->  a batch, each frame with one reference for the caller; take_header()
//   out    take_control(), write_header()  ->  push(), to the port with the next flush(), or push_loop()
//
// Knows Ethernet and 802.1Q, and no address but its own. Owned by one worker.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.hpp"
#include "base/time.hpp"
#include "host/counters.hpp"
#include "port/port.hpp"
#include "port/tap.hpp"
#include "wire/ethernet.hpp"
#include "wire/vlan.hpp"

namespace rnic::host {

class Link {
 public:
  static constexpr unsigned kBatchMax = 64;      // frames
  static constexpr unsigned kBatchMin = 8;       // so many where each is long
  static constexpr unsigned kTransmitMax = 256;  // frames that wait for a full port
  static constexpr unsigned kLoopMax = 4096;     // frames to ourselves; a power of two
  using Batch = std::span<Buffer* const>;

  // `batch_bytes`: a batch from the port has no more than about so many, as frames were before.
  Link(port::Port& port, std::optional<std::uint16_t> vlan, std::uint64_t batch_bytes, Counters& counters);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // ---- in ----
  struct Room {
    Buffer* frames[kBatchMax];
  };
  // What the port has now. `more`: it may have.
  Batch receive(Room& room, bool& more);
  unsigned looped() const { return loop_tail_ - loop_head_; }
  // At most `count`, and no further one when `bytes` has come to `most`.
  Batch receive_looped(Room& room, unsigned count, std::uint64_t& bytes, std::uint64_t most);

  // What the link says of a frame.
  struct Header {
    std::uint16_t type = 0;  // of what follows
    std::size_t size = 0;
    bool to_all = false;  // a multicast of the link
  };
  // Counts it. Nothing: it is not for us, or of another VLAN, or no frame.
  std::optional<Header> take_header(Bytes frame) {
    ++counters_.frames_in;
    counters_.bytes_in += frame.size();
    if (frame.size() < wire::EthernetHeader::kSize) {
      ++counters_.bad_frames;
      return std::nullopt;
    }
    const wire::Mac destination = wire::load_mac(frame, 0);
    if (destination != mac_ && !destination.is_multicast()) return std::nullopt;  // a wire may show us others' frames
    Header header{.type = load_be<std::uint16_t>(frame, 12),
                  .size = wire::EthernetHeader::kSize,
                  .to_all = destination.is_multicast()};
    if ((header.type == wire::ether_type::kVlan || vlan_) && !take_tag(frame, header)) [[unlikely]]
      return std::nullopt;
    return header;
  }

  // ---- out ----
  std::uint32_t header_size() const { return vlan_ ? wire::kLinkHeaderMax : wire::EthernetHeader::kSize; }
  // Writes header_size() octets.
  void write_header(const wire::Mac& destination, std::uint16_t type, MutableBytes out) const;
  // For what carries no stream's data. A frame in a small buffer is no longer than that, headers and all; where there
  // is no large one, a small one: for the front of what was to go.
  BufferRef take_control() {
    if (control_count_ == 0 && !refill_control()) return take_last();
    return BufferRef{control_[--control_count_]};
  }
  BufferRef take_control_for(std::size_t octets);
  void push(BufferRef frame, Instant now) {
    if (!has_room()) flush(now);
    if (!has_room()) {
      ++counters_.frames_dropped;
      return;
    }
    if (taps_ != nullptr) [[unlikely]]
      show(port::FrameDirection::sent, *frame);
    transmit_[transmit_count_++] = frame.release();
    if (transmit_count_ == kTransmitMax) flush(now);
  }
  void push_loop(BufferRef frame);
  // The batch to the port. One that takes nothing for a while loses it.
  void flush(Instant now);
  bool has_room() const { return transmit_count_ < kTransmitMax; }
  // For so many frames, with a flush() where that is needed.
  bool make_room(unsigned frames, Instant now) {
    if (kTransmitMax - transmit_count_ < frames) [[unlikely]]
      flush(now);
    return kTransmitMax - transmit_count_ >= frames;
  }
  unsigned loop_room() const { return kLoopMax - looped(); }
  bool idle() const { return transmit_count_ == 0 && looped() == 0; }

  // ---- what it is ----
  port::Port& port() const { return port_; }
  const wire::Mac& mac() const { return mac_; }
  bool is_up() const { return port_.link_up(); }
  bool checks_in() const { return checks_in_; }  // the port does not
  bool sums_out() const { return sums_out_; }
  // Octets of IP in one frame, now.
  std::uint32_t mtu_bytes() const { return mtu_bytes_; }
  void set_mtu(std::uint32_t mtu_bytes);
  // Octets of IP in a run of segments that the port takes (port::PortFacts). None behind a tag, which hides TCP from a
  // kernel.
  std::uint32_t run_bytes() const { return vlan_ ? 0 : port_.facts().run_bytes; }
  // Whether the port says another MTU than before: it is taken over, as what it says of checksums.
  bool follow_port() {
    sums_out_ = !port_.fills_checksums();
    const std::uint32_t mtu = port_.link_mtu();
    if (mtu == port_mtu_bytes_) [[likely]]
      return false;
    set_mtu(port_mtu_bytes_ = mtu);
    return true;
  }

  // ---- who watches ----
  void add_tap(port::Tap& tap);
  void remove_tap(port::Tap& tap);
  bool is_tapped() const { return taps_ != nullptr; }

 private:
  void size_batch(Batch full);
  bool take_tag(Bytes frame, Header& header);
  bool refill_control();
  BufferRef take_last();
  void show(port::FrameDirection direction, const Buffer& frame);

  port::Port& port_;
  Counters& counters_;
  wire::Mac mac_;
  std::optional<std::uint16_t> vlan_;
  bool checks_in_, sums_out_;
  std::uint32_t mtu_bytes_, port_mtu_bytes_;
  std::uint64_t batch_bytes_;
  unsigned batch_;  // frames of the next

  std::array<Buffer*, kTransmitMax> transmit_{};
  unsigned transmit_count_ = 0;
  Instant progress_at_ = kNever;  // since when the port takes nothing
  std::unique_ptr<Buffer*[]> loop_;
  unsigned loop_head_ = 0, loop_tail_ = 0;
  std::array<Buffer*, 32> control_{};
  unsigned control_count_ = 0;
  port::Tap* taps_ = nullptr;        // a list
  std::vector<std::byte> cut_room_;  // for a segment of a run that they are shown
};

}  // namespace rnic::host
