/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Messages of the provider (rnic_control.h): memory, queues, queue pairs, multicast groups. */
#ifndef RNIC_CONTROL_VERBS_H
#define RNIC_CONTROL_VERBS_H

#include "rnic_control_common.h"

/* How a range is to be reached: rnic_reg_mr.shared. */
enum rnic_memory {
	RNIC_MEMORY_APPLICATION = 0, /* by remote copy */
	RNIC_MEMORY_SHARED = 1,      /* all of it is a shared mapping of the descriptor's file */
	RNIC_MEMORY_SWAPPED = 2,     /* its whole pages are, of a memfd sealed against any other size */
};
#define RNIC_SWAP_PAGE_BYTES 4096
#define RNIC_SWAP_FILE_NAME "rnic-fast-memory" /* memfd_create's, by which the stand-in knows such memory */

/*
 * Descriptors in: where `shared` is not 0, the descriptor of the file that the range, or the whole
 * pages in it, are a shared mapping of. The reply's stag is lkey and rkey.
 */
struct rnic_reg_mr {
	uint32_t pd;
	uint32_t access; /* RNIC_ACCESS_* */
	uint64_t start;  /* in the application */
	uint64_t length;
	uint64_t iova;          /* the TO of its first octet; zero-based: 0 */
	uint32_t shared;        /* enum rnic_memory */
	uint32_t key;           /* the STag's lower 8 bits */
	uint64_t shared_offset; /* in the file, of the first octet that is shared */
	uint32_t pages;         /* it is of a page list of so many; 0: it is a range */
	uint32_t reserved;
};

/* How a region's octets move (docs/architecture.md s6). `rnic show mr` says the numbers. */
enum rnic_rung {
	RNIC_RUNG_SHARED = 2,      /* all of it is mapped in the daemon, too */
	RNIC_RUNG_SWAPPED = 3,     /* its whole pages are */
	RNIC_RUNG_REMOTE_COPY = 4, /* by system calls */
};

struct rnic_reg_mr_reply {
	uint32_t mr;
	uint32_t stag;
	uint32_t rung; /* enum rnic_rung */
	uint32_t reserved;
};

/*
 * Descriptors in: as of REG_MR; what cannot be mapped is reached by remote copy. EBUSY: a window is bound to the
 * region, which is as it was. After any other error nothing is registered; the handle stays, for DEREG_MR alone.
 */
struct rnic_rereg_mr {
	uint32_t mr;
	uint32_t impossible;   /* the application cannot have what it wants: not 0, and `to` is not looked at */
	struct rnic_reg_mr to; /* all that it is to be, changed or not */
};

/*
 * A completion channel. Descriptors out: the reading end of a SEQPACKET socket, which carries
 * uint64_t user pointers of CQs (struct ib_uverbs_comp_event_desc). `cookie` is SO_COOKIE of that
 * reading end: with CREATE_CQ, the provider names the channel by it, asking the kernel for the
 * SO_COOKIE of the descriptor that libibverbs holds.
 */
struct rnic_create_channel_reply {
	uint32_t channel;
	uint32_t reserved;
	uint64_t cookie;
};

struct rnic_create_cq {
	uint32_t entries_min;
	uint32_t vector;
	uint64_t user_pointer;   /* struct ibv_cq *, the content of its events */
	uint64_t channel_cookie; /* 0: no channel */
	uint32_t flags;          /* RNIC_CQ_TIMES */
	uint32_t reserved;
};
#define RNIC_CQ_TIMES 0x1u /* its completions say when they were made */

struct rnic_create_cq_reply { /* descriptors: arena if new; with a channel, its writing end */
	uint32_t cq;
	uint32_t entries; /* a power of two */
	struct rnic_area area;
};

/* For a send queue that has none: memory for the data of STAGED entries. ENOMEM: the process has as much as it may. */
struct rnic_transmit_memory {
	uint32_t qp;
	uint32_t reserved;
	uint64_t length; /* a power of two, at most RNIC_TRANSMIT_MEMORY_MAX */
};
#define RNIC_TRANSMIT_MEMORY_MAX (8u << 20)

struct rnic_resize_cq { /* the provider holds the CQ's lock during the call */
	uint32_t cq;
	uint32_t entries_min;
};

/* The new ring; unpolled entries have been copied to its front with phase 1 and consumption
 * restarts at index 0 of the new ring. Entries 0: nothing has changed. The ring would lie in an
 * arena that is new; it comes with this reply, to be mapped before the provider asks again. So
 * that a ring is never out of its reach, it has mapped all older arenas before. */
struct rnic_resize_cq_reply {
	uint32_t entries;
	uint32_t reserved;
	struct rnic_area area;
};

/* After it no event of this CQ is sent; those already in the channel's socket remain for the
 * provider to drain (see HOLD_EVENTS). So it is with the async events of what is destroyed. */
struct rnic_destroy_cq_reply {
	uint32_t events_sent;
	uint32_t reserved;
};

/*
 * From HOLD_EVENTS to RELEASE_EVENTS the daemon writes nothing into one event socket; what comes
 * meanwhile is written after it, in order. The provider drains the socket between the two, and
 * puts back what is not of the object that went: there is room for that, as nobody else makes use
 * of it. A context holds one socket at a time, and its end is the end of the hold.
 */
struct rnic_hold_events {
	uint64_t channel_cookie; /* as in rnic_create_cq; 0: the async events of the context */
};

struct rnic_create_srq {
	uint32_t pd;
	uint32_t wr_min;
	uint32_t sge_max;
	uint32_t limit;
	uint64_t user_pointer;
};

struct rnic_create_srq_reply {
	uint32_t srq;
	uint32_t entries;
	uint32_t stride;
	uint32_t sge_max;
	uint32_t doorbell;
	uint32_t reserved;
	struct rnic_area area;
};

#define RNIC_SRQ_LIMIT 0x1u
#define RNIC_SRQ_ENTRIES 0x2u

/* All that is asked for, or nothing. */
struct rnic_modify_srq {
	uint32_t srq;
	uint32_t set;   /* RNIC_SRQ_* */
	uint32_t limit; /* sets and arms; 0 disarms */
	uint32_t wr_min;
	uint32_t in_use; /* receives that are posted and whose completions are not polled: it will not be smaller */
	uint32_t reserved;
};

struct rnic_modify_srq_reply {
	uint32_t entries; /* 0: as in rnic_resize_cq_reply; or the size was not to change, and all is done */
	uint32_t reserved;
	struct rnic_area area; /* of a new size: the ring is there now, each entry at its index, `produced` too */
};

struct rnic_query_srq_reply {
	uint32_t entries;
	uint32_t sge_max;
	uint32_t limit;       /* 0 once fired */
	uint32_t limit_given; /* as it was armed last */
};

struct rnic_create_qp {
	uint32_t pd;
	uint32_t send_cq;
	uint32_t recv_cq;
	uint32_t srq; /* 0: none */
	uint32_t send_wr_min, recv_wr_min;
	uint32_t send_sge_max, recv_sge_max;
	uint32_t inline_max;
	uint32_t type;          /* enum rnic_qp_type */
	uint64_t user_pointer;  /* struct ibv_qp *, the content of its events */
	uint32_t receive_limit; /* with an SRQ: the RQ Limit, armed; 0: none */
	uint32_t flags;         /* RNIC_QP_* */
};
/* EPERM: not for this application. Fast-Register may be posted. */
#define RNIC_QP_PRIVILEGED 0x1u
#define RNIC_QP_NO_BIND 0x2u /* Binds are refused */

enum rnic_qp_type { RNIC_QP_RC = 0, RNIC_QP_UD = 1 };

struct rnic_create_qp_reply {
	uint32_t qp_number; /* also the handle; never 0, 24 bits */
	uint32_t send_entries, send_stride, send_sge_max, send_doorbell;
	uint32_t recv_entries, recv_stride, recv_sge_max, recv_doorbell;
	uint32_t inline_max;
	struct rnic_area send_area;
	struct rnic_area recv_area; /* length 0 with an SRQ */
};

/* The states of verbs.md s2, and what ibv_qp_state they are to an application. */
enum rnic_qp_state { RNIC_QP_IDLE = 0, RNIC_QP_RTS = 1, RNIC_QP_CLOSING = 2, RNIC_QP_TERMINATE = 3, RNIC_QP_ERROR = 4 };

/*
 * What an application calls Idle: the values of enum ibv_qp_state. RESET from the creation on, and
 * whenever the queue pair comes to Idle again; INIT or RTR from a Modify that says so. RTS: one that
 * has been given its peer (RNIC_MODIFY_PEER) and waits for it.
 */
enum rnic_idle_name { RNIC_IDLE_RESET = 0, RNIC_IDLE_INIT = 1, RNIC_IDLE_RTR = 2, RNIC_IDLE_RTS = 3 };

#define RNIC_MODIFY_STATE 0x1u
#define RNIC_MODIFY_ACCESS 0x2u
#define RNIC_MODIFY_ORD 0x4u
#define RNIC_MODIFY_IRD 0x8u
/*
 * Where the device has RNIC_CAP_OOB_CONNECT. PEER, with RNIC_IDLE_RTR out of RNIC_IDLE_INIT: the daemon
 * connects it with that queue pair, as soon as that has been given this one. PSN, with RNIC_IDLE_RTS
 * after it, connected or not: what is posted from then on waits for the peer.
 */
#define RNIC_MODIFY_PEER 0x10u
#define RNIC_MODIFY_PSN 0x20u
/* Where it has RNIC_CAP_ROCE, in every state: the four of rnic_modify_qp that are octets. */
#define RNIC_MODIFY_PATIENCE 0x40u
/*
 * Of a queue pair of type UD, which has STATE and this alone: its Q_Key. It is RESET, INIT or RTR in RNIC_QP_IDLE, SQE
 * in RNIC_QP_TERMINATE, and never in RNIC_QP_CLOSING; RTS is asked for as RNIC_QP_RTS.
 */
#define RNIC_MODIFY_Q_KEY 0x1000u
/* In Idle and in RTS, with an SRQ. */
#define RNIC_MODIFY_RECEIVE_LIMIT 0x80u

struct rnic_modify_qp {
	uint32_t qp_number;
	uint32_t mask;
	uint32_t state; /* rnic_qp_state; to RTS only by the connection manager: EINVAL */
	uint32_t access;
	uint32_t ord, ird;
	uint32_t idle_name; /* rnic_idle_name; with RNIC_MODIFY_STATE to RNIC_QP_IDLE */
	uint32_t psn;       /* PEER: the one due from the peer; PSN: its own */
	uint32_t peer_number;
	uint32_t gid_index; /* which of its device's GIDs the peer knows it by */
	uint32_t has_route; /* the address vector has a GRH; else, or where peer_gid is all zeros, it is refused */
	uint32_t traffic_class;
	uint8_t peer_gid[16];
	uint8_t timeout, retry_count, rnr_retry, min_rnr_timer; /* in InfiniBand's codes */
	uint32_t receive_limit;                                 /* sets and arms; 0 disarms */
	uint32_t q_key;
};

/* CHECK_GID: request rnic_handle, an index of the device's table of GIDs. EINVAL: no GID is there now. */

/* ATTACH_MCAST, DETACH_MCAST: datagrams to a group, an IP address as a GID, are for this queue pair of type UD, too. */
struct rnic_mcast {
	uint32_t qp_number;
	uint32_t reserved;
	uint8_t gid[16];
};

struct rnic_query_qp_reply {
	uint32_t state;
	uint32_t access;
	uint32_t ord, ird;
	uint32_t terminate_length; /* octets of terminate[] */
	uint32_t terminate_origin; /* 0 none, 1 local, 2 remote */
	uint32_t idle_name;        /* rnic_idle_name; of RNIC_QP_IDLE, and of RNIC_QP_RTS where PEER was given */
	uint32_t flags;            /* RNIC_QP_*, RNIC_QP_LIMIT_ARMED */
	struct rnic_address local, remote;
	uint8_t terminate[64];
	uint64_t stream; /* which of its device's it has; 0: none */
	uint32_t receive_limit;
	uint32_t reserved;
};
#define RNIC_QP_LIMIT_ARMED 0x10000u

/* Whom a bound window is for. */
enum rnic_window_scope {
	RNIC_WINDOW_OF_QP = 0, /* the queue pair that it was bound on: InfiniBand's type 2 */
	RNIC_WINDOW_OF_PD = 1, /* all queue pairs of its PD, and it may be bound anew while it is bound: type 1 */
};

struct rnic_alloc_mw {
	uint32_t pd;
	uint32_t key;   /* the STag's lower 8 bits, while it is not bound */
	uint32_t scope; /* enum rnic_window_scope */
	uint32_t reserved;
};

struct rnic_alloc_mw_reply {
	uint32_t mw;
	uint32_t stag;
};

/* An application asked for what its device could do and does not, and was refused: for the log, once of each. */
enum rnic_extension { RNIC_EXTENSION_ATOMICS = 1, RNIC_EXTENSION_IMMEDIATE = 2 };

struct rnic_not_offered {
	uint32_t extension; /* enum rnic_extension */
	uint32_t reserved;
};

#endif
