// What a device tells of its streams. It is kept while a step of the turn runs, and told at the end of that, never
// inside: who hears of an event may give commands at once.
//
// Owned by one worker.
#pragma once

#include <cstdint>
#include <vector>

#include "core/connection.hpp"
#include "core/stream.hpp"

namespace rnic::core {

class StreamNews {
 public:
  StreamNews(StreamEvents& events, std::uint32_t device_index);

  // ---- of a stream ----
  void tell_request(Stream& stream);
  void tell_withdrawn(Stream& stream);    // a request that was told and not answered
  void tell_established(Stream& stream);  // once, and not after its end
  void tell_ready(Stream& stream);
  // Its end, told once:
  void tell_rejected(Stream& stream);
  void tell_failed(Stream& stream, StreamFailure failure);
  void tell_disconnected(Stream& stream);

  // ---- of the device, at once ----
  void tell_network_change() { events_.on_network_change(device_index_); }
  void tell_ended_for_buffers(std::uint32_t streams) { events_.on_ended_for_buffers(device_index_, streams); }

  bool empty() const { return queued_.empty(); }
  void deliver() {
    if (!queued_.empty()) [[unlikely]]
      deliver_queued();
  }

 private:
  StreamEvent& queue(StreamEvent::Kind kind, Stream& stream);
  void deliver_queued();

  StreamEvents& events_;
  std::uint32_t device_index_;
  std::vector<StreamEvent> queued_, delivering_;
};

}  // namespace rnic::core
