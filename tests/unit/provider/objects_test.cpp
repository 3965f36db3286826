// Registrations, states of QPs, attributes, and the choice of libibverbs' slot layout.
#include "kit/catch.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "control/limits.hpp"
#include "kit/provider_each_way.hpp"
#include "pabi/pabi.hpp"
#include "page_swap.hpp"
#include "unit/provider/daemon.hpp"
#include "wc.hpp"

using namespace rnic;
using namespace rnic::test;

namespace {

constexpr std::size_t kPage = 4096;

char* map_pages(std::size_t count, int protection, int flags = MAP_PRIVATE | MAP_ANONYMOUS, int fd = -1) {
  return static_cast<char*>(mmap(nullptr, count * kPage, protection, flags, fd, 0));
}

// What may be mapped is to be reached by remote copy, as where there is no room for mappings.
void map_nothing(TestDaemon& daemon) {
  daemon.relay().refuse_if(RNIC_REG_MR, ENOMEM, 0, [](const Asked& asked) {
    return asked.as<rnic_reg_mr>().shared != RNIC_MEMORY_APPLICATION;
  });
}

}  // namespace

TEST_CASE("V-SEC-13: memory that cannot be written is not registered for writing", "[provider][V-SEC-13]") {
  TestDaemon daemon;
  Application app(daemon);
  char* read_only = map_pages(1, PROT_READ);
  CHECK(app.make_mr(read_only, kPage, IBV_ACCESS_LOCAL_WRITE) == nullptr);
  CHECK(errno == EFAULT);
  CHECK(app.make_mr(read_only, kPage, IBV_ACCESS_REMOTE_READ) != nullptr);
  char* none = map_pages(1, PROT_NONE);
  CHECK(app.make_mr(none, kPage, 0) == nullptr);
  CHECK(errno == EFAULT);
  CHECK(daemon.registrations().size() == 1);
}

TEST_CASE("V-IS-29: a range with a hole is not registered", "[provider][V-IS-29]") {
  TestDaemon daemon;
  Application app(daemon);
  char* pages = map_pages(3, PROT_READ | PROT_WRITE);
  munmap(pages + kPage, kPage);
  CHECK(app.make_mr(pages, 3 * kPage, IBV_ACCESS_LOCAL_WRITE) == nullptr);
  CHECK(errno == EFAULT);
  CHECK(app.make_mr(pages, kPage, IBV_ACCESS_LOCAL_WRITE) != nullptr);
}

TEST_CASE("V-ACC-01: remote write without local write is refused", "[provider][V-ACC-01]") {
  OneQp t;
  CHECK(t.app.make_mr(t.buffer, 64, IBV_ACCESS_REMOTE_WRITE) == nullptr);
  CHECK(errno == EINVAL);
  CHECK(t.app.make_mr(t.buffer, 64, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE) != nullptr);
  CHECK(t.app.make_mr(t.buffer, 0, 0) == nullptr);
  CHECK(t.app.make_mr(t.buffer, 64, IBV_ACCESS_ON_DEMAND) == nullptr);
  CHECK(errno == EOPNOTSUPP);
}

TEST_CASE("a shared mapping of a memfd is passed as a file and an offset", "[provider][memory]") {
  const EachWay way;
  TestDaemon daemon;
  Application app(daemon);
  const int fd = memfd_create("shared", MFD_CLOEXEC);
  REQUIRE(ftruncate(fd, 4 * kPage) == 0);
  char* pages = map_pages(4, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
  REQUIRE(app.make_mr(pages + kPage + 16, kPage, IBV_ACCESS_LOCAL_WRITE) != nullptr);
  REQUIRE(daemon.registrations().size() == 1);
  CHECK(daemon.registrations()[0].shared == 1);
  CHECK(daemon.registrations()[0].shared_offset == kPage + 16);
  close(fd);
}

TEST_CASE("memory that is not shared, or whose file cannot be had, is passed without one", "[provider][memory]") {
  const EachWay way;
  TestDaemon daemon;
  Application app(daemon);
  REQUIRE(app.make_mr(map_pages(1, PROT_READ | PROT_WRITE), kPage, IBV_ACCESS_LOCAL_WRITE) != nullptr);
  const int fd = memfd_create("closed", MFD_CLOEXEC);
  REQUIRE(ftruncate(fd, kPage) == 0);
  char* orphan = map_pages(1, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
  close(fd);
  REQUIRE(app.make_mr(orphan, kPage, IBV_ACCESS_LOCAL_WRITE) != nullptr);
  REQUIRE(daemon.registrations().size() == 2);
  CHECK(daemon.registrations()[0].shared == 0);
  CHECK(daemon.registrations()[1].shared == 0);
}

TEST_CASE("memory that the daemon does not map is registered all the same", "[provider][memory][swap]") {
  const int userfaultfd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
  if (userfaultfd < 0) return;
  close(userfaultfd);
  TestDaemon daemon;
  Application app(daemon);
  map_nothing(daemon);
  setenv("RNIC_FAST_MEMORY", "1", 1);
  const std::size_t before = provider::swap_counts().descriptors;
  char* pages = map_pages(1100, PROT_READ | PROT_WRITE);
  ibv_mr* mr = app.make_mr(pages, 1100 * kPage, IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(mr != nullptr);
  REQUIRE(daemon.registrations().size() == 2);
  CHECK(daemon.registrations()[0].shared == RNIC_MEMORY_SWAPPED);
  CHECK(daemon.registrations()[1].shared == RNIC_MEMORY_APPLICATION);
  CHECK(daemon.registrations()[1].shared_offset == 0);
  CHECK(provider::swap_counts().descriptors <= before + 4);  // userfaultfd, and those for forks; the file is of no use
  CHECK(provider::dereg_mr(mr) == 0);

  // Where there was no room, pages are not copied for nothing: for a while, or until a region gives its room back.
  daemon.relay().forget();
  char* others = map_pages(2, PROT_READ | PROT_WRITE);
  for (std::uint32_t i = 0; i < provider::kUnswappedAfterRefusal; ++i) {
    mr = app.make_mr(others, 2 * kPage, IBV_ACCESS_LOCAL_WRITE);
    REQUIRE(mr != nullptr);
    CHECK(provider::dereg_mr(mr) == 0);
  }
  CHECK(daemon.registrations().size() == provider::kUnswappedAfterRefusal);
  for (const rnic_reg_mr& each : daemon.registrations()) CHECK(each.shared == RNIC_MEMORY_APPLICATION);
  provider::Mapping mapping{};
  REQUIRE(provider::find_mapping(reinterpret_cast<std::uintptr_t>(others), mapping));
  CHECK(!mapping.shared);

  daemon.relay().no_harm();
  ibv_mr* const swapped = app.make_mr(others, 2 * kPage, IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(swapped != nullptr);
  CHECK(daemon.registrations().back().shared == RNIC_MEMORY_SWAPPED);
  map_nothing(daemon);
  mr = app.make_mr(pages, 2 * kPage, IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(mr != nullptr);
  CHECK(daemon.registrations().back().shared == RNIC_MEMORY_APPLICATION);
  CHECK(provider::dereg_mr(mr) == 0);
  CHECK(provider::dereg_mr(swapped) == 0);
  daemon.relay().no_harm();
  mr = app.make_mr(pages, 2 * kPage, IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(mr != nullptr);
  CHECK(daemon.registrations().back().shared == RNIC_MEMORY_SWAPPED);
  CHECK(provider::dereg_mr(mr) == 0);
  unsetenv("RNIC_FAST_MEMORY");
}

TEST_CASE("keys of STags do not repeat from one registration to the next", "[provider][V-STAG-02]") {
  OneQp t;
  REQUIRE(t.app.make_mr(t.buffer, 64, 0) != nullptr);
  const auto all = t.daemon.registrations();
  REQUIRE(all.size() == 2);
  CHECK(all[0].key != all[1].key);
  CHECK(all[1].key <= 0xFF);
}

// ---- States --------------------------------------------------------------------------------------

namespace {

int to_state(OneQp& t, ibv_qp_state state, int mask = IBV_QP_STATE) {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  return provider::modify_qp(t.qp, &attributes, mask);
}

ibv_qp_state state_of(OneQp& t) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  REQUIRE(provider::query_qp(t.qp, &attributes, IBV_QP_STATE, &init) == 0);
  return attributes.qp_state;
}

}  // namespace

TEST_CASE("INIT and RTR are names of Idle, and carry the access rights", "[provider][V-IDLE-04]") {
  OneQp t;
  CHECK(state_of(t) == IBV_QPS_INIT);
  REQUIRE(to_state(t, IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS) == 0);
  CHECK(state_of(t) == IBV_QPS_INIT);
  const rnic_modify_qp asked = t.daemon.modifications().back();
  CHECK(asked.mask == (RNIC_MODIFY_STATE | RNIC_MODIFY_ACCESS));
  CHECK(asked.state == RNIC_QP_IDLE);
  CHECK((asked.access & (RNIC_ACCESS_REMOTE_READ | RNIC_ACCESS_REMOTE_WRITE)) ==
        (RNIC_ACCESS_REMOTE_READ | RNIC_ACCESS_REMOTE_WRITE));
  CHECK(asked.idle_name == RNIC_IDLE_INIT);
  REQUIRE(to_state(t, IBV_QPS_RTR) == 0);
  CHECK(state_of(t) == IBV_QPS_RTR);
}

TEST_CASE("a QP that has come back to Idle by itself is RESET, whatever it was called before", "[provider][V-CLS-07]") {
  OneQp t;
  REQUIRE(to_state(t, IBV_QPS_INIT) == 0);
  t.daemon.say_state(RNIC_QP_CLOSING);
  CHECK(state_of(t) == IBV_QPS_SQD);
  t.daemon.say_state(RNIC_QP_IDLE, RNIC_IDLE_RESET);  // as the daemon has it after a close
  CHECK(state_of(t) == IBV_QPS_RESET);
}

TEST_CASE("V-IDLE-01: work is posted in RESET as in INIT", "[provider][V-IDLE-01]") {
  OneQp t;
  REQUIRE(to_state(t, IBV_QPS_RESET) == 0);
  REQUIRE(state_of(t) == IBV_QPS_RESET);
  CHECK(t.post_write(1) == 0);
  REQUIRE(to_state(t, IBV_QPS_INIT) == 0);
  CHECK(t.post_write(2) == 0);
}

TEST_CASE("RTS comes with a connection only: asked for before, it is refused; after, it is there",
          "[provider][V-CONN-01]") {
  OneQp t;
  CHECK(to_state(t, IBV_QPS_RTS) == EINVAL);
  t.daemon.say_state(RNIC_QP_RTS);
  CHECK(to_state(t, IBV_QPS_RTS) == 0);
  CHECK(state_of(t) == IBV_QPS_RTS);
}

TEST_CASE("V-MOD-09: ERR is no error on a QP that is on its way down", "[provider][V-MOD-09]") {
  for (const std::uint32_t state : {RNIC_QP_ERROR, RNIC_QP_TERMINATE, RNIC_QP_CLOSING}) {
    OneQp t;
    t.daemon.relay().refuse(RNIC_MODIFY_QP, EINVAL);
    t.daemon.say_state(state);
    CHECK(to_state(t, IBV_QPS_ERR) == 0);
    CHECK(t.daemon.modifications().size() == 1);
  }
}

TEST_CASE("V-RTS-05: SQD closes a connected QP, and is no error once the QP is down", "[provider][V-RTS-05]") {
  OneQp t;
  t.daemon.relay().harm(RNIC_MODIFY_QP, harm::status(0));  // as of one that is connected
  CHECK(to_state(t, IBV_QPS_SQD) == 0);
  CHECK(t.daemon.modifications().back().state == RNIC_QP_CLOSING);
  t.daemon.say_state(RNIC_QP_CLOSING);
  CHECK(state_of(t) == IBV_QPS_SQD);
  CHECK(to_state(t, IBV_QPS_SQD) == 0);
  t.daemon.relay().no_harm();  // it is in Idle
  CHECK(to_state(t, IBV_QPS_SQD) == 0);
  t.daemon.say_state(RNIC_QP_RTS);
  CHECK(to_state(t, IBV_QPS_SQD) == EINVAL);
}

TEST_CASE("V-MOD-10: RESET from RTS goes by way of Error", "[provider][V-MOD-10]") {
  OneQp t;
  t.daemon.say_state(RNIC_QP_RTS);
  REQUIRE(to_state(t, IBV_QPS_RESET) == 0);
  t.daemon.relay().no_harm();
  const auto asked = t.daemon.modifications();
  REQUIRE(asked.size() == 2);
  CHECK(asked[0].state == RNIC_QP_ERROR);
  CHECK(asked[1].state == RNIC_QP_IDLE);
  CHECK(state_of(t) == IBV_QPS_RESET);
}

TEST_CASE("V-IS-03: an attribute of a shared queue that is none is refused, with the others", "[provider][V-IS-03]") {
  TestDaemon daemon;
  Application app(daemon);
  ibv_srq* srq = app.make_srq(8);
  ibv_srq_attr attributes{};
  attributes.srq_limit = 3;
  CHECK(provider::modify_srq(srq, &attributes, IBV_SRQ_LIMIT | 0x80) == EINVAL);
  REQUIRE(provider::query_srq(srq, &attributes) == 0);
  CHECK(attributes.srq_limit == 0);
}

TEST_CASE("V-IS-26: while the daemon flushes, INIT is too early, and RESET waits",
          "[provider][V-IS-26][V-MOD-10][V-ERRST-08]") {
  OneQp t;
  REQUIRE(to_state(t, IBV_QPS_ERR) == 0);
  const auto flushes = [&](unsigned times) {
    t.daemon.relay().refuse_if(RNIC_MODIFY_QP, EBUSY, times,
                               [](const Asked& asked) { return asked.as<rnic_modify_qp>().state == RNIC_QP_IDLE; });
  };
  flushes(1);
  CHECK(to_state(t, IBV_QPS_INIT) == EBUSY);
  CHECK(state_of(t) == IBV_QPS_ERR);
  flushes(3);
  CHECK(to_state(t, IBV_QPS_RESET) == 0);
  CHECK(state_of(t) == IBV_QPS_RESET);
}

TEST_CASE("V-QP-01: only RC QPs with two CQs are made, and they are filled in", "[provider][V-QP-01]") {
  OneQp t;
  ibv_qp_init_attr init{};
  init.send_cq = t.send_cq;
  init.recv_cq = t.receive_cq;
  init.cap = {3, 3, 1, 1, 0};
  init.qp_type = IBV_QPT_UD;
  CHECK(provider::create_qp(t.app.pd, &init) == nullptr);
  CHECK(errno == EOPNOTSUPP);
  init.qp_type = IBV_QPT_RC;
  ibv_qp* qp = provider::create_qp(t.app.pd, &init);
  REQUIRE(qp != nullptr);
  CHECK(init.cap.max_send_wr == 4);  // V-QP-02: at least what was asked for
  CHECK(qp->state == IBV_QPS_RESET);
  CHECK(qp->pd == t.app.pd);
  CHECK(qp->send_cq == t.send_cq);
  init.recv_cq = nullptr;
  CHECK(provider::create_qp(t.app.pd, &init) == nullptr);
  CHECK(errno == EINVAL);
}

TEST_CASE("a refusal of the daemon is the operation's error, and leaves nothing", "[provider][V-IMM-01]") {
  OneQp t;
  t.daemon.relay().refuse(RNIC_CREATE_CQ, ENOSPC);
  CHECK(t.app.make_cq(4) == nullptr);
  CHECK(errno == ENOSPC);
  CHECK(t.app.make_cq(4) != nullptr);
  t.daemon.relay().refuse(RNIC_DEREG_MR, EBUSY);
  CHECK(provider::dereg_mr(t.mr) == EBUSY);
  REQUIRE(t.post_write(1) == 0);  // the region is still known
  CHECK((t.app.view(t.qp).send.sqe(0).flags & RNIC_SQE_COPIED) != 0);
}

TEST_CASE("the port is an active Ethernet port of iWARP's kind", "[provider][V-SR-04]") {
  OneQp t;
  ibv_port_attr port{};
  ibv_context* context = &t.app.context->verbs.context;
  REQUIRE(provider::query_port(context, 1, &port) == 0);
  CHECK(port.state == IBV_PORT_ACTIVE);
  CHECK(port.link_layer == IBV_LINK_LAYER_ETHERNET);
  CHECK(port.max_msg_sz == UINT32_MAX);
  CHECK(port.active_mtu == IBV_MTU_1024);
  CHECK(port.gid_tbl_len >= 1);
  CHECK(provider::query_port(context, 2, &port) == EINVAL);
}

TEST_CASE("device attributes fit a caller who knows only the old structure", "[provider][V-RNIC-07]") {
  OneQp t;
  struct {
    ibv_device_attr attributes;
    std::uint64_t guard;
  } old{};
  old.guard = 0x5A5A;
  REQUIRE(provider::query_device_ex(&t.app.context->verbs.context, nullptr, reinterpret_cast<ibv_device_attr_ex*>(&old),
                                    sizeof old.attributes) == 0);
  CHECK(old.attributes.max_qp == static_cast<int>(control::kQpsMax));
  CHECK(old.attributes.phys_port_cnt == 1);
  CHECK(old.guard == 0x5A5A);
}

TEST_CASE("the longer attributes of a device are told as far as the caller has room for them", "[provider]") {
  OneQp t;
  ibv_context* context = &t.app.context->verbs.context;
  ibv_device_attr_ex all{};
  std::memset(&all, 0xFF, sizeof all);
  REQUIRE(provider::query_device_ex(context, nullptr, &all, sizeof all) == 0);
  CHECK(all.comp_mask == 0);
  CHECK(all.completion_timestamp_mask == UINT64_MAX);
  CHECK(all.hca_core_clock == 1'000'000);  // kHz: a tick is a nanosecond
  CHECK(all.device_cap_flags_ex == all.orig_attr.device_cap_flags);
  CHECK(all.phys_port_cnt_ex == 1);
  CHECK(all.odp_caps.general_caps == 0);
  CHECK(all.max_dm_size == 0);
  CHECK(all.tm_caps.max_rndv_hdr_size == 0);
  CHECK(all.raw_packet_caps == 0);
  CHECK(all.tso_caps.max_tso == 0);

  ibv_device_attr_ex part{};
  part.hca_core_clock = ~std::uint64_t{0};
  constexpr std::size_t kUpToTheClock = offsetof(ibv_device_attr_ex, hca_core_clock) + sizeof(std::uint64_t) - 1;
  REQUIRE(provider::query_device_ex(context, nullptr, &part, kUpToTheClock) == 0);
  CHECK(part.completion_timestamp_mask == UINT64_MAX);
  CHECK(part.hca_core_clock == std::uint64_t{0xFF} << 56);  // its last octet is the caller's own
  CHECK(part.phys_port_cnt_ex == 0);

  ibv_query_device_ex_input unknown{};
  unknown.comp_mask = 1;
  CHECK(provider::query_device_ex(context, &unknown, &all, sizeof all) == EINVAL);
}

// ---- Tables --------------------------------------------------------------------------------------

TEST_CASE("V-CS-05: the code of a Terminate chooses the status", "[provider][V-CS-05]") {
  using provider::wc_status;
  const auto remote = [](std::uint32_t detail) { return wc_status(RNIC_WC_REMOTE_TERMINATION, RNIC_OP_WRITE, detail); };
  CHECK(remote(0x0101) == IBV_WC_REM_ACCESS_ERR);
  CHECK(remote(0x1102) == IBV_WC_REM_ACCESS_ERR);
  CHECK(remote(0x0205) == IBV_WC_REM_INV_REQ_ERR);
  CHECK(remote(0x1201) == IBV_WC_REM_INV_REQ_ERR);
  CHECK(remote(0x0000) == IBV_WC_REM_OP_ERR);
  CHECK(remote(0x2002) == IBV_WC_REM_OP_ERR);
}

TEST_CASE("V-CS-07: bounds are a protection error, a short receive is a length error", "[provider][V-CS-07]") {
  using provider::wc_status;
  CHECK(wc_status(RNIC_WC_BASE_BOUNDS, RNIC_OP_SEND, 0) == IBV_WC_LOC_PROT_ERR);
  CHECK(wc_status(RNIC_WC_BASE_BOUNDS, RNIC_OP_BIND, 0) == IBV_WC_MW_BIND_ERR);
  CHECK(wc_status(RNIC_WC_MESSAGE_TOO_LONG, RNIC_OP_RECEIVE, 0) == IBV_WC_LOC_LEN_ERR);
  CHECK(wc_status(RNIC_WC_FLUSHED, RNIC_OP_RECEIVE, 0) == IBV_WC_WR_FLUSH_ERR);
}

TEST_CASE("every status of a completion has its name in ibverbs",
          "[provider][V-CS-01][V-CS-02][V-CS-03][V-CS-04][V-CS-06][V-CS-08][V-CS-09][V-CS-10][V-CS-11][V-CS-12]"
          "[V-CS-13][V-CS-25]") {
  struct Row {
    std::uint8_t status;
    ibv_wc_status name;
  };
  for (const Row& row : {Row{RNIC_WC_SUCCESS, IBV_WC_SUCCESS},
                         {RNIC_WC_FLUSHED, IBV_WC_WR_FLUSH_ERR},
                         {RNIC_WC_INVALID_WQE, IBV_WC_LOC_QP_OP_ERR},
                         {RNIC_WC_LOCAL_CATASTROPHIC, IBV_WC_FATAL_ERR},
                         {RNIC_WC_INVALID_STAG, IBV_WC_LOC_PROT_ERR},
                         {RNIC_WC_ACCESS, IBV_WC_LOC_PROT_ERR},
                         {RNIC_WC_INVALID_PD, IBV_WC_LOC_PROT_ERR},
                         {RNIC_WC_WRAP, IBV_WC_LOC_PROT_ERR},
                         {RNIC_WC_INVALIDATE_PD_ACCESS, IBV_WC_LOC_ACCESS_ERR},
                         {RNIC_WC_ZERO_READ_RESOURCES, IBV_WC_LOC_QP_OP_ERR},
                         {RNIC_WC_NOT_PRIVILEGED, IBV_WC_LOC_QP_OP_ERR},
                         {RNIC_WC_INVALID_LENGTH, IBV_WC_LOC_LEN_ERR}})
    CHECK(provider::wc_status(row.status, RNIC_OP_SEND, 0) == row.name);
}

TEST_CASE("no two slot layouts of libibverbs look alike", "[provider][pabi]") {
  for (int layout = 0; layout < pabi::kLayouts; ++layout) {
    pabi::AnchorSlots slots{};
    for (std::size_t i = 0; i < slots.size(); ++i) {
      slots[i] = pabi::slot_of(pabi::kAnchors[i], layout);
    }
    CHECK(pabi::layout_with(slots) == layout);
    slots[3] += 1;
    CHECK(pabi::layout_with(slots) == -1);
  }
}

TEST_CASE("the libibverbs of this machine has a layout that we know", "[provider][pabi]") {
  CHECK(pabi::find_layout() >= 0);
}
