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

/* ---- Direct verbs ------------------------------------------------------------------------ */

/* Asked by STag, of which the index alone counts. EINVAL: no such region of this context (window, of the next). */
struct rnic_query_mr_reply {
	uint32_t stag; /* its key is 0 while it is Invalid */
	uint32_t pd;
	uint32_t access;  /* RNIC_ACCESS_* */
	uint32_t flags;   /* RNIC_STAG_* */
	uint32_t pages;   /* of the longest page list that it has room for */
	uint32_t windows; /* bound to it */
	uint64_t base;    /* the TO of its first octet */
	uint64_t length;
	uint64_t address; /* of its first octet, in the application */
	uint32_t rung;    /* enum rnic_rung */
	uint32_t reserved;
};
#define RNIC_STAG_VALID 0x1u
#define RNIC_STAG_SHARED 0x2u

struct rnic_query_mw_reply {
	uint32_t stag; /* as of a region */
	uint32_t pd;
	uint32_t access;
	uint32_t flags; /* RNIC_STAG_VALID */
	uint64_t base;
	uint64_t length;
	uint32_t qp_number; /* bound on; 0: it is not, or is for its PD */
	uint32_t scope;     /* enum rnic_window_scope */
};

/* Another region over the memory of one that is Valid. EINVAL: there is none of that STag, or it cannot be so. */
struct rnic_reg_shared_mr {
	uint32_t mr; /* its handle */
	uint32_t stag;
	uint32_t pd;
	uint32_t access;
	uint64_t iova;
	uint32_t key;
	uint32_t reserved;
};

/* An STag without memory, Invalid: a region's, which DEREG_MR ends. */
struct rnic_alloc_stag {
	uint32_t pd;
	uint32_t access; /* 0, or RNIC_ACCESS_NO_REMOTE */
	uint32_t pages;  /* of the longest page list that it is to have room for: 1 to RNIC_PAGE_LIST_MAX */
	uint32_t reserved;
};

struct rnic_alloc_stag_reply {
	uint32_t mr;
	uint32_t stag;
	uint32_t pages; /* as many, or more */
	uint32_t reserved;
};

/*
 * Descriptors out of DIRECT_EVENTS: the reading end of a SEQPACKET socket with what ibverbs has no event type for, from
 * then on: uint64_t user pointer of a QP, uint32_t enum rnic_direct_event, uint32_t 0. One a context: EBUSY.
 */
enum rnic_direct_event {
	RNIC_EVENT_RECEIVE_LIMIT = 40, /* the row's number in the specification */
	RNIC_EVENT_STREAM = 256,       /* in place of a QP: a stream, of which see below */
};

/*
 * Streams in streaming mode: TCP connections whose octets an application exchanges with its peer's, until START_IWARP
 * gives one to a queue pair. Nothing of these waits. EINVAL: this context has no such stream, or listener. A stream is
 * told by RNIC_EVENT_STREAM, with its user pointer, when it opens or ends, and once after EAGAIN: when it can be asked
 * again. It ends with STREAM_CLOSE, or with START_IWARP. Of RoCE faces: EOPNOTSUPP.
 */
#define RNIC_STREAM_OCTETS_MAX 4096u

struct rnic_stream_connect {
	struct rnic_address local, remote; /* local: family 0, as routes say; port 0, any */
	uint32_t traffic_class;
	uint32_t reserved;
	uint64_t user_pointer;
};

struct rnic_stream_listen {
	struct rnic_address local; /* its port is said */
	uint32_t backlog;
	uint32_t reserved;
	uint64_t user_pointer;
};

struct rnic_stream_accept { /* EAGAIN: nobody has called */
	uint32_t listener;
	uint32_t reserved;
	uint64_t user_pointer; /* of the new stream */
};

struct rnic_stream_send { /* reply: rnic_handle_reply, how many were taken; EAGAIN: none */
	uint32_t stream;
	uint32_t length;
	uint8_t octets[RNIC_STREAM_OCTETS_MAX];
};

struct rnic_stream_receive {
	uint32_t stream;
	uint32_t length; /* at most so many */
};

struct rnic_stream_received { /* EAGAIN: there are none */
	uint32_t length;      /* 0: the peer has closed */
	uint32_t reserved;
	uint8_t octets[RNIC_STREAM_OCTETS_MAX];
};

enum rnic_stream_state {
	RNIC_STREAM_OPENING = 0,
	RNIC_STREAM_OPEN = 1,
	RNIC_STREAM_ENDED = 2,
	RNIC_STREAM_LISTENS = 3,
};

struct rnic_stream_query_reply {
	uint32_t state; /* enum rnic_stream_state */
	uint32_t error; /* errno with which it ended */
	struct rnic_address local, remote;
	uint64_t number; /* rnic_query_qp_reply.stream */
};

/*
 * Idle to RTS: the message leaves, then the queue pair has the stream. EINVAL: it is not in Idle, or an attribute is
 * out of range; ENOTCONN: the stream is none of this context's, or not established (V-IS-25); ENOMEM: no buffers.
 * The queue pair has not changed then.
 */
struct rnic_start_iwarp {
	uint32_t qp_number;
	uint32_t mask; /* RNIC_MODIFY_ORD, _IRD, _RECEIVE_LIMIT: which of the next are said */
	uint32_t ord, ird;
	uint32_t receive_limit;
	uint32_t stream;
	uint32_t message_length; /* 0: none */
	uint32_t reserved;
	uint8_t message[RNIC_STREAM_OCTETS_MAX];
};

/* ---- Connection management --------------------------------------------------------------- */

/*
 * Descriptors out of CM_OPEN: the reading end of a stream socket on which an octet comes for each
 * pending event, and a socket whose reading end sees EOF never while the daemon lives (a dup of nothing
 * an application reads: the stand-in's watcher uses it to notice the daemon's end). The stand-in
 * holds that socket as long as the channel is open, and so does a child of fork: when the daemon
 * sees it hung up, no process has the channel any more.
 *
 * Without a request structure, CM_OPEN makes a channel. With one it makes the channel of that
 * token usable on this connection too (a child of fork); the reply is of the same form, and the
 * descriptors may be left out. A channel lives until CM_CLOSE, or until that socket hangs up;
 * the end of the connection that made it is not its end while a child of fork has it.
 */
struct rnic_cm_open {
	uint8_t token[16];
};

struct rnic_cm_open_reply {
	uint32_t channel;
	uint32_t reserved;
	uint8_t token[16]; /* names the channel on another connection of the same user (after fork) */
};

struct rnic_cm_create_id {
	uint32_t channel;
	uint32_t port_space; /* 0x0106 TCP; of RoCE faces 0x0111 UDP, 0x0002 IPOIB too; others: EINVAL */
	uint32_t qp_type;
	uint32_t reserved;
	uint64_t uid;
};
/* reply: rnic_handle_reply (id) */

/* CM_DESTROY_ID: rnic_handle, with this in `reserved` or nothing. EAGAIN, and nothing is destroyed: an event of the id
 * was told a moment ago, and a thread may be on its way to it, which would wait for ever for one that is gone
 * (rping of rdma-core 59 and later). Who is told so asks again soon, and without it in the end. */
#define RNIC_CM_NOT_JUST_TOLD 0x1u

/* CM_DESTROY_ID, MIGRATE: how many events of this id were reported to the application. The
 * daemon has purged `purged` undelivered ones: the stand-in reads that many octets from the
 * channel's socket without blocking. */
struct rnic_cm_destroy_id_reply {
	uint32_t events_reported;
	uint32_t purged;
};

struct rnic_cm_bind {
	uint32_t id;
	uint32_t reserved;
	struct rnic_address address;
};

struct rnic_cm_resolve_address {
	uint32_t id;
	uint32_t timeout_ms;
	struct rnic_address source; /* family 0: none given */
	struct rnic_address destination;
};

struct rnic_cm_resolve_route {
	uint32_t id;
	uint32_t timeout_ms;
};

struct rnic_cm_query_reply { /* request: rnic_handle */
	uint64_t node_guid;  /* network order; 0 while not bound to a device */
	uint32_t port_number;
	uint32_t device_index;
	struct rnic_address source, destination;
	/* Of a RoCE face: the path record, once there is a route. */
	uint32_t path_count; /* 0 or 1 */
	uint8_t path_mtu;    /* enum ibv_mtu */
	uint8_t path_life_time, traffic_class, hop_limit;
	uint8_t source_gid[16], destination_gid[16];
};

struct rnic_cm_parameters {
	uint32_t qp_number;
	uint32_t srq;
	uint8_t responder_resources; /* IRD */
	uint8_t initiator_depth;     /* ORD */
	uint8_t flow_control;
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	uint8_t valid;
	uint16_t private_data_length;
	uint32_t ece_vendor, ece_options; /* struct ibv_ece's, of a RoCE face */
	uint8_t private_data[RNIC_PRIVATE_DATA_MAX];
};

struct rnic_cm_connect { /* CONNECT, ACCEPT */
	uint32_t id;
	uint32_t qkey; /* ACCEPT of an id for datagrams; 0: rdma_cm's own */
	uint64_t uid;  /* ACCEPT: binds it to the id */
	struct rnic_cm_parameters parameters;
};

struct rnic_cm_listen {
	uint32_t id;
	uint32_t backlog;
};

struct rnic_cm_reject {
	uint32_t id;
	uint16_t private_data_length;
	uint16_t for_ece; /* of a RoCE face: 1: for the caller's ECE options */
	uint8_t private_data[RNIC_PRIVATE_DATA_MAX];
};

struct rnic_cm_init_qp_attributes {
	uint32_t id;
	uint32_t state; /* ibv_qp_state asked for */
};

/* What ibv_modify_qp is to be given: of an iWARP face state and rights; of a RoCE face what InfiniBand asks for. */
#define RNIC_CM_ATTRIBUTES_STATE 0x1u
#define RNIC_CM_ATTRIBUTES_ACCESS 0x2u
#define RNIC_CM_ATTRIBUTES_INIT 0x4u /* with port 1 and the P_Key at 0 */
#define RNIC_CM_ATTRIBUTES_RTR 0x8u
#define RNIC_CM_ATTRIBUTES_RTS 0x10u
#define RNIC_CM_ATTRIBUTES_QKEY 0x20u      /* of ids for datagrams */
#define RNIC_CM_ATTRIBUTES_OF_DEVICE 0x40u /* beside these: so it is for all streams of this device, at any time */

struct rnic_cm_init_qp_attributes_reply {
	uint32_t mask; /* RNIC_CM_ATTRIBUTES_* */
	uint32_t state;
	uint32_t access; /* RNIC_ACCESS_* */
	uint32_t peer_number;
	uint32_t receive_psn, send_psn;
	uint32_t gid_index;
	uint8_t path_mtu; /* enum ibv_mtu */
	uint8_t responder_resources, initiator_depth;
	uint8_t timeout, retry_count, rnr_retry, min_rnr_timer;
	uint8_t traffic_class;
	uint8_t hop_limit;
	uint8_t reserved[3];
	uint8_t peer_gid[16];
	uint32_t qkey;
};

/* Numbers of enum rdma_cm_event_type. CONNECT_RESPONSE, TIMEWAIT_EXIT and MULTICAST_* are a RoCE face's. */
enum rnic_cm_event {
	RNIC_CM_ADDRESS_RESOLVED = 0,
	RNIC_CM_ADDRESS_ERROR = 1,
	RNIC_CM_ROUTE_RESOLVED = 2,
	RNIC_CM_CONNECT_REQUEST = 4,
	RNIC_CM_CONNECT_RESPONSE = 5, /* to be answered by ACCEPT without parameters */
	RNIC_CM_CONNECT_ERROR = 6,
	RNIC_CM_UNREACHABLE = 7,
	RNIC_CM_REJECTED = 8,
	RNIC_CM_ESTABLISHED = 9,
	RNIC_CM_DISCONNECTED = 10,
	RNIC_CM_DEVICE_REMOVAL = 11,
	RNIC_CM_MULTICAST_JOIN = 12,
	RNIC_CM_MULTICAST_ERROR = 13,
	RNIC_CM_TIMEWAIT_EXIT = 15
};

/* To whom datagrams go. */
struct rnic_cm_way {
	uint32_t qkey;
	uint32_t gid_index;
	uint8_t gid[16];
	uint8_t traffic_class, hop_limit; /* 0: no way is told */
	uint8_t reserved[2];
};

/* GET_EVENT: request rnic_handle (channel). Nothing pending: EAGAIN. The caller has read one
 * octet from the channel's socket. */
struct rnic_cm_get_event_reply {
	uint64_t uid; /* CONNECT_REQUEST: the listener's; MULTICAST_*: the membership's */
	uint32_t id;  /* CONNECT_REQUEST: the new id */
	uint32_t event;
	int32_t status; /* negative errno, or of a RoCE face InfiniBand's: its reason, or SIDR's status */
	uint32_t listener;
	struct rnic_cm_parameters parameters;
	/* Of an id for datagrams: of the parameters only the number and the private data are of it. */
	struct rnic_cm_way way;
	uint32_t datagrams;
};

struct rnic_cm_set_option {
	uint32_t id;
	uint32_t level;
	uint32_t option;
	uint32_t length;
	uint8_t value[64];
};

struct rnic_cm_notify {
	uint32_t id;
	uint32_t event;
};

/* Moves an id, and its pending events, to another channel. The old channel is named by the id;
 * `purged` octets are to be read from the old channel's socket; the daemon sends as many events' on
 * the new one's. */
struct rnic_cm_migrate_id {
	uint32_t id;
	uint32_t channel;
};
struct rnic_cm_migrate_id_reply {
	uint32_t events_reported;
	uint32_t purged;
	uint32_t old_channel;
	uint32_t reserved;
};

/* Of an id for datagrams that has a device: MULTICAST_JOIN or MULTICAST_ERROR comes. Reply: rnic_handle_reply, the
 * membership, which ends with CM_LEAVE or with its id. */
#define RNIC_CM_SEND_ONLY 0x1u
struct rnic_cm_join {
	uint32_t id;
	uint32_t flags; /* RNIC_CM_SEND_ONLY */
	uint64_t uid;
	struct rnic_address group;
};
/* CM_LEAVE: rnic_handle (the membership); reply: rnic_cm_leave_reply, of its events as CM_DESTROY_ID. */
struct rnic_cm_leave_reply {
	uint32_t events_reported;
	uint32_t purged;
	uint32_t id;
	uint32_t reserved;
};

/* ---- Administration ---------------------------------------------------------------------- */

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
