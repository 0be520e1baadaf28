/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_DEVICE_CORE_H
#define STRAIT_DEVICE_CORE_H

/*
 * The frames of a mapping, for code that runs on a device: tables in device memory, the protocol that changes them, and the
 * request slots through which the host reads and writes. strait/view.h has what applications call.
 *
 * Compiles as CUDA (nvcc and NVRTC, sm_70 and later), and as C or C++ for devices whose kernels are functions. Nothing but
 * these functions changes the tables while a view is begun.
 *
 * Objects
 *
 *	granule	 4 KiB of the mapping: the unit of fetches and of write-back
 *	page	 2^k granules of the mapping, aligned: what a frame holds
 *	frame	 device memory for a page. Each granule of it is absent, being filled, valid or failed, and clean or dirty
 *	slot	 4 KiB of host memory, a request to the host and its completion
 *
 * States of a page, all in one word:
 *
 *	absent	       no frame. Any thread may set BUSY
 *	BUSY	       one thread binds it to a frame
 *	BOUND	       has a frame. Any thread may add a pin, or set BUSY: to evict it only without pins
 *	BOUND | BUSY   one thread writes dirty granules back. To evict the page it takes the frame then
 *
 * BUSY belongs to the thread that set it. A pin that is added to a page with BUSY, or without BOUND, is removed again by the
 * thread that added it, and has no effect. The generation counts bindings that ended.
 *
 * Invariants (tests/unit/view_test.c checks them while threads run):
 *
 *	bound	   the page of a frame has that frame in its word, unless a thread with BUSY is between the two
 *	pinned	   a frame is taken from a page only when the page has no pin, and its generation changes then
 *	filled	   a granule is filled by the one thread that made it FILLING, which has a pin
 *	dirty	   a dirty granule is valid, and leaves its frame only after the host has stored it
 *	ordered	   the host has at most one write of a granule: later bytes are not overtaken by earlier ones
 *	again	   a granule that is stored to during its write-back is dirty afterwards
 *	pure-read  loads make nothing dirty
 *	once	   a slot is reused only after the host has completed its request
 *
 * Waiting. A thread that fills a granule waits for the host only. A thread that waits for a granule that another one fills has
 * first completed its own fills, and a thread without a frame holds no pin of the operation that needs one. So no cycle of
 * waiting threads exists, unless the application holds pins (strait_view_pin()): such waits end with -ENOBUFS. All waits end
 * after strait_view.timeout_ns.
 *
 * Words in host memory have one writer each: the device writes requests, the host completions. The device reads a slot's
 * completion only in the thread that made its request; other threads wait for words in device memory.
 */

#include <strait/device/atomic.h>

/* Changes with the layout of what host and device share. */
#define STRAIT_VIEW_ABI 1u

#define STRAIT_VIEW_GRANULE_SHIFT 12
#define STRAIT_VIEW_GRANULE 4096u
#define STRAIT_VIEW_SLOTS_MAX 1024u

/* Errors: negative, as of errno.h, which device code does not have. */
#define STRAIT_VIEW_EIO (-5)
#define STRAIT_VIEW_EACCES (-13)
#define STRAIT_VIEW_EINVAL (-22)
#define STRAIT_VIEW_ENOBUFS (-105)
#define STRAIT_VIEW_ETIMEDOUT (-110)

/* A page's word. */
#define STRAIT_PAGE_FRAME 0x3ffffffull
#define STRAIT_PAGE_BOUND (1ull << 26)
#define STRAIT_PAGE_BUSY (1ull << 27)
#define STRAIT_PAGE_GENERATION_SHIFT 28
#define STRAIT_PAGE_GENERATION 0xffffull
#define STRAIT_PAGE_PIN (1ull << 44)
#define STRAIT_PAGE_STATE (STRAIT_PAGE_PIN - 1)

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
	strait_u32 *used;  /* of each frame, for the clock: accessed since the hand passed */
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
	strait_u32 reserved;
};

/* ---- bounded waits ---- */

struct strait_vc_timer {
	strait_u64 deadline; /* 0: not read yet */
	strait_u32 round;
};

/* Pauses. 0: the time is up. */
STRAIT_DEVICE int strait_vc_wait(const struct strait_view *v, struct strait_vc_timer *w)
{
	strait_vc_pause(w->round);
	if (w->round++ % 16)
		return 1;
	if (!w->deadline)
		w->deadline = strait_vc_clock() + v->timeout_ns;
	return strait_vc_clock() < w->deadline;
}

/* ---- errors ---- */

STRAIT_DEVICE void strait_vc_record(const struct strait_view *v, strait_u64 granule, int error)
{
	strait_vc_add64(&v->shared->failed, 1);
	strait_vc_cas64(&v->shared->first_error, 0, granule << 16 | (strait_u64)-error);
}

/* ---- slots ---- */

STRAIT_DEVICE int strait_vc_is_complete(const struct strait_view *v, strait_u32 slot)
{
	return (strait_u32)(strait_vc_load64_sys(&v->completion[slot]) >> 32) ==
	       strait_vc_load32_relaxed(&v->shared->seq[slot]);
}

/*
 * Frees a slot that timed out and that the host has completed since. The thread that clears its bit of the quarantine looks
 * again: the slot may have been freed, and its next request may have timed out, since the first look.
 */
STRAIT_DEVICE void strait_vc_reclaim_slots(const struct strait_view *v)
{
	struct strait_view_shared *sh = v->shared;

	for (strait_u32 i = 0; i < v->n_slots; i++) {
		strait_u32 bit = 1u << i % 32;

		if (!(strait_vc_load32(&sh->quarantine[i / 32]) & bit) || !strait_vc_is_complete(v, i) ||
		    !(strait_vc_and32(&sh->quarantine[i / 32], ~bit) & bit))
			continue;
		if (strait_vc_is_complete(v, i))
			strait_vc_and32(&sh->taken[i / 32], ~bit);
		else
			strait_vc_or32(&sh->quarantine[i / 32], bit);
	}
}

/* A slot of the caller's own, -1: all are taken. */
STRAIT_DEVICE int strait_vc_slot_try(const struct strait_view *v)
{
	strait_u32 words = (v->n_slots + 31) / 32, first = strait_vc_hint() % words;

	for (strait_u32 i = 0; i < words; i++) {
		strait_u32 word = (first + i) % words, *at = &v->shared->taken[word], taken = strait_vc_load32(at);

		for (strait_u32 b = 0; b < 32 && ~taken; b++) {
			strait_u32 bit = 1u << b;

			if (taken & bit || word * 32 + b >= v->n_slots)
				continue;
			taken = strait_vc_or32(at, bit);
			if (!(taken & bit))
				return (int)(word * 32 + b);
		}
	}
	return -1;
}

/* Waits for a slot. The caller has none: those that have one wait for the host only. */
STRAIT_DEVICE int strait_vc_slot_get(const struct strait_view *v)
{
	struct strait_vc_timer w = { 0, 0 };

	do {
		int slot = strait_vc_slot_try(v);

		if (slot >= 0)
			return slot;
		strait_vc_reclaim_slots(v);
	} while (strait_vc_wait(v, &w));
	return STRAIT_VIEW_ETIMEDOUT;
}

STRAIT_DEVICE void strait_vc_slot_put(const struct strait_view *v, strait_u32 slot)
{
	strait_vc_and32(&v->shared->taken[slot / 32], ~(1u << slot % 32));
}

STRAIT_DEVICE void strait_vc_request(const struct strait_view *v, strait_u32 slot, strait_u32 op, strait_u64 granule)
{
	strait_u32 seq = strait_vc_load32_relaxed(&v->shared->seq[slot]) + 1;

	strait_vc_store32(&v->shared->seq[slot], seq);
	strait_vc_store64(&v->request[slot].granule, granule);
	strait_vc_store32(&v->request[slot].op, op);
	strait_vc_store32_sys(&v->request[slot].seq, seq);
}

/* Waits for the completion of the slot's request. -ETIMEDOUT: the slot is in quarantine and no longer the caller's. */
STRAIT_DEVICE int strait_vc_complete(const struct strait_view *v, strait_u32 slot)
{
	struct strait_view_shared *sh = v->shared;
	strait_u32 seq = strait_vc_load32_relaxed(&sh->seq[slot]);
	struct strait_vc_timer w = { 0, 0 };

	do {
		strait_u64 c = strait_vc_load64_sys(&v->completion[slot]);

		if ((strait_u32)(c >> 32) == seq)
			return (int)(strait_u32)c > 0 ? STRAIT_VIEW_EIO : (int)(strait_u32)c;
	} while (strait_vc_wait(v, &w));
	strait_vc_or32(&sh->quarantine[slot / 32], 1u << slot % 32);
	strait_vc_or32(&sh->quarantined, 1);
	return STRAIT_VIEW_ETIMEDOUT;
}

/* ---- granules of a frame ---- */

STRAIT_DEVICE char *strait_vc_data(const struct strait_view *v, strait_u32 frame, strait_u32 i)
{
	return v->data + (((strait_u64)frame << v->page_shift) + i) * STRAIT_VIEW_GRANULE;
}

STRAIT_DEVICE strait_u32 strait_vc_index(const struct strait_view *v, strait_u64 g)
{
	return (strait_u32)g & ((1u << v->page_shift) - 1);
}

STRAIT_DEVICE strait_u64 *strait_vc_state_word(const struct strait_view *v, strait_u32 frame, strait_u32 i)
{
	return &v->state[(strait_u64)frame * v->words + i / 32];
}

STRAIT_DEVICE strait_u32 strait_vc_state(const struct strait_view *v, strait_u32 frame, strait_u32 i)
{
	return (strait_u32)(strait_vc_load64(strait_vc_state_word(v, frame, i)) >> i % 32 * 2) & 3;
}

/* The caller, which has a pin, makes an absent granule FILLING. Returns the state it found. */
STRAIT_DEVICE strait_u32 strait_vc_claim(const struct strait_view *v, strait_u32 frame, strait_u32 i)
{
	strait_u64 *word = strait_vc_state_word(v, frame, i), old = strait_vc_load64(word), seen;
	strait_u32 shift = i % 32 * 2;

	for (;;) {
		if (old >> shift & 3)
			return (strait_u32)(old >> shift) & 3;
		seen = strait_vc_cas64(word, old, old | (strait_u64)STRAIT_GRANULE_FILLING << shift);
		if (seen == old)
			return STRAIT_GRANULE_ABSENT;
		old = seen;
	}
}

/* From FILLING to @state. */
STRAIT_DEVICE void strait_vc_filled(const struct strait_view *v, strait_u32 frame, strait_u32 i, strait_u32 state)
{
	strait_vc_add64(strait_vc_state_word(v, frame, i), (strait_u64)(state - STRAIT_GRANULE_FILLING) << i % 32 * 2);
}

/* After a store to the granule, under a pin. */
STRAIT_DEVICE void strait_vc_mark_dirty(const struct strait_view *v, strait_u32 frame, strait_u32 i)
{
	strait_u32 *word = &v->dirty[(strait_u64)frame * v->words + i / 32], bit = 1u << i % 32;

	if (!(strait_vc_or32(word, bit) & bit))
		strait_vc_add64(&v->shared->dirty, 1);
}

/* ---- copies of a granule ---- */

/* By one thread. */
STRAIT_DEVICE void strait_vc_copy(char *to, const char *from)
{
	strait_u64 *dst = (strait_u64 *)(void *)to;
	const strait_u64 *src = (const strait_u64 *)(const void *)from;

	strait_vc_data_fence();
	for (strait_u32 i = 0; i < STRAIT_VIEW_GRANULE / 8; i++)
		strait_vc_data_store(&dst[i], strait_vc_load64_relaxed(&src[i]));
}

#if defined(__CUDACC__)
/* By the threads of @mask, each of which has the same arguments. */
STRAIT_DEVICE void strait_vc_copy_together(char *to, const char *from, strait_u32 mask)
{
	strait_u32 lane = threadIdx.x % 32, n = __popc(mask), rank = __popc(mask & ((1u << lane) - 1));
	uint4 *dst = (uint4 *)to;
	const uint4 *src = (const uint4 *)from;

	strait_vc_data_fence();
	for (strait_u32 i = rank; i < STRAIT_VIEW_GRANULE / 16; i += n) {
		uint4 x;

		asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
			     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
			     : "l"(src + i)
			     : "memory");
		asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};"
			     :
			     : "l"(dst + i), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
			     : "memory");
	}
	strait_vc_data_fence();
}
#endif

/* ---- pages ---- */

STRAIT_DEVICE strait_u64 *strait_vc_page(const struct strait_view *v, strait_u64 g)
{
	return &v->page[g >> v->page_shift];
}

STRAIT_DEVICE int strait_vc_is_bound(strait_u64 word)
{
	return (word & (STRAIT_PAGE_BOUND | STRAIT_PAGE_BUSY)) == STRAIT_PAGE_BOUND;
}

STRAIT_DEVICE void strait_vc_touch(const struct strait_view *v, strait_u32 frame)
{
	if (!strait_vc_load32_relaxed(&v->used[frame]))
		strait_vc_store32(&v->used[frame], 1);
}

STRAIT_DEVICE void strait_vc_unpin(const struct strait_view *v, strait_u64 g, strait_u32 n)
{
	strait_vc_add64(strait_vc_page(v, g), 0 - n * STRAIT_PAGE_PIN);
}

/* Adds @n pins to the page of @g if it has a frame. */
STRAIT_DEVICE int strait_vc_pin(const struct strait_view *v, strait_u64 g, strait_u32 n, strait_u32 *frame)
{
	strait_u64 word = strait_vc_add64(strait_vc_page(v, g), n * STRAIT_PAGE_PIN);

	if (strait_vc_is_bound(word)) {
		*frame = (strait_u32)(word & STRAIT_PAGE_FRAME);
		return 1;
	}
	strait_vc_unpin(v, g, n);
	return 0;
}

/* May the host still make a write of the granule that timed out? The caller has set BUSY, so there is no other write of it. */
STRAIT_DEVICE int strait_vc_is_overdue(const struct strait_view *v, strait_u64 g)
{
	if (!strait_vc_load32(&v->shared->quarantined))
		return 0;
	for (strait_u32 i = 0; i < v->n_slots; i++)
		if (!strait_vc_is_complete(v, i) && strait_vc_load64_relaxed(&v->request[i].granule) == g &&
		    strait_vc_load32_relaxed(&v->request[i].op) == STRAIT_REQUEST_WRITE)
			return 1;
	return 0;
}

/*
 * Has the host store one dirty granule of a frame, whose page has BUSY by the caller. The bit is cleared before the bytes are
 * read, so that a store in between sets it again. On an error the granule stays dirty.
 */
STRAIT_DEVICE int strait_vc_store_granule(const struct strait_view *v, strait_u64 g, strait_u32 frame, strait_u32 i)
{
	strait_u32 *word = &v->dirty[(strait_u64)frame * v->words + i / 32], bit = 1u << i % 32;
	struct strait_vc_timer w = { 0, 0 };
	int slot, rc, overdue;

	do
		overdue = strait_vc_is_overdue(v, g);
	while (overdue && strait_vc_wait(v, &w));
	slot = overdue ? STRAIT_VIEW_ETIMEDOUT : strait_vc_slot_get(v);
	if (slot < 0) {
		strait_vc_record(v, g, slot);
		return slot;
	}
	if (!(strait_vc_and32(word, ~bit) & bit)) {
		strait_vc_slot_put(v, (strait_u32)slot);
		return 0;
	}
	strait_vc_copy(v->slot_data + (strait_u64)slot * STRAIT_VIEW_GRANULE, strait_vc_data(v, frame, i));
	strait_vc_request(v, (strait_u32)slot, STRAIT_REQUEST_WRITE, g);
	rc = strait_vc_complete(v, (strait_u32)slot);
	if (rc) {
		strait_vc_or32(word, bit);
		strait_vc_record(v, g, rc);
	} else {
		strait_vc_add64(&v->shared->stored, 1);
	}
	if (rc != STRAIT_VIEW_ETIMEDOUT)
		strait_vc_slot_put(v, (strait_u32)slot);
	return rc;
}

STRAIT_DEVICE int strait_vc_write_back(const struct strait_view *v, strait_u64 page, strait_u32 frame)
{
	strait_u32 n = 1u << v->page_shift;
	int rc = 0;

	for (strait_u32 i = 0; i < n && !rc; i++) {
		strait_u32 dirty = strait_vc_load32(&v->dirty[(strait_u64)frame * v->words + i / 32]);

		if (!(dirty >> i % 32)) {
			i |= 31;
			continue;
		}
		if (dirty >> i % 32 & 1)
			rc = strait_vc_store_granule(v, (page << v->page_shift) + i, frame, i);
	}
	return rc;
}

/* Takes the frame from its page. 0: not now. */
STRAIT_DEVICE int strait_vc_evict(const struct strait_view *v, strait_u32 frame, strait_u32 owner, int *error)
{
	strait_u64 page = owner - STRAIT_FRAME_PAGE, *at = &v->page[page], word = strait_vc_load64(at), generation;

	if (!strait_vc_is_bound(word) || word >= STRAIT_PAGE_PIN || (word & STRAIT_PAGE_FRAME) != frame)
		return 0;
	if (strait_vc_load32_relaxed(&v->used[frame])) {
		strait_vc_store32(&v->used[frame], 0);
		return 0;
	}
	if (strait_vc_cas64(at, word, word | STRAIT_PAGE_BUSY) != word)
		return 0;
	if (v->flags & STRAIT_VIEW_WRITE) {
		int rc = strait_vc_write_back(v, page, frame);

		if (rc) {
			*error = rc;
			/* Others are tried before this one again. */
			strait_vc_store32(&v->used[frame], 1);
			strait_vc_add64(at, 0 - STRAIT_PAGE_BUSY);
			return 0;
		}
	}
	for (strait_u32 i = 0; i < v->words; i++)
		strait_vc_store64(&v->state[(strait_u64)frame * v->words + i], 0);
	strait_vc_store32(&v->owner[frame], STRAIT_FRAME_TAKEN);
	generation = word >> STRAIT_PAGE_GENERATION_SHIFT & STRAIT_PAGE_GENERATION;
	/* Pins of other threads come and go meanwhile: the other fields are changed by a difference. */
	strait_vc_add64(at, (((generation + 1) & STRAIT_PAGE_GENERATION) << STRAIT_PAGE_GENERATION_SHIFT) -
				    (generation << STRAIT_PAGE_GENERATION_SHIFT) - STRAIT_PAGE_BUSY -
				    STRAIT_PAGE_BOUND - frame);
	strait_vc_add64(&v->shared->evicted, 1);
	return 1;
}

/* A frame that belongs to no page. The clock passes each frame at most three times. */
STRAIT_DEVICE int strait_vc_take_frame(const struct strait_view *v, strait_u32 *ret)
{
	int error = STRAIT_VIEW_ENOBUFS;

	for (strait_u64 tries = 3ull * v->n_frames; tries; tries--) {
		strait_u32 f = (strait_u32)(strait_vc_add64(&v->shared->hand, 1) % v->n_frames);
		strait_u32 owner = strait_vc_load32(&v->owner[f]);

		if (owner == STRAIT_FRAME_TAKEN)
			continue;
		if (owner == STRAIT_FRAME_FREE ? strait_vc_cas32(&v->owner[f], owner, STRAIT_FRAME_TAKEN) == owner :
						 strait_vc_evict(v, f, owner, &error)) {
			*ret = f;
			return 0;
		}
	}
	return error;
}

/* Outcomes of strait_vc_bind() and strait_vc_submit() beside errors. */
#define STRAIT_VC_DONE 0
#define STRAIT_VC_AGAIN 1   /* another thread changes the page: wait, without pins */
#define STRAIT_VC_NOFRAME 2 /* no frame can be taken now */
#define STRAIT_VC_FILL 3    /* the caller fills the granule */
#define STRAIT_VC_OTHER 4   /* another thread fills it */

/* Gives an absent page a frame, with @n pins. */
STRAIT_DEVICE int strait_vc_bind(const struct strait_view *v, strait_u64 g, strait_u32 n, strait_u32 *frame, int *error)
{
	strait_u64 *at = strait_vc_page(v, g), word = strait_vc_load64(at);
	int rc;

	if (word & (STRAIT_PAGE_BOUND | STRAIT_PAGE_BUSY) || strait_vc_cas64(at, word, word | STRAIT_PAGE_BUSY) != word)
		return STRAIT_VC_AGAIN;
	rc = strait_vc_take_frame(v, frame);
	if (rc) {
		*error = rc;
		strait_vc_add64(at, 0 - STRAIT_PAGE_BUSY);
		return STRAIT_VC_NOFRAME;
	}
	strait_vc_store32(&v->used[*frame], 1);
	strait_vc_store32(&v->owner[*frame], (strait_u32)(g >> v->page_shift) + STRAIT_FRAME_PAGE);
	strait_vc_add64(at, STRAIT_PAGE_BOUND + *frame - STRAIT_PAGE_BUSY + n * STRAIT_PAGE_PIN);
	return STRAIT_VC_DONE;
}

#endif
