/* SPDX-License-Identifier: MIT */
/* Counts the bytes of this process by route, for `strait run`. */
#include "stats.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <run_stats.h>

_Static_assert(RUN_STATS_ROUTES == STRAIT_ROUTE_COUNT, "one counter for each route");

static struct run_stats *stats;
static _Atomic(struct run_stats_process *) own_slot;

static struct run_stats *run_stats_map(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct run_stats *t = MAP_FAILED;
	struct stat st;

	if (fd < 0)
		return NULL;
	if (!fstat(fd, &st) && st.st_size == RUN_STATS_BYTES)
		t = mmap(NULL, RUN_STATS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (t == MAP_FAILED)
		return NULL;
	if (t->magic == RUN_STATS_MAGIC)
		return t;
	munmap(t, RUN_STATS_BYTES);
	return NULL;
}

/* Called by the one thread that opens the driver. */
void cf_run_stats_open(void)
{
	const char *path = getenv(RUN_STATS_ENV);
	struct run_stats_process *p;
	uint32_t slot;

	if (!path || !path[0] || atomic_load(&own_slot))
		return;
	if (!stats)
		stats = run_stats_map(path);
	if (!stats)
		return;
	slot = atomic_fetch_add(&stats->used, 1);
	p = &stats->process[slot < RUN_STATS_SLOTS ? slot : RUN_STATS_SLOTS - 1];
	strncpy(p->name, program_invocation_short_name, sizeof(p->name) - 1);
	atomic_store(&p->pid, (uint32_t)getpid());
	atomic_store(&own_slot, p);
}

void cf_run_stats_forked(void)
{
	atomic_store(&own_slot, NULL);
}

bool cf_run_stats_wanted(void)
{
	return atomic_load_explicit(&own_slot, memory_order_relaxed);
}

void cf_run_stats_add(uint32_t op, int64_t result, const uint64_t *route_bytes)
{
	struct run_stats_process *p = atomic_load_explicit(&own_slot, memory_order_relaxed);

	if (!p)
		return;
	atomic_fetch_add_explicit(&p->transfers[op], 1, memory_order_relaxed);
	if (result < 0)
		atomic_fetch_add_explicit(&p->failed, 1, memory_order_relaxed);
	for (int i = 0; route_bytes && i < STRAIT_ROUTE_COUNT; i++)
		if (route_bytes[i])
			atomic_fetch_add_explicit(&p->bytes[op][i], route_bytes[i], memory_order_relaxed);
}
