// How many events of rdma_cm wait for an application: an octet for each on a stream socket. What it
// shares with us can be filled, kept unread and set to wait as it likes; only its own end is its.
// Sending never waits: what finds no room is sent when there is some.
//
// Not an eventfd: that is one open file for both, and a write to it waits once it is full, by a flag
// that the application can take away.
#pragma once

#include <cstdint>
#include <memory>

#include "control/descriptor.hpp"
#include "control/loop.hpp"

namespace rnic::control {

class EventCount {
 public:
  // Null: errno says why.
  static std::unique_ptr<EventCount> create(Loop& loop);
  ~EventCount();

  // To be passed once, and then let go of: the application's end.
  Descriptor take_reader() { return std::move(reader_); }
  void add(std::uint32_t count);
  // So many events are withdrawn. How many of them stand in the socket: those the application takes off itself.
  std::uint32_t withdraw(std::uint32_t count);

  EventCount(const EventCount&) = delete;
  EventCount& operator=(const EventCount&) = delete;

 private:
  explicit EventCount(Loop& loop) : loop_(loop) {}
  void send_waiting();

  Loop& loop_;
  Descriptor reader_, writer_;
  std::uint64_t waiting_ = 0;
  Loop::Watch watch_ = Loop::kNone;
  bool full_ = false;    // told when there is room again
  bool broken_ = false;  // nobody has the reading end any more
};

}  // namespace rnic::control
