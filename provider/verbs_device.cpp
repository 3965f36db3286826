/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// What a device and its port say of themselves.
#include <time.h>

#include <cerrno>
#include <cstring>
#include <iterator>

#include "verbs_objects.hpp"

namespace rnic::provider {

namespace {

// What ibv_port_attr can say of a speed: lanes, and a lane's.
struct LinkSpeed {
  std::uint32_t mbps;
  std::uint8_t width;  // 1: one lane, 2: four
  std::uint8_t speed;  // 1: 2.5, 4: 10, 32: 25, 64: 50, 128: 100 Gb/s
};
constexpr LinkSpeed kLinkSpeeds[] = {
    {400000, 2, 128}, {200000, 2, 64}, {100000, 2, 32}, {50000, 1, 64},
    {40000, 2, 4},    {25000, 1, 32},  {10000, 1, 4},   {0, 1, 1},
};

}  // namespace

ibv_mtu mtu_name(std::uint32_t octets) {
  if (octets >= 4096) return IBV_MTU_4096;
  if (octets >= 2048) return IBV_MTU_2048;
  if (octets >= 1024) return IBV_MTU_1024;
  return octets >= 512 ? IBV_MTU_512 : IBV_MTU_256;
}

std::uint64_t raw_clock() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

// As with hardware, tv_nsec is the clock's count, all of it, in units of hca_core_clock.
int query_rt_values(ibv_context* /*context*/, ibv_values_ex* values) {
  const bool wanted = (values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) != 0;
  values->comp_mask = wanted ? IBV_VALUES_MASK_RAW_CLOCK : 0;
  if (wanted) values->raw_clock = {0, static_cast<long>(raw_clock())};
  return 0;
}

int query_device_ex(ibv_context* ibv, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attributes,
                    std::size_t size) {
  if (input != nullptr && input->comp_mask != 0) return EINVAL;
  const rnic_device_attributes& ours = context_of(ibv).attributes;
  std::memset(attributes, 0, size);
  ibv_device_attr& to = attributes->orig_attr;
  static_assert(sizeof to.fw_ver > sizeof ours.firmware);
  std::memcpy(to.fw_ver, ours.firmware, sizeof ours.firmware);
  to.node_guid = ours.node_guid;
  to.sys_image_guid = ours.node_guid;
  to.max_mr_size = ours.max_mr_size;
  to.page_size_cap = ours.page_size_cap;
  to.vendor_id = ours.vendor_id;
  to.vendor_part_id = ours.vendor_part_id;
  to.hw_ver = ours.hw_version;
  to.max_qp = clamp_int(ours.max_qp);
  to.max_qp_wr = clamp_int(ours.max_qp_wr);
  if ((ours.capabilities & RNIC_CAP_INVALIDATE) != 0) {
    to.device_cap_flags |= IBV_DEVICE_MEM_MGT_EXTENSIONS;
  }
  to.max_sge = clamp_int(ours.max_sge);
  to.max_sge_rd = clamp_int(ours.max_sge_read);
  if (ours.max_srq != 0) to.device_cap_flags |= IBV_DEVICE_SRQ_RESIZE;
  to.max_cq = clamp_int(ours.max_cq);
  to.max_cqe = clamp_int(ours.max_cqe);
  to.max_mr = clamp_int(ours.max_mr);
  to.max_pd = clamp_int(ours.max_pd);
  to.max_mw = clamp_int(ours.max_mw);
  if (ours.max_mw != 0) to.device_cap_flags |= IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  to.max_qp_rd_atom = clamp_int(ours.max_read_in);
  to.max_qp_init_rd_atom = clamp_int(ours.max_read_out);
  const std::uint64_t reads = std::uint64_t{ours.max_qp} * ours.max_read_in;
  to.max_res_rd_atom = reads > INT32_MAX ? INT32_MAX : static_cast<int>(reads);
  to.atomic_cap = ours.atomics != 0 ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE;
  to.max_srq = clamp_int(ours.max_srq);
  to.max_srq_wr = clamp_int(ours.max_srq_wr);
  to.max_srq_sge = clamp_int(ours.max_srq_sge);
  to.phys_port_cnt = 1;
  if (is_roce(context_of(ibv))) to.max_pkeys = 1;
  if (has_datagrams(context_of(ibv))) {
    to.max_ah = clamp_int(max_address_handles(context_of(ibv)));
    to.max_mcast_grp = 64;
    to.max_mcast_qp_attach = 256;
    to.max_total_mcast_qp_attach = to.max_mcast_grp * to.max_mcast_qp_attach;
  }

  // The caller's structure may end before these. What is not named here we have none of.
  const auto set = [size, attributes](auto& field, auto value) {
    const auto end = reinterpret_cast<const char*>(&field + 1) - reinterpret_cast<const char*>(attributes);
    if (size >= static_cast<std::size_t>(end)) field = value;
  };
  set(attributes->completion_timestamp_mask, UINT64_MAX);
  set(attributes->hca_core_clock, std::uint64_t{1'000'000});  // kHz
  set(attributes->device_cap_flags_ex, std::uint64_t{to.device_cap_flags});
  set(attributes->phys_port_cnt_ex, 1U);
  return 0;
}

int query_port(ibv_context* ibv, std::uint8_t port, ibv_port_attr* attributes) {
  if (port != 1) return EINVAL;
  const Context& context = context_of(ibv);
  const bool up = context.device.link_up != 0 && !is_dead(context);
  attributes->state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attributes->max_mtu = IBV_MTU_4096;
  attributes->active_mtu = mtu_name(context.attributes.mtu);
  attributes->gid_tbl_len = std::size(rnic_device_info{}.addresses);
  if (connects_oob(context)) ++attributes->gid_tbl_len;  // the first address has two places
  attributes->port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_DEVICE_MGMT_SUP;
  attributes->max_msg_sz = UINT32_MAX;  // V-SR-04
  if (is_roce(context)) {
    attributes->pkey_tbl_len = 1;  // the kernel's stand-in has the table: one, 0xffff
    attributes->port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
  }
  attributes->max_vl_num = 1;
  for (const LinkSpeed& row : kLinkSpeeds) {
    if (context.attributes.speed_mbps < row.mbps) continue;
    attributes->active_width = row.width;
    attributes->active_speed = row.speed;
    break;
  }
  attributes->phys_state = up ? 5 : 3;  // LinkUp, Disabled
  attributes->link_layer = IBV_LINK_LAYER_ETHERNET;
  return 0;
}

}  // namespace rnic::provider
