/* SPDX-License-Identifier: MIT */
/*
 * edit_in_place: a device transforms a file that is larger than the memory it may take.
 *
 *	example-edit_in_place [--device cuda:0|vgpu:0|emu:0|host] [--budget MIB] [--window MIB] FILE
 *
 * Every byte of FILE is inverted, one window after the other: acquire a window, transform it on the device, release it.
 * Nothing is written by this program: windows that are evicted, and the rest at the end, are written back to the file. While
 * one window is transformed the next one is prefetched. Run it twice and the file is as it was.
 *
 * Where the CPU can access the device's memory, as on the emulated device, the transformation is a function. For others it
 * copies the window out and in, so that the program needs no compiler for their kernels: shared_table.c has a kernel.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <strait/mapping.h>
#include <strait/strait.h>
#include <string.h>

static int fail(const char *what, int code)
{
	fprintf(stderr, "edit_in_place: %s: %s\n", what, strerror(abs(code)));
	return 1;
}

static void invert(unsigned char *p, uint64_t len)
{
	for (uint64_t i = 0; i < len; i++)
		p[i] = (unsigned char)~p[i];
}

/* The transformation of @len bytes of device memory at @addr. */
static int transform(struct strait_context *ctx, void *addr, uint64_t len)
{
	struct strait_region *region;
	unsigned char *cpu, *copy;
	uint64_t at;
	int rc;

	rc = strait_region_lookup(ctx, addr, &at, &region);
	if (rc)
		return rc;
	if (!strait_region_map(region, (void **)&cpu)) {
		invert(cpu + at, len);
	} else {
		copy = malloc(len);
		rc = copy ? strait_region_copy_out(region, at, copy, len) : -ENOMEM;
		if (!rc) {
			invert(copy, len);
			rc = strait_region_copy_in(region, at, copy, len);
		}
		free(copy);
	}
	strait_region_close(region);
	return rc;
}

static int edit(struct strait_context *ctx, struct strait_mapping *m, struct strait_device *dev, uint64_t length,
		uint64_t window)
{
	int rc = 0;

	for (uint64_t off = 0; off < length && !rc; off += window) {
		uint64_t len = length - off < window ? length - off : window, next = off + len;
		void *addr;

		rc = strait_mapping_acquire(m, dev, off, len, STRAIT_INTENT_WRITE, &addr);
		if (rc)
			break;
		if (next < length)
			strait_mapping_prefetch(m, dev, next, length - next < window ? length - next : window);
		rc = transform(ctx, addr, len);
		if (!rc)
			rc = strait_mapping_release(m, dev, off, len, STRAIT_INTENT_WRITE);
	}
	return rc ? rc : strait_mapping_sync(m, 0, length);
}

int main(int argc, char **argv)
{
	const char *name = "emu:0", *path = NULL;
	struct strait_mapping_opts opts = { .size = sizeof(opts), .device_budget = 64 << 20 };
	struct strait_mapping_info info = { .size = sizeof(info) };
	uint64_t window = 8 << 20;
	struct strait_endpoint *ep = NULL;
	struct strait_mapping *m = NULL;
	struct strait_context *ctx;
	struct strait_device *dev;
	int rc;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--device") && i + 1 < argc)
			name = argv[++i];
		else if (!strcmp(argv[i], "--budget") && i + 1 < argc)
			opts.device_budget = strtoull(argv[++i], NULL, 0) << 20;
		else if (!strcmp(argv[i], "--window") && i + 1 < argc)
			window = strtoull(argv[++i], NULL, 0) << 20;
		else
			path = argv[i];
	}
	if (!path || !window) {
		fprintf(stderr, "usage: edit_in_place [--device DEVICE] [--budget MIB] [--window MIB] FILE\n");
		return 2;
	}
	rc = strait_context_open(NULL, &ctx);
	if (rc)
		return fail("strait_context_open", rc);
	rc = strait_device_find(ctx, name, &dev);
	if (!rc)
		rc = strait_file_open(ctx, path, O_RDWR | O_CLOEXEC, 0, 0, &ep);
	if (!rc)
		rc = strait_mapping_open(ctx, ep, 0, 0, &opts, &m);
	if (!rc)
		rc = strait_mapping_info(m, &info);
	if (!rc)
		rc = edit(ctx, m, dev, info.length, window);
	if (!rc)
		rc = strait_mapping_info(m, &info);
	if (!rc)
		printf("%s: %.1f MiB through %.1f MiB of device memory, %llu evictions\n", name,
		       (double)info.length / 1048576, (double)info.device_bytes / 1048576,
		       (unsigned long long)info.evictions);
	strait_mapping_close(m);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	return rc ? fail(path, rc) : 0;
}
