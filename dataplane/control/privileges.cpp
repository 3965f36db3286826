#include "control/privileges.hpp"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace rnic::control {
namespace {

using Kind = port::PortSpec::Kind;

constexpr std::uint64_t bit(unsigned capability) { return std::uint64_t{1} << capability; }

// Rings and sockets of the kernel's, its interfaces and their programs; buffers that are locked memory (af_xdp).
constexpr std::uint64_t kNetwork = bit(CAP_NET_RAW) | bit(CAP_NET_ADMIN) | bit(CAP_IPC_LOCK);
// XDP's programs; libxdp, by which DPDK has them, looks at the one that is there by its number, which takes
// CAP_SYS_ADMIN.
constexpr std::uint64_t kPrograms = bit(CAP_BPF) | bit(CAP_PERFMON) | bit(CAP_SYS_ADMIN);
// Where memory lies (/proc/self/pagemap), a NIC's registers and ports.
constexpr std::uint64_t kNic = bit(CAP_SYS_ADMIN) | bit(CAP_SYS_RAWIO);

std::uint64_t needed_by(Kind kind) {
  switch (kind) {
    case Kind::loopback:
    case Kind::pair:
    case Kind::memif:
      return 0;
    case Kind::af_packet:
      return bit(CAP_NET_RAW) | bit(CAP_NET_ADMIN);
    case Kind::tap:
      return bit(CAP_NET_ADMIN);
    case Kind::af_xdp:
      return kNetwork | bit(CAP_BPF);
    case Kind::pci:
      return kNetwork | kNic;
    case Kind::vdev:
      return kNetwork | kPrograms | kNic;  // any of DPDK's drivers
  }
  return 0;
}

}  // namespace

std::uint64_t needed_capabilities(const std::vector<Kind>& kinds) {
  std::uint64_t needed = bit(CAP_SYS_NICE);  // the workers' SCHED_FIFO
  for (const Kind kind : kinds) needed |= needed_by(kind);
  return needed;
}

std::string lay_down_privileges(std::uint64_t needed) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  const auto wrong = [](const char* what) { return std::string(what) + ": " + std::strerror(errno); };
  if (syscall(SYS_capget, &header, data) != 0) return wrong("cannot ask for the capabilities of this process");
  const bool serves_root = geteuid() == 0;
  for (unsigned i = 0; i < _LINUX_CAPABILITY_U32S_3; ++i) {
    const auto these = static_cast<std::uint32_t>((needed & ~bit(CAP_SYS_PTRACE)) >> (32 * i));
    if (!serves_root) data[i].permitted &= these;
    data[i].effective = data[i].permitted & these;
    data[i].inheritable = 0;
  }
  // Where they are not the kernel's to keep, there are none.
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return wrong("cannot renounce new privileges");
  if (syscall(SYS_capset, &header, data) != 0) return wrong("cannot lay down capabilities");
  return {};
}

}  // namespace rnic::control
