/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Messages of the rnic command, and of RDMA netlink (rnic_control.h). */
#ifndef RNIC_CONTROL_ADMIN_H
#define RNIC_CONTROL_ADMIN_H

#include "rnic_control_common.h"

struct rnic_show {
	char what[16]; /* dev qp cq mr conn port stats; empty: all */
};
/*
 * reply: descriptor of a memfd with JSON text; rnic_handle_reply.handle is its length. EBUSY: an earlier reply has not
 * been read.
 */

/*
 * Frames of a device, or of all, go to rings (abi/rnic_capture.h) from now until the connection ends.
 * EBUSY: this connection captures already; ENOSPC: as many do as can. Descriptors out: a memfd for each
 * device, in the order of the reply, to be mapped whole.
 */
struct rnic_capture {
	char device[RNIC_NAME_MAX]; /* empty: all */
};
/* reply: rnic_list_devices_reply, of the devices that are captured */

/*
 * Resets the streams between these two, as SHOW tells of them, whoever's they are and however far they have come.
 * ENOENT: there is none.
 */
struct rnic_kill {
	struct rnic_address local, remote;
};

/* Messages to RDMA netlink (<rdma/rdma_netlink.h>), of those that read. */
#define RNIC_NETLINK_MAX 256
struct rnic_netlink {
	uint32_t length;  /* of the messages, nlmsg_len included; 0: whether such are answered at all */
	uint32_t port_id; /* the asker's, for nlmsg_pid of the answers */
	uint8_t octets[RNIC_NETLINK_MAX];
};
/* reply: as of SHOW, with the messages that answer */

#endif
