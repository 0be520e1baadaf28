/* SPDX-License-Identifier: MIT */
/*
 * file_histogram: threads of a device count the bytes of a file, of any size, that they read themselves.
 *
 *	example-file_histogram [--device emu:0|host] [--budget MIB] FILE
 *
 * No part of the program reads the file: a thread that touches bytes that are not in device memory has them read.
 */
#include "view_threads.h"

static int count(struct launch *l, uint64_t thread, uint64_t threads)
{
	struct strait_cursor c = STRAIT_CURSOR_INIT;
	uint64_t *bins = l->arg, mine[256] = { 0 }, words = l->view.length / 8;

	for (uint64_t i = thread; i < words; i += threads) {
		uint64_t x = strait_load_u64(&l->view, &c, i * 8);

		for (unsigned int b = 0; b < 64; b += 8)
			mine[x >> b & 255]++;
	}
	for (uint64_t i = words * 8 + thread; i < l->view.length; i += threads)
		mine[strait_load_u8(&l->view, &c, i)]++;
	for (unsigned int b = 0; b < 256; b++)
		__atomic_fetch_add(&bins[b], mine[b], __ATOMIC_RELAXED);
	return c.error;
}

int main(int argc, char **argv)
{
	struct strait_frames_info info = { .size = sizeof(info) };
	uint64_t bins[256] = { 0 }, total = 0;
	const char *path = operand(argc, argv);
	struct paged p;
	int rc;

	if (!path) {
		fprintf(stderr, "usage: file_histogram [--device DEVICE] [--budget MIB] FILE\n");
		return 2;
	}
	rc = paged_open(&p, option_text(argc, argv, "device", "emu:0"), path, 0, 0,
			option(argc, argv, "budget", 64) << 20);
	if (!rc)
		rc = paged_launch(&p, STRAIT_INTENT_READ, count, bins);
	if (!rc)
		rc = strait_frames_info(p.frames, &info);
	if (rc)
		return fail("file_histogram", path, rc);
	for (unsigned int b = 0; b < 256; b++) {
		total += bins[b];
		if (bins[b])
			printf("%02x %llu\n", b, (unsigned long long)bins[b]);
	}
	printf("%llu bytes, %llu granules read in place, %llu by the host, %llu frames evicted, %llu granules written\n",
	       (unsigned long long)total, (unsigned long long)info.pulled, (unsigned long long)info.fetched,
	       (unsigned long long)info.evictions, (unsigned long long)info.stored);
	paged_close(&p);
	return 0;
}
