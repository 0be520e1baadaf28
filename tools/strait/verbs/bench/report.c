/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "lib/cli.h"
#include "lib/size.h"
#include "lib/table.h"
#include "lib/transfer_totals.h"
#include "verbs/bench/bench.h"
#include "verbs/bench/cufile.h"

static const char *cache_name(enum bench_cache cache)
{
	static const char *const names[] = { "as is", "cached", "direct" };

	return names[cache];
}

static const char *route_text(const struct bench_row *row, char *buf)
{
	if (row->series == BENCH_HOST)
		return "plain I/O into host memory";
	if (row->series == BENCH_CUFILE)
		return "cuFile";
	return routes_text(row->route_bytes, buf);
}

void bench_print(const struct bench_report *r)
{
	char size[SIZE_TEXT], block[SIZE_TEXT], routes[96];
	bool compared[BENCH_SERIES] = { false };
	struct table t;

	for (unsigned int i = 0; i < r->n; i++)
		compared[r->row[i].series] = true;
	printf("%s (%s, %s) and %s (%s)\n", r->file->path, size_format(r->file->bytes, size), cache_name(r->cache),
	       r->target->info.name, r->target->info.model);
	table_begin(&t, "MODE", ">BLOCK", ">THREADS", ">DEPTH", ">GB/s", ">OPS/s", ">AVG us", ">P50 us", ">P99 us",
		    ">MAX us", ">CPUS", ">ms/GiB", ">ALL ms/GiB", NULL);
	if (compared[BENCH_HOST])
		table_column(&t, ">/HOST");
	if (compared[BENCH_CUFILE])
		table_column(&t, ">/CUFILE");
	if (compared[BENCH_STAGED])
		table_column(&t, ">/STAGED");
	table_column(&t, "ROUTE");
	for (unsigned int i = 0; i < r->n; i++) {
		const struct bench_row *row = &r->row[i];

		table_cell(&t, "%s", bench_mode_name(row->load.mode));
		table_cell(&t, "%s", size_short(row->load.block, block));
		table_cell(&t, "%u", row->load.threads);
		table_cell(&t, "%u", row->load.depth);
		table_cell(&t, "%.3f", rate_gbs(row->bytes, row->ns));
		table_cell(&t, "%.0f", row->ns ? (double)row->ops * 1e9 / (double)row->ns : 0);
		table_cell(&t, "%.1f", row->avg_us);
		table_cell(&t, "%.1f", row->p50_us);
		table_cell(&t, "%.1f", row->p99_us);
		table_cell(&t, "%.1f", row->max_us);
		table_cell(&t, "%.2f", row->cpus);
		table_cell(&t, "%.0f", row->cpu_ms_gib);
		table_cell(&t, "%.0f", row->all_ms_gib);
		for (int s = BENCH_HOST; s < BENCH_SERIES; s++) {
			if (compared[s] && row->ratio[s] > 0)
				table_cell(&t, "%.2f", row->ratio[s]);
			else if (compared[s])
				table_cell(&t, "-");
		}
		table_cell(&t, "%s", route_text(row, routes));
	}
	table_print(&t, stdout, 2);
	table_free(&t);
	if (r->cufile && r->cufile->why[0])
		printf("  not compared with cuFile: %s\n", r->cufile->why);
	else if (r->cufile)
		printf("  compared with cuFile of %s\n", r->cufile->library);
}

static void cufile_json(const struct cufile *c, struct json *j)
{
	json_object(j, "compare");
	json_object(j, "cufile");
	json_string(j, "library", c->library);
	if (c->why[0])
		json_string(j, "error", c->why);
	if (c->code)
		json_int(j, "code", c->code);
	json_close(j);
	json_close(j);
}

void bench_print_json(const struct bench_report *r)
{
	struct json j;

	json_begin(&j, stdout);
	json_string(&j, "path", r->file->path);
	json_uint(&j, "file_bytes", r->file->bytes);
	json_string(&j, "device", r->target->info.name);
	json_string(&j, "model", r->target->info.model);
	json_string(&j, "cache", cache_name(r->cache));
	json_array(&j, "results");
	for (unsigned int i = 0; i < r->n; i++) {
		const struct bench_row *row = &r->row[i];

		json_object(&j, NULL);
		json_string(&j, "series", bench_series_name(row->series));
		json_string(&j, "mode", bench_mode_name(row->load.mode));
		json_uint(&j, "block", row->load.block);
		json_uint(&j, "threads", row->load.threads);
		json_uint(&j, "depth", row->load.depth);
		json_uint(&j, "bytes", row->bytes);
		json_uint(&j, "ops", row->ops);
		json_number(&j, "seconds", (double)row->ns / 1e9);
		json_number(&j, "gb_per_s", rate_gbs(row->bytes, row->ns));
		json_number(&j, "ops_per_s", row->ns ? (double)row->ops * 1e9 / (double)row->ns : 0);
		json_object(&j, "latency_us");
		json_number(&j, "avg", row->avg_us);
		json_number(&j, "p50", row->p50_us);
		json_number(&j, "p99", row->p99_us);
		json_number(&j, "max", row->max_us);
		json_close(&j);
		json_number(&j, "cpu_cores", row->cpus);
		json_number(&j, "cpu_ms_per_gib", row->cpu_ms_gib);
		json_number(&j, "machine_cpu_ms_per_gib", row->all_ms_gib);
		if (row->ratio[BENCH_HOST] > 0)
			json_number(&j, "ratio_to_host", row->ratio[BENCH_HOST]);
		if (row->ratio[BENCH_CUFILE] > 0)
			json_number(&j, "ratio_to_cufile", row->ratio[BENCH_CUFILE]);
		if (row->ratio[BENCH_STAGED] > 0)
			json_number(&j, "ratio_to_staged", row->ratio[BENCH_STAGED]);
		routes_json(row->route_bytes, &j);
		json_close(&j);
	}
	json_close(&j);
	if (r->cufile)
		cufile_json(r->cufile, &j);
	json_finish(&j);
}
