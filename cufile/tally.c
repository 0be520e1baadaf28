/* SPDX-License-Identifier: MIT */
/* What this process moved, by route, for `strait run` that started it. */
#include "core.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <strait_tally.h>

_Static_assert(STRAIT_TALLY_ROUTES == STRAIT_ROUTE_COUNT, "one counter for each route");

static struct strait_tally *tally;
static _Atomic(struct strait_tally_process *) mine;

static struct strait_tally *map(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct strait_tally *t = MAP_FAILED;
	struct stat st;

	if (fd < 0)
		return NULL;
	if (!fstat(fd, &st) && st.st_size == STRAIT_TALLY_BYTES)
		t = mmap(NULL, STRAIT_TALLY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (t == MAP_FAILED)
		return NULL;
	if (t->magic == STRAIT_TALLY_MAGIC)
		return t;
	munmap(t, STRAIT_TALLY_BYTES);
	return NULL;
}

/* By the thread that opens the driver: one at a time. */
void cf_tally_open(void)
{
	const char *path = getenv(STRAIT_TALLY_ENV);
	struct strait_tally_process *p;
	uint32_t place;

	if (!path || !path[0] || atomic_load(&mine))
		return;
	if (!tally)
		tally = map(path);
	if (!tally)
		return;
	place = atomic_fetch_add(&tally->used, 1);
	p = &tally->process[place < STRAIT_TALLY_PLACES ? place : STRAIT_TALLY_PLACES - 1];
	strncpy(p->name, program_invocation_short_name, sizeof(p->name) - 1);
	atomic_store(&p->pid, (uint32_t)getpid());
	atomic_store(&mine, p);
}

void cf_tally_forked(void)
{
	atomic_store(&mine, NULL);
}

bool cf_tally_wanted(void)
{
	return atomic_load_explicit(&mine, memory_order_relaxed);
}

void cf_tally_add(uint32_t op, int64_t result, const uint64_t *route_bytes)
{
	struct strait_tally_process *p = atomic_load_explicit(&mine, memory_order_relaxed);

	if (!p)
		return;
	atomic_fetch_add_explicit(&p->transfers[op], 1, memory_order_relaxed);
	if (result < 0)
		atomic_fetch_add_explicit(&p->failed, 1, memory_order_relaxed);
	for (int i = 0; route_bytes && i < STRAIT_ROUTE_COUNT; i++)
		if (route_bytes[i])
			atomic_fetch_add_explicit(&p->bytes[op][i], route_bytes[i], memory_order_relaxed);
}
