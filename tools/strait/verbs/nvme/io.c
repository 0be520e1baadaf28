/* SPDX-License-Identifier: MIT */
/* Blocks of a drive to and from device memory: read, write, verify. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <strait/strait.h>

#include "lib/cli.h"
#include "lib/pattern.h"
#include "lib/progress.h"
#include "lib/size.h"
#include "lib/transfer_totals.h"
#include "verbs/nvme/nvme.h"

#define SLICE (16 * MIB)

/* Check that the blocks are in the namespace. */
static int check_range(const struct nvme_cmd *c)
{
	if (c->offset > c->ns.blocks || c->blocks > c->ns.blocks - c->offset || !c->blocks)
		return fail(CLI_USAGE, "see: strait nvme identify",
			    "namespace %u has %" PRIu64 " blocks, which do not include %" PRIu64 " blocks from %" PRIu64
			    " on",
			    c->nsid, c->ns.blocks, c->blocks, c->offset);
	return CLI_OK;
}

static void dump_line(uint64_t at, const uint8_t *p, size_t n, bool ascii)
{
	if (!ascii) {
		printf("%08" PRIx64 " ", at);
		for (size_t i = 0; i < n; i++)
			printf(" %02x", p[i]);
		printf("%*s  ", (int)(3 * (16 - n)), "");
	}
	for (size_t i = 0; i < n; i++)
		putchar(p[i] >= ' ' && p[i] < 127 ? p[i] : ascii && p[i] == '\n' ? '\n' : '.');
	if (!ascii)
		putchar('\n');
}

/* Copy the blocks out of device memory, to the file or as a dump to stdout. */
static int write_out(struct nvme_cmd *c, int fd, struct strait_region *r, uint64_t at, uint64_t len)
{
	uint8_t *buf = xcalloc(1, len);
	int code = CLI_OK, err = strait_region_copy_out(r, 0, buf, len);

	if (err)
		code = fail(CLI_FAILED, NULL, "cannot copy out of the memory of %s: %s", c->target.info.name,
			    error_text(err));
	for (uint64_t done = 0; !code && fd >= 0 && done < len;) {
		ssize_t n = write(fd, buf + done, len - done);

		if (n <= 0)
			code = fail(CLI_FAILED, NULL, "cannot write %s: %s", c->output, error_text(errno));
		else
			done += (uint64_t)n;
	}
	for (uint64_t i = 0; !code && fd < 0 && !cli.json && i < len; i += 16)
		dump_line(at + i, buf + i, min_u64(16, len - i), c->ascii);
	free(buf);
	return code;
}

static void report(const struct nvme_cmd *c, const struct transfer_totals *f, const char *what)
{
	char rate[SIZE_TEXT], size[SIZE_TEXT], routes[96];
	struct json j;

	if (cli.json) {
		json_begin(&j, stdout);
		json_string(&j, "pci", c->info.name);
		json_uint(&j, "namespace", c->nsid);
		json_uint(&j, "offset", c->offset);
		json_uint(&j, "blocks", c->blocks);
		json_string(&j, "device", c->target.info.name);
		totals_json(f, &j);
		json_finish(&j);
		return;
	}
	/* On stderr: stdout has the dump. */
	fprintf(stderr, "%s %" PRIu64 " blocks (%s) of %s namespace %u, memory on %s, route %s, %s\n", what, c->blocks,
		size_format(f->bytes, size), c->info.name, c->nsid, c->target.info.name,
		routes_text(f->route_bytes, routes), rate_format(f->bytes, f->ns, rate));
}

int nvme_cmd_read(struct nvme_cmd *c)
{
	struct strait_region *r = NULL;
	struct transfer_totals f = { 0 };
	uint64_t total, start;
	int fd = -1, err, code = nvme_open_endpoint(c, STRAIT_NVME_READ_ONLY);

	if (!code)
		code = check_range(c);
	if (code)
		return code;
	total = c->blocks * c->ns.lba_bytes;
	start = c->offset * c->ns.lba_bytes;
	if (c->output) {
		fd = open(c->output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
		if (fd < 0)
			return fail(CLI_FAILED, NULL, "cannot create %s: %s", c->output, error_text(errno));
	}
	err = strait_region_alloc(c->target.dev, min_u64(total, SLICE), &r);
	if (err)
		code = fail(CLI_FAILED, NULL, "%s: cannot allocate memory for the transfer: %s", c->target.info.name,
			    error_text(err));
	for (uint64_t done = 0; !code && done < total; done += SLICE) {
		struct strait_transfer t = { .op = STRAIT_READ,
					     .routes = c->target.routes,
					     .endpoint = c->ep,
					     .region = r,
					     .endpoint_offset = start + done,
					     .length = min_u64(SLICE, total - done) };

		code = totals_run(&f, &t, c->name, TOTALS_NO_PROGRESS);
		if (!code)
			code = write_out(c, fd, r, start + done, t.length);
	}
	if (fd >= 0 && close(fd) && !code)
		code = fail(CLI_FAILED, NULL, "cannot write %s: %s", c->output, error_text(errno));
	if (!code) {
		fflush(stdout);
		report(c, &f, "read");
	}
	strait_region_close(r);
	return code;
}

/* Read the next slice of the file, padded with zeros at its end. */
static int read_slice(const char *path, int fd, uint8_t *buf, uint64_t len)
{
	uint64_t done = 0;

	memset(buf, 0, len);
	while (done < len) {
		ssize_t n = read(fd, buf + done, len - done);

		if (n < 0)
			return fail(CLI_FAILED, NULL, "cannot read %s: %s", path, error_text(errno));
		if (!n)
			break;
		done += (uint64_t)n;
	}
	return CLI_OK;
}

static int write_slices(struct nvme_cmd *c, int fd, struct strait_region *r, uint64_t total, struct transfer_totals *f)
{
	uint8_t *buf = xcalloc(1, SLICE);
	int code = CLI_OK;

	for (uint64_t done = 0; !code && done < total; done += SLICE) {
		struct strait_transfer t = { .op = STRAIT_WRITE,
					     .routes = c->target.routes,
					     .endpoint = c->ep,
					     .region = r,
					     .endpoint_offset = c->offset * c->ns.lba_bytes + done,
					     .length = min_u64(SLICE, total - done) };
		int err;

		code = read_slice(c->from, fd, buf, t.length);
		if (code)
			break;
		err = strait_region_copy_in(r, 0, buf, t.length);
		if (err)
			code = fail(CLI_FAILED, NULL, "cannot copy into the memory of %s: %s", c->target.info.name,
				    error_text(err));
		if (!code)
			code = totals_run(f, &t, c->name, TOTALS_NO_PROGRESS);
	}
	free(buf);
	return code;
}

int nvme_cmd_write(struct nvme_cmd *c)
{
	struct strait_region *r = NULL;
	struct transfer_totals f = { 0 };
	struct stat st;
	int fd, err, code;

	if (!c->from)
		return fail(CLI_USAGE, "give --from FILE", "no file to write is given");
	code = nvme_open_endpoint(c, 0);
	if (code)
		return code;
	fd = open(c->from, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st))
		return fail(CLI_FAILED, NULL, "cannot open %s: %s", c->from, error_text(errno));
	c->blocks = ((uint64_t)st.st_size + c->ns.lba_bytes - 1) / c->ns.lba_bytes;
	code = c->blocks ? check_range(c) : fail(CLI_USAGE, NULL, "%s is empty", c->from);
	err = code ? 0 : strait_region_alloc(c->target.dev, SLICE, &r);
	if (err)
		code = fail(CLI_FAILED, NULL, "%s: cannot allocate memory for the transfer: %s", c->target.info.name,
			    error_text(err));
	if (!code)
		code = write_slices(c, fd, r, c->blocks * c->ns.lba_bytes, &f);
	close(fd);
	err = code ? 0 : strait_endpoint_sync(c->ep);
	if (err)
		code = fail(CLI_FAILED, NULL, "%s: cannot flush the write cache: %s", c->name, error_text(err));
	if (!code)
		report(c, &f, "wrote");
	strait_region_close(r);
	return code;
}

/* Write one slice of the pattern from device memory, read it into other device memory, and compare there. */
static int verify_slice(struct nvme_cmd *c, struct strait_region *a, struct strait_region *b, uint64_t done,
			uint64_t len, struct transfer_totals *f)
{
	const struct pattern p = { PATTERN_RANDOM, c->seed };
	struct strait_transfer t = { .op = STRAIT_WRITE,
				     .routes = c->target.routes,
				     .endpoint = c->ep,
				     .region = a,
				     .endpoint_offset = c->offset * c->ns.lba_bytes + done,
				     .length = len };
	uint64_t where;
	int err, code;

	err = pattern_to_region(&p, done, a, 0, len);
	if (!err)
		err = strait_region_fill(b, 0, 0xa5, len);
	if (err)
		return fail(CLI_FAILED, NULL, "cannot fill the memory of %s: %s", c->target.info.name, error_text(err));
	code = totals_run(f, &t, c->name, TOTALS_NO_PROGRESS);
	t.op = STRAIT_READ;
	t.region = b;
	if (!code)
		code = totals_run(f, &t, c->name, TOTALS_NO_PROGRESS);
	if (code)
		return code;
	err = strait_region_compare(a, 0, b, 0, len, &where);
	if (err)
		return fail(CLI_FAILED, NULL, "cannot compare the memory of %s: %s", c->target.info.name,
			    error_text(err));
	if (where < len)
		return fail(CLI_MISMATCH,
			    "check the IOMMU mode and ACS of the PCIe switches between drive and device: strait info",
			    "%s: mismatch: byte %" PRIu64 " read back differs from the byte written", c->name,
			    t.endpoint_offset + where);
	return CLI_OK;
}

int nvme_cmd_verify(struct nvme_cmd *c)
{
	struct strait_region *a = NULL, *b = NULL;
	struct transfer_totals f = { 0 };
	uint64_t total;
	int err, code;

	if (!c->force)
		return fail(CLI_USAGE, "give --force to overwrite them",
			    "%s: %" PRIu64 " blocks from %" PRIu64 " on would be overwritten", c->name, c->blocks,
			    c->offset);
	code = nvme_open_endpoint(c, 0);
	if (!code)
		code = check_range(c);
	if (code)
		return code;
	total = c->blocks * c->ns.lba_bytes;
	err = strait_region_alloc(c->target.dev, min_u64(total, SLICE), &a);
	if (!err)
		err = strait_region_alloc(c->target.dev, min_u64(total, SLICE), &b);
	if (err)
		code = fail(CLI_FAILED, NULL, "%s: cannot allocate memory for the transfer: %s", c->target.info.name,
			    error_text(err));
	progress_start("verifying", total);
	for (uint64_t done = 0; !code && done < total; done += SLICE) {
		code = verify_slice(c, a, b, done, min_u64(SLICE, total - done), &f);
		progress_set(done);
	}
	progress_end();
	if (!code)
		report(c, &f, "verified");
	strait_region_close(b);
	strait_region_close(a);
	return code;
}
