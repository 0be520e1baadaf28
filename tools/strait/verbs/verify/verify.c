/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <inttypes.h>

#include <strait/strait.h>

#include "lib/args.h"
#include "lib/cli.h"
#include "lib/progress.h"
#include "verbs/verify/verify.h"

static int prepare(struct verify *v)
{
	struct strait_route_report report = { .size = sizeof(report) };
	struct strait_file_info info = { .size = sizeof(info) };
	uint64_t got, spare = 2 * VERIFY_GUARD;
	int err, code = verify_file_open(&v->file, v->path, v->force);

	if (code)
		return code;
	if (v->file.block && v->size > v->file.length)
		return fail(CLI_USAGE, "use a smaller --size", "%s has only %" PRIu64 " bytes", v->path,
			    v->file.length);
	err = strait_file_import(v->target.ctx, v->file.fd, v->target.file_flags, &v->ep);
	if (!err)
		err = strait_file_info(v->ep, &info);
	if (!err && info.caps & STRAIT_FILE_CAN_DIRECT && !v->target.file_flags)
		err = strait_file_import(v->target.ctx, v->file.fd, STRAIT_FILE_DIRECT, &v->direct_ep);
	if (err)
		return file_failed(v->path, err);

	code = target_alloc(&v->target, v->size + spare, &v->source, &got);
	if (!code)
		code = target_alloc(&v->target, got, &v->copy, &v->window);
	if (code)
		return code;
	v->window -= spare;

	/* A required route that cannot write, such as pagecache, is required of the reads only. */
	v->write_routes = v->target.routes;
	err = strait_route_query_device(v->ep, v->target.dev, STRAIT_WRITE, &report);
	if (!err && v->target.routes) {
		v->write_routes = 0;
		for (int r = 0; r < STRAIT_ROUTE_COUNT; r++)
			if (report.verdict[r].usable)
				v->write_routes |= v->target.routes & STRAIT_ROUTE_MASK(r);
	}
	return CLI_OK;
}

/* Fill the source with the pattern of one window of the file. */
static int fill_source(struct verify *v, uint64_t start, uint64_t len)
{
	int err;

	if (v->filled == start)
		return CLI_OK;
	err = pattern_to_region(&v->pattern, start, v->source, v->source_base, len);
	if (err)
		return fail(CLI_FAILED, NULL, "cannot fill the memory of %s: %s", v->target.info.name, error_text(err));
	v->filled = start;
	return CLI_OK;
}

static bool has_method(const struct verify *v, enum verify_method method)
{
	return method != VERIFY_STREAM || v->target.info.caps & STRAIT_DEVICE_STREAMS;
}

/* Write a third of the pieces, spread over the window, by each method. */
static int write_window(struct verify *v, uint64_t start, uint64_t len)
{
	struct verify_plan plan;
	int code = fill_source(v, start, len);
	unsigned int from = 0;

	verify_plan_make(&plan, start, len, v->pattern.seed + start);
	for (int method = VERIFY_SYNC; method <= VERIFY_STREAM && !code; method++) {
		unsigned int to = method == VERIFY_STREAM ? plan.n : from + plan.n / 3;
		struct verify_move m = {
			.target = &v->target,
			.path = v->path,
			.op = STRAIT_WRITE,
			.routes = v->write_routes,
			.ep = method == VERIFY_QUEUE && v->direct_ep ? v->direct_ep : v->ep,
			.region = v->source,
			.region_base = v->source_base,
			.file_base = start,
			.piece = plan.piece + from,
			.n = to - from,
		};
		uint64_t t0 = now_ns();

		code = verify_move(&m, has_method(v, method) ? method : VERIFY_SYNC);
		v->write_ns += now_ns() - t0;
		from = to;
	}
	verify_plan_free(&plan);
	return code;
}

/* Check that the memory on both sides of the data is unchanged. */
static int check_guards(struct verify *v, struct verify_pass *p, uint64_t len, uint8_t value)
{
	uint64_t at[2] = { 0, p->base + len }, n[2] = { p->base, VERIFY_GUARD - (p->base - VERIFY_GUARD) };
	uint8_t buf[2 * VERIFY_GUARD];

	for (int side = 0; side < 2; side++) {
		int err = strait_region_copy_out(v->copy, at[side], buf, n[side]);

		if (err)
			return fail(CLI_FAILED, NULL, "cannot read the memory of %s: %s", v->target.info.name,
				    error_text(err));
		for (uint64_t i = 0; i < n[side]; i++)
			p->guard |= buf[i] != value;
	}
	return CLI_OK;
}

static int read_window(struct verify *v, struct verify_pass *p, uint64_t start, uint64_t len)
{
	uint8_t value = (uint8_t)(0x5a + p->method + start / 4096);
	struct verify_plan plan;
	uint64_t where, t0;
	int err, code;

	err = strait_region_fill(v->copy, 0, value, len + 2 * VERIFY_GUARD);
	if (err)
		return fail(CLI_FAILED, NULL, "cannot fill the memory of %s: %s", v->target.info.name, error_text(err));
	verify_plan_make(&plan, start, len, v->pattern.seed + start + 1 + p->method);
	t0 = now_ns();
	code = verify_move(
		&(struct verify_move){
			.target = &v->target,
			.path = v->path,
			.op = STRAIT_READ,
			.routes = v->target.routes,
			.ep = p->direct && v->direct_ep ? v->direct_ep : v->ep,
			.region = v->copy,
			.region_base = p->base,
			.file_base = start,
			.file_end = v->file.ours ? v->size : UINT64_MAX,
			.piece = plan.piece,
			.n = plan.n,
		},
		p->method);
	p->ns += now_ns() - t0;
	verify_plan_free(&plan);
	if (!code)
		code = fill_source(v, start, len);
	if (!code)
		code = check_guards(v, p, len, value);
	if (code)
		return code;
	err = strait_region_compare(v->source, v->source_base, v->copy, p->base, len, &where);
	if (err)
		return fail(CLI_FAILED, NULL, "cannot compare the memory of %s: %s", v->target.info.name,
			    error_text(err));
	p->bytes += len;
	if (where < len && p->where == UINT64_MAX)
		p->where = start + where;
	return CLI_OK;
}

static int each_window(struct verify *v, struct verify_pass *p)
{
	int code = CLI_OK;

	for (uint64_t start = 0; start < v->size && !code; start += v->window) {
		uint64_t len = min_u64(v->window, v->size - start);

		code = p ? read_window(v, p, start, len) : write_window(v, start, len);
		v->shown += len;
		progress_set(v->shown);
	}
	return code;
}

static int run(struct verify *v)
{
	int err, code;

	progress_start("verifying", v->size * (1 + ARRAY_SIZE(v->pass)));
	code = each_window(v, NULL);
	if (!code)
		code = verify_file_check(&v->file, v->path, &v->pattern, v->size, &v->file_where);
	for (unsigned int i = 0; i < ARRAY_SIZE(v->pass) && !code; i++) {
		struct verify_pass *p = &v->pass[i];

		if (!has_method(v, p->method))
			continue;
		err = p->cold ? strait_endpoint_sync(v->ep) : 0;
		if (err)
			code = fail(CLI_FAILED, NULL, "cannot sync %s to storage: %s", v->path, error_text(err));
		/* The pagecache route reads the page cache: do not drop it where that route alone is required. */
		if (p->cold && v->target.routes != STRAIT_ROUTE_MASK(STRAIT_ROUTE_PAGECACHE))
			posix_fadvise(v->file.fd, 0, 0, POSIX_FADV_DONTNEED);
		if (!code)
			code = each_window(v, p);
		p->done = !code;
	}
	progress_end();
	return code;
}

int cmd_verify(int argc, char **argv)
{
	struct verify v = {
		.size = 64 * MIB,
		.pattern.seed = 1,
		.file.fd = -1,
		.filled = UINT64_MAX,
		.pass = {
			{ "sync read", VERIFY_SYNC, false, true, VERIFY_GUARD, .where = UINT64_MAX },
			{ "queued read", VERIFY_QUEUE, true, true, VERIFY_GUARD + 13, .where = UINT64_MAX },
			{ "stream read", VERIFY_STREAM, false, false, VERIFY_GUARD + 512, .where = UINT64_MAX },
		},
	};
	const struct opt opts[] = {
		{ "size", "SIZE", OPT_SIZE, &v.size, "bytes to write and read back; default 64M" },
		{ "seed", "N", OPT_NUMBER, &v.pattern.seed, "seed of the pattern and of the pieces; default 1" },
		TARGET_OPTS(&v.opts),
		{ "force", NULL, OPT_FLAG, &v.force, "allow overwriting an existing file or block device" },
		{ "json", NULL, OPT_FLAG, &cli.json, "print the report as JSON" },
	};
	int code, n = args_parse(argc, argv, opts, ARRAY_SIZE(opts), 1, 1, &v.path);

	if (n < 0)
		return args_exit(n);
	if (!v.size)
		return fail(CLI_USAGE, "use a larger --size", "--size is 0: there is nothing to verify");
	/* Even seeds place the data at an aligned address in device memory, odd seeds at an odd one. */
	v.source_base = VERIFY_GUARD + (v.pattern.seed & 1 ? 7 : 0);
	code = target_open(&v.opts, &v.target);
	if (code)
		return code;
	code = prepare(&v);
	if (!code)
		code = run(&v);
	if (!code)
		code = verify_report(&v);
	strait_region_close(v.source);
	strait_region_close(v.copy);
	strait_endpoint_close(v.direct_ep);
	strait_endpoint_close(v.ep);
	verify_file_close(&v.file);
	target_close(&v.target);
	return code;
}
