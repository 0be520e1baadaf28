/* SPDX-License-Identifier: MIT */
/*
 * Write-backs of one granule that overlap (strait/view.h): the host serves the slots in the order that would lose a store, if
 * two of them had a write of the granule at a time. tests/model/spin/view.pml has every order.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <strait/view.h>
#include <string.h>
#include <unistd.h>

#include "harness/harness.h"

#define SLOTS 2u
#define AT 8u /* the word that is stored to */

static struct {
	struct strait_view v;
	uint64_t page[1], state[1], file[STRAIT_VIEW_GRANULE / 8];
	uint32_t owner[1], dirty[1];
	int error[1];
	uint64_t data[STRAIT_VIEW_GRANULE / 8], slot_data[SLOTS][STRAIT_VIEW_GRANULE / 8];
	struct strait_view_shared shared;
	struct strait_view_request request[SLOTS];
	_Atomic uint64_t completion[SLOTS];
} rig;

static void rig_open(uint64_t timeout_ns)
{
	rig.v = (struct strait_view){ .abi = STRAIT_VIEW_ABI,
				      .flags = STRAIT_VIEW_WRITE | STRAIT_VIEW_DIRTY,
				      .length = STRAIT_VIEW_GRANULE,
				      .granules = 1,
				      .n_frames = 1,
				      .words = 1,
				      .n_slots = SLOTS,
				      .timeout_ns = timeout_ns };
	rig.v.page = (strait_u64 *)rig.page;
	rig.v.owner = rig.owner;
	rig.v.error = rig.error;
	rig.v.state = (strait_u64 *)rig.state;
	rig.v.dirty = rig.dirty;
	rig.v.data = (char *)rig.data;
	rig.v.shared = &rig.shared;
	rig.v.request = rig.request;
	rig.v.completion = (const strait_u64 *)(const void *)rig.completion;
	rig.v.slot_data = (char *)rig.slot_data;
}

static bool requested(unsigned int slot)
{
	return __atomic_load_n(&rig.request[slot].seq, __ATOMIC_ACQUIRE) !=
	       (uint32_t)(atomic_load(&rig.completion[slot]) >> 32);
}

static void serve(unsigned int slot)
{
	if (!requested(slot))
		return;
	if (__atomic_load_n(&rig.request[slot].op, __ATOMIC_RELAXED) == STRAIT_REQUEST_WRITE)
		memcpy(rig.file, rig.slot_data[slot], STRAIT_VIEW_GRANULE);
	else
		memcpy(rig.slot_data[slot], rig.file, STRAIT_VIEW_GRANULE);
	atomic_store(&rig.completion[slot], (uint64_t)rig.request[slot].seq << 32);
}

/* Stores @value, unless it is 0, and flushes. */
struct writer {
	pthread_t thread;
	uint64_t value;
	int rc;
	atomic_bool ended;
};

static void *writer_main(void *arg)
{
	struct writer *w = arg;
	struct strait_cursor c = STRAIT_CURSOR_INIT;

	if (w->value)
		strait_store_u64(&rig.v, &c, AT, w->value);
	w->rc = c.error ? c.error : strait_view_flush(&rig.v, 0, STRAIT_VIEW_GRANULE);
	atomic_store(&w->ended, true);
	return NULL;
}

static void writer_start(struct writer *w, uint64_t value)
{
	*w = (struct writer){ .value = value };
	ASSERT_EQ(pthread_create(&w->thread, NULL, writer_main, w), 0);
}

static void wait_request(unsigned int slot)
{
	while (!requested(slot))
		usleep(100);
}

/* Gives the other slot the time to get a request, then serves it first, and this slot after it. */
static void serve_late(unsigned int slot, struct writer *w)
{
	for (unsigned int i = 0; i < 2000 && !requested(!slot) && !atomic_load(&w->ended); i++)
		usleep(100);
	serve(!slot);
	serve(slot);
	while (!atomic_load(&w->ended)) {
		serve(!slot);
		serve(slot);
		usleep(100);
	}
	ASSERT_EQ(pthread_join(w->thread, NULL), 0);
	ASSERT_EQ(w->rc, 0);
}

/* Makes the granule valid. */
static void store_first(uint64_t value)
{
	struct strait_cursor c = STRAIT_CURSOR_INIT;
	struct writer w;

	writer_start(&w, value);
	wait_request(0);
	serve_late(0, &w);
	ASSERT_EQ(rig.file[AT / 8], value);
	strait_store_u64(&rig.v, &c, AT, value + 1);
	ASSERT_EQ(c.error, 0);
}

/* The first flush has read 2 when the second thread stores and flushes 3. */
TEST(flushes_by_two_threads)
{
	struct writer first, second;

	rig_open(20000000000ull * test_slow());
	store_first(1);
	writer_start(&first, 0);
	wait_request(0);
	writer_start(&second, 3);
	serve_late(0, &second);
	ASSERT_EQ(pthread_join(first.thread, NULL), 0);
	ASSERT_EQ(first.rc, 0);
	ASSERT_EQ(rig.file[AT / 8], 3);
	ASSERT_EQ(rig.dirty[0], 0);
}

/* A flush that begins while another thread's is in flight ends after it, though nothing is dirty. */
TEST(a_flush_waits_for_another)
{
	struct writer first, second;

	rig_open(20000000000ull * test_slow());
	store_first(1);
	writer_start(&first, 0);
	wait_request(0);
	writer_start(&second, 0);
	usleep(100000);
	ASSERT_FALSE(atomic_load(&second.ended));
	serve_late(0, &second);
	ASSERT_EQ(pthread_join(first.thread, NULL), 0);
	ASSERT_EQ(rig.file[AT / 8], 2);
}

/* A write that timed out reaches the file late, and is not made after a later one. */
TEST(a_late_write)
{
	struct strait_cursor c = STRAIT_CURSOR_INIT;
	struct writer w;

	rig_open(20000000000ull * test_slow());
	store_first(1);
	rig.v.timeout_ns = 1000000;
	ASSERT_EQ(strait_view_flush(&rig.v, 0, STRAIT_VIEW_GRANULE), -ETIMEDOUT);
	ASSERT_TRUE(requested(0));
	strait_store_u64(&rig.v, &c, AT, 3);
	ASSERT_EQ(c.error, 0);
	rig.v.timeout_ns = 20000000000ull * test_slow();
	writer_start(&w, 0);
	serve_late(0, &w);
	ASSERT_EQ(rig.file[AT / 8], 3);
	ASSERT_EQ(rig.dirty[0], 0);
}
