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

/* What the x axis shows: threads or depth if they vary, else the block size. Each other value has a line of its own. */
enum axis { AXIS_BLOCK, AXIS_THREADS, AXIS_DEPTH };

static uint64_t value_of(const struct bench_load *load, enum axis axis)
{
	return axis == AXIS_BLOCK ? load->block : axis == AXIS_THREADS ? load->threads : load->depth;
}

static bool varies(const struct bench_report *r, enum axis axis)
{
	for (unsigned int i = 1; i < r->n; i++)
		if (value_of(&r->row[i].load, axis) != value_of(&r->row[0].load, axis))
			return true;
	return false;
}

/* The name of a line: what is measured, and the values that vary and are not on the axis. */
static void series_name(const struct bench_report *r, const struct bench_row *row, enum axis axis, char *name,
			size_t len)
{
	char size[SIZE_TEXT];
	int n = snprintf(name, len, "%s, %s", bench_mode_name(row->load.mode),
			 row->series == BENCH_HOST   ? "plain I/O" :
			 row->series == BENCH_CUFILE ? "cuFile" :
			 row->series == BENCH_STAGED ? "staged" :
						       r->target->info.name);

	if (axis != AXIS_BLOCK && varies(r, AXIS_BLOCK) && (size_t)n < len)
		n += snprintf(name + n, len - (size_t)n, ", %s", size_short(row->load.block, size));
	if (axis == AXIS_THREADS && varies(r, AXIS_DEPTH) && (size_t)n < len)
		snprintf(name + n, len - (size_t)n, ", depth %u", row->load.depth);
}

static void describe_load(const struct bench_report *r, enum axis axis, char *text, size_t len)
{
	const struct bench_load *load = &r->row[0].load;
	int n = 0;

	text[0] = 0;
	if (axis != AXIS_THREADS)
		n = snprintf(text, len, ", %u thread%s", load->threads, load->threads == 1 ? "" : "s");
	if (axis != AXIS_DEPTH && !varies(r, AXIS_DEPTH))
		snprintf(text + n, len - (size_t)n, ", depth %u", load->depth);
}

/* Insert by x: rows come in the order in which they were measured. */
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
	const enum axis axis = varies(r, AXIS_THREADS) ? AXIS_THREADS : varies(r, AXIS_DEPTH) ? AXIS_DEPTH : AXIS_BLOCK;
	char size[SIZE_TEXT], load[64];
	FILE *out;
	int bad;

	snprintf(p->title, sizeof(p->title), "%.100s with %s", r->file->path, r->target->info.name);
	describe_load(r, axis, load, sizeof(load));
	snprintf(p->subtitle, sizeof(p->subtitle), "%s, file of %s, %s%s", r->target->info.model,
		 size_format(r->file->bytes, size), caches[r->cache], load);
	p->x_label = axis == AXIS_THREADS ? "threads" :
		     axis == AXIS_DEPTH	  ? "transfers in flight per thread" :
					    "block size";
	p->x_counts = axis != AXIS_BLOCK;
	p->y_label = "throughput, GB/s";
	for (unsigned int i = 0; i < r->n; i++) {
		const struct bench_row *row = &r->row[i];
		struct plot_series *s;
		char name[64];

		series_name(r, row, axis, name, sizeof(name));
		s = series_of(p, name);
		if (s)
			add_point(s, value_of(&row->load, axis), rate_gbs(row->bytes, row->ns));
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
