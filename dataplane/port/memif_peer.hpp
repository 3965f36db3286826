// Whose process may be at the other side of a memif: its driver trusts what that writes into the rings.
//
// Ours and root's (abi/rnic_trust.h; for root, root's alone), and the one user that `peer=` names. A server's sockets
// are for its own user to connect to, and for that one; a client asks who answers before it listens to him.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <optional>
#include <string>

namespace rnic::port {

class MemifPeer {
 public:
  // `user`: a name or a number; empty: no other. Nothing: the sentence says why.
  static std::optional<MemifPeer> find(const std::string& user, std::string& error);

  bool may_be(uid_t user) const;
  // Is it one of these whom that socket is connected to?
  bool is_at(int socket) const;
  // Lets the other user connect to a socket that is for its owner only.
  bool admit_to(const std::string& socket_path, std::string& error) const;

 private:
  std::optional<uid_t> other_;
};

// While there is one, what this process, any thread of it, makes in a file system is for its own user only (umask).
class ForOwnerOnly {
 public:
  ForOwnerOnly() : before_(umask(0177)) {}
  ~ForOwnerOnly() { umask(before_); }
  ForOwnerOnly(const ForOwnerOnly&) = delete;
  ForOwnerOnly& operator=(const ForOwnerOnly&) = delete;

 private:
  mode_t before_;
};

}  // namespace rnic::port
