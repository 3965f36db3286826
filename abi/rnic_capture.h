/*
 * What the daemon and `rnic capture` share while frames are captured: a ring of octets for each
 * device, in a sealed memfd that both map whole. The device's worker writes, `rnic capture` reads;
 * neither ever waits for the other. C11 and C++20.
 *
 * A frame is a rnic_capture_record and its octets, padded to a multiple of 8; records follow one
 * another and wrap wherever the ring ends. A frame that finds no room is counted and left out.
 *
 * The worker believes nothing in here but `consumed`, and of that only that what it claims to be
 * used fits the ring: a reader that scribbles loses frames and nothing else.
 */
#ifndef RNIC_CAPTURE_H
#define RNIC_CAPTURE_H

#include <stddef.h>
#include <stdint.h>

#include "rnic_shm.h"

#define RNIC_CAPTURE_VERSION 1u
#define RNIC_CAPTURE_DATA 4096u /* where the ring begins in the memfd */

struct rnic_capture_ring {
	uint32_t version;
	uint32_t size; /* octets of the ring, a power of two */
	uint8_t pad0[56];

	/* by the worker */
	uint64_t produced; /* octets ever written; stored last, with release */
	uint64_t frames;   /* ever seen, dropped ones too */
	uint64_t dropped;  /* found no room */
	uint8_t pad1[40];

	/* by the reader */
	uint64_t consumed; /* octets ever read, with release; never more than produced */
	uint8_t pad2[56];
};
RNIC_STATIC_ASSERT(sizeof(struct rnic_capture_ring) == 192, "who writes has a line of its own");
RNIC_STATIC_ASSERT(offsetof(struct rnic_capture_ring, produced) == 64, "the worker's line");
RNIC_STATIC_ASSERT(offsetof(struct rnic_capture_ring, consumed) == 128, "the reader's line");

enum rnic_capture_direction { RNIC_CAPTURE_RECEIVED = 1, RNIC_CAPTURE_SENT = 2 };

struct rnic_capture_record {
	uint64_t time_ns; /* CLOCK_REALTIME */
	uint32_t length;  /* octets of the frame */
	uint32_t direction;
};
RNIC_STATIC_ASSERT(sizeof(struct rnic_capture_record) == 16, "a record");

#endif
