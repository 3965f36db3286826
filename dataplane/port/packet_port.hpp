// A port on one of the kernel's interfaces, by a packet socket (packet(7)): whole frames, and with each what the kernel
// and we need not do (PACKET_VNET_HDR). Segments of one stream leave as one, and the interface or the kernel cuts them
// (port/segment_runs); what the kernel has merged, or its own stack has not cut, comes as it is, in a large buffer.
// TCP's checksums are left to the interface to make, and those that the kernel knows to be good are not checked again.
//
// It wakes a worker by the socket itself. A call takes in what waits, as much as there are buffers laid out for;
// nothing is looked at without a call, so a worker that spins makes one each turn.
//
// Several on one interface are one fanout group, among whose sockets the kernel divides what comes
// (port/fanout_program).
//
// Owned by one worker, but for link_up() and facts().
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/buffer.hpp"
#include "port/options.hpp"
#include "port/port.hpp"
#include "port/segment_runs.hpp"
#include "port/spec.hpp"

namespace rnic::port {

class PacketPort final : public Port {
 public:
  // So many on one interface, for as many workers (port/steered_ports): each receives its shard's connections, the
  // first one everything else besides, and each sends what it likes. `options` are of all together: their buffers are
  // divided, though no port has fewer than it can do with. Empty: the sentence says why. `count`: at least 1.
  static std::vector<std::unique_ptr<Port>> open_queues(const PortSpec& spec, const PortOptions& options,
                                                        unsigned count, std::string& error);
  ~PacketPort() override;

  const PortFacts& facts() const override { return facts_; }
  bool link_up() const override;
  BufferPool& pool() override { return pool_; }
  unsigned receive_burst(Buffer** out, unsigned max) override;
  unsigned send_burst(Buffer* const* frames, unsigned count) override;
  std::uint64_t frames_lost() const override { return lost_; }
  int wake_descriptor() override { return socket_; }
  bool arm() override;
  void disarm() override {}
  void tend() override;

 private:
  // Frames of a call.
  static constexpr unsigned kReceivedMax = 64;
  static constexpr unsigned kRunsMax = 32;

  // Where a frame is received to: a short one fills a small buffer's room at most, a longer one has its rest in the
  // large buffer, where its beginning belongs, too.
  struct Place {
    OffloadHeader said;
    alignas(std::size_t) std::byte control[64];
    std::array<iovec, 3> pieces;
    BufferRef small, large;
  };
  struct Leaving {
    SegmentRun run;
    OffloadHeader said;
    std::array<iovec, 1 + SegmentRun::kSegmentsMax> pieces;
  };

  PacketPort(const PortSpec& spec, const PoolSize& buffers, std::uint32_t mtu_bytes);
  bool open_socket(int interface, bool groups, bool deaf, std::string& error);
  bool join(int& group, unsigned members, std::string& error);
  bool hear(std::string& error);
  unsigned receive_now(Buffer** out, unsigned max);
  BufferRef take_from_behind(unsigned index, BufferRef Place::*which);
  unsigned lay_out();
  BufferRef take_frame(Place& place, const msghdr& message, std::uint32_t octets);
  unsigned collect(Buffer* const* frames, unsigned count, unsigned& taken);

  PortFacts facts_;
  HeapPool pool_;
  int socket_ = -1;
  int interface_ = 0;  // by its number: names come and go
  std::unique_ptr<std::array<Place, kReceivedMax>> places_;
  std::array<mmsghdr, kReceivedMax> incoming_{};
  unsigned dirty_ = kReceivedMax;  // places in front that are to be laid out
  std::unique_ptr<std::array<Leaving, kRunsMax>> leaving_;
  std::array<mmsghdr, kRunsMax> outgoing_{};
  std::array<Buffer*, kReceivedMax> stash_{};  // received while it was looked whether any wait
  unsigned stash_next_ = 0, stash_count_ = 0;
  std::uint64_t lost_ = 0;
  unsigned tends_ = 0;
};

}  // namespace rnic::port
