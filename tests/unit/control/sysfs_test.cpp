// The trees that libibverbs and others are shown.
#include <fnmatch.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "control/limits.hpp"
#include "control/sysfs_tree.hpp"
#include "kit/server_world.hpp"

using namespace rnic;
using namespace rnic::test;
namespace fs = std::filesystem;

namespace {

struct Trees {
  Daemon daemon;
  fs::path root;

  explicit Trees(const std::string& toml = Daemon::kTwoDevices) : daemon(toml) {
    char text[] = "/tmp/rnic-sysfs-XXXXXX";
    REQUIRE(mkdtemp(text) != nullptr);
    root = text;
    daemon.machine.run_directory = text;
    REQUIRE(control::write_sysfs_trees(daemon.machine).empty());
  }
  ~Trees() { fs::remove_all(root); }
};

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

}  // namespace

TEST_CASE("a device of face roce is a channel adapter with GIDs of RoCE v2, also to who reads files",
          "[control][sysfs]") {
  Trees trees(
      "sched_fifo = false\n"
      "[[device]]\nport = \"pair:r\"\naddress = \"127.0.9.1/24\"\nface = \"roce\"\n"
      "[[device]]\nport = \"pair:r\"\naddress = \"127.0.9.2/24\"\n");
  const fs::path all = trees.root / "sysfs/class/infiniband";
  CHECK(text_of(all / "rnic0/node_type") == "1: CA");
  CHECK(text_of(all / "rnic1/node_type") == "4: RNIC");
  const fs::path port = all / "rnic0/ports/1";
  CHECK(text_of(port / "link_layer") == "Ethernet");
  CHECK(text_of(port / "pkeys/0") == "0xffff");
  for (const char* index : {"0", "1"}) CHECK(text_of(port / "gid_attrs/types" / index) == "RoCE v2");
  CHECK(text_of(port / "gids/2") == "0000:0000:0000:0000:0000:0000:0000:0000");
  for (const char* of : {"types", "ndevs"}) {
    CHECK(fs::file_size(port / "gid_attrs" / of / "1") != 0);
    CHECK(fs::file_size(port / "gid_attrs" / of / "2") == 0);  // an empty place has none
  }
  for (const char* index : {"0", "1"})
    CHECK(text_of(port / "gids" / index) == "0000:0000:0000:0000:0000:ffff:7f00:0901");
  CHECK(text_of(all / "rnic1/ports/1/gid_attrs/types/0") == "IB/RoCE v1");
}

TEST_CASE("each device has a bus device of its own behind it, in every tree", "[control][sysfs]") {
  Trees trees;
  for (const char* tree : {"sysfs", "sysfs-rnic0"}) {
    const fs::path device = trees.root / tree / "class/infiniband/rnic0/device";
    REQUIRE(fs::is_symlink(device));
    const fs::path place = fs::canonical(device);
    CHECK(place == fs::canonical(trees.root / tree / "class/infiniband_verbs/uverbs0/device"));
    // And from the device itself, which is a link as the kernel's are: UCX goes two up.
    CHECK(place == fs::canonical(trees.root / tree / "class/infiniband/rnic0").parent_path().parent_path());
    CHECK(text_of(trees.root / tree / "class/infiniband/rnic0/node_type") == "4: RNIC");
    // As others read it: domain, bus, slot and function, and a domain that no bridge has.
    unsigned domain = 0, bus = 0, slot = 9, function = 9;
    REQUIRE(std::sscanf(place.filename().c_str(), "%x:%x:%x.%x", &domain, &bus, &slot, &function) == 4);
    CHECK(domain == 0xffff);
    CHECK(slot == 0);
    CHECK(function == 0);
    CHECK(text_of(device / "numa_node") == "-1");
    CHECK_FALSE(fs::exists("/sys/bus/pci/devices" / place.filename()));
  }
  CHECK(fs::canonical(trees.root / "sysfs/class/infiniband/rnic0/device") !=
        fs::canonical(trees.root / "sysfs/class/infiniband/rnic1/device"));
  CHECK(fs::canonical(trees.root / "sysfs/class/infiniband/rnic1/device").filename() == "ffff:01:00.0");
  control::remove_sysfs_trees(trees.root);
  CHECK(fs::is_empty(trees.root));
}

TEST_CASE("a bus device's ids are those that Query RNIC tells, and its modalias says the same", "[control][sysfs]") {
  Trees trees;
  const fs::path device = trees.root / "sysfs/class/infiniband/rnic0/device";
  const auto attributes = trees.daemon.machine.attributes(*trees.daemon.machine.devices[0]);
  CHECK(std::stoul(text_of(device / "vendor"), nullptr, 16) == attributes.vendor_id);
  CHECK(std::stoul(text_of(device / "device"), nullptr, 16) == attributes.vendor_part_id);
  const std::string modalias = text_of(device / "modalias");
  // libibverbs' own way to put an entry of a provider's table (VERBS_PCI_MATCH).
  const auto matches = [&](unsigned vendor, unsigned part) {
    char pattern[64];
    std::snprintf(pattern, sizeof pattern, "pci:v%08Xd%08Xsv*", vendor, part);
    return fnmatch(pattern, modalias.c_str(), 0) == 0;
  };
  CHECK(matches(attributes.vendor_id, attributes.vendor_part_id));
  // Who has providers: Alibaba, Amazon, Broadcom, Chelsio, Emulex, Huawei, Intel, Mellanox, PathScale,
  // QLogic, VMware, Microsoft.
  for (const unsigned vendor :
       {0x1dedu, 0x1d0fu, 0x14e4u, 0x1425u, 0x10dfu, 0x19e5u, 0x8086u, 0x15b3u, 0x1fc1u, 0x1077u, 0x15adu, 0x1414u})
    CHECK(attributes.vendor_id != vendor);
  CHECK(fnmatch("vmbus:*", modalias.c_str(), 0) != 0);
}

TEST_CASE("a bus device is near to all processors", "[control][sysfs]") {
  Trees trees;
  const std::string mask = text_of(trees.root / "sysfs/class/infiniband/rnic0/device/local_cpus");
  long count = 0;
  for (const char digit : mask)
    if (digit != ',')
      count += __builtin_popcount(static_cast<unsigned>(std::stoul(std::string(1, digit), nullptr, 16)));
  CHECK(count == sysconf(_SC_NPROCESSORS_CONF));
}

TEST_CASE("a bus device has the kernel's interface that its device is at, lo where there is none", "[control][sysfs]") {
  Trees trees;
  const fs::path net = trees.root / "sysfs/class/infiniband/rnic0/device/net";
  CHECK(fs::read_symlink(net / "lo") == "/sys/class/net/lo");
  CHECK(text_of(net / "lo/type") == "772");  // ARPHRD_LOOPBACK, of the kernel's own
  CHECK(fs::exists(trees.root / "sysfs-rnic0/class/infiniband/rnic0/device/net/lo"));
}

TEST_CASE("a node GUID is the same in sysfs and in what is shown", "[control][sysfs]") {
  Trees trees;
  Client admin(trees.daemon, RNIC_CLIENT_ADMIN, "");
  const Answer answer = admin.ask(RNIC_SHOW, rnic_show{"dev"});
  std::string text(answer.as<rnic_handle_reply>().handle, '\0');
  REQUIRE(answer.fds.size() == 1);
  REQUIRE(pread(answer.fds[0].get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  const auto shown = nlohmann::json::parse(text, nullptr, false);
  for (const char* device : {"rnic0", "rnic1"}) {
    const auto& row = shown["dev"][device[4] - '0'];
    CHECK(row["name"] == device);
    CHECK(row["guid"] == text_of(trees.root / "sysfs/class/infiniband" / device / "node_guid"));
  }
}

TEST_CASE("trees are removed, and nothing else that is called so", "[control][sysfs]") {
  Trees trees;
  const fs::path elsewhere = trees.root / "mine", link = trees.root / "sysfs-link", file = trees.root / "sysfs-file";
  fs::create_directory(elsewhere);
  fs::create_directory_symlink(elsewhere, link);
  std::ofstream(file) << "mine";
  control::remove_sysfs_trees(trees.root);
  CHECK_FALSE(fs::exists(trees.root / "sysfs"));
  CHECK_FALSE(fs::exists(trees.root / "sysfs-rnic0"));
  CHECK(fs::is_symlink(link));
  CHECK(fs::is_regular_file(file));
}
