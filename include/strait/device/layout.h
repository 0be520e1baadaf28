/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_DEVICE_LAYOUT_H
#define STRAIT_DEVICE_LAYOUT_H

/* What host and device share: tables in device memory, slots in host memory. strait/device/core.h has the protocol. */

#include <strait/device/atomic.h>

/* Changes with the layout of what host and device share. */
#define STRAIT_VIEW_ABI 2u

#define STRAIT_VIEW_GRANULE_SHIFT 12
#define STRAIT_VIEW_GRANULE 4096u
#define STRAIT_VIEW_SLOTS_MAX 1024u

/* Errors: negative, as of errno.h, which device code does not have. */
#define STRAIT_VIEW_EIO (-5)
#define STRAIT_VIEW_EACCES (-13)
#define STRAIT_VIEW_EINVAL (-22)
#define STRAIT_VIEW_ENOBUFS (-105)
#define STRAIT_VIEW_ETIMEDOUT (-110)

/* A page's word. Cursors compare the fields of STRAIT_PAGE_STATE. */
#define STRAIT_PAGE_FRAME 0x3ffffffull
#define STRAIT_PAGE_BOUND (1ull << 26)
#define STRAIT_PAGE_BUSY (1ull << 27)
#define STRAIT_PAGE_GENERATION_SHIFT 28
#define STRAIT_PAGE_GENERATION 0x7fffull
#define STRAIT_PAGE_USED (1ull << 43) /* for the clock: accessed since the hand passed */
#define STRAIT_PAGE_PIN (1ull << 44)
#define STRAIT_PAGE_STATE (STRAIT_PAGE_USED - 1)

/* The state of a granule, 2 bits each in a word for 32. */
#define STRAIT_GRANULE_ABSENT 0u
#define STRAIT_GRANULE_FILLING 1u
#define STRAIT_GRANULE_VALID 2u
#define STRAIT_GRANULE_FAILED 3u

/* strait_view.owner of a frame: free, being bound, or its page + 2. */
#define STRAIT_FRAME_FREE 0u
#define STRAIT_FRAME_TAKEN 1u
#define STRAIT_FRAME_PAGE 2u

#define STRAIT_REQUEST_READ 0u
#define STRAIT_REQUEST_WRITE 1u

/* Flags of a view. */
#define STRAIT_VIEW_WRITE (1u << 0)    /* stores are allowed */
#define STRAIT_VIEW_RESERVED (1u << 1) /* there are frames for all pins: strait_view_pin() may wait for one */
#define STRAIT_VIEW_DIRTY (1u << 3)    /* frames may have dirty granules, of this view or one before */
#define STRAIT_VIEW_FITS (1u << 2)     /* a frame for each page: none is evicted, and loads need not check */

/* Granules of a block, the part of a page that a cursor remembers: at most half a word of states. */
#define STRAIT_VIEW_BLOCK_SHIFT 4

/* Written by the device. @seq last. */
struct strait_view_request {
	strait_u64 granule;
	strait_u32 op;
	strait_u32 seq;
};

/* Counters and allocators, in device memory. */
struct strait_view_shared {
	strait_u64 hand;	/* of the clock over frames */
	strait_u64 dirty;	/* granules that became dirty */
	strait_u64 fetched;	/* granules read through slots */
	strait_u64 pulled;	/* granules read from windows */
	strait_u64 stored;	/* granules written back */
	strait_u64 evicted;	/* frames taken from a page */
	strait_u64 waited;	/* waits for a granule that another thread filled */
	strait_u64 failed;	/* granules that could not be read or written */
	strait_u64 first_error; /* granule << 16 | -errno of the first failure, 0: none */
	strait_u32 quarantined; /* slots whose request timed out */
	strait_u32 reserved;
	strait_u32 taken[STRAIT_VIEW_SLOTS_MAX / 32]; /* bitmap of slots in use */
	strait_u32
		quarantine[STRAIT_VIEW_SLOTS_MAX / 32]; /* of these, timed out: free once the host has completed them */
	strait_u32 seq[STRAIT_VIEW_SLOTS_MAX];		/* of the last request of a slot */
};

/**
 * struct strait_view - The frames of a mapping, as passed by value to a kernel
 *
 * Filled by strait_view_begin(); the members are for the functions of this header.
 */
struct strait_view {
	strait_u32 abi; /* STRAIT_VIEW_ABI */
	strait_u32 flags;
	strait_u64 length; /* bytes of the mapping */
	strait_u64 granules;
	strait_u32 page_shift; /* granules of a page: 1 << page_shift */
	strait_u32 n_frames;
	strait_u32 words; /* of a frame in @state and @dirty */
	strait_u32 n_slots;
	strait_u64 timeout_ns;
	/* Device memory. */
	strait_u64 *page;  /* a word for each page of the mapping */
	strait_u32 *owner; /* a word for each frame: STRAIT_FRAME_* */
	int *error;	   /* of each frame: of the granule that failed last */
	strait_u64 *state; /* 2 bits for each granule of a frame */
	strait_u32 *dirty; /* a bit for each granule of a frame */
	char *data;
	struct strait_view_shared *shared;
	/* Host memory, as the device addresses it. */
	struct strait_view_request *request; /* of each slot */
	const strait_u64 *completion;	     /* of each slot: seq << 32 | status */
	char *slot_data;
	/* Windows of the file that the device reads in place: device addresses, 0: none. NULL: no windows. */
	const strait_u64 *window;
	strait_u32 window_shift; /* granules of a window: 1 << window_shift */
	strait_u32
		block_shift; /* granules of a block: 1 << block_shift; page_shift, or STRAIT_VIEW_BLOCK_SHIFT if that is less */
	strait_u32 zero; /* 0, which the compiler does not know */
	strait_u32 reserved;
};

#endif
