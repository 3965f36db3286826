// A memif port: shared-memory rings to another process, by DPDK's driver, with what that lacks:
//
// - a client whose server is not there yet, or comes back, connects by itself (the driver only tries
//   once, when it is started);
// - the driver's interrupt thread does not take the rings away under a burst (port/dpdk_gate);
// - two rnicd wake each other, and agree on an MTU far above a slot's (port/wake_channel, port/pieces);
// - a port of several workers has a link for each: the driver's queues would want as many on both sides.
//
// The driver trusts what its peer writes into the rings: memif joins only processes that trust
// each other (architecture.md s9), and none of another user who was not named (port/memif_peer).
//
// Bursts, arm() and disarm() belong to one worker; on_round() to the gate's thread, which holds the
// port's lock then.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "port/dpdk_gate.hpp"
#include "port/dpdk_port.hpp"
#include "port/memif_door.hpp"
#include "port/pieces.hpp"
#include "port/wake_channel.hpp"

namespace rnic::port {

// mbufs for frames of one slot, and large buffers, of which DPDK knows nothing.
class MemifPool final : public BufferPool {
 public:
  MemifPool(DpdkPool& small, const PoolSize& size) : small_(small) {
    if (size.large_count != 0) large_.emplace(*this, size.large_count, size.large_room_bytes);
  }

  unsigned take(Buffer** out, unsigned n) override { return small_.take(out, n); }
  Buffer* take_large() override {
    if (!large_) return small_.take_large();
    Buffer* one = nullptr;
    return large_->take(&one, 1) == 1 ? one : nullptr;
  }
  // Only large ones have this pool's address in them.
  void give(Buffer* const* buffers, unsigned n) override {
    for (unsigned i = 0; i < n; ++i) large_->give(buffers[i]);
  }
  bool shared(const Buffer& buffer) const override {
    return is_large(buffer) ? buffer.refs > 1 : small_.shared(buffer);
  }
  std::uint32_t room_bytes() const override { return large_ ? large_->room_bytes() : small_.room_bytes(); }
  std::uint32_t small_room_bytes() const override { return small_.room_bytes(); }
  std::uint32_t available() const override { return small_.available(); }
  std::uint32_t large_available() const override { return large_ ? large_->available() : small_.available(); }
  bool is_large(const Buffer& buffer) const { return buffer.pool == this; }
  void release_unused() {
    if (large_) large_->release_unused();
  }

 private:
  DpdkPool& small_;
  std::optional<BufferStock> large_;
};

class MemifPort final : public DpdkPort, private Gated {
 public:
  // For `shards` workers as many queues, each a link of its own with sockets of its own beside the first one's
  // (SOCKET.q1, ...): who has fewer workers has none at the others, and nothing but rnicd asks for them. Empty: the
  // sentence says why.
  static std::vector<std::unique_ptr<Port>> open_queues(const PortSpec& spec, const PortOptions& options,
                                                        unsigned shards, std::string& error);
  ~MemifPort() override;

  // Only when it is known what the peer is, and so what it receives.
  bool link_up() const override { return settled_.load(std::memory_order_acquire); }  // pairs with on_round()
  std::uint32_t link_mtu() const override { return link_mtu_.load(std::memory_order_relaxed); }
  // Between two rnicd frames never leave memory. Who joins a moment later than the other may drop some that have no
  // checksums, and TCP sends them again.
  bool fills_checksums() const override { return joined_.load(std::memory_order_relaxed); }
  BufferPool& pool() override { return *frames_; }
  unsigned receive_burst(Buffer** out, unsigned max) override;
  // While there is no peer, frames are lost, as on a cable with nobody at its end.
  unsigned send_burst(Buffer* const* frames, unsigned count) override;
  std::uint64_t frames_lost() const override { return DpdkPort::frames_lost() + unheard_ + reassembler_.lost(); }
  // One descriptor for the port's whole life, so it can be watched from the start (before the first
  // arm() it is always given); but -1 while a peer is there that has no wake channel, so ask again
  // before each sleep.
  int wake_descriptor() override;
  bool arm() override;
  void disarm() override;
  void tend() override;

 private:
  // Which of the links of its device it is, and how often the first of them has come up.
  struct Among {
    bool is_first = true;
    std::shared_ptr<std::atomic<std::uint32_t>> first_ups;
  };
  static std::unique_ptr<MemifPort> open(const PortSpec& spec, const PortOptions& options, const Among& among,
                                         std::string& error);
  MemifPort(std::shared_ptr<DpdkDevice> device, const PortSpec& spec, WakeChannel::Role role,
            const WakeChannel::Sizes& sizes, const MemifPeer& peer);

  void on_round(bool tick) override;
  void descriptors(std::vector<int>& out) const override;
  bool wants_ticks() const override;
  bool may_connect() const;
  int connection() const;
  void reconnect();
  bool is_up();
  bool refill();
  bool refill_within();  // a passage
  Buffer* accept(BufferRef frame);
  bool send_long(Buffer* frame);

  // A client's patience, in ticks, with a server that has no wake channel.
  static constexpr unsigned kJoinTicks = 20;
  // A client's other links', of looking for their server.
  static constexpr unsigned kConnectTicks = 20;
  // After so many without a wake channel the peer is no rnicd. One that is joins at once.
  static constexpr unsigned kUnknownPeerTicks = 3;

  PortSpec::Role role_;
  std::string socket_;
  Among among_;
  MemifPeer peer_;
  WakeChannel wake_channel_;
  std::optional<MemifDoor> door_;  // a server's
  std::unique_ptr<MemifPool> frames_;
  std::uint32_t unknown_peer_mtu_ = kMtuWireDefault;  // toward a peer that tells none
  std::uint32_t slot_;                                // octets of a frame in one of ours

  // The worker's.
  bool armed_once_ = false;
  std::array<Buffer*, kBurst> slots_{};  // received, frames or pieces
  unsigned slots_next_ = 0, slots_count_ = 0;
  FrameReassembler reassembler_;
  BufferRef sending_;  // a frame of which not all pieces found room
  std::uint32_t sent_of_it_ = 0;
  std::uint32_t frames_cut_ = 0;
  std::uint64_t unheard_ = 0;  // for want of a peer
  unsigned tends_ = 0;

  bool ready_ = false;  // guarded by the lock, as the next
  unsigned join_ticks_ = 0, connect_ticks_ = 0;
  std::uint32_t first_ups_seen_ = 0;
  unsigned unknown_peer_ticks_ = 0;
  std::uint32_t slot_max_ = 0;  // octets of a frame that fit a slot of either side
  // Written with the lock held; read by anybody, to whom a moment more or less is the same.
  std::atomic<bool> up_{false};
  std::atomic<bool> joined_{false};
  std::atomic<bool> settled_{false};
  std::atomic<std::uint32_t> link_mtu_{kMtuWireDefault};
};

}  // namespace rnic::port
