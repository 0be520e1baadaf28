/* SPDX-License-Identifier: MIT */
/*
 * atomic_anon: threads of a device add to one integer in memory that they share with the CPU.
 *
 *	example-atomic_anon [--device emu:0|host] [--threads N] [--adds N]
 *
 * The memory is an anonymous mapping with frames on the device. N threads each add 1 so often, by strait_atomic_add_u64(), and
 * also to a counter of their own, each in another page, of which only a few fit into the frames. Then the CPU acquires the
 * mapping and reads the sums.
 */
#include "view_threads.h"

#define PAGE 4096u

struct work {
	uint64_t threads, adds;
};

static int add(struct launch *l, uint64_t thread, uint64_t threads)
{
	struct strait_cursor c = STRAIT_CURSOR_INIT;
	struct work *w = l->arg;

	for (uint64_t t = thread; t < w->threads; t += threads) {
		for (uint64_t i = 0; i < w->adds; i++)
			strait_atomic_add_u64(&l->view, &c, 0, 1);
		strait_atomic_add_u64(&l->view, &c, (1 + t) * PAGE, w->adds);
	}
	return c.error;
}

int main(int argc, char **argv)
{
	struct work w = { option(argc, argv, "threads", 512), option(argc, argv, "adds", 1000) };
	uint64_t length = (w.threads + 1) * PAGE, own = 0, *cpu;
	struct paged p;
	int rc;

	rc = paged_open(&p, option_text(argc, argv, "device", "emu:0"), NULL, length, 1, 16 * 65536);
	if (!rc)
		rc = paged_launch(&p, STRAIT_INTENT_WRITE, add, &w);
	if (!rc)
		rc = strait_mapping_acquire(p.m, NULL, 0, length, STRAIT_INTENT_READ, (void **)&cpu);
	if (rc)
		return fail("atomic_anon", "device", rc);
	for (uint64_t t = 0; t < w.threads; t++)
		own += cpu[(1 + t) * PAGE / 8];
	printf("%llu threads added %llu, and each to its own %llu\n", (unsigned long long)w.threads,
	       (unsigned long long)cpu[0], (unsigned long long)own);
	rc = cpu[0] != w.threads * w.adds || own != cpu[0];
	strait_mapping_release(p.m, NULL, 0, length, STRAIT_INTENT_READ);
	paged_close(&p);
	return rc;
}
