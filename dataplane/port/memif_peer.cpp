#include "port/memif_peer.hpp"

#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/xattr.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>

#include "rnic_trust.h"

namespace rnic::port {

std::optional<MemifPeer> MemifPeer::find(const std::string& user, std::string& error) {
  MemifPeer peer;
  if (user.empty()) return peer;
  uid_t number = 0;
  const char* const end = user.data() + user.size();
  if (const auto [at, failed] = std::from_chars(user.data(), end, number); failed == std::errc{} && at == end) {
    peer.other_ = number;
  } else {
    std::array<char, 16384> room;
    passwd entry{};
    passwd* found = nullptr;
    getpwnam_r(user.c_str(), &entry, room.data(), room.size(), &found);
    if (found == nullptr) {
      error = "peer=" + user + ": there is no such user";
      return std::nullopt;
    }
    peer.other_ = found->pw_uid;
  }
  if (!rnic_same_user(rnic_libc_plain(), *peer.other_, *peer.other_)) {
    error = "peer=" + user + " stands for any user that this user namespace has no number for";
    return std::nullopt;
  }
  return peer;
}

bool MemifPeer::may_be(uid_t user) const {
  return rnic_daemon_user(rnic_libc_plain(), user) != 0 || (other_ && *other_ == user);
}

bool MemifPeer::is_at(int socket) const {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 && may_be(credentials.uid);
}

bool MemifPeer::admit_to(const std::string& socket_path, std::string& error) const {
  if (!other_) return true;
  constexpr unsigned short kBoth = ACL_READ | ACL_WRITE;
  constexpr auto kNobody = static_cast<std::uint32_t>(ACL_UNDEFINED_ID);
  struct {
    posix_acl_xattr_header header{POSIX_ACL_XATTR_VERSION};
    posix_acl_xattr_entry owner{ACL_USER_OBJ, kBoth, kNobody};
    posix_acl_xattr_entry other{ACL_USER, kBoth, 0};
    posix_acl_xattr_entry group{ACL_GROUP_OBJ, 0, kNobody};
    posix_acl_xattr_entry mask{ACL_MASK, kBoth, kNobody};
    posix_acl_xattr_entry everybody{ACL_OTHER, 0, kNobody};
  } list;
  list.other.e_id = *other_;
  if (setxattr(socket_path.c_str(), "system.posix_acl_access", &list, sizeof list, 0) == 0) return true;
  error = "the user of peer= cannot be let in at " + socket_path + ": " + std::strerror(errno);
  return false;
}

}  // namespace rnic::port
