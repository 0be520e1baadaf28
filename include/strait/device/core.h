/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_DEVICE_CORE_H
#define STRAIT_DEVICE_CORE_H

/*
 * The frames of a mapping, for code that runs on a device: the protocol that changes the tables in device memory.
 * strait/device/layout.h has the tables, strait/device/slot.h requests to the host, and strait/view.h what applications call.
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
 * thread that added it, and has no effect. The generation counts bindings that ended. USED says that the page was accessed since
 * the hand of the clock passed.
 *
 * A load has no pin: it reads the page's word, the bytes, and the word again, which is the same if the frame was the page's all
 * the time (the generation). An evicting thread sets BUSY before the frame gets other bytes. With STRAIT_VIEW_FITS no frame is
 * ever evicted, and the word is not read again.
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
 * first completed its own fills, and a thread without a frame holds no pin of the operation that needs one. On a GPU a thread may
 * not run while another one of its warp loops, so accesses are made, and pins removed, inside of the loop that waits: no thread
 * leaves it with a pin (strait/device/access.h). So no cycle of waiting threads exists, unless the application holds pins (strait_view_pin()): such waits end with -ENOBUFS. All waits end
 * after strait_view.timeout_ns.
 *
 * Words in host memory have one writer each: the device writes requests, the host completions. The device reads a slot's
 * completion only in the thread that made its request; other threads wait for words in device memory.
 */

#include <strait/device/slot.h>

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
		seen = strait_vc_cas64_first(word, old, old | (strait_u64)STRAIT_GRANULE_FILLING << shift);
		if (seen == old)
			return STRAIT_GRANULE_ABSENT;
		old = seen;
	}
}

/* From FILLING to @state. */
STRAIT_DEVICE void strait_vc_filled(const struct strait_view *v, strait_u32 frame, strait_u32 i, strait_u32 state)
{
	strait_vc_give64_release(strait_vc_state_word(v, frame, i), (strait_u64)(state - STRAIT_GRANULE_FILLING)
									    << i % 32 * 2);
}

/* After a store to the granule, under a pin. */
STRAIT_DEVICE void strait_vc_mark_dirty(const struct strait_view *v, strait_u32 frame, strait_u32 i)
{
	strait_u32 *word = &v->dirty[(strait_u64)frame * v->words + i / 32], bit = 1u << i % 32;

	if (!(strait_vc_or32_release(word, bit) & bit))
		strait_vc_count64(&v->shared->dirty, 1);
}

/* ---- pages ---- */

STRAIT_DEVICE strait_u64 *strait_vc_page(const struct strait_view *v, strait_u64 g)
{
	return &v->page[g >> v->page_shift];
}

STRAIT_DEVICE int strait_vc_is_bound(strait_u64 word)
{
	return (word & (STRAIT_PAGE_BOUND | STRAIT_PAGE_BUSY)) == STRAIT_PAGE_BOUND;
}

/* @word: of the page, as it was read. */
STRAIT_DEVICE void strait_vc_touch(strait_u64 *page, strait_u64 word)
{
	if (!(word & STRAIT_PAGE_USED))
		strait_vc_set64(page, STRAIT_PAGE_USED);
}

STRAIT_DEVICE void strait_vc_unpin(const struct strait_view *v, strait_u64 g, strait_u32 n)
{
	strait_vc_give64_release(strait_vc_page(v, g), 0 - n * STRAIT_PAGE_PIN);
}

/* After a load of @x under a pin: the value that is added depends on @x, so that a GPU issues it after the load has come. */
STRAIT_DEVICE void strait_vc_unpin_loaded(const struct strait_view *v, strait_u64 g, strait_u32 x)
{
#if defined(__CUDACC__)
	strait_vc_count64(strait_vc_page(v, g), 0 - STRAIT_PAGE_PIN + (x & v->zero));
#else
	(void)x;
	strait_vc_unpin(v, g, 1);
#endif
}

/* Adds @n pins to the page of @g if it has a frame. */
STRAIT_DEVICE int strait_vc_pin(const struct strait_view *v, strait_u64 g, strait_u32 n, strait_u32 *frame)
{
	strait_u64 word = strait_vc_add64_first(strait_vc_page(v, g), n * STRAIT_PAGE_PIN);

	if (strait_vc_is_bound(word)) {
		strait_vc_touch(strait_vc_page(v, g), word);
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
		strait_vc_count64(&v->shared->stored, 1);
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

/* Takes the frame from its page. 0: not now. @clean: the view has no dirty granules, which the compiler knows. */
STRAIT_DEVICE int strait_vc_evict(const struct strait_view *v, strait_u32 frame, strait_u32 owner, int clean,
				  int *error)
{
	strait_u64 page = owner - STRAIT_FRAME_PAGE, *at = &v->page[page], word = strait_vc_load64(at), generation;

	if (!strait_vc_is_bound(word) || word >= STRAIT_PAGE_PIN || (word & STRAIT_PAGE_FRAME) != frame)
		return 0;
	if (word & STRAIT_PAGE_USED) {
		strait_vc_clear64(at, ~STRAIT_PAGE_USED);
		return 0;
	}
	if (strait_vc_cas64_first(at, word, word | STRAIT_PAGE_BUSY) != word)
		return 0;
	if (!clean && v->flags & STRAIT_VIEW_DIRTY) {
		int rc = strait_vc_write_back(v, page, frame);

		if (rc) {
			*error = rc;
			/* Others are tried before this one again. */
			strait_vc_set64(at, STRAIT_PAGE_USED);
			strait_vc_give64_release(at, 0 - STRAIT_PAGE_BUSY);
			return 0;
		}
	}
	for (strait_u32 i = 0; i < v->words; i++)
		strait_vc_store64(&v->state[(strait_u64)frame * v->words + i], 0);
	strait_vc_store32(&v->owner[frame], STRAIT_FRAME_TAKEN);
	generation = word >> STRAIT_PAGE_GENERATION_SHIFT & STRAIT_PAGE_GENERATION;
	/* Pins of other threads come and go meanwhile: the other fields are changed by a difference. */
	strait_vc_give64_release(at, (((generation + 1) & STRAIT_PAGE_GENERATION) << STRAIT_PAGE_GENERATION_SHIFT) -
					     (generation << STRAIT_PAGE_GENERATION_SHIFT) - STRAIT_PAGE_BUSY -
					     STRAIT_PAGE_BOUND - frame);
	strait_vc_count64(&v->shared->evicted, 1);
	return 1;
}

/*
 * A frame that belongs to no page. An attempt looks at a few frames only: while most are pinned, other threads need the tables more
 * than this one does. After STRAIT_VC_ATTEMPTS() of them the clock has passed each frame three times.
 */
#define STRAIT_VC_TRIES 64u
#define STRAIT_VC_ATTEMPTS(v) (3ull * (v)->n_frames / STRAIT_VC_TRIES + 1)

STRAIT_DEVICE int strait_vc_take_frame(const struct strait_view *v, int clean, strait_u32 *ret)
{
	int error = STRAIT_VIEW_ENOBUFS;

	for (strait_u32 tries = STRAIT_VC_TRIES; tries; tries--) {
		strait_u32 f = (strait_u32)(strait_vc_add64_relaxed(&v->shared->hand, 1) % v->n_frames);
		/* Of a frame that is not free this only reads the owner. */
		strait_u32 owner = strait_vc_cas32_first(&v->owner[f], STRAIT_FRAME_FREE, STRAIT_FRAME_TAKEN);

		if (owner == STRAIT_FRAME_TAKEN || (owner != STRAIT_FRAME_FREE && v->flags & STRAIT_VIEW_FITS))
			continue;
		if (owner == STRAIT_FRAME_FREE || strait_vc_evict(v, f, owner, clean, &error)) {
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

/* Sets BUSY of an absent page, whose word is @word: the caller binds it. */
STRAIT_DEVICE int strait_vc_bind_begin(const struct strait_view *v, strait_u64 g, strait_u64 word)
{
	return !(word & (STRAIT_PAGE_BOUND | STRAIT_PAGE_BUSY)) &&
	       strait_vc_cas64_first(strait_vc_page(v, g), word, word | STRAIT_PAGE_BUSY) == word;
}

/* Gives the page a frame, with @n pins. The caller fills the granule. */
STRAIT_DEVICE int strait_vc_bind_end(const struct strait_view *v, strait_u64 g, strait_u32 n, int clean,
				     strait_u32 *frame, int *error)
{
	strait_u64 *at = strait_vc_page(v, g);
	strait_u32 i = strait_vc_index(v, g);
	int rc = strait_vc_take_frame(v, clean, frame);

	if (rc) {
		*error = rc;
		strait_vc_give64_release(at, 0 - STRAIT_PAGE_BUSY);
		return STRAIT_VC_NOFRAME;
	}
	/* Before other threads can find the frame: no granule of it is valid. */
	strait_vc_store64(strait_vc_state_word(v, *frame, i), (strait_u64)STRAIT_GRANULE_FILLING << i % 32 * 2);
	strait_vc_store32(&v->owner[*frame], (strait_u32)(g >> v->page_shift) + STRAIT_FRAME_PAGE);
	strait_vc_set64(at, STRAIT_PAGE_USED);
	strait_vc_give64_release(at, STRAIT_PAGE_BOUND + *frame - STRAIT_PAGE_BUSY + n * STRAIT_PAGE_PIN);
	return STRAIT_VC_FILL;
}

#endif
