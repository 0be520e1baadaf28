/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cli.h"
#include "lib/size.h"
#include "verbs/bench/bench.h"
#include "verbs/bench/svg.h"

static struct plot_series *series_of(struct plot *p, const char *name)
{
	for (unsigned int i = 0; i < p->n; i++)
		if (!strcmp(p->series[i].name, name))
			return &p->series[i];
	if (p->n == PLOT_SERIES)
		return NULL;
	snprintf(p->series[p->n].name, sizeof(p->series[p->n].name), "%s", name);
	return &p->series[p->n++];
}

/* Insert by block size: rows come in the order in which they were measured. */
static void add_point(struct plot_series *s, uint64_t x, double y)
{
	unsigned int at = s->n;

	if (s->n == PLOT_POINTS)
		return;
	for (; at && s->point[at - 1].x > x; at--)
		s->point[at] = s->point[at - 1];
	s->point[at].x = x;
	s->point[at].y = y;
	s->n++;
}

int bench_plot(const struct bench_report *r, const char *path)
{
	static const char *const caches[] = { "page cache as it was", "cached", "direct I/O" };
	struct plot *p = xcalloc(1, sizeof(*p));
	char size[SIZE_TEXT];
	FILE *out;
	int bad;

	snprintf(p->title, sizeof(p->title), "%.100s with %s", r->file->path, r->target->info.name);
	snprintf(p->subtitle, sizeof(p->subtitle), "%s, file of %s, %s, %u thread%s, depth %u", r->target->info.model,
		 size_format(r->file->bytes, size), caches[r->cache], r->row[0].load.threads,
		 r->row[0].load.threads == 1 ? "" : "s", r->row[0].load.depth);
	p->x_label = "block size";
	p->y_label = "throughput, GB/s";
	for (unsigned int i = 0; i < r->n; i++) {
		const struct bench_row *row = &r->row[i];
		struct plot_series *s;
		char name[64];

		snprintf(name, sizeof(name), "%s, %s", bench_mode_name(row->load.mode),
			 row->series == BENCH_HOST   ? "plain I/O" :
			 row->series == BENCH_CUFILE ? "cuFile" :
			 row->series == BENCH_STAGED ? "staged" :
						       r->target->info.name);
		s = series_of(p, name);
		if (s)
			add_point(s, row->load.block, rate_gbs(row->bytes, row->ns));
	}
	out = fopen(path, "we");
	if (!out) {
		free(p);
		return fail(CLI_FAILED, NULL, "cannot write %s: %s", path, strerror(errno));
	}
	plot_write(p, out);
	bad = ferror(out);
	if (fclose(out) || bad) {
		free(p);
		return fail(CLI_FAILED, NULL, "cannot write %s: %s", path, strerror(errno));
	}
	free(p);
	return CLI_OK;
}
