/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <strait/strait.h>

#include "lib/args.h"
#include "lib/cli.h"
#include "lib/progress.h"
#include "lib/size.h"
#include "lib/transfer_totals.h"
#include "verbs/load/load.h"

/* With --verbose: how long a phase took, on stderr. Returns the time, where the next one begins. */
static uint64_t phase(const char *what, uint64_t began)
{
	uint64_t now = now_ns();

	if (cli.verbose)
		fprintf(stderr, "strait: %-40s %8.1f ms\n", what, (double)(now - began) / 1e6);
	return now;
}

static int open_file(struct load *l)
{
	struct strait_file_info info = { .size = sizeof(info) };
	int err = strait_file_open(l->target.ctx, l->path, O_RDONLY, 0, l->target.file_flags, &l->ep);

	if (!err)
		err = strait_file_info(l->ep, &info);
	if (err)
		return file_failed(l->path, err);
	if (l->offset > info.length)
		return fail(CLI_USAGE, "use a smaller --offset",
			    "--offset %" PRIu64 " is past the end of %s, %" PRIu64 " bytes", l->offset, l->path,
			    info.length);
	l->length = min_u64(l->length, info.length - l->offset);
	return CLI_OK;
}

/* The whole range, in slices where it is larger than the free device memory. */
static int load_all(struct load *l)
{
	struct strait_region *region;
	uint64_t room, done, began = now_ns();
	int code;

	if (!l->length)
		return CLI_OK; /* an empty range needs no memory */
	code = target_alloc(&l->target, l->length, &region, &room);
	if (code)
		return code;
	began = phase("device memory, the CUDA context with it", began);
	progress_start("loading", l->length);
	for (done = 0; !code && done < l->length;) {
		struct strait_transfer t = {
			.op = STRAIT_READ,
			.routes = l->target.routes,
			.endpoint = l->ep,
			.region = region,
			.endpoint_offset = l->offset + done,
			.length = min_u64(room, l->length - done),
		};
		int err;

		code = totals_run(&l->totals, &t, l->path, done);
		if (code)
			break;
		began = phase("transfer", began);
		err = strait_region_crc32c(region, 0, t.length, &l->crc);
		began = phase("checksum on the device", began);
		if (err)
			code = fail(CLI_FAILED, NULL, "cannot compute the CRC-32C of the memory of %s: %s",
				    l->target.info.name, error_text(err));
		done += t.length;
	}
	progress_end();
	strait_region_close(region);
	return code;
}

static void report(const struct load *l)
{
	char size[SIZE_TEXT], rate[SIZE_TEXT], routes[96];
	struct json j;

	if (cli.json) {
		json_begin(&j, stdout);
		json_string(&j, "path", l->path);
		json_string(&j, "device", l->target.info.name);
		json_uint(&j, "offset", l->offset);
		totals_json(&l->totals, &j);
		snprintf(size, sizeof(size), "%08" PRIx32, l->crc);
		json_string(&j, "crc32c", size);
		if (l->verify) {
			snprintf(size, sizeof(size), "%08" PRIx32, l->file_crc);
			json_string(&j, "file_crc32c", size);
			json_bool(&j, "good", l->crc == l->file_crc);
		}
		json_finish(&j);
		return;
	}
	printf("%s -> %s\n", l->path, l->target.info.name);
	printf("  bytes    %" PRIu64 " (%s)\n", l->totals.bytes, size_format(l->totals.bytes, size));
	printf("  time     %.6f s, %s\n", (double)l->totals.ns / 1e9, rate_format(l->totals.bytes, l->totals.ns, rate));
	printf("  route    %s\n", routes_text(l->totals.route_bytes, routes));
	printf("  crc32c   %08" PRIx32 "\n", l->crc);
	if (l->verify)
		printf("  file     %08" PRIx32 ", %s\n", l->file_crc, l->crc == l->file_crc ? "matches" : "DIFFERS");
}

static int load_plain(struct load *l)
{
	struct load_check check = { .fd = -1 };
	int code = load_all(l);

	if (!code && l->verify) {
		code = load_check_open(&check, l);
		if (!code)
			code = load_check_range(&check, l->offset, l->length, &l->file_crc);
		load_check_close(&check);
	}
	if (!code)
		report(l);
	if (!code && l->verify && l->crc != l->file_crc)
		code = load_mismatch(l);
	return code;
}

static bool is_safetensors(const struct load *l)
{
	static const char ending[] = ".safetensors";
	size_t n = strlen(l->path), m = sizeof(ending) - 1;

	if (l->format)
		return !strcmp(l->format, "safetensors");
	return n > m && !strcmp(l->path + n - m, ending);
}

static int check_options(const struct load *l, bool part)
{
	if (l->format && strcmp(l->format, "raw") && strcmp(l->format, "safetensors"))
		return fail(CLI_USAGE, "formats are raw and safetensors", "unknown format \"%s\"", l->format);
	if (is_safetensors(l) && part)
		return fail(CLI_USAGE, "use --format raw to load a part of it as plain bytes",
			    "--offset and --length do not apply to a safetensors file: its tensors are loaded whole");
	return CLI_OK;
}

int cmd_load(int argc, char **argv)
{
	struct load l = { .length = UINT64_MAX };
	const struct opt opts[] = {
		TARGET_OPTS(&l.opts),
		{ "offset", "SIZE", OPT_SIZE, &l.offset, "first byte to load; default 0" },
		{ "length", "SIZE", OPT_SIZE, &l.length, "bytes to load; default: to the end of the file" },
		{ "format", "F", OPT_TEXT, &l.format, "raw or safetensors; default: by the extension of FILE" },
		{ "verify", NULL, OPT_FLAG, &l.verify, "read the file again with pread(2) and compare checksums" },
		{ "all", NULL, OPT_FLAG, &l.all, "list every tensor, not only the first 20" },
		{ "json", NULL, OPT_FLAG, &cli.json, "print the report as JSON" },
	};
	int code, n = args_parse(argc, argv, opts, ARRAY_SIZE(opts), 1, 1, &l.path);
	uint64_t began;

	if (n < 0)
		return args_exit(n);
	code = check_options(&l, l.offset || l.length != UINT64_MAX);
	began = now_ns();
	if (!code)
		code = target_open(&l.opts, &l.target);
	if (code)
		return code;
	began = phase("context: the devices and their drivers", began);
	code = open_file(&l);
	phase("file", began);
	if (!code)
		code = is_safetensors(&l) ? load_tensors(&l) : load_plain(&l);
	strait_endpoint_close(l.ep);
	target_close(&l.target);
	return code;
}
