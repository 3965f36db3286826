/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What all messages of rnic_control.h have in common, HELLO, and the opening of devices. */
#ifndef RNIC_CONTROL_COMMON_H
#define RNIC_CONTROL_COMMON_H

#include <stddef.h>
#include <stdint.h>

#include "rnic_messages.h"
#include "rnic_shm.h"

#define RNIC_MSG_MAX 8192u /* octets in one message, header and all */
#define RNIC_NAME_MAX 32u
#define RNIC_PRIVATE_DATA_MAX 512u
#define RNIC_FDS_MAX 24u

/* Which kinds of client (rnic_hello.kind) may ask: a bit for each. */
#define RNIC_OF_VERBS (1u << RNIC_CLIENT_VERBS)
#define RNIC_OF_CM (1u << RNIC_CLIENT_CM)
#define RNIC_OF_ADMIN (1u << RNIC_CLIENT_ADMIN)
#define RNIC_OF_ANY (RNIC_OF_VERBS + RNIC_OF_CM + RNIC_OF_ADMIN)

enum rnic_msg_type {
#define RNIC_NUMBER_OF(NAME, name, number, ...) RNIC_##NAME = (number),
	RNIC_MESSAGES(RNIC_NUMBER_OF)
#undef RNIC_NUMBER_OF
};

struct rnic_msg {
	uint32_t type;
	uint32_t id;
	int32_t status;
	uint32_t length; /* of the whole message */
};

struct rnic_address {
	uint16_t family; /* AF_INET, AF_INET6; 0: none */
	uint16_t port;   /* network order */
	uint32_t scope;
	uint8_t octets[16]; /* IPv4: the first four */
};

/* ---- HELLO, devices ---------------------------------------------------------------------- */

enum rnic_client_kind { RNIC_CLIENT_VERBS = 1, RNIC_CLIENT_CM = 2, RNIC_CLIENT_ADMIN = 3 };

/*
 * Connections of one user with the same `process` are of one process, and what one of them made (a
 * completion channel, a queue pair) can be named on the others. The process draws it at random and
 * tells nobody; a pid would not do, as it is used again. A child of fork draws its own: its objects
 * are its own, and of its parent's only a channel of rdma_cm is open to it (rnic_cm_open).
 */
#define RNIC_PROCESS_TOKEN 16u

struct rnic_hello {
	uint32_t abi_version;
	uint32_t kind;
	uint32_t pid; /* for the daemon's words only; it trusts SO_PEERCRED */
	uint32_t reserved;
	uint8_t process[RNIC_PROCESS_TOKEN]; /* all 0: of a process of its own */
	char device[RNIC_NAME_MAX];          /* sees only this device; empty: all */
};

struct rnic_hello_reply {
	uint32_t abi_version;
	uint32_t generation;
	uint32_t daemon_pid;
	uint32_t device_count;
	uint32_t control_mode; /* 1: personal, 2: system */
	uint32_t reserved;
};

/* What applications take a device for, and how its queue pairs speak with their peers. */
enum rnic_face { RNIC_FACE_IWARP = 0, RNIC_FACE_ROCE = 1 };

struct rnic_device_info {
	char name[RNIC_NAME_MAX];
	char netdev[RNIC_NAME_MAX]; /* a kernel interface to name for it ("lo" where there is none) */
	uint64_t node_guid;         /* network order */
	uint32_t index;
	uint32_t mtu;
	uint8_t mac[6];
	uint8_t link_up;
	uint8_t address_mode; /* 1 own, 2 local, 3 shared */
	uint32_t address_count;
	struct rnic_address addresses[8];
	uint8_t prefix_lengths[8];
	uint32_t face; /* enum rnic_face */
};

struct rnic_list_devices_reply {
	uint32_t count;
	uint32_t reserved;
	struct rnic_device_info devices[]; /* as many as fit; count says how many follow */
};

/* ---- Contexts ---------------------------------------------------------------------------- */

struct rnic_device_attributes {
	uint64_t max_mr_size;
	uint64_t page_size_cap;
	uint64_t node_guid; /* network order */
	uint32_t vendor_id, vendor_part_id, hw_version;
	uint32_t max_qp, max_qp_wr, max_sge, max_sge_read;
	uint32_t max_cq, max_cqe;
	uint32_t max_mr, max_pd, max_mw;
	uint32_t max_read_in, max_read_out; /* IRD and ORD of one QP */
	uint32_t max_srq, max_srq_wr, max_srq_sge;
	uint32_t max_inline;
	uint32_t completion_vectors;
	uint32_t atomics; /* 0 none, 1 HCA */
	uint32_t capabilities;
	uint32_t mtu; /* of the port, IP octets; with RNIC_CAP_UD what one frame holds of a datagram, at most */
	uint32_t speed_mbps;
	char firmware[32];
};

#define RNIC_CAP_INVALIDATE 0x1u /* Send with Invalidate and local invalidate */
#define RNIC_CAP_IMMEDIATE 0x4u
#define RNIC_CAP_OOB_CONNECT 0x8u /* RNIC_MODIFY_PEER: queue pairs that meet without rdma_cm */
#define RNIC_CAP_ROCE 0x10u       /* its face: RNIC_FACE_ROCE */
#define RNIC_CAP_UD 0x200u        /* queue pairs of type UD, and multicast groups */
/* What a Modify of an Idle queue pair may do after its creation; what is detected; the order of receives. */
#define RNIC_CAP_MODIFY_IRD 0x20u
#define RNIC_CAP_RAISE_ORD 0x40u
#define RNIC_CAP_CQ_OVERFLOW 0x80u
#define RNIC_CAP_SRQ_ARRIVAL 0x100u /* receives of an SRQ are taken in the order that messages come in */

/*
 * Descriptors in: the application's /proc/self/mem, opened read-write (absent where there is no
 * /proc). Out: the status page (a memfd, to be mapped read-only, sizeof(struct rnic_status_page)),
 * the doorbells (a memfd: worker_count times sizeof(struct rnic_doorbells)), the async event
 * socket (SEQPACKET, reading end; it carries struct ib_uverbs_async_event_desc-shaped messages:
 * uint64_t element, uint32_t event_type, uint32_t reserved), a copy of its writing end, then
 * worker_count eventfds.
 *
 * helper_tid: a thread of the application that never calls exec; remote copies go by its id, so
 * that they end when the address space is replaced (the kernel ends all other threads of a
 * process before exec gives it a new address space). 0: none.
 */
struct rnic_open_context {
	char device[RNIC_NAME_MAX];
	uint32_t helper_tid;
	uint32_t reserved;
};

struct rnic_open_context_reply {
	uint32_t context;
	uint32_t worker_count;
	struct rnic_device_attributes attributes;
	struct rnic_device_info device;
};

/* A piece of shared memory. `arena` numbers the memfds of a context from 0; where arena_is_new,
 * its memfd comes as a descriptor with the reply (the first one not taken by another use), to be
 * mapped whole: arena_size octets. It comes with one reply only; where it could not be received
 * (EMFILE) or mapped, MAP_ARENA asks for it again: rnic_handle, an arena's number. The reply is
 * rnic_area, all of it. */
struct rnic_area {
	uint32_t arena;
	uint32_t arena_is_new;
	uint64_t arena_size;
	uint64_t offset;
	uint64_t length;
};

struct rnic_handle { /* the request of every DESTROY, DEALLOC and QUERY that needs no more */
	uint32_t handle;
	uint32_t reserved;
};

struct rnic_handle_reply { /* ALLOC_PD, REG_MR's key etc. where nothing more is answered */
	uint32_t handle;
	uint32_t reserved;
};

#endif
