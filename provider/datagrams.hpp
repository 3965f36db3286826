/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// What queue pairs of type UD have of their own.
#pragma once

#include "context.hpp"

namespace rnic::provider {

// An address handle of another context: its GID's index may be of another device.
inline bool is_anothers(const Qp& qp, const ibv_ah* ah) { return ah != nullptr && ah->pd->context != qp.ibv.context; }

// What the daemon is to be asked for a Modify out of this state, but for the way to RESET. 0 or an errno: InfiniBand
// has no such change, or not with these attributes.
int change_datagrams(Qp& qp, ibv_qp_state now, const ibv_qp_attr& attributes, int mask, rnic_modify_qp& request);

}  // namespace rnic::provider
