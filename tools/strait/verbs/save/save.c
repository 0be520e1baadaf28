/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

#include <strait/strait.h>

#include "lib/args.h"
#include "lib/cli.h"
#include "lib/pattern.h"
#include "lib/progress.h"
#include "lib/size.h"
#include "lib/target.h"
#include "lib/transfer_totals.h"
#include "verbs/save/replace.h"

struct save {
	const char *path;
	const char *from; /* the file to copy; NULL: save the pattern */
	const char *kind;
	bool force;
	uint64_t size;
	struct pattern pattern;
	struct target_opts opts;
	struct target target;
	struct strait_endpoint *in, *out;
	struct replace file;
	struct transfer_totals read, write;
	uint64_t sync_ns;
	uint32_t crc;
};

static int open_source(struct save *s)
{
	struct strait_file_info info = { .size = sizeof(info) };
	int err = strait_file_open(s->target.ctx, s->from, O_RDONLY, 0, s->target.file_flags, &s->in);

	if (!err)
		err = strait_file_info(s->in, &info);
	if (err)
		return file_failed(s->from, err);
	s->size = min_u64(s->size, info.length);
	return CLI_OK;
}

static int open_target(struct save *s)
{
	int err, code = replace_open(&s->file, s->path, s->size, s->force);

	if (code)
		return code;
	err = strait_file_import(s->target.ctx, s->file.fd, s->target.file_flags, &s->out);
	if (err)
		return file_failed(s->path, err);
	return CLI_OK;
}

/* Fill device memory with the next @len bytes. */
static int fill(struct save *s, struct strait_region *region, uint64_t done, uint64_t len)
{
	int err;

	if (s->in) {
		struct strait_transfer t = {
			.op = STRAIT_READ,
			.routes = s->target.routes,
			.endpoint = s->in,
			.region = region,
			.endpoint_offset = done,
			.length = len,
		};

		return totals_run(&s->read, &t, s->from, TOTALS_NO_PROGRESS); /* the bar counts bytes saved */
	}
	err = pattern_to_region(&s->pattern, done, region, 0, len);
	if (err)
		return fail(CLI_FAILED, NULL, "cannot fill the memory of %s: %s", s->target.info.name, error_text(err));
	return CLI_OK;
}

static int save_slices(struct save *s, struct strait_region *region, uint64_t room)
{
	for (uint64_t done = 0; done < s->size;) {
		struct strait_transfer t = {
			.op = STRAIT_WRITE,
			.routes = s->target.routes,
			.endpoint = s->out,
			.region = region,
			.endpoint_offset = done,
			.length = min_u64(room, s->size - done),
		};
		int err, code = fill(s, region, done, t.length);

		if (code)
			return code;
		err = strait_region_crc32c(region, 0, t.length, &s->crc);
		if (err)
			return fail(CLI_FAILED, NULL, "cannot compute the CRC-32C of the memory of %s: %s",
				    s->target.info.name, error_text(err));
		code = totals_run(&s->write, &t, s->path, done);
		if (code)
			return code;
		done += t.length;
	}
	return CLI_OK;
}

static int save_all(struct save *s)
{
	struct strait_region *region = NULL;
	uint64_t room = 0, start;
	int err, code = CLI_OK;

	if (s->size) {
		code = target_alloc(&s->target, s->size, &region, &room);
		if (code)
			return code;
		progress_start("saving", s->size);
		code = save_slices(s, region, room);
		progress_end();
		strait_region_close(region);
		if (code)
			return code;
	}
	start = now_ns();
	err = strait_endpoint_sync(s->out);
	if (err)
		return fail(CLI_FAILED, NULL, "cannot sync %s to storage: %s", s->path, error_text(err));
	code = replace_commit(&s->file);
	s->sync_ns = now_ns() - start;
	return code;
}

static void report(const struct save *s)
{
	char size[SIZE_TEXT], rate[SIZE_TEXT], routes[96];
	struct json j;

	if (cli.json) {
		json_begin(&j, stdout);
		json_string(&j, "path", s->path);
		json_string(&j, "device", s->target.info.name);
		if (s->from) {
			json_string(&j, "from", s->from);
			json_object(&j, "read");
			totals_json(&s->read, &j);
			json_close(&j);
		} else {
			json_string(&j, "pattern", pattern_name(s->pattern.kind));
			json_uint(&j, "seed", s->pattern.seed);
		}
		totals_json(&s->write, &j);
		json_number(&j, "sync_seconds", (double)s->sync_ns / 1e9);
		json_bool(&j, "in_place", s->file.in_place);
		snprintf(size, sizeof(size), "%08" PRIx32, s->crc);
		json_string(&j, "crc32c", size);
		json_finish(&j);
		return;
	}
	printf("%s -> %s\n", s->target.info.name, s->path);
	if (s->from)
		printf("  read     %s in %.6f s, %s, %s\n", s->from, (double)s->read.ns / 1e9,
		       rate_format(s->read.bytes, s->read.ns, rate), routes_text(s->read.route_bytes, routes));
	printf("  bytes    %" PRIu64 " (%s)\n", s->write.bytes, size_format(s->write.bytes, size));
	printf("  time     %.6f s, %s, then %.6f s to sync to storage\n", (double)s->write.ns / 1e9,
	       rate_format(s->write.bytes, s->write.ns, rate), (double)s->sync_ns / 1e9);
	printf("  route    %s\n", routes_text(s->write.route_bytes, routes));
	printf("  crc32c   %08" PRIx32 "\n", s->crc);
}

int cmd_save(int argc, char **argv)
{
	struct save s = { .size = UINT64_MAX, .pattern.seed = 1, .file.fd = -1 };
	const struct opt opts[] = {
		TARGET_OPTS(&s.opts),
		{ "size", "SIZE", OPT_SIZE, &s.size, "bytes to save; with --from, at most this many" },
		{ "from", "FILE", OPT_TEXT, &s.from, "copy this file through device memory" },
		{ "pattern", "NAME", OPT_TEXT, &s.kind,
		  "data to save without --from: random (default), zero or index" },
		{ "seed", "N", OPT_NUMBER, &s.pattern.seed, "seed of the pattern; default 1" },
		{ "force", NULL, OPT_FLAG, &s.force, "allow overwriting a block device" },
		{ "json", NULL, OPT_FLAG, &cli.json, "print the report as JSON" },
	};
	int code, n = args_parse(argc, argv, opts, ARRAY_SIZE(opts), 1, 1, &s.path);

	if (n < 0)
		return args_exit(n);
	if (!s.from && s.size == UINT64_MAX)
		return fail(CLI_USAGE, "give --size, or --from FILE", "neither --size nor --from is given");
	if (s.kind && pattern_parse(s.kind, &s.pattern.kind))
		return fail(CLI_USAGE, "patterns are random, zero and index", "unknown pattern \"%s\"", s.kind);
	code = target_open(&s.opts, &s.target);
	if (code)
		return code;
	if (s.from)
		code = open_source(&s);
	if (!code)
		code = open_target(&s);
	if (!code)
		code = save_all(&s);
	if (!code)
		report(&s);
	strait_endpoint_close(s.in);
	strait_endpoint_close(s.out);
	replace_close(&s.file);
	target_close(&s.target);
	return code;
}
