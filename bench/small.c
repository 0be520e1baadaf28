/* SPDX-License-Identifier: MIT */
/*
 * Queued 4 KiB reads of a cached file into emu:0. bench/instructions counts their instructions.
 *
 *     small FILE READS
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include <strait/strait.h>

#define BATCH 128
#define BYTES 4096u

int main(int argc, char **argv)
{
	struct strait_context_opts opts = { .size = sizeof(opts), .threads = 1 };
	static struct strait_transfer t[BATCH];
	static struct strait_result r[BATCH];
	struct strait_file_info info = { .size = sizeof(info) };
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_endpoint *ep;
	struct strait_region *region;
	struct strait_queue *queue;
	uint64_t seed = 1;
	long reads;

	if (argc != 3 || (reads = atol(argv[2])) < BATCH) {
		fprintf(stderr, "usage: small FILE READS\n");
		return 2;
	}
	if (strait_context_open(&opts, &ctx) || strait_device_find(ctx, "emu:0", &dev) ||
	    strait_file_open(ctx, argv[1], O_RDONLY, 0, STRAIT_FILE_BUFFERED, &ep) || strait_file_info(ep, &info) ||
	    strait_region_alloc(dev, (size_t)BATCH * BYTES, &region) || strait_queue_open(ctx, NULL, &queue)) {
		fprintf(stderr, "small: set-up failed\n");
		return 1;
	}
	for (long done = 0; done < reads; done += BATCH) {
		for (int i = 0; i < BATCH; i++) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			t[i] = (struct strait_transfer){ .op = STRAIT_READ,
							 .endpoint = ep,
							 .region = region,
							 .endpoint_offset =
								 (seed >> 20) % (info.length / BYTES) * BYTES,
							 .region_offset = (uint64_t)i * BYTES,
							 .length = BYTES };
		}
		if (strait_queue_submit(queue, t, BATCH) ||
		    strait_queue_wait(queue, BATCH, BATCH, STRAIT_FOREVER, r) != BATCH) {
			fprintf(stderr, "small: a batch failed\n");
			return 1;
		}
	}
	strait_queue_close(queue);
	strait_region_close(region);
	strait_endpoint_close(ep);
	strait_context_close(ctx);
	return 0;
}
