// One conversation with a daemon's control socket (abi/rnic_control.h), as an administrator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rnic_talk.h"

namespace rnic::tool {

class Client {
 public:
  Client() = default;
  ~Client();
  // False: no daemon of this name answers; why() says so.
  bool connect(const std::string& name);
  // Sends a request with a body of `size` octets. With a status of 0 the answer's octets after the
  // header go to `reply` (at most reply_size), and a descriptor that came along to *descriptor.
  // Returns the daemon's status, or a negative errno of the conversation.
  int ask(std::uint32_t type, const void* body, std::size_t size, void* reply, std::size_t reply_size,
          int* descriptor = nullptr);
  // The same, with all descriptors that came along, in order.
  int ask(std::uint32_t type, const void* body, std::size_t size, void* reply, std::size_t reply_size,
          std::vector<int>& descriptors);
  // Readable when the daemon has ended; it sends nothing unasked.
  int descriptor() const { return talk_.socket; }
  const std::string& why() const { return why_; }
  std::uint32_t daemon_pid() const { return daemon_pid_; }
  const rnic_hello_reply& hello() const { return hello_; }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

 private:
  static constexpr int kLimitMs = 10'000;  // for an answer

  rnic_talk talk_{rnic_libc_plain(), -1, 1, kLimitMs};
  std::uint32_t daemon_pid_ = 0;
  rnic_hello_reply hello_{};
  std::string why_;
};

}  // namespace rnic::tool
