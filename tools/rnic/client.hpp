// One conversation with a daemon's control socket (abi/rnic_control.h), as an administrator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rnic_control.h"

namespace rnic::tool {

class Client {
 public:
  Client() = default;
  ~Client();
  // False: no daemon of this name answers; why() says so.
  bool connect(const std::string& name);
  // Sends a request of `size` octets that begins with a rnic_msg; the answer's octets after the
  // header go to `reply` (at most reply_size); a descriptor that came along to *descriptor.
  // Returns the daemon's status, or a negative errno of the conversation.
  int ask(std::uint32_t type, const void* body, std::size_t size, void* reply, std::size_t reply_size,
          int* descriptor = nullptr);
  // The same, with all descriptors that came along, in order.
  int ask(std::uint32_t type, const void* body, std::size_t size, void* reply, std::size_t reply_size,
          std::vector<int>& descriptors);
  // Readable when the daemon has ended; it sends nothing unasked.
  int descriptor() const { return fd_; }
  const std::string& why() const { return why_; }
  std::uint32_t daemon_pid() const { return daemon_pid_; }
  const rnic_hello_reply& hello() const { return hello_; }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

 private:
  int fd_ = -1;
  std::uint32_t next_id_ = 1;
  std::uint32_t daemon_pid_ = 0;
  rnic_hello_reply hello_{};
  std::string why_;
};

}  // namespace rnic::tool
