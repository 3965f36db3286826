/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// Binds, as they are posted: by ibv_post_send and ibv_wr_bind_mw a window of type 2, by ibv_bind_mw one of type 1.
#pragma once

#include "context.hpp"

namespace rnic::provider {

// 0, or why this is no Bind of such a window on this queue pair; what depends on more than the request's form is the
// daemon's to judge, and a completion (V-MW-04).
int check_bind(const Qp& qp, ibv_mw_type type, const ibv_mw* window, std::uint32_t rkey, const ibv_mw_bind_info& info);

// What a BIND that has been checked says, into its entry and the octets behind that, of which there are 8.
void write_bind(rnic_sqe& entry, std::byte* body, std::uint32_t rkey, const ibv_mw_bind_info& info);

}  // namespace rnic::provider
