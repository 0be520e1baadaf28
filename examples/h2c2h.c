/* SPDX-License-Identifier: MIT */
/*
 * Fills a surface in device memory, sends it through a card's memory into a second surface in device memory, and
 * looks whether it is the same there. The CPU touches none of it on the way.
 *
 *     example-h2c2h CARD [DEVICE [BYTES]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <strait/bounce.h>
#include <strait/dma.h>
#include <strait/strait.h>
#include <string.h>

static int failed(const char *what, int rc)
{
	fprintf(stderr, "h2c2h: %s: %s\n", what, strerror(-rc));
	return 1;
}

int main(int argc, char **argv)
{
	size_t bytes = argc > 3 ? strtoull(argv[3], NULL, 0) : 65536;
	struct strait_dma_info info = { .size = sizeof(info) };
	struct strait_region *src, *dst;
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_dma *card;
	uint64_t done, where;
	unsigned char *picture;
	int rc;

	if (argc < 2 || !bytes) {
		fprintf(stderr, "usage: example-h2c2h CARD [DEVICE [BYTES]]\n");
		return 2;
	}
	rc = strait_context_open(NULL, &ctx);
	if (!rc)
		rc = argc > 2 ? strait_device_find(ctx, argv[2], &dev) : strait_device_at(ctx, 0, &dev);
	if (!rc)
		rc = strait_region_alloc(dev, bytes, &src);
	if (!rc)
		rc = strait_region_alloc(dev, bytes, &dst);
	if (rc)
		return failed("memory", rc);
	rc = strait_dma_open(ctx, argv[1], NULL, &card);
	if (rc)
		return failed(argv[1], rc);
	picture = malloc(bytes);
	if (!picture)
		return 1;
	for (size_t i = 0; i < bytes; i++)
		picture[i] = (unsigned char)(i * 31 + (i >> 8));
	rc = strait_region_copy_in(src, 0, picture, bytes);
	if (!rc)
		rc = strait_region_fill(dst, 0, 0, bytes);
	if (!rc)
		rc = strait_dma_bounce(card, src, 0, dst, 0, bytes, 60000000000, &done);
	if (!rc)
		rc = strait_region_compare(src, 0, dst, 0, bytes, &where);
	if (rc)
		return failed("through the card", rc);
	strait_dma_info(card, &info);
	printf("%zu bytes through %s (%s): %s\n", bytes, info.name, info.engine,
	       where == bytes ? "the same" : "DIFFERENT");
	free(picture);
	strait_dma_close(card);
	strait_region_close(dst);
	strait_region_close(src);
	strait_context_close(ctx);
	return where == bytes ? 0 : 3;
}
