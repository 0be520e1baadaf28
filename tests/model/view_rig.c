/* SPDX-License-Identifier: MIT */
#include "view_rig.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/harness.h"

/* ---- the host ---- */

static int host_serve(struct view_rig *r, unsigned int slot)
{
	uint64_t g = __atomic_load_n(&r->request[slot].granule, __ATOMIC_RELAXED);
	bool write = __atomic_load_n(&r->request[slot].op, __ATOMIC_RELAXED) == STRAIT_REQUEST_WRITE;
	char *slot_data = r->v.slot_data + slot * GRANULE;

	if (g >= r->granules)
		return -EINVAL;
	if (g == r->host.bad)
		return -EIO;
	if (write && atomic_load(&r->host.full))
		return -ENOSPC;
	if (write)
		memcpy(r->file + g * WORDS, slot_data, GRANULE);
	else
		memcpy(slot_data, r->file + g * WORDS, GRANULE);
	atomic_fetch_add(write ? &r->writes : &r->reads, 1);
	return 0;
}

static void *host_main(void *arg)
{
	struct view_rig *r = arg;
	unsigned int me = (unsigned int)(pthread_equal(pthread_self(), r->thread[1]) != 0);
	uint64_t seed = 77;

	while (!atomic_load(&r->stop)) {
		for (unsigned int s = 0; s < r->v.n_slots; s++) {
			uint32_t seq = __atomic_load_n(&r->request[s].seq, __ATOMIC_ACQUIRE);
			uint64_t has = atomic_load(&r->completion[s]);
			int rc;

			if (me != s % 2 || atomic_load(&r->host.silent) || seq == (uint32_t)(has >> 32))
				continue;
			if (r->host.delay_us)
				usleep((useconds_t)prng_below(&seed, r->host.delay_us));
			if (r->host.twice) {
				atomic_store(&r->completion[s], (uint64_t)(seq + 7) << 32);
				atomic_store(&r->completion[s], (uint64_t)(seq - 1) << 32 | (uint32_t)-EIO);
			}
			rc = host_serve(r, s);
			atomic_store(&r->completion[s], (uint64_t)seq << 32 | (uint32_t)rc);
			if (r->host.twice)
				atomic_store(&r->completion[s], (uint64_t)seq << 32 | (uint32_t)rc);
		}
		sched_yield();
	}
	return NULL;
}

/* ---- the rig ---- */

void *view_zeros(size_t n, size_t size)
{
	void *p = calloc(n, size);

	ASSERT_TRUE(p);
	return p;
}

uint64_t view_pattern(uint64_t word)
{
	return word * 0x9e3779b97f4a7c15ull + 1;
}

void view_rig_open(struct view_rig *r, uint64_t granules, unsigned int frames, unsigned int page_shift,
		   unsigned int slots)
{
	struct strait_view *v = &r->v;

	memset(r, 0, sizeof(*r));
	r->granules = granules;
	r->host.bad = UINT64_MAX;
	r->file = view_zeros(granules, GRANULE);
	for (uint64_t i = 0; i < granules * WORDS; i++)
		r->file[i] = view_pattern(i);
	*v = (struct strait_view){ .abi = STRAIT_VIEW_ABI,
				   .flags = STRAIT_VIEW_WRITE | STRAIT_VIEW_DIRTY,
				   .length = granules * GRANULE,
				   .granules = granules,
				   .page_shift = page_shift,
				   .block_shift = page_shift < STRAIT_VIEW_BLOCK_SHIFT ? page_shift :
											 STRAIT_VIEW_BLOCK_SHIFT,
				   .n_frames = frames,
				   .n_slots = slots,
				   .words = page_shift > 5 ? 1u << (page_shift - 5) : 1,
				   .timeout_ns = 20000000000ull * test_slow() };
	if (frames >= (granules + (1u << page_shift) - 1) >> page_shift)
		v->flags |= STRAIT_VIEW_FITS;
	v->page = view_zeros((granules >> page_shift) + 1, sizeof(*v->page));
	v->owner = view_zeros(frames, sizeof(*v->owner));
	v->error = view_zeros(frames, sizeof(*v->error));
	v->state = view_zeros((size_t)frames * v->words, sizeof(*v->state));
	v->dirty = view_zeros((size_t)frames * v->words, sizeof(*v->dirty));
	v->data = view_zeros((size_t)frames << page_shift, GRANULE);
	v->shared = r->shared = view_zeros(1, sizeof(*v->shared));
	v->request = r->request = view_zeros(slots, sizeof(*v->request));
	r->completion = view_zeros(slots, sizeof(*r->completion));
	v->completion = (const strait_u64 *)(const void *)r->completion;
	v->slot_data = view_zeros(slots, GRANULE);
}

void view_rig_start(struct view_rig *r)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

	/* The threads compare their ids with these. */
	pthread_mutex_lock(&lock);
	for (int i = 1; i >= 0; i--)
		ASSERT_EQ(pthread_create(&r->thread[i], NULL, host_main, r), 0);
	pthread_mutex_unlock(&lock);
}

/* No thread uses the view. */
void view_rig_check(struct view_rig *r)
{
	struct strait_view *v = &r->v;

	for (uint64_t p = 0; p << v->page_shift < r->granules; p++) {
		uint64_t word = v->page[p];

		ASSERT_EQ(word / STRAIT_PAGE_PIN, 0);
		ASSERT_FALSE(word & STRAIT_PAGE_BUSY);
		if (word & STRAIT_PAGE_BOUND)
			ASSERT_EQ(v->owner[word & STRAIT_PAGE_FRAME], p + STRAIT_FRAME_PAGE);
		else
			ASSERT_EQ(word & STRAIT_PAGE_FRAME, 0);
	}
	for (uint32_t f = 0; f < v->n_frames; f++) {
		ASSERT_NE(v->owner[f], STRAIT_FRAME_TAKEN);
		if (v->owner[f] != STRAIT_FRAME_FREE)
			ASSERT_EQ(v->page[v->owner[f] - STRAIT_FRAME_PAGE] & STRAIT_PAGE_FRAME, f);
		for (uint32_t i = 0; i < 1u << v->page_shift; i++) {
			uint32_t state = strait_vc_state(v, f, i);
			bool dirty = v->dirty[(uint64_t)f * v->words + i / 32] >> i % 32 & 1;

			ASSERT_NE(state, STRAIT_GRANULE_FILLING);
			ASSERT_TRUE(!dirty || state == STRAIT_GRANULE_VALID);
		}
	}
	for (unsigned int s = 0; s < v->n_slots; s++)
		ASSERT_EQ(r->shared->taken[s / 32] & ~r->shared->quarantine[s / 32] & 1u << s % 32, 0);
}

void view_rig_close(struct view_rig *r)
{
	struct strait_view *v = &r->v;

	view_rig_check(r);
	atomic_store(&r->stop, true);
	for (int i = 0; i < 2; i++)
		pthread_join(r->thread[i], NULL);
	free(r->file);
	free(v->page);
	free(v->owner);
	free(v->error);
	free(v->state);
	free(v->dirty);
	free(v->data);
	free(r->shared);
	free(r->request);
	free((void *)r->completion);
	free(v->slot_data);
}
