/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Messages between the daemon and what stands for it in an application: the provider, the
 * stand-in for the kernel (kmod-shim/preload), and the `rnic` command. C11 and C++20.
 *
 * Over a Unix SEQPACKET socket, RUN/control.sock. One request, one reply with the same type and
 * id; each is a rnic_msg header and the structure, or nothing, that the message's row has in
 * rnic_messages.h. Descriptors travel with SCM_RIGHTS in the order listed. A reply with a status
 * other than 0 is a header alone.
 * The daemon never sends on this socket unasked. The first request of a connection is HELLO.
 * What a connection made is destroyed when it ends.
 *
 * `status` of a reply is 0 or an errno (positive). All integers in host order, unless network
 * order is said; addresses as struct sockaddr_storage would hold them, in rnic_address.
 */
#ifndef RNIC_CONTROL_H
#define RNIC_CONTROL_H

#include "rnic_control_admin.h"
#include "rnic_control_cm.h"
#include "rnic_control_common.h"
#include "rnic_control_direct.h"
#include "rnic_control_verbs.h"

/* ---- What follows from the rows of rnic_messages.h --------------------------------------- */

#define RNIC_SIZE_ASSERTION(structure, octets)                                                                         \
	RNIC_STATIC_ASSERT(sizeof(struct structure) == (octets), "the size of " #structure);
RNIC_MESSAGE_STRUCTURES(RNIC_SIZE_ASSERTION)
#undef RNIC_SIZE_ASSERTION

/* Where a message has no structure. */
struct rnic_nothing {
	uint8_t nothing;
};

/* Octets of a request's or a reply's body, at least. */
#define RNIC_BODY_SIZE(structure) (sizeof(struct structure) == 1 ? 0u : (uint32_t)sizeof(struct structure))

struct rnic_message {
	const char *name;
	uint32_t type;
	uint32_t who; /* RNIC_OF_* */
	uint32_t request_size, reply_size;
	uint32_t fds_in, fds_out; /* at most */
};

/* The row of this number; NULL: there is none. */
static inline const struct rnic_message *rnic_message_of(uint32_t type)
{
#define RNIC_ROW(NAME, name, number, who, request, reply, fds_in, fds_out)                                             \
	{#name, number, who, RNIC_BODY_SIZE(request), RNIC_BODY_SIZE(reply), fds_in, fds_out},
	static const struct rnic_message rows[] = {RNIC_MESSAGES(RNIC_ROW)};
#undef RNIC_ROW
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i)
		if (rows[i].type == type)
			return &rows[i];
	return NULL;
}

#endif
