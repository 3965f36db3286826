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
#include "rnicdv/rnicdv.h"
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

namespace {

using rnic::test::TestDaemon;

// What is refused, and how it says so.
template <typename Call>
int refusal(const Call& call) {
  errno = 0;
  return call() == nullptr ? errno : 0;
}

void refused_interfaces(ibv_context* context, ibv_pd* pd, const ibv_mr& mr) {
  ibv_srq_init_attr_ex srq{};
  srq.attr = {4, 1, 0};
  srq.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  srq.pd = pd;
  srq.srq_type = IBV_SRQT_TM;
  CHECK(refusal([&] { return ibv_create_srq_ex(context, &srq); }) == EOPNOTSUPP);
  srq.srq_type = IBV_SRQT_XRC;
  CHECK(refusal([&] { return ibv_create_srq_ex(context, &srq); }) == EOPNOTSUPP);
  srq.srq_type = IBV_SRQT_BASIC;
  ibv_srq* basic = ibv_create_srq_ex(context, &srq);
  REQUIRE(basic != nullptr);
  CHECK(ibv_destroy_srq(basic) == 0);

  CHECK(refusal([&] { return ibv_import_pd(context, pd->handle); }) == EOPNOTSUPP);
  CHECK(refusal([&] { return ibv_import_mr(pd, mr.handle); }) == EOPNOTSUPP);
  CHECK(refusal([&] { return ibv_import_dm(context, 0); }) == EOPNOTSUPP);
  CHECK(refusal([&] { return ibv_import_device(context->cmd_fd); }) != 0);
  CHECK(refusal([&] { return ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 0, IBV_ACCESS_LOCAL_WRITE); }) == EOPNOTSUPP);
  CHECK(refusal([&] { return ibv_reg_mr(pd, mr.addr, 64, IBV_ACCESS_ON_DEMAND); }) == EOPNOTSUPP);
  ibv_sge range{reinterpret_cast<std::uintptr_t>(mr.addr), 64, mr.lkey};
  CHECK(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &range, 1) == EOPNOTSUPP);
}

// librnicdv finds what the plugin has for it, and in no other context.
void direct_verbs(ibv_context* context, ibv_pd* pd, const ibv_mr& mr) {
  ibv_context foreign = *context;
  foreign.ops.poll_cq = [](ibv_cq*, int, ibv_wc*) { return 0; };
  rnicdv_device_attr device{};
  CHECK(rnicdv_query_device(&foreign, &device) == EOPNOTSUPP);
  REQUIRE(rnicdv_query_device(context, &device) == 0);
  CHECK(device.max_page_list == RNIC_PAGE_LIST_MAX);
  CHECK(rnicdv_query_device(&foreign, &device) == EOPNOTSUPP);
  errno = 0;
  CHECK(rnicdv_event_fd(&foreign) == -1);
  CHECK(errno == EOPNOTSUPP);
  CHECK(rnicdv_event_fd(context) >= 0);
  rnicdv_event event{};
  CHECK(rnicdv_get_event(context, &event) == EAGAIN);

  rnicdv_mr_attr region{};
  REQUIRE(rnicdv_query_mr(context, mr.rkey, &region) == 0);
  CHECK(region.length == mr.length);
  const rnicdv_mr_init init{.iova = 0, .access = RNICDV_LOCAL_READ | RNICDV_ZERO_BASED, .key = 0x77};
  ibv_mr* shared = rnicdv_reg_shared_mr(const_cast<ibv_mr*>(&mr), pd, &init);
  REQUIRE(shared != nullptr);
  CHECK((shared->rkey & 0xFF) == 0x77);
  CHECK(ibv_dereg_mr(shared) == 0);
}

// By the names that applications use: what the plugin offers arrives where libibverbs' header looks for it.
void newer_interfaces(TestDaemon& daemon, ibv_context* context, ibv_pd* pd, const ibv_mr& mr) {
  refused_interfaces(context, pd, mr);
  ibv_device_attr_ex device{};
  REQUIRE(ibv_query_device_ex(context, nullptr, &device) == 0);
  CHECK(device.hca_core_clock == 1'000'000);
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  REQUIRE(ibv_query_rt_values_ex(context, &values) == 0);
  CHECK(values.raw_clock.tv_nsec != 0);

  ibv_td_init_attr nothing{};
  ibv_td* td = ibv_alloc_td(context, &nothing);
  ibv_parent_domain_init_attr domain{};
  domain.pd = pd;
  domain.td = td;
  ibv_pd* parent = ibv_alloc_parent_domain(context, &domain);
  REQUIRE((td != nullptr && parent != nullptr));

  ibv_cq_init_attr_ex attributes{};
  attributes.cqe = 8;
  attributes.wc_flags = std::uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  attributes.parent_domain = parent;
  ibv_cq_ex* cq = ibv_create_cq_ex(context, &attributes);
  REQUIRE(cq != nullptr);
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(cq);
  init.qp_type = IBV_QPT_RC;
  init.cap = {4, 4, 1, 1, 16};
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = parent;
  init.send_ops_flags = IBV_QP_EX_WITH_SEND;
  ibv_qp* qp = ibv_create_qp_ex(context, &init);
  REQUIRE(qp != nullptr);
  // Not promised: within a message only the last octets are sure to be last.
  CHECK(ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0) == 0);
  ibv_qp_ex* ex = ibv_qp_to_qp_ex(qp);
  REQUIRE(ex != nullptr);
  ibv_wr_start(ex);
  ex->wr_id = 43;
  ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(ex);
  ibv_wr_set_sge(ex, mr.lkey, reinterpret_cast<std::uintptr_t>(mr.addr), 8);
  REQUIRE(ibv_wr_complete(ex) == 0);

  rnic_cqe cqe{};
  cqe.qp_number = qp->qp_num;
  cqe.flags = RNIC_CQE_SEND_QUEUE;
  cqe.time = 99;
  daemon.push(ibv_cq_ex_to_cq(cq), cqe);
  ibv_poll_cq_attr none{};
  REQUIRE(ibv_start_poll(cq, &none) == 0);
  CHECK((cq->wr_id == 43 && cq->status == IBV_WC_SUCCESS));
  CHECK(ibv_wc_read_qp_num(cq) == qp->qp_num);
  CHECK(ibv_wc_read_completion_ts(cq) == 99);
  ibv_end_poll(cq);

  CHECK(ibv_destroy_qp(qp) == 0);
  CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
  CHECK(ibv_dealloc_td(td) == EBUSY);
  CHECK(ibv_dealloc_pd(parent) == 0);
  CHECK(ibv_dealloc_td(td) == 0);
}

}  // namespace

TEST_CASE("stock libibverbs finds the plugin, and works through it", "[provider][plugin][V-RNIC-04][V-RNIC-05]") {
  rnic::test::TestDaemon daemon;
  g_device = daemon.client;
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  REQUIRE(devices != nullptr);
  REQUIRE(count == 1);
  CHECK(std::string(ibv_get_device_name(devices[0])) == "rnic0");
  CHECK(devices[0]->transport_type == IBV_TRANSPORT_IWARP);

  errno = 0;
  CHECK(rnicdv_open_device(devices[0], RNICDV_BLOCK_MODE) == nullptr);
  CHECK(errno == EOPNOTSUPP);
  ibv_context* context = rnicdv_open_device(devices[0], RNICDV_PAGE_MODE);
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
  ibv_mw* mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
  REQUIRE(mw != nullptr);
  CHECK(ibv_dealloc_mw(mw) == 0);

  {
    INFO("the direct verbs");
    direct_verbs(context, pd, *mr);
  }
  {
    INFO("the newer interfaces");
    newer_interfaces(daemon, context, pd, *mr);
  }

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
