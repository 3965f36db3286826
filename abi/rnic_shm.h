/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The memory that an application's provider and the data plane share: queues, doorbells,
 * wake-up words. C11 and C++20, no other include.
 *
 * A change of a size, an offset or a meaning here raises RNIC_ABI_VERSION. The two sides
 * compare versions when a context is opened, and refuse to talk if they differ.
 *
 * The data plane trusts nothing in this memory (V-SEC-08..12): it copies an entry once, checks
 * the copy, and uses the copy. Sizes, and how far it has read or written, are in its private
 * memory. What the application can spoil here is its own.
 *
 * A slot comes free by polling, not by execution (V-WR-05, V-SRQ-07): the producer's credit is in
 * the application's private memory. Each CQE names the slot of its WQE; send and receive queues
 * come free in order up to that slot (a later completion frees the unsignaled ones before it);
 * a shared receive queue frees that slot alone.
 */
#ifndef RNIC_SHM_H
#define RNIC_SHM_H

#include <stddef.h>
#include <stdint.h>

#define RNIC_ABI_VERSION 11u
#define RNIC_CACHE_LINE 64u
#define RNIC_WORKERS_MAX 16u

#ifdef __cplusplus
#define RNIC_STATIC_ASSERT static_assert
#else
#define RNIC_STATIC_ASSERT _Static_assert
#endif

/* ---- The read-only page ------------------------------------------------------------------ */

/*
 * One per context, written by the data plane, mapped read-only in the application.
 *
 * asleep[w] != 0: worker w blocks, or is about to, or has long not heard of this context: write 8
 * octets (the number 1) to its eventfd after ringing. Pairing: application: produced, doorbell,
 * seq_cst fence, load asleep. Worker: store asleep = 1, seq_cst fence, look at all doorbells once
 * more, then block.
 */
struct rnic_status_page {
	uint32_t abi_version;
	uint32_t generation; /* of the daemon; changes when it restarts */
	uint32_t worker_count;
	uint32_t dead; /* the daemon ends this context: everything is flushed by the provider */
	uint8_t pad[RNIC_CACHE_LINE - 16];
	struct {
		uint32_t asleep;
		uint8_t pad[RNIC_CACHE_LINE - 4];
	} worker[RNIC_WORKERS_MAX];
};
RNIC_STATIC_ASSERT(sizeof(struct rnic_status_page) == 64 * 17, "a line for each worker");

/* ---- Doorbells --------------------------------------------------------------------------- */

/*
 * One per context and worker. A queue (SQ, RQ or SRQ) has a doorbell index, given when it is made.
 * To ring, for a queue that is not watched: set its bit in words[], then the word's bit in summary[], then any = 1,
 * each only if not set already, each by an atomic or/exchange (seq_cst). The worker clears from the top: any, summary,
 * words, and then reads `produced` of the queues it found. Ringing twice is harmless. A ringer that finds `asleep`
 * set may write the number of its CPU, plus 1, to rung_from before it writes to its eventfd; the worker sets it to 0. A
 * hint: where the two are on one core the worker looks for another.
 *
 * There are enough for all queue pairs and shared receive queues that a device has, two for a queue pair.
 */
#define RNIC_DOORBELLS_MAX 163840u
struct rnic_doorbells {
	uint32_t any;
	uint32_t rung_from;
	uint8_t pad[RNIC_CACHE_LINE - 8];
	uint64_t summary[RNIC_DOORBELLS_MAX / 64 / 64];
	uint64_t words[RNIC_DOORBELLS_MAX / 64];
};
RNIC_STATIC_ASSERT(sizeof(struct rnic_doorbells) == 64 + 320 + 20480, "doorbell area");

/* ---- Work queues ------------------------------------------------------------------------- */

/*
 * Before the slots of a send, receive or shared receive queue. Indexes only grow, and wrap at
 * 2^32; the slot of index i is i & (size - 1); sizes are powers of two. Each index has its own
 * line and a single writer; who posts reads the line between them, which seldom changes.
 *
 * watched != 0: the worker looks at `produced` by itself, or nobody waits for it: no doorbell is needed. Pairing:
 * application: store produced, seq_cst fence, load watched. Worker: store watched = 0, seq_cst fence, look at
 * produced once more.
 */
struct rnic_ring_control {
	uint32_t produced; /* by the application, with release */
	uint8_t pad0[RNIC_CACHE_LINE - 4];
	uint32_t worker;  /* by the data plane: whose doorbells to ring for this queue */
	uint32_t watched; /* by the data plane */
	uint8_t pad1[RNIC_CACHE_LINE - 8];
	uint32_t taken; /* by the data plane, relaxed; for diagnostics only */
	uint8_t pad2[RNIC_CACHE_LINE - 4];
};
RNIC_STATIC_ASSERT(sizeof(struct rnic_ring_control) == 192, "three lines");

struct rnic_sge {
	uint64_t address;
	uint32_t length;
	uint32_t lkey;
};
RNIC_STATIC_ASSERT(sizeof(struct rnic_sge) == 16, "an SGE");

enum rnic_opcode {
	RNIC_OP_SEND = 0,
	RNIC_OP_SEND_INVALIDATE = 1,
	RNIC_OP_WRITE = 2,
	RNIC_OP_READ = 3,
	RNIC_OP_READ_INVALIDATE = 4,
	RNIC_OP_BIND = 5,
	RNIC_OP_LOCAL_INVALIDATE = 6,
	RNIC_OP_FETCH_ADD = 7,
	RNIC_OP_COMPARE_SWAP = 8,
	RNIC_OP_WRITE_IMMEDIATE = 9,
	RNIC_OP_FAST_REGISTER = 10,
	RNIC_OP_SEND_IMMEDIATE = 11, /* of a RoCE face */
	/* In send queues only: their completions have the opcodes without masks. */
	RNIC_OP_MASKED_FETCH_ADD = 12,
	RNIC_OP_MASKED_COMPARE_SWAP = 13,
	RNIC_OP_RECEIVE = 15, /* in completions only */
	RNIC_OP_RECEIVE_WRITE_IMMEDIATE = 16
};

#define RNIC_SQE_SIGNALED 0x01u
#define RNIC_SQE_FENCE 0x02u
#define RNIC_SQE_SOLICITED 0x04u
#define RNIC_SQE_INLINE 0x08u    /* data follows the header; there are no SGEs */
#define RNIC_SQE_COPIED 0x10u    /* SGEs, and then the data they name, gathered at post */
#define RNIC_SQE_IMMEDIATE 0x20u /* of a queue pair of type UD: with an immediate, in `invalidate` */
#define RNIC_SQE_STAGED 0x40u    /* as COPIED, but the data lies in the queue's transmit memory, from `argument` on */

/*
 * The header; at its end come sge_count SGEs, and after these the data of an INLINE or COPIED
 * entry. An entry has the stride given at creation, a multiple of 64.
 */
struct rnic_sqe {
	uint8_t opcode;
	uint8_t flags;
	uint8_t sge_count;
	uint8_t reserved0;
	uint32_t length; /* octets of data in the entry (INLINE, COPIED), or STAGED; else not looked at */
	uint64_t remote_address;
	uint32_t rkey;       /* remote STag; the window's new rkey for BIND; the STag for LOCAL_INVALIDATE */
	uint32_t invalidate; /* STag for SEND_INVALIDATE; immediate (network order); BIND: MR's lkey */
	uint64_t argument;   /* FETCH_ADD: add; COMPARE_SWAP: compare; BIND: length; STAGED: an offset */
};
RNIC_STATIC_ASSERT(sizeof(struct rnic_sqe) == 32, "SGEs begin in the middle of the line");
/* COMPARE_SWAP's swap value, and BIND's rights (RNIC_ACCESS_*), are the 8 octets after the SGEs. */

/*
 * What MASKED_FETCH_ADD and MASKED_COMPARE_SWAP have after their SGE: they are FETCH_ADD and COMPARE_SWAP with RFC
 * 7306's masks. A data plane that does not know them completes them with INVALID_WQE.
 */
struct rnic_atomic_masks {
	uint64_t swap; /* COMPARE_SWAP: what is swapped in; FETCH_ADD: not looked at */
	uint64_t data; /* FETCH_ADD: a set bit ends a field, and no carry leaves it; COMPARE_SWAP: the bits swapped */
	uint64_t compare; /* COMPARE_SWAP: the bits compared; FETCH_ADD: not looked at */
};
RNIC_STATIC_ASSERT(sizeof(struct rnic_atomic_masks) == 24, "fits the smallest send entry, behind an SGE");

/*
 * Where an entry of a queue pair of type UD goes: behind the header, and before SGEs and data. Such an entry is a SEND;
 * of the header remote_address, rkey and argument are not looked at.
 */
struct rnic_ud_address {
	uint8_t gid[16];    /* of the receiver, or of a group */
	uint32_t qp_number; /* 0xffffff: to a group */
	uint32_t q_key;     /* with the highest bit: the queue pair's own */
	uint32_t flow_label;
	uint8_t gid_index; /* whose of the device's GIDs it comes from */
	uint8_t traffic_class;
	uint8_t hop_limit; /* 0: the device's */
	uint8_t reserved;
};
RNIC_STATIC_ASSERT(sizeof(struct rnic_ud_address) == 32, "header and address fill a line");

/* In front of a datagram in its receive: 40 octets as InfiniBand's global route header. */
#define RNIC_UD_HEADER_BYTES 40u

/* A receive entry: this header, then sge_count SGEs; stride given at creation. */
struct rnic_rqe {
	uint32_t sge_count;
	uint32_t id; /* of a shared receive queue: comes back with the completion, and is the application's affair */
	uint32_t reserved[2];
};
RNIC_STATIC_ASSERT(sizeof(struct rnic_rqe) == 16, "receive entry header");

/*
 * A send, receive or shared receive queue's area: rnic_ring_control, then size * stride octets of slots.
 */

/* ---- Completion queues ------------------------------------------------------------------- */

enum rnic_status {
	RNIC_WC_SUCCESS = 0,
	RNIC_WC_FLUSHED = 1,
	RNIC_WC_INVALID_WQE = 2, /* V-CS-03.. in the order of the specification's figure 36 */
	RNIC_WC_LOCAL_CATASTROPHIC = 3,
	RNIC_WC_REMOTE_TERMINATION = 4, /* `detail` holds layer, type and code */
	RNIC_WC_INVALID_STAG = 5,
	RNIC_WC_BASE_BOUNDS = 6,
	RNIC_WC_ACCESS = 7,
	RNIC_WC_INVALID_PD = 8,
	RNIC_WC_WRAP = 9,
	RNIC_WC_INVALIDATE_PD_ACCESS = 10,
	RNIC_WC_ZERO_READ_RESOURCES = 11,
	RNIC_WC_NOT_PRIVILEGED = 12,
	RNIC_WC_STAG_NOT_INVALID = 13,
	RNIC_WC_INVALID_PAGE_SIZE = 14,
	RNIC_WC_INVALID_BUFFER_SIZE = 15,
	RNIC_WC_INVALID_PBL_ENTRY = 16,
	RNIC_WC_INVALID_FBO = 17,
	RNIC_WC_INVALID_FR_LENGTH = 18,
	RNIC_WC_INVALID_FR_ACCESS = 19,
	RNIC_WC_PBL_TOO_LONG = 20,
	RNIC_WC_INVALID_VA = 21,
	RNIC_WC_INVALID_REGION = 22,
	RNIC_WC_INVALID_WINDOW = 23,
	RNIC_WC_INVALID_LENGTH = 24,
	RNIC_WC_MESSAGE_TOO_LONG = 25,  /* receive buffers too short for the message */
	RNIC_WC_RETRY_EXCEEDED = 26,    /* the peer has not come, or has not answered */
	RNIC_WC_RNR_RETRY_EXCEEDED = 27 /* the peer has posted no receive in time */
};

#define RNIC_CQE_SOLICITED 0x01u
#define RNIC_CQE_INVALIDATED 0x02u /* `word` is the STag that was invalidated */
#define RNIC_CQE_IMMEDIATE 0x04u   /* `word` is the immediate, network order */
#define RNIC_CQE_IPV4 0x08u        /* DATAGRAM: the header is one of IPv4; else of IPv6 */
#define RNIC_CQE_SEND_QUEUE 0x10u  /* of a send queue; else of a receive queue */
#define RNIC_CQE_SHARED 0x20u      /* of the QP's shared receive queue */
#define RNIC_CQE_DATAGRAM 0x40u    /* a datagram's: its header is in front of it, source_qp has sent it */

/*
 * `phase` is written last, with release: the number of times the ring has been gone round, plus 1
 * (so it is never 0, and a fresh ring reads as empty). The consumer stops at the first entry
 * whose phase is not the one it expects.
 */
struct rnic_cqe {
	uint32_t qp_number;
	uint32_t slot;   /* the index (not masked) of the WQE; SHARED: its `id` */
	uint32_t length; /* octets received, read or fetched; valid for receives, Reads and Atomics */
	uint32_t word;
	uint8_t opcode;
	uint8_t status;
	uint8_t flags;
	uint8_t reserved;
	uint32_t detail;    /* for vendor_err: the status in more words; REMOTE_TERMINATION: 0xLTCC */
	uint32_t qp_cookie; /* lower half of the number the provider gave with the QP */
	uint64_t time;      /* of queues made with RNIC_CQ_TIMES: ns of CLOCK_MONOTONIC; else 0 */
	uint32_t source_qp;
	uint32_t reserved2[4];
	uint32_t phase;
};
RNIC_STATIC_ASSERT(sizeof(struct rnic_cqe) == 64, "a CQE fills one cache line");
RNIC_STATIC_ASSERT(offsetof(struct rnic_cqe, phase) == 60, "the phase is last");

/*
 * The arm word: sequence << 2 | kind. The application stores a new sequence with each arming; the
 * data plane publishes a CQE, passes a seq_cst fence, loads the word, and fires if its sequence
 * is not the last one it fired and the kind asks for this CQE. `fired` is that sequence, for the
 * provider (V-NTF-06: an arming for every completion is never weakened before it has fired).
 */
#define RNIC_ARM_NONE 0u
#define RNIC_ARM_NEXT 1u
#define RNIC_ARM_SOLICITED 2u

/* A completion queue's area: this, then size entries; size is a power of two. */
struct rnic_cq_control {
	uint32_t consumed; /* by the application, with release: a hint for overflow */
	uint32_t arm;      /* by the application, seq_cst */
	uint8_t pad0[RNIC_CACHE_LINE - 8];
	uint32_t fired; /* by the data plane */
	uint32_t overflowed;
	uint8_t pad1[RNIC_CACHE_LINE - 8];
};
RNIC_STATIC_ASSERT(sizeof(struct rnic_cq_control) == 128, "two lines");

/* ---- Access rights of regions, windows and queue pairs ------------------------------------ */

#define RNIC_ACCESS_LOCAL_READ 0x01u
#define RNIC_ACCESS_LOCAL_WRITE 0x02u
#define RNIC_ACCESS_REMOTE_READ 0x04u
#define RNIC_ACCESS_REMOTE_WRITE 0x08u
#define RNIC_ACCESS_REMOTE_ATOMIC 0x10u
#define RNIC_ACCESS_WINDOW_BIND 0x20u
#define RNIC_ACCESS_ZERO_BASED 0x40u
#define RNIC_ACCESS_NO_REMOTE 0x80u /* of a region: the Remote Access Flag is off, it can have no remote right */

/*
 * A page list: one size of a page, a power of two; so many pages; the region's first octet is in the first. As many
 * pages as this at most, which is what a region is told to have room for, too.
 */
#define RNIC_PAGE_LIST_MAX 32768u

/*
 * What FAST_REGISTER has behind its header, which has the STag (with its new key) as rkey, the TO of the first octet as
 * remote_address (zero-based: not looked at) and the length as argument. The pages lie one behind the other in the
 * application: at their own addresses, or in a view that its provider has made of them.
 */
struct rnic_fast_register {
	uint64_t view;         /* the first page, in the application */
	uint64_t addresses;    /* the addresses in the list, or-ed: what none of them may be misaligned by */
	uint64_t page_bytes;   /* of each page */
	uint64_t first_offset; /* of the region's first octet, in the first page */
	uint32_t page_count;
	uint32_t access; /* RNIC_ACCESS_* */
};
RNIC_STATIC_ASSERT(sizeof(struct rnic_fast_register) == 40, "fits the smallest send entry");

#endif
