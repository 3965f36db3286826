// The start-up check of libibverbs' operation table, against libibverbs as they are: this program's
// verbs_set_ops() copies as rdma-core's does, from a table in the order that a release of it has. The
// orders are written down here once more, as those releases declare them, and not by pabi.hpp's rows.
#include <infiniband/verbs.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "kit/catch.hpp"
#include "pabi/pabi.hpp"

using namespace rnic;

namespace {

std::vector<std::string> names(const char* text) {
  std::istringstream words(text);
  std::vector<std::string> all;
  for (std::string word; words >> word;) all.push_back(word);
  return all;
}

// rdma-core 34.0, number 34.
constexpr const char* kOf34 =
    "advise_mr alloc_dm alloc_mw alloc_null_mr alloc_parent_domain alloc_pd alloc_td async_event "
    "attach_counters_point_flow attach_mcast bind_mw close_xrcd cq_event create_ah create_counters create_cq "
    "create_cq_ex create_flow create_flow_action_esp create_qp create_qp_ex create_rwq_ind_table create_srq "
    "create_srq_ex create_wq dealloc_mw dealloc_pd dealloc_td dereg_mr destroy_ah destroy_counters destroy_cq "
    "destroy_flow destroy_flow_action destroy_qp destroy_rwq_ind_table destroy_srq destroy_wq detach_mcast "
    "free_context free_dm get_srq_num import_mr import_pd modify_cq modify_flow_action_esp modify_qp "
    "modify_qp_rate_limit modify_srq modify_wq open_qp open_xrcd poll_cq post_recv post_send post_srq_ops "
    "post_srq_recv query_device_ex query_ece query_port query_qp query_rt_values query_srq read_counters reg_dm_mr "
    "reg_dmabuf_mr reg_mr req_notify_cq rereg_mr resize_cq set_ece unimport_mr unimport_pd";

// rdma-core 44.0 (Debian 12), number 34: three slots more than 34.0, no new number.
constexpr const char* kOf44 =
    "advise_mr alloc_dm alloc_mw alloc_null_mr alloc_parent_domain alloc_pd alloc_td async_event "
    "attach_counters_point_flow attach_mcast bind_mw close_xrcd cq_event create_ah create_counters create_cq "
    "create_cq_ex create_flow create_flow_action_esp create_qp create_qp_ex create_rwq_ind_table create_srq "
    "create_srq_ex create_wq dealloc_mw dealloc_pd dealloc_td dereg_mr destroy_ah destroy_counters destroy_cq "
    "destroy_flow destroy_flow_action destroy_qp destroy_rwq_ind_table destroy_srq destroy_wq detach_mcast "
    "free_context free_dm get_srq_num import_dm import_mr import_pd modify_cq modify_flow_action_esp modify_qp "
    "modify_qp_rate_limit modify_srq modify_wq open_qp open_xrcd poll_cq post_recv post_send post_srq_ops "
    "post_srq_recv query_device_ex query_ece query_port query_qp query_qp_data_in_order query_rt_values query_srq "
    "read_counters reg_dm_mr reg_dmabuf_mr reg_mr req_notify_cq rereg_mr resize_cq set_ece unimport_dm unimport_mr "
    "unimport_pd";

// rdma-core 56.1 (Debian 13), number 34: as 44.0.
constexpr const char* kOf56 = kOf44;

// rdma-core 65.0, number 65.
constexpr const char* kOf65 =
    "advise_mr alloc_buf alloc_dm alloc_dmah alloc_mw alloc_null_mr alloc_parent_domain alloc_pd alloc_td async_event "
    "attach_counters_point_flow attach_mcast bind_mw close_xrcd cq_event create_ah create_comp_cntr create_counters "
    "create_cq create_cq_ex create_flow create_flow_action_esp create_qp create_qp_ex create_rwq_ind_table create_srq "
    "create_srq_ex create_wq dealloc_dmah dealloc_mw dealloc_pd dealloc_td dereg_mr destroy_ah destroy_comp_cntr "
    "destroy_counters destroy_cq destroy_flow destroy_flow_action destroy_qp destroy_rwq_ind_table destroy_srq "
    "destroy_wq detach_mcast dm_export_dmabuf_fd free_buf free_context free_dm get_srq_num import_dm import_mr "
    "import_pd inc_comp_cntr inc_err_comp_cntr modify_cq modify_flow_action_esp modify_qp modify_qp_rate_limit "
    "modify_srq modify_wq open_qp open_xrcd poll_cq post_recv post_send post_srq_ops post_srq_recv qp_attach_comp_cntr "
    "query_comp_cntr_caps query_device_ex query_ece query_port query_port_speed query_qp query_qp_data_in_order "
    "query_rt_values query_srq read_comp_cntr read_counters read_err_comp_cntr reg_dm_mr reg_dmabuf_mr reg_mr "
    "reg_mr_ex req_notify_cq rereg_mr resize_cq set_comp_cntr set_ece set_err_comp_cntr unimport_dm unimport_mr "
    "unimport_pd";

struct Release {
  const char* name;
  const char* order;
  std::size_t slots;
};
constexpr Release kReleases[] = {
    {"34.0", kOf34, 73},
    {"44.0", kOf44, 76},
    {"56.1", kOf56, 76},
    {"65.0", kOf65, 93},
};

std::vector<std::string> g_order;  // of the libibverbs that this program plays

const char* const kNames[] = {
#define RNIC_PABI_NAME(name, layout) #name,
    RNIC_PABI_OPERATIONS(RNIC_PABI_NAME)
#undef RNIC_PABI_NAME
};

}  // namespace

// Of what rdma-core copies, the part that it copies to public places.
extern "C" void rnic::pabi::verbs_set_ops(verbs_context* context, const void* operations) {
  const auto* table = static_cast<const void* const*>(operations);
  for (std::size_t slot = 0; slot < g_order.size(); ++slot) {
    const std::string& name = g_order[slot];
    if (table[slot] == nullptr) continue;
#define COPY(to, operation) \
  if (name == #operation) std::memcpy(&(to).operation, &table[slot], sizeof table[slot])
    ibv_context_ops& old = context->context.ops;
    COPY(old, alloc_mw);
    COPY(old, bind_mw);
    COPY(old, dealloc_mw);
    COPY(old, poll_cq);
    COPY(old, post_recv);
    COPY(old, post_send);
    COPY(old, post_srq_recv);
    COPY(old, req_notify_cq);
    COPY(*context, advise_mr);
    COPY(*context, alloc_dm);
    COPY(*context, alloc_null_mr);
    COPY(*context, create_counters);
    COPY(*context, free_dm);
    COPY(*context, get_srq_num);
    COPY(*context, modify_cq);
    COPY(*context, open_qp);
    COPY(*context, query_device_ex);
    COPY(*context, query_rt_values);
    COPY(*context, read_counters);
    COPY(*context, reg_dm_mr);
#undef COPY
  }
}

TEST_CASE("every operation goes to the slot that this release of libibverbs has for it", "[provider][pabi]") {
  for (const Release& release : kReleases) {
    CAPTURE(release.name);
    g_order = names(release.order);
    REQUIRE(g_order.size() == release.slots);
    const int layout = pabi::find_layout();
    REQUIRE(layout >= 0);
    CHECK(pabi::slot_count(layout) == static_cast<int>(release.slots));
    for (std::size_t i = 0; i < std::size(kNames); ++i) {
      CAPTURE(kNames[i]);
      const auto found = std::find(g_order.begin(), g_order.end(), kNames[i]);
      const int slot = found == g_order.end() ? pabi::kNoSlot : static_cast<int>(found - g_order.begin());
      CHECK(pabi::slot_of(static_cast<pabi::Operation>(i), layout) == slot);
    }
  }
}

TEST_CASE("a libibverbs with a slot that no release has is refused", "[provider][pabi]") {
  for (const Release& release : kReleases) {
    CAPTURE(release.name);
    const std::vector<std::string> order = names(release.order);
    for (const char* before : {"advise_mr", "create_cq", "poll_cq", "query_device_ex", "req_notify_cq"}) {
      CAPTURE(before);
      g_order = order;
      g_order.insert(std::find(g_order.begin(), g_order.end(), before), "something_new");
      CHECK(pabi::find_layout() == -1);
      g_order = order;
      g_order.erase(std::find(g_order.begin(), g_order.end(), before));
      CHECK(pabi::find_layout() == -1);
    }
  }
}
