/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include <strait/device.h>
#include <strait/region.h>

#include "lib/cli.h"
#include "verbs/load/load.h"

enum { SLICE = 4 << 20 };

int load_check_open(struct load_check *c, const struct load *l)
{
	struct strait_device *host;
	int err;

	*c = (struct load_check){ .path = l->path, .fd = open(l->path, O_RDONLY | O_CLOEXEC) };
	if (c->fd < 0)
		return file_failed(l->path, -errno);
	err = strait_device_find(l->target.ctx, "host", &host);
	if (!err)
		err = strait_region_alloc(host, SLICE, &c->region);
	if (!err)
		err = strait_region_map(c->region, &c->buf);
	if (err)
		return fail(CLI_FAILED, NULL, "cannot allocate host memory to read %s again: %s", l->path,
			    error_text(err));
	return CLI_OK;
}

/* pread() until @len bytes are there or the file ends. */
static ssize_t read_slice(struct load_check *c, uint64_t off, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(c->fd, (char *)c->buf + done, len - done, (off_t)(off + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

int load_check_range(struct load_check *c, uint64_t off, uint64_t len, uint32_t *crc)
{
	for (uint64_t done = 0; done < len;) {
		size_t want = min_u64(SLICE, len - done);
		ssize_t n = read_slice(c, off + done, want);
		int err;

		if (n < 0)
			return fail(CLI_FAILED, NULL, "cannot read %s again: %s", c->path, error_text((int)n));
		err = strait_region_crc32c(c->region, 0, (size_t)n, crc);
		if (err)
			return fail(CLI_FAILED, NULL, "cannot compute the CRC-32C of host memory: %s", error_text(err));
		if ((size_t)n < want)
			return fail(CLI_FAILED, "the file may have been truncated since it was loaded",
				    "%s ends at byte %" PRIu64 " when it is read again", c->path,
				    off + done + (uint64_t)n);
		done += want;
	}
	return CLI_OK;
}

void load_check_close(struct load_check *c)
{
	strait_region_close(c->region);
	if (c->fd >= 0)
		close(c->fd);
	*c = (struct load_check){ .fd = -1 };
}

int load_mismatch(const struct load *l)
{
	cli.json = false; /* the report has it already */
	return fail(CLI_MISMATCH,
		    "if no process wrote to the file meanwhile, repeat with --route and --no-uring to find the cause",
		    "%s: mismatch: the bytes in device memory differ from the file", l->path);
}
