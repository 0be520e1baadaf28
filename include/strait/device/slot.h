/* SPDX-License-Identifier: MIT */
#ifndef STRAIT_DEVICE_SLOT_H
#define STRAIT_DEVICE_SLOT_H

/* Waits, and the slots through which the host reads and writes for the device. */

#include <strait/device/layout.h>

/* ---- bounded waits ---- */

struct strait_vc_timer {
	strait_u32 start; /* in units of 65 us */
	strait_u32 round;
};

/* Pauses. 0: the time is up. */
STRAIT_DEVICE int strait_vc_wait(const struct strait_view *v, struct strait_vc_timer *w)
{
	strait_u32 now;

	strait_vc_pause(w->round);
	if (w->round++ % 16)
		return 1;
	now = (strait_u32)(strait_vc_clock() >> 16);
	if (w->round == 1)
		w->start = now;
	return now - w->start <= v->timeout_ns >> 16;
}

/* ---- errors ---- */

STRAIT_DEVICE void strait_vc_record(const struct strait_view *v, strait_u64 granule, int error)
{
	strait_vc_count64(&v->shared->failed, 1);
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
	strait_u32 words = (v->n_slots + 31) / 32, hint = strait_vc_hint(), first = hint % words;

	for (strait_u32 i = 0; i < words; i++) {
		strait_u32 word = (first + i) % words, *at = &v->shared->taken[word], taken = strait_vc_load32(at);

		/* Threads begin at different slots of a word: those that begin at the same one wait for each other. */
		for (strait_u32 b = 0; b < 32 && ~taken; b++) {
			strait_u32 n = (hint / words + b) % 32, bit = 1u << n;

			if (taken & bit || word * 32 + n >= v->n_slots)
				continue;
			taken = strait_vc_or32(at, bit);
			if (!(taken & bit))
				return (int)(word * 32 + n);
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
#if defined(__CUDACC__)
	/* One write of 16 bytes on the bus, so the host sees all of it or nothing. Only a write has bytes to be seen before. */
	if (op == STRAIT_REQUEST_READ) {
		asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};"
			     :
			     : "l"(&v->request[slot]), "l"(granule), "l"((strait_u64)seq << 32 | op)
			     : "memory");
		return;
	}
#endif
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

/* ---- copies of a granule ---- */

#if defined(__CUDACC__)
#define STRAIT_VC_MOVE_LOAD(val, p)                                                                                    \
	asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"                                            \
		     : "=r"((val).x), "=r"((val).y), "=r"((val).z), "=r"((val).w)                                      \
		     : "l"(p)                                                                                          \
		     : "memory")
#define STRAIT_VC_MOVE_STORE(p, val)                                                                                   \
	asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};"                                            \
		     :                                                                                                 \
		     : "l"(p), "r"((val).x), "r"((val).y), "r"((val).z), "r"((val).w)                                  \
		     : "memory")

/* A granule in registers of a warp: loads, which are in flight at a time, and stores. */
STRAIT_DEVICE void strait_vc_granule_load(uint4 *x, const char *from)
{
	from += threadIdx.x % 32 * 16;
#pragma unroll
	for (strait_u32 k = 0; k < 8; k++)
		STRAIT_VC_MOVE_LOAD(x[k], from + k * 512);
}

STRAIT_DEVICE void strait_vc_granule_store(char *to, const uint4 *x)
{
	to += threadIdx.x % 32 * 16;
#pragma unroll
	for (strait_u32 k = 0; k < 8; k++)
		STRAIT_VC_MOVE_STORE(to + k * 512, x[k]);
}

/*
 * By the threads of @mask, each of which has the same arguments. From the host or to it. What follows a __syncwarp() sees the
 * bytes.
 */
STRAIT_DEVICE void strait_vc_copy_together(char *to, const char *from, strait_u32 mask)
{
	strait_u32 n = __popc(mask), i = __popc(mask & ((1u << threadIdx.x % 32) - 1)) * 16;

	if (mask == 0xffffffffu) {
		uint4 x[8];

		strait_vc_granule_load(x, from);
		strait_vc_granule_store(to, x);
		return;
	}
	for (; i < STRAIT_VIEW_GRANULE; i += n * 32) {
		uint4 x[2];

#pragma unroll
		for (strait_u32 k = 0; k < 2; k++)
			if (i + k * n * 16 < STRAIT_VIEW_GRANULE)
				STRAIT_VC_MOVE_LOAD(x[k], from + i + k * n * 16);
#pragma unroll
		for (strait_u32 k = 0; k < 2; k++)
			if (i + k * n * 16 < STRAIT_VIEW_GRANULE)
				STRAIT_VC_MOVE_STORE(to + i + k * n * 16, x[k]);
	}
}
#undef STRAIT_VC_MOVE_LOAD
#undef STRAIT_VC_MOVE_STORE

/* By one thread. */
STRAIT_DEVICE void strait_vc_copy(char *to, const char *from)
{
	strait_vc_copy_together(to, from, 1u << threadIdx.x % 32);
}
#else
/* A load that reads what a later binding of the frame stored also sees that binding in the page's word: release and acquire. */
STRAIT_DEVICE void strait_vc_copy(char *to, const char *from)
{
	strait_u64 *dst = (strait_u64 *)(void *)to;
	const strait_u64 *src = (const strait_u64 *)(const void *)from;

	for (strait_u32 i = 0; i < STRAIT_VIEW_GRANULE / 8; i++)
		__atomic_store_n(&dst[i], strait_vc_load64_relaxed(&src[i]), __ATOMIC_RELEASE);
}
#endif

#endif
