// One whole simulated RNIC: port, device, TPT, mover, and queue pairs whose applications are in
// memory.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "core/device.hpp"
#include "kit/tpt_mover.hpp"
#include "qp/queue_pair.hpp"
#include "sim/port.hpp"
#include "tpt/table.hpp"

namespace rnic::sim {

// The application's side of a queue pair: queues as plain containers.
class QueueHost final : public qp::Host {
 public:
  bool take_send(qp::WorkRequest& out) override {
    if (sends.empty()) return false;
    out = sends.front();
    sends.pop_front();
    ++sends_taken;
    return true;
  }
  bool take_receive(qp::ReceiveRequest& out) override {
    auto& queue = shared_receives != nullptr ? *shared_receives : receives;
    if (queue.empty()) return false;
    out = queue.front();
    queue.pop_front();
    ++receives_taken;
    return true;
  }
  bool complete(const qp::Completion& completion) override {
    overflowed |= completions.size() >= completions_max;
    if (overflowed) return false;  // for good, as the real one (V-AE-37)
    completions.push_back(completion);
    if (on_completion) on_completion(completion);
    return true;
  }
  void raise(qp::Event event) override {
    events.push_back(event);
    if (on_event) on_event(event);
  }
  void state_changed(const qp::Change& change) override {
    ++state_changes;
    if (on_change) on_change(change);
  }

  std::deque<qp::WorkRequest> sends;
  std::deque<qp::ReceiveRequest> receives;
  std::deque<qp::ReceiveRequest>* shared_receives = nullptr;
  std::vector<qp::Completion> completions;  // all there ever were, in order
  std::size_t completions_max = SIZE_MAX;
  bool overflowed = false;
  std::vector<qp::Event> events;
  unsigned state_changes = 0;
  std::uint64_t sends_taken = 0, receives_taken = 0;
  // After it was noted.
  std::function<void(const qp::Completion&)> on_completion;
  std::function<void(qp::Event)> on_event;
  std::function<void(const qp::Change&)> on_change;
};

struct RnicOptions {
  wire::IpAddress address;
  wire::Mac mac;
  std::uint32_t mtu_bytes = 1500;
  std::uint32_t buffers = 2048;
  std::uint32_t large_buffers = 0xFFFFFFFF;  // at most, where there are two classes
  bool checksums = true;  // false: the port says that it has seen to them, so that CRC is what is left
  bool late_mover = false;
  std::uint64_t seed = 1;
  std::uint32_t streams_max = 256;  // of the device, at most: what many have takes memory
  core::DeviceOptions device;
};

// The buffers of its port.
PoolSize buffers_of(const RnicOptions& options);

// A queue pair with its application.
struct Endpoint {
  QueueHost host;
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
                       std::uint64_t base = 0);

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
  std::vector<std::uint32_t> told_of_ended;                // for their buffers
  std::function<void(const core::StreamEvent&)> on_event;  // after it was noted
  std::vector<std::unique_ptr<Endpoint>> endpoints;

 private:
  port::Port* wire_;
  std::uint32_t next_qp_number_;
};

}  // namespace rnic::sim
