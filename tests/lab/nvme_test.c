/* SPDX-License-Identifier: MIT */
/*
 * The drive driven from user space through both backends: NVME_MIB at random offsets and of random sizes in both
 * directions, to memory of the GPU and of the host, compared with the drive as the host reads it.
 */
#include "nvme.h"

static const struct nvme_setup setups[] = { NVME_SETUPS("strait"), NVME_SETUPS("vfio") };

#define REGION MIB(16)

static uint64_t state = 88172645463325252u;

static struct strait_result move(struct drive *d, uint32_t op, struct strait_region *r, uint64_t at, uint64_t off,
				 uint64_t len)
{
	struct strait_transfer t = {
		.op = op, .endpoint = d->ep, .region = r, .endpoint_offset = at, .region_offset = off, .length = len
	};
	struct strait_result res;

	ASSERT_OK(strait_transfer_run(&t, STRAIT_FOREVER, &res));
	ASSERT_EQ(res.bytes, len);
	return res;
}

/* All of [0, total) in pieces of random length; every third is unaligned. */
static uint64_t sweep(struct drive *d, uint32_t op, struct strait_region *r, uint64_t total, uint64_t seed, int route)
{
	unsigned char *cpu = drive_cpu(r), *want = malloc(REGION);
	uint64_t direct = 0, n;

	ASSERT_TRUE(want);
	for (uint64_t at = 0; at < total; at += n) {
		uint64_t off;
		struct strait_result res;

		n = prng_below(&state, 3) ? (prng_below(&state, 512) + 1) * 4096 : prng_below(&state, MIB(2)) + 1;
		if (prng_below(&state, 8) == 0)
			n = prng_below(&state, 5000) + 1;
		n = min_u64(n, total - at);
		off = (prng_below(&state, REGION - n - 4096) & ~4095ull) + at % 4096;
		file_pattern(want, at, n, seed);
		if (op == STRAIT_WRITE)
			memcpy(cpu + off, want, n);
		else
			memset(cpu + off, 0xa5, n);
		res = move(d, op, r, at, off, n);
		direct += res.route_bytes[route];
		if (op == STRAIT_READ)
			ASSERT_MEMEQ(cpu + off, want, n);
	}
	free(want);
	return direct;
}

TEST_VARIANTS_TIMEOUT(both_ways, struct nvme_setup, setups, 900)
{
	uint64_t total = MIB(getenv("NVME_MIB") ? strtoull(getenv("NVME_MIB"), NULL, 0) : (very_slow() ? 12 : 64)),
		 seed = 1 + (v - setups), moved;
	struct strait_nvme_info info = { .size = sizeof(info) };
	struct strait_nvme_endpoint_info end = { .size = sizeof(end) };
	int route = !strcmp(v->device, "host") ? STRAIT_ROUTE_HOST : STRAIT_ROUTE_P2P;
	struct strait_region *r;
	struct drive d;

	drive_open(&d, v, 0);
	r = drive_region(&d, REGION);
	moved = sweep(&d, STRAIT_WRITE, r, total, seed, route);
	ASSERT_OK(strait_endpoint_sync(d.ep));
	moved += sweep(&d, STRAIT_READ, r, total, seed, route);
	/* Everything but the ends of pieces was moved by the drive itself. */
	ASSERT_GE(moved, 2 * total / 10 * 9);
	ASSERT_OK(strait_nvme_info(d.nvme, &info));
	ASSERT_OK(strait_nvme_endpoint_info(d.ep, &end));
	ASSERT_EQ(info.resets, 0);
	ASSERT_EQ(info.failed, 0);
	ASSERT_GT(end.edge_writes, 0);
	ASSERT_GE(end.direct_bytes, 2 * total / 10 * 9);
	printf("# %llu commands, %llu lost interrupts, shadow doorbells %d, SGLs %d\n",
	       (unsigned long long)info.commands, (unsigned long long)info.lost_interrupts,
	       !!(info.has & STRAIT_NVME_HAS_SHADOW), !!(info.has & STRAIT_NVME_HAS_SGL));
	strait_region_close(r);
	drive_close(&d);
	drive_expect(0, total, seed);
}

/* What the kernel's driver reads afterwards. */
TEST(given_back)
{
	drive_give_back();
}
