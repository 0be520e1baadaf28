/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <strait/strait.h>

#include "lib/args.h"
#include "lib/cli.h"
#include "lib/pattern.h"
#include "lib/progress.h"
#include "lib/size.h"
#include "verbs/bench/bench.h"
#include "verbs/bench/cufile.h"

enum { MAX_BLOCKS = 32, MAX_COUNTS = 16, COUNT_MAX = 4096 };

struct bench {
	const char *path;
	uint64_t size;
	const char *block_list, *thread_list, *depth_list, *mode_list, *plot, *compare;
	double seconds;
	bool cached, force, keep, with[BENCH_SERIES]; /* with: series to compare with */
	struct target_opts opts;

	uint64_t block[MAX_BLOCKS], largest;
	unsigned int blocks;
	uint32_t threads[MAX_COUNTS], depth[MAX_COUNTS];
	unsigned int n_threads, n_depths;
	enum bench_mode mode[BENCH_MODES];
	unsigned int modes;
	bool writes;
	enum bench_cache cache;

	struct target target;
	struct bench_file file;
	struct strait_endpoint *ep;
	struct strait_region *region;
	struct bench_row *row;
	unsigned int rows;
	struct cufile cufile;
};

static int parse_blocks(struct bench *b)
{
	char *list = xstrdup(b->block_list), *item, *save = NULL;
	int code = CLI_OK;

	for (item = strtok_r(list, ",", &save); item && !code; item = strtok_r(NULL, ",", &save)) {
		uint64_t block;

		if (b->blocks == MAX_BLOCKS)
			code = fail(CLI_USAGE, "give fewer", "--block has more than %d sizes", MAX_BLOCKS);
		else if (size_parse(item, &block) || !block)
			code = fail(CLI_USAGE, "for example --block 64K,1M,16M", "\"%s\" is not a block size", item);
		else
			b->block[b->blocks++] = block;
		if (!code && block > b->largest)
			b->largest = block;
	}
	if (!code && !b->blocks)
		code = fail(CLI_USAGE, "for example --block 64K,1M,16M", "--block is empty");
	free(list);
	return code;
}

/* A list of counts, at least one: threads, or transfers in flight. */
static int parse_counts(const char *option, const char *text, uint32_t *count, unsigned int *n)
{
	char *list = xstrdup(text), *item, *save = NULL, *end;
	int code = CLI_OK;

	for (item = strtok_r(list, ",", &save); item && !code; item = strtok_r(NULL, ",", &save)) {
		unsigned long value = strtoul(item, &end, 10);

		if (*n == MAX_COUNTS)
			code = fail(CLI_USAGE, "give fewer", "--%s has more than %d numbers", option, MAX_COUNTS);
		else if (*end || item[0] < '0' || item[0] > '9' || !value || value > COUNT_MAX)
			code = fail(CLI_USAGE, "give numbers from 1 to 4096, for example 1,4,16",
				    "--%s: \"%s\" is not such a number", option, item);
		else
			count[(*n)++] = (uint32_t)value;
	}
	if (!code && !*n)
		code = fail(CLI_USAGE, "give numbers, for example 1,4,16", "--%s is empty", option);
	free(list);
	return code;
}

static uint32_t largest_count(const uint32_t *count, unsigned int n)
{
	uint32_t most = 0;

	for (unsigned int i = 0; i < n; i++)
		most = count[i] > most ? count[i] : most;
	return most;
}

static int parse_modes(struct bench *b)
{
	char *list = xstrdup(b->mode_list), *item, *save = NULL;
	int code = CLI_OK;

	for (item = strtok_r(list, ",", &save); item && !code; item = strtok_r(NULL, ",", &save)) {
		int mode = bench_mode_parse(item);

		if (mode < 0)
			code = fail(CLI_USAGE, "modes are read, write, randread and randwrite", "unknown mode \"%s\"",
				    item);
		else if (b->modes < BENCH_MODES)
			b->mode[b->modes++] = (enum bench_mode)mode;
		b->writes |= mode >= 0 && bench_writes((enum bench_mode)mode);
	}
	if (!code && !b->modes)
		code = fail(CLI_USAGE, "modes are read, write, randread and randwrite", "--mode is empty");
	free(list);
	return code;
}

static int parse_compare(struct bench *b)
{
	char *list = xstrdup(b->compare ? b->compare : ""), *item, *save = NULL;
	int code = CLI_OK, s;

	for (item = strtok_r(list, ",", &save); item && !code; item = strtok_r(NULL, ",", &save)) {
		for (s = BENCH_HOST; s < BENCH_SERIES && strcmp(item, bench_series_name((enum bench_series)s)); s++)
			;
		if (s < BENCH_SERIES)
			b->with[s] = true;
		else
			code = fail(CLI_USAGE, "give host, cufile, staged, or a list of them",
				    "cannot compare with \"%s\"", item);
	}
	free(list);
	return code;
}

static int parse(struct bench *b, const char *what)
{
	int code;

	if (strcmp(what, "file"))
		return fail(CLI_USAGE, "use: strait bench file PATH", "unknown benchmark \"%s\"", what);
	if (b->cached && b->opts.direct)
		return fail(CLI_USAGE, "give only one of them", "--cached and --direct exclude each other");
	b->cache = b->opts.direct ? BENCH_DIRECT : b->cached ? BENCH_CACHED : BENCH_AS_IS;
	code = parse_compare(b);
	if (!code)
		code = parse_blocks(b);
	if (!code)
		code = parse_counts("threads", b->thread_list, b->threads, &b->n_threads);
	if (!code)
		code = parse_counts("depth", b->depth_list, b->depth, &b->n_depths);
	return code ? code : parse_modes(b);
}

/* How many loads are measured. */
static unsigned int loads(const struct bench *b)
{
	return b->modes * b->blocks * b->n_threads * b->n_depths;
}

static int prepare(struct bench *b)
{
	uint64_t slots = (uint64_t)largest_count(b->threads, b->n_threads) * largest_count(b->depth, b->n_depths);
	uint64_t need = slots * bench_slot(b->largest), got;
	char block[SIZE_TEXT], have[SIZE_TEXT];
	int err, code = bench_file_open(&b->file, b->path, b->size, b->writes, b->force, b->keep);

	if (code)
		return code;
	if (b->file.bytes < b->largest)
		return fail(CLI_USAGE, "use a smaller --block or a larger file", "%s has %s, less than one block of %s",
			    b->path, size_format(b->file.bytes, have), size_format(b->largest, block));
	err = strait_file_import(b->target.ctx, b->file.fd, b->target.file_flags, &b->ep);
	if (err)
		return file_failed(b->path, err);
	code = target_alloc(&b->target, need, &b->region, &got);
	if (code)
		return code;
	if (got < need)
		return fail(CLI_FAILED, "use a smaller --block, --depth or --threads",
			    "%s has less than %s of free memory", b->target.info.name, size_format(need, have));
	if (b->writes) {
		err = pattern_to_region(&(struct pattern){ PATTERN_RANDOM, 1 }, 0, b->region, 0, need);
		if (err)
			return fail(CLI_FAILED, NULL, "cannot fill the memory of %s: %s", b->target.info.name,
				    error_text(err));
	}
	b->row = xcalloc(BENCH_SERIES * loads(b), sizeof(*b->row));
	if (b->with[BENCH_CUFILE])
		cufile_open(&b->cufile, &b->target, b->region);
	return CLI_OK;
}

/* Measure the same load with another series, and its ratio to @mine. */
static int compare_with(struct bench *b, enum bench_series series, const struct bench_load *load,
			struct bench_row *mine)
{
	struct bench_row *other = &b->row[b->rows];
	int code = bench_file_prepare(&b->file, b->cache);

	if (code)
		return code;
	if (series == BENCH_CUFILE && !bench_cufile(load, &b->cufile, b->cache, other))
		return CLI_OK; /* the report has the reason */
	if (series == BENCH_HOST)
		code = bench_host(load, b->cache, other);
	if (series == BENCH_STAGED)
		code = bench_strait(load, &b->target, STRAIT_ROUTE_MASK(STRAIT_ROUTE_STAGED), b->ep, b->region, other);
	if (code)
		return code;
	other->series = series;
	b->rows++;
	if (other->bytes && other->ns)
		mine->ratio[series] = rate_gbs(mine->bytes, mine->ns) / rate_gbs(other->bytes, other->ns);
	return CLI_OK;
}

static int run_one(struct bench *b, const struct bench_load *load, unsigned int number)
{
	struct bench_row *mine = &b->row[b->rows];
	char text[SIZE_TEXT];
	int code;

	progress_text("measuring %s of %s, %u of %u", bench_mode_name(load->mode), size_short(load->block, text),
		      number, loads(b));
	code = bench_file_prepare(&b->file, b->cache);
	if (!code)
		code = bench_strait(load, &b->target, b->target.routes, b->ep, b->region, mine);
	if (code)
		return code;
	b->rows++;
	if (b->with[BENCH_HOST])
		code = compare_with(b, BENCH_HOST, load, mine);
	if (!code && b->with[BENCH_CUFILE] && !b->cufile.why[0])
		code = compare_with(b, BENCH_CUFILE, load, mine);
	if (!code && b->with[BENCH_STAGED])
		code = compare_with(b, BENCH_STAGED, load, mine);
	return code;
}

static int run(struct bench *b)
{
	unsigned int n = loads(b);
	int code = CLI_OK;

	/* The innermost is the block size, then the depth, then the threads. */
	for (unsigned int i = 0; i < n && !code; i++) {
		unsigned int at = i;
		struct bench_load load = { .seconds = b->seconds, .file = &b->file };

		load.block = b->block[at % b->blocks];
		at /= b->blocks;
		load.depth = b->depth[at % b->n_depths];
		at /= b->n_depths;
		load.threads = b->threads[at % b->n_threads];
		load.mode = b->mode[at / b->n_threads];
		code = run_one(b, &load, i + 1);
	}
	progress_end();
	return code;
}

int cmd_bench(int argc, char **argv)
{
	struct bench b = {
		.block_list = "1M",
		.mode_list = "read",
		.thread_list = "1",
		.depth_list = "1",
		.seconds = 3,
		.file.fd = -1,
	};
	const struct opt opts[] = {
		{ "size", "SIZE", OPT_SIZE, &b.size, "bytes of the file to use, or to create; default: all, or 1G" },
		{ "block", "SIZE,...", OPT_TEXT, &b.block_list, "bytes per transfer; default 1M" },
		{ "threads", "N,...", OPT_TEXT, &b.thread_list, "threads that submit transfers; default 1" },
		{ "depth", "N,...", OPT_TEXT, &b.depth_list,
		  "transfers in flight per thread, through a queue if above 1; default 1" },
		{ "mode", "MODE,...", OPT_TEXT, &b.mode_list, "read (default), write, randread, randwrite" },
		{ "seconds", "N", OPT_SECONDS, &b.seconds,
		  "duration of each row; default 3; 0: one pass over the file" },
		{ "cached", NULL, OPT_FLAG, &b.cached, "read the file into the page cache first" },
		{ "compare", "WITH,...", OPT_TEXT, &b.compare,
		  "measure as well: host (pread/pwrite into host memory), cufile (NVIDIA's libcufile), staged (that route)" },
		{ "plot", "OUT.svg", OPT_TEXT, &b.plot,
		  "draw throughput over block size, or over threads or depth where these vary, into a file" },
		{ "force", NULL, OPT_FLAG, &b.force, "allow writing to an existing file or block device" },
		{ "keep", NULL, OPT_FLAG, &b.keep, "keep the file that was created" },
		TARGET_OPTS(&b.opts),
		{ "json", NULL, OPT_FLAG, &cli.json, "print the report as JSON" },
	};
	struct bench_report report = { .file = &b.file, .target = &b.target };
	const char *pos[2];
	int code, n = args_parse(argc, argv, opts, ARRAY_SIZE(opts), 2, 2, pos);

	if (n < 0)
		return args_exit(n);
	b.path = pos[1];
	code = parse(&b, pos[0]);
	if (!code)
		code = target_open(&b.opts, &b.target);
	if (code)
		return code;
	code = prepare(&b);
	if (!code)
		code = run(&b);
	report.cache = b.cache;
	report.row = b.row;
	report.n = b.rows;
	report.cufile = b.with[BENCH_CUFILE] ? &b.cufile : NULL;
	if (!code && b.plot)
		code = bench_plot(&report, b.plot);
	if (!code && cli.json)
		bench_print_json(&report);
	else if (!code)
		bench_print(&report);
	cufile_close(&b.cufile);
	free(b.row);
	strait_region_close(b.region);
	strait_endpoint_close(b.ep);
	bench_file_close(&b.file);
	target_close(&b.target);
	return code;
}
