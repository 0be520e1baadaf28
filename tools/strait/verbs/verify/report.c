/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>

#include <strait/route.h>
#include <strait/stats.h>

#include "lib/cli.h"
#include "lib/size.h"
#include "lib/table.h"
#include "lib/transfer_totals.h"
#include "verbs/verify/verify.h"

static bool is_good(const struct verify *v)
{
	bool good = v->file_where == v->size;

	for (unsigned int i = 0; i < ARRAY_SIZE(v->pass); i++)
		good &= v->pass[i].where == UINT64_MAX && !v->pass[i].guard;
	return good;
}

static void report_json(const struct verify *v, const uint64_t *written, const uint64_t *read, uint64_t bytes)
{
	struct json j;

	json_begin(&j, stdout);
	json_string(&j, "path", v->path);
	json_string(&j, "device", v->target.info.name);
	json_uint(&j, "size", v->size);
	json_uint(&j, "seed", v->pattern.seed);
	json_object(&j, "write");
	json_number(&j, "seconds", (double)v->write_ns / 1e9);
	routes_json(written, &j);
	json_close(&j);
	json_object(&j, "read");
	routes_json(read, &j);
	json_close(&j);
	json_array(&j, "passes");
	json_object(&j, NULL);
	json_string(&j, "name", "plain read");
	json_uint(&j, "bytes", v->file_where);
	json_bool(&j, "good", v->file_where == v->size);
	if (v->file_where < v->size)
		json_uint(&j, "first_difference", v->file_where);
	json_close(&j);
	for (unsigned int i = 0; i < ARRAY_SIZE(v->pass); i++) {
		const struct verify_pass *p = &v->pass[i];

		if (!p->done)
			continue;
		json_object(&j, NULL);
		json_string(&j, "name", p->name);
		json_uint(&j, "bytes", p->bytes);
		json_number(&j, "seconds", (double)p->ns / 1e9);
		json_bool(&j, "good", p->where == UINT64_MAX && !p->guard);
		if (p->where != UINT64_MAX)
			json_uint(&j, "first_difference", p->where);
		json_bool(&j, "wrote_outside", p->guard);
		json_close(&j);
	}
	json_close(&j);
	json_uint(&j, "bytes_verified", bytes);
	json_bool(&j, "good", is_good(v));
	json_finish(&j);
}

static void report_text(const struct verify *v, const uint64_t *written, const uint64_t *read, uint64_t bytes)
{
	char size[SIZE_TEXT], rate[SIZE_TEXT], routes[96];
	struct table t;

	printf("%s <-> %s, %s, seed %" PRIu64 "\n", v->target.info.name, v->path, size_format(v->size, size),
	       v->pattern.seed);
	table_begin(&t, "PASS", ">RATE", "RESULT", NULL);
	table_cell(&t, "write");
	table_cell(&t, "%s", rate_format(v->size, v->write_ns, rate));
	table_cell(&t, "by %s", routes_text(written, routes));
	table_cell(&t, "plain read");
	table_cell(&t, "-");
	if (v->file_where == v->size)
		table_cell(&t, "good");
	else
		table_cell(&t, "DIFFERS from byte %" PRIu64 " on", v->file_where);
	for (unsigned int i = 0; i < ARRAY_SIZE(v->pass); i++) {
		const struct verify_pass *p = &v->pass[i];

		table_cell(&t, "%s", p->name);
		table_cell(&t, "%s", p->done ? rate_format(p->bytes, p->ns, rate) : "-");
		if (!p->done)
			table_cell(&t, "skipped: the device has no streams");
		else if (p->where != UINT64_MAX)
			table_cell(&t, "DIFFERS from byte %" PRIu64 " on", p->where);
		else
			table_cell(&t, p->guard ? "WROTE OUTSIDE the data" : "good");
	}
	table_print(&t, stdout, 2);
	table_free(&t);
	printf("  read by %s\n", routes_text(read, routes));
	if (is_good(v))
		printf("verified %" PRIu64 " bytes (%s), no mismatch\n", bytes, size_format(bytes, size));
}

int verify_report(const struct verify *v)
{
	uint64_t written[STRAIT_ROUTE_COUNT], read[STRAIT_ROUTE_COUNT], bytes = v->file_where;
	struct strait_stats stats = { .size = sizeof(stats) };

	strait_stats_get(v->target.ctx, &stats);
	for (int r = 0; r < STRAIT_ROUTE_COUNT; r++) {
		written[r] = stats.route[r].write_bytes;
		read[r] = stats.route[r].read_bytes;
	}
	for (unsigned int i = 0; i < ARRAY_SIZE(v->pass); i++)
		bytes += v->pass[i].bytes;
	if (cli.json)
		report_json(v, written, read, bytes);
	else
		report_text(v, written, read, bytes);
	if (v->target.routes && !v->write_routes)
		note("none of the routes in --route can write: the file was written by the best route");
	if (is_good(v))
		return CLI_OK;
	cli.json = false; /* the report has it already */
	return fail(CLI_MISMATCH, "repeat with the same --seed and with --route to find the route",
		    "%s: mismatch: data read back differs from the data written", v->path);
}
