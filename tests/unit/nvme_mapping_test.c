/* SPDX-License-Identifier: MIT */
/* A coherent mapping of a namespace: the CPU has copies, since there is no page cache. */
#include <strait/mapping.h>

#include "nvme_common.h"

#define BYTES MIB(8)
#define LEN MIB(4)
#define AT MIB(1) /* of the mapping, in the namespace */

static const struct shape {
	const char *name;
	struct model_config c;
	const char *device;
	uint32_t flags; /* STRAIT_MAPPING_* */
} shapes[] = {
	{ "emu", { 0 }, "emu:0", 0 },
	{ "host", { 0 }, "host", 0 },
	{ "4096", { .lba = 4096, .blocks = 2048 }, "emu:0", 0 },
	{ "threaded", { .threaded = true }, "emu:0", 0 },
	{ "not-mapped", { .refuse_regions = true }, "emu:0", 0 },
	{ "plain", { 0 }, "emu:0", STRAIT_MAPPING_COMPARE },
};

struct user {
	struct rig r;
	struct strait_endpoint *ep;
	struct strait_device *dev;
	struct strait_mapping *m;
	uint8_t *cpu, *disk, *want;
};

static void begin(struct user *u, const struct shape *v)
{
	struct strait_mapping_opts o = { .size = sizeof(o), .flags = v->flags };
	struct strait_mapping_info i = { .size = sizeof(i) };

	rig_open(&u->r, &v->c, NULL);
	u->disk = u->r.model->disk[0];
	prng_fill(u->disk, BYTES, 3);
	u->want = malloc(LEN);
	memcpy(u->want, u->disk + AT, LEN);
	ASSERT_OK(strait_device_find(u->r.ctx, v->device, &u->dev));
	ASSERT_OK(strait_nvme_endpoint(u->r.nvme, 1, 0, &u->ep));
	ASSERT_OK(strait_mapping_open(u->r.ctx, u->ep, AT, LEN, &o, &u->m));
	ASSERT_OK(strait_mapping_info(u->m, &i));
	ASSERT_EQ(i.backing, STRAIT_BACKING_COPY);
	u->cpu = i.addr;
}

static void end(struct user *u)
{
	strait_mapping_close(u->m);
	strait_endpoint_close(u->ep);
	ASSERT_MEMEQ(u->disk + AT, u->want, LEN);
	free(u->want);
	rig_close(&u->r);
}

/* Acquires [off, off + len) for one side, checks it, and stores to a part of it. */
static void turn(struct user *u, struct strait_device *dev, uint64_t off, uint64_t len, uint8_t value)
{
	struct strait_region *region = NULL;
	uint8_t *at, *bytes;
	uint64_t in;

	ASSERT_OK(strait_mapping_acquire(u->m, dev, off, len, STRAIT_INTENT_WRITE, (void **)&at));
	bytes = at;
	if (dev) {
		ASSERT_OK(strait_region_lookup(u->r.ctx, at, &in, &region));
		bytes = rig_cpu(region) + in;
	}
	ASSERT_MEMEQ(bytes, u->want + off, len);
	memset(bytes + len / 2, value, len / 4);
	memset(u->want + off + len / 2, value, len / 4);
	ASSERT_OK(strait_mapping_release(u->m, dev, off, len, STRAIT_INTENT_WRITE));
	strait_region_close(region);
}

TEST_VARIANTS(taken_in_turns, struct shape, shapes)
{
	struct user u;
	uint64_t state = 7;

	begin(&u, v);
	for (int i = 0; i < 60; i++) {
		uint64_t off = prng_below(&state, LEN - 8), len = 8 + prng_below(&state, LEN - off - 7);

		if (i % 4)
			len = min_u64(len, 20000);
		turn(&u, i % 3 ? u.dev : NULL, off, len, (uint8_t)i);
	}
	turn(&u, NULL, 0, LEN, 200);
	turn(&u, u.dev, 0, LEN, 201);
	ASSERT_OK(strait_mapping_sync(u.m, 0, LEN));
	ASSERT_MEMEQ(u.disk + AT, u.want, LEN);
	turn(&u, NULL, 0, LEN, 202);
	end(&u);
}

/* Mappings of one endpoint share their versions. */
TEST(two_mappings)
{
	struct strait_mapping *first;
	struct user u;

	begin(&u, &shapes[0]);
	first = u.m;
	ASSERT_OK(strait_mapping_open(u.r.ctx, u.ep, AT, LEN, NULL, &u.m));
	turn(&u, NULL, 0, LEN, 1);
	strait_mapping_close(u.m);
	u.m = first;
	turn(&u, NULL, 0, LEN, 2);
	turn(&u, u.dev, 0, LEN, 3);
	end(&u);
}

TEST(refuses)
{
	struct strait_mapping_opts o = { .size = sizeof(o), .flags = STRAIT_MAPPING_PRIVATE };
	struct strait_mapping *m;
	struct strait_endpoint *ep;
	struct user u;

	begin(&u, &shapes[0]);
	ASSERT_EQ(strait_mapping_open(u.r.ctx, u.ep, 0, 0, &o, &m), -EOPNOTSUPP);
	ASSERT_EQ(strait_mapping_open(u.r.ctx, u.ep, BYTES, 4096, NULL, &m), -EINVAL);
	ASSERT_OK(strait_nvme_endpoint(u.r.nvme, 1, STRAIT_NVME_READ_ONLY, &ep));
	ASSERT_EQ(strait_mapping_open(u.r.ctx, ep, 0, 0, NULL, &m), -EACCES);
	o.flags = STRAIT_MAPPING_READ_ONLY;
	ASSERT_OK(strait_mapping_open(u.r.ctx, ep, 0, LEN, &o, &m));
	ASSERT_OK(strait_mapping_acquire(m, NULL, AT, KIB(64), STRAIT_INTENT_READ, NULL));
	strait_mapping_close(m);
	strait_endpoint_close(ep);
	end(&u);
}
