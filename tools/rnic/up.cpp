// rnic up: starts a daemon and waits until it is ready, or says why not.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "client.hpp"
#include "commands.hpp"
#include "control/ready.hpp"
#include "control/run_directory.hpp"
#include "places.hpp"

namespace rnic::tool {
namespace {

// What is up to stdout, warnings to stderr.
void say(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const bool warning = line.starts_with(control::kWarning);
    std::fprintf(warning ? stderr : stdout, warning ? "rnic up: %s\n" : "%s\n", line.c_str());
  }
}

// What the daemon says before it has its log it says on the terminal alone.
std::uintmax_t log_size(const std::string& directory) {
  std::error_code none;
  const auto size = std::filesystem::file_size(control::log_file(directory), none);
  return none ? 0 : size;
}

// What is wrong with the file its daemon says.
std::string name_in(const std::string& config) {
  constexpr const char* kDefault = "default";
  if (config.empty()) return kDefault;
  const toml::parse_result file = toml::parse_file(config);
  return file ? file["name"].value_or(std::string(kDefault)) : kDefault;
}

}  // namespace

int up(UpOptions options) {
  if (options.name.empty()) options.name = name_in(options.config);
  if (!control::good_name(options.name)) {
    std::fprintf(stderr, "rnic up: \"%s\" is not a name: letters, digits, '-', '_' and '.' only\n",
                 options.name.c_str());
    return 2;
  }
  const std::string program = daemon_program();
  if (program.empty()) {
    std::fprintf(stderr, "rnic up: the daemon rnicd is neither beside this program nor installed\n");
    return 1;
  }
  {
    Client running;
    if (running.connect(options.name)) {
      std::fprintf(stderr, "rnic up: a daemon \"%s\" is running already (pid %u); end it with: rnic down --name %s\n",
                   options.name.c_str(), running.daemon_pid(), options.name.c_str());
      return 1;
    }
  }
  const std::string directory = control::new_run_directory(options.name);

  std::vector<std::string> words{program, "--name", options.name, "--run-dir", directory};
  int ready[2] = {-1, -1};
  if (options.foreground) {
    words.emplace_back("--foreground");
  } else {
    if (pipe2(ready, O_CLOEXEC) != 0) {
      std::perror("rnic up: pipe");
      return 1;
    }
    words.emplace_back("--ready-fd");
    words.push_back(std::to_string(ready[1]));
  }
  words.insert(words.end(), options.for_daemon.begin(), options.for_daemon.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  if (options.foreground) {
    execv(program.c_str(), arguments.data());
    std::fprintf(stderr, "rnic up: cannot start %s: %s\n", program.c_str(), std::strerror(errno));
    return 1;
  }

  const auto log_before = log_size(directory);
  const pid_t child = fork();
  if (child < 0) {
    std::perror("rnic up: fork");
    return 1;
  }
  if (child == 0) {
    setsid();
    close(ready[0]);
    fcntl(ready[1], F_SETFD, 0);
    const int null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    execv(program.c_str(), arguments.data());
    std::fprintf(stderr, "rnic up: cannot start %s: %s\n", program.c_str(), std::strerror(errno));
    _exit(127);
  }
  close(ready[1]);
  // The daemon writes what is up, and an octet of 0 when it serves; its end, or its silence to the end,
  // means that it has said on stderr why not.
  std::string text;
  char piece[4096];
  for (;;) {
    const ssize_t got = read(ready[0], piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(piece, static_cast<std::size_t>(got));
  }
  close(ready[0]);
  if (text.ends_with('\0')) {
    text.pop_back();
    say(text);
    return 0;
  }
  int status = 0;
  waitpid(child, &status, 0);
  const bool logged = log_size(directory) > log_before;
  std::fprintf(stderr, "rnic up: the daemon did not start%s%s\n", logged ? "; its log is " : "",
               logged ? control::log_file(directory).c_str() : "");
  return WIFEXITED(status) && WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : 1;
}

}  // namespace rnic::tool
