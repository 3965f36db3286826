// Work of a queue pair of type UD as values: a work request is a Send with the address that its datagram goes to.
// Shared memory is turned into these, with distrust, by shm/.
#pragma once

#include <cstdint>

#include "base/ids.hpp"
#include "rdmap/host.hpp"
#include "rdmap/work.hpp"
#include "wire/address.hpp"

namespace rnic::ud {

struct Address {
  wire::IpAddress to;
  QpNumber number;               // 0xffffff: all of a group
  std::uint32_t q_key = 0;       // with kOwnKey: the sender's own
  std::uint32_t flow_label = 0;  // of IPv6
  std::uint8_t gid_index = 0;    // which of our addresses it is from
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;  // 0: the device's

  static constexpr std::uint32_t kOwnKey = 0x80000000;
  constexpr bool operator==(const Address&) const = default;
};

struct WorkRequest : rdmap::WorkRequest {
  bool has_immediate = false;
  Address address;
};

// What such a queue pair asks of, and tells, the application's side. All calls on its worker.
class Host {
 public:
  virtual bool take_send(WorkRequest& out) = 0;
  virtual bool take_receive(rdmap::ReceiveRequest& out) = 0;
  // The receive taken last is not used: it is the next again. Nobody has taken one since.
  virtual void give_back_receive() = 0;
  virtual bool complete(const rdmap::Completion& completion) = 0;
  virtual void raise(rdmap::Event event) = 0;

 protected:
  ~Host() = default;
};

}  // namespace rnic::ud
