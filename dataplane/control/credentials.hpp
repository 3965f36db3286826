// What the kernel lets a thread do to other processes' memory, as /proc tells it: whose it is, and its capabilities.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rnic::control {

struct Credentials {
  std::array<std::uint32_t, 4> uids{}, gids{};  // real, effective, saved, of the file system
  std::uint64_t permitted = 0;                  // capabilities
  unsigned pid_namespaces = 0;                  // how deep below ours: 1 is ours
  ino_t user_namespace = 0;                     // 0: we may not look
  std::string id_maps;                          // of the user namespace
};

// Of the text of a `status`; without what tells its user namespace. Nothing where a line is missing.
std::optional<Credentials> parse_status(std::string_view text);
// Of the thread whose directory in /proc this is.
std::optional<Credentials> credentials_of(int thread_directory);
std::optional<Credentials> own_credentials();  // of this thread

// Is there no process whose memory a thread with `ours` may reach by number, and one with `theirs` may not? The
// kernel's own rule (ptrace(2)): equal users and groups, and all that the target may do is permitted to who asks. So
// who has no more capabilities than the application, and is the same user in the same namespaces, reaches no more.
bool reaches_no_more(const Credentials& ours, const Credentials& theirs);

}  // namespace rnic::control
