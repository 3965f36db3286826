// Messages of abi/rnic_control.h on a SEQPACKET socket, with the descriptors that travel along.
// What comes in is distrusted; a descriptor that nobody takes is closed.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "base/bytes.hpp"
#include "control/closer.hpp"
#include "control/descriptor.hpp"
#include "rnic_control.h"

namespace rnic::control {

struct Request {
  rnic_msg header{};
  alignas(8) std::byte octets[RNIC_MSG_MAX];
  std::size_t size = 0;  // of the body
  std::vector<Descriptor> descriptors;

  Bytes body() const { return {octets, size}; }
  // Nothing when the body is too short. Octets behind it, of a later version, are not looked at.
  template <typename T>
  std::optional<T> as() const {
    if (size < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, octets, sizeof value);
    return value;
  }
  Descriptor take_descriptor() {
    if (descriptors.empty()) return {};
    Descriptor first = std::move(descriptors.front());
    descriptors.erase(descriptors.begin());
    return first;
  }
};

enum class Received : std::uint8_t {
  message,
  nothing,    // none waits
  ended,      // the peer closed, or the socket is broken
  malformed,  // too long, too short, or its length is not what it says
  too_many,   // more descriptors than can be taken
  later,      // it brings descriptors, and too many of its process are being closed
};
// Of a descriptor that comes, the last reference is never let go of here, taken or not: whoever does may have to wait.
Received receive_request(int socket, Request& request, Closer& closer, pid_t sender);
// Ends a connection, and says whether something lies unread in it: that goes with its last descriptor, and may have
// some of its own.
bool end_with_unread(int socket);

struct Reply {
  int status = 0;
  bool later = false;  // none yet: the request is to be served again when a copy that waits for a page is over
  std::vector<std::byte> body;
  std::vector<int> descriptors;   // in the order of the protocol; borrowed
  std::vector<Descriptor> owned;  // closed once the reply is gone

  static Reply error(int status) {
    Reply reply;
    reply.status = status;
    return reply;
  }
  static Reply not_yet() {
    Reply reply;
    reply.later = true;
    return reply;
  }
  template <typename T>
  static Reply with(const T& value) {
    Reply reply;
    reply.append(&value, sizeof value);
    return reply;
  }
  void append(const void* octets, std::size_t size) {
    const auto* first = static_cast<const std::byte*>(octets);
    body.insert(body.end(), first, first + size);
  }
  void add(int fd) { descriptors.push_back(fd); }
  void add(Descriptor fd) {
    descriptors.push_back(fd.get());
    owned.push_back(std::move(fd));
  }
};

// Never waits: whoever does not read its replies is not served. False: the peer is gone or stuck.
bool send_reply(int socket, const rnic_msg& request, const Reply& reply);

}  // namespace rnic::control
