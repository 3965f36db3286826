// Events for an application on a SEQPACKET socket: a context's async events, a completion
// channel's. Sending never waits. Such a socket holds only a few hundred messages; what does not
// fit waits here, in order, until the application has read (architecture.md s2).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>

#include "control/descriptor.hpp"
#include "control/loop.hpp"

namespace rnic::control {

class EventSocket {
 public:
  // Whom events are about: a CQ, a QP, an SRQ, a device.
  struct Subject {
    std::uint32_t sent = 0;
    std::uint32_t waiting = 0;
    bool gone = false;
  };

  // Null: errno says why.
  static std::unique_ptr<EventSocket> create(Loop& loop);
  ~EventSocket();

  // To be passed once, and then let go of: the application's end.
  Descriptor take_reader() { return std::move(reader_); }
  int writer() const { return writer_.get(); }
  std::uint64_t cookie() const { return cookie_; }  // SO_COOKIE of the reading end

  // A struct ib_uverbs_comp_event_desc. One that still waits is not repeated: the application has
  // not seen it, and will look at its CQ when it does.
  void send_completion(Subject& cq, std::uint64_t user_pointer);
  // A struct ib_uverbs_async_event_desc.
  void send_async(Subject& subject, std::uint64_t element, std::uint32_t type);
  // Before the subject goes: those that wait are dropped.
  void forget(Subject& subject);
  // The same for all that are marked as gone, in one go.
  void forget_gone();
  // From one to the other nothing is written, and everything waits: what is in the socket is being
  // sorted. Each hold is released once.
  void hold();
  void release();
  std::size_t waiting() const { return waiting_.size(); }

  EventSocket(const EventSocket&) = delete;
  EventSocket& operator=(const EventSocket&) = delete;

 private:
  struct Message {
    Subject* subject = nullptr;
    std::array<std::uint64_t, 2> words{};
    std::size_t size = 0;
  };
  enum class Sent : std::uint8_t { yes, full, broken };

  explicit EventSocket(Loop& loop) : loop_(loop) {}
  void submit(const Message& message);
  Sent try_send(const Message& message);
  void send_waiting();
  void watch();
  void unwatch();
  void end();

  // An application that never reads keeps us from remembering more than this.
  static constexpr std::size_t kWaitingMax = 65536;

  Loop& loop_;
  Descriptor reader_, writer_;
  std::uint64_t cookie_ = 0;
  std::deque<Message> waiting_;
  // From the beginning: when there is something to wait for, the kernel may have no watches left.
  Loop::Watch watch_ = Loop::kNone;
  bool watching_ = false;  // for room
  unsigned holds_ = 0;
  bool broken_ = false;
};

// A hold, as long as it lives.
class EventHold {
 public:
  explicit EventHold(std::shared_ptr<EventSocket> socket) : socket_(std::move(socket)) { socket_->hold(); }
  ~EventHold() { socket_->release(); }
  EventHold(const EventHold&) = delete;
  EventHold& operator=(const EventHold&) = delete;

 private:
  std::shared_ptr<EventSocket> socket_;
};

}  // namespace rnic::control
