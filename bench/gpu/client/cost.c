/* SPDX-License-Identifier: MIT */
/* The cost of the cuFile interface compared with Strait's own. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client.h"

/* One pass of a stage by one backend: GB/s or microseconds, 0 if it failed. */
static double pass(struct client *c, const struct stage *s, int drop)
{
	enum { OPS = 200 };
	static uint64_t seed = 7;
	double start = now();
	bool ok = true;

	if (s->what == LATENCY) {
		for (int i = 0; ok && i < OPS; i++)
			ok = c->backend->read(c, next_offset(&seed, c->length, s->n), 0, s->n) == (ssize_t)s->n;
		return ok ? (now() - start) / OPS * 1e6 : 0;
	}
	if (s->what == SEQUENTIAL)
		return move_all(c, c->backend->read, c->length, s->n, 256u * MIB).rate;
	if (s->what == WRITES)
		return move_all(c, c->backend->write, drive_bytes(c), 1, 256u * MIB).rate;
	drop_cache(drop);
	return move_all(c, c->backend->read, drive_bytes(c), 1, 256u * MIB).rate;
}

/*
 * Both backends alternate. Of many short passes the median difference is reported; of long passes, all of which are
 * disturbed by other load, the best of each backend is compared.
 */
static void cost_of(struct client *c, struct client *own, const struct stage *s)
{
	enum { PAIRS = 11, SMALL_PAIRS = 101 };
	bool direct = s->what == COLD || (s->what == WRITES && s->n);
	int pairs = s->what == LATENCY ? SMALL_PAIRS : PAIRS, drop = open(c->path, O_RDONLY);
	double diff[SMALL_PAIRS], best[2] = { 0 };
	char path[4096];
	bool ok;

	snprintf(path, sizeof(path), "%s%s", c->path, s->what == WRITES ? ".written" : "");
	if (s->what == WRITES)
		unlink(path);
	ok = drop >= 0 && !make_file(path, s->what == WRITES ? drive_bytes(c) : c->length);
	for (int k = 0; k < 2 && ok; k++) {
		struct client *one = k ? own : c;

		ok = !one->backend->file(one, path, (s->what == WRITES ? O_RDWR : O_RDONLY) | (direct ? O_DIRECT : 0));
	}
	for (int i = 0; i < pairs && ok; i++) {
		double value[2];

		/* The order alternates. */
		for (int k = 0; k < 2; k++) {
			int which = (i + k) % 2;

			value[which] = pass(which ? own : c, s, drop);
			ok = ok && value[which] > 0;
			if (value[which] > best[which])
				best[which] = value[which];
		}
		diff[i] = value[0] - value[1];
	}
	if (ok)
		qsort(diff, (size_t)pairs, sizeof(diff[0]), by_value);
	if (s->what == LATENCY)
		row(s->name, ok ? diff[pairs / 2] : 0, "us", 0, ok);
	else
		row(s->name, ok ? 100 * (best[1] / best[0] - 1) : 0, "%", 0, ok);
	if (s->what == WRITES)
		unlink(path);
	if (drop >= 0)
		close(drop);
}

int costs(struct client *c)
{
	struct client own = *c;

	own.backend = &backend_strait;
	if (own.backend->open(&own))
		return 1;
	for (unsigned int i = 0; i < nstages; i++)
		if (stages[i].what != BATCHES && stages[i].what != STREAMS)
			cost_of(c, &own, &stages[i]);
	own.backend->close(&own);
	return 0;
}
