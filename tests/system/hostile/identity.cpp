// Who is reached, when the thread by whose number an application's memory is reached is gone: nobody.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "system/hostile/victim.hpp"

namespace rnic::hostile {
namespace {

constexpr std::size_t kBytes = 4096;
constexpr uid_t kStranger = 61001;

// A process of another user that has this number, and 0x5A where we have our region. 0 where none was to be had.
pid_t stranger_with(std::uint32_t number, std::byte* at) {
  for (int tries = 0; tries < 200; ++tries) {
    const bare::Descriptor last(open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC));
    const std::string before = std::to_string(number - 1);
    if (!last || write(last.get(), before.data(), before.size()) < 0) bare::fail("ns_last_pid", errno);
    int up[2];
    if (pipe(up) != 0) bare::fail("pipe", errno);
    const pid_t child = fork();
    if (child == 0) {
      if (setgid(kStranger) != 0 || setuid(kStranger) != 0) _exit(1);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::memset(at, 0x5A, kBytes);
      [[maybe_unused]] const ssize_t said = write(up[1], "", 1);
      pause();
      _exit(0);
    }
    char octet;
    close(up[1]);
    const bool there = read(up[0], &octet, 1) == 1;
    close(up[0]);
    if (there && static_cast<std::uint32_t>(child) == number) return child;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  return 0;
}

}  // namespace

// Of root only: another user's process is made, with a number of our choice.
int stale_thread(const Options& options) {
  if (geteuid() != 0) {
    say("SKIPPED: not root");
    return 77;
  }
  Pair pair(options.socket);
  // Memory that a child of fork does not share, but has at the same place.
  const bare::Region far = pair.app.region(pair.pd, bare::private_memory(kBytes), kBytes, bare::kAllAccess);
  // And memory of which the daemon has a mapping, so that what it reads comes here whoever has the number.
  bare::Descriptor file;
  std::byte* at = bare::shared_memory(kBytes, file);
  const bare::Region near = pair.app.region(pair.pd, at, kBytes, bare::kAllAccess, file.get());
  const std::uint32_t number = pair.app.end_helper();
  const pid_t stranger = stranger_with(number, far.at);
  if (stranger == 0) {
    say("SKIPPED: the number of the thread was not to be had");
    return 77;
  }
  attacking();
  const Seconds start = now();
  pair.app.post_read(pair.caller, near.sge(0, kBytes), far.sge(0, 1).address, far.stag);
  std::optional<rnic_cqe> entry;
  while (!(entry = pair.cq.poll()) && pair.app.status->dead == 0 && now() - start < options.seconds) usleep(1000);
  const bool read = near.at[0] == std::byte{0x5A};
  kill(stranger, SIGKILL);
  waitpid(stranger, nullptr, 0);
  say(std::string(read ? "read" : "did not read") + " the memory of another user's process; " +
      (entry ? "status " + std::to_string(entry->status) : "no completion"));
  return read ? 1 : 0;
}

// A program is replaced while a child of fork still holds all that the context is made of.
int exec_held(const Options& options) {
  const Victim program([&](Victim::Line line) {
    const Pair pair(options.socket);
    line.tell(0);
    if (fork() == 0) {
      const Seconds start = now();
      while (pair.app.status->dead == 0 && now() - start < options.seconds * 2) usleep(10'000);
      line.tell(pair.app.status->dead);
      _exit(0);
    }
    execlp("sleep", "sleep", "600", nullptr);
    bare::fail("exec", errno);
  });
  program.hear();
  attacking();
  const bool ended = program.hear() != 0;
  program.kill();
  say(ended ? "the context ended with the program" : "the context outlived an exec");
  return ended ? 0 : 1;
}

}  // namespace rnic::hostile
