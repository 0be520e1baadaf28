/* SPDX-License-Identifier: MIT */
/* A coherent mapping of a drive that is driven from user space, for the CPU and a GPU. */
#include <strait/mapping.h>

#include "nvme.h"

static const struct nvme_setup setups[] = {
	{ "strait-vgpu", "strait", "vgpu:0", false, false },
	{ "vfio-vgpu", "vfio", "vgpu:0", false, false },
	{ "vfio-host", "vfio", "host", true, false },
};

#define LEN MIB(8)
#define ROUNDS 40

static unsigned char *side_bytes(struct drive *d, struct strait_device *dev, void *at, struct strait_region **region)
{
	uint64_t off;

	*region = NULL;
	if (!dev)
		return at;
	ASSERT_OK(strait_region_lookup(d->ctx, at, &off, region));
	return drive_cpu(*region) + off;
}

/* The CPU and the GPU change parts of it in turns; the drive has all of it in the end, as the machine's host reads it. */
TEST_VARIANTS_TIMEOUT(taken_in_turns, struct nvme_setup, setups, 600)
{
	struct strait_mapping_info info = { .size = sizeof(info) };
	unsigned char *want = malloc(LEN), *bytes;
	struct strait_region *region;
	struct strait_mapping *m;
	uint64_t seed = 70 + (uint64_t)(v - setups), state = seed;
	struct drive d;
	void *at;

	drive_open(&d, v, 0);
	ASSERT_OK(strait_mapping_open(d.ctx, d.ep, 0, LEN, NULL, &m));
	file_pattern(want, 0, LEN, seed);
	ASSERT_OK(strait_mapping_acquire(m, NULL, 0, LEN, STRAIT_INTENT_OVERWRITE, &at));
	memset(at, 0x11, LEN);
	ASSERT_OK(strait_mapping_release(m, NULL, 0, LEN, STRAIT_INTENT_OVERWRITE));
	for (uint64_t i = 0; i < ROUNDS; i++) {
		uint64_t off = LEN / ROUNDS * i, len = i == ROUNDS - 1 ? LEN - off : LEN / ROUNDS;
		struct strait_device *dev = prng_below(&state, 2) ? d.dev : NULL;

		/* All of it, of which a part is stored to. */
		ASSERT_OK(strait_mapping_acquire(m, dev, 0, LEN, STRAIT_INTENT_WRITE, &at));
		bytes = side_bytes(&d, dev, at, &region);
		ASSERT_MEMEQ(bytes, want, off);
		ASSERT_EQ(bytes[off], 0x11);
		memcpy(bytes + off, want + off, len);
		ASSERT_OK(strait_mapping_release(m, dev, 0, LEN, STRAIT_INTENT_WRITE));
		strait_region_close(region);
	}
	ASSERT_OK(strait_mapping_sync(m, 0, LEN));
	ASSERT_OK(strait_mapping_info(m, &info));
	ASSERT_EQ(info.backing, STRAIT_BACKING_COPY);
	ASSERT_EQ(info.conflicts, 0);
	ASSERT_EQ(info.error, 0);
	strait_mapping_close(m);
	drive_close(&d);
	drive_expect(0, LEN, seed);
	free(want);
}
