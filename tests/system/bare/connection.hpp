// A bare client of the daemon's control socket (abi/rnic_control.h): says what it is told to, right or wrong, and
// hands over what comes back. No part of the product: what the product's clients would never say can be said here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "control/descriptor.hpp"
#include "rnic_control.h"

namespace rnic::bare {

using control::Descriptor;

// Says what did not work, with errno in words where it is not 0, and ends this program with 1.
[[noreturn]] void fail(const std::string& what, int error = 0);

// The control socket of the daemon of this name, as abi/rnic_run.h finds it.
std::string socket_of(const std::string& daemon);

// What HELLO says of the process that the connection is of: drawn at the first use, and anew by a child of fork.
using ProcessToken = std::array<std::uint8_t, RNIC_PROCESS_TOKEN>;
const ProcessToken& process_token();

struct Answer {
  static constexpr int kEnded = -1;   // the connection has ended
  static constexpr int kSilent = -2;  // nothing came within the time

  int status = kEnded;  // else that of the reply: 0 or an errno
  rnic_msg header{};
  std::vector<std::byte> body;
  std::vector<Descriptor> fds;  // in the order of the protocol; those taken are -1

  bool good() const { return status == 0; }
  std::string words() const;  // what the status is
  template <typename T>
  T as(const char* what = "a reply") const {
    if (!good() || body.size() < sizeof(T)) fail(std::string(what) + ": " + words());
    T value;
    std::memcpy(&value, body.data(), sizeof value);
    return value;
  }
  Descriptor take(std::size_t index) { return index < fds.size() ? std::move(fds[index]) : Descriptor(); }
};

class Connection {
 public:
  Connection() = default;
  // Not connected, and error() says why, where nobody answers or the daemon turns us away.
  explicit Connection(const std::string& path);
  // One that is made already, not introduced.
  explicit Connection(Descriptor socket) : socket_(std::move(socket)) {}
  // Connected and introduced; the program ends if that fails.
  Connection(const std::string& path, rnic_client_kind kind, const std::string& device = {});

  bool connected() const { return static_cast<bool>(socket_); }
  int error() const { return error_; }
  int descriptor() const { return socket_.get(); }
  void close() { socket_.reset(); }

  Answer hello(std::uint32_t kind, const std::string& device = {}, std::uint32_t version = RNIC_ABI_VERSION);

  // One request and its reply. Waits as long as that takes unless a limit is given.
  template <typename T>
  Answer ask(std::uint32_t type, const T& body, std::span<const int> fds = {}) {
    return exchange(type, {reinterpret_cast<const std::byte*>(&body), sizeof body}, fds);
  }
  Answer ask(std::uint32_t type) { return exchange(type, {}, {}); }
  Answer by_handle(std::uint32_t type, std::uint32_t handle) { return ask(type, rnic_handle{handle, 0}); }

  // In two steps: several requests may be under way, whose replies come in order.
  template <typename T>
  bool say(std::uint32_t type, const T& body, std::span<const int> fds = {}) {
    return say_octets(type, {reinterpret_cast<const std::byte*>(&body), sizeof body}, fds);
  }
  bool say_octets(std::uint32_t type, std::span<const std::byte> body, std::span<const int> fds = {});
  bool say_raw(std::span<const std::byte> message, std::span<const int> fds = {});  // the header is the caller's
  Answer hear(int limit_ms = -1);

 private:
  Answer exchange(std::uint32_t type, std::span<const std::byte> body, std::span<const int> fds);

  Descriptor socket_;
  int error_ = 0;
  std::uint32_t next_id_ = 1;
};

}  // namespace rnic::bare
