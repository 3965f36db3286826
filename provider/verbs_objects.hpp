/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
// What the files of the control path share: verbs_device.cpp, and a file for each kind of object. Each operation is a
// request to the daemon, and the private memory that goes with what it made.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <cstdlib>

#include "context.hpp"

namespace rnic::provider {

inline int clamp_int(std::uint32_t value) { return value > INT32_MAX ? INT32_MAX : static_cast<int>(value); }
inline std::uint64_t pointer_value(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }
inline bool is_power_of_two(std::uint32_t n) { return n != 0 && (n & (n - 1)) == 0; }

// verbs_device.cpp
ibv_mtu mtu_name(std::uint32_t octets);

// ---- verbs_events.cpp: events that name an object about to go -----------------------------------

// What the daemon knows a channel by; 0: none.
std::uint64_t cookie_of(const ibv_comp_channel* channel);
// Each drops those that nobody has read, and waits until the application has acknowledged those that it was given.
// `sent`: how many completion events there were in all; without it, whoever sent them is not known any more.
void forget_completion_events(Cq& cq, std::uint32_t sent);
void forget_completion_events(Cq& cq);
void forget_async_events(Context& context, const void* object, pthread_mutex_t& mutex, pthread_cond_t& cond,
                         const std::uint32_t& completed, const std::uint32_t& taken);

// ---- verbs_domains.cpp: what is in a domain, which is busy so long (V-PD-04) ----------------------

// Of whatever has been made in a domain, and of what has gone. What is in a PD itself the daemon counts, and nothing is
// done here; of what is in a parent domain it does not know that.
void enter_domain(ibv_pd* pd);
void leave_domain(ibv_pd* pd);
// The same of what the daemon does not know at all.
void enter_unknown(ibv_pd* pd);
void leave_unknown(ibv_pd* pd);

// ---- verbs_srq.cpp: the private memory beside the slots of a receive queue, of an SRQ or a QP -----

bool allocate_receives(ReceiveQueue& queue);
void free_receives(ReceiveQueue& queue);

}  // namespace rnic::provider
