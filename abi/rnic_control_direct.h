/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Messages of the direct verbs (rnic_control.h): what ibverbs cannot say, and streams in streaming mode. */
#ifndef RNIC_CONTROL_DIRECT_H
#define RNIC_CONTROL_DIRECT_H

#include "rnic_control_common.h"

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

#endif
