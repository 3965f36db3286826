// One whole simulated RNIC: port, device, TPT, mover, and queue pairs whose applications are in
// memory.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/device.hpp"
#include "kit/qp_host.hpp"
#include "kit/tpt_memory.hpp"
#include "kit/tpt_mover.hpp"
#include "qp/queue_pair.hpp"
#include "sim/port.hpp"

namespace rnic::sim {

struct RnicOptions {
  wire::IpAddress address;
  wire::Mac mac;
  std::uint32_t mtu_bytes = 1500;
  std::uint32_t buffers = 2048;
  std::uint32_t large_buffers = 0xFFFFFFFF;  // at most, where there are two classes
  bool checksums = true;  // false: the port says that it has seen to them, so that CRC is what is left
  bool runs = false;      // the port takes runs of segments, and cuts them
  bool late_mover = false;
  std::uint64_t seed = 1;
  std::uint32_t streams_max = 256;  // of the device, at most: what many have takes memory
  core::DeviceOptions device;
};

// The buffers of its port.
PoolSize buffers_of(const RnicOptions& options);

// A queue pair with its application.
struct Endpoint {
  test::QueueHost host;
  std::unique_ptr<qp::QueuePair> qp;
  core::StreamId stream;
};

class Rnic final : public core::StreamEvents {
 public:
  // `wire`: a port of another kind, in place of that of the links.
  Rnic(const RnicOptions& options, Clock& clock, Link& out, Link& in, port::Port* wire = nullptr);
  ~Rnic();

  // One turn, as core::Worker does it.
  bool turn();
  Instant next_deadline() const;
  bool idle() const { return device.idle() && mover.idle() && (wire_ == nullptr || wire_->arm()); }

  Endpoint& make_qp(qp::Config config);
  // Posts, and rings the doorbell.
  void post_send(Endpoint& endpoint, const qp::WorkRequest& request);
  void post_receive(Endpoint& endpoint, const qp::ReceiveRequest& request);
  void destroy_qp(Endpoint& endpoint);
  // Memory with a region over it, whose first octet the application calls `base`; 0: by its own address.
  Stag register_memory(MutableBytes memory, tpt::Rights rights, PdId pd = PdId{1}, std::uint8_t key = 7,
                       std::uint64_t base = 0, bool mapped = true);

  void on_stream_event(const core::StreamEvent& event) override;
  void on_network_change(std::uint32_t) override { ++network_changes; }
  void on_ended_for_buffers(std::uint32_t, std::uint32_t streams) override { told_of_ended.push_back(streams); }

  Clock& clock;
  SimPort port;
  tpt::Table table;
  test::PlainMover mover;
  core::Device device;
  std::vector<core::StreamEvent> events;
  unsigned network_changes = 0;
  std::uint64_t direct = 0;                  // messages of queue pairs that are no more, which went without the wire
  std::vector<std::uint32_t> told_of_ended;  // for their buffers
  std::function<void(const core::StreamEvent&)> on_event;  // after it was noted
  std::vector<std::unique_ptr<Endpoint>> endpoints;

 private:
  port::Port* wire_;
  std::uint32_t next_qp_number_;
};

}  // namespace rnic::sim
