#include "port/capability.hpp"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <vector>

namespace rnic::port {
namespace {

using Kind = PortSpec::Kind;

// Frames pass by CAP_NET_RAW. CAP_NET_ADMIN lets more of them wait in a packet socket than the system's limit, switches
// off merging (GRO, LRO), whose frames fit no buffer of af_xdp's, and makes interfaces. CAP_BPF is for XDP's programs.
std::vector<Capability> wanted(Kind kind) {
  switch (kind) {
    case Kind::af_packet:
      return {Capability::net_raw, Capability::net_admin};
    case Kind::af_xdp:
      return {Capability::net_raw, Capability::net_admin, Capability::bpf};
    case Kind::tap:
      return {Capability::net_admin};
    default:
      return {};
  }
}

const char* name(Capability capability) {
  switch (capability) {
    case Capability::net_admin:
      return "CAP_NET_ADMIN";
    case Capability::net_raw:
      return "CAP_NET_RAW";
    case Capability::ipc_lock:
      return "CAP_IPC_LOCK";
    case Capability::sys_admin:
      return "CAP_SYS_ADMIN";
    case Capability::sys_nice:
      return "CAP_SYS_NICE";
    case Capability::bpf:
      return "CAP_BPF";
  }
  return "a capability";
}

// As a sentence has it.
std::string list(const std::vector<Capability>& capabilities) {
  std::string text;
  for (std::size_t i = 0; i < capabilities.size(); ++i)
    text += std::string(i == 0 ? "" : i + 1 == capabilities.size() ? " and " : ", ") + name(capabilities[i]);
  return text;
}

}  // namespace

bool has(Capability capability) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  const unsigned bit = static_cast<unsigned>(capability);
  return (data[bit / 32].effective >> (bit % 32) & 1) != 0;
}

std::string needs(Kind kind) { return list(wanted(kind)); }

std::string lacks(Kind kind) {
  std::vector<Capability> missing = wanted(kind);
  std::erase_if(missing,
                [](Capability each) { return has(each) || (each == Capability::bpf && has(Capability::sys_admin)); });
  return list(missing);
}

}  // namespace rnic::port
