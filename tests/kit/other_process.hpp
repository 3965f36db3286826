// Another process, which does nothing, and is there as long as this object.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rnic::test {

class OtherProcess {
 public:
  OtherProcess() : pid_(fork()) {
    if (pid_ == 0)
      for (;;) pause();
  }
  ~OtherProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

}  // namespace rnic::test
