/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * One row for each message of rnic_control.h, and one for each structure that a message is made of. Numbers,
 * names, sizes, and what a receiver checks and calls, are made from these rows, and stand nowhere else. Macros
 * alone: C11 and C++20, in user space or a kernel.
 */
#ifndef RNIC_MESSAGES_H
#define RNIC_MESSAGES_H

/*
 *	X(NAME, name, number, who, request, reply, fds_in, fds_out)
 *
 * `who` may ask: RNIC_OF_ANY, or RNIC_OF_VERBS, RNIC_OF_CM, RNIC_OF_ADMIN, added up. `request` and `reply` are
 * structures; of nothing at all, rnic_nothing. What is longer is taken too, and what is behind the structure is of a
 * later version. As many descriptors as fds_in and fds_out may come along with a request, and with a reply.
 *
 * CM_OPEN has no request, or rnic_cm_open. The reply of LIST_DEVICES and CAPTURE is as long as its `count` says.
 */
/* A row is a line. */
/* clang-format off */
#define RNIC_MESSAGES(X)                                                                                             \
	X(HELLO, hello, 1, RNIC_OF_ANY, rnic_hello, rnic_hello_reply, 0, 0)                                          \
	X(LIST_DEVICES, list_devices, 2, RNIC_OF_ANY, rnic_nothing, rnic_list_devices_reply, 0, 0)                   \
                                                                                                                     \
	/* verbs */                                                                                                  \
	X(OPEN_CONTEXT, open_context, 16, RNIC_OF_VERBS, rnic_open_context, rnic_open_context_reply, 1, RNIC_FDS_MAX) \
	X(ALLOC_PD, alloc_pd, 17, RNIC_OF_VERBS, rnic_nothing, rnic_handle_reply, 0, 0)                              \
	X(DEALLOC_PD, dealloc_pd, 18, RNIC_OF_VERBS, rnic_handle, rnic_nothing, 0, 0)                                \
	X(REG_MR, reg_mr, 19, RNIC_OF_VERBS, rnic_reg_mr, rnic_reg_mr_reply, 1, 0)                                   \
	X(DEREG_MR, dereg_mr, 20, RNIC_OF_VERBS, rnic_handle, rnic_nothing, 0, 0)                                    \
	X(CREATE_CHANNEL, create_channel, 21, RNIC_OF_VERBS + RNIC_OF_CM, rnic_nothing,                              \
	  rnic_create_channel_reply, 0, 1)                                                                           \
	X(DESTROY_CHANNEL, destroy_channel, 22, RNIC_OF_ANY, rnic_handle, rnic_nothing, 0, 0)                        \
	X(CREATE_CQ, create_cq, 23, RNIC_OF_VERBS, rnic_create_cq, rnic_create_cq_reply, 0, 2)                       \
	X(RESIZE_CQ, resize_cq, 24, RNIC_OF_VERBS, rnic_resize_cq, rnic_resize_cq_reply, 0, 1)                       \
	X(DESTROY_CQ, destroy_cq, 25, RNIC_OF_VERBS, rnic_handle, rnic_destroy_cq_reply, 0, 0)                       \
	X(CREATE_SRQ, create_srq, 26, RNIC_OF_VERBS, rnic_create_srq, rnic_create_srq_reply, 0, 1)                   \
	X(MODIFY_SRQ, modify_srq, 27, RNIC_OF_VERBS, rnic_modify_srq, rnic_modify_srq_reply, 0, 1)                   \
	X(QUERY_SRQ, query_srq, 28, RNIC_OF_VERBS, rnic_handle, rnic_query_srq_reply, 0, 0)                          \
	X(DESTROY_SRQ, destroy_srq, 29, RNIC_OF_VERBS, rnic_handle, rnic_nothing, 0, 0)                              \
	X(CREATE_QP, create_qp, 30, RNIC_OF_VERBS, rnic_create_qp, rnic_create_qp_reply, 0, 2)                       \
	X(MODIFY_QP, modify_qp, 31, RNIC_OF_VERBS, rnic_modify_qp, rnic_nothing, 0, 0)                               \
	X(QUERY_QP, query_qp, 32, RNIC_OF_VERBS, rnic_handle, rnic_query_qp_reply, 0, 0)                             \
	X(DESTROY_QP, destroy_qp, 33, RNIC_OF_VERBS, rnic_handle, rnic_nothing, 0, 0)                                \
	X(ALLOC_MW, alloc_mw, 34, RNIC_OF_VERBS, rnic_alloc_mw, rnic_alloc_mw_reply, 0, 0)                           \
	X(DEALLOC_MW, dealloc_mw, 35, RNIC_OF_VERBS, rnic_handle, rnic_nothing, 0, 0)                                \
	X(HOLD_EVENTS, hold_events, 36, RNIC_OF_VERBS, rnic_hold_events, rnic_nothing, 0, 0)                         \
	X(RELEASE_EVENTS, release_events, 37, RNIC_OF_VERBS, rnic_nothing, rnic_nothing, 0, 0)                       \
	X(MAP_ARENA, map_arena, 38, RNIC_OF_VERBS, rnic_handle, rnic_area, 0, 1)                                     \
	X(REREG_MR, rereg_mr, 39, RNIC_OF_VERBS, rnic_rereg_mr, rnic_reg_mr_reply, 1, 0)                             \
	X(NOT_OFFERED, not_offered, 40, RNIC_OF_VERBS, rnic_not_offered, rnic_nothing, 0, 0)                         \
	X(CHECK_GID, check_gid, 41, RNIC_OF_VERBS, rnic_handle, rnic_nothing, 0, 0)                                  \
	X(TRANSMIT_MEMORY, transmit_memory, 42, RNIC_OF_VERBS, rnic_transmit_memory, rnic_area, 0, 1)                \
	X(ATTACH_MCAST, attach_mcast, 120, RNIC_OF_VERBS, rnic_mcast, rnic_nothing, 0, 0)                            \
	X(DETACH_MCAST, detach_mcast, 121, RNIC_OF_VERBS, rnic_mcast, rnic_nothing, 0, 0)                            \
                                                                                                                     \
	/* connection management: a row for each command of /dev/infiniband/rdma_cm, and for an open of it */        \
	X(CM_OPEN, cm_open, 64, RNIC_OF_CM, rnic_nothing, rnic_cm_open_reply, 0, 2)                                  \
	X(CM_CLOSE, cm_close, 65, RNIC_OF_CM, rnic_handle, rnic_nothing, 0, 0)                                       \
	X(CM_CREATE_ID, cm_create_id, 66, RNIC_OF_CM, rnic_cm_create_id, rnic_handle_reply, 0, 0)                    \
	X(CM_DESTROY_ID, cm_destroy_id, 67, RNIC_OF_CM, rnic_handle, rnic_cm_destroy_id_reply, 0, 0)                 \
	X(CM_BIND, cm_bind, 68, RNIC_OF_CM, rnic_cm_bind, rnic_nothing, 0, 0)                                        \
	X(CM_RESOLVE_ADDRESS, cm_resolve_address, 69, RNIC_OF_CM, rnic_cm_resolve_address, rnic_nothing, 0, 0)       \
	X(CM_RESOLVE_ROUTE, cm_resolve_route, 70, RNIC_OF_CM, rnic_cm_resolve_route, rnic_nothing, 0, 0)             \
	X(CM_QUERY, cm_query, 71, RNIC_OF_CM, rnic_handle, rnic_cm_query_reply, 0, 0)                                \
	X(CM_CONNECT, cm_connect, 72, RNIC_OF_CM, rnic_cm_connect, rnic_nothing, 0, 0)                               \
	X(CM_LISTEN, cm_listen, 73, RNIC_OF_CM, rnic_cm_listen, rnic_nothing, 0, 0)                                  \
	X(CM_ACCEPT, cm_accept, 74, RNIC_OF_CM, rnic_cm_connect, rnic_nothing, 0, 0)                                 \
	X(CM_REJECT, cm_reject, 75, RNIC_OF_CM, rnic_cm_reject, rnic_nothing, 0, 0)                                  \
	X(CM_DISCONNECT, cm_disconnect, 76, RNIC_OF_CM, rnic_handle, rnic_nothing, 0, 0)                             \
	X(CM_INIT_QP_ATTRIBUTES, cm_init_qp_attributes, 77, RNIC_OF_CM, rnic_cm_init_qp_attributes,                  \
	  rnic_cm_init_qp_attributes_reply, 0, 0)                                                                    \
	X(CM_GET_EVENT, cm_get_event, 78, RNIC_OF_CM, rnic_handle, rnic_cm_get_event_reply, 0, 0)                    \
	X(CM_SET_OPTION, cm_set_option, 79, RNIC_OF_CM, rnic_cm_set_option, rnic_nothing, 0, 0)                      \
	X(CM_NOTIFY, cm_notify, 80, RNIC_OF_CM, rnic_cm_notify, rnic_nothing, 0, 0)                                  \
	X(CM_MIGRATE_ID, cm_migrate_id, 81, RNIC_OF_CM, rnic_cm_migrate_id, rnic_cm_migrate_id_reply, 0, 0)          \
	X(CM_JOIN, cm_join, 82, RNIC_OF_CM, rnic_cm_join, rnic_handle_reply, 0, 0)                                   \
	X(CM_LEAVE, cm_leave, 83, RNIC_OF_CM, rnic_handle, rnic_cm_leave_reply, 0, 0)                                \
                                                                                                                     \
	/* the direct verbs: what the specification has and ibverbs cannot say (provider/rnicdv) */                  \
	X(QUERY_MR, query_mr, 100, RNIC_OF_VERBS, rnic_handle, rnic_query_mr_reply, 0, 0)                            \
	X(QUERY_MW, query_mw, 101, RNIC_OF_VERBS, rnic_handle, rnic_query_mw_reply, 0, 0)                            \
	X(REG_SHARED_MR, reg_shared_mr, 102, RNIC_OF_VERBS, rnic_reg_shared_mr, rnic_reg_mr_reply, 0, 0)             \
	X(ALLOC_STAG, alloc_stag, 103, RNIC_OF_VERBS, rnic_alloc_stag, rnic_alloc_stag_reply, 0, 0)                  \
	X(DIRECT_EVENTS, direct_events, 104, RNIC_OF_VERBS, rnic_nothing, rnic_nothing, 0, 1)                        \
	X(STREAM_CONNECT, stream_connect, 105, RNIC_OF_VERBS, rnic_stream_connect, rnic_handle_reply, 0, 0)          \
	X(STREAM_LISTEN, stream_listen, 106, RNIC_OF_VERBS, rnic_stream_listen, rnic_handle_reply, 0, 0)             \
	X(STREAM_ACCEPT, stream_accept, 107, RNIC_OF_VERBS, rnic_stream_accept, rnic_handle_reply, 0, 0)             \
	X(STREAM_SEND, stream_send, 108, RNIC_OF_VERBS, rnic_stream_send, rnic_handle_reply, 0, 0)                   \
	X(STREAM_RECEIVE, stream_receive, 109, RNIC_OF_VERBS, rnic_stream_receive, rnic_stream_received, 0, 0)       \
	X(STREAM_QUERY, stream_query, 110, RNIC_OF_VERBS, rnic_handle, rnic_stream_query_reply, 0, 0)                \
	X(STREAM_CLOSE, stream_close, 111, RNIC_OF_VERBS, rnic_handle, rnic_nothing, 0, 0)                           \
	X(START_IWARP, start_iwarp, 112, RNIC_OF_VERBS, rnic_start_iwarp, rnic_nothing, 0, 0)                        \
                                                                                                                     \
	/* administration */                                                                                         \
	X(SHOW, show, 128, RNIC_OF_ANY, rnic_show, rnic_handle_reply, 0, 1)                                          \
	X(STOP, stop, 129, RNIC_OF_ADMIN, rnic_nothing, rnic_nothing, 0, 0)                                          \
	X(CAPTURE, capture, 130, RNIC_OF_ADMIN, rnic_capture, rnic_list_devices_reply, 0, RNIC_FDS_MAX)              \
	X(NETLINK, netlink, 131, RNIC_OF_ANY, rnic_netlink, rnic_handle_reply, 0, 1)                                 \
	X(KILL, kill, 132, RNIC_OF_ADMIN, rnic_kill, rnic_nothing, 0, 0)

/* X(structure, octets). Whoever changes a size raises RNIC_ABI_VERSION. */
#define RNIC_MESSAGE_STRUCTURES(X)                                                                                   \
	X(rnic_msg, 16) X(rnic_address, 24) X(rnic_hello, 64) X(rnic_hello_reply, 24)                                \
	X(rnic_device_info, 296) X(rnic_list_devices_reply, 8) X(rnic_device_attributes, 152)                        \
	X(rnic_open_context, 40) X(rnic_open_context_reply, 456) X(rnic_area, 32) X(rnic_handle, 8)                  \
	X(rnic_handle_reply, 8) X(rnic_reg_mr, 56) X(rnic_rereg_mr, 64) X(rnic_reg_mr_reply, 16)                     \
	X(rnic_create_channel_reply, 16) X(rnic_create_cq, 32) X(rnic_create_cq_reply, 40)                           \
	X(rnic_resize_cq, 8) X(rnic_resize_cq_reply, 40) X(rnic_destroy_cq_reply, 8) X(rnic_hold_events, 8)          \
	X(rnic_create_srq, 24) X(rnic_create_srq_reply, 56) X(rnic_modify_srq, 24)                                   \
	X(rnic_modify_srq_reply, 40) X(rnic_query_srq_reply, 16) X(rnic_create_qp, 56) X(rnic_create_qp_reply, 104)   \
	X(rnic_modify_qp, 76) X(rnic_mcast, 24) X(rnic_query_qp_reply, 160) X(rnic_alloc_mw, 16)                     \
	X(rnic_alloc_mw_reply, 8) X(rnic_not_offered, 8) X(rnic_transmit_memory, 16)                                 \
	X(rnic_query_mr_reply, 56) X(rnic_query_mw_reply, 40) X(rnic_reg_shared_mr, 32) X(rnic_alloc_stag, 16)       \
	X(rnic_alloc_stag_reply, 16)                                                                                 \
	X(rnic_stream_connect, 64) X(rnic_stream_listen, 40) X(rnic_stream_accept, 16) X(rnic_stream_send, 4104)      \
	X(rnic_stream_receive, 8) X(rnic_stream_received, 4104) X(rnic_stream_query_reply, 64)                       \
	X(rnic_start_iwarp, 4128)                                                                                    \
	X(rnic_cm_open, 16) X(rnic_cm_open_reply, 24) X(rnic_cm_create_id, 24)                                       \
	X(rnic_cm_destroy_id_reply, 8) X(rnic_cm_bind, 32) X(rnic_cm_resolve_address, 56)                            \
	X(rnic_cm_resolve_route, 8) X(rnic_cm_query_reply, 104) X(rnic_cm_parameters, 536)                            \
	X(rnic_cm_connect, 552) X(rnic_cm_listen, 8) X(rnic_cm_reject, 520)                                          \
	X(rnic_cm_init_qp_attributes, 8) X(rnic_cm_init_qp_attributes_reply, 60)                                     \
	X(rnic_cm_way, 28) X(rnic_cm_get_event_reply, 592) X(rnic_cm_set_option, 80) X(rnic_cm_notify, 8)            \
	X(rnic_cm_migrate_id, 8) X(rnic_cm_migrate_id_reply, 16) X(rnic_cm_join, 40) X(rnic_cm_leave_reply, 16)      \
	X(rnic_show, 16) X(rnic_capture, 32)                                                                         \
	X(rnic_netlink, 264) X(rnic_kill, 48)
/* clang-format on */

#endif
