// The application's side of a queue pair: queues as plain containers.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "rdmap/host.hpp"

namespace rnic::test {

// `Host`: rdmap::Host, or one that asks for more.
template <typename Host>
class AppOf : public Host {
 public:
  std::deque<rdmap::WorkRequest> sends;
  std::deque<rdmap::ReceiveRequest> receives;
  std::deque<rdmap::ReceiveRequest>* shared_receives = nullptr;  // in place of its own
  std::uint64_t sends_taken = 0, receives_taken = 0;

  std::vector<rdmap::Completion> completions;  // all there ever were, in order
  std::size_t room = SIZE_MAX;                 // of the completion queue
  bool overflowed = false;                     // for good, as the real one (V-AE-37)
  std::vector<rdmap::Event> events;

  // After it was noted.
  std::function<void(const rdmap::Completion&)> on_completion;
  std::function<void(rdmap::Event)> on_event;

  bool take_send(rdmap::WorkRequest& out) override {
    if (sends.empty()) return false;
    out = sends.front();
    sends.pop_front();
    ++sends_taken;
    return true;
  }
  bool take_receive(rdmap::ReceiveRequest& out) override {
    auto& queue = shared_receives != nullptr ? *shared_receives : receives;
    if (queue.empty()) return false;
    out = queue.front();
    queue.pop_front();
    ++receives_taken;
    return true;
  }
  bool complete(const rdmap::Completion& completion) override {
    overflowed |= completions.size() >= room;
    if (overflowed) return false;
    completions.push_back(completion);
    if (on_completion) on_completion(completion);
    return true;
  }
  bool has_room_for_receive() const override { return !overflowed && completions.size() < room; }
  void raise(rdmap::Event event) override {
    events.push_back(event);
    if (on_event) on_event(event);
  }

  std::vector<rdmap::Completion> of_sends() const { return of(true); }
  std::vector<rdmap::Completion> of_receives() const { return of(false); }

 private:
  std::vector<rdmap::Completion> of(bool send_queue) const {
    std::vector<rdmap::Completion> out;
    for (const auto& c : completions)
      if (c.of_send_queue == send_queue) out.push_back(c);
    return out;
  }
};

}  // namespace rnic::test
