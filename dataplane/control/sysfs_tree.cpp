#include "control/sysfs_tree.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "control/limits.hpp"

namespace rnic::control {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kBusDomain = 0xffff;

class Tree {
 public:
  explicit Tree(std::string root) : root_(std::move(root)) {}

  // Below class/.
  void file(const std::string& path, const std::string& text) { write("class/" + path, text + '\n'); }
  void nothing(const std::string& path) { write("class/" + path, ""); }
  // Below devices/.
  void device_file(const std::string& path, const std::string& text) { write("devices/" + path, text + '\n'); }
  // A member of a class, as the kernel has it: a directory of the bus device `base`, a link to it from class/, and one
  // back. What is written below class/ from then on goes there.
  void member(const std::string& path, const fs::path& base) {
    const fs::path place = fs::path(root_) / "devices" / base / path;
    std::error_code error;
    fs::create_directories(place, error);
    if (!error) fs::create_directories(fs::path(root_) / "class" / fs::path(path).parent_path(), error);
    if (!error) fs::create_symlink(fs::path("../../devices") / base / path, fs::path(root_) / "class" / path, error);
    if (!error) fs::create_symlink(fs::path("../../..") / base.filename(), place / "device", error);
    if (error && why_.empty()) why_ = "cannot write " + place.string() + ": " + error.message();
  }
  // Below devices/: a link to a place of the machine's own.
  void device_link(const std::string& path, const std::string& to) {
    const fs::path place = fs::path(root_) / "devices" / path;
    std::error_code error;
    fs::create_directories(place.parent_path(), error);
    if (!error) fs::create_symlink(to, place, error);
    if (error && why_.empty()) why_ = "cannot write " + place.string() + ": " + error.message();
  }
  const std::string& why() const { return why_; }

 private:
  void write(const std::string& path, const std::string& text) {
    const fs::path whole = root_ + "/" + path;
    std::error_code error;
    fs::create_directories(whole.parent_path(), error);
    // A program that reads meanwhile sees the old text or the new, and nothing in between.
    const fs::path fresh = whole.string() + ".new";
    std::ofstream out(fresh);
    out << text;
    if (out.flush()) fs::rename(fresh, whole, error);
    if ((!out || error) && why_.empty()) why_ = "cannot write " + whole.string() + ": " + std::strerror(errno);
  }

  std::string root_;
  std::string why_;
};

// Eight groups of four digits, as the kernel prints a GID.
std::string gid_text(const wire::IpAddress& address) {
  std::string text;
  const auto& octets = address.octets();
  for (std::size_t i = 0; i < octets.size(); i += 2) {
    char group[8];
    std::snprintf(group, sizeof group, "%s%02x%02x", i == 0 ? "" : ":", octets[i], octets[i + 1]);
    text += group;
  }
  return text;
}

std::string guid_text(std::uint64_t network_order) {
  std::uint8_t o[8];
  std::memcpy(o, &network_order, sizeof o);
  char text[24];
  std::snprintf(text, sizeof text, "%02x%02x:%02x%02x:%02x%02x:%02x%02x", o[0], o[1], o[2], o[3], o[4], o[5], o[6],
                o[7]);
  return text;
}

// All processors, as the kernel prints such masks: groups of 32 bits, the highest first.
std::string all_processors() {
  const auto count = static_cast<unsigned>(std::clamp(sysconf(_SC_NPROCESSORS_CONF), 1L, 8192L));
  std::string text;
  for (unsigned group = (count + 31) / 32; group-- > 0;) {
    const unsigned bits = std::min(count - group * 32, 32u);
    char digits[16];
    std::snprintf(digits, sizeof digits, "%s%0*x", text.empty() ? "" : ",", text.empty() ? 1 : 8,
                  bits == 32 ? 0xffffffffu : (1u << bits) - 1);
    text += digits;
  }
  return text;
}

std::string hexadecimal(std::uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%04x", value);
  return text;
}

// The kernel's interface that a device is at: "lo" where its port has none, as its own addresses are on no wire.
std::string netdev_of(const ServedDevice& device) {
  const std::string& netdev = device.port_facts().netdev;
  return netdev.empty() ? "lo" : netdev;
}

// The bus device that the kernel shows behind each RDMA device: who looks there (libfabric, UCX, MPIs by hwloc)
// asks who made it, where it is, and which processors are near. Its ids are no provider's of libibverbs', which
// goes by them too; its domain is the highest, which no machine numbers a bridge with, so that nobody who looks
// for its place on the PCI bus finds another device there.
void write_bus_device(Tree& tree, const ServedDevice& device) {
  char place[32], modalias[80];
  std::snprintf(place, sizeof place, "%04x:%02x:00.0", kBusDomain, device.index);
  std::snprintf(modalias, sizeof modalias, "pci:v%08Xd%08Xsv%08Xsd%08Xbc02sc00i00", kVendorId, kVendorPart, kVendorId,
                kVendorPart);
  char bridge[32];
  std::snprintf(bridge, sizeof bridge, "pci%04x:%02x/", kBusDomain, device.index);
  const std::string base = bridge + std::string(place);
  tree.device_file(base + "/vendor", hexadecimal(kVendorId));
  tree.device_file(base + "/device", hexadecimal(kVendorPart));
  tree.device_file(base + "/subsystem_vendor", hexadecimal(kVendorId));
  tree.device_file(base + "/subsystem_device", hexadecimal(kVendorPart));
  tree.device_file(base + "/class", "0x020000");  // an Ethernet controller
  tree.device_file(base + "/revision", "0x00");
  tree.device_file(base + "/modalias", modalias);
  tree.device_file(base + "/numa_node", "-1");  // near to none more than to another
  tree.device_file(base + "/local_cpus", all_processors());
  tree.device_file(base + "/local_cpulist", "0-" + std::to_string(std::max(sysconf(_SC_NPROCESSORS_CONF), 1L) - 1));
  const std::string netdev = netdev_of(device);
  tree.device_link(base + "/net/" + netdev, "/sys/class/net/" + netdev);
  tree.member("infiniband/" + device.name, base);
  tree.member("infiniband_verbs/uverbs" + std::to_string(device.index), base);
}

// An empty place of the table is zeros, as in the kernel's, and has no attributes: the kernel's files of them cannot be
// read. Files of no octets here, which the stand-in refuses to open (kmod-shim/preload/sysfs.hpp).
void write_gids(Tree& tree, const ServedDevice& device) {
  const std::string port = "infiniband/" + device.name + "/ports/1/";
  const std::string netdev = netdev_of(device);
  for (std::size_t i = 0; i < device.gid_count(); ++i) {
    const std::string index = std::to_string(i);
    const auto attribute = [&](const char* of, const std::string& text) {
      const std::string path = port + "gid_attrs/" + of + "/" + index;
      device.gid(i) ? tree.file(path, text) : tree.nothing(path);
    };
    tree.file(port + "gids/" + index, gid_text(device.gid(i).value_or(wire::IpAddress())));
    // libibverbs takes no other name of a type than these two.
    attribute("types", device.face() == Face::roce ? "RoCE v2" : "IB/RoCE v1");
    attribute("ndevs", netdev);
  }
}

void write_device(Tree& tree, const ServedDevice& device) {
  write_bus_device(tree, device);
  const std::string n = std::to_string(device.index);
  const std::string verbs = "infiniband_verbs/uverbs" + n + "/";
  tree.file(verbs + "ibdev", device.name);
  tree.file(verbs + "dev", std::to_string(kVerbsMajor) + ":" + std::to_string(kVerbsMinor + device.index));
  tree.file(verbs + "abi_version", std::to_string(kVerbsAbi));

  const auto& facts = device.port_facts();
  const std::string base = "infiniband/" + device.name + "/";
  tree.file(base + "node_type", device.face() == Face::roce ? "1: CA" : "4: RNIC");
  tree.file(base + "node_guid", guid_text(device.node_guid));
  tree.file(base + "sys_image_guid", guid_text(device.node_guid));
  tree.file(base + "node_desc", device.name);
  tree.file(base + "fw_ver", RNIC_VERSION);
  tree.file(base + "hw_rev", "0");
  tree.file(base + "board_id", "rnic");
  tree.file(base + "hca_type", "rnic");

  const std::string port = base + "ports/1/";
  tree.file(port + "state", "4: ACTIVE");
  tree.file(port + "phys_state", "5: LinkUp");
  tree.file(port + "link_layer", "Ethernet");
  tree.file(port + "rate", std::to_string(facts.speed_mbps / 1000) + " Gb/sec (1X)");
  tree.file(port + "lid", "0x0");
  tree.file(port + "lid_mask_count", "0");
  tree.file(port + "sm_lid", "0x0");
  tree.file(port + "sm_sl", "0");
  tree.file(port + "cap_mask", "0x00010000");
  tree.file(port + "pkeys/0", "0xffff");
  write_gids(tree, device);
}

void write_common(Tree& tree) {
  tree.file("infiniband_verbs/abi_version", "6");
  tree.file("misc/rdma_cm/abi_version", "4");
}

}  // namespace

std::string write_sysfs_trees(const Machine& machine) {
  remove_sysfs_trees(machine.run_directory);
  Tree all(machine.run_directory + "/sysfs");
  write_common(all);
  for (const auto& device : machine.devices) {
    write_device(all, *device);
    Tree alone(machine.run_directory + "/sysfs-" + device->name);
    write_common(alone);
    write_device(alone, *device);
    if (!alone.why().empty()) return alone.why();
  }
  return all.why();
}

std::string rewrite_gids(const Machine& machine, const ServedDevice& device) {
  for (const std::string& root : {std::string("/sysfs"), "/sysfs-" + device.name}) {
    Tree tree(machine.run_directory + root);
    write_gids(tree, device);
    if (!tree.why().empty()) return tree.why();
  }
  return {};
}

void remove_sysfs_trees(const std::string& run_directory) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_directory, error)) {
    const std::string name = entry.path().filename().string();
    if (name != "sysfs" && name.rfind("sysfs-", 0) != 0) continue;
    std::error_code ignored;
    if (entry.is_symlink(ignored) || !entry.is_directory(ignored)) continue;
    fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace rnic::control
