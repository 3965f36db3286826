// A port on a queue of one of the kernel's interfaces, by an AF_XDP socket: what comes to the queue goes past the
// kernel's stack, and where the driver can (zero copy) and frames fit a chunk, from the card into our buffers and from
// them into the card.
//
// Frames longer than a chunk of the pool (port/xdp_pool) come and go in several (Linux 6.6). What comes so is gathered
// in a large buffer; what goes is sent from where it lies.
//
// It wakes a worker by the socket itself: that is readable as long as frames wait. Sending makes a call a burst where
// the driver wants to be told, receiving none but where a driver has stopped for want of buffers.
//
// All queues of the interface are taken, as what comes to another is nobody's. The interface makes and checks no
// checksums for us, and cuts no runs. Where it is made of software, whoever sends on this machine may have left TCP's
// checksum undone: such segments are good.
//
// Owned by one worker, but for link_up() and facts().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "port/options.hpp"
#include "port/port.hpp"
#include "port/spec.hpp"
#include "port/xdp_pool.hpp"
#include "port/xdp_program.hpp"
#include "port/xdp_socket.hpp"

namespace rnic::port {

class XdpPort final : public Port {
 public:
  // As many as the interface has queues, which may be no more than `shards`; `options` are of all together. Empty: the
  // sentence says why.
  static std::vector<std::unique_ptr<Port>> open_queues(const PortSpec& spec, const PortOptions& options,
                                                        unsigned shards, std::string& error);

  const PortFacts& facts() const override { return facts_; }
  bool link_up() const override;
  BufferPool& pool() override { return *pool_; }
  unsigned receive_burst(Buffer** out, unsigned max) override;
  unsigned send_burst(Buffer* const* frames, unsigned count) override;
  std::uint64_t frames_lost() const override { return lost_ + lost_in_kernel_; }
  int wake_descriptor() override { return socket_->descriptor(); }
  bool arm() override;
  void disarm() override {}
  void tend() override;

 private:
  static constexpr unsigned kStallsMax = 1000;

  // What the queues of one interface have in common.
  struct Interface {
    ~Interface();
    int index = 0;
    std::unique_ptr<XdpProgram> program;
    int groups = -1;  // open for as long as it is to hear all multicast
  };

  XdpPort(std::shared_ptr<Interface> interface, PortFacts facts);
  bool open_socket(const XdpLayout& layout, unsigned queue, std::string& error);
  void refill();
  void wake_receiver();
  void take_back_sent();
  bool put(Buffer& frame);
  int wake_sender();
  static bool is_busy(int code);
  void tell_kernel();
  Buffer* take(const xdp_desc& received);
  Buffer* gather(BufferRef piece, bool more);

  PortFacts facts_;
  const std::shared_ptr<Interface> interface_;
  std::unique_ptr<XdpPool> pool_;
  std::unique_ptr<XdpSocket> socket_;
  std::uint32_t to_fill_ = 0;  // buffers that the kernel could have more of
  bool virtual_ = false;       // netdev_is_virtual()
  bool all_told_ = true;       // the kernel has taken all that is to be sent
  bool down_ = false;          // the interface, as the kernel has said last
  unsigned stalls_ = 0;        // times in a row that nothing was taken
  BufferRef gathered_;         // of a frame in several chunks, as far as it has come
  bool losing_ = false;        // the rest of one for which there was no buffer
  std::uint64_t lost_ = 0, lost_in_kernel_ = 0;
};

}  // namespace rnic::port
