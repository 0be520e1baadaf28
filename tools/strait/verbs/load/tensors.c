/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strait/safetensors.h>
#include <strait/strait.h>

#include "lib/cli.h"
#include "lib/progress.h"
#include "lib/size.h"
#include "lib/table.h"
#include "verbs/load/load.h"

enum { SHOWN = 20 };

struct row {
	struct strait_tensor_info info;
	uint32_t crc, file_crc;
};

struct tensors {
	struct load *load;
	struct strait_safetensors *st;
	struct strait_region *region;
	struct row *row;
	unsigned int n, wrong;
};

static int open_tensors(struct tensors *t)
{
	struct load *l = t->load;
	char why[512] = "", need[SIZE_TEXT];
	uint64_t bytes;
	int err = strait_safetensors_open(l->target.ctx, l->ep, 0, why, sizeof(why), &t->st);

	if (err)
		return fail(CLI_FAILED, err == -EBADMSG ? "--format raw loads any file as plain bytes" : NULL, "%s: %s",
			    l->path, why[0] ? why : error_text(err));
	t->n = (unsigned int)strait_safetensors_count(t->st);
	t->row = xcalloc(t->n, sizeof(*t->row));
	for (unsigned int i = 0; i < t->n; i++) {
		t->row[i].info.size = sizeof(t->row[i].info);
		err = strait_safetensors_tensor(t->st, i, &t->row[i].info);
		if (err)
			return fail(CLI_FAILED, NULL, "%s: tensor %u: %s", l->path, i, error_text(err));
	}
	bytes = strait_safetensors_bytes(t->st);
	err = strait_region_alloc(l->target.dev, bytes, &t->region);
	if (err)
		return fail(CLI_FAILED,
			    "free device memory, use another --device, or --format raw, which loads in slices",
			    "%s: cannot allocate %s for the tensors: %s", l->target.info.name, size_format(bytes, need),
			    error_text(err));
	return CLI_OK;
}

static int transfer_tensors(struct tensors *t)
{
	struct load *l = t->load;
	struct strait_result result = { 0 };
	char size[SIZE_TEXT];
	uint64_t start;
	int err;

	progress_text("loading %u tensors, %s", t->n, size_format(strait_safetensors_bytes(t->st), size));
	start = now_ns();
	err = strait_safetensors_load(t->st, t->region, l->target.routes, STRAIT_FOREVER, &result);
	l->totals.ns = now_ns() - start;
	progress_end();
	totals_add(&l->totals, &result);
	if (err == -ENODATA)
		return fail(CLI_FAILED, "the file may have been truncated during the transfer",
			    "%s ends before its last tensor", l->path);
	if (err) {
		const struct strait_tensor_info *first = &t->row[0].info, *last = &t->row[t->n ? t->n - 1 : 0].info;
		struct strait_transfer whole = {
			.op = STRAIT_READ,
			.routes = l->target.routes,
			.endpoint = l->ep,
			.region = t->region,
			.endpoint_offset = first->file_offset,
			.length = last->file_offset + last->length - first->file_offset,
		};

		return transfer_failed(&whole, &result, err, l->path);
	}
	return CLI_OK;
}

static int check_tensors(struct tensors *t)
{
	struct load *l = t->load;
	struct load_check check = { .fd = -1 };
	int err, code = l->verify ? load_check_open(&check, l) : CLI_OK;
	uint64_t done = 0;

	progress_start("checking", l->totals.bytes);
	for (unsigned int i = 0; i < t->n && !code; i++) {
		struct row *r = &t->row[i];

		if (!r->info.length)
			continue; /* the CRC-32C of no bytes is 0 */
		err = strait_region_crc32c(t->region, r->info.region_offset, r->info.length, &r->crc);
		if (err)
			code = fail(CLI_FAILED, NULL, "cannot compute the CRC-32C of the memory of %s: %s",
				    l->target.info.name, error_text(err));
		else if (l->verify)
			code = load_check_range(&check, r->info.file_offset, r->info.length, &r->file_crc);
		t->wrong += !code && l->verify && r->crc != r->file_crc;
		done += r->info.length;
		progress_set(done);
	}
	progress_end();
	load_check_close(&check);
	return code;
}

static void report_json(const struct tensors *t)
{
	const struct load *l = t->load;
	char text[16];
	struct json j;

	json_begin(&j, stdout);
	json_string(&j, "path", l->path);
	json_string(&j, "format", "safetensors");
	json_string(&j, "device", l->target.info.name);
	totals_json(&l->totals, &j);
	json_uint(&j, "tensor_count", t->n);
	if (l->verify)
		json_bool(&j, "good", !t->wrong);
	json_array(&j, "tensors");
	for (unsigned int i = 0; i < t->n; i++) {
		const struct row *r = &t->row[i];

		json_object(&j, NULL);
		json_string(&j, "name", r->info.name);
		json_string(&j, "dtype", r->info.dtype);
		json_array(&j, "shape");
		for (uint32_t d = 0; d < r->info.rank; d++)
			json_uint(&j, NULL, r->info.shape[d]);
		json_close(&j);
		json_uint(&j, "bytes", r->info.length);
		json_uint(&j, "file_offset", r->info.file_offset);
		snprintf(text, sizeof(text), "%08" PRIx32, r->crc);
		json_string(&j, "crc32c", text);
		if (l->verify) {
			snprintf(text, sizeof(text), "%08" PRIx32, r->file_crc);
			json_string(&j, "file_crc32c", text);
		}
		json_close(&j);
	}
	json_finish(&j);
}

/* Tensor names come from the file: control characters must not reach the terminal. */
static void name_cell(struct table *table, const char *name)
{
	char *shown = xstrdup(name);

	for (char *c = shown; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	table_cell(table, "%s", shown);
	free(shown);
}

static void shape_cell(struct table *table, const struct strait_tensor_info *info)
{
	char text[STRAIT_TENSOR_DIMS * 22 + 3];
	int n = snprintf(text, sizeof(text), "[");

	for (uint32_t d = 0; d < info->rank; d++)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "%s%" PRIu64, d ? ", " : "", info->shape[d]);
	snprintf(text + n, sizeof(text) - (size_t)n, "]");
	table_cell(table, "%s", text);
}

static void print_tensors(const struct tensors *t)
{
	unsigned int left = t->load->all ? t->n : SHOWN, more = 0;
	struct table table;

	table_begin(&table, "TENSOR", "TYPE", "SHAPE", ">BYTES", "CRC32C", NULL);
	if (t->load->verify)
		table_column(&table, "FILE");
	for (unsigned int i = 0; i < t->n; i++) {
		const struct row *r = &t->row[i];
		bool wrong = t->load->verify && r->crc != r->file_crc;

		/* A tensor that differs is always listed. */
		if (!wrong && !left) {
			more++;
			continue;
		}
		left -= left ? 1 : 0;
		name_cell(&table, r->info.name);
		table_cell(&table, "%s", r->info.dtype);
		shape_cell(&table, &r->info);
		table_cell(&table, "%" PRIu64, r->info.length);
		table_cell(&table, "%08" PRIx32, r->crc);
		if (wrong)
			table_cell(&table, "DIFFERS: %08" PRIx32, r->file_crc);
		else if (t->load->verify)
			table_cell(&table, "same");
	}
	if (t->n)
		table_print(&table, stdout, 2);
	table_free(&table);
	if (more)
		printf("  ... and %u more: --all shows them\n", more);
}

static void report_text(const struct tensors *t)
{
	char size[SIZE_TEXT], rate[SIZE_TEXT], routes[96];
	const struct load *l = t->load;

	printf("%s -> %s\n", l->path, l->target.info.name);
	printf("  tensors  %u\n", t->n);
	printf("  bytes    %" PRIu64 " (%s)\n", l->totals.bytes, size_format(l->totals.bytes, size));
	printf("  time     %.6f s, %s\n", (double)l->totals.ns / 1e9, rate_format(l->totals.bytes, l->totals.ns, rate));
	printf("  route    %s\n", routes_text(l->totals.route_bytes, routes));
	print_tensors(t);
	if (l->verify && !t->wrong)
		printf("verified %u tensors against the file, no mismatch\n", t->n);
	else if (l->verify)
		printf("%u of %u tensors differ from the file\n", t->wrong, t->n);
}

int load_tensors(struct load *l)
{
	struct tensors t = { .load = l };
	int code = open_tensors(&t);

	if (!code)
		code = transfer_tensors(&t);
	if (!code)
		code = check_tensors(&t);
	if (!code && cli.json)
		report_json(&t);
	else if (!code)
		report_text(&t);
	if (!code && t.wrong)
		code = load_mismatch(l);
	free(t.row);
	strait_region_close(t.region);
	strait_safetensors_close(t.st);
	return code;
}
