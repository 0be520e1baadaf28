/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_DEVICE_FAULT_H
#define STRAIT_DEVICE_FAULT_H

/* Making granules valid: a frame, a request, the bytes. strait/device/core.h says which thread waits for which. */

#include <strait/device/core.h>

/* A granule that a thread needs, with pins on its page unless the outcome is an error, AGAIN or NOFRAME. */
struct strait_vc_fault {
	strait_u64 granule;
	strait_u64 word; /* of the page, as it was read lately; STRAIT_VC_UNREAD: it was not */
	strait_u32 frame, pins;
	int outcome;	    /* STRAIT_VC_* or an error */
	int slot;	    /* FILL: of the request, -1: none, read from a window, -2: none was free */
	int error;	    /* NOFRAME: why; FILL: of the read */
	strait_u32 noframe; /* attempts in a row that found no frame */
	int last;	    /* why, an error of write-back before -ENOBUFS */
	const char *from;   /* FILL: the bytes */
};

#define STRAIT_VC_UNREAD (~0ull)
#define STRAIT_VC_WINDOW (-1)
#define STRAIT_VC_NO_SLOT (-2)

STRAIT_DEVICE const char *strait_vc_window(const struct strait_view *v, strait_u64 g)
{
	strait_u64 base;

	if (!v->window)
		return (const char *)0;
	base = strait_vc_load64_relaxed(&v->window[g >> v->window_shift]);
	return base ? (const char *)(size_t)base + (g & ((1ull << v->window_shift) - 1)) * STRAIT_VIEW_GRANULE :
		      (const char *)0;
}

/* First step: a frame. May write another page back, which takes a slot, so the threads of a warp have none at this point. */
STRAIT_DEVICE void strait_vc_fault_bind(const struct strait_view *v, struct strait_vc_fault *f)
{
	strait_u64 word = f->word;

	/* Both loads are in flight at a time. */
	f->from = strait_vc_window(v, f->granule);
	if (word == STRAIT_VC_UNREAD)
		word = strait_vc_load64(strait_vc_page(v, f->granule));
	f->word = STRAIT_VC_UNREAD;
	f->error = 0;
	if (!strait_vc_is_bound(word))
		f->outcome = strait_vc_bind_begin(v, f->granule, word) ?
				     strait_vc_bind_end(v, f->granule, f->pins, 0, &f->frame, &f->error) :
				     STRAIT_VC_AGAIN;
	else
		f->outcome = strait_vc_pin(v, f->granule, f->pins, &f->frame) ? STRAIT_VC_DONE : STRAIT_VC_AGAIN;
}

/* Second step: claims the granule and requests its bytes. Does not wait. */
STRAIT_DEVICE void strait_vc_fault_submit(const struct strait_view *v, struct strait_vc_fault *f)
{
	strait_u32 i = strait_vc_index(v, f->granule), state;

	if (f->outcome != STRAIT_VC_DONE && f->outcome != STRAIT_VC_FILL)
		return;
	if (f->outcome == STRAIT_VC_DONE) {
		state = strait_vc_claim(v, f->frame, i);
		if (state == STRAIT_GRANULE_FAILED) {
			f->outcome = (int)strait_vc_load32((const strait_u32 *)&v->error[f->frame]);
			strait_vc_unpin(v, f->granule, f->pins);
			return;
		}
		if (state != STRAIT_GRANULE_ABSENT) {
			f->outcome = state == STRAIT_GRANULE_VALID ? STRAIT_VC_DONE : STRAIT_VC_OTHER;
			return;
		}
		f->outcome = STRAIT_VC_FILL;
	}
	f->slot = f->from ? STRAIT_VC_WINDOW : strait_vc_slot_try(v);
	if (f->slot >= 0)
		strait_vc_request(v, (strait_u32)f->slot, STRAIT_REQUEST_READ, f->granule);
	else if (!f->from)
		f->slot = STRAIT_VC_NO_SLOT;
}

/* Third step, of a thread that fills: waits for the bytes. */
STRAIT_DEVICE void strait_vc_fault_fetch(const struct strait_view *v, struct strait_vc_fault *f)
{
	if (f->slot == STRAIT_VC_WINDOW)
		return;
	if (f->slot == STRAIT_VC_NO_SLOT) {
		f->slot = strait_vc_slot_get(v);
		if (f->slot < 0) {
			f->error = f->slot;
			return;
		}
		strait_vc_request(v, (strait_u32)f->slot, STRAIT_REQUEST_READ, f->granule);
	}
	f->error = strait_vc_complete(v, (strait_u32)f->slot);
	f->from = v->slot_data + (strait_u64)(strait_u32)f->slot * STRAIT_VIEW_GRANULE;
}

/* Fourth step, after the bytes were copied to the frame, or with an error. */
STRAIT_DEVICE void strait_vc_fault_end(const struct strait_view *v, struct strait_vc_fault *f)
{
	strait_u32 i = strait_vc_index(v, f->granule);

	if (f->slot >= 0 && f->error != STRAIT_VIEW_ETIMEDOUT)
		strait_vc_slot_put(v, (strait_u32)f->slot);
	if (!f->error) {
		strait_vc_count64(f->slot >= 0 ? &v->shared->fetched : &v->shared->pulled, 1);
		strait_vc_filled(v, f->frame, i, STRAIT_GRANULE_VALID);
		f->outcome = STRAIT_VC_DONE;
		return;
	}
	strait_vc_record(v, f->granule, f->error);
	strait_vc_store32((strait_u32 *)&v->error[f->frame], (strait_u32)f->error);
	strait_vc_filled(v, f->frame, i, STRAIT_GRANULE_FAILED);
	f->outcome = f->error;
	strait_vc_unpin(v, f->granule, f->pins);
}

/* Last step, without fills of its own left: waits for the thread that fills the granule. */
STRAIT_DEVICE void strait_vc_fault_wait(const struct strait_view *v, struct strait_vc_fault *f)
{
	strait_u32 i = strait_vc_index(v, f->granule), state;
	struct strait_vc_timer w = { 0, 0 };

	strait_vc_count64(&v->shared->waited, 1);
	do {
		state = strait_vc_state(v, f->frame, i);
		if (state == STRAIT_GRANULE_VALID) {
			f->outcome = STRAIT_VC_DONE;
			return;
		}
	} while (state == STRAIT_GRANULE_FILLING && strait_vc_wait(v, &w));
	f->outcome = state == STRAIT_GRANULE_FAILED ? (int)strait_vc_load32((const strait_u32 *)&v->error[f->frame]) :
						      STRAIT_VIEW_ETIMEDOUT;
	strait_vc_unpin(v, f->granule, f->pins);
}

#if defined(__CUDACC__)

/* Copies what the threads of @lanes have fetched, with all threads of @mask. */
STRAIT_DEVICE void strait_vc_fill_together(const struct strait_view *v, struct strait_vc_fault *f, strait_u32 lanes,
					   strait_u32 mask)
{
	for (; lanes; lanes &= lanes - 1) {
		strait_u32 lane = __ffs((int)lanes) - 1, here = threadIdx.x % 32;
		strait_u64 from, to;

		if (here == lane)
			strait_vc_fault_fetch(v, f);
		__syncwarp(mask);
		from = __shfl_sync(mask, f->error ? 0 : (strait_u64)f->from, lane);
		to = __shfl_sync(mask, (strait_u64)strait_vc_data(v, f->frame, strait_vc_index(v, f->granule)), lane);
		if (from)
			strait_vc_copy_together((char *)to, (const char *)from, mask);
		__syncwarp(mask);
		if (here == lane)
			strait_vc_fault_end(v, f);
	}
}

/*
 * All threads of a warp have the same granule, which no frame has, and which is in a window: its bytes are on their way while the
 * first thread takes a frame. Not if another page may have to be written back first. 0: nothing was done.
 */
STRAIT_DEVICE int strait_vc_fault_first(const struct strait_view *v, struct strait_vc_fault *f)
{
	strait_u32 leads = threadIdx.x % 32 == 0;
	const char *from = strait_vc_window(v, f->granule);
	strait_u64 word = f->word, to;
	int got = 0;
	uint4 x[8];

	if (leads && word == STRAIT_VC_UNREAD)
		word = strait_vc_load64_first(strait_vc_page(v, f->granule));
	f->word = STRAIT_VC_UNREAD;
	if (leads && from)
		got = strait_vc_bind_begin(v, f->granule, word);
	if (!__shfl_sync(0xffffffffu, got, 0))
		return 0;
	strait_vc_granule_load(x, from);
	f->slot = STRAIT_VC_WINDOW;
	f->error = 0;
	if (leads)
		f->outcome = strait_vc_bind_end(v, f->granule, 32, 1, &f->frame, &f->error);
	if (__shfl_sync(0xffffffffu, f->outcome, 0) != STRAIT_VC_FILL)
		return 1;
	to = __shfl_sync(0xffffffffu, (strait_u64)strait_vc_data(v, f->frame, strait_vc_index(v, f->granule)), 0);
	strait_vc_granule_store((char *)to, x);
	__syncwarp();
	if (leads)
		strait_vc_fault_end(v, f);
	return 1;
}

/* One attempt by all active threads of a warp, each with its granule. */
STRAIT_DEVICE void strait_vc_fault_run(const struct strait_view *v, struct strait_vc_fault *f)
{
	strait_u32 mask = __activemask(), peers = __match_any_sync(mask, f->granule), lane = threadIdx.x % 32;
	strait_u32 leader = __ffs((int)peers) - 1, leads = lane == leader, ready;

	f->pins = __popc(peers);
	f->outcome = STRAIT_VC_AGAIN;
	if (peers != 0xffffffffu || v->flags & STRAIT_VIEW_DIRTY || !v->window || !strait_vc_fault_first(v, f)) {
		if (leads)
			strait_vc_fault_bind(v, f);
		__syncwarp(mask);
		if (leads)
			strait_vc_fault_submit(v, f);
		__syncwarp(mask);
		/* First what has a source: then no thread of the warp that waits for a slot has one. */
		ready = leads && f->outcome == STRAIT_VC_FILL && f->slot != STRAIT_VC_NO_SLOT;
		strait_vc_fill_together(v, f, __ballot_sync(mask, ready), mask);
		strait_vc_fill_together(v, f, __ballot_sync(mask, leads && f->outcome == STRAIT_VC_FILL), mask);
	}
	if (leads && f->outcome == STRAIT_VC_OTHER)
		strait_vc_fault_wait(v, f);
	__syncwarp(mask);
	f->outcome = __shfl_sync(mask, f->outcome, leader);
	f->error = __shfl_sync(mask, f->error, leader);
	f->frame = __shfl_sync(mask, f->frame, leader);
}

#else

STRAIT_DEVICE void strait_vc_fault_run(const struct strait_view *v, struct strait_vc_fault *f)
{
	f->pins = 1;
	strait_vc_fault_bind(v, f);
	strait_vc_fault_submit(v, f);
	if (f->outcome == STRAIT_VC_FILL) {
		strait_vc_fault_fetch(v, f);
		if (!f->error)
			strait_vc_copy(strait_vc_data(v, f->frame, strait_vc_index(v, f->granule)), f->from);
		strait_vc_fault_end(v, f);
	}
	if (f->outcome == STRAIT_VC_OTHER)
		strait_vc_fault_wait(v, f);
}

#endif

#endif
