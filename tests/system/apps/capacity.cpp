// As many objects of each kind as the device says that there are, of one process and one context, and one more of each,
// which is refused with ENOMEM. On an iWARP face each queue pair has Reads of its own in both directions.
//
//   capacity [KIND...]      qp, srq, mr, mw, pd, cq; all of them unless named
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace {

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

// Makes them until one is refused. Of `known` others, one each is there already.
template <typename Object>
void fill(const char* kind, int most, int known, const std::function<Object*()>& make,
          const std::function<int(Object*)>& end) {
  std::vector<Object*> made;
  Object* one;
  errno = 0;
  while ((one = make()) != nullptr) made.push_back(one);
  const int why = errno;
  const int count = static_cast<int>(made.size()) + known;
  std::printf("%d %s of %d, then %s\n", count, kind, most, std::strerror(why));
  std::fflush(stdout);
  for (Object* each : made)
    if (end(each) != 0) fail(std::string("ending one of ") + kind);
  errno = why;
  if (count < most || why != ENOMEM) fail(kind);
}

}  // namespace

int main(int argc, char** argv) {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  if (count == 0) fail("no device");
  ibv_context* context = ibv_open_device(devices[0]);
  if (context == nullptr) fail("ibv_open_device");
  ibv_device_attr has{};
  if (ibv_query_device(context, &has) != 0) fail("ibv_query_device");
  ibv_pd* pd = ibv_alloc_pd(context);
  ibv_cq* cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
  if (pd == nullptr || cq == nullptr) fail("the first of them");
  const auto wanted = [&](const char* kind) {
    for (int i = 1; i < argc; ++i)
      if (std::strcmp(argv[i], kind) == 0) return true;
    return argc == 1;
  };

  if (wanted("qp")) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = cq;
    attributes.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    attributes.qp_type = IBV_QPT_RC;
    ibv_qp_attr reads{};
    reads.qp_state = IBV_QPS_INIT;
    reads.max_rd_atomic = reads.max_dest_rd_atomic = 1;
    constexpr int kDepths = IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC;
    const bool of_iwarp = devices[0]->transport_type == IBV_TRANSPORT_IWARP;
    const auto make = [&] {
      ibv_qp* qp = ibv_create_qp(pd, &attributes);
      if (qp != nullptr && of_iwarp && ibv_modify_qp(qp, &reads, IBV_QP_STATE | kDepths) != 0) fail("IRD and ORD");
      return qp;
    };
    const auto end = [&](ibv_qp* qp) {
      ibv_qp_attr now{};
      if (of_iwarp &&
          (ibv_query_qp(qp, &now, kDepths, &attributes) != 0 || now.max_rd_atomic != 1 || now.max_dest_rd_atomic != 1))
        fail("its IRD and ORD");
      return ibv_destroy_qp(qp);
    };
    fill<ibv_qp>("queue pairs", has.max_qp, 0, make, end);
  }
  if (wanted("srq")) {
    ibv_srq_init_attr attributes{};
    attributes.attr = {.max_wr = 1, .max_sge = 1, .srq_limit = 0};
    fill<ibv_srq>(
        "shared receive queues", has.max_srq, 0, [&] { return ibv_create_srq(pd, &attributes); }, ibv_destroy_srq);
  }
  if (wanted("mr")) {
    static char memory[4096];
    fill<ibv_mr>(
        "regions", has.max_mr, 0, [&] { return ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE); },
        ibv_dereg_mr);
  }
  if (wanted("mw"))
    fill<ibv_mw>(
        "windows", has.max_mw, 0, [&] { return ibv_alloc_mw(pd, IBV_MW_TYPE_2); }, ibv_dealloc_mw);
  if (wanted("pd"))
    fill<ibv_pd>(
        "protection domains", has.max_pd, 1, [&] { return ibv_alloc_pd(context); }, ibv_dealloc_pd);
  if (wanted("cq"))
    fill<ibv_cq>(
        "completion queues", has.max_cq, 1, [&] { return ibv_create_cq(context, 1, nullptr, nullptr, 0); },
        ibv_destroy_cq);
  return 0;
}
