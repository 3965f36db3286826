#include "control/credentials.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <vector>

#include "control/descriptor.hpp"
#include "rnic_trust.h"

namespace rnic::control {
namespace {

// What is behind `key`, to the end of its line.
std::string_view line_of(std::string_view text, std::string_view key) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (line.starts_with(key)) return line.substr(key.size());
    at = end + 1;
  }
  return {};
}

std::vector<std::uint64_t> numbers_in(std::string_view line, int base) {
  std::vector<std::uint64_t> numbers;
  const char* at = line.data();
  const char* const end = at + line.size();
  while (at != end) {
    if (*at == ' ' || *at == '\t') {
      ++at;
      continue;
    }
    std::uint64_t number = 0;
    const auto [rest, error] = std::from_chars(at, end, number, base);
    if (error != std::errc()) return {};
    numbers.push_back(number);
    at = rest;
  }
  return numbers;
}

std::string read_file(int directory, const char* name) {
  const Descriptor file(openat(directory, name, O_RDONLY | O_CLOEXEC));
  std::string text;
  char piece[4096];
  for (ssize_t got; file && (got = read(file.get(), piece, sizeof piece)) > 0;)
    text.append(piece, static_cast<std::size_t>(got));
  return text;
}

// A daemon that has laid down its capabilities may not look at the namespaces of a process that has them. Such a one is
// of our own user namespace, or of one that another user made, which its maps tell from ours: nobody maps all users,
// groups and projects alike into a namespace below. (What our own user made below ours the kernel lets us see.)
bool same_user_namespace(const Credentials& ours, const Credentials& theirs) {
  if (ours.user_namespace != 0 && theirs.user_namespace != 0) return ours.user_namespace == theirs.user_namespace;
  return !ours.id_maps.empty() && ours.id_maps == theirs.id_maps;
}

bool all_are(const std::array<std::uint32_t, 4>& ids, std::uint32_t id) {
  return std::all_of(ids.begin(), ids.end(), [&](std::uint32_t each) { return each == id; });
}

}  // namespace

std::optional<Credentials> parse_status(std::string_view text) {
  const auto uids = numbers_in(line_of(text, "Uid:"), 10);
  const auto gids = numbers_in(line_of(text, "Gid:"), 10);
  const auto permitted = numbers_in(line_of(text, "CapPrm:"), 16);
  const auto pids = numbers_in(line_of(text, "NSpid:"), 10);
  if (uids.size() != 4 || gids.size() != 4 || permitted.size() != 1 || pids.empty()) return std::nullopt;
  Credentials credentials;
  for (std::size_t i = 0; i < 4; ++i) {
    credentials.uids[i] = static_cast<std::uint32_t>(uids[i]);
    credentials.gids[i] = static_cast<std::uint32_t>(gids[i]);
  }
  credentials.permitted = permitted.front();
  credentials.pid_namespaces = static_cast<unsigned>(pids.size());
  return credentials;
}

std::optional<Credentials> credentials_of(int thread_directory) {
  auto credentials = parse_status(read_file(thread_directory, "status"));
  if (!credentials) return credentials;
  struct stat found {};
  if (fstatat(thread_directory, "ns/user", &found, 0) == 0) credentials->user_namespace = found.st_ino;
  for (const char* name : {"uid_map", "gid_map", "projid_map"})
    credentials->id_maps += read_file(thread_directory, name) + ";";
  return credentials;
}

std::optional<Credentials> own_credentials() {
  const Descriptor directory(open("/proc/thread-self", O_PATH | O_DIRECTORY | O_CLOEXEC));
  return directory ? credentials_of(directory.get()) : std::nullopt;
}

bool reaches_no_more(const Credentials& ours, const Credentials& theirs) {
  return rnic_same_user(rnic_libc_plain(), ours.uids[0], theirs.uids[0]) && all_are(ours.uids, ours.uids[0]) &&
         all_are(theirs.uids, ours.uids[0]) && all_are(ours.gids, ours.gids[0]) && all_are(theirs.gids, ours.gids[0]) &&
         (ours.permitted & ~theirs.permitted) == 0 && ours.pid_namespaces == theirs.pid_namespaces &&
         same_user_namespace(ours, theirs);
}

}  // namespace rnic::control
