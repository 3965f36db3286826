/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * CM_GET_EVENT of several events at a time (rnic_control_cm.h has it of one).
 *
 * `reserved` of its rnic_handle says how many are wanted: 0: one, told as rnic_cm_get_event_reply; else up to so many,
 * in order, each as rnic_cm_told. The caller has read one octet, for the first. The others are lent: their octets are
 * still in the channel's socket, to be read as each is told to the application. What is lent and not told can be given
 * back, the last ones first, and are as if nobody had asked for them. Whoever asks for events has told all that he was
 * lent before.
 *
 * Whoever destroys or moves an id gives back its events before, so that the daemon knows of them; and nothing is lent
 * that another process may come for.
 */
#ifndef RNIC_CONTROL_EVENTS_H
#define RNIC_CONTROL_EVENTS_H

#include "rnic_control.h"

#define RNIC_CM_TOLD_MAX 11u          /* more is as that many: what one message holds */
#define RNIC_CM_GIVE_BACK 0x80000000u /* with how many; the answer says nothing */

struct rnic_cm_told {
	struct rnic_cm_get_event_reply event;
	/* ADDRESS_RESOLVED, CONNECT_REQUEST: what CM_QUERY says of the id; else of no device (node_guid 0). */
	struct rnic_cm_query_reply about;
};

#endif
