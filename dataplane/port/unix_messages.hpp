// Messages with descriptors over sockets of AF_UNIX (unix(7)), and the sockets themselves. Nothing here waits.
#pragma once

#include <sys/types.h>
#include <sys/un.h>

#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"

namespace rnic::port {

// The caller has seen that the path fits.
sockaddr_un unix_address(const std::string& path);

// A message's octets, and its descriptors, all of them, which are the caller's. As recvmsg().
ssize_t receive_message(int socket, MutableBytes octets, std::vector<int>& descriptors);
// With copies of these descriptors. False: not all of it went.
bool send_message(int socket, Bytes octets, std::span<const int> descriptors);

void close_and_forget(int& descriptor);
// What a peer made or can send to may take as long to close as it likes (SO_LINGER), itself or by what lies in it: that
// is another thread's affair.
void let_go(int& descriptor);

// Makes way for a listener at `path`: removes what a dead process left there. False if a living one
// listens, or something that is no socket lies there; the sentence says which.
bool clear_stale_socket(const std::string& path, std::string& error);
// A listener for whole messages (SOCK_SEQPACKET) at `path`, where nothing is; -1: the sentence says why.
int listen_at(const std::string& path, std::string& error);

}  // namespace rnic::port
