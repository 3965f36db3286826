// The plugin inside the machine's own libibverbs: found by name, loaded, opened, and used through
// the public interface alone.
//
// The kernel's part is played here: this program's open(), stat(), fstat() and socket() come before
// the C library's, and show libibverbs a device file that is a socket to the daemon. The tree
// it looks at is made in a temporary folder. Started with the plugin's file name.
#undef _FILE_OFFSET_BITS  // with it, the functions below would bear other names
#define CATCH_CONFIG_RUNNER
#include "kit/catch.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cstdarg>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "control/limits.hpp"
#include "unit/provider/daemon.hpp"

namespace {

constexpr const char* kDeviceFile = "/dev/infiniband/uverbs0";
const dev_t kDeviceNumber = makedev(231, 192);
int g_device = -1;  // what opening the device file gives

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

void look_like_a_device(struct stat* status) {
  std::memset(status, 0, sizeof *status);
  status->st_mode = S_IFCHR | 0666;
  status->st_rdev = kDeviceNumber;
}

}  // namespace

extern "C" {
int open(const char* path, int flags, ...) {
  if (std::strcmp(path, kDeviceFile) == 0) return dup(g_device);
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  static auto* const real = next<int(const char*, int, ...)>("open");
  return real(path, flags, mode);
}

int stat(const char* path, struct stat* status) noexcept {
  if (std::strcmp(path, kDeviceFile) == 0) {
    look_like_a_device(status);
    return 0;
  }
  static auto* const real = next<int(const char*, struct stat*)>("stat");
  return real(path, status);
}

int fstat(int fd, struct stat* status) noexcept {
  static auto* const real = next<int(int, struct stat*)>("fstat");
  const int result = real(fd, status);
  struct stat device {};
  if (result == 0 && g_device >= 0 && real(g_device, &device) == 0 && device.st_ino == status->st_ino &&
      device.st_dev == status->st_dev) {
    look_like_a_device(status);
  }
  return result;
}

int socket(int domain, int type, int protocol) noexcept {
  constexpr int kNetlinkRdma = 20;
  if (domain == AF_NETLINK && protocol == kNetlinkRdma) {
    errno = EPROTONOSUPPORT;
    return -1;
  }
  static auto* const real = next<int(int, int, int)>("socket");
  return real(domain, type, protocol);
}
}

namespace {

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text << '\n';
}

void make_tree(const std::filesystem::path& root) {
  write_file(root / "class/infiniband_verbs/abi_version", "6");
  write_file(root / "class/infiniband_verbs/uverbs0/ibdev", "rnic0");
  write_file(root / "class/infiniband_verbs/uverbs0/dev", "231:192");
  write_file(root / "class/infiniband_verbs/uverbs0/abi_version", "1");
  write_file(root / "class/infiniband/rnic0/node_type", "4: RNIC");
  write_file(root / "class/infiniband/rnic0/node_guid", "0200:00ff:fe00:0001");
}

}  // namespace

TEST_CASE("stock libibverbs finds the plugin, and works through it", "[provider][plugin]") {
  rnic::test::TestDaemon daemon;
  g_device = daemon.client;
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  REQUIRE(devices != nullptr);
  REQUIRE(count == 1);
  CHECK(std::string(ibv_get_device_name(devices[0])) == "rnic0");
  CHECK(devices[0]->transport_type == IBV_TRANSPORT_IWARP);

  ibv_context* context = ibv_open_device(devices[0]);
  REQUIRE(context != nullptr);
  ibv_device_attr device{};
  REQUIRE(ibv_query_device(context, &device) == 0);
  CHECK(device.max_qp == static_cast<int>(rnic::control::kQpsMax));
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(context, 1, &port) == 0);
  CHECK(port.state == IBV_PORT_ACTIVE);

  ibv_pd* pd = ibv_alloc_pd(context);
  REQUIRE(pd != nullptr);
  static char buffer[4096];
  ibv_mr* mr = ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(mr != nullptr);
  ibv_cq* cq = ibv_create_cq(context, 8, nullptr, nullptr, 0);
  REQUIRE(cq != nullptr);
  ibv_qp_init_attr init{};
  init.send_cq = cq;
  init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {4, 4, 1, 1, 0};
  ibv_qp* qp = ibv_create_qp(pd, &init);
  REQUIRE(qp != nullptr);

  ibv_sge sge{reinterpret_cast<std::uintptr_t>(buffer), 64, mr->lkey};
  ibv_send_wr wr{};
  wr.wr_id = 42;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  REQUIRE(ibv_post_send(qp, &wr, &bad) == 0);
  rnic_cqe cqe{};
  cqe.qp_number = qp->qp_num;
  cqe.flags = RNIC_CQE_SEND_QUEUE;
  daemon.push(cq, cqe);
  ibv_wc wc{};
  REQUIRE(ibv_poll_cq(cq, 1, &wc) == 1);
  CHECK(wc.wr_id == 42);
  CHECK(ibv_req_notify_cq(cq, 0) == 0);
  CHECK(ibv_alloc_mw(pd, IBV_MW_TYPE_1) == nullptr);  // an operation that is not offered

  CHECK(ibv_destroy_qp(qp) == 0);
  CHECK(ibv_destroy_cq(cq) == 0);
  CHECK(ibv_dereg_mr(mr) == 0);
  CHECK(ibv_dealloc_pd(pd) == 0);
  CHECK(ibv_close_device(context) == 0);
  ibv_free_device_list(devices);
}

int main(int argc, char* argv[]) {
  if (argc < 2) return 2;
  // libibverbs is given the stem, and adds "-rdmavNN.so".
  std::string stem = std::filesystem::absolute(argv[1]).string();
  stem.resize(stem.rfind("-rdmav"));
  char folder[] = "/tmp/rnic-plugin-XXXXXX";
  if (mkdtemp(folder) == nullptr) return 2;
  make_tree(folder);
  setenv("SYSFS_PATH", folder, 1);
  setenv("RDMAV_DRIVERS", stem.c_str(), 1);
  const int result = Catch::Session().run();
  std::filesystem::remove_all(folder);
  return result;
}
