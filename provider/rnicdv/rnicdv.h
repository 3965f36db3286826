/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * rnic's direct verbs: what the RDMA Protocol Verbs Specification 1.0 has, and libibverbs has no words for. They are
 * used beside libibverbs, on its own objects. What is made here is ended as libibverbs ends it: regions by
 * ibv_dereg_mr, queue pairs by ibv_destroy_qp, shared receive queues by ibv_destroy_srq.
 *
 * C and C++. Link with -lrnicdv -libverbs (pkg-config rnicdv). See rnicdv(7).
 *
 * Functions that return int return 0 or an errno; those that return a pointer return NULL and set errno. Of all:
 * EOPNOTSUPP: the object is not of an rnic device, or the provider that is loaded is older than this library.
 * EIO: there is no daemon any more. EPERM: this is a child of fork, and the object is its parent's.
 * They may be called by several threads at once, those that begin with rnicdv_wr_ excepted. Lengths and offsets are in
 * octets. V-... are requirements of docs/spec/verbs.md.
 */
#ifndef RNICDV_H
#define RNICDV_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Devices ----------------------------------------------------------------------------------------------------- */

/* What memory is described by (V-RNIC-04): lists of pages, each at a multiple of a size that is a power of two. */
enum rnicdv_buffer_mode {
  RNICDV_PAGE_MODE = 0,
  RNICDV_BLOCK_MODE = 1, /* lists of blocks of any size; no device of rnic's has it (V-RNIC-05) */
};

/*
 * ibv_open_device in this mode, which is good until ibv_close_device. NULL, and nothing is open: EOPNOTSUPP, the device
 * has not this mode, or is not rnic's; EINVAL, there is no such mode; else as ibv_open_device.
 */
struct ibv_context* rnicdv_open_device(struct ibv_device* device, enum rnicdv_buffer_mode mode);

/* How the receives of a shared receive queue go to messages (V-QRN-27). */
enum rnicdv_srq_dequeue {
  RNICDV_SRQ_ARRIVAL = 0,    /* in the order in which messages arrive, of all its queue pairs */
  RNICDV_SRQ_SEQUENTIAL = 1, /* in the order of each queue pair's messages */
};

struct rnicdv_device_attr {
  uint32_t max_write_sge;        /* of an RDMA Write (V-QRN-06) */
  uint32_t max_page_list;        /* pages of a page list (V-QRN-11) */
  uint32_t max_device_read_in;   /* of all queue pairs together; 0: each has its own, nothing is pooled (V-QRN-13) */
  uint32_t max_device_read_out;  /* the same (V-QRN-14, V-IRD-01) */
  uint32_t can_modify_ird;       /* not 0: after the creation of a queue pair, in Idle (V-QRN-17) */
  uint32_t can_raise_ord;        /* not 0: the same (V-QRN-18) */
  uint32_t detects_cq_overflow;  /* not 0: IBV_EVENT_CQ_ERR tells of it (V-QRN-25) */
  uint32_t srq_dequeue;          /* enum rnicdv_srq_dequeue (V-QRN-27) */
  uint32_t buffer_mode;          /* enum rnicdv_buffer_mode, of this context (V-QRN-21) */
  uint32_t reserved;             /* 0 */
  uint64_t page_sizes;           /* of Page mode: the bits of the sizes that there are (V-QRN-23) */
  uint64_t min_block, max_block; /* of Block mode: sizes of a block; else 0 (V-QRN-22) */
};

/* What ibv_query_device_ex has no field for. */
int rnicdv_query_device(struct ibv_context* context, struct rnicdv_device_attr* attr);

/* ---- Events ------------------------------------------------------------------------------------------------------ */

/* Numbers of the rows of section 8.3 of docs/spec/verbs.md, and others. */
enum rnicdv_event_type {
  RNICDV_EVENT_QP_RQ_LIMIT_REACHED = 40, /* V-AE-40: see rnicdv_qp_init_attr.rq_limit */
  RNICDV_EVENT_STREAM_READY = 256,       /* none of the specification's: see rnicdv_stream */
};

struct rnicdv_event {
  uint32_t type; /* enum rnicdv_event_type */
  uint32_t reserved;
  union { /* the one that it is about; it is there still */
    struct ibv_qp* qp;
    struct rnicdv_stream* stream; /* of RNICDV_EVENT_STREAM_READY */
  };
};

/*
 * A descriptor that is readable (poll, select, epoll) while rnicdv_get_event would return an event. The context's: it
 * is not to be closed or read, and ends with ibv_close_device. Events are kept from the first call of this on, of
 * rnicdv_get_event, of a function that gives a queue pair an RQ Limit, or that makes a stream. -1 and errno: EMFILE and
 * the like.
 */
int rnicdv_event_fd(struct ibv_context* context);

/*
 * The next event, which is then the caller's: nothing is to be acknowledged. EAGAIN: there is none, at once. Events of
 * a queue pair or a stream go with it.
 */
int rnicdv_get_event(struct ibv_context* context, struct rnicdv_event* event);

/* ---- Completion queues and shared receive queues ------------------------------------------------------------------
 */

struct rnicdv_cq_attr {
  uint32_t entries;                 /* that it has (V-CQA-03) */
  uint32_t comp_vector;             /* of its completion events */
  struct ibv_comp_channel* channel; /* NULL: it has none */
};

int rnicdv_query_cq(struct ibv_cq* cq, struct rnicdv_cq_attr* attr);

struct rnicdv_srq_attr {
  uint32_t max_wr;    /* receives that it has room for */
  uint32_t max_sge;   /* of each */
  uint32_t pd_handle; /* ibv_pd.handle of its protection domain */
  uint32_t limit;     /* as it was last given, armed or not (V-SRA-02) */
  uint32_t armed;     /* not 0: IBV_EVENT_SRQ_LIMIT_REACHED is to come */
  uint32_t reserved;  /* 0 */
};

int rnicdv_query_srq(struct ibv_srq* srq, struct rnicdv_srq_attr* attr);

/*
 * ibv_create_srq, with `srq_limit` as given: not 0, and it is armed (V-LIM-01). EINVAL: the limit is higher than the
 * queue is deep (V-LIM-04), or as ibv_create_srq.
 */
struct ibv_srq* rnicdv_create_srq(struct ibv_pd* pd, struct ibv_srq_init_attr* init);

/* ---- Queue pairs --------------------------------------------------------------------------------------------------
 */

#define RNICDV_QP_PRIVILEGED 0x1u /* Fast-Register may be posted (V-QP-05); STag 0 is not to be had all the same */
#define RNICDV_QP_NO_BIND 0x2u    /* Binds fail (V-QP-12); without it they are let, as on every queue pair of ibverbs */

struct rnicdv_qp_init_attr {
  uint32_t flags;    /* RNICDV_QP_* */
  uint32_t rq_limit; /* with an SRQ: its RQ Limit, armed; 0: none (V-LIM-05) */
};

/*
 * ibv_create_qp_ex with more attributes. EPERM: RNICDV_QP_PRIVILEGED, and the caller is neither root nor the daemon's
 * user. EINVAL: a flag that there is not; an RQ Limit without an SRQ, or higher than that is deep (V-IS-27, V-MOD-08).
 * EOPNOTSUPP: either of a queue pair of type UD.
 */
struct ibv_qp* rnicdv_create_qp(struct ibv_context* context, struct ibv_qp_init_attr_ex* init,
                                const struct rnicdv_qp_init_attr* direct);

/* ---- Streams in streaming mode ------------------------------------------------------------------------------------
 */

/*
 * A TCP connection of the device's, of which both ends are their applications': they speak on it as they like, and then
 * change it over to iWARP by rnicdv_modify_qp (V-CONN-12), each its own end. No MPA Request or Reply is on it. What
 * those would agree on is for the applications to agree on: ORD and IRD (V-IRD-12), and who speaks first (V-CONN-10).
 *
 * Or a listener, where such connections come in. Of devices of iWARP only; of a RoCE face EOPNOTSUPP.
 *
 * Nothing here waits: EAGAIN says that there is nothing to be had now. After that RNICDV_EVENT_STREAM_READY tells of
 * the stream, once, when it is to be asked again; and so it does when a call has connected, and when a connection is
 * reset. Once in a while it tells without need. Octets that are not received stay with the peer, as with a socket, and
 * those behind the peer's last message are iWARP's: an application receives no octet more than belongs to its
 * handshake.
 */
struct rnicdv_stream {
  struct ibv_context* context;
  void* stream_context; /* the caller's own, and to be changed as it likes */
};

/*
 * Calls. `local`: which address and port of the device's; NULL, or port 0: any. The stream is there at once, and open
 * when the peer has answered. EINVAL: an address of no family of IP's, or no port; ENETUNREACH, EADDRINUSE,
 * EADDRNOTAVAIL; ENOMEM: there are no more streams for this process.
 */
struct rnicdv_stream* rnicdv_stream_connect(struct ibv_context* context, const struct sockaddr* local,
                                            const struct sockaddr* remote, void* stream_context);

/*
 * Listens at an address of the device's, or at all (0.0.0.0; :: for either version), and a port, which is not 0.
 * `backlog`: how many wait to be accepted, 128 at most. Errors as above.
 */
struct rnicdv_stream* rnicdv_stream_listen(struct ibv_context* context, const struct sockaddr* local, uint32_t backlog,
                                           void* stream_context);

/* The next that has called there. EAGAIN: nobody; EINVAL: it is no listener. */
struct rnicdv_stream* rnicdv_stream_accept(struct rnicdv_stream* listener, void* stream_context);

/*
 * As many octets as there is room for, into *sent: when fewer than `length`, RNICDV_EVENT_STREAM_READY tells of room.
 * EAGAIN: none, or it is not open yet. ECONNREFUSED, EHOSTUNREACH, ETIMEDOUT, ECONNRESET: it has ended so.
 */
int rnicdv_stream_send(struct rnicdv_stream* stream, const void* octets, size_t length, size_t* sent);

/*
 * As many as have come, at most `length` (not 0) or 4,096, into *received: 0, and the peer has closed its end; ours can
 * still be sent on. Errors as of sending.
 */
int rnicdv_stream_receive(struct rnicdv_stream* stream, void* room, size_t length, size_t* received);

enum rnicdv_stream_state {
  RNICDV_STREAM_OPENING = 0,
  RNICDV_STREAM_OPEN = 1,  /* its peer may have closed */
  RNICDV_STREAM_ENDED = 2, /* see error */
  RNICDV_STREAM_LISTENS = 3,
};

struct rnicdv_stream_attr {
  uint32_t state;  /* enum rnicdv_stream_state */
  uint32_t error;  /* errno with which it has ended; 0 */
  uint64_t stream; /* as rnicdv_qp_attr.stream */
  struct sockaddr_storage local, remote;
};

int rnicdv_stream_query(struct rnicdv_stream* stream, struct rnicdv_stream_attr* attr);

/*
 * Ends it, and frees it: what was sent is still delivered, then FIN; whoever has called a listener and was not accepted
 * is reset. To be called before ibv_close_device.
 */
int rnicdv_stream_close(struct rnicdv_stream* stream);

/* ---- Modify QP ----------------------------------------------------------------------------------------------------
 */

/* Bits of rnicdv_modify_qp's mask. */
#define RNICDV_QP_STATE 0x1u
#define RNICDV_QP_RQ_LIMIT 0x2u
#define RNICDV_QP_ORD 0x4u
#define RNICDV_QP_IRD 0x8u
#define RNICDV_QP_STREAM 0x10u /* stream, message and message_length, which are not looked at without it */

/* The states of the specification. */
enum rnicdv_qp_state {
  RNICDV_QPS_IDLE = 0,
  RNICDV_QPS_RTS = 1,
  RNICDV_QPS_CLOSING = 2,
  RNICDV_QPS_TERMINATE = 3,
  RNICDV_QPS_ERROR = 4,
};

struct rnicdv_qp_mod {
  uint32_t state;    /* enum rnicdv_qp_state */
  uint32_t rq_limit; /* sets and arms (V-LIM-06); 0 disarms */
  uint32_t ord, ird; /* Reads and Atomics at a time, of its own and of the peer's */
  struct rnicdv_stream* stream;
  const void* message; /* the last in streaming mode */
  uint32_t message_length;
};

#define RNICDV_STREAM_MESSAGE_MAX 4096u

/*
 * Modify QP as the specification has it: without the ways round that ibv_modify_qp takes for programs of InfiniBand
 * (V-MOD-09, -10). All that `mask` names, or nothing. EINVAL: no such change of state, a bit or a value that there is
 * not, RQ Limit out of range (V-IS-27); EBUSY: it is still flushing; EOPNOTSUPP: an attribute that cannot change, or
 * an RQ Limit without an SRQ (V-MOD-08). The RQ Limit is taken in Idle and in RTS (V-MOD-11).
 *
 * With RNICDV_QP_STREAM, Idle to RTS (V-CONN-04): the message, if there is one, leaves behind all that was sent, then
 * the queue pair has the stream, which is no more the caller's and is freed. What the peer has sent and was not
 * received is iWARP, however early it came (V-CONN-05). CRC is on, and there are no markers. ENOTCONN: `stream` is
 * NULL, a listener, another context's, or not established, as one whose peer has closed (V-IS-25, V-CONN-01); ENOMEM:
 * there are no buffers for the message. The stream is the caller's still, then. Whoever has sent the last message
 * should post nothing to the send queue before it has heard from the peer (V-CONN-10).
 */
int rnicdv_modify_qp(struct ibv_qp* qp, const struct rnicdv_qp_mod* mod, uint32_t mask);

#define RNICDV_TERMINATE_MAX 64

struct rnicdv_qp_attr {
  uint32_t state;         /* enum rnicdv_qp_state */
  uint32_t max_write_sge; /* of an RDMA Write (V-QQP-04) */
  uint32_t ord, ird;      /* as they are (V-QQP-05) */
  uint32_t read_enabled;  /* not 0: the peer may read (V-QQP-09) */
  uint32_t write_enabled; /* not 0: the peer may write, and Reads may have the peer's Response placed */
  uint32_t bind_enabled;  /* not 0: Binds are let */
  uint32_t privileged;    /* not 0: Fast-Register is let (V-QQP-08) */
  uint32_t rq_limit;      /* as it was last given (V-QQP-12) */
  uint32_t rq_limit_armed;
  uint64_t stream; /* names its TCP connection among its device's; 0: it has none, as in Idle (V-QQP-13) */
  /* In Terminate and Error, the payload of the Terminate Message that was sent or came, from its control word on. */
  uint32_t terminate_origin; /* 0: there was none; 1: this side; 2: the peer (V-QQP-11) */
  uint32_t terminate_length;
  uint8_t terminate[RNICDV_TERMINATE_MAX]; /* V-QQP-10 */
};

int rnicdv_query_qp(struct ibv_qp* qp, struct rnicdv_qp_attr* attr);

/* ---- Memory -------------------------------------------------------------------------------------------------------
 */

/* Rights, all of them said: there is no right that is always there (V-ACC-01). */
#define RNICDV_LOCAL_READ 0x01u
#define RNICDV_LOCAL_WRITE 0x02u
#define RNICDV_REMOTE_READ 0x04u  /* asks for RNICDV_LOCAL_READ */
#define RNICDV_REMOTE_WRITE 0x08u /* asks for RNICDV_LOCAL_WRITE */
#define RNICDV_REMOTE_ATOMIC 0x10u
#define RNICDV_MW_BIND 0x20u    /* windows may be bound to it */
#define RNICDV_ZERO_BASED 0x40u /* its first octet is at 0 */
#define RNICDV_NO_REMOTE 0x80u  /* the Remote Access Flag is off: it can have no remote right (V-MR-17) */

struct rnicdv_mr_init {
  uint64_t iova;   /* where its first octet is, to peers and in SGEs; not looked at with RNICDV_ZERO_BASED */
  uint32_t access; /* RNICDV_*, at least one of the local two */
  uint32_t key;    /* the lower 8 bits of its STag, the caller's to choose (V-STAG-02): 0 to 255 */
};

/*
 * Registers [address, address + length), as ibv_reg_mr, with rights and a key of the caller's. The region is
 * ibv_dereg_mr's to end, and rnicdv_rereg_page_list's to change: ibv_rereg_mr does not take regions that are made here
 * (EINVAL, and nothing has changed). lkey and rkey are its STag. Whoever may write needs memory that may be written.
 * EINVAL: rights that cannot be (V-ACC-01, V-MR-18), no octets, or past 2^64; EFAULT: no such memory; ENOMEM.
 */
struct ibv_mr* rnicdv_reg_mr(struct ibv_pd* pd, void* address, size_t length, const struct rnicdv_mr_init* init);

/*
 * Another region over the memory of one that is Valid; both are Shared from then on: Valid until they are deregistered,
 * each by itself (V-MR-11 to -13, -21). It has the same length, and may be of another protection domain of the same
 * context. `iova` is to lie as far behind a multiple of 4096 as the memory does (V-MR-12). EINVAL: `mr` is not Valid;
 * rights, key or iova that cannot be.
 */
struct ibv_mr* rnicdv_reg_shared_mr(struct ibv_mr* mr, struct ibv_pd* pd, const struct rnicdv_mr_init* init);

/* Memory by pages (V-PBL-01). */
struct rnicdv_page_list {
  uint32_t mode;         /* enum rnicdv_buffer_mode */
  uint32_t count;        /* of pages; at most rnicdv_device_attr.max_page_list */
  const uint64_t* pages; /* the address of each, in this process: a multiple of page_size, in any order */
  uint64_t page_size;    /* one of rnicdv_device_attr.page_sizes */
  uint64_t first_offset; /* of the region's first octet in the first page (FBO) */
  uint64_t length;       /* of the region; its last page may be used in part */
};

/* What is wrong with a list: each by itself (V-PBL-08, V-IS-32 to -34). */
enum rnicdv_list_error {
  RNICDV_LIST_GOOD = 0,
  RNICDV_LIST_MODE,         /* a list of blocks, and the context is in Page mode */
  RNICDV_LIST_PAGE_SIZE,    /* not a size of page_sizes */
  RNICDV_LIST_TOO_LONG,     /* of more pages than there may be, or than the STag has room for; or of none */
  RNICDV_LIST_PAGE,         /* an address that is no multiple of the size */
  RNICDV_LIST_FIRST_OFFSET, /* not within the first page */
  RNICDV_LIST_LENGTH,       /* 0, or more than the pages hold from first_offset on */
  RNICDV_LIST_ADDRESS,      /* iova is not first_offset behind a multiple of the size (V-PBL-03), or past 2^64 */
};

/*
 * Registers a page list. Pages that follow each other in memory are taken where they are. Others have to be shared
 * memory (MAP_SHARED: memfd, tmpfs, hugetlbfs, shm_open, or anonymous): a second mapping of them, one behind the other,
 * is made and kept as long as the region; mr->addr is the first octet there. EOPNOTSUPP: private pages that lie apart,
 * which no one can map twice. EINVAL: the list is wrong, and *error (which may be NULL) says how; or as rnicdv_reg_mr.
 */
struct ibv_mr* rnicdv_reg_page_list(struct ibv_pd* pd, const struct rnicdv_page_list* list,
                                    const struct rnicdv_mr_init* init, enum rnicdv_list_error* error);

/*
 * RI-Reregister with a page list: the region, Valid or not, is of that list, these rights, this key and this domain
 * from now on, and its STag's index is the same (V-MR-05). An STag of rnicdv_alloc_stag too. EBUSY: a window is bound,
 * and it is as it was (V-MR-06). After any other error, a wrong list too, it is gone, and ibv_dereg_mr is all that can
 * be done with it (V-MR-07).
 */
int rnicdv_rereg_page_list(struct ibv_mr* mr, struct ibv_pd* pd, const struct rnicdv_page_list* list,
                           const struct rnicdv_mr_init* init, enum rnicdv_list_error* error);

/*
 * An STag without memory, Invalid, for rnicdv_wr_fast_register and rnicdv_rereg_page_list (V-MR-03): with room for a
 * page list of *pages, which is as many as there are or more on return (V-PBL-09). `access`: 0, or RNICDV_NO_REMOTE.
 * EINVAL: *pages is 0 or more than max_page_list, or `access` is another; ENOMEM.
 */
struct ibv_mr* rnicdv_alloc_stag(struct ibv_pd* pd, uint32_t* pages, uint32_t access);

struct rnicdv_mr_attr {
  uint32_t stag;          /* its key is 0 while it is Invalid (V-STAG-04) */
  uint32_t pd_handle;     /* ibv_pd.handle of its protection domain */
  uint32_t access;        /* RNICDV_* */
  uint32_t remote_access; /* the Remote Access Flag: not 0, it can have remote rights */
  uint32_t valid;         /* not 0 */
  uint32_t shared;        /* not 0: its memory is, or was, another region's too */
  uint32_t max_page_list; /* of the longest list that it has room for */
  uint32_t windows;       /* bound to it */
  uint64_t iova;          /* of its first octet */
  uint64_t length;
};

/* Of the region of this STag, of which the index (the upper 24 bits) counts. EINVAL: none of this context (V-MRA-04).
 */
int rnicdv_query_mr(struct ibv_context* context, uint32_t stag, struct rnicdv_mr_attr* attr);

struct rnicdv_mw_attr {
  uint32_t stag;      /* as of a region */
  uint32_t pd_handle; /* ibv_pd.handle of its protection domain */
  uint32_t access;    /* RNICDV_REMOTE_*, RNICDV_ZERO_BASED; 0 while it is not bound */
  uint32_t valid;     /* not 0: it is bound */
  uint32_t qp_num;    /* the queue pair that it is bound on; 0: none, or it is of type 1 */
  uint32_t reserved;  /* 0 */
  uint64_t iova;      /* of its first octet */
  uint64_t length;
};

/* Of the window of this STag. EINVAL: none of this context (V-MWA-02). */
int rnicdv_query_mw(struct ibv_context* context, uint32_t stag, struct rnicdv_mw_attr* attr);

/* ---- Work requests -------------------------------------------------------------------------------------------------
 */

/*
 * Beside the functions of ibv_wr_post(3), between ibv_wr_start and ibv_wr_complete, on a queue pair of ibv_create_qp_ex
 * or rnicdv_create_qp that has builders (IBV_QP_INIT_ATTR_SEND_OPS_FLAGS). wr_id and wr_flags are taken as there; what
 * is wrong is told by ibv_wr_complete, and nothing of the batch is posted then. One thread at a time, as there.
 */

/*
 * RDMA Read, and when it is placed its sink's STag is invalidated (V-MWR-02); ibv_wr_set_sge or ibv_wr_set_sge_list
 * gives the sink: one SGE. The completion's opcode is IBV_WC_RDMA_READ.
 */
void rnicdv_wr_rdma_read_inv(struct ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr);

/*
 * Makes an STag, of `mr`, which is Invalid, Valid: of this list, these rights and this key, before any request behind
 * it begins (V-MR-15, V-MWR-04). Fences are not looked at. Its STag is then (mr->rkey & ~0xff) | init->key, which this
 * stores in mr->lkey and mr->rkey. No setter follows. The completion's opcode is IBV_WC_DRIVER1; what the daemon finds
 * wrong (V-MR-16) is IBV_WC_LOC_QP_OP_ERR or IBV_WC_LOC_PROT_ERR, its number in vendor_err, and the queue pair fails.
 * Pages as of rnicdv_reg_page_list: private ones that lie apart are EOPNOTSUPP. The list is not looked at any more when
 * this returns; the pages' second mapping is kept as long as they may be reached by it.
 */
void rnicdv_wr_fast_register(struct ibv_qp_ex* qp, struct ibv_mr* mr, const struct rnicdv_page_list* list,
                             const struct rnicdv_mr_init* init);

/*
 * The atomic operations of RFC 7306, with their masks, on an aligned word of 8 octets at the peer, of devices that have
 * atomic operations (ibv_device_attr.atomic_cap; of others ibv_wr_complete returns EOPNOTSUPP, and the daemon's log
 * says once which key would allow them). ibv_wr_set_sge says where the word goes as it was before: one SGE of 8 octets
 * or more. Completions, fences and errors are those of ibv_wr_atomic_fetch_add and ibv_wr_atomic_cmp_swp, which do the
 * same with the masks 0, and all ones.
 *
 * Fetch and Add: a set bit of `mask` is the highest of a field, and no carry leaves it: with 0x8000000080000000 two
 * counters of 32 bits are added to at once.
 *
 * Compare and Swap: if the bits of `compare_mask` are in the word as in `compare`, the bits of `swap_mask` become those
 * of `swap`. With compare_mask 0 nothing is compared, and the word is swapped in any case: RFC 7306 has no other Swap.
 */
void rnicdv_wr_masked_fetch_add(struct ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, uint64_t add, uint64_t mask);
void rnicdv_wr_masked_cmp_swp(struct ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, uint64_t compare,
                              uint64_t compare_mask, uint64_t swap, uint64_t swap_mask);

#ifdef __cplusplus
}
#endif

#endif
