#include "system/hostile/victim.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace rnic::hostile {

void Victim::Line::tell(std::uint64_t word) const {
  if (write(out, &word, sizeof word) != sizeof word) bare::fail("between attacker and victim", errno);
}
bool Victim::Line::hear(std::uint64_t& word) const { return read(in, &word, sizeof word) == sizeof word; }

Victim::Victim(const std::function<void(Line)>& life) {
  int to[2], from[2];
  if (pipe(to) != 0 || pipe(from) != 0) bare::fail("pipe", errno);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) bare::fail("fork", errno);
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    close(to[1]);
    close(from[0]);
    life({to[0], from[1]});
    _exit(0);
  }
  close(to[0]);
  close(from[1]);
  line_ = {from[0], to[1]};
}

void Victim::kill() const { ::kill(pid_, SIGKILL); }

Victim::~Victim() {
  close(line_.in);
  close(line_.out);
  waitpid(pid_, nullptr, 0);
}

std::uint64_t Victim::hear() const {
  std::uint64_t word = 0;
  if (!line_.hear(word)) bare::fail("the victim is gone");
  return word;
}

}  // namespace rnic::hostile
