// What kind of file an application sent, found out without a question to the file's own file system:
// that may be a server of the application's (FUSE), which answers when it likes.
#pragma once

#include <sys/types.h>

namespace rnic::control {

// Memory: tmpfs's, a memfd's, hugetlbfs's. Its attributes may be asked for, and it may be mapped.
bool is_memory_file(int fd);

// procfs's `mem` of some process, open for reading and writing: what goes through it reaches that
// process's memory. `peer`: in whose mount namespace it may have been opened, among the first thousand mounts.
bool is_process_memory(int fd, pid_t peer);

}  // namespace rnic::control
