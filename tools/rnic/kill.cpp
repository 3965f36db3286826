// rnic kill: resets a connection, whichever application has it.
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>

#include "client.hpp"
#include "commands.hpp"
#include "control/addresses.hpp"

namespace rnic::tool {
namespace {

// As `rnic show conn` writes it: 10.0.0.1:7471, [2001:db8::1]:7471.
std::optional<rnic_address> endpoint_of(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string host = text.substr(0, colon);
  const bool in_brackets = host.starts_with('[') && host.ends_with(']');
  if (in_brackets) host = host.substr(1, host.size() - 2);
  const auto address = wire::parse_ip(host);
  std::uint16_t port = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + colon + 1, end, port);
  if (!address || address->is_v4() == in_brackets || read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return control::to_abi(*address, port);
}

}  // namespace

int kill(const KillOptions& options) {
  const auto local = endpoint_of(options.local), remote = endpoint_of(options.remote);
  if (!local || !remote) {
    std::fprintf(stderr, "rnic kill: \"%s\" is not ADDRESS:PORT, as rnic show conn has it\n",
                 (local ? options.remote : options.local).c_str());
    return 2;
  }
  Client daemon;
  if (!daemon.connect(options.name)) {
    std::fprintf(stderr, "rnic kill: %s\n", daemon.why().c_str());
    return 1;
  }
  const rnic_kill request{*local, *remote};
  const int status = daemon.ask(RNIC_KILL, &request, sizeof request, nullptr, 0);
  if (status == ENOENT)
    std::fprintf(stderr, "rnic kill: there is no connection from %s to %s\n", options.local.c_str(),
                 options.remote.c_str());
  else if (status != 0)
    std::fprintf(stderr, "rnic kill: the daemon does not answer: %s\n", std::strerror(status < 0 ? -status : status));
  return status == 0 ? 0 : 1;
}

}  // namespace rnic::tool
