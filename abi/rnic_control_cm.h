/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Messages of the stand-in (rnic_control.h): connection management. */
#ifndef RNIC_CONTROL_CM_H
#define RNIC_CONTROL_CM_H

#include "rnic_control_common.h"

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
 * was told within the last 2 ms and not fetched, and a thread may be on its way to it, which would wait for ever for
 * one that is gone (rping of rdma-core 59 and later). Who is told so asks again soon, and without it in the end. */
#define RNIC_CM_UNLESS_JUST_TOLD 0x1u

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
 * octet from the channel's socket. Several at a time: rnic_control_events.h. */
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

#endif
