#include "control/report.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "control/ready.hpp"
#include "port/netdev.hpp"

namespace rnic::control {
namespace {

using Kind = port::PortSpec::Kind;
using ip::AddressState;

std::string line_of(const DeviceView& device) {
  std::string addresses;
  for (const ip::OwnAddress& own : device.own)
    if (own.state != AddressState::none) addresses += (addresses.empty() ? "" : ", ") + describe(own);
  return device.name + ": " + port::to_string(device.port) +
         (device.vlan ? " VLAN " + std::to_string(*device.vlan) : "") + ", " +
         (addresses.empty() ? "no address" : addresses) + ", MTU " + (device.mtu_agreed ? "" : "up to ") +
         std::to_string(device.mtu_bytes) + (device.link_up ? ", link up" : ", link down");
}

void warn_of_addresses(const DeviceView& device, std::vector<std::string>& warnings) {
  bool any = false;
  for (const ip::OwnAddress& own : device.own) {
    if (own.state == AddressState::none) continue;
    any |= own.usable();
    const std::string text = wire::to_string(own.address);
    const std::string who = wire::to_string(own.conflict_with);
    if (own.state == AddressState::duplicate)
      warnings.push_back(device.name + ": " + text + " is not used: " + who +
                         " has it already; give the device an address that nobody has");
    else if (own.conflicts != 0 && own.origin == ip::AddressOrigin::configured)
      warnings.push_back(device.name + ": " + text + " is claimed by " + who + ", too");
  }
  // While a link is down nobody can be asked.
  if (!any && device.link_up)
    warnings.push_back(device.name + " has no address that it may use; programs cannot connect by it");
}

std::string why_no_server(const DeviceView& device) {
  const std::string& socket = device.port.target;
  switch (device.socket) {
    case DeviceView::Socket::none:
      break;
    case DeviceView::Socket::refused:
      return "this user may not connect to " + socket + "; its server has to name it, as in memif:" + socket +
             ",role=server,peer=USER";
    case DeviceView::Socket::there:
      return "no link by " + socket + " yet; its server has another client, is of another user, or has gone";
  }
  return "nobody serves " + socket + " yet; the link comes up when a daemon with role=server does";
}

void warn_of_link(const DeviceView& device, std::vector<std::string>& warnings) {
  // Its two ends are in this daemon from the start: no other can come.
  if (device.port.kind == Kind::pair && !device.has_mate)
    warnings.push_back(device.name + ": " + port::to_string(device.port) +
                       " has one end; a second device of this daemon must name the same pair");
  if (device.link_up) return;
  switch (device.port.kind) {
    case Kind::memif:
      warnings.push_back(
          device.name + ": " +
          (device.port.role == port::PortSpec::Role::server
               ? device.port.target + " has no client yet; the link comes up when a daemon with role=client does"
               : why_no_server(device)));
      break;
    case Kind::pair:
      break;
    case Kind::af_packet:
    case Kind::af_xdp:
    case Kind::tap:
      warnings.push_back(device.name + ": " + device.port.target +
                         (device.interface_up ? " has no carrier: is its other end connected and up?"
                                              : " is down; first: ip link set " + device.port.target + " up"));
      break;
    default:
      warnings.push_back(device.name + ": the link of " + port::to_string(device.port) + " is down");
  }
}

// AF_XDP's program hands over all that comes. Who is logged in by that interface is cut off.
void warn_of_kernel(const DeviceView& device, std::vector<std::string>& warnings) {
  if (device.kernel_address.empty()) return;
  warnings.push_back(device.name + ": what arrives at " + device.port.target +
                     " is rnic's alone now, and the kernel, which has " + device.kernel_address +
                     " there, hears nothing of it; where both are to be reached: af_packet:" + device.port.target);
}

DeviceView::Socket socket_at(const std::string& path) {
  if (faccessat(AT_FDCWD, path.c_str(), F_OK, AT_EACCESS) != 0) return DeviceView::Socket::none;
  const bool may = faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0;
  return may ? DeviceView::Socket::there : DeviceView::Socket::refused;
}

}  // namespace

std::uint32_t mtu_of(const port::Port& port) { return port.link_up() ? port.link_mtu() : port.facts().mtu_bytes; }

Report report_of(const std::vector<DeviceView>& devices, const std::vector<int>& cores) {
  Report report;
  for (const DeviceView& device : devices) {
    report.devices.push_back(line_of(device));
    warn_of_link(device, report.warnings);
    warn_of_addresses(device, report.warnings);
    warn_of_kernel(device, report.warnings);
  }
  for (const int core : std::set<int>(cores.begin(), cores.end()))
    if (const auto workers = std::count(cores.begin(), cores.end(), core); workers > 1)
      report.warnings.push_back("core " + std::to_string(core) + " has " + std::to_string(workers) +
                                " workers (cores), of which one waits for the other");
  return report;
}

std::vector<DeviceView> views_of(const Machine& machine) {
  std::vector<DeviceView> views;
  for (const auto& served : machine.devices) {
    DeviceView view;
    view.name = served->name;
    if (const auto spec = port::parse_spec(served->port_spec)) view.port = *spec;
    view.vlan = served->options().vlan;
    view.link_up = served->port_is_up();
    view.mtu_agreed = view.link_up || view.port.kind != Kind::memif;
    view.mtu_bytes = mtu_of(served->first().device->port());
    if (const std::string& netdev = served->port_facts().netdev; !netdev.empty()) {
      const auto found = port::find_netdev(netdev);
      view.interface_up = found && found->up;
    }
    view.has_mate = served->mate >= 0;
    if (view.port.kind == Kind::memif) view.socket = socket_at(view.port.target);
    view.own = served->own;
    if (view.port.kind == Kind::af_xdp)
      view.kernel_address = kernel_address_on(port::netdev_and_uppers(view.port.target), port::kernel_addresses());
    views.push_back(std::move(view));
  }
  return views;
}

std::string text_of(const Report& report) {
  std::string text;
  for (const std::string& line : report.devices) text += line + "\n";
  for (const std::string& line : report.warnings) text += kWarning + line + "\n";
  return text;
}

}  // namespace rnic::control
